//! The disassembler: a program as source that builds to the same file, with marks that keep the lines
//! of the original source.
//!
//! A mark is a comment, `//@ LINE FILE`; the file is left out if it is that of the mark before. Marks are read only
//! in a text whose first line is [`HEADING`], and only when it is built to a PPDF file.

use std::collections::BTreeMap;

use crate::ast::Program;
use crate::source::{Sources, Span};

/// The first line of every disassembly.
pub(super) const HEADING: &str = "// PPDF 1, disassembled. `//@ LINE FILE` says what it was built from; \
                                  a line without it counts as one of this file.";
/// The start of a mark.
const MARK: &str = "//@ ";

/// A program that was read from a PPDF file as source text with marks; `remark` is put under its first line.
///
/// Building it gives the same file.
#[must_use]
pub fn disassemble(program: &Program, remark: Option<&str>) -> String {
    let mut file = None;
    let text = program.to_source_with(&mut |span| {
        let same = file.replace(span.file) == Some(span.file);
        if same {
            format!("{MARK}{}", span.line)
        } else {
            format!("{MARK}{} {}", span.line, program.sources.name(span.file))
        }
    });
    let remark = remark.map(|remark| format!("// {remark}\n")).unwrap_or_default();
    format!("{HEADING}\n{remark}{text}")
}

/// The marks of all files of a compilation.
#[derive(Debug)]
pub(super) struct Marks {
    names: Vec<String>,
    /// For each file, by its lines: an index into `names`, and the line there.
    files: Vec<BTreeMap<u32, (usize, u32)>>,
}

impl Marks {
    pub fn of(sources: &Sources) -> Self {
        let mut marks = Self { names: Vec::new(), files: Vec::new() };
        for file in 0..sources.file_count() {
            let found =
                if sources.line(file, 1) == HEADING { marks.scan(sources, file) } else { BTreeMap::new() };
            marks.files.push(found);
        }
        marks
    }

    fn scan(&mut self, sources: &Sources, file: u32) -> BTreeMap<u32, (usize, u32)> {
        let mut found = BTreeMap::new();
        let mut current = None;
        for number in 1..=sources.line_count(file) {
            let Some(mark) = comment(sources.line(file, number)).strip_prefix(MARK) else { continue };
            let (line, name) = mark.split_once(' ').map_or((mark, None), |(line, name)| (line, Some(name)));
            let Ok(line) = line.parse() else { continue };
            if let Some(name) = name {
                self.names.push(name.to_owned());
                current = Some(self.names.len() - 1);
            }
            if let Some(name) = current {
                found.insert(number, (name, line));
            }
        }
        found
    }

    /// File and line of a place: those of its mark if it has one.
    pub fn position<'a>(&'a self, sources: &'a Sources, span: Span) -> (&'a str, u32) {
        let mark = self.files.get(span.file as usize).and_then(|lines| lines.get(&span.line));
        match mark.and_then(|(name, line)| Some((self.names.get(*name)?, *line))) {
            Some((name, line)) => (name, line),
            None => sources.presumed(span),
        }
    }
}

/// The comment that ends a line, with its slashes; empty when there is none.
fn comment(line: &str) -> &str {
    let mut quoted = false;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '/' if before == '/' && !quoted => return line.get(at - 1..).unwrap_or_default(),
            _ => {}
        }
        before = c;
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::comment;

    #[test]
    fn a_comment_begins_at_the_first_slashes_outside_quotes() {
        for (line, found) in [
            ("push 1 //@ 3", "//@ 3"),
            ("push \"a//@ 4\" //@ 5 x//y", "//@ 5 x//y"),
            ("push \"//@ 4", ""),
            ("a / b /", ""),
            ("//@ 1", "//@ 1"),
            ("é\"//\"// \"", "// \""),
            ("\"/\"/x", ""),
        ] {
            assert_eq!(comment(line), found, "{line}");
        }
    }
}
