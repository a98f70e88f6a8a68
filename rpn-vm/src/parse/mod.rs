//! The parser: source text to [`Program`], with all errors of a file at once.
//!
//! Lines come from the preprocessor; each is a statement, an instruction, or
//! `proc`/`endproc`. It checks everything that needs no symbols: operands,
//! permissions, labels, indices. It resolves nothing.

mod check;
mod instr;
mod lex;
mod preproc;
mod statement;

use std::sync::Arc;

use crate::ast::{
    Expr, FileHeader, Instr, Location, MAXHITS_DEFAULT, Operand, ProbePoint, Program, Routine, Watch,
};
use crate::diag::{Diagnostics, Sink};
use crate::instructions::Op;
use crate::lint::{Subject, lint};
use crate::source::{Sources, Span};
use crate::vm::DEFAULT_MAX_STEPS;
use lex::{Kind, Token};
pub use preproc::{FileLoader, Loader, NoFiles};

/// Options of a compilation.
#[derive(Debug, Clone, Default)]
pub struct ParseOptions {
    /// `-D key=value` substitutions.
    pub defines: Vec<(String, String)>,
    /// The instructions that a hit may execute, of which warnings speak; the default budget if `None`.
    pub max_steps: Option<u32>,
}

/// Parses a program held in memory; `name` is shown in diagnostics, `#include` is refused.
///
/// # Errors
/// Every finding of the text, errors and warnings.
pub fn parse(name: &str, text: &str) -> Result<Program, Diagnostics> {
    parse_with(name, text, &ParseOptions::default(), &mut NoFiles)
}

/// Parses a program whose includes `loader` finds.
///
/// # Errors
/// Every finding of the text and of what it includes, errors and warnings.
pub fn parse_with(
    name: &str,
    text: &str,
    options: &ParseOptions,
    loader: &mut dyn Loader,
) -> Result<Program, Diagnostics> {
    let mut sources = Sources::default();
    let mut sink = Sink::default();
    let Some(lines) = lines(name, text, options, loader, &mut sources, &mut sink) else {
        return Err(sink.finish());
    };
    let mut parser = Parser::new(&sources, sink);
    for line in &lines {
        parser.line(&line.tokens);
    }
    parser.finish(sources.main());
    let Parser { header, probes, procs, mut sink, .. } = parser;
    if sink.failed() {
        return Err(sink.finish());
    }
    let probes: Vec<ProbePoint> = probes.into_iter().map(Draft::into_probe).collect();
    let max_steps = options.max_steps.unwrap_or(DEFAULT_MAX_STEPS);
    lint(&Subject::new(&header, &probes, &procs, &sources, max_steps), &mut sink);
    let warnings = sink.finish();
    Ok(Program { header, probes, procs, warnings, sources: Arc::new(sources), signed: None })
}

/// The result of preprocessing (`check -E`).
#[derive(Debug, Clone)]
pub struct Preprocessed {
    /// The text, with a marker `# line "file"` wherever the line does not follow on the one before.
    pub text: String,
    /// The findings.
    pub found: Diagnostics,
}

/// Preprocesses a program whose includes `loader` finds. Compiling the text gives the same program.
pub fn preprocess(name: &str, text: &str, options: &ParseOptions, loader: &mut dyn Loader) -> Preprocessed {
    let mut sources = Sources::default();
    let mut sink = Sink::default();
    let lines = lines(name, text, options, loader, &mut sources, &mut sink);
    let text = lines.map(|lines| preproc::text(&lines, &sources)).unwrap_or_default();
    Preprocessed { text, found: sink.finish() }
}

fn lines(
    name: &str,
    text: &str,
    options: &ParseOptions,
    loader: &mut dyn Loader,
    sources: &mut Sources,
    sink: &mut Sink,
) -> Option<Vec<preproc::Line>> {
    let mut pre = preproc::Preprocessor::new(sources, sink, loader);
    for (key, value) in &options.defines {
        pre.define(key, value);
    }
    pre.run(name, text)
}

