//! `trapline run`: boot an image, insert probe programs, print their records.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};
use trapline_providers::resolve;
use trapline_session::{
    CHECKPOINT_INSNS, Command, CommandError, Compression, Condition, CountBy, Ending, Guest, GuestBuilder,
    InputLine, Limits, Probing, Recorder, Script, Session, SourceOptions, counted, file_name,
};
use trapline_trace::{HeaderItems, RunInfo};

use super::insert::{insert_all, names_of, probing_after};
use super::only::Only;
use super::report::{self, Ended};
use super::{dti, dump, reach};
use crate::cli::{OutputArgs, RecordingArgs, RunArgs};
use crate::failure::{Exit, Failure};
use crate::interactive::{self, Person};
use crate::late_file::LateFile;
use crate::no_effect::Uses;
use crate::output::{Outputs, OwnSink, Wants, choose};
use crate::progress::of_runs;
use crate::reserved_file::ReservedFile;
use crate::talk::Talk;
use crate::{ctrl_c, no_effect, options, overwrite};

/// Runs the command.
///
/// # Errors
/// Before the run: bad files, programs and options. During it: an output that cannot be written.
pub fn run(args: &RunArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    run_for(args, Own::default(), out, talk)
}

/// What another command makes of a run.
#[derive(Default)]
pub struct Own<'a> {
    /// The sink of the records.
    pub sink: Option<OwnSink<'a>>,
    /// The functions whose instructions are counted, and by what.
    pub exact: Option<(&'a [String], CountBy)>,
}

impl Own<'_> {
    /// Counts instructions from here on, if they are to be counted.
    ///
    /// # Errors
    /// There is no such function.
    pub fn count(&self, session: &mut Session) -> Result<(), Failure> {
        let Some((functions, by)) = self.exact else { return Ok(()) };
        session.count_exactly(functions, by).map_err(|error| Failure::Usage(format!("--exact: {error}")))
    }
}

/// Runs the command for another one.
///
/// # Errors
/// Those of [`run`].
pub fn run_for<'a>(
    args: &'a RunArgs,
    own: Own<'a>,
    out: &'a mut dyn Write,
    talk: &Talk,
) -> Result<Exit, Failure> {
    no_effect::of_run(args)?;
    let inputs = overwrite::of_guest(&args.guest).chain(overwrite::of_probes(&args.probes));
    let inputs = inputs.chain(args.devices.files()).chain(args.script.as_deref());
    let inputs = inputs.chain(args.restore.as_deref());
    let recording = args.recording.record.as_deref().map(|path| ("the recording", path));
    let snapshot = args.save.as_deref().map(|path| ("the snapshot", path));
    let dump = args.dump_on_crash.as_deref().map(|path| ("the dump", path));
    interactive::check(args, args.brings_probes())?;
    let outputs = recording.into_iter().chain(snapshot).chain(dump).chain(overwrite::of_output(&args.output));
    overwrite::check(inputs, outputs)?;
    let signals = ctrl_c::prepare();
    let source = options::source_of_run(&args.probes)?;
    let builder = options::guest(&args.guest, args.mem, &args.cmdline, &args.devices)?;
    let (builder, recorder) = recorder(args, builder.require_signed(source.signed_by))?;
    let (recorder, file) = recorder.unzip();
    let mut prepared = prepared(args, &source, &builder, recorder, talk)?;
    own.count(&mut prepared.session)?;
    let cancelled = signals.run();
    let items = (args.probes.header.unwrap_or_default(), args.probes.core_dir.as_deref());
    let probed = args.brings_probes() || prepared.session.interposer().is_some();
    interactive::check(args, probed)?;
    let probed = probed || own.sink.is_some();
    let wants = Wants { probed, by_hand: args.interactive, asked: false, flow: args.flow };
    let mut outputs = choose(&args.output, items, wants, own.sink, out, *talk)?;
    outputs.begin(&RunInfo {
        image: prepared.guest.name().to_owned(),
        width: bits(&prepared.guest),
        extra: prepared.header_fields(args),
    })?;
    file.map_or(Ok(()), |file| file.open())?;
    let snapshot = args.save.as_deref().map(ReservedFile::reserve).transpose()?;
    let dump = args.dump_on_crash.as_deref().map(ReservedFile::reserve).transpose()?;
    args.dti_on_crash.as_deref().map_or(Ok(()), dti::save::reserve)?;
    let limits = Limits::insns(args.limit_insns.unwrap_or(u64::MAX)).cancelled_by(Arc::clone(&cancelled));
    let progress = (!args.interactive).then(|| talk.progress(of_runs(args.limit_insns)));
    let ran = if args.interactive {
        prepared.run_by_hand(args, &limits, cancelled, &mut outputs, talk)
    } else {
        prepared.run(args, &limits, &mut outputs, None, talk)
    };
    drop(progress);
    prepared.finish(args, ran, (snapshot, dump), outputs, talk)
}

