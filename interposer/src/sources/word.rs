//! Words in the writable data of user programs that say whether a probe is enabled: semaphores of `<sys/sdt.h>`, and
//! the pointers of macro-declared probes.
//!
//! Every process has its own words, but their page is at first the file's and shared by all processes that map it: it
//! must not be written. So a word is raised when the process is about to run code of the module: the page of code,
//! recognised by its content, shows where the module is mapped. If the page of the word is private to the process by
//! then, which its page table shows by allowing stores, it is written as a store of the program would. If it is not,
//! the guest's kernel is given the page fault that such a store would raise, makes the copy, and returns to the same
//! instruction; then it is written. That fault needs a profile to say that the mapping is private and writable, since
//! it would kill the program otherwise. No instruction of the module sees the old value of the word.
//!
//! A forked child inherits raised words with the page. Words are lowered when the last probe that needs them is
//! disabled: at once if a profile names the processes that have the module mapped, otherwise when they next run code of
//! it. A word that the program itself has changed is left alone.
//!
//! Words are visible to the guest, by design (docs/providers.md).

use super::UserModules;
use crate::model::{InsertErrorKind, Stats};
use crate::sites::{SiteTable, Stub};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trapline_emu::symbols::UserModule;
use trapline_emu::{Access, Core, Fault, PAGE, Paging, error_code, look};
use trapline_os::{Mapping, OsProfile};

/// Bytes of a semaphore.
const SEMAPHORE: u64 = 2;
/// Segments of code that are looked at; a file has few.
const MOST_SEGMENTS: usize = 256;
/// Page faults that a process is given for one word, before it is left alone.
const MOST_FAULTS: u8 = 3;

/// The kind of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    /// A u16 that counts enabled probes; its value in the file.
    Semaphore(u16),
    /// A pointer that is 0 while no probe is enabled.
    Pointer(Stub),
}

/// A word of a module.
#[derive(Debug, Clone)]
struct Word {
    module: Arc<UserModule>,
    /// Its address as linked.
    address: u64,
    kind: Kind,
    /// The enabled probes that need it raised.
    probes: BTreeSet<u32>,
    /// Where it was raised: linear addresses by the top page table of the address space.
    raised: BTreeMap<u64, u64>,
    /// Where it could not be raised at once, by top page table.
    awaited: BTreeMap<u64, Awaited>,
}

/// A process's word that waits for a private page.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Awaited {
    linear: u64,
    /// Page faults raised for it.
    faults: u8,
    /// Whether it was counted as one that cannot be raised.
    left: bool,
}

/// The words that were ever needed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words {
    list: Vec<Word>,
    texts: Vec<Arc<Text>>,
}

/// The pages by which a module's code is recognised.
#[derive(Debug, Clone)]
struct Text {
    module: Arc<UserModule>,
    /// Numbers of the file's whole pages of code, by content; those with the same content as another are left out.
    pages: Vec<u32>,
}

impl Text {
    fn of(module: &Arc<UserModule>) -> Self {
        let mut pages: Vec<u32> = Vec::new();
        let code = module.segments().iter().filter(|segment| segment.executable);
        for segment in code.take(MOST_SEGMENTS) {
            let (first, end) = (segment.offset / PAGE, segment.offset.saturating_add(segment.file_size));
            pages.extend((first..end.div_ceil(PAGE)).filter_map(|page| u32::try_from(page).ok()));
        }
        pages.retain(|page| module.page(*page as usize).is_some_and(|content| content.len() as u64 == PAGE));
        let content = |page: &u32| module.page(*page as usize);
        pages.sort_by(|a, b| content(a).cmp(&content(b)).then(a.cmp(b)));
        pages.dedup();
        let alike = |chunk: &&[u32]| chunk.len() == 1;
        let pages =
            pages.chunk_by(|a, b| content(a) == content(b)).filter(alike).flatten().copied().collect();
        Self { module: Arc::clone(module), pages }
    }

