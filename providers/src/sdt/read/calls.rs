//! Static probes that are calls to functions which do not exist, as Solaris compiles them.
//!
//! A kernel calls `__dtrace_probe_NAME`; a user program calls `__dtrace_PROVIDER___NAME`, and asks
//! `__dtraceenabled_PROVIDER___NAME` whether the probe is enabled. Each leaves a relocation against an undefined
//! symbol: in relocatable modules always, in images if they were linked with `-q` (`--emit-relocs`). The loader turns
//! the call into five bytes that do nothing:
//!
//! | Site | Loaded as | Patched |
//! |---|---|---|
//! | kernel, `e8` call | `90 90 90 90 90` | `f0` at 1: `lock nop`, #UD |
//! | kernel, `e9` tail call | `90 90 90 90 c3` | `f0` at 1 |
//! | user, `e8` | `90 90 90 90 90` | `cc` at 0 |
//! | user, `e9` | `c3 90 90 90 90` | `cc` at 0 |
//! | is-enabled, `e8` | `48 33 c0 90 90`, in 32-bit code `33 c0 90 90 90` | `cc` at 3, at 2 |
//! | is-enabled, `e9` | `48 33 c0 c3 90`, in 32-bit code `33 c0 c3 90 90` | `cc` at 3, at 2 |
//!
//! Two underscores in a name become one `-`. Source: docs/providers.md, "Calls to functions that do not exist".

use super::operand::{Argument, Format, Memory, Operand};
use super::register::Register;
use crate::object::elf::{Definitions, Relocation, check_sections, relocations};
use std::collections::BTreeMap;
use trapline_emu::load::elf::Section;
use trapline_emu::load::{ElfError, ElfView, Width};

/// Bytes of a call.
const CALL: usize = 5;
/// R_X86_64_PC32 and R_386_PC32; R_X86_64_PLT32 and R_386_PLT32.
const RELATIVE: [u32; 2] = [2, 4];
/// R_X86_64_GLOB_DAT and R_X86_64_JUMP_SLOT, with the same numbers for IA32: entries of the tables that a linker makes
/// for calls, which are not calls.
const TABLES: [u32; 2] = [6, 7];
/// R_386_32: adds the value of a symbol.
const R_386_32: u8 = 1;
/// The provider of a kernel's sites.
const KERNEL_PROVIDER: &str = "sdt";
/// First arguments of a call in 64-bit code (System V ABI, AMD64 supplement, 3.2.3).
const ARGUMENT_REGISTERS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];

/// The same in code of 32 bits that is compiled with `-mregparm=3` (GCC, "x86 Function Attributes", regparm).
const REGPARM_REGISTERS: [&str; 3] = ["eax", "edx", "ecx"];

/// The kind of file, which determines the names of the functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// A kernel's and its modules': `__dtrace_probe_NAME`.
    Kernel,
    /// User programs': `__dtrace_PROVIDER___NAME` and `__dtraceenabled_PROVIDER___NAME`.
    User,
}

/// The purpose of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A probe of a kernel.
    Kernel,
    /// A probe of a user program.
    User,
    /// An is-enabled call of a user program: AX must be 1 while the probe is enabled. It does not fire the probe.
    IsEnabled,
}

/// One site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSite {
    /// Its provider; `sdt` for a kernel's.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// The function that it lies in, empty if no symbol covers it.
    pub function: String,
    /// Its purpose.
    pub purpose: Purpose,
    /// Whether it is a tail call: a jump.
    pub tail: bool,
    /// Whether the file already has the bytes that a loader writes.
    pub loaded: bool,
    /// Width of the code.
    pub width: Width,
    /// Index of its section.
    pub section: usize,
    /// Address of its first byte as linked; in a relocatable file the offset in its section.
    pub address: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// File offsets of its relocation and symbol.
    found_at: (u64, u64),
}

/// A refused relocation that names a probe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the probe site at {address:#x} of section {section}, {symbol}: {kind}")]
pub struct CallError {
    /// The address in the relocation.
    pub address: u64,
    /// Its section.
    pub section: String,
    /// The symbol.
    pub symbol: String,
    /// What is wrong.
    pub kind: CallErrorKind,
}

/// What is wrong with a relocation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallErrorKind {
    /// The function exists.
    #[error("the file defines this function; a probe is a call to one that does not exist")]
    Defined,
    /// It is not a relocation of a call.
    #[error("its relocation has type {0}; it must be 2 (PC32) or 4 (PLT32)")]
    Type(u32),
    /// Not in code.
    #[error("it is not five bytes of executable code")]
    NotCode,
    /// Another instruction.
    #[error(
        "its bytes {0:02x?} are neither a call (e8) nor a jump (e9), nor the bytes that a loader writes over them"
    )]
    Instruction([u8; CALL]),
    /// Two sites in one place.
    #[error("it overlaps the site before it")]
    Overlap,
    /// A name that no probe can have.
    #[error("{0:?} is not a name; use letters, digits and punctuation except `:`")]
    Name(String),
}

