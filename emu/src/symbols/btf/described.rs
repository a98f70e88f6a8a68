//! Single types by their number, and the numbers of types by name, for code that computes with types.

use super::{Btf, Kind, Type, read_u32};
use crate::symbols::{CMember, CName, CType, TypeInfo};

impl TypeInfo for Btf {
    fn first(&self) -> u32 {
        u32::try_from(self.own_from()).unwrap_or(u32::MAX)
    }

    fn describe(&self, id: u32) -> CType {
        let Some(found) = self.get(id) else { return CType::Void };
        let name = || self.name(found.name).unwrap_or_default();
        let size = found.value;
        match found.kind {
            // Without an option, pahole describes them as integers.
            Kind::Int if name().ends_with("float") || name().ends_with("double") => match name() {
                name if name.starts_with("complex") => {
                    CType::Composite { union: false, name, size, members: Some(Vec::new()) }
                }
                _ => CType::Float { size },
            },
            Kind::Int => {
                let signed = read_u32(found.extra, 0).unwrap_or(0) >> 24 & 1 != 0;
                // `char` has a sign on x86, and BTF does not say so.
                CType::Int { signed: signed || name() == "char", name: name(), size }
            }
            Kind::Float => CType::Float { size },
            Kind::Pointer => CType::Pointer(found.value),
            Kind::Array => CType::Array {
                of: read_u32(found.extra, 0).unwrap_or(0),
                length: read_u32(found.extra, 8).unwrap_or(0),
            },
            Kind::Struct | Kind::Union => CType::Composite {
                union: found.kind == Kind::Union,
                name: name(),
                size,
                members: Some(self.described_members(found)),
            },
            Kind::Forward => CType::Composite { union: found.flag, name: name(), size: 0, members: None },
            Kind::Enum | Kind::Enum64 => {
                let (signed, items) = self.enumerators(found);
                CType::Enum { name: name(), size, signed, items }
            }
            Kind::Typedef => CType::Typedef { name: name(), to: found.value },
            Kind::Const => CType::Qualified { word: "const", to: found.value },
            Kind::Volatile => CType::Qualified { word: "volatile", to: found.value },
            Kind::Restrict => CType::Qualified { word: "restrict", to: found.value },
            Kind::TypeTag => self.describe_untagged(found),
            Kind::Prototype => Self::described_function(found),
            Kind::Function | Kind::Variable | Kind::DataSection | Kind::DeclTag => CType::Void,
        }
    }

    fn names(&self) -> Vec<(CName, String, u32)> {
        let named = |(own, found): (u32, Type<'_>)| {
            let (kind, id) = match found.kind {
                Kind::Struct => (CName::Struct, own),
                Kind::Union => (CName::Union, own),
                Kind::Enum | Kind::Enum64 => (CName::Enum, own),
                Kind::Typedef => (CName::Typedef, own),
                Kind::Function => (CName::Function, found.value),
                Kind::Variable => (CName::Variable, found.value),
                _ => return None,
            };
            Some((kind, self.name(found.name).filter(|name| !name.is_empty())?, id))
        };
        self.numbered().filter_map(named).collect()
    }

    fn parameter_names(&self, id: u32) -> Vec<String> {
        let Some(found) = self.get(id).filter(|found| found.kind == Kind::Prototype) else {
            return Vec::new();
        };
        let names = found.extra.chunks_exact(8).take(super::MAX_PARAMETERS);
        names.map(|entry| read_u32(entry, 0).and_then(|name| self.name(name)).unwrap_or_default()).collect()
    }

    fn enumerations(&self) -> Vec<u32> {
        let is_enum = |found: &Type<'_>| matches!(found.kind, Kind::Enum | Kind::Enum64);
        self.numbered().filter(|(_, found)| is_enum(found)).map(|(own, _)| own).collect()
    }
}

impl Btf {
    /// Its own types with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (u32, Type<'_>)> {
        (self.first()..).zip(self.all())
    }

    fn described_function(found: Type<'_>) -> CType {
        let all: Vec<(u32, u32)> = found
            .extra
            .chunks_exact(8)
            .take(super::MAX_PARAMETERS)
            .filter_map(|entry| Some((read_u32(entry, 0)?, read_u32(entry, 4)?)))
            .collect();
        let variadic = all.last() == Some(&(0, 0));
        let count = all.len() - usize::from(variadic);
        let parameters = all.into_iter().take(count).map(|(_, ty)| ty).collect();
        CType::Function { returns: found.value, parameters, variadic }
    }

    /// The type to which tags refer; the tags say nothing about its values.
    fn describe_untagged(&self, tag: Type<'_>) -> CType {
        let mut id = tag.value;
        for _ in 0..super::DEPTH {
            match self.get(id) {
                Some(found) if found.kind == Kind::TypeTag => id = found.value,
                Some(_) => return self.describe(id),
                None => break,
            }
        }
        CType::Void
    }

    /// The bits of an integer that has fewer than its bytes, and those before it: so bit-fields were described before their
    /// members had a flag.
    fn narrow(&self, id: u32) -> Option<(u32, u32)> {
        let found = self.plain(id).filter(|found| found.kind == Kind::Int)?;
        let word = read_u32(found.extra, 0)?;
        let (before, bits) = (word >> 16 & 0xff, word & 0xff);
        (bits < found.value.saturating_mul(8) && bits != 0).then_some((before, bits))
    }

    fn described_members(&self, found: Type<'_>) -> Vec<CMember> {
        let member = |entry: &[u8]| {
            let (name, ty, place) = (read_u32(entry, 0)?, read_u32(entry, 4)?, read_u32(entry, 8)?);
            let (bit_offset, bits) = if found.flag { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let (before, bits) = self.narrow(ty).filter(|_| !found.flag).unwrap_or((0, bits));
            let bits = (bits != 0).then_some(bits);
            Some(CMember {
                name: self.name(name)?,
                ty,
                bit_offset: u64::from(bit_offset) + u64::from(before),
                bits,
            })
        };
        found.extra.chunks_exact(12).filter_map(member).collect()
    }

    /// Whether an enumeration is signed, and its names and values.
    ///
    /// Since Linux 6.0 a flag says whether it is. Before, all values were described as signed (`__s32 val`), and so those of
    /// an enumeration without a negative one are unsigned, as in C. Values of 64 bits had lost their upper halves.
    fn enumerators(&self, found: Type<'_>) -> (bool, Vec<(String, i64)>) {
        let wide = found.kind == Kind::Enum64;
        let has_flag = self.has_signs || self.base.as_ref().is_some_and(|base| base.has_signs);
        let (entries, cut) = (found.extra.chunks_exact(if wide { 12 } else { 8 }), !wide && found.value > 4);
        let low = |entry: &[u8]| read_u32(entry, 4).map(|low| low as i32);
        let signed = found.flag || !has_flag && { entries.clone() }.filter_map(low).any(|value| value < 0);
        let item = |entry: &[u8]| {
            let low = low(entry)?;
            let value = match (wide, signed) {
                (true, _) => i64::from(read_u32(entry, 8)? as i32) << 32 | i64::from(low as u32),
                (false, true) => low.into(),
                (false, false) => (low as u32).into(),
            };
            Some((self.name(read_u32(entry, 0)?)?, value))
        };
        (signed, entries.filter(|_| !cut).filter_map(item).collect())
    }
}
