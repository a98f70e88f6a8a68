//! The sites that Linux prepares for patching: entries of functions, static keys, static calls, tracepoints.
//!
//! | Table | Entry | Site |
//! |---|---|---|
//! | `__mcount_loc` | address | `call __fentry__` or its 5-byte NOP, at a function's entry |
//! | `__jump_table` | relative code and target, key; bits 0 and 1 of the key are flags | a NOP or a jump of 2 or 5 bytes |
//! | `.static_call_sites` | relative code and key; bit 0 of the key is a tail call | a call, a jump, or their replacement |
//! | `__tracepoints_ptrs` | relative address of a `struct tracepoint`: name, static key | those of its key |
//!
//! A kernel rewrites these sites while it runs, so each site is checked for all bytes that may be there. An invalid
//! entry is refused alone. A tracepoint that is off does not pass its arguments. While the guest has switched it on,
//! it calls its listener through the static call `tp_func_NAME`: one listener directly, several through
//! `__traceiter_NAME`, which calls each. So the arguments are passed by the calling convention at that call.
//! Source: Linux 6.1, include/linux/{jump_label,static_call_types,tracepoint-defs,trace_events}.h.

use super::kernel::KernelFile;
use super::operand::{Argument, Format, Memory, Operand};
use super::register::Register;
use crate::object::elf::word;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::collections::BTreeMap;
use trapline_emu::load::Width;

/// Longest name of a tracepoint or its system.
const LONGEST_NAME: usize = 128;
/// Longest instruction.
const LONGEST: usize = 15;
/// Most entries of a valid table.
const MOST: u64 = 1 << 20;

/// The instruction at a site in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A NOP of this many bytes.
    Nop(u8),
    /// A call of this many bytes.
    Call(u8),
    /// A jump of this many bytes.
    Jump(u8),
    /// Another instruction of a static call: a return, `xor eax, eax`.
    Other(u8),
}

/// A static key's site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JumpLabel {
    /// Address of the site.
    pub site: u64,
    /// Its target when it is a jump.
    pub target: u64,
    /// The key, without its flags.
    pub key: u64,
    /// Whether the branch is the likely one.
    pub likely: bool,
    /// The instruction there.
    pub standing: Standing,
}

/// A static call's site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticCall {
    /// Address of the site.
    pub site: u64,
    /// The called name, without `__SCK__` or `__SCT__`; empty if there is no symbol.
    pub name: String,
    /// Whether it is a tail call.
    pub tail: bool,
    /// The instruction there.
    pub standing: Standing,
}

/// A tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its name, `sched_switch`.
    pub name: String,
    /// The system of its event, `sched`; empty if it has no event, or it cannot be found by symbols.
    pub system: String,
    /// Address of its `struct tracepoint`.
    pub address: u64,
    /// Its NOPs, ascending.
    pub sites: Vec<u64>,
    /// Address of `__traceiter_NAME`, which calls the listeners where there are several.
    pub iterator: Option<u64>,
}

/// Prefix of the name of a tracepoint's static call.
const LISTENER: &str = "tp_func_";

impl StaticCall {
    /// The tracepoint whose listener it calls.
    pub fn tracepoint(&self) -> Option<&str> {
        self.name.strip_prefix(LISTENER)
    }
}

/// A refused entry, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinuxError {
    /// The size of a table is not a multiple of its entries, or too large.
    #[error("{table} has {size:#x} bytes; it must be a multiple of {entry}, with fewer than {MOST} entries")]
    Table {
        /// Its name.
        table: &'static str,
        /// Its bytes.
        size: u64,
        /// Bytes of an entry.
        entry: u64,
    },
    /// An entry that cannot be read.
    #[error("entry {index} of {table} is not in the file")]
    Missing {
        /// The table.
        table: &'static str,
        /// Which.
        index: u64,
    },
    /// The instruction is not valid for the table.
    #[error(
        "entry {index} of {table} points to {site:#x}, where the bytes are {found:02x?}; they must be {wanted}"
    )]
    Site {
        /// The table.
        table: &'static str,
        /// Which.
        index: u64,
        /// The site.
        site: u64,
        /// The bytes there; empty if it is not in the file.
        found: Vec<u8>,
        /// The valid instructions.
        wanted: &'static str,
    },
    /// A tracepoint without a readable name.
    #[error(
        "entry {index} of __tracepoints_ptrs points to {address:#x}, where there is no tracepoint with a name"
    )]
    Name {
        /// Which.
        index: u64,
        /// The address in it.
        address: u64,
    },
}

/// The sites of a kernel or module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinuxSites {
    /// Entries of functions.
    pub entries: Vec<u64>,
    /// Static keys.
    pub labels: Vec<JumpLabel>,
    /// Static calls.
    pub calls: Vec<StaticCall>,
    /// Tracepoints by name.
    pub tracepoints: Vec<Tracepoint>,
    /// The refused entries.
    pub refused: Vec<LinuxError>,
}

