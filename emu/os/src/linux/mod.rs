//! The profile of Linux on one CPU, from kallsyms and BTF, or without BTF from the kernel's initial data. No guest code
//! runs. Which form a structure has is seen from its members, never from the kernel's version; tests cover 5.10, 6.1 and
//! 6.12 (Debian 11 to 13).
//!
//! The current task is per-CPU data: `current_task`, or the member of `pcpu_hot`, at the distance `__per_cpu_offset[0]`,
//! which holds in user mode and in the kernel alike, before and after `swapgs`. Memory is read through the kernel's own page tables (`memory.rs`).
//! The kernel must be where it was linked, as the loader puts it; otherwise, as the name of `init_task` shows, every
//! result is "unknown".
//!
//! Not here: namespaces (ids are those of the first one), deleted files, other CPUs.

use std::collections::BTreeSet;

use trapline_emu::load::{LoadPlan, Width};
use trapline_emu::symbols::{Btf, Symbols};
use trapline_emu::{Core, UserContext};

use crate::profile::{
    Birth, LoadedModule, LogError, Mapping, Module, OsProfile, Switched, Task, UserRegisters,
};

mod infer;
mod layout;
mod log;
mod maple;
mod memory;
mod modules;
mod path;
mod stacks;

pub use log::read as kernel_log;
pub use modules::{ModuleDetails, ModuleSection};

use infer::Inferred;
use layout::{FileLayout, Layout, Mappings, Threads};
use memory::{Map, Memory};
use modules::ModuleLayout;
use stacks::{CodeLayout, SwitchedLayout};

/// Flag of a task that was forked and has not executed a program (PF_FORKNOEXEC).
const FORKED: u32 = 0x40;
/// Bits of the largest id of a task (PID_MAX_LIMIT).
const PID_BITS: u32 = 22;
/// Bytes of a task's name (TASK_COMM_LEN).
const COMM: usize = 16;
/// Most tasks of a list: PID_MAX_LIMIT of a 32-bit kernel.
const MAX_TASKS: usize = 1 << 15;
/// Most mappings of a process, as the kernel allows by default (DEFAULT_MAX_MAP_COUNT), and its special ones.
const MAX_MAPPINGS: usize = 1 << 16;

/// Why an image has no such profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinuxError {
    /// Another system, or a kernel without the symbol.
    #[error("the kernel has no symbol {name}, so its tasks cannot be found")]
    NoSymbol {
        /// Its name.
        name: &'static str,
    },
    /// BTF lacks it.
    #[error("the kernel's BTF has no member {path} of struct {name}; Linux 5.10, 6.1 and 6.12 have one")]
    NoMember {
        /// The structure.
        name: &'static str,
        /// The member.
        path: &'static str,
    },
    /// A kernel without BTF has other initial data than those that are known.
    #[error("the kernel has no BTF, and its initial data has {found} what marks {what}")]
    NotInferred {
        /// The member and its mark.
        what: &'static str,
        /// Where the mark is.
        found: &'static str,
    },
    /// A kernel without BTF whose configuration decides where files and mappings have their members.
    #[error("the kernel has no BTF, and only BTF shows how Linux from 6.2 on lays out files and mappings")]
    NewerFiles,
    /// Not in the image.
    #[error("{name} at {address:#x} does not lie in the image")]
    Outside {
        /// The object.
        name: &'static str,
        /// Where it would be.
        address: u64,
    },
}

/// Reads tasks, mappings and modules of a Linux guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linux {
    layout: Layout,
    map: Map,
    init_task: u64,
    current_task: u64,
    per_cpu_offset: u64,
    modules_head: Option<u64>,
    module: ModuleLayout,
    code: Option<CodeLayout>,
    switched: Option<SwitchedLayout>,
    /// Offset in `task_struct` of the time of its start.
    start: Option<u64>,
    lacks: Option<LinuxError>,
}

impl Linux {
    /// The same without the data that only BTF provides: where modules keep their symbols and ORC tables, and for kernels
    /// whose threads are listed with their signals also files. This allows comparing two profiles of one kernel.
    #[must_use]
    pub fn as_inferred(mut self) -> Self {
        if let Threads::Signal { .. } = self.layout.task.threads {
            (self.layout.files, self.lacks) = (None, Some(LinuxError::NewerFiles));
        }
        Self { module: self.module.as_inferred(), code: None, start: None, ..self }
    }

    /// What is not known of the kernel: its processes have no mappings and no programs then.
    pub fn lacks(&self) -> Option<&LinuxError> {
        self.lacks.as_ref()
    }

