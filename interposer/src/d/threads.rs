//! Which thread a descriptor is of, for thread-local variables.
//!
//! A guest gives the descriptor of a thread that has ended to a new one. So the variables under the address of a descriptor
//! are those of the thread whose birth was seen there, and when another one is seen they are dropped. The birth is
//! looked at when a variable is used, but not again within a few instructions: no guest ends a thread and makes another
//! one with them.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use trapline_os::Birth;

/// Instructions within which a descriptor is not looked at again. It changes hands by the end of one thread, two
/// switches and the making of another.
const SOON: u64 = 128;
/// As many descriptors are kept without a look at which of them still have variables.
const FEW: usize = 1024;

/// The descriptors that were looked at, by address.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Threads {
    births: BTreeMap<u64, Birth>,
    /// Failures to store a variable before it is worth to look for threads that have ended.
    patience: u64,
    /// The last look: the descriptor, and the instruction count.
    #[serde(skip)]
    last: Option<(u64, u64)>,
}

impl Threads {
    /// Whether the descriptor at `task` was looked at just now.
    #[inline]
    pub fn is_known(&self, task: u64, now: u64) -> bool {
        self.last.is_some_and(|(last, then)| last == task && now.wrapping_sub(then) < SOON)
    }

    /// Looks at a descriptor. Returns whether the thread that it was of has ended.
    pub fn look(&mut self, task: u64, birth: Birth, now: u64) -> bool {
        self.last = Some((task, now));
        let before = self.births.insert(task, birth);
        before.is_some_and(|before| !birth.continues(before))
    }

    /// Whether there are so many descriptors that those without variables are to be forgotten. It is so each time that
    /// their number has doubled.
    pub fn are_many(&self) -> bool {
        self.births.len() >= FEW && self.births.len().is_power_of_two()
    }

    /// Forgets the descriptors without variables.
    pub fn keep(&mut self, with_variables: &BTreeSet<u64>) {
        self.births.retain(|task, _| with_variables.contains(task));
        self.last = None;
    }

    /// A variable could not be stored. Returns whether to look for threads that have ended: not again before as many
    /// failures as there are variables, because it costs as much.
    pub fn is_worth_a_look(&mut self, variables: usize) -> bool {
        if self.births.is_empty() || self.patience > 0 {
            self.patience = self.patience.saturating_sub(1);
            return false;
        }
        self.patience = variables as u64;
        true
    }

    /// Takes out the descriptors whose thread has ended. `living` are all threads that there are.
    pub fn take_ended(&mut self, living: &BTreeMap<u64, Birth>) -> Vec<u64> {
        let lives = |task: &u64, birth: &Birth| living.get(task).is_some_and(|now| now.continues(*birth));
        self.births.extract_if(.., |task, birth| !lives(task, birth)).map(|(task, _)| task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn birth(pid: u32, tgid: u32, start: u64) -> Birth {
        Birth { pid, tgid, start }
    }

    #[test]
    fn a_descriptor_is_another_threads_when_its_birth_is_another() {
        let mut threads = Threads::default();
        assert!(!threads.look(8, birth(7, 7, 100), 0));
        assert!(!threads.look(8, birth(7, 7, 100), 1_000));
        assert!(threads.look(8, birth(9, 9, 200), 2_000), "another id");
        assert!(threads.look(8, birth(9, 9, 300), 3_000), "the same id again");
        assert!(threads.is_known(8, 3_000 + SOON - 1) && !threads.is_known(8, 3_000 + SOON));
        assert!(!threads.is_known(16, 3_000));
    }

    #[test]
    fn a_thread_that_executes_a_program_takes_over_its_process() {
        let mut threads = Threads::default();
        threads.look(8, birth(12, 10, 200), 0);
        assert!(!threads.look(8, birth(10, 10, 100), 1_000), "the first thread's id and start");
        threads.look(16, birth(12, 10, 200), 0);
        assert!(threads.look(16, birth(10, 10, 300), 1_000), "a later process with that id");
        threads.look(24, birth(12, 10, 200), 0);
        assert!(threads.look(24, birth(11, 11, 100), 1_000), "another process");
    }

    #[test]
    fn those_that_have_ended_are_found_when_room_is_needed() {
        let mut threads = Threads::default();
        (1..=3).for_each(|task| assert!(!threads.look(task, birth(task as u32, 1, 0), 0)));
        assert!(threads.is_worth_a_look(2));
        let living = BTreeMap::from([(1, birth(1, 1, 0)), (2, birth(9, 9, 0))]);
        assert_eq!(threads.take_ended(&living), [2, 3]);
        let worth: Vec<bool> = (0..3).map(|_| threads.is_worth_a_look(0)).collect();
        assert_eq!(worth, [false, false, true], "after as many failures as there were variables");
    }
}
