//! Findings as files: each is a recording of the run to the hit, in which the handler sees what it must not survive, or the function
//! gets what it must not get.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use trapline_interposer::{AlteredRun, Difference};
use trapline_session::{
    Command, Condition, Ending, Event, GuestBuilder, Limits, Moment, Observer, OwnPrograms, Places, Position,
    Recorder, Recording, Session, Way,
};

use crate::after::Parts;
use crate::error::FuzzError;
use crate::hits::Hits;
use crate::objectives::Fallen;
use crate::state::State;

/// The key of a finding in the description of its recording.
const ABOUT: &str = "fuzz";

/// An objective that fell, and the state in which it did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finding {
    /// What fell, and where.
    pub fallen: Fallen,
    /// The state.
    pub state: State,
    /// The number of trials before it.
    pub trials: u64,
    /// Operations that the last handler has executed when the objective falls.
    pub executed: u64,
}

/// Where findings are written to.
pub struct Folder<'a> {
    /// The recording of the run.
    pub recording: &'a Recording,
    /// Where its files are.
    pub places: &'a Places,
    /// The folder.
    pub folder: &'a Path,
}

/// A guest that runs on after the first handler.
#[derive(Debug, Clone)]
pub struct Onward {
    /// For how many instructions.
    pub insns: u64,
    /// Its differences.
    pub parts: Parts,
}

/// An observer that drops everything.
struct Nobody;

impl Observer for Nobody {
    type Error = std::convert::Infallible;
}

impl Folder<'_> {
    /// Writes a finding of handlers; returns its file. If the objective is one of the guest's, it runs on after the first handler.
    ///
    /// # Errors
    /// The file cannot be written, or the run cannot be repeated.
    pub fn write(
        &self,
        finding: &Finding,
        hits: &Hits,
        onward: Option<Onward>,
    ) -> Result<PathBuf, FuzzError> {
        let mut runs = runs(&finding.state, hits);
        let at = |number: usize| hits.list.get(number).map(|hit| (hit.icount, hit.name.clone()));
        let Some((first, name)) = at(finding.state.first) else { return Ok(self.path(finding)) };
        if onward.is_some() {
            runs.truncate(1);
        }
        let last = runs.last().map_or(first, |(number, _)| at(*number).map_or(first, |(icount, _)| icount));
        let hit = runs.last().and_then(|(number, _)| hits.list.get(*number)).map(|hit| hit.number);
        let Fallen { objective, program, at, what } = &finding.fallen;
        let about = json!({ "objective": objective.name(), "program": program, "operation": at, "what": what, "hit": hit,
            "executed": finding.executed });
        let end = onward.as_ref().map_or(last.saturating_add(1), |on| first.saturating_add(on.insns));
        let mut commands = Vec::new();
        if let Some(Onward { parts: Parts { put, seen }, .. }) = onward {
            if !put.is_empty() {
                commands.push(Command::Put { values: put });
            }
            runs.iter_mut().for_each(|(_, run)| (run.differences, run.through) = (seen.clone(), true));
        }
        let runs = runs.into_iter().map(|(_, run)| run).collect();
        commands.push(Command::Alter { name, runs });
        self.record(finding, about, first, commands, |session| {
            session.run_until(&Condition::end(), &Limits::insns(end))
        })
    }

    /// Writes a finding of calls of a function, which ends at this instruction count unless the condition holds before; returns
    /// its file.
    ///
    /// # Errors
    /// As [`Folder::write`].
    pub fn write_call(
        &self,
        finding: &Finding,
        (hits, function): (&Hits, &str),
        condition: &Condition,
        end: u64,
    ) -> Result<PathBuf, FuzzError> {
        let hit = hits.list.get(finding.state.first).map(|hit| (hit.icount, hit.number));
        let Some((first, number)) = hit else { return Ok(self.path(finding)) };
        let Fallen { objective, program, what, .. } = &finding.fallen;
        let about = json!({ "objective": objective.name(), "function": function, "program": program, "what": what,
            "hit": number, "executed": finding.executed });
        let values = finding.state.hits.first().cloned().unwrap_or_default();
        self.record(finding, about, first, vec![Command::Put { values }], |session| {
            session.run_until(condition, &Limits::insns(end))
        })
    }

    fn path(&self, finding: &Finding) -> PathBuf {
        self.folder.join(format!("{}.tlr", finding.fallen.file_name()))
    }

    /// Records it; nothing is left of a file that cannot be written to its end.
    fn record(
        &self,
        finding: &Finding,
        about: serde_json::Value,
        to: u64,
        commands: Vec<Command>,
        rest: impl FnOnce(&mut Session) -> Ending,
    ) -> Result<PathBuf, FuzzError> {
        let unfinished = self.path(finding).with_extension("tlr.part");
        let recorded = self.record_to(&unfinished, finding, about, to, commands, rest);
        if recorded.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        recorded
    }

    /// Records the run to an instruction count, commands there, and what follows.
    fn record_to(
        &self,
        unfinished: &Path,
        finding: &Finding,
        about: serde_json::Value,
        to: u64,
        commands: Vec<Command>,
        rest: impl FnOnce(&mut Session) -> Ending,
    ) -> Result<PathBuf, FuzzError> {
        let path = self.path(finding);
        let failed = |error| FuzzError::Write { path: path.display().to_string(), error };
        let builder = GuestBuilder::of_recording(self.recording, self.places)?;
        let own = self.recording.config();
        let embed = own.all_files().any(|(_, file)| self.recording.brings(file.hash).is_some());
        let (builder, mut config, blobs) = builder.recorded(embed)?;
        (config.probing, config.checkpoint_insns) = (own.probing.clone(), own.checkpoint_insns);
        config.about = own.about.clone();
        config.about.insert(ABOUT.to_owned(), about);
        let file = File::create(unfinished).map_err(failed)?;
        let recorder = Recorder::begin(Box::new(file), &config, &blobs).map_err(failed)?;
        let mut session = builder.open()?.start(config.probing.clone())?;
        session.record(recorder).map_err(|error| FuzzError::Search(error.to_string()))?;
        let mut course = self.recording.course(Way::Same, OwnPrograms::Stay);
        session.begin_as(&mut course).map_err(|diverged| FuzzError::Diverged(diverged.to_string()))?;
        let to = Position::At { icount: to, ordinal: 0 };
        let Ok(followed) = session.follow(&mut course, Some(to), &Limits::none(), &mut Nobody);
        followed.map_err(|error| FuzzError::Diverged(error.to_string()))?;
        for command in commands {
            session.apply(command)?;
        }
        rest(&mut session);
        session.finish_recording().map_err(failed)?;
        // A file of this name is whole.
        std::fs::rename(unfinished, &path).map_err(failed)?;
        Ok(path)
    }
}

