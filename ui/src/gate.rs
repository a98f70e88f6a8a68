//! The gate: the one way in which anything from outside changes a run that has begun.
//!
//! A line of a script, and whatever else will steer a run, becomes a [`Command`]; [`apply`] carries it out between
//! two instructions and answers with a [`Reply`]. A command holds all that it needs, so that a list of commands with
//! the instruction counts at which they were applied says everything that came in. Not here: when a command is due,
//! where its reply goes.

use std::collections::BTreeMap;

use serde_json::json;
use trapline_emu::{Snapshot, SnapshotMismatch};
use trapline_interposer::{Clock, Interposer, PointView, ProgramId, ProgramView, SavedTable};
use trapline_providers::{MatchError, Present, Target, resolve};
use trapline_rpn::Program;
use trapline_trace::Reply;

use crate::listing::{How, ListError, Listing, Wanted};
use crate::session::Session;
use crate::talk::counted;

/// What can be done to a run.
#[derive(Debug, Clone)]
pub enum Command {
    /// Adds a probe program and arms it.
    Insert {
        /// The name under which it is known: a path, of which the last part will do to name it.
        name: String,
        /// The program.
        program: Box<Program>,
    },
    /// Takes a program out. What it recorded stays.
    Remove {
        /// Its name.
        name: String,
    },
    /// Enables or disables probe points.
    Switch {
        /// Which.
        points: Selection,
        /// Enables them.
        on: bool,
    },
    /// All programs and their probe points.
    Query,
    /// Variables: of one program and the global ones, or all.
    GetVars {
        /// The program.
        name: Option<String>,
    },
    /// What is there now: functions, probes, modules, processes.
    List {
        /// Which.
        wanted: Wanted,
        /// What is shown of them.
        how: How,
    },
    /// Saves machine and probe table.
    Snapshot {
        /// The name to restore it by; an older one of that name is forgotten.
        label: String,
    },
    /// Goes back to what was saved.
    Restore {
        /// Its name.
        label: String,
    },
    /// Types at the guest.
    Type {
        /// Where.
        line: InputLine,
        /// What.
        bytes: Vec<u8>,
    },
    /// Ends the run.
    Stop,
}

/// Where typed input arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputLine {
    /// The first serial port.
    Com1,
    /// The virtio console.
    Virtio,
}

/// Probe points: those that everything given holds for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this program.
    pub name: Option<String>,
    /// The one of this number, from 0.
    pub point: Option<usize>,
    /// Of one of these groups; of any when there is none.
    pub groups: Vec<String>,
    /// Of one of these types; of any when there is none.
    pub kinds: Vec<String>,
}

impl Selection {
    /// Whether a probe point is one of them by its group and type.
    pub fn holds(&self, point: &PointView<'_>) -> bool {
        let among = |list: &[String], value: Option<&str>| {
            list.is_empty()
                || value.is_some_and(|value| list.iter().any(|one| one.eq_ignore_ascii_case(value)))
        };
        among(&self.groups, point.group) && among(&self.kinds, point.kind)
    }

    /// As a script has it.
    pub fn words(&self) -> String {
        let mut words: Vec<String> = self.name.iter().cloned().collect();
        words.extend(self.point.map(|point| point.to_string()));
        words.extend(self.groups.iter().map(|group| format!("group={group}")));
        words.extend(self.kinds.iter().map(|kind| format!("type={kind}")));
        words.join(" ")
    }
}

