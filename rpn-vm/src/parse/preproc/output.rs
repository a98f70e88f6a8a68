//! Preprocessed lines as text, with markers of their source locations: `# line "file"`.
//!
//! Compiling that text gives the same program as compiling the source, with the same locations.

use std::fmt::Write as _;

use super::super::lex::{Kind, Token};
use super::Line;
use crate::source::Sources;

/// Most blank lines that are printed instead of a marker.
const MAX_BLANKS: u32 = 8;

/// The text of preprocessed lines.
pub(crate) fn text(lines: &[Line], sources: &Sources) -> String {
    let mut out = String::new();
    let mut at: Option<(String, u32)> = None;
    for line in lines {
        let Some(first) = line.tokens.first() else { continue };
        let (file, number) = sources.presumed(first.span);
        match &mut at {
            Some((open, next))
                if open == file && (*next..=next.saturating_add(MAX_BLANKS)).contains(&number) =>
            {
                for _ in *next..number {
                    out.push('\n');
                }
            }
            _ => {
                let _ = writeln!(out, "# {number} \"{}\"", file.replace('"', "'"));
            }
        }
        push_line(&mut out, &line.tokens);
        at = Some((file.to_owned(), number.saturating_add(1)));
    }
    out
}

fn is_word(token: &Token) -> bool {
    matches!(token.kind, Kind::Ident | Kind::Num(_) | Kind::BadNum)
}

/// A line, indented like its first word, with spaces where words would run together.
fn push_line(out: &mut String, tokens: &[Token]) {
    let mut before: Option<&Token> = None;
    for token in tokens {
        match before {
            None => {
                let indent = if token.span.via == 0 { token.span.col.saturating_sub(1).min(80) } else { 0 };
                out.extend(std::iter::repeat_n(' ', indent as usize));
                // A line that begins with `#` would be a directive.
                if token.is('#') {
                    out.push(' ');
                }
            }
            Some(before) => {
                let run_together = (is_word(before) && is_word(token))
                    || (before.is('/') && (token.is('/') || token.is('*')));
                if token.space || token.apart || run_together {
                    out.push(' ');
                }
            }
        }
        out.push_str(&token.source());
        before = Some(token);
    }
    out.push('\n');
}
