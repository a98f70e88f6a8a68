//! Why a program had no hits in a run, as far as that can be known.

use std::collections::BTreeSet;
use std::fmt;

use trapline_interposer::{Place, PointView, ProgramView};
use trapline_providers::TargetProcess;

use super::Session;
use crate::plural::counted;

/// Why a program had no hits. It displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoHits {
    /// The program.
    pub program: String,
    /// The reason.
    pub reason: Reason,
}

/// A reason for no hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// All its probe points are disabled.
    Disabled,
    /// `ignore` passed over this many hits.
    Ignored(u64),
    /// The guest never loaded this kernel module.
    NotLoaded(String),
    /// No process executed code of this file.
    NotMapped(String),
    /// The code was in memory, and no process of this name, number or path executed it.
    NoSuchProcess(String),
    /// The guest executed none of this many sites.
    NotExecuted(u64),
    /// The guest accessed none of the watched ranges.
    NotAccessed,
    /// The run was shorter than the period of its timers.
    NotDue,
}

impl fmt::Display for NoHits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.program;
        match &self.reason {
            Reason::Disabled => write!(f, "{name} had no hits: all its probe points are disabled"),
            Reason::Ignored(hits) => {
                write!(f, "{name} had no hits: `ignore` passed over {}", counted(*hits, "hit"))
            }
            Reason::NotLoaded(module) => {
                write!(f, "{name} had no hits: the guest never loaded the module {module}")
            }
            Reason::NotMapped(file) => write!(f, "{name} had no hits: no process executed code of {file}"),
            Reason::NoSuchProcess(process) => {
                write!(f, "{name} had no hits: no process {process} executed the probed code")
            }
            Reason::NotExecuted(1) => write!(f, "{name} had no hits: its site was never executed"),
            Reason::NotExecuted(sites) => {
                write!(f, "{name} had no hits: none of its {sites} sites was ever executed")
            }
            Reason::NotAccessed => write!(f, "{name} had no hits: nothing that it watches was accessed"),
            Reason::NotDue => write!(f, "{name} had no hits: the run ended before its time"),
        }
    }
}

impl Session {
    /// Why each inserted program without hits had none. Empty if no instruction was executed.
    pub fn why_no_hits(&self) -> Vec<NoHits> {
        let Some(interposer) = self.interposer.as_ref().filter(|_| self.icount() > 0) else {
            return Vec::new();
        };
        let without = interposer.programs().into_iter().filter(|program| program.hits == 0);
        let found = without.filter_map(|program| {
            Some(NoHits { program: program.name.to_owned(), reason: self.reason(&program)? })
        });
        found.collect()
    }

    fn reason(&self, program: &ProgramView<'_>) -> Option<Reason> {
        let points = || program.points.iter();
        let enabled: Vec<&PointView<'_>> = points().filter(|point| point.enabled).collect();
        let ignored: u64 = points().map(|point| point.ignored).sum();
        let sites: u64 = enabled.iter().map(|point| point.sites as u64).sum();
        let first = enabled.first();
        Some(match first.map(|point| point.place) {
            _ if ignored > 0 => Reason::Ignored(ignored),
            None => Reason::Disabled,
            Some(Place::Timer(_)) => Reason::NotDue,
            Some(Place::Watch(_)) => Reason::NotAccessed,
            Some(Place::Module { .. } | Place::ModulePointer { .. }) if sites == 0 => {
                Reason::NotLoaded(files(&enabled))
            }
            Some(place) if sites == 0 => match is_in_program(place) {
                true => Reason::NotMapped(files(&enabled)),
                false => return None,
            },
            Some(place) => match self.process().filter(|_| is_in_program(place)) {
                Some(process) => Reason::NoSuchProcess(process),
                None => Reason::NotExecuted(sites),
            },
        })
    }

    /// The process that `$target` stands for.
    fn process(&self) -> Option<String> {
        Some(match self.target.options().target.as_ref()? {
            TargetProcess::Pid(pid) => pid.to_string(),
            TargetProcess::Name(name) | TargetProcess::Path(name) => name.clone(),
        })
    }
}

fn is_in_program(place: &Place) -> bool {
    matches!(place, Place::User { .. } | Place::UserExit { .. } | Place::UserPointer { .. })
}

/// The files of these probe points.
fn files(points: &[&PointView<'_>]) -> String {
    let name = |point: &&PointView<'_>| match point.place {
        Place::User { module, .. } | Place::UserExit { module, .. } | Place::UserPointer { module, .. } => {
            Some(module.name().to_owned())
        }
        Place::Module { module, .. } | Place::ModulePointer { module, .. } => Some(module.name().to_owned()),
        _ => None,
    };
    let names: BTreeSet<String> = points.iter().filter_map(name).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
