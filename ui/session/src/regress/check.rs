//! One test: replays a recording, and checks its results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trapline_rpn::Diagnostics;

use super::grammar::{Assertion, Claim, OfProgram, Operator, Quantity, Relation, Value, parse};
use super::shown::Shown;
use crate::commands::{Command, CommandError, short_name};
use crate::ending::Limits;
use crate::files::{FileError, io_sentence, read_file, text_of};
use crate::guest::{Guest, GuestBuilder, Places, ReplayError};
use crate::meter::Meter;
use crate::recording::{Divergence, Recording, RecordingError};
use crate::replay::OwnPrograms;
use crate::replies::Reply;
use crate::session::{Followed, Session, Way};

/// Why a test cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a recording.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The recording cannot be replayed here.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Lines of the expectations are wrong.
    #[error("{0}")]
    Expectations(Diagnostics),
    /// A file cannot be written.
    #[error("cannot write {}: {}", path.display(), io_sentence(error))]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A probe that an assertion names cannot be inserted.
    #[error("{file}:{line}: {error}{more}")]
    Probe {
        /// The file of expectations.
        file: String,
        /// The line.
        line: u32,
        /// The error.
        error: Box<CommandError>,
        /// What the name may stand for, as the end of a sentence.
        more: String,
    },
    /// The flag of [`Case::cancelled_by`] was raised.
    #[error("interrupted")]
    Interrupted,
}

/// The result of a passed test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// Instructions of the run.
    pub insns: u64,
    /// Checkpoints that are the same.
    pub checkpoints: usize,
    /// Assertions that hold.
    pub assertions: usize,
}

/// A failure of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// The run differs.
    Diverged {
        /// The first difference.
        found: Divergence,
        /// The recorded console, and the new one.
        console: (String, String),
    },
    /// An assertion does not hold.
    Assertion {
        /// The line in the file of expectations.
        line: u32,
        /// The assertion.
        text: String,
        /// What is found instead.
        found: String,
        /// The line that would hold, if another number makes it so.
        holds: Option<String>,
    },
    /// The text of the records differs: the kept one, and the new one.
    Records(String, String),
    /// The recording ends before the run did.
    BreaksOff,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Diverged { found, .. } => found.fmt(f),
            Self::Assertion { line, text, found, .. } => {
                write!(f, "the assertion of line {line} does not hold: {text}; {found}")
            }
            Self::Records(..) => f.write_str("the records are not those that were kept"),
            Self::BreaksOff => {
                f.write_str("the recording is incomplete, because its recorder was killed; record it again")
            }
        }
    }
}

/// A recording, and what is kept beside it.
pub struct Case {
    pub(super) path: PathBuf,
    pub(super) recording: Recording,
    pub(super) assertions: Vec<Assertion>,
    /// The text of its records, if that is kept.
    pub(super) records: Option<String>,
    /// What interrupts its runs.
    pub(super) limits: Limits,
    /// What its runs keep up.
    pub(super) meter: Meter,
}

/// The text of a file, if there is one.
fn text_beside(path: &Path, extension: &str) -> Result<Option<String>, FileError> {
    let path = path.with_extension(extension);
    if path.exists() { text_of(&path, read_file(&path)?).map(Some) } else { Ok(None) }
}

