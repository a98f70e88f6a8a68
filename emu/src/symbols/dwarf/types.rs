//! The types of DWARF, read once and kept: numbers are those of the entries in the order of the file, from 1.

use std::collections::{BTreeMap, BTreeSet};

use gimli::constants as dw;
use gimli::{AttributeValue, UnitRef};

use super::{Dwarf, Entry, Reader, entry_name};
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
    /// Members, parameters, enumerators, dimensions: name, type, number, bits.
    parts: Vec<(String, Option<u64>, i64, Option<u32>)>,
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

fn signed(entry: &Entry, name: gimli::DwAt) -> Option<i64> {
    let value = entry.attr_value(name)?;
    value.sdata_value().or_else(|| value.udata_value().map(|value| value as i64))
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
            | dw::DW_TAG_array_type
            | dw::DW_TAG_structure_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_enumeration_type
            | dw::DW_TAG_typedef
            | dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
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
    let name = || entry_name(unit, entry).unwrap_or_default();
    let part = match (parent.tag, entry.tag()) {
        (dw::DW_TAG_structure_type | dw::DW_TAG_union_type, dw::DW_TAG_member) => {
            let (at, bits) = member_place(entry);
            (name(), type_of(unit, entry), at, bits)
        }
        (dw::DW_TAG_enumeration_type, dw::DW_TAG_enumerator) => {
            (name(), None, signed(entry, dw::DW_AT_const_value).unwrap_or(0), None)
        }
        (dw::DW_TAG_array_type, dw::DW_TAG_subrange_type) => {
            let count = number(entry, dw::DW_AT_count);
            let last = || number(entry, dw::DW_AT_upper_bound).map(|last| last.wrapping_add(1));
            (String::new(), None, count.or_else(last).unwrap_or(0) as i64, None)
        }
        (dw::DW_TAG_subprogram | dw::DW_TAG_subroutine_type, dw::DW_TAG_formal_parameter) => {
            (name(), type_of(unit, entry), 0, None)
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

/// Bits from the start, and how many of a bit-field. Before DWARF 4 a bit-field is counted from the upper end of its
/// unit.
fn member_place(entry: &Entry) -> (i64, Option<u32>) {
    let bytes = number(entry, dw::DW_AT_data_member_location).unwrap_or(0);
    let start = bytes.saturating_mul(8);
    let bits = number(entry, dw::DW_AT_bit_size).and_then(|bits| u32::try_from(bits).ok());
    let first = match (bits, number(entry, dw::DW_AT_data_bit_offset), number(entry, dw::DW_AT_bit_offset)) {
        (Some(_), Some(first), _) => first,
        (Some(bits), None, Some(above)) => {
            let unit = number(entry, dw::DW_AT_byte_size).unwrap_or(4).saturating_mul(8);
            start.saturating_add(unit.saturating_sub(above).saturating_sub(bits.into()))
        }
        _ => start,
    };
    (first as i64, bits)
}

/// How the names of functions begin whose calls are static probes: nothing defines them.
const PROBE_CALL: &str = "__dtrace_";

impl DwarfTypes {
    fn from_raw(raw: &BTreeMap<u64, Raw>) -> Self {
        let numbers: BTreeMap<u64, u32> = raw.keys().copied().zip(1..).collect();
        let mut found = Self::default();
        let (mut inner, mut probes) = (Vec::new(), BTreeSet::new());
        let next = raw.len() as u32 + 1;
        for (own, raw) in (1..).zip(raw.values()) {
            let id = |at: Option<u64>| at.and_then(|at| numbers.get(&at).copied()).unwrap_or(0);
            let ty = described(raw, &id, next, &mut inner);
            let kind = match raw.tag {
                dw::DW_TAG_structure_type => Some((CName::Struct, own)),
                dw::DW_TAG_union_type => Some((CName::Union, own)),
                dw::DW_TAG_enumeration_type => Some((CName::Enum, own)),
                dw::DW_TAG_typedef => Some((CName::Typedef, own)),
                dw::DW_TAG_subprogram => Some((CName::Function, own)),
                dw::DW_TAG_variable => Some((CName::Variable, id(raw.ty))),
                _ => None,
            };
            let defined = !raw.declared || raw.tag == dw::DW_TAG_variable;
            // Several units may declare a function that no file defines; the first declaration counts.
            let mut probe = || raw.name.starts_with(PROBE_CALL) && probes.insert(raw.name.as_str());
            let usable = !raw.name.is_empty() && (defined || probe());
            found.names.extend(kind.filter(|_| usable).map(|(kind, id)| (kind, raw.name.clone(), id)));
            if raw.tag == dw::DW_TAG_subprogram && !raw.parts.is_empty() {
                let names = raw.parts.iter().map(|(name, ..)| name.clone()).collect();
                found.parameters.insert(own, names);
            }
            found.types.push(ty);
        }
        found.types.extend(inner);
        found
    }
}

/// An entry as a type. The inner arrays of one with several dimensions are added to `inner`, whose first has the
/// number `next`.
fn described(raw: &Raw, id: &dyn Fn(Option<u64>) -> u32, next: u32, inner: &mut Vec<CType>) -> CType {
    let (name, to, size) = (raw.name.clone(), id(raw.ty), raw.size);
    match raw.tag {
        dw::DW_TAG_base_type if raw.encoding == dw::DW_ATE_float => CType::Float { size },
        dw::DW_TAG_base_type => {
            let signed = matches!(raw.encoding, dw::DW_ATE_signed | dw::DW_ATE_signed_char);
            CType::Int { name, size, signed }
        }
        dw::DW_TAG_pointer_type => CType::Pointer(to),
        dw::DW_TAG_array_type => {
            let lengths: Vec<u32> =
                raw.parts.iter().map(|(_, _, length, _)| u32::try_from(*length).unwrap_or(0)).collect();
            let (first, rest) =
                lengths.split_first().map_or((0, [].as_slice()), |(first, rest)| (*first, rest));
            let mut of = to;
            for length in rest.iter().rev() {
                inner.push(CType::Array { of, length: *length });
                of = next + inner.len() as u32 - 1;
            }
            CType::Array { of, length: first }
        }
        dw::DW_TAG_structure_type | dw::DW_TAG_union_type => {
            let member = |(name, ty, at, bits): &(String, Option<u64>, i64, Option<u32>)| CMember {
                name: name.clone(),
                ty: id(*ty),
                bit_offset: *at as u64,
                bits: *bits,
            };
            let members = (!raw.declared).then(|| raw.parts.iter().map(member).collect());
            CType::Composite { union: raw.tag == dw::DW_TAG_union_type, name, size, members }
        }
        dw::DW_TAG_enumeration_type => {
            let items = raw.parts.iter().map(|(name, _, value, _)| (name.clone(), *value)).collect();
            CType::Enum { name, size, items }
        }
        dw::DW_TAG_typedef => CType::Typedef { name, to },
        dw::DW_TAG_const_type => CType::Qualified { word: "const", to },
        dw::DW_TAG_volatile_type => CType::Qualified { word: "volatile", to },
        dw::DW_TAG_restrict_type => CType::Qualified { word: "restrict", to },
        dw::DW_TAG_subroutine_type | dw::DW_TAG_subprogram => CType::Function {
            returns: to,
            parameters: raw.parts.iter().map(|(_, ty, ..)| id(*ty)).collect(),
            variadic: raw.prototyped_variadic,
        },
        _ => CType::Void,
    }
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
