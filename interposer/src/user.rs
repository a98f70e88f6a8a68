//! Probes on user modules: armed on every physical page that holds their page of the file.
//!
//! A page is looked at when it is about to be executed: it is the module's if its content is, whatever the guest's
//! system. Where the profile knows what the current process has mapped, a page that differs is the module's too if it is
//! mapped from the module's path (`changed.rs`). Of a page with the same content that is counted, and decides nothing,
//! since another path may lead to the same file.

use crate::changed::{is_changed_page, is_mapped};
use crate::insert::INT3;
use crate::table::Interposer;
use std::sync::Arc;
use trapline_emu::symbols::UserModule;
use trapline_emu::{Core, PAGE};

/// Whether the physical page holds this content. The last page of a file is short; what follows is not compared.
pub(crate) fn holds(core: &Core, page: u64, content: &[u8]) -> bool {
    let at = page as usize;
    core.ram().bytes().get(at..at + content.len()).is_some_and(|p| p == content)
}

impl Interposer {
    /// A physical page is about to be executed: arms the user probes whose module page it holds.
    pub(crate) fn arm_page(&mut self, core: &mut Core, page: u64) {
        for probe in 0..self.probes.len() {
            let enabled = self.probes.get(probe).filter(|p| p.enabled);
            let Some((module, offset)) = enabled.and_then(|p| p.place.in_user_code()) else { continue };
            let module = Arc::clone(module);
            let Some(content) = module.page((offset / PAGE) as usize) else { continue };
            let profile = self.config.profile.as_deref();
            if holds(core, page, content) || is_changed_page(core, profile, &module, offset, page) {
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
        if profile.is_some_and(|profile| is_mapped(core, profile, module, offset, page)) {
            self.stats.by_mapping += 1;
        } else {
            self.stats.by_content += 1;
        }
    }
}
