//! Findings as files: each is a recording of the run to the hit, in which the handler sees what it must not survive, or the function
//! gets what it must not get.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use trapline_interposer::{AlteredRun, Difference};
use trapline_session::{
    Command, Condition, Ending, Event, GuestBuilder, Limits, Moment, OwnPrograms, Places, Position, Recorder,
    Recording, Session, Way,
};

use crate::after::{Parts, alter};
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
    /// Where in the run it falls.
    pub at: FellAt,
}

/// Where in a run an objective falls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FellAt {
    /// The hit, as the run counts them.
    pub hit: u64,
    /// The instruction count.
    pub icount: u64,
    /// The handler of the hit, from 0.
    pub handler: usize,
    /// Operations that handlers at this instruction count have executed.
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
        let Some(first) = hits.list.get(finding.state.first).map(|hit| hit.icount) else {
            return Ok(self.path(finding));
        };
        let mut commands = Vec::new();
        let (runs, end) = match onward {
            None => {
                let (runs, last) = runs(&finding.state, hits);
                (runs, last.saturating_add(1))
            }
            Some(Onward { insns, parts: Parts { put, seen } }) => {
                if !put.is_empty() {
                    commands.push(Command::Put { values: put });
                }
                let runs = hits.list.get(finding.state.first).map(|hit| hit.altered(&seen, true));
                (runs.unwrap_or_default(), first.saturating_add(insns))
            }
        };
        commands.extend(alter(runs));
        let Fallen { objective, program, at, what } = &finding.fallen;
        let FellAt { icount, handler, executed, .. } = finding.at;
        let about = json!({ "objective": objective.name(), "program": program, "operation": at, "what": what,
            "icount": icount, "handler": handler, "executed": executed });
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
        let Some(first) = hits.list.get(finding.state.first).map(|hit| hit.icount) else {
            return Ok(self.path(finding));
        };
        let Fallen { objective, program, what, at } = &finding.fallen;
        let about = json!({ "objective": objective.name(), "function": function, "program": program, "operation": at,
            "what": what, "icount": finding.at.icount });
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
        let Ok(followed) = session.follow(&mut course, Some(to), &Limits::none(), &mut ());
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

/// The altered runs of a state, each with the name of its program, and the instruction count of the last.
fn runs(state: &State, hits: &Hits) -> (Vec<(String, AlteredRun)>, u64) {
    let (mut number, mut runs, mut last) = (Some(state.first), Vec::new(), 0);
    for differences in &state.hits {
        let Some((at, hit)) = number.and_then(|number| Some((number, hits.list.get(number)?))) else { break };
        runs.extend(hit.altered(differences, false));
        (number, last) = (hits.after(at), hit.icount);
    }
    (runs, last)
}

/// What the recording of a finding says.
#[derive(Debug, Clone)]
pub struct Told {
    /// The objective, the operation, and the exception if it is one.
    pub objective: String,
    /// The handler of the last hit, and the operation at which it fell.
    pub operation: (usize, u64),
    /// The exception; where the guest crashed.
    pub what: String,
    /// The program, or the probe of a function.
    pub program: String,
    /// The program that has told it: that of a handler, or the probe of a function.
    pub by: String,
    /// When the differences were applied.
    pub at: Moment,
    /// What they were applied to.
    pub changed: Changed,
}

/// What a finding changes.
#[derive(Debug, Clone)]
pub enum Changed {
    /// What handlers of these programs see at these runs; and what was put into the guest before the first.
    Runs(Vec<(String, Vec<AlteredRun>)>, Vec<Difference>),
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
        let mut altered = recording.log().iter().filter_map(|logged| match &logged.event {
            Event::Command(Command::Alter { name, runs }) => Some((logged.at, name.clone(), runs.clone())),
            _ => None,
        });
        let changed = match (altered.next(), put) {
            (Some((at, name, runs)), put) => {
                let others = altered.map(|(_, name, runs)| (name, runs));
                let all = std::iter::once((name, runs)).chain(others).collect();
                Some((at, Changed::Runs(all, put.map(|(_, values)| values).unwrap_or_default())))
            }
            (None, Some((at, values))) => Some((at, Changed::Inputs(values))),
            (None, None) => None,
        };
        let about = recording.config().about.get(ABOUT);
        let (Some((at, changed)), Some(about)) = (changed, about) else {
            return Err(FuzzError::NotAFinding(name.to_owned()));
        };
        let number = |key: &str| about.get(key).and_then(serde_json::Value::as_u64).unwrap_or_default();
        let program = if matches!(changed, Changed::Inputs(_)) { text("function") } else { text("program") };
        Ok(Self {
            objective: text("objective"),
            operation: (usize::try_from(number("handler")).unwrap_or(usize::MAX), number("operation")),
            what: text("what"),
            program,
            by: text("program"),
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
    Some(Position::At { icount: number("icount")?, ordinal: number("executed").unwrap_or(0) })
}
