//! Reading places: section LINE. Each line that can be printed is kept as the text of its source line, so that a
//! diagnostic can show it; columns count in that text.

use std::collections::BTreeMap;

use super::cursor::{Cursor, wrong};
use super::error::PpdfError;
use super::sections::Section;
use super::{MAX_FILE_NAME, MAX_LIST};
use crate::ast::{Expr, Location, Operand, ProbePoint, Routine};
use crate::source::{Sources, Span};

/// Section LINE, and the printed lines.
pub(super) struct Lines<'a> {
    at: Cursor<'a>,
    names: Vec<String>,
    known: Vec<BTreeMap<u32, String>>,
}

impl<'a> Lines<'a> {
    pub fn new(section: Section<'a>) -> Result<Self, PpdfError> {
        let mut at = Cursor::new(section);
        let count = at.count("the number of source files", MAX_LIST, 4)?;
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            let offset = at.offset();
            let name = at.text("the name of a source file", MAX_FILE_NAME)?;
            if name.contains(char::is_control) {
                let right = "it must not contain control characters".to_owned();
                return Err(wrong(offset, "the name of a source file", format!("{name:?}"), right));
            }
            names.push(name);
        }
        let known = vec![BTreeMap::new(); count];
        Ok(Self { at, names, known })
    }

    /// The next place. The item prints as `text`, and its name begins at `col`.
    fn next(&mut self, text: &str, col: usize) -> Result<Span, PpdfError> {
        let offset = self.at.offset();
        let file = self.at.u32("a file's number")?;
        let line = self.at.u32("a line")?;
        let Some(known) = self.known.get_mut(file as usize) else {
            let right = format!("it must be less than {}", self.names.len());
            return Err(wrong(offset, "a file's number", file, right));
        };
        known.entry(line).or_insert_with(|| text.to_owned());
        Ok(Span {
            file,
            line,
            col: small(col + 1),
            len: small(text.chars().count().saturating_sub(col)),
            via: 0,
        })
    }

    pub fn probe(&mut self, point: &mut ProbePoint) -> Result<(), PpdfError> {
        let text = point.location.to_source();
        let word = text.find(' ').unwrap_or(text.len());
        let span = self.next(&text, 0)?;
        point.span = Span { len: small(word), ..span };
        point.handler.span = point.span;
        match &mut point.location {
            Location::Offset(low) | Location::Address(low, None) => place(low, span, word + 3),
            Location::Address(low, Some(high)) => {
                place(low, span, word + 3);
                let from = low.span.col + low.span.len;
                place(high, span, from as usize);
            }
        }
        self.body(&mut point.handler)
    }

    pub fn procedure(&mut self, routine: &mut Routine) -> Result<(), PpdfError> {
        routine.span = self.next(&format!("proc {}", routine.name), "proc ".len())?;
        self.body(routine)
    }

    fn body(&mut self, routine: &mut Routine) -> Result<(), PpdfError> {
        for instr in &mut routine.body {
            instr.span = self.next(&instr.to_source(), 0)?;
            let operand = instr.op.row().form.find('%').unwrap_or_default();
            if let Operand::Value(expr) = &mut instr.operand {
                place(expr, instr.span, operand);
            }
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Sources, PpdfError> {
        self.at.finish()?;
        let mut sources = Sources::default();
        for (name, known) in self.names.iter().zip(self.known) {
            sources.add_known(name, known);
        }
        Ok(sources)
    }
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Gives an expression and its terms their spans in the printed line, from column `col`, counted from 0.
fn place(expr: &mut Expr, line: Span, col: usize) {
    let mut at = col;
    let mut spans = Vec::with_capacity(expr.terms.len());
    for (sign, atom) in expr.pieces() {
        at += sign.chars().count();
        let len = atom.chars().count();
        spans.push(Span { col: small(at + 1), len: small(len), ..line });
        at += len;
    }
    for (term, span) in expr.terms.iter_mut().zip(spans) {
        term.span = span;
    }
    expr.span = Span { col: small(col + 1), len: small(at - col), ..line };
}
