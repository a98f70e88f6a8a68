//! Exceptions and interrupts: offered to the interposer, then delivered through the guest's IDT.

use super::{Core, Stop};
use crate::cpu::Vector;
use crate::cpu::deliver::{Origin, Undeliverable};
use crate::cpu::fault::Fault;
use crate::cpu::state::CrashReport;

impl Core {
    /// Delivers a fault at the current EIP.
    pub(crate) fn raise_fault(&mut self, fault: Fault) {
        self.watches.forget_noted();
        if let Some(cr2) = fault.cr2 {
            self.cpu.env.set_cr_raw(2, cr2);
        }
        let ip = self.cpu.env.eip();
        self.deliver(fault.vector, fault.error, Origin::Fault, ip, ip);
    }

    /// Delivers an event, which the interposer sees first. EIP in the frame is `ip`; `at` is the
    /// instruction in progress, which did not retire if its own delivery faults.
    pub(crate) fn deliver(&mut self, vector: u8, error: Option<u32>, origin: Origin, ip: u64, at: u64) {
        let handled = origin != Origin::External
            && self.with_interposer(|i, core| i.exception(core, vector, at)).unwrap_or(false);
        if !handled {
            self.deliver_declined(vector, error, origin, ip, at);
        }
    }

    /// Delivers an event that the interposer has declined, or that it never sees.
    pub(crate) fn deliver_declined(
        &mut self,
        vector: u8,
        error: Option<u32>,
        origin: Origin,
        ip: u64,
        at: u64,
    ) {
        self.effort.note_event();
        let now = self.cpu.hot.clock.icount;
        let before = if self.delivered.0 == now { self.delivered.1 } else { 0 };
        self.delivered = (now, before + 1);
        // Still to be written if the first fetch in ring 3 has faulted: no block has begun there.
        self.write_user_registers();
        if vector == Vector::Debug as u8 && origin != Origin::Software {
            self.cpu.allow_debug_registers();
        }
        self.cpu.stored = (self.watches.any_data() && self.interposer.is_some()).then(Vec::new);
        match self.cpu.deliver(vector, error, origin, ip, at) {
            Ok(()) => self.after_task_switch(),
            Err(Undeliverable::Unsupported(what)) => self.finish(Stop::Unsupported(what)),
            Err(Undeliverable::TripleFault(vectors)) => {
                let (ip, registers) = (self.cpu.env.eip(), self.cpu.dump_registers());
                self.finish(Stop::TripleFault(Box::new(CrashReport { vectors, ip, registers })));
            }
        }
        if let Some(stored) = self.cpu.stored.take().filter(|stored| !stored.is_empty()) {
            // INT n stores its frame itself.
            match origin {
                Origin::Software | Origin::Int1 => self.tell_delivered(None, at, &stored),
                _ => self.tell_delivered(Some(vector), ip, &stored),
            }
        }
        if self.until.is_some_and(|until| self.moment() >= until) {
            self.stop_at_boundary();
        }
    }

    /// What follows a hardware task switch, if there was one: before the first instruction of the new task come its fault, or
    /// the #DB that its TSS asks for.
    pub(super) fn after_task_switch(&mut self) {
        let Some(switched) = self.cpu.switched.take() else { return };
        self.cpu.nmi_blocked &= !switched.by_iret;
        self.follow_debug_registers();
        self.after_far_transfer();
        if let Some(fault) = switched.fault {
            self.raise_fault(fault);
        } else if switched.trap {
            self.cpu.note_task_trap();
            let ip = self.cpu.env.eip();
            self.deliver(Vector::Debug as u8, None, Origin::Trap, ip, ip);
        }
    }

    /// #DB in place of the instruction at EIP, if the guest has a breakpoint there that RF does not hide. Returns
    /// whether it was raised.
    pub(crate) fn execute_breakpoint(&mut self) -> bool {
        let due = self.cpu.note_execute_breakpoint();
        if due {
            self.raise_fault(Fault::debug());
        }
        due
    }

    /// #DB after an instruction that met these conditions, or, `stepped`, was executed with TF set.
    pub(crate) fn debug_trap(&mut self, met: u64, stepped: bool) {
        self.cpu.note_debug_trap(met, stepped);
        let ip = self.cpu.env.eip();
        self.deliver(Vector::Debug as u8, None, Origin::Trap, ip, ip);
    }

    /// Updates the watches after a possible write to a debug register.
    pub(crate) fn follow_debug_registers(&mut self) {
        let now = self.cpu.enabled_breakpoints();
        self.watch_for_guest(now);
    }
}