    /// How far from where it was linked the module is mapped, if the physical page `paddr` at linear `page` is one of its
    /// pages of code.
    fn bias(&self, core: &Core, page: u64, paddr: u64) -> Option<u64> {
        let here = core.ram().slice(paddr, PAGE as usize)?;
        let compare =
            |number: &u32| self.module.page(*number as usize).map_or(Ordering::Less, |p| p.cmp(here));
        let found = self.pages.binary_search_by(compare).ok()?;
        let offset = u64::from(*self.pages.get(found)?) * PAGE;
        // The start of a page need not lie in the same segment as its end.
        let code = self.module.segments().iter().filter(|segment| segment.executable);
        let end = |start: u64, size: u64| start.saturating_add(size);
        let mut holding = code.filter(|s| s.offset < offset + PAGE && offset < end(s.offset, s.file_size));
        let segment = holding.next()?;
        Some(page.wrapping_sub(segment.vaddr.wrapping_sub(segment.offset).wrapping_add(offset)))
    }
}

/// The result of raising a word.
enum Raised {
    /// It was raised already.
    Before,
    /// It has been raised.
    Now,
    /// It can be raised after a page fault with this error code.
    Faults(u32),
    /// It cannot be raised.
    Never,
}

/// An address space, and where a word is in it.
#[derive(Clone, Copy)]
struct Spot {
    paging: Paging,
    linear: u64,
}

impl Spot {
    /// The physical address of the word, if a user program may access it so.
    fn paddr(self, core: &Core, access: Access) -> Option<u64> {
        let page = look(core.ram(), self.paging, self.linear & !(PAGE - 1), access, true).ok()?;
        Some(page.paddr | (self.linear % PAGE))
    }
}

impl Word {
    fn size(&self) -> u64 {
        match self.kind {
            Kind::Semaphore(_) => SEMAPHORE,
            Kind::Pointer(stub) => stub.bytes() as u64,
        }
    }

    /// The new value of a process's word instead of `found`; `None` if it is correct.
    fn wanted(&self, found: u64, at: Spot) -> Option<u64> {
        let known = self.raised.get(&at.paging.cr3) == Some(&at.linear);
        match (self.kind, self.probes.is_empty()) {
            (Kind::Pointer(stub), false) => (found == 0).then_some(stub.address),
            (Kind::Pointer(stub), true) => (found == stub.address).then_some(0),
            (Kind::Semaphore(rest), false) => {
                // Raised within the guest, if the interposer has raised none that a child could have inherited.
                let not_ours = !known && self.raised.is_empty();
                let up = found == u64::from(rest) || not_ours;
                up.then_some(found + 1).filter(|up| *up <= u16::MAX.into())
            }
            (Kind::Semaphore(rest), true) => {
                let ours = found > 0 && (known || found == u64::from(rest) + 1);
                ours.then(|| found - 1)
            }
        }
    }

    fn read(&self, core: &Core, at: Spot) -> Option<u64> {
        let mut bytes = [0; 8];
        let part = bytes.get_mut(..self.size() as usize)?;
        core.ram().read(at.paddr(core, Access::Read)?, part).then_some(u64::from_le_bytes(bytes))
    }

    fn write(&self, core: &mut Core, paddr: u64, value: u64) -> bool {
        let bytes = value.to_le_bytes();
        bytes.get(..self.size() as usize).is_some_and(|bytes| core.write_ram(paddr, bytes))
    }

    /// Raises the word of the process that is about to run code of the module, if it is not.
    fn raise(&mut self, core: &mut Core, profile: Option<&dyn OsProfile>, at: Spot) -> Raised {
        let found = self.read(core, at);
        let wanted = found.and_then(|found| self.wanted(found, at));
        if found.is_some() && wanted.is_none() {
            return Raised::Before;
        }
        let paddr = at.paddr(core, Access::Write);
        if paddr.is_none() && self.awaited(at).left {
            return Raised::Never;
        }
        let private = is_private(core, profile, at.linear);
        match (wanted, paddr) {
            (Some(wanted), Some(paddr)) if private != Some(false) && self.write(core, paddr, wanted) => {
                self.raised.insert(at.paging.cr3, at.linear);
                Raised::Now
            }
            // Code that is not mapped yet is examined when it is mapped.
            _ if private == Some(true) && self.may_fault(at) => {
                let present = if found.is_some() { error_code::PRESENT } else { 0 };
                Raised::Faults(present | error_code::WRITE | error_code::USER)
            }
            _ => Raised::Never,
        }
    }

    fn awaited(&mut self, at: Spot) -> &mut Awaited {
        let new = Awaited { linear: at.linear, faults: 0, left: false };
        let awaited = self.awaited.entry(at.paging.cr3).or_insert(new);
        if awaited.linear != at.linear {
            // The page table belongs to another process by now.
            *awaited = new;
        }
        awaited
    }

