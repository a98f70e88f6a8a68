//! Trials: runs the handlers of a state, watches them, and says which objectives fell.

mod judge;

use std::borrow::Cow;
use std::hash::Hasher as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use trapline_interposer::{Difference, Trial, TrialRun, TrialState, Written};
use trapline_rpn::{Termination, Unhandled};
use xxhash_rust::xxh3::Xxh3;

use crate::after::{After, Aftermath, Parts};
use crate::code::{self, Code};
use crate::error::FuzzError;
use crate::finding::FellAt;
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

/// A handler of a hit, both by their numbers.
type Which = (usize, usize);

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
    /// For each handler of each hit, where its code is.
    places: Vec<Vec<usize>>,
    /// What is reached.
    pub coverage: Coverage,
    /// What a repeated trial reaches, which is not looked at.
    repeated: Coverage,
    objectives: Objectives,
    /// Bytes of a record that fit a sub-buffer.
    room: usize,
    variables: TrialState,
    /// The variables before the handlers of the last hit, and after them.
    begin: TrialState,
    after: TrialState,
    /// The variables before the handler that ran last, and what handlers at its hit had written.
    before: (TrialState, Written),
    written: Written,
    secret: Secret,
    /// The results.
    pub summary: Summary,
    /// What fell in the last trial.
    fallen: Vec<Fallen>,
    /// Where in the run each of them fell.
    fell_at: Vec<FellAt>,
    /// Operations that handlers at the last hit had executed when something fell.
    executed: u64,
    /// What the handlers of the last hit did.
    done: Vec<Done>,
    /// The guest after a handler, if it runs on.
    goes_on: Option<After>,
    /// Whether the first handler of the last state has written to the guest.
    first_writes: Option<usize>,
    /// What makes the digest of a trial: it is large, and is used again.
    hasher: Option<Box<Xxh3>>,
}

