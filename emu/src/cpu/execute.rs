//! Common instructions, executed on the CPU's state.
//!
//! The engine runs them faster, but it must return for each access to a watched page or to a device. Executed here, such an
//! instruction costs no more than its exception (`run/taken_over.rs`).
//!
//! Source: Intel SDM volume 2, the operation of each. Faults, the order of accesses, and flags that the manual leaves
//! undefined (AF after AND, OR, XOR and TEST) are as in the engine.

use super::Cpu;
use super::fault::Fault;
use super::operands::Operand;
use super::outcome::{Accesses, Done, Then};
use crate::engine::Seg;
use crate::isa::{condition_holds, decode};
use crate::mmu::{Access, error_code};
use crate::ram::PAGE;
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

mod arithmetic;
mod image;
mod rare;
mod vector;

const AX: usize = 0;
const SP: usize = 4;

/// An instruction that was executed.
pub(crate) struct Executed {
    pub done: Done,
    /// Whether it has accessed a device.
    pub device: bool,
}

/// What lies at an address.
#[derive(Clone, Copy)]
enum Place {
    /// At this physical address, unless it is on two pages.
    Ram(Option<u64>),
    /// A device, at this physical address.
    Device(u64),
    /// Neither, or more than one of them.
    Other,
}

/// The memory operand of an instruction.
#[derive(Clone, Copy)]
struct Memory {
    address: u64,
    size: usize,
    /// Whether the address is one of the stack: a non-canonical one raises #SS.
    stack: bool,
}

/// A push that is possible: its place, and the stack pointer after it.
#[derive(Clone, Copy)]
struct Pushed {
    memory: Memory,
    pointer: u64,
}

/// The result of an instruction; `None` if it was not executed, and nothing has happened.
type Outcome = Result<Option<Executed>, Fault>;

/// Whether [`Cpu::execute`] can execute the instruction.
pub(crate) fn is_executable(i: &Instruction) -> bool {
    use Mnemonic as M;
    let plain = |n: u32| match i.op_kind(n) {
        OpKind::Register => i.op_register(n).is_gpr(),
        OpKind::Memory => true,
        OpKind::Immediate8
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64 => true,
        _ => false,
    };
    let memory = (0..i.op_count()).filter(|&n| i.op_kind(n) == OpKind::Memory).count() == 1;
    let registers = || (0..i.op_count()).all(|n| plain(n) && i.op_kind(n) != OpKind::Memory);
    if decode::has_narrow_address(i) || decode::kind(i).by_machine() {
        return false;
    }
    match i.mnemonic() {
        M::Push | M::Pop => !memory && (0..i.op_count()).all(plain) && i.op_count() == 1,
        M::Call if matches!(i.code(), Code::Call_rel32_32 | Code::Call_rel32_64) => true,
        M::Call | M::Jmp => is_indirect(i),
        M::Swapgs => true,
        M::Ret => matches!(i.code(), Code::Retnd | Code::Retnq),
        M::Nop | M::Endbr32 | M::Endbr64 => true,
        M::Lea => i.op0_register().is_gpr() && i.op_kind(1) == OpKind::Memory,
        M::Mov | M::Movzx | M::Movsx | M::Movsxd if registers() => true,
        M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Xchg | M::Xadd | M::Cmpxchg => {
            memory && (0..i.op_count()).all(plain)
        }
        _ => {
            arithmetic::of(i.mnemonic()).is_some() && (memory || registers()) && (0..i.op_count()).all(plain)
        }
    }
}

/// Whether it is a near CALL or JMP whose target is in a register or in memory.
fn is_indirect(i: &Instruction) -> bool {
    matches!(i.code(), Code::Call_rm32 | Code::Call_rm64 | Code::Jmp_rm32 | Code::Jmp_rm64)
}

