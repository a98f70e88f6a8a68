//! Targets of the language.

use crate::compare::{differs, shape};
use crate::generate::{Choices, generate, mix};
use crate::hostile::Hostile;
use crate::ppdf_files::fixed;
use crate::{Checks, Part};
use std::cell::RefCell;
use trapline_rpn::ppdf::{Ppdf, disassemble, write};
use trapline_rpn::{
    AnySymbol, Insn, Limits, Loader, Op, ParseOptions, Program, TABLE, Unverified, Vars, Vm, Width, parse,
    parse_with, preprocess, verify,
};

/// Instructions that a handler may run: enough to end by any other limit, few enough for many runs a second.
const STEPS: u32 = 2_000;

thread_local! {
    /// One interpreter for all executions: no run may depend on the state that an earlier run left.
    static VM: RefCell<Vm> = RefCell::new(Vm::new());
}

/// Calls `with` with the interpreter, limited to `steps` instructions.
pub fn with_vm<T>(steps: u32, act: impl FnOnce(&mut Vm) -> T) -> T {
    VM.with_borrow_mut(|vm| {
        vm.set_max_steps(steps);
        act(vm)
    })
}

/// Every include finds the text itself, or nothing.
struct Itself<'a>(&'a str, usize);

impl Loader for Itself<'_> {
    fn load(&mut self, path: &str, _: &str) -> Result<(String, String), String> {
        self.1 += 1;
        let found = (format!("{path}{}", self.1), self.0.to_owned());
        if self.1 < 4 { Ok(found) } else { Err("no such file".to_owned()) }
    }
}

/// Runs every handler of a program at both widths, on a hostile guest.
fn run(program: &Program) {
    for width in [Width::W32, Width::W64] {
        let Ok(linked) = program.link(width, &AnySymbol) else { continue };
        let (mut lv, mut gv) = (vec![0; linked.header.vars as usize], vec![0; linked.header.gvars as usize]);
        for (n, probe) in linked.probes.iter().enumerate() {
            let mut guest = Hostile::new(mix(n as u64), width);
            with_vm(STEPS, |vm| vm.run(&probe.handler, &mut guest, Vars { lv: &mut lv, gv: &mut gv }));
        }
    }
}

pub fn source(bytes: &[u8], checks: Checks) {
    let text = String::from_utf8_lossy(bytes);
    let options = ParseOptions::default();
    if checks.have(Part::Preprocessed) {
        let preprocessed = preprocess("fuzz.rpn", &text, &options, &mut Itself(&text, 0));
        assert!(preprocessed.text.len() < 1 << 24);
    }
    match parse_with("fuzz.rpn", &text, &options, &mut Itself(&text, 0)) {
        Err(found) => {
            assert!(found.errors() > 0);
            assert!(!checks.have(Part::Shown) || !found.to_string().is_empty());
        }
        Ok(program) => {
            if checks.have(Part::Printed) {
                let printed = program.to_source();
                let again =
                    parse("printed.rpn", &printed).unwrap_or_else(|found| panic!("{printed}\n{found}"));
                assert_eq!(printed, again.to_source());
            }
            if checks.have(Part::Run) {
                run(&program);
            }
        }
    }
}

pub fn ppdf(bytes: &[u8], checks: Checks) {
    one_ppdf(bytes, checks);
    // Also with corrected length and checksum, to reach the code after these checks.
    let fixed = fixed(bytes.to_vec());
    if fixed != bytes {
        one_ppdf(&fixed, checks);
    }
}

fn one_ppdf(bytes: &[u8], checks: Checks) {
    let file = match Ppdf::read(bytes) {
        Ok(file) => file,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let written = write(&file.program, None).unwrap();
    // A signature follows the content, and a later minor version precedes it.
    if file.signer.is_none() && file.version == (1, 0) {
        assert!(written == bytes, "a program has one file");
    }
    if checks.have(Part::Printed) {
        let shown = disassemble(&file.program, None);
        let again = parse("shown.rpn", &shown).unwrap_or_else(|found| panic!("{shown}\n{found}"));
        assert!(write(&again, None).unwrap() == written, "{shown}");
    }
    if checks.have(Part::Run) {
        run(&file.program);
    }
}

/// Limits, routines and instructions straight from the bytes.
fn unverified(bytes: &[u8]) -> Option<Unverified> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let limits = Limits {
        width: if head[0] & 1 == 0 { Width::W32 } else { Width::W64 },
        logmax: u32::from(head[1]) * 4,
        jmpmax: u32::from(head[2]),
        vars: u32::from(head[3] & 15),
        gvars: u32::from(head[4] & 15),
        excpt_mask: u32::from_le_bytes([head[5], head[6], 0, 0]),
        excpt_log: u32::from(head[7]) * 8,
        autostacktrace: head[0] & 2 != 0,
        kernel: head[0] & 4 != 0,
    };
    let mut routines = vec![0];
    let mut code = Vec::new();
    for insn in rest.chunks(3) {
        let [op, low, high] = [0, 1, 2].map(|n| insn.get(n).copied().unwrap_or_default());
        if op == 0xff {
            routines.push(code.len() as u32);
            continue;
        }
        let op = TABLE[usize::from(op) % TABLE.len()].op;
        let arg = u64::from(low) | u64::from(high) << 8;
        // Numbers near both ends of the word.
        code.push(Insn { op, arg: if high >= 0xf0 { limits.width.mask() - arg } else { arg } });
    }
    code.push(Insn { op: if routines.len() == 1 { Op::Exit } else { Op::Ret }, arg: 0 });
    Some(Unverified { code, routines, limits })
}

pub fn verifier(bytes: &[u8], _: Checks) {
    let Some(code) = unverified(bytes) else { return };
    let Ok(program) = verify(code) else { return };
    let limits = *program.limits();
    let (mut lv, mut gv) = (vec![0; limits.vars as usize], vec![0; limits.gvars as usize]);
    let mut guest = Hostile::new(mix(bytes.len() as u64), limits.width);
    with_vm(STEPS, |vm| {
        let outcome = vm.run(&program, &mut guest, Vars { lv: &mut lv, gv: &mut gv });
        assert!(outcome.steps <= STEPS && vm.log().len() <= limits.logmax as usize);
        if let Some(trace) = vm.stack_trace() {
            assert!(trace.records.len() <= limits.excpt_log as usize);
        }
    });
}

pub fn interpreter(bytes: &[u8], checks: Checks) {
    let (seed, choices) = bytes.split_first().unwrap_or((&0, &[]));
    let [first, other] = if seed & 0x80 == 0 { [Width::W32, Width::W64] } else { [Width::W64, Width::W32] };
    for width in std::iter::once(first).chain(checks.have(Part::OtherWidth).then_some(other)) {
        let generated = generate(&mut Choices::Bytes(choices), shape(width));
        let seed = u64::from(*seed);
        let differs = with_vm(STEPS, |vm| differs(vm, &generated, seed));
        assert!(!differs, "{}", generated.source());
    }
}
