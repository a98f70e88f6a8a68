//! The interpreter against the oracle, on random programs and a hostile guest.
//!
//! `TRAPLINE_FUZZ=N` runs N programs at each width instead of 200,000; a failing program is reduced and printed with
//! its seed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use crate::compare::{differs, of_the_interpreter, of_the_oracle, shape};
use crate::generate::{Choices, Generated, generate, mix};
use crate::naive::Ended;
use std::collections::BTreeMap;
use trapline_rpn::{Insn, NoSymbols, Op, OperandKind, TABLE, Vm, Width, parse, verify};

/// Programs at each width unless `TRAPLINE_FUZZ` says otherwise.
const PROGRAMS: u64 = 200_000;

fn programs() -> u64 {
    std::env::var("TRAPLINE_FUZZ").map_or(PROGRAMS, |n| n.parse().expect("TRAPLINE_FUZZ is a number"))
}

/// Reduces a program: removes everything that the difference does not need.
fn small(vm: &mut Vm, mut generated: Generated, seed: u64) -> Generated {
    for routine in 0..generated.routines.len() {
        for at in (0..generated.routines[routine].len()).rev() {
            let mut less = generated.clone();
            less.routines[routine].remove(at);
            for insn in &mut less.routines[routine] {
                let moves = insn.op.row().operand == OperandKind::Label && insn.arg > at as u64;
                insn.arg -= u64::from(moves);
            }
            if differs(vm, &less, seed) {
                generated = less;
            }
        }
    }
    generated
}

/// Runs the programs of a width on both; returns how many programs had each instruction.
fn compare_all(width: Width) -> BTreeMap<Op, u64> {
    let mut vm = Vm::new();
    let mut seen = BTreeMap::new();
    let mut ends = BTreeMap::<String, u64>::new();
    let (mut steps, mut traced) = (0, 0);
    for seed in 0..programs() {
        let generated = generate(&mut Choices::Seed(mix(seed ^ u64::from(width.bits()) << 56)), shape(width));
        let program = verify(generated.unverified()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        program.code().iter().for_each(|i| *seen.entry(i.op).or_default() += 1);
        let ours = of_the_interpreter(&mut vm, &program, seed);
        if ours != of_the_oracle(&program, seed) {
            let least = small(&mut vm, generated, seed);
            let program = verify(least.unverified()).unwrap();
            let (ours, oracle) = (of_the_interpreter(&mut vm, &program, seed), of_the_oracle(&program, seed));
            panic!(
                "seed {seed}, {width} bits\n{}\nthe interpreter: {ours:?}\n\nthe oracle:      {oracle:?}",
                least.source()
            );
        }
        steps += u64::from(ours.0.steps);
        traced += u64::from(ours.0.trace.as_ref().is_some_and(|(_, records, _)| *records > 0));
        let end =
            ours.0.exception.map_or_else(|| format!("{:?}", ours.0.termination), |e| format!("{:#06x}", e.0));
        *ends.entry(end).or_default() += 1;
    }
    ends.retain(|_, n| *n > programs() / 1000);
    println!("{} programs, {steps} instructions, {traced} stack traces, ends {ends:?}", programs());
    assert!(traced > programs() / 20, "{traced} stack traces of {} programs", programs());
    seen
}

/// Every row that the oracle knows was run, and often.
fn all_rows_were_generated(seen: &BTreeMap<Op, u64>) {
    let least = programs() / 50;
    let seldom: Vec<&str> = TABLE
        .iter()
        .filter(|r| shape(Width::W64).takes(r) && seen.get(&r.op).copied().unwrap_or(0) < least)
        .map(|r| r.form)
        .collect();
    assert!(seldom.is_empty(), "in fewer than {least} places: {seldom:?}");
}

#[test]
fn the_interpreter_does_as_the_oracle_at_32_bits() {
    all_rows_were_generated(&compare_all(Width::W32));
}

#[test]
fn the_interpreter_does_as_the_oracle_at_64_bits() {
    all_rows_were_generated(&compare_all(Width::W64));
}

#[test]
fn any_bytes_make_a_program_and_none_an_empty_one() {
    let empty = generate(&mut Choices::Bytes(&[]), shape(Width::W32));
    assert_eq!(empty.unverified().code, [Insn { op: Op::Exit, arg: 0 }]);
    let mut vm = Vm::new();
    for seed in 0..2_000u64 {
        let bytes: Vec<u8> = (0..mix(seed) % 300).map(|n| mix(seed << 32 | n) as u8).collect();
        for width in [Width::W32, Width::W64] {
            let generated = generate(&mut Choices::Bytes(&bytes), shape(width));
            assert!(!differs(&mut vm, &generated, seed), "{}", generated.source());
        }
    }
}

#[test]
fn the_source_of_a_program_compiles_to_the_same_behaviour() {
    let mut vm = Vm::new();
    for seed in 0..2_000 {
        for width in [Width::W32, Width::W64] {
            let generated = generate(&mut Choices::Seed(mix(seed)), shape(width));
            let source = generated.source();
            let linked = parse("generated", &source).unwrap_or_else(|d| panic!("{source}\n{d}"));
            let linked = linked.link(width, &NoSymbols).unwrap_or_else(|d| panic!("{source}\n{d}"));
            let direct = verify(generated.unverified()).unwrap();
            let (from_source, host) = of_the_interpreter(&mut vm, &linked.probes[0].handler, seed);
            let (direct, same_host) = of_the_interpreter(&mut vm, &direct, seed);
            // Procedures may lie in another order, and only those that are called.
            let place = |e: Option<(u64, u64, u64, u32)>| e.map(|(code, a, b, _)| (code, a, b));
            assert_eq!(place(from_source.exception), place(direct.exception), "{source}");
            let size =
                |e: &Ended| e.trace.as_ref().map(|(records, count, lost)| (records.len(), *count, *lost));
            assert_eq!(size(&from_source), size(&direct), "{source}");
            assert_eq!(
                (Ended { exception: None, trace: None, ..from_source }, host),
                (Ended { exception: None, trace: None, ..direct }, same_host),
                "{source}"
            );
        }
    }
}
