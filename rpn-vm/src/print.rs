//! The printer: a [`Program`] or single instructions back to source text.
//!
//! The output parses to the same program. Comments, macros and includes
//! are not kept, and old forms are printed in their current spelling.

use std::fmt::Write as _;

use crate::ast::{
    Atom, Expr, FileHeader, Instr, Location, MAXHITS_DEFAULT, Operand, ProbePoint, Program, Routine,
};
use crate::code::Insn;
use crate::instructions::OperandKind;
use crate::regs;
use crate::source::Span;

impl Expr {
    /// The expression as source text.
    #[must_use]
    pub fn to_source(&self) -> String {
        self.pieces().map(|(sign, atom)| sign.to_owned() + &atom).collect()
    }

    /// The sign and the text of each term.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.terms.iter().enumerate().map(|(i, term)| {
            let sign = match (i, term.negative) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            let atom = match &term.atom {
                Atom::Number(n) if *n < 10 => n.to_string(),
                Atom::Number(n) => format!("{n:#x}"),
                Atom::Symbol(name) => quoted(name),
            };
            (sign, atom)
        })
    }
}

/// A name, in quotes if it could be read as something else.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && regs::by_name(name).is_none()
        && !regs::reserved(name)
        && !name.starts_with("__")
        && !KEYWORDS.iter().any(|k| k.eq_ignore_ascii_case(name));
    if plain { name.to_owned() } else { format!("\"{name}\"") }
}

/// Words that `push` does not read as symbols.
const KEYWORDS: &[&str] = &[
    "lv", "gv", "pid", "procid", "task", "x", "lp", "plp", "stp", "sbp", "tsp", "bif", "wif", "dif", "qif",
    "bis", "wis", "dis", "qis",
];

/// The text of a form with its operand.
fn with_operand(form: &str, operand: &str) -> String {
    form.replace('%', operand)
}

impl Instr {
    /// The instruction as source text, without its labels.
    #[must_use]
    pub fn to_source(&self) -> String {
        let operand = match &self.operand {
            Operand::None => String::new(),
            Operand::Name(name) => name.clone(),
            Operand::Value(expr) => expr.to_source(),
            Operand::Register(index) => register(*index),
            Operand::Number(n) => n.to_string(),
        };
        with_operand(self.op.row().form, &operand)
    }
}

fn register(index: u8) -> String {
    regs::by_index(index).map_or_else(|| format!("{index:#x}"), |row| row.name.to_owned())
}

impl Insn {
    /// The instruction as text; targets are instruction indices.
    #[must_use]
    pub fn to_text(&self) -> String {
        let row = self.op.row();
        let operand = match row.operand {
            OperandKind::None => String::new(),
            OperandKind::Label | OperandKind::Proc => format!("@{}", self.arg),
            OperandKind::Value => format!("{:#x}", self.arg),
            OperandKind::Disp => (self.arg as i64).to_string(),
            kind if kind.is_register() => {
                u8::try_from(self.arg).map_or_else(|_| self.arg.to_string(), register)
            }
            _ => self.arg.to_string(),
        };
        with_operand(row.form, &operand)
    }
}

impl Program {
    /// The whole program as source text.
    #[must_use]
    pub fn to_source(&self) -> String {
        self.to_source_with(&mut |_| String::new())
    }

    /// The whole program as source text; `mark` gives the comment after each procedure, probe point and instruction.
    pub(crate) fn to_source_with(&self, mark: &mut dyn FnMut(Span) -> String) -> String {
        let mut out = String::new();
        header(&mut out, &self.header);
        for routine in &self.procs {
            out.push('\n');
            marked(&mut out, &format!("proc {}", routine.name), &mark(routine.span));
            body(&mut out, routine, mark);
            out.push_str("endproc\n");
        }
        for point in &self.probes {
            out.push('\n');
            probe(&mut out, point, mark);
        }
        out
    }
}

/// A line with its mark, in a separate column if there is room.
fn marked(out: &mut String, text: &str, mark: &str) {
    if mark.is_empty() {
        let _ = writeln!(out, "{text}");
    } else {
        let _ = writeln!(out, "{text:<35} {mark}");
    }
}

fn statement(out: &mut String, key: &str, value: &dyn std::fmt::Display) {
    let _ = writeln!(out, "{key} = {value}");
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn header(out: &mut String, h: &FileHeader) {
    let defaults = FileHeader::default();
    statement(out, "name", &format!("\"{}\"", h.name));
    statement(out, "modtype", &h.modtype.word());
    for (key, value, default) in [
        ("major", h.major, defaults.major),
        ("id", h.id, defaults.id),
        ("vars", h.vars, defaults.vars),
        ("gvars", h.gvars, defaults.gvars),
        ("logmax", h.logmax, defaults.logmax),
        ("jmpmax", h.jmpmax, defaults.jmpmax),
        ("excpt_log", h.excpt_log, defaults.excpt_log),
    ] {
        if value != default {
            statement(out, key, &value);
        }
    }
    if h.excpt_mask != defaults.excpt_mask {
        statement(out, "excpt_mask", &format!("{:#x}", h.excpt_mask));
    }
    for (key, names) in [("groupdef", &h.groups), ("typedef", &h.types)] {
        if !names.is_empty() {
            statement(out, key, &name_list(names));
        }
    }
    for (key, yes) in [("logonfault", h.logonfault), ("autostacktrace", h.autostacktrace)] {
        if yes {
            statement(out, key, &yes_no(yes));
        }
    }
}

/// Names as `groupdef =` and `typedef =` take them.
pub(crate) fn name_list(names: &[String]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(" ")
}

impl Location {
    /// The statement of the location.
    pub(crate) fn to_source(&self) -> String {
        match self {
            Self::Offset(e) => format!("offset = {}", e.to_source()),
            Self::Address(low, None) => format!("address = {}", low.to_source()),
            Self::Address(low, Some(high)) => format!("address = {}:{}", low.to_source(), high.to_source()),
        }
    }
}

fn probe(out: &mut String, p: &ProbePoint, mark: &mut dyn FnMut(Span) -> String) {
    marked(out, &p.location.to_source(), &mark(p.span));
    if let Some(watch) = p.watch {
        statement(out, "watchpoint", &watch.word());
    }
    if p.watch.is_none() || p.opcode != 0 {
        statement(out, "opcode", &format!("{:#04x}", p.opcode));
    }
    for (key, value, default) in
        [("minor", p.minor, 0), ("ignore", p.ignore, 0), ("maxhits", p.maxhits, MAXHITS_DEFAULT)]
    {
        if value != default {
            statement(out, key, &value);
        }
    }
    for (key, name) in [("group", &p.group), ("type", &p.kind)] {
        if let Some(name) = name {
            statement(out, key, &quoted(name));
        }
    }
    if let Some(yes) = p.logonfault {
        statement(out, "logonfault", &yes_no(yes));
    }
    if let Some(mask) = p.excpt_mask {
        statement(out, "excpt_mask", &format!("{mask:#x}"));
    }
    body(out, &p.handler, mark);
}

fn body(out: &mut String, routine: &Routine, mark: &mut dyn FnMut(Span) -> String) {
    for instr in &routine.body {
        for label in &instr.labels {
            let _ = writeln!(out, "{label}:");
        }
        marked(out, &format!("    {}", instr.to_source()), &mark(instr.span));
    }
}
