//! `trapline run`: boot an image, insert probe programs, print their records.

use std::io::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use trapline_emu::Machine;
use trapline_interposer::{Interposer, InterposerConfig, Stats};
use trapline_providers::{Target, resolve};
use trapline_trace::{ChannelConfig, End, RunInfo};

use crate::cli::{RecordFormat, RunArgs};
use crate::crash::{self, CrashWatch};
use crate::failure::{Exit, Failure};
use crate::gate::{self, Command, GateError, InputLine, Selection};
use crate::guest::Guest;
use crate::output::{Outputs, choose};
use crate::script::{self, Script};
use crate::session::{Ending, Session, Watch};
use crate::talk::{Talk, counted};
use crate::{errors, interrupt, programs};

/// Runs the command.
///
/// # Errors
/// Before the run: bad files, programs and options. During it: an output that cannot be written.
pub fn run(args: &RunArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let guest = Guest::open(&args.guest, talk)?;
    let mut machine = guest.machine(args.mem, &args.cmdline, &args.devices)?;
    let mut interposer = insert_all(args, &guest, &mut machine, talk)?;
    let mut script = script(args)?;
    let observe_only = check_script(&script, &guest, args, talk)?;
    if let Some(interposer) = &mut interposer {
        select(args, interposer, &mut machine)?;
    }
    let mut outputs = choose(args, out, *talk)?;
    let info = RunInfo {
        image: guest.name.clone(),
        width: bits(&guest),
        extra: header_fields(args, observe_only && interposer.as_ref().is_none_or(Interposer::observe_only)),
    };
    outputs.sink.begin(&info).map_err(|error| Failure::writing(outputs.records.as_deref(), error))?;
    let mut session = Session::new(machine, interposer, args.core_dir.clone());
    interrupt::listen();
    let crash = CrashWatch::new(&guest.target);
    let watch = Watch { until: &args.until, crash_on: &args.crash_on, crash };
    let limit = args.limit_insns.unwrap_or(u64::MAX);
    let ending = session.run(&guest.target, &watch, limit, &mut script, &mut outputs)?;
    for line in script.left().into_iter().filter(|_| ending.exit() != Exit::Usage) {
        talk.note(&format!("{} never came due", script.place(line)));
    }
    ask(args, &mut session, &guest.target, &mut outputs)?;
    if let Some(interposer) = &mut session.interposer {
        interposer.silence(session.machine.core_mut());
    }
    finish(args, &mut session, &ending, outputs, talk)
}

/// What `--query` and `--getvars` ask at the end.
fn ask(
    args: &RunArgs,
    session: &mut Session,
    target: &Target,
    outputs: &mut Outputs<'_>,
) -> Result<(), Failure> {
    let asked = [(args.query, Command::Query), (args.getvars, Command::GetVars { name: None })];
    for (_, command) in asked.into_iter().filter(|(wanted, _)| *wanted) {
        // Neither names a program: neither can fail.
        let Ok(done) = gate::apply(session, target, &command) else { continue };
        let written = outputs.sink.reply(&done.reply);
        written.map_err(|error| Failure::writing(outputs.records.as_deref(), error))?;
    }
    Ok(())
}

/// The guest's word in bits.
pub fn bits(guest: &Guest) -> u8 {
    guest.target.width().bits()
}

/// Characters of an address with its `0x`.
pub fn digits(guest: &Guest) -> usize {
    2 + 2 * guest.target.width().bytes()
}

/// The script, or one without lines.
fn script(args: &RunArgs) -> Result<Script, Failure> {
    let Some(path) = &args.script else { return Ok(Script::default()) };
    let inserted: Vec<String> = args.probe.iter().map(|path| path.display().to_string()).collect();
    script::parse(path, &inserted, &args.source)
}

/// Checks a script against the guest: its files, and what there is to type at. Whether all programs only observe.
fn check_script(script: &Script, guest: &Guest, args: &RunArgs, talk: &Talk) -> Result<bool, Failure> {
    let mut observe_only = true;
    for command in script.commands() {
        let at_virtio = matches!(command, Command::Type { line: InputLine::Virtio, .. });
        if at_virtio && !args.devices.virtio_console {
            return Err(Failure::Usage(GateError::NoVirtioConsole.to_string()));
        }
        if let Command::Insert { program, .. } = command {
            talk.remarks(&program.warnings);
            let resolved = resolve(&guest.target, program).map_err(Failure::Compile)?;
            observe_only &= resolved.program.probes.iter().all(|probe| probe.handler.observe_only());
        }
    }
    Ok(observe_only)
}

