//! A template applied to a record's data.
//!
//! Data that does not fit never ends formatting: the text so far is kept, a marked line says why, and the rest is
//! dumped. Bytes that a template leaves over are dumped too. A guest's bytes become visible characters only.

use std::fmt::Write;

use super::syntax::{Node, Op};
use crate::dump::dump;
use crate::float::Float;
use crate::log_prefix::{Prefix, Token};
use crate::printable::visible;

/// Most bytes of text for a record's data, without a marked dump after it.
pub const MAX_TEXT: usize = 1 << 20;

/// Why data does not fit.
struct Misfit(String);

/// Formats `data`; `word` is the guest's word in bytes.
pub(super) fn apply(nodes: &[Node], data: &[u8], word: usize) -> String {
    let mut cursor = Cursor { data, at: 0, word, out: String::new() };
    let result = cursor.nodes(nodes, data.len());
    let Cursor { at, mut out, .. } = cursor;
    let left = data.get(at..).unwrap_or_default();
    match result {
        Ok(()) if left.is_empty() => return out,
        Ok(()) => mark(&mut out, &format!("{} left over by the template", bytes(left.len()))),
        Err(Misfit(why)) => mark(&mut out, &why),
    }
    if !left.is_empty() {
        out.push('\n');
        dump(left, at, &mut out);
    }
    out
}

/// Appends a marked line.
fn mark(out: &mut String, text: &str) {
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    let _ = write!(out, "({text})");
}

fn bytes(n: usize) -> String {
    format!("{n} byte{}", if n == 1 { "" } else { "s" })
}

struct Cursor<'d> {
    data: &'d [u8],
    at: usize,
    word: usize,
    out: String,
}

impl<'d> Cursor<'d> {
    fn nodes(&mut self, nodes: &[Node], end: usize) -> Result<(), Misfit> {
        for node in nodes {
            match node {
                Node::Literal(text) => self.out.push_str(text),
                Node::Do(op) => self.op(op, end)?,
            }
            if self.out.len() > MAX_TEXT {
                let mut cut = MAX_TEXT;
                while !self.out.is_char_boundary(cut) {
                    cut -= 1;
                }
                self.out.truncate(cut);
                return Err(Misfit(format!("the text is cut here, at {MAX_TEXT} bytes")));
            }
        }
        Ok(())
    }

