//! `trapline dtrace`: D programs, with the command line and the output of dtrace(1).

mod options;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use trapline_d::{Compiled, Error};
use trapline_session::{
    Condition, DError, DProgram, DSource, DText, Ending, Guest, Limits, Names, Observer, Probing, Script,
    Session,
};
use trapline_trace::d::{Consumer, Firing};
use trapline_trace::{ChannelConfig, RecordView, Symbolize};

use crate::ctrl_c;
use crate::d_text::TextError;
use crate::failure::{Exit, Failure};
use crate::talk::Talk;
use options::{Line, Text};

/// The guest without `--guest`.
const IDLE: &str = "embedded:idle";
/// Instructions that it takes until it is idle: from there on only its own memory can be read.
const IDLE_BOOT: u64 = 1595;
/// Its memory.
const IDLE_MEMORY: u64 = 4 << 20;
/// Least bytes of `bufsize`: what one record takes by itself.
const LEAST_BUFFER: u64 = 60;

const USAGE: &str = "\
Usage: trapline dtrace [--guest IMAGE [--initrd FILE] [--sym FILE].. [--begin-at TEXT]] [-CeFlqSvVwZ] [-b BUFSIZE] [-D NAME[=VALUE]] [-I FOLDER] [-o FILE]
         [-s SCRIPT] [-U NAME] [-x OPTION[=VALUE]] [-P PROVIDER] [-m MODULE] [-f FUNCTION] [-n NAME] [ARGUMENT]..

Without --guest a script runs on embedded:idle, a machine that serves its timer and otherwise halts.
--initrd FILE     the initial RAM disk of a Linux kernel
--sym FILE        more kernel symbols, and types by debugging information
--begin-at TEXT   the probes are armed, and BEGIN fires, when the guest's console has shown TEXT";

/// What ends the command early; dtrace(1) ends with 1.
type Done = Result<Exit, Stop>;

