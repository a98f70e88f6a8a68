//! Analysis of a new block: which of its instructions must not run as part of it, and its other properties.
//!
//! Invariant: no result depends on where the engine cuts its blocks.

use super::Core;
use crate::blocks::{BlockCell, CellRef, Cut, Lead};
use crate::cpu::flags::VM;
use crate::engine::{hflags, in_slots};
use crate::isa::Repeat;
use crate::isa::decode::{self, Compared, Kind, LONGEST};
use crate::ram::{PAGE, PageState};
use crate::views::SLOT_BYTES;
use iced_x86::Instruction;
use std::collections::BTreeSet;

impl Core {
    /// Analyses a new block: the kinds of instructions in it.
    pub(super) fn analyse(&mut self, cell: CellRef, address: u64, size: u32) {
        let b = &*cell;
        b.set_pc(address);
        b.clear(BlockCell::NEW);
        if cell == self.blocks.next() {
            // The engine reports all translations but the very first.
            b.set_size(size.min(0xffff) as u16);
            self.block_translated(address, 0, b.size());
        }
        if in_slots(address) {
            self.analyse_slot(b);
            return;
        }
        let h = self.cpu.env.hflags();
        let vm = self.cpu.env.eflags_raw() & VM != 0;
        if h & hflags::PE == 0
            || vm
            || h & (hflags::CS32 | hflags::CS64) == 0
            // On the way to 64-bit code, in compatibility mode, kernels load whatever data segment there is.
            || h & (hflags::SS32 | hflags::CS64 | hflags::LMA) == 0
        {
            b.mark(BlockCell::UNSUPPORTED);
        }
        let end = address.saturating_add(b.size().into());
        let wanted = u32::from(b.icount());
        let (mut at, mut n) = (address, 0u32);
        let mut uncertain = false;
        let mut compared = Compared::default();
        let patched = self.patches_in(address, end) || self.is_clobbered(address);
        let (mut jumps, mut anew) = (false, false);
        while at < end && (wanted == 0 || n < wanted) {
            if self.ends_before(cell, at) {
                jumps = true;
                b.end_before(n, at);
                break;
            }
            let cut = matches!(b.lead(), Lead::Cut(..));
            let in_hook = || self.stands_in(cell, b, at) && !self.watches.breaks_at(at);
            if !cut && self.watched_code(at) && !in_hook() {
                b.set_lead(Lead::Cut(Cut::Watched, n as u16));
                anew |= self.wants_watched_stand_in(b, at);
            }
            if matches!(b.lead(), Lead::Cut(Cut::Watched, _)) && n > 0 {
                // The instructions after it never run as part of this block.
                break;
            }
            if patched && self.ends_with_jump(b, at) {
                jumps = true;
                b.end_before(n, at);
                break;
            }
            if patched && self.overlapped_in(b, at) {
                if !cut {
                    b.set_lead(Lead::Cut(Cut::Overlapped, n as u16));
                }
                break;
            }
            let Some(i) = self.decode_in(b, at) else {
                uncertain |= !(patched && self.patched(at));
                break;
            };
            self.cover(at);
            if self.stands_in(cell, b, at) {
                b.set_patch(BlockCell::BY_MACHINE);
                (at, n) = (end, n + 1);
                break;
            }
            if !self.nop_stands_for(cell, &i) {
                self.mark(b, &i, n, at, compared);
                anew |= self.wants_stand_in(b, &i, (n, at));
            }
            compared = compared.after(&i);
            // A patch may have become a longer one since the block was translated.
            let longest = if patched && self.patched(at) { end - at } else { LONGEST as u64 };
            at = at.saturating_add(longest.min(i.len() as u64));
            n += 1;
        }
        if wanted == 0 {
            b.set_icount(n.max(1) as u16);
        }
        uncertain |= n == wanted && at != end;
        if uncertain && !matches!(b.lead(), Lead::Cut(Cut::Sensitive | Cut::Overlapped | Cut::Begins, _)) {
            // The engine accepts bytes as an instruction that the decoder rejects, or with another length. Each
            // instruction of such a block runs alone, so that counting needs no decoder.
            b.set_lead(Lead::Cut(Cut::Sensitive, 0));
        }
        self.note_analysed(cell, address, anew);
        let by_engine = !jumps && b.patch() != BlockCell::BY_MACHINE;
        let alone = b.icount() == 1 && by_engine;
        if alone && self.decode_in(b, address).is_some_and(|i| decode::is_plain_store(&i)) {
            b.mark(BlockCell::STORE);
        }
    }

