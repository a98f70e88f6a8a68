//! Probes on user modules: armed on every physical page that holds their page of the file.
//!
//! A page is checked when it is about to be executed: it belongs to the module if it has the module's content, whatever
//! the guest's system. Where the profile knows what the current process has mapped, a page that differs belongs to it
//! too if it is mapped from the module's path (`changed.rs`). For a page with equal content the mapping is only
//! counted, since another path may lead to the same file.
//!
//! There may be a probe on every instruction of a program: probes are kept by page of their module, so that an
//! unrelated page costs a comparison with each page that has probes, and most differ in their first bytes.

use super::changed::{has_instruction, is_changed_page, is_mapped};
use super::{Reach, UserModules};
use crate::model::{INT3, Place, Probe};
use crate::sites::SiteTable;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trapline_emu::symbols::UserModule;
use trapline_emu::{Core, PAGE, RamLayout};
use trapline_os::OsProfile;

/// The probes of one page of a module.
#[derive(Debug, Clone)]
struct FilePage {
    module: Arc<UserModule>,
    number: u64,
    /// Those that are enabled, in ascending order, which is that of insertion. A list: a sample of them is taken for each
    /// page that the guest begins to execute.
    probes: Vec<u32>,
    /// Physical pages that it was found on.
    frames: BTreeSet<u64>,
}

impl FilePage {
    fn content(&self) -> &[u8] {
        self.module.page(self.number as usize).unwrap_or_default()
    }
}

/// The enabled probes on user modules, by module and page. A clone shares them until either is changed.
#[derive(Debug, Default, Clone)]
pub(crate) struct UserProbes(Arc<Pages>);

/// The pages that have or had probes.
#[derive(Debug, Default, Clone)]
struct Pages {
    list: Vec<FilePage>,
    /// Indexes in `list` by the module's index and the page.
    by_page: BTreeMap<(usize, u64), usize>,
    /// The modules whose places `by_page` has.
    modules: Vec<Arc<UserModule>>,
    enabled: usize,
}

impl Pages {
    fn page(&self, module: &Arc<UserModule>, number: u64) -> Option<usize> {
        let own = self.modules.iter().rposition(|other| Arc::ptr_eq(other, module))?;
        self.by_page.get(&(own, number)).copied()
    }

    /// Adds an enabled probe; returns the index of its page.
    fn add(&mut self, module: &Arc<UserModule>, offset: u64, probe: u32) -> usize {
        let page = self.add_page(module, offset / PAGE);
        if let Some(page) = self.list.get_mut(page)
            && let Err(at) = page.probes.binary_search(&probe)
        {
            page.probes.insert(at, probe);
            self.enabled += 1;
        }
        page
    }

    /// The index of a page, which is added if missing.
    fn add_page(&mut self, module: &Arc<UserModule>, number: u64) -> usize {
        let own = self.modules.iter().rposition(|other| Arc::ptr_eq(other, module)).unwrap_or_else(|| {
            self.modules.push(Arc::clone(module));
            self.modules.len() - 1
        });
        let pages = &mut self.list;
        *self.by_page.entry((own, number)).or_insert_with(|| {
            let module = Arc::clone(module);
            pages.push(FilePage { module, number, probes: Vec::new(), frames: BTreeSet::new() });
            pages.len() - 1
        })
    }

    /// Forgets a probe; returns the physical pages that it may be on.
    fn remove(&mut self, module: &Arc<UserModule>, offset: u64, probe: u32) -> Vec<u64> {
        let page = self.page(module, offset / PAGE);
        let Some(page) = page.and_then(|page| self.list.get_mut(page)) else { return Vec::new() };
        if let Ok(at) = page.probes.binary_search(&probe) {
            page.probes.remove(at);
            self.enabled -= 1;
        }
        page.frames.iter().copied().collect()
    }
}

/// Whether the physical page holds this content. The last page of a file is short; the bytes after its end are not
/// compared.
fn holds(core: &Core, page: u64, content: &[u8]) -> bool {
    core.ram().slice(page, content.len()).is_some_and(|p| p == content)
}

/// Whether a probe may stay on a physical page whose bytes have changed: one in a user module's code only while the page
/// is that module's.
pub(crate) fn stays_on(core: &Core, profile: Option<&dyn OsProfile>, place: &Place, page: u64) -> bool {
    let Some((module, offset)) = place.in_user_code() else { return true };
    module.page((offset / PAGE) as usize).is_some_and(|content| holds(core, page, content))
        || is_changed_page(core, profile, module, offset, page)
}

fn offset_in_file(probes: &[Probe], probe: u32) -> Option<u64> {
    Some(probes.get(probe as usize)?.place.in_user_code()?.1)
}

/// Whether the current process has the physical page mapped as a module's.
fn is_mapped_here(core: &Core, profile: Option<&dyn OsProfile>, file: &FilePage, page: u64) -> bool {
    profile.is_some_and(|profile| is_mapped(core, profile, &file.module, file.number * PAGE, page))
}

