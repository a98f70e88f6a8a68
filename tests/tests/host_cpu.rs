//! The displacement cases against a second oracle: the CPU of the host, in ring 3.
//!
//! Every legacy form and operand shape that ring 3 can execute runs once on the host's CPU, as one instruction of a
//! Linux process made for it (`host_cpu/program.rs`), and in the guest from the same registers, flags, FPU state and
//! memory, without a probe and with one. These must be equal: registers, defined flags, x87 and SSE registers, memory,
//! and the exception with its error code and address. Exceptions are in `host_cpu/limits.rs`, each with its reason.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::forms;
mod blocks;
mod limits;
mod program;
mod state;

use crate::common::{CODE, DATA, Guest, P, RW, STACK3, Setup, US};
use crate::forms::{Form, SHAPES, Shape};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Register};
use program::{AT, DATA_BYTES, STACK_BYTES, STACK_PAGES, Start, program};
use state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use trapline_emu::{Machine, Snapshot, Stop, TrapInterposer};
use trapline_interposer::Place;
use trapline_rpn::{LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::interposer;

/// EFLAGS at each case's start, without TF: IF, and all arithmetic flags but OF.
const FLAGS: u64 = 0x2d7;
/// Where the guest finds the FPU's state at its start.
const FX: u64 = DATA + 0x1000;

fn pattern() -> Vec<u8> {
    let mut data: Vec<u8> = (0..0x1000u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 23) as u8).collect();
    data.extend(state::fx_image());
    data.resize(DATA_BYTES as usize, 0);
    data
}

fn registers(bits: u32) -> [u64; 16] {
    let mut all = forms::REGISTERS;
    all[4] = STACK3;
    if bits == 32 {
        all.iter_mut().for_each(|r| *r &= 0xffff_ffff);
    }
    all
}

/// Runs single instructions on the host, with these flags at their start; `None` where it does not run code of this width.
fn single_on_host(bits: u32, flags: u64, cases: &[Vec<u8>]) -> Option<Vec<State>> {
    let start = Start { registers: registers(bits), flags: flags | 0x100, fx: state::fx_image() };
    let cases: Vec<_> = cases.iter().map(|code| (code.clone(), start.clone())).collect();
    on_host(bits, &pattern(), &cases)
}

/// Runs the cases on the host; `None` where it does not run code of this width.
fn on_host(bits: u32, data: &[u8], cases: &[(Vec<u8>, Start)]) -> Option<Vec<State>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cases");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&program(bits, data, cases)).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o700)).unwrap();
    drop(file);
    let output = match std::process::Command::new(&path).output() {
        Ok(output) => output,
        // ENOEXEC: a kernel without 32-bit programs.
        Err(e) if e.raw_os_error() == Some(8) => return None,
        Err(e) => panic!("{}: {e}", path.display()),
    };
    let size = state::record_bytes(bits);
    let done = output.stdout.len() / size;
    assert!(
        output.status.success() && done == cases.len(),
        "{bits} bits: {:?} after {done} of {} cases: {:02x?}",
        output.status,
        cases.len(),
        cases.get(done).map(|(code, _)| code)
    );
    Some(output.stdout.chunks(size).map(|record| State::of_host(bits, record)).collect())
}

/// The guest in the state from which every case starts, with exactly the pages of the host's process.
struct Oracle {
    guest: Guest,
    snapshot: Snapshot,
    program: LinkedProgram,
    bits: u32,
}

