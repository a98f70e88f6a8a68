//! The target that compares compiled D programs with a naive interpreter of their trees.
//!
//! A tree is made from the input. One side is its text: compiled, inserted, fired, with the real state of D programs. The
//! other side is [`naive`], which reads the tree alone; both sides share the table of types of [`tree`], and no code. What
//! all programs begin with is compiled once.

mod divides;
mod naive;
mod text;
mod tree;

use crate::Checks;
use crate::generate::Choices;
use naive::{Name, State, Value};
use std::cell::RefCell;
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use text::{FAULT, array, beginning, variable};
use trapline_d::{Compiled, Compiler, Model, Options};
use trapline_emu::{BootState, Core, CpuMode, CpuModel, Machine, MachineConfig};
use trapline_interposer::{
    DDrops, DSetup, DVariable, Event, Interposer, InterposerConfig, Place, Point, ProgramId, Provided,
};
use trapline_os::{Birth, Module, OsProfile, Task};
use trapline_providers::NoArguments;
use trapline_rpn::{LinkedProgram, NoSymbols, Width, parse};
use trapline_trace::{ChannelConfig, HeaderItems, ProbeName};
use tree::{ARRAYS, OWNERS, Owner, Program, TEXTS, TYPES};

/// Where the guest's `jmp $` lies.
const AT: u64 = 0x1000;
/// The first thread's task, and the distance to the next one's.
const TASK: u64 = 0x10_0000;
const BETWEEN: u64 = 0x40;
/// More variables than a program here can have.
const MOST: usize = 100_000;

/// A system whose current task is what the target says.
struct Tasks(Arc<AtomicU64>);

impl OsProfile for Tasks {
    fn system(&self) -> &'static str {
        "none"
    }
    fn current_task(&self, _: &Core) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn pid(&self, _: &Core) -> u32 {
        0
    }
    fn birth(&self, _: &Core, _: u64) -> Birth {
        Birth::default()
    }
    fn uid(&self, _: &Core) -> u32 {
        0
    }
    fn name_into(&self, _: &Core, _: &mut Vec<u8>) {}
    fn tasks(&self, _: &Core) -> Vec<Task> {
        Vec::new()
    }
    fn modules(&self, _: &Core) -> Vec<Module> {
        Vec::new()
    }
}

thread_local! {
    /// What all programs begin with, compiled.
    static BEGUN: Compiler = {
        let mut compiler = Compiler::new(Model::Lp64, Options::default());
        compiler.add(beginning().as_bytes(), &[b"d".to_vec()], &|_| None).unwrap();
        compiler
    };
    /// Programs with one probe point and more.
    static SHELLS: RefCell<Vec<LinkedProgram>> = const { RefCell::new(Vec::new()) };
    static MACHINE: RefCell<Machine> = RefCell::new({
        let mut machine = Machine::new(&MachineConfig { mem_size: 1 << 20, model: CpuModel::Ia32 }).unwrap();
        machine.write_physical(AT, &[0xeb, 0xfe]);
        machine.boot(&BootState { mode: CpuMode::Flat32, ip: AT, ax: 0, bx: 0, sp: 0x8000, si: 0 });
        machine
    });
}

fn task(thread: u64) -> u64 {
    TASK + thread * BETWEEN
}

fn point(event: Event, id: u32, name: &str) -> Point {
    let name =
        ProbeName { provider: "dtrace".into(), module: "".into(), function: "".into(), name: name.into() };
    let (name, arguments) = (Arc::new(name), Arc::new(NoArguments));
    let provided = Provided { id, name, arguments, at_call: false, when: None };
    Point::provided(Place::Event(event), provided)
}

