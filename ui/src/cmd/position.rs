//! `replay --at`: the actions of scripts, one per line of standard input, at a position of a run.

use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use trapline_session::{Command, FileError, Session, SourceOptions, text_of};

use crate::failure::Failure;
use crate::output::Outputs;
use crate::talk::Talk;
use crate::terminal;

/// What messages call standard input.
pub const STDIN: &str = "standard input";
const PROMPT: &str = "trapline> ";
/// How often signals are checked while no line arrives.
const LOOK: Duration = Duration::from_millis(50);

/// Carries out lines.
pub trait Shell {
    /// Carries out a line, which has this number; whether more may follow.
    ///
    /// # Errors
    /// The line is wrong, or an output cannot be written.
    fn act(&mut self, number: u32, line: &str, outputs: &mut Outputs<'_>) -> Result<bool, Failure>;
}

/// What ended a session of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// The end of standard input.
    Input,
    /// `stop`.
    Stop,
    /// A signal.
    Signal,
}

/// The result of a session of commands.
pub struct Said {
    pub by: EndedBy,
    /// Whether each line was carried out.
    pub right: bool,
}

/// Carries out the lines of standard input, to its end, to `stop`, or until the flag is raised. A wrong line is
/// reported and skipped.
///
/// # Errors
/// An output that cannot be written.
pub fn shell(
    shell: &mut dyn Shell,
    outputs: &mut Outputs<'_>,
    cancelled: &AtomicBool,
    talk: &Talk,
) -> Result<Said, Failure> {
    // A person may type from here on.
    terminal::end_line(|| {});
    let (lines, mut right) = (lines(), true);
    let prompts = std::io::stdin().is_terminal();
    for number in 1.. {
        if prompts {
            // If standard error is closed, there is nowhere to report that.
            let _ = terminal::message(PROMPT.as_bytes());
        }
        let line = match next_line(&lines, cancelled) {
            Ok(line) => line,
            Err(by) => return Ok(Said { by, right }),
        };
        let path = || PathBuf::from(STDIN);
        let read = line.map_err(|error| FileError::Read { path: path(), error });
        let text = read.and_then(|line| text_of(&path(), line)).map_err(Failure::from);
        match text.and_then(|text| shell.act(number, text.trim_end(), outputs)) {
            Ok(true) => {}
            Ok(false) => return Ok(Said { by: EndedBy::Stop, right }),
            Err(failure @ (Failure::Write { .. } | Failure::Output(_))) => return Err(failure),
            Err(failure) => {
                // A journey that was ended by a signal is not a wrong line.
                if !cancelled.load(Ordering::SeqCst) {
                    right = false;
                    talk.failure(&failure);
                }
            }
        }
    }
    Ok(Said { by: EndedBy::Input, right })
}

type Line = io::Result<Vec<u8>>;

/// The lines of standard input. They are read in a separate thread, because a signal does not end a read.
fn lines() -> Receiver<Line> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let stdin = std::io::stdin();
        loop {
            let mut line = Vec::new();
            let read = stdin.lock().read_until(b'\n', &mut line);
            let ends = read.is_err();
            if matches!(read, Ok(0)) || sender.send(read.map(|_| line)).is_err() || ends {
                return;
            }
        }
    });
    lines
}

/// Waits for a line; returns an error with the reason if the session ends.
fn next_line(lines: &Receiver<Line>, cancelled: &AtomicBool) -> Result<Line, EndedBy> {
    loop {
        if cancelled.load(Ordering::SeqCst) {
            return Err(EndedBy::Signal);
        }
        match lines.recv_timeout(LOOK) {
            Ok(line) => return Ok(line),
            Err(RecvTimeoutError::Disconnected) => return Err(EndedBy::Input),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A shell with the actions of scripts.
pub struct Actions<'a> {
    pub session: &'a mut Session,
    pub source: &'a SourceOptions,
}

impl Shell for Actions<'_> {
    fn act(&mut self, number: u32, line: &str, outputs: &mut Outputs<'_>) -> Result<bool, Failure> {
        let Some(command) = Command::parse(STDIN, number, line, self.source)? else {
            return Ok(true);
        };
        let stops = command.stops();
        let reply = self.session.apply(command)?;
        trapline_session::Observer::reply(outputs, &reply)?;
        Ok(!stops)
    }
}
