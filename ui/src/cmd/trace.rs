//! `trapline trace`: trace files back to what the run would have printed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use trapline_trace::{
    Destination, Entry, Event, FileDestination, Kind, Logged, Piece, Sink, Symbolize, TraceFileError,
    TraceReader,
};

use crate::cli::{CatArgs, RecordFormat, TraceArgs, TraceCommand};
use crate::failure::{Exit, Failure};
use crate::output::{Form, no_terminal, to_stdout};

type Reader = TraceReader<BufReader<File>>;

/// Runs the command.
///
/// # Errors
/// Bad files, or an output that cannot be written.
pub fn run(args: &TraceArgs, out: &mut dyn Write) -> Result<Exit, Failure> {
    match &args.command {
        TraceCommand::Cat(args) => cat(args, out),
    }
}

fn cat(args: &CatArgs, out: &mut dyn Write) -> Result<Exit, Failure> {
    no_terminal(args.format, args.output.is_none())?;
    let same = |output: &PathBuf| matches!((output.canonicalize(), args.file.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if args.output.as_ref().is_some_and(same) {
        let file = args.file.display();
        return Err(Failure::Usage(format!(
            "-o {file} is the trace file that is read; another would be right"
        )));
    }
    let file = File::open(&args.file).map_err(|error| damaged(&args.file, error.into()))?;
    let mut reader = TraceReader::open(BufReader::new(file)).map_err(|error| damaged(&args.file, error))?;
    let items = reader.head().items;
    let form = Form::new(args.format, items, args.symbols, args.templates.as_deref())?;
    let destination: Box<dyn Destination + '_> = match &args.output {
        Some(path) => Box::new(FileDestination::new(path)),
        None => to_stdout(out),
    };
    if args.format == RecordFormat::Raw {
        copy(&mut reader, destination, args)?;
    } else {
        let sink = Logged::new(form.name(), |page| form.sink(page), destination);
        print(&mut reader, sink, args)?;
    }
    Ok(Exit::Ok)
}

fn damaged(path: &Path, error: TraceFileError) -> Failure {
    match error {
        TraceFileError::Io(error) => Failure::Read { path: path.to_owned(), error },
        error => Failure::Trace { path: path.to_owned(), error },
    }
}

/// The names that a file holds.
#[derive(Default)]
struct Names {
    symbols: BTreeMap<u64, String>,
    frames: BTreeMap<(Kind, String, u64), (String, u64)>,
}

impl Symbolize for Names {
    fn symbol(&self, ip: u64) -> Option<String> {
        self.symbols.get(&ip).cloned()
    }

    fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        self.frames.get(&(kind, module.to_owned(), address)).cloned()
    }
}

/// Shows each piece to the sink that `run` would have used. What is whole arrives, whatever follows it.
fn print(reader: &mut Reader, mut sink: Logged<'_>, args: &CatArgs) -> Result<(), Failure> {
    let mut names = Names::default();
    let writing = |error| Failure::writing(args.output.as_deref(), error);
    loop {
        let piece = match reader.next_piece() {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(()),
            Err(error) => {
                sink.break_off().map_err(writing)?;
                return Err(damaged(&args.file, error));
            }
        };
        let written = match piece {
            Piece::Begin(run) => sink.begin(&run),
            Piece::Symbol { ip, name } => {
                names.symbols.insert(ip, name);
                Ok(())
            }
            Piece::Frame { kind, module, address, name, offset } => {
                names.frames.insert((kind, module, address), (name, offset));
                Ok(())
            }
            Piece::Record(record) => sink.record(&record.view(), &names),
            Piece::Reply(reply) => sink.reply(&reply),
            Piece::End(end) => sink.end(&end),
        };
        written.map_err(writing)?;
    }
}

/// Copies the whole pieces as they are.
fn copy(reader: &mut Reader, mut to: Box<dyn Destination + '_>, args: &CatArgs) -> Result<(), Failure> {
    let writing = |error| Failure::writing(args.output.as_deref(), error);
    let name = args.file.display().to_string();
    to.create(&Event { desc: format!("a copy of {name}"), name, format: "raw" }).map_err(writing)?;
    let copied = loop {
        to.log(&Entry { icount: None, data: reader.raw() }).map_err(writing)?;
        match reader.next_piece() {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    to.destroy().map_err(writing)?;
    copied.map(|_| ()).map_err(|error| damaged(&args.file, error))
}