    /// Whether a process may be given a page fault for its word, once more.
    fn may_fault(&mut self, at: Spot) -> bool {
        let awaited = self.awaited(at);
        let may = awaited.faults < MOST_FAULTS;
        awaited.faults += u8::from(may);
        may
    }

    /// Lowers the word of a process, if it is raised. Such a word is on a page private to the process, or shared with
    /// its children, for which it is raised too.
    fn lower(&mut self, core: &mut Core, at: Spot) {
        let wanted = self.read(core, at).and_then(|found| self.wanted(found, at));
        if let Some((wanted, paddr)) = wanted.zip(at.paddr(core, Access::Read)) {
            self.write(core, paddr, wanted);
        }
        self.raised.remove(&at.paging.cr3);
        self.awaited.remove(&at.paging.cr3);
    }

    /// Where the word is in a process that has these mappings, if one of them is the module's, private and writable there.
    fn mapped(&self, mappings: &[Mapping]) -> Option<u64> {
        let offset = self.module.vaddr_to_offset(self.address)?;
        mappings.iter().filter(|m| m.path == self.module.name() && m.writable && !m.shared).find_map(|m| {
            let linear = m.start.checked_add(offset.checked_sub(m.offset)?)?;
            (linear < m.end).then_some(linear)
        })
    }
}

/// Whether the current process has a private writable mapping at `linear`; `None` if unknown.
fn is_private(core: &Core, profile: Option<&dyn OsProfile>, linear: u64) -> Option<bool> {
    let mappings = profile.map(|profile| profile.mappings(core, profile.current_task(core)));
    let mappings = mappings.filter(|mappings| !mappings.is_empty())?;
    let here = |m: &&Mapping| (m.start..m.end).contains(&linear);
    Some(mappings.iter().find(here).is_some_and(|m| m.writable && !m.shared))
}

