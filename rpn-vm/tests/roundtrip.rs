//! Parse, print, parse: the printed text is the same program, and prints the same.
//!
//! Programs are made from a list of choices, so that a failing one shrinks. `TRAPLINE_ROUNDTRIPS` sets how many
//! instead of 100,000.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use trapline_rpn::{
    ALIASES, FileLoader, Group, LIBRARY, Operand, OperandKind, ParseOptions, Program, REGISTERS, Routine,
    TABLE, parse, parse_with,
};

/// A program without its source places.
fn meaning(program: &Program) -> String {
    let mut out = format!("{:?}\n", program.header);
    let routine = |out: &mut String, r: &Routine| {
        let _ = writeln!(out, "routine {}", r.name);
        for i in &r.body {
            let operand = match &i.operand {
                Operand::Value(e) => e
                    .terms
                    .iter()
                    .map(|t| format!("{}{:?} ", if t.negative { '-' } else { '+' }, t.atom))
                    .collect(),
                other => format!("{other:?}"),
            };
            let _ = writeln!(out, "{:?} {:?} {operand}", i.labels, i.op);
        }
    };
    for p in &program.probes {
        let place = p.location.expr().to_source();
        let end = match &p.location {
            trapline_rpn::Location::Address(_, end) => Some(end.as_ref().map(trapline_rpn::Expr::to_source)),
            trapline_rpn::Location::Offset(_) => None,
        };
        let codes = (p.opcode, p.minor, p.ignore, p.maxhits, &p.group, &p.kind, p.logonfault, p.excpt_mask);
        let _ = writeln!(out, "probe {place} {end:?} {:?} {codes:?}", p.watch);
        routine(&mut out, &p.handler);
    }
    for r in &program.procs {
        routine(&mut out, r);
    }
    out
}

fn same_after_printing(program: &Program) {
    let text = program.to_source();
    let again = parse("printed", &text).unwrap_or_else(|d| panic!("{text}\n{d}"));
    assert_eq!(meaning(&again), meaning(program), "{text}");
    assert_eq!(again.to_source(), text);
}

