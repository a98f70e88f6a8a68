//! `trapline trace`: what can be done with trace files.

mod cat;
mod convert;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use trapline_session::FileError;
use trapline_trace::{TraceFileError, TraceReader};

use crate::cli::{TraceArgs, TraceCommand};
use crate::failure::{Exit, Failure};
use crate::talk::Talk;

type Reader = TraceReader<BufReader<Box<dyn Read>>>;

/// Runs the command.
///
/// # Errors
/// Bad files, or an output that cannot be written.
pub fn run(args: &TraceArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    match &args.command {
        TraceCommand::Cat(args) => cat::cat(args, out, talk),
        TraceCommand::Convert(args) => convert::convert(args, out, talk),
    }
}

/// Opens a trace file; `-` is standard input.
fn open(path: &Path) -> Result<Reader, Failure> {
    let input = || -> io::Result<Box<dyn Read>> {
        Ok(if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path)?) })
    };
    let file = input().map_err(|error| damaged(path, error.into()))?;
    TraceReader::open(BufReader::new(file)).map_err(|error| damaged(path, error))
}

fn damaged(path: &Path, error: TraceFileError) -> Failure {
    match error {
        TraceFileError::Io(error) => FileError::Read { path: path.to_owned(), error }.into(),
        error => Failure::Trace { path: path.to_owned(), error },
    }
}