impl Case {
    /// Reads a recording, its assertions in a file of the extension `expect`, and its records in one of the extension `out`.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let recording = Recording::read(path)?;
        let expect = path.with_extension("expect").display().to_string();
        let text = text_beside(path, "expect")?.unwrap_or_default();
        let assertions = parse(&expect, &text).map_err(CaseError::Expectations)?;
        let records = text_beside(path, "out")?;
        let (limits, meter) = (Limits::none(), Meter::default());
        Ok(Self { path: path.to_owned(), recording, assertions, records, limits, meter })
    }

    /// Has its runs keep up this meter.
    #[must_use]
    pub fn metered_by(self, meter: &Meter) -> Self {
        Self { meter: meter.clone(), ..self }
    }

    /// The instructions of the recorded run.
    pub fn insns(&self) -> u64 {
        self.recording.end().icount
    }

    /// Has [`Case::run`] and [`Case::update`] end with [`CaseError::Interrupted`] soon after the flag has become true.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: Arc<AtomicBool>) -> Self {
        self.limits = self.limits.cancelled_by(cancel);
        self
    }

    /// Replays it; returns the failures, if there are any.
    ///
    /// # Errors
    /// It cannot be replayed, a probe that an assertion names is not there, or it was interrupted.
    pub fn run(&self, places: &Places) -> Result<Result<Passed, Vec<Failed>>, CaseError> {
        let builder = GuestBuilder::of_recording(&self.recording, places)?.metered_by(&self.meter);
        let guest = builder.open().map_err(ReplayError::Guest)?;
        let mut failed = Vec::new();
        if !self.recording.is_whole() {
            failed.push(Failed::BreaksOff);
        }
        let (mut session, shown) = self.replay(&guest, &mut failed)?;
        let asked = self.ask(&guest, &session)?;
        let mut claims = Vec::new();
        let checkpoints = session.verifier().map_or(0, crate::recording::Verifier::verified);
        for assertion in &self.assertions {
            let found = self.check(&assertion.claim, &mut session, asked.as_ref());
            if let Err(found) = found {
                let holds = mended(assertion, &mut session, asked.as_ref());
                let (line, text) = (assertion.line, assertion.text.clone());
                claims.push(Failed::Assertion { line, text, found, holds });
            }
        }
        let (insns, assertions) = (session.icount(), self.assertions.len());
        // What the run leaves at its end comes last: the clauses of END are hits, too.
        let shown = shown.end(&mut session);
        if let Some(kept) = self.records.as_ref().filter(|kept| **kept != shown) {
            failed.push(Failed::Records(kept.clone(), shown));
        }
        failed.extend(claims);
        Ok(if failed.is_empty() { Ok(Passed { insns, checkpoints, assertions }) } else { Err(failed) })
    }

    /// The run itself, and the text of its records.
    fn replay(&self, guest: &Guest, failed: &mut Vec<Failed>) -> Result<(Session, Shown), CaseError> {
        let start = guest.start(self.recording.config().probing.clone());
        let mut session = start.map_err(ReplayError::Guest)?;
        session.verify(&self.recording, true);
        let mut course = self.recording.course(Way::Same, OwnPrograms::Stay);
        let mut shown = Shown::new(self.recording.config().probing.header);
        // Following without a position cannot fail.
        let Ok(followed) = session.follow(&mut course, None, &self.limits, &mut shown);
        match followed {
            Ok(Followed::Interrupted) => return Err(CaseError::Interrupted),
            Ok(Followed::Diverged(found)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let console = (text(self.recording.console()), text(&shown.console));
                failed.push(Failed::Diverged { found, console });
            }
            _ => {}
        }
        Ok((session, shown))
    }

    /// A second replay, with the probes that assertions name and the recording does not have.
    fn ask(&self, guest: &Guest, first: &Session) -> Result<Option<Asked>, CaseError> {
        let mut names = Vec::new();
        for assertion in &self.assertions {
            if let Claim::Compare(left, _, right) = &assertion.claim {
                names_in(left, assertion.line, &mut names);
                names_in(right, assertion.line, &mut names);
            }
        }
        let file = self.path.with_extension("expect").display().to_string();
        let mut others = Vec::new();
        for (name, line) in names {
            match of_program(first, &name) {
                Ok(Some(_)) => {}
                Ok(None) => others.push((name, line)),
                Err(error) => {
                    let (error, more) = (Box::new(error), String::new());
                    return Err(CaseError::Probe { file, line, error, more });
                }
            }
        }
        if others.is_empty() {
            return Ok(None);
        }
        let own = self.recording.own_programs(guest);
        let start = guest.start(self.recording.config().probing.clone());
        let mut session = start.map_err(ReplayError::Guest)?;
        let mut course = self.recording.course(Way::Same, own).with_others();
        // If that fails, so did the first replay.
        let _ = session.begin_as(&mut course);
        let mut inserted = BTreeMap::new();
        for (name, line) in others {
            if inserted.contains_key(&name) {
                continue;
            }
            let answer = session.apply(Command::clause(&format!("{name} {{ abort }}")));
            match answer {
                // Its name has the descriptions as they were read, without the spaces around them.
                Ok(Reply::Action { name: program, .. }) => drop(inserted.insert(name, program)),
                Ok(_) => {}
                Err(error) => {
                    let (error, more) = (Box::new(error), meant(first));
                    return Err(CaseError::Probe { file, line, error, more });
                }
            }
        }
        match session.follow(&mut course, None, &self.limits, &mut Shown::default()) {
            Ok(Ok(Followed::Interrupted)) => Err(CaseError::Interrupted),
            Ok(_) => Ok(Some(Asked { session, inserted })),
        }
    }

    /// The actual value if the claim does not hold.
    fn check(&self, claim: &Claim, session: &mut Session, asked: Option<&Asked>) -> Result<(), String> {
        match claim {
            Claim::Console(text) => {
                let shown = String::from_utf8_lossy(session.console()).contains(text.as_str());
                if shown { Ok(()) } else { Err("it does not show that".to_owned()) }
            }
            Claim::Ending(equal, text) => {
                let ending = self.recording.ending().map(ToString::to_string).unwrap_or_default();
                if (ending == *text) == *equal { Ok(()) } else { Err(format!("it is '{ending}'")) }
            }
            Claim::Compare(left, relation, right) => {
                let (left, right) = (evaluate(left, session, asked)?, evaluate(right, session, asked)?);
                if relation.holds(&left, &right) { Ok(()) } else { Err(format!("found {left} and {right}")) }
            }
        }
    }
}

