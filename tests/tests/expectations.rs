//! Assertions of `.expect` files against a slow second reading of docs/regression.md: it splits the text itself instead of a list
//! of tokens, and counts hits by looking at the instruction pointer of every state of the run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use tempfile::TempDir;
use trapline_session::{Case, Failed, GuestBuilder, HISTORY_MEM, Places, Position, Recording, Timeline};

use crate::cli::trapline;
use crate::common::Rng;

/// Random assertions of each guest.
const LINES: u64 = 5_000;
/// Assertions in a file.
const IN_A_FILE: u64 = 250;
const INSNS: u64 = 600_000;
/// Programs of the recording: the first one logs, the second one ends by an exception.
const OWN: [(&str, &str); 2] = [("kmalloc", "{ push 3; log 1 }"), ("do_syscall", "{ push 1; push 0; div }")];
/// What is claimed to be shown and not.
const TEXTS: [&str; 4] = ["Linux", "appln", "#", "no such text"];

/// What the run is known to give.
struct Known {
    /// By the text of a quantity, such as `hits` and `hits('NAME')`.
    values: BTreeMap<String, i128>,
    console: String,
    ending: String,
}

/// A comparison.
type Holds = fn(i128, i128) -> bool;

/// The value of a text; none if it is no value; an error if it has none.
type Value = Option<Result<i128, ()>>;

/// Where characters stand that are in no brackets and no quotation marks; none if those are not closed.
fn outside(text: &str) -> Option<Vec<usize>> {
    let (mut depth, mut quote, mut found) = (0, None, Vec::new());
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(mark), c) if mark == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, _) if depth == 0 => found.push(at),
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    (depth == 0 && quote.is_none()).then_some(found)
}

impl Known {
    /// Splits at the last of these operators, since they bind to the left.
    fn split(&self, text: &str, signs: [char; 2], tighter: &dyn Fn(&str) -> Value) -> Value {
        let at = outside(text)?.into_iter().rev().find(|at| text[*at..].starts_with(signs));
        let Some(at) = at else { return tighter(text) };
        let (left, right) = (self.split(&text[..at], signs, tighter)?, tighter(&text[at + 1..])?);
        let (Ok(left), Ok(right)) = (left, right) else { return Some(Err(())) };
        let floor = |a: i128, b: i128| {
            let cut = a.checked_div(b)?;
            Some(if cut * b != a && (a < 0) != (b < 0) { cut - 1 } else { cut })
        };
        let value = match text.as_bytes()[at] {
            b'+' => left.checked_add(right),
            b'-' => left.checked_sub(right),
            b'*' => left.checked_mul(right),
            _ => floor(left, right),
        };
        Some(value.ok_or(()))
    }

    fn value(&self, text: &str) -> Value {
        self.split(text, ['+', '-'], &|text| self.split(text, ['*', '/'], &|text| self.factor(text)))
    }

    fn factor(&self, text: &str) -> Value {
        let text = text.trim();
        if let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            return self.value(inner);
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return literal(text).map(Ok);
        }
        let Some((name, rest)) = text.split_once('(') else { return self.values.get(text).copied().map(Ok) };
        let (name, inner) = (name.trim(), rest.trim().strip_suffix(')')?.trim());
        let mark = inner.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let quoted = inner.strip_prefix(mark)?.strip_suffix(mark)?;
        if quoted.contains(mark) || !matches!(name, "hits" | "rpn_ops") {
            return None;
        }
        // What no program is called has no operations: that is found out when it is evaluated.
        let own = self.values.get(&format!("{name}('{quoted}')")).copied();
        own.map(Ok).or_else(|| (name == "rpn_ops").then_some(Err(())))
    }

    /// What a line claims: none if it is not an assertion, else whether it holds.
    fn claim(&self, line: &str) -> Option<Result<bool, ()>> {
        if let Some(rest) = word(line, "console") {
            let text = quoted(word(rest, "contains")?)?;
            return Some(Ok(self.console.contains(text)));
        }
        if let Some(rest) = word(line, "ending") {
            let rest = rest.trim_start();
            let equal = rest.starts_with("==");
            let text = quoted(rest.strip_prefix("==").or_else(|| rest.strip_prefix("!="))?)?;
            return Some(Ok((self.ending == text) == equal));
        }
        let at = outside(line)?.into_iter().find(|at| line[*at..].starts_with(['=', '!', '<', '>']))?;
        let signs: [(&str, Holds); 6] = [
            ("==", |a, b| a == b),
            ("!=", |a, b| a != b),
            ("<=", |a, b| a <= b),
            (">=", |a, b| a >= b),
            ("<", |a, b| a < b),
            (">", |a, b| a > b),
        ];
        let (sign, holds) = signs.into_iter().find(|(sign, _)| line[at..].starts_with(sign))?;
        let (left, right) = (self.value(&line[..at])?, self.value(&line[at + sign.len()..])?);
        Some(left.and_then(|left| right.map(|right| holds(left, right))))
    }
}

