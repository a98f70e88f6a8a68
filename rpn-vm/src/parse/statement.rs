//! `key = value` statements of the file header and of probe points.
//!
//! Values are checked here; whether the file as a whole makes sense is
//! checked in `check`.

use super::lex::{Kind, Token};
use super::{Draft, Parser, Section, span_of};
use crate::ast::{ModType, Watch};
use crate::source::Span;

/// The part of a file in which a statement is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    File,
    Probe,
    Both,
}

/// The statements of the man page; an old name maps to the current one.
const STATEMENTS: &[(&str, &str, Place)] = &[
    ("name", "name", Place::File),
    ("modtype", "modtype", Place::File),
    ("vars", "vars", Place::File),
    ("gvars", "gvars", Place::File),
    ("groupdef", "groupdef", Place::File),
    ("typedef", "typedef", Place::File),
    ("major", "major", Place::File),
    ("id", "id", Place::File),
    ("logmax", "logmax", Place::File),
    ("jmpmax", "jmpmax", Place::File),
    ("excpt_log", "excpt_log", Place::File),
    ("autostacktrace", "autostacktrace", Place::File),
    ("logonfault", "logonfault", Place::Both),
    ("excpt_mask", "excpt_mask", Place::Both),
    ("offset", "offset", Place::Probe),
    ("address", "address", Place::Probe),
    ("watchpoint", "watchpoint", Place::Probe),
    ("opcode", "opcode", Place::Probe),
    ("minor", "minor", Place::Probe),
    ("ignore", "ignore", Place::Probe),
    ("pass_count", "ignore", Place::Probe),
    ("maxhits", "maxhits", Place::Probe),
    ("max_hits", "maxhits", Place::Probe),
    ("group", "group", Place::Probe),
    ("type", "type", Place::Probe),
];

const U32: i128 = u32::MAX as i128;

