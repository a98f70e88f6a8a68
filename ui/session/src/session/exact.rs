//! Exact counts: every instruction of a run is counted at its own address, by the function of the kernel's image that it is
//! in, by its source line, or by the process that ran it.
//!
//! A run that is counted is followed block by block. The instruction count at the beginning of the next block says how
//! many instructions of this one have retired, whatever ended it. The guest runs as it would without this.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use iced_x86::{FlowControl, Instruction};
use trapline_emu::Core;
use trapline_os::OsProfile;
use trapline_providers::{FunctionGlob, Target};

use super::Session;
use super::scout::Follower;

/// Most instructions of a block that are looked at: the engine's blocks have fewer.
const MOST_INSNS: usize = 2048;
/// CR0.PE.
const PE: u64 = 1;
/// The row of what programs execute.
const PROGRAMS: &str = "(programs)";
/// The row of what is executed in the kernel outside of all functions of its image, as in its modules.
const NAMELESS: &str = "(the kernel outside of its image)";

/// What instructions are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountBy {
    /// The function.
    Function,
    /// The source line.
    Line,
    /// The process that ran it.
    Process,
    /// The kernel, or the programs.
    Module,
    /// The name of the process and the function, separated by a semicolon.
    Stack,
}

impl CountBy {
    const fn has_process(self) -> bool {
        matches!(self, Self::Process | Self::Stack)
    }
}

/// Why functions cannot be counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExactError {
    /// The name is no glob.
    #[error(transparent)]
    Glob(#[from] trapline_providers::GlobError),
    /// There is none.
    #[error("the kernel's image has no function `{0}`{1}")]
    NoFunction(String, String),
}

/// The instructions of a block: how many of them in sequence belong to a row.
#[derive(Debug, Default)]
struct Block {
    parts: Vec<(Option<u32>, u64)>,
    /// The code; only where a changed instruction may belong to another row.
    code: Vec<u8>,
    /// Whether it ends with a repeated instruction, which counts each iteration.
    repeats: bool,
}

/// Where a block begins: its linear address, and the base of the kernel's code segment. Early code may run where it is linked
/// with such a base.
type Start = (u64, u64);

/// A block that was begun.
#[derive(Debug, Clone, Copy)]
struct Begun {
    at: Start,
    icount: u64,
    /// Whether a program runs it.
    by_program: bool,
    /// The row of its process.
    process: u32,
}

/// Counts the instructions of a run.
pub struct Counting {
    by: CountBy,
    target: Arc<Target>,
    profile: Option<Box<dyn OsProfile>>,
    /// Where the wanted functions begin; none for everything, programs included.
    wanted: Option<BTreeSet<u64>>,
    rows: Vec<(String, u64)>,
    /// With [`CountBy::Stack`]: counts by the rows of process and function.
    stacks: HashMap<(u32, u32), u64>,
    numbers: HashMap<String, u32>,
    blocks: HashMap<Start, Block>,
    last: Option<Begun>,
    /// The process that ran last, and its row.
    process: Option<((u32, Vec<u8>), u32)>,
    name: Vec<u8>,
    from: u64,
}

impl Counting {
    fn new(
        target: Arc<Target>,
        profile: Option<Box<dyn OsProfile>>,
        functions: &[String],
        by: CountBy,
        from: u64,
    ) -> Result<Self, ExactError> {
        let wanted = wanted(&target, functions)?;
        Ok(Self {
            by,
            target,
            profile,
            wanted,
            rows: Vec::new(),
            stacks: HashMap::new(),
            numbers: HashMap::new(),
            blocks: HashMap::new(),
            last: None,
            process: None,
            name: Vec::new(),
            from,
        })
    }

    /// The number of a row.
    fn row(&mut self, name: String) -> u32 {
        let fresh = self.rows.len() as u32;
        let number = *self.numbers.entry(name.clone()).or_insert(fresh);
        if number == fresh {
            self.rows.push((name, 0));
        }
        number
    }

