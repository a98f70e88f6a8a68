//! From the text of a script to its rules. All errors are found before the run, each with its place.

use std::path::Path;

use trapline_rpn::{Diagnostic, Diagnostics, Severity};

use super::{Rule, Script, Sightings, When, names};
use crate::commands::{Command, InputLine, Selection, short_name};
use crate::files::{FileError, read_file, text_of};
use crate::listing::{How, Wanted};
use crate::numbers::{count, position};
use crate::programs::{self, ProgramError, SourceOptions};

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Its file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Lines are wrong.
    #[error("{0}")]
    Lines(Diagnostics),
    /// A program that it inserts is wrong.
    #[error(transparent)]
    Program(ProgramError),
}

/// The beginnings of a line.
const STARTS: &str = "`at insns=N`, `every insns=N`, `on hit N of NAME` or `on console TEXT`";
/// The actions of a line.
const ACTIONS: &str = "the actions are insert, remove, enable, disable, query, getvars, list, snapshot, restore, dump, dti level, type, nmi and stop";

/// A word and its place in the line.
#[derive(Debug, Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    /// From 1, in characters.
    col: usize,
    /// Characters, with its quotes.
    len: usize,
}

/// An error in a line.
struct Wrong {
    col: usize,
    len: usize,
    message: String,
    help: String,
}

type Parsed<T> = Result<T, Wrong>;

/// The words of one line, one after the other.
struct Line<'a> {
    words: Vec<Word<'a>>,
    at: usize,
    /// The column after the last word.
    end: usize,
}

/// See [`Script::read`].
pub fn read(path: &Path, inserted: &[String], source: &SourceOptions) -> Result<Script, ScriptError> {
    let text = text_of(path, read_file(path)?)?;
    parse(&path.display().to_string(), &text, inserted, source)
}

/// See [`Script::parse`].
pub fn parse(
    name: &str,
    text: &str,
    inserted: &[String],
    source: &SourceOptions,
) -> Result<Script, ScriptError> {
    let file = name.to_owned();
    let mut found = Diagnostics::default();
    let mut rules: Vec<Rule> = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (number, content) in (1..).zip(&lines) {
        match rule(number, content, source) {
            Ok(None) => {}
            Ok(Some(rule)) => rules.push(rule),
            Err(Bad::Line(wrong)) => push(&mut found, &file, number, content, wrong),
            Err(Bad::Program(error)) => return Err(ScriptError::Program(error)),
        }
    }
    for rule in &rules {
        let content = lines.get(rule.line as usize - 1).copied().unwrap_or_default();
        for wrong in names_nothing(rule, &rules, inserted, content) {
            push(&mut found, &file, rule.line, content, wrong);
        }
    }
    if found.list.is_empty() {
        return Ok(Script { file, rules });
    }
    found.list.sort_by_key(|d| (d.line, d.col));
    Err(ScriptError::Lines(found))
}

/// See [`Command::parse`].
pub fn command(
    name: &str,
    line: u32,
    content: &str,
    source: &SourceOptions,
) -> Result<Option<Command>, ScriptError> {
    let parsed = || -> Result<Option<Command>, Bad> {
        let mut words = split(content)?;
        if words.words.is_empty() {
            return Ok(None);
        }
        let command = action(&mut words, &When::At(0), source)?;
        words.done()?;
        Ok(Some(command))
    };
    parsed().map_err(|bad| match bad {
        Bad::Program(error) => ScriptError::Program(error),
        Bad::Line(wrong) => {
            let mut found = Diagnostics::default();
            push(&mut found, name, line, content, wrong);
            ScriptError::Lines(found)
        }
    })
}

fn push(found: &mut Diagnostics, file: &str, line: u32, content: &str, wrong: Wrong) {
    if found.list.len() >= Diagnostics::LIMIT {
        found.more += 1;
        return;
    }
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    found.list.push(Diagnostic {
        severity: Severity::Error,
        code: "bad-script",
        file: file.to_owned(),
        line,
        col: number(wrong.col),
        len: number(wrong.len),
        message: wrong.message,
        notes: Vec::new(),
        help: Some(wrong.help),
        source: content.to_owned(),
    });
}

