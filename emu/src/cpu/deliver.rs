//! Exceptions and interrupts through the guest's IDT, in Rust over host-owned RAM.
//!
//! Source: Intel SDM volume 3, chapter 6 (6.12 exception and interrupt handling, 6.14 64-bit mode, 6.15
//! exception reference). 32- and 64-bit interrupt and trap gates, privilege change with the TSS's stacks,
//! IST, error codes, double fault, triple fault; task gates (`task`). 16-bit gates end the run with a sentence.

use super::Cpu;
use super::access::canonical;
use super::descriptor::{ACCESSED, Descriptor};
use super::fault::{Failed, Fault, Vector};
use super::flags::{IF, NT, RF, TF, VM};
use super::outcome::By;
use super::stack::StackShape;
use crate::engine::{Seg, Segment};

/// How an event came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A fault-class exception: EIP is the instruction.
    Fault,
    /// A trap-class exception (#DB after an instruction).
    Trap,
    /// INT n, INT3, INTO: the gate's DPL is checked.
    Software,
    /// INT1, which raises #DB as a trap; the gate's DPL is not checked (SDM volume 2, INT n).
    Int1,
    /// An external interrupt or NMI.
    External,
}

/// Why an event cannot be delivered to the guest.
pub(crate) enum Undeliverable {
    /// A feature that the machine does not support.
    Unsupported(String),
    /// A triple fault, with the vectors in the order in which they were raised.
    TripleFault(Vec<u8>),
}

/// Vectors that push an error code (SDM volume 3, table 6-1).
fn has_error_code(vector: u8) -> bool {
    matches!(vector, 8 | 10..=14 | 17)
}

/// The type of a task gate in the IDT.
const TASK_GATE: u32 = 5;
/// The D/B bit of a segment's attributes.
const DB: u32 = 1 << 22;

/// #DE, #TS, #NP, #SS, #GP: "contributory" (SDM volume 3, table 6-4).
fn contributory(vector: u8) -> bool {
    matches!(vector, 0 | 10..=13)
}

/// Bytes that a delivery has stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    /// Linear address.
    pub at: u64,
    pub len: u32,
    /// What was there before.
    pub old: [u8; 8],
}

/// Pushes onto a new stack without touching the CPU state until all has gone well.
struct Stack {
    pointer: u64,
    shape: StackShape,
    user: bool,
    width: usize,
}

impl Stack {
    fn push(&mut self, cpu: &mut Cpu, value: u64) -> Result<(), Failed> {
        self.pointer = self.pointer.wrapping_sub(self.width as u64);
        let at = cpu.wrap_linear(self.shape.linear(self.pointer));
        cpu.store_noted(at, &value.to_le_bytes()[..self.width], self.user)
    }
}

/// One event on its way through the IDT.
struct Event {
    vector: u8,
    error: Option<u32>,
    origin: Origin,
    /// EIP to push.
    ip: u64,
    /// EIP of the instruction in progress, which a nested fault names.
    at: u64,
    /// EXT bit of nested error codes.
    ext: u32,
}

impl Cpu {
    /// Delivers an event; double and triple faults included. EIP in the frame is `ip`; `at` is the
    /// instruction in progress, which did not retire if its own delivery faults.
    pub(crate) fn deliver(
        &mut self,
        vector: u8,
        error: Option<u32>,
        origin: Origin,
        ip: u64,
        at: u64,
    ) -> Result<(), Undeliverable> {
        let ext = u32::from(origin != Origin::Software);
        let mut event = Event { vector, error, origin, ip, at, ext };
        let mut chain = vec![vector];
        self.halted = false;
        if self.env.cpl() == 3 {
            self.note_user_context(ip);
        }
        loop {
            let outcome =
                if self.env.long_mode() { self.deliver_64(&event) } else { self.deliver_32(&event) };
            let (fault, delivered) = match outcome {
                Ok(()) => match self.switched.as_mut().and_then(|switched| switched.fault.take()) {
                    None => return Ok(()),
                    Some(fault) => (fault, true),
                },
                Err(Failed::Unsupported(what)) => return Err(Undeliverable::Unsupported(what)),
                Err(Failed::Nested(fault)) => (fault, false),
            };
            if let Some(cr2) = fault.cr2 {
                self.env.set_cr_raw(2, cr2);
            }
            if event.vector == Vector::DoubleFault as u8 && event.origin == Origin::Fault {
                return Err(Undeliverable::TripleFault(chain));
            }
            if delivered {
                // In the new task, before its first instruction.
                event.at = self.env.eip();
            } else if matches!(event.origin, Origin::Software | Origin::Int1) {
                self.hot.clock.icount -= 1;
                self.env.set_eip(at);
            }
            event = self.combine(&event, fault);
            chain.push(event.vector);
        }
    }