/// The assertion with the number that is found, if it says that something equals a number, and if such a number can be
/// written.
fn mended(assertion: &Assertion, session: &mut Session, asked: Option<&Asked>) -> Option<String> {
    let Claim::Compare(left, Relation::Equal, Value::Number(_)) = &assertion.claim else { return None };
    let found = u64::try_from(evaluate(left, session, asked).ok()?).ok()?;
    // A name on the left may contain the sign; a number does not.
    let (before, _) = assertion.text.rsplit_once("==")?;
    Some(format!("{before}== {found}"))
}

/// The probes that a value counts the hits of.
fn names_in(value: &Value, line: u32, names: &mut Vec<(String, u32)>) {
    match value {
        Value::OfProgram(OfProgram::Hits, name) => names.push((name.clone(), line)),
        Value::Binary(left, _, right) => {
            names_in(left, line, names);
            names_in(right, line, names);
        }
        Value::Number(_) | Value::Of(_) | Value::OfProgram(OfProgram::RpnOps, _) => {}
    }
}

/// The second replay of a test.
pub(super) struct Asked {
    session: Session,
    /// The programs that were inserted, by what assertions call them.
    inserted: BTreeMap<String, String>,
}

impl Asked {
    /// The hits of what an assertion calls so.
    fn hits(&self, name: &str) -> Option<u64> {
        let program = self.inserted.get(name)?;
        let programs = self.session.interposer()?.programs();
        programs.iter().find(|known| known.name == program).map(|known| known.hits)
    }
}

/// Hits and RPN instructions of the program of this name, if there is one.
///
/// # Errors
/// Several have it.
fn of_program(session: &Session, name: &str) -> Result<Option<(u64, u64)>, CommandError> {
    let Some(interposer) = session.interposer() else { return Ok(None) };
    let programs = interposer.programs();
    let exact = || programs.iter().filter(|program| program.name == name);
    let short = || programs.iter().filter(|program| short_name(program.name) == name);
    let found: Vec<_> = if exact().next().is_some() { exact().collect() } else { short().collect() };
    match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some((only.hits, only.ops))),
        several => Err(CommandError::Ambiguous { name: name.to_owned(), count: several.len() }),
    }
}

/// The programs of a recording, for a name that is neither one of theirs nor a description of probes.
fn meant(first: &Session) -> String {
    let programs = first.interposer().map(|interposer| interposer.programs()).unwrap_or_default();
    let names: Vec<String> = programs.iter().map(|program| format!("`{}`", program.name)).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!("; the recording's programs are {}", names.join(", ")),
    }
}

/// A quotient, rounded down, also where one of the numbers is negative.
fn rounded_down(left: i128, right: i128) -> Option<i128> {
    let (cut, rest) = (left.checked_div(right)?, left.checked_rem(right)?);
    Some(cut - i128::from(rest != 0 && (rest < 0) != (right < 0)))
}

/// A value, or the error.
fn evaluate(value: &Value, session: &mut Session, asked: Option<&Asked>) -> Result<i128, String> {
    let named = |name: &str| of_program(session, name).map_err(|error| error.to_string());
    Ok(match value {
        Value::Number(number) => (*number).into(),
        Value::Of(quantity) => match quantity {
            Quantity::Insns => session.icount(),
            Quantity::VirtualNs => session.core().virtual_ns(),
            Quantity::Hits => session.stats().hits,
            Quantity::Records => session.records_noted(),
            Quantity::Lost => session.counts().lost(),
            Quantity::Exceptions => session.stats().exceptions,
        }
        .into(),
        Value::OfProgram(OfProgram::RpnOps, name) => match named(name)? {
            Some((_, ops)) => ops.into(),
            None => return Err(format!("the recording has no program `{name}`")),
        },
        Value::OfProgram(OfProgram::Hits, name) => {
            let own = named(name)?.map(|(hits, _)| hits);
            let found = own.or_else(|| asked?.hits(name));
            found.ok_or_else(|| format!("no program and no probes are called `{name}`"))?.into()
        }
        Value::Binary(left, operator, right) => {
            let (left, right) = (evaluate(left, session, asked)?, evaluate(right, session, asked)?);
            let value = match operator {
                Operator::Plus => left.checked_add(right),
                Operator::Minus => left.checked_sub(right),
                Operator::Times => left.checked_mul(right),
                Operator::Over => rounded_down(left, right),
            };
            value.ok_or_else(|| "a value is too large, or divided by 0".to_owned())?
        }
    })
}
