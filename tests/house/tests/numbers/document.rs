//! A document as blocks of prose, and the numbers in them that may be claims.
//!
//! Blocks of code, code between backticks and the targets of links are no prose, but comments in blocks of commands are. A
//! number is no claim if it is part of a name (`names` has the forms and the list), or a bare 0 or 1: a truth value, an
//! absence, a first element. As an exit code 0 and 1 are claims too. Numbers in words count from three on; two only before
//! units of time and in ratios.

use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

use super::names::{hidden, without_names};
use super::source::unit;

/// A paragraph, an item of a list, a row of a table, or a heading.
#[derive(Debug)]
pub struct Block {
    pub line: usize,
    pub kind: Kind,
    /// The headings above it, outermost first, and its own if it is one.
    pub sections: Vec<String>,
    /// Its lines, joined by single spaces.
    pub text: String,
    /// Where each of its lines begins in the text.
    starts: Vec<usize>,
    /// Whether it is the first row of a table.
    is_head: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Heading,
    Paragraph,
    Item,
    Row,
}

impl Block {
    /// The line in the document of a place in the text.
    pub fn line_of(&self, at: usize) -> usize {
        self.line + self.starts.iter().filter(|start| **start <= at).count() - 1
    }
}

#[derive(Default)]
struct Reader {
    blocks: Vec<Block>,
    sections: Vec<(usize, String)>,
    /// What is said of the block of code that is open.
    fence: Option<String>,
    in_list: bool,
    /// Whether the next line begins a new block.
    apart: bool,
}

/// The blocks of a document.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut reader = Reader { apart: true, ..Reader::default() };
    for (n, line) in text.lines().enumerate() {
        reader.line(n + 1, line);
    }
    reader.blocks
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) {
        let words = line.trim();
        if let Some(info) = words.strip_prefix("```") {
            self.fence = self.fence.is_none().then(|| info.to_owned());
            self.apart = true;
        } else if let Some(info) = &self.fence {
            let is_commands = info.starts_with("console") && words.starts_with("$ ");
            if let Some((_, comment)) = words.split_once(" # ").filter(|_| is_commands) {
                self.block(number, Kind::Item, comment);
            }
            self.apart = true;
        } else if words.is_empty() || words.starts_with("|-") || words.starts_with("<!--") {
            self.apart = true;
            if let Some(head) = self.blocks.last_mut().filter(|_| words.starts_with("|-")) {
                head.is_head = true;
            }
        } else if line.starts_with("    ") && self.apart && !self.in_list {
            // Code by its indentation; `apart` stays, so that the next line is looked at the same way.
        } else {
            self.prose(number, line, words);
        }
    }

    fn prose(&mut self, number: usize, line: &str, words: &str) {
        static ITEM: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^([-*]|\d+\.) ").unwrap());
        static HEADING: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^#{1,6} ").unwrap());
        let kind = match words {
            _ if HEADING.is_match(words) => Kind::Heading,
            _ if words.starts_with('|') => Kind::Row,
            _ if ITEM.is_match(words) => Kind::Item,
            _ => Kind::Paragraph,
        };
        let last = self.blocks.last_mut().filter(|_| !self.apart && kind == Kind::Paragraph);
        if let Some(block) = last {
            block.text.push(' ');
            block.starts.push(block.text.len());
            block.text.push_str(words);
            return;
        }
        if kind == Kind::Heading {
            let depth = words.bytes().take_while(|byte| *byte == b'#').count();
            self.sections.retain(|(above, _)| *above < depth);
            self.sections.push((depth, words[depth..].trim().to_owned()));
        }
        self.in_list = kind == Kind::Item || self.in_list && line.starts_with(' ');
        self.apart = kind == Kind::Heading;
        self.block(number, kind, words);
    }

    fn block(&mut self, line: usize, kind: Kind, text: &str) {
        let sections = self.sections.iter().map(|(_, name)| name.clone()).collect();
        self.blocks.push(Block {
            line,
            kind,
            sections,
            text: text.to_owned(),
            starts: vec![0],
            is_head: false,
        });
    }
}

/// Which blocks hold measurements: those that say `measured DATE on a MACHINE`; with a paragraph that begins so, the
/// table next to it; with a paragraph that says so and ends with a colon, the table that follows; with `Measurements of
/// this section: DATE on a MACHINE`, all blocks of the section.
pub fn measured(blocks: &[Block]) -> Vec<bool> {
    static MARK: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)\b(?:measured|measurements of this section:) ([\d-]+)(?: (?:and|to) ([\d-]+))? on (?:one core of )?an? [\w-]+ ")
            .unwrap()
    });
    let is_marked = |block: &Block| {
        MARK.captures_iter(&format!("{} ", block.text))
            .any(|all| all.iter().skip(1).flatten().all(|date| is_date(date.as_str())))
    };
    let said: Vec<bool> = blocks.iter().map(is_marked).collect();
    let mut found = said.clone();
    for (n, block) in blocks.iter().enumerate().filter(|(n, _)| said[*n]) {
        if block.text.starts_with("Measurements of this section") {
            let inside = |other: &Block| other.sections.starts_with(&block.sections);
            (0..blocks.len()).filter(|at| inside(&blocks[*at])).for_each(|at| found[at] = true);
        } else if block.kind == Kind::Paragraph {
            let begins = block.text.starts_with("Measured ");
            let rows = |at: &usize| blocks[*at].kind == Kind::Row;
            let before = (0..n).rev().take_while(rows).filter(|_| begins);
            let after =
                (n + 1..blocks.len()).take_while(rows).filter(|_| begins || block.text.ends_with(':'));
            before.chain(after).for_each(|at| found[at] = true);
        }
    }
    found
}

