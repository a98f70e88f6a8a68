//! Probes on user modules: armed on every physical page that holds their page of the file.
//!
//! A page is looked at when it is about to be executed: it is the module's if its content is, whatever the guest's
//! system. Where the profile knows what the current process has mapped, it is asked whether the page is mapped from the
//! module's path; that is counted, and decides nothing, since another path may lead to the same file.

use crate::insert::INT3;
use crate::table::Interposer;
use std::sync::Arc;
use trapline_emu::symbols::UserModule;
use trapline_emu::{Access, Core, PAGE, look};
use trapline_os::OsProfile;

/// Whether the physical page holds this content. The last page of a file is short; what follows is not compared.
pub(crate) fn holds(core: &Core, page: u64, content: &[u8]) -> bool {
    let at = page as usize;
    core.ram().bytes().get(at..at + content.len()).is_some_and(|p| p == content)
}

/// Whether the current process has the physical page mapped as that of `offset` in the file at the module's path.
fn mapped(core: &Core, profile: &dyn OsProfile, module: &UserModule, offset: u64, page: u64) -> bool {
    let mappings = profile.mappings(core, profile.current_task(core));
    mappings.iter().filter(|mapping| mapping.path == module.name()).any(|mapping| {
        let into = (offset & !(PAGE - 1)).checked_sub(mapping.offset);
        let va = into.and_then(|into| mapping.start.checked_add(into)).filter(|va| *va < mapping.end);
        va.is_some_and(|va| {
            look(core.ram(), core.paging(), va, Access::Read, true).is_ok_and(|found| found.paddr == page)
        })
    })
}

impl Interposer {
    /// A physical page is about to be executed: arms the user probes whose module page it holds.
    pub(crate) fn arm_page(&mut self, core: &mut Core, page: u64) {
        for probe in 0..self.probes.len() {
            let enabled = self.probes.get(probe).filter(|p| p.enabled);
            let Some((module, offset)) = enabled.and_then(|p| p.place.in_user_code()) else { continue };
            let module = Arc::clone(module);
            let Some(content) = module.page((offset / PAGE) as usize) else { continue };
            if holds(core, page, content) {
                self.count_found(core, &module, offset, (page, probe as u32));
                // A clash with another patch leaves this page without the probe; it cannot happen between
                // breakpoint probes, which share sites.
                let _ = self.attach(core, page + offset % PAGE, INT3, probe);
            }
        }
    }

    /// Counts how the page that a probe is about to be armed on was found, unless the probe is there.
    pub(crate) fn count_found(
        &mut self,
        core: &Core,
        module: &UserModule,
        offset: u64,
        (page, probe): (u64, u32),
    ) {
        let site = self.by_paddr.get(&(page + offset % PAGE)).and_then(|&site| self.sites.get(site));
        if site.is_some_and(|site| site.probes.contains(&probe)) {
            return;
        }
        let profile = self.config.profile.as_deref();
        if profile.is_some_and(|profile| mapped(core, profile, module, offset, page)) {
            self.stats.by_mapping += 1;
        } else {
            self.stats.by_content += 1;
        }
    }
}