/// The start of a run.
struct Prepared {
    guest: Guest,
    session: Session,
    script: Script,
    observe_only: bool,
}

impl Prepared {
    /// Fields of the JSON header line: the programs of a snapshot were not named on the command line.
    fn header_fields(&self, args: &RunArgs) -> Vec<(String, Value)> {
        let mut fields = header_fields(args, Some(self.observe_only));
        if let Some((_, names)) =
            fields.iter_mut().find(|(name, _)| args.restore.is_some() && name == PROGRAMS)
        {
            let programs = self.session.interposer().map(|probes| probes.programs()).unwrap_or_default();
            *names = json!(programs.iter().map(|program| program.name).collect::<Vec<_>>());
        }
        fields
    }

    /// Runs to the end, and answers the queries for the end.
    fn run(
        &mut self,
        args: &RunArgs,
        limits: &Limits,
        outputs: &mut Outputs<'_>,
        person: Option<Person>,
        talk: &Talk,
    ) -> Result<Ending, Failure> {
        let (session, script, condition) = (&mut self.session, &mut self.script, condition(args));
        let ending = match person {
            None => session.run(script, &condition, limits, outputs)?,
            Some(mut person) => session.run_attended(script, &condition, limits, outputs, &mut person)?,
        };
        for line in self.script.left().into_iter().filter(|_| !matches!(ending, Ending::ScriptFailed(_))) {
            talk.note(&format!("{} was never reached", self.script.place(line)));
        }
        end_d(&mut self.session, outputs, None, 0)?;
        ask(&args.output, &mut self.session, outputs)?;
        Ok(ending)
    }

    /// Runs with a person at the console. Replies to that person's own keys are not printed.
    fn run_by_hand(
        &mut self,
        args: &RunArgs,
        limits: &Limits,
        cancelled: Arc<AtomicBool>,
        outputs: &mut Outputs<'_>,
        talk: &Talk,
    ) -> Result<Ending, Failure> {
        let person = Person::sits_down(
            file_name(self.guest.name()),
            self.guest.has_virtio_console(),
            cancelled,
            *talk,
        )?;
        outputs.talk = talk.without_notes();
        let ran = self.run(args, limits, outputs, Some(person), talk);
        outputs.talk = *talk;
        // Later messages begin on a new line.
        if self.session.console().last().is_some_and(|last| *last != b'\n') {
            talk.mention("");
        }
        ran
    }

    /// Completes the outputs. If one output has failed, the others are still complete.
    fn finish(
        mut self,
        args: &RunArgs,
        ran: Result<Ending, Failure>,
        (snapshot, dump): (Option<ReservedFile<'_>>, Option<ReservedFile<'_>>),
        outputs: Outputs<'_>,
        talk: &Talk,
    ) -> Result<Exit, Failure> {
        let session = &mut self.session;
        let crashed = ran.as_ref().is_ok_and(|ending| Exit::from(ending) == Exit::Crashed);
        let dumped = dump.map_or(Ok(()), |file| match crashed {
            true => dump::write(&file, &session.vmcore(), Compression::None),
            false => {
                talk.note(&format!("the guest did not crash, so {} was not written", file.path().display()));
                file.give_up();
                Ok(())
            }
        });
        let is_saved = crashed || matches!(ran, Ok(Ending::Until(_)));
        let traced = args.dti_on_crash.as_deref().map_or(Ok(()), |folder| match is_saved {
            true => dti::save::write(folder, session, talk),
            false => {
                dti::save::give_up(folder, talk);
                Ok(())
            }
        });
        let saved = match snapshot {
            Some(file) if ran.is_ok() => save(&file, session, talk),
            Some(file) => {
                file.give_up();
                Ok(())
            }
            None => Ok(()),
        };
        session.apply(Command::Silence)?;
        let recorded = session.finish_recording();
        let recorded = recorded.map_err(|error| Failure::writing(args.recording.record.as_deref(), error));
        let ended = match &ran {
            Ok(ending) => Ended::by(ending, exit(args, ending, session)),
            Err(failure) => Ended::failed(failure),
        };
        let finished = report::finish(&args.output, session, &ended, outputs, talk);
        let exit = ended.exit;
        report::first([ran.map(|_| ()), finished, recorded, saved, dumped, traced], talk)?;
        Ok(exit)
    }
}

