//! The types of DWARF, read once and kept: numbers are those of the entries in the order of the file, from 1.

use std::collections::{BTreeMap, BTreeSet};

use gimli::constants as dw;
use gimli::{AttributeValue, UnitRef};

use super::{DEPTH, Dwarf, Entry, Reader, entry_name};
use crate::symbols::{CMember, CName, CType, TypeInfo};

/// Most entries that are kept: those of a whole Linux kernel.
const MOST: usize = 1 << 24;

/// All types, names and variables of a file.
#[derive(Debug, Default)]
pub struct DwarfTypes {
    types: Vec<CType>,
    names: Vec<(CName, String, u32)>,
    /// The names of parameters, by the number of the function.
    parameters: BTreeMap<u32, Vec<String>>,
}

/// An entry as it was read; types are the offsets of their entries in the file.
#[derive(Debug)]
struct Raw {
    tag: gimli::DwTag,
    name: String,
    ty: Option<u64>,
    size: u32,
    encoding: gimli::DwAte,
    declared: bool,
    prototyped_variadic: bool,
    parts: Vec<Part>,
}

/// A member, parameter, enumerator or dimension.
#[derive(Debug)]
struct Part {
    name: String,
    ty: Option<u64>,
    /// The value of an enumerator, the length of a dimension, the bits before a member.
    number: i64,
    /// Bits of a bit-field.
    bits: Option<u32>,
    /// Of a bit-field that is counted from the upper end of its unit, which is as large as its type: bits above it.
    above: Option<i64>,
}

impl Dwarf {
    /// Its types. What is damaged is left out.
    pub fn types(&self) -> DwarfTypes {
        let mut raw = BTreeMap::new();
        for unit in self.units() {
            // A damaged unit counts up to the damage.
            let _ = read_unit(unit.unit_ref(&self.sections), &mut raw);
        }
        DwarfTypes::from_raw(&raw)
    }
}

/// The offset of an entry in the file.
fn place(unit: UnitRef<'_, Reader>, offset: gimli::UnitOffset) -> Option<u64> {
    Some(offset.to_debug_info_offset(&unit.header)?.0 as u64)
}

fn type_of(unit: UnitRef<'_, Reader>, entry: &Entry) -> Option<u64> {
    match entry.attr_value(dw::DW_AT_type)? {
        AttributeValue::UnitRef(offset) => place(unit, offset),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0 as u64),
        _ => None,
    }
}

fn number(entry: &Entry, name: gimli::DwAt) -> Option<u64> {
    entry.attr_value(name)?.udata_value()
}

/// A constant. Only the forms for signed numbers have a sign: compilers write 200 as one byte (DWARF 4, 7.5.4, leaves it
/// to the context), and gdb reads it so.
fn constant(entry: &Entry, name: gimli::DwAt) -> Option<i64> {
    match entry.attr_value(name)? {
        AttributeValue::Sdata(value) => Some(value),
        value => value.udata_value().map(|value| value as i64),
    }
}

/// Bytes from the start of a struct; `None` if they depend on more than the start. DWARF 2 has an expression that adds them
/// to the start.
fn member_offset(unit: UnitRef<'_, Reader>, entry: &Entry) -> Option<u64> {
    let expression = match entry.attr_value(dw::DW_AT_data_member_location) {
        None => return Some(0),
        Some(AttributeValue::Exprloc(expression)) => expression,
        Some(AttributeValue::Block(bytes)) => gimli::Expression(bytes),
        Some(_) => return constant(entry, dw::DW_AT_data_member_location)?.try_into().ok(),
    };
    let mut operations = expression.operations(unit.encoding());
    match (operations.next().ok()??, operations.next().ok()?) {
        (gimli::Operation::PlusConstant { value }, None) => Some(value),
        _ => None,
    }
}

