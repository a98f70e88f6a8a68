//! The probes of a target in a guest that has run: where their sites are now, and the bytes at them.
//!
//! The files define the probes and their identifiers; here the guest's memory tells which of their
//! sites are in memory, and where. The guest is read by NOFAULT reads and through its profile, and does not
//! change. A damaged guest may give wrong answers, but their number is bounded.

use std::collections::{BTreeMap, BTreeSet};

use trapline_emu::symbols::{KernelModule, UserModule};
use trapline_emu::{Access, Core, PAGE, Paging, look};
use trapline_interposer::Place;
use trapline_os::{Mapping, ModuleKind, OsProfile};

use crate::target::basename;

/// Number of bytes that are read at a site.
const SITE: usize = 5;

/// A process of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its task in the guest's operating system.
    task: u64,
}

/// One occurrence of a site in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Its linear address; `None` if it was found only by the content of memory.
    pub linear: Option<u64>,
    /// The process of that address space; `None` in the kernel, and if the system's processes are unknown.
    pub process: Option<Process>,
    /// The bytes that loads see there: five, or all of a pointer; none if the page is not in memory.
    pub data: Vec<u8>,
    /// The bytes that instruction fetches see there, the same number.
    pub code: Vec<u8>,
}

impl Spot {
    /// Whether fetches see other bytes than loads: a probe is armed there.
    pub fn is_armed(&self) -> bool {
        self.code != self.data
    }
}

/// A guest that has run, with the answers read so far.
pub struct Present<'a> {
    core: &'a Core,
    profile: Option<&'a dyn OsProfile>,
    /// Sections of loaded kernel modules by the modules' names.
    sections: BTreeMap<String, Vec<(String, u64)>>,
    /// The files that each process maps.
    mapped: Option<BTreeMap<String, Vec<(Process, Mapping)>>>,
    /// Names of the user modules that are running, according to the guest's system.
    users: Option<BTreeSet<String>>,
    /// Physical pages that hold page `.1` of the file at path `.0`.
    pages: BTreeMap<(String, u64), Vec<u64>>,
}

impl<'a> Present<'a> {
    /// The guest's current state; `profile` is that of its system, if known.
    pub fn new(core: &'a Core, profile: Option<&'a dyn OsProfile>) -> Self {
        let (sections, pages) = (BTreeMap::new(), BTreeMap::new());
        Self { core, profile, sections, mapped: None, users: None, pages }
    }

