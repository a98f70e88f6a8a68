//! Calls: runs a function of the guest from a real hit at its beginning to its return, with other inputs, and says which
//! objectives fell.
//!
//! Unlike a handler on trial, the function runs in the guest itself: interrupts are delivered, devices answer, probes are hit.
//! Each call begins with the saved state of the real hit.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;
use std::path::PathBuf;

use iced_x86::Mnemonic;
use trapline_emu::{Core, Operands};
use trapline_session::{
    CodePointer, Command, CommandError, Condition, Ending, Limits, Position, Session, counted,
};
use xxhash_rust::xxh3::Xxh3;

use crate::deaths::{Death, Deaths, is_reported};
use crate::error::FuzzError;
use crate::finding::{FellAt, Finding, Folder};
use crate::hits::Hits;
use crate::inputs::{Input, Place, gather, scatter};
use crate::objectives::{CRASH_TEXTS, Fallen, Objective, Objectives};
use crate::patience::Ended;
use crate::patience::Patience;
use crate::report::{Endings, Knowledge, Report, Summary};
use crate::returns::Returns;
use crate::state::State;
use crate::steps::{Back, Exception, Steps};
use crate::subject::Subject;
use crate::watch::Coverage;

/// One call in so many is repeated, to see whether it gives the same; and each that reaches anything new.
const REPEATED: u64 = 64;
/// Least instructions after which a call that has not returned is ended.
const LEAST_LIMIT: u64 = 1_000_000;
/// Most instructions of a real call.
const REAL_LIMIT: u64 = 1 << 28;
/// How many times longer than the longest real call another one may be.
const LONGER: u64 = 16;
/// Most runs in which a finding is brought nearer to the real hit: a crash may take a million instructions.
const MOST_TRIES: usize = 1500;

/// Most instructions in which a kernel that dies says how, in the recording of a finding.
const MOST_REPORT: u64 = 1 << 24;

/// Most instructions of a block.
const LONGEST_BLOCK: usize = 512;

/// Where a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Where the function returns.
    Return,
    /// At this instruction count.
    Count(u64),
}

