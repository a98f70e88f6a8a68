//! The calling convention of IA32 code, derived from how its instructions use registers and the stack.
//!
//! A function that reads EAX, EDX or ECX before anything has written them takes arguments there (`-mregparm=3`). One
//! that reads above its return address, and none of these registers, takes them on the stack. A kernel has the
//! convention of the majority of its functions. Names and version texts do not count, since kernels copy those from
//! each other. In a kernel with `regparm`, functions with a variable number of arguments still take all of them on the
//! stack (GCC, "x86 Function Attributes", regparm): such a function takes the address of its arguments and reads none
//! of the registers.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, OpAccess, OpKind, Register,
};
use trapline_emu::symbols::Symbol;
use trapline_rpn::Width;

use crate::target::{Abi, Target};

/// Most bytes of a function that are examined.
pub const MOST_BYTES: u64 = 4096;
/// Number of functions that are examined, spread over the kernel.
const SAMPLED: usize = 500;
/// Most bytes that are examined of each of them: functions read their arguments early.
const SAMPLED_BYTES: u64 = 128;
/// Most instructions of a function that are examined, counted for each set of registers not yet written.
const MOST_INSTRUCTIONS: usize = 1024;
/// The registers of `regparm`: EAX, EDX, ECX.
const REGISTERS: [Register; 3] = [Register::EAX, Register::EDX, Register::ECX];
const ALL: u8 = 0b111;
/// The opcode of `lea`, before its ModR/M byte.
const LEA: u8 = 0x8d;
/// Offsets from the return address to the first argument on the stack, and to the end of the arguments.
const FIRST: i64 = 4;
const LAST: i64 = 256;

/// Evidence of a function's instructions about its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It reads EAX, EDX or ECX with the caller's values.
    Registers,
    /// It reads arguments on the stack only.
    Stack,
    /// It takes the address of its arguments on the stack, and reads none of the registers: their number is variable.
    Variadic,
    /// It seems to have no arguments.
    Nothing,
}

/// The state on one path through a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    ip: u64,
    /// Registers of [`REGISTERS`] that were not written yet, one bit each.
    unwritten: u8,
    /// Distance from the stack pointer up to the return address.
    depth: i64,
    /// The same of EBP, once it is a frame pointer.
    frame: Option<i64>,
}

/// The evidence of the function of 32-bit code at `start`.
pub fn evidence(bytes: &[u8], start: u64) -> Evidence {
    let bytes = bytes.get(..bytes.len().min(MOST_BYTES as usize)).unwrap_or(bytes);
    let mut walk = Walk {
        start,
        decoder: Decoder::with_ip(32, bytes, start, DecoderOptions::NONE),
        info: InstructionInfoFactory::new(),
        seen: vec![0; bytes.len()],
        looked_at: 0,
    };
    walk.paths()
}

/// Whether the evidence of a function may be [`Evidence::Variadic`]: whether its bytes may hold a `lea` from above ESP
/// or EBP. This costs much less than [`evidence`].
pub fn may_be_variadic(bytes: &[u8]) -> bool {
    let above_stack = |rest: &[u8]| {
        // ModR/M: mod 1 has a displacement of 8 bits, mod 2 one of 32; rm 4 is followed by a SIB byte, rm 5 is EBP.
        let [LEA, modrm, rest @ ..] = rest else { return false };
        let (base, displacement) = match (modrm & 7, rest) {
            (4, [sib, rest @ ..]) => (sib & 7, rest),
            (register, rest) => (register, rest),
        };
        let highest = match modrm >> 6 {
            1 => displacement.first(),
            2 => displacement.get(3),
            _ => None,
        };
        matches!(base, 4 | 5) && highest.is_some_and(|byte| byte.cast_signed() >= 0)
    };
    (0..bytes.len()).filter_map(|at| bytes.get(at..)).any(above_stack)
}

impl Abi {
    /// The convention of a guest's kernel: System V on x86-64; on IA32 `regparm` or `cdecl`, derived from its
    /// functions.
    pub fn of(target: &Target) -> Self {
        match target.width() {
            Width::W64 => Self::SysV,
            Width::W32 if is_regparm(target) => Self::Regparm,
            Width::W32 => Self::Cdecl,
        }
    }
}