fn prepared(
    args: &RunArgs,
    source: &SourceOptions,
    builder: &GuestBuilder,
    recorder: Option<Recorder>,
    talk: &Talk,
) -> Result<Prepared, Failure> {
    let guest = options::open(builder, talk)?;
    let mut session = guest.start(probing_of(args)?)?;
    if let Some(path) = &args.restore {
        reach::restore(&mut session, path)?;
        reaches_beyond(args, path, session.icount())?;
    }
    if let Some(recorder) = recorder {
        session.record(recorder).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let needs_target = args.guest.target.is_some() && args.script.is_none();
    insert_all(&args.probes, source, needs_target, &mut session, talk)?;
    let script = script(args, source, &session)?;
    let mut uses = Uses::of(&session);
    let observe_only = check_script(&script, &guest, &mut uses, talk)? && session.observe_only();
    uses.check(&args.probes)?;
    Ok(Prepared { guest, session, script, observe_only })
}

/// Writes the state of a session to a file.
fn save(file: &ReservedFile<'_>, session: &mut Session, talk: &Talk) -> Result<(), Failure> {
    let saved = session.snapshot();
    let bytes = saved.to_bytes().map_err(|error| Failure::Usage(error.to_string()))?;
    std::fs::write(file.path(), bytes).map_err(|error| Failure::writing(Some(file.path()), error))?;
    talk.note(&format!("the state after {} instructions is in {}", saved.icount(), file.path().display()));
    Ok(())
}

/// Refuses a limit that the snapshot from which the run begins has passed.
fn reaches_beyond(args: &RunArgs, snapshot: &Path, icount: u64) -> Result<(), Failure> {
    let Some(limit) = args.limit_insns.filter(|limit| *limit < icount) else { return Ok(()) };
    Err(Failure::Usage(format!(
        "--limit-insns {limit} is before the snapshot {}, which was taken after {}: the limit counts from the start of the \
         guest",
        snapshot.display(),
        counted(icount, "instruction")
    )))
}

/// How the guest is probed. `-F` pairs entries and returns by thread.
fn probing_of(args: &RunArgs) -> Result<Probing, Failure> {
    let before = reach::probing_of_snapshot(args.restore.as_deref())?;
    let probing = probing_after(&args.probes, before.as_ref());
    let by_thread = if args.flow { HeaderItems::PID } else { HeaderItems::empty() };
    Ok(Probing { header: probing.header | by_thread, ..probing })
}

/// The recorder of the run, if one is requested, and a guest that uses the files as they were read for it.
fn recorder(
    args: &RunArgs,
    builder: GuestBuilder,
) -> Result<(GuestBuilder, Option<(Recorder, LateFile)>), Failure> {
    let Some(path) = &args.recording.record else { return Ok((builder, None)) };
    let header: Map<String, Value> = header_fields(args, None).into_iter().collect();
    let about = [("header", header.into()), ("probed", args.is_probed().into())];
    let probing = probing_of(args)?;
    let (builder, recorder) = begin_recording(&builder, path, &args.recording, |config| {
        config.probing = probing;
        config.about = about.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    })?;
    Ok((builder, Some(recorder)))
}

/// Begins a recording of a guest in this file, which is to be opened when the run begins.
///
/// # Errors
/// The guest's files cannot be read.
pub fn begin_recording(
    builder: &GuestBuilder,
    path: &Path,
    args: &RecordingArgs,
    set: impl FnOnce(&mut trapline_session::RunConfig),
) -> Result<(GuestBuilder, (Recorder, LateFile)), Failure> {
    let (builder, mut config, blobs) = builder.recorded(args.embed)?;
    config.checkpoint_insns = args.checkpoint_insns.unwrap_or(CHECKPOINT_INSNS);
    set(&mut config);
    let file = LateFile::new(path);
    let recorder = Recorder::begin(Box::new(file.writer()), &config, &blobs)
        .map_err(|error| Failure::writing(Some(path), error))?;
    Ok((builder, (if args.pages { recorder.with_pages() } else { recorder }, file)))
}

/// The conditions that end the run.
fn condition(args: &RunArgs) -> Condition {
    let until = args.until.iter().fold(Condition::end(), |condition, text| condition.or_console(text));
    let crash = args.crash_on.iter().fold(until, |condition, text| condition.or_crash_text(text));
    args.stop_after.into_iter().fold(crash, Condition::or_hits)
}

/// Runs the clauses of END, and writes what the D programs leave, but for the programs that are `hidden`. `seq` is the
/// number of the last record that was shown.
///
/// # Errors
/// An output that cannot be written.
pub fn end_d(
    session: &mut Session,
    outputs: &mut Outputs<'_>,
    hidden: Option<Vec<String>>,
    seq: u64,
) -> Result<(), Failure> {
    if !session.has_d() {
        return Ok(());
    }
    session.apply(Command::End)?;
    session.pass_records(&mut Only::new(outputs, hidden.clone(), seq))?;
    outputs.d_ends(session, |end| hidden.as_ref().is_none_or(|hidden| !hidden.contains(&end.name)))
}

/// Answers the queries of `--query` and `--getvars` at the end.
///
/// # Errors
/// An output that cannot be written.
pub fn ask(args: &OutputArgs, session: &mut Session, outputs: &mut Outputs<'_>) -> Result<(), Failure> {
    let asked = [(args.query, Command::Query), (args.getvars, Command::GetVars { name: None })];
    for (_, command) in asked.into_iter().filter(|(wanted, _)| *wanted) {
        let reply = session.apply(command)?;
        let written = outputs.sink.reply(&reply.for_sink());
        written.map_err(|error| Failure::writing(outputs.records.as_deref(), error))?;
    }
    Ok(())
}

/// The guest's word in bits.
pub fn bits(guest: &Guest) -> u8 {
    guest.target().width().bits()
}

/// Characters of an address with its `0x`.
pub fn digits(guest: &Guest) -> usize {
    2 + 2 * guest.target().width().bytes()
}

/// The script, or one without lines.
fn script(args: &RunArgs, source: &SourceOptions, session: &Session) -> Result<Script, Failure> {
    let Some(path) = &args.script else { return Ok(Script::default()) };
    let programs = session.interposer().map(|interposer| interposer.programs()).unwrap_or_default();
    let inserted: Vec<String> = programs.iter().map(|program| program.name.to_owned()).collect();
    Ok(Script::read(path, &inserted, source)?)
}

/// Checks a script against the guest: its files, and whether there is a console for input. Returns whether all programs
/// only observe, and notes in `uses` what they may do.
fn check_script(script: &Script, guest: &Guest, uses: &mut Uses, talk: &Talk) -> Result<bool, Failure> {
    let mut observe_only = true;
    for command in script.commands() {
        let at_virtio = matches!(command, Command::Type { line: InputLine::Virtio, .. });
        if at_virtio && !guest.has_virtio_console() {
            return Err(CommandError::NoVirtioConsole.into());
        }
        // The effects of the handler are known when its description is looked up.
        let may_exit = matches!(command, Command::Clause { text, .. } if text.contains("exit"));
        let dumps = may_exit || matches!(command, Command::Dump);
        (uses.cores, uses.dumps) = (uses.cores | may_exit, uses.dumps | dumps);
        if let Command::Insert { program, .. } = command {
            talk.remarks(&program.warnings);
            let resolved = resolve(guest.target(), program).map_err(Failure::Compile)?;
            uses.add(&resolved.program);
            observe_only &= resolved.program.probes.iter().all(|probe| probe.handler.observe_only());
        }
    }
    Ok(observe_only)
}

/// Fields of the JSON header line beyond those that every run has. Whether the programs only observe is not known before they
/// are inserted.
fn header_fields(args: &RunArgs, observe_only: Option<bool>) -> Vec<(String, Value)> {
    let mut fields = vec![
        (PROGRAMS, json!(names_of(&args.probes))),
        (OBSERVE_ONLY, json!(observe_only)),
        ("mem", json!(args.mem)),
    ];
    fields.extend(args.devices.header_fields());
    fields.extend(args.script.iter().map(|path| ("script", json!(path.display().to_string()))));
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

const PROGRAMS: &str = "programs";
const OBSERVE_ONLY: &str = "observe_only";

/// A field of the header line, now that it is known whether the programs only observe.
pub fn with_observe_only((name, value): (String, Value), observe_only: bool) -> (String, Value) {
    let value = if name == OBSERVE_ONLY { observe_only.into() } else { value };
    (name, value)
}

/// The exit code: first a crash, Ctrl-C or a script that failed, then the failures that options request, then the
/// status that a D program has given to `exit()`, then the ending of the run.
fn exit(args: &RunArgs, ending: &Ending, session: &mut Session) -> Exit {
    match Exit::from(ending) {
        exit @ (Exit::Crashed | Exit::Interrupted | Exit::Usage | Exit::BadFile) => exit,
        _ if args.fail_on_exception && session.stats().exceptions > 0 => Exit::HandlerException,
        _ if args.fail_on_loss && (session.counts().lost() > 0 || session.d_dropped()) => Exit::Lost,
        exit => session.d_status().map_or(exit, Exit::of_d),
    }
}
