//! A replay of a recording: the same run, the same run seen by other probes, or another run that leaves it.
//!
//! Programs that only observe leave no trace in a run. So a replay may leave out those of the recording and have others
//! instead, and it is the same run: their records are those that they would have given then. If a program of the recording
//! writes to the guest, all of the recording's programs stay, beside the others.

use crate::commands::Command;
use crate::guest::Guest;
use crate::probing::Probing;
use crate::recording::{Event, Recording};
use crate::session::{RecordedCourse, Way};

/// What a replay does with the programs of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnPrograms {
    /// They are in it.
    Stay,
    /// They are left out: they have only observed.
    LeftOut,
}

impl Command {
    /// Whether it puts a program in.
    pub fn inserts(&self) -> bool {
        matches!(self, Self::Insert { .. } | Self::Clause { .. })
    }

    /// Whether it is about programs, or asks for something: without the programs the run is the same without it.
    pub fn is_about_programs(&self) -> bool {
        let acts = matches!(self, Self::Remove { .. } | Self::Switch { .. });
        let asks = matches!(self, Self::Query | Self::GetVars { .. } | Self::List { .. });
        self.inserts() || acts || asks
    }
}

impl Recording {
    /// The commands of the recording.
    pub fn commands(&self) -> impl Iterator<Item = &Command> {
        self.log().iter().filter_map(|logged| match &logged.event {
            Event::Command(command) => Some(command),
            _ => None,
        })
    }

    /// What a replay with other programs does with those of the recording.
    pub fn own_programs(&self, guest: &Guest) -> OwnPrograms {
        let inserted = self.commands().filter(|command| command.inserts());
        match only_observe(guest, &self.config().probing, inserted.cloned()) {
            true => OwnPrograms::LeftOut,
            false => OwnPrograms::Stay,
        }
    }

    /// The way along the recording for a replay.
    pub fn course(&self, way: Way, own: OwnPrograms) -> RecordedCourse<'_> {
        RecordedCourse::of(self, way, |command| own == OwnPrograms::Stay || !command.is_about_programs())
    }
}

/// Whether programs only observe: in a run with them the guest does what it does without them. What cannot be inserted
/// does not count as observing.
pub fn only_observe(guest: &Guest, probing: &Probing, programs: impl Iterator<Item = Command>) -> bool {
    let mut programs = programs.peekable();
    if programs.peek().is_none() {
        return true;
    }
    let Ok(mut session) = guest.start(probing.clone()) else { return false };
    programs.all(|command| session.apply(command).is_ok()) && session.observe_only()
}
