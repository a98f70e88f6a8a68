//! Exceptions that the engine raises: traps of patches, which go to the interposer, and the guest's own.

use crate::blocks::{BlockCell, CellRef};
use crate::cpu::debug::BS;
use crate::cpu::deliver::Origin;
use crate::cpu::fault::Vector;
use crate::cpu::flags::TF;
use crate::engine::hflags;
use crate::isa::decode;
use crate::run::interpose::{Trap, Verdict};
use crate::run::{Core, Halt};

impl Core {
    /// The engine raised an exception; the state is at it. Called from the INTR and INSN_INVALID hooks.
    pub(crate) fn engine_exception(&mut self, vector: u8) {
        let env = *self.cpu.env;
        self.cpu.engine.sync_pc(true);
        env.set_old_exception(-1);
        let software = vector != 6 && env.exception_is_int() != 0;
        let eip = env.eip();
        if vector == 3 && software {
            let ip = self.cpu.wrap_ip(eip.wrapping_sub(1));
            if let Some(patch) = self.trapped_patch(ip) {
                let linear = env.cs_base().wrapping_add(ip);
                return self.offer(Trap { vector, ip, linear, patch, in_line: false });
            }
        }
        self.rare_exception(vector, software, eip);
    }

    /// Handles all exceptions but the breakpoint of a patch: that of a stand-in, and the guest's own.
    #[cold]
    fn rare_exception(&mut self, vector: u8, software: bool, eip: u64) {
        if vector == 3 && software && self.stood_in(self.cpu.linear_ip()) {
            return self.execute_stood_for(self.cpu.wrap_ip(eip.wrapping_sub(1)));
        }
        if vector == 6 {
            let linear = self.cpu.env.cs_base().wrapping_add(eip);
            let paddr = if self.views.is_empty() { None } else { self.cpu.code_paddr(linear) };
            let patch = paddr.and_then(|p| self.views.patch_at(p));
            if let Some(patch) = patch.filter(|_| !self.is_in_line_site(linear)) {
                self.rewind(linear);
                self.cpu.hot.clock.icount += 1;
                return self.offer(Trap { vector, ip: eip, linear, patch, in_line: false });
            }
            if let Some(i) = self.cpu.engine_lacks(linear) {
                self.execute_lacking(&i, linear);
                return self.after_hook();
            }
        }
        self.guest_exception(vector, software, eip);
    }

    /// Handles an exception of the guest's own.
    #[cold]
    fn guest_exception(&mut self, vector: u8, software: bool, eip: u64) {
        let env = *self.cpu.env;
        let linear = env.cs_base().wrapping_add(eip);
        if software {
            let at = self.software_interrupt_ip(vector, eip);
            self.views.active = None;
            // INTO does not end its block.
            self.rewind(linear);
            self.deliver(vector, None, Origin::Software, eip, at);
        } else if vector == Vector::Debug as u8 && self.single_stepped() {
            let met = self.tell_watched();
            env.set_dr_raw(6, env.dr(6) | met);
            self.deliver(vector, None, Origin::Trap, eip, eip);
        } else {
            self.leave_slot_on_fault();
            let in_line = self.is_in_line_site(linear);
            self.rewind(linear);
            if in_line {
                self.displaced_faulted();
            }
            let ip = env.eip();
            let error = env.error_code() as u32;
            self.deliver(vector, Some(error), Origin::Fault, ip, ip);
        }
        self.after_hook();
    }

    /// Whether a #DB that the engine raised came from TF, not from an execute breakpoint, which is a fault.
    fn single_stepped(&self) -> bool {
        let dr6 = self.cpu.env.dr(6);
        dr6 & 0xf == 0 || dr6 & BS != 0 && self.cpu.env.eflags_raw() & TF != 0
    }

    /// Start of the INT n, INT3 or INTO that ended before `next`.
    fn software_interrupt_ip(&self, vector: u8, next: u64) -> u64 {
        let one = self.cpu.wrap_ip(next.wrapping_sub(1));
        let mut byte = [0u8];
        let n = self.cpu.peek_prefix(self.cpu.env.cs_base().wrapping_add(one), &mut byte);
        let short = n == 1 && ((vector == 3 && byte[0] == 0xcc) || (vector == 4 && byte[0] == 0xce));
        if short { one } else { self.cpu.wrap_ip(next.wrapping_sub(2)) }
    }

    /// The patch whose INT3 at `ip` just ended the current block. The result is cached in the block's cell.
    #[inline(always)]
    fn trapped_patch(&mut self, ip: u64) -> Option<u32> {
        let linear = self.cpu.env.cs_base().wrapping_add(ip);
        let cell = self.cpu.hot.last;
        if let Some(cell) = cell
            && cell.pc().wrapping_add(cell.size().into()) == linear.wrapping_add(1)
            && cell.patch() != 0
        {
            return (cell.patch() < BlockCell::BY_MACHINE).then(|| cell.patch() - 1);
        }
        self.find_trapped_patch(linear, cell)
    }

