//! `trapline`: dynamic probes on a deterministic full-system emulator.
//!
//! This file maps results to exit codes and nothing else. Standard output is for data, standard error for messages.

#![forbid(unsafe_code)]

mod cli;
mod cmd;
mod complete;
mod ctrl_c;
mod d_text;
mod devices;
mod errors;
mod failure;
mod foreign;
mod interactive;
mod keys;
mod late_file;
mod named_file;
mod no_effect;
mod options;
mod outlet;
mod output;
mod overwrite;
mod pager;
mod progress;
mod raw;
mod reserved_file;
mod talk;
mod terminal;
mod wire;
mod wrong_file;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use trapline_trace::shortened;

use crate::cli::{Cli, Command};
use crate::failure::{Exit, Failure};
use crate::pager::{Choice, Output};
use crate::talk::{Color, Talk};

/// The arguments with `-D KEY = VALUE`, as dprobes(8) has it, joined to `-D KEY=VALUE`.
fn with_defines_joined(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let mut define = arg.clone();
        let key = arg == "-D" || arg == "--define";
        if let Some(name) = args.next_if(|_| key) {
            joined.push(arg);
            define = name;
        }
        let is_define = key || define.to_str().is_some_and(|text| text.starts_with("-D") && text.len() > 2);
        let has_sign = define.to_string_lossy().contains('=');
        let equals = |next: &OsString| next.to_str().is_some_and(|text| text.starts_with('='));
        if is_define && define.to_string_lossy().ends_with('=') {
            define.push(args.next().unwrap_or_default());
        } else if let Some(equals) = args.next_if(|next| is_define && !has_sign && equals(next)) {
            define.push(&equals);
            if equals == "=" {
                define.push(args.next().unwrap_or_default());
            }
        }
        joined.push(define);
    }
    joined
}

/// The arguments in the form for the command line's parser; `dtrace` parses its own.
fn arguments(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    match args.get(1).is_some_and(|command| command == "dtrace") {
        true => {
            args.insert(2, "--".into());
            args
        }
        false => with_defines_joined(args.into_iter()),
    }
}

fn main() -> ExitCode {
    match complete::answer() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => error.exit(),
    }
    let args = arguments(std::env::args_os());
    let is_ours = args.get(1).is_none_or(|command| command != "dtrace");
    let parsed = match foreign::refused(&args).filter(|_| is_ours) {
        Some(error) => Err(error),
        None => Cli::try_parse_from(&args).map_err(foreign::explained),
    };
    let mut cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return told(&error, &args),
    };
    if let Command::Run(args) | Command::Record(args) = &mut cli.command {
        args.settle();
    }
    let talk = Talk::new(cli.color, cli.quiet).with_progress(cli.progress);
    let pager = if cli.no_pager || !cli.is_listing() { None } else { Choice::of_environment() };
    let mut out = Output::new(pager);
    let result = carried_out(&cli, &mut out, &talk);
    ExitCode::from(ended(result, &mut out, &talk).code())
}

/// Carries out a command.
fn carried_out(cli: &Cli, out: &mut Output, talk: &Talk) -> Result<Exit, Failure> {
    match &cli.command {
        Command::Run(args) | Command::Record(args) => cmd::run::run(args, out, talk),
        Command::Replay(args) => cmd::replay::run(args, out, talk),
        Command::Diff(args) => cmd::diff::run(args, out, talk),
        Command::Verify(args) => cmd::verify::run(args, out, talk),
        Command::Dump(args) => cmd::dump::run(args, out, talk),
        Command::Fuzz(args) => cmd::fuzz::run(args, out, talk),
        Command::Dti(args) => cmd::dti::run(args, out, talk),
        Command::List(args) => cmd::list::run(args, out, talk),
        Command::Dis(args) => cmd::dis::run(args, out, talk),
        Command::Check(args) => cmd::check::run(args, out, talk),
        Command::Build(args) => cmd::build::run(args, talk),
        Command::Demo(args) => cmd::demo::run(args, out, talk),
        Command::Dtrace(args) => cmd::dtrace::run(&args.arguments, out, talk),
        Command::Tui(args) => cmd::tui::run(args, out, talk),
        Command::Gdb(args) => cmd::gdb::run(args, out, talk),
        Command::Man(args) => cmd::man::run(args, out),
        Command::Completions(args) => cmd::completions::run(args, out),
        Command::Reference(args) => cmd::reference::run(args, out),
        Command::Profile(args) => cmd::profile::run(args, out, talk),
        Command::Top(args) => cmd::top::run(args, out, talk),
        Command::Trace(args) => cmd::trace::run(args, out, talk),
    }
}

/// Completes standard output, and tells why the command failed.
fn ended(result: Result<Exit, Failure>, out: &mut Output, talk: &Talk) -> Exit {
    let paged = out.is_paged();
    let finished = out.finish().map_err(Failure::Output);
    let result = result.and_then(|exit| finished.map(|()| exit)).and_then(|exit| match terminal::lost() {
        // The other exit codes tell that something went wrong already.
        Some(error) if matches!(exit, Exit::Ok | Exit::Limit) => Err(Failure::Messages(error)),
        _ => Ok(exit),
    });
    match result {
        Ok(exit) => exit,
        Err(failure) => match failure.exit() {
            // Who leaves a pager has seen enough.
            Exit::Closed if paged => Exit::Ok,
            // A reader that closes the output early needs no message.
            Exit::Closed => Exit::Closed,
            exit => {
                talk.failure(&failure);
                exit
            }
        },
    }
}

/// Shows the help, in a pager if it is long, or the version, or what is wrong with the command line.
fn told(error: &clap::Error, args: &[OsString]) -> ExitCode {
    if error.use_stderr() {
        let text = error.render().to_string();
        let short = shortened(&text);
        if short == text {
            error.exit();
        }
        Talk::new(Color::Auto, false).mention(short.trim_end());
        return ExitCode::from(Exit::Usage.code());
    }
    let is_help = error.kind() == ErrorKind::DisplayHelp;
    let pager =
        if is_help && !args.iter().any(|arg| arg == "--no-pager") { Choice::of_environment() } else { None };
    let talk = Talk::new(Color::Auto, false);
    let text = error.render();
    let text = if talk.colours_data() { text.ansi().to_string() } else { text.to_string() };
    let mut out = Output::new(pager);
    let written = out.write_all(text.as_bytes()).map(|()| Exit::Ok).map_err(Failure::Output);
    ExitCode::from(ended(written, &mut out, &talk).code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_may_have_spaces_around_its_sign() {
        let joined = |line: &str| {
            let args = with_defines_joined(line.split(' ').map(OsString::from));
            args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(joined("t check -D key = value p.rpn"), "t check -D key=value p.rpn");
        assert_eq!(joined("t check -D key =value p.rpn"), "t check -D key=value p.rpn");
        assert_eq!(joined("t check -D key= value p.rpn"), "t check -D key=value p.rpn");
        assert_eq!(joined("t check -Dkey= 5 p.rpn"), "t check -Dkey=5 p.rpn");
        assert_eq!(joined("t check -Dkey = 5 p.rpn"), "t check -Dkey=5 p.rpn");
        assert_eq!(joined("t check --define key = 5"), "t check --define key=5");
        for same in ["t check -D key=value p.rpn", "t check -D key p.rpn", "t run x --group = a", "t -D"] {
            assert_eq!(joined(same), same);
        }
    }
}
