//! The interface of profiles, independent of the system.
//!
//! The accessors of single items exist because every hit uses them; [`OsProfile::current`] is made of them.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use trapline_emu::symbols::Symbols;
use trapline_emu::{Core, UserContext};

/// A task of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Virtual address of its descriptor.
    pub task: u64,
    /// Id of the task; for a process's first thread, the id of the process.
    pub pid: u32,
    /// Id of its process.
    pub tgid: u32,
    /// User id.
    pub uid: u32,
    /// Its name; invalid UTF-8 is replaced.
    pub name: String,
}

/// What tells a thread from those that have had its descriptor before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Birth {
    /// Id of the thread.
    pub pid: u32,
    /// Id of its process.
    pub tgid: u32,
    /// When it was made, by the guest's own clock; 0 if that is unknown.
    pub start: u64,
}

impl Birth {
    /// Whether the thread of a descriptor that showed `before` is still the same. One that executes a program in a
    /// process of several threads becomes the first of them: it takes over that one's id and start.
    #[must_use]
    pub fn continues(self, before: Self) -> bool {
        let leads = |of: Self| of.pid == of.tgid;
        let took_over = leads(self) && !leads(before) && self.tgid == before.tgid;
        (self.pid, self.start) == (before.pid, before.start) || took_over && self.start <= before.start
    }
}

/// The kind of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModuleKind {
    /// The kernel or a part of it.
    Kernel,
    /// A user program or library.
    User,
}

/// A module in the guest's own list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name; invalid UTF-8 is replaced.
    pub name: String,
    /// Virtual address of its first byte.
    pub base: u64,
    /// Size in bytes.
    pub size: u64,
    /// Its kind.
    pub kind: ModuleKind,
}

/// A range of a process's address space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Virtual address of its first byte.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of `start` in the file, bytes; 0 without one.
    pub offset: u64,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// Stores are visible to other processes that map it.
    pub shared: bool,
    /// The file's path; empty without a file.
    pub path: String,
}

/// The data of a loaded kernel module that stacks need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedModule {
    /// Its name.
    pub name: String,
    /// Virtual address of its first byte.
    pub base: u64,
    /// Virtual addresses of its memory: the permanent part, and the init part while it is starting.
    pub ranges: Vec<Range<u64>>,
    /// Its ORC tables: virtual address of `.orc_unwind_ip`, of `.orc_unwind`, and the number of entries.
    pub orc: Option<(u64, u64, u64)>,
}

impl LoadedModule {
    /// Whether a virtual address lies in it.
    pub fn holds(&self, va: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&va))
    }
}

impl From<Module> for LoadedModule {
    fn from(Module { name, base, size, .. }: Module) -> Self {
        let ranges = std::iter::once(base..base.saturating_add(size)).collect();
        Self { name, base, ranges, orc: None }
    }
}

/// Registers that a process had in user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRegisters {
    /// General registers in the machine's order.
    pub gpr: [u64; 16],
    /// Instruction pointer.
    pub ip: u64,
    /// CS.
    pub cs: u16,
}

impl UserRegisters {
    /// The registers that the machine has noted: correct for a system that gives each task its own ring-0 stack in the
    /// TSS, and for any system until it switches tasks.
    pub fn noted(core: &Core) -> Option<Self> {
        let context = core.user_context()?;
        Some(Self { gpr: context.gpr, ip: context.ip, cs: context.selectors[1] })
    }
}

/// Where a task continues that does not run: the registers that matter for its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switched {
    /// The return address of the function that switches tasks.
    pub ip: u64,
    /// The stack pointer there.
    pub sp: u64,
    /// The frame pointer there.
    pub bp: u64,
}

/// Why the log of a kernel cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Another system.
    #[error("the guest's system keeps no log that is known here")]
    NoLog,
    /// No description.
    #[error("the kernel has not described itself yet (VMCOREINFO), so its log cannot be found")]
    NoDescription,
    /// The description lacks a line.
    #[error("the kernel's description of itself (VMCOREINFO) has no valid {0}; Linux 5.10 and later have it")]
    NoField(String),
    /// The log is not where it should be.
    #[error("the kernel's log cannot be read at {0:#x}")]
    Unreadable(u64),
    /// A size that no log has.
    #[error("the kernel's log is damaged: its {what} is 2 to the power of {bits}")]
    Damaged {
        /// Which one.
        what: &'static str,
        /// Its logarithm.
        bits: u64,
    },
}

/// Reads tasks and modules of one guest system.
pub trait OsProfile: Send {
    /// The system's name.
    fn system(&self) -> &'static str;

    /// Address of the current task's descriptor, 0 when it cannot be read.
    fn current_task(&self, core: &Core) -> u64;

    /// Process id of the current task, 0 when it cannot be read.
    fn pid(&self, core: &Core) -> u32;

    /// Id of the current task's process, 0 when it cannot be read.
    fn tgid(&self, core: &Core) -> u32 {
        self.pid(core)
    }

    /// What the descriptor at `task` shows of its thread's birth; zeros when it cannot be read.
    fn birth(&self, core: &Core, task: u64) -> Birth;

    /// User id of the current task, 0 when it cannot be read.
    fn uid(&self, core: &Core) -> u32;

    /// Appends the current task's name, without a NUL; nothing when it cannot be read.
    fn name_into(&self, core: &Core, to: &mut Vec<u8>);

    /// All tasks in the guest's own order, the unreadable rest left out.
    fn tasks(&self, core: &Core) -> Vec<Task>;

