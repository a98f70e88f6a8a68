//! The statements of template files and of the template directory.

use std::collections::BTreeMap;

use super::Template;
use super::error::{Errors, Place};
use super::scan::{Letter, Scanner, Token};
use super::syntax;

/// `keyword = value`.
struct Statement {
    at: Place,
    keyword: String,
    value_at: Place,
    value: Token,
    /// The place after the value.
    end: Place,
}

/// A line of the directory.
pub(super) struct Entry {
    pub major: u32,
    pub file: String,
    /// Where the file is named.
    pub named_at: Place,
}

/// The next statement, with the comma after it. Anything else is reported and skipped.
fn statement(scanner: &mut Scanner<'_>, keywords: &[&str], errors: &mut Errors) -> Option<Statement> {
    loop {
        let (at, token) = scanner.next(errors)?;
        let right = || format!("write one of {}, then `=`", keywords.join(", "));
        let Token::Word(word) = &token else {
            errors.add(at, format!("a statement cannot begin with {}; {}", token.shown(), right()));
            skip_to_word(scanner, errors);
            continue;
        };
        let keyword = word.to_ascii_lowercase();
        if !keywords.contains(&keyword.as_str()) {
            errors.add(at, format!("{} is not a keyword here; {}", token.shown(), right()));
            skip_to_word(scanner, errors);
            continue;
        }
        let broken = |keyword, at: Place| {
            Some(Statement { end: at.clone(), value_at: at.clone(), at, keyword, value: Token::Broken })
        };
        if !matches!(scanner.peek(errors), Some((_, Token::Equals))) {
            let shown = shown(scanner, errors);
            errors.add(at.clone(), format!("`{keyword}` is followed by {shown}; write `=` after it"));
            skip_to_word(scanner, errors);
            return broken(keyword, at);
        }
        scanner.next(errors);
        if !matches!(scanner.peek(errors), Some((_, Token::Number(_) | Token::Text(_) | Token::Broken))) {
            let shown = shown(scanner, errors);
            let right = "write a number or a \"string\"";
            errors.add(at.clone(), format!("`{keyword}=` is followed by {shown}; {right}"));
            if matches!(scanner.peek(errors), Some((_, Token::Word(word))) if !keywords.contains(&word.as_str()))
            {
                scanner.next(errors);
            }
            return broken(keyword, at);
        }
        let (value_at, value) = scanner.next(errors)?;
        let end = scanner.here();
        if matches!(scanner.peek(errors), Some((_, Token::Comma))) {
            scanner.next(errors);
        }
        return Some(Statement { at, keyword, value_at, value, end });
    }
}

/// The next token for a message.
fn shown(scanner: &mut Scanner<'_>, errors: &mut Errors) -> String {
    scanner.peek(errors).map_or_else(|| "the end".to_owned(), |(_, token)| token.shown())
}

/// After an error, skips to where a statement may begin.
fn skip_to_word(scanner: &mut Scanner<'_>, errors: &mut Errors) {
    while scanner.peek(errors).is_some_and(|(_, token)| !matches!(token, Token::Word(_))) {
        scanner.next(errors);
    }
}

impl Statement {
    fn number(&self, errors: &mut Errors) -> Option<u32> {
        match self.value {
            Token::Number(n) => return Some(n),
            Token::Broken => return None,
            _ => {}
        }
        let message = format!("`{}` is {}; write a number", self.keyword, self.value.shown());
        errors.add(self.value_at.clone(), message);
        None
    }

    fn text(&self, errors: &mut Errors) -> Option<&[Letter]> {
        match &self.value {
            Token::Text(letters) => return Some(letters),
            Token::Broken => return None,
            _ => {}
        }
        let message = format!("`{}` is {}; write a \"string\"", self.keyword, self.value.shown());
        errors.add(self.value_at.clone(), message);
        None
    }
}

fn plain(letters: &[Letter]) -> String {
    letters.iter().map(|letter| letter.char).collect()
}

