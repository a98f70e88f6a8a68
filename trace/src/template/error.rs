//! Errors of template files: one sentence each, with its place. All errors of a set of files are reported at once, up
//! to a limit.

use std::fmt;

/// A place in a file; line 0 is the file as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// The file as named.
    pub file: String,
    /// Line from 1.
    pub line: u32,
    /// Column from 1, in characters.
    pub col: u32,
}

/// One error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place(.file, *.line, *.col))]
pub struct TemplateError {
    /// The file as named.
    pub file: String,
    /// Line from 1; 0 when it is the file as a whole.
    pub line: u32,
    /// Column from 1, in characters.
    pub col: u32,
    /// A sentence with the offending text and what to write instead.
    pub message: String,
}

fn place(file: &str, line: u32, col: u32) -> String {
    if line == 0 { format!("{file}: ") } else { format!("{file}:{line}:{col}: ") }
}

/// All errors, in the order of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateErrors {
    /// The first of them.
    pub list: Vec<TemplateError>,
    /// The number of errors beyond [`TemplateErrors::LIMIT`].
    pub more: usize,
}

impl TemplateErrors {
    /// Most errors that are kept.
    pub const LIMIT: usize = 50;
}

impl fmt::Display for TemplateErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.list.iter().enumerate() {
            write!(f, "{}{error}", if n > 0 { "\n" } else { "" })?;
        }
        if self.more > 0 {
            write!(f, "\n{} more errors are not shown", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for TemplateErrors {}

/// Collects errors.
#[derive(Debug, Default)]
pub(super) struct Errors {
    list: Vec<TemplateError>,
    more: usize,
}

impl Errors {
    pub fn add(&mut self, at: Place, message: String) {
        if self.list.len() == TemplateErrors::LIMIT {
            self.more += 1;
            return;
        }
        self.list.push(TemplateError { file: at.file, line: at.line, col: at.col, message });
    }

    /// The value, if nothing was wrong.
    pub fn into_result<T>(self, value: T) -> Result<T, TemplateErrors> {
        if self.list.is_empty() {
            return Ok(value);
        }
        Err(TemplateErrors { list: self.list, more: self.more })
    }
}
