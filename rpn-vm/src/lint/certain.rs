//! Executes the part of a handler that is the same for every hit: up to the first branch that depends on the guest.
//!
//! Values are numbers or unknown. It follows calls and loops, so it finds what the text alone does not show:
//! a loop that makes too many jumps or logs too much. A finding is reported if it holds for both widths. A
//! budget for the whole program bounds the work. It never guesses: it ends at anything that it cannot follow.

use std::collections::BTreeMap;

use super::effect::{constant, effect, may_throw, number};
use super::{Report, Subject, label_of, procedure_of};
use crate::ast::{Instr, Routine};
use crate::instructions::Op;
use crate::source::Span;
use crate::verify::Width;
use crate::vm::MAX_CALLS;

/// Most instructions that are executed here for all handlers of a program.
const BUDGET: u32 = 1_000_000;

/// Executes every handler at both widths.
pub(super) fn check(subject: &Subject<'_>, report: &mut Report<'_>) {
    let procs: BTreeMap<String, &Routine> =
        subject.procs.iter().map(|p| (p.name.to_ascii_lowercase(), p)).collect();
    let mut budget = BUDGET;
    for probe in subject.probes {
        let narrow = run(subject, &procs, &probe.handler, Width::W32, &mut budget);
        let wide = run(subject, &procs, &probe.handler, Width::W64, &mut budget);
        if let (Some(narrow), Some(wide)) = (narrow, wide)
            && (narrow.code, narrow.span) == (wide.code, wide.span)
            && !(narrow.code == "endless-loop" && report.has_said("endless-loop"))
        {
            report.say(narrow.span, narrow.code, narrow.message, narrow.help);
        }
    }
}

struct Certain {
    span: Span,
    code: &'static str,
    message: String,
    help: Option<&'static str>,
}

/// How the execution continues.
enum Next {
    On,
    To(usize),
    Call(String),
    Return,
    /// The handler ends, or the next instruction is unknown.
    Stop,
    Found(Certain),
}

type Labels = BTreeMap<String, usize>;

/// A routine that is being executed.
struct Frame<'a> {
    routine: &'a Routine,
    labels: Labels,
    at: usize,
}

fn frame(routine: &Routine) -> Frame<'_> {
    let mut labels = Labels::new();
    for (at, instr) in routine.body.iter().enumerate() {
        labels.extend(instr.labels.iter().map(|l| (l.to_ascii_lowercase(), at)));
    }
    Frame { routine, labels, at: 0 }
}

fn run(
    subject: &Subject<'_>,
    procs: &BTreeMap<String, &Routine>,
    handler: &Routine,
    width: Width,
    budget: &mut u32,
) -> Option<Certain> {
    let (jmpmax, logmax) = (subject.header.jmpmax, u64::from(subject.header.logmax));
    let mut run = Run { width, jmpmax, logmax, stack: Vec::new(), jumps: 0, logged: 0, unsure: false };
    let mut frames = vec![frame(handler)];
    for _ in 0..subject.max_steps {
        *budget = budget.checked_sub(1)?;
        let present = frames.last_mut()?;
        let next = match present.routine.body.get(present.at) {
            Some(instr) => {
                present.at += 1;
                run.step(instr, &present.labels)
            }
            None => Next::Return,
        };
        match next {
            Next::On => {}
            Next::To(at) => present.at = at,
            Next::Return => drop(frames.pop()),
            Next::Call(name) if frames.len() <= MAX_CALLS => {
                // A frame costs as many steps as its routine has instructions.
                let routine = procs.get(&name)?;
                *budget = budget.checked_sub(u32::try_from(routine.body.len()).ok()?)?;
                frames.push(frame(routine));
            }
            Next::Call(_) | Next::Stop => return None,
            Next::Found(found) => return Some(found),
        }
    }
    if run.unsure {
        return None;
    }
    let span = frames.last().and_then(|f| f.routine.body.get(f.at)).map(|i| i.span)?;
    let message = format!(
        "every hit that reaches this executes more than {} instruction{} (--max-steps): it ends here with JMP_MAX",
        subject.max_steps,
        if subject.max_steps == 1 { "" } else { "s" }
    );
    Some(Certain { span, code: "endless-loop", message, help: None })
}

struct Run {
    width: Width,
    jmpmax: u32,
    logmax: u64,
    stack: Vec<Option<u64>>,
    jumps: u32,
    /// Least number of bytes logged.
    logged: u64,
    /// Whether an exception may have ended the run before.
    unsure: bool,
}

impl Run {
    fn found(instr: &Instr, code: &'static str, message: String, help: Option<&'static str>) -> Next {
        Next::Found(Certain { span: instr.span, code, message, help })
    }

    /// Whether a branch is taken, if that is known.
    fn taken(&mut self, op: Op) -> Option<bool> {
        let top = self.stack.last_mut();
        let value = match top {
            Some(value) => value.as_mut()?,
            None => return None,
        };
        if op == Op::Loop {
            *value = value.wrapping_sub(1) & self.width.mask();
        }
        let signed = match self.width {
            Width::W32 => i64::from(*value as u32 as i32),
            Width::W64 => *value as i64,
        };
        Some(match op {
            Op::Jlt => signed < 0,
            Op::Jle => signed <= 0,
            Op::Jgt => signed > 0,
            Op::Jge => signed >= 0,
            Op::Jz => signed == 0,
            _ => signed != 0,
        })
    }

