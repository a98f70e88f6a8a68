//! Diagnostics as data, and the renderer that shows them with their source line.
//!
//! A [`Diagnostic`] owns all of its data, so it outlives the
//! compilation. [`crate::CODES`] decides which findings are errors.

use std::fmt;

use crate::findings::{self, Severity};
use crate::near::near_miss;
use crate::source::{Sources, Span};

/// A place in the source that helps to understand a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The words before the place, such as `included from`.
    pub message: String,
    /// The file's name as given.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1, in characters.
    pub col: u32,
    /// Number of characters.
    pub len: u32,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}:{}", self.message, self.file, self.line, self.col)
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// A stable name of the kind of finding, such as `unknown-instruction`; one of [`crate::CODES`].
    pub code: &'static str,
    /// The file's name as given.
    pub file: String,
    /// Line, from 1; 0 when the finding is about the whole file.
    pub line: u32,
    /// Column, from 1, in characters.
    pub col: u32,
    /// Characters marked.
    pub len: u32,
    /// One sentence.
    pub message: String,
    /// Other places: the macros it was expanded from, the files that include it, an earlier definition.
    pub notes: Vec<Note>,
    /// What to do about it.
    pub help: Option<String>,
    /// The text of the line.
    pub source: String,
}

/// Widest piece of a source line that is shown.
const SHOWN: usize = 160;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        if self.line == 0 {
            write!(f, "{}: {kind}: {}", self.file, self.message)?;
        } else {
            writeln!(f, "{}:{}:{}: {kind}: {}", self.file, self.line, self.col, self.message)?;
            let chars: Vec<char> =
                self.source.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let at = (self.col as usize).saturating_sub(1).min(chars.len());
            let from = if at > SHOWN / 2 && chars.len() > SHOWN { at - SHOWN / 2 } else { 0 };
            let shown: String = chars[from..].iter().take(SHOWN).collect();
            writeln!(f, "  {}", shown.trim_end())?;
            let carets = (self.len as usize).clamp(1, SHOWN.saturating_sub(at - from).max(1));
            write!(f, "  {}{}", " ".repeat(at - from), "^".repeat(carets))?;
        }
        for note in &self.notes {
            write!(f, "\n  note: {note}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

/// All errors of a compilation, with its warnings, in the order of the source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diagnostics {
    /// The findings.
    pub list: Vec<Diagnostic>,
    /// Findings beyond the first [`Diagnostics::LIMIT`], only counted.
    pub more: usize,
}

impl Diagnostics {
    /// Most findings that are kept of one compilation.
    pub const LIMIT: usize = 200;

    /// How many of them are errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.list.iter().filter(|d| d.severity == Severity::Error).count()
    }

    /// How many of them are warnings.
    #[must_use]
    pub fn warnings(&self) -> usize {
        self.list.len() - self.errors()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in self.list.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{d}")?;
        }
        if self.more > 0 {
            write!(f, "\n{} more findings are not shown", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// Collects findings during a compilation.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    found: Vec<(Span, Diagnostic)>,
    more: usize,
    failed: bool,
}

/// Most macros that a finding names.
const NAMED_MACROS: usize = 8;

/// Most includes that a finding names, besides the first.
const NAMED_INCLUDES: usize = 8;

/// A finding to be added to a [`Sink`]. Only place, code and message are mandatory.
#[derive(Debug, Default)]
pub(crate) struct Finding {
    pub span: Span,
    pub code: &'static str,
    pub message: String,
    pub help: Option<String>,
    /// Places, each with the words before it.
    pub notes: Vec<(String, Span)>,
}

impl Sink {
    pub fn error(&mut self, sources: &Sources, span: Span, code: &'static str, message: String) {
        self.report(sources, Finding { span, code, message, ..Finding::default() });
    }

    pub fn error_help(
        &mut self,
        sources: &Sources,
        span: Span,
        code: &'static str,
        message: String,
        help: String,
    ) {
        self.report(sources, Finding { span, code, message, help: Some(help), notes: Vec::new() });
    }

    pub fn warning(&mut self, sources: &Sources, span: Span, code: &'static str, message: String) {
        self.report(sources, Finding { span, code, message, ..Finding::default() });
    }

    /// Adds a finding. Its code says whether it is an error. Notes on macros and includes are added automatically.
    pub fn report(&mut self, sources: &Sources, finding: Finding) {
        let Finding { span, code, message, help, notes } = finding;
        let row = findings::by_name(code);
        debug_assert!(row.is_some(), "`{code}` is not in the table of codes");
        let severity = row.map_or(Severity::Error, |row| row.severity);
        self.failed |= severity == Severity::Error;
        if !self.keeps() {
            self.more += 1;
            return;
        }
        let mut notes: Vec<Note> = notes.into_iter().map(|(text, at)| note(sources, text, at)).collect();
        notes.extend(origin(sources, span));
        let (file, line) = sources.presumed(span);
        let diagnostic = Diagnostic {
            severity,
            code,
            file: file.to_owned(),
            line,
            col: span.col,
            len: span.len,
            message,
            notes,
            help,
            source: sources.line(span.file, span.line).to_owned(),
        };
        self.found.push((span, diagnostic));
    }

    /// The [`near_miss`] for a finding, unless the finding would only be counted: then the search is skipped.
    pub fn near_miss<'a>(&self, name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        if self.keeps() { near_miss(name, known) } else { None }
    }

    /// Whether another finding would be kept.
    fn keeps(&self) -> bool {
        self.found.len() < Diagnostics::LIMIT
    }

    /// Whether an error was found.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// The findings in the order of file, line and column.
    pub fn finish(mut self) -> Diagnostics {
        self.found.sort_by_key(|(s, _)| (s.file, s.line, s.col));
        Diagnostics { list: self.found.into_iter().map(|(_, d)| d).collect(), more: self.more }
    }
}

fn note(sources: &Sources, message: String, at: Span) -> Note {
    let (file, line) = sources.presumed(at);
    Note { message, file: file.to_owned(), line, col: at.col, len: at.len }
}

/// The notes on a place: the macros it was expanded from, and the files that include it.
fn origin(sources: &Sources, span: Span) -> Vec<Note> {
    let macros = sources.expansions(span);
    let mut notes = Vec::new();
    for (name, at) in macros.iter().take(NAMED_MACROS) {
        notes.push(note(sources, format!("in expansion of macro `{name}`, defined at"), *at));
    }
    if let (Some((name, at)), true) = (macros.last(), macros.len() > NAMED_MACROS) {
        let between = macros.len() - NAMED_MACROS - 1;
        notes.push(note(sources, format!("and of {between} more, the innermost `{name}`, defined at"), *at));
    }
    let includes = sources.includes(span);
    let between = includes.len().saturating_sub(NAMED_INCLUDES + 1);
    for (n, at) in includes.iter().enumerate() {
        let last = n + 1 == includes.len();
        if n < NAMED_INCLUDES || last {
            let skipped = if last && between > 0 {
                format!("{between} more, the first of them ")
            } else {
                String::new()
            };
            notes.push(note(sources, format!("{skipped}included from"), *at));
        }
    }
    notes
}
