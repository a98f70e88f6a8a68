//! Random blocks of one to six instructions against the host's CPU: all forms that CPUID announces to ring 3, any registers,
//! also equal ones, special numbers, all roundings, and the exception flags of the x87 and of SSE.
//!
//! HLT ends a block: in ring 3 it is #GP on both. Which differences are known is in `blocks/known.rs`.

mod known;
mod random;

use super::program::{AT, Start};
use super::state::State;
use super::{FX, limits, on_host};
use crate::common::{CODE, DATA, Guest, P, RW, Rng, Setup, US};
use crate::host_cpu::program::{DATA_BYTES, STACK_BYTES, STACK_PAGES};
use iced_x86::{Code, Instruction};
use known::Known;
use std::collections::BTreeMap;
use trapline_emu::{Snapshot, Stop};

/// Blocks of one process of the host.
const BATCH: usize = 1000;
const HLT: u8 = 0xf4;
/// Differences of a form that are printed.
const SHOWN: usize = 3;

/// Some instructions, and the state before them.
#[derive(Clone)]
struct Block {
    code: Vec<u8>,
    instructions: Vec<Instruction>,
    start: Start,
    /// Whether exceptions are unmasked: the machine then executes all floating point itself.
    exact: bool,
}

impl Block {
    /// The first `n` instructions of it.
    fn cut(&self, n: usize) -> Self {
        let length = self.instructions[..n].iter().map(Instruction::len).sum::<usize>();
        let mut code = self.code[..length].to_vec();
        code.push(HLT);
        Block {
            code,
            instructions: self.instructions[..n].to_vec(),
            start: self.start.clone(),
            exact: self.exact,
        }
    }

    fn text(&self) -> String {
        let all = self.instructions.iter().map(|i| format!("{i}")).collect::<Vec<_>>().join("; ");
        format!("{all} ({:02x?})", self.code)
    }

    fn for_host(&self) -> (Vec<u8>, Start) {
        (self.code.clone(), self.start.clone())
    }
}

/// A guest that has exactly the pages of the host's process.
struct Machine {
    guest: Guest,
    snapshot: Snapshot,
    bits: u32,
}

impl Machine {
    fn new(bits: u32, data: &[u8]) -> Self {
        let mut setup = Setup::bits(bits).ring(3).flags(0x202);
        setup.cr4 |= 0x600;
        for page in 0..512u64 {
            let at = page << 12;
            let inside = |start: u64, length: u64| (start..start + length).contains(&at);
            let ours = inside(CODE, 0x1000) || inside(DATA, DATA_BYTES) || inside(STACK_PAGES, STACK_BYTES);
            setup = setup.pte(at, at | P | RW | if ours { US } else { 0 });
        }
        let load: &[u8] = if bits == 64 { &[0x0f, 0xae, 0x0c, 0x25] } else { &[0x0f, 0xae, 0x0d] };
        let mut code = [load, &(FX as u32).to_le_bytes()].concat();
        code.resize(0x400, 0x90);
        let mut guest = setup.code(&code).at(DATA, data).boot();
        guest.m.write_physical(STACK_PAGES, &vec![0; STACK_BYTES as usize]);
        let snapshot = guest.m.snapshot();
        Machine { guest, snapshot, bits }
    }

    fn run(&mut self, block: &Block) -> State {
        let m = &mut self.guest.m;
        m.restore(&self.snapshot).unwrap();
        m.write_physical(FX, &block.start.fx);
        let limit = m.icount() + 1;
        assert_eq!(m.run(None, limit), Stop::Limit);
        m.write_physical(FX, &vec![0; block.start.fx.len()]);
        m.write_physical(AT, &block.code);
        let env = self.guest.core().env();
        let count = if self.bits == 64 { 16 } else { 8 };
        (0..count).for_each(|n| env.set_gpr(n, block.start.registers[n]));
        env.set_eflags(block.start.flags);
        env.set_eip(AT);
        let stop = self.guest.m.run(None, limit + 50);
        State::of_guest(self.bits, &self.guest, &stop)
    }
}

/// What was found.
#[derive(Default)]
struct Found {
    compared: usize,
    /// Blocks that are not compared, by the reason.
    known: BTreeMap<&'static str, usize>,
    /// How many differ, by the form of the first instruction after which they do.
    differences: BTreeMap<Code, usize>,
}

impl Found {
    /// Compares a batch of blocks; false where the host runs no code of this width.
    fn batch(&mut self, bits: u32, rng: &mut Rng) -> bool {
        let exact = rng.below(2) == 0 && !limits::is_intel();
        let data = random::data(rng, exact);
        let blocks: Vec<Block> = (0..BATCH).map(|_| random::block(rng, bits, exact)).collect();
        self.blocks(bits, &data, &blocks)
    }

