//! `replay --who-wrote`, `--calls` and `--when`: queries about a whole recording.

use std::io::{self, Write};
use std::sync::Arc;

use serde_json::{Value, json};
use trapline_session::{
    Between, Call, Calls, Left, Places, Position, QuestionError, Recording, Span, Turn, Turns, Writer,
    Writers, calls, counted, span_of, when, who_wrote,
};

use super::by_count::by_count;
use super::travel;
use crate::cli::{RecordFormat, ReplayArgs};
use crate::failure::{Exit, Failure};
use crate::progress::of_search;
use crate::talk::Talk;
use crate::{ctrl_c, options};

/// Default number of writers that are listed.
const LAST: usize = 10;
/// Most instructions that --when checks without announcing the expected time.
const QUICK: u64 = 20_000_000;
/// Approximate number of instructions that it checks per second.
const PER_SECOND: u64 = 1_000_000;

/// Answers the query of the command line, if there is one.
///
/// # Errors
/// There is no such address, the recording cannot be followed, or standard output cannot be written.
pub fn answer(
    args: &ReplayArgs,
    recording: &Recording,
    out: &mut dyn Write,
    talk: &Talk,
) -> Result<Option<Exit>, Failure> {
    let asked = &args.questions;
    if !asked.any() {
        return Ok(None);
    }
    if !matches!(args.output.format, RecordFormat::Text | RecordFormat::Json) {
        return Err(Failure::Usage("answers are printed with -f text or json".to_owned()));
    }
    // Nothing needs to be completed after a signal: it ends the search at once.
    let _signals = ctrl_c::prepare();
    let cancelled = Arc::default();
    let places = Places { folders: args.image_dir.clone(), ..Places::of(&args.file) };
    let guest = options::open(&options::of_recording(recording, &places)?, talk)?;
    let _progress = talk.progress(of_search());
    let place = |option, position: Option<Position>| match position {
        None => Ok(None),
        Some(position) => match by_count(&guest, recording, &cancelled, (option, position))? {
            Ok(position) => Ok(Some(position)),
            Err(_) => Err(Failure::Usage(format!(
                "{option} {position} cannot be found: the replay ended before it"
            ))),
        },
    };
    let before = place("--before", asked.before)?;
    let json = args.output.format == RecordFormat::Json;
    let most = asked.last.map_or(LAST, |last| usize::try_from(last).unwrap_or(usize::MAX));
    if let Some(address) = &asked.who_wrote {
        let found = who_wrote(&guest, recording, address, before, most).map_err(failure)?;
        let written = if json { object(out, "writers", json!(found)) } else { writers(out, &found) };
        written.map_err(Failure::Output)?;
    }
    if let Some(function) = &asked.calls {
        let found = calls(&guest, recording, function, before).map_err(failure)?;
        let written = if json { object(out, "calls", json!(found)) } else { all_calls(out, &found) };
        written.map_err(Failure::Output)?;
    }
    if let Some(condition) = &asked.when {
        let (from, to) = (place("--from", args.from)?, place("--to", args.to)?);
        let span = Span { from, to, first: asked.first, most };
        say_cost(span_of(recording, &span), talk);
        let found = when(&guest, recording, condition, span).map_err(failure)?;
        let written = if json { object(out, "when", json!(found)) } else { turns(out, &found) };
        written.map_err(Failure::Output)?;
    }
    Ok(Some(Exit::Ok))
}

/// Announces the expected time of a long search.
fn say_cost(instructions: u64, talk: &Talk) {
    if instructions > QUICK {
        let seconds = instructions / PER_SECOND;
        talk.note(&format!(
            "--when executes up to {} one by one, which takes up to {seconds} s; --from and --to ask about a part",
            counted(instructions, "instruction")
        ));
    }
}

fn failure(error: QuestionError) -> Failure {
    match error {
        QuestionError::Guest(error) => error.into(),
        QuestionError::Travel(error) => travel::failure(error),
        QuestionError::Place(text) => Failure::Usage(text),
        QuestionError::Condition(error) => Failure::Usage(error.to_string()),
    }
}

/// The answer as an object with its type.
fn object(out: &mut dyn Write, kind: &str, answer: Value) -> io::Result<()> {
    let mut object = json!({"type": kind});
    if let (Some(object), Value::Object(answer)) = (object.as_object_mut(), answer) {
        object.extend(answer);
    }
    writeln!(out, "{object}")
}

fn named(address: u64, symbol: Option<&String>) -> String {
    let symbol = symbol.map(|symbol| format!(" {symbol}")).unwrap_or_default();
    format!("{address:#x}{symbol}")
}

fn task(pid: Option<u32>, name: Option<&String>) -> String {
    pid.zip(name).map(|(pid, name)| format!("  [{pid} {name}]")).unwrap_or_default()
}

