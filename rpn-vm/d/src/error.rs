//! What is wrong with a program: DTrace's tag, the place, one sentence.

/// An error in the text of a D program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Error {
    /// DTrace's tag, such as `D_SYNTAX`; `-xerrtags` shows it.
    pub tag: &'static str,
    /// Line of the text, from 1.
    pub line: u32,
    /// Column of that line in characters, from 1; 0 where only the line is known.
    pub column: u32,
    /// What is wrong, in DTrace's words where it has some.
    pub message: String,
}

/// A place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pos {
    pub line: u32,
    pub column: u32,
}

impl Pos {
    /// An error here.
    pub fn error(self, tag: &'static str, message: impl Into<String>) -> Error {
        Error { tag, line: self.line, column: self.column, message: message.into() }
    }
}

/// A result of the compiler.
pub(crate) type Result<T> = std::result::Result<T, Error>;
