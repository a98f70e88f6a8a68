//! Where the value of a system call is seen: Linux up to 6.12 leaves through one function. In 7.2 that is part of its
//! callers: there the value is in RAX after the call of the function that chooses the handler, before it is stored into the
//! program's registers (`struct pt_regs`), and a new task leaves where `ret_from_fork_asm` goes on.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use trapline_emu::load::Width;
use trapline_emu::symbols::Symbol;

use super::calls::{Entry, dispatcher};
use super::kernel::Kernel;
use crate::target::Target;

/// The function through which a task returns from a system call to its program.
const LEAVE: &str = "syscall_exit_to_user_mode";
/// The code that calls what a new task begins with, and that.
const FORK: (&str, &str) = ("ret_from_fork_asm", "ret_from_fork");
/// Opcode and length of a call of an address.
const CALL: (u8, u64) = (0xe8, 5);
/// Numbers of general registers in the machine's order.
const AX: usize = 0;
const SP: usize = 4;
const DI: usize = 7;

/// A place where system calls have their value.
#[derive(Debug, Clone)]
pub struct Exit {
    /// Its address, and the function that it is in.
    pub address: u64,
    pub within: Arc<str>,
    /// The general register with the address of the program's registers.
    pub regs: usize,
    /// Whether RAX has the value, and not yet the program's registers.
    pub in_ax: bool,
    /// Who comes there.
    pub who: Who,
}

/// The tasks that come to an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// All.
    All,
    /// Those that have called this way.
    From(Entry),
    /// New ones.
    New,
}

/// The exits of a kernel; none if they are not known. `value` is the offset of the value in the program's registers.
pub fn exits(target: &Target, kernel: &Kernel, value: u64) -> Vec<Exit> {
    let wide = kernel.width == Width::Bits64;
    if let Some(leave) = target.symbols().sole(LEAVE).filter(|symbol| symbol.is_function()) {
        let regs = if wide { DI } else { AX };
        return vec![Exit { address: leave.addr, within: LEAVE.into(), regs, in_ax: false, who: Who::All }];
    }
    let mut found = Vec::new();
    for entry in [Entry::Native, Entry::Compat] {
        let chooser = dispatcher(wide, entry).and_then(|(name, _)| target.symbols().sole(name));
        found.extend(chooser.into_iter().flat_map(|chooser| after_calls(target, chooser, value, entry)));
    }
    found.extend(new_task(target));
    found
}

/// The instructions after all calls of a function that store its value into the program's registers.
fn after_calls(target: &Target, function: &Symbol, value: u64, entry: Entry) -> Vec<Exit> {
    let plan = target.image().plan();
    let mut found = Vec::new();
    for section in plan.sections.iter().filter(|section| section.executable) {
        let size = usize::try_from(section.size).ok();
        let Some(bytes) = size.and_then(|size| plan.bytes_at(section.vaddr, size)) else { continue };
        let opcodes = bytes.iter().enumerate().filter(|(_, byte)| **byte == CALL.0);
        for (at, _) in opcodes {
            let next = section.vaddr + at as u64 + CALL.1;
            let distance = bytes.get(at + 1..).and_then(|rest| rest.first_chunk());
            let to = distance.map(|by| next.wrapping_add_signed(i32::from_le_bytes(*by).into()));
            if to.is_none_or(|to| to & plan.width.max_addr() != function.addr) {
                continue;
            }
            let Some(code) = bytes.get(at + CALL.1 as usize..) else { continue };
            let stored = Decoder::with_ip(plan.width.bits(), code, next, DecoderOptions::NONE).decode();
            let ax = if plan.width == Width::Bits64 { Register::RAX } else { Register::EAX };
            let (Some(regs), Some(home)) = (stores(&stored, ax, value), target.symbols().at(next)) else {
                continue;
            };
            let within = Arc::clone(&home.symbol.name);
            found.push(Exit { address: next, within, regs, in_ax: true, who: Who::From(entry) });
        }
    }
    found
}

/// The general register at an offset from which an instruction stores another one.
fn stores(i: &Instruction, what: Register, offset: u64) -> Option<usize> {
    let stores = i.mnemonic() == Mnemonic::Mov
        && i.op0_kind() == OpKind::Memory
        && i.op1_register() == what
        && i.memory_index() == Register::None
        && i.memory_displacement64() == offset;
    (stores && i.memory_base().is_gpr()).then(|| i.memory_base().number())
}

/// Where a new task goes on once what it begins with has returned; its stack pointer is at the program's registers there, as the
/// call got it as its second argument.
fn new_task(target: &Target) -> Option<Exit> {
    let plan = target.image().plan();
    let (from, callee) = (target.symbols().sole(FORK.0)?, target.symbols().sole(FORK.1)?);
    let bytes = plan.bytes_at(from.addr, usize::try_from(from.size).ok()?)?;
    let mut passed = false;
    for i in &mut Decoder::with_ip(plan.width.bits(), &bytes, from.addr, DecoderOptions::NONE) {
        if i.mnemonic() == Mnemonic::Mov && i.op0_register() == Register::RSI {
            passed = i.op1_register() == Register::RSP;
        }
        if passed && i.flow_control() == FlowControl::Call && i.near_branch_target() == callee.addr {
            let within = Arc::clone(&from.name);
            return Some(Exit { address: i.next_ip(), within, regs: SP, in_ax: false, who: Who::New });
        }
    }
    None
}
