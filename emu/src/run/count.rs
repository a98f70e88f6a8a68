//! Counting: the slow path of the block hook, first-sight analysis, and exact counts inside a block.
//!
//! Invariant: no result depends on where the engine cuts its blocks.

use super::{Core, Halt};
use crate::cpu::flags::VM;
use crate::engine::cell::{BlockCell, CellRef, Cut, Lead};
use crate::engine::hflags;
use crate::engine::in_slots;
use crate::isa::Repeat;
use crate::isa::decode::{self, Compared, Kind, LONGEST};
use crate::ram::{PAGE, PageState};
use crate::views::SLOT_BYTES;
use iced_x86::Instruction;
use std::collections::BTreeSet;

impl Core {
    /// A block that needs more than counting. Stops before it, or lets it run.
    #[inline(never)]
    pub(crate) fn block_slow(&mut self, cell: CellRef, address: u64, size: u32) {
        self.cpu.engine.sync_pc(true);
        if self.failure.is_some() || !self.close(Some(cell)) {
            self.cpu.engine.stop_before_block();
            return;
        }
        let b = &*cell;
        if self.cpu.has_cs_base() {
            // The block is not the one that is to run: see `ignore_cs_base`.
            self.cpu.engine.stop_before_block();
            return;
        }
        if b.flags() & BlockCell::SLOW == BlockCell::REP_HEAD && self.next_repetition(cell, b) {
            return;
        }
        if b.is(BlockCell::NEW) {
            self.analyse(cell, address, size);
        }
        self.cpu.blocks_dropped = false;
        self.after_flags_load();
        if self.cpu.blocks_dropped {
            // The interposer has changed what fetches see, perhaps of this very block.
            self.cpu.engine.stop_before_block();
            return;
        }
        self.cpu.write_user_registers();
        if b.is(BlockCell::SLOT) {
            self.views.hide_slot_from_fpu(&self.cpu);
        }
        if b.is(BlockCell::STORE) && (self.inside_last(b.pc()) || self.was_all_of_last(b.pc())) {
            // The block in progress was overwritten by its own store: the engine has gone back to that
            // instruction, and runs it alone.
            self.rewind(address);
            self.step.begin_again();
        }
        if b.is(BlockCell::REP_HEAD) && self.restarted(b) {
            self.cpu.hot.clock.icount -= u64::from(self.cpu.hot.last_count);
            self.cpu.hot.last = None;
            self.step.begin_again();
        }
        if self.step.has_begun() {
            return self.cpu.engine.stop_before_block();
        }
        let halt = if self.step.is_free() { self.boundary(b) } else { self.step_boundary(b, address) };
        if let Some(halt) = halt {
            self.halt.get_or_insert(halt);
            return self.cpu.engine.stop_before_block();
        }
        if !self.step.is_free() {
            self.step.begin();
            self.cpu.engine.stop_after_block();
        }
        let count = self.count_of(b);
        self.commit_fetch(address);
        if b.is(BlockCell::SITE) && !self.arrive(cell) {
            return;
        }
        if b.flags() & (BlockCell::REP_HEAD | BlockCell::SLOT) == BlockCell::REP_HEAD
            && self.step.is_free()
        {
            self.repeat_ahead(b);
        }
        self.begin(cell, count);
        if matches!(b.lead(), Lead::Clock(_)) {
            self.cpu.engine.sync_pc(false);
        }
        self.set_limit();
        if b.is(BlockCell::FLAGS_TAIL) {
            // The next block comes here too.
            self.cpu.hot.clock.limit = 0;
        }
    }

    /// An iteration of a repeated instruction, or its look at a count of zero, while nothing else is due: the limit would be 0.
    /// Whether that was all.
    fn next_repetition(&mut self, cell: CellRef, b: &BlockCell) -> bool {
        let count = self.count_of(b);
        let clock = &self.cpu.hot.clock;
        if clock.icount + u64::from(count) > clock.limit || b.is(BlockCell::SLOT) || self.restarted(b) {
            return false;
        }
        self.repeat_ahead(b);
        self.begin(cell, count);
        true
    }

