//! `trapline`: dynamic probes on a deterministic full-system emulator.
//!
//! This file maps results to exit codes and nothing else. Standard output is data, standard error is talk.

#![forbid(unsafe_code)]

mod cli;
mod cmd;
mod ctrl_c;
mod devices;
mod errors;
mod failure;
mod keys;
mod options;
mod output;
mod talk;
mod wire;

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::{Exit, Failure};
use crate::talk::Talk;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let talk = Talk::new(cli.color, cli.quiet);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let result = match &cli.command {
        Command::Run(args) => cmd::run::run(args, &mut out, &talk),
        Command::List(args) => cmd::list::run(args, &mut out, &talk),
        Command::Dis(args) => cmd::dis::run(args, &mut out, &talk),
        Command::Check(args) => cmd::check::run(args, &mut out, &talk),
        Command::Build(args) => cmd::build::run(args, &talk),
        Command::Demo(args) => cmd::demo::run(args, &mut out, &talk),
        Command::Trace(args) => cmd::trace::run(args, &mut out, &talk),
    };
    let result = result.and_then(|exit| out.flush().map(|()| exit).map_err(Failure::Output));
    let exit = match result {
        Ok(exit) => exit,
        // Whoever read our output has had enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(failure) => {
            talk.failure(&failure);
            failure.exit()
        }
    };
    ExitCode::from(exit.code())
}
