//! A value that was read by its shape, as text and as JSON.

use std::fmt::Write as _;

use crate::float::Float;
use serde_json::{Map, Value, json};

/// From here on, numbers without a sign are probably addresses or flags and are shown in hexadecimal.
const GREAT: u64 = 1 << 31;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    Signed(i64),
    Unsigned(u64),
    Hex(u64),
    Bool(bool),
    Float(Float),
    /// A value of an enumeration, by its name.
    Named(i64, String),
    /// A number, and the names of its flags.
    Flags(u64, Vec<String>),
    /// Text with its address if it was read through a pointer, and whether it goes on.
    Text {
        address: Option<u64>,
        bytes: Vec<u8>,
        cut: bool,
    },
    /// A pointer to memory that could not be read.
    Unreadable(u64),
    Null,
    Fields {
        address: u64,
        fields: Vec<(String, Seen)>,
        more: bool,
    },
    /// A member that is not shown.
    Left(&'static str),
}

/// Text in quotes, with C's escapes.
pub(super) fn quoted(bytes: &[u8], cut: bool, out: &mut String) {
    out.push('"');
    for byte in bytes {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            0x20..=0x7e => out.push(char::from(*byte)),
            // Three octal digits end by themselves. Writing to a string cannot fail.
            _ => drop(write!(out, "\\{byte:03o}")),
        }
    }
    out.push_str(if cut { "\".." } else { "\"" });
}

impl Seen {
    /// Appends it as text.
    pub fn text(&self, out: &mut String) {
        // Writing to a string cannot fail.
        match self {
            Self::Signed(value) => drop(write!(out, "{value}")),
            Self::Unsigned(value) if *value < GREAT => drop(write!(out, "{value}")),
            Self::Unsigned(value) | Self::Hex(value) => drop(write!(out, "{value:#x}")),
            Self::Bool(value) => drop(write!(out, "{value}")),
            Self::Float(value) => drop(write!(out, "{value}")),
            Self::Named(_, name) => out.push_str(name),
            Self::Flags(_, names) => out.push_str(&names.join("|")),
            Self::Text { bytes, cut, .. } => quoted(bytes, *cut, out),
            Self::Unreadable(address) => drop(write!(out, "{address:#x} <unreadable>")),
            Self::Null => out.push_str("NULL"),
            Self::Fields { address, fields, more } => {
                let _ = write!(out, "{address:#x} {{");
                for (n, (name, value)) in fields.iter().enumerate() {
                    let _ = write!(out, "{}{name}=", if n > 0 { ", " } else { "" });
                    value.text(out);
                }
                out.push_str(match (more, fields.is_empty()) {
                    (true, true) => "..}",
                    (true, false) => ", ..}",
                    (false, _) => "}",
                });
            }
            Self::Left(shown) => out.push_str(shown),
        }
    }

    /// It as JSON: numbers and booleans as they are, addresses as text in hexadecimal.
    pub fn json(&self) -> Value {
        let hex = |value: &u64| json!(format!("{value:#x}"));
        match self {
            Self::Signed(value) => json!(value),
            Self::Unsigned(value) => json!(value),
            Self::Hex(value) => hex(value),
            Self::Bool(value) => json!(value),
            Self::Float(value) => value.json(),
            Self::Named(value, name) => json!({"value": value, "name": name}),
            Self::Flags(value, names) => json!({"value": value, "flags": names}),
            Self::Text { address, bytes, cut } => {
                let mut object = Map::new();
                if let Some(address) = address {
                    object.insert("address".to_owned(), hex(address));
                }
                object.insert("text".to_owned(), json!(String::from_utf8_lossy(bytes)));
                if *cut {
                    object.insert("cut".to_owned(), json!(true));
                }
                Value::Object(object)
            }
            Self::Unreadable(address) => json!({"address": hex(address), "unreadable": true}),
            Self::Null | Self::Left(_) => Value::Null,
            Self::Fields { address, fields, .. } => {
                let shown = fields.iter().filter(|(_, value)| !matches!(value, Self::Left(_)));
                let fields: Map<String, Value> =
                    shown.map(|(name, value)| (name.clone(), value.json())).collect();
                json!({"address": hex(address), "fields": fields})
            }
        }
    }
}
