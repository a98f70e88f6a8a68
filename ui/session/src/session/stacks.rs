//! The stacks of the current task and of all tasks, with names, and the kernel's own log.

use std::sync::Arc;

use serde::Serialize;
use trapline_os::{CodePointer, KernelFrame, LogError, Task, UserFrame, kernel_log};

use super::{CodeAddress, Naming, Session};

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StackFrame {
    /// Instruction pointer or return address.
    pub ip: u64,
    /// Its symbol, if there is one.
    pub symbol: Option<String>,
}

impl Session {
    /// What names addresses of code as they are now.
    pub fn naming<T>(&self, ask: impl FnOnce(&mut Naming<'_>) -> T) -> T {
        let (profile, mut unwinder) = ((self.profile)(), self.target.unwinder());
        let (target, core) = (&*self.target, self.machine.core());
        ask(&mut Naming { target, core, profile: profile.as_deref(), unwinder: &mut unwinder })
    }

    /// The symbol of the next instruction, if there is one.
    pub fn symbol_here(&self) -> Option<String> {
        let core = self.machine.core();
        self.naming(|naming| CodeAddress::of(core, core.env().eip()).symbol(naming))
    }

    /// The next instruction, disassembled.
    pub fn instruction_here(&self) -> Option<String> {
        let core = self.machine.core();
        let next = core.decode_original(core.linear_ip())?;
        Some(self.naming(|naming| naming.instruction(&next)))
    }

    /// The symbol of an address of the kernel, of one of the modules that it has loaded, or of a file that the current
    /// process has mapped, if there is one.
    pub fn symbol_of(&self, pointer: CodePointer) -> Option<String> {
        self.target.kernel_symbol(pointer).or_else(|| self.naming(|naming| naming.name(pointer)))
    }

    /// The current stack, innermost first: that of the kernel, or in user mode that of the program.
    pub fn stack(&self, most: usize) -> Vec<StackFrame> {
        self.naming(|naming| naming.stack(most))
    }
}

impl Naming<'_> {
    /// The current stack.
    pub fn stack(&mut self, most: usize) -> Vec<StackFrame> {
        if self.core.env().cpl() == 3 {
            let frames = self.unwinder.user_stack(self.core, self.profile, false, most);
            return frames.into_iter().map(|frame| self.of_user(&frame)).collect();
        }
        let frames = self.unwinder.kernel_stack(self.core, self.profile, false, most);
        frames.into_iter().map(|frame| self.of_kernel(frame)).collect()
    }

    /// A frame of a program's stack with its name.
    fn of_user(&self, frame: &UserFrame) -> StackFrame {
        let of_file = |(path, base): &(Arc<str>, u64)| self.name_in(frame.pointer(), true, (path, *base));
        StackFrame { ip: frame.ip, symbol: frame.file.as_ref().and_then(of_file) }
    }

    /// A frame of the kernel's stack with its name.
    fn of_kernel(&mut self, frame: KernelFrame) -> StackFrame {
        StackFrame { ip: frame.ip, symbol: self.name(frame.pointer()) }
    }
}

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
