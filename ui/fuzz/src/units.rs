//! The handlers that are inserted, as far as they are told apart: what is searched, and what is not.

use std::collections::BTreeSet;
use std::sync::Arc;

use trapline_interposer::{Interposer, ProgramId};
use trapline_rpn::Verified;

/// Code of handlers that is inserted: of one handler of an RPN program, or of one clause of D, at any number of probe points.
pub struct Unit {
    program: ProgramId,
    /// One of its handlers.
    handler: Arc<Verified>,
    line: u32,
    /// How it is called: as its program, with the line if the program has other code, and a number if that line has.
    pub name: String,
    /// What the search does with it.
    pub reach: Reach,
}

/// What a search does with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It runs it.
    Searched,
    /// No handler of it runs at the hits that are kept.
    NotHit,
    /// Its handlers do not run before an instruction.
    Elsewhere,
}

impl Unit {
    /// The numbers of its probes.
    #[must_use]
    pub fn probes(&self, interposer: &Interposer) -> Vec<u32> {
        let own = |probe: &u32| {
            interposer.handler(*probe).is_some_and(|(handler, _)| self.holds(self.program, handler))
        };
        interposer.probes_of(self.program).filter(own).collect()
    }

    /// Whether a handler is one of it.
    #[must_use]
    pub fn holds(&self, program: ProgramId, handler: &Verified) -> bool {
        self.program == program && is_same(&self.handler, handler)
    }
}

/// Whether two handlers have the same operations: a program's handlers are stored together.
pub(crate) fn is_same(one: &Verified, other: &Verified) -> bool {
    one.shares_code(other) && one.of_program(0) == other.of_program(0)
}

/// The units that are inserted, of which these handlers are searched, and these probes are hit without an instruction.
#[must_use]
pub fn units<'a>(
    interposer: &Interposer,
    searched: impl Iterator<Item = (ProgramId, &'a Verified)>,
    elsewhere: &BTreeSet<u32>,
) -> Vec<Unit> {
    let mut all: Vec<Unit> = Vec::new();
    for program in interposer.programs() {
        let first = all.len();
        for probe in interposer.probes_of(program.id) {
            let Some((handler, lines)) = interposer.handler(probe) else { continue };
            let known = all.iter_mut().skip(first).find(|unit| unit.holds(program.id, handler));
            let is_elsewhere = elsewhere.contains(&probe) || !interposer.has_instruction(probe);
            let reach = if is_elsewhere { Reach::Elsewhere } else { Reach::NotHit };
            match known {
                Some(unit) if reach == Reach::Elsewhere => unit.reach = reach,
                Some(_) => {}
                None => all.push(Unit {
                    program: program.id,
                    handler: Arc::clone(handler),
                    line: lines.line(0),
                    name: program.name.to_owned(),
                    reach,
                }),
            }
        }
        name(all.get_mut(first..).unwrap_or_default());
    }
    tell_apart(&mut all);
    for (program, handler) in searched {
        if let Some(unit) = all.iter_mut().find(|unit| unit.holds(program, handler)) {
            unit.reach = Reach::Searched;
        }
    }
    all
}

/// Gives units of files with the same name in different folders a number: findings are named by the file alone.
fn tell_apart(units: &mut [Unit]) {
    let short = |unit: &Unit| unit.name.rsplit('/').next().unwrap_or_default().to_owned();
    let names: Vec<String> = units.iter().map(short).collect();
    for (n, unit) in units.iter_mut().enumerate() {
        let before = names.iter().take(n).filter(|name| names.get(n) == Some(name)).count();
        if before > 0 {
            unit.name = format!("{}({})", unit.name, before + 1);
        }
    }
}

/// Names the units of a program.
fn name(units: &mut [Unit]) {
    if units.len() < 2 {
        return;
    }
    let lines: Vec<u32> = units.iter().map(|unit| unit.line).collect();
    for (n, unit) in units.iter_mut().enumerate() {
        let same = |lines: &[u32]| lines.iter().filter(|line| **line == unit.line).count();
        let number = match same(&lines) {
            1 => String::new(),
            _ => format!(".{}", same(lines.get(..=n).unwrap_or_default())),
        };
        unit.name = format!("{}:{}{number}", unit.name, unit.line);
    }
}
