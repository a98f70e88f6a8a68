//! Memory as a type of the guest shows it: the members of a struct or the elements of an array, each with its value.

use trapline_session::trapline_d::{GuestMember, GuestType, GuestTypeId, TypeTag, Types};
use trapline_session::{CodePointer, GuestTypes, Timeline, float_name};
use trapline_trace::Float;

use crate::scene::{Field, Typed, TypedPlace};

/// Most fields that are shown.
const MOST: usize = 2000;
/// Most types that a name stands for, one after the other, and most structs without a name within one another.
const DEEPEST: usize = 32;
/// Most bytes of a text that are shown.
const TEXT: usize = 64;

/// A type by its name: `struct task_struct`, `union sigval`, `enum pid_type`, or a typedef.
///
/// # Errors
/// A sentence: the guest has no such type.
pub fn named(types: &GuestTypes, text: &str) -> Result<GuestTypeId, String> {
    let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "const").collect();
    let found = match words.as_slice() {
        ["struct", name] => types.type_named(TypeTag::Struct, None, name),
        ["union", name] => types.type_named(TypeTag::Union, None, name),
        ["enum", name] => types.type_named(TypeTag::Enum, None, name),
        [name] => types.type_named(TypeTag::Typedef, None, name),
        _ => None,
    };
    found.ok_or_else(|| {
        format!("the guest has no type `{text}`; types are from BTF or DWARF: write struct NAME, union NAME or a typedef")
    })
}

/// Reads values of the guest by their types.
pub struct Reader<'a> {
    types: &'a GuestTypes,
    timeline: &'a Timeline,
    /// Bytes of a pointer.
    word: u64,
}

impl<'a> Reader<'a> {
    /// A reader at the position of a timeline.
    pub fn new(types: &'a GuestTypes, timeline: &'a Timeline) -> Self {
        let word = timeline.session().target().width().bytes() as u64;
        Self { types, timeline, word }
    }

    /// The fields of a type at an address.
    pub fn typed(&self, place: TypedPlace) -> Typed {
        let mut fields = Vec::new();
        if place.pointers > 0 {
            return self.pointers(place);
        }
        match self.stripped(place.ty) {
            GuestType::Composite { members: Some(members), .. } => {
                self.members(&members, place.address, 0, &mut fields);
            }
            GuestType::Array { of, length } => self.elements(of, length, place.address, &mut fields),
            _ => fields.push(self.field(String::new(), place, None)),
        }
        let left_out = fields.len().saturating_sub(MOST);
        fields.truncate(MOST);
        Typed { type_name: self.name(place.ty), address: place.address, fields, left_out }
    }

    /// A pointer, by itself: no type of the guest's need be that of a pointer to this one.
    fn pointers(&self, place: TypedPlace) -> Typed {
        let mut type_name = self.name(place.ty);
        type_name.push_str(if type_name.ends_with('*') { "" } else { " " });
        (0..place.pointers).for_each(|_| type_name.push('*'));
        let (value, leads) = match (self.word_at(place.address, self.word), place.pointers) {
            (None, _) => ("nothing is mapped here".to_owned(), None),
            (Some(value), 1) => self.pointer(place.ty, value),
            (Some(0), _) => ("0".to_owned(), None),
            (Some(address), more) => {
                (format!("{address:#x}"), Some(TypedPlace { pointers: more - 1, address, ..place }))
            }
        };
        let (name, size) = (String::new(), self.word);
        let field = Field { name, type_name: type_name.clone(), address: place.address, size, value, leads };
        Typed { type_name, address: place.address, fields: vec![field], left_out: 0 }
    }

    fn members(&self, members: &[GuestMember], base: u64, depth: usize, fields: &mut Vec<Field>) {
        for member in members {
            let place =
                TypedPlace { ty: member.ty, pointers: 0, address: base.wrapping_add(member.bit_offset / 8) };
            match self.stripped(member.ty) {
                // The members of a struct without a name are those of the struct around it.
                GuestType::Composite { members: Some(own), .. }
                    if member.name.is_empty() && depth < DEEPEST =>
                {
                    self.members(&own, place.address, depth + 1, fields);
                }
                _ if fields.len() > MOST => {}
                _ => {
                    let bits = member.bits.map(|bits| (member.bit_offset % 8, bits));
                    fields.push(self.field(format!(".{}", member.name), place, bits));
                }
            }
        }
    }