/// Why a line is not a rule.
enum Bad {
    Line(Wrong),
    Program(ProgramError),
}

impl From<Wrong> for Bad {
    fn from(wrong: Wrong) -> Self {
        Self::Line(wrong)
    }
}

fn rule(line: u32, content: &str, source: &SourceOptions) -> Result<Option<Rule>, Bad> {
    let mut words = split(content)?;
    if words.words.is_empty() {
        return Ok(None);
    }
    let when = when(&mut words)?;
    let command = action(&mut words, &when, source)?;
    words.done()?;
    Ok(Some(Rule { line, when, command, done: false }))
}

/// Words between blanks; `"` keeps blanks in a word, `#` begins a comment.
fn split(content: &str) -> Parsed<Line<'_>> {
    let mut words = Vec::new();
    let chars: Vec<(usize, char)> = content.char_indices().collect();
    let byte = |n: usize| chars.get(n).map_or(content.len(), |(at, _)| *at);
    let is = |n: usize, what: fn(char) -> bool| chars.get(n).is_some_and(|(_, c)| what(*c));
    let (mut n, mut end) = (0, 1);
    while n < chars.len() {
        if is(n, char::is_whitespace) {
            n += 1;
            continue;
        }
        if is(n, |c| c == '#') {
            break;
        }
        let start = n;
        let quoted = is(n, |c| c == '"');
        n += usize::from(quoted);
        let stop = |c: char| if quoted { c == '"' } else { c.is_whitespace() };
        while chars.get(n).is_some_and(|(_, c)| !stop(*c)) {
            n += 1;
        }
        let text = content.get(byte(start + usize::from(quoted))..byte(n)).unwrap_or_default();
        if quoted && n == chars.len() {
            let message = "the quotation mark is not closed".to_owned();
            let help = "put a second `\"` after the text".to_owned();
            return Err(Wrong { col: start + 1, len: n - start, message, help });
        }
        n += usize::from(quoted);
        words.push(Word { text, col: start + 1, len: n - start });
        end = n + 1;
    }
    Ok(Line { words, at: 0, end })
}

impl<'a> Line<'a> {
    fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.at).copied()
    }

    fn optional(&mut self) -> Option<Word<'a>> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// The next word, which must be there.
    fn next(&mut self, what: &str, help: &str) -> Parsed<Word<'a>> {
        let end = self.end;
        self.optional().ok_or_else(|| Wrong {
            col: end,
            len: 1,
            message: format!("{what} is missing"),
            help: help.to_owned(),
        })
    }

    /// The name of a snapshot.
    fn label(&mut self, help: &str) -> Parsed<String> {
        let word = self.next("the snapshot's name", help)?;
        match word.text {
            "" => Err(wrong(word, "the snapshot's name is empty".to_owned(), help)),
            name => Ok(name.to_owned()),
        }
    }

    /// Nothing more.
    fn done(&self) -> Parsed<()> {
        match self.peek() {
            None => Ok(()),
            Some(word) => Err(wrong(
                word,
                format!("`{}` is not expected here", word.text),
                "write one statement a line; # begins a comment",
            )),
        }
    }
}

fn wrong(word: Word<'_>, message: String, help: &str) -> Wrong {
    Wrong { col: word.col, len: word.len, message, help: help.to_owned() }
}

/// `at insns=N`, `every insns=N`, `on hit N of NAME`, `on console TEXT [N]`.
fn when(line: &mut Line<'_>) -> Parsed<When> {
    let first = line.next("when", STARTS)?;
    match first.text {
        "at" => Ok(When::At(insns(line, "at insns=N")?)),
        "every" => match insns(line, "every insns=N")? {
            0 => Err(wrong(
                first,
                "the interval must be at least 1 instruction".to_owned(),
                "for example: every insns=1M",
            )),
            step => Ok(When::Every { step, next: step }),
        },
        "on" if line.peek().is_some_and(|word| word.text == "console") => {
            line.at += 1;
            on_console(line)
        }
        "on" => {
            const FORM: &str = "on hit N of NAME";
            keyword(line, "hit", "on hit N of NAME or on console TEXT")?;
            let word = line.next("the number of the hit", FORM)?;
            let n = number(word, FORM)?;
            if n == 0 {
                return Err(wrong(word, "hits count from 1".to_owned(), "the first hit is hit 1"));
            }
            keyword(line, "of", FORM)?;
            Ok(When::Hit { n, name: line.next("the program's name", FORM)?.text.to_owned() })
        }
        other => Err(wrong(
            first,
            format!("a line cannot begin with `{other}`"),
            &format!("begin it with {STARTS}"),
        )),
    }
}