impl Oracle {
    fn new(bits: u32) -> Self {
        let mut setup = Setup::bits(bits).ring(3).flags(FLAGS);
        setup.cr4 |= 0x600;
        for page in 0..512u64 {
            let at = page << 12;
            let inside = |start: u64, length: u64| (start..start + length).contains(&at);
            let ours = inside(CODE, 0x1000) || inside(DATA, DATA_BYTES) || inside(STACK_PAGES, STACK_BYTES);
            setup = setup.pte(at, at | P | RW | if ours { US } else { 0 });
        }
        let mut code = vec![0x90; 0x400];
        let load: &[u8] = if bits == 64 { &[0x0f, 0xae, 0x0c, 0x25] } else { &[0x0f, 0xae, 0x0d] };
        code[..load.len()].copy_from_slice(load);
        code[load.len()..load.len() + 4].copy_from_slice(&(FX as u32).to_le_bytes());
        let mut guest = setup.code(&code).at(DATA, &pattern()).pte(forms::ABSENT, 0).boot();
        assert_eq!(guest.run_to(1), Stop::Limit);
        guest.m.write_physical(CODE, &[0x90; 8]);
        guest.m.write_physical(STACK_PAGES, &vec![0; STACK_BYTES as usize]);
        for (n, value) in registers(bits).iter().enumerate() {
            guest.set(n, *value);
        }
        guest.core().env().set_eip(AT);
        let snapshot = guest.m.snapshot();
        let text = "name = vmlinux\nmodtype = kernel\naddress = 0\nopcode = 0x90\npush r, eax\nlog 1\nexit";
        let width = if bits == 64 { Width::W64 } else { Width::W32 };
        let program = parse("case.rpn", text).unwrap().link(width, &NoSymbols).unwrap();
        Oracle { guest, snapshot, program, bits }
    }

    fn run(&mut self, code: &[u8], probed: bool) -> State {
        let m = &mut self.guest.m;
        m.restore(&self.snapshot).unwrap();
        m.write_physical(AT, code);
        let limit = m.icount() + 1;
        let mut probes = interposer();
        if probed {
            let mut program = self.program.clone();
            program.probes[0].opcode = code[0];
            let place = Place::Kernel { linear: AT, paddr: AT };
            probes.insert(m.core_mut(), "case", program, vec![place]).unwrap();
        }
        let mut run =
            |m: &mut Machine, limit| m.run(probed.then_some(&mut probes as &mut dyn TrapInterposer), limit);
        let mut stop = run(m, limit);
        if m.core().env().cpl() == 0 {
            stop = run(m, limit + 10);
        }
        let state = State::of_guest(self.bits, &self.guest, &stop);
        if probed {
            self.guest.m.core_mut().disarm(AT);
        }
        state
    }
}

/// CF, PF, AF, ZF, SF, OF.
const ARITHMETIC: u64 = 0x8d5;
/// A jump to the next instruction: the engine ends its block there.
const CUT: &[u8] = &[0xeb, 0];
/// Instructions that set the flags and nothing else, and their result for the initial registers: `cmp ecx, edx`,
/// `cmp dl, cl`, `test ecx, ecx`.
const SETTERS: [(&[u8], u64); 3] = [(&[0x39, 0xd1], 0x283), (&[0x38, 0xca], 0xa16), (&[0x85, 0xc9], 0x206)];

impl Oracle {
    /// The flags after `code`, with `setter` before it and PUSHF after it, all in one block unless it is cut; the flags
    /// in the frame if it faults.
    fn flags(&mut self, setter: &[u8], code: &[u8], before: bool, after: bool) -> u64 {
        let m = &mut self.guest.m;
        m.restore(&self.snapshot).unwrap();
        let cut = |wanted: bool| if wanted { CUT } else { &[] };
        let lead = [setter, cut(before)].concat();
        // pushf; hlt, which is #GP in ring 3.
        let all = [&lead, code, cut(after), &[0x9c, 0xf4]].concat();
        let start = AT - lead.len() as u64;
        m.write_physical(start, &all);
        self.guest.core().env().set_eip(start);
        let limit = self.guest.m.icount() + 100;
        assert_eq!(self.guest.m.run(None, limit), Stop::Halted, "{code:02x?}");
        let frame = self.guest.frame();
        let done = frame.vector == 13 && frame.ip == start + all.len() as u64 - 1;
        let flags = if done { self.guest.mem(frame.stack.unwrap().0, 4) } else { frame.flags };
        flags & ARITHMETIC
    }
}