    /// The row of an instruction of the kernel; none if it is not wanted.
    fn row_of(&mut self, (linear, base): Start) -> Option<u32> {
        let symbols = self.target.symbols();
        let linked = linear.wrapping_sub(base) & u64::from(u32::MAX);
        // Before paging, or where memory is mapped at its physical addresses, the image runs where it was loaded.
        let loaded = || self.target.image().plan().paddr_to_vaddr(linear);
        let address = match symbols.at(linear) {
            Some(_) => linear,
            None if base != 0 => linked,
            None => loaded().filter(|address| symbols.at(*address).is_some()).unwrap_or(linear),
        };
        let found = symbols.at(address);
        let (begins, function) = match &found {
            Some(at) if self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&at.symbol.addr)) => {
                (true, format!("{}`{}", self.target.kernel_name(), at.symbol.name))
            }
            Some(_) => return None,
            None if self.wanted.is_some() => return None,
            None => (false, NAMELESS.to_owned()),
        };
        let name = match self.by {
            CountBy::Process => return Some(0),
            CountBy::Module if begins => self.target.kernel_name().to_owned(),
            CountBy::Line if begins => match self.target.source_line(address) {
                Some(line) => format!("{}:{}", line.file, line.line),
                None => format!("{function} (no line known)"),
            },
            CountBy::Function | CountBy::Line | CountBy::Module | CountBy::Stack => function,
        };
        Some(self.row(name))
    }

    /// The row of the process that runs.
    fn process_row(&mut self, core: &Core) -> u32 {
        let pid = self.profile.as_ref().map_or(0, |profile| profile.pid(core));
        self.name.clear();
        if let Some(profile) = &self.profile {
            profile.name_into(core, &mut self.name);
        }
        if let Some((known, row)) = &self.process
            && known.0 == pid
            && known.1 == self.name
        {
            return *row;
        }
        let text = match (pid, String::from_utf8_lossy(&self.name)) {
            (_, name) if self.by == CountBy::Stack && !name.is_empty() => name.replace(';', ":"),
            (0, name) if name.is_empty() => "(unknown)".to_owned(),
            (pid, name) if name.is_empty() => format!("(unknown) ({pid})"),
            (pid, name) => format!("{name} ({pid})"),
        };
        let row = self.row(text);
        self.process = Some(((pid, self.name.clone()), row));
        row
    }

    /// Counts what has retired of the block that was begun last.
    fn settle(&mut self, icount: u64) {
        let Some(begun) = self.last.take() else { return };
        let mut left = icount.saturating_sub(begun.icount);
        if begun.by_program {
            if self.wanted.is_none() {
                let row = self.row(PROGRAMS.to_owned());
                self.add(Some(row), begun.process, left);
            }
            return;
        }
        let Some(block) = self.blocks.remove(&begun.at) else { return };
        let last = block.parts.len().saturating_sub(1);
        for (n, (row, many)) in block.parts.iter().enumerate() {
            // What is more than the block has belongs to its last instruction.
            let part = if n == last { left } else { left.min(*many) };
            left -= part;
            self.add(*row, begun.process, part);
            if left == 0 {
                break;
            }
        }
        self.blocks.insert(begun.at, block);
    }

    fn add(&mut self, row: Option<u32>, process: u32, insns: u64) {
        let Some(row) = row.filter(|_| insns > 0) else { return };
        if self.by == CountBy::Stack {
            *self.stacks.entry((process, row)).or_default() += insns;
            return;
        }
        let row = if self.by == CountBy::Process { process } else { row };
        if let Some((_, count)) = self.rows.get_mut(row as usize) {
            *count += insns;
        }
    }

    /// Looks at the block that begins here, unless it is known.
    fn look(&mut self, core: &Core, start: Start) {
        let (at, base) = start;
        let known = self.blocks.get(&start);
        if known.is_some_and(|block| block.code.is_empty() || is_there(core, at, &block.code)) {
            return;
        }
        let mut block = Block::default();
        let mut next = at;
        for _ in 0..MOST_INSNS {
            let Some(insn) = core.decode_original(next) else { break };
            let row = self.row_of((core.wrap_linear(next), base));
            match block.parts.last_mut() {
                Some((last, many)) if *last == row => *many += 1,
                _ => block.parts.push((row, 1)),
            }
            next = next.wrapping_add(insn.len() as u64);
            block.repeats = repeats(&insn);
            if block.repeats || insn.flow_control() != FlowControl::Next {
                break;
            }
        }
        if block.parts.is_empty() {
            block.parts.push((self.row_of(start), 1));
        }
        if self.by == CountBy::Line {
            let mut code = vec![0; next.wrapping_sub(at) as usize];
            if core.peek(at, &mut code).is_ok() {
                block.code = code;
            }
        }
        self.blocks.insert(start, block);
    }

    /// The rows with a count, by name, and the instructions of the whole run.
    fn end(&mut self, icount: u64) -> (Vec<(String, u64)>, u64) {
        self.settle(icount);
        let name = |row: u32| self.rows.get(row as usize).map_or("", |(name, _)| name);
        let stacks = self.stacks.iter();
        let stacks =
            stacks.map(|((process, row), count)| (format!("{};{}", name(*process), name(*row)), *count));
        let mut rows: Vec<_> =
            self.rows.iter().cloned().chain(stacks).filter(|(_, count)| *count > 0).collect();
        rows.sort_unstable();
        (rows, icount.saturating_sub(self.from))
    }
}