    fn blocks(&mut self, bits: u32, data: &[u8], blocks: &[Block]) -> bool {
        let mut machine = Machine::new(bits, data);
        let cases: Vec<_> = blocks.iter().map(Block::for_host).collect();
        let Some(host) = on_host(bits, data, &cases) else { return false };
        let bad: Vec<&Block> = blocks
            .iter()
            .zip(&host)
            .filter(|(block, host)| !self.compare(&mut machine, block, host).is_empty())
            .map(|(block, _)| block)
            .collect();
        self.blame(bits, data, &mut machine, &bad);
        true
    }

    fn compare(&mut self, machine: &mut Machine, block: &Block, host: &State) -> Vec<String> {
        let guest = machine.run(block);
        match known::of(block, host, &guest) {
            Known::Skipped(why) => {
                *self.known.entry(why).or_default() += 1;
                Vec::new()
            }
            Known::Masked(mask) => {
                self.compared += 1;
                host.differences(&guest, &mask)
            }
        }
    }

    /// Finds the first instruction of each block after which the states differ.
    fn blame(&mut self, bits: u32, data: &[u8], machine: &mut Machine, bad: &[&Block]) {
        let cuts: Vec<Block> =
            bad.iter().flat_map(|block| (1..=block.instructions.len()).map(|n| block.cut(n))).collect();
        if cuts.is_empty() {
            return;
        }
        let cases: Vec<_> = cuts.iter().map(Block::for_host).collect();
        let host = on_host(bits, data, &cases).unwrap();
        let mut blamed = false;
        for (cut, host) in cuts.iter().zip(&host) {
            blamed &= cut.instructions.len() > 1;
            let guest = machine.run(cut);
            let mask = match known::of(cut, host, &guest) {
                Known::Masked(mask) if !blamed => mask,
                Known::Masked(_) => continue,
                // What comes later may follow from it.
                Known::Skipped(_) => {
                    blamed = true;
                    continue;
                }
            };
            let differences = host.differences(&guest, &mask);
            if !differences.is_empty() {
                blamed = true;
                let code = cut.instructions.last().unwrap().code();
                let count = self.differences.entry(code).or_default();
                *count += 1;
                if *count <= SHOWN {
                    let start = &cut.start.registers;
                    println!("{code:?}: {}: {}; from {start:x?}", cut.text(), differences.join("; "));
                }
            }
        }
    }
}

impl Found {
    fn assert_equal(&self, bits: u32, floor: usize) {
        println!("{bits} bits: {} blocks compared", self.compared);
        self.known.iter().for_each(|(why, count)| println!("  {count} blocks left out: {why}"));
        let all: Vec<String> =
            self.differences.iter().map(|(code, count)| format!("{code:?}, {count} times")).collect();
        assert!(all.is_empty(), "{bits} bits: forms differ: {}", all.join("; "));
        assert!(self.compared >= floor, "only {} blocks", self.compared);
    }
}

/// Compares so many blocks of a width.
fn check(bits: u32, blocks: usize) {
    let (mut found, mut rng) = (Found::default(), Rng(0x9e37_79b9_7f4a_7c15 + u64::from(bits)));
    for _ in 0..blocks.div_ceil(BATCH) {
        if !found.batch(bits, &mut rng) {
            return nothing(bits);
        }
    }
    found.assert_equal(bits, blocks / 2);
}

fn nothing(bits: u32) {
    println!("{bits} bits: this kernel runs no such program; nothing was compared");
}

#[test]
fn random_blocks_do_what_the_host_cpu_does_in_64_bit_code() {
    check(64, 4000);
}

#[test]
fn random_blocks_do_what_the_host_cpu_does_in_32_bit_code() {
    check(32, 4000);
}

#[test]
fn random_blocks_do_what_the_host_cpu_does_in_64_bit_code_at_length() {
    check(64, 700_000);
}

#[test]
fn random_blocks_do_what_the_host_cpu_does_in_32_bit_code_at_length() {
    check(32, 300_000);
}

/// PCMPESTRI and PCMPESTRM with lengths at the ends of their range: the engine reads beyond the operands for the least one. The CPU
/// of 32 bits has neither.
#[test]
fn strings_of_extreme_lengths_are_compared_as_by_the_host_cpu() {
    const LENGTHS: [u64; 14] = [
        0,
        1,
        7,
        8,
        15,
        16,
        17,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xffff_fff0,
        0xffff_ffff,
        1 << 63,
        u64::MAX,
    ];
    let (mut found, mut rng, mut blocks) = (Found::default(), Rng(0x7073_7472), Vec::new());
    for lengths in LENGTHS.iter().flat_map(|a| LENGTHS.map(|d| (*a, d))) {
        for form in [&[0x66, 0x0f, 0x3a][..], &[0x66, 0x48, 0x0f, 0x3a]] {
            for opcode in [0x60, 0x61] {
                let code = [form, &[opcode, 0xc1, rng.next() as u8]].concat();
                blocks.push(random::with_lengths(&mut rng, &code, lengths));
            }
        }
    }
    let data = random::data(&mut rng, false);
    assert!(found.blocks(64, &data, &blocks));
    found.assert_equal(64, blocks.len());
}
