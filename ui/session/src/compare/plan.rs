//! Compares two recordings without running them: the first input and the first checkpoint that differ.

use trapline_emu::Moment;

use super::{Both, Checkpoints, ComparedRun, DifferentCheckpoint, End, Input};
use crate::commands::Command;
use crate::recording::{Event, Logged};
use crate::replay::OwnPrograms;

/// The inputs of a run that can make a difference.
pub struct Inputs<'a> {
    pub own: OwnPrograms,
    log: Vec<&'a Logged>,
    /// The moment at which the recording restores a snapshot: it is compared up to there.
    turn: Option<Moment>,
    end: Moment,
}

impl<'a> Inputs<'a> {
    pub fn of(run: &ComparedRun<'a>) -> Self {
        let own = run.recording.own_programs(run.guest);
        let log = run.recording.log();
        let turn = log.iter().find(|logged| goes_back(logged)).map(|logged| logged.at);
        let counts = |logged: &&Logged| match &logged.event {
            Event::Command(command) => keeps(own, command) && !command.only_asks(),
            _ => false,
        };
        let log = log.iter().take_while(|logged| !goes_back(logged)).filter(counts).collect();
        Self { own, log, turn, end: turn.unwrap_or_else(|| run.recording.end()) }
    }

    /// Whether no program of the recording is in the run.
    pub fn has_no_programs(&self) -> bool {
        self.own == OwnPrograms::LeftOut
    }

    /// The last input at this moment or before.
    pub fn last_at(&self, at: Moment) -> Option<Input> {
        self.log.iter().rev().find(|logged| logged.at <= at).and_then(|logged| input(logged))
    }

    /// The instruction count of the first input after this count.
    pub fn next_after(&self, icount: u64) -> Option<u64> {
        self.log.iter().map(|logged| logged.at.icount).find(|at| *at > icount)
    }

    /// Whether the recording is compared as a whole.
    pub fn is_a_line(&self) -> bool {
        self.turn.is_none()
    }
}

fn goes_back(logged: &Logged) -> bool {
    match &logged.event {
        Event::Restored(_) => true,
        Event::Command(command) => command.goes_back(),
        _ => false,
    }
}

fn keeps(own: OwnPrograms, command: &Command) -> bool {
    own == OwnPrograms::Stay || !command.is_about_programs()
}

/// Whether a replay with these of the recording's programs carries a command out.
pub fn keeper(own: OwnPrograms) -> impl Fn(&Command) -> bool {
    move |command| keeps(own, command)
}

fn input(logged: &Logged) -> Option<Input> {
    match &logged.event {
        Event::Command(command) => Some(Input {
            icount: logged.at.icount,
            what: command.words(),
            typed: matches!(command, Command::Type { .. }),
        }),
        _ => None,
    }
}

fn same(a: &Logged, b: &Logged) -> bool {
    let text = |logged: &Logged| match &logged.event {
        Event::Command(command) => serde_json::to_string(command).ok(),
        _ => None,
    };
    a.at == b.at && text(a) == text(b)
}

/// The first input that differs, and its moment.
pub fn first_difference(a: &Inputs<'_>, b: &Inputs<'_>) -> Option<(Moment, Both<Option<Input>>)> {
    let n = a.log.iter().zip(&b.log).take_while(|(a, b)| same(a, b)).count();
    let (a, b) = (a.log.get(n), b.log.get(n));
    let at = a.into_iter().chain(b).map(|logged| logged.at).min()?;
    Some((at, Both { a: a.and_then(|a| input(a)), b: b.and_then(|b| input(b)) }))
}

/// Compares the checkpoints that both have at the same moment. Also returns the moment of the last one before the first
/// difference.
pub fn checkpoints(a: &ComparedRun<'_>, b: &ComparedRun<'_>) -> (Checkpoints, Option<Moment>) {
    let mut found = Checkpoints::default();
    let mut last = None;
    if a.changed || b.changed {
        return (found, last);
    }
    let others = b.recording.checkpoints();
    for (number, ours) in (1..).zip(a.recording.checkpoints()) {
        let at = others.partition_point(|other| other.at < ours.at);
        let Some(other) = others.get(at).filter(|other| other.at == ours.at) else { continue };
        found.compared += 1;
        if let Some(stage) = ours.digest.difference(&other.digest) {
            found.different = Some(DifferentCheckpoint { number, icount: ours.at.icount, stage });
            break;
        }
        last = Some(ours.at);
    }
    (found, last)
}

/// The ends of the recordings, if they differ.
pub fn ends(a: &ComparedRun<'_>, b: &ComparedRun<'_>) -> Option<Both<End>> {
    let end = |run: &ComparedRun<'_>| End {
        icount: run.recording.end().icount,
        ending: run.recording.ending().cloned(),
    };
    let ends = Both { a: end(a), b: end(b) };
    (a.recording.end() != b.recording.end()).then_some(ends)
}

/// The last moment that is compared in both.
pub fn common_end(a: &Inputs<'_>, b: &Inputs<'_>) -> Moment {
    a.end.min(b.end)
}
