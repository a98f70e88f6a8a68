//! The destinations of data: records in text or JSON, and the guest's console.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use trapline_emu::{SentByte, SerialPort};
use trapline_export::profile::Counted;
use trapline_export::{CsvSink, CtfSink, FlameForm, FlameSink, Notes, PerfettoSink};
use trapline_interposer::{CoreFile, DSetup, HandlerError, ProbeNames, ProgramId};
use trapline_session::{Compression, CrashDump, DEnd, Names, Observer, Reply, Session, counted};
use trapline_trace::d::{Consumer, Firing};
use trapline_trace::{
    Destination, Destinations, DtraceSink, FileDestination, Formatter, HeaderItems, JsonSink, Logged, Page,
    Paint, RawSink, RecordView, RunInfo, Sink, Symbolize, TextSink, WriterDestination, add_header,
};

use crate::cli::{OutputArgs, RecordFormat};
use crate::errors;
use crate::failure::Failure;
use crate::outlet::Outlet;
use crate::talk::Talk;
use crate::wire::Wires;

/// Widest symbol that the columns are laid out for.
pub const SYMBOL_WIDTH: usize = 28;

/// The form of records.
pub struct Form {
    /// Text, JSON or raw.
    pub format: RecordFormat,
    /// Items that are shown.
    pub items: HeaderItems,
    /// Instruction count and symbol before each text record.
    pub symbols: bool,
    /// Templates for their data.
    pub templates: Option<Formatter>,
    /// Text records as a tree of calls.
    pub flow: bool,
    /// The folder of a CTF trace.
    pub folder: PathBuf,
    /// What the sink says about its output.
    pub notes: Notes,
    /// The colours of text records.
    pub paint: Paint,
}

impl Form {
    /// The form that options ask for.
    ///
    /// # Errors
    /// The templates are invalid, or do not fit this format.
    pub fn new(
        format: RecordFormat,
        items: HeaderItems,
        symbols: bool,
        templates: Option<&Path>,
    ) -> Result<Self, Failure> {
        let refused = |option: &str, formats: &str| {
            let name = name_of(format);
            Err(Failure::Usage(format!("{option} has no effect with -f {name}; use it with -f {formats}")))
        };
        if !matches!(format, RecordFormat::Text | RecordFormat::Json) && templates.is_some() {
            return refused("--templates", "text or json");
        }
        if format != RecordFormat::Text && symbols {
            return refused("--symbols", "text");
        }
        let templates = templates.map(Formatter::initialise).transpose()?;
        let (folder, notes) = (PathBuf::new(), Notes::default());
        Ok(Self { format, items, symbols, templates, flow: false, folder, notes, paint: Paint::default() })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        name_of(self.format)
    }

    fn flame<W: Write>(self, out: W, form: FlameForm) -> FlameSink<W> {
        FlameSink::new(out, form, self.items, None, self.notes)
    }

    /// A sink of this form. That of a CTF trace writes to its folder only.
    pub fn sink<'a>(self, out: impl Write + 'a) -> Box<dyn Sink + 'a> {
        let text =
            |out, templates| TextSink::new(out, self.items).with_templates(templates).with_paint(self.paint);
        match self.format {
            RecordFormat::Json => Box::new(JsonSink::new(out, self.items).with_templates(self.templates)),
            RecordFormat::Text if self.symbols => {
                Box::new(text(out, self.templates).with_symbols(SYMBOL_WIDTH))
            }
            RecordFormat::Text if self.flow => Box::new(text(out, self.templates).with_flow()),
            RecordFormat::Text => Box::new(text(out, self.templates)),
            RecordFormat::Dtrace => Box::new(DtraceSink::new(out)),
            RecordFormat::Raw => Box::new(RawSink::new(out, self.items)),
            RecordFormat::Csv => Box::new(CsvSink::new(out, self.items)),
            RecordFormat::Ctf => Box::new(CtfSink::new(&self.folder, self.items, self.notes)),
            RecordFormat::Folded => Box::new(self.flame(out, FlameForm::Folded)),
            RecordFormat::Svg => Box::new(self.flame(out, FlameForm::Svg)),
            RecordFormat::Pprof => Box::new(self.flame(out, FlameForm::Pprof)),
            RecordFormat::Perfetto => Box::new(PerfettoSink::new(out, self.items, self.notes)),
        }
    }
}

