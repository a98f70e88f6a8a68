//! `trapline dtrace`: D programs, with the command line and the output of dtrace(1).

mod growing;
mod list;
mod options;
mod process;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use trapline_d::{Compiled, Error};
use trapline_session::{
    Condition, DError, DProgram, DSource, DText, Ending, Guest, Limits, Names, Observer, Probing, Script,
    Session,
};
use trapline_trace::d::{Consumer, Firing};
use trapline_trace::{HeaderItems, RecordView, Symbolize};

use crate::cmd::insert::d_channel;
use crate::ctrl_c;
use crate::d_text::TextError;
use crate::failure::{Exit, Failure};
use crate::talk::Talk;
use growing::Growing;
use options::{Line, Text, Wish};
use process::{CommandOutput, Process};

/// The guest without `--guest`.
const IDLE: &str = "embedded:idle";
/// Instructions that it takes until it is idle: from there on only its own memory can be read.
const IDLE_BOOT: u64 = 1595;
/// Its memory.
const IDLE_MEMORY: u64 = 4 << 20;
/// Least bytes of `bufsize`: what one record takes by itself.
const LEAST_BUFFER: u64 = 60;

/// What `-l` alone lists.
const EVERY_PROBE: &str = "dtrace:::,:::";

const USAGE: &str = "\
Usage: trapline dtrace [--guest IMAGE [--initrd FILE] [--sym FILE].. [--begin-at TEXT]] [-CeFHlqSvVwZ] [-b BUFSIZE] [-c COMMAND | -p PID] [-D NAME[=VALUE]] [-I FOLDER] [-o FILE]
         [-s SCRIPT] [-U NAME] [-x OPTION[=VALUE]] [-P PROVIDER] [-m MODULE] [-f FUNCTION] [-n NAME] [ARGUMENT]..

Without --guest a script runs on embedded:idle, a machine that serves its timer and otherwise halts.
--initrd FILE     the initial RAM disk of a Linux kernel
--sym FILE        more kernel symbols, and types by debugging information
--begin-at TEXT   the probes are armed, and BEGIN fires, when the guest's console has shown TEXT
-c COMMAND        type COMMAND at the guest's shell, begin with it and end with it; $target is its process
-p PID            end with this process of the guest, which $target stands for
-F                indent entries and returns of functions, with the time that each call took
-l                list the probes, with -v the types of their arguments; -e: only compile";

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
            talk.mention(&format!("dtrace: {sentence}"));
            Ok(Exit::Status(1))
        }
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

fn dtrace(arguments: &[OsString], out: &mut dyn Write, talk: &Talk) -> Done {
    let mut line = Line::parse(arguments).map_err(|bad| said(bad.to_string()))?;
    if line.help || line.version {
        let text = if line.help { USAGE } else { "dtrace: Trapline D 2.0" };
        writeln!(out, "{text}").map_err(Failure::Output)?;
        return Ok(Exit::Ok);
    }
    if line.texts.is_empty() && line.list {
        line.texts.push(Text::Given(EVERY_PROBE.to_owned()));
    }
    if line.texts.is_empty() {
        return Err(said(format!("no program: -n or -s is needed\n{USAGE}")));
    }
    if line.process.is_some() && line.guest.is_none() {
        return Err(said("-c and -p need a guest with processes; give it with --guest IMAGE"));
    }
    let guest = guest(&line, talk)?;
    let program = program(&line, talk)?;
    let compiled = program.compile(guest.target()).map_err(|error| failed(&error, &line, &program))?;
    check(&compiled)?;
    if line.show_code {
        show_code(&compiled, out)?;
    }
    let mut file = match &line.output {
        Some(path) => Some(appended(path)?),
        None => None,
    };
    let out: &mut dyn Write = match &mut file {
        Some(file) => file,
        None => out,
    };
    let done = carried_out(guest, (&line, &program, compiled), out, talk);
    done.map_err(|stop| match (stop, &line.output) {
        (Stop::Failed(Failure::Output(error)), path) => {
            Stop::Failed(Failure::writing(path.as_deref(), error))
        }
        (stop, _) => stop,
    })
}

/// Lists the probes, compiles the program, or runs it.
fn carried_out(
    guest: Guest,
    (line, program, compiled): (&Line, &DSource, Compiled),
    out: &mut dyn Write,
    talk: &Talk,
) -> Done {
    let refused = |error: &DError| not_inserted(error, program, &compiled);
    if line.list {
        let verbose = compiled.options.flag("verbose");
        let listed = list::list(guest.target(), (program, &compiled), verbose, out)?;
        return listed.map(|()| Exit::Ok).map_err(|error| refused(&error));
    }
    if line.compile_only {
        let counts = program.matches(guest.target(), &compiled).map_err(|error| refused(&error))?;
        tell_matches(program, &compiled, &compiled.by_text(&counts), talk);
        return Ok(Exit::Ok);
    }
    run_on(guest, (line, program, compiled), out, talk)
}

