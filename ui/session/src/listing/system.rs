//! Modules and processes of a guest that has run.

use serde::{Deserialize, Serialize};
use trapline_emu::Core;
use trapline_os::{Module, ModuleKind, OsProfile, Task, files_of};
use trapline_providers::Target;

use super::How;

/// Most mappings of all tasks together.
const MOST_MAPPINGS: usize = 1 << 20;

/// A module that the guest has loaded.
pub struct Loaded {
    module: Module,
    /// Its file on the host, if known.
    file: Option<String>,
}

/// A task, and the files that its process maps.
pub struct Running {
    task: Task,
    program: Option<String>,
    modules: Vec<Module>,
}

/// The modules, by address.
pub fn modules(target: &Target, core: &Core, profile: &dyn OsProfile) -> Vec<Loaded> {
    let mut found = profile.modules(core);
    found.sort_by(|a, b| (a.base, &a.name).cmp(&(b.base, &b.name)));
    let with_file = |module: Module| {
        let file = match module.kind {
            ModuleKind::Kernel => {
                target.kernel_module_named(&module.name).ok().map(|known| known.file().name())
            }
            ModuleKind::User => target.module(&module.name).ok().map(|known| known.name()),
        };
        Loaded { file: file.map(str::to_owned), module }
    };
    found.into_iter().map(with_file).collect()
}

/// The tasks in the guest's own order.
pub fn processes(core: &Core, profile: &dyn OsProfile) -> Vec<Running> {
    // A damaged guest may have many tasks with the longest lists of mappings that are read.
    let mut left = MOST_MAPPINGS;
    let running = |task: Task| {
        let program = profile.executable(core, task.task);
        let mappings = if left > 0 { profile.mappings(core, task.task) } else { Vec::new() };
        left = left.saturating_sub(mappings.len());
        Running { task, program, modules: files_of(&mappings) }
    };
    profile.tasks(core).into_iter().map(running).collect()
}

fn kind(module: &Module) -> &'static str {
    match module.kind {
        ModuleKind::Kernel => "kernel",
        ModuleKind::User => "user",
    }
}

/// A heading and a line each.
pub fn modules_text(found: &[Loaded], how: How) -> Vec<String> {
    let digits = how.digits;
    let mut lines = vec![format!("{:digits$} {:>9}  {:6}  {:24}  FILE", "ADDRESS", "SIZE", "KIND", "NAME")];
    lines.extend(found.iter().map(|Loaded { module, file }| {
        let file = file.as_deref().unwrap_or("-");
        let Module { base, size, name, .. } = module;
        format!("{base:#0digits$x} {size:>9}  {:6}  {name:24}  {file}", kind(module))
    }));
    lines
}

/// A heading and one line per task, with one line per module if wanted.
pub fn processes_text(found: &[Running], how: How) -> Vec<String> {
    let digits = how.digits;
    let mut lines = vec![format!("{:>7} {:>7} {:>7}  {:16}  PROGRAM", "PID", "TGID", "UID", "NAME")];
    for Running { task, program, modules } in found {
        let Task { pid, tgid, uid, name, .. } = task;
        let program = program.as_deref().unwrap_or("-");
        lines.push(format!("{pid:>7} {tgid:>7} {uid:>7}  {name:16}  {program}"));
        let mapped = modules.iter().filter(|_| how.verbose);
        lines.extend(
            mapped
                .map(|Module { base, size, name, .. }| format!("      {base:#0digits$x} {size:>9}  {name}")),
        );
    }
    lines
}

/// A module in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleRow {
    /// Its linear address.
    pub address: String,
    /// Its size in bytes.
    pub size: u64,
    /// `kernel` or `user`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its file on the host, if known.
    pub file: Option<String>,
}

/// A task in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Its number.
    pub pid: u32,
    /// The number of its process.
    pub tgid: u32,
    /// Its user.
    pub uid: u32,
    /// Its name.
    pub name: String,
    /// The program that it runs.
    pub program: Option<String>,
    /// The files that its process maps.
    pub modules: Vec<MappedRow>,
}

/// A module that a process has mapped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedRow {
    /// Its linear address.
    pub address: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its name.
    pub name: String,
}

/// A module as a row.
pub fn module_row(Loaded { module, file }: &Loaded) -> ModuleRow {
    ModuleRow {
        address: format!("{:#x}", module.base),
        size: module.size,
        kind: kind(module).to_owned(),
        name: module.name.to_string(),
        file: file.clone(),
    }
}

/// A task as a row.
pub fn process_row(Running { task, program, modules }: &Running) -> ProcessRow {
    let mapped = |module: &Module| MappedRow {
        address: format!("{:#x}", module.base),
        size: module.size,
        name: module.name.to_string(),
    };
    ProcessRow {
        pid: task.pid,
        tgid: task.tgid,
        uid: task.uid,
        name: task.name.to_string(),
        program: program.as_ref().map(ToString::to_string),
        modules: modules.iter().map(mapped).collect(),
    }
}
