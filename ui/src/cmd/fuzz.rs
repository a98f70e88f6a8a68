//! `trapline fuzz`: records the run to its hits, or to the calls of a function, and starts the fuzzer, which is a program of its own.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;

use trapline_emu::standard;
use trapline_fuzz::calls::Until;
use trapline_fuzz::objectives::{Objectives, Over};
use trapline_fuzz::{FuzzError, explain};
use trapline_interposer::{Interposer, Place, PointView};
use trapline_providers::Clause;
use trapline_session::{
    Command, Condition, DEFAULT_MEMORY, DText, Ending, Followed, Limits, OwnPrograms, Places, Position,
    Recording, Session, Way, counted, io_sentence,
};

use super::insert::{insert_all, probing};
use super::replay::branch;
use super::run::begin_recording;
use crate::cli::{FuzzArgs, RecordingArgs, is_recording};
use crate::failure::{Exit, Failure};
use crate::talk::Talk;
use crate::{ctrl_c, no_effect, options, overwrite};

/// The program that searches, beside this one.
const FUZZER: &str = "trapline-fuzz";
/// The recording of the run, in the folder of the findings.
const RUN: &str = "run.tlr";
/// Instructions in which hits are looked for, unless --limit-insns says otherwise.
const LIMIT: u64 = 4_000_000_000;
/// Instructions after which it is looked whether there were enough hits.
const SLICE: u64 = 1 << 20;
/// Instructions after which it is told how many there are.
const TOLD: u64 = 500_000_000;

fn failure(error: FuzzError) -> Failure {
    match error {
        FuzzError::Recording(error) => Failure::Recording(error),
        FuzzError::Replay(error) => error.into(),
        FuzzError::Guest(error) => error.into(),
        FuzzError::Command(error) => error.into(),
        FuzzError::Diverged(why) => Failure::Diverged(why),
        other => Failure::Usage(other.to_string()),
    }
}

/// Runs the command.
///
/// # Errors
/// Bad options, files or programs; a run without hits; the fuzzer is not built.
pub fn run(args: &FuzzArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    no_effect::of_fuzz(args)?;
    let image = PathBuf::from(&args.guest.image);
    options::check_folders(&args.image_dir)?;
    if args.explain {
        let recording = Recording::read(&image)?;
        let lines = explain::explained(&recording, &places(args, &image), &args.guest.image);
        for line in lines.map_err(failure)? {
            writeln!(out, "{line}").map_err(Failure::Output)?;
        }
        return Ok(Exit::Ok);
    }
    let over = match (&args.function, args.continued) {
        (Some(_), _) => Over::Function,
        (None, Some(_)) => Over::Continued,
        (None, None) => Over::Handlers,
    };
    let mut objectives = Objectives::of(over);
    args.objective.iter().try_for_each(|text| objectives.with(text)).map_err(failure)?;
    args.no_objective.iter().try_for_each(|name| objectives.without(name)).map_err(failure)?;
    Until::of(until(args)).map_err(failure)?;
    match &args.function {
        Some(_) if args.input.is_empty() => {
            let text = "--function needs an input that is changed: use --input, such as --input arg0:64";
            return Err(Failure::Usage(text.to_owned()));
        }
        Some(probe) if Clause::is_bare(probe) => {}
        Some(probe) => {
            let text = format!(
                "--function {probe}: write the name of a probe without a handler, such as fbt::NAME:entry"
            );
            return Err(Failure::Usage(text));
        }
        None if !is_recording(&image) && !args.probes.any() => {
            return Err(Failure::Usage("there is no handler to search: use -p, -s, -n or --rpn".to_owned()));
        }
        None => {}
    }
    let fuzzer = fuzzer()?;
    let folder = |path: &Path| {
        std::fs::create_dir_all(path).map_err(|error| Failure::Write { path: path.to_owned(), error })
    };
    folder(&args.findings)?;
    args.corpus.as_deref().map_or(Ok(()), folder)?;
    let recorded = match &args.function {
        _ if !is_recording(&image) => record(args, talk)?,
        Some(function) => with_function(args, &image, function, talk)?,
        None => Some(image),
    };
    let Some(recording) = recorded else { return Ok(Exit::Interrupted) };
    // What was closed looks open to it.
    standard::writable(1).and_then(|()| out.flush()).map_err(Failure::Output)?;
    // The fuzzer takes this program's place, so that signals and the exit code are its own.
    let error = command(args, &fuzzer, &recording, talk).exec();
    Err(Failure::Usage(format!("cannot start {}: {}", fuzzer.display(), io_sentence(&error))))
}

