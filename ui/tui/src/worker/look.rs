//! Reads the scene at the position of a timeline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trapline_emu::{Core, Seg};
use trapline_interposer::Way;
use trapline_providers::{Disassembly, disassemble};
use trapline_session::trapline_d::{Found, Inspector, Seen};
use trapline_session::{
    CodePointer, Command, How, Operation, Reply, Row, Session, Timeline, Wanted, inspector,
};

use super::channels;
use super::source::Sources;
use crate::scene::{Handler, Instruction, Register, Scene, Source, Spot};

/// Most bytes of memory that are shown.
const MEMORY: usize = 1024;
/// Most bytes of the console that are shown.
const CONSOLE: usize = 16 << 10;
/// Most frames of a stack.
const FRAMES: usize = 64;
/// Words of the stack.
const WORDS: u64 = 32;
/// Most variables of a D program, and entries of its aggregations, that are shown.
const VARIABLES: usize = 300;
/// Instructions after the current one, if the function is unknown.
const AHEAD: usize = 64;
/// Most functions that are kept disassembled.
const KEPT: usize = 64;
/// The first byte of a patched instruction, as a fetch sees it.
const INT3: u8 = 0xcc;
/// The longest instruction.
const LONGEST: usize = 15;

const LONG: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];
const SHORT: [&str; 8] = ["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"];
const SEGMENTS: [(&str, Seg); 6] =
    [("cs", Seg::Cs), ("ss", Seg::Ss), ("ds", Seg::Ds), ("es", Seg::Es), ("fs", Seg::Fs), ("gs", Seg::Gs)];
const FLAGS: [(&str, u32); 14] = [
    ("CF", 0),
    ("PF", 2),
    ("AF", 4),
    ("ZF", 6),
    ("SF", 7),
    ("TF", 8),
    ("IF", 9),
    ("DF", 10),
    ("OF", 11),
    ("NT", 14),
    ("RF", 16),
    ("VM", 17),
    ("AC", 18),
    ("ID", 21),
];

/// The places that are shown besides the position, and cached results.
#[derive(Default)]
pub struct Looker {
    /// The shown memory, after what was shown before; the stack pointer at first.
    memory: Vec<Shown>,
    inspector: Option<Inspector>,
    /// Whether scenes have the channels of drivers.
    pub channels: bool,
    /// The address of the shown function; none for that of the current instruction.
    pub code_at: Option<u64>,
    functions: BTreeMap<u64, Option<Arc<Function>>>,
    sources: Sources,
}

/// A function, and the lines of its source that begin at its instructions.
type Function = (Disassembly, Vec<Option<(u32, String)>>);

/// What the pane of memory shows, and the paths of its unfolded fields.
#[derive(Clone)]
struct Shown {
    what: What,
    unfolded: BTreeSet<String>,
}

#[derive(Clone)]
enum What {
    Bytes(Spot),
    Value(Seen),
    /// What it names is found anew at each position.
    Expression(String),
}

impl Looker {
    /// With what reads source files.
    pub fn new(sources: Sources) -> Self {
        Self { sources, ..Self::default() }
    }

    /// Shows bytes.
    pub fn show_bytes(&mut self, at: Spot) {
        self.show(What::Bytes(at));
    }

    fn show(&mut self, what: What) {
        self.memory.push(Shown { what, unfolded: BTreeSet::new() });
    }

    /// Shows bytes in place of what is shown.
    pub fn scroll_to(&mut self, at: u64) {
        self.memory.pop();
        self.show(What::Bytes(Spot::at(at)));
    }

    /// Shows the fields of a value.
    pub fn show_value(&mut self, seen: Seen) {
        self.show(What::Value(seen));
    }

    /// Shows what an expression names.
    ///
    /// # Errors
    /// A sentence: it names nothing here.
    pub fn show_expression(&mut self, timeline: &Timeline, text: String) -> Result<(), String> {
        self.inspector(timeline.session()).evaluate(&text, timeline).map_err(|error| error.sentence())?;
        self.show(What::Expression(text));
        Ok(())
    }

