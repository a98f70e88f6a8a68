//! Source files, and positions in them.
//!
//! It keeps every source text of a compilation, the includes between files, and the macro expansions,
//! so that a diagnostic can show its line and its origin. Of a compiled file it keeps the lines that can be printed
//! again. A [`crate::Loader`] reads the files. A position counts physical lines; messages show the presumed line,
//! which `#line` can change.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A place in a source file. Line and column count from 1; columns and lengths are characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Index of the file in [`Sources`].
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column of the first character, from 1.
    pub col: u32,
    /// Number of characters.
    pub len: u32,
    /// The macro expansion of [`Sources`] that it comes from, counted from 1; 0 if the source text has it here.
    pub via: u32,
}

impl Span {
    /// The span from the start of this one to the end of `other`, when both are on one line.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        if self.file != other.file || self.line != other.line || other.col < self.col {
            return self;
        }
        Self { len: (other.col + other.len).saturating_sub(self.col).max(self.len), ..self }
    }
}

/// The effect of `#line`: from this physical line on, lines have other numbers and perhaps another file name.
#[derive(Debug)]
struct Mark {
    from: u32,
    number: u32,
    name: Option<String>,
}

#[derive(Debug, Default)]
struct SourceFile {
    name: String,
    lines: Arc<[String]>,
    /// Lines of a file that was compiled elsewhere, known without its text.
    known: BTreeMap<u32, String>,
    included_from: Option<Span>,
    marks: Vec<Mark>,
}

/// The files of one compilation.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
    main: u32,
    /// Name and place of each macro definition.
    macros: Vec<(String, Span)>,
    /// For each expansion its macro, and the expansion that contained the macro's name, or 0.
    expansions: Vec<(u32, u32)>,
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Sources {
    /// Adds a file and returns its index.
    pub fn add(&mut self, name: &str, text: &str) -> u32 {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().map(str::to_owned).collect();
        self.push(SourceFile { name: name.to_owned(), lines, ..SourceFile::default() })
    }

    /// Adds a file of which only the name and some lines are known, and returns its index.
    pub fn add_known(&mut self, name: &str, known: BTreeMap<u32, String>) -> u32 {
        self.push(SourceFile { name: name.to_owned(), known, ..SourceFile::default() })
    }

    fn push(&mut self, file: SourceFile) -> u32 {
        self.files.push(file);
        small(self.files.len() - 1)
    }

    /// Adds a file that the `#include` at `from` names.
    pub(crate) fn add_included(&mut self, name: &str, text: &str, from: Span) -> u32 {
        let file = self.add(name, text);
        if let Some(added) = self.files.last_mut() {
            added.included_from = Some(from);
        }
        file
    }

    /// The main file. Files before it are definitions of the command line.
    #[must_use]
    pub const fn main(&self) -> u32 {
        self.main
    }

    pub(crate) fn set_main(&mut self, file: u32) {
        self.main = file;
    }

    fn file(&self, file: u32) -> Option<&SourceFile> {
        self.files.get(file as usize)
    }

    /// How many files there are.
    #[must_use]
    pub fn file_count(&self) -> u32 {
        u32::try_from(self.files.len()).unwrap_or(u32::MAX)
    }

    /// The name of a file as it was given.
    #[must_use]
    pub fn name(&self, file: u32) -> &str {
        self.file(file).map_or("?", |f| &f.name)
    }

    /// One physical line without its end; empty when there is none.
    #[must_use]
    pub fn line(&self, file: u32, line: u32) -> &str {
        let Some(file) = self.file(file) else { return "" };
        let text = (line as usize).checked_sub(1).and_then(|n| file.lines.get(n));
        text.or_else(|| file.known.get(&line)).map_or("", String::as_str)
    }

    /// How many physical lines the text of a file has; none when only some lines are known.
    #[must_use]
    pub fn line_count(&self, file: u32) -> u32 {
        self.file(file).map_or(0, |f| small(f.lines.len()))
    }

    pub(crate) fn lines(&self, file: u32) -> Arc<[String]> {
        self.file(file).map_or_else(|| Arc::from([]), |f| Arc::clone(&f.lines))
    }

    /// File name and line number of a place as the user should see them: `#line` counts.
    #[must_use]
    pub fn presumed(&self, span: Span) -> (&str, u32) {
        let Some(file) = self.file(span.file) else { return ("?", span.line) };
        let before = file.marks.partition_point(|m| m.from <= span.line);
        let Some(mark) = before.checked_sub(1).and_then(|n| file.marks.get(n)) else {
            return (&file.name, span.line);
        };
        let named = file.marks[..before].iter().rev().find_map(|m| m.name.as_deref());
        (named.unwrap_or(&file.name), mark.number.saturating_add(span.line - mark.from))
    }

    /// From physical line `from` on, lines count from `number`.
    pub(crate) fn mark(&mut self, file: u32, from: u32, number: u32, name: Option<String>) {
        if let Some(file) = self.files.get_mut(file as usize) {
            // An unchanged name is repeated here, so that a look-up needs one entry only.
            let name = name.or_else(|| file.marks.last().and_then(|m| m.name.clone()));
            file.marks.push(Mark { from, number, name });
        }
    }

    /// Whether a place is in the main file, also by `#line`.
    pub(crate) fn in_main(&self, span: Span) -> bool {
        span.file == self.main && span.via == 0 && self.presumed(span).0 == self.name(self.main)
    }

    /// Registers a macro definition.
    pub(crate) fn define(&mut self, name: &str, at: Span) -> u32 {
        self.macros.push((name.to_owned(), at));
        small(self.macros.len() - 1)
    }

    /// Registers an expansion of a macro whose name comes from expansion `parent`; returns its number.
    pub(crate) fn expand(&mut self, definition: u32, parent: u32) -> u32 {
        self.expansions.push((definition, parent));
        small(self.expansions.len())
    }

    /// The macros that a place was expanded from, as name and definition; the one in the source text comes first.
    pub(crate) fn expansions(&self, span: Span) -> Vec<(&str, Span)> {
        let mut chain = Vec::new();
        let mut via = span.via;
        while let Some((definition, parent)) =
            (via as usize).checked_sub(1).and_then(|n| self.expansions.get(n))
        {
            if let Some((name, at)) = self.macros.get(*definition as usize) {
                chain.push((name.as_str(), *at));
            }
            via = *parent;
        }
        chain.reverse();
        chain
    }

    /// The `#include` directives that led to a place, the innermost first.
    pub(crate) fn includes(&self, span: Span) -> Vec<Span> {
        let mut chain = Vec::new();
        let mut file = span.file;
        while let Some(from) = self.file(file).and_then(|f| f.included_from) {
            chain.push(from);
            file = from.file;
        }
        chain
    }
}