/// Whether this is a day of this century, written YYYY-MM-DD.
fn is_date(text: &str) -> bool {
    static FORM: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^20(\d\d)-(\d\d)-(\d\d)$").unwrap());
    let Some(all) = FORM.captures(text) else { return false };
    let [year, month, day] = [1, 2, 3].map(|n| all[n].parse::<u32>().unwrap());
    let days = match month {
        2 if year % 4 == 0 => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// A number as documents and sources write it.
pub const NUMBER: &str = r"\d+\^\d+|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d[\d_]*(?:\.\d+)?";

/// Numbers in words, from three on.
const WORD_VALUES: [(&str, u64); 29] = [
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("eleven", 11),
    ("twelve", 12),
    ("thirteen", 13),
    ("fourteen", 14),
    ("fifteen", 15),
    ("sixteen", 16),
    ("seventeen", 17),
    ("eighteen", 18),
    ("nineteen", 19),
    ("twenty", 20),
    ("thirty", 30),
    ("forty", 40),
    ("fifty", 50),
    ("sixty", 60),
    ("seventy", 70),
    ("eighty", 80),
    ("ninety", 90),
    ("hundred", 100),
    ("thousand", 1_000),
    ("million", 1_000_000),
    ("billion", 1_000_000_000),
];

/// A form of numbers in words, without a group.
pub fn in_words() -> String {
    let one = WORD_VALUES.map(|(word, _)| word).join("|");
    format!(r"(?i:\b(?:{one})(?:[ -](?:{one}))*\b)")
}

/// The value of a number in words.
pub fn value_of_words(text: &str) -> Option<u64> {
    text.to_lowercase().split([' ', '-']).try_fold(0, |sum: u64, word| {
        let (_, value) = WORD_VALUES.iter().find(|(known, _)| *known == word)?;
        Some(if *value >= 100 { sum.max(1) * value } else { sum + value })
    })
}

static WORDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(&in_words()).unwrap());

static ANY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!(r"\b0x[0-9a-fA-F_]+|(?:{NUMBER})(?:[A-Za-z]\w*)?")).unwrap());

/// A time or a ratio of two, or of a fraction.
static IN_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    let unit = r"(?:(?:(?:nano|micro|milli)?second|minute|hour)s?\b|times as\b|percent\b)";
    Regex::new(&format!(
        r"\btwo (?:and a half )?(?:[a-z]+ )?{unit}|\ban? (?:(?:nano|micro|milli)second|fifth too)\b"
    ))
    .unwrap()
});

static NOT_PROSE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"``.*?``|`[^`]*`|\]\([^)]*\)|https?://\S+").unwrap());

/// The text with what is no prose replaced, at the same places.
fn prose(text: &str) -> String {
    hidden(text, &NOT_PROSE, |_| true)
}

/// The numbers of each block that may be claims. A section `Exit codes` and a column of a table with this head hold exit
/// codes.
pub fn claims(blocks: &[Block]) -> Vec<Vec<Range<usize>>> {
    let mut column = None;
    let in_block = |block: &Block| {
        let cells = cells(&block.text);
        let mut exits = 0..0;
        if block.kind != Kind::Row {
            column = None;
        } else if block.is_head {
            let is_exit =
                |cell: &Range<usize>| matches!(block.text[cell.clone()].trim(), "Exit code" | "Code");
            column = cells.iter().position(is_exit);
        } else {
            exits = column.and_then(|at| cells.get(at)).cloned().unwrap_or(exits);
        }
        let in_section = block.sections.last().is_some_and(|name| name.starts_with("Exit codes"));
        numbers(&block.text, &if in_section { 0..usize::MAX } else { exits })
    };
    blocks.iter().map(in_block).collect()
}

/// The cells of a row, with what is before and behind it.
fn cells(text: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    let cell = |cell: &str| {
        let begin = start;
        start += cell.len() + 1;
        begin..begin + cell.len()
    };
    prose(text).split('|').map(cell).collect()
}

/// The numbers of a text that may be claims; those of `exits` are exit codes.
fn numbers(text: &str, exits: &Range<usize>) -> Vec<Range<usize>> {
    static EXIT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)\b(?:codes?(?: is| other than)?|(?:exit|end)(?:s|ed)? with) $").unwrap()
    });
    static DIGIT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d[ -]$").unwrap());
    let left = without_names(&prose(text));
    let claim = |found: &regex::Match| {
        let is_exit = exits.contains(&found.start()) || EXIT.is_match(&left[..found.start()]);
        is_exit || unit(&left[found.end()..]).is_some() || !matches!(found.as_str(), "0" | "1")
    };
    let digits = ANY.find_iter(&left).filter(claim);
    let words = WORDS.find_iter(&left).filter(|found| !DIGIT.is_match(&left[..found.start()]));
    digits.chain(words).chain(IN_WORDS.find_iter(&left)).map(|found| found.range()).collect()
}

/// All words with digits and all numbers in words of blocks, in order: what a row for a whole section pins.
pub fn pinned<'a>(blocks: impl Iterator<Item = &'a Block>) -> Vec<&'a str> {
    static WORD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(&format!(r"\w*\d\w*|{}", in_words())).unwrap());
    blocks.flat_map(|block| WORD.find_iter(&block.text)).map(|found| found.as_str()).collect()
}

/// A digest of texts (FNV-1a of 32 bits).
pub fn digest(texts: &[&str]) -> u32 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
