//! The run that `tui` shows, made again with other probes.

use std::path::Path;
use std::sync::Arc;

use trapline_session::{
    Command, Guest, OwnPrograms, Probing, Recording, Session, SourceOptions, Timeline, Way, only_observe,
    read_program,
};
use trapline_tui::Again;

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
    /// Memory for the states that a timeline saves.
    pub memory: u64,
    /// The recording of the run, and what becomes of its programs; none for a live run.
    pub recorded: Option<(Arc<Recording>, OwnPrograms)>,
}

impl SameRun {
    fn started(&self) -> Result<Session, String> {
        self.guest.start(self.probing.clone()).map_err(|error| error.to_string())
    }
}

fn apply(session: &mut Session, commands: &[Command]) -> Result<(), String> {
    let mut each = commands.iter();
    each.try_for_each(|command| session.apply(command.clone()).map(|_| ()).map_err(|error| error.to_string()))
}

impl Again for SameRun {
    fn session(&self) -> Result<Session, String> {
        let mut session = self.started()?;
        apply(&mut session, &self.commands)?;
        Ok(session)
    }

    fn timeline(&self, more: &[Command]) -> Result<Timeline, String> {
        let mut session = self.started()?;
        if let Some((recording, own)) = &self.recorded {
            let mut course = recording.course(Way::Same, *own).with_others();
            session.begin_as(&mut course).map_err(|diverged| diverged.to_string())?;
        }
        apply(&mut session, &self.commands)?;
        apply(&mut session, more)?;
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
        let program = read_program(Path::new(path), &self.source).map_err(|error| error.to_string())?;
        Ok(Command::insert(path, program))
    }

    fn observes(&self, command: &Command) -> bool {
        only_observe(&self.guest, &self.probing, std::iter::once(command.clone()))
    }
}
