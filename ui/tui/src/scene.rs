//! The visible state at a position, as plain values. Not here: how the values are read, and how they are drawn.

use trapline_session::trapline_d::Fields;
use trapline_session::{DState, ModuleRow, ProcessRow, ProgramState, ProgramVariables, StackFrame};

/// All that panes show of a position.
#[derive(Debug, Clone, Default)]
pub struct Scene {
    /// Instructions retired.
    pub at: u64,
    /// Linear address of the next instruction.
    pub ip: u64,
    /// Whether it is the end of the run.
    pub end: bool,
    /// The symbol of `ip`.
    pub symbol: Option<String>,
    /// The address of the current task.
    pub task_at: Option<u64>,
    /// Process ID and name of the current task.
    pub task: Option<(u32, String)>,
    /// Registers.
    pub registers: Vec<Register>,
    /// The flags that are set, by name.
    pub flags: String,
    /// The function of `code`.
    pub function: String,
    /// Instructions.
    pub code: Vec<Instruction>,
    /// The file and line of `ip`, if they are known.
    pub source: Option<String>,
    /// The stack, innermost first.
    pub frames: Vec<StackFrame>,
    /// The address of `memory`.
    pub memory_at: u64,
    /// Memory, up to the first unmapped address.
    pub memory: Vec<u8>,
    /// The fields of a type, if they are shown and not `memory`.
    pub typed: Option<Fields>,
    /// The expression that names the shown memory.
    pub expression: Option<String>,
    /// Why it names nothing here.
    pub unknown: Option<String>,
    /// Words of the stack, from the stack pointer.
    pub words: Vec<(u64, u64, Option<String>)>,
    /// Probe programs.
    pub programs: Vec<ProgramState>,
    /// Their variables.
    pub variables: Vec<ProgramVariables>,
    /// Global variables.
    pub globals: Vec<u64>,
    /// Variables and aggregations of D programs.
    pub d: Vec<DState>,
    /// Processes, if the guest's system is known.
    pub processes: Vec<ProcessRow>,
    /// Modules, if the guest's system is known.
    pub modules: Vec<ModuleRow>,
    /// The instruction counts of the saved states of the run, ascending.
    pub saved_at: Vec<u64>,
    /// Those of its inputs.
    pub inputs_at: Vec<u64>,
    /// The channels of drivers, if they are wanted.
    pub channels: Option<Channels>,
    /// The end of the guest's console output.
    pub console: Vec<u8>,
    /// Bytes of a word.
    pub word: usize,
    /// The operation of the handler, if it is within a hit.
    pub handler: Option<Handler>,
}

/// The channels that drivers trace to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Channels {
    /// A line for each, below a head; empty if there are none.
    pub table: Vec<String>,
    /// What cannot be read of them, one sentence each.
    pub unread: Vec<String>,
    /// The lines of the last records, by time.
    pub lines: Vec<String>,
    /// The number of all records.
    pub records: usize,
    /// The number of those that are not among the lines, because they are older.
    pub older: usize,
}

/// A handler at one of its operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handler {
    /// Number of operations of all handlers here that have been executed.
    pub executed: u64,
    /// The total number of their operations.
    pub all: u64,
    /// The number of the handler's run, from 1, and the number of runs.
    pub number: (usize, usize),
    /// Its program.
    pub program: String,
    /// Its probe.
    pub place: String,
    /// The text of its D program.
    pub source: Option<Source>,
    /// Its operations.
    pub listing: Vec<String>,
    /// The next one; none after the last.
    pub next: Option<usize>,
    /// How the preceding handler has ended, if this one begins here.
    pub before: Option<String>,
    /// How it has ended, if it has no further operations.
    pub ending: Option<String>,
    /// Calls that have not returned.
    pub calls: u32,
    /// The operand stack, top last.
    pub stack: Vec<u64>,
    /// Local variables.
    pub locals: Vec<u64>,
    /// The names of some of them, with their numbers.
    pub local_names: Vec<(usize, String)>,
    /// Global variables.
    pub globals: Vec<u64>,
    /// The data that has been logged so far.
    pub log: Vec<u8>,
    /// The last exception.
    pub exception: Option<String>,
    /// The changes of the handlers to the guest.
    pub changes: Vec<String>,
}

/// The text of a D program, as far as a handler's clause is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The name of the text.
    pub name: String,
    /// Its lines.
    pub lines: Vec<String>,
    /// The number of the line of the next operation, from 1.
    pub line: usize,
}

/// What the address of shown memory is counted from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Address 0.
    Zero,
    /// The structure of the current task, wherever the run is.
    Task,
    /// The value of a register, wherever the run is.
    Register(String),
}

/// Where memory is shown. What is counted from the task or a register is looked up at each position of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// What it is counted from.
    pub from: Origin,
    /// Bytes from there, modulo 2^64.
    pub offset: u64,
}

impl Spot {
    /// An address.
    pub const fn at(address: u64) -> Self {
        Self { from: Origin::Zero, offset: address }
    }

    /// The address in a scene; where the task or the register is not known, none of its origin.
    pub fn address(&self, scene: &Scene) -> u64 {
        let from = match &self.from {
            Origin::Zero => Some(0),
            Origin::Task => scene.task_at,
            Origin::Register(name) => scene.register(name),
        };
        from.unwrap_or(0).wrapping_add(self.offset)
    }
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: u128,
    /// Its number of hexadecimal digits.
    pub digits: usize,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Instruction {
    /// Its address.
    pub address: u64,
    /// The guest's bytes.
    pub bytes: Vec<u8>,
    /// The bytes that an instruction fetch sees, if they differ.
    pub patched: Option<Vec<u8>>,
    /// The instruction in Intel syntax.
    pub text: String,
    /// The way in which it is displaced, and the reason.
    pub displaced: Option<(&'static str, &'static str)>,
    /// The target of a near branch.
    pub target: Option<u64>,
    /// The source line that begins here, if its text is known: its number, and the text.
    pub source: Option<(u32, String)>,
}

impl Scene {
    /// The value of a register by its name.
    pub fn register(&self, name: &str) -> Option<u64> {
        self.registers.iter().find(|register| register.name == name).map(|register| register.value as u64)
    }
}
