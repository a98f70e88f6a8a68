//! Every number that a document states is compared with its source, belongs to a rule that is not ours, or is a
//! measurement with its machine and date.
//!
//! `tests/house/numbers.txt` is the table; `table` says what its rows mean, `document` which numbers are claims and how a
//! measurement is marked. Blocks of code are not looked at here: `tests/tests/docs.rs` runs the commands in them.

#![allow(clippy::unwrap_used, clippy::panic)]

mod document;
mod names;
mod planted;
mod source;
mod table;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use document::{Block, blocks, claims, digest, measured, pinned};
use source::{Amount, Source};
use table::{Place, Row, rows};
use trapline_house::root;

/// What was found of all documents.
#[derive(Debug, Default)]
struct Outcome {
    wrong: Vec<String>,
    /// How many numbers are known, by kind.
    known: BTreeMap<&'static str, usize>,
}

/// One document while it is compared.
struct Page<'a> {
    name: &'a str,
    blocks: Vec<Block>,
    /// For each block the numbers that nothing accounts for yet.
    open: Vec<Vec<Range<usize>>>,
}

impl Page<'_> {
    fn new<'a>(name: &'a str, text: &str) -> Page<'a> {
        let blocks = blocks(text);
        let open = claims(&blocks);
        Page { name, blocks, open }
    }

    /// Takes the numbers of a place that are still open, and says how many they were.
    fn take(&mut self, block: usize, place: &Range<usize>) -> usize {
        let before = self.open[block].len();
        self.open[block].retain(|number| number.start >= place.end || number.end <= place.start);
        before - self.open[block].len()
    }

    fn place(&self, block: usize, at: usize) -> String {
        format!("{}:{}", self.name, self.blocks[block].line_of(at))
    }

    /// All numbers of blocks.
    fn take_blocks(&mut self, wanted: impl Fn(&Block, usize) -> bool) -> usize {
        let found: Vec<usize> = (0..self.blocks.len()).filter(|n| wanted(&self.blocks[*n], *n)).collect();
        found.into_iter().map(|n| self.take(n, &(0..usize::MAX))).sum()
    }
}

fn kind(source: &Source) -> &'static str {
    match source {
        Source::Const { .. } => "const",
        Source::Text { .. } => "text",
        Source::Count { .. } => "count",
        Source::Tested { .. } => "tested",
        Source::Spec(_) => "spec",
    }
}

/// The numbers of a fragment's matches, compared with the sources of its row.
fn compare(page: &mut Page, row: &Row, root: &Path, outcome: &mut Outcome) {
    let Place::Fragment { form, hex } = &row.place else { return };
    let values: Vec<_> = row.sources.iter().map(|source| source.value(root)).collect();
    for why in values.iter().filter_map(|value| value.as_ref().err()) {
        outcome.wrong.push(format!("numbers.txt:{}: {why}", row.line));
    }
    let (mut found, mut taken) = (0, 0);
    for n in 0..page.blocks.len() {
        let text = page.blocks[n].text.clone();
        for all in form.captures_iter(&text) {
            found += 1;
            if hex.is_empty() {
                taken += page.take(n, &all.get(0).unwrap().range());
            }
            for (group, hex) in hex.iter().enumerate() {
                let (number, source) = (all.get(group + 1).unwrap(), &row.sources[group]);
                page.take(n, &number.range());
                *outcome.known.entry(kind(source)).or_default() += 1;
                let said = said(&text, number.range(), *hex);
                let about = ["about ", "about a "].iter().any(|word| text[..number.start()].ends_with(word));
                if let Ok(Some(value)) = &values[group]
                    && !said.is(*value, about)
                {
                    let (place, value) = (page.place(n, number.start()), value.shown());
                    outcome.wrong.push(format!("{place}: {} is {value} by {source:?}", number.as_str()));
                }
            }
        }
    }
    if found == 0 {
        outcome.wrong.push(format!("numbers.txt:{}: {} has no `{}`", row.line, row.document, row.fragment));
    } else if hex.is_empty() {
        took(row, taken, outcome);
    }
}

/// The amount at a place of a text.
fn said(text: &str, place: Range<usize>, hex: bool) -> Amount {
    let digits = if hex { format!("0x{}", &text[place.clone()]) } else { text[place.clone()].to_owned() };
    Amount::read(&digits, &text[place.end..]).unwrap_or_else(|| panic!("{digits}"))
}

