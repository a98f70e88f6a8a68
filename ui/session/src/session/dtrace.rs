//! D programs in a session: how they get in, the clauses of BEGIN and END, and the results at the end.

use std::sync::Arc;

use trapline_d::Compiled;
use trapline_interposer::{DClause, DDrops, DSetup, DVariable, Interposer, ProgramId};
use trapline_trace::d::{AggregationState, Consumer, Firing, Home, Printed, Snapshot};
use trapline_trace::{ProbeName, Record, Symbolize};

use super::Session;
use super::d_program::{Placed, allowed, place};
use super::run::Observer;
use super::saved::Origin;
use crate::commands::{Brought, DError, DSource};

/// A D program that has been inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DProgram {
    id: ProgramId,
    /// How many probes its clauses match, each clause counted for itself.
    pub matched: usize,
}

/// What a D program leaves at the end of a run.
#[derive(Debug, Clone)]
pub struct DEnd {
    /// The program's identifier, as [`Names::d_setup`](super::Names::d_setup) returns it.
    pub id: ProgramId,
    /// Its name.
    pub name: String,
    /// How its data are shown.
    pub setup: Arc<DSetup>,
    /// Its aggregations, by number.
    pub aggregations: Vec<Snapshot>,
    /// What it has dropped.
    pub drops: DDrops,
}

/// What a D program has at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct DState {
    /// Its name.
    pub name: String,
    /// Its aggregations, by number.
    pub aggregations: Vec<AggregationState>,
    /// Its variables.
    pub variables: Vec<DVariable>,
    /// What it has dropped, in sentences.
    pub drops: Vec<String>,
}

impl Session {
    /// Inserts a D program that `source` was compiled to; [`Session::begin_d`] runs its clauses of BEGIN. A recording
    /// does not note it: [`Command::D`](crate::Command::D) does both, and is noted.
    ///
    /// # Errors
    /// A description that matches nothing, or a probe that cannot be armed; nothing of the program stays.
    pub fn insert_d(&mut self, source: &DSource, compiled: &Compiled) -> Result<DProgram, DError> {
        Brought::D(source).check(self.signed_by)?;
        allowed(compiled)?;
        let name = self.free_name(&source.name());
        let placed = place(&self.target, source, compiled)?;
        if self.is_still() {
            self.check_still(source, &placed, compiled.options.flag("destructive"))?;
        }
        let Placed { program, points, setup, matched } = placed;
        let (machine, interposer) = self.probed();
        let inserted = interposer.insert_d(machine.core_mut(), &name, (&program, points), setup);
        self.note_origin(|| Origin::d(&name, source));
        let id = inserted.map_err(|error| DError::NotArmed(error.kind.to_string()))?;
        Ok(DProgram { id, matched: matched.iter().sum() })
    }

    /// Runs the clauses of BEGIN of a D program.
    pub fn begin_d(&mut self, program: DProgram) {
        if let Some(interposer) = &mut self.interposer {
            interposer.begin_d(self.machine.core_mut(), program.id);
        }
    }

    /// Runs the clauses of END of all D programs that have not run them yet.
    pub fn end_d(&mut self) {
        if let Some(interposer) = &mut self.interposer {
            interposer.end_d(self.machine.core_mut());
        }
    }

    /// Passes the records that BEGIN or END have left to an observer.
    ///
    /// # Errors
    /// The observer's.
    pub fn pass_records<O: Observer>(&mut self, observer: &mut O) -> Result<(), O::Error> {
        self.pass_on(observer)
    }

    /// Whether a D program has been inserted.
    #[must_use]
    pub fn has_d(&self) -> bool {
        self.interposer.as_ref().is_some_and(|interposer| interposer.d_programs().next().is_some())
    }

    /// What the D programs leave at the end of the run, in program order.
    #[must_use]
    pub fn d_ends(&self) -> Vec<DEnd> {
        let Some(interposer) = &self.interposer else { return Vec::new() };
        let end = |(id, name, setup): (ProgramId, &str, &Arc<DSetup>)| DEnd {
            id,
            name: name.to_owned(),
            setup: Arc::clone(setup),
            aggregations: interposer.aggregations(id),
            drops: interposer.d_drops(id),
        };
        interposer.d_programs().map(end).collect()
    }