/// What follows `on console`: a text, and which of its appearances if not the first.
fn on_console(line: &mut Line<'_>) -> Parsed<When> {
    let word = line.next("the text", "on console TEXT")?;
    let text = unescape(word)?;
    if text.is_empty() {
        return Err(wrong(word, "the text is empty".to_owned(), "write the text to wait for"));
    }
    let counts = |word: &Word<'_>| word.text.starts_with(|c: char| c.is_ascii_digit());
    let nth = match line.peek().filter(counts) {
        Some(word) => {
            line.at += 1;
            number(word, "on console TEXT N")?
        }
        None => 1,
    };
    if nth == 0 {
        return Err(wrong(
            word,
            "appearances count from 1".to_owned(),
            "write 1 or leave it out for the first",
        ));
    }
    Ok(When::Console { text, nth, seen: Sightings::default() })
}

/// The bytes that a text stands for: `\n`, `\r`, `\t`, `\e`, `\\` and `\xNN` as in C, everything else literally.
fn unescape(word: Word<'_>) -> Parsed<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = word.text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        bytes.extend(plain.bytes());
        let mut chars = escape.chars();
        let hex = escape.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (byte, len) = match (chars.next(), hex) {
            (Some('n'), _) => (b'\n', 1),
            (Some('r'), _) => (b'\r', 1),
            (Some('t'), _) => (b'\t', 1),
            (Some('e'), _) => (0x1b, 1),
            (Some('\\'), _) => (b'\\', 1),
            (Some('x'), Some(byte)) if !escape.starts_with("x+") => (byte, 3),
            (other, _) => {
                let shown = other.map_or_else(|| "the end".to_owned(), |c| format!("`{c}`"));
                let help = "write \\n, \\r, \\t, \\e, \\\\ or \\x and two hexadecimal digits";
                return Err(wrong(word, format!("`\\` followed by {shown} is not an escape"), help));
            }
        };
        bytes.push(byte);
        rest = escape.get(len..).unwrap_or_default();
    }
    bytes.extend(rest.bytes());
    Ok(bytes)
}

fn keyword(line: &mut Line<'_>, expected: &str, form: &str) -> Parsed<()> {
    let word = line.next(&format!("`{expected}`"), form)?;
    if word.text == expected {
        return Ok(());
    }
    Err(wrong(word, format!("`{}` stands where `{expected}` belongs", word.text), &format!("write {form}")))
}

fn insns(line: &mut Line<'_>, form: &str) -> Parsed<u64> {
    let word = line.next("`insns=N`", form)?;
    position(word.text).map_err(|error| {
        let text = word.text.strip_prefix("insns=").unwrap_or(word.text);
        wrong_number(word, text, error.to_string(), form)
    })
}

/// A count, written as everywhere.
fn number(word: Word<'_>, form: &str) -> Parsed<u64> {
    count(word.text).map_err(|error| wrong_number(word, word.text, error.to_string(), form))
}

/// Points at `text`, the end of a word.
fn wrong_number(word: Word<'_>, text: &str, message: String, form: &str) -> Wrong {
    let before = word.text.chars().count() - text.chars().count();
    let (message, help) = match message.split_once("; ") {
        Some((message, help)) => (message.to_owned(), help.to_owned()),
        None => (message, format!("write {form}")),
    };
    Wrong { col: word.col + before, len: (word.len - before).max(1), message, help }
}

