//! The instruction table is one source: encode, decode, print and parse agree on every row.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::collections::BTreeSet;

use crate::cases::{read_forms, run};
use trapline_rpn::{
    ALIASES, Insn, NoSymbols, Op, OperandKind, REGISTERS, REMOVED, TABLE, Vm, Width, by_index, decode,
    encode, parse,
};

fn program(line: &str) -> String {
    format!(
        "name = t\nmodtype = kernel\nvars = 9\ngvars = 9\noffset = 0\nopcode = 0x55\nhere: {line}\nproc p\nret\nendproc\n"
    )
}

/// An operand that every row of the kind accepts.
fn sample(kind: OperandKind) -> &'static str {
    match kind {
        OperandKind::None => "",
        OperandKind::Label => "here",
        OperandKind::Proc => "p",
        OperandKind::Disp => "-3",
        OperandKind::PushR | OperandKind::PopR | OperandKind::PushU | OperandKind::PopU => "edx",
        _ => "8",
    }
}

#[test]
fn opcodes_and_forms_are_unique() {
    let codes: BTreeSet<u8> = TABLE.iter().map(|r| r.code).collect();
    let forms: BTreeSet<&str> = TABLE.iter().map(|r| r.form).collect();
    assert_eq!((codes.len(), forms.len()), (TABLE.len(), TABLE.len()));
    for row in TABLE {
        assert_eq!(Op::from_code(row.code), Some(row.op));
        assert_eq!(row.op.row().form, row.form);
        assert_eq!(row.form.contains('%'), row.operand != OperandKind::None, "{}", row.form);
    }
}

#[test]
fn every_row_encodes_and_decodes() {
    for row in TABLE {
        for arg in [0u64, 1, 0x80] {
            let arg = if row.operand == OperandKind::None { 0 } else { arg };
            let insn = Insn { op: row.op, arg };
            let bytes = encode(&[insn]);
            assert_eq!(bytes.len(), 1 + row.operand.size());
            assert_eq!(decode(&bytes).unwrap(), [insn], "{}", row.form);
            for end in 1..bytes.len() {
                assert!(decode(&bytes[..end]).is_err());
            }
        }
    }
    let back = Insn { op: Op::PushSbpN, arg: -3i64 as u64 };
    assert_eq!(decode(&encode(&[back])).unwrap(), [back]);
    assert_eq!(decode(&[0xfe]).unwrap_err().to_string(), "byte 0 is 0xfe, which is not an opcode");
}

#[test]
fn every_row_parses_and_prints_as_itself() {
    for row in TABLE {
        let line = row.form.replace('%', sample(row.operand));
        let parsed = parse("t", &program(&line));
        let parsed = parsed.unwrap_or_else(|d| panic!("{line}\n{d}"));
        let instr = &parsed.probes[0].handler.body[0];
        assert_eq!((instr.op, instr.to_source()), (row.op, line.clone()));
        let linked = parsed.link(Width::W32, &NoSymbols).unwrap_or_else(|d| panic!("{line}\n{d}"));
        let code = linked.probes[0].handler.code();
        assert_eq!(decode(&encode(&code)).unwrap(), code);
    }
}

#[test]
fn old_forms_mean_the_present_ones() {
    for alias in ALIASES {
        let warnings = |value: &str| {
            let line = alias.form.replace('%', value);
            let parsed = parse("t", &program(&line)).unwrap_or_else(|d| panic!("{line}\n{d}"));
            assert_eq!(parsed.probes[0].handler.body[0].op, alias.op, "{line}");
            parsed.warnings.list.iter().filter(|w| w.code == "old-form").count()
        };
        let warns = usize::from(alias.warning.is_some());
        match alias.bits {
            0 => assert_eq!(warnings("2"), warns, "{}", alias.form),
            // A warning for numbers alone that need more bits, with a sign or without.
            bits => {
                let (most, least) = ((1_i64 << bits) - 1, -(1_i64 << (bits - 1)));
                assert_eq!([most, least].map(|n| warnings(&n.to_string())), [0, 0], "{}", alias.form);
                assert_eq!(
                    [most + 1, least - 1].map(|n| warnings(&n.to_string())),
                    [warns; 2],
                    "{}",
                    alias.form
                );
            }
        }
    }
}