    /// The exception that follows from `fault` during the delivery of `event` (SDM volume 3, table 6-5).
    fn combine(&self, event: &Event, fault: Fault) -> Event {
        let first_fault = event.origin == Origin::Fault;
        let double = first_fault
            && ((contributory(event.vector) && contributory(fault.vector))
                || (event.vector == 14 && (contributory(fault.vector) || fault.vector == 14)));
        let (vector, error) = if double { (8, Some(0)) } else { (fault.vector, fault.error) };
        Event { vector, error, origin: Origin::Fault, ip: event.at, at: event.at, ext: 1 }
    }

    fn pushed_flags(&self, event: &Event) -> u64 {
        let flags = self.eflags();
        // SDM volume 3, 17.3.1.1: fault-class exceptions push RF set, but not instruction breakpoints.
        match event.origin {
            Origin::Fault if event.vector != Vector::Debug as u8 => flags | RF,
            Origin::External if self.resumes_at_breakpoint() => flags,
            _ => flags & !RF,
        }
    }

    fn gate_error(event: &Event) -> u32 {
        u32::from(event.vector) * 8 + 2 + event.ext
    }

    fn deliver_32(&mut self, event: &Event) -> Result<(), Failed> {
        let idt = self.env.idt();
        let at = u32::from(event.vector) * 8;
        if at + 7 > idt.limit {
            return Err(Fault::gp(Self::gate_error(event)).into());
        }
        let address = self.wrap_linear(idt.base.wrapping_add(at.into()));
        let (low, high) =
            (self.kernel_u32(address)?, self.kernel_u32(self.wrap_linear(address.wrapping_add(4)))?);
        let kind = high >> 8 & 0x1f;
        match kind {
            0xe | 0xf | TASK_GATE => {}
            6 | 7 => {
                return Err(Failed::Unsupported(format!(
                    "16-bit gates, one of which the guest has for vector {}",
                    event.vector
                )));
            }
            _ => return Err(Fault::gp(Self::gate_error(event)).into()),
        }
        let cpl = self.env.cpl();
        if event.origin == Origin::Software && ((high >> 13 & 3) as u8) < cpl {
            return Err(Fault::gp(u32::from(event.vector) * 8 + 2).into());
        }
        if high & 0x8000 == 0 {
            return Err(Fault::with(Vector::NotPresent, Self::gate_error(event)).into());
        }
        let selector = (low >> 16) as u16;
        if kind == TASK_GATE {
            let by = By::Event { ext: event.ext, error: self.error_to_push(event) };
            self.switched = Some(self.switch_task(selector, by, event.ip, self.pushed_flags(event))?);
            return Ok(());
        }
        let target = u64::from((low & 0xffff) | (high & 0xffff_0000));
        let code = self.gate_code(selector, cpl, event)?;
        let inner = !code.conforming() && code.dpl() < cpl;
        let new_cpl = if inner { code.dpl() } else { cpl };
        let (old_ss, old_sp) = (self.env.seg(Seg::Ss), self.env.gpr(4));
        let (ss, sp) =
            if inner { self.inner_stack_32(new_cpl, event)? } else { (old_ss, old_sp & 0xffff_ffff) };
        let shape = StackShape::segmented(ss.base, ss.flags & DB != 0);
        let mut stack = Stack { pointer: sp, shape, user: new_cpl == 3, width: 4 };
        if inner {
            stack.push(self, old_ss.selector.into())?;
            stack.push(self, old_sp)?;
        }
        self.push_frame(&mut stack, event)?;
        self.enter_handler(code, selector, new_cpl, target, kind == 0xe)?;
        if inner {
            self.env.load_seg(Seg::Ss, ss);
        }
        self.env.set_cpl(new_cpl);
        self.env.set_gpr(4, shape.register(old_sp, stack.pointer));
        Ok(())
    }

    /// Pushes what every frame ends with: flags, CS, instruction pointer, and an error code where there is one.
    fn push_frame(&mut self, stack: &mut Stack, event: &Event) -> Result<(), Failed> {
        stack.push(self, self.pushed_flags(event))?;
        stack.push(self, self.env.seg(Seg::Cs).selector.into())?;
        stack.push(self, event.ip)?;
        if let Some(error) = self.error_to_push(event) {
            stack.push(self, error.into())?;
        }
        Ok(())
    }

