//! The displacement oracle: every opcode form, with every operand shape, run unprobed and probed in the same state.
//!
//! The forms are those of iced's tables, which are independent of Trapline. A form that the CPU model refuses must be refused
//! in both runs. Compared are the reason of the stop, the number of instructions, and the digest: registers, flags,
//! FPU, memory and the exception frame.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::forms;

use crate::common::{CODE, DATA, Guest, Rng, Setup, TF};
use crate::forms::{Form, SHAPES, Shape};
use iced_x86::{Decoder, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use std::collections::BTreeMap;
use trapline_emu::{Snapshot, Stop, TrapInterposer};
use trapline_interposer::{Place, Way};
use trapline_rpn::{LinkedProbe, LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::interposer;

/// Where the instruction of a case is.
const AT: u64 = CODE + 0x100;
/// `jmp $+2`.
const JUMP_ON: [u8; 2] = [0xeb, 0];
/// Instructions run: the displaced one, and two more that show its interrupt shadow, flags or target.
const RUN: u64 = 3;

/// A machine in the state from which every case starts.
struct Start {
    guest: Guest,
    snapshot: Snapshot,
    /// Its instruction count.
    base: u64,
    program: LinkedProgram,
    /// Traps after which sites are hit in line.
    in_line_after: u16,
}

impl Start {
    fn new(bits: u32, ring: u8, flags: u64) -> Self {
        let mut setup = Setup::bits(bits).ring(ring).flags(flags);
        setup.cr4 |= 0x600;
        let pattern: Vec<u8> = (0..0x1000u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 23) as u8).collect();
        let mut guest = setup.code(&vec![0x90; 0x400]).at(DATA, &pattern).pte(forms::ABSENT, 0).boot();
        for (n, value) in forms::REGISTERS.iter().enumerate().filter(|(n, _)| *n != 4) {
            guest.set(n, *value);
        }
        guest.core().env().set_eip(AT);
        let snapshot = guest.m.snapshot();
        let text = "name = vmlinux\nmodtype = kernel\naddress = 0\nopcode = 0x90\npush r, eax\npush r, esp\nlog 2\nexit";
        let width = if bits == 64 { Width::W64 } else { Width::W32 };
        let program = parse("case.rpn", text).unwrap().link(width, &NoSymbols).unwrap();
        Start { base: guest.m.icount(), guest, snapshot, program, in_line_after: 0 }
    }

    /// Runs one case; `probed` says with a probe on its first instruction.
    fn run(&mut self, code: &[u8], probed: bool) -> (Outcome, Option<Way>) {
        self.run_for(code, RUN, if probed { &[0] } else { &[] })
    }

    /// Runs code for a number of instructions, with probes at these offsets. Returns how the first was displaced.
    fn run_for(&mut self, code: &[u8], length: u64, sites: &[usize]) -> (Outcome, Option<Way>) {
        self.guest.m.restore(&self.snapshot).unwrap();
        self.guest.m.write_physical(AT, code);
        self.guest.m.core_mut().set_in_line_after(self.in_line_after);
        let limit = self.guest.m.icount() + length;
        if sites.is_empty() {
            let stop = self.guest.m.run(None, limit);
            return (self.outcome(stop), None);
        }
        let mut probes = interposer();
        let mut program = self.program.clone();
        program.probes = sites
            .iter()
            .map(|&at| LinkedProbe { opcode: code[at], ..self.program.probes[0].clone() })
            .collect();
        let place = |&at: &usize| Place::Kernel { linear: AT + at as u64, paddr: AT + at as u64 };
        let places = sites.iter().map(place).collect();
        let id = probes.insert(self.guest.m.core_mut(), "case", program, places).unwrap();
        let stop = self.guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit);
        let way = probes.armed_sites().next().and_then(|(_, _, way)| way);
        let outcome = self.outcome(stop);
        probes.remove(self.guest.m.core_mut(), id);
        (outcome, way)
    }

    fn outcome(&self, stop: Stop) -> Outcome {
        Outcome {
            stop,
            icount: self.guest.m.icount(),
            digest: self.guest.m.digest().to_string(),
            registers: self.guest.core().dump_registers(),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    stop: Stop,
    icount: u64,
    digest: String,
    registers: String,
}

impl Outcome {
    /// The message if the probed run of a case differs from this one.
    fn difference(&self, probed: &Outcome, case: &str) -> Option<String> {
        let said = |o: &Outcome| format!("{:?} {}\n{}", o.stop, o.icount, o.registers);
        (self != probed).then(|| format!("{case}\n{}\n{}", said(self), said(probed)))
    }
}

/// Every form in one mode, ring and state of TF. Returns how many cases were displaced in each way.
fn check(bits: u32, ring: u8, flags: u64) -> BTreeMap<Way, usize> {
    let mut start = Start::new(bits, ring, flags);
    let (mut ways, mut bad) = (BTreeMap::new(), Vec::new());
    let mut forms_seen = 0;
    for form in Form::all(bits) {
        let mut shapes = 0;
        for shape in SHAPES {
            let Some(code) = form.encode(bits, shape, AT) else { continue };
            shapes += 1;
            let (plain, _) = start.run(&code, false);
            let (probed, way) = start.run(&code, true);
            if let Some(way) = way {
                *ways.entry(way).or_default() += 1;
            }
            bad.extend(plain.difference(&probed, &format!("{form:?} {shape:?} {code:02x?} {way:?}")));
            // Its block is short enough to run in one go; the first trap leads to the hit in line.
            let code = [code, JUMP_ON.to_vec()].concat();
            let (plain, _) = start.run(&code, false);
            start.in_line_after = 1;
            let (probed, _) = start.run(&code, true);
            start.in_line_after = 0;
            bad.extend(plain.difference(&probed, &format!("in line {form:?} {shape:?} {code:02x?} {way:?}")));
        }
        if shapes == 0 {
            bad.push(format!("{form:?} has no case"));
        }
        forms_seen += 1;
    }
    println!(
        "{bits} bits, ring {ring}, flags {flags:#x}: {forms_seen} forms, {ways:?}, {} differ",
        bad.len()
    );
    let names: Vec<&str> = bad.iter().map(|b| b.lines().next().unwrap_or_default()).collect();
    assert!(bad.is_empty(), "{}\n\n{}", names.join("\n"), bad.first().unwrap());
    // Instructions that are stepped, fault or are refused are not hit in line; with TF set none is.
    let in_line = start.guest.core().hits_in_line();
    assert!(in_line > 500 || flags & TF != 0, "{in_line} hits in line");
    ways
}

#[test]
fn forms_in_32_bit_kernel_code() {
    check(32, 0, 0);
}

#[test]
fn forms_in_32_bit_user_code() {
    check(32, 3, 0x200);
}

#[test]
fn forms_in_64_bit_kernel_code() {
    check(64, 0, 0);
}

#[test]
fn forms_in_64_bit_user_code() {
    check(64, 3, 0x200);
}

#[test]
fn forms_single_stepped_at_length() {
    check(32, 0, TF);
    check(64, 3, TF);
}

/// A loop of random instructions, and the offset of each.
fn stream(bits: u32, known: &[(Form, Shape)], random: &mut Rng) -> (Vec<u8>, Vec<usize>) {
    let (mut code, mut sites) = (Vec::new(), Vec::new());
    while sites.len() < 40 {
        let (form, shape) = known[random.below(known.len() as u64) as usize];
        if let Some(bytes) = form.encode(bits, shape, AT + code.len() as u64) {
            sites.push(code.len());
            code.extend(bytes);
        }
    }
    sites.push(code.len());
    let back = -(code.len() as i32 + 5);
    code.push(0xe9);
    code.extend(back.to_le_bytes());
    (code, sites)
}

/// Instructions for streams: they run here without a fault, continue after themselves, and write no pointer.
fn harmless(start: &mut Start, bits: u32) -> Vec<(Form, Shape)> {
    let mut known = Vec::new();
    for form in Form::all(bits) {
        for shape in [Shape::Register, Shape::Base, Shape::Index, Shape::Absolute] {
            let Some(code) = form.encode(bits, shape, AT) else { continue };
            let i = Decoder::new(bits, &code, 0).decode();
            if i.is_invalid() || i.flow_control() != FlowControl::Next || i.is_privileged() || spoils(&i) {
                continue;
            }
            let (outcome, _) = start.run(&code, false);
            if outcome.stop == Stop::Limit && start.guest.ip() > AT && start.guest.ip() < AT + 20 {
                known.push((form, shape));
            }
        }
    }
    known
}

/// Whether the loop might end.
fn spoils(i: &Instruction) -> bool {
    let pointers = [Register::RBX, Register::RSI, Register::RDI, Register::RSP, Register::RBP];
    let mut factory = InstructionInfoFactory::new();
    let written = factory.info(i).used_registers().iter().any(|used| {
        let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
        writes && pointers.contains(&used.register().full_register())
    });
    let faults_by_value = matches!(i.mnemonic(), Mnemonic::Div | Mnemonic::Idiv | Mnemonic::Bound);
    written || faults_by_value || i.is_stack_instruction() || i.is_string_instruction()
}

/// At least `total` random instructions in a mode and ring, each of them probed. A failure names its seed.
fn random_streams(bits: u32, ring: u8, total: u64) {
    let mut start = Start::new(bits, ring, 0);
    let known = harmless(&mut start, bits);
    assert!(known.len() > 600, "{} forms and shapes", known.len());
    let (mut done, base) = (0, start.base);
    for seed in 1.. {
        let mut random = Rng(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let (code, sites) = stream(bits, &known, &mut random);
        let (plain, _) = start.run_for(&code, 50_000, &[]);
        let (probed, _) = start.run_for(&code, 50_000, &sites);
        if plain != probed {
            let alone = |at: &&usize| start.run_for(&code, 50_000, &[**at]).0 != plain;
            let site = sites.iter().find(alone).copied();
            let i = site.map(|at| Decoder::new(bits, &code[at..], 0).decode().to_string());
            panic!(
                "{bits} bits, ring {ring}, seed {seed}: {code:02x?}\nalone differs {site:x?} {i:?}\n{}\n{}",
                plain.registers, probed.registers
            );
        }
        done += plain.icount - base;
        if done >= total {
            println!(
                "{bits} bits, ring {ring}: {} shapes, {done} instructions, seeds 1 to {seed}",
                known.len()
            );
            return;
        }
        assert!(seed < 20_000, "only {done} instructions");
    }
}

#[test]
fn random_streams_in_32_bit_code() {
    random_streams(32, 0, 2_500_000);
    random_streams(32, 3, 2_500_000);
}

#[test]
fn random_streams_in_64_bit_code() {
    random_streams(64, 0, 2_500_000);
    random_streams(64, 3, 2_500_000);
}

/// Probes inside instructions: on every byte except the first of each.
#[test]
fn patches_inside_instructions_change_nothing() {
    for (bits, ring) in [(32, 0), (32, 3), (64, 0), (64, 3)] {
        let mut start = Start::new(bits, ring, 0);
        let known = harmless(&mut start, bits);
        for seed in 1..=10 {
            let (code, starts) = stream(bits, &known, &mut Rng(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed)));
            let inside: Vec<usize> = (0..code.len()).filter(|at| !starts.contains(at)).collect();
            let (plain, _) = start.run_for(&code, 300, &[]);
            let (probed, _) = start.run_for(&code, 300, &inside);
            assert!(plain == probed, "{bits} bits, ring {ring}, seed {seed}: {code:02x?}");
            // Some on instructions, some inside: on arbitrary bytes.
            let any: Vec<usize> =
                (0..code.len()).filter(|at| !(at * 7 + seed as usize).is_multiple_of(3)).collect();
            let (probed, _) = start.run_for(&code, 300, &any);
            assert!(plain == probed, "{bits} bits, ring {ring}, seed {seed}, any byte: {code:02x?}");
        }
    }
}
