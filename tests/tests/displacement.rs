//! The displacement oracle: every opcode form, with every operand shape, run unprobed and probed in the same state.
//!
//! The forms are those of iced's tables, which nobody here wrote; a form that the CPU model refuses must be refused
//! alike. Equal must be: why the run stopped, how many instructions it took, and the digest, which is registers, flags,
//! FPU, memory and the exception frame.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../emu/tests/common/mod.rs"]
mod common;
#[path = "displacement/forms.rs"]
mod forms;

use common::{CODE, DATA, Guest, Setup, TF};
use forms::{Form, SHAPES};
use std::collections::BTreeMap;
use trapline_emu::{Snapshot, Stop, TrapInterposer};
use trapline_interposer::{Place, Way};
use trapline_rpn::{LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::interposer;

/// Where the instruction of a case is.
const AT: u64 = CODE + 0x100;
/// Instructions run: the displaced one, and what its shadow, flags or target show in the next two.
const RUN: u64 = 3;

/// A machine in the state from which every case starts.
struct Start {
    guest: Guest,
    snapshot: Snapshot,
    program: LinkedProgram,
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
        let snapshot = guest.m.snapshot(None);
        let text = "name = vmlinux\nmodtype = kernel\naddress = 0\nopcode = 0x90\npush r, eax\npush r, esp\nlog 2\nexit";
        let width = if bits == 64 { Width::W64 } else { Width::W32 };
        let program = parse("case.rpn", text).unwrap().link(width, &NoSymbols).unwrap();
        Start { guest, snapshot, program }
    }

    /// Runs one case; `probed` says with a probe on it.
    fn run(&mut self, code: &[u8], probed: bool) -> (Outcome, Option<Way>) {
        self.guest.m.restore(&self.snapshot).unwrap();
        self.guest.m.write_physical(AT, code);
        let limit = self.guest.m.icount() + RUN;
        if !probed {
            let stop = self.guest.m.run(None, limit);
            return (self.outcome(stop), None);
        }
        let mut probes = interposer();
        let mut program = self.program.clone();
        program.probes[0].opcode = code[0];
        let place = Place::Kernel { linear: AT, paddr: AT };
        let id = probes.insert(self.guest.m.core_mut(), "case", program, vec![place]).unwrap();
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

/// Every form in one mode, ring and state of TF. Answers how many cases went each way.
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
            if plain != probed {
                bad.push(format!(
                    "{form:?} {shape:?} {code:02x?} {way:?}\n{:?} {}\n{}\n{:?} {}\n{}",
                    plain.stop, plain.icount, plain.registers, probed.stop, probed.icount, probed.registers
                ));
            }
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
fn forms_single_stepped() {
    check(32, 0, TF);
    check(64, 3, TF);
}
