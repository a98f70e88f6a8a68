//! BTF, the type information that a Linux kernel carries: where members lie, and what functions take.
//!
//! The format is the kernel documentation's `bpf/btf.rst`. It is read in place: parsing checks every type's extent and
//! remembers where it begins, everything else is looked up in the bytes. No library is used, because the existing ones
//! copy each of the 130,000 types and names of a kernel on loading. The data may come from a guest: all walks through
//! types are bounded, and an invalid id or name is "unknown".

mod described;

use std::ops::Range;
use std::sync::Arc;

use super::SymbolError;
use crate::load::{ElfView, Width};

const MAGIC: u16 = 0xeb9f;
/// Bytes of the header of version 1.
const HEADER: usize = 24;
/// Bytes that every type begins with: name, info, size or type.
const COMMON: usize = 12;
/// How deep types and anonymous members are followed.
const DEPTH: usize = 16;
/// Longest name, bytes, and most parameters of a function (KSYM_NAME_LEN is 512).
const MAX_NAME: usize = 512;
const MAX_PARAMETERS: usize = 64;
/// Members that one search visits.
const BUDGET: usize = 1 << 14;

/// Why BTF cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// Not BTF.
    #[error("this is not BTF: it begins with {magic:#06x}; it must be {MAGIC:#06x}")]
    Magic {
        /// The first two bytes.
        magic: u16,
    },
    /// Another version.
    #[error("the BTF version is {version}; it must be 1")]
    Version {
        /// The third byte.
        version: u8,
    },
    /// A part extends past the end.
    #[error("BTF is truncated or damaged: its {what} ends at {end:#x}, but there are {len:#x} bytes")]
    Truncated {
        /// The part.
        what: &'static str,
        /// Where it would end.
        end: u64,
        /// Bytes of the BTF.
        len: usize,
    },
    /// A type that does not fit.
    #[error("BTF is damaged: type {id} at offset {at:#x} {what}")]
    Type {
        /// Its number from 1.
        id: usize,
        /// Its offset in the BTF.
        at: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// The kind of a type (`BTF_KIND_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Pointer,
    Array,
    Struct,
    Union,
    Enum,
    Forward,
    Typedef,
    Volatile,
    Const,
    Restrict,
    Function,
    Prototype,
    Variable,
    DataSection,
    Float,
    DeclTag,
    TypeTag,
    Enum64,
}

const KINDS: [Kind; 19] = [
    Kind::Int,
    Kind::Pointer,
    Kind::Array,
    Kind::Struct,
    Kind::Union,
    Kind::Enum,
    Kind::Forward,
    Kind::Typedef,
    Kind::Volatile,
    Kind::Const,
    Kind::Restrict,
    Kind::Function,
    Kind::Prototype,
    Kind::Variable,
    Kind::DataSection,
    Kind::Float,
    Kind::DeclTag,
    Kind::TypeTag,
    Kind::Enum64,
];

impl Kind {
    /// Bytes after the common ones, for a type with `entries` entries.
    fn extra(self, entries: usize) -> usize {
        match self {
            Self::Int | Self::Variable | Self::DeclTag => 4,
            Self::Array => 12,
            Self::Struct | Self::Union | Self::DataSection | Self::Enum64 => entries * 12,
            Self::Enum | Self::Prototype => entries * 8,
            _ => 0,
        }
    }

    /// True if it names or qualifies another type.
    fn is_alias(self) -> bool {
        matches!(self, Self::Typedef | Self::Volatile | Self::Const | Self::Restrict | Self::TypeTag)
    }
}

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bits from the start of the structure asked for.
    pub bit_offset: u64,
    /// Bits of a bit field.
    pub bits: Option<u32>,
    /// Bytes of its type, if that is known.
    pub size: Option<u64>,
}

impl Member {
    /// Bytes from the start of the structure; of a bit field those before its first bit.
    pub fn offset(&self) -> u64 {
        self.bit_offset / 8
    }
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name; empty for `...`.
    pub name: String,
    /// Its type as C writes it; `...` for a variable list.
    pub type_name: String,
}

