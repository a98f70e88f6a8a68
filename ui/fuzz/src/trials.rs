//! Trials: runs the handlers of a state, watches them, and says which objectives fell.

use std::borrow::Cow;
use std::hash::Hasher as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use trapline_interposer::{Difference, Trial, TrialState, Written};
use trapline_rpn::services::{ASSERTION, d::fault};
use trapline_rpn::{Termination, Unhandled, exception};
use xxhash_rust::xxh3::Xxh3;

use crate::after::{After, Aftermath, Parts};
use crate::code::{self, Code};
use crate::error::FuzzError;
use crate::hits::Hits;
use crate::objectives::{Fallen, Objective, Objectives};
use crate::patience::Ended;
use crate::report::{Knowledge, Report, Summary};
use crate::seen::{Secret, Seen};
use crate::state::State;
use crate::watch::{Coverage, Watcher};

/// One trial in so many is repeated, to see whether it gives the same; and each that reaches anything new.
const REPEATED: u64 = 64;

/// How handlers are run.
enum Mode<'k> {
    /// Watched operation by operation.
    Watched,
    /// As in a run.
    Plain,
    /// Watched, and what they ask for and compare is noted, as of the hit of this number.
    Learning(&'k mut Knowledge, usize),
}

impl Mode<'_> {
    /// How much is noted.
    fn known(&self) -> [usize; 3] {
        match self {
            Self::Learning(knowledge, _) => {
                [knowledge.asked.len(), knowledge.compared.len(), knowledge.texts.len()]
            }
            _ => [0; 3],
        }
    }

    /// Forgets what was noted since.
    fn forget_since(&mut self, [asked, compared, texts]: [usize; 3]) {
        if let Self::Learning(knowledge, _) = self {
            knowledge.asked.truncate(asked);
            knowledge.compared.truncate(compared);
            knowledge.texts.truncate(texts);
        }
    }
}

/// What one handler did.
#[derive(Default)]
struct Done {
    trial: Option<Trial>,
    log: Vec<u8>,
    at: u32,
    cut: Option<u32>,
    asserted: Option<u32>,
    refuted: Option<u32>,
    steps: u32,
    fell: u32,
    wrote_elsewhere: Option<u32>,
    dropped: bool,
    panicked: bool,
}

/// See the module.
pub struct Trials {
    hits: Hits,
    code: Vec<Code>,
    /// For each hit, where its code is, and how its handler is called.
    places: Vec<usize>,
    names: Vec<String>,
    /// What is reached.
    pub coverage: Coverage,
    /// What a repeated trial reaches, which is not looked at.
    repeated: Coverage,
    objectives: Objectives,
    /// Bytes of a record that fit a sub-buffer.
    room: usize,
    variables: TrialState,
    /// The variables before the handler that ran last, and after it.
    before: TrialState,
    after: TrialState,
    written: Written,
    secret: Secret,
    /// The results.
    pub summary: Summary,
    /// What fell in the last trial.
    fallen: Vec<Fallen>,
    /// Operations that the last handler had executed when something fell.
    executed: u64,
    /// The guest after a handler, if it runs on.
    goes_on: Option<After>,
    /// Whether the first handler of the last state has written to the guest.
    first_writes: bool,
    /// What makes the digest of a trial: it is large, and is used again.
    hasher: Option<Box<Xxh3>>,
}

impl Trials {
    /// Of these hits.
    #[must_use]
    pub fn new(hits: Hits, objectives: Objectives, room: usize) -> Self {
        let (code, places, comparisons) = code::of_hits(&hits.list);
        let names = code::names(&hits.list);
        let operations = code.iter().map(|code| code.reached.len()).sum();
        let secret = Secret { ranges: objectives.leak.clone(), ..Secret::default() };
        Self {
            hits,
            code,
            places,
            names,
            coverage: Coverage::new(operations, comparisons),
            repeated: Coverage::new(operations, comparisons),
            objectives,
            room,
            variables: TrialState::default(),
            before: TrialState::default(),
            after: TrialState::default(),
            written: Written::default(),
            secret,
            summary: Summary::default(),
            fallen: Vec::new(),
            executed: 0,
            goes_on: None,
            first_writes: false,
            hasher: None,
        }
    }