/// Starts the guest, goes to where the program begins, and runs it to its end.
fn run_on(
    guest: Guest,
    (line, program, compiled): (&Line, &DSource, Compiled),
    out: &mut dyn Write,
    talk: &Talk,
) -> Done {
    let (mut session, process) = start(guest, line, &compiled)?;
    let compiled = match process {
        None => compiled,
        Some(process) => program
            .compile_about(session.target(), process.number)
            .map_err(|error| failed(&error, line, program))?,
    };
    let inserted = match session.insert_d(program, &compiled) {
        Err(error @ (DError::Destructive | DError::Commands)) => {
            let counts = program.matches(session.target(), &compiled);
            let counts = counts.map_err(|error| not_inserted(&error, program, &compiled))?;
            tell_matches(program, &compiled, &compiled.by_text(&counts), talk);
            return Err(said(error.to_string()));
        }
        inserted => inserted.map_err(|error| not_inserted(&error, program, &compiled))?,
    };
    let counts = match program.texts.len() {
        1 => Ok(vec![inserted.matched]),
        _ => program.matches(session.target(), &compiled).map(|counts| compiled.by_text(&counts)),
    };
    let counts = counts.map_err(|error| not_inserted(&error, program, &compiled))?;
    tell_matches(program, &compiled, &counts, talk);
    if compiled.clauses.is_empty() {
        return Err(said("no probes matched"));
    }
    let growing = Growing::of(&compiled.options);
    let command = match &line.process {
        Some(Wish::Command(command)) => Some(command.as_str()),
        _ => None,
    };
    follow(&mut session, (inserted, process, growing), command, (out, talk))
}

/// The guest where the program begins, and the process that it is about.
fn start(guest: Guest, line: &Line, compiled: &Compiled) -> Result<(Session, Option<Process>), Stop> {
    let flow = compiled.options.flag("flowindent");
    let mut session = guest.start(Probing {
        channel: d_channel(&compiled.options),
        // Entries and returns are paired by thread.
        header: if flow { HeaderItems::default() | HeaderItems::PID } else { HeaderItems::default() },
        ..Probing::default()
    })?;
    if line.guest.is_none() {
        session.run_until(&Condition::end(), &Limits::insns(IDLE_BOOT));
    }
    let shell = line.process.as_ref().map(|_| process::PROMPT);
    if let Some(text) = line.begin_at.as_deref().or(shell) {
        let limits = Limits::none().cancelled_by(ctrl_c::listen());
        let ending = session.run_until(&Condition::console(text), &limits);
        if !matches!(ending, Ending::Until(_)) {
            return Err(said(format!("the guest's console does not show {text:?} (--begin-at): {ending}")));
        }
    }
    let process = match &line.process {
        None => None,
        Some(Wish::Command(command)) => Some(Process::command(&mut session, command)?),
        Some(Wish::Running(number)) => Some(Process::running(&mut session, *number)?),
    };
    Ok((session, process))
}

/// The file of `-o`, to which is added.
fn appended(path: &Path) -> Result<File, Failure> {
    let opened = File::options().create(true).append(true).open(path);
    opened.map_err(|error| Failure::Write { path: path.to_owned(), error })
}

/// What is told when a program cannot be placed in a guest.
fn not_inserted(error: &DError, program: &DSource, compiled: &Compiled) -> Stop {
    let tag = if compiled.options.flag("errtags") { format!("[{}] ", error.tag()) } else { String::new() };
    let name = program.texts.first().map(|text| called(&text.name, text.is_file)).unwrap_or_default();
    said(format!("{name}: {tag}{error}"))
}

/// How many probes a program matches, unless it is quiet.
fn tell_matches(program: &DSource, compiled: &Compiled, counts: &[usize], talk: &Talk) {
    if compiled.options.flag("quiet") {
        return;
    }
    for (text, count) in program.texts.iter().zip(counts) {
        talk.mention(&format!("dtrace: {}", matched(&called(&text.name, text.is_file), *count)));
    }
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
fn program(line: &Line, talk: &Talk) -> Result<DSource, Stop> {
    let cpp = line.cpp(talk);
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
        DError::Text { name, is_file, error, text_line } => {
            let Error { line, message, .. } = &**error;
            let place = if io::stderr().is_terminal() { caret(error, text_line) } else { String::new() };
            said(format!("{}: {tag}line {line}: {message}{place}", called(name, *is_file)))
        }
        other => said(format!("{tag}{other}")),
    }
}

/// The line of an error with a mark below the place, and what was probably meant: for a person at a terminal.
fn caret(error: &Error, text_line: &str) -> String {
    let mut shown = String::new();
    if error.column > 0 && !text_line.is_empty() {
        let blank = |c: char| if c == '\t' { '\t' } else { ' ' };
        let before: String = text_line.chars().take(error.column as usize - 1).map(blank).collect();
        shown = format!("\n  {text_line}\n  {before}^");
    }
    if let Some(help) = &error.help {
        shown.push_str(&format!("\n  {help}"));
    }
    shown
}

