//! The syntax tree of a probe program file, with symbols still symbolic.
//!
//! The parser makes it, the printer prints it, and the linker resolves it.
//! It is not checked code: only [`crate::Verified`] can run.

use std::sync::Arc;

use crate::diag::Diagnostics;
use crate::instructions::Op;
use crate::signature::Signed;
use crate::source::{Sources, Span};

/// The kind of the module named in the file header (`modtype =`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModType {
    /// The kernel.
    Kernel,
    /// A kernel module.
    Kmod,
    /// A user-space executable or shared library; the default.
    #[default]
    User,
}

impl ModType {
    /// The word of the language.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Kmod => "kmod",
            Self::User => "user",
        }
    }

    /// Whether probes of such a module run in kernel mode.
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::Kmod)
    }
}

/// The file header (man page, PROBE PROGRAM FILE HEADER), with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    /// `name =`, case kept.
    pub name: String,
    /// `modtype =`.
    pub modtype: ModType,
    /// `vars =`: local variables, at most 65,536.
    pub vars: u32,
    /// `gvars =`: global variables, at most 65,536.
    pub gvars: u32,
    /// `groupdef =`.
    pub groups: Vec<String>,
    /// `typedef =`.
    pub types: Vec<String>,
    /// `major =`.
    pub major: u32,
    /// `id =`.
    pub id: u32,
    /// `logmax =`: bytes a handler may log in one run, at most 65,535.
    pub logmax: u32,
    /// `jmpmax =`: taken jumps and loops in one run.
    pub jmpmax: u32,
    /// `logonfault =`.
    pub logonfault: bool,
    /// `excpt_mask =`: a set bit lets that exception be generated.
    pub excpt_mask: u32,
    /// `excpt_log =`: bytes of the stack trace buffer, at most 65,535.
    pub excpt_log: u32,
    /// `autostacktrace =`.
    pub autostacktrace: bool,
}

impl Default for FileHeader {
    fn default() -> Self {
        Self {
            name: String::new(),
            modtype: ModType::User,
            vars: 0,
            gvars: 0,
            groups: Vec::new(),
            types: Vec::new(),
            major: 0,
            id: 0,
            logmax: 1024,
            jmpmax: 256,
            logonfault: false,
            excpt_mask: 0x0fff,
            excpt_log: 1024,
            autostacktrace: false,
        }
    }
}

/// A sum of numbers and symbols; arithmetic is modulo the guest's word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expr {
    /// The terms in the order written.
    pub terms: Vec<Term>,
    /// Its place in the source.
    pub span: Span,
}

/// One term of an [`Expr`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Whether it is subtracted.
    pub negative: bool,
    /// The added or subtracted value.
    pub atom: Atom,
    /// Its place in the source.
    pub span: Span,
}

/// The value of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Atom {
    /// A number.
    Number(u64),
    /// A symbol, case kept, resolved at link time.
    Symbol(String),
}

impl Expr {
    /// The value, when it has no symbols and fits 128 bits (it always does with at most 4096 terms).
    #[must_use]
    pub fn constant(&self) -> Option<i128> {
        self.terms.iter().try_fold(0i128, |sum, term| match term.atom {
            Atom::Number(n) => sum.checked_add(if term.negative { -i128::from(n) } else { i128::from(n) }),
            Atom::Symbol(_) => None,
        })
    }

    /// The probe description that takes the place of a symbol: a text with a colon, which no symbol has. `file.c:123`,
    /// a name and a number, is a source line.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        let source_line = |name: &str| {
            let parts = name.split_once(':');
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            parts.is_some_and(|(file, line)| !file.is_empty() && is_number(line))
        };
        match self.terms.as_slice() {
            [Term { negative: false, atom: Atom::Symbol(name), .. }]
                if name.contains(':') && !source_line(name) =>
            {
                Some(name)
            }
            _ => None,
        }
    }

    /// The symbols named, in order.
    pub fn symbols(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().filter_map(|t| match &t.atom {
            Atom::Symbol(name) => Some(name.as_str()),
            Atom::Number(_) => None,
        })
    }
}

/// The location of a probe point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `offset =`: within the module, or a symbol of it.
    Offset(Expr),
    /// `address =`: an absolute linear address (or the low end of a range).
    Address(Expr, Option<Expr>),
}

impl Location {
    /// The expression of the location.
    #[must_use]
    pub const fn expr(&self) -> &Expr {
        match self {
            Self::Offset(e) | Self::Address(e, _) => e,
        }
    }
}

/// The access that hits a watchpoint (`watchpoint =`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Watch {
    /// `x`: execution.
    Execute,
    /// `w`: a write.
    Write,
    /// `rw`: a read or a write.
    ReadWrite,
    /// `io`: a read or write of a port.
    Io,
}

impl Watch {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Execute, Self::Write, Self::ReadWrite, Self::Io];

    /// The word of the language.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Execute => "x",
            Self::Write => "w",
            Self::ReadWrite => "rw",
            Self::Io => "io",
        }
    }
}

/// A probe point with its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbePoint {
    /// `offset =` or `address =`.
    pub location: Location,
    /// `watchpoint =`; `None` for a breakpoint probe.
    pub watch: Option<Watch>,
    /// `opcode =`: the first byte at the location; 0 for a watchpoint without it.
    pub opcode: u8,
    /// `minor =`.
    pub minor: u32,
    /// `ignore =`: hits to skip before the handler first runs.
    pub ignore: u32,
    /// `maxhits =`: hits after which the probe point disables itself.
    pub maxhits: u32,
    /// `group =`.
    pub group: Option<String>,
    /// `type =`.
    pub kind: Option<String>,
    /// `logonfault =` of this probe point, which overrides that of the file.
    pub logonfault: Option<bool>,
    /// `excpt_mask =` of this probe point, which overrides that of the file.
    pub excpt_mask: Option<u32>,
    /// The handler.
    pub handler: Routine,
    /// Where the probe point's definition starts.
    pub span: Span,
}

/// Default of `maxhits`.
pub const MAXHITS_DEFAULT: u32 = 0x7fff_ffff;

/// A handler or a procedure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routine {
    /// The procedure's name as written; empty for a handler.
    pub name: String,
    /// Its instructions.
    pub body: Vec<Instr>,
    /// Where it starts.
    pub span: Span,
}

/// One instruction with the labels in front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instr {
    /// Labels, as written.
    pub labels: Vec<String>,
    /// The instruction.
    pub op: Op,
    /// Its operand.
    pub operand: Operand,
    /// Its place in the source.
    pub span: Span,
}

/// The operand of an [`Instr`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// None.
    None,
    /// A label or procedure name, as written.
    Name(String),
    /// A value, perhaps with symbols.
    Value(Expr),
    /// A register, by index.
    Register(u8),
    /// A count, variable index or displacement, already in range.
    Number(i64),
}

/// A parsed probe program file.
#[derive(Debug, Clone)]
pub struct Program {
    /// The file header.
    pub header: FileHeader,
    /// The probe points in the order of the file.
    pub probes: Vec<ProbePoint>,
    /// The procedures in the order of the file.
    pub procs: Vec<Routine>,
    /// The warnings.
    pub warnings: Diagnostics,
    /// Its source texts.
    pub sources: Arc<Sources>,
    /// The signature of the PPDF file that it was read from. It counts only as long as the program is that of the file:
    /// [`Program::signer`](crate::Program::signer) checks it.
    pub(crate) signed: Option<Signed>,
}
