//! Findings in words: the hit, what differs from it, and what happens.

use trapline_emu::PAGE;
use trapline_interposer::{AlteredRun, Difference, Word, processor_register};
use trapline_rpn::Context;
use trapline_session::{CodePointer, Ending, Places, Position, Recording, Session, counted};

use crate::error::FuzzError;
use crate::finding::{Changed, Told};
use crate::hits::{Hit, Hits, Page};
use crate::minimise::real_bytes;
use crate::objectives::Objectives;
use crate::patience::Patience;
use crate::state::State;
use crate::trials::Trials;

/// The objective of assertions.
const ASSERT: &str = "assert";
/// Most runs of bytes that are shown of one difference of memory.
const MOST_RUNS: usize = 8;

/// A difference in words, beside what the real hit has.
pub fn words(difference: &Difference, hit: &Hit, session: &Session) -> Vec<String> {
    let one = match difference {
        Difference::Word { what, value } => {
            let name = what.name(is_wide(session));
            match hit.word(*what) {
                Some(real) => format!("{name} is {value:#x}; at the real hit it is {real:#x}"),
                None => format!("{name} is {value:#x}; at the real hit the handler does not ask for it"),
            }
        }
        Difference::Memory { address, bytes } => return memory(*address, bytes, hit),
        Difference::Absent { page } => format!("the page {page:#x} cannot be read; at the real hit it can"),
        Difference::Name(name) => format!("the task's name is \"{}\"", name.escape_ascii()),
        Difference::Local { number, value } => {
            let (owner, own) = hit.local(*number).map_or((None, *number), |(own, n)| (Some(own), n));
            let alone = hit.handlers.iter().all(|other| owner.is_none_or(|own| own.program == other.program));
            let of = owner.filter(|_| !alone).map_or(String::new(), |owner| format!(" of {}", owner.name));
            // D keeps variables of its own there, global ones too.
            let of_d = owner.map(|owner| session.d_locals(owner.program)).unwrap_or_default();
            let called = match of_d.into_iter().find(|(number, _)| *number as u32 == own) {
                Some((_, name)) => format!("the variable {name}"),
                None => format!("local variable {own}"),
            };
            format!("{called}{of} is {value:#x} before the handler runs")
        }
        Difference::Global { number, value } => {
            format!("global variable {number} is {value:#x} before the handler runs")
        }
        Difference::Processor { register, bytes } => {
            let name = Word::register(Context::Current, *register).name(is_wide(session));
            format!("{name} holds {}", shown(bytes))
        }
    };
    vec![one]
}

/// Whether the guest has 64-bit registers.
fn is_wide(session: &Session) -> bool {
    session.target().width().bytes() == 8
}

/// The bytes that differ, in words: a line for each run of them.
fn memory(address: u64, bytes: &[u8], hit: &Hit) -> Vec<String> {
    let page = address & !(PAGE - 1);
    let absent = matches!(hit.pages.get(&page), Some(Page::Absent));
    let real = real_bytes(hit, address, bytes.len()).into_iter().collect::<Option<Vec<u8>>>();
    let line = |at: usize, bytes: &[u8], was: &str| {
        let (address, many) = (address.wrapping_add(at as u64), counted(bytes.len() as u64, "byte"));
        format!("memory {address:#x} holds {} ({many}); at the real hit {was}", shown(bytes))
    };
    let Some(real) = real.filter(|_| !absent) else {
        let was = if absent { "its page is absent" } else { "the handler does not read it" };
        return vec![line(0, bytes, was)];
    };
    let differs: Vec<bool> = bytes.iter().zip(&real).map(|(now, was)| now != was).collect();
    let mut at = 0;
    let mut lines = Vec::new();
    for run in differs.chunk_by(|one, other| one == other) {
        let (end, differs) = (at + run.len(), run.first() == Some(&true));
        if let (true, Some(now), Some(was)) = (differs, bytes.get(at..end), real.get(at..end)) {
            lines.push(line(at, now, &format!("it holds {}", shown(was))));
        }
        at = end;
    }
    let left = lines.len().saturating_sub(MOST_RUNS);
    lines.truncate(MOST_RUNS);
    if left > 0 {
        lines.push(format!("and {} more places nearby", left));
    }
    lines
}

/// At most 16 bytes as digits, in the order of their addresses.
fn shown(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let dots = if bytes.len() > 16 { " .." } else { "" };
    format!("{}{dots}", digits.join(" "))
}

/// A finding in words: the hit, the differences, and what happens.
///
/// # Errors
/// The recording is none of a finding, or cannot be replayed.
pub fn explained(recording: &Recording, places: &Places, file: &str) -> Result<Vec<String>, FuzzError> {
    let told = Told::of(recording, file)?;
    match &told.changed {
        Changed::Runs(runs, put) => of_handlers(recording, places, &told, (runs, put), file),
        Changed::Inputs(values) => of_call(recording, places, &told, values),
    }
}

