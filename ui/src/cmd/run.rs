//! `trapline run`: boot an image, insert probe programs, print their records.

use std::io::Write;

use serde_json::{Value, json};
use trapline_interposer::Stats;
use trapline_providers::resolve;
use trapline_session::{
    Command, CommandError, Condition, Ending, Guest, InputLine, Limits, Probing, Reply, Script, Selection,
    Session, SourceOptions, console_tail, counted, read_program,
};
use trapline_trace::{ChannelConfig, End, RunInfo};

use crate::cli::{RecordFormat, RunArgs};
use crate::failure::{Exit, Failure};
use crate::output::{Outputs, choose};
use crate::talk::Talk;
use crate::{ctrl_c, errors, no_effect, options};

/// Most reasons that are given for a run without hits.
const REASONS: usize = 5;

/// Runs the command.
///
/// # Errors
/// Before the run: bad files, programs and options. During it: an output that cannot be written.
pub fn run(args: &RunArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    no_effect::of_run(args)?;
    let source = options::source(&args.source)?;
    let guest = options::open(&options::guest(&args.guest, args.mem, &args.cmdline, &args.devices)?, talk)?;
    let mut session = guest.start(probing(args))?;
    insert_all(args, &source, &mut session, talk)?;
    let mut script = script(args, &source, &session)?;
    let observe_only = check_script(&script, &guest, talk)?;
    let mut outputs = choose(args, out, *talk)?;
    let info = RunInfo {
        image: guest.name().to_owned(),
        width: bits(&guest),
        extra: header_fields(args, observe_only && session.observe_only()),
    };
    outputs.sink.begin(&info).map_err(|error| Failure::writing(outputs.records.as_deref(), error))?;
    let limits = Limits::insns(args.limit_insns.unwrap_or(u64::MAX)).cancelled_by(ctrl_c::listen());
    let ending = session.run(&mut script, &condition(args), &limits, &mut outputs)?;
    for line in script.left().into_iter().filter(|_| !matches!(ending, Ending::ScriptFailed(_))) {
        talk.note(&format!("{} never came due", script.place(line)));
    }
    ask(args, &mut session, &mut outputs)?;
    session.apply(Command::Silence)?;
    finish(args, &mut session, &ending, outputs, talk)
}

/// What probes record.
fn probing(args: &RunArgs) -> Probing {
    Probing {
        header: args.header.unwrap_or_default(),
        channel: args.channel.unwrap_or_else(ChannelConfig::growing),
        max_steps: args.max_steps,
        max_cores: args.max_cores.unwrap_or(Probing::default().max_cores),
        watch_unlimited: args.watch_unlimited,
        stack: args.stack.unwrap_or_default(),
        user_stack: args.ustack.unwrap_or_default(),
    }
}

/// What ends the run.
fn condition(args: &RunArgs) -> Condition {
    let until = args.until.iter().fold(Condition::end(), |condition, text| condition.or_console(text));
    let crash = args.crash_on.iter().fold(until, |condition, text| condition.or_crash_text(text));
    args.stop_after.into_iter().fold(crash, Condition::or_hits)
}