/// Compares the flags after every form, with the block cut before or after it or not at all, with each other and with
/// the host's.
fn check_flags(bits: u32, floor: usize) {
    let mut cases = Vec::new();
    for form in Form::all(bits) {
        for shape in [Shape::Register, Shape::Base, Shape::Absent] {
            let Some(code) = form.encode(bits, shape, AT) else { continue };
            let i = Decoder::with_ip(bits, &code, AT, DecoderOptions::NONE).decode();
            if i.flow_control() == FlowControl::Next && limits::left_out(bits, form, &i).is_none() {
                cases.push((shape, code, i));
            }
        }
    }
    let codes: Vec<Vec<u8>> = cases.iter().map(|(_, code, _)| code.clone()).collect();
    let mut oracle = Oracle::new(bits);
    let (mut bad, mut compared) = (Vec::new(), 0);
    for (setter, start) in SETTERS {
        let host = single_on_host(bits, start, &codes);
        for (n, (shape, code, i)) in cases.iter().enumerate() {
            let cuts = [(false, false), (true, false), (false, true), (true, true)];
            let all = cuts.map(|(before, after)| oracle.flags(setter, code, before, after));
            let undefined = limits::mask(i).flags;
            let differ = all.iter().any(|flags| *flags != all[0]);
            let other =
                host.as_ref().filter(|_| limits::known(i, *shape).is_none()).map(|host| host[n].flags);
            let wrong = other.is_some_and(|host| (host ^ all[0]) & ARITHMETIC & !undefined != 0);
            if differ || wrong {
                bad.push(format!("{:?} {shape:?} after {start:x}: {all:x?}, host {other:x?}", i.code()));
            }
            compared += 1;
        }
    }
    assert!(bad.is_empty(), "{} differ\n{}", bad.len(), bad.join("\n"));
    assert!(compared >= floor, "only {compared} cases");
}

#[test]
fn flags_do_not_depend_on_where_the_block_is_cut_in_64_bit_code() {
    check_flags(64, 7000);
}

#[test]
fn flags_do_not_depend_on_where_the_block_is_cut_in_32_bit_code() {
    check_flags(32, 4000);
}

/// An instruction, and the form and the shape that it was made from.
struct Case {
    form: Form,
    shape: Shape,
    code: Vec<u8>,
    i: Instruction,
}

/// The cases that are compared, and how many are not, by the reason.
#[derive(Default)]
struct Cases {
    compared: Vec<Case>,
    left_out: BTreeMap<&'static str, usize>,
}

impl Cases {
    fn add(&mut self, bits: u32, (form, shape): (Form, Shape), code: Vec<u8>) {
        let i = Decoder::with_ip(bits, &code, AT, DecoderOptions::NONE).decode();
        match limits::left_out(bits, form, &i) {
            Some(why) => *self.left_out.entry(why).or_default() += 1,
            None => self.compared.push(Case { form, shape, code, i }),
        }
    }

    /// Every form in every shape.
    fn of_forms(bits: u32) -> Self {
        let mut cases = Self::default();
        for form in Form::all(bits) {
            for shape in SHAPES {
                if let Some(code) = form.encode(bits, shape, AT) {
                    cases.add(bits, (form, shape), code);
                }
            }
        }
        cases
    }

    /// Every form, in registers and in memory, with each of the prefixes that it does not need.
    fn with_prefixes(bits: u32, prefixes: &[u8]) -> Self {
        let mut cases = Self::default();
        for form in Form::all(bits) {
            for shape in [Shape::Register, Shape::Base] {
                let Some(code) = form.encode(bits, shape, AT) else { continue };
                for code in prefixes.iter().filter_map(|prefix| prefixed(&code, *prefix)) {
                    let i = Decoder::with_ip(bits, &code, AT, DecoderOptions::NONE).decode();
                    // It holds `forms::ABSENT`.
                    let away = i.memory_base().full_register() == Register::R11;
                    if !i.is_invalid() {
                        cases.add(bits, (Form(i.code()), if away { Shape::Absent } else { shape }), code);
                    }
                }
            }
        }
        cases
    }
}