    /// The guest runs on after the first handler of each state, for so many instructions.
    #[must_use]
    pub fn continued(mut self, insns: u64) -> Self {
        self.goes_on = Some(After::new(insns));
        self
    }

    /// For how many instructions the guest runs on.
    #[must_use]
    pub fn insns_after(&self) -> u64 {
        self.goes_on.as_ref().map_or(0, After::insns)
    }

    /// The real hits.
    #[must_use]
    pub fn hits(&self) -> &Hits {
        &self.hits
    }

    /// The code of the programs.
    #[must_use]
    pub fn code(&self) -> &[Code] {
        &self.code
    }

    /// The objectives.
    #[must_use]
    pub fn objectives(&self) -> &Objectives {
        &self.objectives
    }

    /// What they have shown.
    #[must_use]
    pub fn report(&self, ended: Ended) -> Report {
        let reached = self.code.iter().map(|code| code.reached.clone()).collect();
        Report { summary: self.summary.clone(), reached, endings: None, ended }
    }

    /// Adds what trials of the same hits have shown elsewhere.
    pub fn add(&mut self, report: &Report) {
        for (code, theirs) in self.code.iter_mut().zip(&report.reached) {
            for (own, theirs) in code.reached.iter_mut().zip(theirs) {
                *own |= *theirs;
            }
        }
        let (own, theirs) = (&mut self.summary, &report.summary);
        own.trials += theirs.trials;
        own.handlers += theirs.handlers;
        own.longest = own.longest.max(theirs.longest);
        own.longest_log = own.longest_log.max(theirs.longest_log);
        for (thrown, count) in &theirs.exceptions {
            *own.exceptions.entry(thrown.clone()).or_default() += count;
        }
    }

    /// Runs a state. Returns which objectives fell.
    ///
    /// # Errors
    /// The machine cannot be brought to a hit.
    pub fn run(&mut self, state: &State) -> Result<&[Fallen], FuzzError> {
        self.coverage.begin();
        self.fallen.clear();
        let digest = self.all_hits(state, Mode::Watched)?;
        let is_new = self.coverage.end();
        self.run_on(state)?;
        self.summary.trials += 1;
        if is_new || self.summary.trials.is_multiple_of(REPEATED) {
            self.repeat(state, digest)?;
        }
        Ok(&self.fallen)
    }

    /// Runs a state to learn what its handlers ask for and compare. It is not counted.
    ///
    /// # Errors
    /// As [`Trials::run`].
    pub fn learn(&mut self, state: &State) -> Result<Knowledge, FuzzError> {
        let mut knowledge = Knowledge::default();
        self.coverage.begin();
        self.all_hits(state, Mode::Learning(&mut knowledge, 0))?;
        self.coverage.end();
        Ok(knowledge)
    }

    /// Which objectives fall for a state, without counting it.
    ///
    /// # Errors
    /// As [`Trials::run`].
    pub fn check(&mut self, state: &State) -> Result<Vec<Fallen>, FuzzError> {
        let kept = self.summary.clone();
        self.coverage.begin();
        self.fallen.clear();
        let digest = self.all_hits(state, Mode::Watched)?;
        self.coverage.end();
        self.run_on(state)?;
        self.repeat(state, digest)?;
        self.summary = kept;
        Ok(std::mem::take(&mut self.fallen))
    }

    /// The operations that the last handler of a state has executed before an objective falls.
    ///
    /// # Errors
    /// As [`Trials::run`].
    pub fn executed(&mut self, state: &State, wanted: &Fallen) -> Result<u64, FuzzError> {
        let falls = self.check(state)?.contains(wanted);
        Ok(if falls { self.executed } else { 0 })
    }

    /// Lets the guest run on after the first handler of a state.
    fn run_on(&mut self, state: &State) -> Result<(), FuzzError> {
        let (Some(after), Some(differences)) = (&mut self.goes_on, state.hits.first()) else { return Ok(()) };
        match after.run(&mut self.hits, state.first, differences, self.first_writes)? {
            Aftermath::Same => {}
            Aftermath::Differs => self.fall(Objective::GuestDiffers, state.first, 0, ""),
            Aftermath::Crashed(place) => self.fall(Objective::GuestCrash, state.first, 0, place),
        }
        Ok(())
    }

