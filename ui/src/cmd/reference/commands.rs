//! The options of every command, the exit codes, and the keys of the terminal UI.

use std::io::{self, Write};

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};
use trapline_tui::TABLE;

use super::{cell, code, columns, head};
use crate::cli::{Cli, EXIT_CODES};

/// The page of options.
pub fn options(out: &mut dyn Write) -> io::Result<()> {
    head(out, "Commands and options", "options")?;
    let mut program = Cli::command();
    program.build();
    command(out, &program, "trapline")
}

fn command(out: &mut dyn Write, of: &Command, name: &str) -> io::Result<()> {
    let about = of.get_about().map(StyledStr::to_string).unwrap_or_default();
    writeln!(out, "\n## {name}\n\n{}.", about.trim_end_matches('.'))?;
    let shown: Vec<&Arg> = of.get_arguments().filter(|arg| !arg.is_hide_set()).collect();
    if !shown.is_empty() {
        columns(out, &["Option", "What it does"])?;
    }
    for arg in shown {
        writeln!(out, "| {} | {} |", code(&written(arg)), cell(&help(arg)))?;
    }
    for below in of.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
        command(out, below, &format!("{name} {}", below.get_name()))?;
    }
    Ok(())
}

/// An argument as it is written on a command line.
fn written(arg: &Arg) -> String {
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let name = short.into_iter().chain(long).collect::<Vec<String>>().join(", ");
    let takes = arg.get_action().takes_values();
    let values = arg.get_value_names().unwrap_or_default().join(" ");
    match (name.is_empty(), takes) {
        (true, _) => values,
        (false, true) => format!("{name} {values}"),
        (false, false) => name,
    }
}

fn help(arg: &Arg) -> String {
    let mut help = arg.get_help().map(StyledStr::to_string).unwrap_or_default();
    let possible = arg.get_possible_values();
    let names: Vec<&str> =
        possible.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    if arg.get_action().takes_values() && !names.is_empty() && !arg.is_hide_possible_values_set() {
        help.push_str(&format!(": {}", names.join(", ")));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        help.push_str(&format!(" [default: {}]", defaults.join(" ")));
    }
    help
}

/// The page of exit codes.
pub fn exit_codes(out: &mut dyn Write) -> io::Result<()> {
    head(out, "Exit codes", "exit-codes")?;
    columns(out, &["Code", "Meaning"])?;
    for line in EXIT_CODES.lines() {
        let Some((number, meaning)) = line.trim_start().split_once("  ") else { continue };
        if number.bytes().all(|byte| byte.is_ascii_digit()) {
            writeln!(out, "| {number} | {} |", cell(meaning.trim()))?;
        }
    }
    Ok(())
}

/// The page of keys.
pub fn keys(out: &mut dyn Write) -> io::Result<()> {
    head(out, "Keys of the terminal UI", "keys")?;
    writeln!(out, "\nThe name of an action is for files of keys ([tui.md](../../tui.md)).")?;
    columns(out, &["Keys", "Where", "What they do", "Action"])?;
    for entry in TABLE {
        let keys: Vec<String> = entry.keys.iter().map(|key| code(key)).collect();
        let (context, sentence) = (entry.context.word(), cell(entry.sentence));
        writeln!(out, "| {} | {context} | {sentence} | {} |", keys.join(" "), code(entry.id))?;
    }
    Ok(())
}
