//! `trapline reference`: the tables of the language and of the command line as Markdown. docs/book/reference has these texts; a
//! test compares them.

mod commands;
mod d;
mod rpn;

use std::io::{self, Write};

use crate::cli::{ReferenceArgs, Topic};
use crate::failure::{Exit, Failure};

/// Runs the command.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &ReferenceArgs, out: &mut dyn Write) -> Result<Exit, Failure> {
    let written = match args.topic {
        Topic::Rpn => rpn::instructions(out),
        Topic::D => d::page(out),
        Topic::Options => commands::options(out),
        Topic::ExitCodes => commands::exit_codes(out),
        Topic::Errors => rpn::findings(out),
        Topic::Keys => commands::keys(out),
    };
    written.map_err(Failure::Output)?;
    Ok(Exit::Ok)
}

/// The beginning of a page.
fn head(out: &mut dyn Write, title: &str, topic: &str) -> io::Result<()> {
    writeln!(
        out,
        "# {title}\n\n`trapline reference {topic}` prints this page from the tables that the program uses."
    )
}

/// The beginning of a table.
fn columns(out: &mut dyn Write, names: &[&str]) -> io::Result<()> {
    writeln!(out, "\n| {} |\n|{}", names.join(" | "), "---|".repeat(names.len()))
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|").replace('<', "&lt;")
}

/// A cell of code; empty if there is none.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}