fn read_unit(unit: UnitRef<'_, Reader>, raw: &mut BTreeMap<u64, Raw>) -> Result<(), gimli::Error> {
    let mut entries = unit.entries();
    // The entries that are open, by depth.
    let mut open: Vec<(isize, u64)> = Vec::new();
    while let Some(entry) = entries.next_dfs()? {
        let depth = entry.depth();
        open.retain(|(own, _)| *own < depth);
        let parent = open.last().filter(|(own, _)| *own + 1 == depth).map(|(_, at)| *at);
        if let Some(parent) = parent.and_then(|at| raw.get_mut(&at))
            && add_part(unit, parent, entry)
        {
            continue;
        }
        // A variable of a function is not one of the program.
        let local = entry.tag() == dw::DW_TAG_variable && depth != 1;
        let Some(at) = place(unit, entry.offset()).filter(|_| is_kept(entry.tag()) && !local) else {
            continue;
        };
        if raw.len() >= MOST {
            return Ok(());
        }
        raw.insert(at, read_entry(unit, entry));
        open.push((depth, at));
    }
    Ok(())
}

fn is_kept(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_base_type
            | dw::DW_TAG_pointer_type
            | dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type
            | dw::DW_TAG_array_type
            | dw::DW_TAG_structure_type
            | dw::DW_TAG_class_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_enumeration_type
            | dw::DW_TAG_typedef
            | dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type
            | dw::DW_TAG_subroutine_type
            | dw::DW_TAG_subprogram
            | dw::DW_TAG_variable
    )
}

fn read_entry(unit: UnitRef<'_, Reader>, entry: &Entry) -> Raw {
    let encoding = match entry.attr_value(dw::DW_AT_encoding) {
        Some(AttributeValue::Encoding(encoding)) => encoding,
        _ => dw::DW_ATE_unsigned,
    };
    Raw {
        tag: entry.tag(),
        name: entry_name(unit, entry).unwrap_or_default(),
        ty: type_of(unit, entry),
        size: number(entry, dw::DW_AT_byte_size).and_then(|size| u32::try_from(size).ok()).unwrap_or(0),
        encoding,
        declared: entry.attr_value(dw::DW_AT_declaration).is_some(),
        prototyped_variadic: false,
        parts: Vec::new(),
    }
}

/// Whether an entry is a part of its parent; then it is added.
fn add_part(unit: UnitRef<'_, Reader>, parent: &mut Raw, entry: &Entry) -> bool {
    let named = |ty, number| Part {
        name: entry_name(unit, entry).unwrap_or_default(),
        ty,
        number,
        bits: None,
        above: None,
    };
    let part = match (parent.tag, entry.tag()) {
        (
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type,
            dw::DW_TAG_member | dw::DW_TAG_inheritance,
        ) => {
            // A static member of C++ lies elsewhere; where one with a computed place lies is not known.
            if entry.attr_value(dw::DW_AT_declaration).is_some() {
                return true;
            }
            let Some(start) = member_offset(unit, entry) else { return true };
            member(entry, start, named(type_of(unit, entry), 0))
        }
        (dw::DW_TAG_enumeration_type, dw::DW_TAG_enumerator) => {
            named(None, constant(entry, dw::DW_AT_const_value).unwrap_or(0))
        }
        (dw::DW_TAG_array_type, dw::DW_TAG_subrange_type) => {
            let count = number(entry, dw::DW_AT_count);
            let last = || number(entry, dw::DW_AT_upper_bound).map(|last| last.wrapping_add(1));
            named(None, count.or_else(last).unwrap_or(0) as i64)
        }
        (dw::DW_TAG_subprogram | dw::DW_TAG_subroutine_type, dw::DW_TAG_formal_parameter) => {
            named(type_of(unit, entry), 0)
        }
        (dw::DW_TAG_subprogram | dw::DW_TAG_subroutine_type, dw::DW_TAG_unspecified_parameters) => {
            parent.prototyped_variadic = true;
            return true;
        }
        _ => return false,
    };
    parent.parts.push(part);
    true
}

/// A member at `start` bytes. Before DWARF 4 a bit-field is counted from the upper end of its unit, whose size is that of its
/// type if it has none of its own.
fn member(entry: &Entry, start: u64, part: Part) -> Part {
    let start = i64::try_from(start.saturating_mul(8)).unwrap_or(i64::MAX);
    let bits = number(entry, dw::DW_AT_bit_size).and_then(|bits| u32::try_from(bits).ok());
    let first = number(entry, dw::DW_AT_data_bit_offset).filter(|_| bits.is_some());
    let above = constant(entry, dw::DW_AT_bit_offset).filter(|_| first.is_none());
    let (Some(own), Some(above)) = (bits, above) else {
        return Part { number: first.map_or(start, |first| first as i64), bits, ..part };
    };
    let left = start.saturating_sub(above).saturating_sub(own.into());
    match number(entry, dw::DW_AT_byte_size) {
        Some(unit) => Part { number: left.saturating_add(unit.saturating_mul(8) as i64), bits, ..part },
        None => Part { number: start, bits, above: Some(above), ..part },
    }
}