/// What follows a word.
fn word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text.trim_start().strip_prefix(word)?;
    (!rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')).then_some(rest)
}

fn quoted(text: &str) -> Option<&str> {
    let text = text.trim();
    let mark = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text.strip_prefix(mark)?.strip_suffix(mark).filter(|inner| !inner.contains(mark))
}

/// A number as docs/regression.md writes it.
fn literal(text: &str) -> Option<i128> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    let (digits, unit) = match digits.chars().last().map(|c| c.to_ascii_uppercase()) {
        Some('K') => (&digits[..digits.len() - 1], 1_000),
        Some('M') => (&digits[..digits.len() - 1], 1_000_000),
        Some('G') => (&digits[..digits.len() - 1], 1_000_000_000),
        _ => (digits, 1),
    };
    let plain = digits.replace('_', "");
    let first = digits.chars().next()?;
    let valid = first.is_digit(radix) && plain.chars().all(|c| c.is_digit(radix));
    let value = i128::from_str_radix(&plain, radix).ok().filter(|_| valid)? * unit;
    u64::try_from(value).ok().map(i128::from)
}

/// The text of a number.
fn written(dice: &mut Rng, number: u64) -> String {
    match dice.below(4) {
        0 => format!("{number:#x}"),
        1 if number > 999 => format!("{}_{:03}", number / 1000, number % 1000),
        2 if number.is_multiple_of(1000) => format!("{}K", number / 1000),
        _ => number.to_string(),
    }
}

/// A random value.
fn any_value(dice: &mut Rng, names: &[&String], deep: u32) -> String {
    match dice.below(if deep == 0 { 2 } else { 6 }) {
        0 => {
            let number = [dice.below(10), dice.below(2_000), dice.below(5) * 1000, dice.next()];
            let chosen = number[dice.below(4) as usize];
            written(dice, chosen)
        }
        1 => names[dice.below(names.len() as u64) as usize].clone(),
        2 => format!("({})", any_value(dice, names, deep - 1)),
        _ => {
            let sign = [" + ", "-", "*", " / "][dice.below(4) as usize];
            format!("{}{sign}{}", any_value(dice, names, deep - 1), any_value(dice, names, deep - 1))
        }
    }
}

/// A random line, sometimes with a character too many, too few, or in a wrong place.
fn any_line(dice: &mut Rng, known: &Known, names: &[&String]) -> String {
    let line = match dice.below(12) {
        0 => format!("console contains '{}'", TEXTS[dice.below(4) as usize]),
        1 => format!("ending {}= \"{}\"", ['=', '!'][dice.below(2) as usize], known.ending),
        _ => {
            let sign = ["==", "!=", "<", "<=", ">", ">="][dice.below(6) as usize];
            let left = any_value(dice, names, 3);
            // Half of the numbers on the right are what is found on the left.
            let right = match known.value(&left) {
                Some(Ok(value)) if dice.below(2) == 0 && u64::try_from(value).is_ok() => value.to_string(),
                _ => any_value(dice, names, 1),
            };
            format!("{left} {sign} {right}")
        }
    };
    let line = if dice.below(5) == 0 { format!("{line}  # hits == 0") } else { line };
    if dice.below(6) > 0 {
        return line;
    }
    let mut chars: Vec<char> = line.chars().collect();
    let at = dice.below(chars.len() as u64) as usize;
    // Another name of a program would be another question.
    if chars[..at].iter().filter(|c| matches!(c, '\'' | '"')).count() % 2 == 1 {
        return line;
    }
    const PUT: &[u8] = b"=<>!+-*/()'\" 0aK_";
    match dice.below(3) {
        0 => drop(chars.remove(at)),
        1 => chars.insert(at, char::from(PUT[dice.below(PUT.len() as u64) as usize])),
        _ => chars.swap(at, 0),
    }
    chars.into_iter().collect()
}

/// The line without its comment, if something is left.
fn bare(line: &str) -> Option<&str> {
    let mut quote = None;
    let end = line.char_indices().find(|(_, c)| {
        match (quote, c) {
            (Some(mark), c) if mark == *c => quote = None,
            (None, '\'' | '"') => quote = Some(*c),
            _ => {}
        }
        quote.is_none() && *c == '#'
    });
    let text = end.map_or(line, |(at, _)| &line[..at]);
    (!text.trim().is_empty()).then_some(text)
}

