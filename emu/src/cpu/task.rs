//! Hardware task switches of 32-bit protected mode (SDM volume 3, chapter 8): far CALL and JMP to a TSS or through a task
//! gate, IRET with NT set, and task gates in the IDT.
//!
//! The engine is not asked: it would drop its own TLB for the new task's CR3, but not the architectural one, and it stores
//! part of a state before an access that it may have to repeat. What can fault in the old task is read, checked and made
//! writable first. From then on the switch is done, and what is wrong with the new task's segments is a fault in the new
//! task, before its first instruction.
//!
//! Not supported, and told so: 16-bit task state segments and virtual-8086 tasks.

use super::Cpu;
use super::control::CR0_PG;
use super::descriptor::{ACCESSED, Descriptor};
use super::fault::{Failed, Fault, Vector};
use super::flags::{NT, RF, VM};
use super::outcome::{Accesses, By, Done, Then};
use super::stack::StackShape;
use crate::engine::{Seg, Segment, hflags};
use crate::mmu::Access;
use iced_x86::{Instruction, MemorySize, OpKind};

/// Bytes of a 32-bit TSS that a switch reads (SDM volume 3, figure 8-2), and the limit that it needs.
const BYTES: usize = 0x68;
const LEAST_LIMIT: u32 = BYTES as u32 - 1;
/// Offsets in it. The link to the previous task; CR3; what a switch saves: EIP, EFLAGS, eight registers, six selectors; the
/// selector of the LDT; the word whose bit 0 asks for a trap.
const LINK: u64 = 0;
const CR3: usize = 28;
const EIP: usize = 32;
const EFLAGS: usize = 36;
const REGISTERS: usize = 40;
const SELECTORS: usize = 72;
const LDT: usize = 96;
const TRAP: usize = 100;
/// The busy bit in the second word of a TSS descriptor.
const BUSY: u32 = 0x200;
/// The types of system descriptors, without the busy bit of a TSS.
const NARROW_TSS: u32 = 1;
const LDT_TYPE: u32 = 2;
const TASK_GATE: u32 = 5;
const TSS: u32 = 9;
/// The flags that there are; the others stay clear.
const KNOWN_FLAGS: u64 = 0x3f_7fd7;
/// CR0.TS.
const TASK_SWITCHED: u64 = 8;
/// The breakpoints that DR7 enables for one task, and LE.
const LOCAL_BREAKPOINTS: u64 = 0x155;
/// The segment registers in the order of their selectors in a TSS.
const SEGS: [Seg; 6] = [Seg::Es, Seg::Cs, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs];

/// What is left to do after a task switch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Switched {
    /// A fault in the new task, in place of its first instruction.
    pub fault: Option<Fault>,
    /// The new task's TSS asks for #DB before its first instruction.
    pub trap: bool,
    /// The old task has returned: NMIs come again.
    pub by_iret: bool,
}

/// The new task's state as its TSS has it.
struct NewTask([u8; BYTES]);

impl NewTask {
    fn word(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    fn selector(&self, at: usize) -> u16 {
        self.word(at) as u16
    }
}

fn invalid(selector: u16, by: By) -> Fault {
    Fault::with(Vector::InvalidTss, u32::from(selector & !3) + by.ext())
}

fn protection(selector: u16, by: By) -> Fault {
    Fault::gp(u32::from(selector & !3) + by.ext())
}

impl Cpu {
    /// Whether IRET would return to another task here.
    pub(crate) fn returns_to_task(&self) -> bool {
        self.env.eflags_raw() & (NT | VM) == NT && !self.env.long_mode()
    }

    /// IRET with NT set: back to the task that the TSS's link names.
    pub(super) fn task_return(&mut self, i: &Instruction) -> Result<Done, Fault> {
        if i.has_lock_prefix() || !self.returns_to_task() {
            return Ok(Done::ByEngine(Then::Nothing));
        }
        let link = self.wrap_linear(self.env.tr().base.wrapping_add(LINK));
        let mut bytes = [0; 2];
        self.load_bytes(link, &mut bytes, false)?;
        self.switch_by_instruction(i, u16::from_le_bytes(bytes), By::Return)
    }

