//! Checks whether a place in a file can be a probe point: mapped, executable, at the start of an instruction that
//! begins with the byte the program expects.
//!
//! Instruction boundaries are found by decoding from the start of the function that contains the place. If there is
//! no such function, or part of it does not decode, the boundary is not checked.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
use trapline_emu::load::LoadPlan;
use trapline_emu::symbols::{SymbolAt, Symbols, UserModule};

use super::basename;

/// Longest x86 instruction, bytes.
const MAX_INSTRUCTION: usize = 15;
/// Most instruction bytes that a message shows.
const SHOWN: usize = 8;

/// The code of a kernel image or a user module. A kernel's positions are virtual addresses, a module's are file
/// offsets.
#[derive(Debug, Clone, Copy)]
pub enum Code<'a> {
    /// The kernel.
    Kernel {
        /// Its image.
        plan: &'a LoadPlan,
        /// Its symbols.
        symbols: &'a Symbols,
    },
    /// A user module.
    User(&'a UserModule),
}

/// Why a place cannot be a probe point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The place is outside the module.
    #[error("{place} is not in {module}, which has {ranges}")]
    NotMapped {
        /// The place.
        place: String,
        /// The kernel or module.
        module: String,
        /// The ranges of the module.
        ranges: String,
    },
    /// The place is not executable.
    #[error("{place} is not executable: it lies in {what} of {module}")]
    NotExecutable {
        /// The place.
        place: String,
        /// Section or segment.
        what: String,
        /// The kernel or module.
        module: String,
    },
    /// The place is inside an instruction.
    #[error(
        "{place} lies inside the instruction `{instruction}` ({bytes}), which begins at {start} and ends before {end}"
    )]
    InsideInstruction {
        /// The place.
        place: String,
        /// The instruction in Intel syntax.
        instruction: String,
        /// Its bytes.
        bytes: String,
        /// Its start.
        start: String,
        /// Its end.
        end: String,
    },
    /// The opcode differs from that in the program.
    #[error("opcode = {expected:#04x}, but the byte at {place} is {found:#04x} ({bytes})")]
    OpcodeMismatch {
        /// The place.
        place: String,
        /// The opcode in the program.
        expected: u8,
        /// The byte in the file.
        found: u8,
        /// The instruction there and its bytes.
        bytes: String,
    },
}

impl Refusal {
    /// A stable name of the kind of refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotMapped { .. } => "not-mapped",
            Self::NotExecutable { .. } => "not-executable",
            Self::InsideInstruction { .. } => "inside-instruction",
            Self::OpcodeMismatch { .. } => "opcode-mismatch",
        }
    }

    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::InsideInstruction { start, end, .. } => {
                Some(format!("the nearest instructions begin at {start} and {end}"))
            }
            Self::OpcodeMismatch { found, .. } => Some(format!(
                "the program may have been written for another file; opcode = {found:#04x} matches this one"
            )),
            Self::NotMapped { .. } | Self::NotExecutable { .. } => None,
        }
    }
}