    /// Where the image's per-CPU data has the current task, and where the distance from there to that of CPU 0 is.
    pub const fn current_addresses(&self) -> (u64, u64) {
        (self.current_task, self.per_cpu_offset)
    }

    /// The profile of the kernel that `plan` loads, with its `symbols` and, if it has any, its `btf`.
    ///
    /// # Errors
    /// The kernel is not Linux, or not one whose layout is known; nothing is guessed.
    pub fn find(plan: &LoadPlan, symbols: &Symbols, btf: Option<&Btf>) -> Result<Self, LinuxError> {
        let symbol = |name: &'static str| {
            symbols.sole(name).map(|symbol| symbol.addr).ok_or(LinuxError::NoSymbol { name })
        };
        let init_task = symbol("init_task")?;
        let current_task = current_task(symbols, btf)?;
        let Inferred { layout, root, lacks } = match btf {
            Some(btf) => {
                let (layout, lacks) = Layout::from_btf(btf)?;
                let root = symbol("init_top_pgt").or(symbol("swapper_pg_dir"))?;
                Inferred { layout, root, lacks }
            }
            None => infer::infer(plan, symbols, (init_task, current_task))?,
        };
        let map = Map::new(plan, root)
            .ok_or(LinuxError::Outside { name: "the kernel's page table", address: root })?;
        let name = init_task.wrapping_add(layout.task.comm);
        // In a dump it has got the number of its CPU.
        let is_swapper = |name: &Vec<u8>| matches!(name.as_slice(), b"swapper\0" | b"swapper/");
        if !plan.bytes_at(name, 8).as_ref().is_some_and(is_swapper) {
            return Err(LinuxError::Outside { name: "the task \"swapper\"", address: name });
        }
        Ok(Self {
            layout,
            map,
            init_task,
            current_task,
            per_cpu_offset: symbol("__per_cpu_offset")?,
            modules_head: symbol("modules").ok().or_else(|| infer::modules_head(plan, symbols)),
            module: ModuleLayout::new(plan.width, btf),
            code: btf.and_then(CodeLayout::from_btf),
            switched: btf
                .and_then(SwitchedLayout::from_btf)
                .or_else(|| SwitchedLayout::from_code(plan, symbols)),
            start: btf.and_then(|btf| Some(btf.member("task_struct", "start_time")?.offset())),
            lacks,
        })
    }

    /// Offsets in `task_struct` of the id of a thread and of the id of its process, 32 bits each.
    pub const fn id_offsets(&self) -> (u64, u64) {
        (self.layout.task.pid, self.layout.task.tgid)
    }

    /// Memory, if the kernel is where it was linked.
    fn memory<'a>(&'a self, core: &'a Core) -> Option<Memory<'a>> {
        let memory = self.map.of(core);
        let mut name = [0; 7];
        memory.read(memory.add(self.init_task, self.layout.task.comm), &mut name)?;
        (&name == b"swapper").then_some(memory)
    }

    /// Memory and the current task.
    fn now<'a>(&'a self, core: &'a Core) -> Option<(Memory<'a>, u64)> {
        let memory = self.memory(core)?;
        let distance = memory.word(self.per_cpu_offset)?;
        let task = memory.pointer(memory.add(self.current_task, distance))?;
        Some((memory, task))
    }

    fn comm(&self, memory: &Memory<'_>, task: u64) -> Option<Vec<u8>> {
        let comm = memory.bytes(memory.add(task, self.layout.task.comm), COMM)?;
        Some(comm.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
    }

    fn uid_of(&self, memory: &Memory<'_>, task: u64) -> Option<u32> {
        let cred = memory.pointer(memory.add(task, self.layout.task.cred))?;
        memory.u32(memory.add(cred, self.layout.cred_uid))
    }

    fn task_at(&self, memory: &Memory<'_>, task: u64) -> Option<Task> {
        let layout = &self.layout.task;
        Some(Task {
            task,
            pid: memory.u32(memory.add(task, layout.pid))?,
            tgid: memory.u32(memory.add(task, layout.tgid))?,
            uid: self.uid_of(memory, task)?,
            name: String::from_utf8_lossy(&self.comm(memory, task)?).into_owned(),
        })
    }

    fn birth_of(&self, memory: &Memory<'_>, task: u64) -> Option<Birth> {
        let layout = &self.layout.task;
        Some(Birth {
            pid: memory.u32(memory.add(task, layout.pid))?,
            tgid: memory.u32(memory.add(task, layout.tgid))?,
            start: self.start.and_then(|start| memory.u64(memory.add(task, start))).unwrap_or(0),
        })
    }

    /// A u32 of the current task.
    fn current_u32(&self, core: &Core, offset: u64) -> Option<u32> {
        let (memory, task) = self.now(core)?;
        memory.u32(memory.add(task, offset))
    }

    /// The `mm_struct` of `task`; a kernel thread has none.
    fn mm(&self, memory: &Memory<'_>, task: u64) -> Option<u64> {
        memory.pointer(memory.add(task, self.layout.task.mm))
    }

    /// The task's further threads, at most `most`; its own is not among them.
    fn threads(&self, memory: &Memory<'_>, leader: u64, most: usize) -> (Vec<u64>, ListEnd) {
        match self.layout.task.threads {
            Threads::Group(link) => walked(memory, memory.add(leader, link), link, most),
            Threads::Signal { signal, head, node } => {
                let at = memory.add(leader, signal);
                let Some(signal) = memory.pointer(at) else { return (Vec::new(), ListEnd::Nowhere(at)) };
                let (mut all, end) = walked(memory, memory.add(signal, head), node, most);
                all.retain(|task| *task != leader);
                (all, end)
            }
        }
    }

    /// The descriptors of all tasks but the idle one, and what keeps the rest of them from being found.
    fn all_tasks(&self, memory: &Memory<'_>) -> (Vec<u64>, Option<ListEnd>) {
        let link = self.layout.task.tasks;
        let (leaders, end) = walked(memory, memory.add(self.init_task, link), link, MAX_TASKS);
        let mut damage = Some(end).filter(|end| *end != ListEnd::Head);
        let mut found = Vec::new();
        // Every visited task counts, readable or not: lists of a damaged guest may cross.
        for leader in leaders {
            let (threads, end) = self.threads(memory, leader, MAX_TASKS.saturating_sub(found.len()));
            damage = damage.or(Some(end).filter(|end| *end != ListEnd::Head));
            found.push(leader);
            found.extend(threads);
        }
        (found, damage)
    }

    /// The addresses of the mappings of a process, and for each the range that its tree says; at most
    /// [`MAX_MAPPINGS`].
    fn areas(&self, memory: &Memory<'_>, files: &FileLayout, mm: u64) -> Vec<(u64, Option<(u64, u64)>)> {
        match files.mappings {
            Mappings::Tree(root) => {
                let Some(root) = memory.pointer(memory.add(mm, root)) else { return Vec::new() };
                let entries = maple::entries(memory, root, MAX_MAPPINGS).into_iter();
                entries.map(|entry| (entry.value, Some((entry.first, entry.last)))).collect()
            }
            Mappings::List { first, next } => {
                let mut found = Vec::new();
                let mut at = memory.pointer(memory.add(mm, first));
                while let Some(vma) = at.filter(|_| found.len() < MAX_MAPPINGS) {
                    found.push((vma, None));
                    at = memory.pointer(memory.add(vma, next));
                }
                found
            }
        }
    }

    /// `budget` is what is left for paths.
    fn mapping(
        memory: &Memory<'_>,
        files: &FileLayout,
        mm: u64,
        vma: u64,
        budget: &mut usize,
    ) -> Option<Mapping> {
        let layout = &files.vma;
        let word = |offset: u64| memory.word(memory.add(vma, offset));
        let (start, end, flags) = (word(layout.start)?, word(layout.end)?, word(layout.flags)?);
        if start >= end || word(layout.mm)? != mm {
            return None;
        }
        let file = word(layout.file)?;
        let (offset, path) = match file {
            0 => (0, String::new()),
            file => {
                let path = path::of_file(memory, &files.path, file, budget)?;
                (word(layout.pgoff)?.wrapping_mul(0x1000), path)
            }
        };
        Some(Mapping {
            start,
            end,
            offset,
            readable: flags & 1 != 0,
            writable: flags & 2 != 0,
            executable: flags & 4 != 0,
            // VM_MAYSHARE, which /proc shows too.
            shared: flags & 0x80 != 0,
            path,
        })
    }

    /// The guest's loaded modules with sections and symbols; unreadable ones left out.
    pub fn module_details(&self, core: &Core) -> Vec<ModuleDetails> {
        let Some((memory, head)) = self.memory(core).zip(self.modules_head) else { return Vec::new() };
        let mut budget = modules::MAX_SYMBOLS;
        let found = self.module.list(&memory, head);
        found.iter().map(|module| self.module.details(&memory, module, &mut budget)).collect()
    }
}