    /// A far CALL or JMP: a task switch, or what the engine executes, perhaps through a call gate to an inner ring.
    pub(super) fn far_transfer(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Done, Fault> {
        if let Some((selector, gate)) = self.task_operand(i) {
            let linear = self.wrap_linear(self.effective_address(i));
            if i.op0_kind() == OpKind::Memory {
                self.load(linear, 4, told)?;
                self.load(self.wrap_linear(linear.wrapping_add(4)), 2, told)?;
            }
            return self.call_task(i, selector, gate);
        }
        let inner = (self.env.cpl() == 3).then(|| self.user_registers(self.next_ip(i)));
        Ok(Done::ByEngine(inner.map_or(Then::Nothing, Then::NoteEntry)))
    }

    fn next_ip(&self, i: &Instruction) -> u64 {
        self.wrap_ip(self.env.eip().wrapping_add(i.len() as u64))
    }

    /// The selector of a far transfer to a task, and the TSS's selector if it names a task gate. Nothing is changed.
    fn task_operand(&self, i: &Instruction) -> Option<(u16, Option<u16>)> {
        if self.env.long_mode() || i.has_lock_prefix() || self.env.eflags_raw() & VM != 0 {
            return None;
        }
        let selector = match i.op0_kind() {
            OpKind::FarBranch16 | OpKind::FarBranch32 => i.far_branch_selector(),
            OpKind::Memory => {
                let offset = if i.memory_size() == MemorySize::SegPtr16 { 2 } else { 4 };
                let mut bytes = [0; 2];
                let at = self.wrap_linear(self.effective_address(i).wrapping_add(offset));
                self.peek(at, &mut bytes).ok()?;
                u16::from_le_bytes(bytes)
            }
            _ => return None,
        };
        let descriptor = self.peek_descriptor(selector)?;
        match descriptor.system_type()? {
            NARROW_TSS | TSS => Some((selector, None)),
            TASK_GATE => Some((selector, Some(descriptor.gate_selector()))),
            _ => None,
        }
    }

    /// Checks the privilege of a far CALL or JMP to a task, and switches.
    fn call_task(&mut self, i: &Instruction, selector: u16, gate: Option<u16>) -> Result<Done, Fault> {
        let by = if i.is_call_far() || i.is_call_far_indirect() { By::Call } else { By::Jump };
        let Some(descriptor) = self.peek_descriptor(selector) else {
            return Err(protection(selector, by));
        };
        let asks = self.env.cpl().max((selector & 3) as u8);
        if descriptor.dpl() < asks {
            return Err(protection(selector, by));
        }
        if !descriptor.present() {
            return Err(Fault::with(Vector::NotPresent, u32::from(selector & !3)));
        }
        self.switch_by_instruction(i, gate.unwrap_or(selector), by)
    }

    fn switch_by_instruction(&mut self, i: &Instruction, selector: u16, by: By) -> Result<Done, Fault> {
        let (next, flags) = (self.next_ip(i), self.eflags() & !RF);
        match self.switch_task(selector, by, next, flags) {
            Ok(switched) => {
                self.switched = Some(switched);
                Ok(Done::Jumped)
            }
            Err(Failed::Nested(fault)) => Err(fault),
            Err(Failed::Unsupported(what)) => Ok(Done::Unsupported(what)),
        }
    }

    /// Switches to the task whose TSS `selector` names. The old task is saved with this EIP and these flags.
    pub(super) fn switch_task(
        &mut self,
        selector: u16,
        by: By,
        ip: u64,
        flags: u64,
    ) -> Result<Switched, Failed> {
        let descriptor = self.task_descriptor(selector, by)?;
        let (old, new) = (self.old_task()?, descriptor.segment(selector));
        let task = self.new_task(new)?;
        self.make_writable(old, (new, descriptor), by)?;
        if u64::from(task.word(EFLAGS)) & VM != 0 {
            return Err(Failed::Unsupported(
                "virtual-8086 mode, which a task that the guest switched to is in".into(),
            ));
        }
        let user = (self.env.cpl() == 3).then(|| self.user_registers(ip));
        self.save_task(old, ip, if by == By::Return { flags & !NT } else { flags })?;
        self.mark_busy(old, (new, descriptor), by)?;
        self.env.set_tr(new);
        let ready = self.enter_task(&task, by);
        if let Some(context) = user.filter(|_| self.env.cpl() < 3) {
            self.note_user_registers(context);
        }
        let trap = task.word(TRAP) & 1 != 0;
        Ok(Switched { fault: ready.err(), trap, by_iret: by == By::Return })
    }

    /// The descriptor of the new task's TSS: in the GDT, present, long enough, and busy only for IRET.
    fn task_descriptor(&mut self, selector: u16, by: By) -> Result<Descriptor, Failed> {
        let refused = if by == By::Return { invalid(selector, by) } else { protection(selector, by) };
        if selector & 4 != 0 || selector & !3 == 0 {
            return Err(refused.into());
        }
        let descriptor = self.descriptor(selector).ok_or(Failed::Nested(refused))??;
        let busy = descriptor.attributes() & BUSY != 0;
        match descriptor.system_type().map(|kind| kind & !(BUSY >> 8)) {
            Some(TSS | NARROW_TSS) if busy == (by == By::Return) => {}
            _ => return Err(refused.into()),
        }
        if !descriptor.present() {
            return Err(Fault::with(Vector::NotPresent, u32::from(selector & !3) + by.ext()).into());
        }
        if descriptor.system_type().is_some_and(|kind| kind & 8 == 0) {
            return Err(Failed::Unsupported(
                "16-bit task state segments, to one of which the guest switched".into(),
            ));
        }
        if descriptor.segment(selector).limit < LEAST_LIMIT {
            return Err(invalid(selector, by).into());
        }
        Ok(descriptor)
    }

    /// The TSS of the task that runs.
    fn old_task(&self) -> Result<Segment, Failed> {
        let old = self.env.tr();
        if old.selector & !3 == 0 {
            return Err(Failed::Unsupported(
                "task switches without a task, one of which the guest asked for".into(),
            ));
        }
        if old.flags >> 8 & 0xd != TSS {
            return Err(Failed::Unsupported(
                "16-bit task state segments, one of which the guest uses".into(),
            ));
        }
        if old.limit < LEAST_LIMIT {
            return Err(Fault::with(Vector::InvalidTss, old.selector & 0xfffc).into());
        }
        Ok(old)
    }

    fn new_task(&mut self, new: Segment) -> Result<NewTask, Failed> {
        let mut bytes = [0; BYTES];
        for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
            let at = self.wrap_linear(new.base.wrapping_add(8 * n as u64));
            self.load_bytes(at, word, false)?;
        }
        Ok(NewTask(bytes))
    }

