//! The values of a record, by its layout.

use super::value::Seen;
use super::{Call, Field, Members, Pointee, Shape};
use crate::float::Float;
use crate::log_prefix::{Prefix, Token};

/// A piece of data with a prefix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub token: Token,
    /// The data without the prefix.
    pub bytes: &'a [u8],
}

/// Takes data from the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data<'a> {
    pub rest: &'a [u8],
    /// Bytes of the guest's word.
    pub word: usize,
}

impl<'a> Data<'a> {
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub fn piece(&mut self) -> Option<Piece<'a>> {
        let prefix = Prefix::parse(self.rest)?;
        let size = prefix.bytes(self.word)?;
        let whole = self.take(Prefix::SIZE.checked_add(size)?)?;
        Some(Piece { token: prefix.token, bytes: whole.get(Prefix::SIZE..)? })
    }
}

/// At most eight bytes as a number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The lower bits of a number.
fn low(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

fn signed(value: u64, bits: u32) -> i64 {
    let above = 64 - bits.clamp(1, 64);
    (value << above).cast_signed() >> above
}

/// The bits of a member in what was read of its struct; `None` if that lies elsewhere.
fn bits_in(field: &Field, offset: u64, bytes: &[u8]) -> Option<u64> {
    let start = field.bit_offset.checked_sub(offset.checked_mul(8)?)?;
    let end = start.checked_add(field.bits)?;
    let of = bytes.get(usize::try_from(start / 8).ok()?..usize::try_from(end.div_ceil(8)).ok()?)?;
    // A bit-field may begin inside a byte, and so lie in nine of them.
    let wide = of.iter().take(16).rev().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
    Some(low((wide >> (start % 8)) as u64, u32::try_from(field.bits).unwrap_or(64)))
}

impl Shape {
    /// A number of this shape.
    fn number(&self, value: u64) -> Seen {
        match self {
            Self::Int { bits, signed: true } => Seen::Signed(signed(value, *bits)),
            Self::Int { bits, signed: false } => Seen::Unsigned(low(value, *bits)),
            Self::Bool => Seen::Bool(value & 0xff != 0),
            Self::Enum { bits, signed: sign, items } => {
                let own = if *sign { signed(value, *bits) } else { low(value, *bits).cast_signed() };
                match items.iter().find(|(_, known)| *known == own) {
                    Some((name, _)) => Seen::Named(own, name.clone()),
                    None if *sign => Seen::Signed(own),
                    None => Seen::Unsigned(own.cast_unsigned()),
                }
            }
            Self::Flags { bits, names } => flags(low(value, *bits), names),
            Self::Float { bits } => float(&value.to_le_bytes(), *bits),
            Self::Extended { .. } => Seen::Left("{..}"),
            Self::Hex { bits } => Seen::Hex(low(value, *bits)),
            Self::Pointer(_) if value == 0 => Seen::Null,
            Self::Pointer(_) | Self::Characters => Seen::Hex(value),
            Self::Inside => Seen::Left("{..}"),
            Self::Elements => Seen::Left("[..]"),
        }
    }
}

/// A floating-point number; of bytes that are not one, none is shown.
fn float(bytes: &[u8], bits: u32) -> Seen {
    let own = bytes.get(..(bits / 8) as usize).and_then(Float::of);
    own.map_or(Seen::Left("{..}"), Seen::Float)
}

/// The x87's number of a type of so many bits.
fn extended(bytes: &[u8], bits: u32) -> Seen {
    let own = Float::of(bytes).map(|float| float.narrowed(bits));
    own.map_or(Seen::Left("{..}"), Seen::Float)
}

/// A number with the names of its flags. What has no name remains a number.
fn flags(value: u64, names: &[(String, u64, u64)]) -> Seen {
    let (mut left, mut found) = (value, Vec::new());
    for (name, mask, bits) in names {
        if value & mask == *bits {
            found.push(name.clone());
            left &= !mask;
        }
    }
    if left != 0 {
        found.push(format!("{left:#x}"));
    }
    if found.is_empty() { Seen::Unsigned(value) } else { Seen::Flags(value, found) }
}

/// Text, or why there is none.
fn text(address: u64, most: u16, piece: Option<Piece<'_>>) -> Option<Seen> {
    Some(match piece {
        Some(Piece { token: Token::Text, bytes }) => {
            let cut = bytes.len() >= usize::from(most);
            Seen::Text { address: Some(address), bytes: bytes.to_vec(), cut }
        }
        Some(Piece { token: Token::FlatFault, .. }) => Seen::Unreadable(address),
        Some(_) => return None,
        // An exception has ended the handler before.
        None => Seen::Hex(address),
    })
}

/// The values of a call with the names of its arguments; `None` if the data has another form.
pub(super) fn values(call: &Call, data: &[u8], width: u8) -> Option<Vec<Seen>> {
    let mut data = Data { rest: data, word: usize::from(width / 8) };
    let words = data.take(usize::from(call.words) * data.word)?;
    let size = data.word;
    let word = |n: usize| Some(number(words.get(n * size..)?.get(..size)?));
    let mut raw = Vec::new();
    for argument in &call.arguments {
        let first = usize::from(argument.word);
        let upper = if argument.pair { word(first + 1)? << 32 } else { 0 };
        raw.push(word(first)? | upper);
    }
    let mut seen = Vec::new();
    for (argument, value) in call.arguments.iter().zip(raw) {
        let mut own = match &argument.shape {
            Shape::Pointer(to) => pointer(value, to, &mut data)?,
            Shape::Extended { bits } => {
                let start = usize::from(argument.word) * size;
                extended(words.get(start..start.checked_add(10)?)?, *bits)
            }
            shape => shape.number(value),
        };
        if let (Seen::Text { bytes, cut, .. }, Some(length)) = (&mut own, argument.length) {
            let length = word(usize::from(length))?;
            *cut = length > bytes.len() as u64;
            bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        }
        seen.push(own);
    }
    data.rest.is_empty().then_some(seen)
}

/// A pointer with what was read there.
fn pointer(value: u64, to: &Pointee, data: &mut Data<'_>) -> Option<Seen> {
    let seen = match to {
        Pointee::Unread => Seen::Hex(value),
        Pointee::Text(most) => {
            let piece = if data.rest.is_empty() { None } else { Some(data.piece()?) };
            text(value, *most, piece)?
        }
        Pointee::Struct(members) => fields(value, members, data)?,
    };
    Some(if value == 0 { Seen::Null } else { seen })
}

fn fields(address: u64, members: &Members, data: &mut Data<'_>) -> Option<Seen> {
    if data.rest.is_empty() && !members.reads.is_empty() {
        return Some(Seen::Hex(address));
    }
    let mut parts = Vec::new();
    for (offset, length) in &members.reads {
        let piece = data.piece()?;
        match piece.token {
            Token::Memory if piece.bytes.len() as u64 == *length => parts.push((*offset, piece.bytes)),
            Token::FlatFault => {}
            _ => return None,
        }
    }
    let mut shown = Vec::new();
    for field in &members.fields {
        let found = parts.iter().find_map(|(offset, bytes)| {
            let value = bits_in(field, *offset, bytes)?;
            Some((value, *offset, *bytes))
        });
        let Some((value, offset, bytes)) = found else { continue };
        let seen = match &field.shape {
            Shape::Pointer(Pointee::Text(most)) => {
                let piece = if data.rest.is_empty() { None } else { Some(data.piece()?) };
                let seen = text(value, *most, piece)?;
                if value == 0 { Seen::Null } else { seen }
            }
            Shape::Characters => characters(field, offset, bytes)?,
            Shape::Float { bits } => float(part(field, offset, bytes)?, *bits),
            shape => shape.number(value),
        };
        shown.push((field.name.clone(), seen));
    }
    if parts.is_empty() && !members.reads.is_empty() {
        return Some(Seen::Unreadable(address));
    }
    let more = members.more || shown.len() < members.fields.len();
    Some(Seen::Fields { address, fields: shown, more })
}

/// The bytes of a member.
fn part<'b>(field: &Field, offset: u64, bytes: &'b [u8]) -> Option<&'b [u8]> {
    let start = usize::try_from((field.bit_offset / 8).checked_sub(offset)?).ok()?;
    let length = usize::try_from(field.bits / 8).ok()?;
    bytes.get(start..start.checked_add(length)?)
}

/// The characters of an array in a struct, up to a NUL.
fn characters(field: &Field, offset: u64, bytes: &[u8]) -> Option<Seen> {
    let own = part(field, offset, bytes)?;
    let end = own.iter().position(|byte| *byte == 0);
    let bytes = own.get(..end.unwrap_or(own.len()))?.to_vec();
    Some(Seen::Text { address: None, bytes, cut: false })
}
