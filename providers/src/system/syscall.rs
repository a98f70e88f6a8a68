//! `syscall`: `entry` and `return` of each system call of Linux, by the kernel's own names.
//!
//! The entry is the first instruction of the kernel's handler, which gets the registers of the program in memory
//! (`struct pt_regs`). All returns share the sites of [`exits`](super::exits), as a child does that has just been forked: the
//! registers hold the number of the call there, and its value is in them or in RAX.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use trapline_emu::Core;
use trapline_emu::load::{LoadPlan, Width};
use trapline_interposer::{Arguments, Condition};
use trapline_rpn::{Argument, ArgumentError};
use trapline_trace::ProbeName;

use super::Found;
use super::calls::{Entry, Handler, handlers};
use super::exits::{Exit, Who, exits};
use super::kernel::{Kernel, place};
use crate::provider::{ArgumentType, Probe, Site};
use crate::target::Target;

/// Where a new task begins.
const CHILD: &str = "ret_from_fork";
/// System calls that a new task returns from.
const FORKS: [&str; 4] = ["clone", "clone3", "fork", "vfork"];
/// Flag of a thread that a system call of 32 bits runs (TS_COMPAT).
const COMPAT: u32 = 2;
/// The greatest error number (MAX_ERRNO).
const GREATEST: u64 = 4095;
/// Arguments of a system call at most.
const MOST: u8 = 6;
/// Names in the C library of system calls that the kernel calls otherwise.
const RENAMED: [(&str, &str); 7] = [
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("stat", "newstat"),
    ("fstatat", "newfstatat"),
    ("uname", "newuname"),
    ("umount2", "umount"),
    ("sendfile", "sendfile64"),
];
/// Numbers of general registers in the machine's order.
const AX: usize = 0;
const SP: usize = 4;
const DI: usize = 7;

/// The kernel's name of a system call that has another one in the C library.
pub fn kernel_name(name: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(own, _)| *own == name).map(|(_, kernel)| *kernel)
}

/// Where `struct pt_regs` has the registers of a program.
#[derive(Debug, Clone, Copy)]
struct Saved {
    width: Width,
    entry: Entry,
}

impl Saved {
    /// Offsets of the arguments.
    fn arguments(self) -> [u64; MOST as usize] {
        match (self.width, self.entry) {
            // RDI, RSI, RDX, R10, R8, R9.
            (Width::Bits64, Entry::Native) => [0x70, 0x68, 0x60, 0x38, 0x48, 0x40],
            // EBX, ECX, EDX, ESI, EDI, EBP.
            (Width::Bits64, Entry::Compat) => [0x28, 0x58, 0x60, 0x68, 0x70, 0x20],
            (Width::Bits32, _) => [0, 4, 8, 12, 16, 20],
        }
    }

    /// Offset of the value.
    fn value(self) -> u64 {
        if self.width == Width::Bits64 { 0x50 } else { 0x18 }
    }

    /// Offset of the number of the call.
    fn number(self) -> u64 {
        if self.width == Width::Bits64 { 0x78 } else { 0x2c }
    }

    /// The address of the structure: the first argument of a function.
    fn base(self, core: &Core) -> u64 {
        match self.width {
            Width::Bits64 => core.env().gpr(DI),
            Width::Bits32 => core.env().gpr(AX) & 0xffff_ffff,
        }
    }
}

/// The arguments of a system call, at the first instruction of its handler.
#[derive(Debug)]
struct AtEntry {
    kernel: Arc<Kernel>,
    saved: Saved,
}

impl Arguments for AtEntry {
    fn has(&self, which: Argument) -> bool {
        matches!(which, Argument::Number(0..MOST))
    }

    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        let Argument::Number(n) = which else { return Err(ArgumentError::None) };
        let offset = self.saved.arguments().get(usize::from(n)).copied().ok_or(ArgumentError::None)?;
        let at = self.saved.base(core).wrapping_add(offset);
        let value = self.kernel.read(core, at).ok_or(ArgumentError::Fault(at))?;
        Ok(if self.saved.entry == Entry::Compat { value & 0xffff_ffff } else { value })
    }
}

/// The value of a system call: arguments 0 and 1. An error is negative.
#[derive(Debug)]
struct AtReturn {
    kernel: Arc<Kernel>,
    saved: Saved,
    regs: usize,
    in_ax: bool,
}

impl AtReturn {
    fn value(&self, core: &Core) -> Result<u64, ArgumentError> {
        let at = core.env().gpr(self.regs).wrapping_add(self.saved.value());
        let value = if self.in_ax {
            core.env().gpr(AX) & self.kernel.width.max_addr()
        } else {
            self.kernel.read(core, at).ok_or(ArgumentError::Fault(at))?
        };
        let extended = u64::from(value as u32).cast_signed() << 32 >> 32;
        let narrow = self.kernel.width == Width::Bits32;
        Ok(if narrow && is_error(extended.cast_unsigned()) { extended.cast_unsigned() } else { value })
    }
}

