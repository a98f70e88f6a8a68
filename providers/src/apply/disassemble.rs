//! The instructions of a function in the guest's files, and how a probe on each would be displaced.
//!
//! It finds the function, decodes its instructions, names branch targets and memory, and asks the interposer
//! how each instruction would be displaced. The caller prints the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use iced_x86::{
    Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, OpKind, SymbolResolver, SymbolResult,
};
use trapline_emu::symbols::{Ambiguous, Named, Symbol, Symbols, UserModule};
use trapline_interposer::{Place, Way, way_of, why};
use trapline_os::CodePointer;

use crate::target::{Code, NoModule, Target, basename};

/// Most bytes of a function that are disassembled.
const MAX_FUNCTION: u64 = 1 << 20;
/// Most near misses that an error names.
const SUGGESTIONS: usize = 3;

/// Why a function cannot be disassembled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DisassembleError {
    /// No function has that name.
    #[error("there is no function `{name}`{}", did_you_mean(.near))]
    Unknown {
        /// The name.
        name: String,
        /// Names that resemble it.
        near: Vec<String>,
    },
    /// No function of the kernel is at an address.
    #[error("no function of the kernel is at {0:#x}")]
    NothingThere(u64),
    /// No function of a user module is at an address.
    #[error("no function of {1} is at {0:#x}")]
    NothingIn(u64, String),
    /// Several functions have the name.
    #[error("{0}; write one of these addresses instead of the name")]
    Ambiguous(#[from] Ambiguous),
    /// Several user modules have a function of the name.
    #[error("`{name}` is ambiguous: {first} has a function of this name, and so {} {others} other{}; write {}:{name}",
        if *others == 1 { "has" } else { "have" }, if *others == 1 { "" } else { "s" }, basename(first))]
    InModules {
        /// The name.
        name: String,
        /// The first module.
        first: String,
        /// The number of the other modules.
        others: usize,
    },
    /// There is no such user module.
    #[error("there is no user module `{0}`")]
    UnknownModule(String),
    /// The module's name is ambiguous, or a path that leads elsewhere.
    #[error(transparent)]
    Module(#[from] NoModule),
    /// The name belongs to data.
    #[error("`{0}` is not code")]
    NotCode(String),
    /// The function has no bytes in the file.
    #[error("`{0}` has no bytes in the file")]
    NoBytes(String),
}

fn did_you_mean(near: &[String]) -> String {
    let names: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Linear address, as linked.
    pub address: u64,
    /// The location of a probe point here: the address, or the offset in the module's file.
    pub place: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Intel syntax, with names for branch targets and memory.
    pub text: String,
    /// Target of a near branch.
    pub target: Option<u64>,
    /// How it is displaced.
    pub way: Way,
    /// Why it is displaced in this way.
    pub why: &'static str,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disassembly {
    /// Name of its kernel or module, without folders.
    pub module: String,
    /// Whether it is in a user module.
    pub user: bool,
    /// Its name.
    pub name: String,
    /// Its linear address, as linked.
    pub address: u64,
    /// Its instructions, in order.
    pub lines: Vec<Line>,
}

impl Disassembly {
    /// The line that a probe point patches, and the byte that its first one becomes, if it is in this function.
    pub fn patch_at(&self, place: &Place) -> Option<(usize, u8)> {
        let (behind, patch) = place.patch()?;
        let at = match place {
            Place::Kernel { linear, .. } | Place::LockNop { linear, .. } if !self.user => *linear,
            Place::User { module, offset }
            | Place::UserExit { module, offset, .. }
            | Place::IsEnabled { module, offset }
                if self.user && basename(module.name()) == self.module =>
            {
                *offset
            }
            _ => return None,
        };
        let at = at.wrapping_add(behind);
        Some((self.lines.iter().position(|line| line.place == at)?, patch))
    }
}

/// Disassembles the function `name`: of the kernel, else of the module that has it; `module:name` is the function
/// of the user module `module`, `0xADDRESS` the function of the kernel that has this address, `module:0xADDRESS` that of the
/// module.
///
/// # Errors
/// See [`DisassembleError`].
pub fn disassemble(target: &Target, name: &str) -> Result<Disassembly, DisassembleError> {
    let plan = target.image().plan();
    let kernel = || Code::Kernel { plan, symbols: target.symbols() };
    if let Some(digits) = name.strip_prefix("0x")
        && let Ok(address) = u64::from_str_radix(digits, 16)
    {
        let there = target.symbols().at(address).map(|found| found.symbol);
        let function = there.filter(|symbol| symbol.is_function());
        let symbol = function.ok_or(DisassembleError::NothingThere(address))?;
        return listing(target, symbol, kernel());
    }
    if let Some((module, function)) = name.split_once(':') {
        let module = target.module(module).map_err(|why| match why {
            NoModule::Unknown => DisassembleError::UnknownModule(module.to_owned()),
            why => why.into(),
        })?;
        return listing(target, in_module(module, function, name)?, Code::User(module));
    }
    if let Some(symbol) = function_named(target.symbols(), name).one()? {
        return listing(target, symbol, kernel());
    }
    let has_it = |module: &&Arc<UserModule>| function_named(module.symbols(), name) != Named::Nothing;
    match target.modules().iter().filter(has_it).collect::<Vec<_>>().as_slice() {
        [] => Err(DisassembleError::Unknown { name: name.to_owned(), near: near(target, name) }),
        [module] => listing(target, in_module(module, name, name)?, Code::User(module)),
        [first, others @ ..] => Err(DisassembleError::InModules {
            name: name.to_owned(),
            others: others.len(),
            first: first.name().to_owned(),
        }),
    }
}