/// The directory: `major=<n> file="<name>"` for each major code.
pub(super) fn directory(scanner: &mut Scanner<'_>, errors: &mut Errors) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut major: Option<(Place, u32)> = None;
    while let Some(found) = statement(scanner, &["major", "file"], errors) {
        if found.keyword == "major" {
            if let Some((at, n)) = major.take() {
                errors.add(at, format!("`major={n}` names no file; write `file=\"..\"` after it"));
            }
            major = found.number(errors).map(|n| (found.at, n));
            continue;
        }
        let Some(letters) = found.text(errors) else { continue };
        let file = plain(letters);
        let Some((at, n)) = major.take() else {
            errors.add(found.at, format!("`file` {file:?} has no major code; write `major=<n>` before it"));
            continue;
        };
        if entries.iter().any(|entry| entry.major == n) {
            errors.add(at, format!("`major={n}` occurs twice; name one template file for each major code"));
            continue;
        }
        entries.push(Entry { major: n, file, named_at: found.value_at });
    }
    if let Some((at, n)) = major {
        errors.add(at, format!("`major={n}` names no file; write `file=\"..\"` after it"));
    }
    entries
}

/// A template that is being read.
struct Open {
    at: Place,
    /// `None` when its number is invalid.
    minor: Option<u32>,
    /// The inner `None` when its string is invalid.
    desc: Option<Option<String>>,
    fmt: Option<Vec<Letter>>,
    end: Place,
}

impl Open {
    fn close(self, templates: &mut BTreeMap<u32, Template>, errors: &mut Errors) {
        let Some(minor) = self.minor else { return };
        let Some(desc) = self.desc else {
            errors.add(self.at, format!("`minor={minor}` has no `desc`; write `desc=\"..\"` after it"));
            return;
        };
        let nodes = self.fmt.map(|letters| syntax::template(&letters, &self.end, errors));
        let template = Template { desc: desc.unwrap_or_default(), nodes };
        if templates.insert(minor, template).is_some() {
            let message = format!("`minor={minor}` occurs twice; define each minor code once");
            errors.add(self.at, message);
        }
    }
}

/// A template file: `major`, which must equal the directory's, then `minor`, `desc` and `fmt` for each template.
pub(super) fn templates(
    scanner: &mut Scanner<'_>,
    major: u32,
    errors: &mut Errors,
) -> BTreeMap<u32, Template> {
    let mut templates = BTreeMap::new();
    let mut seen_major = false;
    let mut open: Option<Open> = None;
    let start = scanner.here();
    while let Some(found) = statement(scanner, &["major", "minor", "desc", "fmt"], errors) {
        if found.keyword == "major" {
            check_major(&found, major, seen_major, errors);
            seen_major = true;
            continue;
        }
        if !seen_major {
            let message =
                format!("`{}` comes before `major`; begin the file with `major={major}`", found.keyword);
            errors.add(found.at.clone(), message);
            seen_major = true;
        }
        if found.keyword == "minor" {
            if let Some(done) = open.take() {
                done.close(&mut templates, errors);
            }
            let minor = found.number(errors);
            open = Some(Open { at: found.at, minor, desc: None, fmt: None, end: found.end });
            continue;
        }
        let Some(current) = &mut open else {
            errors.add(
                found.at,
                format!("`{}` comes before the first `minor`; write `minor=<n>` before it", found.keyword),
            );
            continue;
        };
        let letters = found.text(errors);
        if found.keyword == "fmt" {
            current.fmt.get_or_insert_default().extend(letters.unwrap_or_default());
            current.end = found.end;
        } else if current.desc.is_some() {
            let of = current.minor.unwrap_or_default();
            errors.add(found.at, format!("`minor={of}` has a second `desc`; write one"));
        } else {
            current.desc = Some(letters.map(plain));
        }
    }
    if let Some(done) = open {
        done.close(&mut templates, errors);
    }
    if !seen_major {
        errors.add(start, format!("the file has no major code; begin it with `major={major}`"));
    }
    templates
}

fn check_major(found: &Statement, major: u32, again: bool, errors: &mut Errors) {
    let Some(n) = found.number(errors) else { return };
    if again {
        errors.add(
            found.at.clone(),
            format!("`major={n}` is not the first statement; write `major` once, at the beginning"),
        );
    } else if n != major {
        let message =
            format!("the major code is {n}; the template directory says {major}, so write `major={major}`");
        errors.add(found.value_at.clone(), message);
    }
}
