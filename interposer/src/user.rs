//! Probes on user modules: armed on every physical page that holds their page of the file.
//!
//! A page is looked at when it is about to be executed: it is the module's if its content is, whatever the guest's
//! system. Where the profile knows what the current process has mapped, a page that differs is the module's too if it is
//! mapped from the module's path (`changed.rs`). Of a page with the same content that is counted, and decides nothing,
//! since another path may lead to the same file.
//!
//! There may be a probe on every instruction of a program: probes are kept by page of their module, so that a page which
//! is of no interest costs a comparison with each page that has probes, most of which differ in their first bytes.

use crate::changed::{has_instruction, is_mapped};
use crate::insert::INT3;
use crate::table::{Interposer, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trapline_emu::symbols::UserModule;
use trapline_emu::{Core, PAGE};

/// The probes of one page of a module.
#[derive(Debug, Clone)]
struct FilePage {
    module: Arc<UserModule>,
    number: u64,
    /// Those that are enabled, in order of insertion.
    probes: BTreeSet<u32>,
    /// Physical pages that it was found on.
    frames: BTreeSet<u64>,
}

impl FilePage {
    fn content(&self) -> &[u8] {
        self.module.page(self.number as usize).unwrap_or_default()
    }
}

/// The enabled probes on user modules, by module and page.
#[derive(Debug, Default, Clone)]
pub(crate) struct UserProbes {
    pages: Vec<FilePage>,
    /// Places in `pages` by the module's own and the page.
    by_page: BTreeMap<(usize, u64), usize>,
    /// The modules whose places `by_page` has.
    modules: Vec<Arc<UserModule>>,
    enabled: usize,
}

impl UserProbes {
    fn page(&self, module: &Arc<UserModule>, number: u64) -> Option<usize> {
        let own = self.modules.iter().rposition(|other| Arc::ptr_eq(other, module))?;
        self.by_page.get(&(own, number)).copied()
    }

    /// Keeps an enabled probe; answers which page it is on.
    fn add(&mut self, module: &Arc<UserModule>, offset: u64, probe: u32) -> usize {
        let own = self.modules.iter().rposition(|other| Arc::ptr_eq(other, module)).unwrap_or_else(|| {
            self.modules.push(Arc::clone(module));
            self.modules.len() - 1
        });
        let number = offset / PAGE;
        let pages = &mut self.pages;
        let page = *self.by_page.entry((own, number)).or_insert_with(|| {
            let module = Arc::clone(module);
            pages.push(FilePage { module, number, probes: BTreeSet::new(), frames: BTreeSet::new() });
            pages.len() - 1
        });
        if let Some(page) = self.pages.get_mut(page) {
            self.enabled += usize::from(page.probes.insert(probe));
        }
        page
    }

    /// Forgets a probe; answers the physical pages that it may be on.
    fn remove(&mut self, module: &Arc<UserModule>, offset: u64, probe: u32) -> Vec<u64> {
        let page = self.page(module, offset / PAGE);
        let Some(page) = page.and_then(|page| self.pages.get_mut(page)) else { return Vec::new() };
        self.enabled -= usize::from(page.probes.remove(&probe));
        page.frames.iter().copied().collect()
    }

    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.enabled > 0
    }
}

/// Whether the physical page holds this content. The last page of a file is short; what follows is not compared.
pub(crate) fn holds(core: &Core, page: u64, content: &[u8]) -> bool {
    let at = page as usize;
    core.ram().bytes().get(at..at + content.len()).is_some_and(|p| p == content)
}

impl Interposer {
    /// A physical page is about to be executed: arms the user probes whose module page it holds.
    pub(crate) fn arm_page(&mut self, core: &mut Core, page: u64) {
        for index in 0..self.user.pages.len() {
            self.arm_file_page(core, index, page);
        }
    }

    /// Arms the probes of a module's page on a physical page, if that holds it or a changed copy of it.
    fn arm_file_page(&mut self, core: &mut Core, index: usize, page: u64) {
        let Some(file) = self.user.pages.get(index).filter(|file| !file.probes.is_empty()) else { return };
        let whole = holds(core, page, file.content());
        let its = whole || self.may_be_changed(core, file, page) && self.is_mapped_here(core, file, page);
        if !its {
            return;
        }
        let (module, probes) = (Arc::clone(&file.module), file.probes.clone());
        let mut fresh = false;
        for probe in probes {
            let Some(offset) = self.offset_in_file(probe) else { continue };
            if !whole && !has_instruction(core, &module, offset, page) {
                continue;
            }
            let paddr = page + offset % PAGE;
            let site = self.by_paddr.get(&paddr).and_then(|&site| self.sites.get(site));
            fresh |= !site.is_some_and(|site| site.probes.contains(&probe));
            // A clash with another patch leaves this page without the probe; it cannot happen between breakpoint probes,
            // which share sites.
            let _ = self.attach(core, paddr, INT3, probe as usize);
        }
        let Some(file) = self.user.pages.get(index) else { return };
        let by_mapping = fresh && (!whole || self.is_mapped_here(core, file, page));
        self.stats.by_mapping += u64::from(by_mapping);
        self.stats.by_content += u64::from(fresh && !by_mapping);
        if let Some(file) = self.user.pages.get_mut(index) {
            file.frames.insert(page);
        }
    }

    /// Whether the current process has the physical page mapped as a module's.
    fn is_mapped_here(&self, core: &Core, file: &FilePage, page: u64) -> bool {
        let profile = self.config.profile.as_deref();
        profile.is_some_and(|profile| is_mapped(core, profile, &file.module, file.number * PAGE, page))
    }

    /// Whether it is worth asking the profile if a page that differs from the file's is a changed copy of it: of some
    /// probes at least half find their instruction there.
    fn may_be_changed(&self, core: &Core, file: &FilePage, page: u64) -> bool {
        const LOOKS: usize = 8;
        let step = file.probes.len().div_ceil(LOOKS).max(1);
        let looks: Vec<bool> = (file.probes.iter().step_by(step))
            .filter_map(|&probe| self.offset_in_file(probe))
            .map(|offset| has_instruction(core, &file.module, offset, page))
            .collect();
        let fit = looks.iter().filter(|fits| **fits).count();
        fit > 0 && (step == 1 || 2 * fit >= looks.len())
    }

    fn offset_in_file(&self, probe: u32) -> Option<u64> {
        Some(self.probes.get(probe as usize)?.place.in_user_code()?.1)
    }

    /// Enables probes on user modules, and arms them where their pages are executed already.
    pub(crate) fn enable_user(&mut self, core: &mut Core, probes: &[u32]) {
        let mut pages = BTreeSet::new();
        for &probe in probes {
            let place = self.probes.get(probe as usize).map(|probe| probe.place.clone());
            if let Some((module, offset)) = place.as_ref().and_then(Place::in_user_code) {
                pages.insert(self.user.add(module, offset, probe));
            }
        }
        if pages.is_empty() {
            return;
        }
        for paddr in core.code_pages() {
            for &page in &pages {
                self.arm_file_page(core, page, paddr);
            }
        }
    }

    /// A probe on a user module is disabled: the sites that it may be on.
    pub(crate) fn disable_user(&mut self, module: &Arc<UserModule>, offset: u64, probe: u32) -> Vec<usize> {
        let frames = self.user.remove(module, offset, probe);
        let site = |frame: u64| self.by_paddr.get(&(frame + offset % PAGE)).copied();
        frames.into_iter().filter_map(site).collect()
    }
}
