//! Findings as files: each is a recording of the run to the hit, in which the handler sees what it must not survive.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use trapline_interposer::{AlteredRun, Difference};
use trapline_session::{
    Command, Condition, Event, GuestBuilder, Limits, Moment, Observer, OwnPrograms, Places, Position,
    Recorder, Recording, Way,
};

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

/// An observer that drops everything.
struct Nobody;

impl Observer for Nobody {
    type Error = std::convert::Infallible;
}

impl Folder<'_> {
    /// Writes a finding; returns its file.
    ///
    /// # Errors
    /// The file cannot be written, or the run cannot be repeated.
    pub fn write(&self, finding: &Finding, hits: &Hits) -> Result<PathBuf, FuzzError> {
        let path = self.folder.join(format!("{}.tlr", finding.fallen.file_name()));
        let failed = |error| FuzzError::Write { path: path.display().to_string(), error };
        let runs = runs(&finding.state, hits);
        let at = |number: usize| hits.list.get(number).map(|hit| (hit.icount, hit.name.clone()));
        let Some((first, name)) = at(finding.state.first) else { return Ok(path) };
        let last = runs.last().map_or(first, |(number, _)| at(*number).map_or(first, |(icount, _)| icount));
        let hit = runs.last().and_then(|(number, _)| hits.list.get(*number)).map(|hit| hit.number);
        let builder = GuestBuilder::of_recording(self.recording, self.places)?;
        let own = self.recording.config();
        let embed = own.all_files().any(|(_, file)| self.recording.brings(file.hash).is_some());
        let (builder, mut config, blobs) = builder.recorded(embed)?;
        (config.probing, config.checkpoint_insns) = (own.probing.clone(), own.checkpoint_insns);
        config.about = own.about.clone();
        let Fallen { objective, program, at, what } = &finding.fallen;
        let about = json!({ "objective": objective.name(), "program": program, "operation": at, "what": what, "hit": hit,
            "executed": finding.executed });
        config.about.insert(ABOUT.to_owned(), about);
        let file = File::create(&path).map_err(failed)?;
        let recorder = Recorder::begin(Box::new(file), &config, &blobs).map_err(failed)?;
        let mut session = builder.open()?.start(config.probing.clone())?;
        session.record(recorder).map_err(|error| FuzzError::Search(error.to_string()))?;
        let mut course = self.recording.course(Way::Same, OwnPrograms::Stay);
        session.begin_as(&mut course).map_err(|diverged| FuzzError::Diverged(diverged.to_string()))?;
        let to = Position::At { icount: first, ordinal: 0 };
        let Ok(followed) = session.follow(&mut course, Some(to), &Limits::none(), &mut Nobody);
        followed.map_err(|error| FuzzError::Diverged(error.to_string()))?;
        let runs = runs.into_iter().map(|(_, run)| run).collect();
        session.apply(Command::Alter { name, runs })?;
        session.run_until(&Condition::end(), &Limits::insns(last.saturating_add(1)));
        session.finish_recording().map_err(failed)?;
        Ok(path)
    }
}

