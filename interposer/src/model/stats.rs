//! Counters of what happened at probes.

use serde::{Deserialize, Serialize};

/// Counters of everything that happened at probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Sites and watches armed now.
    pub sites: u64,
    /// Traps taken at sites.
    pub traps: u64,
    /// Handlers run.
    pub hits: u64,
    /// Handlers that an exception ended.
    pub exceptions: u64,
    /// Displaced instructions emulated.
    pub emulated: u64,
    /// Displaced instructions run out of line.
    pub out_of_line: u64,
    /// Displaced instructions stepped in place.
    pub stepped: u64,
    /// Displaced instructions that faulted.
    pub faulted: u64,
    /// Stack trace records that `excpt_log` had no room for.
    pub traces_dropped: u64,
    /// Records dropped because the displaced instruction faulted.
    pub dropped: u64,
    /// Changes of probed instructions by the guest while they were armed.
    pub rewritten: u64,
    /// Pages of user modules that were armed while their process had them mapped from the module's path.
    pub by_mapping: u64,
    /// Pages of user modules that were armed by their content alone.
    pub by_content: u64,
    /// Semaphores and pointers of user programs that were raised, in each process.
    pub words_raised: u64,
    /// Semaphores and pointers that could not be raised, since their page is not private to the process and cannot be
    /// made private.
    pub words_left: u64,
    /// Hits that a probe's `ignore` passed over.
    pub ignored: u64,
    /// Handlers whose RPN stack wrapped.
    pub wraps: u64,
    /// `push u` and `pop u` without a user context.
    pub no_user_context: u64,
    /// Hits without a record because the channel was frozen.
    pub frozen: u64,
    /// `exit 1`: a debugger was asked for.
    pub debugger_exits: u64,
    /// `exit 2`: a crash dump was asked for.
    pub dump_exits: u64,
    /// `exit 3` beyond the core files that may be taken.
    pub cores_left_out: u64,
}

impl Stats {
    /// Whether they are plausible counts: none is near the end of its range.
    pub(crate) fn is_sound(&self) -> bool {
        const MOST: u64 = 1 << 62;
        let Self {
            sites,
            traps,
            hits,
            exceptions,
            emulated,
            out_of_line,
            stepped,
            faulted,
            traces_dropped,
            dropped,
            rewritten,
            by_mapping,
            by_content,
            words_raised,
            words_left,
            ignored,
            wraps,
            no_user_context,
            frozen,
            debugger_exits,
            dump_exits,
            cores_left_out,
        } = *self;
        let all = [
            sites,
            traps,
            hits,
            exceptions,
            emulated,
            out_of_line,
            stepped,
            faulted,
            traces_dropped,
            dropped,
            rewritten,
            by_mapping,
            by_content,
            words_raised,
            words_left,
            ignored,
            wraps,
            no_user_context,
            frozen,
            debugger_exits,
            dump_exits,
            cores_left_out,
        ];
        all.iter().all(|count| *count < MOST)
    }
}