    /// Marks `b` for its instruction `i`, which is number `n` in it and lies at linear `at`. A block that is cut never runs
    /// beyond the cut.
    fn mark(&self, b: &BlockCell, i: &Instruction, n: u32, at: u64, compared: Compared) {
        let lead = b.lead();
        if matches!(lead, Lead::Cut(Cut::Sensitive | Cut::Begins, _)) {
            return;
        }
        let watched = matches!(lead, Lead::Cut(Cut::Watched, _));
        let kind = self.cpu.kind(i);
        let alone = match kind {
            Kind::Sensitive => !compared.keeps_flags(i),
            Kind::Gate => true,
            Kind::Plain | Kind::Far => {
                self.may_restart(at) && decode::must_not_restart(i) && !self.cpu.is_fixed_store(i, b.pc())
            }
            _ => false,
        };
        match kind {
            // A single watched instruction is handled when its block begins, without a cut.
            _ if alone && watched => {}
            _ if alone => b.set_lead(Lead::Cut(Cut::Sensitive, n as u16)),
            _ if n > 0 && !watched && self.must_begin(i, at, compared) => {
                b.set_lead(Lead::Cut(Cut::Begins, n as u16))
            }
            Kind::Repeated => {
                if !watched {
                    b.set_lead(Lead::Repeated((at - b.pc()) as u16));
                }
                if n == 0 {
                    b.mark(BlockCell::REP_HEAD);
                    b.set_head(Repeat::of(i).bits());
                }
            }
            Kind::Clock => match lead {
                Lead::Traps(_) => b.set_lead(Lead::Clock(n as u16)),
                Lead::Clock(_) => b.set_lead(Lead::Cut(Cut::Sensitive, n as u16)),
                _ => {}
            },
            Kind::Iret => b.mark(BlockCell::IRET_TAIL | BlockCell::FLAGS_TAIL),
            Kind::Sysret | Kind::Far => b.mark(BlockCell::FLAGS_TAIL),
            _ => {}
        }
    }

    /// Collects the physical addresses of the instructions that run from now on. To be called before anything has run:
    /// an instruction is seen when its block is first run.
    pub fn collect_coverage(&mut self) {
        self.coverage = Some(BTreeSet::new());
    }

    /// Physical addresses of the instructions that have run since [`Core::collect_coverage`], and of those that follow
    /// them in their blocks.
    pub fn coverage(&self) -> impl Iterator<Item = u64> {
        self.coverage.iter().flatten().copied()
    }

    fn cover(&mut self, at: u64) {
        if self.coverage.is_some()
            && let Some(paddr) = self.cpu.code_paddr(at)
            && let Some(seen) = &mut self.coverage
        {
            seen.insert(paddr);
        }
    }

    /// First sight of a block of a slot. What follows the displaced instruction in the slot has no marks.
    fn analyse_slot(&self, b: &BlockCell) {
        b.mark(BlockCell::SLOT);
        b.set_icount(0);
        let base = self.cpu.env.cs_base();
        if !b.pc().is_multiple_of(SLOT_BYTES as u64) {
            b.mark(BlockCell::SLOT_TAIL);
            return;
        }
        let Some(slot) = self.views.active.filter(|s| base.wrapping_add(s.ip) == b.pc()) else { return };
        if let Some(i) = self.cpu.decode_original(base.wrapping_add(slot.site))
            && decode::kind(&i) == Kind::Repeated
        {
            b.mark(BlockCell::REP_HEAD);
            b.set_head(Repeat::of(&i).bits());
        }
    }

    /// Whether the instruction `i` at linear `at` must begin a block.
    pub(super) fn must_begin(&self, i: &Instruction, at: u64, compared: Compared) -> bool {
        match decode::kind(i) {
            Kind::Repeated => self.may_restart(at),
            Kind::Plain => compared.depends_on_block(i),
            _ => false,
        }
    }

    /// Whether the engine might restart the instruction at linear `at` because it stores into its own block. If it is
    /// repeated, it must then be its own block, so that `restarted` can recognise the restart. If a restart is wrong
    /// ([`decode::must_not_restart`]), it must run alone: then the engine does not restart it.
    fn may_restart(&self, at: u64) -> bool {
        let page = self.cpu.code_paddr(at).and_then(|p| self.cpu.ram.page_at(p));
        page.is_some_and(|p| p.is(PageState::BOTH))
    }

    /// Whether the guest's instruction at linear `at` does not begin with a patch but has one after its first byte: a
    /// probe inside an instruction as the guest runs it. Such an instruction cannot run from the fetch view.
    pub(crate) fn overlapped(&self, at: u64) -> bool {
        self.has_patch_inside(at) && !self.patched(at)
    }

    /// The same for an instruction of block `b`: an in-line site was translated with the guest's bytes.
    fn overlapped_in(&self, b: &BlockCell, at: u64) -> bool {
        match at.wrapping_sub(b.pc()) {
            0 if b.is(BlockCell::SITE) => self.has_patch_inside(at),
            1 if b.is(BlockCell::SITE) => self.overlapped(at),
            _ => self.overlapped(at) || self.is_clobbered(at),
        }
    }

    /// Whether the guest's instruction at linear `at` has a patch after its first byte.
    fn has_patch_inside(&self, at: u64) -> bool {
        let inside = |length: usize| self.patches_in(at.saturating_add(1), at.saturating_add(length as u64));
        inside(LONGEST) && inside(self.cpu.decode_original(at).map_or(LONGEST, |i| i.len()))
    }

    /// Whether a patch begins on one of the bytes from linear `at` to before `end`, which are on two pages at most.
    pub(super) fn patches_in(&self, at: u64, end: u64) -> bool {
        if self.views.is_empty() {
            return false;
        }
        let border = (at | (PAGE - 1)).saturating_add(1);
        let on_page = |from: u64, to: u64| {
            from < to && self.cpu.code_paddr(from).is_some_and(|p| self.views.has_patch(p, to - from))
        };
        on_page(at, end.min(border)) || on_page(border, end)
    }

    /// Whether a patch begins at linear `at`.
    pub(crate) fn patched(&self, at: u64) -> bool {
        self.cpu.code_paddr(at).is_some_and(|p| self.views.patch_at(p).is_some())
    }
}