    fn branch(&mut self, instr: &Instr, labels: &Labels) -> Next {
        let taken = if instr.op == Op::Jmp { Some(true) } else { self.taken(instr.op) };
        let target = label_of(instr).and_then(|l| labels.get(&l).copied());
        match (taken, target) {
            (Some(false), _) => Next::On,
            (Some(true), Some(target)) => {
                self.jumps += 1;
                if self.jumps > self.jmpmax && self.unsure {
                    return Next::Stop;
                }
                if self.jumps > self.jmpmax {
                    let message = format!(
                        "every hit that reaches this makes more than {} jumps: it ends with JMP_MAX",
                        self.jmpmax
                    );
                    return Self::found(
                        instr,
                        "endless-loop",
                        message,
                        Some("raise `jmpmax =` in the file header"),
                    );
                }
                Next::To(target)
            }
            _ => Next::Stop,
        }
    }

    fn step(&mut self, instr: &Instr, labels: &Labels) -> Next {
        match instr.op {
            Op::Jmp | Op::Jlt | Op::Jle | Op::Jgt | Op::Jge | Op::Jz | Op::Jnz | Op::Loop => {
                return self.branch(instr, labels);
            }
            Op::Call => return procedure_of(instr).map_or(Next::Stop, Next::Call),
            Op::Ret => return Next::Return,
            Op::Exit | Op::ExitN | Op::Abort | Op::Rx | Op::PopTsp | Op::CopyTsp | Op::PushTsp => {
                return Next::Stop;
            }
            _ => {}
        }
        let Some(effect) = effect(instr).filter(|e| e.pushes.0 == e.pushes.1) else { return Next::Stop };
        let (reads, pops) = (effect.reads as usize, effect.pops as usize);
        if self.stack.len() < reads {
            let message = format!(
                "this reads {reads} element{}, but {} on the stack: it reads zeroes",
                if reads == 1 { "" } else { "s" },
                match self.stack.len() {
                    0 => "nothing is".to_owned(),
                    1 => "1 is".to_owned(),
                    n => format!("{n} are"),
                }
            );
            return Self::found(instr, "stack-underflow", message, None);
        }
        self.unsure |= may_throw(instr, 0);
        if let Some(found) = self.log(instr) {
            return found;
        }
        let results = self.results(instr, effect.pushes.0 as usize);
        self.stack.truncate(self.stack.len() - pops);
        if self.stack.len() + results.len() > 1024 {
            let message = "every hit that reaches this pushes more than the 1024 elements of the stack: the oldest are lost";
            return Self::found(instr, "stack-overflow", message.to_owned(), None);
        }
        self.stack.extend(results);
        self.cells(instr);
        Next::On
    }

    /// Counts the logged bytes.
    fn log(&mut self, instr: &Instr) -> Option<Next> {
        let bytes = match instr.op {
            Op::LogN => number(instr)? * self.width.bytes() as u64,
            Op::PopLp => {
                self.logged = self.stack.last().copied().flatten().unwrap_or(0).min(self.logged);
                return None;
            }
            _ => return None,
        };
        self.logged += bytes;
        (self.logged > self.logmax).then(|| {
            let message =
                format!("every hit that reaches this logs more than `logmax = {}` bytes", self.logmax);
            Self::found(instr, "log-overflow", message, Some("raise `logmax =` in the file header"))
        })
    }

    /// What an instruction pushes, before it pops.
    fn results(&self, instr: &Instr, count: usize) -> Vec<Option<u64>> {
        let at = |n: usize| self.stack.len().checked_sub(n + 1).and_then(|i| self.stack[i]);
        let two = |f: fn(u64, u64) -> u64| match (at(0), at(1)) {
            (Some(a), Some(b)) => Some(f(a, b)),
            _ => None,
        };
        let one = match instr.op {
            Op::Push => constant(instr),
            Op::Add => two(u64::wrapping_add),
            Op::Sub => two(u64::wrapping_sub),
            Op::Mul => two(u64::wrapping_mul),
            Op::And => two(|a, b| a & b),
            Op::Or => two(|a, b| a | b),
            Op::Xor => two(|a, b| a ^ b),
            Op::Neg => at(0).map(|a| !a),
            Op::Xchg => return vec![at(0), at(1)],
            Op::DupN => return vec![at(0); count],
            _ => None,
        };
        match one {
            Some(value) if count == 1 => vec![Some(value & self.width.mask())],
            _ => vec![None; count],
        }
    }

    /// Elements that are written in place become unknown.
    fn cells(&mut self, instr: &Instr) {
        if matches!(
            instr.op,
            Op::PopSbp | Op::PopSbpN | Op::CopySbp | Op::CopySbpN | Op::PopTspN | Op::CopyTspN
        ) {
            self.stack.fill(None);
        }
    }
}
