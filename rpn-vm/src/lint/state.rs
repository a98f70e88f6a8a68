//! Stack depth and log size at each instruction of a routine, over all paths: least and most.
//!
//! A finding holds on every path to the instruction. A procedure's arguments, a call's effect and
//! an exception's stack are unknown; after them nothing is reported.

use super::effect::{constant, effect, number, reads};
use super::flow::Graph;
use super::{Report, Subject};
use crate::ast::Instr;
use crate::instructions::Op;

/// An unknown number of elements: more than the stack has.
const MANY: u32 = 1025;
/// Visits of an instruction after which a value that still grows becomes unknown.
const VISITS: u32 = 40;
/// Bytes before a counted log item.
const PREFIX: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    least: u32,
    /// [`MANY`]: unknown.
    most: u32,
    log_least: u32,
    log_most: u32,
    /// Whether a log instruction may have failed: PLP may be less than LP.
    behind: bool,
}

impl State {
    fn join(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
            log_least: self.log_least.min(other.log_least),
            log_most: self.log_most.max(other.log_most),
            behind: self.behind || other.behind,
        }
    }

    const fn unknown(logmax: u32) -> Self {
        Self { least: 0, most: MANY, log_least: 0, log_most: logmax, behind: true }
    }
}

struct Flow<'a> {
    graph: &'a Graph<'a>,
    logmax: u32,
    /// Whether any instruction of the program takes back logged bytes.
    takes_back: bool,
    /// Instructions that a jump or an exception may reach: the instruction before may not have been executed.
    targets: Vec<bool>,
}

/// Reports the findings at each instruction.
pub(super) fn check(graph: &Graph<'_>, subject: &Subject<'_>, is_handler: bool, report: &mut Report<'_>) {
    let logmax = subject.header.logmax;
    let mut targets: Vec<bool> = graph.routine.body.iter().map(|i| !i.labels.is_empty()).collect();
    targets.push(true);
    let flow = Flow { graph, logmax, takes_back: subject.takes_back, targets };
    let start = match is_handler {
        true => State { least: 0, most: 0, log_least: 0, log_most: 0, behind: false },
        false => State::unknown(logmax),
    };
    for (at, state) in flow.solve(start).into_iter().enumerate() {
        if let (Some(state), Some(instr)) = (state, graph.routine.body.get(at)) {
            flow.judge(at, instr, state, report);
        }
    }
}