/// Why a command was not carried out. The run is as if it had not been tried.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// No such program.
    #[error("no program `{name}` is inserted; {known}")]
    UnknownProgram {
        /// The name.
        name: String,
        /// What is.
        known: String,
    },
    /// Several programs have the same file name.
    #[error("`{name}` names {count} programs; the path of one of them would be right")]
    Ambiguous {
        /// The name.
        name: String,
        /// How many.
        count: usize,
    },
    /// It is there already.
    #[error("`{0}` is already inserted")]
    Inserted(String),
    /// It does not fit the guest.
    #[error("`{name}` cannot be inserted: {reason}")]
    Refused {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// No such probe point.
    #[error("`{name}` has {}, counted from 0; there is no {point}", counted(*.points as u64, "probe point"))]
    UnknownPoint {
        /// The program.
        name: String,
        /// The number.
        point: usize,
        /// How many there are.
        points: usize,
    },
    /// It cannot be armed.
    #[error("a probe point cannot be enabled: {0}")]
    NotEnabled(String),
    /// Nothing is selected.
    #[error("no probe point that is inserted has {0}")]
    Nothing(String),
    /// No such snapshot.
    #[error("there is no snapshot `{label}`; {known}")]
    UnknownSnapshot {
        /// Its name.
        label: String,
        /// Those there are.
        known: String,
    },
    /// There is nothing to type at.
    #[error("the machine has no virtio console; --virtio-console would give it one")]
    NoVirtioConsole,
    /// Nothing can be listed.
    #[error(transparent)]
    List(ListError),
    /// A snapshot of another machine.
    #[error(transparent)]
    Mismatch(#[from] SnapshotMismatch),
}

/// What a command has done.
#[derive(Debug, Default)]
pub struct Done {
    /// The answer, for the data.
    pub reply: Reply,
    /// A sentence, for a person.
    pub note: Option<String>,
    /// The run is somewhere else than before.
    pub moved: bool,
    /// The run is to end.
    pub stop: bool,
}

/// Snapshots by name.
#[derive(Default)]
pub struct Snapshots {
    saved: BTreeMap<String, (Snapshot, Option<SavedTable>)>,
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Carries out a command between two instructions.
///
/// # Errors
/// See [`GateError`].
pub fn apply(session: &mut Session, target: &Target, command: &Command) -> Result<Done, GateError> {
    match command {
        Command::Insert { name, program } => insert(session, target, name, program),
        Command::Remove { name } => {
            let id = find(session, name)?;
            let found = programs(session).into_iter().find(|program| program.id == id);
            let name = found.map_or_else(|| name.clone(), |program| program.name.to_owned());
            if let Some(interposer) = &mut session.interposer {
                interposer.remove(session.machine.core_mut(), id);
            }
            Ok(noted(session, "remove", &name, format!("removed {name}")))
        }
        Command::Switch { points, on } => switch(session, points, *on),
        Command::Query => Ok(query(session)),
        Command::GetVars { name } => get_vars(session, name.as_deref()),
        Command::List { wanted, how } => list(session, target, wanted, *how),
        Command::Snapshot { label } => {
            let snapshot = session.machine.snapshot();
            let table = session.interposer.as_ref().map(Interposer::save);
            session.snapshots.saved.insert(label.clone(), (snapshot, table));
            Ok(noted(session, "snapshot", label, format!("snapshot {label}")))
        }
        Command::Restore { label } => restore(session, label),
        Command::Type { line, bytes } => {
            match line {
                InputLine::Com1 => session.machine.console_input(bytes),
                InputLine::Virtio if session.machine.virtio_console_input(bytes) => {}
                InputLine::Virtio => return Err(GateError::NoVirtioConsole),
            }
            let text = bytes.escape_ascii().to_string();
            Ok(noted(session, "type", &text, format!("typed \"{text}\"")))
        }
        Command::Stop => Ok(Done { stop: true, ..noted(session, "stop", "", "stopped".to_owned()) }),
    }
}

/// The answer to what was not asked for as data: an object for JSON, a sentence for a person.
fn noted(session: &Session, action: &str, what: &str, sentence: String) -> Done {
    let icount = session.machine.icount();
    let object = json!({"type": "action", "icount": icount, "action": action, "name": what});
    Done {
        reply: Reply { lines: Vec::new(), object },
        note: Some(format!("{sentence} at {icount} instructions")),
        ..Done::default()
    }
}

fn programs(session: &Session) -> Vec<ProgramView<'_>> {
    session.interposer.as_ref().map(Interposer::programs).unwrap_or_default()
}

/// The program of this path, else the only one of this file name.
fn find(session: &Session, name: &str) -> Result<ProgramId, GateError> {
    let there = programs(session);
    let exact: Vec<_> = there.iter().filter(|program| program.name == name).collect();
    let by_file = || there.iter().filter(|program| file_name(program.name) == name).collect();
    let found = if exact.is_empty() { by_file() } else { exact };
    match found.as_slice() {
        [only] => Ok(only.id),
        [] => {
            let names: Vec<String> = there.iter().map(|program| format!("`{}`", program.name)).collect();
            let known = if names.is_empty() {
                "none is".to_owned()
            } else {
                format!("there is {}", names.join(", "))
            };
            Err(GateError::UnknownProgram { name: name.to_owned(), known })
        }
        several => Err(GateError::Ambiguous { name: name.to_owned(), count: several.len() }),
    }
}

fn insert(session: &mut Session, target: &Target, name: &str, program: &Program) -> Result<Done, GateError> {
    if programs(session).iter().any(|there| there.name == name) {
        return Err(GateError::Inserted(name.to_owned()));
    }
    let refused = |reason: String| GateError::Refused { name: name.to_owned(), reason };
    let first = |found: trapline_rpn::Diagnostics| {
        refused(found.list.first().map(|d| d.message.clone()).unwrap_or_default())
    };
    let resolved = resolve(target, program).map_err(first)?;
    if let Some(interposer) = &mut session.interposer {
        interposer
            .insert(session.machine.core_mut(), name, resolved.program, resolved.points)
            .map_err(|error| refused(error.kind.to_string()))?;
    }
    Ok(noted(session, "insert", name, format!("inserted {name}")))
}

/// Enables or disables what is selected.
fn switch(session: &mut Session, points: &Selection, on: bool) -> Result<Done, GateError> {
    let only = points.name.as_deref().map(|name| find(session, name)).transpose()?;
    let mut chosen = Vec::new();
    for program in programs(session).iter().filter(|program| only.is_none_or(|id| id == program.id)) {
        let count = program.points.len();
        if let Some(point) = points.point.filter(|point| *point >= count) {
            return Err(GateError::UnknownPoint { name: program.name.to_owned(), point, points: count });
        }
        let numbered = program.points.iter().enumerate();
        let held = numbered.filter(|(n, point)| points.point.is_none_or(|p| p == *n) && points.holds(point));
        chosen.extend(held.map(|(n, _)| (program.id, n)));
    }
    if chosen.is_empty() {
        return Err(GateError::Nothing(points.words()));
    }
    if let Some(interposer) = &mut session.interposer {
        for (id, point) in &chosen {
            let done = interposer.set_enabled(session.machine.core_mut(), *id, *point, on);
            done.map_err(|error| GateError::NotEnabled(error.to_string()))?;
        }
    }
    let (action, done) = if on { ("enable", "enabled") } else { ("disable", "disabled") };
    let many = counted(chosen.len() as u64, "probe point");
    Ok(noted(session, action, &points.words(), format!("{done} {} ({many})", points.words())))
}

fn query(session: &Session) -> Done {
    let icount = session.machine.icount();
    let mut lines = Vec::new();
    let mut objects = Vec::new();
    for program in programs(session) {
        lines.push(format!("query {icount} {} hits={}", program.name, program.hits));
        let mut points = Vec::new();
        for (n, point) in program.points.iter().enumerate() {
            let state = if point.enabled { "enabled" } else { "disabled" };
            let place = place(point);
            let mut line = format!(
                "query {icount} {}[{n}] {place} {state} major={} minor={} sites={} hits={} ignored={}",
                program.name, point.major, point.minor, point.sites, point.hits, point.ignored
            );
            for (key, value) in [("group", point.group), ("type", point.kind)] {
                line.extend(value.map(|value| format!(" {key}={value}")));
            }
            lines.push(line);
            points.push(json!({
                "place": place, "enabled": point.enabled, "major": point.major, "minor": point.minor,
                "sites": point.sites, "hits": point.hits, "ignored": point.ignored,
                "group": point.group, "type": point.kind,
            }));
        }
        objects.push(json!({"name": program.name, "hits": program.hits, "points": points}));
    }
    if lines.is_empty() {
        lines.push(format!("query {icount} no programs"));
    }
    let object = json!({"type": "query", "icount": icount, "programs": objects});
    Done { reply: Reply { lines, object }, ..Done::default() }
}

/// `0xc0100c61`, or `appln+0x40f`.
fn place(point: &PointView<'_>) -> String {
    match point.place {
        trapline_interposer::Place::Kernel { linear, .. }
        | trapline_interposer::Place::LockNop { linear, .. }
        | trapline_interposer::Place::Pointer { linear, .. } => format!("{linear:#x}"),
        trapline_interposer::Place::Timer(timer) => match timer.clock {
            Clock::Virtual => format!("every {} ns", timer.period),
            Clock::Instructions => format!("every {} instructions", timer.period),
        },
        trapline_interposer::Place::Watch(watch) => {
            let prefix = if watch.kind == trapline_emu::WatchKind::Io { "port:" } else { "" };
            format!("{prefix}{:#x}:{:#x}", watch.low, watch.high)
        }
        trapline_interposer::Place::User { module, offset }
        | trapline_interposer::Place::UserExit { module, offset, .. }
        | trapline_interposer::Place::Question { module, offset } => {
            format!("{}+{offset:#x}", file_name(module.name()))
        }
        trapline_interposer::Place::Semaphore { module, address }
        | trapline_interposer::Place::UserPointer { module, address, .. } => {
            format!("{}:{address:#x}", file_name(module.name()))
        }
        trapline_interposer::Place::Module { module, offset } => match module.section_at(*offset) {
            Some((section, into)) => format!("{}:{section}+{into:#x}", module.name()),
            None => module.name().to_owned(),
        },
    }
}

/// What is there now. That nothing is, is an answer.
fn list(session: &Session, target: &Target, wanted: &Wanted, how: How) -> Result<Done, GateError> {
    let icount = session.machine.icount();
    let profile = session.interposer.as_ref().and_then(Interposer::profile);
    let mut present = Present::new(session.machine.core(), profile);
    let mut found = match Listing::find(target, Some(&mut present), wanted) {
        Err(ListError::Probes(MatchError::Nothing { .. })) => Listing::probes(Vec::new(), None),
        found => found.map_err(GateError::List)?,
    };
    if how.verbose {
        found.show_parameters(target);
    }
    let how = How { digits: 2 + 2 * target.width().bytes(), ..how };
    let lines = found.text(how).iter().map(|line| format!("list {icount} {line}")).collect();
    let object = json!({"type": "list", "icount": icount, found.plural(): found.objects()});
    Ok(Done { reply: Reply { lines, object }, ..Done::default() })
}

fn get_vars(session: &Session, name: Option<&str>) -> Result<Done, GateError> {
    let only = name.map(|name| find(session, name)).transpose()?;
    let icount = session.machine.icount();
    let list = |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let mut lines = Vec::new();
    let mut objects = Vec::new();
    for program in programs(session).iter().filter(|program| only.is_none_or(|id| id == program.id)) {
        lines.push(format!("getvars {icount} {} lv={}", program.name, list(program.locals)));
        objects.push(json!({"name": program.name, "lv": program.locals}));
    }
    let globals = session.interposer.as_ref().map(Interposer::globals).unwrap_or_default();
    lines.push(format!("getvars {icount} gv={}", list(globals)));
    let object = json!({"type": "getvars", "icount": icount, "programs": objects, "gv": globals});
    Ok(Done { reply: Reply { lines, object }, ..Done::default() })
}

fn restore(session: &mut Session, label: &str) -> Result<Done, GateError> {
    let Some((snapshot, table)) = session.snapshots.saved.get(label) else {
        let names: Vec<String> = session.snapshots.saved.keys().map(|l| format!("`{l}`")).collect();
        let known = if names.is_empty() {
            "none was taken".to_owned()
        } else {
            format!("there is {}", names.join(", "))
        };
        return Err(GateError::UnknownSnapshot { label: label.to_owned(), known });
    };
    let from = session.machine.icount();
    session.machine.restore(snapshot)?;
    if let (Some(interposer), Some(table)) = (&mut session.interposer, table) {
        interposer.restore(session.machine.core_mut(), table);
    }
    let note = format!("from {from} back to {label}");
    session.console_moved();
    Ok(Done { moved: true, ..noted(session, "restore", label, note) })
}