fn writers(out: &mut dyn Write, found: &Writers) -> io::Result<()> {
    let (place, bytes) =
        (named(found.low, found.symbol.as_ref()), counted(found.high - found.low + 1, "byte"));
    let how_many = match (found.count, found.last.len()) {
        (Some(all), _) => counted(all, "write"),
        (None, 1) => "the last write".to_owned(),
        (None, shown) => format!("the last {shown} writes"),
    };
    writeln!(out, "{bytes} at {place}: {how_many}")?;
    found.last.iter().try_for_each(|writer| write_of(out, writer))?;
    if found.changed_after == Some(true) {
        writeln!(out, "  changed later{OTHERWISE}")?;
    }
    Ok(())
}

/// How a range has changed that no listed write has changed.
const OTHERWISE: &str = " by something other than an instruction here: a device, a handler, another mapping";

fn write_of(out: &mut dyn Write, writer: &Writer) -> io::Result<()> {
    if writer.changed_before == Some(true) {
        writeln!(out, "  changed before{OTHERWISE}")?;
    }
    let instruction = writer.instruction.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    let by =
        writer.vector.map(|vector| format!("the delivery of vector {vector} before ")).unwrap_or_default();
    writeln!(
        out,
        "{:>13} {by}{}{instruction}{}  {} -> {}",
        writer.position,
        named(writer.ip, writer.symbol.as_ref()),
        task(writer.pid, writer.task.as_ref()),
        writer.old,
        writer.new
    )?;
    // After a delivery, the innermost frame is that of the handler.
    let callers = writer.stack.iter().skip(usize::from(writer.vector.is_none()));
    for frame in callers {
        writeln!(out, "{:13}   {}", "", named(frame.ip, frame.symbol.as_ref()))?;
    }
    Ok(())
}

fn all_calls(out: &mut dyn Write, found: &Calls) -> io::Result<()> {
    // Where several functions have the name, each call says which one it is of.
    if let [_, _, ..] = found.functions.as_slice() {
        for function in &found.functions {
            let calls = found.calls.iter().filter(|call| call.function == function.address);
            let name = named(function.address, function.symbol.as_ref());
            writeln!(out, "{name}: {}", counted(calls.count() as u64, "call"))?;
        }
        return found.calls.iter().try_for_each(|call| call_of(out, call, &format!("{:#x}", call.function)));
    }
    let name = found.functions.first().map(|function| named(function.address, function.symbol.as_ref()));
    writeln!(out, "{}: {}", name.unwrap_or_default(), counted(found.calls.len() as u64, "call"))?;
    found.calls.iter().try_for_each(|call| call_of(out, call, ""))
}

fn call_of(out: &mut dyn Write, call: &Call, function: &str) -> io::Result<()> {
    let arguments: Vec<String> = call.arguments.iter().map(|value| format!("{value:#x}")).collect();
    let took = || {
        let took = call
            .insns
            .zip(call.ns)
            .map(|(insns, ns)| format!(", {} and {ns} ns", counted(insns, "instruction")));
        took.unwrap_or_default()
    };
    let at = call.returned.unwrap_or_default();
    let value = call.value.unwrap_or_default();
    let end = match call.left {
        Left::Returned if call.tail_call => {
            format!("{value:#x} at {at}, by a function that it jumps to{}", took())
        }
        Left::Returned => format!("{value:#x} at {at}{}", took()),
        Left::Abandoned => format!("left without a return by {at}{}", took()),
        Left::Unfinished => "has not returned".to_owned(),
    };
    writeln!(
        out,
        "{:>13} {}{function}({}) from {}{} = {end}",
        call.position,
        "  ".repeat(call.depth),
        arguments.join(", "),
        named(call.caller, call.caller_symbol.as_ref()),
        task(call.pid, call.task.as_ref()),
    )
}

fn turns(out: &mut dyn Write, found: &Turns) -> io::Result<()> {
    let times = match (found.count, found.last.len()) {
        (Some(1), _) => "once".to_owned(),
        (Some(count), _) => format!("{count} times"),
        (None, 1) => "for the last time".to_owned(),
        (None, shown) => format!("for the last {shown} times"),
    };
    let held = if found.held == Some(true) { "; it holds at the first" } else { "" };
    writeln!(out, "{} becomes true {times} from {} to {}{held}", found.condition, found.from, found.to)?;
    found.last.iter().try_for_each(|turn| turn_of(out, turn))
}

fn turn_of(out: &mut dyn Write, turn: &Turn) -> io::Result<()> {
    let by = match turn.by {
        Between::Instruction => "",
        Between::Delivery => "an exception or interrupt before ",
        Between::Input => "what comes in before ",
        Between::Time => "a device before ",
    };
    let instruction = turn.instruction.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    writeln!(
        out,
        "{:>13} {by}{}{instruction}{}",
        turn.position,
        named(turn.ip, turn.symbol.as_ref()),
        task(turn.pid, turn.task.as_ref())
    )
}