/// Why the command ends early.
enum Stop {
    /// A sentence of dtrace(1).
    Said(String),
    /// Anything else.
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn said(sentence: impl Into<String>) -> Stop {
    Stop::Said(sentence.into())
}

/// Runs the command.
///
/// # Errors
/// A guest or a file that cannot be used; errors of D are told here, and end with 1.
pub fn run(arguments: &[OsString], out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    match dtrace(arguments, out, talk) {
        Ok(exit) => Ok(exit),
        Err(Stop::Said(sentence)) => {
            talk.line(&format!("dtrace: {sentence}"));
            Ok(Exit::Status(1))
        }
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

fn dtrace(arguments: &[OsString], out: &mut dyn Write, talk: &Talk) -> Done {
    let line = Line::parse(arguments).map_err(|bad| said(bad.to_string()))?;
    if line.help || line.version {
        let text = if line.help { USAGE } else { "dtrace: Trapline D 2.0" };
        writeln!(out, "{text}").map_err(Failure::Output)?;
        return Ok(Exit::Ok);
    }
    if line.texts.is_empty() {
        return Err(said(format!("no program: -n or -s is needed\n{USAGE}")));
    }
    let guest = guest(&line, talk)?;
    let program = program(&line)?;
    let names: Vec<String> = program.texts.iter().map(|text| called(&text.name, text.is_file)).collect();
    let compiled = program.compile(guest.target()).map_err(|error| failed(&error, &line, &program))?;
    check(&compiled)?;
    if line.show_code {
        show_code(&compiled, out)?;
    }
    let probing = Probing {
        channel: ChannelConfig {
            sub_buffer_size: usize::try_from(compiled.options.number("bufsize"))
                .unwrap_or(1 << 22)
                .clamp(1 << 12, 1 << 26),
            ..ChannelConfig::growing()
        },
        ..Probing::default()
    };
    let mut session = guest.start(probing)?;
    if line.guest.is_none() {
        session.run_until(&Condition::end(), &Limits::insns(IDLE_BOOT));
    }
    if let Some(text) = &line.begin_at {
        let limits = Limits::none().cancelled_by(ctrl_c::listen());
        let ending = session.run_until(&Condition::console(text), &limits);
        if !matches!(ending, Ending::Until(_)) {
            return Err(said(format!("the guest's console does not show {text:?} (--begin-at): {ending}")));
        }
    }
    let tags = compiled.options.flag("errtags");
    let inserted = session.insert_d(&program, &compiled).map_err(|error| {
        let tag = if tags { format!("[{}] ", error.tag()) } else { String::new() };
        said(format!("{}: {tag}{error}", names.first().cloned().unwrap_or_default()))
    })?;
    if line.list {
        return list(&session, out);
    }
    let quiet = compiled.options.flag("quiet");
    if !quiet {
        for name in &names {
            talk.line(&format!("dtrace: {}", matched(name, inserted.matched)));
        }
    }
    if line.compile_only {
        return Ok(Exit::Ok);
    }
    if compiled.clauses.is_empty() {
        return Err(said("no probes specified"));
    }
    let mut file = match &line.output {
        Some(path) => Some(File::create(path).map_err(|error| Failure::Write { path: path.clone(), error })?),
        None => None,
    };
    let out: &mut dyn Write = match &mut file {
        Some(file) => file,
        None => out,
    };
    follow(&mut session, inserted, out, talk)
}

/// `script 'a.d' matched 2 probes`, from the words of an error about it.
fn matched(name: &str, count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    let what = name.strip_prefix("failed to compile script ").map(|file| format!("script '{file}'"));
    let what = what.unwrap_or_else(|| name.replace("invalid probe specifier ", "description '") + "'");
    format!("{what} matched {count} probe{plural}")
}

fn guest(line: &Line, talk: &Talk) -> Result<Guest, Stop> {
    let image = line.guest.as_deref().unwrap_or(IDLE);
    let builder = crate::options::image(image, line.initrd.as_deref(), &line.symbols);
    let builder = if line.guest.is_none() { builder.memory(IDLE_MEMORY) } else { builder };
    Ok(crate::options::open(&builder, &talk.without_notes())?)
}

/// The program of the command line.
fn program(line: &Line) -> Result<DSource, Stop> {
    let cpp = line.cpp();
    let read = |text: &Text| match text {
        Text::File(path) => cpp.file(path),
        Text::Given(text) => cpp.clauses(text),
    };
    let texts: Result<Vec<DText>, TextError> = line.texts.iter().map(read).collect();
    let texts = texts.map_err(|error| match error {
        TextError::File(error) => said(error.to_string()),
        TextError::Cpp(error) => failed(&error, line, &DSource::default()),
    })?;
    Ok(DSource { texts, options: line.options.settings(), arguments: line.operands.clone() })
}

/// What messages call a text.
fn called(name: &str, is_file: bool) -> String {
    let what = if is_file { "failed to compile script" } else { "invalid probe specifier" };
    format!("{what} {name}")
}

/// Whether errors are shown with their tags: `-xerrtags`, also as a directive of the texts.
fn tagged(line: &Line, program: &DSource) -> bool {
    let directive = |text: &DText| {
        String::from_utf8_lossy(&text.text).lines().any(|line| {
            let words: Vec<&str> = line.trim_start_matches(['#', ' ', '\t']).split_whitespace().collect();
            line.trim_start().starts_with('#') && words == ["pragma", "D", "option", "errtags"]
        })
    };
    line.options.flag("errtags") || program.texts.iter().any(directive)
}

fn failed(error: &DError, line: &Line, program: &DSource) -> Stop {
    let tag = if tagged(line, program) { format!("[{}] ", error.tag()) } else { String::new() };
    match error {
        DError::Text { name, is_file, error: Error { line, message, .. }, .. } => {
            said(format!("{}: {tag}line {line}: {message}", called(name, *is_file)))
        }
        other => said(format!("{tag}{other}")),
    }
}

/// Options that cannot be kept.
fn check(compiled: &Compiled) -> Result<(), Stop> {
    let size = compiled.options.number("bufsize");
    if size < LEAST_BUFFER {
        return Err(said(format!(
            "could not enable tracing: Invalid value for specified option: bufsize is {size}, and {LEAST_BUFFER} bytes are the least"
        )));
    }
    Ok(())
}

fn show_code(compiled: &Compiled, out: &mut dyn Write) -> Result<(), Stop> {
    for clause in &compiled.clauses {
        let text = format!(
            "line {}: {}\n{}",
            clause.line,
            clause.descriptions.join(","),
            clause.handler.disassemble()
        );
        out.write_all(text.as_bytes()).map_err(Failure::Output)?;
    }
    Ok(())
}

/// `-l`.
fn list(session: &Session, out: &mut dyn Write) -> Done {
    let mut text = format!("{:>5} {:>10} {:>17} {:>33} NAME\n", "ID", "PROVIDER", "MODULE", "FUNCTION");
    for (id, name) in session.d_probes() {
        text.push_str(&format!(
            "{id:>5} {:>10} {:>17} {:>33} {}\n",
            name.provider, name.module, name.function, name.name
        ));
    }
    out.write_all(text.as_bytes()).map_err(Failure::Output)?;
    Ok(Exit::Ok)
}

/// Prints records as they come.
struct Printer<'a> {
    consumer: Consumer,
    out: &'a mut dyn Write,
    talk: &'a Talk,
}

impl Printer<'_> {
    fn complain(&mut self) {
        for sentence in self.consumer.take_complaints() {
            self.talk.line(&format!("dtrace: {sentence}"));
        }
    }
}

impl Observer for Printer<'_> {
    type Error = io::Error;

