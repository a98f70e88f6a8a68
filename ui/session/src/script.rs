//! A control script: commands for a run, with conditions. Grammar and meaning: docs/script.md.
//!
//! A script knows when each of its lines is due; a line holds a [`Command`]. Not here: the run loop.

mod parse;

pub use parse::ScriptError;

use std::path::Path;

use trapline_interposer::{Interposer, ProgramId};

use crate::commands::{Command, short_name};
use crate::programs::SourceOptions;

/// When a line is due.
#[derive(Debug, Clone, PartialEq, Eq)]
enum When {
    /// At this instruction count.
    At(u64),
    /// At every multiple of a count.
    Every {
        step: u64,
        /// The next one.
        next: u64,
    },
    /// When the displaced instruction of this hit of a program has completed.
    Hit { n: u64, name: String },
    /// When the console has shown a text this many times.
    Console { text: Vec<u8>, nth: u64, seen: Sightings },
}

/// How often a text is in the part of the console examined so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sightings {
    /// Bytes of the console examined so far.
    looked: usize,
    /// Places in them at which the text ends.
    count: u64,
}

impl Sightings {
    /// Examines the new part of the console; all of it if the console has become shorter.
    fn look(&mut self, text: &[u8], console: &[u8]) {
        if console.len() < self.looked {
            *self = Self::default();
        }
        // The text may begin in the part examined before.
        let from = (self.looked + 1).saturating_sub(text.len());
        let fresh = console.get(from..).unwrap_or_default();
        self.count += fresh.windows(text.len().max(1)).filter(|window| *window == text).count() as u64;
        self.looked = console.len();
    }
}

/// One line.
#[derive(Debug, Clone)]
struct Rule {
    line: u32,
    when: When,
    command: Command,
    /// It has been due. A line with `every` is never done.
    done: bool,
}

/// A script, and which of its lines have been due.
#[derive(Debug, Clone, Default)]
pub struct Script {
    file: String,
    rules: Vec<Rule>,
}

/// A hit for which a line has waited: the program's name and the hit's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueHit {
    /// The program.
    pub name: String,
    /// The number.
    pub n: u64,
}

/// Whether a name in a script is that of the program `program`: the whole name or the short one.
fn names(name: &str, program: &str) -> bool {
    name == program || name == short_name(program)
}

impl Command {
    /// Reads an action as in a line of a script, after its condition, such as `insert FILE` or `query`; `None` for a
    /// blank line or a comment.
    ///
    /// # Errors
    /// The line, or the program that it inserts, is invalid.
    pub fn parse(
        name: &str,
        line: u32,
        text: &str,
        source: &SourceOptions,
    ) -> Result<Option<Self>, ScriptError> {
        parse::command(name, line, text, source)
    }
}

impl Script {
    /// Reads and checks a script, with the programs that its lines insert. `-` is standard input. `inserted` are the
    /// programs inserted at the start.
    ///
    /// # Errors
    /// The file cannot be read or is not text, a line is wrong, or a program that it inserts is.
    pub fn read(path: &Path, inserted: &[String], source: &SourceOptions) -> Result<Self, ScriptError> {
        parse::read(path, inserted, source)
    }

    /// As [`Script::read`], of a text; diagnostics call it `name`.
    ///
    /// ```
    /// use trapline_session::{Condition, Ending, GuestBuilder, Limits, Script, SourceOptions};
    ///
    /// let text = "at insns=1M snapshot early\nat insns=2M stop\n";
    /// let mut script = Script::parse("two.script", text, &[], &SourceOptions::default())?;
    /// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    /// let ending = session.run_script(&mut script, &Condition::end(), &Limits::none());
    /// assert_eq!((ending, session.icount()), (Ending::Stopped, 2_000_000));
    /// # Ok::<(), trapline_session::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Script::read`].
    pub fn parse(
        name: &str,
        text: &str,
        inserted: &[String],
        source: &SourceOptions,
    ) -> Result<Self, ScriptError> {
        parse::parse(name, text, inserted, source)
    }