/// Whether a value is an error.
fn is_error(value: u64) -> bool {
    value.wrapping_neg().wrapping_sub(1) < GREATEST
}

impl Arguments for AtReturn {
    fn has(&self, which: Argument) -> bool {
        matches!(which, Argument::Number(0 | 1) | Argument::Returned)
    }

    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        if self.has(which) { self.value(core) } else { Err(ArgumentError::None) }
    }

    fn errno(&self, core: &Core) -> u64 {
        self.value(core).ok().filter(|value| is_error(*value)).map_or(0, u64::wrapping_neg)
    }
}

/// The return of one system call.
#[derive(Debug)]
struct Returns {
    kernel: Arc<Kernel>,
    saved: Saved,
    /// The numbers of the call, from programs of the kernel's width and from 32-bit code.
    native: Vec<u32>,
    compat: Vec<u32>,
    /// The register with the address of the program's registers, and the tasks that get there.
    regs: usize,
    who: Who,
    /// The code from which new tasks come, if the call does not make them: they have made no call then.
    child: Option<Range<u64>>,
}

impl Returns {
    fn fires(&self, core: &Core) -> Option<bool> {
        let kernel = &self.kernel;
        if let Some(child) = &self.child
            && child.contains(&kernel.read(core, core.env().gpr(SP))?)
        {
            return Some(false);
        }
        let number = kernel.read_u32(core, core.env().gpr(self.regs).wrapping_add(self.saved.number()))?;
        let compat = match (self.who, kernel.compat_status) {
            (Who::From(entry), _) => entry == Entry::Compat,
            (_, Some(status)) => {
                kernel.read_u32(core, kernel.current(core)?.wrapping_add(status))? & COMPAT != 0
            }
            (_, None) => false,
        };
        Some(if compat { self.compat.contains(&number) } else { self.native.contains(&number) })
    }
}

impl Condition for Returns {
    fn holds(&self, core: &Core) -> bool {
        self.fires(core).unwrap_or(false)
    }
}

/// The probes of all system calls.
pub fn probes(target: &Target, kernel: &Arc<Kernel>) -> Found {
    let native = handlers(target, kernel, Entry::Native);
    let compat = handlers(target, kernel, Entry::Compat);
    let metadata = Metadata::read(target, kernel);
    // Without the thread's flag, a return cannot be told from that of another call with this number in the other table.
    let known = compat.is_empty() || kernel.compat_status.is_some() && kernel.has_current();
    let saved = Saved { width: kernel.width, entry: Entry::Native };
    let exits = if known { exits(target, kernel, saved.value()) } else { Vec::new() };
    let mut names: Vec<&String> = native.keys().chain(compat.keys()).collect();
    names.sort();
    names.dedup();
    let mut found = Found::default();
    for name in names {
        let call = Call { name, handlers: [native.get(name), compat.get(name)] };
        found.probes.extend(entry(target, kernel, &call, metadata.types.get(name)));
        found.probes.extend(returned(target, kernel, &call, &exits));
    }
    found
}

/// A system call with its handlers, for programs of the kernel's width and for 32-bit code.
struct Call<'a> {
    name: &'a str,
    handlers: [Option<&'a Handler>; 2],
}

impl Call<'_> {
    fn numbers(&self, which: usize) -> Vec<u32> {
        let handler = self.handlers.get(which).copied().flatten();
        handler.map(|handler| handler.numbers.iter().copied().collect()).unwrap_or_default()
    }

    fn probe(&self, kernel: &Kernel, name: &str, sites: Vec<Site>, types: Vec<ArgumentType>) -> Probe {
        let name = ProbeName {
            provider: "syscall".into(),
            module: Arc::clone(&kernel.name),
            function: self.name.into(),
            name: name.into(),
        };
        let logged = if types.is_empty() { MOST } else { types.len() as u8 };
        Probe { id: 0, name: Arc::new(name), sites, logged, processes: None, types }
    }
}

fn entry(
    target: &Target,
    kernel: &Arc<Kernel>,
    call: &Call<'_>,
    types: Option<&Vec<ArgumentType>>,
) -> Option<Probe> {
    let mut sites: Vec<Site> = Vec::new();
    let mut taken = None;
    for (handler, entry) in call.handlers.iter().zip([Entry::Native, Entry::Compat]) {
        // One function may handle both, if it has no arguments.
        let Some(handler) = handler.filter(|handler| taken != Some(handler.address)) else { continue };
        taken = Some(handler.address);
        let saved = Saved { width: kernel.width, entry };
        let (place, opcode) = place(target, handler.address)?;
        sites.push(Site {
            arguments: Arc::new(AtEntry { kernel: Arc::clone(kernel), saved }),
            rule: match entry {
                Entry::Native => "handler of the system call",
                Entry::Compat => "handler of the system call for 32-bit programs",
            },
            shown: types.into_iter().flatten().map(ToString::to_string).collect(),
            within: symbol(target, handler.address),
            at_call: true,
            ..Site::new(place, opcode)
        });
    }
    Some(call.probe(kernel, "entry", sites, types.cloned().unwrap_or_default()))
}

