//! `trapline man`: the manual pages, made from the command line's own tables and from the terminal UI's table of actions.

use std::io::Write;

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use trapline_tui::TABLE;

use crate::cli::{Cli, ManArgs};
use crate::failure::{Exit, Failure};

/// The command whose page lists the keys too.
const WITH_KEYS: &str = "tui";

/// Runs the command.
///
/// # Errors
/// There is no such command, or the output cannot be written.
pub fn run(args: &ManArgs, out: &mut dyn Write) -> Result<Exit, Failure> {
    let mut program = Cli::command();
    program.build();
    let mut command = &program;
    for word in &args.command {
        command = command.find_subcommand(word).ok_or_else(|| unknown(command, word))?;
    }
    let page = command.clone().version(env!("CARGO_PKG_VERSION"));
    let source = concat!("trapline ", env!("CARGO_PKG_VERSION"));
    let title = command.get_display_name().unwrap_or(command.get_name()).to_uppercase();
    Man::new(page).title(title).source(source).manual("Trapline").render(out).map_err(Failure::Output)?;
    if command.get_name() == WITH_KEYS {
        keys().to_writer(out).map_err(Failure::Output)?;
    }
    Ok(Exit::Ok)
}

fn unknown(command: &clap::Command, word: &str) -> Failure {
    let mut names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    names.retain(|name| *name != "help");
    let there = match names.is_empty() {
        true => "it has no commands".to_owned(),
        false => format!("use one of {}", names.join(", ")),
    };
    Failure::Usage(format!("`{}` has no command `{word}`; {there}", command.get_name()))
}

/// The keys of the terminal UI, in the order of its help.
fn keys() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["KEYS"]);
    page.text([roman("What a key does, where it applies, and the action's name in a file of keys.")]);
    for entry in TABLE {
        page.control("TP", []);
        page.text([bold(entry.keys.join(", "))]);
        let place = format!("{} ({}, {})", entry.sentence, entry.context.word(), entry.id);
        page.text([roman(place)]);
    }
    page
}
