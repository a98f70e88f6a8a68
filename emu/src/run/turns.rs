//! The run loop: what happens between two stretches of translated code.
//!
//! Each turn settles the state at an instruction boundary, lets time pass, delivers what is due, and lets
//! the engine run until a hook stops it. Near a deadline, and around instructions that the machine executes
//! itself, it advances one instruction at a time.

use super::interpose::TrapInterposer;
use super::publish::Lent;
use super::step::Permit;
use super::{Core, Halt, Refusal};
use crate::blocks::Cut;
use crate::clock::Moment;
use crate::cpu::deliver::Origin;
use crate::cpu::fault::{Fault, Vector};
use crate::cpu::flags::{IF, VM};
use crate::cpu::state::CrashReport;
use crate::engine::{Exit, Seg, hflags};
use crate::isa::decode::{self, Kind, LONGEST};
use crate::mmu::{Access, error_code};
use crate::panics;
use crate::ram::PAGE;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// Virtual time that HLT may skip without a single instruction before the run ends as idle, ns.
const MAX_IDLE_NS: u64 = 3_600_000_000_000;

/// Why a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The instruction limit was reached, or the alarm ([`Core::set_alarm`]).
    Limit,
    /// HLT with interrupts disabled, or with no event that could wake the CPU.
    Halted,
    /// HLT, with this many ns of virtual time until the next event, or none that would come by itself. Only where
    /// [`Core::stop_when_idle`] has asked for it.
    Idle(Option<u64>),
    /// The watched text number n appeared on the console.
    Text(usize),
    /// The guest asked for a reset.
    Reset(String),
    /// The guest switched the machine off.
    PoweredOff,
    /// The guest wrote this value to the debug-exit port.
    DebugExit(u32),
    /// Triple fault.
    TripleFault(Box<CrashReport>),
    /// A mode or structure that the machine does not run.
    Unsupported(String),
    /// The interposer requested it.
    Requested,
    /// The engine failed for a reason of its own.
    Engine(String),
    /// The machine or its interposer panicked: what, and where. The machine does not run again.
    Panicked(String),
}

impl Core {
    /// Runs until something ends the run. `limit` is an absolute instruction count.
    pub(crate) fn run(&mut self, interposer: Option<&mut dyn TrapInterposer>, limit: u64) -> Stop {
        if let Some(stop) = self.failed() {
            return stop;
        }
        self.verdict = self.postponed.take();
        let ended = panics::noting(|| {
            self.watch_code_pages = interposer.as_ref().is_some_and(|i| i.wants_code_pages());
            self.watch_user_code = interposer.as_ref().is_some_and(|i| i.wants_user_code());
            self.tell_blocks = interposer.as_ref().is_some_and(|i| i.wants_blocks());
            // SAFETY: it is dropped below, while the exclusive borrow is still held.
            self.interposer = interposer.map(|i| unsafe { Lent::new(i) });
            self.begin_pauses();
            self.turns(limit)
        });
        self.interposer = None;
        match ended {
            Ok(stop) => stop,
            Err(text) => {
                self.fail(text);
                self.failed().unwrap_or(Stop::Requested)
            }
        }
    }

    /// Turns of the loop until the run ends.
    fn turns(&mut self, limit: u64) -> Stop {
        let stop = loop {
            if let Some(stop) = self.turn(limit) {
                break stop;
            }
        };
        self.with_interposer(|i, core| i.settled(core));
        stop
    }

    /// The stop of a machine that has failed.
    fn failed(&self) -> Option<Stop> {
        self.failure.clone().map(Stop::Panicked)
    }

    /// Lets runs stop with [`Stop::Limit`] as soon as virtual time has reached `at` nanoseconds, also in HLT; until it
    /// is set anew, later runs stop there at once. The guest cannot observe it.
    pub fn set_alarm(&mut self, at: Option<u64>) {
        self.alarm = at;
    }

    /// The current position in the run. In a trap or a reported access it is the boundary to which the state belongs.
    pub fn moment(&self) -> Moment {
        let clock = &self.cpu.hot.clock;
        let (at, delivered) = self.delivered;
        let delivered = if at == clock.icount { delivered } else { 0 };
        Moment { icount: clock.icount, virtual_ns: clock.now(), delivered }
    }