/// The names of an option, which may stand behind a `=` of their own, as DProbes' manual has it.
fn names(values: &[String]) -> Vec<String> {
    let bare = values.iter().map(|value| value.strip_prefix('=').unwrap_or(value));
    bare.filter(|value| !value.is_empty()).map(str::to_owned).collect()
}

/// Disables the probe points that `--group` and `--type` leave out.
fn select(args: &RunArgs, interposer: &mut Interposer, machine: &mut Machine) -> Result<(), Failure> {
    let wanted = Selection { groups: names(&args.group), kinds: names(&args.kind), ..Selection::default() };
    if wanted == Selection::default() {
        return Ok(());
    }
    let (mut left_out, mut chosen) = (Vec::new(), 0);
    for program in interposer.programs() {
        for (n, point) in program.points.iter().enumerate() {
            if wanted.holds(point) {
                chosen += 1;
            } else {
                left_out.push((program.id, n));
            }
        }
    }
    if chosen == 0 {
        return Err(Failure::Usage(format!("no probe point of the programs has {}", wanted.words())));
    }
    for (id, point) in left_out {
        // Disabling cannot fail.
        let _ = interposer.set_enabled(machine.core_mut(), id, point, false);
    }
    let ended = interposer.end_selection();
    ended.map_err(|(name, kind)| Failure::Program { file: name.to_owned(), reason: kind.to_string() })
}

/// All programs in an interposer; without programs and script none, so that the machine runs alone.
fn insert_all(
    args: &RunArgs,
    guest: &Guest,
    machine: &mut Machine,
    talk: &Talk,
) -> Result<Option<Interposer>, Failure> {
    if !args.is_probed() {
        return Ok(None);
    }
    let mut interposer = Interposer::new(InterposerConfig {
        header: args.header,
        channel: args.channel.unwrap_or_else(ChannelConfig::growing),
        profile: guest.profile(),
        max_steps: args.max_steps,
    });
    interposer.allow_cores(args.max_cores);
    let target = Arc::clone(&guest.target);
    interposer.name_symbols(Box::new(move |address| target.symbol_at(address)));
    interposer.set_watch_unlimited(args.watch_unlimited);
    interposer.unwind_with(guest.target.unwinder());
    interposer.set_stack_depth(args.stack.unwrap_or_default().into());
    interposer.set_user_stack_depth(args.ustack.unwrap_or_default().into());
    if let Some(hits) = args.stop_after {
        interposer.stop_after_hits(hits);
    }
    if !args.group.is_empty() || !args.kind.is_empty() {
        interposer.begin_selection();
    }
    for path in &args.probe {
        let program = programs::read(path, &args.source)?;
        let name = path.display().to_string();
        programs::insert(&mut interposer, machine.core_mut(), &guest.target, (&name, &program), talk)?;
    }
    for text in &args.clauses {
        programs::insert_clause(&mut interposer, machine.core_mut(), &guest.target, text, talk)?;
    }
    Ok(Some(interposer))
}

