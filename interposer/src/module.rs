//! Probes on kernel modules: armed where the guest has loaded the module, wherever that is.
//!
//! The guest is asked by its profile when it is about to execute a page for the first time. A module that is loaded has
//! new pages, so it is found before the first instruction of it runs, that of its start included; one that is loaded
//! again is found again, wherever it is then. Where it was, its probes are gone when the page is written anew, when the
//! kernel next executes a page for the first time, or [`LOOK`] instructions later. Nothing is added to the guest for
//! this.
//!
//! A look costs a walk of the guest's list of modules and of the pages of those that have probes, however many probes
//! they have; these are gone through only when something has moved.

use crate::insert::INT3;
use crate::table::{Interposer, Place, Probe};
use std::collections::BTreeMap;
use std::sync::Arc;
use trapline_emu::symbols::KernelModule;
use trapline_emu::{Core, PAGE};
use trapline_os::{Module, OsProfile};

/// Instructions after which modules that have armed probes are looked for at the latest.
const LOOK: u64 = 1 << 20;

/// A kernel module that has probes.
#[derive(Debug, Clone)]
pub(crate) struct ProbedModule {
    module: Arc<KernelModule>,
    parts: Vec<Part>,
    points: Vec<ModulePoint>,
    /// How many of its probes are enabled.
    enabled: usize,
    /// Where its parts were when its probes were last gone through; `None` when that is to be done again.
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
}

/// A probe: its number, the part that it is in and how far into its section it is.
#[derive(Debug, Clone, Copy)]
struct ModulePoint {
    probe: u32,
    part: usize,
    into: u64,
}

/// Where a part is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PlacedPart {
    /// Linear address of its section.
    address: u64,
    /// Linear address of the page that its first probe is on.
    page: u64,
    /// Physical pages from that one on.
    frames: Vec<Option<u64>>,
}

impl PlacedPart {
    fn paddr(&self, into: u64) -> Option<u64> {
        let va = self.address.checked_add(into)?;
        let page = usize::try_from(va.checked_sub(self.page)? / PAGE).ok()?;
        Some(self.frames.get(page).copied()?? + va % PAGE)
    }
}

impl ProbedModule {
    fn new(module: &Arc<KernelModule>) -> Self {
        Self {
            module: Arc::clone(module),
            parts: Vec::new(),
            points: Vec::new(),
            enabled: 0,
            seen: None,
            armed: BTreeMap::new(),
        }
    }

    /// Whether one of its probes is enabled.
    pub fn is_enabled(&self) -> bool {
        self.enabled > 0
    }

    /// Adds the probe at `offset` in the module's file. One in no section of it is never armed.
    fn add(&mut self, probe: u32, offset: u64) {
        let Some((name, into)) = self.module.section_at(offset) else { return };
        let part = self.parts.iter().position(|part| part.name == name).unwrap_or_else(|| {
            self.parts.push(Part { name: name.to_owned(), first: into, last: into });
            self.parts.len() - 1
        });
        if let Some(known) = self.parts.get_mut(part) {
            (known.first, known.last) = (known.first.min(into), known.last.max(into));
        }
        self.points.push(ModulePoint { probe, part, into });
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
            let page = address.checked_add(part.first)? & !(PAGE - 1);
            let last = address.checked_add(part.last)?;
            let pages = (page..=last).step_by(PAGE as usize);
            let frames = pages.map(|va| profile.kernel_paddr(core, va)).collect();
            Some(PlacedPart { address: *address, page, frames })
        };
        self.parts.iter().map(place).collect()
    }

    /// Its enabled probes that have an address, where its parts are at `placed`.
    fn addresses(&self, placed: &[Option<PlacedPart>], probes: &[Probe]) -> BTreeMap<u32, u64> {
        let enabled = |point: &&ModulePoint| probes.get(point.probe as usize).is_some_and(|p| p.enabled);
        let address =
            |point: &ModulePoint| Some((point.probe, placed.get(point.part)?.as_ref()?.paddr(point.into)?));
        self.points.iter().filter(enabled).filter_map(address).collect()
    }
}

impl Interposer {
    /// Why probes of kernel modules may not be where they should: what the profile says of the guest's list of modules, if
    /// there is an enabled probe that needs it and the list cannot be believed.
    pub fn modules_damage(&self, core: &Core) -> Option<String> {
        let needs = |place: &Place| matches!(place, Place::Module { .. });
        self.probes.iter().find(|probe| probe.enabled && needs(&probe.place))?;
        self.config.profile.as_deref()?.damage(core)
    }

