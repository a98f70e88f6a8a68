//! The table: sites by physical address, by watched range and by stub.

use super::Way;
use super::site::{Site, Stub, bytes_at};
use crate::model::{InsertErrorKind, Probe};
use std::collections::BTreeMap;
use trapline_emu::{Core, PAGE, PatchError, Watch};

/// All sites.
#[derive(Default)]
pub(crate) struct SiteTable {
    list: Vec<Site>,
    by_paddr: BTreeMap<u64, usize>,
    /// Sites that are watches of execution, by their range.
    by_range: BTreeMap<(u64, u64), usize>,
    /// Sites that are pointers, by the number of their stub.
    by_stub: Vec<usize>,
    /// Sites that the last probe has left since this was asked for.
    emptied: Vec<usize>,
}

/// The table at one moment.
#[derive(Clone)]
pub(crate) struct SavedSites {
    list: Vec<SavedSite>,
    by_paddr: BTreeMap<u64, usize>,
    by_range: BTreeMap<(u64, u64), usize>,
    by_stub: Vec<usize>,
}

#[derive(Clone)]
struct SavedSite {
    paddr: u64,
    watch: Option<Watch>,
    stub: Option<Stub>,
    patch: u8,
    behind: bool,
    probes: Vec<u32>,
    armed: bool,
}

impl SiteTable {
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&Site> {
        self.list.get(index)
    }

    #[inline(always)]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Site> {
        self.list.get_mut(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Site> {
        self.list.iter()
    }

    /// The site at a physical address.
    pub fn at(&self, paddr: u64) -> Option<(usize, &Site)> {
        let &index = self.by_paddr.get(&paddr)?;
        Some((index, self.list.get(index)?))
    }

    /// The sites on a physical page, by address.
    pub fn on_page(&self, page: u64) -> Vec<usize> {
        self.by_paddr.range(page..page + PAGE).map(|(_, &site)| site).collect()
    }

    /// The site whose stub has this number.
    pub fn at_stub(&self, number: u32) -> Option<usize> {
        self.by_stub.get(number as usize).copied()
    }

    /// The probes on a site, in order of insertion.
    pub fn probes_at(&self, index: usize) -> &[u32] {
        self.list.get(index).map(|site| site.probes.as_slice()).unwrap_or_default()
    }

    /// The sites that the last probe has left since the last call.
    pub fn take_emptied(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.emptied)
    }

    /// Armed sites: physical address, the displaced instruction's bytes as last seen, how it is displaced.
    pub fn armed(&self) -> impl Iterator<Item = (u64, &[u8; 15], Option<Way>)> {
        let patched = self.list.iter().filter(|s| s.armed && s.watch.is_none() && s.stub.is_none());
        patched.map(|s| (s.paddr, &s.original, s.displaced.as_ref().map(|d| d.way())))
    }

    /// Puts a probe on a physical address.
    pub fn attach(
        &mut self,
        core: &mut Core,
        (paddr, patch): (u64, u8),
        number: u32,
        probe: &Probe,
    ) -> Result<(), InsertErrorKind> {
        let index = *self.by_paddr.entry(paddr).or_insert_with(|| {
            self.list.push(Site::new(paddr));
            self.list.len() - 1
        });
        let site = &mut self.list[index];
        if site.stub.is_some() {
            return Err(PatchError::Taken(paddr).into());
        }
        if !site.armed {
            site.patch = patch;
        }
        Ok(self.attach_site(core, index, number, probe.place.is_behind())?)
    }

    /// Puts a probe on a watch of execution.
    pub fn attach_watch(&mut self, core: &mut Core, watch: Watch, number: u32) -> Result<(), PatchError> {
        let index = *self.by_range.entry((watch.low, watch.high)).or_insert_with(|| {
            self.list.push(Site { watch: Some(watch), ..Site::new(watch.low) });
            self.list.len() - 1
        });
        self.attach_site(core, index, number, false)
    }

    /// Puts a probe on the pointer at a physical address in the kernel.
    pub fn attach_pointer(
        &mut self,
        core: &mut Core,
        (linear, paddr, wide): (u64, u64, bool),
        number: u32,
    ) -> Result<(), InsertErrorKind> {
        let bytes = if wide { 8 } else { 4 };
        if !paddr.is_multiple_of(bytes) {
            return Err(InsertErrorKind::PointerAlignment { linear, bytes });
        }
        if paddr.checked_add(bytes).is_none_or(|end| end > core.ram().size()) {
            return Err(PatchError::OutsideRam(paddr).into());
        }
        let index = match self.at(paddr) {
            Some((_, site)) if site.stub.is_none() => return Err(PatchError::Taken(paddr).into()),
            Some((index, _)) => index,
            None => {
                let (index, _) = self.add_stub(core, paddr, wide, false)?;
                self.by_paddr.insert(paddr, index);
                index
            }
        };
        let site = &self.list[index];
        if let (false, Some(stub)) = (site.armed, site.stub) {
            let found = stub.pointer(core, paddr);
            if found != 0 && found != stub.address {
                return Err(InsertErrorKind::PointerTaken { linear, found });
            }
        }
        Ok(self.attach_site(core, index, number, false)?)
    }

