//! The run that `tui` shows, made again with other probes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use trapline_session::{
    Command, DSource, DText, Guest, GuestBuilder, OwnPrograms, Probing, Recording, RunConfig, Session,
    SourceOptions, Timeline, Way, only_observe, read_program,
};
use trapline_tui::Again;

use super::run::begin_recording;
use crate::cli::RecordingArgs;
use crate::d_text::{Cpp, TextError, is_d};
use crate::failure::Failure;
use crate::late_file::LateFile;
use crate::reserved_file::replacement;

/// What makes the run.
pub struct SameRun {
    /// Its guest.
    pub guest: Guest,
    /// What its probes record.
    pub probing: Probing,
    /// The commands that insert the programs of the command line.
    pub commands: Vec<Command>,
    /// How programs are read.
    pub source: SourceOptions,
    /// Options of D programs.
    pub d_options: Vec<(String, String)>,
    /// Memory for the states that a timeline saves.
    pub memory: u64,
    /// The recording of the run, and what becomes of its programs; none for a live run.
    pub recorded: Option<(Arc<Recording>, OwnPrograms)>,
    /// The recording that is made of a live run.
    pub recording: Option<Arc<ToRecord>>,
}

/// A recording to be made.
pub struct ToRecord {
    /// The guest, with files that are named.
    pub builder: GuestBuilder,
    /// How it is recorded.
    pub args: RecordingArgs,
    /// The file of a run that is made again, until it is whole, and the file whose place it then takes.
    pub unfinished: Mutex<Option<(PathBuf, PathBuf)>>,
}

impl ToRecord {
    /// Begins it anew, in a session at its beginning; the file, to be opened when the run begins. What was recorded before
    /// stays until the new recording is whole.
    fn begin(&self, session: &mut Session, probing: &Probing) -> Result<Option<LateFile>, Failure> {
        let Some(path) = &self.args.record else { return Ok(None) };
        let (new, old) = replacement(path);
        let set = |config: &mut RunConfig| config.probing = probing.clone();
        let (_, (recorder, file)) = begin_recording(&self.builder, &new, &self.args, set)?;
        session.record(recorder).map_err(|error| Failure::Usage(error.to_string()))?;
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = Some((new, old));
        Ok(Some(file))
    }

    /// The recording is whole.
    fn finish(&self) -> Result<(), String> {
        let Some((new, old)) = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        if new == old {
            return Ok(());
        }
        fs::rename(&new, &old).map_err(|error| format!("cannot write {}: {error}", old.display()))
    }

    /// Removes a recording that is not whole. Returns a sentence that says what the file holds instead.
    pub fn give_up(&self) -> Option<String> {
        let (new, old) = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        if new == old {
            return None;
        }
        let _ = fs::remove_file(&new);
        let old = old.display();
        Some(format!(
            "{old} holds the run before the last change: the changed run was left before it was listed to its end"
        ))
    }
}

impl SameRun {
    fn started(&self) -> Result<Session, String> {
        self.guest.start(self.probing.clone()).map_err(|error| error.to_string())
    }

    /// The command of a D program that is added, with the options of the command line.
    fn d(&self, text: Result<DText, TextError>) -> Result<Command, String> {
        let text = text.map_err(|error| match error {
            TextError::File(error) => error.to_string(),
            TextError::Cpp(error) => error.to_string(),
        })?;
        let (texts, options) = (vec![text], self.d_options.clone());
        Ok(Command::D(DSource { texts, options, arguments: Vec::new() }))
    }
}

impl Again for SameRun {
    fn session(&self) -> Result<Session, String> {
        let mut session = self.started()?;
        let begun = self.recording.as_ref().map(|recording| recording.begin(&mut session, &self.probing));
        let file = begun.transpose().map_err(|failure| failure.to_string())?.flatten();
        session.apply_all(&self.commands).map_err(|error| error.to_string())?;
        if let Some(file) = file {
            file.open().map_err(|failure| failure.to_string())?;
        }
        Ok(session)
    }

    fn listed(&self) -> Result<(), String> {
        self.recording.as_ref().map_or(Ok(()), |recording| recording.finish())
    }

    fn timeline(&self, more: &[Command]) -> Result<Timeline, String> {
        let mut session = self.started()?;
        if let Some((recording, own)) = &self.recorded {
            let mut course = recording.course(Way::Same, *own).with_others();
            session.begin_as(&mut course).map_err(|diverged| diverged.to_string())?;
        }
        let applied = session.apply_all(&self.commands).and_then(|()| session.apply_all(more));
        applied.map_err(|error| error.to_string())?;
        let timeline = match &self.recorded {
            Some((recording, own)) => {
                let keep = |command: &Command| *own == OwnPrograms::Stay || !command.is_about_programs();
                Timeline::of(session, recording, keep, self.memory)
            }
            None => Timeline::new(session, self.memory),
        };
        timeline.map_err(|error| error.to_string())
    }

    fn program(&self, path: &str) -> Result<Command, String> {
        if is_d(Path::new(path)) {
            return self.d(Cpp::of(&self.source).file(Path::new(path)));
        }
        let program = read_program(Path::new(path), &self.source).map_err(|error| error.to_string())?;
        Ok(Command::insert(path, program))
    }

    fn clauses(&self, text: &str) -> Result<Command, String> {
        self.d(Cpp::of(&self.source).clauses(text))
    }

    fn observes(&self, command: &Command) -> bool {
        only_observe(&self.guest, &self.probing, std::iter::once(command.clone()))
    }
}
