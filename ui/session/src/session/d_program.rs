//! D programs: from text to clauses, and from clauses to probe points, those of the `dtrace` provider included.
//!
//! Not here: how a program gets into a session.

use std::sync::Arc;

use trapline_d::{Compiled, CompiledClause, Compiler, Error, Model, Options};
use trapline_emu::Core;
use trapline_interposer::{Arguments, DClause, DSetup, Definition, Event, Place, Point, Provided};
use trapline_providers::{Description, MatchError, NoArguments, Probe, Site, Target, find};
use trapline_rpn::{
    Argument, ArgumentError, FileHeader, Lines, LinkedLocation, LinkedProbe, LinkedProgram, LocationForm,
    Sources, Span, Width,
};
use trapline_trace::ProbeName;

use crate::commands::{DError, DSource, DText, line_of};
use crate::types::{GuestTypes, model_of};

/// The probes of the `dtrace` provider, with their identifiers.
const EVENTS: [(&str, u32, Event); 3] =
    [("BEGIN", 1, Event::Begin), ("END", 2, Event::End), ("ERROR", 3, Event::Error)];

fn event_point((name, id, event): (&str, u32, Event)) -> Point {
    let empty: Arc<str> = Arc::from("");
    let name = ProbeName {
        provider: Arc::from("dtrace"),
        module: Arc::clone(&empty),
        function: empty,
        name: Arc::from(name),
    };
    let provided =
        Provided { id, name: Arc::new(name), arguments: Arc::new(NoArguments), at_call: false, when: None };
    Point::provided(Place::Event(event), provided)
}

/// The events that a description names.
pub(super) fn events(description: &str) -> Vec<Point> {
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
        layout: None,
        origin: (String::new(), clause.line),
        span: Span::default(),
    }
}

/// A description with all its colons, as dtrace(1) shows it.
fn full(description: &str) -> String {
    let colons = description.matches(':').count();
    format!("{}{description}", ":".repeat(3usize.saturating_sub(colons)))
}

/// Macro variables that are not arguments; `process` is what `$target` stands for.
fn variable(name: &str, process: u32) -> Option<Vec<u8>> {
    match name {
        "target" => Some(process.to_string().into_bytes()),
        // A run is the same for every user who starts it.
        "pid" | "ppid" | "pgid" | "sid" | "uid" | "euid" | "gid" | "egid" | "projid" | "taskid" => {
            Some(b"0".to_vec())
        }
        _ => None,
    }
}

impl DSource {
    /// Compiles the program for a guest. The result is the same each time.
    ///
    /// # Errors
    /// The first error in its texts or options.
    pub fn compile(&self, target: &Arc<Target>) -> Result<Compiled, DError> {
        self.compile_about(target, 0)
    }

    /// The same, with this process as `$target`; 0 for none.
    ///
    /// # Errors
    /// As [`DSource::compile`].
    pub fn compile_about(&self, target: &Arc<Target>, process: u32) -> Result<Compiled, DError> {
        let types = GuestTypes::new(Arc::clone(target));
        let compiler = Compiler::new(model_of(target), self.settings()?);
        self.compile_with(compiler.with_types(Arc::new(types)), process)
    }

    /// Compiles the program without a guest: with C's types and those that it declares.
    ///
    /// # Errors
    /// As [`DSource::compile`].
    pub fn compile_alone(&self, model: Model) -> Result<Compiled, DError> {
        self.compile_with(Compiler::new(model, self.settings()?), 0)
    }

    /// The number of probes of a guest that each description matches, in program order.
    ///
    /// # Errors
    /// A description names no probe.
    pub fn matches(&self, target: &Target, compiled: &Compiled) -> Result<Vec<usize>, DError> {
        place(target, self, compiled).map(|placed| placed.matched)
    }

