//! The instruction table is one source: encode, decode, print and parse agree on every row.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::collections::BTreeSet;

use trapline_rpn::{
    ALIASES, Insn, NoSymbols, Op, OperandKind, REGISTERS, REMOVED, TABLE, Width, by_index, decode, encode,
    parse,
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