/// Whether most functions of an IA32 kernel take their arguments in registers, of those functions with evidence.
fn is_regparm(target: &Target) -> bool {
    let plan = target.image().plan();
    let code = |symbol: &&Symbol| plan.is_executable(symbol.addr) == Some(true);
    let functions: Vec<&Symbol> = target.symbols().functions().filter(code).collect();
    let (mut registers, mut stack) = (0u32, 0u32);
    for symbol in functions.iter().step_by(functions.len().div_ceil(SAMPLED).max(1)) {
        let size = usize::try_from(symbol.size.clamp(1, SAMPLED_BYTES)).unwrap_or_default();
        let Some(bytes) = plan.bytes_at(symbol.addr, size) else { continue };
        match evidence(&bytes, symbol.addr) {
            Evidence::Registers => registers += 1,
            Evidence::Stack | Evidence::Variadic => stack += 1,
            Evidence::Nothing => {}
        }
    }
    registers > stack
}

struct Walk<'a> {
    start: u64,
    decoder: Decoder<'a>,
    info: InstructionInfoFactory,
    /// For each offset, the values of [`State::unwritten`] with which a path has reached it, one bit each.
    seen: Vec<u8>,
    /// Bits that are set in `seen`.
    looked_at: usize,
}

/// How one instruction uses arguments.
#[derive(Default)]
struct Uses {
    register: bool,
    stack: bool,
    address: bool,
}

impl Walk<'_> {
    fn paths(&mut self) -> Evidence {
        let mut open = vec![State { ip: self.start, unwritten: ALL, depth: 0, frame: None }];
        let (mut stack, mut address) = (false, false);
        while let Some(state) = open.pop() {
            if self.looked_at >= MOST_INSTRUCTIONS {
                break;
            }
            let Some(i) = self.decode(&state) else { continue };
            let mut next = State { ip: i.next_ip(), ..state };
            let uses = self.uses(&i, &mut next);
            if uses.register {
                return Evidence::Registers;
            }
            stack |= uses.stack;
            address |= uses.address;
            match i.flow_control() {
                FlowControl::Next => open.push(next),
                // A call `__fentry__`, or into the next function, keeps the registers.
                FlowControl::Call if i.ip() == self.start => open.push(next),
                FlowControl::Call | FlowControl::IndirectCall => open.push(State { unwritten: 0, ..next }),
                FlowControl::ConditionalBranch => {
                    open.push(State { ip: i.near_branch_target(), ..next });
                    open.push(next);
                }
                FlowControl::UnconditionalBranch => open.push(State { ip: i.near_branch_target(), ..next }),
                _ => {}
            }
        }
        match (address, stack) {
            (true, _) => Evidence::Variadic,
            (false, true) => Evidence::Stack,
            (false, false) => Evidence::Nothing,
        }
    }

    /// The instruction that a path has reached, unless another path has reached it with the same registers unwritten.
    fn decode(&mut self, state: &State) -> Option<Instruction> {
        let offset = usize::try_from(state.ip.checked_sub(self.start)?).ok()?;
        let seen = self.seen.get_mut(offset)?;
        if *seen & 1 << state.unwritten != 0 {
            return None;
        }
        *seen |= 1 << state.unwritten;
        self.looked_at += 1;
        if self.decoder.position() != offset {
            self.decoder.set_position(offset).ok()?;
        }
        self.decoder.set_ip(state.ip);
        Some(self.decoder.decode()).filter(|i| !i.is_invalid())
    }

    /// How an instruction uses arguments; `next` becomes the state after it.
    fn uses(&mut self, i: &Instruction, next: &mut State) -> Uses {
        let mut uses = Uses::default();
        // Compilers use `lea esi, [esi]` and similar instructions as NOPs.
        if i.mnemonic() == Mnemonic::Nop || is_own_move(i) {
            return uses;
        }
        let above = above_return_address(i, next);
        let is_address = i.mnemonic() == Mnemonic::Lea;
        // A function that aligns its frame takes the address of the first argument too.
        let positive = i.memory_displacement32().cast_signed() > 0;
        uses.address = is_address && positive && above.is_some_and(|bytes| bytes > FIRST);
        uses.stack = !is_address && above.is_some();
        if next.unwritten != 0 {
            uses.register = self.reads(i, next);
        }
        follow_stack(i, next);
        uses
    }

    /// Whether an instruction reads an unwritten register; marks the registers that it writes.
    fn reads(&mut self, i: &Instruction, next: &mut State) -> bool {
        let used = self.info.info_options(i, InstructionInfoOptions::NO_MEMORY_USAGE).used_registers();
        let constant = is_constant(i);
        let (mut reads, mut written) = (false, 0);
        for register in used {
            let full = register.register().full_register32();
            let Some(bit) = REGISTERS.iter().position(|r| *r == full).map(|n| 1 << n) else { continue };
            match register.access() {
                _ if constant && full == i.op0_register().full_register32() => written |= bit,
                // A push may only save the register or reserve stack space.
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                    if next.unwritten & bit != 0 && i.mnemonic() != Mnemonic::Push =>
                {
                    reads = true;
                }
                OpAccess::Write | OpAccess::ReadWrite => written |= bit,
                _ => {}
            }
        }
        next.unwritten &= !written;
        reads
    }
}