/// The functions with a name; if there is none, the other symbols with it.
fn function_named<'a>(symbols: &'a Symbols, name: &str) -> Named<'a> {
    let all = symbols.named(name).all();
    let functions: Vec<&Symbol> = all.iter().copied().filter(|symbol| symbol.is_function()).collect();
    Named::of(if functions.is_empty() { all } else { functions })
}

/// The symbol of a function of a user module, by its name or its address; `name` is what was asked for.
fn in_module<'a>(module: &'a UserModule, function: &str, name: &str) -> Result<&'a Symbol, DisassembleError> {
    if let Some(address) = function.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok())
    {
        let there = module.symbols().at(address).map(|found| found.symbol);
        let there = there.filter(|symbol| symbol.is_function());
        return there.ok_or_else(|| DisassembleError::NothingIn(address, module.name().to_owned()));
    }
    let near = |name: &str| module.symbols().near_misses(name, SUGGESTIONS);
    function_named(module.symbols(), function).one()?.ok_or_else(|| DisassembleError::Unknown {
        name: name.to_owned(),
        near: near(function).into_iter().map(|f| format!("{}:{f}", basename(module.name()))).collect(),
    })
}

/// Names in any module that resemble `name`.
fn near(target: &Target, name: &str) -> Vec<String> {
    let of = |symbols: &Symbols| -> Vec<String> {
        symbols.near_misses(name, SUGGESTIONS).into_iter().map(str::to_owned).collect()
    };
    let mut names = of(target.symbols());
    names.extend(target.modules().iter().flat_map(|module| of(module.symbols())));
    names.truncate(SUGGESTIONS);
    names
}

fn listing(target: &Target, symbol: &Symbol, code: Code<'_>) -> Result<Disassembly, DisassembleError> {
    let name = symbol.name.to_string();
    let (module, start) = match code {
        Code::Kernel { plan, .. } => (basename(&plan.name), Some(symbol.addr)),
        Code::User(module) => (basename(module.name()), module.vaddr_to_offset(symbol.addr)),
    };
    let start = start.ok_or_else(|| DisassembleError::NoBytes(name.clone()))?;
    match code.is_executable(start) {
        Some(true) => {}
        Some(false) => return Err(DisassembleError::NotCode(name)),
        None => return Err(DisassembleError::NoBytes(name)),
    }
    let size = usize::try_from(symbol.size.clamp(1, MAX_FUNCTION)).unwrap_or(1);
    let bytes = code.bytes(start, size);
    let decoder = Decoder::with_ip(code.bits(), &bytes, symbol.addr, DecoderOptions::NONE);
    let names = OperandNames::of(decoder, |at| target.symbol(CodePointer::At(at)));
    Ok(Disassembly {
        module: module.to_owned(),
        user: matches!(code, Code::User(_)),
        lines: lines(&bytes, symbol.addr, start, code.bits(), names),
        address: symbol.addr,
        name,
    })
}

/// The decoded instructions; a byte that does not decode becomes a line of one byte.
fn lines(bytes: &[u8], address: u64, start: u64, bits: u32, names: OperandNames) -> Vec<Line> {
    let mut formatter = IntelFormatter::with_options(Some(Box::new(names)), None);
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let ip = address.wrapping_add(at as u64);
        let instruction = Decoder::with_ip(bits, rest, ip, DecoderOptions::NONE).decode();
        let len = if instruction.is_invalid() { 1 } else { instruction.len().min(rest.len()) };
        let own = rest.get(..len).unwrap_or(rest);
        let mut text = String::new();
        if instruction.is_invalid() {
            text.push_str("(no instruction)");
        } else {
            formatter.format(&instruction, &mut text);
        }
        lines.push(Line {
            address: ip,
            place: start.wrapping_add(at as u64),
            bytes: own.to_vec(),
            text,
            target: near_branch(&instruction),
            way: way_of(own, ip, bits),
            why: why(own, ip, bits),
        });
        at += len;
    }
    lines
}

fn near_branch(i: &Instruction) -> Option<u64> {
    let kind = (i.op_count() > 0).then(|| i.op0_kind())?;
    matches!(kind, OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
        .then(|| i.near_branch_target())
}

/// The names of all addresses in the operands of instructions.
pub struct OperandNames(BTreeMap<u64, String>);

impl OperandNames {
    /// Those that `name` knows.
    pub fn of(
        instructions: impl IntoIterator<Item = Instruction>,
        mut name: impl FnMut(u64) -> Option<String>,
    ) -> Self {
        let mut names = BTreeMap::new();
        let mut note = |at: u64| {
            if let Some(name) = name(at) {
                names.insert(at, name);
            }
        };
        for i in instructions {
            if let Some(at) = near_branch(&i) {
                note(at);
            }
            if i.memory_displ_size() > 1 {
                note(i.memory_displacement64());
            }
        }
        Self(names)
    }
}

impl SymbolResolver for OperandNames {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _: u32,
        operand: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        use OpKind as K;
        let kind = instruction.try_op_kind(operand?).ok()?;
        let named = matches!(kind, K::NearBranch16 | K::NearBranch32 | K::NearBranch64 | K::Memory);
        let name = self.0.get(&address).filter(|_| named)?;
        Some(SymbolResult::with_str(address, name))
    }
}