/// The sites of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallSites {
    /// The sites, by section and address.
    pub sites: Vec<CallSite>,
    /// The refused entries.
    pub refused: Vec<CallError>,
}

impl CallSites {
    /// Finds the sites of a relocatable module, or of a program or image whose relocations were kept.
    ///
    /// # Errors
    /// A table of the file lies outside it.
    pub fn read(view: &ElfView<'_>, domain: Domain) -> Result<Self, ElfError> {
        check_sections(view)?;
        let mut found = Self::default();
        let definitions = Definitions::of(view)?;
        for table in view.sections() {
            let index = table.info as usize;
            let Some(section) = view.sections().get(index) else { continue };
            // In a relocatable file, offsets count from the section, whose address is 0.
            let all = relocations(view, table)?;
            for relocation in all.into_iter().filter(|relocation| !TABLES.contains(&relocation.kind)) {
                let Some((purpose, provider, name)) = probe_name(&relocation.symbol, domain) else {
                    continue;
                };
                let site = Found { view, section, index, relocation: &relocation, purpose };
                match site.check(provider, name, &definitions) {
                    Ok(site) => found.sites.push(site),
                    Err(kind) => found.refused.push(site.error(kind)),
                }
            }
        }
        found.sites.sort_by_key(|site| (site.section, site.address));
        found.refuse_overlaps(view);
        Ok(found)
    }

    /// Sites of one provider, function and name are one probe.
    pub fn probes(&self) -> BTreeMap<(&str, &str, &str), Vec<&CallSite>> {
        let mut probes: BTreeMap<_, Vec<&CallSite>> = BTreeMap::new();
        for site in self.sites.iter().filter(|site| site.purpose != Purpose::IsEnabled) {
            probes.entry((&*site.provider, &*site.function, &*site.name)).or_default().push(site);
        }
        probes
    }

    /// The file `bytes` with these sites, as a loader that supports such probes changes it: each call becomes the
    /// bytes that do nothing, its relocation becomes one that does nothing and its symbol weak, so that no other loader
    /// requires it. In a kernel's code of 32 bits that relocation is 32, which adds the weak symbol's 0: Linux refuses a
    /// module of IA32 with NONE (arch/x86/kernel/module.c).
    pub fn load_into(&self, bytes: &mut [u8]) {
        for site in self.sites.iter().filter(|site| !site.loaded) {
            let (relocation, symbol) = site.found_at;
            let (kind, info): ((u64, &[u8]), u64) = match (site.width, site.purpose) {
                (Width::Bits32, Purpose::Kernel) => ((4, &[R_386_32]), 12),
                (Width::Bits32, _) => ((4, &[0]), 12),
                (Width::Bits64, _) => ((8, &[0; 4]), 4),
            };
            put(bytes, site.offset, &site.loaded_bytes());
            put(bytes, relocation.saturating_add(kind.0), kind.1);
            // STB_WEAK, STT_NOTYPE.
            put(bytes, symbol.saturating_add(info), &[0x20]);
        }
    }

    fn refuse_overlaps(&mut self, view: &ElfView<'_>) {
        let mut end = None;
        let mut refused = Vec::new();
        self.sites.retain(|site| {
            let overlaps = end.is_some_and(|(section, end)| section == site.section && site.address < end);
            if overlaps {
                let section = view.sections().get(site.section);
                refused.push(CallError {
                    address: site.address,
                    section: section.map(|section| section.name.clone()).unwrap_or_default(),
                    symbol: format!("{}:{}", site.provider, site.name),
                    kind: CallErrorKind::Overlap,
                });
            } else {
                end = Some((site.section, site.address.saturating_add(CALL as u64)));
            }
            !overlaps
        });
        self.refused.extend(refused);
    }
}

fn put(bytes: &mut [u8], at: u64, what: &[u8]) {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    if let Some(place) = at.checked_add(what.len()).and_then(|end| bytes.get_mut(at..end)) {
        place.copy_from_slice(what);
    }
}

/// Purpose, provider and name in a symbol, if it is that of a probe.
fn probe_name(symbol: &str, domain: Domain) -> Option<(Purpose, &str, &str)> {
    match domain {
        Domain::Kernel => Some((Purpose::Kernel, KERNEL_PROVIDER, symbol.strip_prefix("__dtrace_probe_")?)),
        Domain::User => {
            let asks = symbol.strip_prefix("__dtraceenabled_").map(|rest| (Purpose::IsEnabled, rest));
            let (purpose, rest) = asks.or(symbol.strip_prefix("__dtrace_").map(|r| (Purpose::User, r)))?;
            let (provider, name) = rest.split_once("___")?;
            Some((purpose, provider, name))
        }
    }
}

/// Replaces `__` by `-`, from the left.
fn dashed(name: &str) -> String {
    name.replace("__", "-")
}

/// A relocation that names a probe.
struct Found<'a> {
    view: &'a ElfView<'a>,
    section: &'a Section,
    index: usize,
    relocation: &'a Relocation,
    purpose: Purpose,
}