impl Parser<'_> {
    pub(super) fn statement(&mut self, key: &Token, value: &[Token]) {
        let low = key.text.to_ascii_lowercase();
        let Some(&(_, name, place)) = STATEMENTS.iter().find(|(k, ..)| *k == low) else {
            let message = format!("unknown statement `{}`", key.text);
            match self.sink.near_miss(&low, STATEMENTS.iter().map(|s| s.0)) {
                Some(near) => self.error_help(
                    key.span,
                    "unknown-statement",
                    message,
                    format!("did you mean `{near} =`?"),
                ),
                None => self.error(key.span, "unknown-statement", message),
            }
            return;
        };
        self.dangling_label();
        if let Some(open) = self.in_proc.take() {
            let message = format!("`{low} =` inside procedure `{}`: `endproc` is missing", open.name);
            self.error(key.span, "bad-procedure", message);
            self.procs.push(open);
        }
        if name == "offset" || name == "address" {
            self.section = Section::Probe;
            let other = if name == "offset" { "address" } else { "offset" };
            if self.probes.last().is_some_and(|p| p.seen == [other] && p.handler.body.is_empty()) {
                self.error(
                    key.span,
                    "misplaced",
                    "`offset =` and `address =` exclude each other: write one of them",
                );
                return;
            }
            self.probes.push(Draft::new(key.span));
        }
        if !self.placed(key, name, place) {
            return;
        }
        if value.is_empty() {
            self.error(key.span, "missing-value", format!("`{low} =` needs a value"));
            return;
        }
        let at = span_of(value, key.span);
        match self.probes.len().checked_sub(1) {
            Some(index) if self.section == Section::Probe => self.probe_statement(index, name, value, at),
            _ => self.file_statement(name, value, at),
        }
    }

    /// Checks that the statement is allowed here and was not given before.
    fn placed(&mut self, key: &Token, name: &'static str, place: Place) -> bool {
        let in_probe = self.section == Section::Probe;
        match (place, in_probe) {
            (Place::File, true) => {
                let message = format!("`{name} =` belongs to the file header, before the first probe point");
                self.error(key.span, "misplaced", message);
                return false;
            }
            (Place::Probe, false) => {
                let message =
                    format!("`{name} =` belongs to a probe point, after its `offset =` or `address =`");
                self.error(key.span, "misplaced", message);
                return false;
            }
            _ => {}
        }
        if self.probes.last().is_some_and(|p| in_probe && !p.handler.body.is_empty()) {
            let message =
                format!("`{name} =` after the first instruction: statements come before the handler");
            self.error(key.span, "misplaced", message);
            return false;
        }
        let seen = match self.probes.last_mut() {
            Some(probe) if in_probe => &mut probe.seen,
            _ => &mut self.header_seen,
        };
        if seen.contains(&name) {
            self.error(key.span, "duplicate", format!("`{name} =` is given twice"));
            return false;
        }
        seen.push(name);
        if !in_probe && self.header_span.line == 0 {
            self.header_span = key.span;
        }
        true
    }

    fn small(&mut self, value: &[Token], at: Span, name: &str, max: i128) -> Option<u32> {
        self.number(value, at, &format!("`{name}`"), 0, max).and_then(|n| u32::try_from(n).ok())
    }

    fn yes_no(&mut self, value: &[Token], at: Span, name: &str) -> Option<bool> {
        match value {
            [one] if one.text.eq_ignore_ascii_case("yes") => Some(true),
            [one] if one.text.eq_ignore_ascii_case("no") => Some(false),
            _ => {
                self.error(at, "bad-value", format!("`{name} =` takes `yes` or `no`"));
                None
            }
        }
    }

    fn file_statement(&mut self, name: &'static str, value: &[Token], at: Span) {
        match name {
            "name" => self.module_name(value, at),
            "modtype" => match value {
                [one] if one.text.eq_ignore_ascii_case("kernel") => self.header.modtype = ModType::Kernel,
                [one] if one.text.eq_ignore_ascii_case("kmod") => self.header.modtype = ModType::Kmod,
                [one] if one.text.eq_ignore_ascii_case("user") => self.header.modtype = ModType::User,
                _ => self.error(at, "bad-value", "`modtype =` takes `kernel`, `kmod` or `user`"),
            },
            "vars" | "gvars" => {
                let n = self.small(value, at, name, 65_536);
                self.limits_known &= n.is_some();
                let field = if name == "vars" { &mut self.header.vars } else { &mut self.header.gvars };
                *field = n.unwrap_or_default();
            }
            "groupdef" => self.header.groups = self.names(value, name),
            "typedef" => self.header.types = self.names(value, name),
            "major" => self.header.major = self.small(value, at, name, U32).unwrap_or_default(),
            "id" => self.header.id = self.small(value, at, name, U32).unwrap_or_default(),
            "logmax" => self.header.logmax = self.small(value, at, name, 65_535).unwrap_or_default(),
            "jmpmax" => self.header.jmpmax = self.small(value, at, name, U32).unwrap_or_default(),
            "excpt_log" => self.header.excpt_log = self.small(value, at, name, 65_535).unwrap_or_default(),
            "excpt_mask" => self.header.excpt_mask = self.small(value, at, name, U32).unwrap_or_default(),
            "logonfault" => self.header.logonfault = self.yes_no(value, at, name).unwrap_or_default(),
            "autostacktrace" => {
                self.header.autostacktrace = self.yes_no(value, at, name).unwrap_or_default();
            }
            _ => {}
        }
    }

    fn module_name(&mut self, value: &[Token], at: Span) {
        match value {
            [one] if one.kind == Kind::Str && !one.text.is_empty() => self.header.name.clone_from(&one.text),
            [one]
                if one.text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    && matches!(one.kind, Kind::Ident | Kind::Num(_) | Kind::BadNum) =>
            {
                self.header.name.clone_from(&one.text);
            }
            [one] if one.kind == Kind::OpenStr => {
                self.error(at, "open-string", "the closing quote is missing")
            }
            _ => {
                let message = "a module name must be in quotes unless it consists of letters and digits";
                self.error_help(at, "bad-name", message, "for example: name = \"/home/user/testapp\"");
            }
        }
    }

    fn names(&mut self, value: &[Token], what: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for token in value.iter().filter(|t| !t.is(',')) {
            if token.kind != Kind::Ident && token.kind != Kind::Str {
                self.error(token.span, "bad-name", format!("`{what} =` takes names"));
            } else if names.iter().any(|n| n.eq_ignore_ascii_case(&token.text)) {
                self.error(token.span, "duplicate", format!("`{}` is defined twice", token.text));
            } else {
                names.push(token.text.clone());
            }
        }
        names
    }

    fn probe_statement(&mut self, index: usize, name: &'static str, value: &[Token], at: Span) {
        match name {
            "offset" => {
                let expr = self.expr(value, at, "`offset`");
                self.probes[index].offset = Some(expr.unwrap_or_default());
            }
            "address" => self.address(index, value, at),
            "watchpoint" => self.watchpoint(index, value, at),
            "opcode" => {
                let value = self.number(value, at, "`opcode`", 0, i128::from(u64::MAX));
                self.probes[index].opcode = Some(0);
                self.probes[index].opcode_span = Some(at);
                match value.map(u8::try_from) {
                    Some(Err(_)) => self.error_help(
                        at,
                        "bad-opcode",
                        "an opcode of more than one byte is an S/390 form; Trapline probes IA32 and x86-64",
                        "write the first byte of the instruction, which may be a prefix",
                    ),
                    Some(Ok(byte)) => self.probes[index].opcode = Some(byte),
                    None => {}
                }
            }
            "minor" => self.probes[index].minor = self.small(value, at, name, U32).unwrap_or_default(),
            "ignore" => self.probes[index].ignore = self.small(value, at, name, U32).unwrap_or_default(),
            "maxhits" => {
                let hits = self.number(value, at, "`maxhits`", 1, U32).and_then(|n| u32::try_from(n).ok());
                self.probes[index].maxhits = hits.unwrap_or(1);
            }
            "excpt_mask" => self.probes[index].excpt_mask = self.small(value, at, name, U32),
            "logonfault" => self.probes[index].logonfault = self.yes_no(value, at, name),
            "group" | "type" => self.group_or_type(index, name, value, at),
            _ => {}
        }
    }

    fn watchpoint(&mut self, index: usize, value: &[Token], at: Span) {
        let kind = match value {
            [one] => Watch::ALL.into_iter().find(|k| one.text.eq_ignore_ascii_case(k.word())),
            _ => None,
        };
        if kind.is_none() {
            self.error(at, "bad-value", "`watchpoint =` takes `x`, `w`, `rw` or `io`");
        } else if !self.header.modtype.is_kernel() {
            let message = "`watchpoint =` is for kernel-mode programs only, also on user addresses; say \
                           `modtype = kernel`";
            self.error(at, "misplaced", message);
        } else if self.probes[index].address.is_none() {
            let message = "a watchpoint needs an address: write `address =` instead of `offset =`";
            self.error(at, "misplaced", message);
        }
        self.probes[index].watch = Some(kind.unwrap_or(Watch::Write));
    }

    fn address(&mut self, index: usize, value: &[Token], at: Span) {
        if !self.header.modtype.is_kernel() {
            let message =
                "`address =` is for kernel-mode programs only; write `modtype = kernel`, or use `offset =`";
            self.error(at, "misplaced", message);
        }
        let (low, high) = match value.iter().position(|t| t.is(':')) {
            Some(colon) => (&value[..colon], Some(&value[colon + 1..])),
            None => (value, None),
        };
        let low = self.expr(low, at, "`address`").unwrap_or_default();
        let high = high.map(|high| self.expr(high, at, "the end of the address range").unwrap_or_default());
        self.probes[index].address = Some((low, high));
    }

    fn group_or_type(&mut self, index: usize, name: &'static str, value: &[Token], at: Span) {
        let [one] = value else {
            self.error(at, "bad-value", format!("`{name} =` takes one name"));
            return;
        };
        let (defined, statement) = match name {
            "group" => (&self.header.groups, "groupdef"),
            _ => (&self.header.types, "typedef"),
        };
        if !defined.iter().any(|d| d.eq_ignore_ascii_case(&one.text)) {
            let near = self
                .sink
                .near_miss(&one.text, defined.iter().map(String::as_str))
                .map(|n| format!("did you mean `{n}`?"));
            let message = format!("`{}` is not defined by `{statement} =` in the file header", one.text);
            let help = near.unwrap_or_else(|| format!("add it to `{statement} =`"));
            self.error_help(at, "undefined", message, help);
        }
        let field = match name {
            "group" => &mut self.probes[index].group,
            _ => &mut self.probes[index].kind,
        };
        *field = Some(one.text.clone());
    }
}