/// A program with some probe points, whose handlers do nothing.
fn shell(points: usize) -> LinkedProgram {
    let made = |points| {
        let points = "offset = 0\nopcode = 0x90\nabort\n".repeat(points);
        let text = format!("name = fuzz\nmodtype = kernel\n{points}");
        let linked = parse("fuzz.rpn", &text).unwrap().link(Width::W32, &NoSymbols).unwrap();
        LinkedProgram { width: Width::W64, ..linked }
    };
    SHELLS.with_borrow_mut(|shells| {
        while shells.len() < points {
            shells.push(made(shells.len() + 1));
        }
        shells[points - 1].clone()
    })
}

/// The clauses as a program, and where they belong: the first one to ERROR, the others to BEGIN.
fn linked(compiled: &Compiled) -> (LinkedProgram, Vec<Point>) {
    let count = compiled.clauses.len();
    let mut program = shell(count);
    program.header.vars = compiled.slots;
    for ((number, probe), clause) in (0..).zip(&mut program.probes).zip(&compiled.clauses) {
        (probe.handler, probe.major) = (Arc::clone(&clause.handler), number);
    }
    let place = |n| if n == 0 { point(Event::Error, 3, "ERROR") } else { point(Event::Begin, 1, "BEGIN") };
    (program, (0..count).map(place).collect())
}

/// What a compiled program leaves.
struct Ran {
    locals: Vec<u64>,
    variables: Vec<DVariable>,
    aggregations: Vec<Vec<(Vec<u8>, Vec<u64>)>>,
    drops: DDrops,
}

fn run(compiled: &Compiled, threads: &[u64], machine: &mut Machine) -> Ran {
    let now = Arc::new(AtomicU64::new(0));
    let mut interposer = Interposer::new(InterposerConfig {
        header: HeaderItems::default(),
        // No record of these programs is read.
        channel: ChannelConfig::fixed(4096, 2),
        profile: Some(Box::new(Tasks(Arc::clone(&now)))),
        max_steps: None,
    });
    let (program, points) = linked(compiled);
    let tables = Arc::new(compiled.tables.clone());
    let setup = DSetup { tables, limits: compiled.options.limits(), ..DSetup::default() };
    let id = interposer.insert_d(machine.core_mut(), "fuzz", (&program, points), Arc::new(setup)).unwrap();
    for thread in threads {
        now.store(task(*thread), Ordering::Relaxed);
        // No two firings have one instruction count.
        let limit = machine.icount() + 1;
        machine.run(None, limit);
        interposer.begin_d(machine.core_mut(), id);
    }
    left(&interposer, machine.core(), id)
}

fn left(interposer: &Interposer, core: &Core, id: ProgramId) -> Ran {
    let snapshots = interposer.aggregations(id).into_iter();
    let sorted = snapshots.map(|snapshot| {
        let entries = snapshot.entries.into_iter().map(|entry| (entry.key, entry.value));
        let mut entries: Vec<_> = entries.collect();
        entries.sort();
        entries
    });
    Ran {
        locals: interposer.locals(id).to_vec(),
        variables: interposer.d_variables(core, id, MOST, &|_| None),
        aggregations: sorted.collect(),
        drops: interposer.d_drops(id),
    }
}

/// A value as a view shows it.
fn shown(value: &Value, ty: Option<usize>) -> String {
    match (value, ty) {
        (Value::Text(text), _) => String::from_utf8_lossy(text).into_owned(),
        (Value::Int(value), Some(ty)) if !TYPES[ty].2 => value.to_string(),
        (Value::Int(value), _) => (*value as i64).to_string(),
    }
}

/// The variables of a thread or with keys as views show them, in any order.
fn named(state: &State) -> Vec<DVariable> {
    let one = |((thread, name), value): (&(u64, Name), &Value)| {
        let thread = (*thread > 0).then(|| task(*thread));
        Some(match name {
            Name::Variable(Owner::Thread, ty) => DVariable {
                name: variable(Owner::Thread, *ty),
                thread,
                keys: Vec::new(),
                value: shown(value, *ty),
            },
            Name::Variable(..) => return None,
            Name::Element(name, keys) => {
                let of = ARRAYS.iter().chain([&TEXTS]).find(|array| array.name == *name)?;
                let key = |(key, ty): (&Value, &tree::Key)| match ty {
                    tree::Key::Int(ty) => shown(key, Some(*ty)),
                    tree::Key::Text => shown(key, None),
                };
                let keys = keys.iter().zip(of.keys).map(key).collect();
                DVariable { name: array(of), thread, keys, value: shown(value, of.value) }
            }
        })
    };
    state.values.iter().filter_map(one).collect()
}

