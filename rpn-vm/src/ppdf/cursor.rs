//! Reading one section: bounded, with the place of each error. No length in a file makes it allocate more than the
//! file's own size allows.

use super::error::PpdfError;
use super::sections::Section;
use super::{MAX_LIST, MAX_NAME, unprintable};
use crate::ast::{Atom, Expr, Term};
use crate::source::Span;

/// A place in a section.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    section: Section<'a>,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(section: Section<'a>) -> Self {
        Self { section, at: 0 }
    }

    /// Its offset in the file.
    pub fn offset(&self) -> usize {
        self.section.offset + self.at
    }

    fn left(&self) -> usize {
        self.section.bytes.len() - self.at
    }

    /// Some bytes.
    pub fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], PpdfError> {
        match self.section.bytes[self.at..].first_chunk() {
            Some(raw) => {
                self.at += N;
                Ok(*raw)
            }
            None => Err(self.ends(what)),
        }
    }

    fn ends(&self, what: &str) -> PpdfError {
        PpdfError::Ends { offset: self.offset(), section: self.section.name, what: what.to_owned() }
    }

    pub fn u8(&mut self, what: &str) -> Result<u8, PpdfError> {
        self.bytes::<1>(what).map(|[byte]| byte)
    }

    pub fn u16(&mut self, what: &str) -> Result<u16, PpdfError> {
        self.bytes(what).map(u16::from_le_bytes)
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, PpdfError> {
        self.bytes(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, PpdfError> {
        self.bytes(what).map(u64::from_le_bytes)
    }

    /// A number of at most `max`.
    pub fn at_most(&mut self, what: &str, max: u32) -> Result<u32, PpdfError> {
        let offset = self.offset();
        let n = self.u32(what)?;
        if n > max { Err(wrong(offset, what, n, format!("it must be at most {max}"))) } else { Ok(n) }
    }

    /// A count of following items of at least `size` bytes each.
    pub fn count(&mut self, what: &str, max: usize, size: usize) -> Result<usize, PpdfError> {
        let offset = self.offset();
        let n = self.u32(what)?;
        let fits = usize::try_from(n).ok().filter(|n| *n <= max && *n <= self.left() / size);
        fits.ok_or_else(|| {
            let room = (self.left() / size).min(max);
            wrong(offset, what, n, format!("it must be at most {room} here"))
        })
    }

    /// A text of at most `max` bytes that can be printed in quotes.
    pub fn text(&mut self, what: &str, max: usize) -> Result<String, PpdfError> {
        let length = self.count(&format!("the length of {what}"), max, 1)?;
        let offset = self.offset();
        let raw = &self.section.bytes[self.at..self.at + length];
        self.at += length;
        let text = std::str::from_utf8(raw).map_err(|error| {
            let at = error.valid_up_to();
            let byte = raw.get(at).copied().unwrap_or_default();
            wrong(
                offset + at,
                what,
                format!("not UTF-8 at this byte ({byte:#04x})"),
                "write it as UTF-8".to_owned(),
            )
        })?;
        Ok(text.to_owned())
    }

    /// A name of the language.
    pub fn name(&mut self, what: &str) -> Result<String, PpdfError> {
        let offset = self.offset();
        let name = self.text(what, MAX_NAME)?;
        match unprintable(&name) {
            Some(why) => Err(wrong(offset, what, format!("{name:?}"), why)),
            None => Ok(name),
        }
    }

    /// Names with their count before them.
    pub fn names(&mut self, what: &str) -> Result<Vec<String>, PpdfError> {
        let count = self.count(&format!("the number of names of {what}"), MAX_LIST, 4)?;
        let mut names: Vec<String> = Vec::with_capacity(count);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..count {
            let offset = self.offset();
            let name = self.name(what)?;
            if !seen.insert(name.to_ascii_lowercase()) {
                return Err(wrong(offset, what, format!("{name:?}"), "each name must be unique".to_owned()));
            }
            names.push(name);
        }
        Ok(names)
    }

    /// An expression, without places.
    pub fn expr(&mut self, what: &str) -> Result<Expr, PpdfError> {
        let offset = self.offset();
        let count = self.count(&format!("the number of terms of {what}"), MAX_LIST, 5)?;
        if count == 0 {
            let right = "it must be at least 1".to_owned();
            return Err(wrong(offset, &format!("the number of terms of {what}"), 0, right));
        }
        let mut terms = Vec::with_capacity(count);
        for _ in 0..count {
            let offset = self.offset();
            let kind = self.u8(&format!("a term of {what}"))?;
            let atom = match kind {
                0 | 1 => Atom::Number(self.u64(&format!("a number of {what}"))?),
                2 | 3 => Atom::Symbol(self.name(&format!("a symbol of {what}"))?),
                _ => {
                    let right = "it must be 0 to 3".to_owned();
                    return Err(wrong(offset, &format!("the kind of a term of {what}"), kind, right));
                }
            };
            terms.push(Term { negative: kind & 1 != 0, atom, span: Span::default() });
        }
        Ok(Expr { terms, span: Span::default() })
    }

    /// Checks that nothing is left.
    pub fn finish(self) -> Result<(), PpdfError> {
        match self.left() {
            0 => Ok(()),
            left => Err(PpdfError::Trailing { offset: self.offset(), section: self.section.name, left }),
        }
    }
}

/// The error for an invalid value.
pub(super) fn wrong(offset: usize, what: &str, value: impl ToString, right: String) -> PpdfError {
    PpdfError::Value { offset, what: what.to_owned(), value: value.to_string(), right }
}