    /// How the differences at the first hit of a state are applied if the guest runs on: into the guest, or to what the handler sees.
    ///
    /// # Errors
    /// As [`Trials::run`].
    pub fn parts(&mut self, state: &State) -> Result<Parts, FuzzError> {
        self.check(state)?;
        let differences = state.hits.first().map(Vec::as_slice).unwrap_or_default();
        After::parts(&mut self.hits, state.first, differences, self.first_writes)
    }

    /// Runs a state again: in the same loop of the interpreter, and in the other one.
    fn repeat(&mut self, state: &State, first: u64) -> Result<(), FuzzError> {
        let ways = [(Objective::Nondeterminism, Mode::Watched), (Objective::Interpreters, Mode::Plain)];
        for (objective, mode) in ways {
            if !self.objectives.has(objective) {
                continue;
            }
            let fallen = std::mem::take(&mut self.fallen);
            let summary = self.summary.clone();
            // The coverage of the first time is that of the trial.
            std::mem::swap(&mut self.coverage, &mut self.repeated);
            self.coverage.begin();
            let second = self.all_hits(state, mode);
            std::mem::swap(&mut self.coverage, &mut self.repeated);
            (self.fallen, self.summary) = (fallen, summary);
            let second = second?;
            if second != first {
                self.fall(objective, state.first, 0, "");
            }
        }
        Ok(())
    }

    /// Runs the handlers of all hits of a state; returns a digest of what they did.
    fn all_hits(&mut self, state: &State, mut mode: Mode<'_>) -> Result<u64, FuzzError> {
        let mut digest = self.hasher.take().unwrap_or_default();
        digest.reset();
        let mut number = state.first;
        if let Some(hit) = self.hits.list.get(number) {
            self.variables.set(&hit.variables);
        }
        for (n, differences) in state.hits.iter().enumerate() {
            self.variables.alter(differences);
            if let Mode::Learning(knowledge, _) = &mut mode
                && n == 0
            {
                let (local, global) = self.variables.variables();
                knowledge.variables = (local.to_vec(), global.to_vec());
            }
            self.secret.touched = false;
            let mode = match &mut mode {
                Mode::Watched => Mode::Watched,
                Mode::Plain => Mode::Plain,
                Mode::Learning(knowledge, _) => Mode::Learning(knowledge, n),
            };
            let is_watched = !matches!(mode, Mode::Plain);
            let done = self.one(number, differences, mode)?;
            if n == 0 {
                self.first_writes = !self.written.is_empty();
            }
            if is_watched {
                self.judge(number, &done);
                self.coverage.length(2, n as u64);
            }
            self.add_to(&mut digest, &done);
            if is_watched && self.secret.touched && self.objectives.has(Objective::Leak) {
                self.look_for_leak(number, differences, &done)?;
            }
            match self.hits.after(number) {
                Some(next) if done.trial.is_some() => number = next,
                _ => break,
            }
        }
        let result = digest.finish();
        self.hasher = Some(digest);
        Ok(result)
    }

    /// Runs the handler of one hit.
    fn one(
        &mut self,
        number: usize,
        differences: &[Difference],
        mut mode: Mode<'_>,
    ) -> Result<Done, FuzzError> {
        let place = self.places.get(number).copied().unwrap_or(0);
        if self.code.get(place).is_some_and(|code| code.needs_machine) {
            self.hits.go_to(number)?;
        }
        let known = mode.known();
        self.before.set(&self.variables);
        let (done, missed) = self.attempt(number, place, differences, &mut mode);
        if !missed {
            return Ok(done);
        }
        self.hits.go_to(number)?;
        self.variables.set(&self.before);
        mode.forget_since(known);
        Ok(self.attempt(number, place, differences, &mut mode).0)
    }