/// The types of a kernel.
#[derive(Clone, Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    strings: Range<usize>,
    /// Where types 1, 2, ... begin.
    types: Vec<u32>,
    pointer: u64,
    /// Whether enumerations have a flag that says that they are signed.
    has_signs: bool,
    /// The kernel's types, which those of a module go on counting from.
    base: Option<Arc<Btf>>,
}

/// A type's common bytes.
#[derive(Clone, Copy)]
struct Type<'a> {
    kind: Kind,
    /// `kind_flag`.
    flag: bool,
    name: u32,
    /// Size or type.
    value: u32,
    extra: &'a [u8],
}

impl Btf {
    /// The BTF in the section `.BTF` of the kernel `bytes`; `None` if it has none.
    ///
    /// # Errors
    /// The file is not an ELF file for x86, or its BTF is damaged.
    pub fn from_vmlinux(bytes: &[u8]) -> Result<Option<Self>, SymbolError> {
        let view = ElfView::parse(bytes)?;
        let Some(section) = view.sections().iter().find(|section| section.name == ".BTF") else {
            return Ok(None);
        };
        Ok(Some(Self::parse(view.section_bytes(section)?, view.width())?))
    }

    /// Reads `bytes`, the types of a machine of `width`.
    ///
    /// # Errors
    /// The invalid part, and its place.
    pub fn parse(bytes: &[u8], width: Width) -> Result<Self, BtfError> {
        let len = bytes.len();
        let u32_at = |at: usize| read_u32(bytes, at).unwrap_or(0);
        let magic = u32_at(0) as u16;
        if len < HEADER {
            return Err(BtfError::Truncated { what: "header", end: HEADER as u64, len });
        }
        if magic != MAGIC {
            return Err(BtfError::Magic { magic });
        }
        if let Some(version) = bytes.get(2).filter(|version| **version != 1) {
            return Err(BtfError::Version { version: *version });
        }
        let part = |what, offset: u32, size: u32| {
            let start = u64::from(u32_at(4)) + u64::from(offset);
            let end = start + u64::from(size);
            if end <= len as u64 {
                Ok(start as usize..end as usize)
            } else {
                Err(BtfError::Truncated { what, end, len })
            }
        };
        let types = part("type section", u32_at(8), u32_at(12))?;
        let strings = part("string section", u32_at(16), u32_at(20))?;
        let types = index(bytes, types)?;
        let pointer = u64::from(width.bits() / 8);
        let signs = |found: Type<'_>| found.kind == Kind::Enum64 || found.kind == Kind::Enum && found.flag;
        let has_signs = types.iter().filter_map(|at| type_at(bytes, *at as usize)).any(signs);
        Ok(Self { bytes: bytes.to_vec(), strings, types, pointer, has_signs, base: None })
    }

    /// The BTF in the section `.BTF` of a kernel module, whose numbers and names go on from those of its kernel;
    /// `None` if it has none.
    ///
    /// # Errors
    /// As [`Btf::from_vmlinux`].
    pub fn from_module(bytes: &[u8], kernel: Arc<Self>) -> Result<Option<Self>, SymbolError> {
        Ok(Self::from_vmlinux(bytes)?.map(|own| Self { base: Some(kernel), ..own }))
    }

