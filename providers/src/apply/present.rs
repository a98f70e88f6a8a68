//! What of a target is there in a guest that has run: where the sites of probes are now, and the bytes at them.
//!
//! Which probes there are is said by the files, and so are their identifiers; here the guest is asked which of their
//! sites are in memory, where, and as what. It is asked by NOFAULT reads and through its profile, and nothing of it
//! changes. What a damaged guest says may be wrong, and is bounded.

use std::collections::{BTreeMap, BTreeSet};

use trapline_emu::symbols::{KernelModule, UserModule};
use trapline_emu::{Access, Core, PAGE, Paging, look};
use trapline_interposer::Place;
use trapline_os::{Mapping, ModuleKind, OsProfile};

use crate::target::basename;

/// Bytes that are looked at of a site.
const SITE: usize = 5;

/// A process of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its task, as the guest's system has it.
    task: u64,
}

/// A place where a site is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Its linear address; `None` where only the content of memory shows that it is there.
    pub linear: Option<u64>,
    /// The process in whose address space that is; `None` in the kernel, and for a system that does not say.
    pub process: Option<Process>,
    /// What loads see there: five bytes, of a pointer all; none if the page is not in memory.
    pub data: Vec<u8>,
    /// What instruction fetches see there, as many.
    pub code: Vec<u8>,
}

impl Spot {
    /// Whether fetches see something else than loads do: a probe is armed there.
    pub fn is_armed(&self) -> bool {
        self.code != self.data
    }
}

/// A guest that has run, as far as it was asked.
pub struct Present<'a> {
    core: &'a Core,
    profile: Option<&'a dyn OsProfile>,
    /// Sections of loaded kernel modules by the modules' names.
    sections: BTreeMap<String, Vec<(String, u64)>>,
    /// Who maps which files.
    mapped: Option<BTreeMap<String, Vec<(Process, Mapping)>>>,
    /// Names of the user modules that a system says it runs.
    users: Option<BTreeSet<String>>,
    /// Physical pages that hold page `.1` of the file at path `.0`.
    pages: BTreeMap<(String, u64), Vec<u64>>,
}

impl<'a> Present<'a> {
    /// The guest as it is now; `profile` is that of its system, if it is known.
    pub fn new(core: &'a Core, profile: Option<&'a dyn OsProfile>) -> Self {
        let (sections, pages) = (BTreeMap::new(), BTreeMap::new());
        Self { core, profile, sections, mapped: None, users: None, pages }
    }

    /// What reads tasks and modules of the guest.
    pub fn profile(&self) -> Option<&'a dyn OsProfile> {
        self.profile
    }

    /// The guest's processor and memory.
    pub fn core(&self) -> &'a Core {
        self.core
    }

    /// Where a site is now: in the kernel always, in a kernel module where it is loaded, in a user module in each process
    /// that maps it. Empty when it is nowhere, and for what is not in memory: a time, a watch.
    pub fn spots(&mut self, place: &Place) -> Vec<Spot> {
        match place {
            Place::Kernel { linear, paddr } | Place::LockNop { linear, paddr } => {
                vec![self.spot(Some(*linear), Some(*paddr), SITE)]
            }
            Place::Pointer { linear, paddr, wide } => {
                vec![self.spot(Some(*linear), Some(*paddr), if *wide { 8 } else { 4 })]
            }
            Place::Module { module, offset } => {
                let Some(linear) = self.in_kernel_module(module, *offset) else { return Vec::new() };
                let paddr = self.profile.and_then(|profile| profile.kernel_paddr(self.core, linear));
                vec![self.spot(Some(linear), paddr, SITE)]
            }
            Place::User { module, offset }
            | Place::UserExit { module, offset, .. }
            | Place::Question { module, offset } => self.in_user_module(module, *offset),
            Place::Semaphore { module, address } => self.in_user_data(module, *address, 2),
            Place::UserPointer { module, address, wide } => {
                self.in_user_data(module, *address, if *wide { 8 } else { 4 })
            }
            Place::Timer(_) | Place::Watch(_) => Vec::new(),
        }
    }

    /// Whether a user module is mapped by some process, or its system says that it runs.
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
        // Which process has which of several copies is not asked: one that is armed tells.
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

    /// The physical address of a linear one in a task's address space, as far as its tables say.
    fn paddr_in(&self, task: u64, linear: u64) -> Option<u64> {
        let cr3 = self.profile?.page_table(self.core, task)?;
        let paging = Paging { cr3, ..self.core.paging() };
        look(self.core.ram(), paging, linear, Access::Read, true)
            .ok()
            .map(|found| found.paddr + linear % PAGE)
    }

    /// Whether the guest says that it runs the module, where it does not say who maps what.
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
            let there = usize::try_from(*page).ok().and_then(|page| self.core.ram().bytes().get(page..));
            content.zip(there).is_some_and(|(content, there)| there.starts_with(content))
        };
        let found: Vec<u64> = self.core.code_pages().into_iter().filter(holds).collect();
        self.pages.insert(key, found.clone());
        found
    }

    /// Who maps which files; of a process's threads its first one speaks.
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
