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

use crate::error::FuzzError;
use crate::hits::Hits;
use crate::objectives::{Fallen, Objective};
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

/// An observer that drops everything.
struct Nobody;

impl Observer for Nobody {
    type Error = std::convert::Infallible;
}

impl Folder<'_> {
    /// Writes a finding of handlers; returns its file. The guest runs on for so many instructions if the objective is one of
    /// the guest's.
    ///
    /// # Errors
    /// The file cannot be written, or the run cannot be repeated.
    pub fn write(&self, finding: &Finding, hits: &Hits, insns_after: u64) -> Result<PathBuf, FuzzError> {
        let of_guest = matches!(finding.fallen.objective, Objective::GuestCrash | Objective::GuestDiffers);
        let runs = runs(&finding.state, hits, of_guest);
        let at = |number: usize| hits.list.get(number).map(|hit| (hit.icount, hit.name.clone()));
        let Some((first, name)) = at(finding.state.first) else { return Ok(self.path(finding)) };
        let last = runs.last().map_or(first, |(number, _)| at(*number).map_or(first, |(icount, _)| icount));
        let hit = runs.last().and_then(|(number, _)| hits.list.get(*number)).map(|hit| hit.number);
        let Fallen { objective, program, at, what } = &finding.fallen;
        let about = json!({ "objective": objective.name(), "program": program, "operation": at, "what": what, "hit": hit,
            "executed": finding.executed });
        let runs = runs.into_iter().map(|(_, run)| run).collect();
        let end = if of_guest { first.saturating_add(insns_after) } else { last.saturating_add(1) };
        self.record(finding, about, first, Command::Alter { name, runs }, |session| {
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
        self.record(finding, about, first, Command::Put { values }, |session| {
            session.run_until(condition, &Limits::insns(end))
        })
    }

    fn path(&self, finding: &Finding) -> PathBuf {
        self.folder.join(format!("{}.tlr", finding.fallen.file_name()))
    }

    /// Records the run to an instruction count, a command there, and what follows.
    fn record(
        &self,
        finding: &Finding,
        about: serde_json::Value,
        to: u64,
        command: Command,
        rest: impl FnOnce(&mut Session) -> Ending,
    ) -> Result<PathBuf, FuzzError> {
        let path = self.path(finding);
        let unfinished = path.with_extension("tlr.part");
        let failed = |error| FuzzError::Write { path: path.display().to_string(), error };
        let builder = GuestBuilder::of_recording(self.recording, self.places)?;
        let own = self.recording.config();
        let embed = own.all_files().any(|(_, file)| self.recording.brings(file.hash).is_some());
        let (builder, mut config, blobs) = builder.recorded(embed)?;
        (config.probing, config.checkpoint_insns) = (own.probing.clone(), own.checkpoint_insns);
        config.about = own.about.clone();
        config.about.insert(ABOUT.to_owned(), about);
        let file = File::create(&unfinished).map_err(failed)?;
        let recorder = Recorder::begin(Box::new(file), &config, &blobs).map_err(failed)?;
        let mut session = builder.open()?.start(config.probing.clone())?;
        session.record(recorder).map_err(|error| FuzzError::Search(error.to_string()))?;
        let mut course = self.recording.course(Way::Same, OwnPrograms::Stay);
        session.begin_as(&mut course).map_err(|diverged| FuzzError::Diverged(diverged.to_string()))?;
        let to = Position::At { icount: to, ordinal: 0 };
        let Ok(followed) = session.follow(&mut course, Some(to), &Limits::none(), &mut Nobody);
        followed.map_err(|error| FuzzError::Diverged(error.to_string()))?;
        session.apply(command)?;
        rest(&mut session);
        session.finish_recording().map_err(failed)?;
        // A file of this name is whole.
        std::fs::rename(&unfinished, &path).map_err(failed)?;
        Ok(path)
    }
}

/// The altered runs of a state, each with the number of its real hit.
fn runs(state: &State, hits: &Hits, through: bool) -> Vec<(usize, AlteredRun)> {
    let mut number = Some(state.first);
    let mut runs = Vec::new();
    for differences in &state.hits {
        let Some((at, hit)) = number.and_then(|number| Some((number, hits.list.get(number)?))) else { break };
        let differences = differences.clone();
        runs.push((at, AlteredRun { point: hit.point, run: hit.run, differences, through }));
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
    /// What handlers see at these runs.
    Runs(Vec<AlteredRun>),
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
        let changed = recording.log().iter().find_map(|logged| match &logged.event {
            Event::Command(Command::Alter { name, runs }) => {
                Some((logged.at, name.clone(), Changed::Runs(runs.clone())))
            }
            Event::Command(Command::Put { values }) => {
                Some((logged.at, text("function"), Changed::Inputs(values.clone())))
            }
            _ => None,
        });
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
