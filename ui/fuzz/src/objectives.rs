//! The objectives: what a handler, or a function of the guest, must not do. One table, of which the command line, its help and the verdict are views.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use trapline_session::numbers;

use crate::error::FuzzError;

/// An objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Objective {
    /// Trapline itself panics.
    Panic,
    /// The same state gives two results.
    Nondeterminism,
    /// The interpreter's two loops differ.
    Interpreters,
    /// More operations than this.
    Budget,
    /// An exception ends the handler.
    Exception,
    /// A record has room for a part of its data only.
    Truncated,
    /// Data are dropped.
    Lost,
    /// The handler writes memory elsewhere.
    Writes,
    /// The log depends on memory there.
    Leak,
    /// An assertion does not hold.
    Assert,
    /// The guest crashes.
    GuestCrash,
    /// The guest goes on otherwise than without the handler.
    GuestDiffers,
    /// The guest's console shows a text that means a crash.
    Text,
    /// A function takes more instructions than this.
    Insns,
}

/// What a search runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Handlers, and nothing of the guest.
    Handlers,
    /// Handlers, and then the guest for a while.
    Continued,
    /// A function of the guest.
    Function,
}

impl Over {
    /// How an objective that it cannot have can be had.
    fn instead(self) -> &'static str {
        match self {
            Self::Handlers => "it is one of the guest's: give --continue or --function",
            Self::Continued => "it is one of functions: give --function",
            Self::Function => "it is one of handlers: search without --function",
        }
    }
}

/// What an objective takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A number.
    Number,
    /// The name of an exception, or nothing.
    Exception,
    /// Ranges of addresses.
    Ranges,
    /// A text, or nothing.
    Text,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// The objective.
    pub objective: Objective,
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// The searches that can have it.
    pub of: &'static [Over],
    /// Whether it is on unless it is switched off.
    pub is_default: bool,
    /// What falls.
    pub does: &'static str,
}

const HANDLERS: &[Over] = &[Over::Handlers, Over::Continued];
const GUEST: &[Over] = &[Over::Continued, Over::Function];
const ALL: &[Over] = &[Over::Handlers, Over::Continued, Over::Function];
const FUNCTION: &[Over] = &[Over::Function];
const CONTINUED: &[Over] = &[Over::Continued];

/// All objectives.
pub const OBJECTIVES: &[Row] = &[
    row(Objective::Panic, "panic", Takes::Nothing, ALL, "Trapline panics"),
    row(Objective::Nondeterminism, "nondeterminism", Takes::Nothing, ALL, "the same state gives two results"),
    row(
        Objective::Interpreters,
        "interpreters",
        Takes::Nothing,
        HANDLERS,
        "the interpreter's fast loop and its observed one give different results",
    ),
    off(row(
        Objective::Budget,
        "budget",
        Takes::Number,
        HANDLERS,
        "the handler executes more operations than N",
    )),
    row(
        Objective::Exception,
        "exception",
        Takes::Exception,
        HANDLERS,
        "an exception, or the one of this name, ends the handler",
    ),
    row(
        Objective::Truncated,
        "truncated",
        Takes::Nothing,
        HANDLERS,
        "a record has no room for all of its data",
    ),
    row(
        Objective::Lost,
        "lost",
        Takes::Nothing,
        HANDLERS,
        "data are dropped: the record does not fit a sub-buffer of the channel, or a D program has no room",
    ),
    off(row(
        Objective::Writes,
        "writes",
        Takes::Ranges,
        HANDLERS,
        "the handler writes guest memory outside of these addresses",
    )),
    off(row(
        Objective::Leak,
        "leak",
        Takes::Ranges,
        HANDLERS,
        "what the handler logs depends on memory at these addresses",
    )),
    row(Objective::Assert, "assert", Takes::Nothing, ALL, "an assertion of a handler does not hold"),
    row(
        Objective::GuestCrash,
        "guest-crash",
        Takes::Nothing,
        GUEST,
        "the guest crashes, is reset or halts; after a handler, only if it does not without it",
    ),
    row(
        Objective::GuestDiffers,
        "guest-differs",
        Takes::Nothing,
        CONTINUED,
        "the guest is in another state after N instructions than without the handler",
    ),
    row(
        Objective::Text,
        "text",
        Takes::Text,
        FUNCTION,
        "the console shows the report of a mistake; with a text, also if it shows that",
    ),
    off(row(
        Objective::Insns,
        "insns",
        Takes::Number,
        FUNCTION,
        "the function takes more instructions than N",
    )),
];