    /// Does iterations of the repeated instruction that is block `b`, where nobody waits for their accesses.
    fn repeat_ahead(&mut self, b: &BlockCell) {
        if !self.watches.any_data() {
            self.cpu.repeat_ahead(b.repeat());
        }
    }

    /// The block begins, and counts.
    pub(crate) fn begin(&mut self, cell: CellRef, count: u32) {
        self.cpu.hot.clock.icount += u64::from(count);
        self.cpu.hot.last = Some(cell);
        self.cpu.hot.last_count = count;
        self.rep_from = self.cpu.env.gpr(1);
    }

    /// Whether the engine goes back to the iteration that was begun last, because its store was into its own block: then
    /// nothing of it has happened.
    fn restarted(&self, b: &BlockCell) -> bool {
        let again = self.last().is_some_and(|last| last.is(BlockCell::REP_HEAD) && last.pc() == b.pc());
        again && self.cpu.hot.last_count > 0 && self.cpu.env.gpr(1) == self.rep_from
    }

    /// Whether the engine might go back to the instruction at linear `at` because it stores into its own block. If it is
    /// repeated, it must be a block of its own then, so that `restarted` can tell. If going back does harm
    /// ([`decode::is_no_restart`]), it must run alone, when the engine does not.
    fn may_restart(&self, at: u64) -> bool {
        let page = self.cpu.code_paddr(at).and_then(|p| self.cpu.ram.pages.get((p / PAGE) as usize));
        page.is_some_and(|p| p.is(PageState::BOTH))
    }

    /// Reasons to stop at the boundary before `b`, which is the block of a step.
    fn step_boundary(&mut self, b: &BlockCell, address: u64) -> Option<Halt> {
        if b.is(BlockCell::UNSUPPORTED) {
            return Some(Halt::Unsupported);
        }
        match b.lead() {
            Lead::Cut(Cut::Watched, 0) if self.step.may_execute(address) => {}
            Lead::Cut(cut @ (Cut::Watched | Cut::Overlapped), before) => return Some(Halt::Cut(cut, before)),
            _ => {}
        }
        if b.is(BlockCell::JUMP) {
            return Some(Halt::Hit);
        }
        self.announce_user_code(address).map(Halt::Fault)
    }

    /// Reasons to stop at the boundary before `b`.
    fn boundary(&mut self, b: &BlockCell) -> Option<Halt> {
        if self.halt.is_some() {
            return self.halt;
        }
        if b.is(BlockCell::UNSUPPORTED) {
            return Some(Halt::Unsupported);
        }
        if b.is(BlockCell::SLOT) && !self.repeating(b.pc()) {
            return None;
        }
        let due = self.cpu.interruptible() || self.has_too_many_blocks();
        if due || (b.is(BlockCell::SLOT) && self.site_rewritten()) {
            return Some(Halt::Interrupt);
        }
        let count = self.count_of(b).max(u32::from(b.is(BlockCell::JUMP)));
        if self.cpu.hot.clock.icount + u64::from(count) > self.cpu.hot.clock.deadline {
            return Some(Halt::Deadline);
        }
        if let Some(fault) = self.announce_user_code(b.pc()) {
            return Some(Halt::Fault(fault));
        }
        if b.is(BlockCell::SITE) && b.is(BlockCell::CUT) {
            return Some(Halt::NotInLine);
        }
        if let Lead::Cut(cut, before) = b.lead() {
            return Some(Halt::Cut(cut, before));
        }
        if b.is(BlockCell::JUMP) {
            return Some(Halt::Open);
        }
        None
    }

