//! The output of `print()`, and memory as bytes.

use super::record::Value;
use super::tables::{PrintMember, PrintType};
use crate::float::Float;
use crate::hex::{HexStyle, hex};
use std::fmt::Write as _;

/// Bytes of a line of a dump.
const LINE: usize = 16;

/// Bytes in hexadecimal with their characters, as `tracemem()` shows them.
pub(crate) fn dump(bytes: &[u8]) -> String {
    let mut out = format!("\n{:11}", "");
    for digit in "0123456789abcdef".chars() {
        let _ = write!(out, "  {digit}");
    }
    out.push_str("  0123456789abcdef\n");
    for (n, line) in bytes.chunks(LINE).enumerate() {
        let _ = write!(out, "{:5}{:5x}:", "", n * LINE);
        for byte in line {
            let _ = write!(out, " {byte:02x}");
        }
        out.push_str(&"   ".repeat(LINE - line.len()));
        out.push_str("  ");
        out.extend(line.iter().map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' }));
        out.push('\n');
    }
    out
}

fn integer(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn signed(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits.clamp(1, 64);
    ((value << shift) as i64) >> shift
}

/// Columns before the first line of a value that is shown over several lines.
const INDENT: usize = 44;

/// The name of a type before its value; structs without a name are `struct`.
fn cast(name: &str) -> String {
    format!("({})", name.trim_end_matches(" (anon)"))
}

/// Shows a value of a type; `depth` is how deep it is nested.
fn show(
    out: &mut String,
    (ty, name): (&PrintType, &str),
    bytes: &[u8],
    bits: Option<(u8, u8)>,
    depth: usize,
) {
    let mut value = integer(bytes);
    if let Some((first, count)) = bits {
        value = value >> first & if count >= 64 { u64::MAX } else { (1 << count) - 1 };
    }
    match ty {
        PrintType::Text(0) => {}
        PrintType::Sou { .. } => {}
        _ => out.push_str(&cast(name)),
    }
    match ty {
        PrintType::Int { character: true, .. } if bits.is_none() => {
            let byte = value as u8;
            let shown = if (0x20..0x7f).contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("\\{byte:o}")
            };
            let _ = write!(out, "'{shown}'");
        }
        PrintType::Int { size, signed: sign, .. } => {
            let width = bits.map_or(u32::from(*size) * 8, |(_, count)| count.into());
            let cut = if width >= 64 { value } else { value & ((1 << width) - 1) };
            let _ = if *sign { write!(out, "{}", signed(value, width)) } else { write!(out, "{cut}") };
        }
        PrintType::Pointer(size) => {
            let value = integer(bytes.get(..usize::from(*size)).unwrap_or(bytes));
            let _ = write!(out, "{value:#x}");
        }
        PrintType::Text(0) => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            let _ = write!(out, "\"{}\"", bytes.get(..end).unwrap_or_default().escape_ascii());
        }
        PrintType::Text(length) => {
            let char = PrintType::Int { size: 1, signed: true, character: true };
            let shown = bytes.get(..*length as usize).unwrap_or(bytes);
            let end = shown.iter().position(|byte| *byte == 0).unwrap_or(shown.len());
            array(out, (&char, "char"), shown.get(..end).unwrap_or_default().chunks(1), depth);
        }
        PrintType::Enum { items, size, signed: sign } => {
            let width = bits.map_or(u32::from(*size) * 8, |(_, count)| count.into());
            let cut = value & (u64::MAX >> (64 - width.clamp(1, 64)));
            let own = if *sign { signed(value, width) } else { cut as i64 };
            let _ = match items.iter().find(|(_, known)| *known == own) {
                Some((name, _)) => write!(out, "{name}"),
                None if *sign => write!(out, "{own}"),
                None => write!(out, "{cut}"),
            };
        }
        PrintType::Array { of, length, size } => {
            let of_name = name.rsplit_once(" [").map_or(name, |(of, _)| of);
            let elements = bytes.chunks((*size as usize).max(1)).take(*length as usize);
            array(out, (of, of_name), elements, depth);
        }
        PrintType::Sou { members } => {
            let _ = writeln!(out, "{} {{", cast(name));
            for member in members {
                let part = bytes.get(member.offset as usize..).unwrap_or_default();
                if is_zero(part, member) {
                    continue;
                }
                let _ = write!(out, "{:indent$}", "", indent = INDENT + depth + 1);
                if !member.name.is_empty() {
                    let _ = write!(out, ".{} = ", member.name);
                }
                show(out, (&member.ty, &member.type_name), part, member.bits, depth + 1);
                out.push_str(",\n");
            }
            let _ = write!(out, "{:indent$}}}", "", indent = INDENT + depth);
        }
        PrintType::Float(size) => {
            let float = bytes.get(..*size as usize).and_then(Float::of);
            out.push_str(&float.map_or_else(|| unshown(bytes, *size), |float| float.to_string()));
        }
        PrintType::Other(size) => out.push_str(&unshown(bytes, *size)),
    }
}

/// Bytes of a value that has no text, so that they cannot be taken for a number.
fn unshown(bytes: &[u8], size: u32) -> String {
    let size = size as usize;
    let shown = bytes.get(..size.min(LINE)).unwrap_or(bytes);
    let more = if size > LINE { " .." } else { "" };
    format!("{{{size} bytes: {}{more}}}", hex(shown, HexStyle::Spaced))
}

/// Whether a member holds nothing but zeroes; dtrace(1) leaves those out.
fn is_zero(part: &[u8], member: &PrintMember) -> bool {
    if let Some((first, count)) = member.bits {
        let mask = if count >= 64 { u64::MAX } else { (1 << count) - 1 };
        return integer(part) >> first & mask == 0;
    }
    part.iter().take(size(&member.ty)).all(|byte| *byte == 0)
}

/// Bytes of a value of a type.
fn size(ty: &PrintType) -> usize {
    match ty {
        PrintType::Int { size, .. } | PrintType::Enum { size, .. } | PrintType::Pointer(size) => {
            (*size).into()
        }
        PrintType::Text(size) | PrintType::Float(size) | PrintType::Other(size) => *size as usize,
        PrintType::Array { length, size, .. } => length.saturating_mul(*size) as usize,
        PrintType::Sou { members } => {
            members.iter().map(|member| member.offset as usize + size(&member.ty)).max().unwrap_or(0)
        }
    }
}

fn array<'b>(
    out: &mut String,
    of: (&PrintType, &str),
    elements: impl Iterator<Item = &'b [u8]>,
    depth: usize,
) {
    out.push_str(" [\n");
    for element in elements {
        let _ = write!(out, "{:indent$}", "", indent = INDENT + depth + 1);
        show(out, of, element, None, depth + 1);
        out.push_str(",\n");
    }
    let _ = write!(out, "{:indent$}]", "", indent = INDENT + depth);
}

/// The output of `print()` for the value of a record.
pub(crate) fn printed(ty: &PrintType, name: &str, address: Option<u64>, value: &Value) -> String {
    let bytes = match value {
        Value::Int(value) => value.to_le_bytes().to_vec(),
        Value::Bytes(bytes) => bytes.clone(),
        Value::Code(code) => code.first().to_le_bytes().to_vec(),
    };
    let mut out = String::new();
    if let Some(address) = address {
        let _ = writeln!(out, "{address:#x} = *");
    }
    let name = name.strip_suffix(" *").filter(|_| address.is_some()).unwrap_or(name);
    if matches!(ty, PrintType::Sou { .. }) {
        let _ = write!(out, "{:INDENT$}", "");
    }
    show(&mut out, (ty, name), &bytes, None, 0);
    out.push('\n');
    out
}
