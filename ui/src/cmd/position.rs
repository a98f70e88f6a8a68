//! `replay --at`: the actions of scripts, one per line of standard input, at a position of a run.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use trapline_session::{Command, FileError, Session, SourceOptions, text_of};

use crate::failure::Failure;
use crate::output::Outputs;
use crate::talk::Talk;

/// What messages call standard input.
pub const STDIN: &str = "standard input";
const PROMPT: &str = "trapline> ";

/// What carries out lines.
pub trait Shell {
    /// Carries out a line, which has this number; whether more may follow.
    ///
    /// # Errors
    /// The line is wrong, or an output cannot be written.
    fn act(&mut self, number: u32, line: &str, outputs: &mut Outputs<'_>) -> Result<bool, Failure>;
}

/// Carries out the lines of standard input, to its end or to `stop`. An invalid line is reported and skipped; returns
/// `false` if there was one.
///
/// # Errors
/// An output that cannot be written.
pub fn shell(shell: &mut dyn Shell, outputs: &mut Outputs<'_>, talk: &Talk) -> Result<bool, Failure> {
    let (stdin, mut right) = (std::io::stdin(), true);
    let prompts = stdin.is_terminal();
    for number in 1.. {
        if prompts {
            // If standard error is closed, there is nowhere to report that.
            let _ = write!(std::io::stderr(), "{PROMPT}");
        }
        let mut line = Vec::new();
        let read = stdin.lock().read_until(b'\n', &mut line);
        if matches!(read, Ok(0)) {
            break;
        }
        let path = || PathBuf::from(STDIN);
        let read = read.map_err(|error| FileError::Read { path: path(), error });
        let ends = read.is_err();
        let text = read.and_then(|_| text_of(&path(), line)).map_err(Failure::from);
        match text.and_then(|text| shell.act(number, text.trim_end(), outputs)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(failure @ (Failure::Write { .. } | Failure::Output(_))) => return Err(failure),
            Err(failure) => {
                right = false;
                talk.failure(&failure);
            }
        }
        if ends {
            break;
        }
    }
    Ok(right)
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
