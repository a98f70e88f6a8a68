//! A value as its type shows it: the members of a struct or the elements of an array, each with its own value.

use super::{Inspector, Seen, Standing, number};
use crate::types::{Kind, Member, TypeId, TypeTable};
use std::collections::BTreeSet;
use trapline_trace::Float;

/// Most fields that are shown.
const MOST: usize = 2000;
/// Most structs within one another that are unfolded.
const DEEPEST: usize = 32;
/// The value of what cannot be read.
const UNMAPPED: &str = "nothing is mapped here";
/// Most bytes of a text that are shown.
const TEXT: usize = 64;

/// The fields of a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    /// The name of its type.
    pub type_name: String,
    /// Its linear address.
    pub address: u64,
    /// Its value, as far as that is one line.
    pub value: String,
    /// The fields.
    pub fields: Vec<Field>,
    /// Further fields.
    pub left_out: usize,
}

/// A field of a struct, or an element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name: `.pid`, `[3]`; empty for what is no struct and no array.
    pub name: String,
    /// The names of the unfolded fields in which it lies, and its own.
    pub path: String,
    /// The name of its type.
    pub type_name: String,
    /// Its linear address.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// Its value.
    pub value: String,
    /// Where a pointer points, or the parts of a struct or an array are.
    pub leads: Option<Seen>,
    /// In how many unfolded fields it lies.
    pub depth: usize,
}

impl Inspector {
    /// The fields of a value. Those whose paths are in `unfolded` have their own fields after them.
    pub fn fields(&mut self, seen: Seen, unfolded: &BTreeSet<String>, guest: &dyn Standing) -> Fields {
        let mut list = Vec::new();
        let mut shower = Shower { types: &mut self.compiler.types, guest, unfolded };
        if !shower.parts(seen, ("", 0), &mut list) {
            shower.unfold(String::new(), seen, ("", 0), &mut list);
        }
        let left_out = list.len().saturating_sub(MOST);
        list.truncate(MOST);
        let value = shower.value(seen).map(|(value, _)| value).unwrap_or_else(|| UNMAPPED.to_owned());
        let type_name = self.compiler.types.name(seen.ty);
        Fields { type_name, address: seen.address, value, fields: list, left_out }
    }
}

struct Shower<'i> {
    types: &'i mut TypeTable,
    guest: &'i dyn Standing,
    unfolded: &'i BTreeSet<String>,
}

