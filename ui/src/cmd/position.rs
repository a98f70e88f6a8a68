//! `replay --at`: the actions of scripts, one a line of standard input, at a position of a run.

use std::io::{BufRead, IsTerminal, Write};

use trapline_session::{Command, Session, SourceOptions};

use crate::failure::Failure;
use crate::output::Outputs;
use crate::talk::Talk;

const PROMPT: &str = "trapline> ";

/// What carries out lines.
pub trait Shell {
    /// Carries out a line, which has this number; whether more may follow.
    ///
    /// # Errors
    /// The line is wrong, or an output cannot be written.
    fn act(&mut self, number: u32, line: &str, outputs: &mut Outputs<'_>) -> Result<bool, Failure>;
}

/// Carries out the lines of standard input, to its end or to `stop`. A line that is wrong is said and passed over; answers
/// `false` if there was one.
///
/// # Errors
/// An output that cannot be written.
pub fn shell(shell: &mut dyn Shell, outputs: &mut Outputs<'_>, talk: &Talk) -> Result<bool, Failure> {
    let (stdin, mut right) = (std::io::stdin(), true);
    let prompts = stdin.is_terminal();
    for number in 1.. {
        if prompts {
            // Nobody is left to be told that standard error is closed.
            let _ = write!(std::io::stderr(), "{PROMPT}");
        }
        let mut line = String::new();
        match stdin.lock().read_line(&mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        match shell.act(number, line.trim_end(), outputs) {
            Ok(true) => {}
            Ok(false) => break,
            Err(failure @ (Failure::Write { .. } | Failure::Output(_))) => return Err(failure),
            Err(failure) => {
                right = false;
                talk.failure(&failure);
            }
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
        let Some(command) = Command::parse("standard input", number, line, self.source)? else {
            return Ok(true);
        };
        let stops = command.stops();
        let reply = self.session.apply(command)?;
        trapline_session::Observer::reply(outputs, &reply)?;
        Ok(!stops)
    }
}