/// A finding of a function.
fn of_call(
    recording: &Recording,
    places: &Places,
    told: &Told,
    values: &[Difference],
) -> Result<Vec<String>, FuzzError> {
    let from = told.at.icount.checked_sub(1).map(|icount| Position::At { icount, ordinal: 0 });
    let mut hits = Hits::of_program(recording, places, from, 1, (Some(&told.program), &Patience::default()))?;
    hits.go_to(0)?;
    let session = &hits.session;
    let Some(hit) = hits.list.first_mut() else { return Ok(Vec::new()) };
    let core = session.core();
    for value in values {
        match value {
            Difference::Memory { address, bytes } => {
                let (mut page, last) = (address & !(PAGE - 1), address.wrapping_add(bytes.len() as u64));
                while page < last {
                    hit.pages.entry(page).or_insert_with(|| Hit::look(core, page));
                    page = page.saturating_add(PAGE);
                }
            }
            Difference::Word { what: what @ Word::Register { register, .. }, .. } => {
                let value = processor_register(core, *register).unwrap_or_default();
                hit.handlers.iter_mut().for_each(|handler| handler.words.insert(*what, value));
            }
            _ => {}
        }
    }
    let symbol =
        session.symbol_of(CodePointer::At(hit.ip)).map_or(String::new(), |symbol| format!(" {symbol}"));
    let call = hit.handlers.first().map_or(0, |own| own.run);
    let mut lines = vec![format!(
        "{}, call {call} at {:#x}{symbol}, after {} instructions:",
        told.program, hit.ip, hit.icount
    )];
    if values.is_empty() {
        lines.push("  everything is as at the real hit".to_owned());
    }
    lines.extend(values.iter().flat_map(|value| words(value, hit, session)).map(|text| format!("  {text}")));
    let what = match told.what.as_str() {
        "" if told.by.is_empty() || told.by == told.program => String::new(),
        "" => format!(" at operation {} of {}", told.operation.1, told.by),
        // Where the code came from that is none.
        what if what.starts_with("after ") => format!(" {what}"),
        what => format!(" at {what}"),
    };
    let later = counted(recording.end().icount.saturating_sub(hit.icount), "instruction");
    let how = recording.ending().filter(|ending| **ending != Ending::Limit);
    let how = how.map_or(String::new(), |how| format!(": {how}"));
    // An assertion falls somewhere in the call.
    let when = if told.objective == ASSERT { String::new() } else { format!(", after {later}{how}") };
    lines.push(format!("Then the objective {} falls{what}{when}.", told.objective));
    Ok(lines)
}

/// A finding of handlers.
fn of_handlers(
    recording: &Recording,
    places: &Places,
    told: &Told,
    (programs, put): (&[(String, Vec<AlteredRun>)], &[Difference]),
    file: &str,
) -> Result<Vec<String>, FuzzError> {
    let runs = || programs.iter().flat_map(|(_, runs)| runs);
    let hits = Hits::before(recording, places, told.at.icount, runs().count().max(1) * 4)?;
    let altered = hits.list.iter().map(|hit| hit.unaltered(programs));
    let mut altered = altered.enumerate().skip_while(|(_, differences)| differences.is_none());
    let Some((first, Some(differences))) = altered.next() else {
        return Err(FuzzError::NotAFinding(file.to_owned()));
    };
    let mut state = State { first, hits: vec![differences] };
    state.hits.extend(altered.map_while(|(_, differences)| differences));
    if let Some(first) = state.hits.first_mut() {
        first.splice(0..0, put.iter().cloned());
    }
    let mut trials = Trials::new(hits, Objectives::default(), usize::MAX);
    // What the real hits have of all that is asked for.
    trials.learn(&State { first, hits: vec![Vec::new(); state.hits.len()] })?;
    trials.learn(&state)?;
    let hits = trials.hits();
    let mut lines = Vec::new();
    for (hit, differences) in hits.list.iter().skip(first).zip(&state.hits) {
        lines.push(of_hit(hits, hit));
        if differences.is_empty() {
            lines.push("  everything is as at the real hit".to_owned());
        }
        lines.extend(differences.iter().flat_map(|difference| {
            let in_guest = if put.contains(difference) { "in the guest, too: " } else { "" };
            words(difference, hit, &hits.session).into_iter().map(move |text| format!("  {in_guest}{text}"))
        }));
    }
    let last = hits.list.get(first + state.hits.len() - 1);
    let what = if told.what.is_empty() { String::new() } else { format!(" {}", told.what) };
    lines.push(match runs().any(|run| run.through) {
        false => {
            let place = last.and_then(|hit| operation(hits, hit, told.operation));
            let place = place.unwrap_or_else(|| format!("operation {}", told.operation.1));
            format!("Then the objective {} falls{what} at {place}.", told.objective)
        }
        true => format!(
            "What the handlers write goes to the guest. Then the objective {} falls{what}, at most {} later.",
            told.objective,
            counted(recording.end().icount.saturating_sub(told.at.icount), "instruction")
        ),
    });
    Ok(lines)
}

/// A hit in words: its handlers, in order, and where it is.
fn of_hit(hits: &Hits, hit: &Hit) -> String {
    let handlers: Vec<String> =
        hit.handlers.iter().map(|one| format!("{}, run {}", hits.name(one), one.run)).collect();
    let symbol =
        hits.session.symbol_of(CodePointer::At(hit.ip)).map_or(String::new(), |symbol| format!(" {symbol}"));
    format!("{} at {:#x}{symbol}, after {} instructions:", handlers.join(", then "), hit.ip, hit.icount)
}

/// An operation in words, with that of several handlers whose it is.
fn operation(hits: &Hits, hit: &Hit, (handler, at): (usize, u64)) -> Option<String> {
    let own = hit.handlers.get(handler)?;
    let insn = own.verified.code().get(at as usize)?.to_text();
    let line = hits.session.interposer()?.handler(own.probe)?.1.line(at as u32);
    let line = if line > 0 { format!(", line {line}") } else { String::new() };
    let of = if hit.handlers.len() > 1 { format!(" of {}", hits.name(own)) } else { String::new() };
    Some(format!("operation {at}{of} ({insn}{line})"))
}
