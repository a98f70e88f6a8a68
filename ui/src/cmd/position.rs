//! `replay --at`: the actions of scripts, one a line of standard input, at a position of a run.

use std::io::{BufRead, IsTerminal, Write};

use trapline_session::{Command, Session, SourceOptions};

use crate::failure::Failure;
use crate::output::Outputs;
use crate::talk::Talk;

const PROMPT: &str = "trapline> ";

/// Carries out the lines of standard input, to its end or to `stop`. A line that is wrong is said and passed over; answers
/// `false` if there was one.
///
/// # Errors
/// An output that cannot be written.
pub fn shell(
    session: &mut Session,
    source: &SourceOptions,
    outputs: &mut Outputs<'_>,
    talk: &Talk,
) -> Result<bool, Failure> {
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
        match act(session, source, (number, line.trim_end()), outputs) {
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

/// Carries out a line; whether more may follow.
fn act(
    session: &mut Session,
    source: &SourceOptions,
    (number, line): (u32, &str),
    outputs: &mut Outputs<'_>,
) -> Result<bool, Failure> {
    let Some(command) = Command::parse("standard input", number, line, source)? else { return Ok(true) };
    let stops = command.stops();
    let reply = session.apply(command)?;
    trapline_session::Observer::reply(outputs, &reply)?;
    Ok(!stops)
}