    fn record(&mut self, record: &RecordView<'_>, names: &Names<'_>) -> Result<(), io::Error> {
        let Some(probe) = names.probe(record.header.probe) else { return Ok(()) };
        let (id, clause) = (probe.id, record.header.major);
        let firing = Firing { name: probe.name, id, clause, symbols: &|address| names.of_address(address) };
        self.consumer.record(firing, record.data, &mut self.out)?;
        self.complain();
        Ok(())
    }
}

/// Runs the program to its end.
fn follow(session: &mut Session, program: DProgram, out: &mut dyn Write, talk: &Talk) -> Done {
    let Some(setup) = session.d_ends().pop().map(|end| end.setup) else { return Ok(Exit::Ok) };
    let consumer = Consumer::new(Arc::clone(&setup.tables), setup.output.clone());
    let mut printer = Printer { consumer, out, talk };
    session.begin_d(program);
    session.pass_records(&mut printer).map_err(Failure::Output)?;
    let mut crashed = false;
    if session.d_exit(program).is_none() {
        let limits = Limits::insns(u64::MAX).cancelled_by(ctrl_c::listen());
        let ending = session.run(&mut Script::default(), &Condition::end(), &limits, &mut printer);
        let ending = ending.map_err(Failure::Output)?;
        crashed = ending.is_crash();
        if !matches!(ending, Ending::HandlerStopped(_) | Ending::Interrupted) {
            talk.line(&format!("dtrace: {ending}"));
        }
    }
    session.end_d();
    session.pass_records(&mut printer).map_err(Failure::Output)?;
    let Some(end) = session.d_ends().pop() else { return Ok(Exit::Ok) };
    let target = Arc::clone(session.target());
    printer
        .consumer
        .end(end.aggregations, &|address| target.symbol(address), &mut printer.out)
        .map_err(Failure::Output)?;
    printer.complain();
    end.drops
        .sentences(setup.drop_tags)
        .iter()
        .for_each(|sentence| talk.line(&format!("dtrace: {sentence}")));
    match session.d_exit(program) {
        Some(status) => Ok(Exit::Status(status as u8)),
        None if crashed => Ok(Exit::Crashed),
        None => Ok(Exit::Ok),
    }
}
