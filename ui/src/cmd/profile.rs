//! `trapline profile`: where a run spends its instructions. It is a run, or a replay, with a probe for the samples and
//! stacks or a table as its output.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::Parser;
use trapline_export::FlameForm;
use trapline_export::profile::{By, ProfileSink};
use trapline_session::{CountBy, Guest, GuestBuilder, Places, Recording};
use trapline_trace::Sink;

use super::run::Own;
use super::{replay, run};
use crate::cli::{
    Cli, Command, CountedBy, Format, OutputArgs, ProfileArgs, RecordFormat, ReplayArgs, RunArgs, SampledArgs,
    is_recording,
};
use crate::failure::{Exit, Failure};
use crate::options;
use crate::output::{Made, OwnSink};
use crate::talk::Talk;

/// Instructions between samples, unless an option says otherwise: a prime number, so that no loop is in step with the samples.
const INSNS: u64 = 10_007;

/// Runs the command.
///
/// # Errors
/// Those of `run` or `replay`.
pub fn run(args: &ProfileArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let command = parsed(words(args))?;
    let is_exact = !args.exact.is_empty();
    let ((shown, exact), form) = match (args.by, is_exact) {
        (None, false) => return run_as(&command, Own::default(), out, talk),
        (None, true) => ((By::Function, CountBy::Stack), Some(form_of(args.output.as_deref()).0)),
        (Some(by), _) => (columns(by), None),
    };
    if args.by.is_some() {
        no_form_of_records(output_of(&command), "--by")?;
    }
    if args.by == Some(CountedBy::Line) {
        has_lines(&command, talk)?;
    }
    let is_json = args.format == Format::Json;
    let sink: OwnSink<'_> = Box::new(move |page, made: Made| {
        let sink = ProfileSink::new(page, shown, made.notes);
        let sink = if is_exact { sink.of(made.counted) } else { sink };
        Box::new(match form {
            Some(form) => sink.as_stacks(form),
            None if is_json => sink.as_json(),
            None => sink,
        }) as Box<dyn Sink>
    });
    let exact = is_exact.then_some((args.exact.as_slice(), exact));
    run_as(&command, Own { sink: Some(sink), exact }, out, talk)
}

/// The form of stacks in a file, and its name.
fn form_of(output: Option<&Path>) -> (FlameForm, &'static str) {
    match output {
        None => (FlameForm::Folded, "folded"),
        Some(file) if file.extension().is_some_and(|end| end == "pb") => (FlameForm::Pprof, "pprof"),
        Some(_) => (FlameForm::Svg, "svg"),
    }
}

/// The column of a table, in samples and in exact counts.
const fn columns(by: CountedBy) -> (By, CountBy) {
    match by {
        CountedBy::Function => (By::Function, CountBy::Function),
        CountedBy::Line => (By::Line, CountBy::Line),
        CountedBy::Process => (By::Process, CountBy::Process),
        CountedBy::Module => (By::Module, CountBy::Module),
    }
}

/// The command that these words are: a run or a replay.
///
/// # Errors
/// The words after `--` are not options of it.
pub fn parsed(words: Vec<OsString>) -> Result<Command, Failure> {
    let parsed = Cli::try_parse_from(words);
    let mut parsed = parsed.map_err(|error| Failure::Usage(first_sentence(&error.to_string())))?;
    if let Command::Run(args) = &mut parsed.command {
        args.settle();
    }
    Ok(parsed.command)
}

/// Runs it.
///
/// # Errors
/// Those of `run` or `replay`.
pub fn run_as<'a>(
    command: &'a Command,
    own: Own<'a>,
    out: &'a mut dyn Write,
    talk: &Talk,
) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run_for(args, own, out, talk),
        Command::Replay(args) => replay::run_for(args, own, out, talk),
        _ => Ok(Exit::Ok),
    }
}

/// The output options of a run or a replay.
pub fn output_of(command: &Command) -> Option<&OutputArgs> {
    match command {
        Command::Run(args) => Some(&args.output),
        Command::Replay(args) => Some(&args.output),
        _ => None,
    }
}

/// Refuses options about the form of records, where a table takes the place of the records.
///
/// # Errors
/// One was given.
pub fn no_form_of_records(output: Option<&OutputArgs>, instead: &str) -> Result<(), Failure> {
    let Some(output) = output else { return Ok(()) };
    let given = [
        (output.format != RecordFormat::Text, "-f"),
        (output.symbols, "--symbols"),
        (output.templates.is_some(), "--templates"),
        (output.log_to.is_some(), "--log-to"),
    ];
    match given.iter().find(|(given, _)| *given) {
        Some((_, option)) => Err(Failure::Usage(format!(
            "{option} after -- has no effect with {instead}, which prints no records"
        ))),
        None => Ok(()),
    }
}

/// Refuses a guest without source lines.
fn has_lines(command: &Command, talk: &Talk) -> Result<(), Failure> {
    let guest = guest_of(command, talk)?;
    let Some(guest) = guest else { return Ok(()) };
    match guest.target().has_source_lines() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::Usage(format!(
            "--by line: neither {} nor a program of this guest has debugging information (DWARF); give that of the kernel \
             with -- --sym FILE",
            guest.name()
        ))),
        Err(why) => Err(Failure::Usage(format!("--by line: {why}"))),
    }
}

/// The guest of a run or a replay.
fn guest_of(command: &Command, talk: &Talk) -> Result<Option<Guest>, Failure> {
    let builder = match command {
        Command::Run(args) => {
            let RunArgs { guest, mem, cmdline, devices, .. } = &**args;
            options::guest(guest, *mem, cmdline, devices)?
        }
        Command::Replay(args) => {
            let ReplayArgs { file, image_dir, .. } = &**args;
            let recording = Recording::read(file)?;
            let places = Places { folders: image_dir.clone(), ..Places::of(file) };
            GuestBuilder::of_recording(&recording, &places)?
        }
        _ => return Ok(None),
    };
    options::open(&builder, &talk.silenced()).map(Some)
}

/// The message of a parser's error, without its name and the help below it.
fn first_sentence(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// The command and what runs, and the probe of the samples.
pub fn sampled_words(args: &SampledArgs, ticks: bool) -> Vec<OsString> {
    let verb = if is_recording(Path::new(&args.image)) { "replay" } else { "run" };
    let mut words: Vec<OsString> = ["trapline", verb, &args.image].map(OsString::from).to_vec();
    if ticks {
        let every = match args.hz {
            Some(hz) => format!("{hz}hz"),
            None => format!("{}insns", args.insns.unwrap_or(INSNS)),
        };
        words.extend(["--rpn".into(), format!("profile:::tick-{every} {{}}").into()]);
    }
    words
}

/// The command line that the profile is.
pub fn words(args: &ProfileArgs) -> Vec<OsString> {
    let is_exact = !args.exact.is_empty();
    let mut words = sampled_words(&args.sampled, !is_exact);
    let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
    match (is_exact, args.by) {
        (false, None | Some(CountedBy::Function)) => {
            add(&["--stack=128", "--ustack=128", "--header", "pid,name"]);
        }
        // The place of the sample alone.
        (false, Some(_)) => add(&["--stack=1", "--ustack=1", "--header", "pid,name"]),
        (true, _) => {}
    }
    if args.by.is_none() {
        add(&["-f", form_of(args.output.as_deref()).1]);
    }
    if let Some(path) = &args.output {
        words.extend(["-o".into(), path.into()]);
    }
    words.extend(args.sampled.options.iter().cloned());
    words
}
