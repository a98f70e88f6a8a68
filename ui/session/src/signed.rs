//! The refusal of a program that a key has not signed. What is checked, and where: `commands/signed.rs`.

use trapline_rpn::ppdf::VerifyingKey;

/// A program that the required key has not signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {how}; only programs signed by {wanted} are accepted")]
pub struct NotSigned {
    /// Its file or its text.
    pub name: String,
    /// How it is signed, as a verb with its object.
    pub how: String,
    /// The key that is required.
    pub wanted: VerifyingKey,
}

impl NotSigned {
    /// The refusal of something that is text.
    pub(crate) fn text(name: &str, wanted: VerifyingKey) -> Self {
        Self { name: name.to_owned(), how: "is not a PPDF file".to_owned(), wanted }
    }
}
