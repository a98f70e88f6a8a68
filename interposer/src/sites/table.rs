//! The table: sites by physical address, by watched range and by stub.

mod saved;

pub(crate) use saved::SavedSites;

use super::Way;
use super::site::{Change, Site, Stub, bytes_at};
use crate::model::{INT3, InsertErrorKind, Probe};
use saved::Pieces;
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
    /// Sites that the last probe has left since this list was last taken.
    emptied: Vec<usize>,
    /// The saved form of the sites, for each piece that has not changed since.
    saved: Pieces,
}

impl SiteTable {
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&Site> {
        self.list.get(index)
    }

    /// Determines how a site is displaced.
    #[cold]
    pub fn displace(&mut self, core: &mut Core, index: usize, linear: u64, ip: u64) {
        let Some(site) = self.list.get_mut(index) else { return };
        site.displace(core, linear, ip);
        if site.is_rewritten(core) {
            // That holds only as long as memory has these bytes.
            self.saved.forget(index);
        }
    }

    /// Drops a site's displacement if its bytes have changed since they were last read.
    pub fn displace_anew(&mut self, core: &mut Core, index: usize) {
        if let Some(site) = self.list.get_mut(index).filter(|site| site.is_rewritten(core)) {
            site.forget_way(core);
        }
    }

    /// Reads the bytes of an armed site again; what has changed.
    pub fn look_again(&mut self, core: &mut Core, index: usize) -> Option<Change> {
        let armed = self.list.get_mut(index).filter(|site| site.armed);
        let changed = armed.and_then(|site| site.look_again(core));
        if changed.is_some() {
            self.saved.forget(index);
        }
        changed
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

    /// Whether there are any.
    pub fn any_emptied(&self) -> bool {
        !self.emptied.is_empty()
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
        let index = self.index_of(paddr);
        self.saved.forget(index);
        let site = &mut self.list[index];
        if site.stub.is_some() {
            return Err(PatchError::Taken(paddr).into());
        }
        if !site.armed {
            site.patch = patch;
        }
        Ok(self.attach_site(core, index, number, probe.runs_after())?)
    }

    /// Arms a physical address where functions are awaited.
    pub fn wait_at(&mut self, core: &mut Core, paddr: u64) -> Result<(), PatchError> {
        let index = self.index_of(paddr);
        let site = &mut self.list[index];
        if site.stub.is_some() {
            return Err(PatchError::Taken(paddr));
        }
        if !site.armed {
            site.patch = INT3;
            site.arm(core, index)?;
            site.original = bytes_at(core, paddr);
            site.forget_way(core);
            site.runs_after = false;
        }
        self.saved.forget(index);
        self.list[index].awaited = true;
        Ok(())
    }

    /// Awaits functions nowhere any more.
    pub fn wait_nowhere(&mut self, core: &mut Core) {
        for (index, site) in self.list.iter_mut().enumerate().filter(|(_, site)| site.awaited) {
            self.saved.forget(index);
            site.awaited = false;
            if site.probes.is_empty() && site.armed {
                site.disarm(core, index);
            }
        }
    }

    /// The index of the site at a physical address, which is added if missing.
    fn index_of(&mut self, paddr: u64) -> usize {
        *self.by_paddr.entry(paddr).or_insert_with(|| {
            self.list.push(Site::new(paddr));
            self.list.len() - 1
        })
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
        if !core.ram().contains(paddr, bytes) {
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
        self.saved.forget(index);
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

    /// Puts a probe on a site, which is armed if it was not yet.
    fn attach_site(
        &mut self,
        core: &mut Core,
        index: usize,
        number: u32,
        runs_after: bool,
    ) -> Result<(), PatchError> {
        self.saved.forget(index);
        let site = &mut self.list[index];
        if !site.armed {
            site.arm(core, index)?;
            site.original = bytes_at(core, site.paddr);
            // The guest may have rewritten the instruction while nothing was armed here.
            site.forget_way(core);
            site.runs_after = false;
        }
        if !site.probes.contains(&number) {
            let at = site.probes.partition_point(|&p| p < number);
            site.change(|probes| probes.insert(at, number));
            if runs_after {
                site.runs_after = true;
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
        self.saved.forget(index);
        if site.change(|here| here.retain(|&probe| stays(probe))) {
            if site.armed && !site.awaited {
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
}