    /// Has all faults that the stores of the switch could raise, before any of them.
    fn make_writable(
        &mut self,
        old: Segment,
        (new, descriptor): (Segment, Descriptor),
        by: By,
    ) -> Result<(), Failed> {
        let mut stores = vec![
            old.base.wrapping_add(EIP as u64),
            old.base.wrapping_add(LDT as u64 - 1),
            descriptor.attributes_at(),
            descriptor.attributes_at().wrapping_add(3),
        ];
        if by.nests() {
            stores.extend([new.base.wrapping_add(LINK), new.base.wrapping_add(LINK + 1)]);
        } else if let Some(address) = self.descriptor_address(old.selector as u16) {
            stores.extend([address.wrapping_add(4), address.wrapping_add(7)]);
        }
        for at in stores {
            self.translate(self.wrap_linear(at), Access::Write, false)?;
        }
        Ok(())
    }

    fn save_task(&mut self, old: Segment, ip: u64, flags: u64) -> Result<(), Failed> {
        let at = |offset: usize| old.base.wrapping_add(offset as u64);
        let registers = (0..8).map(|n| (REGISTERS + 4 * n, self.env.gpr(n) as u32));
        let words: Vec<(usize, u32)> =
            [(EIP, ip as u32), (EFLAGS, flags as u32)].into_iter().chain(registers).collect();
        for (offset, value) in words {
            self.store_bytes(self.wrap_linear(at(offset)), &value.to_le_bytes(), false)?;
        }
        for (n, seg) in SEGS.into_iter().enumerate() {
            let selector = self.env.seg(seg).selector as u16;
            self.store_bytes(self.wrap_linear(at(SELECTORS + 4 * n)), &selector.to_le_bytes(), false)?;
        }
        Ok(())
    }