#[test]
fn removed_forms_say_what_to_use() {
    for removed in REMOVED {
        let errors = parse("t", &program(removed.form)).unwrap_err();
        assert_eq!(errors.list.len(), 1, "{}", removed.form);
        assert_eq!(errors.list[0].code, "removed");
        assert!(errors.list[0].help.as_ref().unwrap().starts_with("use "));
    }
}

#[test]
fn registers_are_permitted_as_in_appendix_a() {
    assert!(REGISTERS.windows(2).all(|w| w[0].index < w[1].index), "look-up needs ascending indices");
    for row in REGISTERS {
        assert_eq!(by_index(row.index).unwrap().name, row.name);
        let allowed =
            [("push u", row.push_u), ("push r", row.push_r), ("pop u", row.pop), ("pop r", row.pop)];
        for (form, yes) in allowed {
            for operand in [row.name.to_owned(), format!("{:#x}", row.index)] {
                let line = format!("{form}, {operand}");
                let parsed = parse("t", &program(&line));
                assert_eq!(parsed.is_ok(), yes, "{line}");
                let Ok(parsed) = parsed else { continue };
                assert_eq!(parsed.link(Width::W32, &NoSymbols).is_ok(), !row.only64, "{line}");
                assert!(parsed.link(Width::W64, &NoSymbols).is_ok(), "{line}");
            }
        }
    }
    let count =
        |f: fn(&trapline_rpn::RegRow) -> bool| REGISTERS.iter().filter(|r| r.index < 0x80 && f(r)).count();
    assert_eq!(count(|r| r.push_u), 16 + 2 + 24, "push u: 0..f, cpuid, msr, 3e..55");
    assert_eq!(count(|r| r.push_r), 16 + 14 + 2, "push r: 0..f, system registers, cpuid, msr");
    assert_eq!(count(|r| r.pop), 11);
}

/// What an instruction pops by its sentence, the top first.
fn popped(meaning: &str) -> Option<[&str; 2]> {
    let list = meaning.strip_prefix("pops ")?;
    let list = list.split([';', '(']).next().unwrap_or(list).trim();
    // The value of `pop mem, u64` may have two elements, as a parenthesis says.
    let rest = meaning.split_once("), then ").map(|(_, rest)| rest.split(';').next().unwrap_or(rest));
    let (first, second) = match rest {
        Some(second) => (list, second),
        None => list.split_once(", then ").or_else(|| list.split_once(", copies the "))?,
    };
    let second = second.split([',', ' ']).filter(|word| !matches!(*word, "a" | "an")).take(2);
    let second: Vec<&str> = second.collect();
    let bare = |text: &str, noun: &'static str| text.split(' ').any(|word| word == noun).then_some(noun);
    const NOUNS: [&str; 12] = [
        "address", "length", "count", "index", "value", "divisor", "dividend", "n", "port", "offset",
        "selector", "code",
    ];
    let noun = |text: &str| NOUNS.iter().find_map(|noun| bare(text, noun));
    let others = [("that many", "elements"), ("new top", "top"), ("two parameters", "parameters")];
    let other = others.iter().find(|(words, _)| *words == second.join(" ")).map(|(_, noun)| *noun);
    Some([noun(first)?, other.or_else(|| noun(&second.join(" ")))?])
}

