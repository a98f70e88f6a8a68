//! Why a D program cannot be inserted.

use trapline_d::Error;
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
        error: Error,
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

impl DError {
    /// An error in a text.
    pub(crate) fn in_text(name: &str, is_file: bool, text: &[u8], error: Error) -> Self {
        Self::Text { name: name.to_owned(), is_file, text_line: line_of(text, error.line), error }
    }

    /// DTrace's tag.
    #[must_use]
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Text { error, .. } => error.tag,
            Self::Option { .. } => "D_PRAG_OPTSET",
            Self::Nothing { .. } | Self::Refused { .. } => "D_PDESC_ZERO",
            Self::Destructive | Self::Commands | Self::NotArmed(_) => "D_UNKNOWN",
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
            Self::Option { .. } | Self::Destructive | Self::Commands | Self::NotArmed(_) => return None,
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