/// Options that cannot be kept.
fn check(compiled: &Compiled) -> Result<(), Stop> {
    let size = compiled.options.number("bufsize");
    if size < LEAST_BUFFER {
        return Err(said("could not enable tracing: Enabling exceeds size of buffer"));
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

/// Prints records as they come.
struct Printer<'a> {
    consumer: Consumer,
    out: &'a mut dyn Write,
    talk: &'a Talk,
    /// What shows the output of a command.
    command: Option<CommandOutput>,
}

impl Printer<'_> {
    fn complain(&mut self) {
        for sentence in self.consumer.take_complaints() {
            self.talk.mention(&format!("dtrace: {sentence}"));
        }
    }
}

impl Observer for Printer<'_> {
    type Error = io::Error;

    fn record(&mut self, record: &RecordView<'_>, names: &Names<'_>) -> Result<(), io::Error> {
        let Some(probe) = names.probe(record.header.probe) else { return Ok(()) };
        let header = &record.header;
        let firing = Firing::of(probe, header, names);
        self.consumer.record(firing, record.data, &mut self.out)?;
        self.complain();
        Ok(())
    }

    fn console(&mut self, fresh: &[u8]) -> Result<(), io::Error> {
        self.command.as_mut().map_or(Ok(()), |command| command.pass(fresh))
    }
}

/// Runs the program to its end.
fn follow(
    session: &mut Session,
    (program, process, growing): (DProgram, Option<Process>, Option<Growing>),
    command: Option<&str>,
    (out, talk): (&mut dyn Write, &Talk),
) -> Done {
    let Some(setup) = session.d_ends().pop().map(|end| end.setup) else { return Ok(Exit::Ok) };
    // A program with system() is inserted only where -x system allows it.
    let consumer = Consumer::new(Arc::clone(&setup.tables), setup.output.clone()).with_commands();
    let mut printer = Printer { consumer, out, talk, command: process.map(|_| CommandOutput::default()) };
    session.begin_d(program);
    session.pass_records(&mut printer).map_err(Failure::Output)?;
    let mut crashed = false;
    if session.d_exit(program).is_none() {
        let ending = run_guest(session, (process, growing), &mut printer)?;
        crashed = ending.is_crash();
        let exited = matches!(ending, Ending::HandlerStopped(_)) && session.d_exit(program).is_some();
        if !exited && !matches!(ending, Ending::Interrupted | Ending::Until(_) | Ending::Limit) {
            talk.mention(&format!("dtrace: {ending}"));
        }
    }
    session.end_d();
    session.pass_records(&mut printer).map_err(Failure::Output)?;
    let Some(end) = session.d_ends().pop() else { return Ok(Exit::Ok) };
    printer.consumer.end(end.aggregations, &session.names(), &mut printer.out).map_err(Failure::Output)?;
    printer.complain();
    end.drops
        .sentences(setup.drop_tags)
        .iter()
        .for_each(|sentence| talk.mention(&format!("dtrace: {sentence}")));
    match session.counts().lost() {
        0 => {}
        1 => talk.mention("dtrace: 1 drop on CPU 0"),
        lost => talk.mention(&format!("dtrace: {lost} drops on CPU 0")),
    }
    let complaint = command.and_then(|command| printer.command.as_ref()?.complaint(command));
    if let Some(complaint) = complaint {
        return Err(complaint);
    }
    match session.d_exit(program) {
        Some(status) => Ok(Exit::of_d(status)),
        None if crashed => Ok(Exit::Crashed),
        None => Ok(Exit::Ok),
    }
}

/// Runs the guest until it ends, the program calls `exit()`, or the process has ended.
fn run_guest(
    session: &mut Session,
    (process, mut growing): (Option<Process>, Option<Growing>),
    printer: &mut Printer<'_>,
) -> Result<Ending, Stop> {
    let (condition, cancel) = (Process::end(process), ctrl_c::listen());
    if let Some(process) = process {
        process.release(session)?;
    }
    loop {
        let look = Process::next_look(process, session.icount());
        let next = growing.as_mut().map_or(look, |growing| look.min(growing.next(session.icount())));
        let limits = Limits::insns(next).cancelled_by(Arc::clone(&cancel));
        let ending = session.run(&mut Script::default(), &condition, &limits, printer);
        let ending = ending.map_err(Failure::Output)?;
        let goes_on =
            ending == Ending::Limit && process.map_or(Ok(true), |process| process.is_there(session))?;
        if !goes_on {
            return Ok(ending);
        }
        if let (Some(growing), Some(end)) = (&mut growing, session.d_ends().pop()) {
            let text = printer.consumer.so_far(end.aggregations, &session.names());
            growing.show(&text).map_err(Failure::Output)?;
        }
    }
}