    fn error_to_push(&self, event: &Event) -> Option<u32> {
        if event.origin == Origin::Software || event.origin == Origin::External {
            return None;
        }
        has_error_code(event.vector).then(|| event.error.unwrap_or(0))
    }

    /// The gate's code segment, checked.
    fn gate_code(&mut self, selector: u16, cpl: u8, event: &Event) -> Result<Descriptor, Failed> {
        if selector & !3 == 0 {
            return Err(Fault::gp(event.ext).into());
        }
        let error = u32::from(selector & !3) + event.ext;
        let code = self.descriptor(selector).ok_or(Failed::Nested(Fault::gp(error)))??;
        if !code.is_code() || code.dpl() > cpl {
            return Err(Fault::gp(error).into());
        }
        if !code.present() {
            return Err(Fault::with(Vector::NotPresent, error).into());
        }
        Ok(code)
    }

    /// Linear address of a descriptor; `None` when the selector lies outside its table.
    pub(super) fn descriptor_address(&self, selector: u16) -> Option<u64> {
        let table = if selector & 4 != 0 { self.env.ldt() } else { self.env.gdt() };
        let offset = u32::from(selector & !7);
        if offset + 7 > table.limit || (selector & 4 != 0 && table.selector & !3 == 0) {
            return None;
        }
        Some(self.wrap_linear(table.base.wrapping_add(offset.into())))
    }

    /// Reads a descriptor; `None` when the selector lies outside its table.
    pub(super) fn descriptor(&mut self, selector: u16) -> Option<Result<Descriptor, Failed>> {
        let address = self.descriptor_address(selector)?;
        let read = |cpu: &mut Cpu| -> Result<Descriptor, Failed> {
            let low = cpu.kernel_u32(address)?;
            let high = cpu.kernel_u32(cpu.wrap_linear(address.wrapping_add(4)))?;
            Ok(Descriptor::new(low, high, address))
        };
        Some(read(self))
    }

    /// SS:ESP for `cpl` out of a 32-bit TSS.
    fn inner_stack_32(&mut self, cpl: u8, event: &Event) -> Result<(Segment, u64), Failed> {
        let tr = self.env.tr();
        let error = (tr.selector & 0xfffc) + event.ext;
        if tr.flags >> 8 & 0xd != 9 {
            return Err(Failed::Unsupported(
                "16-bit task state segments, one of which the guest uses".into(),
            ));
        }
        let offset = 4 + u32::from(cpl) * 8;
        if offset + 5 > tr.limit {
            return Err(Fault::with(Vector::InvalidTss, error).into());
        }
        let at = self.wrap_linear(tr.base.wrapping_add(offset.into()));
        let esp = self.kernel_u32(at)?;
        let selector = self.kernel_u32(self.wrap_linear(at.wrapping_add(4)))? as u16;
        let error = u32::from(selector & 0xfffc) + event.ext;
        let bad = || Failed::Nested(Fault::with(Vector::InvalidTss, error));
        if selector & !3 == 0 {
            return Err(bad());
        }
        let ss = self.descriptor(selector).ok_or_else(bad)??;
        if (selector & 3) as u8 != cpl || ss.dpl() != cpl || !ss.is_writable_data() {
            return Err(bad());
        }
        if !ss.present() {
            return Err(Fault::with(Vector::Stack, error).into());
        }
        self.mark_accessed(ss)?;
        Ok((ss.segment(selector), esp.into()))
    }

    /// Sets a descriptor's accessed bit in memory, as loading it does.
    pub(super) fn mark_accessed(&mut self, d: Descriptor) -> Result<(), Failed> {
        if !d.accessed() {
            let at = self.wrap_linear(d.attributes_at());
            self.store_noted(at, &(d.attributes() | ACCESSED).to_le_bytes(), false)?;
        }
        Ok(())
    }

    /// Stores, and notes that if data is watched.
    fn store_noted(&mut self, at: u64, bytes: &[u8], user: bool) -> Result<(), Failed> {
        let mut old = [0; 8];
        if self.stored.is_some() {
            self.peek_prefix(at, &mut old[..bytes.len()]);
        }
        self.store_bytes(at, bytes, user)?;
        if let Some(stored) = &mut self.stored {
            stored.push(Stored { at, len: bytes.len() as u32, old });
        }
        Ok(())
    }