/// Parts of the names of floating-point types with formats of their own.
const OTHER_FLOATS: [&str; 3] = ["bf16", "128", "Decimal"];

/// How the names of functions begin whose calls are static probes: nothing defines them.
const PROBE_CALL: &str = "__dtrace_";

impl DwarfTypes {
    fn from_raw(raw: &BTreeMap<u64, Raw>) -> Self {
        let numbers = raw.keys().copied().zip(1..).collect();
        let mut describing = Describing { raw, numbers, inner: Vec::new() };
        let mut found = Self::default();
        let mut probes = BTreeSet::new();
        for (own, raw) in (1..).zip(raw.values()) {
            let ty = describing.described(raw);
            let kind = match raw.tag {
                dw::DW_TAG_structure_type | dw::DW_TAG_class_type => Some((CName::Struct, own)),
                dw::DW_TAG_union_type => Some((CName::Union, own)),
                dw::DW_TAG_enumeration_type => Some((CName::Enum, own)),
                dw::DW_TAG_typedef => Some((CName::Typedef, own)),
                dw::DW_TAG_subprogram => Some((CName::Function, own)),
                dw::DW_TAG_variable => Some((CName::Variable, describing.id(raw.ty))),
                _ => None,
            };
            let defined = !raw.declared || raw.tag == dw::DW_TAG_variable;
            // Several units may declare a function that no file defines; the first declaration counts.
            let mut probe = || raw.name.starts_with(PROBE_CALL) && probes.insert(raw.name.as_str());
            let usable = !raw.name.is_empty() && (defined || probe());
            found.names.extend(kind.filter(|_| usable).map(|(kind, id)| (kind, raw.name.clone(), id)));
            if raw.tag == dw::DW_TAG_subprogram && !raw.parts.is_empty() {
                let names = raw.parts.iter().map(|part| part.name.clone()).collect();
                found.parameters.insert(own, names);
            }
            found.types.push(ty);
        }
        found.types.extend(describing.inner);
        found
    }
}

/// Makes types of entries.
struct Describing<'a> {
    raw: &'a BTreeMap<u64, Raw>,
    /// The numbers of the entries.
    numbers: BTreeMap<u64, u32>,
    /// Types without an entry, whose numbers follow: the rows of arrays with several dimensions, the parts of complex
    /// numbers.
    inner: Vec<CType>,
}