    /// Updates the busy bits and the link: the old task stays busy if the new one is to return to it.
    fn mark_busy(
        &mut self,
        old: Segment,
        (new, descriptor): (Segment, Descriptor),
        by: By,
    ) -> Result<(), Failed> {
        let old_selector = old.selector as u16;
        if by.nests() {
            let link = self.wrap_linear(new.base.wrapping_add(LINK));
            self.store_bytes(link, &old_selector.to_le_bytes(), false)?;
        } else if let Some(Ok(old)) = self.descriptor(old_selector) {
            self.set_attributes(old, old.attributes() & !BUSY)?;
        }
        if by != By::Return {
            self.set_attributes(descriptor, descriptor.attributes() | BUSY)?;
        }
        Ok(())
    }

    fn set_attributes(&mut self, descriptor: Descriptor, attributes: u32) -> Result<(), Failed> {
        let at = self.wrap_linear(descriptor.attributes_at());
        Ok(self.store_bytes(at, &attributes.to_le_bytes(), false)?)
    }

    /// Loads the new task's state. A fault is the new task's.
    fn enter_task(&mut self, task: &NewTask, by: By) -> Result<(), Fault> {
        let env = *self.env;
        env.set_cr_raw(0, env.cr(0) | TASK_SWITCHED);
        env.set_hflags(env.hflags() | hflags::TS);
        let cr3 = u64::from(task.word(CR3));
        if env.cr(0) & CR0_PG != 0 && cr3 != env.cr(3) {
            self.switch_space(cr3);
        }
        let nested = if by.nests() { NT } else { 0 };
        env.set_eflags(u64::from(task.word(EFLAGS)) & KNOWN_FLAGS | nested);
        env.set_eip(task.word(EIP).into());
        (0..8).for_each(|n| env.set_gpr(n, task.word(REGISTERS + 4 * n).into()));
        env.set_interrupt_shadow(false);
        env.set_dr_raw(7, env.dr(7) & !LOCAL_BREAKPOINTS);
        // Until a descriptor is loaded, a segment register has its selector only.
        let selectors: [u16; 6] = std::array::from_fn(|n| task.selector(SELECTORS + 4 * n));
        for (seg, selector) in SEGS.into_iter().zip(selectors) {
            env.load_seg(seg, Segment::new(selector, 0, 0, 0));
        }
        let [es, cs, ss, ds, fs, gs] = selectors;
        let cpl = (cs & 3) as u8;
        env.set_cpl(cpl);
        self.load_ldt(task.selector(LDT), by)?;
        self.load_code(cs, by)?;
        self.load_stack(ss, cpl, by)?;
        for (seg, selector) in [(Seg::Ds, ds), (Seg::Es, es), (Seg::Fs, fs), (Seg::Gs, gs)] {
            self.load_data(seg, selector, cpl, by)?;
        }
        if env.eip() > env.seg(Seg::Cs).limit.into() {
            return Err(Fault::gp(by.ext()));
        }
        if let By::Event { error: Some(error), .. } = by {
            self.push_error(error, cpl)?;
        }
        Ok(())
    }

