//! How long each thread has run: `vtimestamp`.
//!
//! The program has a hidden probe where the guest switches threads. A thread's time is the number of instructions that it
//! has executed since the program has seen it first, each a nanosecond: what it sleeps is not its own.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trapline_os::Birth;

/// The most threads whose time is kept; more descriptors than any guest has.
const MOST: usize = 1 << 16;

/// The time of a thread until it was switched away from.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Own {
    birth: Birth,
    ran: u64,
}

/// The times of all threads, by the addresses of their descriptors.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct OwnTime {
    threads: BTreeMap<u64, Own>,
    /// The thread that runs, and the instruction count since which it does.
    running: Option<(u64, u64)>,
}

impl OwnTime {
    /// The guest switches to a thread.
    pub fn switch(&mut self, next: u64, birth: Birth, now: u64) {
        if let Some((task, since)) = self.running {
            self.threads.entry(task).or_default().ran += now.saturating_sub(since);
        }
        if self.threads.len() >= MOST {
            self.threads.clear();
        }
        let own = self.threads.entry(next).or_default();
        // One that ran when the program began has no birth yet.
        if own.birth != Birth::default() && !birth.continues(own.birth) {
            own.ran = 0;
        }
        own.birth = birth;
        self.running = Some((next, now));
    }

    /// The time of a thread.
    pub fn of(&mut self, task: u64, now: u64) -> u64 {
        let (running, since) = *self.running.get_or_insert((task, now));
        let before = self.threads.get(&task).map_or(0, |own| own.ran);
        if running == task { before + now.saturating_sub(since) } else { before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_while_others_do_not() {
        let birth = |pid| Birth { pid, tgid: pid, start: 0 };
        let mut time = OwnTime::default();
        assert_eq!((time.of(8, 100), time.of(8, 150)), (0, 50));
        time.switch(16, birth(2), 200);
        assert_eq!((time.of(8, 300), time.of(16, 300)), (100, 100));
        time.switch(8, birth(1), 400);
        assert_eq!((time.of(8, 410), time.of(16, 410)), (110, 200));
        time.switch(16, birth(2), 500);
        assert_eq!((time.of(8, 600), time.of(16, 600)), (200, 300));
        time.switch(8, birth(3), 700);
        assert_eq!(time.of(8, 705), 5, "another thread");
    }
}