/// Whether a differing page may be a changed copy of the file's, so that the profile must be asked: at least half of a
/// sample of probes find their instruction there.
fn may_be_changed(core: &Core, probes: &[Probe], file: &FilePage, page: u64) -> bool {
    const LOOKS: usize = 8;
    let step = file.probes.len().div_ceil(LOOKS).max(1);
    let looks: Vec<bool> = (file.probes.iter().step_by(step))
        .filter_map(|&probe| offset_in_file(probes, probe))
        .map(|offset| has_instruction(core, &file.module, offset, page))
        .collect();
    let fit = looks.iter().filter(|fits| **fits).count();
    fit > 0 && (step == 1 || 2 * fit >= looks.len())
}

impl UserProbes {
    /// Whether there is any enabled probe.
    pub fn any(&self) -> bool {
        self.0.enabled > 0
    }

    /// A physical page is about to be executed: arms the user probes whose module page it holds.
    pub fn arm_page(&mut self, core: &mut Core, page: u64, reach: &mut Reach<'_>) {
        for index in 0..self.0.list.len() {
            self.arm_file_page(core, index, page, reach);
        }
    }

    /// Arms the probes of a module's page on a physical page, if that holds it or a changed copy of it.
    fn arm_file_page(&mut self, core: &mut Core, index: usize, page: u64, reach: &mut Reach<'_>) {
        let Some(file) = self.0.list.get(index).filter(|file| !file.probes.is_empty()) else { return };
        let whole = holds(core, page, file.content());
        let its = whole
            || may_be_changed(core, reach.probes, file, page)
                && is_mapped_here(core, reach.profile, file, page);
        if !its {
            return;
        }
        let mut fresh = false;
        for &number in &file.probes {
            let Some(probe) = reach.probes.get(number as usize) else { continue };
            let Some((_, offset)) = probe.place.in_user_code() else { continue };
            if !whole && !has_instruction(core, &file.module, offset, page) {
                continue;
            }
            let paddr = page + offset % PAGE;
            fresh |= !reach.sites.at(paddr).is_some_and(|(_, site)| site.probes.contains(&number));
            // A clash with another patch leaves this page without the probe; it cannot happen between breakpoint probes,
            // which share sites.
            let _ = reach.sites.attach(core, (paddr, INT3), number, probe);
        }
        let by_mapping = fresh && (!whole || is_mapped_here(core, reach.profile, file, page));
        reach.stats.by_mapping += u64::from(by_mapping);
        reach.stats.by_content += u64::from(fresh && !by_mapping);
        if !file.frames.contains(&page)
            && let Some(file) = Arc::make_mut(&mut self.0).list.get_mut(index)
        {
            file.frames.insert(page);
        }
    }

    /// Enables probes on user modules, and arms them where their pages are executed already.
    pub fn enable(&mut self, core: &mut Core, probes: &[u32], reach: &mut Reach<'_>) {
        let mut pages = BTreeSet::new();
        for &number in probes {
            let place = reach.probes.get(number as usize).map(|probe| &probe.place);
            if let Some((module, offset)) = place.and_then(Place::in_user_code) {
                pages.insert(Arc::make_mut(&mut self.0).add(module, offset, number));
            }
        }
        if pages.is_empty() {
            return;
        }
        for paddr in core.code_pages() {
            for &page in &pages {
                self.arm_file_page(core, page, paddr, reach);
            }
        }
    }

    /// A probe on a user module is disabled: it leaves its sites.
    pub fn disable(
        &mut self,
        core: &mut Core,
        module: &Arc<UserModule>,
        offset: u64,
        probe: u32,
        sites: &mut SiteTable,
    ) {
        for frame in Arc::make_mut(&mut self.0).remove(module, offset, probe) {
            sites.leave_address(core, frame + offset % PAGE, probe);
        }
    }

    /// The stored form, in which `modules` numbers the modules.
    pub fn to_stored(&self, modules: &UserModules) -> Vec<StoredPage> {
        let of = |page: &FilePage| StoredPage {
            module: modules.number(&page.module),
            number: page.number,
            probes: page.probes.clone(),
            frames: page.frames.clone(),
        };
        self.0.list.iter().map(of).collect()
    }

    /// Restores the enabled probes; `None` if the stored form is impossible.
    pub fn from_stored(stored: Vec<StoredPage>, modules: &UserModules, ram: RamLayout) -> Option<Self> {
        let mut pages = Pages::default();
        for (at, StoredPage { module, number, probes, frames }) in stored.into_iter().enumerate() {
            let placed = frames.iter().all(|frame| frame.is_multiple_of(PAGE) && ram.contains(*frame, PAGE));
            let ascending = probes.is_sorted_by(|before, after| before < after);
            if !placed || !ascending || pages.add_page(modules.get(module)?, number) != at {
                return None;
            }
            let page = pages.list.get_mut(at)?;
            (page.probes, page.frames) = (probes, frames);
            pages.enabled += page.probes.len();
        }
        Some(Self(Arc::new(pages)))
    }
}

/// The stored form of a page of a module that has probes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredPage {
    module: u32,
    number: u64,
    probes: Vec<u32>,
    frames: BTreeSet<u64>,
}
