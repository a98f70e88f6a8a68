//! A replay of a recording: the same run, the same run with other probes, or a run that branches off.
//!
//! Programs that only observe do not affect a run. So a replay may replace the recording's programs by others, and it
//! is still the same run: the records are those that the others would have given originally. If a program of the
//! recording writes to the guest, all of the recording's programs are kept, besides the others.

use trapline_rpn::ppdf::VerifyingKey;

use crate::commands::Command;
use crate::guest::Guest;
use crate::probing::Probing;
use crate::recording::{Event, Recording};
use crate::session::{RecordedCourse, Way};
use crate::signed::NotSigned;

/// What a replay does with the programs of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnPrograms {
    /// They are inserted.
    Stay,
    /// They are left out, because they only observe.
    LeftOut,
}

impl Command {
    /// Whether it inserts a program.
    pub fn inserts(&self) -> bool {
        matches!(self, Self::Insert { .. } | Self::Clause { .. } | Self::D(_))
    }

    /// Whether it concerns programs only, or is a query: if the programs are left out, it can be left out too.
    pub fn is_about_programs(&self) -> bool {
        let acts = matches!(self, Self::Remove { .. } | Self::Switch { .. } | Self::End | Self::Alter { .. });
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

    /// Checks all programs of the recording, as [`Command::check_signed`].
    ///
    /// # Errors
    /// The first one that the key has not signed.
    pub fn check_signed(&self, wanted: Option<VerifyingKey>) -> Result<(), NotSigned> {
        self.commands().try_for_each(|command| command.check_signed(wanted))
    }

    /// What a replay with other programs does with those of the recording.
    pub fn own_programs(&self, guest: &Guest) -> OwnPrograms {
        let inserted = self.commands().filter(|command| command.inserts());
        match only_observe(guest, &self.config().probing, inserted.cloned()) {
            true => OwnPrograms::LeftOut,
            false => OwnPrograms::Stay,
        }
    }

    /// The course of a replay along the recording.
    pub fn course(&self, way: Way, own: OwnPrograms) -> RecordedCourse<'_> {
        RecordedCourse::of(self, way, |command| own == OwnPrograms::Stay || !command.is_about_programs())
    }
}

/// Whether programs only observe, so that the guest runs as it does without them. A program that cannot be inserted
/// does not count as observing.
pub fn only_observe(guest: &Guest, probing: &Probing, programs: impl Iterator<Item = Command>) -> bool {
    let mut programs = programs.peekable();
    if programs.peek().is_none() {
        return true;
    }
    let Ok(mut session) = guest.start(probing.clone()) else { return false };
    programs.all(|command| session.apply(command).is_ok()) && session.observe_only()
}