/// Counts the numbers that a row without `{}` accounts for. There must be some.
fn took(row: &Row, taken: usize, outcome: &mut Outcome) {
    *outcome.known.entry(kind(&row.sources[0])).or_default() += taken;
    if taken == 0 {
        outcome.wrong.push(format!("numbers.txt:{}: no number is left there for this row", row.line));
    }
}

/// The numbers of sections and of the whole page that no fragment has.
fn sweep(page: &mut Page, row: &Row, root: &Path, outcome: &mut Outcome) {
    if let Err(why) = row.sources[0].value(root) {
        outcome.wrong.push(format!("numbers.txt:{}: {why}", row.line));
    }
    let taken = match &row.place {
        Place::Page => page.take_blocks(|_, _| true),
        Place::Section { heading, pin } => {
            let inside = |block: &&Block| block.sections.contains(heading);
            let numbers = pinned(page.blocks.iter().filter(inside));
            let found = format!("{:08x}", digest(&numbers));
            if *pin != found {
                let (line, numbers) = (row.line, numbers.join(" "));
                outcome.wrong.push(format!(
                    "numbers.txt:{line}: the numbers of {heading} are: {numbers}; if these are right, write {found}"
                ));
            }
            page.take_blocks(|block, _| inside(&block))
        }
        Place::Fragment { .. } => return,
    };
    took(row, taken, outcome);
}

/// The documents, compared by the table.
fn check(documents: &[(String, String)], table: &str, root: &Path) -> Outcome {
    let rows = rows(table).unwrap_or_else(|why| panic!("numbers.txt: {why}"));
    let mut outcome = Outcome::default();
    for row in rows.iter().filter(|row| documents.iter().all(|(name, _)| *name != row.document)) {
        outcome.wrong.push(format!("numbers.txt:{}: there is no document {}", row.line, row.document));
    }
    for (name, text) in documents {
        let mut page = Page::new(name, text);
        let own = || rows.iter().filter(|row| row.document == *name);
        own().for_each(|row| compare(&mut page, row, root, &mut outcome));
        let marked = measured(&page.blocks);
        *outcome.known.entry("measured").or_default() += page.take_blocks(|_, n| marked[n]);
        let wide = |row: &&Row| !matches!(row.place, Place::Fragment { .. });
        own().filter(wide).for_each(|row| sweep(&mut page, row, root, &mut outcome));
        for (n, left) in page.open.iter().enumerate() {
            let said = |number: &Range<usize>| {
                format!("{}: {}", page.place(n, number.start), &page.blocks[n].text[number.clone()])
            };
            outcome.wrong.extend(left.iter().map(said));
        }
    }
    outcome
}

const HELP: &str = "A number of a document is known in one of these ways:
  compared:  a row of tests/house/numbers.txt with a constant, a text of a source or a count
  a rule:    a row with `spec` and the rule's source, or with `tested` and the test that works by the document
  measured:  `Measured YYYY-MM-DD on a MACHINE` in its paragraph, item or row, or in a paragraph next to its table
  a name:    a line of tests/house/names.txt
  run:       in a block `console runnable`, whose output is compared";

/// The documents by their names.
fn documents() -> Vec<(String, String)> {
    let mut names: Vec<String> =
        ["README.md", "SECURITY.md", "guest-images/README.md", "tests/fuzz/README.md"]
            .map(String::from)
            .to_vec();
    let mut folders = ["docs", "examples"].map(|folder| root().join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                names.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    let read = |name: String| {
        let text = std::fs::read_to_string(root().join(&name)).unwrap();
        (name, text)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn every_number_of_a_document_is_compared_or_marked_as_measured() {
    let documents = documents();
    let table = std::fs::read_to_string(root().join("tests/house/numbers.txt")).unwrap();
    let outcome = check(&documents, &table, &root());
    println!("{:?}", outcome.known);
    let wrong = &outcome.wrong;
    assert!(wrong.is_empty(), "{} numbers are not known:\n{}\n{HELP}", wrong.len(), wrong.join("\n"));
    let idle = |name: &&str| !documents.iter().any(|(_, text)| names::is_in(name, &text.replace('\n', " ")));
    let idle: Vec<_> = names::list().into_iter().filter(idle).collect();
    assert!(idle.is_empty(), "names.txt has what no document has: {idle:?}");
    assert!(outcome.known.values().sum::<usize>() > 500, "{:?}", outcome.known);
}