    /// Reads tasks and modules of the guest.
    pub fn profile(&self) -> Option<&'a dyn OsProfile> {
        self.profile
    }

    /// The guest's processor and memory.
    pub fn core(&self) -> &'a Core {
        self.core
    }

    /// The current places of a site: in the kernel one, in a kernel module where it is loaded, in a user module in each
    /// process that maps it. Empty if it is not in memory, and for timers and watchpoints.
    pub fn spots(&mut self, place: &Place) -> Vec<Spot> {
        match place {
            Place::Kernel { linear, paddr } | Place::LockNop { linear, paddr } => {
                vec![self.spot(Some(*linear), Some(*paddr), SITE)]
            }
            Place::Pointer { linear, paddr, wide } => {
                vec![self.spot(Some(*linear), Some(*paddr), if *wide { 8 } else { 4 })]
            }
            Place::Module { module, offset } => self.in_loaded_module(module, *offset, SITE),
            Place::ModulePointer { module, offset, wide } => {
                self.in_loaded_module(module, *offset, if *wide { 8 } else { 4 })
            }
            Place::User { module, offset }
            | Place::UserExit { module, offset, .. }
            | Place::IsEnabled { module, offset } => self.in_user_module(module, *offset),
            Place::Semaphore { module, address } => self.in_user_data(module, *address, 2),
            Place::UserPointer { module, address, wide } => {
                self.in_user_data(module, *address, if *wide { 8 } else { 4 })
            }
            Place::Timer(_) | Place::Watch(_) | Place::Event(_) => Vec::new(),
        }
    }

    /// Whether a process maps a user module, or the guest's system reports that it is running.
    pub fn runs(&mut self, module: &UserModule) -> bool {
        self.mapped().contains_key(module.name()) || self.says_user_module(module)
    }

    fn spot(&self, linear: Option<u64>, paddr: Option<u64>, most: usize) -> Spot {
        let mut spot = Spot { linear, process: None, data: Vec::new(), code: Vec::new() };
        let Some(paddr) = paddr else { return spot };
        let here = usize::try_from(PAGE - paddr % PAGE).map_or(most, |left| left.min(most));
        let (mut data, mut code) = (vec![0; here], vec![0; here]);
        if self.core.ram().read(paddr, &mut data) && self.core.read_code(paddr, &mut code) {
            (spot.data, spot.code) = (data, code);
        }
        spot
    }

    /// A place in a kernel module; none if that part of it is not loaded.
    fn in_loaded_module(&mut self, module: &KernelModule, offset: u64, most: usize) -> Vec<Spot> {
        let Some(linear) = self.in_kernel_module(module, offset) else { return Vec::new() };
        let paddr = self.profile.and_then(|profile| profile.kernel_paddr(self.core, linear));
        vec![self.spot(Some(linear), paddr, most)]
    }

    /// The linear address of a place in a kernel module, if that part of it is loaded.
    fn in_kernel_module(&mut self, module: &KernelModule, offset: u64) -> Option<u64> {
        let (core, profile) = (self.core, self.profile?);
        let name = module.name();
        if !self.sections.contains_key(name) {
            self.sections.insert(name.to_owned(), profile.module_sections(core, name));
        }
        let (wanted, into) = module.section_at(offset)?;
        let (_, address) = self.sections.get(name)?.iter().find(|(section, _)| section == wanted)?;
        address.checked_add(into)
    }

    fn in_user_module(&mut self, module: &UserModule, offset: u64) -> Vec<Spot> {
        let pages = self.pages_of(module, offset / PAGE);
        // It does not matter which process has which of several copies: an armed one shows the probe.
        let at = |page: &u64| self.spot(None, Some(page + offset % PAGE), SITE);
        let copies: Vec<Spot> = pages.iter().map(at).collect();
        let armed = copies.iter().find(|copy| copy.is_armed());
        let copy = armed.or(copies.first()).cloned().unwrap_or_else(|| self.spot(None, None, SITE));
        let mut found = Vec::new();
        for (process, mapping) in self.mapped().get(module.name()).into_iter().flatten() {
            let into = offset.checked_sub(mapping.offset);
            let linear = into.and_then(|into| mapping.start.checked_add(into));
            if let Some(linear) = linear.filter(|linear| mapping.executable && *linear < mapping.end) {
                let process = Some(process.clone());
                found.push(Spot { linear: Some(linear), process, ..copy.clone() });
            }
        }
        if found.is_empty() && (!copy.data.is_empty() || self.says_user_module(module)) {
            let linear = if module.is_dynamic() { None } else { module.offset_to_vaddr(offset) };
            found.push(Spot { linear, ..copy });
        }
        found
    }

    /// A word of a module's data, at `address` as linked, in each process that maps it writable.
    fn in_user_data(&mut self, module: &UserModule, address: u64, bytes: usize) -> Vec<Spot> {
        let Some(offset) = module.vaddr_to_offset(address) else { return Vec::new() };
        let mapped = self.mapped().get(module.name()).cloned().unwrap_or_default();
        let mut found = Vec::new();
        for (process, mapping) in mapped.into_iter().filter(|(_, mapping)| !mapping.executable) {
            let into = offset.checked_sub(mapping.offset);
            let linear = into.and_then(|into| mapping.start.checked_add(into));
            if let Some(linear) = linear.filter(|linear| *linear < mapping.end) {
                let paddr = self.paddr_in(process.task, linear);
                found.push(Spot { process: Some(process), ..self.spot(Some(linear), paddr, bytes) });
            }
        }
        found
    }

    /// The physical address of a linear address in a task's address space, if its page tables map it.
    fn paddr_in(&self, task: u64, linear: u64) -> Option<u64> {
        let cr3 = self.profile?.page_table(self.core, task)?;
        let paging = Paging { cr3, ..self.core.paging() };
        look(self.core.ram(), paging, linear, Access::Read, true)
            .ok()
            .map(|found| found.paddr + linear % PAGE)
    }

    /// Whether the guest reports that the module is running; for systems whose mappings are unknown.
    fn says_user_module(&mut self, module: &UserModule) -> bool {
        let (core, profile) = (self.core, self.profile);
        let users = self.users.get_or_insert_with(|| {
            let modules = profile.map(|profile| profile.modules(core)).unwrap_or_default();
            modules.into_iter().filter(|m| m.kind == ModuleKind::User).map(|m| m.name).collect()
        });
        users.contains(basename(module.name()))
    }

    /// Physical pages of code that hold a page of the module's file.
    fn pages_of(&mut self, module: &UserModule, number: u64) -> Vec<u64> {
        let key = (module.name().to_owned(), number);
        if let Some(known) = self.pages.get(&key) {
            return known.clone();
        }
        let content = usize::try_from(number).ok().and_then(|number| module.page(number));
        let holds = |page: &u64| {
            content.is_some_and(|content| self.core.ram().slice(*page, content.len()) == Some(content))
        };
        let found: Vec<u64> = self.core.code_pages().into_iter().filter(holds).collect();
        self.pages.insert(key, found.clone());
        found
    }

    /// The files that each process maps; the first thread of a process stands for all.
    fn mapped(&mut self) -> &BTreeMap<String, Vec<(Process, Mapping)>> {
        let (core, profile) = (self.core, self.profile);
        self.mapped.get_or_insert_with(|| {
            let mut mapped: BTreeMap<String, Vec<(Process, Mapping)>> = BTreeMap::new();
            let Some(profile) = profile else { return mapped };
            for task in profile.tasks(core).into_iter().filter(|task| task.pid == task.tgid) {
                let mappings = profile.mappings(core, task.task).into_iter();
                for mapping in mappings.filter(|mapping| !mapping.path.is_empty()) {
                    let process = Process { pid: task.pid, name: task.name.clone(), task: task.task };
                    mapped.entry(mapping.path.clone()).or_default().push((process, mapping));
                }
            }
            mapped
        })
    }
}
