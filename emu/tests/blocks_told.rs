//! An interposer that wants blocks is told each of them, with what the flags were set by, and may end the run there.

use trapline_emu::{
    BootState, Core, CpuMode, CpuModel, Machine, MachineConfig, Operands, Stop, Trap, TrapInterposer, Verdict,
};

/// Notes the blocks, and ends the run before the one at an address.
struct Told {
    until: u64,
    blocks: Vec<(u64, Option<Operands>)>,
}

impl TrapInterposer for Told {
    fn trap(&mut self, _: &mut Core, _: &Trap) -> Verdict {
        Verdict::Declined
    }
    fn wants_blocks(&self) -> bool {
        true
    }
    fn block(&mut self, core: &mut Core, at: u64, _: bool) {
        if at == self.until {
            return core.finish(Stop::Requested);
        }
        self.blocks.push((at, core.env().compared()));
    }
}

fn machine(code: &[u8]) -> Machine {
    let mut machine = Machine::new(&MachineConfig { mem_size: 1 << 20, model: CpuModel::Ia32 }).unwrap();
    machine.write_physical(0x1000, code);
    machine.boot(&BootState { mode: CpuMode::Flat32, ip: 0x1000, ax: 0, bx: 0, sp: 0x8000, si: 0 });
    machine
}

/// mov eax, 0x1234; cmp eax, 0x1200; je +2; mov bl, 1; test bl, bl; jne +0; hlt
const CODE: &[u8] =
    &[0xb8, 0x34, 0x12, 0, 0, 0x3d, 0, 0x12, 0, 0, 0x74, 2, 0xb3, 1, 0x84, 0xdb, 0x75, 0, 0xf4];

#[test]
fn blocks_are_told_with_what_was_compared() {
    let mut told = Told { until: u64::MAX, blocks: Vec::new() };
    let mut told_machine = machine(CODE);
    assert_eq!(told_machine.run(Some(&mut told), 1000), Stop::Halted);
    let at: Vec<u64> = told.blocks.iter().map(|(at, _)| *at).collect();
    assert_eq!(at[..3], [0x1000, 0x100c, 0x1012]);
    assert_eq!(told.blocks[1].1, Some(Operands { one: 0x1234, other: 0x1200, size: 4 }));
    assert_eq!(told.blocks[2].1, Some(Operands { one: 1, other: 0, size: 1 }));

    let mut plain = machine(CODE);
    plain.run(None, 1000);
    assert_eq!(plain.digest(), told_machine.digest());
}

#[test]
fn a_run_ends_before_a_block() {
    let mut told = Told { until: 0x1012, blocks: Vec::new() };
    let mut machine = machine(CODE);
    assert_eq!(machine.run(Some(&mut told), 1000), Stop::Requested);
    assert_eq!((machine.icount(), machine.core().linear_ip()), (6, 0x1012));
    told.until = u64::MAX;
    assert_eq!(machine.run(Some(&mut told), 1000), Stop::Halted);
}
