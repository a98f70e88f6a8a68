//! Counting: the slow path of the block hook, and exact counts inside a block.
//!
//! Invariant: no result depends on where the engine cuts its blocks.

use super::{Core, Halt};
use crate::blocks::{BlockCell, CellRef, Cut, Lead};
use crate::isa::decode;
use crate::ram::PageState;
use iced_x86::Instruction;

impl Core {
    /// A block that needs more than counting. Either stops before it or lets it run.
    #[inline(never)]
    pub(crate) fn block_slow(&mut self, cell: CellRef, address: u64, size: u32) {
        self.cpu.engine.sync_pc(true);
        self.put_back(Some((cell, address)));
        let b = &*cell;
        // Where the machine has failed, the view is open or CS has a base, the limit is 0.
        if b.flags() & BlockCell::SLOW == BlockCell::REP_HEAD && self.next_repetition(cell, b) {
            return;
        }
        // With a base of CS, this block is not the one that must run: see `ignore_cs_base`.
        if self.failure.is_some() || !self.close(Some(cell)) || self.cpu.has_cs_base() {
            self.cpu.engine.stop_before_block();
            return;
        }
        if b.is(BlockCell::NEW) {
            self.analyse(cell, address, size);
        }
        self.cpu.blocks_dropped = false;
        self.after_flags_load();
        if self.cpu.blocks_dropped {
            // The interposer has changed the fetch view, perhaps within this block.
            self.cpu.engine.stop_before_block();
            return;
        }
        self.write_user_registers();
        if b.is(BlockCell::SLOT) {
            self.views.hide_slot_from_fpu(&self.cpu);
        }
        if b.is(BlockCell::STORE) && (self.inside_last(b.pc()) || self.was_whole_last_block(b.pc())) {
            // The block in progress was overwritten by its own store: the engine restarts that instruction, and runs it
            // alone.
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
        if self.is_translated_anew(b) {
            return self.cpu.engine.stop_before_block();
        }
        if self.tell_blocks && !self.told(b) {
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
        if b.flags() & (BlockCell::REP_HEAD | BlockCell::SLOT) == BlockCell::REP_HEAD && self.step.is_free() {
            self.repeat_ahead(b);
        }
        self.begin(cell, count);
        // No hook needs it, but for a stop, which sets it again.
        self.cpu.engine.sync_pc(false);
        self.set_limit();
        if b.is(BlockCell::FLAGS_TAIL) {
            // The next block comes here too.
            self.cpu.hot.clock.limit = 0;
        }
    }

    /// Handles an iteration of a repeated instruction, or its check for a count of zero, while nothing else is due (the
    /// limit would be 0 otherwise). Returns whether that was all.
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

    /// Executes iterations of the repeated instruction in block `b`, unless they access watched pages.
    fn repeat_ahead(&mut self, b: &BlockCell) {
        let watches = &self.watches;
        let is_watched = |page, access| watches.any_data() && watches.covers(page, access);
        self.repeated_at_once += self.cpu.repeat_ahead(b.repeat(), is_watched);
    }

    /// How many iterations of string instructions the machine has done many at a time. No part of the guest's state: it does
    /// not go back with a snapshot.
    pub fn repeated_at_once(&self) -> u64 {
        self.repeated_at_once
    }

    /// Begins the block and counts its instructions.
    pub(crate) fn begin(&mut self, cell: CellRef, count: u32) {
        self.cpu.hot.clock.icount += u64::from(count);
        self.cpu.hot.last = Some(cell);
        self.cpu.hot.last_count = count;
        self.rep_from = self.cpu.env.gpr(1);
    }

    /// Whether the engine restarts the iteration that was begun last, because it stored into its own block: then that
    /// iteration has had no effect yet.
    fn restarted(&self, b: &BlockCell) -> bool {
        let again = self.last().is_some_and(|last| last.is(BlockCell::REP_HEAD) && last.pc() == b.pc());
        again && self.cpu.hot.last_count > 0 && self.cpu.env.gpr(1) == self.rep_from
    }

    /// Tells the interposer that `b` is about to run, unless it runs a displaced instruction; whether the run goes on.
    fn told(&mut self, b: &BlockCell) -> bool {
        if b.is(BlockCell::SLOT | BlockCell::JUMP) || self.halt.is_some() {
            return true;
        }
        let whole = self.step.is_free();
        self.with_interposer(|i, core| i.block(core, b.pc(), whole));
        self.halt.is_none()
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
        let due = self.cpu.interruptible() || self.blocks.are_too_many();
        if due || (b.is(BlockCell::SLOT) && self.site_rewritten()) {
            return Some(Halt::Interrupt);
        }
        let count = self.count_of(b).max(u32::from(b.is(BlockCell::JUMP)));
        let after = self.cpu.hot.clock.icount + u64::from(count);
        if after > self.cpu.hot.clock.deadline && !self.passes_pause(b, after) {
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
        if b.is(BlockCell::IRET_TAIL) && self.cpu.returns_to_task() {
            return Some(Halt::Cut(Cut::Sensitive, b.icount().saturating_sub(1)));
        }
        None
    }

    /// Whether the repeated instruction that runs in a slot may have overwritten its own site.
    fn site_rewritten(&self) -> bool {
        let site =
            self.views.active.and_then(|s| self.cpu.code_paddr(self.cpu.env.cs_base().wrapping_add(s.site)));
        let page = site.and_then(|p| self.cpu.ram.page_at(p));
        page.is_some_and(|p| p.is(PageState::STALE))
    }

    /// Sets the hook's limit: 0, for every block, while something is pending.
    pub(crate) fn set_limit(&mut self) {
        self.set_deadline();
        let watch = self.cpu.irq
            || self.cpu.nmi_pending
            || self.cpu.nmi_blocked
            || self.tentative.is_some()
            || self.blocks.are_too_many()
            || self.cpu.user_writes;
        let watch = watch || !self.step.is_free() || self.halt.is_some() || self.opening.is_some();
        let watch = watch || self.tell_blocks;
        self.cpu.hot.clock.limit = if watch { 0 } else { self.cpu.hot.clock.deadline };
    }

    /// IRET unblocks NMI. RF, which IRET or SYSRET may have set, is cleared at once: the next instruction would clear
    /// it, but the engine does so only at the end of some blocks. It is kept where it suppresses a breakpoint.
    fn after_flags_load(&mut self) {
        let Some(flags) = self.last().map(|b| b.flags()) else { return };
        self.cpu.nmi_blocked &= flags & BlockCell::IRET_TAIL == 0;
        if flags & BlockCell::FLAGS_TAIL != 0 {
            self.after_far_transfer();
        }
    }

    /// After IRET, SYSRET or another far transfer, at the instruction that it leads to.
    pub(super) fn after_far_transfer(&mut self) {
        if !self.cpu.resumes_at_breakpoint() {
            self.cpu.clear_rf();
        }
        self.with_interposer(|i, core| i.returned(core));
    }

    /// After a capped block that does not branch: returns whether it overwrote itself and was abandoned in the middle.
    pub(crate) fn undo_abandoned(&mut self) -> bool {
        let ip = self.cpu.linear_ip();
        let inside = self.inside_last(ip);
        if inside {
            self.rewind(ip);
        }
        inside
    }

    /// Whether linear `pc` is that of an instruction of the block that was begun last, which has more than one. EIP
    /// there means that a self-modifying store aborted the block, unless a branch between its instructions led there.
    fn inside_last(&self, pc: u64) -> bool {
        let within = |b: &CellRef| b.icount() > 1 && pc.wrapping_sub(b.pc()) < u64::from(b.size());
        self.last().filter(within).is_some_and(|b| self.walk(&b, pc).1 == pc)
    }

    /// Whether the block that was begun last is the one instruction at linear `pc`: with TF set, the engine's blocks
    /// have one instruction.
    fn was_whole_last_block(&self, pc: u64) -> bool {
        self.last().is_some_and(|b| b.icount() == 1 && b.pc() == pc)
    }

    /// The block that was begun last, unless the state has been settled since.
    pub(crate) fn last(&self) -> Option<CellRef> {
        self.cpu.hot.last
    }

    /// The instruction at linear `at` as block `b` executes it: at an in-line site, the first one is the guest's own.
    pub(super) fn decode_in(&self, b: &BlockCell, at: u64) -> Option<Instruction> {
        if at == b.pc() && b.is(BlockCell::SITE) { self.cpu.decode_original(at) } else { self.decode_at(at) }
    }

    /// The number of instructions that running `b` now counts. The final check of a repeated instruction for a count of
    /// zero is not an iteration; a slot's instruction, or its first iteration, was counted with its trap.
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

    /// Uncounts the instructions of the block in progress from linear `ip` on: the instruction there did not retire.
    pub(crate) fn rewind(&mut self, ip: u64) {
        let Some(b) = self.last() else { return };
        if b.is(BlockCell::SLOT) || ip.wrapping_sub(b.pc()) >= u64::from(b.size().max(1)) {
            return;
        }
        let done = self.walk(&b, ip).0;
        self.cpu.hot.clock.icount -= u64::from(self.cpu.hot.last_count.saturating_sub(done));
        self.cpu.hot.last = None;
    }

    /// As [`Core::rewind`], for an instruction that ends its block if it is `length` bytes long.
    pub(crate) fn rewind_end(&mut self, ip: u64, length: usize) {
        let ends = |b: &CellRef| {
            let whole = self.cpu.hot.last_count == u32::from(b.icount()) && !b.is(BlockCell::SLOT);
            whole && b.pc().wrapping_add(b.size().into()) == ip.wrapping_add(length as u64)
        };
        if self.last().filter(ends).is_some() {
            self.cpu.hot.clock.icount -= 1;
            self.cpu.hot.last = None;
        } else {
            self.rewind(ip);
        }
    }

    /// Instructions that have retired before the RDTSC at EIP, which the engine is executing.
    pub(crate) fn icount_inside(&self) -> u64 {
        let Some(b) = self.last() else { return self.cpu.hot.clock.icount };
        let done = match b.lead() {
            Lead::Clock(before) => before.into(),
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

    /// After a stop between two iterations in a slot: the guest is at the site, or after it.
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

    /// After a stop between blocks: a repeated instruction whose count ran out has completed, and a completed displaced
    /// instruction continues after its site.
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
            // The block for which the page was filled did not run: drop the entry, so that its fetch is checked again.
            self.cpu.engine.drop_tlb(page);
        }
    }
}
