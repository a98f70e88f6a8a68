//! The preprocessor: that of C (dprobes.lang(8), PREPROCESSOR DIRECTIVES), with the man page's `#elseif`.
//!
//! It turns a file and its includes into lines of tokens. Lines are kept: the language ends an
//! instruction with its line. Includes, macros, lines and bytes are bounded, so that no input makes it run
//! endlessly. Not supported: `__VA_OPT__`, `#embed`, trigraphs, dates.

mod condition;
mod directive;
mod load;
mod macros;
mod output;

use std::collections::BTreeSet;
use std::rc::Rc;

use super::lex::{Kind, Logical, MAX_LINE, Reader, Token, Trouble};
use crate::diag::{Finding, Sink};
use crate::source::{Sources, Span};
pub use load::{FileLoader, Loader, NoFiles};
pub(super) use macros::BUILT_IN;
use macros::{Macro, Macros, Stop};
pub(super) use output::text;

/// Deepest nesting of `#include`.
const MAX_INCLUDES: usize = 32;
/// Most files that one compilation may include; a file that is included again counts again.
const MAX_FILES: usize = 1000;
/// Most bytes of all files of a compilation.
const MAX_BYTES: usize = 64 << 20;
/// Most lines of a compilation, includes included.
const MAX_LINES: usize = 1_000_000;
/// Most lines that the call of one macro may take.
const MAX_CALL_LINES: usize = 64;

/// One line after preprocessing: its tokens with macros replaced.
#[derive(Debug)]
pub(crate) struct Line {
    pub tokens: Vec<Token>,
}

/// An `#if` with its branches, while it is open.
#[derive(Debug)]
struct Condition {
    opened: Span,
    /// The directive that opened it, for messages.
    name: String,
    /// Whether lines of the current branch are used.
    active: bool,
    /// Whether no further branch may be chosen.
    done: bool,
    otherwise: Option<Span>,
}

pub(crate) struct Preprocessor<'a> {
    sources: &'a mut Sources,
    sink: &'a mut Sink,
    loader: &'a mut dyn Loader,
    macros: Macros,
    /// Names of the files that are being read, the main one first.
    open: Vec<String>,
    once: BTreeSet<String>,
    conditions: Vec<Condition>,
    included: usize,
    bytes: usize,
    /// A limit was reached: nothing more is read.
    stopped: bool,
    lines: Vec<Line>,
}

impl<'a> Preprocessor<'a> {
    pub fn new(sources: &'a mut Sources, sink: &'a mut Sink, loader: &'a mut dyn Loader) -> Self {
        Self {
            sources,
            sink,
            loader,
            macros: Macros::default(),
            open: Vec::new(),
            once: BTreeSet::new(),
            conditions: Vec::new(),
            included: 0,
            bytes: 0,
            stopped: false,
            lines: Vec::new(),
        }
    }

    /// Defines a macro from the command line; `key` may have a list of parameters.
    pub fn define(&mut self, key: &str, value: &str) {
        let (key, value) = (key.trim(), value.trim());
        let file = self.sources.add("<command line>", &format!("#define {key} {value}"));
        let tokens = Reader::new(self.sources.lines(file), file).logical().unwrap_or_default().tokens;
        let made = match tokens.get(2..).filter(|_| !key.is_empty()) {
            None | Some([]) => {
                Err((Span { file, line: 1, col: 1, len: 1, via: 0 }, "-D needs a name".to_owned()))
            }
            Some(rest) => Macro::parse(rest, self.sources),
        };
        match made {
            Ok((name, made)) => {
                self.macros.defined.insert(name, Rc::new(made));
            }
            Err((span, message)) => self.error(span, "bad-define", message),
        }
    }

    /// Preprocesses a text and its includes. If a limit is reached it gives no lines: an incomplete program is not
    /// worth compiling.
    pub fn run(mut self, name: &str, text: &str) -> Option<Vec<Line>> {
        let file = self.sources.add(name, text);
        self.sources.set_main(file);
        self.bytes = text.len();
        self.open.push(name.to_owned());
        self.file(file);
        if self.stopped { None } else { Some(self.lines) }
    }

    fn error(&mut self, span: Span, code: &'static str, message: String) {
        self.sink.error(self.sources, span, code, message);
    }

    fn report(&mut self, finding: Finding) {
        self.sink.report(self.sources, finding);
    }

    /// Reports a limit that was reached, once, and ends the preprocessing.
    fn stop(&mut self, span: Span, code: &'static str, message: String) {
        if !self.stopped {
            self.error(span, code, message);
        }
        self.stopped = true;
    }

    fn active(&self) -> bool {
        self.conditions.last().is_none_or(|c| c.active)
    }

