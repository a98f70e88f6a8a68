//! `#pragma D`: options and attributes.

use crate::error::{Pos, Result};

/// A directive that the compiler keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pragma {
    /// `#pragma D option NAME[=VALUE]`.
    Option { name: String, value: Option<String> },
    /// One that has no effect here: `ident`, `attributes`, `binding`, `depends_on`.
    Nothing,
}

impl Pragma {
    /// Reads a directive, without its `#`.
    pub fn parse(body: &str, pos: Pos) -> Result<Self> {
        let Some(rest) = body.strip_prefix("pragma") else {
            let word = body.split_whitespace().next().unwrap_or_default();
            if matches!(word, "ident" | "error") {
                return match word {
                    "ident" => Ok(Self::Nothing),
                    _ => Err(pos.error("D_PRAGERR", body.to_owned())),
                };
            }
            let sentence = format!("invalid control directive: #{word}");
            return Err(pos.error("D_PRAGCTL_INVAL", sentence));
        };
        let mut words = rest.split_whitespace();
        match words.next() {
            Some("D") => {}
            Some("ident") | None => return Ok(Self::Nothing),
            Some(_) => return Ok(Self::Nothing),
        }
        match words.next() {
            Some("option") => Self::option(&words.collect::<Vec<_>>(), pos),
            Some("attributes" | "binding" | "depends_on" | "ident" | "line") => Ok(Self::Nothing),
            Some("error") => {
                let sentence = format!("#error: {}", words.collect::<Vec<_>>().join(" "));
                Err(pos.error("D_PRAGERR", sentence))
            }
            Some(other) => Err(pos.error("D_PRAGMA_INVAL", format!("invalid pragma: {other}"))),
            None => Err(pos.error("D_PRAGMA_MALFORM", "malformed #pragma D: a word is missing")),
        }
    }

    fn option(words: &[&str], pos: Pos) -> Result<Self> {
        let [word] = words else {
            let sentence = "superfluous arguments specified for #pragma option";
            return Err(pos.error("D_PRAGMA_MALFORM", sentence));
        };
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (*word, None),
        };
        Ok(Self::Option { name: name.to_owned(), value })
    }
}
