//! Hits in line: where a block begins at a site, no trap is needed.
//!
//! The block hook is called before each block, with the CPU state complete. Where a block begins at a patch, the hook
//! asks the interposer, and the instruction runs in its block like any other: there is no exception, and nothing is
//! displaced. The engine translates the fetch view, so for this one translation the view is *open*: it has the guest's
//! bytes at the site. All other blocks that reach the site end with the patch.
//!
//! If those trap often too, the patch becomes a *jump to itself*, provided that its second byte is neither a site nor
//! the start of blocks: it ends the block without a trap and leads to the block that begins at the site. It is not
//! counted, and never runs as its own block. An instruction that begins on its second byte is stepped with the guest's
//! bytes; if that happens often, the patch becomes INT3 again.
//!
//! Both are done only after a patch has trapped often: a translation costs as much as a few hundred traps. The guest
//! and the handlers see no difference.
//!
//! Invariant: the view is open from before the engine is entered at the site until the first block begins, and closed
//! while anything else is translated.

use crate::blocks::{BlockCell, CellRef, Lead};
use crate::cpu::flags::{AC, IOPL, RF, TF, VM};
use crate::isa::decode::{self, Kind};
use crate::ram::{PAGE, PageState};
use crate::run::interpose::{Trap, Verdict};
use crate::run::{Core, Halt};

/// Traps of a site in its own block after which it is hit in line.
pub(crate) const OFTEN: u16 = 32;
/// The flags that a translation depends on, besides the hidden ones: TF, IOPL, RF, VM, AC.
const TRANSLATED_FOR: u64 = TF | IOPL | RF | VM | AC;

/// A site whose block is being translated from the guest's bytes.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    linear: u64,
    paddr: u64,
    /// The block, when it has been translated.
    cell: Option<CellRef>,
}

impl Core {
    /// Sets after how many traps a site where a block begins is hit in line; 0 is never. The guest cannot observe it.
    pub fn set_in_line_after(&mut self, traps: u16) {
        self.in_line_after = traps;
    }

    /// Hits so far without a trap. The number depends on how often the host stops the machine.
    pub fn hits_in_line(&self) -> u64 {
        self.hits_in_line
    }

    /// Called when the patch at EIP has trapped; returns whether it has done so often in its own block. If so, nothing
    /// has happened yet, and the view is opened before the block runs again.
    #[inline(always)]
    pub(crate) fn traps_too_often(&mut self, linear: u64) -> bool {
        let Some(cell) = self.cpu.hot.last else { return false };
        cell.count_trap() == Some(self.in_line_after) && self.has_trapped_often(linear)
    }

    #[cold]
    fn has_trapped_often(&mut self, linear: u64) -> bool {
        let own = self.last().is_some_and(|b| b.pc() == linear);
        self.forget_traps();
        if self.in_line_after == 0 || !self.step.is_free() || self.single_steps() {
            return false;
        }
        let Some(paddr) = self.openable(linear) else { return false };
        if own {
            self.to_open = Some(linear);
        } else if self.views.jumps_at(paddr) || self.views.may_jump(paddr) && self.leaves_room(linear) {
            // The block ends with a jump when it is translated anew.
            let begin = self.last().map_or(linear, |b| b.pc());
            self.views.set_jumps(&mut self.cpu, paddr, true);
            self.drop_block(begin, paddr);
        }
        own
    }

    /// Drops the translation of the block at linear `begin`, which holds the byte of the fetch view at `paddr`. Other
    /// blocks that hold it are dropped only if the engine cannot find this one.
    fn drop_block(&mut self, begin: u64, paddr: u64) {
        if !self.cpu.engine.drop_block(begin) {
            self.cpu.drop_view_blocks(paddr);
        }
    }

    /// Whether the second byte of a jump at linear `at` fits: into the instruction there or, if that has one byte, into
    /// the next one.
    fn leaves_room(&self, at: u64) -> bool {
        let plain = |at| self.cpu.decode_original(at).is_some_and(|i| decode::kind(&i) == Kind::Plain);
        self.cpu.decode_original(at).is_some_and(|i| i.len() > 1 || plain(at.wrapping_add(1)))
    }

    fn single_steps(&self) -> bool {
        self.cpu.env.eflags_raw() & TF != 0
    }

