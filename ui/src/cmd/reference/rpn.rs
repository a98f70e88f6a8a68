//! The instructions of RPN, its exceptions' sources, and the findings of the verifier.

use std::io::{self, Write};

use trapline_rpn::{ALIASES, CODES, Effect, Group, OperandKind, REMOVED, Row, TABLE, Throws, VARIES};

use super::super::finding::severity;
use super::{cell, code, columns, head};

/// What a group is called, and a sentence about it.
const GROUPS: &[(Group, &str)] = &[
    (Group::Execution, "Execution"),
    (Group::Logging, "Logging"),
    (Group::Local, "Local variables"),
    (Group::Global, "Global variables"),
    (Group::Arithmetic, "Arithmetic and logic"),
    (Group::Register, "Registers"),
    (Group::Data, "Memory and numbers"),
    (Group::System, "System variables and arguments"),
    (Group::Io, "Ports"),
    (Group::Verify, "Address verification"),
    (Group::Misc, "Segments"),
    (Group::Exception, "Exceptions"),
    (Group::Tracing, "Stack traces"),
    (Group::Internal, "Internal registers"),
];

const INTRODUCTION: &str = "
A program is a header and probe points with handlers ([probe-language.md](../../probe-language.md) describes them). A handler is a
list of instructions, one on each line. Elements of the stack have the width of the guest's word. `top` is the element on top of
the stack, `next` the one below it; what is popped first is named first. `%` stands for the operand. *Pops* and *pushes* count
elements; `..` means that the number depends on the run. *Throws* says whether an exception can end the handler.";

/// The page of instructions.
pub fn instructions(out: &mut dyn Write) -> io::Result<()> {
    head(out, "Instructions of RPN", "rpn")?;
    writeln!(out, "{INTRODUCTION}")?;
    for (group, name) in GROUPS {
        writeln!(out, "\n## {name}")?;
        columns(out, &["Instruction", "Operand", "Pops", "Pushes", "What it does", "Throws"])?;
        for row in TABLE.iter().filter(|row| row.group == *group) {
            instruction(out, row)?;
        }
    }
    writeln!(out, "\n## Old forms")?;
    columns(out, &["Old form", "Write instead"])?;
    for alias in ALIASES {
        writeln!(out, "| {} | {} |", code(alias.form), code(alias.op.row().form))?;
    }
    for removed in REMOVED {
        writeln!(out, "| {} (an error) | {} |", code(removed.form), cell(removed.instead))?;
    }
    Ok(())
}

fn instruction(out: &mut dyn Write, row: &Row) -> io::Result<()> {
    let count = |n: u8| if n == VARIES { "..".to_owned() } else { n.to_string() };
    let changes = match row.effect {
        Effect::Registers | Effect::Memory | Effect::Ports => "; not observe-only",
        Effect::Pure | Effect::Service => "",
    };
    let throws = match row.throws {
        Throws::Never => "",
        Throws::May => "yes",
        Throws::Overflow => "LOG_OVERFLOW",
        Throws::Register => "by the register",
    };
    writeln!(
        out,
        "| {} | {} | {} | {} | {}{changes} | {throws} |",
        code(row.form),
        operand(row.operand),
        count(row.pops),
        count(row.pushes),
        cell(row.op.meaning()),
    )
}

const fn operand(kind: OperandKind) -> &'static str {
    match kind {
        OperandKind::None => "",
        OperandKind::Label => "a label",
        OperandKind::Proc => "a procedure",
        OperandKind::Value => "a number or a symbol",
        OperandKind::Count8 => "0 to 255",
        OperandKind::Count16 => "0 to 65535",
        OperandKind::U32 => "32 bits",
        OperandKind::Lv => "below `vars`",
        OperandKind::Gv => "below `gvars`",
        OperandKind::Disp => "with a sign",
        OperandKind::PushR | OperandKind::PushU | OperandKind::PopR | OperandKind::PopU => "a register",
    }
}

/// The page of findings.
pub fn findings(out: &mut dyn Write) -> io::Result<()> {
    head(out, "Errors and warnings of probe programs", "errors")?;
    writeln!(out, "\n`trapline check --explain CODE` shows a wrong and a right example of each.")?;
    columns(out, &["Code", "Severity", "Title", "What it means"])?;
    for row in CODES {
        let (severity, explanation) = (severity(row.severity), cell(row.explanation));
        writeln!(out, "| {} | {severity} | {} | {explanation} |", code(row.name), cell(row.title))?;
    }
    Ok(())
}
