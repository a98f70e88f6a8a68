//! Probe descriptions: `provider:module:function:name`, filled from the right; each field is a glob.
//!
//! The rules are those of DTrace (docs/providers.md, "Probes by name"): an empty field matches everything, and missing
//! fields on the left are empty. `\:` is a colon in a name.

use std::fmt;

use super::glob::{FunctionGlob, GlobError};

/// Fields of a description.
const FIELDS: usize = 4;
/// Most bytes of a description with its three colons.
const LONGEST: usize = 1024;

/// A malformed probe description. The messages begin like those of dtrace(1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// More than three colons.
    #[error(
        "invalid probe specifier {text}: overspecified probe description: {fields} fields; \
         write provider:module:function:name"
    )]
    Overspecified {
        /// The text.
        text: String,
        /// Its fields.
        fields: usize,
    },
    /// Nothing at all.
    #[error("invalid probe specifier: it is empty; write provider:module:function:name")]
    Empty,
    /// The description is too long.
    #[error("invalid probe specifier: with three colons it has {0} bytes; at most {LONGEST} are allowed")]
    TooLong(usize),
    /// A character that no name has.
    #[error("invalid probe specifier {text:?}: a name cannot contain {character:?}")]
    Character {
        /// The text.
        text: String,
        /// The character.
        character: char,
    },
    /// A field is a malformed glob.
    #[error("invalid probe specifier {text}: {error}")]
    Glob {
        /// The text.
        text: String,
        /// Why.
        error: GlobError,
    },
}

/// One field.
#[derive(Debug, Clone)]
enum Field {
    /// Empty or `*`.
    All,
    /// A name.
    Name(String),
    /// A glob.
    Glob(FunctionGlob),
}

impl Field {
    fn new(text: &str) -> Result<Self, GlobError> {
        match text {
            "" | "*" => Ok(Self::All),
            _ if text.contains(['*', '?', '[', '{', '\\']) => FunctionGlob::new(text).map(Self::Glob),
            _ => Ok(Self::Name(text.to_owned())),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Name(own) => own == name,
            Self::Glob(glob) => glob.matches(name),
        }
    }
}

/// A probe description.
#[derive(Debug, Clone)]
pub struct Description {
    /// The fields as written, the missing ones empty.
    written: [String; FIELDS],
    fields: [Field; FIELDS],
}

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// See [`DescriptionError`].
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(DescriptionError::Empty);
        }
        if let Some(character) = text.chars().find(|c| c.is_control() || c.is_whitespace()) {
            return Err(DescriptionError::Character { text: text.to_owned(), character });
        }
        let given = split(text);
        let left_out = FIELDS
            .checked_sub(given.len())
            .ok_or_else(|| DescriptionError::Overspecified { text: text.to_owned(), fields: given.len() })?;
        let length = text.len() + left_out;
        if length > LONGEST {
            return Err(DescriptionError::TooLong(length));
        }
        let mut written = [const { String::new() }; FIELDS];
        let mut fields = [const { Field::All }; FIELDS];
        for ((to, field), from) in written.iter_mut().zip(&mut fields).skip(left_out).zip(given) {
            *field =
                Field::new(from).map_err(|error| DescriptionError::Glob { text: text.to_owned(), error })?;
            from.clone_into(to);
        }
        Ok(Self { written, fields })
    }

    /// Whether a provider may have matching probes.
    pub fn provider(&self, name: &str) -> bool {
        self.fields[0].matches(name)
    }

    /// Whether a module matches.
    pub fn module(&self, name: &str) -> bool {
        self.fields[1].matches(name)
    }

    /// Whether a function matches.
    pub fn function(&self, name: &str) -> bool {
        self.fields[2].matches(name)
    }

    /// Whether a name matches.
    pub fn name(&self, name: &str) -> bool {
        self.fields[3].matches(name)
    }

    /// The fields as written: provider, module, function, name.
    pub fn written(&self) -> &[String; FIELDS] {
        &self.written
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written.join(":"))
    }
}

/// Splits at colons, except after a backslash.
fn split(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let here = c == ':' && !escaped;
        escaped = c == '\\' && !escaped;
        here
    })
    .collect()
}