impl Cpu {
    /// Executes the instruction at EIP without the engine, if [`is_executable`] says so. EIP is not moved past it, but by
    /// branches.
    pub(crate) fn execute(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Outcome {
        use Mnemonic as M;
        match i.mnemonic() {
            M::Call | M::Jmp if is_indirect(i) => self.branch_indirect(i, told),
            M::Push | M::Call => self.push(i, told),
            M::Swapgs => Ok(self.swap_gs()),
            M::Pop | M::Ret => self.pop(i, told),
            M::Nop | M::Endbr32 | M::Endbr64 => Ok(Place::Ram(None).executed(Done::Next)),
            M::Lea => {
                self.set_register(i.op0_register(), self.offset(i));
                Ok(Place::Ram(None).executed(Done::Next))
            }
            M::Mov if i.op0_kind() == OpKind::Memory => {
                let value = self.value(i, 1);
                self.write_operand(i, value, told)
            }
            M::Mov | M::Movzx | M::Movsx | M::Movsxd => self.load_register(i, told),
            M::Xchg | M::Xadd | M::Cmpxchg => self.exchange(i, told),
            _ => self.calculate(i, told),
        }
    }

    /// Executes an instruction that the engine gets wrong; one with an address of 16 bits is the engine's.
    pub(super) fn execute_or_engine(
        &mut self,
        i: &Instruction,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        let executed = if decode::has_narrow_address(i) { None } else { self.execute(i, told)? };
        Ok(executed.map_or(Done::ByEngine(Then::Nothing), |executed| executed.done))
    }

    /// SETcc to memory (SDM volume 2); one with an address of 16 bits is the engine's.
    pub(crate) fn set_in_memory(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Done, Fault> {
        let flags = self.eflags();
        let value = u64::from(condition_holds(i.condition_code(), flags));
        let executed = if decode::has_narrow_address(i) { None } else { self.write_operand(i, value, told)? };
        Ok(executed.map_or(Done::ByEngine(Then::FlagsBack(flags)), |executed| executed.done))
    }

    /// The word of 32 bits in memory; `None` if the engine has to read it.
    pub(super) fn load_word(
        &mut self,
        i: &Instruction,
        told: &mut dyn Accesses,
    ) -> Result<Option<u32>, Fault> {
        let read = if decode::has_narrow_address(i) { None } else { self.read_operand(i, told)? };
        Ok(read.map(|(value, _)| value as u32))
    }

    /// Writes the word of 32 bits in memory; false if the engine has to.
    pub(super) fn store_word(
        &mut self,
        i: &Instruction,
        value: u32,
        told: &mut dyn Accesses,
    ) -> Result<bool, Fault> {
        Ok(!decode::has_narrow_address(i) && self.write_operand(i, value.into(), told)?.is_some())
    }

    /// MOV, SETcc or STMXCSR to memory.
    fn write_operand(&mut self, i: &Instruction, value: u64, told: &mut dyn Accesses) -> Outcome {
        let memory = self.memory_of(i);
        let place = self.locate(memory, Access::Write)?;
        if !matches!(place, Place::Other) {
            told.operand(self, &memory.operand(false, true));
        }
        match place {
            Place::Ram(_) => self.store_to(place, memory, value)?,
            Place::Device(paddr) => self.write_device(paddr, value, memory.size, told),
            Place::Other => return Ok(None),
        }
        Ok(place.executed(Done::Next))
    }

    /// MOV, MOVZX, MOVSX or MOVSXD to a register.
    fn load_register(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Outcome {
        let Some((value, place)) = self.source(i, told)? else { return Ok(None) };
        let signed = matches!(i.mnemonic(), Mnemonic::Movsx | Mnemonic::Movsxd);
        let unused = match i.op1_kind() {
            OpKind::Register => 64 - 8 * i.op1_register().size() as u32,
            OpKind::Memory => 64 - 8 * i.memory_size().size() as u32,
            _ => 0,
        };
        let value = if signed { ((value << unused) as i64 >> unused) as u64 } else { value };
        self.set_register(i.op0_register(), value);
        Ok(place.executed(Done::Next))
    }

    /// An operation of [`arithmetic`].
    fn calculate(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Outcome {
        let Some(operation) = arithmetic::of(i.mnemonic()) else { return Ok(None) };
        let size =
            if i.op0_kind() == OpKind::Register { i.op0_register().size() } else { i.memory_size().size() };
        let bits = 8 * size as u32;
        let flags = self.eflags();
        if i.op0_kind() == OpKind::Memory && operation.writes() {
            let other = if i.op_count() > 1 { self.value(i, 1) } else { 0 };
            let mut after = flags;
            let updated = self.update(i, told, |old| {
                let (value, flags) = operation.apply(old, other, flags, bits);
                after = flags;
                value
            })?;
            if updated.is_some() {
                self.env.set_eflags(after);
            }
            return Ok(updated.and_then(|_| Place::Ram(None).executed(Done::Next)));
        }
        let Some((value, place)) = self.source(i, told)? else { return Ok(None) };
        let in_first = i.op0_kind() == OpKind::Memory;
        let (one, two) = if in_first { (value, self.value(i, 1)) } else { (self.value(i, 0), value) };
        let (result, after) = operation.apply(one, two, flags, bits);
        if operation.writes() {
            self.set_register(i.op0_register(), result);
        }
        self.env.set_eflags(after);
        Ok(place.executed(Done::Next))
    }

    /// CMPXCHG of two registers of 32 bits (SDM volume 2). Only the one that is written loses its upper half.
    pub(super) fn compare_exchange(&self, i: &Instruction) {
        let (old, flags) = (self.register(i.op0_register()), self.eflags());
        let compared = self.register(Register::EAX);
        if old == compared {
            self.set_register(i.op0_register(), self.register(i.op1_register()));
        } else {
            self.set_register(Register::EAX, old);
        }
        self.env.set_eflags(arithmetic::Operation::Sub.apply(compared, old, flags, 32).1);
    }

    /// XCHG, XADD or CMPXCHG with an operand in memory.
    fn exchange(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Outcome {
        let in_first = i.op0_kind() == OpKind::Memory;
        let register = if in_first { i.op1_register() } else { i.op0_register() };
        let (other, flags) = (self.register(register), self.eflags());
        let bits = 8 * self.memory_of(i).size as u32;
        let compared = self.env.gpr(AX) & (u64::MAX >> (64 - bits));
        let updated = self.update(i, told, |old| match i.mnemonic() {
            Mnemonic::Xadd => arithmetic::Operation::Add.apply(old, other, flags, bits).0,
            Mnemonic::Cmpxchg if old != compared => old,
            _ => other,
        })?;
        let Some(old) = updated else { return Ok(None) };
        match i.mnemonic() {
            Mnemonic::Xadd => {
                self.set_register(register, old);
                self.env.set_eflags(arithmetic::Operation::Add.apply(old, other, flags, bits).1);
            }
            Mnemonic::Cmpxchg => {
                // As in the engine, also if it succeeds, where the upper half of RAX becomes 0 too.
                self.set_register(accumulator(bits), old);
                self.env.set_eflags(arithmetic::Operation::Sub.apply(compared, old, flags, bits).1);
            }
            _ => self.set_register(register, old),
        }
        Ok(Place::Ram(None).executed(Done::Next))
    }

    /// Replaces the operand in memory by a function of it; its value before.
    fn update(
        &mut self,
        i: &Instruction,
        told: &mut dyn Accesses,
        new: impl FnOnce(u64) -> u64,
    ) -> Result<Option<u64>, Fault> {
        let memory = self.memory_of(i);
        let cached = self.locate_cached(memory, Access::Write);
        let Some(place) = cached.map_or_else(|| self.locate_to_update(memory), |place| Ok(Some(place)))?
        else {
            return Ok(None);
        };
        told.operand(self, &memory.operand(true, true));
        let old = self.load_from(place, memory)?;
        self.store_to(place, memory, new(old))?;
        Ok(Some(old))
    }

    /// Where an operand is that is read and then written; `None` unless that is RAM.
    #[cold]
    fn locate_to_update(&mut self, memory: Memory) -> Result<Option<Place>, Fault> {
        // A read for a write (SDM volume 3, 4.7): the fault says so.
        let read = self.locate(memory, Access::Read).map_err(|fault| match fault.error {
            Some(code) if fault.cr2.is_some() => Fault { error: Some(code | error_code::WRITE), ..fault },
            _ => fault,
        })?;
        if !matches!(read, Place::Ram(_)) {
            return Ok(None);
        }
        self.locate(memory, Access::Write).map(Some)
    }

    /// The operand in memory, or without one the last operand.
    fn source(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Option<(u64, Place)>, Fault> {
        if (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory) {
            return self.read_operand(i, told);
        }
        Ok(Some((self.value(i, i.op_count() - 1), Place::Ram(None))))
    }

    /// Reads the operand in memory.
    fn read_operand(
        &mut self,
        i: &Instruction,
        told: &mut dyn Accesses,
    ) -> Result<Option<(u64, Place)>, Fault> {
        let memory = self.memory_of(i);
        let place = self.locate(memory, Access::Read)?;
        if !matches!(place, Place::Other) {
            told.operand(self, &memory.operand(true, false));
        }
        let value = match place {
            Place::Ram(_) => self.load_from(place, memory)?,
            Place::Device(paddr) => self.read_device(paddr, memory.size, told),
            Place::Other => return Ok(None),
        };
        Ok(Some((value, place)))
    }

    /// PUSH of a register or an immediate, or a near CALL.
    fn push(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Outcome {
        let size = i.stack_pointer_increment().unsigned_abs() as usize;
        let next = self.wrap_ip(self.env.eip().wrapping_add(i.len() as u64));
        let calls = i.mnemonic() == Mnemonic::Call;
        let value = if calls { next } else { self.value(i, 0) };
        let Some(pushed) = self.room_on_stack(size)? else { return Ok(None) };
        self.push_value(pushed, value, told)?;
        if !calls {
            return Ok(Place::Ram(None).executed(Done::Next));
        }
        self.env.set_eip(self.wrap_ip(next.wrapping_add(i.near_branch_target().wrapping_sub(i.next_ip()))));
        Ok(Place::Ram(None).executed(Done::Jumped))
    }

    /// Where a push of so many bytes goes; `None` unless that is RAM.
    fn room_on_stack(&mut self, size: usize) -> Result<Option<Pushed>, Fault> {
        let pointer = self.env.gpr(SP).wrapping_sub(size as u64);
        let memory = Memory { address: self.wrap_linear(self.stack().linear(pointer)), size, stack: true };
        let ram = matches!(self.locate(memory, Access::Write)?, Place::Ram(_));
        Ok(ram.then_some(Pushed { memory, pointer }))
    }

    fn push_value(&mut self, to: Pushed, value: u64, told: &mut dyn Accesses) -> Result<(), Fault> {
        told.operand(self, &to.memory.operand(false, true));
        self.store_unreported(to.memory.address, value, to.memory.size)?;
        self.set_stack_pointer(self.stack(), to.pointer);
        Ok(())
    }

    /// A near CALL or JMP whose target is in a register or in memory. The target is read first.
    fn branch_indirect(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Outcome {
        let in_memory = i.op0_kind() == OpKind::Memory;
        if in_memory && !matches!(self.locate(self.memory_of(i), Access::Read)?, Place::Ram(_)) {
            return Ok(None);
        }
        let pushed = match i.mnemonic() {
            Mnemonic::Call => {
                let size = i.stack_pointer_increment().unsigned_abs() as usize;
                let Some(pushed) = self.room_on_stack(size)? else { return Ok(None) };
                Some(pushed)
            }
            _ => None,
        };
        let Some((target, place)) = self.source(i, told)? else { return Ok(None) };
        if let Some(pushed) = pushed {
            let next = self.wrap_ip(self.env.eip().wrapping_add(i.len() as u64));
            self.push_value(pushed, next, told)?;
        }
        self.env.set_eip(target);
        Ok(place.executed(Done::Jumped))
    }

    /// SWAPGS (SDM volume 2); where it faults it is the engine's.
    fn swap_gs(&self) -> Option<Executed> {
        if !self.env.code64() || self.env.cpl() != 0 {
            return None;
        }
        let mut gs = self.env.seg(Seg::Gs);
        let before = std::mem::replace(&mut gs.base, self.env.kernel_gs_base());
        self.env.set_kernel_gs_base(before);
        self.env.set_seg_raw(Seg::Gs, gs);
        Place::Ram(None).executed(Done::Next)
    }

    /// POP of a register, or a near RET.
    fn pop(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Outcome {
        let size = i.stack_pointer_increment().unsigned_abs() as usize;
        let (stack, pointer) = (self.stack(), self.env.gpr(SP));
        let memory = Memory { address: self.wrap_linear(stack.linear(pointer)), size, stack: true };
        if !matches!(self.locate(memory, Access::Read)?, Place::Ram(_)) {
            return Ok(None);
        }
        told.operand(self, &memory.operand(true, false));
        let value = self.load_unreported(memory.address, size)?;
        self.set_stack_pointer(stack, pointer.wrapping_add(size as u64));
        if i.mnemonic() == Mnemonic::Ret {
            self.env.set_eip(value);
            return Ok(Place::Ram(None).executed(Done::Jumped));
        }
        self.set_register(i.op0_register(), value);
        Ok(Place::Ram(None).executed(Done::Next))
    }

    /// The operand in memory of an instruction.
    fn memory_of(&self, i: &Instruction) -> Memory {
        let address = self.wrap_linear(self.effective_address(i));
        let stack = matches!(i.memory_base(), Register::RSP | Register::RBP);
        Memory { address, size: i.memory_size().size(), stack }
    }

    /// The offset of the operand in memory, as LEA loads it.
    fn offset(&self, i: &Instruction) -> u64 {
        let value = |r: Register| if r.is_segment_register() { 0 } else { self.register(r) };
        i.virtual_address(1, 0, |register, _, _| Some(value(register))).unwrap_or(0)
    }

    /// Where RAM holds an operand, if one page holds it and no walk of the tables is needed.
    #[inline]
    fn locate_cached(&self, memory: Memory, access: Access) -> Option<Place> {
        let offset = memory.address % PAGE;
        if offset + memory.size as u64 > PAGE {
            return None;
        }
        let t = self.cached(memory.address - offset, access, self.env.cpl() == 3)?;
        let paddr = t.paddr | offset;
        self.ram.contains(paddr, 1).then_some(Place::Ram(Some(paddr)))
    }

    /// Translates an access, with its side effects.
    #[inline]
    fn locate(&mut self, memory: Memory, access: Access) -> Result<Place, Fault> {
        self.locate_cached(memory, access).map_or_else(|| self.locate_anew(memory, access), Ok)
    }

    fn locate_anew(&mut self, memory: Memory, access: Access) -> Result<Place, Fault> {
        let Memory { address, size, stack } = memory;
        let user = self.env.cpl() == 3;
        let on_stack = |fault: Fault| if stack { fault.on_stack() } else { fault };
        let first = self.translate(address, access, user).map_err(on_stack)?;
        let last = address.wrapping_add(size as u64 - 1);
        if address / PAGE != last / PAGE {
            let second =
                self.translate(self.wrap_linear(last & !(PAGE - 1)), access, user).map_err(on_stack)?;
            let ram = self.ram.contains(first, 1) && self.ram.contains(second, 1);
            return Ok(if ram { Place::Ram(None) } else { Place::Other });
        }
        Ok(match first {
            ram if self.ram.contains(ram, 1) => Place::Ram(Some(ram)),
            // The engine makes two accesses of one that is not aligned.
            device if size <= 8 && device % size as u64 == 0 && self.platform.has_mmio(device) => {
                Place::Device(device)
            }
            _ => Place::Other,
        })
    }

    /// Reads a device. It sees 8 bytes as two accesses of 4, the lower first.
    fn read_device(&mut self, paddr: u64, size: usize, told: &mut dyn Accesses) -> u64 {
        let now = self.hot.clock.now();
        let mut value = 0;
        for (paddr, shift) in device_parts(paddr, size) {
            let part = self.platform.mmio_read(paddr, size.min(4) as u8, now);
            told.device(paddr, part, size.min(4) as u8, false);
            value |= u64::from(part) << shift;
        }
        self.update_irq();
        value
    }

    /// Writes a device, as [`Self::read_device`] reads it.
    fn write_device(&mut self, paddr: u64, value: u64, size: usize, told: &mut dyn Accesses) {
        let now = self.hot.clock.now();
        for (paddr, shift) in device_parts(paddr, size) {
            let part = (value >> shift) as u32;
            told.device(paddr, part, size.min(4) as u8, true);
            self.platform.mmio_write(paddr, size.min(4) as u8, part, now);
        }
        self.update_irq();
    }

    /// Reads RAM that has been located.
    fn load_from(&mut self, place: Place, memory: Memory) -> Result<u64, Fault> {
        match place {
            Place::Ram(Some(paddr)) => Ok(self.ram.read_int(paddr, memory.size)),
            _ => self.load_unreported(memory.address, memory.size),
        }
    }

    /// Writes RAM that has been located for a write.
    fn store_to(&mut self, place: Place, memory: Memory, value: u64) -> Result<(), Fault> {
        match (place, value.to_le_bytes().get(..memory.size)) {
            (Place::Ram(Some(paddr)), Some(bytes)) => {
                self.write_phys(paddr, bytes);
                Ok(())
            }
            _ => self.store_unreported(memory.address, value, memory.size),
        }
    }

    /// The value of an operand that is not in memory, cut to the size of the one that is, or of the stack's element.
    fn value(&self, i: &Instruction, operand: u32) -> u64 {
        match i.op_kind(operand) {
            OpKind::Register => self.register(i.op_register(operand)),
            _ => i.immediate(operand),
        }
    }

    /// Writes a general register as an instruction does: 32 bits zero the upper half.
    pub(super) fn set_register(&self, register: Register, value: u64) {
        let number = register.full_register().number();
        let old = self.env.gpr(number);
        match register {
            Register::AH | Register::CH | Register::DH | Register::BH => {
                let number = register.number() & 3;
                let old = self.env.gpr(number);
                self.env.set_gpr(number, old & !0xff00 | (value & 0xff) << 8);
            }
            _ => self.env.set_gpr(
                number,
                match register.size() {
                    8 => value,
                    4 => value & 0xffff_ffff,
                    2 => old & !0xffff | value & 0xffff,
                    _ => old & !0xff | value & 0xff,
                },
            ),
        }
    }
}

impl Memory {
    fn operand(self, reads: bool, writes: bool) -> Operand {
        let size = self.size as u32;
        Operand { address: self.address, size, whole: size, reads, writes }
    }
}

impl Place {
    fn executed(self, done: Done) -> Option<Executed> {
        Some(Executed { done, device: matches!(self, Self::Device(_)) })
    }
}

/// The physical addresses at which a device sees an access of `size` bytes, each with its bit in the value.
fn device_parts(paddr: u64, size: usize) -> impl Iterator<Item = (u64, u32)> {
    [(paddr, 0), (paddr + 4, 32)].into_iter().take(size.div_ceil(4))
}

/// The accumulator of this many bits.
fn accumulator(bits: u32) -> Register {
    match bits {
        8 => Register::AL,
        16 => Register::AX,
        32 => Register::EAX,
        _ => Register::RAX,
    }
}
