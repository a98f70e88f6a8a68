//! Runs the conformance tables: `conformance/*.txt` by subject, `conformance/forms/*.txt` by instruction form.
//!
//! The instruction table defines the required cases: each form has at least three cases, both widths, and one for each
//! exception that it can raise.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cases::{Case, read_cases, read_forms, run};
use trapline_rpn::{Op, TABLE, Vm, Width, exception};

/// Cases that each form has at least.
const CASES: usize = 3;

/// The tables of a folder, by name.
fn tables(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

fn cases_by_subject() -> Vec<Case> {
    let read = |path: &PathBuf| read_cases(&std::fs::read_to_string(path).unwrap());
    tables("conformance").iter().flat_map(read).collect()
}

fn cases_by_form() -> BTreeMap<String, Vec<Case>> {
    let mut forms = BTreeMap::new();
    for file in tables("conformance/forms") {
        for (form, cases) in read_forms(&std::fs::read_to_string(&file).unwrap()) {
            assert!(TABLE.iter().any(|row| row.form == form), "{}: no form `{form}`", file.display());
            assert!(forms.insert(form.clone(), cases).is_none(), "`{form}` has two places");
        }
    }
    forms
}

#[test]
fn every_case_of_the_tables_holds() {
    let mut vm = Vm::new();
    for case in cases_by_subject() {
        run(&mut vm, &case);
    }
}

/// The exceptions that an instruction can raise whatever the limits of jumps and steps are.
fn raises(op: Op) -> &'static [u32] {
    use exception::*;
    match op {
        Op::Jmp | Op::Jlt | Op::Jle | Op::Jgt | Op::Jge | Op::Jz | Op::Jnz | Op::Loop => &[JMP_MAX],
        Op::Call | Op::Ret => &[CALL_MAX],
        Op::Callk => &[INVALID_OPERAND, USER_EX],
        Op::LogStr | Op::LogMrf => &[INVALID_ADDR, LOG_OVERFLOW],
        Op::LogN | Op::Log => &[LOG_OVERFLOW],
        Op::LogLv | Op::LogGv => &[INVALID_OPERAND, LOG_OVERFLOW],
        Op::PushLv | Op::PopLv | Op::MoveLv | Op::IncLv | Op::DecLv => &[INVALID_OPERAND],
        Op::PushGv | Op::PopGv | Op::MoveGv | Op::IncGv | Op::DecGv => &[INVALID_OPERAND],
        Op::Div | Op::Idiv => &[DIVIDE_BY_ZERO],
        Op::Pbl | Op::PblN | Op::Pbr | Op::PbrN | Op::ExitN => &[INVALID_OPERAND],
        Op::PushR | Op::PushU => &[INVALID_OPERAND],
        Op::PushMem8 | Op::PushMem16 | Op::PushMem32 | Op::PushMem64 => &[INVALID_ADDR],
        Op::PopMem8 | Op::PopMem16 | Op::PopMem32 | Op::PopMem64 => &[INVALID_ADDR],
        Op::PushIo8 | Op::PushIo16 | Op::PushIo32 => &[INVALID_OPERAND],
        Op::PopIo8 | Op::PopIo16 | Op::PopIo32 => &[INVALID_OPERAND],
        Op::PushArg => &[INVALID_ADDR, INVALID_OPERAND],
        Op::Seg2lin | Op::PopR | Op::PopU => &[SEG_FAULT],
        Op::Rx => &[USER_EX, INVALID_ADDR, DIVIDE_BY_ZERO],
        Op::TraceLv | Op::TraceGv | Op::PopLp | Op::PopStp => &[INVALID_OPERAND],
        _ => &[],
    }
}

/// Whether a case ends by an exception of this x-field.
fn ends_by(case: &Case, x_field: u32) -> bool {
    case.after.iter().filter(|(key, _)| key.starts_with("end")).any(|(_, value)| {
        let code = value.strip_prefix("exception 0x").and_then(|rest| rest.split(' ').next());
        let code = code.and_then(|hex| u64::from_str_radix(hex, 16).ok());
        code.is_some_and(|code| exception::lowest(code) == x_field)
    })
}

#[test]
fn every_form_holds_in_its_cases_and_has_enough_of_them() {
    let forms = cases_by_form();
    let mut vm = Vm::new();
    let mut lacking = Vec::new();
    for row in TABLE {
        let cases = forms.get(row.form).map(Vec::as_slice).unwrap_or_default();
        let mut both = [false; 2];
        for case in cases {
            let (widths, ops) = run(&mut vm, case);
            assert!(ops.contains(&row.op), "{}: no instruction of this form", case.name);
            for width in widths {
                both[usize::from(width == Width::W64)] = true;
            }
        }
        if cases.len() < CASES {
            lacking.push(format!("`{}` has {} of {CASES} cases", row.form, cases.len()));
        }
        if both != [true; 2] {
            lacking.push(format!("`{}` is not run at both widths", row.form));
        }
        for &x_field in raises(row.op).iter().filter(|&&x| !cases.iter().any(|case| ends_by(case, x))) {
            lacking.push(format!("`{}` has no case of {}", row.form, exception::name(x_field.into())));
        }
    }
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
}

#[test]
fn no_case_ends_by_an_exception_that_its_form_is_not_known_to_raise() {
    for (form, cases) in cases_by_form() {
        let row = TABLE.iter().find(|row| row.form == form).unwrap();
        // These forms show exceptions of other instructions, or any exception.
        if matches!(row.op, Op::Sx | Op::Ux | Op::Remove | Op::Rx) {
            continue;
        }
        for x_field in (0..16).map(|bit| 1 << bit).filter(|x| !raises(row.op).contains(x)) {
            let strange: Vec<&str> =
                cases.iter().filter(|c| ends_by(c, x_field)).map(|c| c.name.as_str()).collect();
            assert!(strange.is_empty(), "{strange:?}");
        }
    }
}

#[test]
fn every_rule_of_exceptions_and_tracing_has_a_case() {
    let cases = cases_by_subject();
    let rules = [
        "rule 1",
        "rule 2",
        "rule 3",
        "rule 4",
        "rule 5",
        "mask",
        "parameters",
        "autostacktrace",
        "excpt_log",
    ];
    for rule in rules {
        assert!(cases.iter().any(|case| case.name.starts_with(rule)), "no case of `{rule}`");
    }
    for name in [
        "INVALID_ADDR",
        "SEG_FAULT",
        "JMP_MAX",
        "CALL_MAX",
        "DIVIDE_BY_ZERO",
        "INVALID_OPERAND",
        "LOG_OVERFLOW",
        "USER_EX",
    ] {
        for rule in ["mask", "parameters"] {
            let wanted = format!("{rule}: {name}");
            assert!(cases.iter().any(|case| case.name.starts_with(&wanted)), "no case `{wanted}`");
        }
    }
}
