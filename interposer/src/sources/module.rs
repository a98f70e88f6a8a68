//! Probes on kernel modules: armed where the guest has loaded the module, wherever that is.
//!
//! The profile reads the guest's list of modules when the guest is about to execute a page for the first time. A loaded
//! module has new pages, so it is found before its first instruction runs, its initialisation included; a module that
//! is loaded again is found again at its new address. Probes at the old address are removed when the page is
//! overwritten, when the kernel next executes a page for the first time, or [`LOOK`] instructions later. The guest
//! itself is not changed for this.
//!
//! Pointers of macro-declared probes are written at the same moments (`module_pointer`).
//!
//! A check costs a walk of the guest's list of modules and of the pages of those that have probes; the probes
//! themselves are visited only when something has moved.

use super::Reach;
use super::module_pointer::{ModulePointer, StoredPointer};
use super::placed::PlacedPart;
use crate::model::{INT3, InsertErrorKind, Place, Probe};
use crate::sites::SiteTable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use trapline_emu::symbols::KernelModule;
use trapline_emu::{Core, PAGE};
use trapline_os::{Module, OsProfile};

/// Modules with armed probes are checked again after at most this many instructions.
const LOOK: u64 = 1 << 20;

/// A kernel module that has probes.
#[derive(Debug, Clone)]
struct ProbedModule {
    module: Arc<KernelModule>,
    parts: Vec<Part>,
    points: Vec<ModulePoint>,
    pointers: Vec<ModulePointer>,
    /// The number of its enabled probes.
    enabled: usize,
    /// Where its parts were when its probes were last armed; `None` to arm them anew.
    seen: Option<Vec<Option<PlacedPart>>>,
    /// Physical addresses of the probes that are armed, by their number.
    armed: BTreeMap<u32, u64>,
}

/// A section that has probes, from the first to the last of them.
#[derive(Debug, Clone)]
struct Part {
    name: String,
    first: u64,
    last: u64,
    /// Whether it holds pointers, which must not be written anywhere but in the module.
    written: bool,
}

/// A probe: its number, its part, and its offset in the section.
#[derive(Debug, Clone, Copy)]
struct ModulePoint {
    probe: u32,
    part: usize,
    into: u64,
}

impl ProbedModule {
    fn new(module: &Arc<KernelModule>) -> Self {
        Self {
            module: Arc::clone(module),
            parts: Vec::new(),
            points: Vec::new(),
            pointers: Vec::new(),
            enabled: 0,
            seen: None,
            armed: BTreeMap::new(),
        }
    }

    /// Whether one of its probes is enabled.
    fn is_enabled(&self) -> bool {
        self.enabled > 0
    }

    /// Adds a probe at its place. A probe outside the module's sections is never armed.
    fn add(&mut self, probe: u32, place: &Place) {
        let (offset, pointer) = match place {
            Place::Module { offset, .. } => (*offset, None),
            Place::ModulePointer { offset, wide, .. } => (*offset, Some(*wide)),
            _ => return,
        };
        let Some((name, into)) = self.module.section_at(offset) else { return };
        let part = self.parts.iter().position(|part| part.name == name).unwrap_or_else(|| {
            self.parts.push(Part { name: name.to_owned(), first: into, last: into, written: false });
            self.parts.len() - 1
        });
        if let Some(known) = self.parts.get_mut(part) {
            (known.first, known.last) = (known.first.min(into), known.last.max(into));
            known.written |= pointer.is_some();
        }
        if pointer.is_none() {
            self.points.push(ModulePoint { probe, part, into });
        } else if let Some(known) = self.pointers.iter_mut().find(|known| known.is_at(part, into)) {
            known.add(probe);
        } else {
            self.pointers.push(ModulePointer::new(part, into, probe));
        }
    }

    /// Where its parts are now; nothing when it is not loaded.
    fn placed(&self, core: &Core, profile: &dyn OsProfile, loaded: &[Module]) -> Vec<Option<PlacedPart>> {
        let name = self.module.name();
        if !self.is_enabled() || !loaded.iter().any(|module| module.name == name) {
            return Vec::new();
        }
        let sections = profile.module_sections(core, name);
        let place = |part: &Part| {
            let (_, address) = sections.iter().find(|(section, _)| *section == part.name)?;
            // The guest keeps the addresses of sections that it has freed.
            let own = || profile.module_at(core, *address).is_some_and(|module| module.name == name);
            if part.written && !own() {
                return None;
            }
            let page = address.checked_add(part.first)? & !(PAGE - 1);
            let last = address.checked_add(part.last)?;
            let pages = (page..=last).step_by(PAGE as usize);
            let frames = pages.map(|va| profile.kernel_paddr(core, va)).collect();
            Some(PlacedPart { address: *address, page, frames })
        };
        self.parts.iter().map(place).collect()
    }