impl Found<'_> {
    fn check(
        &self,
        provider: &str,
        name: &str,
        definitions: &Definitions,
    ) -> Result<CallSite, CallErrorKind> {
        for text in [provider, name] {
            if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic() && c != ':') {
                return Err(CallErrorKind::Name(text.to_owned()));
            }
        }
        if !self.relocation.is_undefined() {
            return Err(CallErrorKind::Defined);
        }
        let address = self.relocation.offset.checked_sub(1).ok_or(CallErrorKind::NotCode)?;
        let (offset, bytes) = self.code(address).ok_or(CallErrorKind::NotCode)?;
        let mut site = CallSite {
            provider: provider.to_owned(),
            name: dashed(name),
            function: definitions.function(self.index, address).unwrap_or_default().to_owned(),
            purpose: self.purpose,
            tail: bytes.first() == Some(&0xe9),
            loaded: false,
            width: self.view.width(),
            section: self.index,
            address,
            offset,
            found_at: (self.relocation.at, self.relocation.symbol_at),
        };
        if matches!(bytes.first(), Some(0xe8 | 0xe9)) {
            return match self.relocation.kind {
                kind if RELATIVE.contains(&kind) => Ok(site),
                kind => Err(CallErrorKind::Type(kind)),
            };
        }
        site.loaded = true;
        for tail in [false, true] {
            site.tail = tail;
            if site.loaded_bytes() == bytes {
                return Ok(site);
            }
        }
        Err(CallErrorKind::Instruction(bytes))
    }

    /// File offset and the five bytes at an address of the section.
    fn code(&self, address: u64) -> Option<(u64, [u8; CALL])> {
        let into = address.checked_sub(self.section.addr).filter(|_| self.section.is_executable())?;
        let content = self.view.section_bytes(self.section).ok()?;
        let bytes = *content.get(usize::try_from(into).ok()?..)?.first_chunk()?;
        Some((self.section.offset.checked_add(into)?, bytes))
    }

    fn error(&self, kind: CallErrorKind) -> CallError {
        CallError {
            address: self.relocation.offset.saturating_sub(1),
            section: self.section.name.clone(),
            symbol: self.relocation.symbol.clone(),
            kind,
        }
    }
}

impl CallSite {
    /// The five bytes that a loader writes.
    pub fn loaded_bytes(&self) -> [u8; CALL] {
        match (self.purpose, self.width, self.tail) {
            (Purpose::Kernel | Purpose::User, _, false) => [0x90; CALL],
            (Purpose::Kernel, _, true) => [0x90, 0x90, 0x90, 0x90, 0xc3],
            (Purpose::User, _, true) => [0xc3, 0x90, 0x90, 0x90, 0x90],
            (Purpose::IsEnabled, Width::Bits64, false) => [0x48, 0x33, 0xc0, 0x90, 0x90],
            (Purpose::IsEnabled, Width::Bits64, true) => [0x48, 0x33, 0xc0, 0xc3, 0x90],
            (Purpose::IsEnabled, Width::Bits32, false) => [0x33, 0xc0, 0x90, 0x90, 0x90],
            (Purpose::IsEnabled, Width::Bits32, true) => [0x33, 0xc0, 0xc3, 0x90, 0x90],
        }
    }

    /// The byte that is patched while it is enabled, and its new value.
    pub fn patch(&self) -> (u8, u8) {
        match (self.purpose, self.width) {
            (Purpose::Kernel, _) => (1, 0xf0),
            (Purpose::User, _) => (0, 0xcc),
            (Purpose::IsEnabled, Width::Bits64) => (3, 0xcc),
            (Purpose::IsEnabled, Width::Bits32) => (2, 0xcc),
        }
    }

    /// The location of argument `number` of the call, from 0, at the site. Nothing was pushed for a call that
    /// is not made; before a tail call the return address of the site's function is on top of the stack. With `regparm`, code
    /// of 32 bits passes the first words in registers; it means nothing for code of 64 bits.
    pub fn argument(&self, number: u8, regparm: bool) -> Argument {
        let word = (self.width.bits() / 8) as u8;
        let (registers, stack): (&[&str], Register) = match self.width {
            Width::Bits32 if regparm => (&REGPARM_REGISTERS, Register::ESP),
            Width::Bits32 => (&[], Register::ESP),
            Width::Bits64 => (&ARGUMENT_REGISTERS, Register::RSP),
        };
        let in_registers = registers.len() as u8;
        let register = registers.get(usize::from(number));
        let operand = match register.and_then(|name| Register::named(name)) {
            Some(register) => Operand::Register(register),
            None => {
                let slot = i64::from(number - in_registers) + i64::from(self.tail);
                let displacement = slot * i64::from(word);
                Operand::Memory(Memory { displacement, base: Some(stack), ..Memory::default() })
            }
        };
        Argument { format: Format::unsigned(word), operand }
    }
}