impl Code<'_> {
    /// Checks that a probe that expects `opcode` can be put at `at`.
    ///
    /// # Errors
    /// The first of the [`Refusal`]s that holds, in their order.
    pub fn check(&self, at: u64, opcode: u8) -> Result<(), Refusal> {
        match self.is_executable(at) {
            None => return Err(self.not_mapped(at)),
            Some(false) => return Err(self.not_executable(at)),
            Some(true) => {}
        }
        if let Some((start, instruction)) = self.instruction_around(at)
            && start < at
        {
            let end = start + instruction.len() as u64;
            return Err(Refusal::InsideInstruction {
                place: self.place(at),
                instruction: text(&instruction),
                bytes: hex(&self.bytes(start, instruction.len())),
                start: self.place(start),
                end: self.place(end),
            });
        }
        let bytes = self.bytes(at, MAX_INSTRUCTION);
        match bytes.first() {
            None => Err(self.not_mapped(at)),
            Some(found) if *found != opcode => Err(Refusal::OpcodeMismatch {
                place: self.place(at),
                expected: opcode,
                found: *found,
                bytes: self.describe(&bytes),
            }),
            Some(_) => Ok(()),
        }
    }

    /// Up to `len` bytes at `at`, fewer at the end of the file's code.
    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let exactly = |len| match self {
            Self::Kernel { plan, .. } => plan.bytes_at(at, len),
            Self::User(module) => module.bytes_at(at, len).map(<[u8]>::to_vec),
        };
        (1..=len).rev().find_map(exactly).unwrap_or_default()
    }

    /// `do_fork+0x2 (0xc0100c63)` or, without a symbol, the number alone; a module's offset says so.
    pub fn place(&self, at: u64) -> String {
        let number = match self {
            Self::Kernel { .. } => format!("{at:#x}"),
            Self::User(_) => format!("file offset {at:#x}"),
        };
        match self.symbol(at) {
            Some(symbol) => format!("{symbol} ({number})"),
            None => number,
        }
    }

    /// The kernel or module of the code.
    fn name(&self) -> &str {
        match self {
            Self::Kernel { plan, .. } => basename(&plan.name),
            Self::User(module) => basename(module.name()),
        }
    }

    fn symbol(&self, at: u64) -> Option<SymbolAt<'_>> {
        match self {
            Self::Kernel { symbols, .. } => symbols.at(at),
            Self::User(module) => module.symbol_at_offset(at),
        }
    }

    pub(crate) fn is_executable(&self, at: u64) -> Option<bool> {
        match self {
            Self::Kernel { plan, .. } => plan.is_executable(at),
            Self::User(module) => module.is_executable_offset(at),
        }
    }

    pub(crate) fn bits(&self) -> u32 {
        match self {
            Self::Kernel { plan, .. } => plan.width.bits(),
            Self::User(module) => module.width().bits(),
        }
    }

    /// The instruction that covers `at`, found by decoding its function from the start.
    fn instruction_around(&self, at: u64) -> Option<(u64, Instruction)> {
        let symbol = self.symbol(at).filter(|symbol| symbol.symbol.is_function())?;
        let start = at.checked_sub(symbol.offset)?;
        let into = usize::try_from(symbol.offset).ok()?;
        let bytes = self.bytes(start, into.checked_add(MAX_INSTRUCTION)?);
        let mut decoder = Decoder::with_ip(self.bits(), &bytes, start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return None;
            }
            if instruction.next_ip() > at {
                return Some((instruction.ip(), instruction));
            }
        }
        None
    }

    /// The instruction that `bytes` begin with, and its bytes.
    fn describe(&self, bytes: &[u8]) -> String {
        let instruction = Decoder::new(self.bits(), bytes, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return hex(bytes.get(..SHOWN.min(bytes.len())).unwrap_or(bytes));
        }
        let own = bytes.get(..instruction.len()).unwrap_or(bytes);
        format!("{}: `{}`", hex(own), text(&instruction))
    }

    fn not_mapped(&self, at: u64) -> Refusal {
        let (place, module) = (self.place(at), self.name().to_owned());
        let ranges = match self {
            Self::Kernel { plan, .. } => {
                let ranges = plan.segments.iter().map(|s| (s.vaddr, s.vaddr.saturating_add(s.mem_size)));
                ranges_text("the addresses", ranges)
            }
            Self::User(module) => {
                let loaded = module.segments().iter().filter(|s| s.file_size > 0);
                let ranges = loaded.map(|s| (s.offset, s.offset.saturating_add(s.file_size)));
                ranges_text("the file offsets", ranges)
            }
        };
        Refusal::NotMapped { place, module, ranges }
    }

    fn not_executable(&self, at: u64) -> Refusal {
        let what = match self {
            Self::Kernel { plan, .. } => match plan.section_at(at) {
                Some(section) => format!("the section {}", section.name),
                None if plan.sections.is_empty() => "a segment that is not executable".to_owned(),
                None => "a gap between the sections".to_owned(),
            },
            Self::User(_) => "a segment that is not executable".to_owned(),
        };
        Refusal::NotExecutable { place: self.place(at), what, module: self.name().to_owned() }
    }
}

fn ranges_text(what: &str, ranges: impl Iterator<Item = (u64, u64)>) -> String {
    let list: Vec<String> = ranges.map(|(start, end)| format!("{start:#x}..{end:#x}")).collect();
    if list.is_empty() { "nothing loaded".to_owned() } else { format!("{what} {}", list.join(", ")) }
}

fn text(instruction: &Instruction) -> String {
    let mut out = String::new();
    IntelFormatter::new().format(instruction, &mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}
