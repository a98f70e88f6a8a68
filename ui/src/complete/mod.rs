//! Completion of command lines in shells: `trapline completions SHELL` prints a function that asks this program for each
//! word. What follows is derived from the table of options; this module adds the values that depend on files: the names
//! of images, and the probes and functions of the image that the line names.

mod probes;
mod shells;
mod words;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use clap_complete::engine::{ArgValueCompleter, PathCompleter, ValueCompleter};
use clap_complete::env::{Fish, Shells};
use clap_complete::{CompleteEnv, CompletionCandidate};
use trapline_session::{Guest, GuestBuilder, Places, Recording};

use crate::cli::{Cli, CmdlineArgs, GuestArgs, is_recording};
use crate::options;
use shells::{Bash, Zsh};

/// What the functions of the shells set to ask for completions.
const ASKED: &str = "_TRAPLINE_COMPLETE";
/// The shells.
pub const SHELLS: Shells<'static> = Shells(&[&Bash, &Zsh, &Fish]);

/// Gives what a word may become.
type Completer = fn(&OsStr) -> Vec<CompletionCandidate>;

/// What a value is completed with, by its name in the help. Files are completed where the table of options takes a path.
const VALUES: &[(&str, Completer)] = &[
    ("IMAGE", images),
    ("IMAGE|FILE.tlr", images),
    ("IMAGE|FILE.tlr|DUMP", images),
    ("GUEST", guests),
    ("COMMAND", commands),
    ("CLAUSE", probes),
    ("SPEC", probes),
    ("GLOB|SPEC", probes_or_functions),
    ("SYMBOL", functions),
    ("FUNCTION", functions),
];

/// Answers a shell that asks for completions, if one does.
///
/// # Errors
/// The shell is unknown, or standard output cannot be written.
pub fn answer() -> Result<bool, clap::Error> {
    let folder = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(command).var(ASKED).shells(SHELLS);
    asked.try_complete(std::env::args_os(), folder.as_deref())
}

/// The function of a shell.
pub fn registration(shell: &str, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let name = env!("CARGO_PKG_NAME");
    match SHELLS.completer(shell) {
        Some(shell) => shell.write_registration(ASKED, name, name, name, out),
        None => Err(std::io::ErrorKind::NotFound.into()),
    }
}

/// The table of options with what completes their values.
fn command() -> Command {
    with_values(Cli::command())
}

fn with_values(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let name = arg.get_value_names().and_then(|names| names.first());
        match VALUES.iter().find(|(value, _)| name.is_some_and(|name| name.as_str() == *value)) {
            Some((_, values)) => arg.add(ArgValueCompleter::new(*values)),
            None => arg,
        }
    });
    command.mut_subcommands(with_values)
}

/// Those names that begin as the word does.
fn beginning(names: impl IntoIterator<Item = String>, word: &OsStr) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else { return Vec::new() };
    names.into_iter().filter(|name| name.starts_with(word)).map(CompletionCandidate::new).collect()
}

/// The names of the embedded guests.
fn guests(word: &OsStr) -> Vec<CompletionCandidate> {
    beginning(trapline_guests::ALL.iter().map(|guest| guest.name.to_owned()), word)
}

/// Embedded guests and files.
fn images(word: &OsStr) -> Vec<CompletionCandidate> {
    let names = trapline_guests::ALL.iter().map(|guest| format!("embedded:{}", guest.name));
    let mut found = beginning(names, word);
    found.extend(PathCompleter::any().complete(word));
    found
}

/// Commands that have a manual page.
fn commands(word: &OsStr) -> Vec<CompletionCandidate> {
    let program = Cli::command();
    let mut command = &program;
    let line = line();
    // The words before this one are a path of commands.
    let before = line.iter().skip(2).take_while(|before| *before != word);
    for before in before.filter_map(|word| word.to_str()) {
        command = command.find_subcommand(before).unwrap_or(command);
    }
    beginning(command.get_subcommands().map(|command| command.get_name().to_owned()), word)
}

/// Probe descriptions of the line's image.
fn probes(word: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(word), Some(guest)) = (word.to_str(), guest()) else { return Vec::new() };
    probes::of(guest.target(), word).into_iter().map(CompletionCandidate::new).collect()
}

/// Functions of the kernel in the line's image.
fn functions(word: &OsStr) -> Vec<CompletionCandidate> {
    let Some(guest) = guest() else { return Vec::new() };
    functions_of(&guest, word)
}

fn functions_of(guest: &Guest, word: &OsStr) -> Vec<CompletionCandidate> {
    let symbols = guest.target().symbols();
    let names: BTreeSet<String> = symbols.functions().map(|function| function.name.to_string()).collect();
    beginning(names, word)
}

/// Probe descriptions, or, without a colon, functions too.
fn probes_or_functions(word: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(text), Some(guest)) = (word.to_str(), guest()) else { return Vec::new() };
    let mut found = match text.contains(':') {
        true => Vec::new(),
        false => functions_of(&guest, word),
    };
    found.extend(probes::of(guest.target(), text).into_iter().map(CompletionCandidate::new));
    found
}

/// The words of the line that is being completed.
fn line() -> Vec<OsString> {
    match Bash::line() {
        Some(line) => line.words.into_iter().map(OsString::from).collect(),
        None => std::env::args_os().skip_while(|arg| arg != "--").skip(1).collect(),
    }
}

/// The guest that the line names, as far as it is written; nobody can be told about an error in it.
fn guest() -> Option<Guest> {
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(line()).ok()?;
    let (_, matches) = matches.subcommand()?;
    let image = ["image", "file", "a"].into_iter().find_map(|id| raw(matches, id))?;
    if is_recording(Path::new(&image)) {
        return recorded(Path::new(&image));
    }
    let builder = match GuestArgs::from_arg_matches(matches) {
        Ok(args) => options::guest(
            &args,
            trapline_session::DEFAULT_MEMORY,
            &CmdlineArgs::default(),
            &Default::default(),
        )
        .ok()?,
        Err(_) => GuestBuilder::image(image.to_str()?),
    };
    builder.open().ok()
}

/// An argument as it was written.
fn raw(matches: &ArgMatches, id: &str) -> Option<OsString> {
    Some(matches.try_get_raw(id).ok()??.next()?.to_owned())
}

fn recorded(file: &Path) -> Option<Guest> {
    let recording = Recording::read(file).ok()?;
    GuestBuilder::of_recording(&recording, &Places::of(file)).ok()?.open().ok()
}