    /// Loads CS:EIP and clears the flags that a gate clears.
    fn enter_handler(
        &mut self,
        code: Descriptor,
        selector: u16,
        cpl: u8,
        target: u64,
        interrupt_gate: bool,
    ) -> Result<(), Failed> {
        self.mark_accessed(code)?;
        let mut segment = code.segment((selector & !3) | u16::from(cpl));
        segment.flags |= ACCESSED;
        self.env.load_seg(Seg::Cs, segment);
        let clear = TF | NT | RF | VM | if interrupt_gate { IF } else { 0 };
        self.env.set_eflags_raw(self.env.eflags_raw() & !clear);
        self.env.set_interrupt_shadow(false);
        self.env.set_eip(target);
        Ok(())
    }

    fn deliver_64(&mut self, event: &Event) -> Result<(), Failed> {
        let idt = self.env.idt();
        let at = u32::from(event.vector) * 16;
        if at + 15 > idt.limit {
            return Err(Fault::gp(Self::gate_error(event)).into());
        }
        let address = idt.base.wrapping_add(at.into());
        let low = self.kernel_u32(address)?;
        let high = self.kernel_u32(address.wrapping_add(4))?;
        let top = self.kernel_u32(address.wrapping_add(8))?;
        let kind = high >> 8 & 0x1f;
        if kind != 0xe && kind != 0xf {
            return Err(Fault::gp(Self::gate_error(event)).into());
        }
        let cpl = self.env.cpl();
        if event.origin == Origin::Software && ((high >> 13 & 3) as u8) < cpl {
            return Err(Fault::gp(u32::from(event.vector) * 8 + 2).into());
        }
        if high & 0x8000 == 0 {
            return Err(Fault::with(Vector::NotPresent, Self::gate_error(event)).into());
        }
        let selector = (low >> 16) as u16;
        let target = u64::from((low & 0xffff) | (high & 0xffff_0000)) | u64::from(top) << 32;
        let code = self.gate_code(selector, cpl, event)?;
        if !code.long() || code.big() {
            return Err(Fault::gp(u32::from(selector & !3) + event.ext).into());
        }
        let inner = !code.conforming() && code.dpl() < cpl;
        let new_cpl = if inner { code.dpl() } else { cpl };
        let ist = high & 7;
        let (old_ss, old_sp) = (self.env.seg(Seg::Ss), self.env.gpr(4));
        let sp = if ist != 0 {
            self.tss_u64(28 + ist * 8, event)?
        } else if inner {
            self.tss_u64(4 + u32::from(new_cpl) * 8, event)?
        } else {
            old_sp
        };
        let mut stack = Stack { pointer: sp & !15, shape: StackShape::WIDE, user: new_cpl == 3, width: 8 };
        stack.push(self, old_ss.selector.into())?;
        stack.push(self, old_sp)?;
        self.push_frame(&mut stack, event)?;
        self.enter_handler(code, selector, new_cpl, target, kind == 0xe)?;
        if inner {
            // A null selector with RPL = the new CPL (SDM volume 3, 6.14.2).
            let ss = Segment::new(new_cpl.into(), 0, 0, u32::from(new_cpl) << 13);
            self.env.load_seg(Seg::Ss, ss);
        }
        self.env.set_cpl(new_cpl);
        self.env.set_gpr(4, stack.pointer);
        Ok(())
    }

    fn tss_u64(&mut self, offset: u32, event: &Event) -> Result<u64, Failed> {
        let tr = self.env.tr();
        if offset + 7 > tr.limit {
            let error = (tr.selector & 0xfffc) + event.ext;
            return Err(Fault::with(Vector::InvalidTss, error).into());
        }
        let at = tr.base.wrapping_add(offset.into());
        let value = u64::from(self.kernel_u32(at)?) | u64::from(self.kernel_u32(at.wrapping_add(4))?) << 32;
        if !canonical(value) {
            return Err(Fault::with(Vector::Stack, event.ext).into());
        }
        Ok(value)
    }

    /// A supervisor read of 32 bits, as of a descriptor table.
    pub(crate) fn kernel_u32(&mut self, va: u64) -> Result<u32, Fault> {
        let mut bytes = [0; 4];
        self.load_bytes(va, &mut bytes, false)?;
        Ok(u32::from_le_bytes(bytes))
    }
}