    /// What the D programs have now, in program order: at most this many variables of each, and entries of each
    /// aggregation.
    #[must_use]
    pub fn d_states(&self, most: usize) -> Vec<DState> {
        let Some(interposer) = &self.interposer else { return Vec::new() };
        let symbols = self.names();
        let state = |(id, name, setup): (ProgramId, &str, &Arc<DSetup>)| {
            let consumer = Consumer::new(Arc::clone(&setup.tables), setup.output.clone());
            DState {
                name: name.to_owned(),
                aggregations: consumer.aggregations(interposer.aggregations(id), most, &symbols),
                variables: interposer.d_variables(self.machine.core(), id, most, &symbols),
                drops: interposer.d_drops(id).sentences(setup.drop_tags),
            }
        };
        interposer.d_programs().map(state).collect()
    }

    /// What a D program prints at a firing, of which this is the record; `None` if it is of another program.
    #[must_use]
    pub fn printed(&self, record: &Record) -> Option<Printed> {
        let names = self.names();
        let (_, setup) = names.d_setup(record.header.probe)?;
        let firing = Firing::of(names.probe(record.header.probe)?, &record.header, &names);
        let mut consumer = Consumer::new(Arc::clone(&setup.tables), setup.output.clone()).without_files();
        Some(consumer.printed_values(firing, &record.data))
    }

    /// Where a clause of a D program is from.
    #[must_use]
    pub fn d_clause(&self, program: ProgramId, clause: u32) -> Option<&DClause> {
        self.interposer.as_ref()?.d_clause(program, clause)
    }

    /// The names of the local variables that a D program uses of the virtual machine, with their numbers.
    #[must_use]
    pub fn d_locals(&self, program: ProgramId) -> Vec<(usize, String)> {
        let mut programs = self.interposer.iter().flat_map(|interposer| interposer.d_programs());
        let tables = programs.find(|(id, ..)| *id == program).map(|(.., setup)| Arc::clone(&setup.tables));
        let variables = tables.iter().flat_map(|tables| &tables.variables);
        let local = variables.filter_map(|variable| match variable.home {
            Home::Slot(slot) => Some((slot as usize, variable.name.clone())),
            Home::Memory(_) => None,
        });
        local.collect()
    }

    /// The probes of D programs that have been inserted: identifiers and names, each once, by identifier.
    #[must_use]
    pub fn d_probes(&self) -> Vec<(u32, Arc<ProbeName>)> {
        let Some(interposer) = &self.interposer else { return Vec::new() };
        let names = interposer.names();
        let all = (0..).map_while(|number| names.program(number).map(|_| number));
        let mut probes: Vec<(u32, Arc<ProbeName>)> =
            all.filter_map(|number| names.get(number)).map(|it| (it.id, Arc::clone(&it.name))).collect();
        probes.sort_by_key(|(id, _)| *id);
        probes.dedup_by_key(|(id, _)| *id);
        probes
    }

    /// The status that the first D program that has called `exit()` has given to it.
    #[must_use]
    pub fn d_status(&self) -> Option<i32> {
        let interposer = self.interposer.as_ref()?;
        interposer.d_programs().find_map(|(id, ..)| interposer.d_exit(id))
    }

    /// Whether a D program has dropped data.
    #[must_use]
    pub fn d_dropped(&self) -> bool {
        let dropped =
            |interposer: &Interposer| interposer.d_programs().any(|(id, ..)| interposer.d_drops(id).any());
        self.interposer.as_ref().is_some_and(dropped)
    }

    /// The status that a D program has given to `exit()`.
    #[must_use]
    pub fn d_exit(&self, program: DProgram) -> Option<i32> {
        self.interposer.as_ref()?.d_exit(program.id)
    }
}