    /// Handles a next block that begins with a patch's jump to itself.
    pub(crate) fn open_next(&mut self) {
        let linear = self.cpu.linear_ip();
        if self.to_open == Some(linear) {
            return;
        }
        if self.single_steps() || self.openable(linear).is_none() {
            return self.hit_here();
        }
        self.to_open = Some(linear);
    }

    /// Treats the patch at EIP as hit, as if it had trapped.
    pub(crate) fn hit_here(&mut self) {
        let (ip, linear) = (self.cpu.env.eip(), self.cpu.linear_ip());
        let Some(patch) = self.cpu.code_paddr(linear).and_then(|p| self.views.patch_at(p)) else { return };
        // A trap would have been counted.
        self.cpu.hot.clock.icount += 1;
        self.ask(Trap { vector: 3, ip, linear, patch, in_line: false });
        let halt = self.halt.take();
        self.halted_by(halt);
        if self.views.active.is_some_and(|s| s.contains(self.cpu.env.eip())) {
            self.step(1);
        }
    }

    /// Whether linear `at` is the second byte of a patch's jump to itself.
    pub(crate) fn is_clobbered(&self, at: u64) -> bool {
        !at.is_multiple_of(PAGE)
            && !self.views.is_empty()
            && self.cpu.code_paddr(at - 1).is_some_and(|p| self.views.jumps_at(p))
    }

    /// Notes that the instruction at EIP was clobbered and is stepped with the guest's own bytes.
    pub(crate) fn note_clobbered(&mut self) {
        let linear = self.cpu.linear_ip();
        if self.is_clobbered(linear)
            && let Some(paddr) = self.cpu.code_paddr(linear - 1)
        {
            self.views.count_clobbered(&mut self.cpu, paddr);
        }
    }

    /// Whether the block that is analysed, `b`, ends at linear `at` with a patch's jump to itself. A block that was
    /// translated before the patch became a jump ends with the first byte, an INT3.
    pub(crate) fn ends_with_jump(&self, b: &BlockCell, at: u64) -> bool {
        let begins = at == b.pc() && b.is(BlockCell::SITE);
        let has_jump = b.is(BlockCell::JUMP) || b.pc().wrapping_add(b.size().into()) > at.wrapping_add(1);
        !begins && has_jump && self.cpu.code_paddr(at).is_some_and(|p| self.views.jumps_at(p))
    }

    fn forget_traps(&mut self) {
        if let Some(cell) = self.cpu.hot.last {
            cell.set_lead(Lead::Traps(0));
        }
    }

    /// The physical address of the site at linear `linear`, if the fetch view has its patch and may be opened there.
    fn openable(&self, linear: u64) -> Option<u64> {
        let paddr = self.cpu.code_paddr(linear)?;
        let page = self.cpu.ram.page_at(paddr)?;
        let current = page.is(PageState::ARMED) && !page.is(PageState::STALE);
        (current && self.views.may_be_in_line(paddr)).then_some(paddr)
    }

    /// Opens the view for the block at EIP, if that is the one whose site is to be hit in line.
    pub(crate) fn open_wanted(&mut self) {
        let Some(linear) = self.to_open.take().filter(|&at| at == self.cpu.linear_ip()) else { return };
        if let Some(paddr) = self.openable(linear) {
            self.views.show_original(&mut self.cpu, paddr, 1);
            self.drop_block(linear, paddr);
            self.opening = Some(Opening { linear, paddr, cell: None });
        }
    }

    /// A block at linear `pc` was translated.
    #[inline]
    pub(crate) fn note_opened(&mut self, cell: CellRef, pc: u64) {
        if let Some(opening) = &mut self.opening
            && opening.linear == pc
        {
            opening.cell = Some(cell);
        }
    }

    /// Closes the view as the block of `cell`, if any, begins. Returns whether the block may run: any block but the
    /// site's may have been translated from bytes that it must not see.
    #[inline(always)]
    pub(crate) fn close(&mut self, cell: Option<CellRef>) -> bool {
        self.opening.take().is_none_or(|opening| self.close_opened(opening, cell))
    }

    #[cold]
    fn close_opened(&mut self, opening: Opening, cell: Option<CellRef>) -> bool {
        let Some(patch) = self.views.hide_original(&mut self.cpu, opening.paddr) else {
            // The guest itself has an INT3 there.
            self.views.keep_trapping(&mut self.cpu, opening.paddr);
            return true;
        };
        // The engine does not report its first translations.
        let unreported = opening.cell.is_none()
            && cell == Some(self.blocks.next())
            && self.cpu.linear_ip() == opening.linear;
        match cell {
            Some(cell) if opening.cell == Some(cell) || unreported => {
                cell.mark(BlockCell::SITE);
                cell.set_head(patch);
                true
            }
            _ => {
                self.cpu.drop_view_blocks(opening.paddr);
                false
            }
        }
    }