impl Until {
    /// `return`, or a position that is an instruction count.
    ///
    /// # Errors
    /// It is another position.
    pub fn of(text: &str) -> Result<Self, FuzzError> {
        if text == "return" {
            return Ok(Self::Return);
        }
        match text.parse() {
            Ok(Position::At { icount, ordinal: 0 }) => Ok(Self::Count(icount)),
            _ => Err(FuzzError::Objective(format!(
                "--until {text}: write `return`, or the instruction count at which a call ends, such as 300M"
            ))),
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// It returned, or came to where it was to end.
    Returned,
    /// It took too long.
    TooLong,
    /// Its inputs could not be put.
    Refused,
    /// The kernel has jumped to this address, where there is no code.
    NoCode(u64),
    /// The kernel has said that something is wrong.
    Wrong(Death),
    /// The guest ended it.
    Guest(Ending),
    /// The search has ended meanwhile: what it would have done is not known.
    Over,
}

/// What one call did.
struct Done {
    end: End,
    instructions: u64,
    digest: u64,
    /// The assertions that did not hold, as the interposer takes them.
    refuted: Vec<(u32, u32)>,
    /// Handlers that an exception has ended.
    exceptions: u64,
    /// The exception that was not handled to its end.
    fault: Option<Exception>,
    /// The last block of a function.
    last: u64,
    /// The block that has returned to where no call was.
    lost: Option<u64>,
}

/// See the module.
pub struct Calls {
    hits: Hits,
    /// The name of the probe.
    function: String,
    /// For each hit: where its inputs are, and where it returns to.
    begins: Vec<(Vec<Place>, Option<Back>)>,
    until: Until,
    limit: u64,
    objectives: Objectives,
    condition: Condition,
    /// Where its kernel says that something is wrong.
    deaths: Deaths,
    /// The handlers that watch: their names, and the numbers of their probes.
    others: Vec<(String, Vec<u32>)>,
    /// Returns to where no call was.
    returns: Returns,
    coverage: Coverage,
    repeated: Coverage,
    /// How the calls ended.
    pub endings: Endings,
    /// The objective that fell first at each place where the guest has crashed.
    crashes: BTreeMap<String, Objective>,
    fallen: Vec<Fallen>,
    failed: Option<String>,
    /// Whether the kernel maps some of its code when it is fetched.
    maps_code: bool,
    /// The search's; `None` while a finding is kept, which is done to its end.
    patience: Option<Patience>,
    /// How many real hits were passed over, and why the first of them.
    unfit: Option<(u64, FuzzError)>,
}

impl Calls {
    /// Of a function whose real hits these are.
    ///
    /// # Errors
    /// An input is not to be found, or a real call does not end.
    pub fn new(
        mut hits: Hits,
        function: &str,
        inputs: &[Input],
        until: Until,
        objectives: Objectives,
        patience: &Patience,
    ) -> Result<Self, FuzzError> {
        let (mut begins, mut unfit) = (Vec::new(), Vec::new());
        for number in 0..hits.list.len() {
            match begin_of(&mut hits, number, inputs, until) {
                Ok(begin) => begins.push(begin),
                Err(error @ FuzzError::Input { .. }) => {
                    begins.push((Vec::new(), None));
                    unfit.push((number, error));
                }
                Err(other) => return Err(other),
            }
        }
        let others = hits.others();
        let deaths = Deaths::of(&hits.session);
        let functions = hits.session.target().symbols().functions();
        let returns = Returns::new(functions.map(|function| function.addr));
        let known = if deaths.are_known() || !objectives.has(Objective::Text) { &[] } else { CRASH_TEXTS };
        let texts = known.iter().copied().chain(objectives.texts.iter().map(String::as_str));
        let condition = texts.fold(Condition::end(), Condition::or_crash_text);
        let coverage = || Coverage::of_size(Steps::SLOTS);
        let mut calls = Self {
            hits,
            function: function.to_owned(),
            begins,
            until,
            limit: LEAST_LIMIT,
            objectives,
            condition,
            deaths,
            returns,
            coverage: coverage(),
            repeated: coverage(),
            endings: Endings::default(),
            crashes: BTreeMap::new(),
            fallen: Vec::new(),
            failed: None,
            maps_code: false,
            patience: Some(patience.clone()),
            unfit: None,
            others,
        };
        calls.check_real(&mut unfit)?;
        calls.pass_over(unfit)?;
        Ok(calls)
    }

    /// Checks that the real calls end, and learns how long they are. Those that do not end do not fit, either.
    fn check_real(&mut self, unfit: &mut Vec<(usize, FuzzError)>) -> Result<(), FuzzError> {
        let given = std::mem::replace(&mut self.limit, REAL_LIMIT);
        let mut longest = 0;
        let mut fitting = 0;
        for number in 0..self.hits.list.len() {
            if unfit.iter().any(|(other, _)| *other == number) {
                continue;
            }
            let done = self.call(&State::real(number), None)?;
            let how = match done.end {
                End::Returned => None,
                End::Guest(ending) => Some(ending.to_string()),
                End::NoCode(_) => Some("it jumps to where there is no code".to_owned()),
                End::Wrong(death) => Some(death.to_string()),
                End::TooLong | End::Refused => {
                    Some(format!("it has run for {}", counted(done.instructions, "instruction")))
                }
                End::Over => match self.patience.as_ref().and_then(Patience::ended) {
                    Some(Ended::Interrupted) => return Err(FuzzError::Interrupted),
                    _ => Some("the time is over".to_owned()),
                },
            };
            if let Some(how) = how {
                let hit = self.hits.list.get(number).map_or(0, |hit| hit.number);
                unfit.push((number, FuzzError::NoReturn { hit, how }));
                continue;
            }
            fitting += 1;
            longest = longest.max(done.instructions);
        }
        if fitting > 0 && longest <= 1 {
            return Err(FuzzError::Objective(
                "the function returns at once: use the probe at its first instruction, such as fbt::NAME:entry"
                    .to_owned(),
            ));
        }
        self.coverage.begin();
        self.endings.longest = longest;
        let most = if self.objectives.has(Objective::Insns) { self.objectives.insns + 1 } else { 0 };
        self.limit = given.max(longest.saturating_mul(LONGER)).max(most);
        Ok(())
    }

    /// Passes over the hits that do not fit.
    fn pass_over(&mut self, mut unfit: Vec<(usize, FuzzError)>) -> Result<(), FuzzError> {
        unfit.sort_by_key(|(number, _)| *number);
        let (count, all) = (unfit.len(), self.hits.list.len());
        for (number, _) in unfit.iter().rev() {
            self.hits.remove(*number);
            self.begins.remove(*number);
        }
        let first = unfit.into_iter().next().map(|(_, error)| error);
        match first {
            Some(first) if count == all => {
                Err(FuzzError::NoneFits { hits: all as u64, first: Box::new(first) })
            }
            first => {
                self.unfit = first.map(|first| (count as u64, first));
                Ok(())
            }
        }
    }

    /// Does something to its end, even if the search ends meanwhile.
    fn run_to_its_end<T>(&mut self, what: impl FnOnce(&mut Self) -> T) -> T {
        let patience = self.patience.take();
        let done = what(self);
        self.patience = patience;
        done
    }

    /// The name of the probe.
    #[must_use]
    pub fn function(&self) -> &str {
        &self.function
    }

    /// What ends a call, besides its return.
    #[must_use]
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Most instructions of a call.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The inputs at a hit.
    #[must_use]
    pub fn places(&self, hit: usize) -> &[Place] {
        self.begins.get(hit).map(|(places, _)| places.as_slice()).unwrap_or_default()
    }

    /// The instruction count at which the call of a state ends, with the report of a kernel that dies.
    ///
    /// # Errors
    /// The machine cannot be brought to the hit.
    pub fn end(&mut self, state: &State) -> Result<u64, FuzzError> {
        let begin = self.hits.list.get(state.first).map_or(0, |hit| hit.icount);
        let done = self.run_to_its_end(|calls| calls.call(state, None))?;
        let report = if done.end == End::Wrong(Death::Dies) { MOST_REPORT } else { 0 };
        Ok(begin.saturating_add(done.instructions).saturating_add(report))
    }

    /// One call. What it reaches is added to the coverage.
    fn call(&mut self, state: &State, mut operands: Option<&mut Vec<Operands>>) -> Result<Done, FuzzError> {
        let done = self.attempt(state, operands.as_deref_mut())?;
        if let End::NoCode(at) = done.end
            && self.hits.session.symbol_of(CodePointer::At(at)).is_some()
        {
            // The kernel maps some of its code when it is fetched.
            self.maps_code = true;
            self.coverage.begin();
            return self.attempt(state, operands);
        }
        Ok(done)
    }

    fn attempt(&mut self, state: &State, operands: Option<&mut Vec<Operands>>) -> Result<Done, FuzzError> {
        if let Some(why) = &self.failed {
            return Err(FuzzError::Search(format!("the machine cannot run any more: {why}")));
        }
        let mut done = Done {
            end: End::Over,
            instructions: 0,
            digest: 0,
            refuted: Vec::new(),
            exceptions: 0,
            fault: None,
            last: 0,
            lost: None,
        };
        if self.patience.as_ref().is_some_and(Patience::is_over) {
            self.coverage.begin();
            return Ok(done);
        }
        let number = state.first.min(self.hits.list.len().saturating_sub(1));
        self.hits.leave();
        self.hits.go_to(number)?;
        self.hits.leave();
        let icount = self.hits.list.get(number).map_or(0, |hit| hit.icount);
        let back = self.begins.get(number).and_then(|(_, back)| *back);
        let session = &mut self.hits.session;
        session.take_refuted();
        done.end = End::Refused;
        let values = state.hits.first().cloned().unwrap_or_default();
        if !values.is_empty() {
            match session.apply(Command::Put { values }) {
                Ok(_) => {}
                Err(CommandError::NotWritable(_) | CommandError::NotPut(_)) => return Ok(done),
                Err(other) => return Err(other.into()),
            }
        }
        let limit = match self.until {
            Until::Return => icount.saturating_add(self.limit),
            Until::Count(count) => count,
        };
        let mut limits = Limits::insns(limit);
        if let Some(patience) = &self.patience {
            // The guest may be idle: then no block begins.
            limits = limits.cancelled_by(patience.flag());
        }
        let shown = session.console().len();
        let quiet = quiet(session, &self.others, &self.endings.ran);
        let exceptions = session.stats().exceptions;
        let mut steps = Steps::new(
            &mut self.coverage,
            back,
            operands,
            (&self.deaths, &mut self.returns),
            self.patience.as_ref(),
        );
        steps.maps_code = self.maps_code;
        let ending = loop {
            let ending = session.run_followed(&self.condition, &limits, &mut steps);
            let survives = ending.is_none() && steps.death == Some(Death::Taints);
            if !survives || session.console().get(shown..).is_some_and(is_reported) {
                break ending;
            }
            steps.pass();
        };
        let (no_code, is_over, death) = (steps.no_code, steps.is_over, steps.death);
        (done.fault, done.last, done.lost) = (steps.fault, steps.last_code, steps.lost);
        done.end = match ending {
            None if is_over => End::Over,
            Some(Ending::Interrupted) => End::Over,
            None => no_code.map(End::NoCode).or(death.map(End::Wrong)).unwrap_or(End::Returned),
            Some(Ending::Limit) if self.until == Until::Return => End::TooLong,
            Some(Ending::Limit) => End::Returned,
            Some(ending) => End::Guest(ending),
        };
        done.instructions = session.icount().saturating_sub(icount);
        if done.end == End::Over {
            self.coverage.begin();
            return Ok(done);
        }
        let mut digest = Xxh3::new();
        digest.write_u64(session.icount());
        digest.write_u64(session.core().linear_ip());
        digest.write(session.console());
        (0..16).for_each(|n| digest.write_u64(session.core().env().gpr(n)));
        done.digest = digest.finish();
        done.refuted = session.take_refuted();
        done.exceptions = session.stats().exceptions.saturating_sub(exceptions);
        for (name, runs) in quiet {
            let probes = self.others.iter().filter(|(own, _)| *own == name).flat_map(|(_, probes)| probes);
            if runs_of(session, probes) > runs {
                self.endings.ran.insert(name);
            }
        }
        Ok(done)
    }

    /// Runs a state in full: the call, and what fell.
    fn once(&mut self, state: &State) -> Result<u64, FuzzError> {
        let done = self.call(state, None)?;
        if done.end == End::Over {
            return Ok(done.digest);
        }
        self.endings.calls += 1;
        self.endings.exceptions += done.exceptions;
        self.coverage.guest_length(done.instructions);
        let mut otherwise = |how: String| *self.endings.otherwise.entry(how).or_default() += 1;
        match &done.end {
            End::Returned => {
                self.endings.returned += 1;
                self.endings.longest = self.endings.longest.max(done.instructions);
            }
            End::TooLong => self.endings.too_long += 1,
            End::Refused => self.endings.refused += 1,
            End::NoCode(_) => otherwise("the guest jumped to where there is no code".to_owned()),
            End::Guest(Ending::TripleFault(_)) => otherwise("the guest crashed: triple fault".to_owned()),
            End::Wrong(death) => otherwise(death.to_string()),
            End::Guest(ending) => otherwise(ending.to_string()),
            End::Over => {}
        }
        self.judge(&done);
        Ok(done.digest)
    }

    /// Says which objectives fell.
    fn judge(&mut self, done: &Done) {
        // What a crash takes is not what the function takes.
        let is_whole = matches!(done.end, End::Returned | End::TooLong);
        if is_whole && done.instructions > self.objectives.insns {
            self.fall(Objective::Insns, String::new());
        }
        for (probe, at) in &done.refuted {
            if let Some((program, at)) = self.hits.place_of(*probe, *at)
                && self.objectives.has(Objective::Assert)
            {
                self.add(Fallen { objective: Objective::Assert, program, at, what: "".into() });
            }
        }
        let ending = match &done.end {
            End::NoCode(_) | End::Wrong(Death::Dies) => return self.crash(Objective::GuestCrash, done),
            End::Wrong(Death::Taints) => return self.crash(Objective::Text, done),
            End::Guest(ending) => ending,
            _ => return,
        };
        match ending {
            Ending::CrashText(_) => self.crash(Objective::Text, done),
            Ending::CannotGoOn(why) if why.starts_with("an error inside Trapline") => {
                self.failed = Some(why.clone());
                self.fall(Objective::Panic, String::new());
            }
            Ending::KernelCrashed(_) | Ending::TripleFault(_) | Ending::Reset(_) | Ending::Halted => {
                self.crash(Objective::GuestCrash, done);
            }
            _ => {}
        }
    }

    /// A crash at a place is one finding, whether the guest has said it on the console first or not.
    fn crash(&mut self, objective: Objective, done: &Done) {
        let place = self.place(done);
        // How the guest ends after a return that has lost its way is chance.
        let objective = if done.lost.is_some() { Objective::GuestCrash } else { objective };
        if self.objectives.has(objective) {
            let objective = *self.crashes.entry(place.clone()).or_insert(objective);
            self.fall(objective, place);
        }
    }

    /// Where a call crashed: at the exception; or where the code came from, if that is not code of the kernel, or a return has lost its
    /// way.
    fn place(&self, done: &Done) -> String {
        let session = &self.hits.session;
        let (at, before) = done.fault.map_or((done.last, done.last), |fault| (fault.at, fault.before));
        let symbol = session
            .symbol_of(CodePointer::At(at))
            .filter(|_| done.lost.is_none() && !self.deaths.is_data(at));
        let before = done.lost.map_or(before, |block| return_of(session.core(), block));
        let symbol =
            symbol.or_else(|| Some(format!("after {}", session.symbol_of(CodePointer::At(before))?)));
        symbol.unwrap_or_else(|| "unknown code".to_owned())
    }

    fn fall(&mut self, objective: Objective, what: String) {
        if self.objectives.has(objective) {
            self.add(Fallen { objective, program: self.function.clone(), at: 0, what: what.into() });
        }
    }

    fn add(&mut self, fallen: Fallen) {
        if !self.fallen.contains(&fallen) {
            self.fallen.push(fallen);
        }
    }

    /// Runs a state again, which must do the same.
    fn repeat(&mut self, state: &State, first: u64) -> Result<(), FuzzError> {
        if !self.objectives.has(Objective::Nondeterminism) || self.failed.is_some() {
            return Ok(());
        }
        std::mem::swap(&mut self.coverage, &mut self.repeated);
        self.coverage.begin();
        let second = self.call(state, None);
        std::mem::swap(&mut self.coverage, &mut self.repeated);
        let second = second?;
        if second.end != End::Over && second.digest != first {
            self.fall(Objective::Nondeterminism, String::new());
        }
        Ok(())
    }
}

/// The return that ends a block, or the block if there is none.
fn return_of(core: &Core, block: u64) -> u64 {
    let mut at = block;
    for _ in 0..LONGEST_BLOCK {
        match core.decode_original(at) {
            Some(insn) if insn.mnemonic() == Mnemonic::Ret => return at,
            Some(insn) => at = core.wrap_linear(at.wrapping_add(insn.len() as u64)),
            None => break,
        }
    }
    block
}

/// How often handlers of these probes have run.
fn runs_of<'a>(session: &Session, probes: impl Iterator<Item = &'a u32>) -> u64 {
    let Some(interposer) = session.interposer() else { return 0 };
    probes.filter_map(|probe| interposer.point_of(*probe)).map(|(_, _, runs)| runs).sum()
}

/// The handlers that have not run in any call, and how often they ran before this one.
fn quiet(session: &Session, others: &[(String, Vec<u32>)], ran: &BTreeSet<String>) -> Vec<(String, u64)> {
    let not = others.iter().filter(|(name, _)| !ran.contains(name));
    not.map(|(name, probes)| (name.clone(), runs_of(session, probes.iter()))).collect()
}

/// The inputs of the hit of a number, and where its function returns to.
fn begin_of(
    hits: &mut Hits,
    number: usize,
    inputs: &[Input],
    until: Until,
) -> Result<(Vec<Place>, Option<Back>), FuzzError> {
    hits.go_to(number)?;
    let (Some(hit), session) = (hits.list.get_mut(number), &hits.session) else {
        return Ok((Vec::new(), None));
    };
    let (core, interposer) = (session.core(), session.interposer());
    let places = inputs.iter().map(|input| Place::find(*input, hit, core, interposer));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    if until != Until::Return {
        return Ok((places, None));
    }
    let probe = hit.handlers.first().map(|handler| handler.probe);
    let at_call = interposer.zip(probe).is_some_and(|(all, probe)| all.is_at_call(probe));
    let back = at_call.then(|| Back::of(core)).flatten();
    let back = back.ok_or_else(|| FuzzError::Objective(
        "where the probe is, no return address is on top of the stack: use an entry probe, such as fbt::NAME:entry, or --until with an instruction count".to_owned(),
    ))?;
    Ok((places, Some(back)))
}

impl Subject for Calls {
    fn hits(&self) -> &Hits {
        &self.hits
    }