impl Words {
    /// A probe needs the semaphore at a linked address of a module raised.
    pub fn need_semaphore(
        &mut self,
        core: &mut Core,
        module: &Arc<UserModule>,
        address: u64,
        probe: u32,
    ) -> Result<(), InsertErrorKind> {
        if address % PAGE + SEMAPHORE > PAGE {
            return Err(InsertErrorKind::SemaphoreCrosses(address));
        }
        let file = module.vaddr_to_offset(address).and_then(|offset| module.bytes_at(offset, 2));
        let rest = file.and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u16::from_le_bytes(*bytes));
        let index = match self.word(module, address) {
            Some(index) => index,
            None => self.add(module, address, Kind::Semaphore(rest)),
        };
        if !matches!(self.list[index].kind, Kind::Semaphore(_)) {
            return Err(InsertErrorKind::WordTaken(address));
        }
        self.need(core, index, probe);
        Ok(())
    }

    /// A probe needs the pointer at a linked address of a module set.
    pub fn need_pointer(
        &mut self,
        core: &mut Core,
        module: &Arc<UserModule>,
        (address, wide): (u64, bool),
        probe: u32,
        sites: &mut SiteTable,
    ) -> Result<(), InsertErrorKind> {
        let bytes = if wide { 8 } else { 4 };
        if !address.is_multiple_of(bytes) {
            return Err(InsertErrorKind::PointerAlignment { linear: address, bytes });
        }
        let index = match self.word(module, address) {
            Some(index) => index,
            None => {
                let (_, stub) = sites.add_stub(core, 0, wide, true)?;
                self.add(module, address, Kind::Pointer(stub))
            }
        };
        let Kind::Pointer(stub) = self.list[index].kind else {
            return Err(InsertErrorKind::WordTaken(address));
        };
        sites.attach_stub(core, stub, probe)?;
        self.need(core, index, probe);
        Ok(())
    }

    fn word(&self, module: &Arc<UserModule>, address: u64) -> Option<usize> {
        self.list.iter().position(|w| w.address == address && Arc::ptr_eq(&w.module, module))
    }

    fn add(&mut self, module: &Arc<UserModule>, address: u64, kind: Kind) -> usize {
        self.list.push(Word {
            module: Arc::clone(module),
            address,
            kind,
            probes: BTreeSet::new(),
            raised: BTreeMap::new(),
            awaited: BTreeMap::new(),
        });
        if !self.texts.iter().any(|text| Arc::ptr_eq(&text.module, module)) {
            self.texts.push(Arc::new(Text::of(module)));
        }
        self.list.len() - 1
    }

    fn need(&mut self, core: &mut Core, index: usize, probe: u32) {
        self.list[index].probes.insert(probe);
        core.announce_user_code_again();
    }

    /// The probe, which is disabled, needs no word any more.
    pub fn release(&mut self, core: &mut Core, probe: u32, profile: Option<&dyn OsProfile>) {
        let mut released = Vec::new();
        for (index, word) in self.list.iter_mut().enumerate() {
            if word.probes.remove(&probe) && word.probes.is_empty() {
                released.push(index);
            }
        }
        if released.is_empty() {
            return;
        }
        for (paging, mappings) in processes(core, profile) {
            for &index in &released {
                let word = &mut self.list[index];
                let Some(linear) = word.mapped(&mappings) else { continue };
                word.lower(core, Spot { paging, linear });
            }
        }
        core.announce_user_code_again();
    }

    /// Raises or lowers the words of the module whose code is about to run on a page. Returns the fault to deliver to
    /// the guest first.
    pub fn settle(
        &mut self,
        core: &mut Core,
        (page, paddr): (u64, u64),
        profile: Option<&dyn OsProfile>,
        stats: &mut Stats,
    ) -> Option<Fault> {
        let paging = core.paging();
        let Words { list, texts } = self;
        for text in texts.iter() {
            let Some(bias) = text.bias(core, page, paddr) else { continue };
            for word in list.iter_mut().filter(|word| Arc::ptr_eq(&word.module, &text.module)) {
                let at = Spot { paging, linear: core.wrap_linear(word.address.wrapping_add(bias)) };
                if word.probes.is_empty() {
                    word.lower(core, at);
                    continue;
                }
                match word.raise(core, profile, at) {
                    Raised::Before => {}
                    Raised::Now => {
                        stats.words_raised += 1;
                        let left = word.awaited.remove(&paging.cr3).is_some_and(|awaited| awaited.left);
                        // Statistics are kept when a script restores a snapshot.
                        stats.words_left = stats.words_left.saturating_sub(u64::from(left));
                    }
                    Raised::Faults(code) => return Some(Fault::page(code, at.linear)),
                    Raised::Never => {
                        let told = std::mem::replace(&mut word.awaited(at).left, true);
                        stats.words_left += u64::from(!told);
                    }
                }
            }
        }
        None
    }

    /// Whether any word is raised, or to be.
    pub fn any_wanted(&self) -> bool {
        self.list.iter().any(|word| !word.probes.is_empty() || !word.raised.is_empty())
    }

    /// The form that is stored, which names modules by `modules`.
    pub fn to_stored(&self, modules: &UserModules) -> Vec<StoredWord> {
        let of = |word: &Word| StoredWord {
            module: modules.number(&word.module),
            address: word.address,
            kind: word.kind,
            probes: word.probes.clone(),
            raised: word.raised.clone(),
            awaited: word.awaited.clone(),
        };
        self.list.iter().map(of).collect()
    }

    /// Restores words; `None` if the stored form is impossible.
    pub fn from_stored(stored: Vec<StoredWord>, modules: &UserModules) -> Option<Self> {
        let mut words = Self::default();
        for StoredWord { module, address, kind, probes, raised, awaited } in stored {
            if awaited.values().any(|awaited| awaited.faults > MOST_FAULTS) {
                return None;
            }
            let index = words.add(modules.get(module)?, address, kind);
            let word = words.list.get_mut(index)?;
            (word.probes, word.raised, word.awaited) = (probes, raised, awaited);
        }
        Some(words)
    }

    /// The enabled probes that need a word raised.
    pub fn listening(&self) -> BTreeSet<u32> {
        self.list.iter().flat_map(|word| &word.probes).copied().collect()
    }
}

/// The stored form of a word.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredWord {
    module: u32,
    address: u64,
    kind: Kind,
    probes: BTreeSet<u32>,
    raised: BTreeMap<u64, u64>,
    awaited: BTreeMap<u64, Awaited>,
}

/// The address spaces of the guest's processes, each once, with what is mapped there.
fn processes(core: &Core, profile: Option<&dyn OsProfile>) -> Vec<(Paging, Vec<Mapping>)> {
    let Some(profile) = profile else { return Vec::new() };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for task in profile.tasks(core) {
        if let Some(root) = profile.page_table(core, task.task).filter(|root| seen.insert(*root)) {
            let paging = Paging { cr3: root, ..core.paging() };
            found.push((paging, profile.mappings(core, task.task)));
        }
    }
    found
}