    /// Adds a site that is a stub: the pointer at a physical address in the kernel, or one of user programs.
    pub fn add_stub(
        &mut self,
        core: &mut Core,
        paddr: u64,
        wide: bool,
        user: bool,
    ) -> Result<(usize, Stub), InsertErrorKind> {
        let number = self.by_stub.len();
        let address = u32::try_from(number).ok().and_then(|number| core.stub(number, wide));
        let stub = Stub { address: address.ok_or(InsertErrorKind::NoStub(number))?, wide, user };
        let index = self.list.len();
        self.list.push(Site { stub: Some(stub), ..Site::new(paddr) });
        self.by_stub.push(index);
        Ok((index, stub))
    }

    /// Puts a probe on the site of a stub.
    pub fn attach_stub(&mut self, core: &mut Core, stub: Stub, number: u32) -> Result<(), PatchError> {
        match self.list.iter().position(|site| site.stub == Some(stub)) {
            Some(site) => self.attach_site(core, site, number, false),
            None => Ok(()),
        }
    }

    /// Puts a probe on a site, which is armed if it was not.
    fn attach_site(
        &mut self,
        core: &mut Core,
        index: usize,
        number: u32,
        behind: bool,
    ) -> Result<(), PatchError> {
        let site = &mut self.list[index];
        if !site.armed {
            site.arm(core, index)?;
            site.original = bytes_at(core, site.paddr);
            // The guest may have rewritten the instruction while nothing was armed here.
            site.forget_way(core);
            site.behind = false;
        }
        if !site.probes.contains(&number) {
            let at = site.probes.partition_point(|&p| p < number);
            site.change(|probes| probes.insert(at, number));
            if behind {
                site.behind = true;
                site.forget_way(core);
            }
        }
        Ok(())
    }

    /// Takes probes off a site, all but those that `stays` names. It is disarmed if none is left.
    pub fn retain(&mut self, core: &mut Core, index: usize, stays: impl Fn(u32) -> bool) {
        let Some(site) = self.list.get_mut(index) else { return };
        if site.probes.iter().all(|&probe| stays(probe)) {
            return;
        }
        if site.change(|here| here.retain(|&probe| stays(probe))) {
            if site.armed {
                site.disarm(core, index);
            }
            self.emptied.push(index);
        }
    }

    /// Takes a probe off a site.
    fn leave(&mut self, core: &mut Core, index: usize, number: u32) {
        self.retain(core, index, |probe| probe != number);
    }

    /// Takes a probe off the patch or pointer at a physical address.
    pub fn leave_address(&mut self, core: &mut Core, paddr: u64, number: u32) {
        if let Some(&index) = self.by_paddr.get(&paddr) {
            self.leave(core, index, number);
        }
    }

    /// Takes a probe off a watch of execution.
    pub fn leave_watch(&mut self, core: &mut Core, watch: Watch, number: u32) {
        if let Some(&index) = self.by_range.get(&(watch.low, watch.high)) {
            self.leave(core, index, number);
        }
    }

    /// Takes a probe off all stubs.
    pub fn leave_stubs(&mut self, core: &mut Core, number: u32) {
        for at in 0..self.by_stub.len() {
            self.leave(core, self.by_stub[at], number);
        }
    }

    /// Saves the table.
    pub fn save(&self) -> SavedSites {
        let site = |s: &Site| SavedSite {
            paddr: s.paddr,
            watch: s.watch,
            stub: s.stub,
            patch: s.patch,
            behind: s.behind,
            probes: s.probes.clone(),
            armed: s.armed,
        };
        SavedSites {
            list: self.list.iter().map(site).collect(),
            by_paddr: self.by_paddr.clone(),
            by_range: self.by_range.clone(),
            by_stub: self.by_stub.clone(),
        }
    }

    /// Puts a saved table back, when guest memory has already been. What is armed is then what was.
    pub fn restore(&mut self, core: &mut Core, saved: &SavedSites) {
        self.list.iter_mut().for_each(|site| site.forget_way(core));
        let stays = |index: usize, site: &Site| {
            let same =
                |s: &SavedSite| s.armed && (s.paddr, s.watch, s.stub) == (site.paddr, site.watch, site.stub);
            saved.list.get(index).is_some_and(same)
        };
        for (index, site) in self.list.iter_mut().enumerate() {
            if site.armed && !stays(index, site) {
                site.disarm(core, index);
            }
        }
        self.list.resize_with(saved.list.len(), || Site::new(0));
        for (index, (site, was)) in self.list.iter_mut().zip(&saved.list).enumerate() {
            let armed = site.armed;
            *site = Site { watch: was.watch, stub: was.stub, behind: was.behind, ..Site::new(was.paddr) };
            site.change(|probes| probes.clone_from(&was.probes));
            site.patch = was.patch;
            site.original = bytes_at(core, was.paddr);
            // It was armed once: nothing else is there.
            site.armed = was.armed && (armed || site.arm(core, index).is_ok());
        }
        self.by_paddr.clone_from(&saved.by_paddr);
        self.by_range.clone_from(&saved.by_range);
        self.by_stub.clone_from(&saved.by_stub);
        self.emptied.clear();
    }
}