/// The altered runs of a state, each with the number of its real hit.
fn runs(state: &State, hits: &Hits) -> Vec<(usize, AlteredRun)> {
    let mut number = Some(state.first);
    let mut runs = Vec::new();
    for differences in &state.hits {
        let Some((at, hit)) = number.and_then(|number| Some((number, hits.list.get(number)?))) else { break };
        let differences = differences.clone();
        runs.push((at, AlteredRun { point: hit.point, run: hit.run, differences, through: false }));
        number = hits.after(at);
    }
    runs
}

/// What the recording of a finding says.
#[derive(Debug, Clone)]
pub struct Told {
    /// The objective, the operation, and the exception if it is one.
    pub objective: String,
    /// The operation at which it fell.
    pub operation: u64,
    /// The exception; where the guest crashed.
    pub what: String,
    /// The program, or the probe of a function.
    pub program: String,
    /// When the differences were applied.
    pub at: Moment,
    /// What they were applied to.
    pub changed: Changed,
}

/// What a finding changes.
#[derive(Debug, Clone)]
pub enum Changed {
    /// What handlers see at these runs; and what was put into the guest before the first.
    Runs(Vec<AlteredRun>, Vec<Difference>),
    /// The inputs of a function.
    Inputs(Vec<Difference>),
}

impl Told {
    /// Reads it from the recording of a finding.
    ///
    /// # Errors
    /// The recording is none of a finding.
    pub fn of(recording: &Recording, name: &str) -> Result<Self, FuzzError> {
        let text = |key: &str| {
            let value = recording.config().about.get(ABOUT).and_then(|about| about.get(key));
            value.and_then(|value| value.as_str()).unwrap_or_default().to_owned()
        };
        let put = recording.log().iter().find_map(|logged| match &logged.event {
            Event::Command(Command::Put { values }) => Some((logged.at, values.clone())),
            _ => None,
        });
        let altered = recording.log().iter().find_map(|logged| match &logged.event {
            Event::Command(Command::Alter { name, runs }) => Some((logged.at, name.clone(), runs.clone())),
            _ => None,
        });
        let changed = match (altered, put) {
            (Some((at, name, runs)), put) => {
                Some((at, name, Changed::Runs(runs, put.map(|(_, values)| values).unwrap_or_default())))
            }
            (None, Some((at, values))) => Some((at, text("function"), Changed::Inputs(values))),
            (None, None) => None,
        };
        let about = recording.config().about.get(ABOUT);
        let (Some((at, program, changed)), Some(about)) = (changed, about) else {
            return Err(FuzzError::NotAFinding(name.to_owned()));
        };
        Ok(Self {
            objective: text("objective"),
            operation: about.get("operation").and_then(serde_json::Value::as_u64).unwrap_or_default(),
            what: text("what"),
            program,
            at,
            changed,
        })
    }
}

/// Where the objective of a finding falls: in its last hit, before the operation; in a function, before the instruction. `None` if
/// the recording is none of a finding.
#[must_use]
pub fn position(recording: &Recording) -> Option<Position> {
    let about = recording.config().about.get(ABOUT)?;
    let number = |key: &str| about.get(key).and_then(serde_json::Value::as_u64);
    if about.get("function").is_some() {
        return Some(Position::At { icount: number("executed")?, ordinal: 0 });
    }
    Some(Position::InHit { hit: number("hit")?, operation: number("executed")? })
}