    fn file(&mut self, file: u32) {
        let outer = std::mem::take(&mut self.conditions);
        let mut reader = Reader::new(self.sources.lines(file), file);
        while let Some(line) = reader.logical() {
            self.troubles(&line);
            if line.tokens.first().is_some_and(|t| t.is('#')) {
                self.directive(&line.tokens);
            } else if self.active() && !line.tokens.is_empty() {
                self.text_line(line.tokens, &mut reader);
            }
            if self.lines.len() >= MAX_LINES {
                let span = Span { file, line: line.line, col: 1, len: 1, via: 0 };
                self.stop(span, "too-long", format!("more than {MAX_LINES} lines after preprocessing"));
            }
            if self.stopped {
                break;
            }
        }
        let open = std::mem::replace(&mut self.conditions, outer);
        for condition in open.iter().filter(|_| !self.stopped) {
            let message = format!("`#{}` has no `#endif` in its file", condition.name);
            self.sink.error(self.sources, condition.opened, "unbalanced-condition", message);
        }
    }

    fn troubles(&mut self, line: &Logical) {
        for (trouble, span) in &line.troubles {
            let (code, message) = match trouble {
                Trouble::TooLong => ("too-long", format!("the line has more than {MAX_LINE} characters")),
                Trouble::OpenComment => ("open-comment", "the comment has no end `*/`".to_owned()),
                Trouble::ContinuedComment if !self.active() => continue,
                Trouble::ContinuedComment => (
                    "continued-comment",
                    "the backslash at its end makes the next line part of this comment".to_owned(),
                ),
            };
            self.error(*span, code, message);
        }
    }

    /// Replaces the macros of a line that is not a directive. A macro call may span lines.
    fn text_line(&mut self, mut tokens: Vec<Token>, reader: &mut Reader) {
        if !self.macros.touches(&tokens) {
            self.lines.push(Line { tokens });
            return;
        }
        let resume = reader.next;
        for taken in 0.. {
            let counter = *self.macros.counter();
            let unclosed = match self.macros.expand(&tokens, self.sources) {
                Ok(line) if !(self.macros.may_be_called(&line) && opens(reader)) => {
                    if !line.is_empty() {
                        self.lines.push(Line { tokens: line });
                    }
                    return;
                }
                Ok(_) => None,
                Err(Stop::Unclosed(name)) => Some(name),
                Err(stop) => {
                    self.stopped_line(stop);
                    return;
                }
            };
            // The line is replaced again, together with the next one.
            *self.macros.counter() = counter;
            let more = if taken < MAX_CALL_LINES { reader.logical() } else { None };
            match more.filter(|l| l.troubles.is_empty() && !l.tokens.first().is_some_and(|t| t.is('#'))) {
                Some(mut more) if tokens.len() + more.tokens.len() <= macros::MAX_LINE_TOKENS => {
                    if let Some(first) = more.tokens.first_mut() {
                        first.space = true;
                    }
                    tokens.append(&mut more.tokens);
                }
                _ => {
                    reader.next = resume;
                    if let Some(name) = unclosed {
                        self.stopped_line(Stop::Unclosed(name));
                    }
                    return;
                }
            }
        }
    }

    /// Reports why a line has no replacement.
    fn stopped_line(&mut self, stop: Stop) {
        match stop {
            Stop::Unclosed(name) => {
                let message = format!("the arguments of macro `{}` are not closed", name.text);
                self.error(name.span, "macro-call", message);
            }
            Stop::Call(span, message) => self.error(span, "macro-call", message),
            Stop::Paste(span, message) => self.error(span, "bad-macro", message),
            Stop::Limit(span, message) => self.error(span, "macro-limit", message),
        }
    }

    /// Replaces the macros of a directive's operands.
    fn expanded(&mut self, tokens: &[Token]) -> Option<Vec<Token>> {
        match self.macros.expand(tokens, self.sources) {
            Ok(tokens) => Some(tokens),
            Err(stop) => {
                self.stopped_line(stop);
                None
            }
        }
    }
}

/// Whether the next line that is not blank begins with a parenthesis.
fn opens(reader: &mut Reader) -> bool {
    let resume = reader.next;
    let next = (0..MAX_CALL_LINES).map_while(|_| reader.logical()).find(|line| !line.tokens.is_empty());
    reader.next = resume;
    next.is_some_and(|line| line.troubles.is_empty() && line.tokens.first().is_some_and(|t| t.is('(')))
}

/// Whether a token is a name in the sense of `#ifdef`.
fn is_name(token: &Token) -> bool {
    token.kind == Kind::Ident
}