impl Trials {
    /// Of these hits.
    #[must_use]
    pub fn new(hits: Hits, objectives: Objectives, room: usize) -> Self {
        let (code, places, comparisons) = code::of_hits(&hits);
        let operations = code.iter().map(|code| code.reached.len()).sum();
        let secret = Secret { ranges: objectives.leak.clone(), ..Secret::default() };
        Self {
            hits,
            code,
            places,
            coverage: Coverage::new(operations, comparisons),
            repeated: Coverage::new(operations, comparisons),
            objectives,
            room,
            variables: TrialState::default(),
            begin: TrialState::default(),
            after: TrialState::default(),
            before: Default::default(),
            written: Written::default(),
            secret,
            summary: Summary::default(),
            fallen: Vec::new(),
            fell_at: Vec::new(),
            executed: 0,
            done: Vec::new(),
            goes_on: None,
            first_writes: None,
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
        self.forget_fallen();
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
        self.forget_fallen();
        let digest = self.all_hits(state, Mode::Watched)?;
        self.coverage.end();
        self.run_on(state)?;
        self.repeat(state, digest)?;
        self.summary = kept;
        Ok(std::mem::take(&mut self.fallen))
    }

    /// Where in the run an objective falls for a state.
    ///
    /// # Errors
    /// As [`Trials::run`].
    pub fn fell_at(&mut self, state: &State, wanted: &Fallen) -> Result<FellAt, FuzzError> {
        let all = self.check(state)?;
        let at = all.iter().position(|fallen| fallen == wanted).and_then(|n| self.fell_at.get(n));
        Ok(at.copied().unwrap_or_default())
    }

    fn forget_fallen(&mut self) {
        self.fallen.clear();
        self.fell_at.clear();
    }

    /// Lets the guest run on after the first handler of a state.
    fn run_on(&mut self, state: &State) -> Result<(), FuzzError> {
        let (Some(after), Some(differences)) = (&mut self.goes_on, state.hits.first()) else { return Ok(()) };
        let writer = (state.first, self.first_writes.unwrap_or(0));
        match after.run(&mut self.hits, state.first, differences, self.first_writes.is_some())? {
            Aftermath::Same => {}
            Aftermath::Differs => self.fall(Objective::GuestDiffers, writer, 0, ""),
            Aftermath::Crashed(place) => self.fall(Objective::GuestCrash, writer, 0, place),
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
        After::parts(&mut self.hits, state.first, differences, self.first_writes.is_some())
    }

    /// Runs a state again: in the same loop of the interpreter, and in the other one.
    fn repeat(&mut self, state: &State, first: u64) -> Result<(), FuzzError> {
        let ways = [(Objective::Nondeterminism, Mode::Watched), (Objective::Interpreters, Mode::Plain)];
        for (objective, mode) in ways {
            if !self.objectives.has(objective) {
                continue;
            }
            let fallen = (std::mem::take(&mut self.fallen), std::mem::take(&mut self.fell_at));
            let summary = self.summary.clone();
            // The coverage of the first time is that of the trial.
            std::mem::swap(&mut self.coverage, &mut self.repeated);
            self.coverage.begin();
            let second = self.all_hits(state, mode);
            std::mem::swap(&mut self.coverage, &mut self.repeated);
            ((self.fallen, self.fell_at), self.summary) = (fallen, summary);
            let second = second?;
            if second != first {
                self.fall(objective, (state.first, 0), 0, "");
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
            if let Some(hit) = self.hits.list.get(number) {
                self.variables.insert_later(&hit.variables);
            }
            if let Mode::Learning(_, hit) = &mut mode {
                *hit = n;
            }
            let is_watched = !matches!(mode, Mode::Plain);
            let done = self.at_hit((number, n == 0), differences, &mut mode)?;
            if is_watched {
                self.judge_hit(number, &done);
                self.coverage.length(2, n as u64);
            }
            self.add_to(&mut digest, &done);
            if is_watched && self.secret.touched && self.objectives.has(Objective::Leak) {
                self.look_for_leak(number, differences, &done)?;
            }
            let is_over =
                done.iter().all(|done| done.trial.is_none()) || done.iter().any(|done| done.panicked);
            self.done = done;
            match self.hits.after(number) {
                Some(next) if !is_over => number = next,
                _ => break,
            }
        }
        let result = digest.finish();
        self.hasher = Some(digest);
        Ok(result)
    }

    /// Runs the handlers of one hit, in order: each sees what those before it have written.
    fn at_hit(
        &mut self,
        (number, is_first): (usize, bool),
        differences: &[Difference],
        mode: &mut Mode<'_>,
    ) -> Result<Vec<Done>, FuzzError> {
        if !self.objectives.leak.is_empty() {
            self.begin.set(&self.variables);
        }
        self.written.clear();
        let mut all = std::mem::take(&mut self.done);
        all.clear();
        let mut writer = None;
        for place in 0..self.places.get(number).map_or(0, Vec::len) {
            let done = self.one((number, place), differences, mode)?;
            writer = writer.or((!self.written.is_empty()).then_some(place));
            let panicked = done.panicked;
            all.push(done);
            if panicked {
                break;
            }
        }
        if is_first {
            self.first_writes = writer;
        }
        Ok(all)
    }

    /// Runs one handler of one hit.
    fn one(
        &mut self,
        which: Which,
        differences: &[Difference],
        mode: &mut Mode<'_>,
    ) -> Result<Done, FuzzError> {
        let place = self.place(which);
        if self.code.get(place).is_some_and(|code| code.needs_machine) {
            self.hits.go_to(which.0)?;
        }
        let known = mode.known();
        self.before.0.set(&self.variables);
        self.before.1.clone_from(&self.written);
        let (done, missed) = self.attempt(which, place, differences, mode);
        if !missed {
            return Ok(done);
        }
        self.hits.go_to(which.0)?;
        self.variables.set(&self.before.0);
        self.written.clone_from(&self.before.1);
        mode.forget_since(known);
        Ok(self.attempt(which, place, differences, mode).0)
    }

    fn place(&self, (hit, handler): Which) -> usize {
        self.places.get(hit).and_then(|places| places.get(handler)).copied().unwrap_or(0)
    }

    /// Runs one handler of one hit with the machine as it is; says whether that should be at the hit.
    fn attempt(
        &mut self,
        (number, n): Which,
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
        let Some(own) = hit.handlers.get(n) else { return (done, false) };
        let at = TrialRun { probe: own.probe, run: own.run, firing: hit.firing, icount: hit.icount };
        let program = own.program;
        let plain = matches!(mode, Mode::Plain);
        let (asked, compared, texts) = match mode {
            Mode::Learning(knowledge, n) => {
                let Knowledge { asked, compared, texts, .. } = &mut **knowledge;
                (Some((*n, asked)), Some(compared), Some(texts))
            }
            _ => (None, None, None),
        };
        let drops = self.variables.drops(program);
        let (written, secret) = (&mut self.written, &mut self.secret);
        let mut seen =
            Seen { hit, handler: n, here, missed: false, differences, written, asked, texts, secret };
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
        done.dropped = self.variables.drops(program) != drops;
        let missed = seen.missed;
        let log = session.interposer().map(|interposer| interposer.trial_log());
        if done.trial.as_ref().is_some_and(|trial| trial.outcome.recorded()) {
            done.log.extend_from_slice(log.unwrap_or_default());
        }
        (done, missed)
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

    /// Runs the handlers of a hit again that have read secret memory, with other memory there: their logs must be the same.
    fn look_for_leak(
        &mut self,
        number: usize,
        differences: &[Difference],
        all: &[Done],
    ) -> Result<(), FuzzError> {
        self.after.set(&self.variables);
        self.variables.set(&self.begin);
        self.secret.inverted = true;
        let others = self.at_hit((number, false), differences, &mut Mode::Plain);
        self.secret.inverted = false;
        self.variables.set(&self.after);
        let records = |done: &Done| done.trial.as_ref().map(|trial| trial.records.clone());
        for (n, (other, done)) in others?.iter().zip(all).enumerate() {
            if other.log != done.log || records(other) != records(done) {
                let which = (number, n);
                let own = self.handler(which).map_or(done.at, |handler| handler.verified.own(done.at));
                self.fall(Objective::Leak, which, own, "");
            }
        }
        Ok(())
    }

    fn name(&self, which: Which) -> String {
        self.code.get(self.place(which)).map(|code| code.name.clone()).unwrap_or_default()
    }

    fn fall(&mut self, objective: Objective, which: Which, at: u32, what: impl Into<Cow<'static, str>>) {
        if self.objectives.has(objective) {
            let fallen = Fallen { objective, program: self.name(which), at, what: what.into() };
            if !self.fallen.contains(&fallen) {
                let hit = self.hits.list.get(which.0);
                let (hit, icount) = hit.map_or((0, 0), |hit| (hit.number, hit.icount));
                self.fallen.push(fallen);
                self.fell_at.push(FellAt { hit, icount, handler: which.1, executed: self.executed });
            }
        }
    }

    /// Adds what the handlers of a hit did to a digest.
    fn add_to(&self, digest: &mut Xxh3, all: &[Done]) {
        for done in all {
            let mut number = |value: u64| digest.write_u64(value);
            let Some(trial) = &done.trial else {
                number(u64::MAX);
                continue;
            };
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
            digest.write(&done.log);
            trial.records.iter().for_each(|record| digest.write(record));
        }
        let (lv, gv) = self.variables.variables();
        lv.iter().chain(gv).for_each(|value| digest.write_u64(*value));
        self.written.digest(digest);
    }
}
