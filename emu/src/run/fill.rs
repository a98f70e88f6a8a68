//! The fill hook: from a linear page to an entry of the engine's TLB.
//!
//! The engine asks for one page and one kind of access. The hook answers from the architectural TLB or the guest's
//! tables, and grants *writable or executable, never both*, so that stores to data are fast, stores to code are
//! noticed, and aliases of a page cannot run stale code. A refused fill ends the run with the state before the
//! instruction; the run loop then delivers the fault.

use super::{Core, Refusal};
use crate::blocks::CellRef;
use crate::cpu::access::canonical;
use crate::cpu::fault::Fault;
use crate::cpu::operands::Operand;
use crate::engine::{SHADOW_BASE, SLOT_PADDR, SLOT_VA, VOID_PADDR, in_slots};
use crate::isa::decode::{self, LONGEST};
use crate::mmu::{self, Access, Translation};
use crate::ram::{PAGE, PageState};

const R: u32 = 1;
const W: u32 = 2;
const X: u32 = 4;

impl Core {
    /// Answers a fill: physical page and permissions, or `None` to refuse.
    pub(crate) fn fill(&mut self, page: u64, access: Access) -> Option<(u64, u32)> {
        // The slots lie there. The addresses are not canonical, so the guest has nothing there.
        if in_slots(page) && access != Access::Write && self.views.active.is_some() {
            return Some((SLOT_PADDR + (page - SLOT_VA), R | X));
        }
        match self.resolve(page, access) {
            Ok(t) => {
                let granted = self.grant(page, &t, access)?;
                if !t.global {
                    self.cpu.note_local_page(page);
                }
                // A read must not let the engine fetch from a page of stubs.
                Some(if self.is_stub_page(page) { (granted.0, granted.1 & !X) } else { granted })
            }
            Err(refusal) => {
                self.refusal = Some((refusal, page, access));
                None
            }
        }
    }

    /// Finds the translation that the access may use, with its architectural side effects.
    fn resolve(&mut self, page: u64, access: Access) -> Result<Translation, Refusal> {
        let paging = self.cpu.paging();
        let user = self.cpu.env.cpl() == 3;
        if access == Access::Fetch {
            return self.resolve_fetch(page, user);
        }
        if let Some(t) = self.cpu.tlb.lookup(page)
            && (access != Access::Write || t.dirty)
            && mmu::denied(&t, &paging, access, user).is_none()
        {
            return Ok(t);
        }
        if paging.long() && !canonical(page) {
            return Err(Refusal::NonCanonical);
        }
        let mut found = mmu::walk(&mut self.cpu.ram, paging, page, access, user);
        if user && found.is_err() && self.implicit_supervisor(page) {
            found = mmu::walk(&mut self.cpu.ram, paging, page, access, false);
        }
        self.cpu.drain_touched_code();
        match found {
            Ok(t) => {
                self.cpu.cache_translation(page, t);
                Ok(t)
            }
            Err(code) => {
                self.cpu.forget_translation(page);
                Err(Refusal::PageFault(code))
            }
        }
    }

    /// A fetch takes effect architecturally only when its instruction is reached: the page of the instruction pointer
    /// stays tentative until the block hook runs, and the second page of a block is refused unless the guest has
    /// executed from it since its last flush.
    fn resolve_fetch(&mut self, page: u64, user: bool) -> Result<Translation, Refusal> {
        let paging = self.cpu.paging();
        let own = self.cpu.linear_ip() & !(PAGE - 1) == page;
        let single = self.step.is_single();
        if self.is_stub_page(page) {
            return Err(self.refuse_stub_fetch(own, single));
        }
        if let Some(t) = self.cpu.tlb.lookup(page)
            && mmu::denied(&t, &paging, Access::Fetch, user).is_none()
        {
            if own && self.is_unannounced(page) {
                self.tentative = Some(page);
                self.cpu.hot.clock.limit = 0;
            }
            return Ok(t);
        }
        if !own && !single {
            return Err(Refusal::SecondPage);
        }
        if paging.long() && !canonical(page) {
            return Err(Refusal::NonCanonical);
        }
        let t = mmu::look(&self.cpu.ram, paging, page, Access::Fetch, user).map_err(Refusal::PageFault)?;
        if own {
            self.tentative = Some(page);
            self.cpu.hot.clock.limit = 0;
        } else {
            self.commit_page(page);
        }
        Ok(t)
    }

