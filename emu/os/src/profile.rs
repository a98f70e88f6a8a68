//! What a profile answers, whatever the system.
//!
//! The accessors of single items exist because they are asked for at every hit; [`OsProfile::current`] is made of
//! them.

use trapline_emu::Core;

/// A task of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Virtual address of its descriptor.
    pub task: u64,
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Its name; bytes that are no UTF-8 are replaced.
    pub name: String,
}

/// What a module is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModuleKind {
    /// The kernel or a part of it.
    Kernel,
    /// A user program or library.
    User,
}

/// A module that the guest says it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name; bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Virtual address of its first byte.
    pub base: u64,
    /// Size in bytes.
    pub size: u64,
    /// What it is.
    pub kind: ModuleKind,
}

/// Reads tasks and modules of one guest system.
pub trait OsProfile {
    /// The system's name.
    fn system(&self) -> &'static str;

    /// Address of the current task's descriptor, 0 when it cannot be read.
    fn current_task(&self, core: &Core) -> u64;

    /// Process id of the current task, 0 when it cannot be read.
    fn pid(&self, core: &Core) -> u32;

    /// User id of the current task, 0 when it cannot be read.
    fn uid(&self, core: &Core) -> u32;

    /// Appends the current task's name, without a NUL; nothing when it cannot be read.
    fn name_into(&self, core: &Core, to: &mut Vec<u8>);

    /// All tasks in the guest's own order, the unreadable rest left out.
    fn tasks(&self, core: &Core) -> Vec<Task>;

    /// All modules in the guest's own order, unreadable ones left out.
    fn modules(&self, core: &Core) -> Vec<Module>;

    /// The current task; `None` when there is none or it cannot be read.
    fn current(&self, core: &Core) -> Option<Task> {
        let task = self.current_task(core);
        if task == 0 {
            return None;
        }
        let mut name = Vec::new();
        self.name_into(core, &mut name);
        let name = String::from_utf8_lossy(&name).into_owned();
        Some(Task { task, pid: self.pid(core), uid: self.uid(core), name })
    }
}