    /// Unfolds the field with this path, or folds it.
    pub fn unfold(&mut self, path: String) {
        let Some(shown) = self.memory.last_mut() else { return };
        if !shown.unfolded.remove(&path) {
            shown.unfolded.insert(path);
        }
    }

    /// Shows what was shown before.
    pub fn back(&mut self) {
        self.memory.pop();
    }

    fn inspector(&mut self, session: &Session) -> &mut Inspector {
        self.inspector.get_or_insert_with(|| inspector(session.target()))
    }

    /// Reads the memory that is shown.
    fn look_at_memory(&mut self, timeline: &Timeline, scene: &mut Scene, sp: u64) {
        let shown = self.memory.last().cloned();
        let found = match shown.as_ref().map(|shown| &shown.what) {
            None => Ok(Found::Bytes(sp)),
            Some(What::Bytes(spot)) => Ok(Found::Bytes(spot.address(scene))),
            Some(What::Value(seen)) => Ok(Found::Value(*seen)),
            Some(What::Expression(text)) => {
                scene.expression = Some(text.clone());
                self.inspector(timeline.session()).evaluate(text, timeline)
            }
        };
        match (found, shown) {
            (Ok(Found::Bytes(at)), _) => scene.memory_at = at,
            (Ok(Found::Value(seen)), Some(shown)) => {
                scene.memory_at = seen.address();
                let inspector = self.inspector(timeline.session());
                scene.typed = Some(inspector.fields(seen, &shown.unfolded, timeline));
            }
            (Ok(Found::Value(_)), None) => {}
            (Err(error), _) => {
                scene.unknown = Some(error.sentence());
                return;
            }
        }
        scene.memory = vec![0; MEMORY];
        let read = timeline.peek(scene.memory_at, &mut scene.memory);
        scene.memory.truncate(read);
    }

    /// The scene.
    pub fn look(&mut self, timeline: &mut Timeline) -> Scene {
        let mut scene = Scene::default();
        let end = timeline.history().end;
        let session = timeline.session();
        let core = session.core();
        let ip = core.linear_ip();
        (scene.at, scene.ip) = (session.icount(), ip);
        scene.end = end.is_some_and(|end| scene.at >= end);
        scene.symbol = session.symbol_here();
        (scene.task, scene.task_at) = (session.current_task(), session.current_task_address());
        scene.word = if core.env().long_mode() { 8 } else { 4 };
        (scene.registers, scene.flags) = registers(core);
        let code_at = self.code_at.unwrap_or(ip);
        (scene.function, scene.code) = self.code(session, code_at);
        let source = session.target().source_line(code_at);
        scene.source = source.map(|line| format!("{}:{}", line.file, line.line));
        scene.frames = session.stack(FRAMES);
        let sp = core.env().gpr(4);
        scene.words = words(session, sp, scene.word);
        self.look_at_memory(timeline, &mut scene, sp);
        scene.channels = self.channels.then(|| channels::read(session));
        let console = session.console();
        scene.console = console.get(console.len().saturating_sub(CONSOLE)..).unwrap_or_default().to_vec();
        scene.d = session.d_states(VARIABLES);
        (scene.saved_at, scene.inputs_at) = (timeline.saved_at(), timeline.inputs_at());
        scene.handler = handler(timeline);
        ask(timeline, &mut scene);
        scene
    }