    /// The block at linear `pc` begins: its page's fetch is architectural now.
    pub(crate) fn commit_fetch(&mut self, pc: u64) {
        let page = pc & !(PAGE - 1);
        if self.tentative == Some(page) {
            self.tentative = None;
            let (paging, user) = (self.cpu.paging(), self.cpu.env.cpl() == 3);
            let fits = |t: &Translation| mmu::denied(t, &paging, Access::Fetch, user).is_none();
            // It is cached already if only the announcement was pending.
            if !self.cpu.tlb.lookup(page).is_some_and(|t| fits(&t)) {
                self.commit_page(page);
            }
            self.note_announced(page);
        }
    }

    /// The machine executes the `length` bytes at linear `pc` itself: their fetch is architectural.
    pub(crate) fn commit_own_fetch(&mut self, pc: u64, length: usize) {
        for va in [pc, pc.wrapping_add(length as u64 - 1)] {
            let page = va & !(PAGE - 1);
            if self.cpu.tlb.lookup(page).is_none() {
                self.commit_page(page);
            }
            self.note_announced(page);
        }
    }

    /// Whether user code on the linear page must be announced to the interposer.
    #[inline]
    fn is_unannounced(&self, page: u64) -> bool {
        self.watch_user_code && self.cpu.env.cpl() == 3 && !self.cpu.tlb.announced(page)
    }

    fn note_announced(&mut self, page: u64) {
        if self.is_unannounced(page) {
            self.cpu.tlb.announce(page);
        }
    }

    /// The instruction at linear `pc` is about to run: tells the interposer of its page, if it is user code not yet
    /// announced. Returns the fault to deliver to the guest first.
    pub(crate) fn announce_user_code(&mut self, pc: u64) -> Option<Fault> {
        let page = pc & !(PAGE - 1);
        if !self.is_unannounced(page) {
            return None;
        }
        let paddr = self.cpu.code_paddr(page)?;
        self.with_interposer(|i, core| i.user_code(core, page, paddr))?
    }

    /// Has all user code that runs from now on announced to the interposer again ([`TrapInterposer::user_code`]).
    ///
    /// [`TrapInterposer::user_code`]: crate::TrapInterposer::user_code
    pub fn announce_user_code_again(&mut self) {
        self.cpu.tlb.announce_again();
        self.cpu.engine.flush_tlb();
    }

    fn commit_page(&mut self, page: u64) {
        let user = self.cpu.env.cpl() == 3;
        let paging = self.cpu.paging();
        if let Ok(t) = mmu::walk(&mut self.cpu.ram, paging, page, Access::Fetch, user) {
            self.cpu.cache_translation(page, t);
        }
        self.cpu.drain_touched_code();
    }

    /// Whether a supervisor access at CPL 3 is an implicit one: a descriptor table or the TSS, read by an instruction
    /// that loads a segment (SDM volume 3, 4.6.1). Its operands are accessed with user rights only.
    fn implicit_supervisor(&self, page: u64) -> bool {
        let tables = [self.cpu.env.gdt(), self.cpu.env.ldt(), self.cpu.env.tr()];
        let inside = tables.iter().filter(|t| t.limit > 0).any(|t| {
            let end = t.base.wrapping_add(t.limit.into());
            (t.base & !(PAGE - 1)..=end).contains(&page)
        });
        let on_page = |o: &Operand| {
            let last = o.address.wrapping_add(u64::from(o.size) - 1);
            [o.address, last].iter().any(|at| self.cpu.wrap_linear(at & !(PAGE - 1)) == page)
        };
        inside
            && self
                .decode_at(self.cpu.linear_ip())
                .is_some_and(|i| decode::reads_descriptors(&i) && !self.cpu.operands(&i).iter().any(on_page))
    }