/// The part of the file that the parser is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Header,
    Probe,
}

/// A probe point under construction.
#[derive(Debug)]
struct Draft {
    offset: Option<Expr>,
    address: Option<(Expr, Option<Expr>)>,
    watch: Option<Watch>,
    opcode: Option<u8>,
    /// Location of `opcode =`.
    opcode_span: Option<Span>,
    minor: u32,
    ignore: u32,
    maxhits: u32,
    group: Option<String>,
    kind: Option<String>,
    logonfault: Option<bool>,
    excpt_mask: Option<u32>,
    handler: Routine,
    span: Span,
    seen: Vec<&'static str>,
}

impl Draft {
    fn new(span: Span) -> Self {
        Self {
            offset: None,
            address: None,
            watch: None,
            opcode: None,
            opcode_span: None,
            minor: 0,
            ignore: 0,
            maxhits: MAXHITS_DEFAULT,
            group: None,
            kind: None,
            logonfault: None,
            excpt_mask: None,
            handler: Routine { name: String::new(), body: Vec::new(), span },
            span,
            seen: Vec::new(),
        }
    }

    fn into_probe(self) -> ProbePoint {
        let location = match (self.address, self.offset) {
            (Some((low, high)), _) => Location::Address(low, high),
            (None, offset) => Location::Offset(offset.unwrap_or_default()),
        };
        ProbePoint {
            location,
            watch: self.watch,
            opcode: self.opcode.unwrap_or_default(),
            minor: self.minor,
            ignore: self.ignore,
            maxhits: self.maxhits,
            group: self.group,
            kind: self.kind,
            logonfault: self.logonfault,
            excpt_mask: self.excpt_mask,
            handler: self.handler,
            span: self.span,
        }
    }
}

struct Parser<'a> {
    sources: &'a Sources,
    sink: Sink,
    header: FileHeader,
    header_seen: Vec<&'static str>,
    header_span: Span,
    probes: Vec<Draft>,
    procs: Vec<Routine>,
    section: Section,
    in_proc: Option<Routine>,
    pending: Vec<(String, Span)>,
    limits_known: bool,
}

impl<'a> Parser<'a> {
    fn new(sources: &'a Sources, sink: Sink) -> Self {
        Self {
            sources,
            sink,
            header: FileHeader::default(),
            header_seen: Vec::new(),
            header_span: Span::default(),
            probes: Vec::new(),
            procs: Vec::new(),
            section: Section::Header,
            in_proc: None,
            pending: Vec::new(),
            limits_known: true,
        }
    }

    fn error(&mut self, span: Span, code: &'static str, message: impl Into<String>) {
        self.sink.error(self.sources, span, code, message.into());
    }

    fn error_help(
        &mut self,
        span: Span,
        code: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.sink.error_help(self.sources, span, code, message.into(), help.into());
    }

    fn line(&mut self, tokens: &[Token]) {
        match tokens {
            [] => {}
            [key, eq, value @ ..] if key.kind == Kind::Ident && eq.is('=') => self.statement(key, value),
            [word, rest @ ..] if word.text.eq_ignore_ascii_case("proc") && word.kind == Kind::Ident => {
                self.begin_proc(word, rest);
            }
            [word, rest @ ..] if word.text.eq_ignore_ascii_case("endproc") && word.kind == Kind::Ident => {
                self.end_proc(word, rest);
            }
            [label, colon, rest @ ..] if label.kind == Kind::Ident && colon.is(':') => {
                if label.text.contains(['.', '$']) {
                    self.error(
                        label.span,
                        "bad-label",
                        "a label consists of letters, digits and underscores",
                    );
                } else {
                    self.pending.push((label.text.clone(), label.span));
                }
                if !rest.is_empty() {
                    self.instruction_line(rest);
                }
            }
            _ => self.instruction_line(tokens),
        }
    }