    /// Runs the handler of one hit with the machine as it is; says whether that should be at the hit.
    fn attempt(
        &mut self,
        number: usize,
        place: usize,
        differences: &[Difference],
        mode: &mut Mode<'_>,
    ) -> (Done, bool) {
        let mut done = Done::default();
        let here = self.hits.is_at(number);
        let (list, session) = (&mut self.hits.list, &mut self.hits.session);
        let (Some(hit), Some(code)) = (list.get_mut(number), self.code.get_mut(place)) else {
            return (done, false);
        };
        self.written.clear();
        let plain = matches!(mode, Mode::Plain);
        let (asked, compared, texts) = match mode {
            Mode::Learning(knowledge, n) => {
                let Knowledge { asked, compared, texts, .. } = &mut **knowledge;
                (Some((*n, asked)), Some(compared), Some(texts))
            }
            _ => (None, None, None),
        };
        let at = (hit.probe, hit.run);
        let drops = self.variables.drops();
        let (written, secret) = (&mut self.written, &mut self.secret);
        let mut seen = Seen { hit, here, missed: false, differences, written, asked, texts, secret };
        let may_write = self.objectives.has(Objective::Writes).then_some(self.objectives.writes.as_slice());
        let mut watcher = Watcher {
            code,
            program: place as u32,
            coverage: &mut self.coverage,
            compared,
            at: 0,
            cut: None,
            steps: 0,
            fell: 0,
            asserted: None,
            refuted: None,
            may_write,
            wrote_elsewhere: None,
        };
        let variables = &mut self.variables;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let observer = (!plain).then_some(&mut watcher);
            session.try_handler(at, variables, &mut seen, observer)
        }));
        done.panicked = ran.is_err();
        done.trial = ran.unwrap_or_default();
        (done.at, done.cut) = (watcher.at, watcher.cut);
        (done.asserted, done.refuted) = (watcher.asserted, watcher.refuted);
        (done.steps, done.fell) = (watcher.steps, watcher.fell);
        done.wrote_elsewhere = watcher.wrote_elsewhere;
        done.dropped = self.variables.drops() != drops;
        let missed = seen.missed;
        let log = session.interposer().map(|interposer| interposer.trial_log());
        if done.trial.as_ref().is_some_and(|trial| trial.outcome.recorded()) {
            done.log.extend_from_slice(log.unwrap_or_default());
        }
        (done, missed)
    }

    /// Says which objectives fell at a hit, and adds it up.
    fn judge(&mut self, number: usize, done: &Done) {
        let own = |at: u32| self.hits.list.get(number).map_or(at, |hit| hit.handler.own(at));
        let (at, cut) = (own(done.at), done.cut.map(own));
        let wrote_elsewhere = done.wrote_elsewhere.map(own);
        let asserted = done.asserted.or(done.refuted.map(own));
        // What does not fall at an operation falls at the end.
        let fell = if done.fell > 0 { done.fell } else { done.steps };
        self.executed = u64::from(fell.saturating_sub(1));
        if done.panicked {
            return self.fall(Objective::Panic, number, at, "");
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
            self.fall(Objective::Budget, number, 0, "");
        }
        let mut ended_by_overflow = None;
        if let Some(thrown) = &trial.unhandled {
            let is_d = self.hits.list.get(number).is_some_and(|hit| hit.variables.is_d());
            let name = named(thrown.code, is_d);
            let program = self.name(number);
            *self.summary.exceptions.entry((name.into(), program, thrown.at)).or_default() += 1;
            let wanted = &self.objectives.exceptions;
            let asserted = asserted == Some(thrown.at) && self.objectives.has(Objective::Assert);
            if !asserted && (wanted.is_empty() || wanted.iter().any(|one| one == name)) {
                self.fall(Objective::Exception, number, thrown.at, name);
            }
            ended_by_overflow =
                (exception::lowest(thrown.code) == exception::LOG_OVERFLOW).then_some(thrown.at);
        }
        if let Some(at) = asserted {
            self.fall(Objective::Assert, number, at, "");
        }
        if let Some(at) = cut.or(ended_by_overflow) {
            self.fall(Objective::Truncated, number, at, "");
        }
        if done.dropped || length > self.room {
            self.fall(Objective::Lost, number, at, "");
        }
        if let Some(at) = wrote_elsewhere {
            self.fall(Objective::Writes, number, at, "");
        }
    }

    /// The state that begins at the second hit of a state, with the variables that the first handler has left; `None` if the state
    /// does not set variables itself, as the run may have these.
    ///
    /// # Errors
    /// As [`Trials::run`].
    pub fn later(&mut self, state: &State) -> Result<Option<State>, FuzzError> {
        let is_variable =
            |one: &Difference| matches!(one, Difference::Local { .. } | Difference::Global { .. });
        let (Some([first, rest @ ..]), Some(next)) = (state.hits.get(..), self.hits.after(state.first))
        else {
            return Ok(None);
        };
        if rest.is_empty() || !first.iter().any(is_variable) {
            return Ok(None);
        }
        let alone = State { first: state.first, hits: vec![first.clone()] };
        self.check(&alone)?;
        // What a repetition leaves is the same.
        let Some(real) = self.hits.list.get(next) else { return Ok(None) };
        let ((local, global), (real_local, real_global)) =
            (self.variables.variables(), real.variables.variables());
        let mut later = State { first: next, hits: rest.to_vec() };
        let changed = |own: &[u64], real: &[u64]| -> Vec<(u32, u64)> {
            let all = (0u32..).zip(own).zip(real);
            all.filter(|((_, own), real)| own != real).map(|((n, own), _)| (n, *own)).collect()
        };
        let own = |list: &[Difference], wanted: &Difference| {
            list.iter().any(|one| match (one, wanted) {
                (Difference::Local { number, .. }, Difference::Local { number: other, .. })
                | (Difference::Global { number, .. }, Difference::Global { number: other, .. }) => {
                    number == other
                }
                _ => false,
            })
        };
        let local = changed(local, real_local).into_iter();
        let global = changed(global, real_global).into_iter();
        let all = local.map(|(number, value)| Difference::Local { number, value });
        for difference in all.chain(global.map(|(number, value)| Difference::Global { number, value })) {
            if !later.hits.first().is_some_and(|list| own(list, &difference)) {
                later.set(0, difference);
            }
        }
        Ok(Some(later))
    }

    /// Runs a handler that has read secret memory again, with other memory there: its log must be the same.
    fn look_for_leak(
        &mut self,
        number: usize,
        differences: &[Difference],
        done: &Done,
    ) -> Result<(), FuzzError> {
        self.after.set(&self.variables);
        self.variables.set(&self.before);
        self.secret.inverted = true;
        let other = self.one(number, differences, Mode::Plain);
        self.secret.inverted = false;
        self.variables.set(&self.after);
        let other = other?;
        let records = |done: &Done| done.trial.as_ref().map(|trial| trial.records.clone());
        if other.log != done.log || records(&other) != records(done) {
            let own = self.hits.list.get(number).map_or(done.at, |hit| hit.handler.own(done.at));
            self.fall(Objective::Leak, number, own, "");
        }
        Ok(())
    }

    fn name(&self, number: usize) -> String {
        self.names.get(number).cloned().unwrap_or_default()
    }

    fn fall(&mut self, objective: Objective, number: usize, at: u32, what: impl Into<Cow<'static, str>>) {
        if self.objectives.has(objective) {
            let fallen = Fallen { objective, program: self.name(number), at, what: what.into() };
            if !self.fallen.contains(&fallen) {
                self.fallen.push(fallen);
            }
        }
    }

    fn add_to(&self, digest: &mut Xxh3, done: &Done) {
        let mut number = |value: u64| digest.write_u64(value);
        let Some(trial) = &done.trial else { return number(u64::MAX) };
        let outcome = &trial.outcome;
        number(outcome.steps.into());
        number(u64::from(outcome.wraps) << 1 | u64::from(outcome.remove));
        number(match outcome.termination {
            Termination::Exit => 0,
            Termination::Abort => 1,
            Termination::Exception => 2,
            Termination::ExitTo(to) => 3 + u64::from(to),
        });
        if let Some(Unhandled { code, parm1, parm2, at, .. }) = trial.unhandled {
            [code, parm1, parm2, at.into()].into_iter().for_each(&mut number);
        }
        let (lv, gv) = self.variables.variables();
        lv.iter().chain(gv).for_each(|value| number(*value));
        digest.write(&done.log);
        trial.records.iter().for_each(|record| digest.write(record));
        self.written.digest(digest);
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
