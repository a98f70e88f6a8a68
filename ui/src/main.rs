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
mod interactive;
mod keys;
mod late_file;
mod named_file;
mod no_effect;
mod options;
mod outlet;
mod output;
mod overwrite;
mod raw;
mod reserved_file;
mod talk;
mod wire;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::{Exit, Failure};
use crate::talk::Talk;

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
        let has_value = define.to_string_lossy().contains('=');
        let equals = |next: &OsString| next.to_str().is_some_and(|text| text.starts_with('='));
        if let Some(equals) = args.next_if(|next| is_define && !has_value && equals(next)) {
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
    let mut cli = Cli::parse_from(arguments(std::env::args_os()));
    if let Command::Run(args) | Command::Record(args) = &mut cli.command {
        args.settle();
    }
    let talk = Talk::new(cli.color, cli.quiet);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let result = match &cli.command {
        Command::Run(args) | Command::Record(args) => cmd::run::run(args, &mut out, &talk),
        Command::Replay(args) => cmd::replay::run(args, &mut out, &talk),
        Command::Diff(args) => cmd::diff::run(args, &mut out, &talk),
        Command::Verify(args) => cmd::verify::run(args, &mut out, &talk),
        Command::Dump(args) => cmd::dump::run(args, &mut out, &talk),
        Command::Fuzz(args) => cmd::fuzz::run(args, &mut out, &talk),
        Command::Dti(args) => cmd::dti::run(args, &mut out, &talk),
        Command::List(args) => cmd::list::run(args, &mut out, &talk),
        Command::Dis(args) => cmd::dis::run(args, &mut out, &talk),
        Command::Check(args) => cmd::check::run(args, &mut out, &talk),
        Command::Build(args) => cmd::build::run(args, &talk),
        Command::Demo(args) => cmd::demo::run(args, &mut out, &talk),
        Command::Dtrace(args) => cmd::dtrace::run(&args.arguments, &mut out, &talk),
        Command::Tui(args) => cmd::tui::run(args, &mut out, &talk),
        Command::Gdb(args) => cmd::gdb::run(args, &mut out, &talk),
        Command::Man(args) => cmd::man::run(args, &mut out),
        Command::Completions(args) => cmd::completions::run(args, &mut out),
        Command::Reference(args) => cmd::reference::run(args, &mut out),
        Command::Profile(args) => cmd::profile::run(args, &mut out, &talk),
        Command::Top(args) => cmd::top::run(args, &mut out, &talk),
        Command::Trace(args) => cmd::trace::run(args, &mut out, &talk),
    };
    let result = result.and_then(|exit| out.flush().map(|()| exit).map_err(Failure::Output));
    let exit = match result {
        Ok(exit) => exit,
        Err(failure) => {
            let exit = failure.exit();
            // A reader that closes the output early needs no message.
            if exit != Exit::Closed {
                talk.failure(&failure);
            }
            exit
        }
    };
    ExitCode::from(exit.code())
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
        assert_eq!(joined("t check -Dkey = 5 p.rpn"), "t check -Dkey=5 p.rpn");
        assert_eq!(joined("t check --define key = 5"), "t check --define key=5");
        for same in ["t check -D key=value p.rpn", "t check -D key p.rpn", "t run x --group = a", "t -D"] {
            assert_eq!(joined(same), same);
        }
    }
}
