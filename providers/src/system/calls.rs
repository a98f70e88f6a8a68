//! The system calls of a Linux kernel: which function handles which number.
//!
//! Linux from 6.1.85 on dispatches by code: `x64_sys_call` and `ia32_sys_call` compare the number with constants and jump
//! to the handler. That code is interpreted here for each number. Older kernels have tables of addresses; a kernel whose
//! symbols are only functions shows its table in the code that uses it. An instruction that the interpreter does not know
//! ends the search for this number: it has no handler then.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use trapline_emu::load::Width;

use super::kernel::Kernel;
use crate::target::Target;

/// Numbers of system calls are below this.
const MOST: u32 = 1024;
/// Instructions that the choice of a handler takes at most.
const LONGEST: usize = 200;
/// Bytes of a dispatching function at most.
const LARGEST: u64 = 1 << 16;
/// The functions of a 32-bit kernel that call a handler by its table.
const CALLERS: [&str; 2] = ["do_int80_syscall_32", "do_syscall_32_irqs_on"];
/// The function that handles numbers without a system call.
const NONE: &str = "ni_syscall";

/// The handler of a system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// Its address.
    pub address: u64,
    /// The numbers that it handles.
    pub numbers: BTreeSet<u32>,
}

/// The handlers by the kernel's name of the system call.
pub type Handlers = BTreeMap<String, Handler>;

/// How programs call the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// In the kernel's own width.
    Native,
    /// From 32-bit code in a 64-bit kernel.
    Compat,
}

/// The handlers of the system calls that come this way.
pub fn handlers(target: &Target, kernel: &Kernel, entry: Entry) -> Handlers {
    let wide = kernel.width == Width::Bits64;
    let Some((dispatch, table)) = dispatcher(wide, entry) else { return Handlers::new() };
    let found = by_code(target, dispatch, wide);
    let found = if found.is_empty() { by_table(target, kernel, table) } else { found };
    let mut handlers = Handlers::new();
    for (number, address) in found {
        let Some(name) = name(target, address, wide, entry) else { continue };
        let handler = handlers.entry(name).or_insert_with(|| Handler { address, numbers: BTreeSet::new() });
        handler.numbers.insert(number);
    }
    handlers
}

/// The function that chooses a handler, and the table that older kernels have.
pub fn dispatcher(wide: bool, entry: Entry) -> Option<(&'static str, &'static str)> {
    match (wide, entry) {
        (true, Entry::Native) => Some(("x64_sys_call", "sys_call_table")),
        (true, Entry::Compat) => Some(("ia32_sys_call", "ia32_sys_call_table")),
        (false, Entry::Native) => Some(("ia32_sys_call", "sys_call_table")),
        (false, Entry::Compat) => None,
    }
}

/// The handlers that the dispatching function chooses, by number.
pub fn by_code(target: &Target, dispatch: &str, wide: bool) -> BTreeMap<u32, u64> {
    let Some(function) = target.symbols().sole(dispatch).filter(|symbol| symbol.is_function()) else {
        return BTreeMap::new();
    };
    let size = function.size.clamp(1, LARGEST) as usize;
    let Some(bytes) = target.image().plan().bytes_at(function.addr, size) else { return BTreeMap::new() };
    let code = Dispatch { start: function.addr, bytes: &bytes, wide };
    (0..MOST).filter_map(|number| Some((number, code.handler(number)?))).collect()
}

/// The handlers in a table of addresses, by number. It ends where no function begins.
pub fn by_table(target: &Target, kernel: &Kernel, table: &str) -> BTreeMap<u32, u64> {
    let named = target.symbols().sole(table).map(|table| table.addr);
    let narrow = kernel.width == Width::Bits32;
    let Some(table) = named.or_else(|| narrow.then(|| table_in_code(target)).flatten()) else {
        return BTreeMap::new();
    };
    let address = |number: u32| {
        let at = table.checked_add(u64::from(number) * kernel.word())?;
        let mut word = [0; 8];
        let bytes = target.image().plan().bytes_at(at, kernel.word() as usize)?;
        word.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        let address = u64::from_le_bytes(word);
        target.symbols().names_at(address).any(|symbol| symbol.is_function()).then_some(address)
    };
    (0..MOST).map_while(|number| Some((number, address(number)?))).collect()
}