/// What `--query` and `--getvars` ask at the end.
fn ask(args: &RunArgs, session: &mut Session, outputs: &mut Outputs<'_>) -> Result<(), Failure> {
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

/// Checks a script against the guest: its files, and what there is to type at. Whether all programs only observe.
fn check_script(script: &Script, guest: &Guest, talk: &Talk) -> Result<bool, Failure> {
    let mut observe_only = true;
    for command in script.commands() {
        let at_virtio = matches!(command, Command::Type { line: InputLine::Virtio, .. });
        if at_virtio && !guest.has_virtio_console() {
            return Err(CommandError::NoVirtioConsole.into());
        }
        if let Command::Insert { program, .. } = command {
            talk.remarks(&program.warnings);
            let resolved = resolve(guest.target(), program).map_err(Failure::Compile)?;
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

/// Inserts all programs; without any the machine runs alone.
fn insert_all(
    args: &RunArgs,
    source: &SourceOptions,
    session: &mut Session,
    talk: &Talk,
) -> Result<(), Failure> {
    let only = Selection { groups: names(&args.group), kinds: names(&args.kind), ..Selection::default() };
    let mut targeted = args.clauses.iter().any(|text| text.contains(no_effect::TARGET));
    for path in &args.probe {
        let program = Box::new(read_program(path, source)?);
        talk.remarks(&program.warnings);
        targeted |= no_effect::names_target(&program);
        let name = path.display().to_string();
        said(&session.apply(Command::Insert { name, program, only: only.clone() })?, talk);
    }
    for text in &args.clauses {
        let reply = session.apply(Command::Clause { text: text.clone(), only: only.clone() })?;
        said(&reply, talk);
    }
    if args.guest.target.is_some() && !targeted && args.script.is_none() {
        return Err(no_effect::unused_target());
    }
    let selects = only != Selection::default() && args.is_probed();
    if selects && !any_enabled(session)? {
        return Err(Failure::Usage(format!("no probe point of the programs has {}", only.words())));
    }
    Ok(())
}

/// Says what the descriptions of a program matched, and by which convention its handlers find arguments.
fn said(reply: &Reply, talk: &Talk) {
    let Reply::Action { matched, convention, .. } = reply else { return };
    matched.iter().for_each(|matched| talk.note(&matched.sentence()));
    if let Some(abi) = convention {
        talk.note(&format!("by its code the kernel takes arguments as {abi} (--abi overrides this)"));
    }
}

fn any_enabled(session: &mut Session) -> Result<bool, Failure> {
    let Reply::Query { programs, .. } = session.apply(Command::Query)? else { return Ok(false) };
    Ok(programs.iter().flat_map(|program| &program.points).any(|point| point.enabled))
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
    match Exit::from(ending) {
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
    let (stats, lost) = (session.stats(), session.counts().lost());
    let exit = exit(args, ending, stats.exceptions, lost);
    let wanted = args.digest || args.format != RecordFormat::Text;
    let digest = wanted.then(|| session.digest().to_string());
    let mut extra = vec![("reason".to_owned(), json!(ending.to_string()))];
    let counters = counters(session, &stats);
    if args.stats {
        let stats: serde_json::Map<_, _> = counters.iter().cloned().collect();
        extra.push(("stats".to_owned(), stats.into()));
    }
    let end = End {
        insns: session.icount(),
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
    let summary = format!("{} after {} instructions", ending, end.insns);
    if let Ending::ScriptFailed(why) = ending {
        talk.error(why);
    } else if Exit::from(ending) == Exit::Crashed {
        talk.line(&format!("trapline: {summary}"));
        talk.line(session.core().dump_registers().trim_end());
        show_tail(session, ending, talk);
    } else {
        talk.note(&summary);
    }
    if session.interposer().is_some() {
        let mut text = format!("{}, {} lost", counted(end.hits, "hit"), counted(end.lost, "record"));
        if stats.exceptions > 0 {
            text.push_str(&format!(", {} ended by an exception", counted(stats.exceptions, "handler")));
        }
        if stats.traces_dropped > 0 {
            let many = counted(stats.traces_dropped, "stack trace record");
            text.push_str(&format!(", {many} did not fit excpt_log"));
        }
        if end.lost > 0 {
            talk.warn(&text)
        } else {
            talk.note(&text)
        }
        session.why_no_hits().iter().take(REASONS).for_each(|why| talk.note(&why.to_string()));
        if let Some(interposer) = session.interposer() {
            errors::totals(interposer, talk);
            if let Some(damage) = interposer.modules_damage(session.core()) {
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
    let tail = console_tail(session.console());
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

/// Counters by name, in the order in which they are shown. How many instructions the engine executed one at a time is left
/// out: that depends on when the engine resizes its TLB, which it decides by the host's clock.
fn counters(session: &Session, stats: &Stats) -> Vec<(String, Value)> {
    let machine = session.counters();
    let unknown = session.core().platform().unknown_ports().len() as u64;
    [
        ("instructions", session.icount()),
        ("virtual_ns", session.core().virtual_ns()),
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
        ("void_accesses", machine.void_accesses),
        ("unknown_ports", unknown),
    ]
    .map(|(name, value)| (name.to_owned(), json!(value)))
    .to_vec()
}
