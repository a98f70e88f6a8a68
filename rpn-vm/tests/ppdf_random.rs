//! Random probe programs, as source with all variations that the language allows: a PPDF file preserves them, and its
//! disassembly builds to the same bytes.
//!
//! 25,000 programs, or as many as `TRAPLINE_PPDF_PROGRAMS` says. A program depends on its number alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

mod generate;

use generate::{Files, Random, source};
use trapline_rpn::ppdf::{Ppdf, disassemble, is_ppdf, write};
use trapline_rpn::{
    Atom, Location, Operand, ParseOptions, Program, Routine, SymbolResolver, Width, parse, parse_with,
};

/// A symbol's value depends on its name and on where it is looked up.
struct Hashed;

impl SymbolResolver for Hashed {
    fn resolve(&self, module: Option<&str>, name: &str) -> Option<u64> {
        let text = format!("{module:?} {name}");
        Some(text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

fn compile(number: u64) -> (String, Program) {
    let mut random = Random::new(number);
    let mut files = Files::default();
    let text = source(&mut random, &mut files);
    let program = parse_with("random.rpn", &text, &ParseOptions::default(), &mut files);
    let program = program.unwrap_or_else(|found| panic!("program {number}:\n{text}\n{found}"));
    (text, program)
}

/// The result of linking without columns: everything that affects a run.
fn linked(program: &Program, width: Width) -> String {
    let linked = match program.link(width, &Hashed) {
        Ok(linked) => linked,
        Err(found) => {
            let said = found.list.iter().map(|d| format!("{}:{}: {}\n", d.file, d.line, d.message));
            return said.collect();
        }
    };
    let probes = linked.probes.iter().map(|probe| {
        let mut probe = probe.clone();
        probe.span = Default::default();
        format!("{probe:?}\n")
    });
    probes.collect::<String>() + &format!("{:?}", linked.header)
}

/// The parts of a program that linking ignores or may refuse.
fn outline(program: &Program) -> String {
    let place = |file: u32, line: u32| format!("{}:{line}", program.sources.name(file));
    let routine = |routine: &Routine| {
        let lines: Vec<String> = routine.body.iter().map(|i| place(i.span.file, i.span.line)).collect();
        let ops: Vec<&str> = routine.body.iter().map(|i| i.op.row().form).collect();
        let values: Vec<String> = routine
            .body
            .iter()
            .filter_map(|i| match &i.operand {
                Operand::Value(expr) => Some(expr.to_source()),
                _ => None,
            })
            .collect();
        format!(
            "{} {} {lines:?} {ops:?} {values:?}\n",
            routine.name,
            place(routine.span.file, routine.span.line)
        )
    };
    let end = |location: &Location| match location {
        Location::Address(_, Some(high)) => high.to_source(),
        _ => String::new(),
    };
    let handlers = program.probes.iter().map(|p| {
        format!(
            "{} {} {:?} {:?} {}",
            p.location.expr().to_source(),
            end(&p.location),
            p.group,
            p.kind,
            routine(&p.handler)
        )
    });
    handlers.chain(program.procs.iter().map(routine)).collect()
}

fn count() -> u64 {
    std::env::var("TRAPLINE_PPDF_PROGRAMS").map_or(25_000, |n| n.parse().unwrap())
}

/// Checks one program and returns it.
fn check(number: u64) -> Program {
    let (text, program) = compile(number);
    let built = write(&program, None).unwrap_or_else(|error| panic!("program {number}: {error}\n{text}"));
    assert!(is_ppdf(&built));
    let read = Ppdf::read(&built).unwrap_or_else(|error| panic!("program {number}: {error}\n{text}"));
    let shown = disassemble(&read.program, None);
    let again = parse("shown.rpn", &shown)
        .unwrap_or_else(|found| panic!("program {number}:\n{text}\n{shown}\n{found}"));
    let rebuilt = write(&again, None).unwrap();
    assert!(built == rebuilt, "program {number}:\n{text}\n{shown}");
    assert_eq!(program.header, read.program.header);
    // Comparing texts and linking take longer than all of the above.
    if number.is_multiple_of(4) {
        assert_eq!(outline(&program), outline(&read.program), "program {number}:\n{text}");
    }
    for width in [Width::W32, Width::W64].into_iter().filter(|_| number.is_multiple_of(16)) {
        assert_eq!(linked(&program, width), linked(&read.program, width), "program {number}:\n{text}");
    }
    program
}

#[test]
fn a_disassembly_builds_to_the_same_bytes() {
    const THREADS: u64 = 4;
    let count = count();
    let tally = std::thread::scope(|scope| {
        let part = |first: u64| {
            let mut tally = Tally::default();
            (first..count).step_by(THREADS as usize).for_each(|number| tally.add(&check(number)));
            tally
        };
        let parts: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).reduce(Tally::merged).unwrap()
    });
    tally.check(count);
}

/// Counts features, to show that the programs differ.
#[derive(Default)]
struct Tally {
    instructions: usize,
    procedures: usize,
    labels: usize,
    expressions: usize,
    ranges: usize,
    groups: usize,
    included: usize,
    ops: std::collections::BTreeSet<u8>,
}

impl Tally {
    fn add(&mut self, program: &Program) {
        let bodies = program.probes.iter().map(|p| &p.handler).chain(&program.procs);
        for instr in bodies.flat_map(|routine| &routine.body) {
            self.instructions += 1;
            self.labels += instr.labels.len();
            self.ops.insert(instr.op.code());
            self.included += usize::from(instr.span.file != 0);
            if let Operand::Value(expr) = &instr.operand {
                let plain = matches!(expr.terms.as_slice(), [one] if matches!(one.atom, Atom::Number(_)));
                self.expressions += usize::from(!plain);
            }
        }
        self.procedures += program.procs.len();
        self.ranges +=
            program.probes.iter().filter(|p| matches!(p.location, Location::Address(_, Some(_)))).count();
        self.groups += program.probes.iter().filter(|p| p.group.is_some()).count();
    }

    fn merged(mut self, other: Self) -> Self {
        self.instructions += other.instructions;
        self.procedures += other.procedures;
        self.labels += other.labels;
        self.expressions += other.expressions;
        self.ranges += other.ranges;
        self.groups += other.groups;
        self.included += other.included;
        self.ops.extend(other.ops);
        self
    }

    fn check(&self, programs: u64) {
        let programs = usize::try_from(programs).unwrap();
        assert!(self.instructions > 4 * programs, "{}", self.instructions);
        for (what, n) in [
            ("procedures", self.procedures),
            ("labels", self.labels),
            ("expressions", self.expressions),
            ("ranges", self.ranges),
            ("groups", self.groups),
            ("included", self.included),
        ] {
            assert!(n > programs / 50, "{what}: {n}");
        }
        assert!(programs < 1000 || self.ops.len() == generate::compiled().len(), "{}", self.ops.len());
    }
}