/// Texts on a console that mean a crash, where the kernel cannot be asked ([`Deaths`](crate::deaths::Deaths)): of Linux without symbols,
/// GNU Mach, and Trapline's own guests.
pub const CRASH_TEXTS: &[&str] = &[
    "Kernel panic",
    "Oops: ",
    "BUG: ",
    "general protection fault",
    "kernel trap",
    "panic: ",
    "page fault: pid ",
];

/// One that is on unless it is switched off.
const fn row(
    objective: Objective,
    name: &'static str,
    takes: Takes,
    of: &'static [Over],
    does: &'static str,
) -> Row {
    Row { objective, name, takes, of, is_default: true, does }
}

/// One that is off unless it is switched on.
const fn off(row: Row) -> Row {
    Row { is_default: false, ..row }
}

impl Objective {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        OBJECTIVES.iter().find(|row| row.objective == self).map_or("?", |row| row.name)
    }
}

/// The objectives that are on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objectives {
    over: Over,
    on: Vec<Objective>,
    /// Of [`Objective::Budget`].
    pub budget: u32,
    /// Of [`Objective::Exception`]: the names; any if there is none.
    pub exceptions: Vec<String>,
    /// Of [`Objective::Writes`].
    pub writes: Vec<(u64, u64)>,
    /// Of [`Objective::Leak`].
    pub leak: Vec<(u64, u64)>,
    /// Of [`Objective::Insns`].
    pub insns: u64,
    /// Of [`Objective::Text`].
    pub texts: Vec<String>,
}

impl Default for Objectives {
    fn default() -> Self {
        Self::of(Over::Handlers)
    }
}

const EXCEPTIONS: &[&str] = &[
    "INVALID_ADDR",
    "SEG_FAULT",
    "JMP_MAX",
    "CALL_MAX",
    "DIVIDE_BY_ZERO",
    "INVALID_OPERAND",
    "LOG_OVERFLOW",
    "USER_EX",
];

impl Objectives {
    /// Those of a search that are on unless they are switched off.
    #[must_use]
    pub fn of(over: Over) -> Self {
        let on = OBJECTIVES.iter().filter(|row| row.is_default && row.of.contains(&over));
        Self {
            over,
            on: on.map(|row| row.objective).collect(),
            budget: u32::MAX,
            exceptions: Vec::new(),
            writes: Vec::new(),
            leak: Vec::new(),
            insns: u64::MAX,
            texts: Vec::new(),
        }
    }

    /// Whether an objective is on.
    #[must_use]
    pub fn has(&self, objective: Objective) -> bool {
        self.on.contains(&objective)
    }

    /// The objectives that are on.
    #[must_use]
    pub fn all(&self) -> &[Objective] {
        &self.on
    }

    fn find(name: &str) -> Result<&'static Row, FuzzError> {
        OBJECTIVES.iter().find(|row| row.name == name).ok_or_else(|| {
            let names: Vec<_> = OBJECTIVES.iter().map(|row| row.name).collect();
            FuzzError::Objective(format!("there is no objective `{name}`; there are {}", names.join(", ")))
        })
    }

    /// Switches an objective off.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn without(&mut self, name: &str) -> Result<(), FuzzError> {
        let row = Self::find(name)?;
        self.on.retain(|on| *on != row.objective);
        if row.objective == Objective::Text {
            self.texts.clear();
        }
        Ok(())
    }

    /// Switches an objective on: `NAME` or `NAME=VALUE`.
    ///
    /// # Errors
    /// There is none of this name, or the value is wrong.
    pub fn with(&mut self, text: &str) -> Result<(), FuzzError> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let row = Self::find(name)?;
        let wrong = |what: &str| FuzzError::Objective(format!("--objective {text}: {what}"));
        if !row.of.contains(&self.over) {
            return Err(wrong(self.over.instead()));
        }
        match (row.takes, value) {
            (Takes::Nothing | Takes::Exception | Takes::Text, None) => {}
            (Takes::Text, Some("")) => return Err(wrong("write the text after it")),
            (Takes::Text, Some(text)) => self.texts.push(text.to_owned()),
            (Takes::Nothing, Some(_)) => return Err(wrong("this objective takes no value")),
            (Takes::Number, Some(value)) => {
                let number = numbers::positive(value).map_err(|error| wrong(&error.to_string()))?;
                match row.objective {
                    Objective::Insns => self.insns = number,
                    _ => self.budget = u32::try_from(number).unwrap_or(u32::MAX),
                }
            }
            (Takes::Number, None) => {
                return Err(wrong(&format!("write the number after it, such as {name}=1000")));
            }
            (Takes::Exception, Some(value)) => {
                let known = EXCEPTIONS.iter().find(|known| known.eq_ignore_ascii_case(value));
                let known = known.ok_or_else(|| {
                    wrong(&format!("there is no exception {value}; there are {}", EXCEPTIONS.join(", ")))
                })?;
                self.exceptions.push((*known).to_owned());
            }
            (Takes::Ranges, value) => {
                let value = value.ok_or_else(|| {
                    wrong("write the addresses after it, such as 0xc0100000:0xc01fffff, or `none`")
                })?;
                let ranges = ranges(value).ok_or_else(|| {
                    wrong("write ranges FIRST:LAST of addresses, separated by commas, or `none`")
                })?;
                match row.objective {
                    Objective::Writes => self.writes.extend(ranges),
                    _ => self.leak.extend(ranges),
                }
            }
        }
        if !self.has(row.objective) {
            self.on.push(row.objective);
            self.on.sort_unstable();
        }
        Ok(())
    }
}