impl LinuxSites {
    /// Reads the tables of `file`; a missing table is empty.
    pub fn read(file: &KernelFile) -> Self {
        let mut found = Self::default();
        found.read_entries(file);
        found.read_labels(file);
        found.read_calls(file);
        found.read_tracepoints(file);
        found
    }

    fn read_entries(&mut self, file: &KernelFile) {
        const TABLE: &str = "__mcount_loc";
        let bytes = u64::from(file.width().bits() / 8);
        let range = file.table(TABLE, "__start_mcount_loc", "__stop_mcount_loc");
        for (index, at) in self.entries_of(TABLE, range, bytes) {
            let Some(site) = pointer(file, at) else {
                self.refused.push(LinuxError::Missing { table: TABLE, index });
                continue;
            };
            match standing(file, site) {
                Some(Standing::Call(5) | Standing::Nop(5)) => self.entries.push(site),
                _ => self.refuse(file, TABLE, index, site, "a call or a NOP of 5 bytes"),
            }
        }
        self.entries.sort_unstable();
        self.entries.dedup();
    }

    fn read_labels(&mut self, file: &KernelFile) {
        const TABLE: &str = "__jump_table";
        let word = u64::from(file.width().bits() / 8);
        let range = file.table(TABLE, "__start___jump_table", "__stop___jump_table");
        for (index, at) in self.entries_of(TABLE, range, 8 + word) {
            let key = pointer(file, at + 8).map(|key| (at + 8).wrapping_add(key) & file.width().max_addr());
            let (Some(site), Some(target), Some(key)) = (relative(file, at), relative(file, at + 4), key)
            else {
                self.refused.push(LinuxError::Missing { table: TABLE, index });
                continue;
            };
            match standing(file, site) {
                Some(here @ (Standing::Nop(2 | 5) | Standing::Jump(2 | 5))) => {
                    let (likely, key) = (key & 1 != 0, key & !3);
                    self.labels.push(JumpLabel { site, target, key, likely, standing: here });
                }
                _ => self.refuse(file, TABLE, index, site, "a NOP or a jump of 2 or 5 bytes"),
            }
        }
        self.labels.sort_by_key(|label| label.site);
    }

    fn read_calls(&mut self, file: &KernelFile) {
        const TABLE: &str = ".static_call_sites";
        let range = file.table(TABLE, "__start_static_call_sites", "__stop_static_call_sites");
        for (index, at) in self.entries_of(TABLE, range, 8) {
            let (Some(site), Some(key)) = (relative(file, at), relative(file, at + 4)) else {
                self.refused.push(LinuxError::Missing { table: TABLE, index });
                continue;
            };
            // If symbols name functions only, the trampoline that the file calls gives the name.
            let name =
                file.name_at(key & !3).or_else(|| file.name_at(target(file, site)?)).unwrap_or_default();
            let name =
                name.strip_prefix("__SCK__").or(name.strip_prefix("__SCT__")).unwrap_or(name).to_owned();
            match standing(file, site) {
                Some(standing) => {
                    self.calls.push(StaticCall { site, name, tail: key & 1 != 0, standing });
                }
                None => self.refuse(file, TABLE, index, site, "a call, a jump, a NOP or a return"),
            }
        }
        self.calls.sort_by_key(|call| call.site);
    }

    fn read_tracepoints(&mut self, file: &KernelFile) {
        const TABLE: &str = "__tracepoints_ptrs";
        let bytes = u64::from(file.width().bits() / 8);
        let range = file.table(TABLE, "__start___tracepoints_ptrs", "__stop___tracepoints_ptrs");
        let mut by_key: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for label in &self.labels {
            by_key.entry(label.key).or_default().push(label.site);
        }
        for (index, at) in self.entries_of(TABLE, range, 4) {
            let Some(address) = relative(file, at) else {
                self.refused.push(LinuxError::Missing { table: TABLE, index });
                continue;
            };
            let name = pointer(file, address).and_then(|name| file.text(name, LONGEST_NAME));
            let Some(name) = name.filter(|name| is_name(name)) else {
                self.refused.push(LinuxError::Name { index, address });
                continue;
            };
            self.tracepoints.push(Tracepoint {
                name: name.to_owned(),
                system: system(file, name).unwrap_or_default().to_owned(),
                address,
                // The key is the second member.
                sites: by_key.get(&address.wrapping_add(bytes)).cloned().unwrap_or_default(),
                iterator: file.address(&format!("__traceiter_{name}")),
            });
        }
        self.tracepoints.sort_by(|a, b| (&a.name, a.address).cmp(&(&b.name, b.address)));
    }

    /// Number and address of each entry of a table.
    fn entries_of(
        &mut self,
        table: &'static str,
        range: Option<std::ops::Range<u64>>,
        entry: u64,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let range = range.unwrap_or(0..0);
        let size = range.end.wrapping_sub(range.start);
        let count = size / entry;
        let right = size.is_multiple_of(entry) && count < MOST;
        if !right {
            self.refused.push(LinuxError::Table { table, size, entry });
        }
        (0..if right { count } else { 0 }).map(move |n| (n, range.start + n * entry))
    }

