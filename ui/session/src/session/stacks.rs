//! The stacks of all tasks, and the kernel's own log.

use serde::Serialize;
use trapline_os::{LogError, Task, kernel_log};

use super::stack::StackFrame;
use super::{Naming, Session};

/// The stack of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskStack {
    /// Id of the task; 0 if no system is known.
    pub pid: u32,
    /// Id of its process.
    pub tgid: u32,
    /// Its name.
    pub name: String,
    /// Whether it is the one that runs.
    pub running: bool,
    /// Whether it has ended, and has no stack any more.
    pub ended: bool,
    /// Innermost first; of a task that does not run in the kernel, and none if that cannot be read.
    pub frames: Vec<StackFrame>,
}

impl Session {
    /// The stack of each task in the guest's own order, `most` frames of each. The CPU's stack is that of the task that
    /// runs; of a system without known tasks, it is the only one.
    pub fn stacks(&self, most: usize) -> Vec<TaskStack> {
        self.naming(|naming| stacks(naming, most))
    }

    /// The log of the guest's kernel, as dmesg shows it.
    ///
    /// # Errors
    /// The system keeps none that is known, or it cannot be read.
    pub fn log(&self) -> Result<Vec<u8>, LogError> {
        let plan = self.target.image().plan();
        if plan.linux.is_none() {
            return Err(LogError::NoLog);
        }
        let about = self.vmcoreinfo().ok_or(LogError::NoDescription)?;
        let core = self.core();
        match (self.profile)() {
            Some(profile) => profile.log(core, &about),
            None => kernel_log(&about, plan.width.bits() == 64, &|va, to| core.peek(va, to).is_ok()),
        }
    }
}

fn stacks(naming: &mut Naming<'_>, most: usize) -> Vec<TaskStack> {
    let own = naming.stack(most);
    let unknown =
        |frames| TaskStack { pid: 0, tgid: 0, name: String::new(), running: true, ended: false, frames };
    let (core, profile) = (naming.core, naming.profile);
    let Some(profile) = profile else { return vec![unknown(own)] };
    let current = profile.current_task(core);
    let tasks = profile.tasks(core);
    if !tasks.iter().any(|task| task.task == current) {
        return std::iter::once(unknown(own))
            .chain(tasks.into_iter().map(|task| with(task, false, Vec::new())))
            .collect();
    }
    let stack = |task: Task| {
        if task.task == current {
            return with(task, true, own.clone());
        }
        let ended = profile.has_ended(core, task.task);
        let switched = profile.switched(core, task.task);
        let frames =
            switched.map(|at| naming.unwinder.switched_stack(core, profile, at, most)).unwrap_or_default();
        let frames = frames.into_iter().map(|frame| naming.of_kernel(frame)).collect();
        TaskStack { ended, ..with(task, false, frames) }
    };
    tasks.into_iter().map(stack).collect()
}

fn with(task: Task, running: bool, frames: Vec<StackFrame>) -> TaskStack {
    TaskStack { pid: task.pid, tgid: task.tgid, name: task.name, running, ended: false, frames }
}
