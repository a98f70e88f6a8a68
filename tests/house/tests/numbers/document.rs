//! A document as blocks of prose, and the numbers in them that may be claims.
//!
//! Blocks of code, code between backticks and the targets of links are no prose. A number is no claim if it is part of a
//! name or of a reference (`NAMES` has the general forms), or a bare 0 or 1: a truth value, an absence, a first element.
//! Numbers in words count before units of time and in ratios; other words (four watchpoints) are not looked at.

use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

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
    fence: bool,
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
        if words.starts_with("```") {
            self.fence = !self.fence;
            self.apart = true;
        } else if self.fence || words.is_empty() || words.starts_with("|-") || words.starts_with("<!--") {
            self.apart = true;
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
        let sections = self.sections.iter().map(|(_, name)| name.clone()).collect();
        self.blocks.push(Block { line: number, kind, sections, text: words.to_owned(), starts: vec![0] });
    }
}

/// Which blocks hold measurements: those that say `measured DATE on a MACHINE`; with a paragraph that begins so, the
/// table next to it; with a paragraph that says so and ends with a colon, the table that follows; with `Measurements of
/// this section: DATE on a MACHINE`, all blocks of the section.
pub fn measured(blocks: &[Block]) -> Vec<bool> {
    static MARK: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)\b(?:measured|measurements of this section:) (20\d\d-[01]\d-[0-3]\d)(?: (?:and|to) 20\d\d-[01]\d-[0-3]\d)? on (?:one core of )?an? [\w-]+ ")
            .unwrap()
    });
    let said: Vec<bool> = blocks.iter().map(|block| MARK.is_match(&format!("{} ", block.text))).collect();
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

/// Numbers that name something: a width, a release, a place in a standard, a register, an address, a date.
const NAMES: &[&str] = &[
    // Dates and times, and numbers of lists and headings.
    r"\b20\d\d-\d\d-\d\d(?: \d\d:\d\d:\d\d)?",
    r"^(?:#+ )?\d+\. ",
    // Hexadecimal, and what begins with digits but is no amount: 16550A, 3c59x, 2V+1.
    r"\b0x[0-9a-fA-F_]+|\b\d[0-9a-fA-F]*h\b",
    r"\b\d{4,}A+\b|\b\dV\+\d|\b\d+[a-z]+\d\w*|\b3DNow",
    // Widths of the architecture.
    r"\b(?:(?:8|16|32|64)(?:-| |,|, | and | or | to )*)+bits?\b",
    // Releases of other software, and standards.
    r"\b(?:Debian|Linux|RFC|ACPI|PCI|HPET|virtio|Multiboot|DWARF|CTF|gcc|QEMU|[Pp]ython|postgres|php|libruby|babeltrace2|mdBook|SDM|MP specification|GNU Mach|bzImage of boot protocol)(?:'s)? v?\d+(?:\.\d+)*(?:(?:, | and | or | to |/)\d+(?:\.\d+)*)*",
    r"\b\d+\.\d+\.\d+(?:\.\d+)*\b",
    r"\b(?:chapter|section|volume|step|[Aa]ppendix|examples?) [\dA-Z.]+(?:(?:, | and | to )[\d.]+)*",
    r"\w\(\d(?:, n)?\)",
    // Names that end with digits, also behind a point or a hyphen: x86-64, SSE4.1, XXH3-128, ::1.
    r"\b[A-Za-z_][\w+-]*\d[\w+-]*(?:\.\d+)*|::1\b|\bU\+[0-9A-F]+",
    r"\b[A-Za-z]+-\d+(?:\.\d+)*\b",
    // The architecture's and the PC's own numbers.
    r"\b(?:ring|CPL|CPU|IRQ|pin|[Bb]its?|lea(?:f|ves)|bus|Bus|mechanism)[ -]\d+(?:(?:, | and | to )\d+)*\b",
    r"\b(?:8042|8237|8254|8259s?|16550)\b",
    r"\b[0-9A-F]{2}:[0-9A-F]{2}\b",
    // Debian's kernel for i386, and pieces of names.
    r"\b686\b|\bS/390\b",
    // The panes of the terminal UI have numbers as names.
    r"\b[Pp]anes? \d(?:(?:, | and | to )\d)*\b",
];

static NAME: LazyLock<Vec<Regex>> =
    LazyLock::new(|| NAMES.iter().map(|form| Regex::new(form).unwrap()).collect());

/// Releases of Linux without its name. With a unit, such a number is an amount.
static RELEASE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b[456]\.\d{1,2}\b").unwrap());

/// A number as documents and sources write it.
pub const NUMBER: &str = r"\d+\^\d+|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d[\d_]*(?:\.\d+)?";

static ANY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!(r"(?:{NUMBER})(?:[A-Za-z]\w*)?")).unwrap());

/// A time or a ratio whose number is a word.
static IN_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    let number = r"\b(?:two|three|four|five|six|seven|eight|nine|ten|twenty|thirty|fifty|hundred|thousand)";
    let unit = r"(?:(?:(?:nano|micro|milli)?second|minute|hour)s?\b|times as\b|percent\b|in ten\b)";
    Regex::new(&format!(r"{number} (?:[a-z]+ )?{unit}|\ban? (?:(?:nano|micro|milli)second|fifth too)\b"))
        .unwrap()
});

static NOT_PROSE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"``.*?``|`[^`]*`|\]\([^)]*\)|https?://\S+").unwrap());

static EXIT_CODE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[Ee]xit codes?(?: is| of \S+ is)?(?:,)? (\d+)(?:,? (?:or|and) (\d+))?").unwrap()
});

/// The text with what is no prose replaced, at the same places.
fn prose(text: &str) -> String {
    NOT_PROSE.replace_all(text, |found: &regex::Captures| "`".repeat(found[0].len())).into_owned()
}

/// The exit codes that a text names.
pub fn exit_codes(text: &str) -> Vec<Range<usize>> {
    let text = prose(text);
    let groups = EXIT_CODE.captures_iter(&text).flat_map(|found| [found.get(1), found.get(2)]);
    groups.flatten().map(|found| found.range()).collect()
}

/// The numbers of a text that may be claims.
pub fn numbers(text: &str) -> Vec<Range<usize>> {
    let mut left = prose(text);
    for name in NAME.iter() {
        left = name.replace_all(&left, |found: &regex::Captures| "`".repeat(found[0].len())).into_owned();
    }
    let places = RELEASE.find_iter(&left).filter(|found| super::source::unit(&left[found.end()..]).is_none());
    let releases: Vec<_> = places.map(|found| found.range()).collect();
    for place in releases {
        let blank = "`".repeat(place.len());
        left.replace_range(place, &blank);
    }
    let claim = |found: &regex::Match| {
        let bare = super::source::unit(&left[found.end()..]).is_none();
        !(bare && matches!(found.as_str(), "0" | "1"))
    };
    let digits = ANY.find_iter(&left).filter(claim);
    digits.chain(IN_WORDS.find_iter(&left)).map(|found| found.range()).collect()
}