    fn elements(&self, of: GuestTypeId, length: u64, base: u64, fields: &mut Vec<Field>) {
        let size = self.size(of, 0);
        for n in 0..length.min(MOST as u64) {
            let place = TypedPlace { ty: of, pointers: 0, address: base.wrapping_add(n.wrapping_mul(size)) };
            fields.push(self.field(format!("[{n}]"), place, None));
        }
    }

    fn field(&self, name: String, place: TypedPlace, bits: Option<(u64, u32)>) -> Field {
        let ty = self.stripped(place.ty);
        let size = self.size(place.ty, 0);
        let (value, leads) = match self.value(&ty, place, bits) {
            Some(shown) => shown,
            None => ("nothing is mapped here".to_owned(), None),
        };
        Field { name, type_name: self.name(place.ty), address: place.address, size, value, leads }
    }

    /// A value as text, and the place to which it leads.
    fn value(
        &self,
        ty: &GuestType,
        place: TypedPlace,
        bits: Option<(u64, u32)>,
    ) -> Option<(String, Option<TypedPlace>)> {
        let address = place.address;
        Some(match ty {
            GuestType::Int { name, size, signed } if *size <= 8 => {
                let value = self.number(address, u64::from(*size), bits, *signed)?;
                (integer(name, *size, *signed, value), None)
            }
            GuestType::Enum { size, signed, items, .. } => {
                let value = self.number(address, u64::from(*size), bits, *signed)? as i64;
                let named = items.iter().find(|(_, item)| *item == value);
                (named.map_or_else(|| value.to_string(), |(name, _)| format!("{name} ({value})")), None)
            }
            GuestType::Float { size } => {
                let mut bytes = vec![0; usize::from(*size)];
                if self.timeline.peek(address, &mut bytes) < bytes.len() {
                    return None;
                }
                let text = Float::of(&bytes).map(|float| float.to_string());
                (text.unwrap_or_else(|| format!("{{{size} bytes}}")), None)
            }
            GuestType::Pointer(to) => self.pointer(*to, self.word_at(address, self.word)?),
            GuestType::Array { of, length } => (self.array(*of, *length, address), Some(place)),
            GuestType::Composite { members: Some(members), .. } => {
                (format!("{{{} members}}", members.len()), Some(place))
            }
            GuestType::Function { .. } => (self.symbol(address).unwrap_or_default(), None),
            _ => (format!("{{{} bytes}}", self.size(place.ty, 0)), None),
        })
    }

    fn pointer(&self, to: GuestTypeId, value: u64) -> (String, Option<TypedPlace>) {
        if value == 0 {
            return ("0".to_owned(), None);
        }
        let mut text = format!("{value:#x}");
        let target = self.stripped(to);
        if self.is_character(&target) {
            text += &format!(" {}", self.text(value, TEXT));
        } else if let Some(symbol) = self.symbol(value) {
            text += &format!(" {symbol}");
        }
        let leads = !matches!(target, GuestType::Void | GuestType::Function { .. });
        (text, leads.then_some(TypedPlace { ty: to, pointers: 0, address: value }))
    }

    fn array(&self, of: GuestTypeId, length: u64, address: u64) -> String {
        let ty = self.stripped(of);
        if self.is_character(&ty) {
            let most = usize::try_from(length).unwrap_or(TEXT).min(TEXT);
            return self.text(address, most);
        }
        let size = self.size(of, 0);
        const SHOWN: u64 = 4;
        let element = |n: u64| {
            let place =
                TypedPlace { ty: of, pointers: 0, address: address.wrapping_add(n.wrapping_mul(size)) };
            match ty {
                GuestType::Int { .. }
                | GuestType::Enum { .. }
                | GuestType::Float { .. }
                | GuestType::Pointer(_) => self.value(&ty, place, None).map(|(text, _)| text),
                _ => None,
            }
        };
        let first: Vec<String> = (0..length.min(SHOWN)).map_while(element).collect();
        let more = if first.len() as u64 == length { "" } else { " .." };
        if first.is_empty() {
            format!("{{{length} elements}}")
        } else {
            format!("{{{}{more}}}", first.join(", "))
        }
    }