    /// The probes that the program's descriptions name: identifiers and names, each once, by identifier.
    ///
    /// # Errors
    /// A description names no probe.
    pub fn probes(&self, target: &Target, compiled: &Compiled) -> Result<Vec<(u32, Arc<ProbeName>)>, DError> {
        let placed = place(target, self, compiled)?;
        let provided = placed.points.into_iter().filter_map(|point| point.provided);
        let provided = provided.filter(|provided| !provided.arguments.switches());
        let mut probes: Vec<_> = provided.map(|provided| (provided.id, provided.name)).collect();
        probes.sort_by_key(|(id, _)| *id);
        probes.dedup_by_key(|(id, _)| *id);
        Ok(probes)
    }

    fn settings(&self) -> Result<Options, DError> {
        let mut options = Options::default();
        for (name, value) in &self.options {
            let set = options.set(name, Some(value));
            set.map_err(|error| DError::Option { name: name.clone(), why: error.to_string() })?;
        }
        Ok(options)
    }

    fn compile_with(&self, mut compiler: Compiler, process: u32) -> Result<Compiled, DError> {
        for text in &self.texts {
            let arguments: Vec<_> = std::iter::once(text.zeroth()).chain(self.arguments.clone()).collect();
            let variable = |name: &str| variable(name, process);
            compiler.add(&text.text, &arguments, &variable).map_err(|error| DError::in_text(text, error))?;
        }
        compiler.finish().map_err(|error: Error| match self.texts.get(error.text) {
            Some(text) => DError::in_text(text, error),
            None => DError::NotArmed(error.to_string()),
        })
    }
}

/// A program with its places in a guest.
pub struct Placed {
    pub program: LinkedProgram,
    pub points: Vec<Point>,
    pub setup: Arc<DSetup>,
    /// The number of probes that each description matches, in program order.
    pub matched: Vec<usize>,
}

/// Checks that the options allow what a program does beside observing.
pub fn allowed(compiled: &Compiled) -> Result<(), DError> {
    if compiled.destructive && !compiled.options.flag("destructive") {
        return Err(DError::Destructive);
    }
    if compiled.commands && !compiled.options.flag("system") {
        return Err(DError::Commands);
    }
    Ok(())
}

/// Finds the probe points of a program. A clause with several descriptions counts once for each of them, as in DTrace.
pub fn place(target: &Target, source: &DSource, compiled: &Compiled) -> Result<Placed, DError> {
    let (mut probes, mut points, mut matched) = (Vec::new(), Vec::new(), Vec::new());
    let described = compiled
        .clauses
        .iter()
        .flat_map(|clause| clause.descriptions.iter().map(move |description| (clause, description)));
    for (number, (clause, description)) in described.enumerate() {
        let mut found: Vec<(u8, Point)> = events(description).into_iter().map(|point| (0, point)).collect();
        let mut count = found.len();
        let there = find(target, description);
        if let Ok(probes) = &there {
            count += probes.len();
            found.extend(probes.iter().flat_map(|probe| {
                probe.sites.iter().map(|site| (site.opcode, point(probe, site, Arc::clone(&site.arguments))))
            }));
        }
        if found.is_empty() && !compiled.options.flag("zdefs") {
            return Err(nothing(source, clause, description, there.err()));
        }
        matched.push(count);
        for (opcode, point) in found {
            probes.push(linked(clause, number, opcode));
            points.push(point);
        }
    }
    if let Some(first) = compiled.clauses.first().filter(|_| compiled.vtimestamp) {
        for (opcode, point) in switches(target)? {
            probes.push(linked(first, matched.len(), opcode));
            points.push(point);
        }
    }
    let header = FileHeader { name: source.name(), vars: compiled.slots, ..FileHeader::default() };
    let setup = DSetup {
        tables: Arc::new(compiled.tables.clone()),
        limits: compiled.options.limits(),
        output: compiled.options.output(),
        panics: compiled.panics,
        drop_tags: compiled.options.flag("droptags"),
        clauses: clauses(source, compiled),
    };
    let sources = Arc::new(Sources::default());
    let program = LinkedProgram { header, width: Width::W64, probes, sources };
    Ok(Placed { program, points, setup: Arc::new(setup), matched })
}