    /// Turns a translation into what the engine may cache.
    fn grant(&mut self, page: u64, t: &Translation, access: Access) -> Option<(u64, u32)> {
        if self.watches.any_data() && !self.may_fill(page, access) {
            self.refusal = Some((Refusal::Watched, page, access));
            return None;
        }
        if !self.cpu.ram.contains(t.paddr, 1) {
            if access == Access::Fetch {
                let reached = self.cpu.linear_ip() & !(PAGE - 1) == page || self.step.is_single();
                let refusal = if reached { Refusal::FetchVoid } else { Refusal::SecondPage };
                self.refusal = Some((refusal, page, access));
                return None;
            }
            if self.cpu.platform.has_mmio(t.paddr) {
                return self.grant_device(page, t, access);
            }
            // As with memory, the first write must walk the tables and set the dirty bit.
            return Some((VOID_PADDR, R | if t.writable && t.dirty { W } else { 0 }));
        }
        let index = (t.paddr / PAGE) as u32;
        let refused = if access == Access::Write { self.before_write(index) } else { None };
        if let Some(refusal) = refused {
            self.refusal = Some((refusal, page, access));
            return None;
        }
        let granted = match access {
            Access::Fetch => {
                let (paddr, perms) = self.grant_fetch(index, t.paddr);
                let hidden = self.watches.any_data() && self.hides_reads(page);
                (paddr, if hidden { X } else { perms })
            }
            Access::Write => self.grant_write(index, t),
            Access::Read => self.grant_read(page, index, t),
        };
        self.cpu.ram.pages[index as usize].remember(page);
        Some(granted)
    }

    /// Grants a read. Where the page holds code, it may be executed too: the read has set the accessed bit, so a fetch
    /// through this entry is not visible to the guest, and literal pools do not thrash. Where another entry already
    /// allows writes, this one may too.
    fn grant_read(&self, page: u64, index: u32, t: &Translation) -> (u64, u32) {
        const DATA: u8 = PageState::WRITABLE | PageState::DIRTY | PageState::UNHASHED;
        const OTHER: u8 = PageState::CODE | PageState::BOTH | PageState::ARMED;
        let state = self.cpu.ram.pages[index as usize];
        let known = !self.is_unannounced(page);
        let both = state.is(PageState::CODE) && !state.is(PageState::ARMED) && t.executable && known;
        let data = state.flags & (DATA | OTHER) == DATA && !self.watches.any_data();
        // The first write to a page must walk the tables and set the dirty bit; and CR0.WP can be off.
        let written = data && t.dirty && t.writable;
        (t.paddr, R | if both { X } else { 0 } | if written { W } else { 0 })
    }

    /// Updates the fetch view of the instruction at linear `pc` where it is older than RAM.
    pub(crate) fn refresh_view(&mut self, pc: u64) {
        if self.views.is_empty() {
            return;
        }
        for at in [pc, pc.wrapping_add(LONGEST as u64 - 1)] {
            if let Some(paddr) = self.cpu.code_paddr(at)
                && let Some(page) = self.cpu.ram.page_at(paddr)
                && page.is(PageState::STALE)
            {
                self.grant_fetch((paddr / PAGE) as u32, paddr & !(PAGE - 1));
            }
        }
    }

    fn grant_fetch(&mut self, index: u32, paddr: u64) -> (u64, u32) {
        self.end_double_permission(index);
        let state = self.cpu.ram.pages[index as usize];
        if state.is(PageState::WRITABLE) && !state.is(PageState::BOTH) {
            self.cpu.forget_mappings(index);
            self.cpu.ram.pages[index as usize].flags &= !PageState::WRITABLE;
        }
        if !state.is(PageState::CODE) && self.watch_code_pages {
            self.announce_code_page(paddr);
        }
        if !state.is(PageState::CODE) {
            self.effort.note_code_page();
        }
        self.cpu.ram.set_code(index, true);
        let page = &self.cpu.ram.pages[index as usize];
        if page.is(PageState::ARMED) {
            if page.is(PageState::STALE) {
                self.resync(index);
            }
            // Disarming inside resync is possible: check again.
            if self.cpu.ram.pages[index as usize].is(PageState::ARMED) {
                return (SHADOW_BASE + paddr, X);
            }
        }
        (paddr, R | X)
    }

