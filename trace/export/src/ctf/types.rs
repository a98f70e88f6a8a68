//! Types of fields, their declarations in TSDL, and values in their binary form.

use std::collections::BTreeSet;

/// The type of a field. All fields are aligned to bytes, all integers are little-endian.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Type {
    Unsigned {
        bits: u32,
        hex: bool,
    },
    Signed {
        bits: u32,
    },
    Enum {
        bits: u32,
        signed: bool,
        items: Vec<(String, i64)>,
    },
    Text,
    /// A sequence of bytes.
    Bytes,
    /// A sequence of words of the guest.
    Words {
        bits: u32,
    },
    Texts,
}

/// A value of any type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Text(String),
    Bytes(Vec<u8>),
    Words(Vec<u64>),
    Texts(Vec<String>),
}

/// A field: its name, type and value.
pub(super) type Field = (String, Type, Value);

/// The size of an integer that holds this many bits.
pub(super) fn size(bits: u32) -> u32 {
    match bits {
        0..=8 => 8,
        9..=16 => 16,
        17..=32 => 32,
        _ => 64,
    }
}

/// A string literal of TSDL.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A name as an identifier. The underscore before it, which readers remove, keeps it apart from the words of TSDL.
fn identifier(name: &str) -> String {
    let own = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name = if name.is_empty() { "value" } else { name };
    format!("_{}", name.chars().map(own).collect::<String>())
}

/// Field names that differ from each other.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// The identifier of a field.
    pub fn add(&mut self, name: &str) -> String {
        let first = identifier(name);
        let mut own = first.clone();
        let mut n = 2;
        while !self.0.insert(own.clone()) {
            own = format!("{first}_{n}");
            n += 1;
        }
        own
    }
}

fn integer(bits: u32, signed: bool, hex: bool) -> String {
    let base = if hex { 16 } else { 10 };
    format!("integer {{ size = {}; align = 8; signed = {signed}; base = {base}; }}", size(bits))
}

impl Type {
    /// Its declaration as the member of a struct.
    pub fn declare(&self, name: &str, names: &mut Names) -> String {
        let sequence = |element: String, names: &mut Names| {
            let own = names.add(name);
            let length = names.add(&format!("{name}_length"));
            format!("{} {length}; {element} {own}[ {length} ];", integer(32, false, false))
        };
        match self {
            Self::Bytes => sequence(integer(8, false, true), names),
            Self::Words { bits } => sequence(integer(*bits, false, true), names),
            Self::Texts => sequence("string { encoding = UTF8; }".to_owned(), names),
            Self::Text => format!("string {{ encoding = UTF8; }} {};", names.add(name)),
            Self::Unsigned { bits, hex } => format!("{} {};", integer(*bits, false, *hex), names.add(name)),
            Self::Signed { bits } => format!("{} {};", integer(*bits, true, false), names.add(name)),
            Self::Enum { bits, signed, items } => {
                let number = |value: i64| match signed {
                    true => value.to_string(),
                    false => value.cast_unsigned().to_string(),
                };
                let labels: Vec<String> = items
                    .iter()
                    .map(|(label, value)| format!("{} = {}", literal(label), number(*value)))
                    .collect();
                let (base, labels) = (integer(*bits, *signed, false), labels.join(", "));
                format!("enum : {base} {{ {labels} }} {};", names.add(name))
            }
        }
    }

    /// Appends a value. A value of another type is empty.
    pub fn encode(&self, value: &Value, out: &mut Vec<u8>) {
        let count = |count: usize, out: &mut Vec<u8>| {
            out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
        };
        match (self, value) {
            (Self::Unsigned { bits, .. } | Self::Signed { bits } | Self::Enum { bits, .. }, value) => {
                let value = if let Value::Number(value) = value { *value } else { 0 };
                number(value, *bits, out);
            }
            (Self::Text, Value::Text(value)) => text(value, out),
            (Self::Text, _) => text("", out),
            (Self::Bytes, Value::Bytes(value)) => {
                count(value.len(), out);
                out.extend_from_slice(value);
            }
            (Self::Words { bits }, Value::Words(value)) => {
                count(value.len(), out);
                value.iter().for_each(|value| number(*value, *bits, out));
            }
            (Self::Texts, Value::Texts(value)) => {
                count(value.len(), out);
                value.iter().for_each(|value| text(value, out));
            }
            _ => count(0, out),
        }
    }
}

fn number(value: u64, bits: u32, out: &mut Vec<u8>) {
    out.extend(value.to_le_bytes().into_iter().take(size(bits) as usize / 8));
}

/// A text ends at its first NUL. An empty one is written as a space: babeltrace2 2.0 shows an earlier text in its place.
fn text(value: &str, out: &mut Vec<u8>) {
    let value = if value.is_empty() { " " } else { value };
    out.extend(value.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers_and_differ() {
        let mut names = Names::default();
        let made: Vec<String> = ["a-b", "a b", "event", "a_b"].iter().map(|name| names.add(name)).collect();
        assert_eq!(made, ["_a_b", "_a_b_2", "_event", "_a_b_3"]);
    }

    #[test]
    fn sequences_have_their_length_before_them() {
        let declared = Type::Bytes.declare("data", &mut Names::default());
        assert!(declared.ends_with(
            "_data_length; integer { size = 8; align = 8; signed = false; base = 16; } _data[ _data_length ];"
        ));
        let mut out = Vec::new();
        Type::Bytes.encode(&Value::Bytes(vec![1, 2]), &mut out);
        Type::Text.encode(&Value::Text("a\0b".to_owned()), &mut out);
        Type::Text.encode(&Value::Text(String::new()), &mut out);
        Type::Signed { bits: 12 }.encode(&Value::Number(u64::MAX), &mut out);
        Type::Words { bits: 32 }.encode(&Value::Number(1), &mut out);
        assert_eq!(out, [2, 0, 0, 0, 1, 2, b'a', b'?', b'b', 0, b' ', 0, 0xff, 0xff, 0, 0, 0, 0]);
    }
}
