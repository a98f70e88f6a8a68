//! D programs: from clauses to probe points, the events of the `dtrace` provider, and the results at the end.

use std::sync::Arc;

use trapline_d::{Compiled, CompiledClause};
use trapline_interposer::{Arguments, DDrops, DLimits, Event, Place, Point, ProgramId, Provided};
use trapline_providers::{Description, find};
use trapline_rpn::{
    Argument, ArgumentError, FileHeader, Lines, LinkedLocation, LinkedProbe, LinkedProgram, LocationForm,
    Sources, Span, Width,
};
use trapline_trace::ProbeName;
use trapline_trace::d::Snapshot;

use super::Session;
use super::run::Observer;

/// The probes of the `dtrace` provider, with their identifiers.
const EVENTS: [(&str, u32, Event); 3] =
    [("BEGIN", 1, Event::Begin), ("END", 2, Event::End), ("ERROR", 3, Event::Error)];

/// Why a D program cannot be inserted. The sentences are dtrace(1)'s.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DError {
    /// A description names no probe.
    #[error("line {line}: probe description {description} does not match any probes")]
    Nothing {
        /// Line of the clause.
        line: u32,
        /// The description, with all its colons.
        description: String,
    },
    /// A probe cannot be armed.
    #[error("failed to enable the program: {0}")]
    NotArmed(String),
}

impl DError {
    /// DTrace's tag.
    #[must_use]
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Nothing { .. } => "D_PDESC_ZERO",
            Self::NotArmed(_) => "D_UNKNOWN",
        }
    }
}

/// A D program that has been inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DProgram {
    id: ProgramId,
    /// How many probes its clauses match, each clause counted for itself.
    pub matched: usize,
}

/// The events have no arguments of their own.
#[derive(Debug)]
struct NoArguments;

impl Arguments for NoArguments {
    fn has(&self, _: Argument) -> bool {
        false
    }

    fn argument(&self, _: &trapline_emu::Core, _: Argument) -> Result<u64, ArgumentError> {
        Err(ArgumentError::None)
    }
}

fn event_point((name, id, event): (&str, u32, Event)) -> Point {
    let empty: Arc<str> = Arc::from("");
    let name = ProbeName {
        provider: Arc::from("dtrace"),
        module: Arc::clone(&empty),
        function: empty,
        name: Arc::from(name),
    };
    let provided = Provided {
        id,
        name: Arc::new(name),
        arguments: Arc::new(NoArguments),
        at_call: false,
        processes: None,
    };
    Point { place: Place::Event(event), provided: Some(provided) }
}

/// The events that a description names.
fn events(description: &str) -> Vec<Point> {
    let Ok(wanted) = Description::parse(description) else { return Vec::new() };
    let [provider, _, _, name] = wanted.written();
    let asked = provider == "dtrace" || EVENTS.iter().any(|(event, ..)| event == name);
    let matches = |(name, ..): &(&str, u32, Event)| {
        asked && wanted.provider("dtrace") && wanted.module("") && wanted.function("") && wanted.name(name)
    };
    EVENTS.into_iter().filter(matches).map(event_point).collect()
}

fn linked(clause: &CompiledClause, number: usize, opcode: u8) -> LinkedProbe {
    let location = LinkedLocation {
        form: LocationForm::Offset,
        symbol: None,
        symbol_value: None,
        addend: 0,
        value: 0,
        offset: 0,
        end: None,
        text: String::new(),
    };
    LinkedProbe {
        location,
        watch: None,
        opcode,
        major: number as u32,
        minor: 0,
        ignore: 0,
        maxhits: u32::MAX,
        logonfault: false,
        group: None,
        kind: None,
        handler: Arc::clone(&clause.handler),
        lines: Lines::of_handler(&clause.lines, &clause.handler),
        origin: (String::new(), clause.line),
        span: Span::default(),
    }
}