/// The altered runs of a state, each with the number of its real hit.
fn runs(state: &State, hits: &Hits) -> Vec<(usize, AlteredRun)> {
    let mut number = Some(state.first);
    let mut runs = Vec::new();
    for differences in &state.hits {
        let Some((at, hit)) = number.and_then(|number| Some((number, hits.list.get(number)?))) else { break };
        runs.push((at, AlteredRun { point: hit.point, run: hit.run, differences: differences.clone() }));
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
    /// The exception.
    pub what: String,
    /// The program.
    pub program: String,
    /// When the differences were applied.
    pub at: Moment,
    /// The altered runs.
    pub runs: Vec<AlteredRun>,
}

impl Told {
    /// Reads it from the recording of a finding.
    ///
    /// # Errors
    /// The recording is none of a finding.
    pub fn of(recording: &Recording, name: &str) -> Result<Self, FuzzError> {
        let altered = recording.log().iter().find_map(|logged| match &logged.event {
            Event::Command(Command::Alter { name, runs }) => Some((logged.at, name, runs)),
            _ => None,
        });
        let about = recording.config().about.get(ABOUT);
        let (Some((at, program, runs)), Some(about)) = (altered, about) else {
            return Err(FuzzError::NotAFinding(name.to_owned()));
        };
        let text = |key: &str| about.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        Ok(Self {
            objective: text("objective"),
            operation: about.get("operation").and_then(serde_json::Value::as_u64).unwrap_or_default(),
            what: text("what"),
            program: program.clone(),
            at,
            runs: runs.clone(),
        })
    }
}

/// Where the objective of a finding falls: in its last hit, before the operation. `None` if the recording is none of a finding.
#[must_use]
pub fn position(recording: &Recording) -> Option<Position> {
    let about = recording.config().about.get(ABOUT)?;
    let number = |key: &str| about.get(key).and_then(serde_json::Value::as_u64);
    Some(Position::InHit { hit: number("hit")?, operation: number("executed")? })
}

/// A difference in words, beside what the real hit has.
pub fn words(difference: &Difference, hit: &crate::hits::Hit, wide: bool) -> String {
    match difference {
        Difference::Word { what, value } => {
            let name = what.name(wide);
            match hit.words.get(what) {
                Some(real) => format!("{name} is {value:#x}; at the real hit it is {real:#x}"),
                None => format!("{name} is {value:#x}; at the real hit the handler does not ask for it"),
            }
        }
        Difference::Memory { address, bytes } => {
            let real = crate::minimise::real_bytes(hit, *address, bytes.len());
            let page = address & !(trapline_emu::PAGE - 1);
            let absent = matches!(hit.pages.get(&page), Some(crate::hits::Page::Absent));
            let was = match real.iter().copied().collect::<Option<Vec<u8>>>() {
                _ if absent => "its page is absent".to_owned(),
                Some(real) => format!("it holds {}", shown(&real)),
                None => "the handler does not read it".to_owned(),
            };
            let many = if bytes.len() == 1 { "byte" } else { "bytes" };
            format!(
                "memory {address:#x} holds {} ({} {many}); at the real hit {was}",
                shown(bytes),
                bytes.len()
            )
        }
        Difference::Absent { page } => format!("the page {page:#x} cannot be read; at the real hit it can"),
        Difference::Name(name) => format!("the task's name is \"{}\"", name.escape_ascii()),
        Difference::Local { number, value } => {
            format!("local variable {number} is {value:#x} before the handler runs")
        }
        Difference::Global { number, value } => {
            format!("global variable {number} is {value:#x} before the handler runs")
        }
    }
}

/// At most 16 bytes as digits, in the order of their addresses.
fn shown(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let dots = if bytes.len() > 16 { " .." } else { "" };
    format!("{}{dots}", digits.join(" "))
}

/// A finding in words: the hit, the differences, and what happens.
///
/// # Errors
/// The recording is none of a finding, or cannot be replayed.
pub fn explained(recording: &Recording, places: &Places, file: &str) -> Result<Vec<String>, FuzzError> {
    let told = Told::of(recording, file)?;
    let hits = Hits::before(recording, places, told.at.icount, told.runs.len().max(1) * 4)?;
    let first = told.runs.first().and_then(|run| {
        hits.list
            .iter()
            .position(|hit| hit.name == told.program && hit.point == run.point && hit.run == run.run)
    });
    let Some(first) = first else { return Err(FuzzError::NotAFinding(file.to_owned())) };
    let state = State { first, hits: told.runs.iter().map(|run| run.differences.clone()).collect() };
    let mut trials = crate::trials::Trials::new(hits, crate::objectives::Objectives::default(), usize::MAX);
    // What the real hits have of all that is asked for.
    trials.learn(&State { first, hits: vec![Vec::new(); state.hits.len()] })?;
    trials.learn(&state)?;
    let mut lines = Vec::new();
    let mut number = Some(first);
    let wide = trials.hits().session.target().width().bytes() == 8;
    let symbols = |ip: u64| {
        let symbol = trials.hits().session.target().symbol(ip);
        symbol.map_or(String::new(), |symbol| format!(" {symbol}"))
    };
    for differences in &state.hits {
        let Some(hit) = number.and_then(|number| trials.hits().list.get(number)) else { break };
        lines.push(format!(
            "{}, run {} at {:#x}{}, after {} instructions:",
            hit.name,
            hit.run,
            hit.ip,
            symbols(hit.ip),
            hit.icount
        ));
        if differences.is_empty() {
            lines.push("  everything is as at the real hit".to_owned());
        }
        lines.extend(differences.iter().map(|difference| format!("  {}", words(difference, hit, wide))));
        number = number.and_then(|number| trials.hits().after(number));
    }
    let handler = trials.hits().list.get(first).map(|hit| (hit.handler.code(), hit.probe));
    let operation = handler.and_then(|(code, probe)| {
        let insn = code.get(told.operation as usize)?.to_text();
        let line = trials.hits().session.interposer()?.handler(probe)?.1.line(told.operation as u32);
        let line = if line > 0 { format!(", line {line}") } else { String::new() };
        Some(format!("operation {} ({insn}{line})", told.operation))
    });
    let place = operation.unwrap_or_else(|| format!("operation {}", told.operation));
    let what = if told.what.is_empty() { String::new() } else { format!(" {}", told.what) };
    lines.push(format!("Then the objective {} falls{what} at {place}.", told.objective));
    Ok(lines)
}
