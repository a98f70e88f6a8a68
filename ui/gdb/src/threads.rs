//! The guest's tasks as gdb's threads: the one that runs is the thread that has stopped.
//!
//! A thread has the number of its task. A task without one, such as that of an idle Linux, has a number that no task of
//! Linux has; a guest whose system is not known has one thread, number 1.

use std::num::NonZeroUsize;

use trapline_os::{OsProfile, Task};
use trapline_session::Session;

use crate::registers::Known;
use crate::user::User;

/// Linux gives no task this number (PID_MAX_LIMIT and one more).
const IDLE: usize = (4 << 20) + 1;

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its number.
    pub tid: NonZeroUsize,
    /// The address of its task; 0 for the processor of an unknown system.
    pub task: u64,
    /// What gdb shows of it.
    pub label: String,
}

fn tid(pid: u32) -> NonZeroUsize {
    NonZeroUsize::new(pid as usize).or(NonZeroUsize::new(IDLE)).unwrap_or(NonZeroUsize::MIN)
}

/// The number of the running thread.
pub fn running(session: &Session) -> NonZeroUsize {
    session.profile().map_or(NonZeroUsize::MIN, |profile| tid(profile.pid(session.core())))
}

/// All threads, the running one first; of one process only its own. `told` is the thread that gdb was told at its last stop:
/// if the run was moved since to where this thread does not exist, gdb needs it until it is told another one.
pub fn all(session: &Session, user: Option<&User>, told: Option<NonZeroUsize>) -> Vec<Thread> {
    let first = running(session);
    let Some(profile) = session.profile() else {
        return vec![Thread { tid: first, task: 0, label: "processor".to_owned() }];
    };
    let thread = |task: Task| {
        let label = if task.name.is_empty() { format!("task {}", task.pid) } else { task.name };
        Thread { tid: tid(task.pid), task: task.task, label }
    };
    let current = profile.current(session.core()).map_or_else(
        || Thread { tid: first, task: 0, label: "processor".to_owned() },
        |task| Thread { tid: first, ..thread(task) },
    );
    let mut found = vec![Thread { label: format!("{}, running", current.label), ..current }];
    for task in profile.tasks(session.core()) {
        let wanted = user.is_none_or(|user| task.tgid == user.tgid());
        let task = thread(task);
        if wanted && !found.iter().any(|known| known.tid == task.tid) {
            found.push(task);
        }
    }
    if let Some(tid) = told.filter(|tid| !found.iter().any(|known| known.tid == *tid)) {
        found.push(Thread { tid, task: 0, label: "not at this position".to_owned() });
    }
    found
}

/// The known registers of a task that does not run: where its kernel stack continues.
pub fn known(profile: &dyn OsProfile, session: &Session, task: u64) -> Known {
    let Some(switched) = profile.switched(session.core(), task) else { return Known::default() };
    Known { gpr: vec![(4, switched.sp), (5, switched.bp)], ip: Some(switched.ip) }
}
