//! Source files and positions in them.
//!
//! It keeps every text that took part in a compilation, so that a diagnostic
//! can show its line; of a compiled file, the lines that it can print again.
//! It reads no files; a [`crate::Loader`] does.

use std::collections::BTreeMap;

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

#[derive(Debug)]
struct SourceFile {
    name: String,
    lines: Vec<String>,
    /// Lines known without the text: of a file that was compiled elsewhere.
    known: BTreeMap<u32, String>,
}

/// The files of one compilation.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// Adds a file and answers its index.
    pub fn add(&mut self, name: &str, text: &str) -> u32 {
        let lines = text.lines().map(str::to_owned).collect();
        self.push(SourceFile { name: name.to_owned(), lines, known: BTreeMap::new() })
    }

    /// Adds a file of which only the name and some lines are known, and answers its index.
    pub fn add_known(&mut self, name: &str, known: BTreeMap<u32, String>) -> u32 {
        self.push(SourceFile { name: name.to_owned(), lines: Vec::new(), known })
    }

    fn push(&mut self, file: SourceFile) -> u32 {
        self.files.push(file);
        u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// How many files there are.
    #[must_use]
    pub fn file_count(&self) -> u32 {
        u32::try_from(self.files.len()).unwrap_or(u32::MAX)
    }

    /// The name of a file as it was given.
    #[must_use]
    pub fn name(&self, file: u32) -> &str {
        self.files.get(file as usize).map_or("?", |f| &f.name)
    }

    /// One line without its end; empty when there is none.
    #[must_use]
    pub fn line(&self, file: u32, line: u32) -> &str {
        let Some(file) = self.files.get(file as usize) else { return "" };
        let text = (line as usize).checked_sub(1).and_then(|n| file.lines.get(n));
        text.or_else(|| file.known.get(&line)).map_or("", String::as_str)
    }

    /// How many lines the text of a file has; none when only some lines are known.
    #[must_use]
    pub fn line_count(&self, file: u32) -> u32 {
        self.files.get(file as usize).map_or(0, |f| u32::try_from(f.lines.len()).unwrap_or(u32::MAX))
    }
}