    /// Moves its probes to where its parts are now.
    fn go_to(&mut self, core: &mut Core, placed: Vec<Option<PlacedPart>>, reach: &mut Reach<'_>) {
        let now = self.addresses(&placed, reach.probes);
        self.pointers.iter_mut().for_each(|pointer| pointer.settle(core, &placed, reach));
        self.seen = Some(placed);
        let before = std::mem::replace(&mut self.armed, now.clone());
        for (probe, paddr) in before.into_iter().filter(|(probe, paddr)| now.get(probe) != Some(paddr)) {
            reach.sites.leave_address(core, paddr, probe);
        }
        for (number, paddr) in now {
            // A clash with another patch leaves the module without the probe; it cannot happen between breakpoint
            // probes, which share sites.
            if let Some(probe) = reach.probes.get(number as usize) {
                let _ = reach.sites.attach(core, (paddr, INT3), number, probe);
            }
        }
    }

    /// Its enabled probes that have an address, where its parts are at `placed`.
    fn addresses(&self, placed: &[Option<PlacedPart>], probes: &[Probe]) -> BTreeMap<u32, u64> {
        let enabled = |point: &&ModulePoint| probes.get(point.probe as usize).is_some_and(|p| p.enabled);
        let address =
            |point: &ModulePoint| Some((point.probe, placed.get(point.part)?.as_ref()?.paddr(point.into)?));
        self.points.iter().filter(enabled).filter_map(address).collect()
    }
}

/// The kernel modules that have probes. A clone shares them until either is changed.
#[derive(Debug, Default, Clone)]
pub(crate) struct KernelModules {
    list: Arc<Vec<ProbedModule>>,
    /// The instruction count from which on they are checked again.
    next_look: u64,
}

impl KernelModules {
    /// Whether a probe of any is enabled.
    pub fn any_enabled(&self) -> bool {
        self.list.iter().any(ProbedModule::is_enabled)
    }

    /// Notes the probes from number `first` on that are in kernel modules.
    pub fn note_points(&mut self, first: usize, probes: &[Probe]) {
        for (number, probe) in (first as u32..).zip(probes.get(first..).unwrap_or_default()) {
            let Some(module) = probe.place.kernel_module() else { continue };
            let list = Arc::make_mut(&mut self.list);
            let known = list.iter().position(|known| Arc::ptr_eq(&known.module, module));
            let index = known.unwrap_or_else(|| {
                list.push(ProbedModule::new(module));
                list.len() - 1
            });
            if let Some(known) = list.get_mut(index) {
                known.add(number, &probe.place);
            }
        }
    }

    /// A module that has probes.
    fn known(&mut self, module: &Arc<KernelModule>) -> Option<&mut ProbedModule> {
        Arc::make_mut(&mut self.list).iter_mut().find(|known| Arc::ptr_eq(&known.module, module))
    }

    /// A probe of a module was enabled: [`KernelModules::arm`] is to see to it.
    pub fn enable(&mut self, module: &Arc<KernelModule>) {
        if let Some(known) = self.known(module) {
            known.enabled += 1;
            known.seen = None;
        }
    }

    /// A probe on a pointer of a module was enabled: [`KernelModules::arm`] is to see to the pointer.
    pub fn enable_pointer(
        &mut self,
        core: &mut Core,
        module: &Arc<KernelModule>,
        (probe, wide): (u32, bool),
        sites: &mut SiteTable,
    ) -> Result<(), InsertErrorKind> {
        self.enable(module);
        let known = self.known(module).map(|known| &mut known.pointers);
        match known.and_then(|pointers| pointers.iter_mut().find(|pointer| pointer.has(probe))) {
            Some(pointer) => pointer.enable(core, (probe, wide), sites),
            None => Ok(()),
        }
    }

