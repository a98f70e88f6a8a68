//! Instructions and expressions: tokens to an operation and its operand.
//!
//! It is a view of the instruction table: the text is matched against its forms,
//! old forms and removed forms.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::lex::{Kind, Token};
use super::{Parser, span_of};
use crate::ast::{Atom, Expr, Operand, Term};
use crate::instructions::{ALIASES, Alias, Op, OperandKind, REMOVED, TABLE, groups_of, mnemonic_of};
use crate::regs::{self, RegRow};
use crate::source::Span;

/// A form split at its commas.
struct Form {
    groups: Vec<&'static str>,
    meaning: Meaning,
}

#[derive(Clone, Copy)]
enum Meaning {
    Is(Op),
    Alias(&'static Alias),
    Removed(&'static str),
}

/// All forms by mnemonic, those with more fixed words first.
fn forms() -> &'static BTreeMap<&'static str, Vec<Form>> {
    static FORMS: OnceLock<BTreeMap<&'static str, Vec<Form>>> = OnceLock::new();
    FORMS.get_or_init(|| {
        let mut map: BTreeMap<&'static str, Vec<Form>> = BTreeMap::new();
        let rows = TABLE.iter().map(|r| (r.form, Meaning::Is(r.op)));
        let old = ALIASES.iter().map(|a| (a.form, Meaning::Alias(a)));
        let gone = REMOVED.iter().map(|r| (r.form, Meaning::Removed(r.instead)));
        for (form, meaning) in rows.chain(old).chain(gone) {
            let groups = groups_of(form).collect();
            map.entry(mnemonic_of(form)).or_default().push(Form { groups, meaning });
        }
        for list in map.values_mut() {
            list.sort_by_key(|f| f.groups.iter().filter(|g| **g == "%").count());
        }
        map
    })
}

/// Whether a number needs more bits than this, with a sign or without.
fn exceeds(operand: &Operand, bits: u32) -> bool {
    let Operand::Value(expr) = operand else { return false };
    expr.constant().is_some_and(|n| n >= 1 << bits || n < -(1 << (bits - 1)))
}

impl Form {
    fn matches<'t>(&self, operands: &[&'t [Token]]) -> Option<Option<&'t [Token]>> {
        if self.groups.len() != operands.len() {
            return None;
        }
        let mut value = None;
        for (word, tokens) in self.groups.iter().zip(operands) {
            match tokens {
                _ if *word == "%" => value = Some(*tokens),
                [one] if one.kind == Kind::Ident && one.text.eq_ignore_ascii_case(word) => {}
                _ => return None,
            }
        }
        Some(value)
    }
}