    /// Why [`OsProfile::tasks`] has not all tasks, in a sentence; `None` if it has.
    fn tasks_damage(&self, _core: &Core) -> Option<String> {
        None
    }

    /// All modules in the guest's own order, unreadable ones left out.
    fn modules(&self, core: &Core) -> Vec<Module>;

    /// The damage in the guest's own list of modules, in a sentence; `None` if there is none. [`OsProfile::modules`]
    /// has the readable part of a damaged list.
    fn damage(&self, _core: &Core) -> Option<String> {
        None
    }

    /// The sections of the loaded kernel module `name` and the virtual addresses where they are now, by address; init
    /// sections only while it is starting. Empty when there is no such module or it cannot be read.
    fn module_sections(&self, _core: &Core, _name: &str) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// The symbols of the loaded kernel module `name` where they are now; none when there is no such module or it cannot
    /// be read.
    fn module_symbols(&self, _core: &Core, name: &str) -> Symbols {
        Symbols::new(name)
    }

    /// The physical address that the kernel's virtual address `va` has now, if it has one.
    fn kernel_paddr(&self, _core: &Core, _va: u64) -> Option<u64> {
        None
    }

    /// The loaded kernel module that the virtual address `va` lies in.
    fn module_at(&self, core: &Core, va: u64) -> Option<LoadedModule> {
        let all = self.modules(core).into_iter().filter(|module| module.kind == ModuleKind::Kernel);
        all.map(LoadedModule::from).find(|module| module.holds(va))
    }

    /// The registers that the current task had when it last left user mode, as far as its kernel has not changed them
    /// since; `None` for a task without user mode.
    fn user_registers(&self, core: &Core) -> Option<UserRegisters> {
        UserRegisters::noted(core)
    }

    /// What the CPU held when the current task last left user mode, `None` for a task without user mode: what the machine
    /// has noted, where each task has a ring-0 stack of its own in the TSS.
    fn user_context(&self, core: &Core) -> Option<UserContext> {
        core.user_context().copied()
    }

    /// What tells the current task from all others that enter ring 0 on the same stack; `None` where each has one of its
    /// own.
    fn user_task(&self, _core: &Core) -> Option<u64> {
        None
    }

    /// Where the task at `task`, which does not run, continues; `None` if that cannot be read.
    fn switched(&self, _core: &Core, _task: u64) -> Option<Switched> {
        None
    }

    /// Whether the task at `task` has ended and only waits for its parent: it has no stack any more.
    fn has_ended(&self, _core: &Core, _task: u64) -> bool {
        false
    }

    /// The kernel's own log, as it would print it; `vmcoreinfo` is its description of itself.
    ///
    /// # Errors
    /// The system keeps none, or it cannot be read.
    fn log(&self, _core: &Core, _vmcoreinfo: &[u8]) -> Result<Vec<u8>, LogError> {
        Err(LogError::NoLog)
    }

    /// Path of the program that the task at `task` runs; `None` when it runs none or it cannot be read.
    fn executable(&self, _core: &Core, _task: u64) -> Option<String> {
        None
    }

    /// The path of a file, by the virtual address of the kernel's own description of it (`struct path` of Linux).
    fn path(&self, _core: &Core, _path: u64) -> Option<String> {
        None
    }

    /// Physical address of the top page table of the process of the task at `task`; `None` when it has none or it
    /// cannot be read. If user code has a separate table, this is the kernel's, which holds the process's pages too.
    fn page_table(&self, _core: &Core, _task: u64) -> Option<u64> {
        None
    }

    /// Whether the current process was forked and has not executed a program since.
    fn is_forked(&self, _core: &Core) -> bool {
        false
    }

    /// The mappings of the process of the task at `task`, by address, unreadable ones left out.
    fn mappings(&self, _core: &Core, _task: u64) -> Vec<Mapping> {
        Vec::new()
    }

    /// The programs and libraries that the process of the task at `task` has mapped, by address: for each file the
    /// range from its first mapping to its last, if any of it may be executed.
    fn user_modules(&self, core: &Core, task: u64) -> Vec<Module> {
        files_of(&self.mappings(core, task))
    }

    /// The current task; `None` when there is none or it cannot be read.
    fn current(&self, core: &Core) -> Option<Task> {
        let task = self.current_task(core);
        if task == 0 {
            return None;
        }
        let mut name = Vec::new();
        self.name_into(core, &mut name);
        let name = String::from_utf8_lossy(&name).into_owned();
        Some(Task { task, pid: self.pid(core), tgid: self.tgid(core), uid: self.uid(core), name })
    }
}

/// The files of these mappings, by address: for each the range from its first mapping to its last, if any of it may be
/// executed.
pub fn files_of(mappings: &[Mapping]) -> Vec<Module> {
    let mut files: BTreeMap<&str, (&Mapping, u64, bool)> = BTreeMap::new();
    for mapping in mappings.iter().filter(|mapping| !mapping.path.is_empty()) {
        let file = files.entry(&mapping.path).or_insert((mapping, 0, false));
        file.1 = mapping.end;
        file.2 |= mapping.executable;
    }
    let mut found: Vec<Module> = files
        .into_iter()
        .filter(|(_, (_, _, executable))| *executable)
        .map(|(path, (first, end, _))| Module {
            name: path.to_owned(),
            base: first.start,
            size: end.saturating_sub(first.start),
            kind: ModuleKind::User,
        })
        .collect();
    found.sort_by_key(|module| module.base);
    found
}