    /// All commands, in order.
    pub fn commands(&self) -> impl Iterator<Item = &Command> {
        self.rules.iter().map(|rule| &rule.command)
    }

    /// The next instruction count after `icount` at which a line is due.
    pub fn next_stop(&self, icount: u64) -> u64 {
        let stop = |rule: &Rule| match rule.when {
            When::At(n) if !rule.done => Some(n),
            When::Every { next, .. } => Some(next),
            _ => None,
        };
        self.rules.iter().filter_map(stop).filter(|n| *n > icount).min().unwrap_or(u64::MAX)
    }

    /// The texts that lines wait for.
    pub fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.rules.iter().filter(|rule| !rule.done).filter_map(|rule| match &rule.when {
            When::Console { text, .. } => Some(text.as_slice()),
            _ => None,
        })
    }

    /// Examines the console up to here.
    pub fn look(&mut self, console: &[u8]) {
        for rule in self.rules.iter_mut().filter(|rule| !rule.done) {
            if let When::Console { text, seen, .. } = &mut rule.when {
                seen.look(text, console);
            }
        }
    }

    /// The first line that is due at this count, by what the console has shown, or by one of these hits; it is not due
    /// again.
    pub fn take_due(&mut self, icount: u64, hits: &[DueHit]) -> Option<(u32, Command)> {
        let due = |rule: &&mut Rule| match &rule.when {
            When::At(n) => !rule.done && *n == icount,
            When::Every { next, .. } => *next == icount,
            When::Hit { n, name } => {
                !rule.done && hits.iter().any(|hit| hit.n == *n && names(name, &hit.name))
            }
            When::Console { nth, seen, .. } => !rule.done && seen.count >= *nth,
        };
        let rule = self.rules.iter_mut().find(due)?;
        match &mut rule.when {
            When::Every { step, next } => *next = next.saturating_add(*step),
            _ => rule.done = true,
        }
        Some((rule.line, rule.command.clone()))
    }

    /// Adjusts the repeating lines after the run has moved elsewhere.
    pub fn moved(&mut self, icount: u64) {
        for rule in &mut self.rules {
            if let When::Every { step, next } = &mut rule.when {
                *next = (icount / *step).saturating_add(1).saturating_mul(*step);
            }
        }
    }

    /// Asks for a stop at the next hit that a line waits for, of each program.
    pub fn watch(&self, interposer: &mut Interposer) {
        let programs = interposer.programs();
        let there: Vec<(ProgramId, String, u64)> =
            programs.iter().map(|p| (p.id, p.name.to_owned(), p.hits)).collect();
        for (id, program, hits) in there {
            // The awaited hit may be counted already while its instruction has not completed.
            let waited = interposer.stops_at_hit(id);
            let wanted = |rule: &Rule| match &rule.when {
                When::Hit { n, name } if !rule.done && names(name, &program) => Some(*n),
                _ => None,
            };
            let open = self.rules.iter().filter_map(wanted).filter(|n| *n > hits || Some(*n) == waited);
            interposer.stop_at_hit(id, open.min());
        }
    }

    /// The place of line `line`.
    pub fn place(&self, line: u32) -> String {
        format!("{}:{line}", self.file)
    }

    /// The lines that have not been due.
    pub fn left(&self) -> Vec<u32> {
        let once = |rule: &&Rule| !rule.done && !matches!(rule.when, When::Every { .. });
        self.rules.iter().filter(once).map(|rule| rule.line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_counted_once_a_place_however_the_console_grows() {
        let console = b"abababa ab";
        for step in 1..=console.len() {
            let mut seen = Sightings::default();
            for end in (0..=console.len()).step_by(step).chain([console.len()]) {
                seen.look(b"aba", &console[..end]);
            }
            assert_eq!(seen.count, 3, "steps of {step}");
        }
    }

    #[test]
    fn a_console_that_became_shorter_is_counted_anew() {
        let mut seen = Sightings::default();
        seen.look(b"# ", b"/ # ls\n/ # ");
        assert_eq!(seen.count, 2);
        seen.look(b"# ", b"/ # ");
        assert_eq!(seen.count, 1);
    }
}