    /// A page with both permissions loses them after a number of grants: its code and its stores are slower, and it may
    /// have become quiet, or be data of another process.
    fn end_double_permission(&mut self, index: u32) {
        let state = &mut self.cpu.ram.pages[index as usize];
        if !state.is(PageState::BOTH) {
            return;
        }
        state.flips = state.flips.saturating_add(1);
        if state.flips == u8::MAX {
            state.flips = 0;
            state.flags &= !PageState::BOTH;
            self.cpu.drop_page_blocks(index);
        }
    }

    /// Handles the first store to a page. A store into the page of the storing instruction or of its block must be
    /// visible to the next fetch, so it is stepped alone: always when the page is armed, else until the page is given
    /// both permissions.
    fn before_write(&mut self, index: u32) -> Option<Refusal> {
        let state = self.cpu.ram.pages[index as usize];
        if state.is(PageState::BOTH) || !state.is(PageState::CODE) || self.step.may_store_into_own_page() {
            return None;
        }
        self.runs_in(index).then_some(Refusal::OwnPage)
    }

    /// Whether the instruction at EIP, or what follows it in its block, has bytes in physical page `index`. A block
    /// crosses at most one page boundary.
    fn runs_in(&self, index: u32) -> bool {
        let within = |linear| self.cpu.code_paddr(linear).is_some_and(|p| (p / PAGE) as u32 == index);
        let last = |b: CellRef| b.pc().wrapping_add(u64::from(b.size().max(1)) - 1);
        within(self.cpu.linear_ip()) || self.last().is_some_and(|b| within(last(b)))
    }

    fn grant_write(&mut self, index: u32, t: &Translation) -> (u64, u32) {
        if self.cpu.ram.pages[index as usize].is(PageState::BOTH) && !self.runs_in(index) {
            self.end_double_permission(index);
        }
        let state = self.cpu.ram.pages[index as usize];
        let armed = state.is(PageState::ARMED);
        let mut perms = R | W;
        if state.is(PageState::CODE) && !state.is(PageState::BOTH) {
            let own = self.runs_in(index);
            let flipping = state.flips >= PageState::MAX_FLIPS;
            if !armed && t.executable && (own || flipping) {
                // Its blocks must be analysed anew: see `may_restart`.
                self.cpu.drop_page_blocks(index);
                let state = &mut self.cpu.ram.pages[index as usize];
                state.flags |= PageState::BOTH;
                state.flips = u8::MAX - if own { PageState::OWN_GRANTS } else { PageState::GRANTS };
            } else {
                self.cpu.drop_page_blocks(index);
                self.cpu.forget_mappings(index);
                self.cpu.ram.set_code(index, false);
                let state = &mut self.cpu.ram.pages[index as usize];
                state.flips = state.flips.saturating_add(1);
            }
        }
        let state = &mut self.cpu.ram.pages[index as usize];
        if state.is(PageState::BOTH) {
            if t.executable {
                perms |= X;
            } else {
                // Through a writable alias without execute rights the engine's precise path does not apply.
                self.cpu.drop_page_blocks(index);
                self.cpu.forget_mappings(index);
                self.cpu.ram.pages[index as usize].flags &= !PageState::BOTH;
                self.cpu.ram.set_code(index, false);
            }
        }
        self.cpu.ram.mark_dirty(index);
        let state = &mut self.cpu.ram.pages[index as usize];
        state.flags |= PageState::WRITABLE;
        if armed {
            state.flags |= PageState::STALE;
        }
        (t.paddr, perms)
    }
}