    /// `n` bytes for `op`, out of those before `end`.
    fn take(&mut self, n: usize, op: &Op, end: usize) -> Result<&'d [u8], Misfit> {
        let left = end.saturating_sub(self.at);
        let taken = self
            .data
            .get(self.at..self.at + n)
            .filter(|_| n <= left)
            .ok_or_else(|| self.short(op, n, left))?;
        self.at += n;
        Ok(taken)
    }

    fn short(&self, op: &Op, n: usize, left: usize) -> Misfit {
        let at = self.at;
        Misfit(format!("the template does not fit at +{at:08x}: %{op} needs {}, {left} are left", bytes(n)))
    }

    fn op(&mut self, op: &Op, end: usize) -> Result<(), Misfit> {
        match op {
            Op::Chars(n) => {
                let taken = self.take(*n, op, end)?;
                self.out.extend(taken.iter().map(|&byte| visible(byte)));
            }
            Op::Signed(n) => {
                let value = integer(self.take(*n, op, end)?);
                let unused = 128 - 8 * *n as u32;
                let _ = write!(self.out, "{}", (value << unused) as i128 >> unused);
            }
            Op::Unsigned(n) => {
                let value = integer(self.take(*n, op, end)?);
                let _ = write!(self.out, "{value}");
            }
            Op::Hex(n) => {
                for byte in self.take(*n, op, end)?.iter().rev() {
                    let _ = write!(self.out, "{byte:02x}");
                }
            }
            Op::Float(n) => {
                let taken = self.take(*n, op, end)?;
                self.out.push_str(&Float::of(taken).map_or_else(String::new, |float| float.to_string()));
            }
            Op::Skip(n) => {
                self.take(*n, op, end)?;
            }
            Op::Text => self.text(op, end)?,
            Op::Dump => {
                dump(self.data.get(self.at..end).unwrap_or_default(), 0, &mut self.out);
                self.at = end.max(self.at);
            }
            Op::Prefixed(inner) => self.prefixed(inner.as_deref(), op, end)?,
            Op::Repeat(nodes) => self.repeat(nodes, op, end)?,
        }
        Ok(())
    }

    /// Characters up to a NUL, which is consumed too, or to the end.
    fn text(&mut self, op: &Op, end: usize) -> Result<(), Misfit> {
        let rest = self.data.get(self.at..end).unwrap_or_default();
        if rest.is_empty() {
            return Err(self.short(op, 1, 0));
        }
        self.until_nul(rest);
        Ok(())
    }

    fn until_nul(&mut self, rest: &[u8]) {
        let length = rest.iter().position(|&byte| byte == 0);
        let shown = rest.get(..length.unwrap_or(rest.len())).unwrap_or_default();
        self.out.extend(shown.iter().map(|&byte| visible(byte)));
        self.at += length.map_or(rest.len(), |length| length + 1);
    }

    /// The prefix at this offset. For a fault, prints it, skips its address and returns `None`: there is nothing to
    /// format.
    fn prefix(&mut self, op: &Op, end: usize) -> Result<Option<Prefix>, Misfit> {
        let start = self.at;
        let raw = self.take(Prefix::SIZE, op, end)?;
        let Some(prefix) = Prefix::parse(raw) else {
            self.at = start;
            let token = raw.first().copied().unwrap_or_default();
            let known = "a prefix begins with 0 to 7, fe or ff";
            return Err(Misfit(format!(
                "the template does not fit at +{start:08x}: {token:02x} begins no prefix; {known}"
            )));
        };
        let what = match prefix.token {
            Token::FlatFault => "address",
            Token::SelectorFault => "selector",
            _ => return Ok(Some(prefix)),
        };
        let count = usize::from(prefix.count);
        let left = end.saturating_sub(self.at);
        if !(1..=MAX_ADDRESS).contains(&count) || count > left {
            self.at = start;
            let right = format!("it must have 1 to {MAX_ADDRESS}, all within the record");
            let text = format!(
                "the template does not fit at +{start:08x}: the {what} of a fault has {}, {left} are left; {right}",
                bytes(count)
            );
            return Err(Misfit(text));
        }
        let value = integer(self.take(count, op, end)?);
        let _ = write!(self.out, "(fault at {what} 0x{value:0digits$x})", digits = count * 2);
        Ok(None)
    }

    /// Where the data after a prefix ends; it must be before `end`.
    fn region(&mut self, length: usize, op: &Op, end: usize) -> Result<usize, Misfit> {
        let left = end.saturating_sub(self.at);
        if length > left {
            self.at -= Prefix::SIZE;
            let (at, counted) = (self.at, bytes(length));
            let text = format!(
                "the template does not fit at +{at:08x}: the prefix of %{op} counts {counted}, {left} are left"
            );
            return Err(Misfit(text));
        }
        Ok(self.at + length)
    }

    fn prefixed(&mut self, inner: Option<&Op>, op: &Op, end: usize) -> Result<(), Misfit> {
        let Some(prefix) = self.prefix(op, end)? else { return Ok(()) };
        let length = prefix.bytes(self.word);
        match (inner, length) {
            // The count of a string is a maximum: a NUL ends both the string and its bytes earlier.
            (Some(Op::Text), Some(length)) if prefix.token == Token::Text => {
                let left = self.data.get(self.at..end).unwrap_or_default();
                let capped = left.get(..length.min(left.len())).unwrap_or_default();
                if capped.len() < length && !capped.contains(&0) {
                    self.region(length, op, end)?;
                }
                self.until_nul(capped);
            }
            (Some(Op::Text), Some(length)) => {
                let region = self.region(length, op, end)?;
                self.until_nul(self.data.get(self.at..region).unwrap_or_default());
                self.at = region;
            }
            (Some(Op::Dump), Some(length)) => {
                let region = self.region(length, op, end)?;
                self.op(&Op::Dump, region)?;
            }
            (Some(inner), _) => self.op(inner, end)?,
            (None, _) => {}
        }
        Ok(())
    }

    /// Applies the nodes until the bytes that the prefix counts are consumed; when it counts records, once for each.
    fn repeat(&mut self, nodes: &[Node], op: &Op, end: usize) -> Result<(), Misfit> {
        let Some(prefix) = self.prefix(op, end)? else { return Ok(()) };
        let Some(length) = prefix.bytes(self.word) else {
            for _ in 0..prefix.count {
                let before = self.at;
                self.nodes(nodes, end)?;
                if self.at == before {
                    break;
                }
            }
            return Ok(());
        };
        let region = self.region(length, op, end)?;
        while self.at < region {
            let before = self.at;
            self.nodes(nodes, region)?;
            if self.at == before {
                break;
            }
        }
        Ok(())
    }
}

/// Longest address of a fault, in bytes.
const MAX_ADDRESS: usize = 8;

/// A little-endian integer of at most 16 bytes.
fn integer(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u128::from(byte))
}
