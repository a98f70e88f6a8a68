//! The flow graph of a routine, and the findings that need only the graph.

use std::collections::BTreeMap;

use super::effect::{effect, may_throw, reads};
use super::{Report, label_of};
use crate::ast::{FileHeader, Instr, Routine};
use crate::instructions::Op;
use crate::source::Span;

/// The instructions of a routine and the successors of each. The index after the last instruction is the end.
pub(super) struct Graph<'a> {
    pub routine: &'a Routine,
    /// Successors without an exception.
    pub next: Vec<Vec<usize>>,
    /// Where each `sx` sends exceptions.
    pub handlers: BTreeMap<usize, usize>,
    /// Reached from the start, by exceptions too.
    pub reached: Vec<bool>,
    /// Reached from the start without an exception.
    normal: Vec<bool>,
}

impl<'a> Graph<'a> {
    pub fn new(routine: &'a Routine, kernel: bool) -> Self {
        let mut labels: BTreeMap<String, usize> = BTreeMap::new();
        for (at, instr) in routine.body.iter().enumerate() {
            labels.extend(instr.labels.iter().map(|l| (l.to_ascii_lowercase(), at)));
        }
        let mut next = Vec::with_capacity(routine.body.len());
        let mut handlers = BTreeMap::new();
        for (at, instr) in routine.body.iter().enumerate() {
            let target = label_of(instr).and_then(|l| labels.get(&l).copied());
            let goes_on = match instr.op {
                Op::Jmp | Op::Exit | Op::Abort | Op::Ret => false,
                Op::ExitN => match super::effect::number(instr) {
                    Some(1 | 2) => !kernel,
                    Some(3) => kernel,
                    _ => false,
                },
                _ => true,
            };
            let mut to: Vec<usize> = if goes_on { vec![at + 1] } else { Vec::new() };
            match (instr.op, target) {
                (Op::Sx, Some(target)) => drop(handlers.insert(at, target)),
                (_, Some(target)) => to.push(target),
                _ => {}
            }
            next.push(to);
        }
        let mut graph = Self { routine, next, handlers, reached: Vec::new(), normal: Vec::new() };
        graph.normal = graph.from(&[0], false);
        graph.reached = graph.from(&[0], true);
        graph
    }

    pub fn len(&self) -> usize {
        self.routine.body.len()
    }

    pub fn span(&self, at: usize) -> Span {
        self.routine.body.get(at).map_or(self.routine.span, |i| i.span)
    }

    /// The instructions reached from some instructions.
    fn from(&self, starts: &[usize], exceptions: bool) -> Vec<bool> {
        let mut reached = vec![false; self.len() + 1];
        let mut open: Vec<usize> = starts.to_vec();
        while let Some(at) = open.pop() {
            match reached.get_mut(at) {
                Some(seen) if !*seen => *seen = true,
                _ => continue,
            }
            open.extend(self.next.get(at).into_iter().flatten());
            if exceptions {
                open.extend(self.handlers.get(&at));
            }
        }
        reached
    }

    /// The instructions from which `goal`, or the end if it counts, is reached without an exception.
    fn leads_to(&self, end: bool, goal: impl Fn(usize, &Instr) -> bool) -> Vec<bool> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.len() + 1];
        for (at, to) in self.next.iter().enumerate() {
            for to in to {
                before[*to].push(at);
            }
        }
        let body = self.routine.body.iter().enumerate();
        let mut open: Vec<usize> = body.filter(|(at, i)| goal(*at, i)).map(|(at, _)| at).collect();
        if end {
            open.push(self.len());
        }
        let mut found = vec![false; self.len() + 1];
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut found[at], true) {
                open.extend(&before[at]);
            }
        }
        found
    }

    fn is(reached: &[bool], at: usize) -> bool {
        reached.get(at).copied().unwrap_or_default()
    }
}

