//! Imports types of the guest into a program that uses them.
//!
//! A struct is imported without its members. They follow when the program accesses it or a pointer to it
//! ([`TypeTable::settle`]); so one struct does not import all that it refers to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Composite, Enumeration, Kind, Member, TypeId, TypeTable};
use crate::guest::{GuestMember, GuestType, GuestTypeId, NoTypes, TypeTag, Types, scoped};

/// How deep types are followed through typedefs, pointers and members.
const DEEPEST: u32 = 32;
/// Integer types for which C has shorter names.
const INTS: &[(&str, &str)] = &[
    ("long int", "long"),
    ("long unsigned int", "unsigned long"),
    ("short int", "short"),
    ("short unsigned int", "unsigned short"),
    ("long long int", "long long"),
    ("long long unsigned int", "unsigned long long"),
];

/// The guest, and its types that have been imported.
#[derive(Debug, Clone)]
pub(crate) struct Imports {
    pub guest: Arc<dyn Types>,
    done: BTreeMap<GuestTypeId, TypeId>,
    /// Structs and unions whose members have not been imported yet, by index.
    waiting: BTreeMap<usize, GuestTypeId>,
}

impl Default for Imports {
    fn default() -> Self {
        Self { guest: Arc::new(NoTypes), done: BTreeMap::new(), waiting: BTreeMap::new() }
    }
}

impl TypeTable {
    /// The guest's type of a name.
    pub fn of_guest(&mut self, tag: TypeTag, name: &str) -> Option<TypeId> {
        let (module, name) = scoped(name);
        let found = self.imports.guest.type_named(tag, module, name)?;
        Some(self.import(found))
    }

    /// A type of the guest, imported with its members.
    pub fn import(&mut self, id: GuestTypeId) -> TypeId {
        let ty = self.import_at(id, 0);
        self.settle(ty);
        ty
    }

    fn import_at(&mut self, id: GuestTypeId, depth: u32) -> TypeId {
        if let Some(there) = self.imports.done.get(&id) {
            return *there;
        }
        if depth > DEEPEST {
            return self.builtin("void");
        }
        let ty = match self.imports.guest.describe(id) {
            GuestType::Void => self.builtin("void"),
            GuestType::Int { name, size, signed } if size <= 8 => self.integer(&name, size, signed),
            GuestType::Int { name, size, .. } => self.opaque(&name, size.into()),
            GuestType::Float { size: 4 } => self.builtin("float"),
            GuestType::Float { size: 8 } => self.builtin("double"),
            // As large as the guest's compiler makes it: 12 bytes or 16.
            GuestType::Float { size } => self.push("long double".to_owned(), Kind::Float { size }),
            GuestType::Pointer(to) => {
                let to = self.import_at(to, depth + 1);
                self.pointer(to)
            }
            GuestType::Array { of, length } => {
                let of = self.import_at(of, depth + 1);
                self.array(of, length)
            }
            GuestType::Composite { union, name, members: None, .. } => {
                let tag = if union { TypeTag::Union } else { TypeTag::Struct };
                let defined = self.imports.guest.type_named(tag, None, &name).filter(|found| *found != id);
                match defined {
                    Some(defined) => self.import_at(defined, depth + 1),
                    None => self.imported_sou(union, &name, 0).0,
                }
            }
            GuestType::Composite { union, name, size, .. } => {
                let (ty, index) = self.imported_sou(union, &name, size);
                self.imports.waiting.insert(index, id);
                ty
            }
            GuestType::Enum { name, size, signed, items } => {
                let name = full("enum", &name);
                self.enums.push(Enumeration { size, signed, items: Some(items) });
                self.push(name, Kind::Enum(self.enums.len() - 1))
            }
            GuestType::Typedef { name, to } => {
                let to = self.import_at(to, depth + 1);
                self.push(name, Kind::Typedef { to })
            }
            GuestType::Qualified { word, to } => {
                let to = self.import_at(to, depth + 1);
                self.push(String::new(), Kind::Qualified { word, to })
            }
            GuestType::Function { returns, parameters, variadic } => {
                let returns = self.import_at(returns, depth + 1);
                let parameters = parameters.into_iter().map(|id| self.import_at(id, depth + 1)).collect();
                self.function(returns, parameters, variadic)
            }
        };
        self.imports.done.insert(id, ty);
        ty
    }

