//! Warnings about programs that compile but are probably not what their author meant.
//!
//! Only certain findings are reported: unreachable code, and what holds for every hit that reaches an
//! instruction. The parser finds the errors.

mod certain;
mod effect;
mod flow;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use crate::ast::{FileHeader, Instr, Operand, ProbePoint, Routine};
use crate::diag::{Finding, Sink};
use crate::instructions::{Op, OperandKind};
use crate::source::{Sources, Span};

/// A program without errors, as the lints see it.
pub(crate) struct Subject<'a> {
    pub header: &'a FileHeader,
    pub probes: &'a [ProbePoint],
    pub procs: &'a [Routine],
    pub sources: &'a Sources,
    /// Whether any instruction takes back logged bytes.
    pub takes_back: bool,
    /// The instructions that a hit may execute.
    pub max_steps: u32,
}

impl<'a> Subject<'a> {
    pub fn new(
        header: &'a FileHeader,
        probes: &'a [ProbePoint],
        procs: &'a [Routine],
        sources: &'a Sources,
        max_steps: u32,
    ) -> Self {
        let routines = probes.iter().map(|p| &p.handler).chain(procs);
        let takes_back = routines.flat_map(|r| &r.body).any(|i| i.op == Op::PopLp);
        Self { header, probes, procs, sources, takes_back, max_steps }
    }
}

/// Runs every lint.
pub(crate) fn lint(subject: &Subject<'_>, sink: &mut Sink) {
    let mut report = Report { sources: subject.sources, sink, said: BTreeSet::new() };
    unused_procedures(subject, &mut report);
    let handlers = subject.probes.iter().map(|p| (&p.handler, true));
    for (routine, is_handler) in handlers.chain(subject.procs.iter().map(|p| (p, false))) {
        let graph = flow::Graph::new(routine, subject.header.modtype.is_kernel());
        unused_labels(routine, &mut report);
        flow::unreachable(&graph, &mut report);
        flow::endless(&graph, (subject.header, subject.max_steps), &mut report);
        flow::scopes(&graph, &mut report);
        state::check(&graph, subject, is_handler, &mut report);
    }
    certain::check(subject, &mut report);
}

/// Collects findings; each is reported once for each place.
pub(super) struct Report<'a> {
    sources: &'a Sources,
    sink: &'a mut Sink,
    said: BTreeSet<(&'static str, u32, u32, u32)>,
}

impl Report<'_> {
    pub fn say(&mut self, span: Span, code: &'static str, message: String, help: Option<&str>) {
        self.say_with(span, code, message, help, Vec::new());
    }

    /// Whether a finding with this code was reported in this program.
    pub fn has_said(&self, code: &str) -> bool {
        self.said.iter().any(|(said, ..)| *said == code)
    }

    pub fn say_with(
        &mut self,
        span: Span,
        code: &'static str,
        message: String,
        help: Option<&str>,
        notes: Vec<(String, Span)>,
    ) {
        if self.said.insert((code, span.file, span.line, span.col)) {
            let help = help.map(str::to_owned);
            self.sink.report(self.sources, Finding { span, code, message, help, notes });
        }
    }
}

/// The label that an instruction names.
pub(super) fn label_of(instr: &Instr) -> Option<String> {
    match &instr.operand {
        Operand::Name(name) if instr.op.row().operand == OperandKind::Label => {
            Some(name.to_ascii_lowercase())
        }
        _ => None,
    }
}

/// The procedure that an instruction calls.
pub(super) fn procedure_of(instr: &Instr) -> Option<String> {
    match &instr.operand {
        Operand::Name(name) if instr.op == Op::Call => Some(name.to_ascii_lowercase()),
        _ => None,
    }
}

fn unused_labels(routine: &Routine, report: &mut Report<'_>) {
    let named: BTreeSet<String> = routine.body.iter().filter_map(label_of).collect();
    for instr in &routine.body {
        for label in instr.labels.iter().filter(|l| !named.contains(&l.to_ascii_lowercase())) {
            if report.sources.in_main(instr.span) {
                let message = format!("nothing jumps to label `{label}`");
                report.say(instr.span, "unused-label", message, None);
            }
        }
    }
}

/// Unused procedures of included files are not reported: a program rarely uses all of a library.
fn unused_procedures(subject: &Subject<'_>, report: &mut Report<'_>) {
    let by_name: BTreeMap<String, &Routine> =
        subject.procs.iter().map(|p| (p.name.to_ascii_lowercase(), p)).collect();
    let mut used: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<&Routine> = subject.probes.iter().map(|p| &p.handler).collect();
    while let Some(routine) = open.pop() {
        for name in routine.body.iter().filter_map(procedure_of) {
            if let (Some(next), true) = (by_name.get(&name), used.insert(name)) {
                open.push(next);
            }
        }
    }
    for routine in subject.procs {
        if !used.contains(&routine.name.to_ascii_lowercase()) && subject.sources.in_main(routine.span) {
            let message = format!("no handler calls procedure `{}`", routine.name);
            report.say(routine.span, "unused-procedure", message, None);
        }
    }
}
