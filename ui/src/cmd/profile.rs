//! `trapline profile`: where a run spends its instructions. It is a run, or a replay, with a probe for the samples and
//! stacks as its output.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::Parser;

use super::{replay, run};
use crate::cli::{Cli, Command, ProfileArgs, is_recording};
use crate::failure::{Exit, Failure};
use crate::talk::Talk;

/// Instructions between samples, unless an option says otherwise.
const INSNS: u64 = 10_000;

/// Runs the command.
///
/// # Errors
/// Those of `run` or `replay`.
pub fn run(args: &ProfileArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let parsed = Cli::try_parse_from(words(args));
    let mut parsed = parsed.map_err(|error| Failure::Usage(first_sentence(&error.to_string())))?;
    match &mut parsed.command {
        Command::Run(args) => {
            args.settle();
            run::run(args, out, talk)
        }
        Command::Replay(args) => replay::run(args, out, talk),
        _ => Ok(Exit::Ok),
    }
}

/// The message of a parser's error, without its name and the help below it.
fn first_sentence(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// The command line that the profile is.
pub fn words(args: &ProfileArgs) -> Vec<OsString> {
    let verb = if is_recording(Path::new(&args.image)) { "replay" } else { "run" };
    let mut words: Vec<OsString> = ["trapline", verb, &args.image].map(OsString::from).to_vec();
    let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
    if args.exact.is_empty() {
        let every = match args.hz {
            Some(hz) => format!("{hz}hz"),
            None => format!("{}insns", args.insns.unwrap_or(INSNS)),
        };
        add(&["--rpn", &format!("profile:::tick-{every} {{}}"), "--stack", "--ustack", "--header", "name"]);
    } else {
        let clauses = args.exact.iter().map(|function| format!("fbt::{function}: {{}}"));
        clauses.for_each(|clause| add(&["--rpn", &clause]));
        add(&["--header", "pid,name,cs,sp"]);
    }
    add(&["-f", if args.output.is_some() { "svg" } else { "folded" }]);
    if let Some(path) = &args.output {
        words.extend(["-o".into(), path.into()]);
    }
    words.extend(args.options.iter().cloned());
    words
}