/// `FIRST:LAST[,FIRST:LAST..]`, or `none`.
fn ranges(text: &str) -> Option<Vec<(u64, u64)>> {
    if text == "none" {
        return Some(Vec::new());
    }
    let range = |one: &str| {
        let (low, high) = one.split_once(':')?;
        let range = (numbers::count(low).ok()?, numbers::count(high).ok()?);
        (range.0 <= range.1).then_some(range)
    };
    text.split(',').map(range).collect()
}

/// An objective that has fallen, and where: what makes two findings the same one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fallen {
    /// The objective.
    pub objective: Objective,
    /// The program.
    pub program: String,
    /// The operation of the handler.
    pub at: u32,
    /// The exception, for [`Objective::Exception`]; where the guest crashed, for those of the guest.
    pub what: Cow<'static, str>,
}

impl Fallen {
    /// The name of its file, without the ending.
    #[must_use]
    pub fn file_name(&self) -> String {
        let short = self.program.rsplit('/').next().unwrap_or(&self.program);
        let short = plain(short);
        let what = if self.what.is_empty() {
            String::new()
        } else {
            format!("-{}", plain(&self.what).to_ascii_lowercase())
        };
        format!("{}{what}-{short}-{}", self.objective.name(), self.at)
    }

    /// The objective, with what it fell on.
    #[must_use]
    pub fn title(&self) -> String {
        match self.what.as_ref() {
            "" => self.objective.name().to_owned(),
            what => format!("{} {what}", self.objective.name()),
        }
    }
}

/// A text as a part of a file's name.
fn plain(text: &str) -> String {
    let kept = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '_' { c } else { '-' });
    let kept: String = kept.take(48).collect();
    kept.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_switched_by_name() {
        let mut on = Objectives::default();
        assert!(on.has(Objective::Exception) && !on.has(Objective::Budget));
        on.with("budget=100").unwrap();
        on.with("exception=invalid_addr").unwrap();
        on.with("writes=0x1000:0x1fff,0x3000:0x3000").unwrap();
        on.without("truncated").unwrap();
        assert_eq!((on.budget, on.exceptions.as_slice()), (100, &["INVALID_ADDR".to_owned()][..]));
        assert_eq!(on.writes, [(0x1000, 0x1fff), (0x3000, 0x3000)]);
        assert!(on.has(Objective::Budget) && !on.has(Objective::Truncated));
        for (wrong, says) in [
            ("speed", "there is no objective `speed`"),
            ("budget", "write the number after it"),
            ("panic=1", "takes no value"),
            ("exception=OOPS", "there is no exception OOPS"),
            ("leak=5:1", "write ranges FIRST:LAST"),
            ("insns=5", "give --continue or --function"),
            ("guest-differs", "give --continue or --function"),
        ] {
            let error = on.clone().with(wrong).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn each_search_has_its_objectives() {
        let mut function = Objectives::of(Over::Function);
        assert!(function.has(Objective::Text) && !function.has(Objective::GuestDiffers));
        function.with("insns=5000").unwrap();
        function.with("text=lost").unwrap();
        assert_eq!((function.insns, function.texts.last().map(String::as_str)), (5000, Some("lost")));
        function.without("text").unwrap();
        assert!(function.texts.is_empty());
        let error = function.with("budget=3").unwrap_err().to_string();
        assert!(error.contains("search without --function"), "{error}");
        let continued = Objectives::of(Over::Continued);
        assert!(continued.has(Objective::GuestDiffers) && continued.has(Objective::Exception));
        assert!(!Objectives::default().has(Objective::GuestCrash));
    }
}
