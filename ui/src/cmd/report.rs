//! The end of a run: the end of its data, and its summary.

use serde_json::{Value, json};
use trapline_interposer::{Interposer, Stats};
use trapline_session::{Ending, Session, console_tail, counted};
use trapline_trace::End;

use crate::cli::{OutputArgs, RecordFormat};
use crate::errors;
use crate::failure::{Exit, Failure};
use crate::output::Outputs;
use crate::talk::Talk;

/// Most programs without hits that are named.
const REASONS: usize = 5;

/// How a run ended.
pub struct Ended<'a> {
    /// The reason, if it has ended.
    pub ending: Option<&'a Ending>,
    /// The same as the beginning of a sentence.
    pub reason: String,
    /// The exit code in its data.
    pub exit: Exit,
    /// Whether `-q` does not silence the reason.
    pub warns: bool,
    /// Whether there was no run to tell of.
    pub is_refused: bool,
}

impl<'a> Ended<'a> {
    /// The end of a run by itself, or by a condition.
    pub fn by(ending: &'a Ending, exit: Exit) -> Self {
        Self { ending: Some(ending), reason: ending.to_string(), exit, warns: false, is_refused: false }
    }

    /// The end of a run by a failure on the host.
    pub fn failed(failure: &Failure) -> Self {
        let exit = failure.exit();
        let reason = match failure {
            Failure::Output(_) if exit == Exit::Closed => "standard output was closed, and the run ended",
            Failure::Output(_) | Failure::Write { .. } => "an output could not be written, and the run ended",
            _ => "the run ended",
        };
        let is_refused = matches!(failure, Failure::Usage(_));
        Self { ending: None, reason: reason.to_owned(), exit, warns: false, is_refused }
    }
}

/// Writes the end of a run, and prints its ending.
///
/// # Errors
/// An output that cannot be written.
pub fn finish(
    args: &OutputArgs,
    session: &mut Session,
    ended: &Ended<'_>,
    mut outputs: Outputs<'_>,
    talk: &Talk,
) -> Result<(), Failure> {
    let (stats, lost) = (session.stats(), session.counts().lost());
    let wanted = args.digest || args.format != RecordFormat::Text;
    let digest = wanted.then(|| session.digest().to_string());
    let mut extra = vec![("reason".to_owned(), json!(ended.reason))];
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
        exit: ended.exit.code().into(),
        extra,
        counters,
    };
    if let Some(counted) = session.counted_exactly() {
        outputs.counted.replace(counted);
    }
    outputs.sink.end(&end).map_err(|error| Failure::writing(outputs.records.as_deref(), error))?;
    outputs.say_notes();
    // Console output that precedes this text must be written before it.
    outputs.console.write(b"")?;
    outputs.console.show_screen(&session.screen())?;
    drop(outputs);
    report(args, session, ended, &end, talk);
    Ok(())
}

/// Returns the first of these failures; the others are reported, because each may concern a different file.
///
/// # Errors
/// That failure.
pub fn first(results: impl IntoIterator<Item = Result<(), Failure>>, talk: &Talk) -> Result<(), Failure> {
    let mut failures = results.into_iter().filter_map(Result::err);
    let first = failures.next();
    failures.filter(|failure| failure.exit() != Exit::Closed).for_each(|failure| talk.failure(&failure));
    first.map_or(Ok(()), Err)
}

/// Says where the output of a guest is that has written to its screen alone.
fn unseen_screen(args: &OutputArgs, session: &Session, talk: &Talk) {
    let told = args.console.as_deref().is_some_and(|place| matches!(place, "vga" | "none"));
    if !told && session.console().is_empty() && !session.screen().trim().is_empty() {
        talk.note("the guest has written to its text screen only; --console vga shows it");
    }
}

fn report(args: &OutputArgs, session: &mut Session, ended: &Ended<'_>, end: &End, talk: &Talk) {
    // A position that is not in the run: the failure says it all.
    if ended.is_refused && end.insns == 0 {
        return;
    }
    let stats = session.stats();
    let summary = format!("{} after {}", ended.reason, counted(end.insns, "instruction"));
    if let Some(Ending::ScriptFailed(why)) = ended.ending {
        talk.error(why);
    } else if let Some(ending) = ended.ending.filter(|ending| Exit::from(*ending) == Exit::Crashed) {
        talk.line(&format!("trapline: {summary}"));
        talk.line(session.core().dump_registers().trim_end());
        show_tail(session, ending, talk);
    } else if ended.warns {
        talk.warn(&summary);
    } else {
        talk.note(&summary);
    }
    unseen_screen(args, session, talk);
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
        without_hits(session, talk);
        if let Some(interposer) = session.interposer() {
            errors::totals(interposer, talk);
            if let Some(damage) = interposer.modules_damage(session.core()) {
                talk.note(&damage);
            }
        }
        unanswered(&stats, talk);
        unwritten(session, talk);
    }
    // JSON has them in its end line; a trace file, which has them too, is not for people to read.
    if args.format != RecordFormat::Json {
        if let Some(digest) = end.digest.as_ref().filter(|_| args.digest) {
            talk.line(&format!("digest {digest}"));
        }
        if args.stats {
            end.counters.iter().for_each(|(name, value)| talk.counter(name, value));
        }
    }
}

/// Says which programs had no hits, and why.
fn without_hits(session: &Session, talk: &Talk) {
    let found = session.why_no_hits();
    found.iter().take(REASONS).for_each(|why| talk.note(&why.to_string()));
    if let more @ 1.. = found.len().saturating_sub(REASONS) {
        talk.note(&format!("{} more had no hits", counted(more as u64, "program")));
    }
}

/// The last lines of the console, for a crash that the guest has reported itself.
fn show_tail(session: &Session, ending: &Ending, talk: &Talk) {
    let tail = console_tail(session.console());
    if tail.is_empty() || !matches!(ending, Ending::KernelCrashed(_) | Ending::TripleFault(_)) {
        return;
    }
    talk.line("trapline: the console's last lines:");
    tail.iter().for_each(|line| talk.line(&format!("  {line}")));
    if let Some(lacks) = session.lacks(ending) {
        talk.note(lacks);
    }
}

/// Requests of handlers that were not fulfilled.
fn unanswered(stats: &Stats, talk: &Talk) {
    let asked = |count: u64, sentence: &str| {
        if count > 0 {
            talk.note(&format!("{sentence} ({})", counted(count, "time")));
        }
    };
    asked(
        stats.debugger_exits,
        "`exit 1` asked for a debugger: `trapline gdb -p FILE` stops there, and here the handler ended as with `exit`",
    );
    asked(
        stats.dump_exits.saturating_sub(1),
        "`exit 2` wrote no dump, because a run writes only the first: the handler ended as with `exit`",
    );
    asked(stats.cores_left_out, "`exit 3` wrote no core file, because --max-cores was reached");
    asked(stats.frozen, "a hit left no record, because the channel was frozen");
}

/// Records of handlers to channels of drivers that were not written.
fn unwritten(session: &Session, talk: &Talk) {
    for refused in session.interposer().map(Interposer::refused_records).unwrap_or_default() {
        let channel = if refused.channel.is_empty() { "other channels" } else { &refused.channel };
        let records = counted(refused.count, "record");
        talk.warn(&format!("{records} not written to {channel}: {}", refused.reason()));
    }
}

/// Counters by name, in the order in which they are shown. The number of instructions that the engine executed one at a
/// time is left out: it depends on the times at which the engine resizes its TLB, and these depend on the host's clock.
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