/// Follows stack and frame pointer through an instruction.
fn follow_stack(i: &Instruction, next: &mut State) {
    let by = i64::from(i.stack_pointer_increment());
    match (i.mnemonic(), i.op0_register()) {
        (Mnemonic::Mov, Register::EBP) if i.op1_register() == Register::ESP => {
            next.frame = Some(next.depth);
        }
        (Mnemonic::Leave, _) => {
            next.depth = next.frame.take().map_or(next.depth, |frame| frame - 4);
        }
        (Mnemonic::Pop, Register::EBP) => {
            next.frame = None;
            next.depth -= by;
        }
        (Mnemonic::Sub, Register::ESP) if is_immediate(i) => next.depth += signed(i),
        (Mnemonic::Add, Register::ESP) if is_immediate(i) => next.depth -= signed(i),
        _ if matches!(i.flow_control(), FlowControl::Next) => next.depth -= by,
        _ => {}
    }
}

/// Distance of an instruction's memory operand from the return address, if it can be an argument.
fn above_return_address(i: &Instruction, state: &State) -> Option<i64> {
    if !(0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory) || i.memory_index() != Register::None {
        return None;
    }
    let below = match i.memory_base() {
        Register::ESP => state.depth,
        Register::EBP => state.frame?,
        _ => return None,
    };
    let bytes = i64::from(i.memory_displacement32().cast_signed()) - below;
    (FIRST..LAST).contains(&bytes).then_some(bytes)
}

/// Whether an instruction copies a register to itself.
fn is_own_move(i: &Instruction) -> bool {
    match i.mnemonic() {
        Mnemonic::Lea => {
            let own = i.op0_register() == i.memory_base() && i.memory_displacement32() == 0;
            own && i.memory_index() == Register::None
        }
        Mnemonic::Mov | Mnemonic::Xchg => {
            i.op1_kind() == OpKind::Register && i.op0_register() == i.op1_register()
        }
        _ => false,
    }
}

/// Whether the result of an instruction is independent of its register's old value: `or eax, -1`, `sbb eax, eax`.
fn is_constant(i: &Instruction) -> bool {
    match i.mnemonic() {
        Mnemonic::Or => matches!(i.op1_kind(), OpKind::Immediate8to32) && i.immediate8to32() == -1,
        Mnemonic::And => matches!(i.op1_kind(), OpKind::Immediate8to32) && i.immediate(1) == 0,
        Mnemonic::Sbb => i.op1_kind() == OpKind::Register && i.op0_register() == i.op1_register(),
        _ => false,
    }
}

fn is_immediate(i: &Instruction) -> bool {
    matches!(
        i.code(),
        Code::Sub_rm32_imm8 | Code::Sub_rm32_imm32 | Code::Add_rm32_imm8 | Code::Add_rm32_imm32
    )
}