    fn begin_proc(&mut self, word: &Token, rest: &[Token]) {
        self.dangling_label();
        if let Some(open) = &self.in_proc {
            let message = format!("`proc` inside procedure `{}`: `endproc` is missing", open.name);
            self.error(word.span, "bad-procedure", message);
            return;
        }
        let (name, span) = match rest {
            [name] if name.kind == Kind::Ident => (name.text.clone(), name.span),
            _ => {
                self.error(word.span, "bad-procedure", "`proc` needs one name");
                (String::new(), word.span)
            }
        };
        self.in_proc = Some(Routine { name, body: Vec::new(), span });
    }

    fn end_proc(&mut self, word: &Token, rest: &[Token]) {
        self.dangling_label();
        if let Some(extra) = rest.first() {
            self.error(extra.span, "unexpected", format!("unexpected `{}` after `endproc`", extra.text));
        }
        match self.in_proc.take() {
            Some(routine) => self.procs.push(routine),
            None => self.error(word.span, "bad-procedure", "`endproc` without `proc`"),
        }
    }

    /// A label must be followed by an instruction of the same routine.
    fn dangling_label(&mut self) {
        for (name, span) in std::mem::take(&mut self.pending) {
            self.error(span, "bad-label", format!("no instruction follows label `{name}`"));
        }
    }

    fn instruction_line(&mut self, tokens: &[Token]) {
        let span = tokens.first().map(|t| t.span).unwrap_or_default();
        let outside = self.in_proc.is_none() && self.section == Section::Header;
        let parsed = self.instruction(tokens);
        let labels: Vec<String> =
            std::mem::take(&mut self.pending).into_iter().map(|(name, _)| name).collect();
        // An instruction with an error keeps its labels, so that jumps to them are not errors too.
        let failed = parsed.is_none();
        if failed && labels.is_empty() {
            return;
        }
        let (op, operand) = parsed.unwrap_or((Op::Nop, Operand::None));
        if outside && !failed {
            let message =
                "an instruction before the first probe point: `offset =` or `address =` must come first";
            self.error(span, "misplaced", message);
            return;
        }
        let end = tokens.last().map_or(span, |t| t.span);
        let instr = Instr { labels, op, operand, span: span.to(end) };
        let body = match (&mut self.in_proc, self.probes.last_mut()) {
            (Some(routine), _) => &mut routine.body,
            (None, Some(probe)) => &mut probe.handler.body,
            (None, None) => return,
        };
        body.push(instr);
    }

    /// The number of a constant expression in a range; otherwise reports the error.
    fn number(&mut self, tokens: &[Token], at: Span, what: &str, min: i128, max: i128) -> Option<i128> {
        let expr = self.expr(tokens, at, what)?;
        let Some(value) = expr.constant() else {
            self.error(expr.span, "bad-number", format!("{what} must be a number, not a symbol"));
            return None;
        };
        if value < min || value > max {
            self.error(
                expr.span,
                "out-of-range",
                format!("{what} is {value}; it must be between {min} and {max}"),
            );
            return None;
        }
        Some(value)
    }
}

/// The span of a run of tokens, or `at` when it is empty.
fn span_of(tokens: &[Token], at: Span) -> Span {
    match tokens {
        [] => at,
        [one] => one.span,
        [first, .., last] => first.span.to(last.span),
    }
}

/// Whether the operand's names point into the routine (labels) or to a procedure.
fn operand_name(instr: &Instr) -> Option<&str> {
    match &instr.operand {
        Operand::Name(name) => Some(name),
        _ => None,
    }
}

/// Whether a text is a single name of the language, as of a procedure, which preprocessing leaves unchanged.
pub(crate) fn is_name(text: &str) -> bool {
    let one = matches!(lex::scan(text).as_slice(), [one] if one.ident() == Some(text));
    one && !preproc::BUILT_IN.contains(&text)
}