fn action(line: &mut Line<'_>, when: &When, source: &SourceOptions) -> Result<Command, Bad> {
    let word = line.next("what to do", ACTIONS)?;
    Ok(match word.text {
        "insert" => {
            let file = line.next("the program's file", "insert FILE.rpn")?;
            Command::insert(file.text, program(file, source)?)
        }
        "remove" => Command::Remove { name: line.next("the program's name", "remove NAME")?.text.to_owned() },
        "enable" => Command::Switch { points: selection(line, word)?, on: true },
        "disable" => Command::Switch { points: selection(line, word)?, on: false },
        "query" => Command::Query,
        "getvars" => Command::GetVars { name: line.optional().map(|name| name.text.to_owned()) },
        "list" => listing(line)?,
        "snapshot" => Command::Snapshot { label: line.label("snapshot LABEL")? },
        "restore" => {
            if matches!(when, When::Every { .. }) {
                let message = "a run that goes back again and again never ends".to_owned();
                return Err(wrong(word, message, "restore with `at`, `on hit` or `on console`").into());
            }
            Command::Restore { label: line.label("restore LABEL")? }
        }
        "type" => typed(line)?,
        "dump" => Command::Dump,
        "dti" => dti_level(line)?,
        "nmi" => Command::Nmi,
        "stop" => Command::Stop,
        other => return Err(wrong(word, format!("there is no action `{other}`"), ACTIONS).into()),
    })
}

/// The words after `dti`.
fn dti_level(line: &mut Line<'_>) -> Parsed<Command> {
    const FORM: &str = "dti level NAME N, with N from -1 to 7";
    keyword(line, "level", FORM)?;
    let name = line.next("the channel's name", FORM)?.text.to_owned();
    let word = line.next("the level", FORM)?;
    let level = word.text.parse().ok().filter(|level| (-1..=7).contains(level));
    let level =
        level.ok_or_else(|| wrong(word, format!("`{}` is no level", word.text), &format!("write {FORM}")))?;
    Ok(Command::DtiLevel { name, level })
}

/// The words after `list`: those of `trapline list` that apply to a running guest.
fn listing(line: &mut Line<'_>) -> Parsed<Command> {
    const FORM: &str = "list [-v] [--opcode] SPEC, list --modules or list [-v] --processes";
    let (mut how, mut wanted) = (How::default(), None);
    let end = line.end;
    while let Some(word) = line.optional() {
        let named = match word.text {
            "-v" | "--verbose" => {
                how.verbose = true;
                continue;
            }
            "--opcode" => {
                how.opcode = true;
                continue;
            }
            "--modules" => Wanted::Modules,
            "--processes" => Wanted::Processes,
            text if text.starts_with('-') => {
                return Err(wrong(
                    word,
                    format!("`{text}` is not an option of list"),
                    &format!("write {FORM}"),
                ));
            }
            text => Wanted::Named(text.to_owned()),
        };
        named.check().map_err(|error| wrong(word, error.to_string(), &format!("write {FORM}")))?;
        if wanted.replace(named).is_some() {
            let message = format!("`{}` is more than one line can list", word.text);
            return Err(wrong(word, message, &format!("write {FORM}")));
        }
    }
    let wanted = wanted.ok_or_else(|| Wrong {
        col: end,
        len: 1,
        message: "what to list is missing".to_owned(),
        help: FORM.to_owned(),
    })?;
    Ok(Command::List { wanted, how })
}

/// What follows `type`: a text, with `hvc0` before it for the virtio console, or `keyboard`.
fn typed(line: &mut Line<'_>) -> Parsed<Command> {
    const FORM: &str = "type TEXT, type hvc0 TEXT or type keyboard TEXT";
    let first = line.next("what to type", FORM)?;
    let (line, text) = match (first.text, line.optional()) {
        ("hvc0", Some(text)) => (InputLine::Virtio, text),
        ("ttyS0", Some(text)) => (InputLine::Com1, text),
        ("keyboard", Some(text)) => (InputLine::Keyboard, text),
        (_, None) => (InputLine::Com1, first),
        (other, Some(_)) => {
            let help = "write hvc0 or keyboard, or put quotation marks around a text with blanks";
            return Err(wrong(first, format!("`{other}` is not a console to type at"), help));
        }
    };
    Ok(Command::Type { line, bytes: unescape(text)? })
}

