//! `trapline trace`: what can be done with trace files.

mod cat;
mod convert;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trapline_session::FileError;
use trapline_trace::{TraceFileError, TraceReader};

use crate::cli::{TraceArgs, TraceCommand};
use crate::failure::{Exit, Failure};
use crate::progress::{Progress, of_file};
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
    Ok(open_file(path)?.0)
}

/// The same, and shows how far it has been read.
fn open_watched(path: &Path, talk: &Talk) -> Result<(Reader, Progress), Failure> {
    let (reader, read, length) = open_file(path)?;
    Ok((reader, talk.progress(of_file(read, length))))
}

/// A trace file, the number of bytes that were read of it, and its length, if it is known.
fn open_file(path: &Path) -> Result<(Reader, Arc<AtomicU64>, Option<u64>), Failure> {
    let input = || -> io::Result<(Box<dyn Read>, Option<u64>)> {
        if path == Path::new("-") {
            return Ok((Box::new(io::stdin()), None));
        }
        let file = File::open(path)?;
        let about = file.metadata()?;
        Ok((Box::new(file), about.is_file().then_some(about.len())))
    };
    let (file, length) = input().map_err(|error| damaged(path, error.into()))?;
    let read = Arc::default();
    let counted: Box<dyn Read> = Box::new(Counted { file, read: Arc::clone(&read) });
    let reader = TraceReader::open(BufReader::new(counted)).map_err(|error| damaged(path, error))?;
    Ok((reader, read, length))
}

/// Counts the bytes that are read.
struct Counted {
    file: Box<dyn Read>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(bytes)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

fn damaged(path: &Path, error: TraceFileError) -> Failure {
    match error {
        TraceFileError::Io(error) => FileError::Read { path: path.to_owned(), error }.into(),
        error => Failure::Trace { path: path.to_owned(), error },
    }
}
