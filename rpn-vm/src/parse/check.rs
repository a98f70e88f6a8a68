//! Checks of the whole file once its end is known: mandatory statements,
//! labels, procedures, and variable indices used before `vars =` was known.

use std::collections::{BTreeMap, BTreeSet};

use super::{Draft, Parser, operand_name};
use crate::ast::{Operand, Routine};
use crate::diag::Sink;
use crate::instructions::OperandKind;
use crate::source::{Sources, Span};

impl Parser<'_> {
    /// Closes open definitions and checks the file as a whole. `main` is the main file.
    pub(super) fn finish(&mut self, main: u32) {
        self.dangling_label();
        if let Some(open) = self.in_proc.take() {
            let message = format!("procedure `{}` has no `endproc`", open.name);
            self.error(open.span, "bad-procedure", message);
            self.procs.push(open);
        }
        let start = Span { file: main, ..Span::default() };
        if !self.header_seen.contains(&"name") {
            let at = if self.header_span.line > 0 { self.header_span } else { start };
            self.error(
                at,
                "missing-statement",
                "the file header has no `name =`: add the name of the module",
            );
        }
        if self.probes.is_empty() {
            self.error(
                start,
                "missing-statement",
                "the file has no probe point: add `offset =` and `opcode =`",
            );
        }
        let own_place = |p: &&Draft| p.offset.as_ref().is_none_or(|offset| offset.description().is_none());
        let own = self.probes.iter().filter(own_place);
        let missing: Vec<Span> =
            own.filter(|p| p.opcode.is_none() && p.watch.is_none()).map(|p| p.span).collect();
        for span in missing {
            let message = "the probe point has no `opcode =`: add the first byte of the instruction, so that a wrong offset is noticed";
            self.error(span, "missing-statement", message);
        }
        let ranges: Vec<Span> = self
            .probes
            .iter()
            .filter(|p| p.watch.is_none())
            .filter_map(|p| p.address.as_ref()?.1.as_ref().map(|e| e.span))
            .collect();
        for span in ranges {
            let message = "the second address has no effect on a breakpoint probe: the probe is at the first";
            self.sink.warning(self.sources, span, "useless", message.to_owned());
        }
        for span in self.probes.iter().filter_map(|p| p.opcode_span.filter(|_| p.watch.is_some())) {
            let message = "`opcode =` has no effect on a watchpoint";
            self.sink.warning(self.sources, span, "useless", message.to_owned());
        }
        self.check_procs();
        self.check_routines();
    }

    fn check_procs(&mut self) {
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for routine in &self.procs {
            if !routine.name.is_empty() && !seen.insert(routine.name.to_ascii_lowercase()) {
                let message = format!("procedure `{}` is defined twice", routine.name);
                self.sink.error(self.sources, routine.span, "duplicate", message);
            }
        }
    }

    fn check_routines(&mut self) {
        let procs: BTreeMap<String, &str> =
            self.procs.iter().map(|p| (p.name.to_ascii_lowercase(), p.name.as_str())).collect();
        let limits = self.limits_known.then_some((self.header.vars, self.header.gvars));
        let handlers = self.probes.iter().map(|p| &p.handler);
        for routine in handlers.chain(&self.procs) {
            check_routine(routine, &procs, self.sources, &mut self.sink);
            if let (Some(limits), false) = (limits, routine.name.is_empty()) {
                check_indices(routine, limits, self.sources, &mut self.sink);
            }
        }
    }
}

fn check_routine(routine: &Routine, procs: &BTreeMap<String, &str>, sources: &Sources, sink: &mut Sink) {
    let mut labels: BTreeMap<String, &str> = BTreeMap::new();
    for instr in &routine.body {
        for label in &instr.labels {
            if labels.insert(label.to_ascii_lowercase(), label).is_some() {
                sink.error(sources, instr.span, "duplicate", format!("label `{label}` is defined twice"));
            }
        }
    }
    for instr in &routine.body {
        let Some(name) = operand_name(instr) else { continue };
        let (known, what) = match instr.op.row().operand {
            OperandKind::Proc => (procs, "procedure"),
            _ => (&labels, "label"),
        };
        if known.contains_key(&name.to_ascii_lowercase()) {
            continue;
        }
        let message =
            format!("there is no {what} `{name}`{}", if what == "label" { " in this routine" } else { "" });
        match sink.near_miss(name, known.values().copied()) {
            Some(near) => {
                sink.error_help(sources, instr.span, "undefined", message, format!("did you mean `{near}`?"));
            }
            None => sink.error(sources, instr.span, "undefined", message),
        }
    }
}

/// Procedures may come before `vars =`, so their indices are checked at the end.
fn check_indices(routine: &Routine, (vars, gvars): (u32, u32), sources: &Sources, sink: &mut Sink) {
    for instr in &routine.body {
        let (limit, word) = match instr.op.row().operand {
            OperandKind::Lv => (vars, "vars"),
            OperandKind::Gv => (gvars, "gvars"),
            _ => continue,
        };
        if let Operand::Number(n) = instr.operand
            && n >= i64::from(limit)
        {
            let message = format!("variable {n} does not exist: `{word} = {limit}` is the limit");
            sink.error(sources, instr.span, "variable-index", message);
        }
    }
}