    /// Notes the probes from number `first` on that are in kernel modules.
    pub(crate) fn note_module_points(&mut self, first: usize) {
        for (probe, at) in (first as u32..).zip(self.probes.get(first..).unwrap_or_default()) {
            let Place::Module { module, offset } = &at.place else { continue };
            let known = self.modules.iter().position(|known| Arc::ptr_eq(&known.module, module));
            let index = known.unwrap_or_else(|| {
                self.modules.push(ProbedModule::new(module));
                self.modules.len() - 1
            });
            if let Some(known) = self.modules.get_mut(index) {
                known.add(probe, *offset);
            }
        }
    }

    /// A probe of a module was enabled: [`Interposer::arm_modules`] is to see to it.
    pub(crate) fn enable_in_module(&mut self, module: &Arc<KernelModule>) {
        if let Some(known) = self.modules.iter_mut().find(|known| Arc::ptr_eq(&known.module, module)) {
            known.enabled += 1;
            known.seen = None;
        }
    }

    /// A probe of a module was disabled.
    pub(crate) fn disable_in_module(&mut self, core: &mut Core, module: &Arc<KernelModule>, probe: usize) {
        let known = self.modules.iter_mut().find(|known| Arc::ptr_eq(&known.module, module));
        let armed = known.and_then(|known| {
            known.enabled = known.enabled.saturating_sub(1);
            known.armed.remove(&(probe as u32))
        });
        if let Some(paddr) = armed {
            self.detach_at(core, paddr, probe as u32);
        }
    }

    /// All probes of modules are to be looked through: the guest is not where it was.
    pub(crate) fn forget_modules(&mut self) {
        self.next_look = 0;
        self.modules.iter_mut().for_each(|module| module.seen = None);
    }

    /// The guest has rewritten the bytes of a site. If a module's probe is there, it may be the module's no more.
    pub(crate) fn has_module_probe(&self, site: usize) -> bool {
        let module =
            |p: &u32| self.probes.get(*p as usize).is_some_and(|p| matches!(p.place, Place::Module { .. }));
        self.sites.get(site).is_some_and(|site| site.probes.iter().any(module))
    }

    /// A slice of the run has ended: looks whether armed modules are still there, if that was not done of late.
    pub(crate) fn look_after_modules(&mut self, core: &mut Core) {
        if core.icount() >= self.next_look && self.modules.iter().any(|module| !module.armed.is_empty()) {
            self.arm_modules(core);
        }
    }

    /// Arms the enabled probes of kernel modules that are loaded now, and only there.
    pub(crate) fn arm_modules(&mut self, core: &mut Core) {
        self.next_look = core.icount().saturating_add(LOOK);
        let Some(profile) = self.config.profile.as_deref().filter(|_| !self.modules.is_empty()) else {
            return;
        };
        let loaded = profile.modules(core);
        let places = |module: &ProbedModule| module.placed(core, profile, &loaded);
        let places: Vec<_> = self.modules.iter().map(places).collect();
        for (index, placed) in places.into_iter().enumerate() {
            self.move_module(core, index, placed);
        }
    }

    /// Takes the probes of a module from where they are to where its parts are now.
    fn move_module(&mut self, core: &mut Core, index: usize, placed: Vec<Option<PlacedPart>>) {
        let Some(module) = self.modules.get_mut(index) else { return };
        if module.seen.as_ref() == Some(&placed) {
            return;
        }
        let now = module.addresses(&placed, &self.probes);
        module.seen = Some(placed);
        let before = std::mem::replace(&mut module.armed, now.clone());
        for (probe, paddr) in before.into_iter().filter(|(probe, paddr)| now.get(probe) != Some(paddr)) {
            self.detach_at(core, paddr, probe);
        }
        for (probe, paddr) in now {
            // A clash with another patch leaves the module without the probe; it cannot happen between breakpoint
            // probes, which share sites.
            let _ = self.attach(core, paddr, INT3, probe as usize);
        }
    }

    /// Takes a probe away from a physical address.
    fn detach_at(&mut self, core: &mut Core, paddr: u64, probe: u32) {
        let Some(&index) = self.by_paddr.get(&paddr) else { return };
        let Some(site) = self.sites.get_mut(index) else { return };
        if site.change(|probes| probes.retain(|&p| p != probe)) {
            self.disarm_site(core, index);
        }
    }
}