    fn refuse(
        &mut self,
        file: &KernelFile,
        table: &'static str,
        index: u64,
        site: u64,
        wanted: &'static str,
    ) {
        let found = file.prefix(site, 5).to_vec();
        self.refused.push(LinuxError::Site { table, index, site, found, wanted });
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The number of an address's width at an address.
fn pointer(file: &KernelFile, at: u64) -> Option<u64> {
    word(file.bytes(at, (file.width().bits() / 8) as usize)?, file.width())
}

/// The address in the 4 bytes at `at`, which are relative to `at`.
fn relative(file: &KernelFile, at: u64) -> Option<u64> {
    let by = i32::from_le_bytes(*file.bytes(at, 4)?.first_chunk()?);
    Some(at.wrapping_add_signed(by.into()) & file.width().max_addr())
}

/// The instruction at a site.
fn standing(file: &KernelFile, site: u64) -> Option<Standing> {
    let bytes = file.prefix(site, LONGEST);
    let instruction = Decoder::with_ip(file.width().bits(), bytes, site, DecoderOptions::NONE).decode();
    let len = instruction.len() as u8;
    match instruction.mnemonic() {
        Mnemonic::INVALID => None,
        Mnemonic::Nop => Some(Standing::Nop(len)),
        Mnemonic::Call if instruction.is_call_near() => Some(Standing::Call(len)),
        Mnemonic::Jmp if instruction.is_jmp_short_or_near() => Some(Standing::Jump(len)),
        // In 32-bit code a NOP of 5 bytes is `lea esi, ds:[esi]`.
        Mnemonic::Lea if bytes.starts_with(&[0x3e, 0x8d, 0x74, 0x26, 0]) => Some(Standing::Nop(len)),
        Mnemonic::Ret | Mnemonic::Xor => Some(Standing::Other(len)),
        _ => None,
    }
}

/// Target of the call or jump at a site in the file.
fn target(file: &KernelFile, site: u64) -> Option<u64> {
    let bytes = file.prefix(site, LONGEST);
    let instruction = Decoder::with_ip(file.width().bits(), bytes, site, DecoderOptions::NONE).decode();
    Some(instruction.near_branch_target()).filter(|target| *target != 0)
}

/// The system of a tracepoint's event: `event_NAME`, its class after a list head, the class's first member.
fn system<'a>(file: &'a KernelFile, name: &str) -> Option<&'a str> {
    let event = file.address(&format!("event_{name}"))?;
    let class = pointer(file, event.wrapping_add(u64::from(file.width().bits() / 4)))?;
    file.text(pointer(file, class)?, LONGEST_NAME).filter(|text| is_name(text))
}

/// The locations of a tracepoint's arguments at the first byte of its `__traceiter_NAME`, given the format of each. The
/// first argument belongs to the function itself. 64-bit kernels use the registers of a call, then the stack; 32-bit
/// kernels are compiled with `-mregparm=3`: EAX, EDX, ECX, then the stack for the first argument that does not fit and
/// all after it. `None` for an argument of 64 bits in two registers, which no operand can express.
pub fn tracepoint_arguments(width: Width, formats: &[Format]) -> Vec<Option<Argument>> {
    // The return address is on top of the stack.
    passed(width, formats, 1)
}

/// The same at the instruction that calls the listener: a call, before it has pushed its return address, or a jump.
pub fn tracepoint_call_arguments(width: Width, formats: &[Format], tail: bool) -> Vec<Option<Argument>> {
    passed(width, formats, i64::from(tail))
}

/// The arguments after the listener's own first one, with `above` words on top of those on the stack.
fn passed(width: Width, formats: &[Format], above: i64) -> Vec<Option<Argument>> {
    let (registers, bytes): (&[&str], u8) = match width {
        Width::Bits32 => (&["eax", "edx", "ecx"], 4),
        Width::Bits64 => (&["rdi", "rsi", "rdx", "rcx", "r8", "r9"], 8),
    };
    let stack = if width == Width::Bits64 { Register::RSP } else { Register::ESP };
    // The first register holds the listener's own argument.
    let (mut next, mut slot) = (1, above);
    let mut place = |format: &Format| {
        let words = usize::from(format.bytes.div_ceil(bytes).max(1));
        let (first, fits) = (next, next + words <= registers.len());
        next = if fits { next + words } else { registers.len() };
        let operand = if !fits {
            let displacement = slot * i64::from(bytes);
            slot += words as i64;
            Operand::Memory(Memory { displacement, base: Some(stack), ..Memory::default() })
        } else if words == 1 {
            Operand::Register(registers.get(first).and_then(|name| Register::named(name))?)
        } else {
            return None;
        };
        Some(Argument { format: *format, operand })
    };
    formats.iter().map(&mut place).collect()
}