/// How often the run begins the function at each of these addresses, console and virtual time at its end: state by state.
fn counted(path: &std::path::Path, functions: &[(u64, String)]) -> (BTreeMap<String, i128>, String, u64) {
    let recording = Recording::read(path).unwrap();
    let guest = GuestBuilder::of_recording(&recording, &Places::default()).unwrap().open().unwrap();
    let session = guest.start(recording.config().probing.clone()).unwrap();
    let mut timeline = Timeline::of(session, &recording, |_| true, HISTORY_MEM).unwrap();
    timeline.goto(Position::At { icount: 0, ordinal: 0 }).unwrap();
    let by_address: BTreeMap<u64, &String> = functions.iter().map(|(at, name)| (*at, name)).collect();
    let mut counts: BTreeMap<String, i128> = functions.iter().map(|(_, name)| (name.clone(), 0)).collect();
    while timeline.session().icount() < recording.end().icount {
        let (at, before) = (timeline.session().core().linear_ip(), timeline.session().icount());
        timeline.next_state().unwrap();
        // What is interrupted before it begins comes again.
        if timeline.session().icount() > before
            && let Some(count) = by_address.get(&at).and_then(|name| counts.get_mut(*name))
        {
            *count += 1;
        }
    }
    let session = timeline.session();
    let console = String::from_utf8_lossy(session.console()).into_owned();
    (counts, console, session.core().virtual_ns())
}

/// Records a guest twice, without and with programs, and counts.
fn known(folder: &TempDir, name: &str) -> Known {
    let image = format!("embedded:{name}");
    let insns = INSNS.to_string();
    let plain = ["record", &image, "--mem", "32M", "--limit-insns", &insns, "-q", "-o"];
    let clauses = OWN.map(|(function, body)| format!("fbt::{function}:entry {body}"));
    let [_, ran] = [&["plain.tlr"][..], &["r.tlr", "--rpn", &clauses[0], "--rpn", &clauses[1]]].map(|more| {
        let ran = trapline(folder.path(), &[&plain[..], more].concat());
        assert_eq!(ran.code, 124, "{}", ran.err);
        ran
    });
    let guest = GuestBuilder::embedded(name).open().unwrap();
    let symbols = guest.target().symbols();
    let named =
        ["kmalloc", "do_syscall", "do_fork", "do_page_fault", "fnv1a", "fnv1a_more", "schedule", "put"];
    let functions: Vec<(u64, String)> =
        named.iter().map(|name| (symbols.sole(name).unwrap().addr, (*name).to_owned())).collect();
    let (counts, console, virtual_ns) = counted(&folder.path().join("plain.tlr"), &functions);
    let mut values: BTreeMap<String, i128> =
        counts.iter().map(|(name, count)| (format!("hits('fbt::{name}:entry')"), *count)).collect();
    let [logs, fails] = OWN.map(|(function, _)| counts[function]);
    assert!(logs > 5 && fails > 5, "{counts:?}");
    for (name, value) in [
        ("insns", INSNS.into()),
        ("virtual_ns", virtual_ns.into()),
        ("hits", logs + fails),
        // Each is a line.
        ("records", ran.out.lines().count() as i128),
        ("lost", 0),
        ("exceptions", fails),
        ("rpn_ops('fbt::kmalloc:entry')", 3 * logs),
        ("rpn_ops('fbt::do_syscall:entry')", 3 * fails),
        ("hits('fbt::fnv1a*:entry')", counts["fnv1a"] + counts["fnv1a_more"]),
        ("hits('fbt::do_fork:entry,fbt::schedule:entry')", counts["do_fork"] + counts["schedule"]),
    ] {
        values.insert(name.to_owned(), value);
    }
    let ending = Recording::read(&folder.path().join("r.tlr")).unwrap().ending().unwrap().to_string();
    Known { values, console, ending }
}

fn run(folder: &TempDir, lines: &[String]) -> Result<Vec<(u32, String)>, String> {
    std::fs::write(folder.path().join("r.expect"), lines.join("\n") + "\n").unwrap();
    let case = Case::read(&folder.path().join("r.tlr")).map_err(|error| error.to_string())?;
    let failed = case.run(&Places::default()).map_err(|error| error.to_string())?.err().unwrap_or_default();
    let line = |failed: &Failed| match failed {
        Failed::Assertion { line, text, found, .. } => (*line, format!("{text}: {found}")),
        other => panic!("{other}"),
    };
    Ok(failed.iter().map(line).collect())
}