    /// The number of the first type of its own.
    fn own_from(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.types.len()) + 1
    }

    /// Number of types.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Bytes of `struct name` or `union name`.
    pub fn size_of(&self, name: &str) -> Option<u64> {
        Some(self.structure(name)?.value.into())
    }

    /// The member `path` of `struct name`: names joined by dots; members of anonymous members are found by their own
    /// name, as in C.
    pub fn member(&self, name: &str, path: &str) -> Option<Member> {
        let mut inside = self.structure(name)?;
        let mut base = 0;
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            let mut budget = BUDGET;
            let (mut member, id) = self.named_member(inside, part, DEPTH, &mut budget)?;
            member.bit_offset += base;
            if parts.peek().is_none() {
                return Some(member);
            }
            base = member.bit_offset;
            inside = self.plain(id)?;
        }
        None
    }

    /// The parameters of the function `name`.
    pub fn parameters(&self, name: &str) -> Option<Vec<Parameter>> {
        let function = self.all().find(|found| found.kind == Kind::Function && self.is_named(found, name))?;
        self.prototype(function)
    }

    /// Every function with its parameters, in the order of the types.
    pub fn functions(&self) -> impl Iterator<Item = (String, Vec<Parameter>)> {
        self.all()
            .filter(|found| found.kind == Kind::Function)
            .filter_map(|found| Some((self.name(found.name)?, self.prototype(found)?)))
    }

    fn prototype(&self, function: Type<'_>) -> Option<Vec<Parameter>> {
        let prototype = self.get(function.value).filter(|found| found.kind == Kind::Prototype)?;
        let parameter = |entry: &[u8]| {
            let (name, id) = (read_u32(entry, 0)?, read_u32(entry, 4)?);
            let type_name = if name == 0 && id == 0 { "...".to_owned() } else { self.type_name(id, DEPTH) };
            Some(Parameter { name: self.name(name)?, type_name })
        };
        prototype.extra.chunks_exact(8).take(MAX_PARAMETERS).map(parameter).collect()
    }

    /// A type as C writes it; arrays and functions are shortened.
    fn type_name(&self, id: u32, depth: usize) -> String {
        if id == 0 {
            return "void".to_owned();
        }
        let Some((found, left)) = self.get(id).zip(depth.checked_sub(1)) else { return "?".to_owned() };
        let own = || self.name(found.name).unwrap_or_default();
        let inner = || self.type_name(found.value, left);
        match found.kind {
            Kind::Pointer => match inner() {
                name if name.ends_with('*') => format!("{name}*"),
                name => format!("{name} *"),
            },
            Kind::Struct => format!("struct {}", own()),
            Kind::Union => format!("union {}", own()),
            Kind::Enum | Kind::Enum64 => format!("enum {}", own()),
            Kind::Forward => format!("{} {}", if found.flag { "union" } else { "struct" }, own()),
            Kind::Const => format!("const {}", inner()),
            Kind::Volatile => format!("volatile {}", inner()),
            Kind::Restrict | Kind::TypeTag => inner(),
            Kind::Array => {
                format!("{}[]", self.type_name(read_u32(found.extra, 0).unwrap_or(0), left))
            }
            Kind::Prototype => "(function)".to_owned(),
            _ => own(),
        }
    }

    /// The structure `name`; a mere declaration does not count.
    fn structure(&self, name: &str) -> Option<Type<'_>> {
        self.all()
            .find(|found| matches!(found.kind, Kind::Struct | Kind::Union) && self.is_named(found, name))
    }

    /// The type without names and qualifiers.
    fn plain(&self, id: u32) -> Option<Type<'_>> {
        let mut found = self.get(id)?;
        for _ in 0..DEPTH {
            if !found.kind.is_alias() {
                return Some(found);
            }
            found = self.get(found.value)?;
        }
        None
    }

    fn size(&self, id: u32, depth: usize) -> Option<u64> {
        let found = self.plain(id)?;
        match found.kind {
            Kind::Int | Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Float => {
                Some(found.value.into())
            }
            Kind::Pointer => Some(self.pointer),
            Kind::Array => {
                let one = self.size(read_u32(found.extra, 0)?, depth.checked_sub(1)?)?;
                one.checked_mul(read_u32(found.extra, 8)?.into())
            }
            _ => None,
        }
    }

    /// The member and its type's id.
    fn named_member(
        &self,
        inside: Type<'_>,
        name: &str,
        depth: usize,
        budget: &mut usize,
    ) -> Option<(Member, u32)> {
        if !matches!(inside.kind, Kind::Struct | Kind::Union) {
            return None;
        }
        let left = depth.checked_sub(1)?;
        for entry in inside.extra.chunks_exact(12) {
            *budget = budget.checked_sub(1)?;
            let (own, id, place) = (read_u32(entry, 0)?, read_u32(entry, 4)?, read_u32(entry, 8)?);
            let (offset, bits) = match inside.flag {
                true => (place & 0xff_ffff, place >> 24),
                false => (place, 0),
            };
            if own == 0 {
                if let Some((mut member, id)) =
                    self.plain(id).and_then(|inner| self.named_member(inner, name, left, budget))
                {
                    member.bit_offset += u64::from(offset);
                    return Some((member, id));
                }
            } else if self.is_string(own, name) {
                let bits = (bits != 0).then_some(bits);
                return Some((Member { bit_offset: offset.into(), bits, size: self.size(id, DEPTH) }, id));
            }
        }
        None
    }

    fn all(&self) -> impl Iterator<Item = Type<'_>> {
        self.types.iter().filter_map(|at| type_at(&self.bytes, *at as usize))
    }

    fn get(&self, id: u32) -> Option<Type<'_>> {
        match (&self.base, (id as usize).checked_sub(self.own_from())) {
            (Some(base), None) => base.get(id),
            (_, own) => type_at(&self.bytes, *self.types.get(own?)? as usize),
        }
    }

    fn string(&self, at: u32) -> Option<&[u8]> {
        if let Some(base) = &self.base {
            let Some(own) = at.checked_sub(base.strings.len() as u32) else { return base.string(at) };
            return self.own_string(own);
        }
        self.own_string(at)
    }

    fn own_string(&self, at: u32) -> Option<&[u8]> {
        let rest = self.bytes.get(self.strings.clone())?.get(at as usize..)?;
        rest.get(..MAX_NAME.min(rest.len()))?.split(|byte| *byte == 0).next()
    }

    fn name(&self, at: u32) -> Option<String> {
        Some(String::from_utf8_lossy(self.string(at)?).into_owned())
    }

    fn is_named(&self, found: &Type<'_>, name: &str) -> bool {
        self.is_string(found.name, name)
    }

    fn is_string(&self, at: u32, name: &str) -> bool {
        if self.base.is_some() {
            return self.string(at) == Some(name.as_bytes());
        }
        let strings = self.bytes.get(self.strings.clone()).unwrap_or_default();
        let here = strings.get(at as usize..).unwrap_or_default();
        here.starts_with(name.as_bytes()) && here.get(name.len()) == Some(&0)
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Where each type begins.
fn index(bytes: &[u8], section: Range<usize>) -> Result<Vec<u32>, BtfError> {
    let mut types = Vec::with_capacity(section.len() / 24);
    let mut at = section.start;
    while at < section.end {
        let wrong = |what| BtfError::Type { id: types.len() + 1, at, what };
        let info = read_u32(bytes, at + 4).ok_or_else(|| wrong("is cut off"))?;
        let kind = kind_of(info).ok_or_else(|| wrong("has a kind that is not one of 1 to 19"))?;
        let next = at + COMMON + kind.extra((info & 0xffff) as usize);
        if next > section.end {
            return Err(wrong("reaches beyond the type section"));
        }
        types.push(u32::try_from(at).map_err(|_| wrong("lies beyond 4 GiB"))?);
        at = next;
    }
    Ok(types)
}

fn kind_of(info: u32) -> Option<Kind> {
    KINDS.get(((info >> 24 & 0x1f) as usize).checked_sub(1)?).copied()
}

fn type_at(bytes: &[u8], at: usize) -> Option<Type<'_>> {
    let (name, info, value) = (read_u32(bytes, at)?, read_u32(bytes, at + 4)?, read_u32(bytes, at + 8)?);
    let kind = kind_of(info)?;
    let start = at + COMMON;
    let extra = bytes.get(start..start + kind.extra((info & 0xffff) as usize))?;
    Some(Type { kind, flag: info >> 31 != 0, name, value, extra })
}

#[cfg(test)]
#[path = "btf_tests.rs"]
mod tests;
