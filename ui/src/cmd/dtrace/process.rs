//! `-c COMMAND` and `-p PID`: the process of the guest that `$target` stands for, and that ends the run.
//!
//! A command is typed at the guest's shell, which starts it held: its number is known before the program is compiled,
//! and it runs from BEGIN on.

use trapline_session::{
    Command, Condition, Ending, How, InputLine, Limits, Reply, Row, Session, Wanted, counted,
};

use super::{Stop, said};
use crate::ctrl_c;
use crate::outlet::Outlet;

/// What a shell shows when it waits for a command, unless `--begin-at` says otherwise.
pub const PROMPT: &str = "/ # ";
/// The shell shows this before the number of the command's process.
const BEGUN: &str = "dtrace-target ";
/// The shell shows this when the command has ended.
const ENDED: &str = "dtrace-exit ";
/// The shell shows this in place of the number if there is no such program.
const ABSENT: &str = "no";
/// The shell shows this if the program cannot be executed.
const FAILED: &str = "dtrace-failed";
/// The same as it is typed: the echo of the typed line must not look like the output.
const TYPED: [&str; 3] = ["dtrace-\"\"target", "dtrace-\"\"failed", "dtrace-\"\"exit"];
/// Instructions that the shell may take to start a command.
const PATIENCE: u64 = 2_000_000_000;
/// Instructions between two looks at the line that is being shown, or at the list of processes.
const BETWEEN: u64 = 1_000_000;

/// The process of `-c` or `-p`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// Whether it is held, and runs when it is told to.
    held: bool,
}

/// A word as the shell takes it literally.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The line that starts a command held, if there is such a program. The trap runs if the shell cannot become it.
fn typed(command: &str) -> String {
    let words: Vec<String> = command.split_whitespace().map(quoted).collect();
    let [begun, failed, ended] = TYPED;
    format!(
        "sh -c 'p=$(command -v -- \"$1\"); case $p in */*) [ -x \"$p\" ] && [ ! -d \"$p\" ];; ?*) ;; *) false;; esac || \
         {{ echo {begun} {ABSENT}; exit 1; }}; echo {begun} $$; read go; trap \"echo {failed}\" EXIT; exec \"$@\"' \
         dtrace {}; echo {ended} $?\n",
        words.join(" ")
    )
}

/// The sentence about a command that cannot be executed.
fn unexecuted(command: &str) -> Stop {
    said(format!("failed to execute {command}: the guest's shell cannot execute it"))
}

fn type_in(session: &mut Session, text: &str) -> Result<(), Stop> {
    let bytes = text.as_bytes().to_vec();
    session.apply(Command::Type { line: InputLine::Com1, bytes })?;
    Ok(())
}

impl Process {
    /// Starts a command at the shell, and holds it before its first instruction.
    pub fn command(session: &mut Session, command: &str) -> Result<Self, Stop> {
        let from = session.console().len();
        let last = session.icount().saturating_add(PATIENCE);
        type_in(session, &typed(command))?;
        let cancel = ctrl_c::listen();
        let limits = Limits::insns(last).cancelled_by(cancel);
        let ending = session.run_until(&Condition::console(BEGUN), &limits);
        if !matches!(ending, Ending::Until(_)) {
            let taken = counted(PATIENCE, "instruction");
            return Err(said(format!(
                "failed to start {command}: the guest's console shows no shell within {taken} ({ending})"
            )));
        }
        while session.icount() < last {
            let shown = session.console().get(from..).unwrap_or_default();
            match shown_word(shown).as_deref() {
                Some(ABSENT) => return Err(unexecuted(command)),
                Some(word) => {
                    let Ok(number) = word.parse() else { break };
                    return Ok(Self { number, held: true });
                }
                None => {}
            }
            session.run_until(&Condition::end(), &Limits::insns(session.icount() + BETWEEN));
        }
        Err(said(format!("failed to start {command}: the guest's shell does not show its process")))
    }

    /// A process that runs already.
    pub fn running(session: &mut Session, number: u32) -> Result<Self, Stop> {
        let process = Self { number, held: false };
        if process.is_there(session)? {
            return Ok(process);
        }
        Err(said(format!("failed to grab pid {number}: the guest has no such process")))
    }

    /// Lets a held command run.
    pub fn release(self, session: &mut Session) -> Result<(), Stop> {
        if self.held { type_in(session, "\n") } else { Ok(()) }
    }

    /// What ends the run beside the guest.
    pub fn end(process: Option<Self>) -> Condition {
        match process {
            Some(Self { held: true, .. }) => Condition::console(ENDED),
            _ => Condition::end(),
        }
    }