    fn run(&mut self, state: &State) -> Result<&[Fallen], FuzzError> {
        self.coverage.begin();
        self.fallen.clear();
        let digest = self.once(state)?;
        let is_new = self.coverage.end();
        if self.patience.as_ref().is_some_and(Patience::is_over) {
            return Ok(&self.fallen);
        }
        if is_new || self.endings.calls.is_multiple_of(REPEATED) {
            self.repeat(state, digest)?;
        }
        Ok(&self.fallen)
    }

    fn check(&mut self, state: &State) -> Result<Vec<Fallen>, FuzzError> {
        let kept = self.endings.clone();
        std::mem::swap(&mut self.coverage, &mut self.repeated);
        self.coverage.begin();
        self.fallen.clear();
        let done = self.once(state);
        std::mem::swap(&mut self.coverage, &mut self.repeated);
        self.endings = kept;
        done?;
        Ok(std::mem::take(&mut self.fallen))
    }

    fn learn(&mut self, state: &State) -> Result<Knowledge, FuzzError> {
        let mut knowledge = Knowledge::default();
        std::mem::swap(&mut self.coverage, &mut self.repeated);
        self.coverage.begin();
        let done = self.call(state, Some(&mut knowledge.operands));
        std::mem::swap(&mut self.coverage, &mut self.repeated);
        done.map(|_| knowledge)
    }

    fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    fn made(&self) -> u64 {
        self.endings.calls
    }

    /// At the exception, or at the end of the call.
    fn fell_at(&mut self, state: &State, _: &Fallen) -> Result<FellAt, FuzzError> {
        let (hit, begin) = self.hits.list.get(state.first).map_or((0, 0), |hit| (hit.number, hit.icount));
        let done = self.run_to_its_end(|calls| calls.call(state, None))?;
        let icount = done.fault.map_or(begin.saturating_add(done.instructions), |fault| fault.icount);
        Ok(FellAt { hit, icount, ..FellAt::default() })
    }

    fn most_tries(&self) -> usize {
        MOST_TRIES
    }

    fn bytes(&self, state: &State) -> Option<Vec<u8>> {
        let differences = state.hits.first().map(Vec::as_slice).unwrap_or_default();
        Some(gather(self.places(state.first), differences))
    }

    fn set_bytes(&self, state: &mut State, bytes: &[u8]) {
        state.hits = vec![scatter(self.places(state.first), bytes)];
    }

    fn report(&self, ended: Ended) -> Report {
        let places = self.coverage.reached().max(self.endings.places);
        let endings = Some(Endings { places, ..self.endings.clone() });
        Report { summary: Summary::default(), reached: Vec::new(), endings, ended }
    }