/// Where a call of a function ends.
fn until(args: &FuzzArgs) -> &str {
    args.until.as_deref().unwrap_or("return")
}

fn places(args: &FuzzArgs, recording: &Path) -> Places {
    Places { folders: args.image_dir.clone(), ..Places::of(recording) }
}

/// The fuzzer, or the sentence that says how it is built.
fn fuzzer() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(FUZZER));
    beside.filter(|path| path.is_file()).ok_or_else(|| {
        Failure::Usage(format!(
            "the fuzzer is not built: `make fuzzer` builds {FUZZER} beside this program, which takes a few minutes"
        ))
    })
}

/// Records the run to its hits; `None` if a signal has ended it.
fn record(args: &FuzzArgs, talk: &Talk) -> Result<Option<PathBuf>, Failure> {
    let path = args.findings.join(RUN);
    let inputs = overwrite::of_guest(&args.guest).chain(overwrite::of_probes(&args.probes));
    overwrite::check(inputs.chain(args.devices.files()), [("the recording", path.as_path())])?;
    let from = match args.at {
        None => 0,
        Some(Position::At { icount, ordinal: 0 }) => icount,
        Some(_) => {
            let text = "--at of an image takes an instruction count, such as 300M; other positions are those of a recording";
            return Err(Failure::Usage(text.to_owned()));
        }
    };
    let source = options::source_of_run(&args.probes)?;
    let builder =
        options::guest(&args.guest, args.mem.unwrap_or(DEFAULT_MEMORY), &args.cmdline, &args.devices)?;
    let how =
        RecordingArgs { record: Some(path.clone()), embed: false, checkpoint_insns: None, pages: false };
    let (builder, (recorder, file)) =
        begin_recording(&builder, &path, &how, |config| config.probing = probing(&args.probes))?;
    let mut session = options::open(&builder, talk)?.start(probing(&args.probes))?;
    session.record(recorder).map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(probe) = &args.function {
        insert_function(&mut session, probe, talk)?;
    }
    insert_all(&args.probes, &source, args.guest.target.is_some(), &mut session, talk)?;
    file.open()?;
    let interrupted = to_hits(&mut session, from, args, talk);
    let (hits, icount) = (hits_of(&session, args), session.icount());
    session.finish_recording().map_err(|error| Failure::writing(Some(&path), error))?;
    if interrupted {
        talk.warn(&format!(
            "interrupted after {}, when the hits were looked for",
            counted(icount, "instruction")
        ));
        return Ok(None);
    }
    if let (Some(function), 0) = (&args.function, hits) {
        let instructions = counted(icount, "instruction");
        return Err(Failure::Usage(format!(
            "{function} is not hit in {instructions}: use a function that is called, or look further with --limit-insns"
        )));
    }
    talk.note(&format!(
        "the run of {} with {} is in {}",
        counted(icount, "instruction"),
        counted(hits, "hit"),
        path.display()
    ));
    Ok(Some(path))
}

/// A recording with the probe of a function: itself if it has the probe, or the same run with it; `None` if a signal has ended that.
fn with_function(
    args: &FuzzArgs,
    file: &Path,
    function: &str,
    talk: &Talk,
) -> Result<Option<PathBuf>, Failure> {
    let recording = Recording::read(file)?;
    let is_probe = |command: &Command| matches!(command, Command::Clause { text, .. } if DText::clauses(text).name == function);
    if recording.commands().any(is_probe) {
        return Ok(Some(file.to_owned()));
    }
    let path = args.findings.join(RUN);
    overwrite::check(std::iter::once(file), [("the recording", path.as_path())])?;
    let builder = options::of_recording(&recording, &places(args, file))?;
    let probing = recording.config().probing.clone();
    let (recorder, late) = branch(&builder, &recording, &probing, &path)?;
    let mut session = options::open(&builder, talk)?.start(probing)?;
    session.record(recorder).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut course = recording.course(Way::Branch, OwnPrograms::Stay);
    let begun = session.begin_as(&mut course);
    begun.map_err(|diverged| Failure::Diverged(diverged.to_string()))?;
    insert_function(&mut session, function, talk)?;
    late.open()?;
    let limits = Limits::none().cancelled_by(ctrl_c::listen());
    let Ok(followed) = session.follow(&mut course, None, &limits, &mut ());
    let followed = followed.map_err(|diverged| Failure::Diverged(diverged.to_string()))?;
    session.finish_recording().map_err(|error| Failure::writing(Some(&path), error))?;
    talk.note(&format!("the run with {function} is in {}", path.display()));
    Ok((followed != Followed::Interrupted).then_some(path))
}

