//! Which commands print a text to be read.

use std::path::Path;

use super::{Cli, Command, DtiCommand, TraceCommand};

impl Cli {
    /// Whether the command prints a text to be read, which may be long. What a run prints as it goes is none, and what comes
    /// from standard input may come as it is made.
    pub fn is_listing(&self) -> bool {
        match &self.command {
            Command::List(_) | Command::Dis(_) | Command::Check(_) | Command::Diff(_) => true,
            Command::Reference(_) | Command::Man(_) => true,
            Command::Dti(args) => !matches!(args.command, DtiCommand::Follow(_)),
            Command::Dump(args) => args.output.is_none() && !args.has_programs(),
            Command::Replay(args) => args.info || args.questions.any(),
            Command::Trace(args) => match &args.command {
                TraceCommand::Cat(args) => args.output.is_none() && args.file != Path::new("-"),
                TraceCommand::Convert(args) => args.output.is_none() && args.file != Path::new("-"),
            },
            _ => false,
        }
    }
}