/// The first instruction of each unreachable sequence.
pub(super) fn unreachable(graph: &Graph<'_>, report: &mut Report<'_>) {
    let mut before = true;
    for at in 0..graph.len() {
        let reached = Graph::is(&graph.reached, at);
        if !reached && before {
            let message = "this instruction is never reached".to_owned();
            report.say(graph.span(at), "unreachable-code", message, None);
        }
        before = reached;
    }
}

/// What ends an endless loop in a routine of this many instructions: jumps or the budget, if it is known which of them.
fn end_of_loop(instructions: u64, jmpmax: u32, max_steps: u32) -> String {
    let steps = format!("{max_steps} instructions (--max-steps)");
    // Between two jumps no instruction is executed twice.
    if (u64::from(jmpmax) + 1).saturating_mul(instructions) <= max_steps.into() {
        format!("{jmpmax} jumps")
    } else if jmpmax >= max_steps {
        steps
    } else {
        format!("{jmpmax} jumps or {steps}")
    }
}

/// Endless loops of a routine.
pub(super) fn endless(graph: &Graph<'_>, (header, max_steps): (&FileHeader, u32), report: &mut Report<'_>) {
    // A call may end the handler; so may an exception.
    let may_end = |at: usize, instr: &Instr| {
        graph.next.get(at).is_none_or(Vec::is_empty)
            || instr.op == Op::Call
            || may_throw(instr, header.excpt_mask)
    };
    let ends = graph.leads_to(true, may_end);
    let mut inside = false;
    for (at, ends) in ends.iter().enumerate().take(graph.len()) {
        let caught = Graph::is(&graph.reached, at) && !ends;
        if caught && !inside {
            let end = end_of_loop(graph.len() as u64, header.jmpmax, max_steps);
            let message = format!("this loop never ends by itself: it ends with JMP_MAX after {end}");
            report.say(graph.span(at), "endless-loop", message, None);
        }
        inside = caught;
    }
}

/// `sx` without `ux`, `ux` without `sx`, and exception handlers that are reached without an exception.
pub(super) fn scopes(graph: &Graph<'_>, report: &mut Report<'_>) {
    let ended = graph.leads_to(false, |_, instr| instr.op == Op::Ux);
    for (&at, &target) in &graph.handlers {
        if !Graph::is(&graph.reached, at) {
            continue;
        }
        if !Graph::is(&ended, at) {
            let message = "no `ux` follows this `sx`: its scope extends to the end of the routine".to_owned();
            report.say(
                graph.span(at),
                "exception-scope",
                message,
                Some("write `ux` after the instructions that may fail"),
            );
        }
        if Graph::is(&graph.normal, target) && takes_exception(graph, target) {
            let message = "this exception handler is reached without an exception".to_owned();
            let help = "end or leave the code before it with `exit`, `ret` or `jmp`";
            let notes = vec![("its `sx` is at".to_owned(), graph.span(at))];
            report.say_with(graph.span(target), "exception-scope", message, Some(help), notes);
        }
    }
    if graph.handlers.is_empty()
        && let Some(at) = graph.routine.body.iter().position(|i| i.op == Op::Ux)
    {
        let message = "no `sx` of this routine comes before this `ux`".to_owned();
        report.say(graph.span(at), "exception-scope", message, None);
    }
}

/// How many instructions of an exception handler are examined.
const LOOKED_AT: usize = 64;

/// Whether the code at `at` reads elements that it did not push, like a handler that reads the exception.
fn takes_exception(graph: &Graph<'_>, at: usize) -> bool {
    let mut depth = 0u32;
    for at in at..graph.len().min(at + LOOKED_AT) {
        let instr = &graph.routine.body[at];
        if reads(instr) > depth {
            return true;
        }
        let Some(effect) = effect(instr) else { return false };
        depth = depth - effect.pops.min(depth) + effect.pushes.0;
        if graph.next[at] != [at + 1] {
            return false;
        }
    }
    false
}