impl Describing<'_> {
    fn id(&self, at: Option<u64>) -> u32 {
        at.and_then(|at| self.numbers.get(&at).copied()).unwrap_or(0)
    }

    /// Adds a type without an entry.
    fn add(&mut self, ty: CType) -> u32 {
        self.inner.push(ty);
        (self.raw.len() + self.inner.len()) as u32
    }

    /// The entry of a type without names and qualifiers.
    fn plain(&self, mut at: Option<u64>) -> Option<&Raw> {
        for _ in 0..DEPTH {
            let raw = self.raw.get(&at?)?;
            if !is_alias(raw.tag) {
                return Some(raw);
            }
            at = raw.ty;
        }
        None
    }

    /// An entry as a type.
    fn described(&mut self, raw: &Raw) -> CType {
        let (name, to) = (raw.name.clone(), self.id(raw.ty));
        let qualified = |word| CType::Qualified { word, to };
        match raw.tag {
            dw::DW_TAG_base_type => self.base(raw),
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                CType::Pointer(to)
            }
            dw::DW_TAG_array_type => {
                let length = |part: &Part| u32::try_from(part.number).unwrap_or(0);
                let (first, rest) =
                    raw.parts.split_first().map_or((0, [].as_slice()), |(first, rest)| (length(first), rest));
                let of = rest
                    .iter()
                    .rev()
                    .fold(to, |of, part| self.add(CType::Array { of, length: length(part) }));
                CType::Array { of, length: first }
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let members =
                    (!raw.declared).then(|| raw.parts.iter().map(|part| self.member(part)).collect());
                CType::Composite { union: raw.tag == dw::DW_TAG_union_type, name, size: raw.size, members }
            }
            // The size of one that is only declared is unknown.
            dw::DW_TAG_enumeration_type if raw.declared => CType::Void,
            dw::DW_TAG_enumeration_type => self.enumeration(raw),
            dw::DW_TAG_typedef => CType::Typedef { name, to },
            dw::DW_TAG_const_type => qualified("const"),
            dw::DW_TAG_volatile_type => qualified("volatile"),
            dw::DW_TAG_restrict_type => qualified("restrict"),
            dw::DW_TAG_atomic_type => qualified("_Atomic"),
            dw::DW_TAG_subroutine_type | dw::DW_TAG_subprogram => CType::Function {
                returns: to,
                parameters: raw.parts.iter().map(|part| self.id(part.ty)).collect(),
                variadic: raw.prototyped_variadic,
            },
            _ => CType::Void,
        }
    }

    fn base(&mut self, raw: &Raw) -> CType {
        let (name, size) = (raw.name.clone(), raw.size);
        match raw.encoding {
            // Of these, no text is made: 16 bits that are not those of IEEE 754, and 128 bits that are not the x87's.
            dw::DW_ATE_float | dw::DW_ATE_complex_float
                if OTHER_FLOATS.iter().any(|other| name.contains(other)) =>
            {
                let of = self.add(CType::Int { name: "unsigned char".to_owned(), size: 1, signed: false });
                CType::Array { of, length: size }
            }
            dw::DW_ATE_float => CType::Float { size },
            // C99, 6.2.5: it is laid out as an array of two.
            dw::DW_ATE_complex_float => {
                let of = self.add(CType::Float { size: size / 2 });
                CType::Array { of, length: 2 }
            }
            dw::DW_ATE_signed | dw::DW_ATE_signed_char => CType::Int { name, size, signed: true },
            dw::DW_ATE_unsigned
            | dw::DW_ATE_unsigned_char
            | dw::DW_ATE_boolean
            | dw::DW_ATE_address
            | dw::DW_ATE_UTF
            | dw::DW_ATE_UCS
            | dw::DW_ATE_ASCII => CType::Int { name, size, signed: false },
            // Decimal and fixed-point numbers: only their bytes are known.
            _ => {
                let of = self.add(CType::Int { name: "unsigned char".to_owned(), size: 1, signed: false });
                CType::Array { of, length: size }
            }
        }
    }

    fn member(&self, part: &Part) -> CMember {
        let unit = |above: i64| {
            let size = self.plain(part.ty).map_or(0, |raw| i64::from(raw.size));
            part.number.saturating_add(size * 8 - above - i64::from(part.bits.unwrap_or(0)))
        };
        let first = part.above.map_or(part.number, unit);
        CMember {
            name: part.name.clone(),
            ty: self.id(part.ty),
            bit_offset: u64::try_from(first).unwrap_or(0),
            bits: part.bits,
        }
    }

    /// An enumeration: signed as its type is; without a type, as strict DWARF 2 has it, if it has a negative value, as in C.
    fn enumeration(&self, raw: &Raw) -> CType {
        let negative = || raw.parts.iter().any(|part| part.number < 0);
        let of = self.plain(raw.ty);
        let signed =
            of.map_or_else(negative, |of| matches!(of.encoding, dw::DW_ATE_signed | dw::DW_ATE_signed_char));
        let items = raw.parts.iter().map(|part| (part.name.clone(), part.number)).collect();
        CType::Enum { name: raw.name.clone(), size: raw.size, signed, items }
    }
}

fn is_alias(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_typedef
            | dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type
    )
}

impl TypeInfo for DwarfTypes {
    fn describe(&self, id: u32) -> CType {
        let index = (id as usize).checked_sub(1);
        index.and_then(|index| self.types.get(index)).cloned().unwrap_or(CType::Void)
    }

    fn names(&self) -> Vec<(CName, String, u32)> {
        self.names.clone()
    }

    fn parameter_names(&self, id: u32) -> Vec<String> {
        self.parameters.get(&id).cloned().unwrap_or_default()
    }

    fn enumerations(&self) -> Vec<u32> {
        let all = (1..).zip(&self.types);
        all.filter(|(_, ty)| matches!(ty, CType::Enum { .. })).map(|(id, _)| id).collect()
    }
}