    fn is_character(&self, ty: &GuestType) -> bool {
        matches!(ty, GuestType::Int { name, size: 1, .. } if name.contains("char"))
    }

    /// The text at an address, in quotes.
    fn text(&self, address: u64, most: usize) -> String {
        let mut bytes = vec![0; most];
        let read = self.timeline.peek(address, &mut bytes);
        bytes.truncate(read);
        let end = bytes.iter().position(|byte| *byte == 0);
        let more = if end.is_none() && read == most { ".." } else { "" };
        format!("\"{}\"{more}", bytes.get(..end.unwrap_or(read)).unwrap_or_default().escape_ascii())
    }

    fn symbol(&self, address: u64) -> Option<String> {
        self.timeline.session().symbol_of(CodePointer::At(address))
    }

    fn word_at(&self, address: u64, size: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let wanted = bytes.get_mut(..size.min(8) as usize)?;
        let length = wanted.len();
        (self.timeline.peek(address, wanted) == length).then(|| u64::from_le_bytes(bytes))
    }

    /// An integer of so many bytes; of a bit-field, its bits.
    fn number(&self, address: u64, size: u64, bits: Option<(u64, u32)>, signed: bool) -> Option<u64> {
        let (from, count) = bits.unwrap_or((0, size.min(8) as u32 * 8));
        // A bit-field may begin inside a byte, and so lie in nine of them.
        let bytes = (from + u64::from(count)).div_ceil(8).clamp(1, 9);
        let above = if bytes > 8 { self.word_at(address.wrapping_add(8), 1)? } else { 0 };
        let all = u128::from(above) << 64 | u128::from(self.word_at(address, bytes)?);
        let value = (all >> from.min(63)) as u64;
        let shift = 64 - count.clamp(1, 64);
        let value = value << shift;
        Some(if signed { ((value as i64) >> shift) as u64 } else { value >> shift })
    }

    /// A type without its names and qualifiers.
    fn stripped(&self, mut id: GuestTypeId) -> GuestType {
        for _ in 0..DEEPEST {
            match self.types.describe(id) {
                GuestType::Typedef { to, .. } | GuestType::Qualified { to, .. } => id = to,
                other => return other,
            }
        }
        GuestType::Void
    }

    fn size(&self, id: GuestTypeId, depth: usize) -> u64 {
        match self.stripped(id) {
            GuestType::Int { size, .. } | GuestType::Float { size } | GuestType::Enum { size, .. } => {
                size.into()
            }
            GuestType::Pointer(_) => self.word,
            GuestType::Composite { size, .. } => size,
            GuestType::Array { of, length } if depth < DEEPEST => {
                self.size(of, depth + 1).saturating_mul(length)
            }
            _ => 0,
        }
    }

    /// A type's name as C writes it before a variable.
    fn name(&self, id: GuestTypeId) -> String {
        self.name_within(id, 0)
    }

    fn name_within(&self, id: GuestTypeId, depth: usize) -> String {
        if depth > DEEPEST {
            return "..".to_owned();
        }
        let inner = |id| self.name_within(id, depth + 1);
        match self.types.describe(id) {
            GuestType::Void => "void".to_owned(),
            GuestType::Int { name, .. } | GuestType::Typedef { name, .. } => name,
            GuestType::Float { size } => float_name(size).to_owned(),
            GuestType::Pointer(to) => match inner(to) {
                pointer if pointer.ends_with('*') => format!("{pointer}*"),
                other => format!("{other} *"),
            },
            GuestType::Array { of, length } => format!("{}[{length}]", inner(of)),
            GuestType::Composite { union, name, .. } => {
                format!("{} {name}", if union { "union" } else { "struct" }).trim_end().to_owned()
            }
            GuestType::Enum { name, .. } => format!("enum {name}").trim_end().to_owned(),
            GuestType::Qualified { word, to } => format!("{word} {}", inner(to)),
            GuestType::Function { returns, .. } => format!("{} ()", inner(returns)),
        }
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