    /// A probe of a module was disabled.
    pub fn disable(
        &mut self,
        core: &mut Core,
        module: &Arc<KernelModule>,
        probe: u32,
        reach: &mut Reach<'_>,
    ) {
        let profile = reach.profile;
        let Some(known) = self.known(module) else { return };
        let pointer = known.pointers.iter().position(|pointer| pointer.has(probe));
        if let Some(number) = pointer {
            let placed = profile
                .map(|profile| known.placed(core, profile, &profile.modules(core)))
                .unwrap_or_default();
            if let Some(pointer) = known.pointers.get_mut(number) {
                pointer.disable(core, probe, &placed, reach);
            }
        }
        known.enabled = known.enabled.saturating_sub(1);
        if let Some(paddr) = known.armed.remove(&probe) {
            reach.sites.leave_address(core, paddr, probe);
        }
    }

    /// The probes on pointers that are not written now.
    pub fn low_pointers(&self) -> impl Iterator<Item = u32> {
        let low =
            self.list.iter().flat_map(|module| &module.pointers).filter(|pointer| !pointer.is_written());
        low.flat_map(ModulePointer::probes)
    }

    /// The instruction count at which modules with armed probes are to be checked. A run must stop there, so that the
    /// result does not depend on its other stops.
    pub fn next_look(&self) -> Option<u64> {
        let there = |module: &ProbedModule| {
            !module.armed.is_empty() || module.pointers.iter().any(ModulePointer::is_written)
        };
        self.list.iter().any(there).then_some(self.next_look)
    }

    /// After a stop of the run, checks whether armed modules are still loaded, if the check is due.
    pub fn look_after(&mut self, core: &mut Core, reach: &mut Reach<'_>) {
        if self.next_look().is_some_and(|next| core.icount() >= next) {
            self.arm(core, reach);
        }
    }

    /// Arms the enabled probes of kernel modules that are loaded now, and only there.
    pub fn arm(&mut self, core: &mut Core, reach: &mut Reach<'_>) {
        self.next_look = core.icount().saturating_add(LOOK);
        let Some(profile) = reach.profile.filter(|_| !self.list.is_empty()) else { return };
        let loaded = profile.modules(core);
        for index in 0..self.list.len() {
            let Some(module) = self.list.get(index) else { break };
            let placed = module.placed(core, profile, &loaded);
            let is_cleared = || module.pointers.iter().any(|pointer| pointer.is_cleared(core));
            if module.seen.as_ref() == Some(&placed) && !is_cleared() {
                continue;
            }
            if let Some(module) = Arc::make_mut(&mut self.list).get_mut(index) {
                module.go_to(core, placed, reach);
            }
        }
    }

    /// The stored form: the data that cannot be derived from the probes.
    pub fn to_stored(&self) -> StoredModules {
        let of = |module: &ProbedModule| StoredModule {
            seen: module.seen.clone(),
            armed: module.armed.clone(),
            pointers: module.pointers.iter().map(ModulePointer::to_stored).collect(),
        };
        StoredModules { list: self.list.iter().map(of).collect(), next_look: self.next_look }
    }

    /// Restores the modules of the probes; `None` if the stored ones differ or are impossible.
    pub fn from_stored(stored: StoredModules, probes: &[Probe]) -> Option<Self> {
        let mut modules = Self::default();
        modules.note_points(0, probes);
        let list = Arc::make_mut(&mut modules.list);
        if list.len() != stored.list.len() {
            return None;
        }
        for (known, module) in list.iter_mut().zip(stored.list) {
            if known.pointers.len() != module.pointers.len() {
                return None;
            }
            (known.seen, known.armed) = (module.seen, module.armed);
            known.pointers.iter_mut().zip(module.pointers).for_each(|(pointer, was)| pointer.go_to(was));
        }
        for probe in probes.iter().filter(|probe| probe.enabled) {
            if let Some(module) = probe.place.kernel_module()
                && let Some(known) = modules.known(module)
            {
                known.enabled += 1;
            }
        }
        modules.next_look = stored.next_look;
        Some(modules)
    }
}

/// The stored form of [`KernelModules`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredModules {
    list: Vec<StoredModule>,
    next_look: u64,
}

/// Where a module's parts were seen, and where its probes are armed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredModule {
    seen: Option<Vec<Option<PlacedPart>>>,
    armed: BTreeMap<u32, u64>,
    pointers: Vec<StoredPointer>,
}
