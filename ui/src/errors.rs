//! Messages about handlers that an exception ended: the first failure of each probe, and at the end their number.

use std::collections::HashMap;

use trapline_interposer::{HandlerError, Interposer, ProbeNames};
use trapline_rpn::exception;

use trapline_session::counted;

use crate::talk::Talk;

/// The first parameter of INVALID_OPERAND where `push arg` or `push ret` has no value.
const NO_ARGUMENT: u64 = 8;

/// Reports a failure.
pub fn report(error: &HandlerError, names: ProbeNames<'_>, talk: &Talk) {
    if let Some(sentence) = sentence(error, names) {
        talk.warn(&sentence);
    }
}

/// Counts the failures of each probe that failed more than once, at all its sites and in all programs that enable it.
pub fn totals(interposer: &Interposer, talk: &Talk) {
    let names = interposer.names();
    let mut probes: Vec<(String, u64)> = Vec::new();
    let mut places: HashMap<u32, usize> = HashMap::new();
    for (number, errors) in names.errors() {
        if let Some(provided) = names.get(number) {
            let place = *places.entry(provided.id).or_insert(probes.len());
            match probes.get_mut(place) {
                Some((_, all)) => *all += errors,
                None => probes.push((format!("probe ID {} ({})", provided.id, provided.name), errors)),
            }
        } else if let Some((program, major, minor)) = names.program(number) {
            probes.push((format!("probe ({major},{minor}) of {program}"), errors));
        }
    }
    for (probe, errors) in probes.into_iter().filter(|(_, errors)| *errors > 1) {
        talk.warn(&format!("{} on {probe}", counted(errors, "error")));
    }
}

/// Whether the probe is at a return of a function.
fn is_return(error: &HandlerError, names: ProbeNames<'_>) -> bool {
    names.get(error.probe).is_some_and(|provided| *provided.name.name == *"return")
}

/// The sentence of dtrace(1) for a provider's probe; for a probe point of a program the line of its source.
fn sentence(error: &HandlerError, names: ProbeNames<'_>) -> Option<String> {
    let place = format!("in action #{} at RPN offset {}", error.at + 1, error.offset);
    let what = match exception::lowest(error.code) {
        0 => format!("more than {} (--max-steps) {place}", counted(error.parm1, "instruction")),
        exception::INVALID_ADDR => format!("invalid address ({:#x}) {place}", error.parm1),
        exception::DIVIDE_BY_ZERO => format!("divide-by-zero {place}"),
        // A tail call; other probes that lack an argument are refused when they are enabled.
        exception::INVALID_OPERAND if error.parm1 == NO_ARGUMENT && is_return(error, names) => format!(
            "no return value {place}: the function jumps to another function here, which returns later"
        ),
        _ => format!("illegal operation ({}) {place}", exception::name(error.code)),
    };
    let Some(provided) = names.get(error.probe) else {
        let (program, major, minor) = names.program(error.probe)?;
        let line = if error.line > 0 { format!(":{}", error.line) } else { String::new() };
        return Some(format!("{program}{line}: error on probe ({major},{minor}): {what}"));
    };
    let (enabled, id, name) = (names.enabled(error.probe), provided.id, &provided.name);
    Some(format!("error on enabled probe ID {enabled} (ID {id}: {name}): {what}"))
}