    /// Ends the run at the next boundary.
    pub fn finish(&mut self, stop: Stop) {
        self.verdict.get_or_insert(stop);
        self.stop_at_boundary();
    }

    /// Has the engine stop at the next boundary.
    pub(crate) fn stop_at_boundary(&mut self) {
        self.halt.get_or_insert(Halt::Finished);
        self.cpu.hot.clock.limit = 0;
    }

    /// Ends the run if a watched text has appeared on the console, or if there is too much text.
    pub(crate) fn stop_at_text(&mut self) {
        if let Some(n) = self.cpu.take_seen_text() {
            self.finish(Stop::Text(n));
        } else if self.cpu.console.is_full() {
            let most = self.cpu.console.most;
            self.finish(Stop::Unsupported(format!("more than {most} bytes of text on the console")));
        }
    }

    /// One turn of the loop.
    fn turn(&mut self, limit: u64) -> Option<Stop> {
        let verdict = self.verdict.take();
        self.look_again();
        self.write_user_registers();
        let now = self.cpu.hot.clock.now();
        // Every stop comes after this, whatever requested it, so a moment has exactly one state.
        self.cpu.platform.advance(now);
        if self.cpu.platform.dma_due(now) {
            self.device_dma(now);
        }
        self.cpu.update_irq();
        if let Some(stop) = verdict {
            self.postponed = self.verdict.take();
            return Some(stop);
        }
        if let Some(stop) = self.verdict.take() {
            return Some(stop);
        }
        if self.cpu.platform.powered_off() {
            return Some(Stop::PoweredOff);
        }
        if let Some(value) = self.cpu.platform.exit_requested() {
            return Some(Stop::DebugExit(value));
        }
        if let Some(reset) = self.cpu.platform.reset_requested() {
            return Some(Stop::Reset(reset.to_string()));
        }
        let here = self.moment();
        let there = self.until.is_some_and(|until| here >= until);
        let there = there || self.alarm.is_some_and(|at| now >= at);
        if here.icount >= limit || there || self.pauses_here() {
            return Some(Stop::Limit);
        }
        self.ends = self.until.map_or(limit, |until| limit.min(until.icount.max(here.icount + 1)));
        if self.cpu.interruptible() {
            self.interrupt();
            return None;
        }
        if self.cpu.halted {
            return self.idle();
        }
        self.set_next_due(now);
        self.halt = None;
        if self.cpu.hot.clock.icount < self.single_step_until.min(self.cpu.hot.clock.deadline) {
            self.advance_one();
            return None;
        }
        self.step.free();
        if self.blocks.are_too_many() {
            self.drop_all_blocks();
        }
        self.give_back();
        self.open_wanted();
        let capped = self.cap_wanted();
        self.replace_wanted(capped);
        self.set_limit();
        let exit = self.run_engine();
        self.put_back(None);
        if capped {
            self.cpu.engine.uncap();
        }
        if exit == Exit::Untranslatable && self.opening.is_some() {
            self.refuse_in_line();
        }
        self.close(None);
        self.after(exit);
        None
    }

    /// Sets what is due next, at virtual time `now`: an event of the devices, the alarm, or the end of the run.
    pub(super) fn set_next_due(&mut self, now: u64) {
        let event = self.cpu.platform.next_event(now).into_iter().chain(self.alarm).min();
        let event = event.map(|t| t.saturating_sub(self.cpu.hot.clock.skipped));
        self.set_due(event.map_or(self.ends, |e| e.min(self.ends)));
    }

    /// Has the block at EIP end before the instruction that is to begin one; whether there is such an instruction.
    fn cap_wanted(&mut self) -> bool {
        let here = self.cpu.linear_ip();
        let Some((_, before)) = self.to_cap.take().filter(|&(at, _)| at == here) else { return false };
        self.cpu.engine.cap_next_block(before.into(), false);
        true
    }

