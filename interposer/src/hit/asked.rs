//! Requests of handlers to the run: an end, a frozen channel, core files, a crash dump.

use trapline_dump::CrashDump;
use trapline_emu::Core;
use trapline_trace::Kind;

use super::core_file::CoreFile;
use super::registered::Services;
use super::written::Written;

/// Copies what a crash dump contains.
pub type DumpTaker = Box<dyn Fn(&Core) -> CrashDump + Send>;

/// Names an address in a module, for stacks of this kind: the symbol that contains it, and its offset in the symbol.
pub type SymbolNames = Box<dyn Fn(Kind, &str, u64) -> Option<(String, u64)> + Send>;

/// The requests of handlers, and the state that services need.
#[derive(Default)]
pub(crate) struct Asked {
    /// Whether the running handler has set one of the next four.
    pub any: bool,
    /// The handler requested the end of the run.
    pub stop: bool,
    /// The handler wrote memory.
    pub wrote: bool,
    /// The handler let time pass.
    pub passed: bool,
    /// The end that the handler requested is a crash.
    pub panics: bool,
    /// Assertions that did not hold: the probe, and the operation if it ended the handler, else 0. They are not part of a saved state.
    pub refuted: Vec<(u32, u32)>,
    /// Hits after this one leave no record: the channel is frozen.
    pub frozen_after: Option<u64>,
    /// Records of handlers to channels of drivers.
    pub written: Written,
    /// Core files that were not fetched yet.
    pub cores: Vec<CoreFile>,
    /// How many more core files may be taken.
    pub cores_left: u64,
    pub names: Option<SymbolNames>,
    /// What the embedding program has registered.
    pub services: Services,
    /// What takes the dump of the first `exit 2`.
    pub dumps_with: Option<DumpTaker>,
    /// The dump, until it is fetched. It is not part of a saved state: it is fetched before the next state is saved.
    pub dump: Option<Box<CrashDump>>,
}

/// Most assertions that are noted until they are taken: each that does not hold is looked for among them.
const MOST_REFUTED: usize = 64;

impl Asked {
    /// An assertion of a probe's handler does not hold. Each is noted once.
    pub fn refute(&mut self, probe: u32, at: u32) {
        if self.refuted.len() < MOST_REFUTED && !self.refuted.contains(&(probe, at)) {
            self.refuted.push((probe, at));
        }
    }
}