impl Flow<'_> {
    /// The state before each instruction that is reached.
    fn solve(&self, start: State) -> Vec<Option<State>> {
        let mut states: Vec<Option<State>> = vec![None; self.graph.len() + 1];
        let mut visits = vec![0u32; self.graph.len() + 1];
        let mut open = vec![(0, start)];
        while let Some((at, new)) = open.pop() {
            let (Some(slot), Some(visits)) = (states.get_mut(at), visits.get_mut(at)) else { continue };
            let mut joined = slot.map_or(new, |old| old.join(new));
            *visits += 1;
            if *visits > VISITS {
                joined = joined.join(State::unknown(self.logmax));
            }
            if *slot == Some(joined) {
                continue;
            }
            *slot = Some(joined);
            let Some(instr) = self.graph.routine.body.get(at) else { continue };
            let after = self.after(at, instr, joined);
            open.extend(self.graph.next[at].iter().map(|to| (*to, after)));
            open.extend(self.graph.handlers.get(&at).map(|to| (*to, State::unknown(self.logmax))));
        }
        states
    }

    /// The constant pushed by the instruction `back` places before, if no jump comes in between.
    fn pushed_before(&self, at: usize, back: usize) -> Option<u64> {
        let from = at.checked_sub(back)?;
        let straight = (from + 1..=at).all(|n| !self.targets.get(n).copied().unwrap_or(true));
        let one =
            |n: usize| effect(self.graph.routine.body.get(n)?).filter(|e| e.pops == 0 && e.pushes == (1, 1));
        if !straight || !(from..at).all(|n| one(n).is_some()) {
            return None;
        }
        constant(self.graph.routine.body.get(from)?)
    }

    /// Whether `push plp` comes right before.
    fn plp_before(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|n| self.graph.routine.body.get(n));
        before.is_some_and(|i| i.op == Op::PushPlp) && !self.targets.get(at).copied().unwrap_or(true)
    }

    fn after(&self, at: usize, instr: &Instr, s: State) -> State {
        let mut s = s;
        match effect(instr) {
            Some(e) => {
                let most = if s.most == MANY { MANY } else { s.most.saturating_sub(e.pops) + e.pushes.1 };
                s.least = (s.least.saturating_sub(e.pops) + e.pushes.0).min(1024);
                // It popped elements that were never pushed: the depth is unknown from here on.
                s.most = if s.most < e.reads { MANY } else { most.min(MANY) };
            }
            None => (s.least, s.most) = (0, MANY),
        }
        let more = |least: u64, most: u64, behind: bool| {
            let sum = |bytes: u64, before: u32| {
                u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(before).min(self.logmax)
            };
            State { log_least: sum(least, s.log_least), log_most: sum(most, s.log_most), behind, ..s }
        };
        let any = u64::from(self.logmax);
        match instr.op {
            Op::LogN => {
                let n = number(instr).unwrap_or_default();
                // Where not all of it fits, a part is logged: then the instruction has failed.
                more(4 * n, 8 * n, u64::from(s.log_most) + 8 * n > any)
            }
            // If these fail, an exception is thrown.
            Op::LogMrf => {
                let length = self.pushed_before(at, 2).unwrap_or_default();
                more(length.saturating_add(PREFIX.into()), any, false)
            }
            Op::LogStr => more(0, any, false),
            // A count or a fault leaves at least a prefix, if it fits.
            Op::Log | Op::LogLv | Op::LogGv => more(0, any, true),
            Op::Call => {
                let s = more(0, any, true);
                if self.takes_back { State { log_least: 0, ..s } } else { s }
            }
            Op::PopLp => State { log_least: 0, behind: s.behind && !self.plp_before(at), ..s },
            _ => s,
        }
    }

    fn judge(&self, at: usize, instr: &Instr, s: State, report: &mut Report<'_>) {
        let wanted = reads(instr);
        if s.most < wanted {
            let has = match s.most {
                0 => "nothing is on the stack".to_owned(),
                1 => "at most 1 element is on the stack".to_owned(),
                n => format!("at most {n} elements are on the stack"),
            };
            let takes = if wanted == 1 { "the top".to_owned() } else { format!("{wanted} elements") };
            let message = format!("this reads {takes}, but {has}: it reads zeroes");
            report.say(instr.span, "stack-underflow", message, None);
        }
        if let Some(e) = effect(instr)
            && s.least.saturating_sub(e.pops) + e.pushes.0 > 1024
        {
            let message =
                "this pushes more than the 1024 elements of the stack: the oldest are lost".to_owned();
            report.say(instr.span, "stack-overflow", message, None);
        }
        self.judge_log(at, instr, s, report);
    }

    fn judge_log(&self, at: usize, instr: &Instr, s: State, report: &mut Report<'_>) {
        let bytes = match instr.op {
            Op::LogN => number(instr).map(|n| 4 * n),
            Op::LogMrf => self.pushed_before(at, 2).map(|n| (n & 0xffff_ffff) + u64::from(PREFIX)),
            _ => None,
        };
        if let Some(bytes) = bytes
            && u64::from(s.log_least) + bytes > u64::from(self.logmax)
        {
            let before = match s.log_least {
                0 => String::new(),
                n => format!(" after at least {n}"),
            };
            let message = format!("this logs at least {bytes} bytes{before}, and `logmax = {}`", self.logmax);
            report.say(instr.span, "log-overflow", message, Some("raise `logmax =` in the file header"));
        }
        if instr.op != Op::PopLp {
            return;
        }
        if self.plp_before(at) && !s.behind {
            let message =
                "no log instruction can have failed before: PLP is LP, and nothing is taken back".to_owned();
            report.say(instr.span, "log-pointer", message, None);
        }
        if let Some(value) = self.pushed_before(at, 1)
            && (value & 0xffff_ffff) > u64::from(s.log_most)
        {
            let message = format!(
                "LP is at most {} here and cannot be set to {}: this throws INVALID_OPERAND",
                s.log_most,
                value & 0xffff_ffff
            );
            report.say(instr.span, "log-pointer", message, None);
        }
    }
}