fn name_of(format: RecordFormat) -> &'static str {
    match format {
        RecordFormat::Text => "text",
        RecordFormat::Json => "json",
        RecordFormat::Dtrace => "dtrace",
        RecordFormat::Raw => "raw",
        RecordFormat::Csv => "csv",
        RecordFormat::Folded => "folded",
        RecordFormat::Svg => "svg",
        RecordFormat::Pprof => "pprof",
        RecordFormat::Perfetto => "perfetto",
        RecordFormat::Ctf => "ctf",
    }
}

/// An unbuffered writer, for a person who watches.
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

/// The destination of the guest's console.
pub enum Console<'a> {
    /// Directly to an outlet.
    Outlet(Outlet<'a>),
    /// Together with the second port to wires, where records can be inserted between the bytes that the guest sends.
    Wires(Wires<'a>),
    /// The text screen, to an outlet at the end of the run. What the ports send goes nowhere.
    Screen(Outlet<'a>),
}

impl<'a> Console<'a> {
    /// Writes the text screen at the end of a run, if it is what is shown: its lines down to the last that has text.
    ///
    /// # Errors
    /// The destination cannot be written.
    pub fn show_screen(&mut self, screen: &str) -> Result<(), Failure> {
        match self {
            Self::Screen(outlet) => outlet.write(format!("{}\n", screen.trim_end()).as_bytes()),
            _ => Ok(()),
        }
    }

    /// Writes output of the guest. Wires get the bytes directly from the ports.
    ///
    /// # Errors
    /// The destination cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Outlet(outlet) => outlet.write(bytes),
            Self::Wires(_) | Self::Screen(_) => Ok(()),
        }
    }

    /// The wires, if it leads to them.
    pub fn wires(&self) -> Option<Wires<'a>> {
        match self {
            Self::Wires(wires) => Some(wires.clone()),
            Self::Outlet(_) | Self::Screen(_) => None,
        }
    }
}

/// The destinations of a run's outputs.
pub struct Outputs<'a> {
    /// Records.
    pub sink: Box<dyn Sink + 'a>,
    /// The file that records go to, for messages.
    pub records: Option<PathBuf>,
    /// The guest's console.
    pub console: Console<'a>,
    /// Messages for a person.
    pub talk: Talk,
    /// Where core files and dumps go.
    pub core_dir: PathBuf,
    /// The number of the last core file.
    cores: u64,
    /// Whether the records are written as JSON objects too.
    objects: bool,
    /// Items of records that these have.
    items: HeaderItems,
    /// What the sink says about its output.
    notes: Notes,
    /// Instructions that the session has counted, for the sink of the command's own.
    pub counted: Counted,
    /// What prints the data of each D program.
    consumers: BTreeMap<ProgramId, Consumer>,
}

impl<'a> Outputs<'a> {
    /// Writes records to this sink, and nothing else.
    pub fn only(sink: Box<dyn Sink + 'a>, talk: Talk) -> Self {
        let (console, core_dir) = (Console::Outlet(Outlet::None), PathBuf::from("."));
        Self {
            sink,
            records: None,
            console,
            talk,
            core_dir,
            cores: 0,
            objects: true,
            items: HeaderItems::default(),
            notes: Notes::default(),
            counted: Counted::default(),
            consumers: BTreeMap::new(),
        }
    }

    /// Passes the description of the run to the sink.
    ///
    /// # Errors
    /// The records' output cannot be written.
    pub fn begin(&mut self, run: &RunInfo) -> Result<(), Failure> {
        self.sink.begin(run).map_err(|error| self.writing(error))
    }

    /// Prints a message for the user.
    pub fn say(&self, text: &str) {
        self.talk.note(text);
    }