    /// Whether the repeated instruction that runs in a slot may have overwritten itself where it came from.
    fn site_rewritten(&self) -> bool {
        let site =
            self.views.active.and_then(|s| self.cpu.code_paddr(self.cpu.env.cs_base().wrapping_add(s.site)));
        let page = site.and_then(|p| self.cpu.ram.pages.get((p / PAGE) as usize));
        page.is_some_and(|p| p.is(PageState::STALE))
    }

    /// What the hook compares with: every block while something is pending.
    pub(crate) fn set_limit(&mut self) {
        let watch = self.cpu.irq
            || self.cpu.nmi_pending
            || self.cpu.nmi_blocked
            || self.tentative.is_some()
            || self.has_too_many_blocks()
            || self.cpu.user_writes;
        let watch = watch || !self.step.is_free() || self.halt.is_some() || self.opening.is_some();
        self.cpu.hot.clock.limit = if watch { 0 } else { self.cpu.hot.clock.deadline };
    }

    /// NMI is open again after an IRET. RF, which IRET or SYSRET may have set, is put back at once: the next instruction
    /// would clear it, but the engine does so only at the end of some blocks. It stays where it keeps a breakpoint quiet.
    fn after_flags_load(&mut self) {
        let Some(flags) = self.last().map(|b| b.flags()) else { return };
        self.cpu.nmi_blocked &= flags & BlockCell::IRET_TAIL == 0;
        if flags & BlockCell::FLAGS_TAIL == 0 {
            return;
        }
        if !self.cpu.resumes_at_breakpoint() {
            self.cpu.clear_rf();
        }
        self.with_interposer(|i, core| i.returned(core));
    }

    /// After a capped block that does not branch: whether it overwrote itself and was given up in the middle.
    pub(crate) fn undo_abandoned(&mut self) -> bool {
        let ip = self.cpu.linear_ip();
        let inside = self.inside_last(ip);
        if inside {
            self.rewind(ip);
        }
        inside
    }

    /// Whether linear `pc` is that of an instruction of the block that was begun last, which has more than one. A block never
    /// goes to the middle of itself by a store: when it stands there, it was abandoned. A branch may go between its
    /// instructions.
    fn inside_last(&self, pc: u64) -> bool {
        let within = |b: &CellRef| b.icount() > 1 && pc.wrapping_sub(b.pc()) < u64::from(b.size());
        self.last().filter(within).is_some_and(|b| self.walk(&b, pc).1 == pc)
    }

    /// Whether the block that was begun last is the one instruction at linear `pc`: with TF set, the engine's are no longer.
    fn was_all_of_last(&self, pc: u64) -> bool {
        self.last().is_some_and(|b| b.icount() == 1 && b.pc() == pc)
    }

    /// The block that was begun last, unless the state was settled since.
    pub(crate) fn last(&self) -> Option<CellRef> {
        self.cpu.hot.last
    }

    /// The instruction at linear `at` as block `b` has it: the first of an in-line site is the guest's own.
    fn decode_in(&self, b: &BlockCell, at: u64) -> Option<Instruction> {
        if at == b.pc() && b.is(BlockCell::SITE) { self.cpu.decode_original(at) } else { self.decode_at(at) }
    }

    /// What running `b` now counts. The final look of a repeated instruction at a count of zero is not an
    /// iteration; slots stand for an instruction, or its first iteration, that the trap has counted.
    fn count_of(&self, b: &BlockCell) -> u32 {
        if b.is(BlockCell::REP_HEAD) && self.repeating(b.pc()) {
            return u32::from(b.repeat().count(self.cpu.env.gpr(1)) != 0);
        }
        if b.is(BlockCell::SLOT) { 0 } else { b.icount().into() }
    }

    /// Whether the last block ended in the middle of the repeated instruction at linear `pc`.
    pub(crate) fn repeating(&self, pc: u64) -> bool {
        self.last().is_some_and(|b| b.repeated_at() == Some(pc))
    }

