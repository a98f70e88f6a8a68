//! Whose probes: `pid<N>`, `pid$target`, `pid*`, and what `--target` says.

use std::str::FromStr;
use std::sync::Arc;

use trapline_emu::load::Files;
use trapline_emu::symbols::UserModule;
use trapline_interposer::Who;

use super::error::PidError;
use crate::catalog::ProbeOptions;

/// What the provider's name begins with.
pub const PID: &str = "pid";
/// Largest number of a process (PID_MAX_LIMIT of Linux).
pub const LARGEST: u32 = 1 << 22;

/// The process that `$target` stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetProcess {
    /// By its number.
    Pid(u32),
    /// By the name of its task, or the last part of its program's path.
    Name(String),
    /// By its program's path in the guest.
    Path(String),
}

/// A text that names no process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Nothing.
    #[error("it is empty; a process's name or number or its program's path would be right")]
    Empty,
    /// A number that no process has.
    #[error("{0} is no process's number; 1 to {LARGEST} would be right")]
    Number(String),
    /// A path that depends on the current folder.
    #[error("{0} is no path from /; the program's path in the guest, such as /bin/busybox, would be right")]
    Path(String),
}

impl FromStr for TargetProcess {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return number(text).map(Self::Pid).ok_or_else(|| TargetError::Number(text.to_owned()));
        }
        match text.contains('/') {
            true if text.starts_with('/') => Ok(Self::Path(text.to_owned())),
            true => Err(TargetError::Path(text.to_owned())),
            false => Ok(Self::Name(text.to_owned())),
        }
    }
}

/// The number of a process.
fn number(digits: &str) -> Option<u32> {
    digits.parse().ok().filter(|number| (1..=LARGEST).contains(number))
}

/// Whether a provider's name is one of ours by its form.
pub fn is_ours(provider: &str) -> bool {
    provider.strip_prefix(PID).is_some_and(|rest| {
        matches!(rest, "$target" | "*") || !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The programs and libraries that can be probed, and what the user has chosen.
#[derive(Debug, Clone, Copy)]
pub struct Programs<'a> {
    /// In the order they were given.
    pub modules: &'a [Arc<UserModule>],
    /// The guest's files, through which paths lead.
    pub files: &'a Files,
    /// What the user has chosen.
    pub options: &'a ProbeOptions,
}

/// Who is meant by a provider's name, and the name as probes have it: with the number, where that is known.
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
        digits => match number(digits) {
            Some(number) => Ok((Who::Number(number), format!("{PID}{number}").into())),
            None => Err(PidError::InvalidPid(provider.to_owned())),
        },
    }
}