    /// Writes a file of this name under the next number, counted from `last`, that no file has.
    fn new_file(
        &self,
        name: &str,
        last: &mut u64,
        write: impl Fn(&mut File) -> io::Result<()>,
    ) -> Result<PathBuf, Failure> {
        loop {
            *last += 1;
            let path = self.core_dir.join(format!("{name}.{last}"));
            let made = File::create_new(&path).and_then(|mut file| write(&mut file));
            match made {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::writing(Some(&path), error)),
            }
        }
    }

    /// Writes a crash dump.
    fn new_dump(&self, dump: &CrashDump) -> Result<(), Failure> {
        let write = |file: &mut File| dump.vmcore().write(file, Compression::None);
        let path = self.new_file("vmcore", &mut 0, write)?;
        let icount = counted(dump.icount, "instruction");
        self.talk.note(&format!("{}: the machine after {icount}", path.display()));
        Ok(())
    }

    fn consumer(&mut self, id: ProgramId, setup: &Arc<DSetup>) -> &mut Consumer {
        let new = || Consumer::new(Arc::clone(&setup.tables), setup.output.clone()).without_files();
        self.consumers.entry(id).or_insert_with(new)
    }

    /// Tells what the printing of a D program's data complains about.
    fn complain(&mut self, id: ProgramId) {
        let complaints = self.consumers.get_mut(&id).map(Consumer::take_complaints).unwrap_or_default();
        complaints.iter().for_each(|sentence| self.talk.warn(sentence));
    }

    /// Writes the record of a D program.
    fn d_record(
        &mut self,
        record: &RecordView<'_>,
        (id, setup): (ProgramId, &Arc<DSetup>),
        names: &Names<'_>,
    ) -> Result<(), Failure> {
        let header = &record.header;
        let Some(probe) = names.probe(header.probe) else { return Ok(()) };
        let firing = Firing::of(probe, header, names);
        let head = self.objects.then(|| {
            let program = names.program(header.probe).unwrap_or_default();
            let when = [
                ("seq", json!(header.seq)),
                ("icount", json!(header.icount)),
                ("time_ns", json!(header.time_ns)),
            ];
            let mut object = d_object("d", program, &when);
            add_header(self.items, record, &mut object).map(|()| object)
        });
        let head = head.transpose().map_err(|error| self.writing(error))?;
        let shown = self.consumer(id, setup).show(firing, record.data, head);
        let mut shown = shown.map_err(|error| self.writing(error))?;
        shown.icount = Some(header.icount);
        self.complain(id);
        self.sink.d(&shown).map_err(|error| self.writing(error))
    }

    /// Writes what the D programs leave at the end of the run, and tells what they have dropped.
    ///
    /// # Errors
    /// The records' output cannot be written.
    pub fn d_ends(&mut self, session: &Session, own: impl Fn(&DEnd) -> bool) -> Result<(), Failure> {
        for end in session.d_ends().into_iter().filter(own) {
            let head = self.objects.then(|| d_object("aggregation", &end.name, &[]));
            let consumer = self.consumer(end.id, &end.setup);
            let shown = consumer.show_end(end.aggregations, &session.names(), head);
            let mut shown = shown.map_err(|error| self.writing(error))?;
            let drops = end.drops.sentences(end.setup.drop_tags);
            if self.objects && !drops.is_empty() {
                shown.objects.push(Value::Object(d_object("drops", &end.name, &[("drops", json!(drops))])));
            }
            self.complain(end.id);
            self.sink.d(&shown).map_err(|error| self.writing(error))?;
            drops.iter().for_each(|sentence| self.talk.warn(&format!("{}: {sentence}", end.name)));
        }
        Ok(())
    }

    /// Says what the sink has to say about its output.
    pub fn say_notes(&self) {
        self.notes.take().iter().for_each(|note| self.talk.note(note));
        if let Some(missing) = self.notes.missing() {
            self.talk.warn(&format!("nothing was written: {missing}"));
        }
    }

    fn writing(&self, error: io::Error) -> Failure {
        Failure::writing(self.records.as_deref(), error)
    }
}

/// The first members of an object about a D program.
fn d_object(kind: &str, program: &str, more: &[(&str, Value)]) -> Map<String, Value> {
    let first = [("type", json!(kind)), ("program", json!(program))];
    first.iter().chain(more).map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

impl Observer for Outputs<'_> {
    type Error = Failure;

    fn record(&mut self, record: &RecordView<'_>, names: &Names<'_>) -> Result<(), Failure> {
        if let Some(program) = names.d_setup(record.header.probe) {
            return self.d_record(record, program, names);
        }
        self.sink.record(record, names).map_err(|error| self.writing(error))
    }

    fn reply(&mut self, reply: &Reply) -> Result<(), Failure> {
        self.sink.reply(&reply.for_sink()).map_err(|error| self.writing(error))?;
        if let Some(note) = reply.note() {
            self.talk.note(note);
        }
        match reply {
            Reply::Dump { dump: Some(dump), .. } => self.new_dump(dump),
            _ => Ok(()),
        }
    }

    fn failed(&mut self, error: &HandlerError, names: ProbeNames<'_>) {
        errors::report(error, names, &self.talk);
    }

    fn wants_sent(&self) -> bool {
        self.console.wires().is_some()
    }

    fn sent(&mut self, bytes: &[SentByte]) {
        if let Some(wires) = self.console.wires() {
            wires.sent(bytes);
        }
    }

    fn console(&mut self, fresh: &[u8]) -> Result<(), Failure> {
        if let Some(wires) = self.console.wires() {
            wires.pass_on()?;
        }
        if fresh.is_empty() { Ok(()) } else { self.console.write(fresh) }
    }

    fn core_file(&mut self, core: &CoreFile) -> Result<(), Failure> {
        let mut last = self.cores;
        let path = self.new_file("core", &mut last, |file| file.write_all(&core.bytes))?;
        self.cores = last;
        let who = if core.name.is_empty() { String::new() } else { format!(" ({})", core.name) };
        let cut = if core.cut { ", cut short" } else { "" };
        let (file, pages) = (path.display(), counted(core.pages as u64, "page"));
        self.talk.note(&format!("{file}: process {}{who} at {:#x}, {pages}{cut}", core.pid, core.ip));
        Ok(())
    }

    fn crash_dump(&mut self, dump: Box<CrashDump>) -> Result<(), Failure> {
        self.new_dump(&dump)
    }
}