/// The arguments where the guest switches threads.
#[derive(Debug)]
struct AtSwitch(Arc<dyn Arguments>);

impl Arguments for AtSwitch {
    fn has(&self, which: Argument) -> bool {
        self.0.has(which)
    }

    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        self.0.argument(core, which)
    }

    fn switches(&self) -> bool {
        true
    }
}

/// Where the guest switches threads. A guest whose tasks are unknown has one thread.
fn switches(target: &Target) -> Result<Vec<(u8, Point)>, DError> {
    // The next thread of Linux is an argument; that of the embedded guests is the current one already.
    let linux = find(target, "sched:::off-cpu");
    let embedded = || find(target, "fbt::switch_to:entry").unwrap_or_default();
    let (probes, has_next) = linux.map_or_else(|_| (embedded(), false), |probes| (probes, true));
    if probes.is_empty() && target.image().plan().linux.is_some() {
        return Err(DError::NotArmed(
            "vtimestamp needs the probe sched:::off-cpu, which this kernel lacks".into(),
        ));
    }
    let at_switch = |(probe, site): (&Probe, &Site)| {
        let arguments = if has_next { Arc::clone(&site.arguments) } else { Arc::new(NoArguments) };
        (site.opcode, point(probe, site, Arc::new(AtSwitch(arguments))))
    };
    let sites = probes.iter().flat_map(|probe| probe.sites.iter().map(move |site| (probe, site)));
    Ok(sites.map(at_switch).collect())
}

/// The point of a clause at a site.
fn point(probe: &Probe, site: &Site, arguments: Arc<dyn Arguments>) -> Point {
    let provided = Provided {
        id: probe.id + EVENTS.len() as u32,
        name: Arc::clone(&probe.name),
        arguments,
        at_call: site.at_call,
        when: site.when.clone(),
    };
    Point { processes: probe.processes.clone(), ..Point::provided(site.place.clone(), provided) }
}

/// Where each clause is from, once for each of its descriptions.
fn clauses(source: &DSource, compiled: &Compiled) -> Vec<DClause> {
    let text = |text: &DText| (text.name.as_str().into(), String::from_utf8_lossy(&text.text).into());
    let texts: Vec<(Arc<str>, Arc<str>)> = source.texts.iter().map(text).collect();
    let clause = |clause: &CompiledClause| {
        let (name, text) = texts.get(clause.text).cloned().unwrap_or_default();
        DClause { name, text, line: clause.line }
    };
    let each = |one: &CompiledClause| std::iter::repeat_n(clause(one), one.descriptions.len());
    compiled.clauses.iter().flat_map(each).collect()
}

/// Why a clause has no probe.
fn nothing(
    source: &DSource,
    clause: &CompiledClause,
    description: &str,
    error: Option<MatchError>,
) -> DError {
    let text = source.texts.get(clause.text);
    let name = text.map(|text| text.name.clone()).unwrap_or_default();
    let text_line = text.map(|text| line_of(&text.text, clause.text_line)).unwrap_or_default();
    let line = clause.line;
    let why = match error {
        Some(error @ (MatchError::Provider(_) | MatchError::Description(_) | MatchError::TooMany { .. })) => {
            return DError::Refused { name, line, sentence: error.to_string(), text_line };
        }
        Some(error @ MatchError::Nothing { .. }) => error.reason(),
        None => String::new(),
    };
    DError::Nothing { name, line, description: full(description), why, text_line }
}

/// A program as it was inserted under this name.
pub fn definition(target: &Arc<Target>, name: &str, source: &DSource) -> Result<Definition, DError> {
    let compiled = source.compile(target)?;
    allowed(&compiled)?;
    let Placed { program, points, setup, .. } = place(target, source, &compiled)?;
    let made = Definition::new(name, &program, points);
    made.map(|made| made.with_d(setup)).map_err(|error| DError::NotArmed(error.kind.to_string()))
}