    /// Waits for the next event in HLT.
    fn idle(&mut self) -> Option<Stop> {
        let enabled = self.cpu.env.eflags_raw() & IF != 0;
        if !enabled && !self.cpu.nmi_pending {
            return Some(Stop::Halted);
        }
        let (here, now) = (self.moment(), self.cpu.hot.clock.now());
        let event = self.cpu.platform.next_event(now);
        let event = event.filter(|t| self.idle_ns + t.saturating_sub(now) <= MAX_IDLE_NS);
        // Where a run is to stop in this HLT, input comes in that may wake the CPU.
        let until = self.until.filter(|until| until.icount == here.icount && until.virtual_ns > now);
        let until = until.map(|until| until.virtual_ns);
        if self.stops_when_idle && until.is_none() && event.is_none_or(|t| t > now) {
            let next = event.into_iter().chain(self.alarm).min();
            return Some(Stop::Idle(next.map(|t| t.saturating_sub(now))));
        }
        let Some(t) = event.into_iter().chain(until).min() else { return Some(Stop::Halted) };
        // An event at `now` itself still has to make progress.
        let skip = self.alarm.map_or(t, |alarm| t.min(alarm)).saturating_sub(now).max(1);
        self.cpu.hot.clock.skipped += skip;
        self.idle_ns += skip;
        None
    }

    /// Whether runs stop with [`Stop::Idle`] where HLT would skip time. The guest cannot observe it: to skip the time,
    /// or part of it, [run on to the moment](crate::Machine::run_until) at the end of it.
    pub fn stop_when_idle(&mut self, stops: bool) {
        self.stops_when_idle = stops;
    }

    /// Takes the pending NMI or external interrupt.
    fn interrupt(&mut self) {
        self.idle_ns = 0;
        self.with_interposer(|i, core| i.interrupting(core));
        let ip = self.cpu.env.eip();
        if self.cpu.nmi_pending && !self.cpu.nmi_blocked {
            self.cpu.nmi_pending = false;
            self.cpu.nmi_blocked = true;
            self.deliver(Vector::Nmi as u8, None, Origin::External, ip, ip);
            return;
        }
        let vector = self.cpu.platform.intr_ack(self.cpu.hot.clock.now());
        self.cpu.update_irq();
        self.deliver(vector, None, Origin::External, ip, ip);
    }

    /// Asserts NMI.
    pub fn raise_nmi(&mut self) {
        self.cpu.nmi_pending = true;
        self.cpu.hot.clock.limit = 0;
    }

    /// Handles the reason for which the engine returned.
    fn after(&mut self, exit: Exit) {
        self.idle_ns = 0;
        match exit {
            Exit::Refused => {
                let refusal = self.refusal.take();
                self.refused(refusal);
            }
            Exit::Untranslatable => self.untranslatable(),
            Exit::Aborted => {
                let at = self.cpu.env.eip();
                self.fail(format!("the engine aborted in the block at or before {at:#x}"));
            }
            Exit::Failed(error) => {
                let at = self.cpu.env.eip();
                self.finish(Stop::Engine(format!("the engine gave up at {at:#x}: {error:?}")));
            }
            Exit::Stopped => {
                self.settle();
                let halt = self.halt.take();
                self.halted_by(halt);
            }
        }
    }

    /// The engine has no code for an instruction of the block at EIP, of which nothing has run: the machine continues
    /// by single instructions.
    fn untranslatable(&mut self) {
        // What is due at this boundary comes first.
        let due = self.cpu.hot.clock.icount >= self.cpu.hot.clock.deadline || self.cpu.interruptible();
        self.settle();
        match self.halt.take() {
            Some(halt) => self.halted_by(Some(halt)),
            None if !due => self.advance_one(),
            None => {}
        }
    }

    /// The engine has no code for the instruction at EIP alone. The CPU model does not have it.
    fn untranslatable_alone(&mut self) {
        self.settle();
        let length = self.cpu.decode_original(self.cpu.linear_ip()).map_or(1, |i| i.len());
        self.commit_own_fetch(self.cpu.linear_ip(), length);
        self.raise_fault(Fault::ud());
    }

