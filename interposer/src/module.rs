//! Probes on kernel modules: armed where the guest has loaded the module, wherever that is.
//!
//! The guest is asked by its profile when it is about to execute a page for the first time. A module that is loaded has
//! new pages, so it is found before the first instruction of it runs, that of its start included; one that is loaded
//! again is found again, wherever it is then. Where it was, its probes are gone when the kernel next executes a page for the
//! first time, or when the page is written anew. Nothing is added to the guest for this.

use crate::insert::INT3;
use crate::table::{Interposer, Place};
use std::collections::BTreeMap;
use trapline_emu::Core;
use trapline_emu::symbols::KernelModule;
use trapline_os::OsProfile;

/// Sections of a loaded module and their addresses.
type Sections = Vec<(String, u64)>;

/// The physical address of a place in a module; `None` when that part of it is not loaded.
pub(crate) fn place(core: &Core, profile: &dyn OsProfile, module: &KernelModule, offset: u64) -> Option<u64> {
    placed(core, profile, &profile.module_sections(core, module.name()), module, offset)
}

fn placed(
    core: &Core,
    profile: &dyn OsProfile,
    sections: &Sections,
    module: &KernelModule,
    offset: u64,
) -> Option<u64> {
    let (wanted, into) = module.section_at(offset)?;
    let (_, address) = sections.iter().find(|(name, _)| name == wanted)?;
    profile.kernel_paddr(core, address.checked_add(into)?)
}

impl Interposer {
    /// Why probes of kernel modules may not be where they should: what the profile says of the guest's list of modules, if
    /// there is an enabled probe that needs it and the list cannot be believed.
    pub fn modules_damage(&self, core: &Core) -> Option<String> {
        let needs = |place: &Place| matches!(place, Place::Module { .. });
        self.probes.iter().find(|probe| probe.enabled && needs(&probe.place))?;
        self.config.profile.as_deref()?.damage(core)
    }

    /// Disarms the sites of module probes where the module no longer is.
    fn leave_modules(&mut self, core: &mut Core, found: &[(usize, u64)]) {
        let probes = &self.probes;
        for (index, site) in self.sites.iter_mut().enumerate().filter(|(_, site)| site.armed) {
            let at = site.paddr;
            let gone = |p: u32| {
                let probe = probes.get(p as usize);
                probe.is_some_and(|probe| matches!(probe.place, Place::Module { .. }))
                    && !found.contains(&(p as usize, at))
            };
            if site.probes.iter().any(|&p| gone(p)) && site.change(|here| here.retain(|&p| !gone(p))) {
                site.disarm(core, index);
            }
        }
    }

    /// Arms the enabled probes of kernel modules that are loaded now, and only there.
    pub(crate) fn arm_modules(&mut self, core: &mut Core) {
        let mut loaded: BTreeMap<&str, Sections> = BTreeMap::new();
        let mut found = Vec::new();
        let Some(profile) = self.config.profile.as_deref() else { return };
        for (index, probe) in self.probes.iter().enumerate().filter(|(_, probe)| probe.enabled) {
            let Place::Module { module, offset } = &probe.place else { continue };
            let sections =
                loaded.entry(module.name()).or_insert_with(|| profile.module_sections(core, module.name()));
            found.extend(placed(core, profile, sections, module, *offset).map(|paddr| (index, paddr)));
        }
        self.leave_modules(core, &found);
        for (index, paddr) in found {
            // A clash with another patch leaves the module without the probe; it cannot happen between breakpoint
            // probes, which share sites.
            let _ = self.attach(core, paddr, INT3, index);
        }
    }
}
