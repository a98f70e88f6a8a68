//! `trapline man`: the manual pages, made from the command line's own tables and from the terminal UI's table of actions.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use trapline_tui::{TABLE, TOP_KEYS};

use crate::cli::{Cli, ManArgs};
use crate::failure::{Exit, Failure};

/// Runs the command.
///
/// # Errors
/// There is no such command, or the output cannot be written.
pub fn run(args: &ManArgs, out: &mut dyn Write) -> Result<Exit, Failure> {
    let mut program = Cli::command();
    program.build();
    if let Some(folder) = &args.all {
        fs::create_dir_all(folder).map_err(|error| Failure::writing(Some(folder), error))?;
        write_all(&program, folder)?;
        return Ok(Exit::Ok);
    }
    let mut command = &program;
    for word in &args.command {
        command = command.find_subcommand(word).ok_or_else(|| unknown(command, word))?;
    }
    page(command, out).map_err(Failure::Output)?;
    Ok(Exit::Ok)
}

/// Writes the page of a command, and those of its commands.
fn write_all(command: &clap::Command, folder: &Path) -> Result<(), Failure> {
    let path = folder.join(format!("{}.1", name(command)));
    let written = File::create(&path).map(BufWriter::new).and_then(|mut file| {
        page(command, &mut file)?;
        file.flush()
    });
    written.map_err(|error| Failure::writing(Some(&path), error))?;
    commands(command).try_for_each(|command| write_all(command, folder))
}

/// The commands of a command; that which shows help is in none of them.
fn commands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|command| command.get_name() != "help")
}

/// The name of a command's page.
fn name(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &clap::Command, out: &mut dyn Write) -> io::Result<()> {
    let page = command.clone().version(env!("CARGO_PKG_VERSION"));
    let source = concat!("trapline ", env!("CARGO_PKG_VERSION"));
    let title = name(command).to_uppercase();
    // Without a date, clap_mangen puts the version in its place.
    Man::new(page).title(title).date(" ").source(source).manual("Trapline").render(out)?;
    match command.get_name() {
        "tui" => keys().to_writer(out),
        "top" => keys_of_top().to_writer(out),
        _ => Ok(()),
    }
}

fn unknown(command: &clap::Command, word: &str) -> Failure {
    let names: Vec<&str> = commands(command).map(clap::Command::get_name).collect();
    let there = match names.is_empty() {
        true => "it has no commands".to_owned(),
        false => format!("use one of {}", names.join(", ")),
    };
    Failure::Usage(format!("`{}` has no command `{word}`; {there}", command.get_name()))
}

/// The keys of `top`.
fn keys_of_top() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["KEYS"]);
    for (key, what) in TOP_KEYS {
        page.control("TP", []);
        page.text([bold(*key)]);
        page.text([roman(*what)]);
    }
    page
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
