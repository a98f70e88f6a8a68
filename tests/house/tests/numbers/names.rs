//! Numbers that are part of a name: no claims.
//!
//! Words that begin with a letter, dates and the like have general forms; all others are in `names.txt`, each as documents
//! write it. If one of those begins with a digit and has a unit or a plural behind it, it is an amount: the 686 kernel, but
//! 686 pages.

use regex::Regex;
use std::sync::LazyLock;

use super::source::unit;

/// What is a name by its form.
static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    let forms = [
        r"\b20\d\d-\d\d-\d\d(?: \d\d:\d\d:\d\d)?",
        r"^(?:#+ )?\d+\. ",
        // Widths as adjectives; `64 bits` is a claim.
        r"\b(?:8|16|32|64)-(?: (?:and|or|to) (?:8|16|32|64)-)?bit\b",
        // dtrace(1), #GP(0).
        r"\w\(\d(?:, n)?\)",
        // x86-64, SSE4.1, XXH3-128, U+FFFD.
        r"\b[A-Za-z_][\w+-]*\d[\w+-]*(?:\.\d+)*|\bU\+[0-9A-F]+",
    ];
    Regex::new(&forms.join("|")).unwrap()
});

/// The names of the list.
static LISTED: LazyLock<Regex> = LazyLock::new(|| {
    let mut names = list();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    Regex::new(&names.into_iter().map(form).collect::<Vec<_>>().join("|")).unwrap()
});

/// The names that are listed.
pub fn list() -> Vec<&'static str> {
    let lines = include_str!("../../names.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).collect()
}

fn form(name: &str) -> String {
    format!(r"\b{}\b", regex::escape(name))
}

/// Whether a text has the name.
pub fn is_in(name: &str, text: &str) -> bool {
    Regex::new(&form(name)).unwrap().is_match(text)
}

/// The text with all names replaced, at the same places.
pub fn without_names(text: &str) -> String {
    static PLURAL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^ [a-z]{2,}s\b").unwrap());
    static VERB: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^ (?:has|is|was|unless)\b").unwrap());
    let left = hidden(text, &LISTED, |found| {
        let after = &text[found.end()..];
        let is_plural = PLURAL.is_match(after) && !VERB.is_match(after);
        let is_amount = is_plural || unit(after).is_some();
        !(found.as_str().starts_with(|c: char| c.is_ascii_digit()) && is_amount)
    });
    hidden(&left, &FORMS, |_| true)
}

/// The text with the matches of a form replaced, at the same places, where `wanted` says so.
pub fn hidden(text: &str, form: &Regex, wanted: impl Fn(&regex::Match) -> bool) -> String {
    form.replace_all(text, |found: &regex::Captures| {
        let found = found.get(0).unwrap();
        if wanted(&found) { "`".repeat(found.len()) } else { found.as_str().to_owned() }
    })
    .into_owned()
}