/// The probe of a function. Its handler leaves no record.
fn probe_of(function: &str) -> Command {
    Command::clause(&format!("{function} {{ abort }}"))
}

/// Inserts the probe of a function, and says if it is that of several functions with one name.
fn insert_function(session: &mut Session, function: &str, talk: &Talk) -> Result<(), Failure> {
    session.apply(probe_of(function))?;
    let programs = session.interposer().map(Interposer::programs).unwrap_or_default();
    let points = programs.last().map(|program| program.points.as_slice()).unwrap_or_default();
    let address = |point: &PointView<'_>| match point.place {
        Place::Kernel { linear, .. } => Some(format!("{linear:#x}")),
        _ => None,
    };
    let places: Vec<String> = points.iter().filter_map(address).collect();
    if places.len() > 1 {
        let many = counted(places.len() as u64, "place");
        talk.note(&format!(
            "{function} has {many}, and its calls at all of them count: {}",
            places.join(", ")
        ));
    }
    Ok(())
}

/// The hits so far: of the function, if there is one.
fn hits_of(session: &Session, args: &FuzzArgs) -> u64 {
    let function = session.interposer().filter(|_| args.function.is_some());
    let function = function.and_then(|i| i.programs().first().map(|program| program.hits));
    function.unwrap_or_else(|| session.stats().hits)
}

/// Runs until there were enough hits after the position, or the run ends. Returns whether a signal has ended it.
fn to_hits(session: &mut Session, from: u64, args: &FuzzArgs, talk: &Talk) -> bool {
    let interrupted = ctrl_c::listen();
    let run_to = |session: &mut Session, icount: u64| {
        let limits = Limits::insns(icount).in_passing().cancelled_by(Arc::clone(&interrupted));
        let ending = session.run_until(&Condition::end(), &limits);
        session.records().for_each(drop);
        ending
    };
    if from > 0 {
        let ending = run_to(session, from);
        if ending != Ending::Limit {
            return ending == Ending::Interrupted;
        }
    }
    let hits = |session: &Session| hits_of(session, args);
    let (before, mut told) = (hits(session), 0);
    let last = from.saturating_add(args.limit_insns.unwrap_or(LIMIT));
    while hits(session) - before <= args.hits && session.icount() < last {
        let next = session.icount().saturating_add(SLICE).min(last);
        let ending = run_to(session, next);
        if ending != Ending::Limit {
            return ending == Ending::Interrupted;
        }
        if next - from >= told + TOLD {
            told = next - from;
            let hits = counted(hits(session) - before, "hit");
            talk.note(&format!(
                "{hits} of {} after {next} instructions; --limit-insns ends the run earlier",
                args.hits + 1
            ));
        }
    }
    false
}

/// The command that starts the fuzzer.
fn command(args: &FuzzArgs, fuzzer: &Path, recording: &Path, talk: &Talk) -> Process {
    let mut process = Process::new(fuzzer);
    process.arg(recording).arg("--findings").arg(&args.findings);
    process.arg("--hits").arg(args.hits.to_string()).arg("--seed").arg(args.seed.to_string());
    process.arg("--jobs").arg(args.jobs.to_string());
    let texts =
        [("--objective", &args.objective), ("--no-objective", &args.no_objective), ("--fix", &args.fix)];
    for (option, values) in texts {
        process.args(values.iter().map(|value| format!("{option}={value}")));
    }
    process.args(args.input.iter().map(|input| format!("--input={input}")));
    for folder in &args.image_dir {
        process.arg("--image-dir").arg(folder);
    }
    let corpus = args.corpus.as_ref().map(|folder| folder.clone().into_os_string());
    let options = [
        ("--corpus", corpus),
        ("--at", args.at.map(|at| at.to_string().into())),
        ("--time", args.time.map(|time| format!("{}s", time.as_secs()).into())),
        ("--execs", args.execs.map(|execs| execs.to_string().into())),
        ("--continue", args.continued.map(|insns| insns.to_string().into())),
        ("--function", args.function.clone().map(OsString::from)),
        ("--until", args.function.as_ref().map(|_| until(args).into())),
        ("--broker", args.broker.map(|address| address.to_string().into())),
        ("--join", args.join.map(|address| address.to_string().into())),
    ];
    for (option, value) in options.into_iter().filter_map(|(option, value)| Some((option, value?))) {
        process.arg(option).arg(value);
    }
    if talk.is_quiet() {
        process.arg("--quiet");
    }
    process
}