    /// The descriptor that a selector names, or #TS.
    fn task_segment(&mut self, selector: u16, by: By) -> Result<Descriptor, Fault> {
        match self.descriptor(selector) {
            Some(Ok(descriptor)) => Ok(descriptor),
            Some(Err(Failed::Nested(fault))) => Err(fault),
            Some(Err(Failed::Unsupported(_))) | None => Err(invalid(selector, by)),
        }
    }

    fn load_ldt(&mut self, selector: u16, by: By) -> Result<(), Fault> {
        self.env.set_ldt(Segment::new(selector, 0, 0, 0));
        if selector & !3 == 0 {
            return Ok(());
        }
        if selector & 4 != 0 {
            return Err(invalid(selector, by));
        }
        let ldt = self.task_segment(selector, by)?;
        if ldt.system_type() != Some(LDT_TYPE) || !ldt.present() {
            return Err(invalid(selector, by));
        }
        self.env.set_ldt(ldt.segment(selector));
        Ok(())
    }

    fn load_code(&mut self, selector: u16, by: By) -> Result<(), Fault> {
        if selector & !3 == 0 {
            return Err(invalid(selector, by));
        }
        let (code, rpl) = (self.task_segment(selector, by)?, (selector & 3) as u8);
        let fits = if code.conforming() { code.dpl() <= rpl } else { code.dpl() == rpl };
        if !code.is_code() || !fits {
            return Err(invalid(selector, by));
        }
        self.load_present(Seg::Cs, selector, code, Vector::NotPresent, by)
    }

    fn load_stack(&mut self, selector: u16, cpl: u8, by: By) -> Result<(), Fault> {
        if selector & !3 == 0 {
            return Err(invalid(selector, by));
        }
        let stack = self.task_segment(selector, by)?;
        if !stack.is_writable_data() || stack.dpl() != cpl || (selector & 3) as u8 != cpl {
            return Err(invalid(selector, by));
        }
        self.load_present(Seg::Ss, selector, stack, Vector::Stack, by)
    }

    fn load_data(&mut self, seg: Seg, selector: u16, cpl: u8, by: By) -> Result<(), Fault> {
        if selector & !3 == 0 {
            return Ok(());
        }
        let data = self.task_segment(selector, by)?;
        let asks = cpl.max((selector & 3) as u8);
        if !data.is_readable() || !(data.is_code() && data.conforming()) && data.dpl() < asks {
            return Err(invalid(selector, by));
        }
        self.load_present(seg, selector, data, Vector::NotPresent, by)
    }

    fn load_present(
        &mut self,
        seg: Seg,
        selector: u16,
        descriptor: Descriptor,
        absent: Vector,
        by: By,
    ) -> Result<(), Fault> {
        if !descriptor.present() {
            return Err(Fault::with(absent, u32::from(selector & !3) + by.ext()));
        }
        match self.mark_accessed(descriptor) {
            Err(Failed::Nested(fault)) => return Err(fault),
            Err(Failed::Unsupported(_)) | Ok(()) => {}
        }
        let cpl = self.env.cpl();
        let mut segment = descriptor.segment(selector);
        segment.flags |= ACCESSED;
        self.env.load_seg(seg, segment);
        // A conforming segment runs with the level that its selector has.
        self.env.set_cpl(cpl);
        Ok(())
    }

    /// Pushes an exception's error code on the new task's stack.
    fn push_error(&mut self, error: u32, cpl: u8) -> Result<(), Fault> {
        const SP: usize = 4;
        const BIG: u32 = 1 << 22;
        let ss = self.env.seg(Seg::Ss);
        let (shape, old) = (StackShape::segmented(ss.base, ss.flags & BIG != 0), self.env.gpr(SP));
        let pointer = old.wrapping_sub(4);
        let at = self.wrap_linear(shape.linear(pointer));
        self.store_bytes(at, &error.to_le_bytes(), cpl == 3)?;
        self.env.set_gpr(SP, shape.register(old, pointer));
        Ok(())
    }
}
