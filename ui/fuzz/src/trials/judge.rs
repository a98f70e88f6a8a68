//! Says which objectives fell at a hit.

use trapline_rpn::exception;
use trapline_rpn::services::{ASSERTION, d::fault};

use super::{Done, Trials, Which};
use crate::hits::Handler;
use crate::objectives::Objective;

impl Trials {
    /// Says which objectives fell at a hit, and adds it up.
    pub(super) fn judge_hit(&mut self, number: usize, all: &[Done]) {
        let mut before = self.hits.list.get(number).map_or(0, |hit| hit.operations);
        for (n, done) in all.iter().enumerate() {
            self.judge((number, n), done, before);
            before += done.trial.as_ref().map_or(0, |trial| u64::from(trial.outcome.steps));
        }
    }

    pub(super) fn handler(&self, (hit, handler): Which) -> Option<&Handler> {
        self.hits.list.get(hit)?.handlers.get(handler)
    }

    /// The same for one handler; those before it have executed so many operations.
    fn judge(&mut self, which: Which, done: &Done, before: u64) {
        let own = |at: u32| self.handler(which).map_or(at, |handler| handler.verified.own(at));
        let (at, cut) = (own(done.at), done.cut.map(own));
        let wrote_elsewhere = done.wrote_elsewhere.map(own);
        let asserted = done.asserted.or(done.refuted.map(own));
        // What does not fall at an operation falls at the end.
        let fell = if done.fell > 0 { done.fell } else { done.steps };
        self.executed = before + u64::from(fell.saturating_sub(1));
        if done.panicked {
            return self.fall(Objective::Panic, which, at, "");
        }
        let Some(trial) = &done.trial else { return };
        let steps = trial.outcome.steps;
        self.summary.handlers += 1;
        self.summary.longest = self.summary.longest.max(steps);
        let length = done.log.len() + trial.records.iter().map(Vec::len).sum::<usize>();
        self.summary.longest_log = self.summary.longest_log.max(length);
        self.coverage.length(0, length as u64);
        self.coverage.length(1, steps.into());
        if steps > self.objectives.budget {
            self.fall(Objective::Budget, which, 0, "");
        }
        let mut ended_by_overflow = None;
        if let Some(thrown) = &trial.unhandled {
            let is_d = self.handler(which).is_some_and(|handler| handler.is_clause);
            let name = named(thrown.code, is_d);
            let program = self.name(which);
            *self.summary.exceptions.entry((name.into(), program, thrown.at)).or_default() += 1;
            let wanted = &self.objectives.exceptions;
            let asserted = asserted == Some(thrown.at) && self.objectives.has(Objective::Assert);
            if !asserted && (wanted.is_empty() || wanted.iter().any(|one| one == name)) {
                self.fall(Objective::Exception, which, thrown.at, name);
            }
            ended_by_overflow =
                (exception::lowest(thrown.code) == exception::LOG_OVERFLOW).then_some(thrown.at);
        }
        if let Some(at) = asserted {
            self.fall(Objective::Assert, which, at, "");
        }
        if let Some(at) = cut.or(ended_by_overflow) {
            self.fall(Objective::Truncated, which, at, "");
        }
        if done.dropped || length > self.room {
            self.fall(Objective::Lost, which, at, "");
        }
        if let Some(at) = wrote_elsewhere {
            self.fall(Objective::Writes, which, at, "");
        }
    }
}

/// The name of an exception. A clause of D throws USER_EX for faults that RPN has exceptions for.
fn named(code: u64, is_d: bool) -> &'static str {
    let user = (exception::lowest(code) == exception::USER_EX).then_some((code >> 16) as u16);
    match user {
        Some(fault::ADDRESS) if is_d => exception::name(exception::INVALID_ADDR.into()),
        Some(fault::DIVISION) if is_d => exception::name(exception::DIVIDE_BY_ZERO.into()),
        Some(ASSERTION) => "an assertion that does not hold",
        _ => exception::name(code),
    }
}
