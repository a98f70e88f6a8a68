//! Handlers as what a search is over, and what they have shown in words.

use std::path::PathBuf;

use trapline_rpn::{Insn, Op};
use trapline_session::counted;

use crate::code::Code;
use crate::error::FuzzError;
use crate::finding::{FellAt, Finding, Folder, Onward};
use crate::hits::Hits;
use crate::objectives::{Fallen, Objective, Objectives};
use crate::patience::Ended;
use crate::report::{Knowledge, Report};
use crate::state::State;
use crate::subject::Subject;
use crate::trials::Trials;
use crate::units::{Reach, Unit};
use crate::watch::Coverage;

impl Subject for Trials {
    fn hits(&self) -> &Hits {
        Self::hits(self)
    }

    fn run(&mut self, state: &State) -> Result<&[Fallen], FuzzError> {
        Self::run(self, state)
    }

    fn check(&mut self, state: &State) -> Result<Vec<Fallen>, FuzzError> {
        Self::check(self, state)
    }

    fn learn(&mut self, state: &State) -> Result<Knowledge, FuzzError> {
        Self::learn(self, state)
    }

    fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    fn made(&self) -> u64 {
        self.summary.trials
    }

    fn fell_at(&mut self, state: &State, fallen: &Fallen) -> Result<FellAt, FuzzError> {
        Self::fell_at(self, state, fallen)
    }

    fn later(&mut self, state: &State) -> Result<Option<State>, FuzzError> {
        Self::later(self, state)
    }

    fn most_tries(&self) -> usize {
        4096
    }

    fn bytes(&self, _: &State) -> Option<Vec<u8>> {
        None
    }

    fn set_bytes(&self, _: &mut State, _: &[u8]) {}

    fn report(&self, ended: Ended) -> Report {
        Self::report(self, ended)
    }

    fn add(&mut self, report: &Report) {
        Self::add(self, report);
    }

    fn shown(&self) -> Vec<String> {
        of_handlers(self)
    }

    fn is_whole(&self) -> bool {
        is_whole(self)
    }

    fn objectives(&self) -> &Objectives {
        Self::objectives(self)
    }

    fn write(&mut self, finding: &Finding, folder: &Folder<'_>) -> Result<PathBuf, FuzzError> {
        let onward = match finding.fallen.objective {
            Objective::GuestCrash | Objective::GuestDiffers => {
                Some(Onward { insns: self.insns_after(), parts: self.parts(&finding.state)? })
            }
            _ => None,
        };
        folder.write(finding, Self::hits(self), onward)
    }
}

/// The operations without the exit that the assembler adds after an end, and that nothing reaches.
fn written(code: &[Insn]) -> &[Insn] {
    match code {
        [rest @ .., last] if last.op == Op::Exit => match rest {
            [.., before] if matches!(before.op, Op::Exit | Op::Abort) => rest,
            _ => code,
        },
        _ => code,
    }
}

/// The operations of a unit: how many there are, and those that were not reached.
fn operations(code: &Code) -> (usize, Vec<String>) {
    let (mut all, mut not) = (0, Vec::new());
    for (_, handler) in &code.handlers {
        let operations = handler.code();
        for (own, insn) in (0u32..).zip(written(&operations)) {
            all += 1;
            let place = handler.of_program(own).unwrap_or(own) as usize;
            if code.reached.get(place) != Some(&true) {
                not.push(format!("{own} {}", insn.to_text()));
            }
        }
    }
    (all, not)
}

/// The handlers that were not searched, by the reason.
pub(crate) fn unsearched(units: &[Unit]) -> Vec<String> {
    let reasons = [
        (Reach::NotHit, "no hit that is kept runs them; --hits keeps more, --at others"),
        (Reach::Elsewhere, "they do not run before an instruction"),
    ];
    let of = |reach: Reach| units.iter().filter(move |unit| unit.reach == reach);
    let some = reasons.into_iter().filter(|(reach, _)| of(*reach).next().is_some());
    let line = |(reach, why): (Reach, &str)| {
        let names: Vec<&str> = of(reach).map(|unit| unit.name.as_str()).collect();
        format!("not searched: {} ({why})", names.join(", "))
    };
    some.map(line).collect()
}

/// Whether all handlers that are inserted were searched, and all of their operations reached.
fn is_whole(trials: &Trials) -> bool {
    let searched = trials.hits().units.iter().all(|unit| unit.reach == Reach::Searched);
    searched && trials.code().iter().all(|code| operations(code).1.is_empty())
}

/// What handlers have shown.
fn of_handlers(trials: &Trials) -> Vec<String> {
    let summary = &trials.summary;
    let mut lines = Vec::new();
    for code in trials.code() {
        let (all, mut not) = operations(code);
        if not.is_empty() {
            lines.push(format!("{}: all {all} operations were reached", code.name));
        } else {
            let reached = all - not.len();
            let more = if not.len() > 8 { format!(", and {} more", not.len() - 8) } else { String::new() };
            not.truncate(8);
            lines.push(format!(
                "{}: {reached} of {all} operations were reached; not: {}{more}",
                code.name,
                not.join(", ")
            ));
        }
    }
    lines.extend(unsearched(&trials.hits().units));
    lines.push(format!(
        "the longest run has {}, the longest log {}",
        counted(summary.longest.into(), "operation"),
        counted(summary.longest_log as u64, "byte")
    ));
    for ((name, program, at), count) in &summary.exceptions {
        lines.push(format!("{program}: {name} at operation {at}, {}", counted(*count, "time")));
    }
    if summary.exceptions.is_empty() {
        lines.push("no exception ended a handler".to_owned());
    }
    if trials.insns_after() > 0 {
        let insns = counted(trials.insns_after(), "instruction");
        lines.push(format!("the guest ran on for {insns} after each first hit"));
    }
    lines
}