    /// The count register of the repeated instruction at `pc`, by its address size.
    pub(crate) fn rep_count(&self, pc: u64) -> u64 {
        let bits = self.decode_at(pc).map_or(64, |i| decode::address_bits(&i));
        decode::rep_count(bits, self.cpu.env.gpr(1))
    }

    /// First sight of a block: what kinds of instructions it holds.
    fn analyse(&mut self, cell: CellRef, address: u64, size: u32) {
        let b = &*cell;
        b.set_pc(address);
        b.clear(BlockCell::NEW);
        if cell == self.next_cell {
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
            || h & (hflags::SS32 | hflags::CS64) == 0
        {
            b.mark(BlockCell::UNSUPPORTED);
        }
        let end = address.saturating_add(b.size().into());
        let wanted = u32::from(b.icount());
        let (mut at, mut n) = (address, 0u32);
        let mut uncertain = false;
        let mut compared = Compared::default();
        let patched = self.patches_in(address, end) || self.is_clobbered(address);
        let mut jumps = false;
        while at < end && (wanted == 0 || n < wanted) {
            let cut = matches!(b.lead(), Lead::Cut(..));
            if !cut && self.watched_code(at) {
                b.set_lead(Lead::Cut(Cut::Watched, n as u16));
            }
            if matches!(b.lead(), Lead::Cut(Cut::Watched, _)) && n > 0 {
                // What follows never runs as part of this block.
                break;
            }
            if patched && self.ends_with_jump(b, at) {
                // It is no instruction of the guest's, and counts nothing.
                b.set_icount(n as u16);
                b.set_size((at - address) as u16);
                b.mark(if n == 0 { BlockCell::JUMP } else { 0 });
                jumps = true;
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
            self.mark(b, &i, n, at, compared);
            compared = compared.after(&i);
            at = at.saturating_add(i.len() as u64);
            n += 1;
        }
        if wanted == 0 {
            b.set_icount(n.max(1) as u16);
        }
        uncertain |= n == wanted && at != end;
        if uncertain && !matches!(b.lead(), Lead::Cut(Cut::Sensitive | Cut::Overlapped, _)) {
            // The engine takes as an instruction what the decoder does not, or of another length: here each is run alone,
            // which needs no decoder to be counted.
            b.set_lead(Lead::Cut(Cut::Sensitive, 0));
        }
        if b.icount() == 1 && !jumps && self.decode_in(b, address).is_some_and(|i| decode::is_plain_store(&i))
        {
            b.mark(BlockCell::STORE);
        }
    }

    /// Marks `b` for its instruction `i`, which is number `n` in it and lies at linear `at`. A block that is cut never runs
    /// beyond the cut.
    fn mark(&self, b: &BlockCell, i: &Instruction, n: u32, at: u64, compared: Compared) {
        let lead = b.lead();
        if matches!(lead, Lead::Cut(Cut::Sensitive, _)) {
            return;
        }
        let watched = matches!(lead, Lead::Cut(Cut::Watched, _));
        let kind = decode::kind(i);
        let alone = match kind {
            Kind::Sensitive => !compared.keeps_flags(i),
            Kind::Repeated => n > 0 && self.may_restart(at),
            Kind::Plain if compared.misleads(i) => true,
            Kind::Plain | Kind::Far => {
                self.may_restart(at) && decode::is_no_restart(i) && !self.cpu.stores_elsewhere(i, b.pc())
            }
            _ => false,
        };
        match kind {
            // A watch of the first instruction has the machine look at it by itself.
            _ if alone && watched => {}
            _ if alone => b.set_lead(Lead::Cut(Cut::Sensitive, n as u16)),
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
                Lead::Traps(_) => b.set_lead(Lead::Clock(Some(n as u16))),
                Lead::Clock(_) => b.set_lead(Lead::Clock(None)),
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

    /// First sight of a block of a slot. What follows the displaced instruction in it has no marks.
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

    /// Whether the guest's instruction at linear `at`, which no patch begins, has one behind its first byte: a probe
    /// that is not on an instruction as the guest runs it. The fetch view is no good for it.
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

    /// Whether the guest's instruction at linear `at` has a patch behind its first byte.
    fn has_patch_inside(&self, at: u64) -> bool {
        let inside = |length: usize| self.patches_in(at.saturating_add(1), at.saturating_add(length as u64));
        inside(LONGEST) && inside(self.cpu.decode_original(at).map_or(LONGEST, |i| i.len()))
    }

    /// Whether a patch begins on one of the bytes from linear `at` to before `end`, which are on two pages at most.
    fn patches_in(&self, at: u64, end: u64) -> bool {
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

    /// Takes back what the block in progress was counted for from linear `ip` on: the instruction there did
    /// not retire.
    pub(crate) fn rewind(&mut self, ip: u64) {
        let Some(b) = self.last() else { return };
        if b.is(BlockCell::SLOT) || ip.wrapping_sub(b.pc()) >= u64::from(b.size().max(1)) {
            return;
        }
        let done = self.walk(&b, ip).0;
        self.cpu.hot.clock.icount -= u64::from(self.cpu.hot.last_count.saturating_sub(done));
        self.cpu.hot.last = None;
    }

    /// Instructions that have retired before the RDTSC at EIP, which the engine is in the middle of.
    pub(crate) fn icount_inside(&self) -> u64 {
        let Some(b) = self.last() else { return self.cpu.hot.clock.icount };
        let done = match b.lead() {
            Lead::Clock(Some(before)) => before.into(),
            _ => self.walk(&b, self.cpu.linear_ip()).0,
        };
        self.cpu.hot.clock.icount - u64::from(self.cpu.hot.last_count.saturating_sub(done))
    }

    /// Instructions of `b` before linear `ip`, and where the next one lies.
    fn walk(&self, b: &BlockCell, ip: u64) -> (u32, u64) {
        let (mut at, mut n) = (b.pc(), 0);
        while at < ip && n < u32::from(b.icount()) {
            let Some(i) = self.decode_in(b, at) else { break };
            at = at.saturating_add(i.len() as u64);
            n += 1;
        }
        (n, at)
    }

    /// After a stop between two iterations in a slot: the guest is at the site, or behind it.
    fn settle_repeated(&mut self, slot: crate::views::ActiveSlot) {
        self.views.active = None;
        self.cpu.hot.last = None;
        if self.rep_count(self.cpu.env.cs_base().wrapping_add(slot.site)) == 0 {
            self.cpu.env.set_eip(slot.next);
        } else {
            self.cpu.env.set_eip(slot.site);
            self.with_interposer(|i, core| i.interrupted(core));
        }
    }

    /// After a stop between blocks: a repeated instruction whose count ran out is done, and a displaced
    /// instruction that completed continues behind its site.
    pub(crate) fn settle(&mut self) {
        let ip = self.cpu.env.eip();
        let pc = self.cpu.linear_ip();
        if let Some(slot) = self.views.active {
            self.views.hide_slot_from_fpu(&self.cpu);
            if let Some(next) = slot.guest_ip_after(ip) {
                self.cpu.env.set_eip(next);
                self.views.active = None;
            } else if !slot.contains(ip) {
                self.views.active = None;
            } else if self.repeating(self.cpu.env.cs_base().wrapping_add(ip)) {
                return self.settle_repeated(slot);
            }
        }
        if self.repeating(pc) && self.rep_count(pc) == 0 {
            let len = self.decode_at(pc).map_or(0, |i| i.len() as u64);
            self.cpu.env.set_eip(self.cpu.wrap_ip(self.cpu.env.eip().wrapping_add(len)));
        }
        self.after_flags_load();
        self.cpu.hot.last = None;
        if let Some(page) = self.tentative.take() {
            // The block that the page was looked up for did not run: let it be looked up again.
            self.cpu.engine.drop_tlb(page);
        }
    }
}