/// The instruction with one more prefix, if it can have it: REX stands before the opcode, all others first.
fn prefixed(code: &[u8], prefix: u8) -> Option<Vec<u8>> {
    const REX: std::ops::RangeInclusive<u8> = 0x40..=0x4f;
    let begin = code.iter().take_while(|byte| limits::LEGACY.contains(byte)).count();
    let at = if REX.contains(&prefix) { begin } else { 0 };
    let fits = !(REX.contains(&prefix) && code.get(at).is_some_and(|next| REX.contains(next)));
    fits.then(|| [&code[..at], &[prefix], &code[at..]].concat())
}

/// Compares the cases; at least `floor` must be compared, and omitted cases are printed.
fn check(bits: u32, floor: usize, cases: Cases) {
    let codes: Vec<Vec<u8>> = cases.compared.iter().map(|case| case.code.clone()).collect();
    let Some(host) = single_on_host(bits, FLAGS, &codes) else {
        println!("{bits} bits: this kernel runs no such program; nothing was compared");
        return;
    };
    let mut oracle = Oracle::new(bits);
    let (mut bad, mut forms_seen, mut faults) = (Vec::new(), BTreeSet::new(), 0);
    let mut limits = BTreeMap::<&str, usize>::new();
    for (Case { form, shape, code, i }, host) in cases.compared.iter().zip(&host) {
        let mask = limits::mask(i);
        let (plain, probed) = (oracle.run(code, false), oracle.run(code, true));
        let mut differences = plain.differences(&probed, &limits::Mask::NOTHING);
        match limits::known(i, *shape).or_else(|| limits::known_prefixes(code, i)) {
            Some(why) => *limits.entry(why).or_default() += 1,
            None => {
                faults += usize::from(host.fault.is_some());
                forms_seen.insert(format!("{form:?}"));
                differences.extend(host.differences(&plain, &mask));
                differences.extend(host.differences(&probed, &mask));
            }
        }
        if !differences.is_empty() {
            bad.push(format!("{form:?} {shape:?} {code:02x?}: {}", differences.join("; ")));
        }
    }
    let compared = cases.compared.len() - limits.values().sum::<usize>();
    println!("{bits} bits: {} forms, {} cases compared, {faults} of them faults", forms_seen.len(), compared);
    for (why, count) in &limits {
        println!("  {count} cases in which the engine differs: {why}");
    }
    for (why, count) in &cases.left_out {
        println!("  {count} cases left out: {why}");
    }
    assert!(bad.is_empty(), "{} differ\n{}", bad.len(), bad.join("\n"));
    assert!(compared >= floor, "only {compared} cases");
}

#[test]
fn displaced_instructions_do_what_the_host_cpu_does_in_64_bit_code() {
    check(64, 5300, Cases::of_forms(64));
}

#[test]
fn displaced_instructions_do_what_the_host_cpu_does_in_32_bit_code() {
    check(32, 3300, Cases::of_forms(32));
}

#[test]
fn a_prefix_that_is_not_needed_does_what_it_does_on_the_host_cpu_in_64_bit_code() {
    check(64, 8000, Cases::with_prefixes(64, &[0x40, 0x4f, 0x36, 0x66, 0xf2, 0xf3]));
}

#[test]
fn a_prefix_that_is_not_needed_does_what_it_does_on_the_host_cpu_in_32_bit_code() {
    check(32, 3000, Cases::with_prefixes(32, &[0x36, 0x66, 0xf2, 0xf3]));
}