/// Choices, one after the other; 0 when there are no more.
struct Choices<'a> {
    list: std::slice::Iter<'a, u16>,
}

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.list.next().copied().unwrap_or_default()) % n.max(1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn number(&mut self) -> String {
        match self.below(6) {
            0 => "0".to_owned(),
            1 => self.below(300).to_string(),
            2 => format!("0x{:X}", self.below(70_000)),
            3 => u32::MAX.to_string(),
            4 => format!("{:#x}", u64::MAX),
            _ => format!("0x{:x}{:04x}", self.below(65_536), self.below(65_536)),
        }
    }

    fn symbol(&mut self) -> String {
        let plain =
            ["do_fork", "nr_free_pages", "x", "f.part.0", "_a$1", "eaxx", "Pid", "LV", "task", "gpr3"];
        let quoted = [
            "pid", "stp", "cr1", "a+b", "", "eax", "__LINE__", "x y", "0x10", "// no", "lv", "é", "defined",
            "#",
        ];
        if self.one_in(3) { format!("\"{}\"", self.of(&quoted)) } else { self.of(&plain).to_owned() }
    }

    fn expr(&mut self, depth: usize) -> String {
        let mut text = String::new();
        for n in 0..=self.below(3) {
            if n > 0 {
                text.push_str(self.of(&[" + ", " - ", "+", "-", " + -", "- -"]));
            }
            match self.below(5) {
                0 | 1 => text.push_str(&self.number()),
                2 | 3 => text.push_str(&self.symbol()),
                _ if depth < 3 => text.push_str(&format!("({})", self.expr(depth + 1))),
                _ => text.push('7'),
            }
        }
        text
    }

    fn upper(&mut self, word: &str) -> String {
        if self.one_in(4) { word.to_ascii_uppercase() } else { word.to_owned() }
    }

    fn operand(&mut self, kind: OperandKind, labels: usize) -> String {
        let small = |c: &mut Self, max: usize| c.below(max + 1).to_string();
        match kind {
            OperandKind::None => String::new(),
            OperandKind::Label => {
                let n = self.below(labels);
                let label = format!("l{n}");
                self.upper(&label)
            }
            OperandKind::Proc => format!("p{}", self.below(2)),
            OperandKind::Value => self.expr(0),
            OperandKind::Count8 => small(self, 255),
            OperandKind::Count16 => small(self, 65_535),
            OperandKind::U32 => self.of(&["0", "1", "0xffffffff", "1024", "3 + 4"]).to_string(),
            OperandKind::Lv | OperandKind::Gv => small(self, 8),
            OperandKind::Disp => self.of(&["0", "-1", "0x7fffffff", "-2147483648", "5"]).to_string(),
            kind => {
                let rows: Vec<_> = REGISTERS.iter().filter(|r| r.permits(kind).is_ok()).collect();
                let row = self.of(&rows);
                if self.one_in(3) { format!("{:#x}", row.index) } else { self.upper(row.name) }
            }
        }
    }

    fn body(&mut self, out: &mut String) {
        let forms: Vec<(&str, OperandKind)> = TABLE
            .iter()
            .filter(|r| r.group != Group::Tracing)
            .map(|r| (r.form, r.operand))
            .chain(ALIASES.iter().map(|a| (a.form, a.op.row().operand)))
            .collect();
        let length = 1 + self.below(10);
        for n in 0..length {
            let (form, kind) = self.of(&forms);
            let operand = self.operand(kind, length);
            let line = form.replace('%', "\u{1}");
            let line = self.upper(&line).replace('\u{1}', &operand);
            let _ = match self.below(4) {
                0 => writeln!(out, "l{n}: {line} // and why"),
                1 => writeln!(out, "l{n}:\nm{n}:\n  {line}"),
                2 => writeln!(out, "/* so */ l{n}:\t{line}"),
                _ => writeln!(out, "l{n}:\n{line}"),
            };
        }
    }

    fn program(&mut self) -> String {
        let mut out = String::new();
        let name = self.of(&["vmlinux", "\"/lib/a b.o\"", "a1", "\"\u{e9}\"", "7"]);
        let kernel = self.one_in(2);
        let modtype =
            if kernel { self.of(&["kernel", "kmod", "KERNEL"]) } else { self.of(&["user", "User"]) };
        let _ = writeln!(out, "name = {name}\nmodtype = {modtype}\nvars = 9\ngvars = 9");
        let _ = writeln!(out, "groupdef = ga \"g b\" GC\ntypedef = ta, tb");
        for (key, values) in [
            ("major", ["0", "7", "0xffffffff"]),
            ("id", ["1", "0", "12"]),
            ("logmax", ["0", "65535", "1024"]),
            ("jmpmax", ["1", "0xffffffff", "256"]),
            ("excpt_log", ["5", "1024", "0"]),
            ("excpt_mask", ["0", "0x1fff", "0x0fff"]),
            ("LogOnFault", ["yes", "no", "YES"]),
        ] {
            if self.one_in(2) {
                let _ = writeln!(out, "{key} = {}", self.of(&values));
            }
        }
        for _ in 0..=self.below(2) {
            self.probe(&mut out, kernel);
        }
        for n in 0..2 {
            let _ = writeln!(out, "proc p{n}");
            self.body(&mut out);
            out.push_str("endproc\n");
        }
        out
    }

    fn probe(&mut self, out: &mut String, kernel: bool) {
        let watch = kernel && self.one_in(3);
        let place = self.expr(0);
        let _ = match kernel && (watch || self.one_in(2)) {
            true if self.one_in(2) && watch => writeln!(out, "address = {place}:{}", self.expr(0)),
            true => writeln!(out, "address = {place}"),
            false => writeln!(out, "offset = {place}"),
        };
        if watch {
            let _ = writeln!(out, "watchpoint = {}", self.of(&["x", "w", "rw", "io", "RW"]));
        }
        if !watch || self.one_in(2) {
            let _ = writeln!(out, "opcode = {}", self.of(&["0x55", "0", "255"]));
        }
        for (key, values) in [
            ("minor", ["0", "7", "0xffffffff"]),
            ("ignore", ["1", "2", "0"]),
            ("max_hits", ["1", "0x7fffffff", "9"]),
            ("group", ["ga", "\"g b\"", "gc"]),
            ("type", ["ta", "TB", "\"ta\""]),
            ("logonfault", ["yes", "no", "no"]),
            ("excpt_mask", ["0", "0xfff", "0xffffffff"]),
        ] {
            if self.one_in(2) {
                let _ = writeln!(out, "{key} = {}", self.of(&values));
            }
        }
        self.body(out);
    }
}

#[test]
fn generated_programs_print_and_parse_to_themselves() {
    let cases = std::env::var("TRAPLINE_ROUNDTRIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let mut compiled = 0u32;
    let choices = proptest::collection::vec(any::<u16>(), 0..250);
    let result = runner.run(&choices, |list| {
        let text = Choices { list: list.iter() }.program();
        match parse("generated", &text) {
            Ok(program) => same_after_printing(&program),
            // Sums of random terms can leave 64 bits; nothing else is wrong with these programs.
            Err(found) => {
                let only = found.list.iter().filter(|d| d.severity == trapline_rpn::Severity::Error);
                prop_assert!(only.clone().all(|d| d.code == "out-of-range"), "{}\n{}", text, found);
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{e}"));
    for seed in 0..200u16 {
        let list: Vec<u16> =
            (0..250u32).map(|n| (n.wrapping_mul(u32::from(seed) * 31 + 7) >> 2) as u16).collect();
        let text = Choices { list: list.iter() }.program();
        compiled += u32::from(parse("generated", &text).is_ok());
    }
    assert!(compiled > 100, "most generated programs must compile: {compiled}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.extension().is_some_and(|e| e == "rpn"));
    found.sort();
    found
}

#[test]
fn examples_and_library_print_and_parse_to_themselves() {
    let mut count = 0;
    for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/man")) {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("name =") {
            let name = path.display().to_string();
            let program = parse_with(&name, &text, &ParseOptions::default(), &mut FileLoader::default());
            same_after_printing(&program.unwrap_or_else(|d| panic!("{d}")));
            count += 1;
        }
    }
    assert!(count >= 7);
    let mut all = String::from("name = t\nvars = 9\noffset = 0\nopcode = 1\nexit\n");
    all.extend(LIBRARY.iter().map(|(name, _)| format!("#include <trapline/{name}>\n")));
    same_after_printing(&parse("library", &all).unwrap_or_else(|d| panic!("{d}")));
}
