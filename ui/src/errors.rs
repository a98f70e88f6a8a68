//! What is said of handlers that exceptions ended: the first failure of each probe as dtrace(1) says it, and at the end
//! how many there were.

use trapline_interposer::{HandlerError, Interposer, ProbeNames};
use trapline_rpn::exception;

use crate::talk::{Talk, counted};

/// Says what has failed since the last call.
pub fn report(interposer: &mut Interposer, talk: &Talk) {
    for error in interposer.take_errors() {
        if let Some(sentence) = sentence(&error, interposer.names()) {
            talk.note(&sentence);
        }
    }
}

/// Says how many handlers of each probe failed, of those that failed more than once.
pub fn totals(interposer: &Interposer, talk: &Talk) {
    let names = interposer.names();
    for (number, errors) in names.errors().filter(|(_, errors)| *errors > 1) {
        if let Some(provided) = names.get(number) {
            let text =
                format!("{} on probe ID {} ({})", counted(errors, "error"), provided.id, provided.name);
            talk.note(&text);
        }
    }
}

/// The sentence of providers.md D. A probe point that no provider has put has its own way to tell: its records.
fn sentence(error: &HandlerError, names: ProbeNames<'_>) -> Option<String> {
    let provided = names.get(error.probe)?;
    let what = match exception::lowest(error.code) {
        exception::INVALID_ADDR => format!("invalid address ({:#x})", error.parm1),
        exception::DIVIDE_BY_ZERO => "divide-by-zero".to_owned(),
        _ => format!("illegal operation ({})", exception::name(error.code)),
    };
    Some(format!(
        "error on enabled probe ID {} (ID {}: {}): {what} in action #{} at RPN offset {}",
        error.probe + 1,
        provided.id,
        provided.name,
        error.at + 1,
        error.offset
    ))
}
