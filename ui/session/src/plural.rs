//! Numbers with their nouns.

/// A number with its noun: `1 hit`, `2 hits`.
#[must_use]
pub fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