    pub(crate) fn halted_by(&mut self, halt: Option<Halt>) {
        match halt {
            Some(Halt::Deadline) => {
                self.single_step_until = self.cpu.hot.clock.deadline;
                if self.cpu.hot.clock.icount < self.cpu.hot.clock.deadline {
                    self.advance_one();
                }
            }
            Some(Halt::Cut(Cut::Begins, before)) => self.to_cap = Some((self.cpu.linear_ip(), before)),
            Some(Halt::Cut(cut, before)) => {
                if before == 0 || self.stepped_exactly(before) {
                    self.execute_cut(cut);
                }
            }
            Some(Halt::StepSite) => self.step_site(),
            Some(Halt::NotInLine) => self.refuse_in_line(),
            Some(Halt::Open) => self.open_next(),
            Some(Halt::Hit) => self.hit_here(),
            Some(Halt::Reported(waits)) => self.execute_reported(waits),
            Some(Halt::Renew) => self.translate_anew(),
            Some(Halt::Fault(fault)) => self.raise_fault(fault),
            Some(Halt::Unsupported) => {
                let what = self.unsupported_mode();
                self.finish(Stop::Unsupported(what));
            }
            Some(Halt::Interrupt | Halt::Finished) | None => {}
        }
    }

    /// Executes the instruction at EIP, before which its block was cut.
    fn execute_cut(&mut self, cut: Cut) {
        match cut {
            Cut::Sensitive => self.advance_one(),
            Cut::Overlapped => {
                self.note_clobbered();
                self.step_original();
            }
            Cut::Watched => self.execute_watched(),
            Cut::Begins => {}
        }
    }

    /// Steps `n` instructions; returns whether exactly those have run.
    fn stepped_exactly(&mut self, n: u16) -> bool {
        let before = self.cpu.hot.clock.icount;
        self.step(n.into());
        self.cpu.hot.clock.icount == before + u64::from(n) && self.halt.is_none()
    }

    fn unsupported_mode(&self) -> String {
        let what = if self.cpu.env.hflags() & hflags::PE == 0 {
            "real mode, which the guest entered"
        } else if self.cpu.env.eflags_raw() & VM != 0 {
            "virtual-8086 mode, which the guest entered"
        } else {
            "16-bit code and stack segments, one of which the guest uses"
        };
        format!("{what} at CS:IP {:#x}:{:#x}", self.cpu.env.seg(Seg::Cs).selector, self.cpu.env.eip())
    }

    /// Executes the instruction at EIP: in Rust if it is sensitive, else by one step of the engine.
    pub(crate) fn advance_one(&mut self) {
        let pc = self.cpu.linear_ip();
        if let Some(fault) = self.announce_user_code(pc) {
            return self.raise_fault(fault);
        }
        if self.watched_code(pc) && !self.step.may_execute(pc) {
            return self.execute_watched();
        }
        // Earlier instructions of its block may have rewritten it.
        self.refresh_view(pc);
        if self.overlapped(pc) || self.is_clobbered(pc) {
            return self.step_original();
        }
        match self.decode_at(pc) {
            Some(i) if self.is_by_machine(&i) => self.execute_sensitive(&i),
            Some(_) => self.step(1),
            None if !self.patched(pc) && self.refuse_undefined() => {}
            None => self.step(1),
        }
    }

    /// Whether the machine executes the instruction at EIP: IRET only if it returns to another task.
    fn is_by_machine(&self, i: &Instruction) -> bool {
        let kind = self.cpu.kind(i);
        kind.by_machine() || kind == Kind::Iret && self.cpu.returns_to_task()
    }

    /// Lets the engine run one block of at most `n` instructions, and handles the outcome.
    pub(crate) fn step(&mut self, n: u32) {
        self.steps += 1;
        self.halt = None;
        self.step.cap(n);
        self.cpu.hot.clock.limit = 0;
        self.cpu.engine.cap_next_block(n, self.step.is_unpatched());
        let exit = self.run_engine();
        self.cpu.engine.uncap();
        self.step.free();
        match exit {
            Exit::Stopped => {
                let abandoned = n > 1 && self.undo_abandoned();
                self.settle();
                if abandoned {
                    self.step(1);
                } else if matches!(
                    self.halt,
                    Some(
                        Halt::StepSite
                            | Halt::Hit
                            | Halt::Unsupported
                            | Halt::Cut(Cut::Overlapped | Cut::Watched, _)
                            | Halt::Fault(_)
                    )
                ) {
                    let halt = self.halt.take();
                    self.halted_by(halt);
                } else if self.views.active.is_some_and(|s| s.contains(self.cpu.env.eip())) {
                    self.step(1);
                }
            }
            Exit::Untranslatable if n == 1 => self.untranslatable_alone(),
            Exit::Untranslatable => self.untranslatable(),
            other => self.after(other),
        }
    }