/// For each instruction that pops two things: the elements of each, what comes before, and what holds afterwards.
const POPPED: &[(&str, &str, &str, &str)] = &[
    ("log str", "address 0x1000; length 2", "mem: 0x1000 = 686921", "log: 010200 6869"),
    ("log mrf", "address 0x1000; length 2", "mem: 0x1000 = 686921", "log: 000200 6869"),
    ("log", "count 1; elements 9", "width: 32", "log: 070100 09000000"),
    ("pop lv; push lv, 3", "value 9; index 3", "", "stack: 9"),
    ("pop gv; push gv, 3", "value 9; index 3", "", "stack: 9"),
    ("move lv; push lv, 3", "top 9; index 3", "", "stack: 9 9"),
    ("move gv; push gv, 3", "top 9; index 3", "", "stack: 9 9"),
    ("log lv", "count 1; index 2", "width: 32; lv: 5 6 7", "log: 050100 07000000"),
    ("log gv", "count 1; index 2", "width: 32; gv: 5 6 7", "log: 060100 07000000"),
    ("div", "dividend 9; divisor 2", "", "stack: 4 1"),
    ("rol", "value 1; count 3", "", "stack: 8"),
    ("ror", "value 8; count 1", "", "stack: 4"),
    ("shl", "value 1; count 3", "", "stack: 8"),
    ("shr", "value 8; count 1", "", "stack: 4"),
    ("pbl", "value 4; n 3", "", "stack: -4"),
    ("pbr", "value 4; n 3", "", "stack: 7"),
    ("dup", "value 4; count 1", "", "stack: 4 4"),
    ("pop mem, u8", "value 4; address 0x1000", "mem: 0x1000 = 00", "mem: 0x1000 = 04"),
    ("pop mem, u16", "value 4; address 0x1000", "mem: 0x1000 = 0000", "mem: 0x1000 = 0400"),
    ("pop mem, u32", "value 4; address 0x1000", "mem: 0x1000 = 00000000", "mem: 0x1000 = 04000000"),
    (
        "pop mem, u64",
        "value 4; address 0x1000",
        "width: 64; mem: 0x1000 = 0000000000000000",
        "mem: 0x1000 = 0400000000000000",
    ),
    ("pop io, u8", "value 4; port 0x80", "", "io: 0x80 = 4"),
    ("pop io, u16", "value 4; port 0x80", "", "io: 0x80 = 4"),
    ("pop io, u32", "value 4; port 0x80", "", "io: 0x80 = 4"),
    ("seg2lin", "offset 0x234; selector 0x10", "", "stack: 0x1234"),
    ("rx", "code 1; parameters 5 6", "", "end: exception 0x1 0x6 0x5"),
    ("trace lv; log st", "count 1; index 2", "lv: 5 6 7", "trace: 0 -1 0 0 3/1 0 -1 4/0 5/1 7 6/0"),
    ("trace gv; log st", "count 1; index 2", "gv: 5 6 7", "trace: 0 -1 0 0 3/1 0 -1 4/0 5/0 6/1 7"),
    ("trace pv; push 7; push 8; log st", "count 2; index 1", "", "trace: 0 -1 0 0 3/1 0 -1 4/2 7 8 5/0 6/0"),
    ("pop sbp; push sbp, 3", "value 9; n 3", "", "top: 9"),
    ("pop tsp; push tsp, 3", "value 9; n 3", "", "top: 9"),
    ("copy sbp; push sbp, 3", "top 9; n 3", "", "top: 9 9"),
    ("copy tsp; push tsp, 3", "top 9; n 3", "", "top: 9 9"),
];

#[test]
fn the_sentence_of_an_instruction_has_what_it_pops_in_order() {
    let mut vm = Vm::new();
    for row in TABLE {
        let Some(order) = popped(row.op.meaning()) else {
            assert!(!row.op.meaning().contains(", then a"), "{}: {}", row.form, row.op.meaning());
            continue;
        };
        let own = |code: &str| code.split(';').next() == Some(row.form);
        let found = POPPED.iter().find(|(code, ..)| own(code));
        let (code, elements, before, after) = found.unwrap_or_else(|| panic!("no case of `{}`", row.form));
        let of = |noun: &str| -> String {
            let named = elements.split("; ").find_map(|one| one.strip_prefix(noun)?.strip_prefix(' '));
            let values = named.unwrap_or_else(|| panic!("`{}` pops no {noun}: {elements}", row.form));
            values.split(' ').map(|value| format!("push {value}; ")).collect()
        };
        let line = format!("{before} :: {}{}{code} -> {after}", of(order[1]), of(order[0]));
        for (_, cases) in read_forms(&format!("= {}\n{line}", row.form)) {
            cases.iter().for_each(|case| drop(run(&mut vm, case)));
        }
    }
}
