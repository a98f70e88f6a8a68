//! Messages about handlers that an exception ended: the first failure of each probe, and at the end their number.

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

/// Counts the failures of each probe that failed more than once.
pub fn totals(interposer: &Interposer, talk: &Talk) {
    let names = interposer.names();
    for (number, errors) in names.errors().filter(|(_, errors)| *errors > 1) {
        let errors = counted(errors, "error");
        if let Some(provided) = names.get(number) {
            talk.warn(&format!("{errors} on probe ID {} ({})", provided.id, provided.name));
        } else if let Some((program, major, minor)) = names.program(number) {
            talk.warn(&format!("{errors} on probe ({major},{minor}) of {program}"));
        }
    }
}

/// Whether the probe is at a return of a function.
fn is_return(error: &HandlerError, names: ProbeNames<'_>) -> bool {
    names.get(error.probe).is_some_and(|provided| *provided.name.name == *"return")
}

/// The sentence of dtrace(1) for a provider's probe; for a probe point of a program the line of its source.
fn sentence(error: &HandlerError, names: ProbeNames<'_>) -> Option<String> {
    let what = match exception::lowest(error.code) {
        exception::INVALID_ADDR => format!("invalid address ({:#x})", error.parm1),
        exception::DIVIDE_BY_ZERO => "divide-by-zero".to_owned(),
        // A tail call; other probes that lack an argument are refused when they are enabled.
        exception::INVALID_OPERAND if error.parm1 == NO_ARGUMENT && is_return(error, names) => {
            "no return value: the function jumps to another function here, which returns later".to_owned()
        }
        _ => format!("illegal operation ({})", exception::name(error.code)),
    };
    let at = format!("{what} in action #{} at RPN offset {}", error.at + 1, error.offset);
    let Some(provided) = names.get(error.probe) else {
        let (program, major, minor) = names.program(error.probe)?;
        let line = if error.line > 0 { format!(":{}", error.line) } else { String::new() };
        return Some(format!("{program}{line}: error on probe ({major},{minor}): {at}"));
    };
    let (enabled, id, name) = (error.probe + 1, provided.id, &provided.name);
    Some(format!("error on enabled probe ID {enabled} (ID {id}: {name}): {at}"))
}
