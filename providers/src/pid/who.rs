//! The processes to probe: `pid<N>`, `pid$target`, `pid*`, and the choice of `--target`.

use std::sync::Arc;

use trapline_interposer::Who;

use super::error::PidError;
use crate::target::{Programs, TargetProcess, process_number};

/// The prefix of the provider's names.
pub const PID: &str = "pid";

/// Whether a provider's name has the form of a name of `pid`.
pub fn is_ours(provider: &str) -> bool {
    provider.strip_prefix(PID).is_some_and(|rest| {
        matches!(rest, "$target" | "*") || !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The processes of a provider's name, and the name for its probes: with the process id, if it is known.
pub fn meant(programs: Programs<'_>, provider: &str) -> Result<(Who, Arc<str>), PidError> {
    let written = || Arc::from(provider);
    match provider.strip_prefix(PID).unwrap_or_default() {
        "*" => Ok((Who::Any, written())),
        "$target" => match &programs.options.target {
            None => Err(PidError::NoTarget(provider.to_owned())),
            Some(TargetProcess::Pid(number)) => Ok((Who::Number(*number), format!("{PID}{number}").into())),
            Some(TargetProcess::Name(name)) => Ok((Who::Name(name.clone()), written())),
            Some(TargetProcess::Path(path)) => {
                let path = programs.files.resolve(path).unwrap_or_else(|| path.clone());
                Ok((Who::Path(path), written()))
            }
        },
        digits => match process_number(digits) {
            Some(number) => Ok((Who::Number(number), format!("{PID}{number}").into())),
            None => Err(PidError::InvalidPid(provider.to_owned())),
        },
    }
}
