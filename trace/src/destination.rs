//! Log destinations: where what the sinks make of a run goes (the paper, section 5).
//!
//! A destination has the paper's three calls: an event is created, data of it is logged, it is destroyed. What is logged
//! is one whole thing at a time: a record, a line, in the form that was chosen. [`Logged`] connects a sink with a
//! destination, [`Destinations`] knows them by name; others are added through the trait. Serial ports are not here: they
//! belong to whoever has a guest.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::names::Symbolize;
use crate::record::RecordView;
use crate::sink::{End, Reply, RunInfo, Sink};

/// What a destination is told of what will be logged: the paper's `trace_create_event(name, format, desc)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whose data it is: the image that runs.
    pub name: String,
    /// The form of the data: `text`, `json` or `raw`.
    pub format: &'static str,
    /// A sentence for a person.
    pub desc: String,
}

/// One whole thing that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Instructions retired before the probed one, for a record; `None` for what no record says.
    pub icount: Option<u64>,
    /// Its bytes, line end included where the form has one.
    pub data: &'a [u8],
}

/// Where data goes.
pub trait Destination {
    /// Data of this event will be logged. Nothing has been logged before.
    ///
    /// # Errors
    /// The destination cannot be used.
    fn create(&mut self, event: &Event) -> io::Result<()>;

    /// Logs one thing, in order.
    ///
    /// # Errors
    /// The destination cannot be written.
    fn log(&mut self, entry: &Entry<'_>) -> io::Result<()>;

    /// No more will be logged: everything must have arrived.
    ///
    /// # Errors
    /// The destination cannot be written.
    fn destroy(&mut self) -> io::Result<()>;
}

/// A file, made when the event is created.
#[derive(Debug)]
pub struct FileDestination {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl FileDestination {
    /// A file of this path; one that is there is replaced.
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

/// Standard output, or whatever else can be written.
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

/// The destinations that there are, by name, in the order of registration.
#[derive(Default)]
pub struct Destinations<'a> {
    known: Vec<(String, Make<'a>)>,
}

/// No destination has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no log destination; {known} would be right")]
pub struct UnknownDestination {
    /// The name.
    pub name: String,
    /// Those there are.
    pub known: String,
}

impl<'a> Destinations<'a> {
    /// Adds a destination. A later one of the same name takes the place of the earlier.
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
    /// There is none.
    pub fn open(mut self, name: &str) -> Result<Box<dyn Destination + 'a>, UnknownDestination> {
        let Some(at) = self.known.iter().position(|(known, _)| known == name) else {
            let names: Vec<&str> = self.known.iter().map(|(known, _)| known.as_str()).collect();
            return Err(UnknownDestination { name: name.to_owned(), known: names.join(" or ") });
        };
        Ok((self.known.swap_remove(at).1)())
    }
}

/// Memory that a sink writes to and [`Logged`] takes from.
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

/// A sink whose output goes to a destination, whole thing by whole thing.
pub struct Logged<'a> {
    sink: Box<dyn Sink + 'a>,
    format: &'static str,
    page: Page,
    to: Box<dyn Destination + 'a>,
}

impl<'a> Logged<'a> {
    /// Connects the sink that `make` makes, which writes to the page it is given, with a destination.
    pub fn new(
        format: &'static str,
        make: impl FnOnce(Page) -> Box<dyn Sink + 'a>,
        to: Box<dyn Destination + 'a>,
    ) -> Self {
        let page = Page::default();
        Self { sink: make(page.clone()), format, page, to }
    }

    /// Destroys the event although its end is not known: what was logged must have arrived.
    ///
    /// # Errors
    /// The destination cannot be written.
    pub fn break_off(&mut self) -> io::Result<()> {
        self.to.destroy()
    }

    /// Passes on what the sink has written.
    fn pass_on(&mut self, icount: Option<u64>) -> io::Result<()> {
        let mut data = self.page.0.borrow_mut();
        if !data.is_empty() {
            self.to.log(&Entry { icount, data: &data })?;
            data.clear();
        }
        Ok(())
    }
}

impl Sink for Logged<'_> {
    fn begin(&mut self, run: &RunInfo) -> io::Result<()> {
        let desc = format!("records of {}, {} bits", run.image, run.width);
        self.to.create(&Event { name: run.image.clone(), format: self.format, desc })?;
        self.sink.begin(run)?;
        self.pass_on(None)
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        self.sink.record(record, symbols)?;
        self.pass_on(Some(record.header.icount))
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        self.sink.reply(reply)?;
        self.pass_on(None)
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        self.sink.end(end)?;
        self.pass_on(None)?;
        self.to.destroy()
    }
}