/// The variables of the program and of a clause: name, and value as a view shows it.
fn single(state: &State) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for owner in OWNERS.into_iter().filter(|owner| *owner != Owner::Thread) {
        for ty in (0..TYPES.len()).map(Some).chain([None]) {
            let value = state.values.get(&(0, Name::Variable(owner, ty)));
            let none = if ty.is_some() { Value::Int(0) } else { Value::Text(Vec::new()) };
            all.push((variable(owner, ty), shown(value.unwrap_or(&none), ty)));
        }
    }
    all
}

fn sorted(mut variables: Vec<DVariable>) -> Vec<DVariable> {
    variables.sort_by(|a, b| (&a.name, a.thread, &a.keys).cmp(&(&b.name, b.thread, &b.keys)));
    variables
}

/// Adds a line if a compiled program has left something else than its tree, interpreted naively.
fn differ<T: PartialEq + Debug>(lines: &mut String, name: impl Display, compiled: &T, naive: &T) {
    if compiled != naive {
        lines.push_str(&format!("{name}: compiled {compiled:?}, naive {naive:?}\n"));
    }
}

/// What differs, a line each.
fn differences(ran: Ran, meaning: &State) -> String {
    let mut lines = String::new();
    differ(&mut lines, "drops", &ran.drops, &DDrops::default());
    let (elements, own): (Vec<_>, Vec<_>) =
        ran.variables.into_iter().partition(|it| it.thread.is_some() || !it.keys.is_empty());
    // The clause of ERROR is the first.
    let (clause, fault) = meaning.last.map_or((0, (0, 0)), |(n, fault)| (n + 1, (fault.kind, fault.address)));
    let faults = FAULT.into_iter().zip([meaning.faults, fault.0, clause as u64, fault.1]);
    for (name, value) in
        faults.map(|(name, value)| (name.to_owned(), value.to_string())).chain(single(meaning))
    {
        let found = own.iter().find(|it| it.name == name).map(|it| &it.value);
        differ(&mut lines, &name, &found, &Some(&value));
    }
    for ty in 0..TYPES.len() {
        let wanted = meaning.int(&(0, Name::Variable(Owner::Program, Some(ty))));
        differ(&mut lines, format_args!("v{ty} with 64 bits"), &ran.locals[ty], &wanted);
    }
    differ(&mut lines, "elements", &sorted(elements), &sorted(named(meaning)));
    for (number, found) in ran.aggregations.iter().enumerate() {
        let wanted = meaning.aggregations.get(&number).into_iter().flatten();
        let wanted: Vec<_> = wanted.map(|(key, value)| (key.clone(), value.clone())).collect();
        differ(&mut lines, format_args!("@g{number}"), found, &wanted);
    }
    lines
}

pub fn d_programs(bytes: &[u8], _: Checks) {
    let program = Program::generate(&mut Choices::Bytes(bytes));
    let text = program.text();
    let mut compiler = BEGUN.with(Compiler::clone);
    let added = compiler.add(text.as_bytes(), &[b"d".to_vec()], &|_| None);
    let refused = program.divides_by_constant_zero();
    match added.and_then(|()| compiler.finish()) {
        Err(error) => assert!(refused && error.tag == "D_DIV_ZERO", "{text}\n{error:?}"),
        Ok(compiled) => {
            assert!(!refused, "{text}");
            let ran = MACHINE.with_borrow_mut(|machine| run(&compiled, &program.threads, machine));
            let differences = differences(ran, &program.meaning());
            assert!(differences.is_empty(), "{text}\n{differences}");
        }
    }
}