    fn code(&mut self, session: &Session, at: u64) -> (String, Vec<Instruction>) {
        let core = session.core();
        if let Some(function) = self.function(session, at) {
            let (function, source) = function.as_ref();
            let mut code: Vec<Instruction> = Vec::new();
            let mut reached = 0;
            for (line, source) in function.lines.iter().zip(source) {
                if line.address < reached {
                    continue;
                }
                let (bytes, patched) = bytes(core, line.address, line.bytes.len());
                let end = line.address.wrapping_add(line.bytes.len() as u64);
                reached = end;
                // Kernels change their code: of these bytes, the image does not know what they are.
                if !bytes.is_empty() && bytes != line.bytes {
                    let from = code.len();
                    reached = in_memory(core, line.address, &mut code, |at, _| at < end);
                    code.get_mut(from).into_iter().for_each(|first| first.source.clone_from(source));
                    continue;
                }
                code.push(Instruction {
                    address: line.address,
                    bytes,
                    patched,
                    text: line.text.clone(),
                    displaced: Some((way(line.way), line.why)),
                    target: line.target,
                    source: source.clone(),
                });
            }
            return (function.name.clone(), code);
        }
        let mut code = Vec::new();
        in_memory(core, at, &mut code, |_, count| count < AHEAD);
        (session.symbol_of(CodePointer::At(at)).unwrap_or_else(|| format!("{at:#x}")), code)
    }

    /// The kernel's function with this address, if an instruction begins there.
    fn function(&mut self, session: &Session, at: u64) -> Option<Arc<Function>> {
        let start = session.target().symbols().at(at).map(|found| at.wrapping_sub(found.offset))?;
        if self.functions.len() >= KEPT {
            self.functions.clear();
        }
        let target = session.target();
        let made = || {
            let function = disassemble(target, &format!("{start:#x}")).ok()?;
            let source = self.sources.begun(target, function.lines.iter().map(|line| line.address));
            Some(Arc::new((function, source)))
        };
        let function = self.functions.entry(start).or_insert_with(made).clone()?;
        function.0.lines.iter().any(|line| line.address == at).then_some(function)
    }
}

/// Appends the instructions from an address on, as they are in memory, while it holds of an address and the number of
/// instructions; returns the address after them.
fn in_memory(core: &Core, from: u64, to: &mut Vec<Instruction>, goes_on: impl Fn(u64, usize) -> bool) -> u64 {
    let mut address = from;
    while goes_on(address, to.len()) {
        let Some(instruction) = core.decode_original(address) else { break };
        let (bytes, patched) = bytes(core, address, instruction.len());
        let target = Some(instruction.near_branch_target()).filter(|target| *target != 0);
        let text = instruction.to_string();
        to.push(Instruction { address, bytes, patched, text, displaced: None, target, source: None });
        address = address.wrapping_add(instruction.len().max(1) as u64);
    }
    address
}

fn way(way: Way) -> &'static str {
    match way {
        Way::Emulated => "emulated",
        Way::OutOfLine => "out of line",
        Way::Stepped => "stepped",
    }
}

/// The guest's bytes, and the bytes that a fetch sees if they differ.
fn bytes(core: &Core, address: u64, length: usize) -> (Vec<u8>, Option<Vec<u8>>) {
    let length = length.min(LONGEST);
    let (mut own, mut fetched) = (vec![0; length], vec![0; length]);
    let read = core.peek_prefix(address, &mut own);
    own.truncate(read);
    let read = core.peek_code(address, &mut fetched);
    fetched.truncate(read);
    let patched = (fetched != own && fetched.first() == Some(&INT3)).then_some(fetched);
    (own, patched)
}

