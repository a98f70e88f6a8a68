//! Log destinations: where the output of the sinks goes (the paper, section 5).
//!
//! A destination has the paper's three calls: an event is created, its data is logged, it is destroyed. Each call logs
//! one complete item, a record or a line, in the chosen form. [`Logged`] connects a sink with a
//! destination, [`Destinations`] knows them by name; others are added through the trait. Serial ports are not here:
//! they belong to the machine.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::names::Symbolize;
use crate::record::RecordView;
use crate::sink::Shown;
use crate::sink::{End, Reply, RunInfo, Sink};

/// The description of an event for a destination: the paper's `trace_create_event(name, format, desc)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The running image.
    pub name: String,
    /// The form of the data: `text`, `json` or `raw`.
    pub format: &'static str,
    /// A description for people.
    pub desc: String,
}

/// One complete item of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// For a record: instructions retired before the probed one. `None` for everything else.
    pub icount: Option<u64>,
    /// Its bytes, with the line end in forms that have one.
    pub data: &'a [u8],
}

/// A place that data is written to.
pub trait Destination {
    /// Called once, before the first data of this event.
    ///
    /// # Errors
    /// The destination cannot be used.
    fn create(&mut self, event: &Event) -> io::Result<()>;

    /// Logs one item. Items come in order.
    ///
    /// # Errors
    /// The destination cannot be written.
    fn log(&mut self, entry: &Entry<'_>) -> io::Result<()>;

    /// Called once, after the last data: writes out everything that is still buffered.
    ///
    /// # Errors
    /// The destination cannot be written.
    fn destroy(&mut self) -> io::Result<()>;
}

/// A file that is created with the event.
#[derive(Debug)]
pub struct FileDestination {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl FileDestination {
    /// A file at this path; an existing one is replaced.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None }
    }
}

impl Destination for FileDestination {
    fn create(&mut self, _: &Event) -> io::Result<()> {
        self.file = Some(BufWriter::new(File::create(&self.path)?));
        Ok(())
    }

    fn log(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(entry.data))
    }

    fn destroy(&mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), |mut file| file.flush())
    }
}

/// Standard output, or any other writer.
#[derive(Debug)]
pub struct WriterDestination<W>(pub W);

impl<W: Write> Destination for WriterDestination<W> {
    fn create(&mut self, _: &Event) -> io::Result<()> {
        Ok(())
    }

    fn log(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.0.write_all(entry.data)
    }

    fn destroy(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Makes a destination.
type Make<'a> = Box<dyn FnOnce() -> Box<dyn Destination + 'a> + 'a>;

/// The known destinations by name, in the order of registration.
#[derive(Default)]
pub struct Destinations<'a> {
    known: Vec<(String, Make<'a>)>,
}

/// No destination has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a log destination; use {known}")]
pub struct UnknownDestination {
    /// The name.
    pub name: String,
    /// The names of the known destinations.
    pub known: String,
}

impl<'a> Destinations<'a> {
    /// Adds a destination. A later one replaces an earlier one of the same name.
    pub fn register(&mut self, name: &str, make: impl FnOnce() -> Box<dyn Destination + 'a> + 'a) {
        let made: Make<'a> = Box::new(make);
        match self.known.iter_mut().find(|(known, _)| known == name) {
            Some(there) => there.1 = made,
            None => self.known.push((name.to_owned(), made)),
        }
    }

    /// Makes the destination of this name.
    ///
    /// # Errors
    /// No destination has this name.
    pub fn open(mut self, name: &str) -> Result<Box<dyn Destination + 'a>, UnknownDestination> {
        let Some(at) = self.known.iter().position(|(known, _)| known == name) else {
            let names: Vec<&str> = self.known.iter().map(|(known, _)| known.as_str()).collect();
            return Err(UnknownDestination { name: name.to_owned(), known: names.join(" or ") });
        };
        Ok((self.known.swap_remove(at).1)())
    }
}

/// Memory that a sink writes to and [`Logged`] reads from.
#[derive(Debug, Clone, Default)]
pub struct Page(Rc<RefCell<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sink whose output goes to a destination item by item. A destination that has failed once gets nothing more: what it
/// would get has a gap.
pub struct Logged<'a> {
    sink: Box<dyn Sink + 'a>,
    format: &'static str,
    page: Page,
    to: Box<dyn Destination + 'a>,
    failed: bool,
}

impl<'a> Logged<'a> {
    /// Connects a sink with a destination. `make` makes the sink; it must write to the page it is given.
    pub fn new(
        format: &'static str,
        make: impl FnOnce(Page) -> Box<dyn Sink + 'a>,
        to: Box<dyn Destination + 'a>,
    ) -> Self {
        let page = Page::default();
        Self { sink: make(page.clone()), format, page, to, failed: false }
    }

    /// Destroys the event before the run has ended, and writes out what was logged.
    ///
    /// # Errors
    /// The destination cannot be written.
    pub fn break_off(&mut self) -> io::Result<()> {
        self.to(|to| to.destroy())
    }

    /// Has the destination do something, unless it has failed before.
    fn to(&mut self, act: impl FnOnce(&mut dyn Destination) -> io::Result<()>) -> io::Result<()> {
        if self.failed {
            return Ok(());
        }
        let done = act(self.to.as_mut());
        self.failed = done.is_err();
        done
    }

    /// Passes on what the sink has written.
    fn pass_on(&mut self, icount: Option<u64>) -> io::Result<()> {
        let data = self.page.0.take();
        if data.is_empty() { Ok(()) } else { self.to(|to| to.log(&Entry { icount, data: &data })) }
    }
}

impl Sink for Logged<'_> {
    fn begin(&mut self, run: &RunInfo) -> io::Result<()> {
        let desc = format!("records of {}, {} bits", run.image, run.width);
        let event = Event { name: run.image.clone(), format: self.format, desc };
        self.to(|to| to.create(&event))?;
        self.sink.begin(run)?;
        self.pass_on(None)
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        self.sink.record(record, symbols)?;
        self.pass_on(Some(record.header.icount))
    }

    fn d(&mut self, shown: &Shown) -> io::Result<()> {
        self.sink.d(shown)?;
        self.pass_on(shown.icount)
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        self.sink.reply(reply)?;
        self.pass_on(None)
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        self.sink.end(end)?;
        self.pass_on(None)?;
        self.to(|to| to.destroy())
    }
}
