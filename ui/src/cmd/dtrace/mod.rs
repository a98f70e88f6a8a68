//! `trapline dtrace`: D programs, with the command line and the output of dtrace(1).

mod options;
mod source;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use trapline_d::{Compiled, Compiler, Error, Model};
use trapline_interposer::{DDrops, Event};
use trapline_rpn::Width;
use trapline_session::{
    Condition, DProgram, Ending, Guest, GuestBuilder, GuestTypes, Limits, Names, Observer, Probing, Script,
    Session,
};
use trapline_trace::d::{Consumer, ConsumerOptions, Firing};
use trapline_trace::{ChannelConfig, RecordView, Symbolize};

use crate::ctrl_c;
use crate::failure::{Exit, Failure};
use crate::talk::Talk;
use options::Line;

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
    let model = if guest.target().width() == Width::W64 { Model::Lp64 } else { Model::Ilp32 };
    let types = GuestTypes::new(Arc::clone(guest.target()));
    let compiler = Compiler::new(model, line.options.clone()).with_types(Arc::new(types));
    let (compiled, names) = compile(&line, compiler)?;
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
    let zero = compiled.options.flag("zdefs");
    let tags = compiled.options.flag("errtags");
    let inserted = session.insert_d("dtrace", &compiled, zero).map_err(|error| {
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
    follow(&mut session, inserted, &compiled, out, talk)
}

/// `script 'a.d' matched 2 probes`, from the words of an error about it.
fn matched(name: &str, count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    let what = name.strip_prefix("failed to compile script ").map(|file| format!("script '{file}'"));
    let what = what.unwrap_or_else(|| name.replace("invalid probe specifier ", "description '") + "'");
    format!("{what} matched {count} probe{plural}")
}

fn guest(line: &Line, talk: &Talk) -> Result<Guest, Stop> {
    let builder = match line.guest.as_deref() {
        None => GuestBuilder::image(IDLE).memory(IDLE_MEMORY),
        Some(image) => GuestBuilder::image(image),
    };
    let builder = match &line.initrd {
        Some(file) => builder.initrd(file.clone()),
        None => builder,
    };
    let builder = line.symbols.iter().fold(builder, |builder, file| builder.symbols(file));
    Ok(crate::options::open(&builder, &talk.without_notes())?)
}

/// Compiles all texts. Also given is what messages call each of them.
fn compile(line: &Line, mut compiler: Compiler) -> Result<(Compiled, Vec<String>), Stop> {
    let mut names = Vec::new();
    let variable = |name: &str| source::variable(name);
    for text in &line.texts {
        let (called, zeroth, text) = source::read(text)?;
        let mut arguments = vec![zeroth];
        arguments.extend(line.operands.iter().cloned());
        let tags = |compiler: &Compiler| compiler.options().flag("errtags");
        let text = source::preprocessed(text, &called, line, has_cpp(&compiler))
            .map_err(|why| failed(&called, &why, false))?;
        if let Err(error) = compiler.add(&text, &arguments, &variable) {
            let tagged = tags(&compiler);
            return Err(failed(&called, &error, tagged));
        }
        names.push(called);
    }
    let tagged = compiler.options().flag("errtags");
    let called = names.first().cloned().unwrap_or_default();
    let compiled = compiler.finish().map_err(|error| failed(&called, &error, tagged))?;
    Ok((compiled, names))
}

fn has_cpp(compiler: &Compiler) -> bool {
    compiler.options().flag("cpp")
}

fn failed(called: &str, error: &Error, tagged: bool) -> Stop {
    let tag = if tagged { format!("[{}] ", error.tag) } else { String::new() };
    said(format!("{called}: {tag}line {}: {}", error.line, error.message))
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

fn consumer_options(compiled: &Compiled) -> ConsumerOptions {
    let number = |name| usize::try_from(compiled.options.number(name)).unwrap_or(0);
    ConsumerOptions {
        quiet: compiled.options.flag("quiet"),
        strsize: number("strsize"),
        rawbytes: compiled.options.flag("rawbytes"),
        sort_key: compiled.options.flag("aggsortkey"),
        sort_reverse: compiled.options.flag("aggsortrev"),
        sort_key_position: number("aggsortkeypos"),
        sort_position: number("aggsortpos"),
        stack_indent: number("stackindent").min(200),
    }
}

/// Runs the program to its end.
fn follow(
    session: &mut Session,
    program: DProgram,
    compiled: &Compiled,
    out: &mut dyn Write,
    talk: &Talk,
) -> Done {
    let consumer = Consumer::new(Arc::new(compiled.tables.clone()), consumer_options(compiled));
    let mut printer = Printer { consumer, out, talk };
    session.fire(Event::Begin, &mut printer).map_err(Failure::Output)?;
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
    session.fire(Event::End, &mut printer).map_err(Failure::Output)?;
    let snapshots = session.d_aggregations(program);
    let target = Arc::clone(session.target());
    printer
        .consumer
        .end(snapshots, &|address| target.symbol(address), &mut printer.out)
        .map_err(Failure::Output)?;
    printer.complain();
    dropped(session.d_drops(program), compiled.options.flag("droptags"), talk);
    match session.d_exit(program) {
        Some(status) => Ok(Exit::Status(status as u8)),
        None if crashed => Ok(Exit::Crashed),
        None => Ok(Exit::Ok),
    }
}

/// Says what was dropped, in dtrace(1)'s words.
fn dropped(drops: DDrops, tags: bool, talk: &Talk) {
    let kinds = [
        (drops.principal, "DROP_PRINCIPAL", "drop", " on CPU 0"),
        (drops.aggregation, "DROP_AGGREGATION", "aggregation drop", " on CPU 0"),
        (drops.dynamic, "DROP_DYNAMIC", "dynamic variable drop", ""),
        (drops.speculative, "DROP_SPEC", "speculative drop", ""),
        (drops.unavailable, "DROP_SPECUNAVAIL", "failed speculation", " (no speculative buffer available)"),
    ];
    for (count, tag, what, behind) in kinds.into_iter().filter(|(count, ..)| *count > 0) {
        let tag = if tags { format!("[{tag}] ") } else { String::new() };
        let plural = if count == 1 { "" } else { "s" };
        talk.line(&format!("dtrace: {tag}{count} {what}{plural}{behind}"));
    }
}