fn program(file: Word<'_>, source: &SourceOptions) -> Result<trapline_rpn::Program, Bad> {
    programs::read(Path::new(file.text), source).map_err(|error| match error {
        ProgramError::Compile(_) => Bad::Program(error),
        other => Bad::Line(wrong(file, other.to_string(), "name the file of a probe program")),
    })
}

/// `NAME`, `NAME n`, `group=G` and `type=T`, at least one of them.
fn selection(line: &mut Line<'_>, verb: Word<'_>) -> Parsed<Selection> {
    let form = format!("write {0} NAME, {0} NAME n, {0} group=G or {0} type=T", verb.text);
    let mut points = Selection::default();
    line.peek().ok_or_else(|| wrong(verb, format!("nothing is named to {}", verb.text), &form))?;
    while let Some(word) = line.peek() {
        if let Some(group) = word.text.strip_prefix("group=") {
            points.groups.push(group.to_owned());
        } else if let Some(kind) = word.text.strip_prefix("type=") {
            points.kinds.push(kind.to_owned());
        } else if points == Selection::default() {
            points.name = Some(word.text.to_owned());
        } else if points.name.is_some() && points.point.is_none() {
            let n = number(word, "NAME N")?;
            points.point = Some(usize::try_from(n).unwrap_or(usize::MAX));
        } else {
            return Err(wrong(word, format!("`{}` is more than can be named", word.text), &form));
        }
        line.at += 1;
    }
    Ok(points)
}

/// Reports programs and snapshots that a line names although they cannot exist.
fn names_nothing(rule: &Rule, rules: &[Rule], inserted: &[String], content: &str) -> Vec<Wrong> {
    let mut known: Vec<&str> = inserted.iter().map(String::as_str).collect();
    let mut labels: Vec<&str> = Vec::new();
    for rule in rules {
        match &rule.command {
            Command::Insert { name, .. } if !known.contains(&name.as_str()) => known.push(name),
            Command::Snapshot { label } => labels.push(label),
            _ => {}
        }
    }
    let list = |names: &[&str]| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    let mut found = Vec::new();
    let program = match &rule.command {
        Command::Remove { name } => Some(name),
        Command::Switch { points, .. } => points.name.as_ref(),
        Command::GetVars { name } => name.as_ref(),
        _ => None,
    };
    let waited = match &rule.when {
        When::Hit { name, .. } => Some(name),
        _ => None,
    };
    for name in waited.into_iter().chain(program) {
        let exact = known.contains(&name.as_str());
        let count = if exact { 1 } else { known.iter().filter(|k| names(name, k)).count() };
        if count == 1 {
            continue;
        }
        let (message, help) = if count > 1 {
            let same: Vec<&str> = known.iter().copied().filter(|k| short_name(k) == name).collect();
            (
                format!("`{name}` is the file name of {count} programs"),
                format!("write one of {}", list(&same)),
            )
        } else if known.is_empty() {
            (format!("no program is called `{name}`"), "-p or an `insert` must name it".to_owned())
        } else {
            (
                format!("no program is called `{name}`"),
                format!("the programs of this run are {}", list(&known)),
            )
        };
        found.push(at_word(content, name, message, help));
    }
    if let Command::Restore { label } = &rule.command
        && !labels.contains(&label.as_str())
    {
        let help = if labels.is_empty() {
            "no line takes a snapshot; `at insns=N snapshot LABEL` takes one".to_owned()
        } else {
            format!("the snapshots of this script are {}", list(&labels))
        };
        found.push(at_word(content, label, format!("no snapshot is called `{label}`"), help));
    }
    found
}

/// Points at the last word `text` of a line that holds it.
fn at_word(content: &str, text: &str, message: String, help: String) -> Wrong {
    let words = split(content).map(|line| line.words).unwrap_or_default();
    let place = words.iter().rev().find(|word| word.text == text).map(|word| (word.col, word.len));
    let (col, len) = place.unwrap_or((1, 1));
    Wrong { col, len, message, help }
}