    /// The block that begins at the site at EIP cannot run in one go, so hitting the site in line is pointless.
    pub(crate) fn refuse_in_line(&mut self) {
        if let Some(paddr) = self.cpu.code_paddr(self.cpu.linear_ip()) {
            self.views.keep_trapping(&mut self.cpu, paddr);
            self.drop_block(self.cpu.linear_ip(), paddr);
        }
    }

    /// Handles a hit of the site of block `cell` if nothing else is due. Otherwise (the limit is 0, or the block would
    /// pass it) it does nothing and returns false.
    #[inline(always)]
    pub(crate) fn arrive_if_free(&mut self, cell: CellRef) -> bool {
        let count = cell.icount();
        if self.cpu.hot.clock.icount + u64::from(count) > self.cpu.hot.clock.limit {
            return false;
        }
        if self.arrive(cell) {
            self.begin(cell, count.into());
        }
        true
    }

    /// Asks the interposer about the hit of the site of block `cell`. Returns whether the block runs; otherwise the
    /// engine stops before it, and the hit ends like that of a trap.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, cell: CellRef) -> bool {
        let (linear, patch) = (cell.pc(), cell.head());
        let trap = Trap { vector: 3, ip: self.cpu.env.eip(), linear, patch, in_line: true };
        self.views.active = None;
        let before = self.translated_for();
        self.cpu.blocks_dropped = false;
        self.on_verdict(&trap, |core, verdict| {
            let in_line = matches!(verdict, Verdict::InLine)
                && core.is_undisturbed()
                && core.translated_for() == before;
            if in_line {
                core.hits_in_line += 1;
            } else {
                core.leave_in_line(*verdict, &trap, before);
            }
            in_line
        })
    }

    /// Whether nothing is due at this boundary, and the block that is about to run still exists.
    #[inline(always)]
    fn is_undisturbed(&self) -> bool {
        self.halt.is_none() & !self.cpu.irq & !self.cpu.nmi_pending & !self.cpu.blocks_dropped
    }

    /// Takes the slow path of an in-line hit: its instruction is executed outside of the block.
    #[cold]
    fn leave_in_line(&mut self, verdict: Verdict, trap: &Trap, before: TranslatedFor) {
        self.cpu.hot.last = None;
        // The engine stops here, and the run may end: in a slot it would end inside the instruction.
        let verdict = if matches!(verdict, Verdict::Slot(_)) { Verdict::Step } else { verdict };
        self.conclude(verdict, trap, before.shadow(), before.tf());
        // EIP has its new value already, so the engine must not recompute it.
        self.cpu.engine.sync_pc(false);
        self.cpu.engine.stop_before_block();
    }

    /// The state for which the engine translates the block at EIP.
    #[inline(always)]
    fn translated_for(&self) -> TranslatedFor {
        let flags = self.cpu.env.eflags_raw() & TRANSLATED_FOR;
        TranslatedFor {
            ip: self.cpu.env.eip(),
            hflags: self.cpu.env.hflags(),
            flags,
            cs_base: self.cpu.env.cs_base(),
        }
    }

    /// Whether the exception or refusal at linear `ip` is one of an in-line site's own instruction.
    pub(crate) fn is_in_line_site(&self, ip: u64) -> bool {
        self.last().is_some_and(|b| b.is(BlockCell::SITE) && b.pc() == ip)
    }

    /// Steps the instruction of an in-line site after a refused access: it runs again, alone, without another hit.
    pub(crate) fn step_in_line_site(&mut self) {
        self.rewind(self.cpu.linear_ip());
        self.settle();
        self.halted_by(Some(Halt::StepSite));
    }
}

/// The state that a block's translation depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TranslatedFor {
    ip: u64,
    hflags: u32,
    flags: u64,
    cs_base: u64,
}

impl TranslatedFor {
    fn shadow(&self) -> bool {
        self.hflags & crate::engine::hflags::INHIBIT_IRQ != 0
    }

    fn tf(&self) -> bool {
        self.flags & TF != 0
    }
}