    #[cold]
    fn find_trapped_patch(&mut self, linear: u64, cell: Option<CellRef>) -> Option<u32> {
        let found = self.cpu.code_paddr(linear).and_then(|p| self.views.patch_at(p));
        if let Some(cell) = cell
            && cell.pc().wrapping_add(cell.size().into()) == linear.wrapping_add(1)
        {
            cell.set_patch(found.map_or(BlockCell::NO_PATCH, |id| id + 1));
        }
        found
    }

    /// Offers a patch's trap to the interposer. The trap instruction was counted in place of the displaced one, so the
    /// count is reduced by one while the handler runs and restored when the displaced instruction retires.
    #[inline(always)]
    fn offer(&mut self, trap: Trap) {
        self.ask(trap);
        if self.halt.is_some() || self.cpu.irq {
            self.after_hook();
        }
    }

    /// As [`Core::offer`], outside of the engine's hooks too.
    #[inline(always)]
    pub(crate) fn ask(&mut self, trap: Trap) {
        let env = *self.cpu.env;
        self.views.active = None;
        env.set_eip(trap.ip);
        self.cpu.hot.clock.icount -= 1;
        if self.traps_too_often(trap.linear) {
            self.cpu.hot.last = None;
            self.halt = Some(Halt::Open);
            return;
        }
        let shadow = env.hflags() & hflags::INHIBIT_IRQ != 0;
        let tf = env.eflags_raw() & TF != 0;
        let Some(verdict) = self.with_interposer(|i, core| i.trap(core, &trap)) else {
            self.halt = Some(Halt::StepSite);
            return;
        };
        self.conclude(verdict, &trap, shadow, tf);
    }

    /// Carries out the interposer's verdict; `shadow` and `tf` are the state before the displaced instruction.
    #[inline(always)]
    pub(crate) fn conclude(&mut self, verdict: Verdict, trap: &Trap, shadow: bool, tf: bool) {
        match verdict {
            Verdict::Resumed => {
                self.cpu.hot.clock.icount += 1;
                let met = self.tell_watched();
                if shadow || tf || met != 0 {
                    self.resumed_specially(shadow, tf, met);
                }
            }
            // A run that is to end here ends after the instruction: in a slot it would end inside it.
            // Nor does the machine execute what is in a slot.
            Verdict::Slot(slot) if !tf && self.verdict.is_none() && !self.cpu.env.is_exact() => {
                self.cpu.hot.clock.icount += 1;
                self.views.enter_slot(&mut self.cpu, slot, trap.ip);
            }
            other => self.conclude_unresumed(other, trap),
        }
    }

    /// An emulated instruction stood in an interrupt shadow, was single-stepped, or met breakpoints of the guest's.
    #[cold]
    fn resumed_specially(&mut self, shadow: bool, tf: bool, met: u64) {
        // The interrupt shadow over the displaced instruction ends with it; a shadow that it begins itself, as STI
        // does, is kept.
        if shadow {
            self.cpu.env.set_hflags(self.cpu.env.hflags() & !hflags::INHIBIT_IRQ);
        }
        if tf || met != 0 {
            self.debug_trap(met, tf);
        }
    }

    /// Handles the verdicts other than `Resumed`.
    #[cold]
    fn conclude_unresumed(&mut self, verdict: Verdict, trap: &Trap) {
        match verdict {
            Verdict::Raise(fault) => {
                self.displaced_faulted();
                self.raise_fault(fault);
            }
            Verdict::Declined => {
                self.cpu.hot.clock.icount += 1;
                self.decline(trap);
            }
            _ if self.execute_site() => self.set_limit(),
            _ => self.halt = Some(Halt::StepSite),
        }
    }

    /// Executes the displaced instruction at EIP without the engine; false if that is not possible, and nothing has
    /// happened.
    fn execute_site(&mut self) -> bool {
        let (before, site) = (self.cpu.hot.clock.icount, self.cpu.linear_ip());
        let Some(i) = self.cpu.decode_original(site) else { return false };
        let last = self.cpu.hot.last.take();
        if !self.execute_displaced_in_hook(&i) {
            self.cpu.hot.last = last;
            return false;
        }
        self.tell_end(before, decode::repeats(&i) && self.cpu.linear_ip() == site);
        true
    }

    /// Gives a declined trap to the guest, with the state that its own instruction would have left.
    fn decline(&mut self, trap: &Trap) {
        if trap.vector == 3 {
            let next = self.cpu.wrap_ip(trap.ip.wrapping_add(1));
            self.cpu.env.set_eip(next);
            self.deliver_declined(3, None, Origin::Software, next, trap.ip);
        } else {
            self.cpu.hot.clock.icount -= 1;
            self.deliver_declined(Vector::InvalidOpcode as u8, None, Origin::Fault, trap.ip, trap.ip);
        }
    }

    /// After an exception hook changed the state: leave the engine if the run loop is needed.
    pub(super) fn after_hook(&mut self) {
        if self.halt.is_some() || self.verdict.is_some() {
            self.cpu.engine.stop_after_block();
        }
        self.set_limit();
    }
}
