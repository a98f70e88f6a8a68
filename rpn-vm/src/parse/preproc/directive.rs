//! The directives: `#define` to `#pragma`.

use std::rc::Rc;

use super::super::lex::{Kind, Token};
use super::condition::evaluate;
use super::macros::{BUILT_IN, Macro, macro_name};
use super::{Condition, MAX_BYTES, MAX_FILES, MAX_INCLUDES, Preprocessor, is_name};
use crate::diag::Finding;
use crate::library;
use crate::source::Span;

/// Every directive; `elseif` is the man page's `elif`.
const DIRECTIVES: &[&str] = &[
    "define", "undef", "include", "if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "elseif", "else",
    "endif", "error", "warning", "line", "pragma",
];

fn span_of(tokens: &[Token], at: Span) -> Span {
    match tokens {
        [] => at,
        [first, .., last] => first.span.to(last.span),
        [one] => one.span,
    }
}

/// Tokens as text, spaces where the source has some.
fn words(tokens: &[Token]) -> String {
    let mut text = String::new();
    for (n, token) in tokens.iter().enumerate() {
        if n > 0 && token.space {
            text.push(' ');
        }
        text.push_str(&token.source());
    }
    text
}

impl Preprocessor<'_> {
    pub(super) fn directive(&mut self, tokens: &[Token]) {
        let Some((name, rest)) = tokens.get(1).zip(tokens.get(2..)) else { return };
        let conditional = ["if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "elseif", "else", "endif"];
        match name.text.as_str() {
            word if name.kind == Kind::Ident && conditional.contains(&word) => self.conditional(name, rest),
            _ if !self.active() => {}
            "define" => self.define_line(name, rest),
            "undef" => self.undef(name, rest),
            "include" => self.include(name, rest),
            "error" => self.error(name.span, "user-error", format!("#error {}", words(rest))),
            "warning" => self.error(name.span, "user-warning", format!("#warning {}", words(rest))),
            "line" => self.line_mark(name, rest),
            "pragma" => self.pragma(name, rest),
            _ if matches!(name.kind, Kind::Num(_)) => self.line_mark(name, &tokens[1..]),
            word => {
                let message = format!("unknown directive `#{word}`");
                let near = self.sink.near_miss(word, DIRECTIVES.iter().copied()).filter(|_| is_name(name));
                let help = near.map(|near| format!("did you mean `#{near}`?"));
                let code = "bad-directive";
                self.report(Finding { span: name.span, code, message, help, ..Finding::default() });
            }
        }
    }

    fn define_line(&mut self, name: &Token, rest: &[Token]) {
        let (key, made) = match Macro::parse(rest, self.sources) {
            Ok(made) => made,
            Err((span, message)) => {
                let span = if span.line == 0 { name.span } else { span };
                self.error(span, "bad-macro", message);
                return;
            }
        };
        let before = self.macros.defined.get(&key).filter(|before| !before.same(&made)).map(|m| m.span);
        if let Some(before) = before {
            self.report(Finding {
                span: made.span,
                code: "macro-redefined",
                message: format!("macro `{key}` is redefined with another text"),
                help: Some(format!("write `#undef {key}` first")),
                notes: vec![("first defined at".to_owned(), before)],
            });
        }
        self.macros.defined.insert(key, Rc::new(made));
    }

    /// The name after `#undef`, `#ifdef` and similar directives.
    fn one_name(&mut self, directive: &Token, rest: &[Token]) -> Option<String> {
        let wrong = match rest {
            [] => Some((directive.span, format!("`#{}` needs the name of a macro", directive.text))),
            [name, more @ ..] => match (macro_name(name), more.first()) {
                (Err(wrong), _) => Some(wrong),
                (Ok(()), Some(extra)) => {
                    let message = format!("`#{}` takes one name; remove the rest", directive.text);
                    Some((span_of(more, extra.span), message))
                }
                (Ok(()), None) => None,
            },
        };
        match wrong {
            None => rest.first().map(|t| t.text.clone()),
            Some((span, message)) => {
                let help = directive
                    .text
                    .starts_with("if")
                    .then(|| "for several names write `#if defined(A) || defined(B)`".to_owned());
                self.report(Finding { span, code: "bad-directive", message, help, ..Finding::default() });
                None
            }
        }
    }

    fn undef(&mut self, directive: &Token, rest: &[Token]) {
        let Some(name) = self.one_name(directive, rest) else { return };
        if BUILT_IN.contains(&name.as_str()) {
            self.error(rest[0].span, "bad-macro", format!("`{name}` is built in and cannot be undefined"));
            return;
        }
        self.macros.defined.remove(&name);
    }

    /// `#if` to `#endif`.
    fn conditional(&mut self, name: &Token, rest: &[Token]) {
        let word = name.text.as_str();
        if word.starts_with("if") {
            let outer = self.active();
            let truth = outer && self.condition(name, rest);
            self.conditions.push(Condition {
                opened: name.span,
                name: name.text.clone(),
                active: truth,
                done: truth || !outer,
                otherwise: None,
            });
            return;
        }
        let Some(open) = self.conditions.last() else {
            self.error(name.span, "unbalanced-condition", format!("`#{word}` without `#if`"));
            return;
        };
        let (opened, otherwise, done) = (open.opened, open.otherwise, open.done);
        if word == "endif" {
            self.conditions.pop();
            return;
        }
        if let Some(otherwise) = otherwise {
            self.report(Finding {
                span: name.span,
                code: "unbalanced-condition",
                message: format!("`#{word}` after `#else`"),
                notes: vec![
                    ("the `#if` is at".to_owned(), opened),
                    ("its `#else` is at".to_owned(), otherwise),
                ],
                ..Finding::default()
            });
            return;
        }
        if let ("else", Some(extra)) = (word, rest.first()) {
            let message = "`#else` takes no operand".to_owned();
            let help = Some("for a condition write `#elif`".to_owned());
            let span = extra.span;
            self.report(Finding { span, code: "bad-directive", message, help, ..Finding::default() });
        }
        // As in C, the condition of a branch that cannot be chosen is not evaluated.
        let truth = !done && (word == "else" || self.condition(name, rest));
        if let Some(open) = self.conditions.last_mut() {
            open.active = truth;
            open.done |= truth;
            if word == "else" {
                open.otherwise = Some(name.span);
            }
        }
    }

    fn condition(&mut self, name: &Token, rest: &[Token]) -> bool {
        if name.text.ends_with("def") {
            let negative = name.text.ends_with("ndef");
            return self.one_name(name, rest).is_some_and(|n| self.macros.is_defined(&n) != negative);
        }
        let found = self.defined_replaced(rest).and_then(|tokens| match self.expanded(&tokens) {
            Some(tokens) => evaluate(&tokens, name.span).map(Some),
            None => Ok(None),
        });
        match found {
            Ok(truth) => truth.unwrap_or_default(),
            Err((span, message)) => {
                self.error(span, "bad-condition", message);
                false
            }
        }
    }

    /// `defined NAME` and `defined(NAME)` as 1 or 0.
    fn defined_replaced(&self, tokens: &[Token]) -> Result<Vec<Token>, (Span, String)> {
        let mut out = Vec::with_capacity(tokens.len());
        let mut rest = tokens;
        while let [token, more @ ..] = rest {
            if token.ident() != Some("defined") {
                out.push(token.clone());
                rest = more;
                continue;
            }
            let (name, after) = match more {
                [open, name, close, after @ ..] if open.is('(') && is_name(name) && close.is(')') => {
                    (name, after)
                }
                [name, after @ ..] if is_name(name) => (name, after),
                _ => return Err((token.span, "`defined` needs the name of a macro".to_owned())),
            };
            let yes = u64::from(self.macros.is_defined(&name.text));
            out.push(Token { kind: Kind::Num(yes), text: yes.to_string(), ..token.clone() });
            rest = after;
        }
        Ok(out)
    }

    fn include(&mut self, name: &Token, rest: &[Token]) {
        let quoted = matches!(rest, [one] if one.kind == Kind::Str);
        let bracketed = rest.first().is_some_and(|t| t.is('<'));
        let expanded = if quoted || bracketed { Some(rest.to_vec()) } else { self.expanded(rest) };
        let Some(operand) = expanded else { return };
        let (path, library) = match operand.as_slice() {
            [one] if one.kind == Kind::Str && !one.text.is_empty() => (one.text.clone(), None),
            [open, middle @ .., close] if open.is('<') && close.is('>') && !middle.is_empty() => {
                let path = words(middle);
                let own = path.strip_prefix(library::PREFIX).map(str::to_owned);
                (path, own)
            }
            _ => {
                let message = "`#include` needs a file name in quotes, or in < and >".to_owned();
                self.error(span_of(rest, name.span), "bad-directive", message);
                return;
            }
        };
        let span = span_of(rest, name.span);
        if self.open.len() > MAX_INCLUDES {
            self.too_deep(span, &path);
            return;
        }
        self.included += 1;
        if self.included > MAX_FILES {
            self.stop(span, "include-depth", format!("more than {MAX_FILES} includes in one compilation"));
            return;
        }
        let from = self.open.last().cloned().unwrap_or_default();
        let loaded = match library {
            Some(own) => library::find(&own).map(|text| (format!("<{path}>"), text.to_owned())),
            None => self.loader.load(&path, &from).map_err(|why| (why, None)),
        };
        match loaded {
            Err((why, help)) => {
                let message = format!("cannot include \"{path}\": {why}");
                self.report(Finding { span, code: "include-failed", message, help, ..Finding::default() });
            }
            Ok((file, _)) if self.once.contains(&file) => {}
            Ok((file, text)) => self.enter(file, &text, span),
        }
    }

    fn enter(&mut self, name: String, text: &str, from: Span) {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > MAX_BYTES {
            self.stop(
                from,
                "too-long",
                format!("the files of this program have more than {MAX_BYTES} bytes"),
            );
            return;
        }
        let file = self.sources.add_included(&name, text, from);
        self.open.push(name);
        self.file(file);
        self.open.pop();
    }

    /// A file that includes itself is the usual reason for too many nested includes.
    fn too_deep(&mut self, span: Span, path: &str) {
        let present = self.open.last();
        let times = self.open.iter().filter(|f| Some(*f) == present).count();
        if times > 1 {
            let message = format!("\"{path}\" includes itself endlessly: {MAX_INCLUDES} includes are nested");
            self.stop(span, "include-cycle", message);
        } else {
            self.stop(span, "include-depth", format!("more than {MAX_INCLUDES} nested includes"));
        }
    }

    /// `#line 12 "file"`, and `# 12 "file" flags` as preprocessors write it.
    fn line_mark(&mut self, name: &Token, rest: &[Token]) {
        let Some(operand) = self.expanded(rest) else { return };
        let (number, after) = match operand.as_slice() {
            [number, after @ ..] => (number.kind.clone(), after),
            [] => (Kind::BadNum, &[][..]),
        };
        let marker = name.text != "line";
        let file = match after {
            [] => Some(None),
            [file, flags @ ..] if file.kind == Kind::Str && (marker || flags.is_empty()) => {
                Some(Some(file.text.clone()))
            }
            _ => None,
        };
        match (number, file) {
            (Kind::Num(n), Some(file)) if (1..=0x7fff_ffff).contains(&n) => {
                let next = name.span.line + 1;
                self.sources.mark(name.span.file, next, u32::try_from(n).unwrap_or(u32::MAX), file);
            }
            _ => {
                let message =
                    "`#line` needs a line number from 1 to 2147483647, and optionally a file name in quotes";
                self.error(span_of(rest, name.span), "bad-directive", message.to_owned());
            }
        }
    }

    fn pragma(&mut self, name: &Token, rest: &[Token]) {
        match rest {
            [one] if one.ident() == Some("once") => {
                if let Some(file) = self.open.last() {
                    self.once.insert(file.clone());
                }
            }
            _ => {
                let message = format!("unknown pragma `{}`: it has no effect", words(rest));
                self.error(span_of(rest, name.span), "unknown-pragma", message);
            }
        }
    }
}
