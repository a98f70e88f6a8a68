//! Where arguments are, by convention, as a probe at a function's first instruction sees them.

#![allow(clippy::unwrap_used, clippy::panic)]

use trapline_emu::{BootState, CpuMode, CpuModel, Machine, MachineConfig};
use trapline_interposer::Arguments;
use trapline_providers::{Abi, AtEntry, AtOffset, AtReturn, AtTailCall};
use trapline_rpn::{Argument, ArgumentError};

const SP: u64 = 0x8000;
/// Tables that map the first megabytes one to one.
const CR3: u64 = 0x10_0000;

/// A machine at a function's first instruction: a return address, then words 101, 102 .. above it.
fn machine(wide: bool) -> Machine {
    let model = if wide { CpuModel::X86_64 } else { CpuModel::Ia32 };
    let mut machine = Machine::new(&MachineConfig { mem_size: 16 << 20, model }).unwrap();
    let word = if wide { 8 } else { 4 };
    for n in 0..16u64 {
        let bytes = (100 + n).to_le_bytes();
        machine.write_physical(SP + n * word as u64, &bytes[..word]);
    }
    if wide {
        for (at, entry) in [(0, CR3 + 0x1003), (0x1000, CR3 + 0x2003), (0x2000, 0x83u64)] {
            machine.write_physical(CR3 + at, &entry.to_le_bytes());
        }
    }
    let mode = if wide { CpuMode::Long64 { cr3: CR3 } } else { CpuMode::Flat32 };
    machine.boot(&BootState { mode, ip: 0x1000, ax: 0, bx: 0, sp: SP, si: 0 });
    let env = machine.core_mut().env();
    for (register, value) in [(0, 10), (1, 11), (2, 12), (6, 16), (7, 17)] {
        env.set_gpr(register, value);
    }
    if wide {
        env.set_gpr(8, 18);
        env.set_gpr(9, 19);
    }
    machine
}

fn ten(machine: &Machine, abi: Abi) -> Vec<u64> {
    (0..10).map(|n| AtEntry(abi).argument(machine.core(), Argument::Number(n)).unwrap()).collect()
}

#[test]
fn ten_arguments_are_found_by_each_convention() {
    assert_eq!(ten(&machine(false), Abi::Cdecl), [101, 102, 103, 104, 105, 106, 107, 108, 109, 110]);
    assert_eq!(ten(&machine(false), Abi::Regparm), [10, 12, 11, 101, 102, 103, 104, 105, 106, 107]);
    assert_eq!(ten(&machine(true), Abi::SysV), [17, 16, 12, 11, 18, 19, 101, 102, 103, 104]);
}

#[test]
fn an_argument_that_cannot_be_read_names_its_address() {
    let mut machine = machine(false);
    machine.core_mut().env().set_gpr(4, 0xffff_f000);
    let found = AtEntry(Abi::Cdecl).argument(machine.core(), Argument::Number(2));
    assert_eq!(found, Err(ArgumentError::Fault(0xffff_f00c)));
}

#[test]
fn a_return_has_its_offset_and_the_value() {
    let mut machine = machine(false);
    machine.core_mut().env().set_gpr(0, 0xffff_fffe);
    let at = AtReturn { offset: 0x31, abi: Abi::Cdecl };
    let get = |which| at.argument(machine.core(), which);
    assert_eq!(get(Argument::Number(0)), Ok(0x31));
    assert_eq!(get(Argument::Number(1)), Ok(0xffff_fffe));
    assert_eq!(get(Argument::Returned), Ok(0xffff_fffe));
    assert_eq!(get(Argument::Number(2)), Err(ArgumentError::None));
    assert!(!at.has(Argument::Number(2)) && !AtEntry(Abi::SysV).has(Argument::Returned));
}

#[test]
fn a_tail_call_has_its_offset_and_no_value() {
    let machine = machine(false);
    let at = AtTailCall { offset: 0x31, back: None };
    assert_eq!(at.argument(machine.core(), Argument::Number(0)), Ok(0x31));
    for which in [Argument::Number(1), Argument::Returned] {
        assert!(!at.has(which));
        assert_eq!(at.argument(machine.core(), which), Err(ArgumentError::Unknown));
    }
}

#[test]
fn elsewhere_in_a_function_the_stack_is_read_from_its_top() {
    let narrow = machine(false);
    let at = |n| AtOffset(Abi::Cdecl).argument(narrow.core(), Argument::Number(n));
    assert_eq!((at(0), at(3)), (Ok(100), Ok(103)));
    let wide = machine(true);
    let at = |n| AtOffset(Abi::SysV).argument(wide.core(), Argument::Number(n));
    assert_eq!((at(0), at(5), at(6), at(9)), (Ok(17), Ok(19), Ok(100), Ok(103)));
    assert!(!AtOffset(Abi::SysV).has(Argument::Returned));
}
