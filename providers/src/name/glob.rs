//! Globs of names: `*`, `?`, `[a-z]`, `[!x]`, `{a,b}`, `\x`.

use globset::GlobBuilder;
use regex::bytes::Regex;

/// Bytes of the longest pattern.
const MOST_BYTES: usize = 4096;

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
pub struct FunctionGlob(Regex);

/// The first characters of a pattern that is too long for a message.
fn shortened(pattern: &str) -> String {
    const SHOWN: usize = 200;
    match pattern.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}..", pattern.get(..at).unwrap_or_default()),
        None => pattern.to_owned(),
    }
}

impl FunctionGlob {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// An unclosed class, a range that runs backwards, a backslash at the end; a pattern that nests too deep or is too large.
    pub fn new(pattern: &str) -> Result<Self, GlobError> {
        let wrong = |reason: String| GlobError { pattern: shortened(pattern), reason };
        // `GlobBuilder` recurses into what is nested.
        if pattern.len() > MOST_BYTES {
            return Err(wrong(format!("it has {} bytes, and {MOST_BYTES} are allowed", pattern.len())));
        }
        let glob = GlobBuilder::new(pattern).literal_separator(false).backslash_escape(true).build();
        let glob = glob.map_err(|error| wrong(error.kind().to_string()))?;
        // `Glob::compile_matcher` panics where this fails.
        let regex = Regex::new(glob.regex());
        regex.map(Self).map_err(|_| wrong("it nests too deep, or is too large".to_owned()))
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name.as_bytes())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::FunctionGlob;

    #[test]
    fn a_glob_that_nests_too_deep_is_refused_in_a_short_sentence() {
        let nested = |deep: usize| format!("{}a{}", "{".repeat(deep), "}".repeat(deep));
        assert!(FunctionGlob::new(&nested(20)).unwrap().matches("a"));
        for (pattern, why) in [(nested(260), "too deep"), (nested(1_000_000), "2000001 bytes")] {
            let refused = FunctionGlob::new(&pattern).unwrap_err().to_string();
            assert!(refused.contains(why) && refused.len() < 400, "{refused}");
        }
    }
}