#[test]
fn ten_thousand_random_assertions_hold_where_a_slow_reading_says_so() {
    let (mut held, mut failed, mut refused) = (0, 0, 0);
    for name in ["ia32", "x86_64"] {
        let folder = TempDir::new().unwrap();
        let known = known(&folder, name);
        let names: Vec<&String> = known.values.keys().collect();
        let each: Vec<String> =
            known.values.iter().map(|(name, value)| format!("{name} == {value}")).collect();
        assert_eq!(run(&folder, &each).unwrap(), [], "{name}");
        let mut dice = Rng(0x9e37_79b9_7f4a_7c15);
        for _ in 0..LINES / IN_A_FILE {
            let mut lines = Vec::new();
            while lines.len() < IN_A_FILE as usize {
                let line = any_line(&mut dice, &known, &names);
                match bare(&line).map(|text| known.claim(text)) {
                    Some(None) => {
                        let found = run(&folder, std::slice::from_ref(&line));
                        assert!(found.is_err(), "{line}");
                        refused += 1;
                    }
                    _ => lines.push(line),
                }
            }
            let wrong = |line: &String| bare(line).is_some_and(|text| known.claim(text) != Some(Ok(true)));
            let wanted: Vec<u32> =
                (1..).zip(&lines).filter(|(_, line)| wrong(line)).map(|(number, _)| number).collect();
            let found = run(&folder, &lines).unwrap_or_else(|error| panic!("{error}"));
            let numbers: Vec<u32> = found.iter().map(|(number, _)| *number).collect();
            let odd =
                wanted.iter().find(|n| !numbers.contains(n)).or(numbers.iter().find(|n| !wanted.contains(n)));
            assert_eq!(odd.map(|number| &lines[*number as usize - 1]), None, "{name}");
            failed += wanted.len();
            held += lines.len() - wanted.len();
            updated(&folder, &known, &lines);
        }
    }
    assert!(held > 3_000 && failed > 3_000 && refused > 300, "{held} {failed} {refused}");
}

/// `--update` changes the number of a wrong `.. == N` to the one that is found, and nothing else.
fn updated(folder: &TempDir, known: &Known, lines: &[String]) {
    let case = Case::read(&folder.path().join("r.tlr")).unwrap();
    case.update(&Places::default()).unwrap();
    let text = std::fs::read_to_string(folder.path().join("r.expect")).unwrap();
    let now: Vec<&str> = text.lines().collect();
    assert_eq!(now.len(), lines.len());
    for (was, now) in lines.iter().zip(now) {
        let text = bare(was).unwrap_or_default();
        let is_number = |text: &str| literal(text.trim_matches(['(', ')', ' '])).is_some();
        let sides = outside(text).and_then(|all| all.into_iter().find(|at| text[*at..].starts_with("==")));
        let sides = sides.map(|at| (&text[..at], &text[at + 2..])).filter(|(_, right)| is_number(right));
        let found = sides.and_then(|(left, _)| known.value(left)).and_then(Result::ok);
        let found = found.filter(|value| u64::try_from(*value).is_ok());
        match found.filter(|_| known.claim(text) == Some(Ok(false))) {
            Some(_) => {
                assert_eq!(known.claim(bare(now).unwrap()), Some(Ok(true)), "{was} became {now}");
                assert_eq!(was.split_once(" # ").map(|c| c.1), now.split_once(" # ").map(|c| c.1));
            }
            None => assert_eq!(was, now),
        }
    }
}

/// Every recursion over what a file says has a limit.
#[test]
fn an_assertion_of_any_length_and_depth_is_one_sentence() {
    let folder = TempDir::new().unwrap();
    let args = ["record", "embedded:ia32", "--mem", "32M", "--limit-insns", "1000", "-q", "-o", "r.tlr"];
    assert_eq!(trapline(folder.path(), &args).code, 124);
    let deep = format!("{}1{} == 1", "(".repeat(200_000), ")".repeat(200_000));
    let long = format!("1{} == 1", "+0".repeat(200_000));
    for line in [&deep, &long] {
        std::fs::write(folder.path().join("r.expect"), line).unwrap();
        let ran = trapline(folder.path(), &["verify", "r.tlr"]);
        assert_eq!(ran.code, 7, "{}", ran.err);
        assert!(ran.out.len() < 2_000 && ran.out.contains("operators and brackets"), "{}", ran.out);
    }
    for few in ["((((((((((1)))))))))) == 1".to_owned(), format!("1{} == 1", "+0".repeat(100))] {
        std::fs::write(folder.path().join("r.expect"), few).unwrap();
        assert_eq!(trapline(folder.path(), &["verify", "r.tlr"]).code, 0);
    }
}
