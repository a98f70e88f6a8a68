//! Where data goes: records in text or JSON, and the guest's console.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use trapline_trace::{End, HeaderItems, JsonSink, RecordView, Reply, RunInfo, Sink, Symbolize, TextSink};

use crate::cli::{Format, RunArgs};
use crate::failure::Failure;
use crate::talk::Talk;

/// Widest symbol that the columns are laid out for.
const SYMBOL_WIDTH: usize = 28;

/// Text records with the instruction count and the symbol before them.
pub struct SymbolSink<W> {
    out: W,
    items: HeaderItems,
}

impl<W: Write> SymbolSink<W> {
    /// A sink that shows the chosen items.
    pub fn new(out: W, items: HeaderItems) -> Self {
        Self { out, items }
    }
}

impl<W: Write> Sink for SymbolSink<W> {
    fn begin(&mut self, _: &RunInfo) -> io::Result<()> {
        Ok(())
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let ip = record.header.ip;
        let symbol = symbols.symbol(ip).unwrap_or_else(|| format!("{ip:#x}"));
        write!(self.out, "{:>12} {symbol:SYMBOL_WIDTH$} ", record.header.icount)?;
        TextSink::new(&mut self.out, self.items).record(record, symbols)
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        TextSink::new(&mut self.out, self.items).reply(reply)
    }

    fn end(&mut self, _: &End) -> io::Result<()> {
        self.out.flush()
    }
}

/// A writer that holds nothing back, for a person who watches.
struct Live<W>(W);

impl<W: Write> Write for Live<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.0.flush()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Where the guest's console goes.
pub enum Console<'a> {
    /// Nowhere.
    None,
    /// Standard error.
    Stderr,
    /// Standard output or a file, with its path.
    Writer(Box<dyn Write + 'a>, Option<PathBuf>),
}

impl Console<'_> {
    /// Writes what the guest wrote.
    ///
    /// # Errors
    /// The destination cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::None => Ok(()),
            Self::Stderr => io::stderr().write_all(bytes).map_err(Failure::Output),
            Self::Writer(writer, path) => writer
                .write_all(bytes)
                .and_then(|()| writer.flush())
                .map_err(|error| Failure::writing(path.as_deref(), error)),
        }
    }
}

/// Where everything of a run goes.
pub struct Outputs<'a> {
    /// Records.
    pub sink: Box<dyn Sink + 'a>,
    /// The file that records go to, for messages.
    pub records: Option<PathBuf>,
    /// The guest's console.
    pub console: Console<'a>,
    /// What is said to a person.
    pub talk: Talk,
}

/// Chooses destinations by the options. Standard output carries either records or the console, never both: the
/// console takes it when it is wanted and no records go there.
///
/// # Errors
/// A file cannot be made.
pub fn choose<'a>(args: &RunArgs, out: &'a mut dyn Write, talk: Talk) -> Result<Outputs<'a>, Failure> {
    let probed = !args.probe.is_empty() || args.script.is_some();
    let wanted = args.console.as_deref().unwrap_or(if probed { "none" } else { "stdio" });
    let mut out = Some(out);
    let records: Box<dyn Write + 'a> = match &args.output {
        Some(path) => Box::new(create(path)?),
        None if probed || args.format == Format::Json => match out.take() {
            Some(out) if io::stdout().is_terminal() => Box::new(Live(out)),
            Some(out) => Box::new(out),
            None => Box::new(io::sink()),
        },
        None => Box::new(io::sink()),
    };
    let sink: Box<dyn Sink + 'a> = match args.format {
        Format::Json => Box::new(JsonSink::new(records, args.header)),
        Format::Text if args.symbols => Box::new(SymbolSink::new(records, args.header)),
        Format::Text => Box::new(TextSink::new(records, args.header)),
    };
    let console = match (wanted, out) {
        ("none", _) => Console::None,
        ("stdio", Some(out)) => Console::Writer(Box::new(out), None),
        ("stdio", None) => Console::Stderr,
        (path, _) => Console::Writer(Box::new(create(Path::new(path))?), Some(path.into())),
    };
    Ok(Outputs { sink, records: args.output.clone(), console, talk })
}

fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    File::create(path).map(BufWriter::new).map_err(|error| Failure::Write { path: path.to_owned(), error })
}