    fn imported_sou(&mut self, union: bool, name: &str, size: u64) -> (TypeId, usize) {
        let name = full(if union { "union" } else { "struct" }, name);
        let index = self.sous.len();
        self.sous.push(Composite { name: name.clone(), size, align: 1, members: None });
        (self.push(name, Kind::Sou(index)), index)
    }

    /// A type that programs can place and copy, but not compute with: no value of D has so many bits.
    fn opaque(&mut self, name: &str, size: u64) -> TypeId {
        let name = name.to_owned();
        self.sous.push(Composite { name: name.clone(), size, align: 1, members: Some(Vec::new()) });
        self.push(name, Kind::Sou(self.sous.len() - 1))
    }

    fn integer(&mut self, name: &str, size: u8, signed: bool) -> TypeId {
        let name = INTS.iter().find(|(long, _)| *long == name).map_or(name, |(_, short)| short);
        let same = |known: &TypeId| matches!(self.kind(*known), Kind::Int { size: s, signed: i } if (*s, *i) == (size, signed));
        match self.named(name).filter(same) {
            Some(known) => known,
            None => self.push(name.to_owned(), Kind::Int { size: size.clamp(1, 8), signed }),
        }
    }

    /// Imports the members of a struct or union, or of the one that a pointer or an array leads to.
    pub fn settle(&mut self, ty: TypeId) {
        let mut ty = ty;
        for _ in 0..DEEPEST {
            match *self.kind(ty) {
                Kind::Pointer(to) | Kind::Array { of: to, .. } => ty = to,
                Kind::Sou(index) => return self.members_of(index, 0),
                _ => return,
            }
        }
    }

    fn members_of(&mut self, index: usize, depth: u32) {
        let Some(id) = self.imports.waiting.remove(&index) else { return };
        let GuestType::Composite { members: Some(members), .. } = self.imports.guest.describe(id) else {
            return;
        };
        let (mut list, mut align) = (Vec::new(), 1);
        for member in members {
            let ty = self.import_at(member.ty, 0);
            self.embedded(ty, depth);
            align = align.max(self.align(ty));
            list.extend(self.placed(member, ty));
        }
        if let Some(sou) = self.sous.get_mut(index) {
            sou.align = if sou.size.is_multiple_of(align) { align } else { 1 };
            sou.members = Some(list);
        }
    }

    /// Imports the members of the structs and unions inside a struct.
    fn embedded(&mut self, ty: TypeId, depth: u32) {
        let mut ty = ty;
        while let Kind::Array { of, .. } = *self.kind(ty) {
            ty = of;
        }
        if let Kind::Sou(index) = *self.kind(ty)
            && depth < DEEPEST
        {
            self.members_of(index, depth + 1);
        }
    }

    /// A member where it lies. A bit-field lies in a unit of its type; one that reaches beyond that, as in packed
    /// structs, in the smallest one that holds it. One that lies in nine bytes cannot be read, and so is no member.
    fn placed(&self, member: GuestMember, ty: TypeId) -> Option<Member> {
        let GuestMember { name, bit_offset, bits, .. } = member;
        let bytes = bit_offset / 8;
        let Some(count) = bits.and_then(|bits| u8::try_from(bits).ok()) else {
            return Some(Member { name, ty, offset: bytes, bits: None });
        };
        let unit = self.size(ty).max(1);
        let offset = bytes / unit * unit;
        let first = bit_offset - offset * 8;
        if first + u64::from(count) <= unit * 8 {
            return Some(Member { name, ty, offset, bits: Some((first as u8, count)) });
        }
        let first = (bit_offset % 8) as u8;
        let units = ["signed char", "short", "int", "long long"].into_iter().zip([8u8, 16, 32, 64]);
        let (unit, _) =
            { units }.find(|(_, width)| u16::from(first) + u16::from(count) <= u16::from(*width))?;
        let unit = match (unit, self.int(ty).1) {
            (signed, true) => signed.to_owned(),
            ("signed char", false) => "unsigned char".to_owned(),
            (unit, false) => format!("unsigned {unit}"),
        };
        Some(Member { name, ty: self.builtin(&unit), offset: bytes, bits: Some((first, count)) })
    }
}

fn full(word: &str, name: &str) -> String {
    format!("{word} {}", if name.is_empty() { "(anon)" } else { name })
}

#[cfg(test)]
#[path = "imported_tests.rs"]
mod tests;