/// Fields of the JSON header line beyond those that every run has.
fn header_fields(args: &RunArgs, observe_only: bool) -> Vec<(String, Value)> {
    let files = args.probe.iter().map(|path| path.display().to_string());
    let programs: Vec<String> = files.chain(args.clauses.iter().map(|text| format!("-n {text}"))).collect();
    let mut fields =
        vec![("programs", json!(programs)), ("observe_only", json!(observe_only)), ("mem", json!(args.mem))];
    fields.extend(args.devices.header_fields());
    fields.extend(args.script.iter().map(|path| ("script", json!(path.display().to_string()))));
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The exit code: a crash, Ctrl-C or a script that failed first, then what was asked to fail, then how the run ended.
fn exit(args: &RunArgs, ending: &Ending, exceptions: u64, lost: u64) -> Exit {
    match ending.exit() {
        exit @ (Exit::Crashed | Exit::Interrupted | Exit::Usage) => exit,
        _ if args.fail_on_exception && exceptions > 0 => Exit::HandlerException,
        _ if args.fail_on_loss && lost > 0 => Exit::Lost,
        exit => exit,
    }
}

fn finish(
    args: &RunArgs,
    session: &mut Session,
    ending: &Ending,
    mut outputs: Outputs<'_>,
    talk: &Talk,
) -> Result<Exit, Failure> {
    let (stats, lost) = (session.stats(), session.lost());
    let exit = exit(args, ending, stats.exceptions, lost);
    let wanted = args.digest || args.format != RecordFormat::Text;
    let digest = wanted.then(|| session.machine.digest().to_string());
    let mut extra = vec![("reason".to_owned(), json!(ending.sentence()))];
    let counters = counters(session, &stats);
    if args.stats {
        let stats: serde_json::Map<_, _> = counters.iter().cloned().collect();
        extra.push(("stats".to_owned(), stats.into()));
    }
    let end = End {
        insns: session.machine.icount(),
        hits: stats.hits,
        lost,
        counts: session.counts(),
        digest: digest.clone(),
        exit: exit.code().into(),
        extra,
        counters,
    };
    outputs.sink.end(&end).map_err(|error| Failure::writing(outputs.records.as_deref(), error))?;
    // What stands on the console before the talk must have got there before it.
    outputs.console.write(b"")?;
    drop(outputs);
    report(args, session, ending, &end, talk);
    Ok(exit)
}

fn report(args: &RunArgs, session: &mut Session, ending: &Ending, end: &End, talk: &Talk) {
    let stats = session.stats();
    let summary = format!("{} after {} instructions", ending.sentence(), end.insns);
    if let Ending::ScriptFailed(why) = ending {
        talk.error(why);
    } else if ending.exit() == Exit::Crashed {
        talk.line(&format!("trapline: {summary}"));
        talk.line(session.machine.core().dump_registers().trim_end());
        show_tail(session, ending, talk);
    } else {
        talk.note(&summary);
    }
    if session.interposer.is_some() {
        let mut text = format!("{}, {} lost", counted(end.hits, "hit"), counted(end.lost, "record"));
        if stats.exceptions > 0 {
            text.push_str(&format!(", {} ended by an exception", counted(stats.exceptions, "handler")));
        }
        if stats.traces_dropped > 0 {
            let many = counted(stats.traces_dropped, "stack trace record");
            text.push_str(&format!(", {many} did not fit excpt_log"));
        }
        talk.note(&text);
        if let Some(interposer) = &session.interposer {
            errors::totals(interposer, talk);
            if let Some(damage) = interposer.modules_damage(session.machine.core()) {
                talk.note(&damage);
            }
        }
        unanswered(&stats, talk);
    }
    if matches!(args.format, RecordFormat::Text | RecordFormat::Dtrace) {
        if let Some(digest) = end.digest.as_ref().filter(|_| args.digest) {
            talk.line(&format!("digest {digest}"));
        }
        if args.stats {
            end.counters.iter().for_each(|(name, value)| talk.counter(name, value));
        }
    }
}

/// The console's last lines, of a guest that crashed in its own way.
fn show_tail(session: &Session, ending: &Ending, talk: &Talk) {
    let tail = crash::tail(session.machine.console());
    if tail.is_empty() || !matches!(ending, Ending::KernelCrashed(_) | Ending::TripleFault(_)) {
        return;
    }
    talk.line("trapline: the console's last lines:");
    tail.iter().for_each(|line| talk.line(&format!("  {line}")));
}

/// What handlers asked for and did not get.
fn unanswered(stats: &Stats, talk: &Talk) {
    let asked = |count: u64, sentence: &str| {
        if count > 0 {
            talk.note(&format!("{sentence} ({})", counted(count, "time")));
        }
    };
    asked(stats.debugger_exits, "`exit 1` asked for the debugger, which is not there yet: it was as `exit`");
    asked(stats.dump_exits, "`exit 2` asked for a crash dump, which is not there yet: it was as `exit`");
    asked(stats.cores_left_out, "`exit 3` left no core file, --max-cores had been reached");
    asked(stats.frozen, "a frozen channel took no record");
}

/// Counters by name, in the order in which they are shown.
fn counters(session: &Session, stats: &Stats) -> Vec<(String, Value)> {
    let machine = session.machine.counters();
    let unknown = session.machine.core().platform().unknown_ports().len() as u64;
    [
        ("instructions", session.machine.icount()),
        ("virtual_ns", session.machine.core().virtual_ns()),
        ("sites", stats.sites),
        ("traps", stats.traps),
        ("hits", stats.hits),
        ("ignored", stats.ignored),
        ("exceptions", stats.exceptions),
        ("emulated", stats.emulated),
        ("out_of_line", stats.out_of_line),
        ("stepped", stats.stepped),
        ("faulted", stats.faulted),
        ("dropped", stats.dropped),
        ("traces_dropped", stats.traces_dropped),
        ("rewritten", stats.rewritten),
        ("pages_by_mapping", stats.by_mapping),
        ("pages_by_content", stats.by_content),
        ("words_raised", stats.words_raised),
        ("words_left", stats.words_left),
        ("stack_wraps", stats.wraps),
        ("no_user_context", stats.no_user_context),
        ("frozen", stats.frozen),
        ("single_steps", machine.steps),
        ("void_accesses", machine.void_accesses),
        ("unknown_ports", unknown),
    ]
    .map(|(name, value)| (name.to_owned(), json!(value)))
    .to_vec()
}