    /// Steps the displaced instruction at EIP with the guest's own bytes.
    fn step_site(&mut self) {
        let (before, site) = (self.cpu.hot.clock.icount, self.cpu.linear_ip());
        let repeats = self.cpu.decode_original(site).is_some_and(|i| decode::repeats(&i));
        self.step_original();
        self.tell_end(before, repeats && self.cpu.linear_ip() == site);
    }

    /// Executes the instruction at EIP from the guest's own bytes.
    fn step_original(&mut self) {
        match self.cpu.decode_original(self.cpu.linear_ip()) {
            Some(i) if self.is_by_machine(&i) => self.execute_sensitive(&i),
            Some(i) => self.step_unpatched(i.len()),
            None if self.refuse_undefined() => {}
            None => self.step_unpatched(LONGEST),
        }
    }

    pub(crate) fn displaced_faulted(&mut self) {
        self.with_interposer(|i, core| i.faulted(core));
    }

    /// If a displaced instruction faulted out of line, makes it look as if it had faulted at its site.
    pub(crate) fn leave_slot_on_fault(&mut self) {
        self.views.hide_slot_from_fpu(&self.cpu);
        if let Some(slot) = self.views.active.take()
            && slot.contains(self.cpu.env.eip())
        {
            self.cpu.env.set_eip(slot.site);
            self.cpu.hot.clock.icount -= 1;
            self.cpu.hot.last = None;
            self.displaced_faulted();
        }
    }

    /// An access that the fill hook refused. The state is that before the instruction.
    fn refused(&mut self, refusal: Option<(Refusal, u64, Access)>) {
        let Some((refusal, page, access)) = refusal else {
            self.finish(Stop::Engine("the engine reported a refused access that was none".into()));
            return;
        };
        if access != Access::Fetch && self.is_in_line_site(self.cpu.linear_ip()) {
            return self.step_in_line_site();
        }
        if matches!(refusal, Refusal::Watched | Refusal::Device) {
            self.put_flags_back();
            return if refusal == Refusal::Watched { self.step_watched() } else { self.access_device() };
        }
        if access == Access::Fetch
            && (self.cpu.hot.clock.icount >= self.cpu.hot.clock.deadline || self.cpu.interruptible())
        {
            // What is due at this boundary comes before the next instruction's fetch (SDM volume 3, 6.9).
            self.settle();
            return;
        }
        if access != Access::Fetch {
            self.leave_slot_on_fault();
            self.rewind(self.cpu.linear_ip());
        }
        let address = match access {
            Access::Fetch if self.cpu.linear_ip() & !(PAGE - 1) == page => self.cpu.linear_ip(),
            Access::Fetch => page,
            _ => self.cpu.engine.refused_address(),
        };
        self.settle();
        self.put_flags_back();
        match refusal {
            Refusal::PageFault(mut code) => {
                if access == Access::Read
                    && self
                        .decode_original(self.cpu.linear_ip())
                        .is_some_and(|i| decode::is_read_modify_write(&i))
                {
                    code |= error_code::WRITE;
                }
                self.raise_fault(Fault::page(code, address));
            }
            Refusal::NonCanonical => self.raise_fault(self.non_canonical(access)),
            Refusal::SecondPage => self.advance_one(),
            Refusal::OwnPage => {
                self.permitting(Permit::OwnPage, |core| core.step(1));
            }
            Refusal::Watched | Refusal::Device => {}
            Refusal::FetchVoid => self.raise_fault(Fault::ud()),
            Refusal::Stub => self.call_stub(),
        }
    }

    /// #SS(0) when the access was to the stack, else #GP(0) (SDM volume 3, 6.15).
    fn non_canonical(&self, access: Access) -> Fault {
        use iced_x86::Register::{RBP, RSP};
        let on_stack = |i: Instruction| {
            let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
            // PUSH and CALL read their operand, POP writes it; their other access is to the stack.
            let operand = memory && (access == Access::Write) == (i.mnemonic() == Mnemonic::Pop);
            i.is_stack_instruction() && !operand || matches!(i.memory_base(), RSP | RBP)
        };
        let stack = self.decode_original(self.cpu.linear_ip()).is_some_and(on_stack);
        if stack { Fault { vector: Vector::Stack as u8, error: Some(0), cr2: None } } else { Fault::gp(0) }
    }
}