impl Shower<'_> {
    /// The members or elements of a value; false if it has none.
    fn parts(&mut self, seen: Seen, at: (&str, usize), fields: &mut Vec<Field>) -> bool {
        self.types.settle(seen.ty);
        if let Kind::Array { of, length } = *self.types.kind(seen.ty) {
            let size = self.types.size(of);
            for n in 0..length.min(MOST as u64) {
                let address = seen.address.wrapping_add(n.wrapping_mul(size));
                self.unfold(format!("[{n}]"), Seen { ty: of, address, bits: None }, at, fields);
            }
            return length > 0;
        }
        let Some(members) = self.types.composite(seen.ty).and_then(|sou| sou.members.clone()) else {
            return false;
        };
        let any = !members.is_empty();
        self.members(&members, seen.address, (at, 0), fields);
        any
    }

    /// Members; those of one without a name are those of the struct around it.
    fn members(
        &mut self,
        members: &[Member],
        base: u64,
        (at, within): ((&str, usize), usize),
        fields: &mut Vec<Field>,
    ) {
        for member in members {
            let address = base.wrapping_add(member.offset);
            let own = || self.types.composite(member.ty).and_then(|sou| sou.members.clone());
            if let Some(own) = member.name.is_empty().then(own).flatten().filter(|_| within < DEEPEST) {
                self.members(&own, address, (at, within + 1), fields);
                continue;
            }
            let seen = Seen { ty: member.ty, address, bits: member.bits };
            self.unfold(format!(".{}", member.name), seen, at, fields);
        }
    }

    /// A field, and its own if it is unfolded. It lies in the field with this path, and in so many.
    fn unfold(&mut self, name: String, seen: Seen, (within, depth): (&str, usize), fields: &mut Vec<Field>) {
        if fields.len() > MOST {
            return;
        }
        let path = format!("{within}{name}");
        let (value, leads) = self.value(seen).unwrap_or_else(|| (UNMAPPED.to_owned(), None));
        let (type_name, size) = (self.types.name(seen.ty), self.types.size(seen.ty));
        let inside = (path.as_str(), depth + 1);
        let unfolded = leads.filter(|_| self.unfolded.contains(&path) && depth < DEEPEST);
        fields.push(Field {
            name,
            path: path.clone(),
            type_name,
            address: seen.address,
            size,
            value,
            leads,
            depth,
        });
        if let Some(leads) = unfolded
            && !self.parts(leads, inside, fields)
        {
            self.unfold("*".to_owned(), leads, inside, fields);
        }
    }

    /// A value as text, and the place to which it leads.
    fn value(&mut self, seen: Seen) -> Option<(String, Option<Seen>)> {
        let Seen { ty, address, bits } = seen;
        let (size, signed) = self.types.int(ty);
        let whole = |size| number(self.guest, address, size, bits, signed);
        Some(match self.types.kind(ty).clone() {
            Kind::Int { size, signed } => {
                let name = self.types.name(self.types.resolve(ty));
                (integer(&name, size, signed, whole(size.into())?), None)
            }
            Kind::Enum(number) => {
                let value = whole(size)? as i64;
                let items = self.types.enums.get(number).and_then(|it| it.items.as_ref());
                let named = items.into_iter().flatten().find(|(_, item)| *item == value);
                (named.map_or_else(|| value.to_string(), |(name, _)| format!("{name} ({value})")), None)
            }
            Kind::Float { size } => {
                let mut bytes = vec![0; usize::from(size)];
                (self.guest.read(address, &mut bytes) == bytes.len()).then_some(())?;
                let text = Float::of(&bytes).map(|float| float.to_string());
                (text.unwrap_or_else(|| format!("{{{size} bytes}}")), None)
            }
            Kind::Pointer(to) => self.pointer(to, whole(self.types.model.word())?),
            Kind::Array { of, length } => (self.array(of, length, address), Some(seen)),
            Kind::Sou(_) => match self.types.composite(ty).and_then(|sou| sou.members.as_ref()) {
                Some(members) if !members.is_empty() => {
                    (format!("{{{} members}}", members.len()), Some(seen))
                }
                _ => (format!("{{{} bytes}}", self.types.size(ty)), None),
            },
            Kind::Function { .. } => (self.guest.symbol(address).unwrap_or_default(), None),
            _ => (format!("{{{} bytes}}", self.types.size(ty)), None),
        })
    }

    fn pointer(&self, to: TypeId, value: u64) -> (String, Option<Seen>) {
        if value == 0 {
            return ("0".to_owned(), None);
        }
        let mut text = format!("{value:#x}");
        if self.is_character(to) {
            text += &format!(" {}", self.text(value, TEXT));
        } else if let Some(symbol) = self.guest.symbol(value) {
            text += &format!(" {symbol}");
        }
        let leads = !matches!(self.types.kind(to), Kind::Void | Kind::Function { .. });
        (text, leads.then_some(Seen { ty: to, address: value, bits: None }))
    }

    fn array(&mut self, of: TypeId, length: u64, address: u64) -> String {
        if self.is_character(of) {
            let most = usize::try_from(length).unwrap_or(TEXT).min(TEXT);
            return self.text(address, most);
        }
        const SHOWN: u64 = 4;
        let is_simple = self.types.is_scalar(of) || matches!(self.types.kind(of), Kind::Float { .. });
        let size = self.types.size(of);
        let mut element = |n: u64| {
            let address = address.wrapping_add(n.wrapping_mul(size));
            self.value(Seen { ty: of, address, bits: None }).map(|(text, _)| text)
        };
        let shown = if is_simple { length.min(SHOWN) } else { 0 };
        let first: Vec<String> = (0..shown).map_while(&mut element).collect();
        let more = if first.len() as u64 == length { "" } else { " .." };
        if first.is_empty() {
            format!("{{{length} elements}}")
        } else {
            format!("{{{}{more}}}", first.join(", "))
        }
    }

    fn is_character(&self, ty: TypeId) -> bool {
        let is_byte = matches!(self.types.kind(ty), Kind::Int { size: 1, .. });
        is_byte && self.types.name(self.types.resolve(ty)).contains("char")
    }

    /// The text at an address, in quotes.
    fn text(&self, address: u64, most: usize) -> String {
        let mut bytes = vec![0; most];
        let read = self.guest.read(address, &mut bytes);
        bytes.truncate(read);
        let end = bytes.iter().position(|byte| *byte == 0);
        let more = if end.is_none() && read == most { ".." } else { "" };
        format!("\"{}\"{more}", bytes.get(..end.unwrap_or(read)).unwrap_or_default().escape_ascii())
    }
}

/// An integer in decimal; a larger one in hexadecimal too.
fn integer(name: &str, size: u8, signed: bool, value: u64) -> String {
    let decimal = if signed { (value as i64).to_string() } else { value.to_string() };
    let byte = value as u8;
    if size == 1 && name.contains("char") && (b' '..=b'~').contains(&byte) {
        return format!("{decimal} '{}'", char::from(byte));
    }
    let own = if size >= 8 { value } else { value & ((1 << (u32::from(size) * 8)) - 1) };
    if own < 10 { decimal } else { format!("{decimal} {own:#x}") }
}