/// The destination of records by the options; refuses contradictory options.
fn log_to(args: &OutputArgs) -> Result<&str, Failure> {
    let usage = |text: String| Err(Failure::Usage(text));
    let name = args.log_to.as_deref().unwrap_or(if args.output.is_some() { "file" } else { "stdout" });
    if name == "file" && args.output.is_none() {
        return usage("--log-to file needs -o FILE".to_owned());
    }
    if name != "file" && args.output.is_some() {
        return usage(format!("records have one destination; give --log-to {name} or -o FILE, not both"));
    }
    if args.format.is_binary() && matches!(name, "com1" | "com2") {
        return usage(format!(
            "-f {} writes binary data, which cannot go to a serial port; use -f text or json with --log-to {name}",
            name_of(args.format)
        ));
    }
    if args.format == RecordFormat::Ctf && name != "file" {
        return usage("a CTF trace is a folder; name it with -o FOLDER".to_owned());
    }
    Ok(name)
}

/// Refuses to write binary data to a terminal.
pub fn no_terminal(format: RecordFormat, to_stdout: bool) -> Result<(), Failure> {
    if format.is_binary() && to_stdout && io::stdout().is_terminal() {
        let name = name_of(format);
        return Err(Failure::Usage(format!(
            "{name} is not text, so it is not written to a terminal; use -o FILE"
        )));
    }
    Ok(())
}

/// Makes a sink that takes the place of the one that the options name; what it writes goes where that one's would.
pub type OwnSink<'a> = Box<dyn FnOnce(Page, Made) -> Box<dyn Sink + 'a> + 'a>;

/// What such a sink is made with.
pub struct Made {
    /// For what it says about its output.
    pub notes: Notes,
    /// The instructions that the session has counted, when the sink's end comes.
    pub counted: Counted,
}

/// What a run wants of its outputs.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    /// It may have records.
    pub probed: bool,
    /// A person uses the console.
    pub by_hand: bool,
    /// Lines of standard input ask for answers.
    pub asked: bool,
    /// Records are shown as a tree of calls.
    pub flow: bool,
}

