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
            Kind::Enum | Kind::Enum64 => CType::Enum { name: name(), size, items: self.enumerators(found) },
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

    fn described_members(&self, found: Type<'_>) -> Vec<CMember> {
        let member = |entry: &[u8]| {
            let (name, ty, place) = (read_u32(entry, 0)?, read_u32(entry, 4)?, read_u32(entry, 8)?);
            let (bit_offset, bits) = if found.flag { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let bits = (bits != 0).then_some(bits);
            Some(CMember { name: self.name(name)?, ty, bit_offset: bit_offset.into(), bits })
        };
        found.extra.chunks_exact(12).filter_map(member).collect()
    }

    fn enumerators(&self, found: Type<'_>) -> Vec<(String, i64)> {
        let wide = found.kind == Kind::Enum64;
        let item = |entry: &[u8]| {
            let low = read_u32(entry, 4)?;
            let value = match (wide, found.flag) {
                (true, _) => (u64::from(read_u32(entry, 8)?) << 32 | u64::from(low)) as i64,
                (false, true) => i64::from(low as i32),
                (false, false) => low.into(),
            };
            Some((self.name(read_u32(entry, 0)?)?, value))
        };
        found.extra.chunks_exact(if wide { 12 } else { 8 }).filter_map(item).collect()
    }
}