fn registers(core: &Core) -> (Vec<Register>, String) {
    let env = core.env();
    let wide = env.long_mode();
    let digits = if wide { 16 } else { 8 };
    let names: &[&str] = if wide { &LONG } else { &SHORT };
    let one = |name: &str, value: u128, digits| Register { name: name.to_owned(), value, digits };
    let mut all: Vec<Register> =
        names.iter().enumerate().map(|(n, name)| one(name, env.gpr(n).into(), digits)).collect();
    let flags = core.eflags();
    all.push(one(if wide { "rip" } else { "eip" }, env.eip().into(), digits));
    all.push(one("eflags", flags.into(), 8));
    all.extend(SEGMENTS.iter().map(|(name, seg)| one(name, env.seg(*seg).selector.into(), 4)));
    for n in [0, 2, 3, 4] {
        all.push(one(&format!("cr{n}"), env.cr(n).into(), digits));
    }
    for n in 0..8 {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(env.fpreg(n)) {
            *to = from;
        }
        all.push(one(&format!("st{n}"), u128::from_le_bytes(bytes), 20));
    }
    for n in 0..if wide { 16 } else { 8 } {
        all.push(one(&format!("xmm{n}"), env.xmm(n), 32));
    }
    let set: Vec<&str> =
        FLAGS.iter().filter(|(_, bit)| flags >> bit & 1 != 0).map(|(name, _)| *name).collect();
    (all, format!("{} IOPL={} CPL={}", set.join(" "), flags >> 12 & 3, env.cpl()))
}

fn words(session: &Session, sp: u64, word: usize) -> Vec<(u64, u64, Option<String>)> {
    session.naming(|naming| {
        let read = |n: u64| {
            let at = sp.wrapping_add(n * word as u64);
            let mut bytes = [0; 8];
            naming.core.peek(at, bytes.get_mut(..word)?).ok()?;
            let value = u64::from_le_bytes(bytes);
            Some((at, value, naming.name(CodePointer::in_stack(naming.core, value))))
        };
        (0..WORDS).map_while(read).collect()
    })
}

/// The next operation of the handler, if the position is within a hit.
fn handler(timeline: &Timeline) -> Option<Handler> {
    let operation = timeline.operation()?;
    let reply = timeline.operation_reply(false).ok()?;
    let Reply::Operation { executed, operations, program, place, exception, changes, .. } = reply else {
        return None;
    };
    let (before, ending) = (operation.ending_before(), operation.ending());
    let (source, local_names) = source(timeline.session(), &operation).unzip();
    let state = operation.state;
    Some(Handler {
        executed,
        all: operations,
        number: operation.handler,
        program,
        place,
        source,
        local_names: local_names.unwrap_or_default(),
        listing: operation.run.handler().code().iter().map(|insn| insn.to_text()).collect(),
        next: state.at.map(|at| at as usize),
        before,
        ending,
        calls: state.calls,
        stack: state.stack,
        locals: state.lv,
        globals: state.gv,
        log: state.log,
        exception,
        changes,
    })
}

/// The text of the D clause that a handler is, and the names of its variables. After the last operation, the clause's
/// last line is the current one.
fn source(session: &Session, operation: &Operation<'_>) -> Option<(Source, Vec<(usize, String)>)> {
    let run = operation.run;
    let clause = session.d_clause(run.program, run.clause?)?;
    let last = run.handler().code().len().saturating_sub(1);
    let line = run.line(operation.state.at.unwrap_or(u32::try_from(last).ok()?)).max(clause.line);
    let lines = clause.text.lines().map(|line| line.replace('\t', "    ")).collect();
    let source = Source { name: clause.name.to_string(), lines, line: line as usize };
    Some((source, session.d_locals(run.program)))
}

/// The reply to a query.
fn ask(timeline: &mut Timeline, scene: &mut Scene) {
    if let Ok(Reply::Query { programs, .. }) = timeline.apply(Command::Query).map(|applied| applied.reply) {
        scene.programs = programs;
    }
    if let Ok(Reply::GetVars { programs, gv, .. }) =
        timeline.apply(Command::GetVars { name: None }).map(|applied| applied.reply)
    {
        (scene.variables, scene.globals) = (programs, gv);
    }
    for wanted in [Wanted::Processes, Wanted::Modules] {
        let list = Command::List { wanted, how: How::default() };
        let Ok(Reply::List { rows, .. }) = timeline.apply(list).map(|applied| applied.reply) else {
            continue;
        };
        for row in rows.items() {
            match row {
                Row::Process(process) => scene.processes.push(process.clone()),
                Row::Module(module) => scene.modules.push(module.clone()),
                _ => {}
            }
        }
    }
}