/// Chooses destinations by the options. Standard output carries either records or the console, never both, except for
/// records sent through the console's own port. The console gets it if it is wanted there and records are not. An
/// interactive run wants the console. If lines of standard input ask, each answer is written at once. A sink of the command's `own`
/// takes the records, if it has one.
///
/// # Errors
/// A file cannot be made or is wrong, or the options contradict each other.
pub fn choose<'a>(
    args: &OutputArgs,
    (items, core_dir): (HeaderItems, Option<&Path>),
    Wants { probed, by_hand, asked, flow }: Wants,
    own: Option<OwnSink<'a>>,
    out: &'a mut dyn Write,
    talk: Talk,
) -> Result<Outputs<'a>, Failure> {
    let folder = args.output.clone().unwrap_or_default();
    let to = log_to(args)?;
    let form = Form::new(args.format, items, args.symbols, args.templates.as_deref())?;
    let form = Form { flow, folder, paint: talk.paint(to == "stdout"), ..form };
    no_terminal(args.format, to == "stdout")?;
    let mut out = Some(out);
    let stdout =
        if to == "stdout" && (probed || args.format != RecordFormat::Text) { out.take() } else { None };
    let by_default = |port| if to == port { "stdio" } else { "none" };
    let wanted =
        args.console.as_deref().unwrap_or(if probed && !by_hand { by_default("com1") } else { "stdio" });
    let wanted2 = args.com2.as_deref().unwrap_or(by_default("com2"));
    // The port that carries the records has priority for standard output.
    let (com1, com2) = if to == "com2" {
        let com2 = console(wanted2, &mut out)?;
        (console(wanted, &mut out)?, com2)
    } else {
        (console(wanted, &mut out)?, console(wanted2, &mut out)?)
    };
    let records = match to {
        "com1" => com1.path().map(Path::to_path_buf),
        "com2" => com2.path().map(Path::to_path_buf),
        _ => args.output.clone(),
    };
    let wired = matches!(to, "com1" | "com2") || args.com2.is_some();
    let console = match (wired, wanted) {
        (true, VGA) => {
            let text = "--console vga shows the text screen, which takes no records and goes with no --com2";
            return Err(Failure::Usage(text.to_owned()));
        }
        (true, _) => Console::Wires(Wires::new(com1, com2)),
        (false, VGA) => Console::Screen(com1),
        (false, _) => Console::Outlet(com1),
    };
    let mut known = Destinations::default();
    let (path, format) = (args.output.clone().unwrap_or_default(), args.format);
    known.register("file", move || to_file(format, &path));
    known.register("stdout", move || {
        stdout.map_or_else(|| Box::new(WriterDestination(io::sink())) as _, |out| to_stdout(out, asked))
    });
    for (name, port) in [("com1", SerialPort::Com1), ("com2", SerialPort::Com2)] {
        let wires = console.wires();
        known.register(name, move || match wires {
            Some(wires) => Box::new(wires.destination(port)),
            None => Box::new(WriterDestination(io::sink())),
        });
    }
    let destination = known.open(to).map_err(|error| Failure::Usage(format!("--log-to: {error}")))?;
    let notes = form.notes.clone();
    let (name, counted) = (form.name(), Counted::default());
    let made = Made { notes: notes.clone(), counted: Rc::clone(&counted) };
    let make = |page: Page| match own {
        Some(own) => own(page, made),
        None => form.sink(page),
    };
    let sink = Box::new(Logged::new(name, make, destination));
    let core_dir = core_dir.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    if !core_dir.is_dir() {
        let text = format!("--core-dir {}: there is no such folder; make it first", core_dir.display());
        return Err(Failure::Usage(text));
    }
    let objects = !matches!(args.format, RecordFormat::Text | RecordFormat::Dtrace);
    let (cores, consumers) = (0, BTreeMap::new());
    Ok(Outputs { sink, records, console, talk, core_dir, cores, objects, items, notes, counted, consumers })
}

/// A file as a destination. The sink of a CTF trace makes its files itself.
pub fn to_file<'a>(format: RecordFormat, path: &Path) -> Box<dyn Destination + 'a> {
    match format {
        RecordFormat::Ctf => Box::new(WriterDestination(io::sink())),
        _ => Box::new(FileDestination::new(path)),
    }
}

/// Standard output as a destination; a terminal, and a program that waits for answers, sees each record at once.
pub fn to_stdout<'a>(out: &'a mut dyn Write, live: bool) -> Box<dyn Destination + 'a> {
    if live || io::stdout().is_terminal() {
        Box::new(WriterDestination(Live(out)))
    } else {
        Box::new(WriterDestination(out))
    }
}

/// The word of `--console` for the text screen.
const VGA: &str = "vga";

/// The destination of a port. Standard output, if wanted but taken, becomes standard error.
fn console<'a>(wanted: &str, out: &mut Option<&'a mut dyn Write>) -> Result<Outlet<'a>, Failure> {
    Ok(match wanted {
        "none" => Outlet::None,
        "stdout" | "-" => {
            return Err(Failure::Usage(format!(
                "--console {wanted} would be a file of this name; write stdio for standard output, or ./{wanted} for the file"
            )));
        }
        "stderr" => return Err(Failure::Usage(
            "--console stderr would be a file of this name; the console goes to standard error where records take standard output, \
             so write stdio, or ./stderr for the file".to_owned(),
        )),
        "stdio" | VGA => match out.take() {
            Some(out) => Outlet::Writer(Box::new(out), None),
            None => Outlet::Stderr,
        },
        path => Outlet::Writer(Box::new(create(Path::new(path))?), Some(path.into())),
    })
}

fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    File::create(path).map(BufWriter::new).map_err(|error| Failure::Write { path: path.to_owned(), error })
}