/// How a walk through a list ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    /// At its head, as it should.
    Head,
    /// At an unreadable link; its address.
    Nowhere(u64),
    /// At one that leads back into the list; its address.
    Inside(u64),
    /// After the limit.
    Most,
}

/// The objects of the circular list at `head`, whose links lie `link` bytes into them: at most `most`, none twice.
fn listed(memory: &Memory<'_>, head: u64, link: u64, most: usize) -> Vec<u64> {
    walked(memory, head, link, most).0
}

/// The same, and how the list ends.
fn walked(memory: &Memory<'_>, head: u64, link: u64, most: usize) -> (Vec<u64>, ListEnd) {
    let mut seen = BTreeSet::from([head]);
    let mut found = Vec::new();
    let mut at = head;
    while found.len() < most {
        let Some(next) = memory.pointer(at) else { return (found, ListEnd::Nowhere(at)) };
        if next == head {
            return (found, ListEnd::Head);
        }
        if !seen.insert(next) {
            return (found, ListEnd::Inside(at));
        }
        found.push(memory.add(next, link.wrapping_neg()));
        at = next;
    }
    (found, ListEnd::Most)
}

impl OsProfile for Linux {
    fn system(&self) -> &'static str {
        "linux"
    }

    fn current_task(&self, core: &Core) -> u64 {
        self.now(core).map_or(0, |(_, task)| task)
    }

    fn pid(&self, core: &Core) -> u32 {
        self.current_u32(core, self.layout.task.pid).unwrap_or(0)
    }

    fn tgid(&self, core: &Core) -> u32 {
        self.current_u32(core, self.layout.task.tgid).unwrap_or(0)
    }

    fn birth(&self, core: &Core, task: u64) -> Birth {
        self.memory(core).and_then(|memory| self.birth_of(&memory, task)).unwrap_or_default()
    }

    fn uid(&self, core: &Core) -> u32 {
        self.now(core).and_then(|(memory, task)| self.uid_of(&memory, task)).unwrap_or(0)
    }

    fn name_into(&self, core: &Core, to: &mut Vec<u8>) {
        if let Some(comm) = self.now(core).and_then(|(memory, task)| self.comm(&memory, task)) {
            to.extend_from_slice(&comm);
        }
    }

    /// The idle task, then every process in the order of their start, each followed by its further threads.
    fn tasks(&self, core: &Core) -> Vec<Task> {
        let Some(memory) = self.memory(core) else { return Vec::new() };
        let all = std::iter::once(self.init_task).chain(self.all_tasks(&memory).0);
        all.filter_map(|task| self.task_at(&memory, task)).collect()
    }

    fn tasks_damage(&self, core: &Core) -> Option<String> {
        let memory = self.memory(core)?;
        let (all, end) = self.all_tasks(&memory);
        let what = match end {
            Some(ListEnd::Nowhere(at)) => format!("the link at {at:#x} cannot be read"),
            Some(ListEnd::Inside(at)) => format!("the link at {at:#x} leads back into a list"),
            Some(_) => format!("there are more than {MAX_TASKS} tasks"),
            None => {
                let bad = all.into_iter().find(|task| self.task_at(&memory, *task).is_none())?;
                format!("the task at {bad:#x} cannot be read")
            }
        };
        Some(format!("not all tasks of the guest are known: {what}"))
    }

    fn modules(&self, core: &Core) -> Vec<Module> {
        let Some((memory, head)) = self.memory(core).zip(self.modules_head) else { return Vec::new() };
        self.module.list(&memory, head).iter().map(|at| at.module.clone()).collect()
    }

    fn damage(&self, core: &Core) -> Option<String> {
        let (memory, head) = self.memory(core).zip(self.modules_head)?;
        self.module.damage(&memory, head)
    }

    fn module_sections(&self, core: &Core, name: &str) -> Vec<(String, u64)> {
        let Some((memory, head)) = self.memory(core).zip(self.modules_head) else { return Vec::new() };
        let found = self.module.list(&memory, head).into_iter().find(|found| found.module.name == name);
        found.map(|found| self.module.placed(&memory, &found)).unwrap_or_default()
    }

    fn kernel_paddr(&self, core: &Core, va: u64) -> Option<u64> {
        self.memory(core)?.paddr(va)
    }

    fn module_at(&self, core: &Core, va: u64) -> Option<LoadedModule> {
        self.loaded_module(core, va)
    }

    fn module_symbols(&self, core: &Core, name: &str) -> Symbols {
        self.loaded_symbols(core, name)
    }

    fn user_registers(&self, core: &Core) -> Option<UserRegisters> {
        self.saved_registers(core)
    }

    /// Its id and, above the bits that an id can have, its start: ids are used again.
    fn user_task(&self, core: &Core) -> Option<u64> {
        let birth = self.now(core).and_then(|(memory, task)| self.birth_of(&memory, task))?;
        Some(birth.start << PID_BITS | u64::from(birth.pid))
    }

    fn user_context(&self, core: &Core) -> Option<UserContext> {
        self.saved_context(core)
    }

    fn switched(&self, core: &Core, task: u64) -> Option<Switched> {
        let memory = self.memory(core)?;
        self.switched?.read(&memory, task, self.stack_of(&memory, task)?)
    }

    fn has_ended(&self, core: &Core, task: u64) -> bool {
        let stack = self.memory(core).zip(self.layout.task.stack);
        stack.and_then(|(memory, at)| memory.word(memory.add(task, at))) == Some(0)
    }

    fn log(&self, core: &Core, vmcoreinfo: &[u8]) -> Result<Vec<u8>, LogError> {
        let memory = self.memory(core);
        let read = |va: u64, to: &mut [u8]| match &memory {
            Some(memory) => memory.read(va, to).is_some(),
            None => core.peek(va, to).is_ok(),
        };
        log::read(vmcoreinfo, self.map.width == Width::Bits64, &read)
    }

    fn executable(&self, core: &Core, task: u64) -> Option<String> {
        let (memory, files) = self.memory(core).zip(self.layout.files.as_ref())?;
        let mm = self.mm(&memory, task)?;
        let file = memory.pointer(memory.add(mm, files.exe_file))?;
        let mut budget = path::BUDGET;
        path::of_file(&memory, &files.path, file, &mut budget)
    }

    fn path(&self, core: &Core, path: u64) -> Option<String> {
        let (memory, files) = self.memory(core).zip(self.layout.files.as_ref())?;
        // A mount is the first member of a path.
        let file = memory.add(path, files.path.file_mnt.wrapping_neg());
        let mut budget = path::BUDGET;
        path::of_file(&memory, &files.path, file, &mut budget)
    }

    fn page_table(&self, core: &Core, task: u64) -> Option<u64> {
        let memory = self.memory(core)?;
        let mm = self.mm(&memory, task)?;
        memory.paddr(memory.pointer(memory.add(mm, self.layout.pgd))?)
    }

    /// Threads are cloned too: the leader of their group counts.
    fn is_forked(&self, core: &Core) -> bool {
        let flags = self.now(core).and_then(|(memory, task)| {
            let leader = memory.pointer(memory.add(task, self.layout.task.group_leader))?;
            memory.u32(memory.add(leader, self.layout.task.flags))
        });
        flags.is_some_and(|flags| flags & FORKED != 0)
    }

    fn mappings(&self, core: &Core, task: u64) -> Vec<Mapping> {
        let Some((memory, files)) = self.memory(core).zip(self.layout.files.as_ref()) else {
            return Vec::new();
        };
        let Some(mm) = self.mm(&memory, task) else { return Vec::new() };
        let (mut budget, mut least) = (path::BUDGET, 0);
        let mut found = Vec::new();
        for (vma, range) in self.areas(&memory, files, mm) {
            let Some(mapping) = Self::mapping(&memory, files, mm, vma, &mut budget) else { continue };
            // The tree and the mapping must agree; otherwise one of them is garbage.
            if range.is_some_and(|range| range != (mapping.start, mapping.end - 1)) {
                continue;
            }
            // A list is by address; one that goes back is garbage, and would have no end.
            if mapping.start < least {
                break;
            }
            least = mapping.end;
            found.push(mapping);
        }
        found
    }
}

/// The address of the current task in the image's per-CPU data.
fn current_task(symbols: &Symbols, btf: Option<&Btf>) -> Result<u64, LinuxError> {
    let address = |name: &str| symbols.sole(name).map(|symbol| symbol.addr);
    // In `pcpu_hot`, of 6.2 to 6.14, it is the first member, as BTF says, or `infer` checks.
    let hot = || {
        let offset = btf.map_or(Some(0), |btf| Some(btf.member("pcpu_hot", "current_task")?.offset()))?;
        address("pcpu_hot")?.checked_add(offset)
    };
    address("current_task").or_else(hot).ok_or(LinuxError::NoSymbol { name: "current_task" })
}

#[cfg(test)]
mod tests;