    /// How far to run before the next look at the list of processes.
    pub fn next_look(process: Option<Self>, icount: u64) -> u64 {
        match process {
            Some(Self { held: false, .. }) => icount.saturating_add(BETWEEN),
            _ => u64::MAX,
        }
    }

    /// Whether the guest still has it.
    pub fn is_there(self, session: &mut Session) -> Result<bool, Stop> {
        let asked = Command::List { wanted: Wanted::Processes, how: How::default() };
        let Reply::List { rows, .. } = session.apply(asked)? else { return Ok(false) };
        let is_it = |row: &Row| matches!(row, Row::Process(task) if task.tgid == self.number);
        Ok(rows.items().iter().any(is_it))
    }
}

/// The word after [`BEGUN`], once its line is whole.
fn shown_word(shown: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(shown);
    let (_, rest) = text.split_once(BEGUN)?;
    let (word, _) = rest.split_once(['\r', '\n'])?;
    Some(word.trim().to_owned())
}

/// The output of a command, which goes to standard error: standard output is the program's.
#[derive(Debug, Default)]
pub struct CommandOutput {
    /// What may be the beginning of [`ENDED`].
    kept: Vec<u8>,
    /// Whether the echo of the line that releases the command has passed.
    begun: bool,
    ended: bool,
    /// Whether the command could not be executed.
    failed: bool,
}

impl CommandOutput {
    /// Passes on what the console has shown.
    pub fn pass(&mut self, fresh: &[u8]) -> std::io::Result<()> {
        let shown = self.cut(fresh);
        Outlet::Stderr.put(&shown)
    }

    /// The sentence about a command that could not be executed.
    pub fn complaint(&self, command: &str) -> Option<Stop> {
        self.failed.then(|| unexecuted(command))
    }

    /// What belongs to the command.
    fn cut(&mut self, fresh: &[u8]) -> Vec<u8> {
        if self.ended {
            return Vec::new();
        }
        self.kept.extend_from_slice(fresh);
        if !self.begun {
            let Some(end) = self.kept.iter().position(|byte| *byte == b'\n') else { return Vec::new() };
            self.kept.drain(..=end);
            self.begun = true;
        }
        let marker = ENDED.as_bytes();
        if let Some(at) = self.kept.windows(marker.len()).position(|window| window == marker) {
            self.ended = true;
            self.kept.truncate(at);
            if let Some(at) = self.kept.windows(FAILED.len()).position(|window| window == FAILED.as_bytes()) {
                self.failed = true;
                self.kept.truncate(at);
            }
            return std::mem::take(&mut self.kept);
        }
        // The line before it may say that the command has failed.
        let whole = self.kept.len().saturating_sub(marker.len() + FAILED.len() + 2);
        self.kept.drain(..whole).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_typed_word_by_word() {
        assert_eq!(
            typed("echo it's $HOME"),
            "sh -c 'p=$(command -v -- \"$1\"); case $p in */*) [ -x \"$p\" ] && [ ! -d \"$p\" ];; ?*) ;; *) false;; \
             esac || { echo dtrace-\"\"target no; exit 1; }; echo dtrace-\"\"target $$; read go; \
             trap \"echo dtrace-\"\"failed\" EXIT; exec \"$@\"' dtrace 'echo' 'it'\\''s' '$HOME'; \
             echo dtrace-\"\"exit $?\n"
        );
    }

    #[test]
    fn its_number_is_read_when_its_line_is_whole() {
        assert_eq!(shown_word(b"echo dtrace-\"\"target $$\r\ndtrace-target 57"), None);
        let whole = |text: &[u8]| shown_word(text).unwrap();
        assert_eq!(whole(b"echo dtrace-\"\"target $$\r\ndtrace-target 57\r\n"), "57");
        assert_eq!(whole(b"\r\ndtrace-target no\r\n"), ABSENT);
    }

    #[test]
    fn only_its_own_output_is_shown() {
        let mut output = CommandOutput::default();
        let shown: Vec<u8> = [&b"\r"[..], b"\nab", b"c\r\ndtrace", b"-exit 0\r\n/ # "]
            .iter()
            .flat_map(|it| output.cut(it))
            .collect();
        assert_eq!(shown, b"abc\r\n");
        assert!(!output.failed);
        let mut output = CommandOutput::default();
        let pieces = [&b"\r\nsh: no\r\ndtrace-fai"[..], b"led\r\ndtrace-e", b"xit 127\r\n/ # "];
        let shown: Vec<u8> = pieces.iter().flat_map(|it| output.cut(it)).collect();
        assert_eq!((shown.as_slice(), output.failed), (&b"sh: no\r\n"[..], true));
    }
}
