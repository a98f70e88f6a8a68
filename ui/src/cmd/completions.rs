//! `trapline completions`: the function with which a shell asks this program for completions.

use std::io::Write;

use clap::ValueEnum;

use crate::cli::CompletionsArgs;
use crate::complete;
use crate::failure::{Exit, Failure};

/// Runs the command.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &CompletionsArgs, out: &mut dyn Write) -> Result<Exit, Failure> {
    let shell = args.shell.to_possible_value();
    let name = shell.as_ref().map_or("", |shell| shell.get_name());
    complete::registration(name, out).map_err(Failure::Output)?;
    Ok(Exit::Ok)
}