/// The name of the function at an address.
fn symbol(target: &Target, address: u64) -> Option<Arc<str>> {
    target.symbols().at(address).map(|at| Arc::clone(&at.symbol.name))
}

/// The return of a system call; `None` if not all tasks that return from it are seen.
fn returned(target: &Target, kernel: &Arc<Kernel>, call: &Call<'_>, exits: &[Exit]) -> Option<Probe> {
    let forks = FORKS.contains(&call.name);
    let sees_new = |exit: &Exit| matches!(exit.who, Who::All | Who::New);
    if forks && !exits.iter().any(sees_new) {
        return None;
    }
    let comes = |exit: &&Exit| match exit.who {
        Who::All => true,
        Who::From(Entry::Native) => !call.numbers(0).is_empty(),
        Who::From(Entry::Compat) => !call.numbers(1).is_empty(),
        Who::New => forks,
    };
    let sites: Vec<Site> =
        exits.iter().filter(comes).map(|exit| site(target, kernel, call, exit)).collect::<Option<_>>()?;
    let long = || ArgumentType::native("long");
    (!sites.is_empty()).then(|| call.probe(kernel, "return", sites, vec![long(), long()]))
}

fn site(target: &Target, kernel: &Arc<Kernel>, call: &Call<'_>, exit: &Exit) -> Option<Site> {
    let (place, opcode) = place(target, exit.address)?;
    let saved = Saved { width: kernel.width, entry: Entry::Native };
    let child = target.symbols().sole(CHILD).map(|symbol| symbol.addr..symbol.end());
    let Exit { regs, in_ax, who, .. } = *exit;
    let when = Returns {
        kernel: Arc::clone(kernel),
        saved,
        native: call.numbers(0),
        compat: call.numbers(1),
        regs,
        who,
        child: child.filter(|_| who == Who::All && !FORKS.contains(&call.name)),
    };
    Some(Site {
        when: Some(Arc::new(when)),
        arguments: Arc::new(AtReturn { kernel: Arc::clone(kernel), saved, regs, in_ax }),
        rule: "return of the system call, by its number",
        shown: vec!["long".to_owned(); 2],
        within: Some(Arc::clone(&exit.within)),
        offset: target.symbols().at(exit.address).map_or(0, |at| at.offset),
        at_call: who == Who::All,
        ..Site::new(place, opcode)
    })
}

/// The prototypes that a kernel with CONFIG_FTRACE_SYSCALLS carries, if their symbols are known.
struct Metadata {
    types: BTreeMap<String, Vec<ArgumentType>>,
}

/// The words of the image at an address.
struct Words<'a> {
    plan: &'a LoadPlan,
    word: u64,
}

impl Words<'_> {
    fn at(&self, at: u64) -> Option<u64> {
        let bytes = self.plan.bytes_at(at, self.word as usize)?;
        let mut word = [0; 8];
        word.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some(u64::from_le_bytes(word))
    }

    fn u32(&self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(*self.plan.bytes_at(at, 4)?.first_chunk()?))
    }

    fn text(&self, at: u64) -> Option<String> {
        let mut text = Vec::new();
        while text.len() < 128 {
            match self.plan.bytes_at(at.checked_add(text.len() as u64)?, 1)?.first()? {
                0 => return String::from_utf8(text).ok(),
                byte => text.push(*byte),
            }
        }
        None
    }
}

impl Metadata {
    fn read(target: &Target, kernel: &Kernel) -> Self {
        let words = Words { plan: target.image().plan(), word: kernel.word() };
        let address = |name: &str| target.symbols().sole(name).map(|symbol| symbol.addr);
        let range = address("__start_syscalls_metadata").zip(address("__stop_syscalls_metadata"));
        let (start, stop) = range.unwrap_or_default();
        let count = stop.saturating_sub(start) / words.word;
        let entries = (0..count.min(4096)).map(|n| start + n * words.word);
        Self { types: entries.filter_map(|at| one(&words, words.at(at)?)).collect() }
    }
}

/// The name and the parameters of a system call, from its `struct syscall_metadata`.
fn one(words: &Words<'_>, at: u64) -> Option<(String, Vec<ArgumentType>)> {
    let name = words.text(words.at(at)?)?.strip_prefix("sys_")?.to_owned();
    // The name; the number and the count, 32 bits each; types and names.
    let count = u64::from(words.u32(at + words.word + 4)?);
    let types = at + words.word + 8;
    let list = |n: u64, of: u64| words.text(words.at(words.at(of)? + n * words.word)?);
    let one = |n| Some(ArgumentType::named(&list(n, types)?, &list(n, types + words.word)?));
    let parameters = (0..count.min(u64::from(MOST))).map(one).collect::<Option<Vec<_>>>()?;
    Some((name, parameters))
}