impl Parser<'_> {
    /// Parses one instruction; reports anything else and returns `None`.
    pub(super) fn instruction(&mut self, tokens: &[Token]) -> Option<(Op, Operand)> {
        let (first, rest) = tokens.split_first()?;
        let Some(word) = first.ident() else {
            let message = format!("expected an instruction or a statement, not `{}`", first.text);
            match first.is('/') {
                true => self.error_help(first.span, "unexpected", message, "comments start with `//`"),
                false => self.error(first.span, "unexpected", message),
            }
            return None;
        };
        let mnemonic = word.to_ascii_lowercase();
        let Some(candidates) = forms().get(mnemonic.as_str()) else {
            self.unknown_instruction(first, rest);
            return None;
        };
        let operands: Vec<&[Token]> =
            if rest.is_empty() { Vec::new() } else { rest.split(|t| t.is(',')).collect() };
        let matched = candidates.iter().find_map(|f| f.matches(&operands).map(|value| (f.meaning, value)));
        let whole = span_of(tokens, first.span);
        match matched {
            Some((Meaning::Removed(instead), _)) => {
                let message = "this form was removed from the language in dprobes 3.4.0".to_owned();
                self.error_help(whole, "removed", message, instead);
                None
            }
            Some((Meaning::Alias(old), value)) => {
                let done = self.finish_instruction(old.op, value, whole);
                let exceeds =
                    done.as_ref().is_some_and(|(_, operand)| old.bits == 0 || exceeds(operand, old.bits));
                if let Some(warning) = old.warning.filter(|_| exceeds) {
                    self.sink.warning(self.sources, whole, "old-form", warning.to_owned());
                }
                done
            }
            Some((Meaning::Is(op), value)) => self.finish_instruction(op, value, whole),
            None => match operands.as_slice() {
                [[one]] if mnemonic == "pop" && one.ident().is_some_and(regs::known) => {
                    self.finish_instruction(Op::PopR, Some(operands[0]), whole)
                }
                _ => {
                    self.bad_operands(&mnemonic, &operands, whole);
                    None
                }
            },
        }
    }

    fn unknown_instruction(&mut self, first: &Token, rest: &[Token]) {
        let words = forms().keys().copied().chain(["proc", "endproc"]);
        let near = self.sink.near_miss(&first.text, words);
        let message = format!("unknown instruction `{}`", first.text);
        match near {
            Some(near) => {
                self.error_help(first.span, "unknown-instruction", message, format!("did you mean `{near}`?"))
            }
            None if rest.first().is_some_and(|t| t.kind == Kind::Ident)
                && rest.get(1).is_some_and(|t| t.is('=')) =>
            {
                self.error_help(
                    first.span,
                    "unknown-instruction",
                    message,
                    "write one statement per line: `keyword = value`",
                );
            }
            None => self.error(first.span, "unknown-instruction", message),
        }
    }

    /// Reports operands that match no form of a known mnemonic.
    fn bad_operands(&mut self, mnemonic: &str, operands: &[&[Token]], whole: Span) {
        let candidates = &forms()[mnemonic];
        if let Some(empty) = operands.iter().position(|o| o.is_empty()) {
            self.error(whole, "bad-operand", format!("operand {} of `{mnemonic}` is missing", empty + 1));
            return;
        }
        let words = candidates.iter().filter_map(|f| f.groups.first().copied()).filter(|g| *g != "%");
        let given = operands.first().and_then(|o| o.first());
        if let (Some(given), Some(near)) =
            (given, given.and_then(|g| self.sink.near_miss(&g.text, words.clone())))
        {
            let same = given.text.eq_ignore_ascii_case(near);
            let inner: Vec<_> = candidates.iter().filter(|f| f.groups.first() == Some(&near)).collect();
            if same && operands.len() == 2 {
                let seconds = inner.iter().filter_map(|f| f.groups.get(1).copied()).filter(|g| *g != "%");
                let list: Vec<String> = seconds.map(|s| format!("`{mnemonic} {near}, {s}`")).collect();
                let span = operands[1].first().map_or(whole, |t| t.span);
                let text = span_text(operands[1]);
                self.error_help(
                    span,
                    "bad-operand",
                    format!("`{mnemonic} {near}` does not take `{text}`"),
                    if list.is_empty() {
                        format!("`{mnemonic} {near}` does not accept this operand")
                    } else {
                        format!("use {}", list.join(", "))
                    },
                );
                return;
            }
            if !same {
                let message = format!("`{mnemonic}` does not take `{}`", given.text);
                self.error_help(
                    given.span,
                    "bad-operand",
                    message,
                    format!("did you mean `{mnemonic} {near}`?"),
                );
                return;
            }
        }
        let takes: Vec<String> = candidates
            .iter()
            .filter(|f| matches!(f.meaning, Meaning::Is(_)))
            .map(|f| {
                format!("`{}`", format!("{mnemonic} {}", f.groups.join(", ")).trim_end().replace('%', "<n>"))
            })
            .collect();
        let message = format!("`{mnemonic}` does not take these operands");
        self.error_help(whole, "bad-operand", message, format!("its forms are {}", takes.join(", ")));
    }

    fn finish_instruction(&mut self, op: Op, value: Option<&[Token]>, whole: Span) -> Option<(Op, Operand)> {
        let row = op.row();
        let tokens = value.unwrap_or_default();
        // A register alone means `push r` or `pop r` (docs/probe-language.md, "Registers"); a keyword takes precedence
        // over a symbol.
        if op == Op::Push
            && let [one] = tokens
            && let Some(name) = one.ident()
            && regs::known(name)
        {
            return self.finish_instruction(Op::PushR, value, whole);
        }
        let operand = match row.operand {
            OperandKind::None => Operand::None,
            OperandKind::Label | OperandKind::Proc => self.name_operand(tokens, whole, row.operand)?,
            OperandKind::Value => Operand::Value(self.value_operand(tokens, whole)?),
            kind if kind.is_register() => Operand::Register(self.register(tokens, whole, kind)?),
            kind => self.number_operand(tokens, whole, kind)?,
        };
        Some((op, operand))
    }

    fn name_operand(&mut self, tokens: &[Token], whole: Span, kind: OperandKind) -> Option<Operand> {
        match tokens {
            [one] if one.kind == Kind::Ident => Some(Operand::Name(one.text.clone())),
            _ => {
                let what = if kind == OperandKind::Proc { "a procedure name" } else { "a label" };
                self.error(span_of(tokens, whole), "bad-operand", format!("write {what} here"));
                None
            }
        }
    }

    fn value_operand(&mut self, tokens: &[Token], whole: Span) -> Option<Expr> {
        let expr = self.expr(tokens, whole, "the operand of `push`")?;
        if let Some(n) = expr.constant()
            && (n < i128::from(i64::MIN) || n > i128::from(u64::MAX))
        {
            self.error(expr.span, "out-of-range", format!("{n} does not fit 64 bits"));
            return None;
        }
        Some(expr)
    }

    fn number_operand(&mut self, tokens: &[Token], whole: Span, kind: OperandKind) -> Option<Operand> {
        let (what, min, max) = match kind {
            OperandKind::Count8 => ("the count", 0, 255),
            OperandKind::Count16 => ("the count", 0, 65_535),
            OperandKind::Disp => ("the displacement", i128::from(i32::MIN), i128::from(i32::MAX)),
            OperandKind::Lv | OperandKind::Gv => ("the variable index", 0, 65_535),
            _ => ("the operand", 0, i128::from(u32::MAX)),
        };
        let n = self.number(tokens, whole, what, min, max)?;
        let (limit, word) = match kind {
            OperandKind::Lv => (self.header.vars, "vars"),
            OperandKind::Gv => (self.header.gvars, "gvars"),
            _ => return i64::try_from(n).ok().map(Operand::Number),
        };
        if self.limits_known && n >= i128::from(limit) && self.in_proc.is_none() {
            let span = span_of(tokens, whole);
            let message = if limit == 0 {
                format!("variable {n} does not exist: the file header has no `{word} =`")
            } else {
                format!("variable {n} does not exist: `{word} = {limit}` allows 0 to {}", limit - 1)
            };
            self.error(span, "variable-index", message);
            return None;
        }
        i64::try_from(n).ok().map(Operand::Number)
    }

    fn register(&mut self, tokens: &[Token], whole: Span, kind: OperandKind) -> Option<u8> {
        let span = span_of(tokens, whole);
        let row = match tokens {
            [one] if one.ident().is_some() => self.register_by_name(one)?,
            _ => {
                let n = self.number(tokens, whole, "the register number", 0, 255)?;
                let row = u8::try_from(n).ok().and_then(regs::by_index);
                if row.is_none() {
                    self.error(span, "unknown-register", format!("there is no register with index {n:#x}"));
                }
                row?
            }
        };
        if let Err(why) = row.permits(kind) {
            self.error(span, "register-not-permitted", why);
            return None;
        }
        Some(row.index)
    }

    fn register_by_name(&mut self, token: &Token) -> Option<&'static RegRow> {
        let name = &token.text;
        let found = regs::by_name(name);
        if found.is_some() {
            return found;
        }
        if regs::reserved(name) {
            self.error(
                token.span,
                "unknown-register",
                format!("`{name}` is reserved and cannot be accessed"),
            );
        } else if regs::foreign(name) {
            let message = format!("`{name}` is an S/390 or PowerPC register; Trapline has IA32 and x86-64");
            self.error(token.span, "unknown-register", message);
        } else {
            let message = format!("unknown register `{name}`");
            match self.sink.near_miss(name, regs::REGISTERS.iter().map(|r| r.name)) {
                Some(near) => self.error_help(
                    token.span,
                    "unknown-register",
                    message,
                    format!("did you mean `{near}`?"),
                ),
                None => self.error(token.span, "unknown-register", message),
            }
        }
        None
    }

    /// Parses a sum of numbers and symbols, with signs and parentheses.
    pub(super) fn expr(&mut self, tokens: &[Token], at: Span, what: &str) -> Option<Expr> {
        let span = span_of(tokens, at);
        let mut terms = Vec::new();
        let mut flips: Vec<bool> = Vec::new();
        let mut negative = false;
        let mut want_term = true;
        for token in tokens {
            let flip = flips.last().copied().unwrap_or_default();
            let atom = match &token.kind {
                Kind::Num(n) if want_term => Atom::Number(*n),
                Kind::Ident | Kind::Str if want_term => Atom::Symbol(token.text.clone()),
                Kind::Punct('-') => {
                    negative = if want_term { !negative } else { true };
                    want_term = true;
                    continue;
                }
                Kind::Punct('+') => {
                    negative &= want_term;
                    want_term = true;
                    continue;
                }
                Kind::Punct('(') if want_term => {
                    flips.push(flip ^ negative);
                    negative = false;
                    continue;
                }
                Kind::Punct(')') if !want_term && flips.pop().is_some() => continue,
                kind => {
                    let message = match kind {
                        Kind::BadNum => format!(
                            "`{}` is not a number (decimal, or hexadecimal after 0x, of at most 64 bits)",
                            token.text
                        ),
                        Kind::OpenStr => "the closing quote is missing".to_owned(),
                        _ => format!("unexpected `{}` in {what}", token.text),
                    };
                    self.error(token.span, "bad-expression", message);
                    return None;
                }
            };
            terms.push(Term { negative: negative ^ flip, atom, span: token.span });
            negative = false;
            want_term = false;
        }
        if want_term || !flips.is_empty() {
            let message = if flips.is_empty() {
                format!("{what} is incomplete")
            } else {
                "a parenthesis is not closed".to_owned()
            };
            self.error(span, "bad-expression", message);
            return None;
        }
        Some(Expr { terms, span })
    }
}

fn span_text(tokens: &[Token]) -> String {
    tokens.iter().map(|t| t.text.as_str()).collect::<Vec<_>>().join(" ")
}
