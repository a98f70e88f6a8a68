//! The table of the numbers that documents state: where they are, and how they are known.
//!
//! `[DOCUMENT]` begins a document's rows. A row is `FRAGMENT <- SOURCE ; SOURCE ..`. The fragment is a piece of the
//! document's text, line breaks as spaces; each `{}` in it is a number, in digits or words, and each `{x}` a hexadecimal
//! one, compared with one source. Without them the source is a rule or a test, and stands for all numbers of the fragment.
//! `section HEADING DIGEST` and `page` in place of a fragment stand for all numbers there that no other row has; the digest
//! is that of all numbers of the section, so that none changes unseen. `page` is for pages that a test compares wholly.

use regex::Regex;

use super::document::{NUMBER, in_words};
use super::source::Source;

pub struct Row {
    pub line: usize,
    pub document: String,
    pub place: Place,
    pub fragment: String,
    pub sources: Vec<Source>,
}

pub enum Place {
    Page,
    Section {
        heading: String,
        pin: String,
    },
    /// Matches the fragment, with a group for each number, and whether it is hexadecimal.
    Fragment {
        form: Regex,
        hex: Vec<bool>,
    },
}

/// The rows of the table.
pub fn rows(text: &str) -> Result<Vec<Row>, String> {
    let (mut document, mut found) = (String::new(), Vec::new());
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if line.starts_with("//") {
            continue;
        }
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) if !line.contains(" <- ") => document = name.to_owned(),
            _ => {
                found.push(row(n + 1, &document, line).map_err(|why| format!("row {}: {why}", n + 1))?);
            }
        }
    }
    Ok(found)
}

fn row(line: usize, document: &str, text: &str) -> Result<Row, String> {
    let (place, sources) = text.split_once(" <- ").ok_or("no ` <- `")?;
    let sources =
        sources.split(" ; ").map(|source| Source::read(source.trim())).collect::<Result<Vec<_>, _>>()?;
    let fragment = place.trim();
    let place = match fragment.strip_prefix("section ") {
        Some(section) => {
            let (heading, pin) = section.rsplit_once(' ').unwrap_or((section, ""));
            Place::Section { heading: heading.to_owned(), pin: pin.to_owned() }
        }
        None if fragment == "page" => Place::Page,
        None => {
            let hole = Regex::new(r"\\\{x?\\\}").unwrap();
            let escaped = regex::escape(fragment);
            let hex: Vec<bool> = hole.find_iter(&escaped).map(|found| found.as_str().contains('x')).collect();
            let number = format!("({NUMBER}|{})", in_words());
            let filled = escaped.replace(r"\{x\}", r"([0-9a-fA-F]+)").replace(r"\{\}", &number);
            let form = Regex::new(&filled).map_err(|error| error.to_string())?;
            Place::Fragment { form, hex }
        }
    };
    let stands = |source: &Source| matches!(source, Source::Spec(_) | Source::Tested { .. });
    let holes = if let Place::Fragment { hex, .. } = &place { hex.len() } else { 0 };
    if holes > 0 && (sources.len() != holes || sources.iter().any(stands)) {
        return Err("each `{}` needs a source with a number".into());
    }
    if holes == 0 && !(sources.len() == 1 && stands(&sources[0])) {
        return Err("a place without `{}` needs one rule or test".into());
    }
    Ok(Row { line, document: document.to_owned(), place, fragment: fragment.to_owned(), sources })
}