/// The limits that a program's options set.
fn limits(compiled: &Compiled) -> DLimits {
    let size = |name| usize::try_from(compiled.options.number(name)).unwrap_or(usize::MAX);
    DLimits {
        strsize: size("strsize"),
        scratchsize: size("scratchsize"),
        dynvarsize: size("dynvarsize"),
        aggsize: size("aggsize"),
        specsize: size("specsize"),
        nspec: size("nspec"),
        bufsize: size("bufsize"),
    }
}

/// A description with all its colons, as dtrace(1) shows it.
fn full(description: &str) -> String {
    let colons = description.matches(':').count();
    format!("{}{description}", ":".repeat(3usize.saturating_sub(colons)))
}

impl Session {
    /// Inserts a D program. With `zero` a clause may match no probe.
    ///
    /// # Errors
    /// A description that matches nothing, or a probe that cannot be armed; nothing of the program stays.
    pub fn insert_d(&mut self, name: &str, compiled: &Compiled, zero: bool) -> Result<DProgram, DError> {
        let (mut probes, mut points, mut matched) = (Vec::new(), Vec::new(), 0);
        // A clause with several descriptions counts once for each of them, as in DTrace.
        let mut number = 0;
        for clause in &compiled.clauses {
            for description in &clause.descriptions {
                let mut found: Vec<(u8, Point)> =
                    events(description).into_iter().map(|point| (0, point)).collect();
                matched += found.len();
                if let Ok(probes) = find(&self.target, description) {
                    matched += probes.len();
                    found.extend(probes.iter().flat_map(|probe| {
                        probe.sites.iter().map(|site| {
                            let provided = Provided {
                                id: probe.id + EVENTS.len() as u32,
                                name: Arc::clone(&probe.name),
                                arguments: Arc::clone(&site.arguments),
                                at_call: site.at_call,
                                processes: probe.processes.clone(),
                            };
                            (site.opcode, Point { place: site.place.clone(), provided: Some(provided) })
                        })
                    }));
                }
                if found.is_empty() && !zero {
                    let description = full(description);
                    return Err(DError::Nothing { line: clause.line, description });
                }
                for (opcode, point) in found {
                    probes.push(linked(clause, number, opcode));
                    points.push(point);
                }
                number += 1;
            }
        }
        let header = FileHeader { name: name.to_owned(), vars: compiled.slots, ..FileHeader::default() };
        let sources = Arc::new(Sources::default());
        let program = LinkedProgram { header, width: Width::W64, probes, sources };
        let (machine, interposer) = self.probed();
        let tables = Arc::new(compiled.tables.clone());
        let core = machine.core_mut();
        let inserted = interposer.insert_d(core, name, (&program, points), tables, limits(compiled));
        let id = inserted.map_err(|error| DError::NotArmed(error.kind.to_string()))?;
        Ok(DProgram { id, matched })
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

    /// Runs the clauses of BEGIN or END, and passes their records to the observer.
    ///
    /// # Errors
    /// The observer's.
    pub fn fire<O: Observer>(&mut self, event: Event, observer: &mut O) -> Result<(), O::Error> {
        if let Some(interposer) = &mut self.interposer {
            interposer.fire(self.machine.core_mut(), event);
        }
        self.pass_on(observer)
    }

    /// The status that a D program has given to `exit()`.
    #[must_use]
    pub fn d_exit(&self, program: DProgram) -> Option<i32> {
        self.interposer.as_ref()?.d_exit(program.id)
    }

    /// The aggregations of a D program as they are now.
    #[must_use]
    pub fn d_aggregations(&self, program: DProgram) -> Vec<Snapshot> {
        self.interposer.as_ref().map(|interposer| interposer.aggregations(program.id)).unwrap_or_default()
    }

    /// What a D program has dropped.
    #[must_use]
    pub fn d_drops(&self, program: DProgram) -> DDrops {
        self.interposer.as_ref().map(|interposer| interposer.d_drops(program.id)).unwrap_or_default()
    }
}