/// The table that the code of a 32-bit kernel reads with the number as its index: the only one.
fn table_in_code(target: &Target) -> Option<u64> {
    let plan = target.image().plan();
    let function = CALLERS.iter().find_map(|name| target.symbols().sole(name))?;
    let bytes = plan.bytes_at(function.addr, function.size.clamp(1, LARGEST) as usize)?;
    let table = |i: Instruction| {
        let indexed = i.memory_base() == Register::None && i.memory_index() != Register::None;
        let at = i.memory_displacement64();
        (indexed && i.memory_index_scale() == 4 && plan.is_executable(at) == Some(false)).then_some(at)
    };
    let decoder = Decoder::with_ip(32, &bytes, function.addr, DecoderOptions::NONE);
    let found: BTreeSet<u64> = decoder.into_iter().filter_map(table).collect();
    found.first().copied().filter(|_| found.len() == 1)
}

/// The name of the system call that the function at an address handles.
fn name(target: &Target, address: u64, wide: bool, entry: Entry) -> Option<String> {
    let prefixes: &[&str] = match (wide, entry) {
        (true, Entry::Native) => &["__x64_sys_"],
        (true, Entry::Compat) => &["__ia32_compat_sys_", "__ia32_sys_"],
        (false, _) => &["__ia32_sys_", "sys_"],
    };
    let named = |prefix: &&str| {
        let mut names = target.symbols().names_at(address);
        names.find_map(|symbol| symbol.name.strip_prefix(prefix).map(str::to_owned))
    };
    let found = prefixes.iter().find_map(named)?;
    // Handlers that only rearrange the arguments of 32-bit code have a prefix of their own.
    let found = found.strip_prefix("ia32_").unwrap_or(&found);
    (found != NONE).then(|| found.to_owned())
}

/// A function that chooses a handler by the number in its second argument.
struct Dispatch<'a> {
    start: u64,
    bytes: &'a [u8],
    wide: bool,
}

impl Dispatch<'_> {
    fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes.len() as u64
    }

    fn instruction(&self, at: u64) -> Option<Instruction> {
        let bytes = self.bytes.get(usize::try_from(at.checked_sub(self.start)?).ok()?..)?;
        let bits = if self.wide { 64 } else { 32 };
        let instruction = Decoder::with_ip(bits, bytes, at, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The handler of a number.
    fn handler(&self, number: u32) -> Option<u64> {
        let register = if self.wide { Register::ESI } else { Register::EDX };
        let (mut at, mut compared, mut traced) = (self.start, None, self.start);
        for _ in 0..LONGEST {
            let i = self.instruction(at)?;
            at = match i.flow_control() {
                // The call of the function tracer.
                FlowControl::Call if at == traced => i.next_ip(),
                FlowControl::Call | FlowControl::UnconditionalBranch
                    if !self.holds(i.near_branch_target()) =>
                {
                    return Some(i.near_branch_target());
                }
                FlowControl::UnconditionalBranch => i.near_branch_target(),
                FlowControl::ConditionalBranch if taken(i.condition_code(), compared?)? => {
                    i.near_branch_target()
                }
                FlowControl::ConditionalBranch => i.next_ip(),
                FlowControl::Next => {
                    match i.mnemonic() {
                        Mnemonic::Cmp if i.op0_register() == register && is_immediate(i.op1_kind()) => {
                            compared = Some((number, i.immediate(1) as u32));
                        }
                        Mnemonic::Test if i.op0_register() == register && i.op1_register() == register => {
                            compared = Some((number, 0));
                        }
                        Mnemonic::Endbr32 | Mnemonic::Endbr64 => traced = i.next_ip(),
                        Mnemonic::Nop | Mnemonic::Push => {}
                        // The frame pointer, and NOPs of several bytes.
                        Mnemonic::Mov | Mnemonic::Lea if is_harmless(&i) => {}
                        _ => return None,
                    }
                    i.next_ip()
                }
                _ => return None,
            };
        }
        None
    }
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate8to32 | OpKind::Immediate32 | OpKind::Immediate8)
}

/// Whether an instruction sets the frame pointer, or a register to itself.
fn is_harmless(i: &Instruction) -> bool {
    let to = i.op0_register().full_register();
    to == Register::RBP || i.mnemonic() == Mnemonic::Lea && i.memory_base().full_register() == to
}

/// Whether a jump is taken after a comparison of two numbers.
fn taken(condition: ConditionCode, (a, b): (u32, u32)) -> Option<bool> {
    let (x, y) = (a.cast_signed(), b.cast_signed());
    Some(match condition {
        ConditionCode::e => a == b,
        ConditionCode::ne => a != b,
        ConditionCode::a => a > b,
        ConditionCode::ae => a >= b,
        ConditionCode::b => a < b,
        ConditionCode::be => a <= b,
        ConditionCode::g => x > y,
        ConditionCode::ge => x >= y,
        ConditionCode::l => x < y,
        ConditionCode::le => x <= y,
        _ => return None,
    })
}
