//! Globs of names: `*`, `?`, `[a-z]`, `[!x]`, `{a,b}`, `\x`.

use globset::{GlobBuilder, GlobMatcher};

/// A malformed glob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid glob {pattern:?}: {reason}; use `*`, `?`, `[a-z]`, `[!x]`, `{{a,b}}` and `\\x`")]
pub struct GlobError {
    /// The pattern.
    pub pattern: String,
    /// Why it is malformed.
    pub reason: String,
}

/// A pattern for names; upper and lower case are distinguished.
#[derive(Debug, Clone)]
pub struct FunctionGlob(GlobMatcher);

impl FunctionGlob {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// An unclosed class, a range that runs backwards, a backslash at the end.
    pub fn new(pattern: &str) -> Result<Self, GlobError> {
        let glob = GlobBuilder::new(pattern).literal_separator(false).backslash_escape(true).build();
        match glob {
            Ok(glob) => Ok(Self(glob.compile_matcher())),
            Err(error) => Err(GlobError { pattern: pattern.to_owned(), reason: error.kind().to_string() }),
        }
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}