/// Where the functions of these names begin; none for everything.
fn wanted(target: &Target, functions: &[String]) -> Result<Option<BTreeSet<u64>>, ExactError> {
    if functions.iter().any(|name| name == "*") {
        return Ok(None);
    }
    let mut found = BTreeSet::new();
    for name in functions {
        let glob = FunctionGlob::new(name)?;
        let before = found.len();
        let symbols = target.symbols().functions().filter(|symbol| glob.matches(&symbol.name));
        let all: Vec<u64> = symbols.map(|symbol| symbol.addr).collect();
        found.extend(&all);
        if all.is_empty() && found.len() == before {
            let near = target.symbols().near_misses(name, 1);
            let hint = near.first().map(|near| format!("; there is `{near}`")).unwrap_or_default();
            return Err(ExactError::NoFunction(name.clone(), hint));
        }
    }
    Ok(Some(found))
}

/// Whether the code is in memory.
fn is_there(core: &Core, at: u64, code: &[u8]) -> bool {
    let mut found = vec![0; code.len()];
    core.peek(at, &mut found).is_ok() && found == code
}

/// Whether an instruction counts each of its iterations.
fn repeats(insn: &Instruction) -> bool {
    insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix())
}

impl Follower for Counting {
    fn block(&mut self, core: &Core, at: u64, _: bool) -> bool {
        let icount = core.icount();
        self.settle(icount);
        // Where CS has a base, the engine's addresses exceed 32 bits.
        let at = core.wrap_linear(at);
        let env = core.env();
        let by_program = env.cpl() == 3;
        let base = if env.cr(0) & PE == 0 { 0 } else { env.cs_base() };
        let at = (at, base);
        let process = if self.by.has_process() { self.process_row(core) } else { 0 };
        if !by_program {
            self.look(core, at);
        }
        self.last = Some(Begun { at, icount, by_program, process });
        true
    }
}

impl Session {
    /// Counts all instructions from here on that the kernel executes in these functions: globs; `*` stands for everything that
    /// the guest executes. Each instruction of the guest's own is counted, and none twice.
    ///
    /// # Errors
    /// The kernel's image has no such function.
    pub fn count_exactly(&mut self, functions: &[String], by: CountBy) -> Result<(), ExactError> {
        let target = Arc::clone(&self.target);
        let counting = Counting::new(target, (self.profile)(), functions, by, self.icount())?;
        self.counting = Some(Box::new(counting));
        Ok(())
    }

    /// What was counted until here: rows, and the number of all instructions meanwhile. None if nothing is counted.
    pub fn counted_exactly(&mut self) -> Option<(Vec<(String, u64)>, u64)> {
        let icount = self.icount();
        self.counting.as_mut().map(|counting| counting.end(icount))
    }
}
