//! Why a D program cannot be inserted.

use super::DText;
use crate::signed::NotSigned;
use trapline_d::{Error, file_of, header};
use trapline_rpn::{Diagnostic, Diagnostics, Severity};

/// Why a D program cannot be inserted. The sentences are dtrace(1)'s.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DError {
    /// A text is wrong.
    #[error("{name}: {error}")]
    Text {
        /// The name of the text.
        name: String,
        /// Whether it is a file.
        is_file: bool,
        /// What is wrong, and where.
        error: Box<Error>,
        /// The line of the text.
        text_line: String,
    },
    /// An option does not exist, or does not take this value.
    #[error("failed to set -x {name}: {why}")]
    Option {
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// A description names no probe.
    #[error("line {line}: probe description {description} does not match any probes{why}")]
    Nothing {
        /// The name of the text.
        name: String,
        /// Line of the clause.
        line: u32,
        /// The description, with all its colons.
        description: String,
        /// The rest of the sentence, such as names that are similar; it may be empty.
        why: String,
        /// That line.
        text_line: String,
    },
    /// The provider of a description refuses it.
    #[error("line {line}: {sentence}")]
    Refused {
        /// The name of the text.
        name: String,
        /// Line of the clause.
        line: u32,
        /// The provider's sentence.
        sentence: String,
        /// That line.
        text_line: String,
    },
    /// The program has destructive actions, which `-w` allows.
    #[error("could not enable tracing: Destructive actions not allowed")]
    Destructive,
    /// The program has `system()`, which `-x system` allows.
    #[error("could not enable tracing: system( ) runs commands on this host, which -x system allows")]
    Commands,
    /// Programs must be signed.
    #[error(transparent)]
    NotSigned(#[from] NotSigned),
    /// A probe cannot be armed.
    #[error("failed to enable the program: {0}")]
    NotArmed(String),
}

/// A line of a text, from 1.
pub(crate) fn line_of(text: &[u8], line: u32) -> String {
    let text = String::from_utf8_lossy(text);
    let line = (line as usize).checked_sub(1).and_then(|line| text.lines().nth(line));
    line.unwrap_or_default().to_owned()
}

/// Most bytes of a file that is read again to show a line of it.
const LARGEST: u64 = 16 << 20;

/// A line of a file that the preprocessor has read, if it is still there.
fn line_of_source(file: &str, line: u32) -> Option<String> {
    if let Some(text) = header(file) {
        return Some(line_of(text.as_bytes(), line));
    }
    // A pipe would wait for who writes to it.
    std::fs::metadata(file).ok().filter(|found| found.is_file() && found.len() <= LARGEST)?;
    Some(line_of(&std::fs::read(file).ok()?, line)).filter(|line| !line.is_empty())
}

/// The column of a source's line that a column of the preprocessed line stands for; 0 where that is not known.
fn column_in(source: &str, preprocessed: &str, column: u32) -> u32 {
    let count = column as usize;
    if source.chars().take(count).eq(preprocessed.chars().take(count)) {
        return column;
    }
    let rest: String = preprocessed.chars().skip(count.saturating_sub(1)).collect();
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let word = rest.get(..end).filter(|word| !word.is_empty());
    let mut found = word.into_iter().flat_map(|word| source.match_indices(word));
    match (found.next(), found.next()) {
        (Some((at, _)), None) => source.get(..at).map_or(0, |before| before.chars().count() as u32 + 1),
        _ => 0,
    }
}

impl DError {
    /// An error in a text: in the file that the preprocessor has taken the line from.
    pub(crate) fn in_text(text: &DText, mut error: Error) -> Self {
        let file = file_of(&text.text, error.text_line);
        // In markers, quotes are replaced.
        let own = file.as_ref().is_none_or(|file| *file == text.name.replace('"', "'"));
        let mut text_line = line_of(&text.text, error.text_line);
        let (name, is_file) = match &file {
            Some(file) if !own => (file.clone(), true),
            _ => (text.name.clone(), text.is_file),
        };
        if let Some(source) = line_of_source(&name, error.line).filter(|_| file.is_some() && is_file) {
            error.column = column_in(&source, &text_line, error.column);
            text_line = source;
        }
        Self::Text { name, is_file, text_line, error: Box::new(error) }
    }

    /// DTrace's tag.
    #[must_use]
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Text { error, .. } => error.tag,
            Self::Option { .. } => "D_PRAG_OPTSET",
            Self::Nothing { .. } | Self::Refused { .. } => "D_PDESC_ZERO",
            Self::Destructive | Self::Commands | Self::NotSigned(_) | Self::NotArmed(_) => "D_UNKNOWN",
        }
    }

    /// As a finding with its place in the text; `None` if it has none.
    #[must_use]
    pub fn findings(&self) -> Option<Diagnostics> {
        let help = match self {
            Self::Text { error, .. } => error.help.as_deref().map(str::to_owned),
            _ => None,
        };
        let (name, line, col, message, source) = match self {
            Self::Text { name, error, text_line, .. } => {
                (name, error.line, error.column, error.message.clone(), text_line.clone())
            }
            Self::Nothing { name, line, description, why, text_line } => {
                let message = format!("probe description {description} does not match any probes{why}");
                (name, *line, 0, message, text_line.clone())
            }
            Self::Refused { name, line, sentence, text_line } => {
                (name, *line, 0, sentence.clone(), text_line.clone())
            }
            Self::Option { .. }
            | Self::Destructive
            | Self::Commands
            | Self::NotSigned(_)
            | Self::NotArmed(_) => return None,
        };
        let found = Diagnostic {
            severity: Severity::Error,
            code: self.tag(),
            file: name.clone(),
            line,
            col: col.max(1),
            len: 1,
            message: format!("[{}] {message}", self.tag()),
            notes: Vec::new(),
            help,
            source,
        };
        Some(Diagnostics { list: vec![found], more: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_that_of_the_word_in_the_source() {
        assert_eq!(column_in("  y = nosuch;", "  y = nosuch;", 7), 7);
        // A macro before it was replaced, and a comment is gone.
        assert_eq!(column_in("LONG(1) + nosuch;", "((long)1) + nosuch;", 13), 11);
        assert_eq!(column_in("/* */ y = nosuch;", "y = nosuch;", 5), 11);
        // The word is from a macro, or more than one place could be meant.
        assert_eq!(column_in("THREE(x);", "printf(nosuch);", 8), 0);
        assert_eq!(column_in("M x + x;", "1 x + x;", 3), 0);
    }
}