    fn add(&mut self, report: &Report) {
        if let Some(endings) = &report.endings {
            self.endings.add(endings);
        }
    }

    fn shown(&self) -> Vec<String> {
        of_calls(self)
    }

    fn is_whole(&self) -> bool {
        self.others.iter().all(|(name, _)| self.endings.ran.contains(name))
    }

    fn objectives(&self) -> &Objectives {
        &self.objectives
    }

    fn write(&mut self, finding: &Finding, folder: &Folder<'_>) -> Result<PathBuf, FuzzError> {
        let end = self.end(&finding.state)?;
        folder.write_call(finding, (&self.hits, &self.function), &self.condition, end)
    }
}

/// What calls of a function have shown.
fn of_calls(calls: &Calls) -> Vec<String> {
    let endings = &calls.endings;
    let ended = match calls.until {
        Until::Return => "returned",
        Until::Count(_) => "came to the instruction count",
    };
    let mut lines = vec![format!(
        "{}: {} {ended}, the longest after {}; {} places of the map of coverage were reached",
        calls.function(),
        endings.returned,
        counted(endings.longest, "instruction"),
        calls.coverage().reached().max(endings.places)
    )];
    if let Some((count, why)) = &calls.unfit {
        lines.push(format!("{} passed over: {why}", counted(*count, "real hit")));
    }
    if endings.too_long > 0 {
        let limit = counted(calls.limit(), "instruction");
        lines.push(format!("{} had not returned after {limit}", counted(endings.too_long, "call")));
    }
    if endings.refused > 0 {
        let refused = counted(endings.refused, "time");
        lines.push(format!("inputs could not be written {refused}"));
    }
    let not: Vec<&str> = calls.others.iter().map(|(name, _)| name.as_str()).collect();
    let not: Vec<&str> = not.into_iter().filter(|name| !endings.ran.contains(*name)).collect();
    if !not.is_empty() {
        lines.push(format!("not run: {} (no call hits them)", not.join(", ")));
    }
    if endings.exceptions > 0 {
        lines.push(format!("handlers ended by an exception: {}", counted(endings.exceptions, "time")));
    }
    lines.extend(endings.otherwise.iter().map(|(how, count)| format!("{how}: {}", counted(*count, "time"))));
    lines
}
