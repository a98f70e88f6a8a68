//! Findings in words: the hit, what differs from it, and what happens.

use trapline_emu::PAGE;
use trapline_interposer::{AlteredRun, Difference, Word, processor_register};
use trapline_rpn::Context;
use trapline_session::{Ending, Places, Position, Recording, counted};

use crate::error::FuzzError;
use crate::finding::{Changed, Told};
use crate::hits::{Hit, Hits, Page};
use crate::minimise::real_bytes;
use crate::objectives::Objectives;
use crate::patience::Patience;
use crate::state::State;
use crate::trials::Trials;

/// A difference in words, beside what the real hit has.
pub fn words(difference: &Difference, hit: &Hit, wide: bool) -> String {
    match difference {
        Difference::Word { what, value } => {
            let name = what.name(wide);
            match hit.words.get(*what) {
                Some(real) => format!("{name} is {value:#x}; at the real hit it is {real:#x}"),
                None => format!("{name} is {value:#x}; at the real hit the handler does not ask for it"),
            }
        }
        Difference::Memory { address, bytes } => {
            let real = real_bytes(hit, *address, bytes.len());
            let page = address & !(PAGE - 1);
            let absent = matches!(hit.pages.get(&page), Some(Page::Absent));
            let was = match real.iter().copied().collect::<Option<Vec<u8>>>() {
                _ if absent => "its page is absent".to_owned(),
                Some(real) => format!("it holds {}", shown(&real)),
                None => "the handler does not read it".to_owned(),
            };
            let many = if bytes.len() == 1 { "byte" } else { "bytes" };
            format!(
                "memory {address:#x} holds {} ({} {many}); at the real hit {was}",
                shown(bytes),
                bytes.len()
            )
        }
        Difference::Absent { page } => format!("the page {page:#x} cannot be read; at the real hit it can"),
        Difference::Name(name) => format!("the task's name is \"{}\"", name.escape_ascii()),
        Difference::Local { number, value } => {
            format!("local variable {number} is {value:#x} before the handler runs")
        }
        Difference::Global { number, value } => {
            format!("global variable {number} is {value:#x} before the handler runs")
        }
        Difference::Processor { register, bytes } => {
            format!("{} holds {}", Word::register(Context::Current, *register).name(wide), shown(bytes))
        }
    }
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
                hit.words.insert(*what, processor_register(core, *register).unwrap_or_default());
            }
            _ => {}
        }
    }
    let wide = session.target().width().bytes() == 8;
    let symbol = session.symbol_of(hit.ip).map_or(String::new(), |symbol| format!(" {symbol}"));
    let mut lines = vec![format!(
        "{}, hit {} at {:#x}{symbol}, after {} instructions:",
        told.program, hit.number, hit.ip, hit.icount
    )];
    if values.is_empty() {
        lines.push("  everything is as at the real hit".to_owned());
    }
    lines.extend(values.iter().map(|value| format!("  {}", words(value, hit, wide))));
    let what = match told.what.as_str() {
        "" => String::new(),
        // Where the code came from that is none.
        what if what.starts_with("after ") => format!(" {what}"),
        what => format!(" at {what}"),
    };
    let later = counted(recording.end().icount.saturating_sub(hit.icount), "instruction");
    let how = recording.ending().filter(|ending| **ending != Ending::Limit);
    let how = how.map_or(String::new(), |how| format!(": {how}"));
    lines.push(format!("Then the objective {} falls{what}, after {later}{how}.", told.objective));
    Ok(lines)
}

/// A finding of handlers.
fn of_handlers(
    recording: &Recording,
    places: &Places,
    told: &Told,
    (runs, put): (&[AlteredRun], &[Difference]),
    file: &str,
) -> Result<Vec<String>, FuzzError> {
    let hits = Hits::before(recording, places, told.at.icount, runs.len().max(1) * 4)?;
    let first = runs.first().and_then(|run| {
        hits.list
            .iter()
            .position(|hit| hit.name == told.program && hit.point == run.point && hit.run == run.run)
    });
    let Some(first) = first else { return Err(FuzzError::NotAFinding(file.to_owned())) };
    let mut state = State { first, hits: runs.iter().map(|run| run.differences.clone()).collect() };
    if let Some(first) = state.hits.first_mut() {
        first.splice(0..0, put.iter().cloned());
    }
    let mut trials = Trials::new(hits, Objectives::default(), usize::MAX);
    // What the real hits have of all that is asked for.
    trials.learn(&State { first, hits: vec![Vec::new(); state.hits.len()] })?;
    trials.learn(&state)?;
    let mut lines = Vec::new();
    let (mut number, mut last) = (Some(first), first);
    let wide = trials.hits().session.target().width().bytes() == 8;
    let symbols = |ip: u64| {
        let symbol = trials.hits().session.target().symbol(ip);
        symbol.map_or(String::new(), |symbol| format!(" {symbol}"))
    };
    for differences in &state.hits {
        let Some(hit) = number.and_then(|number| trials.hits().list.get(number)) else { break };
        lines.push(format!(
            "{}, run {} at {:#x}{}, after {} instructions:",
            hit.name,
            hit.run,
            hit.ip,
            symbols(hit.ip),
            hit.icount
        ));
        if differences.is_empty() {
            lines.push("  everything is as at the real hit".to_owned());
        }
        lines.extend(differences.iter().map(|difference| {
            let in_guest = if put.contains(difference) { "in the guest, too: " } else { "" };
            format!("  {in_guest}{}", words(difference, hit, wide))
        }));
        last = number.unwrap_or(last);
        number = number.and_then(|number| trials.hits().after(number));
    }
    let handler = trials.hits().list.get(last).map(|hit| (hit.handler.code(), hit.probe));
    let operation = handler.and_then(|(code, probe)| {
        let insn = code.get(told.operation as usize)?.to_text();
        let line = trials.hits().session.interposer()?.handler(probe)?.1.line(told.operation as u32);
        let line = if line > 0 { format!(", line {line}") } else { String::new() };
        Some(format!("operation {} ({insn}{line})", told.operation))
    });
    let place = operation.unwrap_or_else(|| format!("operation {}", told.operation));
    let what = if told.what.is_empty() { String::new() } else { format!(" {}", told.what) };
    lines.push(match runs.iter().any(|run| run.through) {
        false => format!("Then the objective {} falls{what} at {place}.", told.objective),
        true => format!(
            "What the handler writes goes to the guest. Then the objective {} falls{what}, at most {} later.",
            told.objective,
            counted(recording.end().icount.saturating_sub(told.at.icount), "instruction")
        ),
    });
    Ok(lines)
}