/// The immediate operand of an instruction of 32 bits.
fn signed(i: &Instruction) -> i64 {
    i64::from((i.immediate(1) as u32).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Evidence {
        evidence(bytes, 0x1000)
    }

    #[test]
    fn a_register_read_before_it_is_written_is_an_argument() {
        // push ebp; mov ebp,esp; mov ebx,eax; ret
        assert_eq!(of(&[0x55, 0x89, 0xe5, 0x89, 0xc3, 0xc3]), Evidence::Registers);
        // call __fentry__; push eax; xor eax,eax; test edx,edx; ret
        assert_eq!(of(&[0xe8, 0, 1, 0, 0, 0x50, 0x31, 0xc0, 0x85, 0xd2, 0xc3]), Evidence::Registers);
        // jz +2; xor ecx,ecx; inc ecx: read on one of two paths
        assert_eq!(of(&[0x74, 2, 0x31, 0xc9, 0x41, 0xc3]), Evidence::Registers);
        // or eax,-1; mov ebx,eax; ret: a constant
        assert_eq!(of(&[0x83, 0xc8, 0xff, 0x89, 0xc3, 0xc3]), Evidence::Nothing);
        // nop; call; mov ebx,eax: the return value of a call is not an argument
        assert_eq!(of(&[0x90, 0xe8, 0, 1, 0, 0, 0x89, 0xc3, 0xc3]), Evidence::Nothing);
    }

    #[test]
    fn memory_above_the_return_address_is_an_argument() {
        // push ebp; mov ebp,esp; mov eax,[ebp+8]; ret
        assert_eq!(of(&[0x55, 0x89, 0xe5, 0x8b, 0x45, 8, 0xc3]), Evidence::Stack);
        // sub esp,12; mov eax,[esp+16]; ret
        assert_eq!(of(&[0x83, 0xec, 12, 0x8b, 0x44, 0x24, 16, 0xc3]), Evidence::Stack);
        // sub esp,12; mov eax,[esp+8]; ret: a local variable
        assert_eq!(of(&[0x83, 0xec, 12, 0x8b, 0x44, 0x24, 8, 0xc3]), Evidence::Nothing);
        // mov eax,[ebp+8]; ret: EBP is the caller's
        assert_eq!(of(&[0x8b, 0x45, 8, 0xc3]), Evidence::Nothing);
    }

    #[test]
    fn the_address_of_arguments_is_taken_where_their_number_is_variable() {
        // push ebp; mov ebp,esp; lea ecx,[ebp+12]; mov edx,[ebp+8]; ret
        assert_eq!(of(&[0x55, 0x89, 0xe5, 0x8d, 0x4d, 12, 0x8b, 0x55, 8, 0xc3]), Evidence::Variadic);
        // the same after a read of EAX: the fourth argument of regparm
        assert_eq!(of(&[0x55, 0x89, 0xe5, 0x89, 0xc3, 0x8d, 0x4d, 12, 0xc3]), Evidence::Registers);
    }

    #[test]
    fn guest_every_variadic_function_passes_the_byte_filter() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.guests/linux-686");
        let file = std::fs::read(&path).expect("run `make guests`");
        let image = trapline_emu::load::Image::parse(&file, "linux-686").expect("a kernel");
        let plan = image.plan();
        let symbols = trapline_emu::symbols::Symbols::from_kallsyms(&plan.image, "linux-686").expect("names");
        let (mut variadic, mut may_be, mut all) = (0, 0, 0);
        for symbol in symbols.functions() {
            let Some(bytes) = plan.bytes_at(symbol.addr, symbol.size.min(MOST_BYTES) as usize) else {
                continue;
            };
            let found = evidence(&bytes, symbol.addr);
            let may = may_be_variadic(&bytes);
            assert!(may || found != Evidence::Variadic, "{}", symbol.name);
            variadic += usize::from(found == Evidence::Variadic);
            may_be += usize::from(may);
            all += 1;
        }
        println!("{variadic} of {all} functions are variadic, {may_be} may be");
        assert!(variadic >= 50 && may_be * 20 < all, "{variadic} of {all}, {may_be} may be");
    }

    #[test]
    fn any_bytes_are_examined_in_bounded_time() {
        // A conditional jump to itself and code that does not decode.
        assert_eq!(of(&[0x74, 0xfe, 0xff, 0xff]), Evidence::Nothing);
        assert_eq!(of(&[]), Evidence::Nothing);
        let jumps: Vec<u8> = [0x75u8, 0xfd, 0x41].repeat(3000);
        assert_ne!(of(&jumps), Evidence::Stack);
    }
}
