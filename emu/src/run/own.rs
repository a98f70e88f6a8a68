//! Instructions that the machine executes itself, and their consequences.

use super::step::Permit;
use super::{Core, Stop};
use crate::cpu::deliver::Origin;
use crate::cpu::fault::{Fault, Vector};
use crate::cpu::flags::TF;
use crate::cpu::outcome::{Done, Then};
use crate::isa::decode::{self, Kind, LONGEST, undefined, vex_prefix};
use iced_x86::{Instruction, Mnemonic};

/// The masks of all exceptions in the control word of the x87.
const X87_MASKS: u16 = 0x3f;

impl Core {
    /// Executes one sensitive instruction at EIP.
    pub(crate) fn execute_sensitive(&mut self, i: &Instruction) {
        self.step.free();
        if let Some(then) = self.execute_alone(i) {
            self.execute_by_engine(i, then);
        }
    }

    /// Executes the sensitive instruction at EIP without the engine; what is to follow if that is not possible, and nothing
    /// has happened.
    pub(super) fn execute_alone(&mut self, i: &Instruction) -> Option<Then> {
        self.effort.note_event();
        self.commit_own_fetch(self.cpu.linear_ip(), i.len());
        let tf = self.cpu.env.eflags_raw() & TF != 0;
        match self.cpu.sensitive(i, &mut self.watches) {
            Ok(Done::ByEngine(then)) => return Some(then),
            outcome => self.end_own(i, outcome, tf),
        }
        None
    }

    /// Has the engine execute a sensitive instruction.
    fn execute_by_engine(&mut self, i: &Instruction, then: Then) {
        let before = self.cpu.hot.clock.icount;
        let length = i.len();
        if let Then::FlagsBack(flags) = then {
            self.permitting(Permit::LoseFlags(flags), |core| core.step_unpatched(length));
        } else {
            self.step_unpatched(length);
        }
        if then == Then::Adopt {
            self.cpu.env.adopt_float();
        }
        if self.cpu.hot.clock.icount > before {
            match then {
                Then::Follow(paging) => self.cpu.follow_paging(paging),
                Then::NoteEntry(context) if self.cpu.env.cpl() < 3 => self.cpu.note_user_registers(context),
                // FNSTENV masks the exceptions after it has stored the masks.
                Then::Adopt if i.mnemonic() == Mnemonic::Fnstenv => {
                    self.cpu.env.set_fpuc(self.cpu.env.fpuc() | X87_MASKS);
                }
                Then::NoteEntry(_) | Then::FlagsBack(_) | Then::Adopt | Then::Nothing => {}
            }
            if decode::kind(i) == Kind::Gate {
                self.after_far_transfer();
            }
        }
    }

    /// Ends an instruction that the machine has executed itself; `tf` is what TF was before it. SYSCALL, the only one
    /// that may clear TF, does not trap then.
    pub(crate) fn end_own(&mut self, i: &Instruction, outcome: Result<Done, Fault>, tf: bool) {
        self.stop_at_text();
        match outcome {
            Ok(Done::ByEngine(_)) => return,
            Ok(done @ (Done::Next | Done::Breakpoints)) => {
                let next = self.cpu.wrap_ip(self.cpu.env.eip().wrapping_add(i.len() as u64));
                self.cpu.env.set_eip(next);
                if matches!(done, Done::Breakpoints) {
                    self.follow_debug_registers();
                }
            }
            Ok(Done::Jumped) => {}
            Ok(Done::Unsupported(what)) => {
                self.finish(Stop::Unsupported(what));
                return;
            }
            Ok(Done::Int1) => {
                let at = self.cpu.env.eip();
                let next = self.cpu.wrap_ip(at.wrapping_add(i.len() as u64));
                self.cpu.env.set_eip(next);
                self.cpu.hot.clock.icount += 1;
                self.deliver(Vector::Debug as u8, None, Origin::Int1, next, at);
                return;
            }
            Err(fault) => {
                self.raise_fault(fault);
                return;
            }
        }
        self.cpu.hot.clock.icount += 1;
        self.cpu.env.set_interrupt_shadow(false);
        let met = self.tell_watched();
        if self.cpu.switched.is_some() {
            return self.after_task_switch();
        }
        let tf = tf && self.cpu.env.eflags_raw() & TF != 0;
        if tf || met != 0 {
            self.debug_trap(met, tf);
        }
    }

    /// Restores the flags from before an instruction that the engine did not finish and may have lost.
    pub(crate) fn put_flags_back(&self) {
        if let Some(flags) = self.step.lost_flags() {
            self.cpu.env.set_eflags(flags);
        }
    }

    /// RDTSC in the middle of a block whose instructions have all been counted already.
    pub(crate) fn read_clock(&self) {
        let ahead = self.cpu.hot.clock.icount - self.icount_inside();
        self.cpu.give_tsc(self.cpu.tsc().wrapping_sub(ahead), false);
    }

    /// Executes an instruction that the engine has raised #UD for, from the hook: its block ends there.
    pub(crate) fn execute_lacking(&mut self, i: &Instruction, at: u64) {
        let in_line = self.is_in_line_site(at);
        self.rewind_end(at, i.len());
        let tf = self.cpu.env.eflags_raw() & TF != 0;
        let outcome = self.cpu.sensitive(i, &mut self.watches);
        if in_line && outcome.is_err() {
            self.displaced_faulted();
        }
        self.end_own(i, outcome, tf);
    }

    /// Raises #UD if the bytes at EIP are not an instruction although the engine may take them for one; returns whether
    /// it did.
    pub(crate) fn refuse_undefined(&mut self) -> bool {
        let (linear, mut bytes) = (self.cpu.linear_ip(), [0u8; LONGEST]);
        let n = self.cpu.peek_prefix(linear, &mut bytes);
        let bits = self.cpu.code_bits();
        let found = undefined(bits, &bytes[..n]).or_else(|| vex_prefix(bits, &bytes[..n]));
        let Some(length) = found else { return false };
        self.commit_own_fetch(linear, length);
        self.raise_fault(Fault::ud());
        true
    }
}
