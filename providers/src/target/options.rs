//! The user's choices of how probes are found.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use trapline_rpn::Width;

/// RDI, RSI, RDX, RCX, R8, R9, by their numbers.
const SYSV: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// EAX, EDX, ECX.
const REGPARM: [usize; 3] = [0, 2, 1];
/// Largest number of a process (PID_MAX_LIMIT of Linux).
pub const LARGEST: u32 = 1 << 22;

/// Which sites fbt has in a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Rules {
    /// The first byte of every function, every return, jumps out of the function.
    #[default]
    Full,
    /// The sites of DTrace's fbt.
    Strict,
}

/// The user's choices of how probes are found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeOptions {
    /// Which sites fbt has.
    pub fbt: Rules,
    /// The calling convention, if the user has chosen it.
    pub abi: Option<Abi>,
    /// The process that `$target` stands for.
    pub target: Option<TargetProcess>,
    /// Whether children that such a process forks are included.
    pub follow_fork: bool,
}

/// A calling convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Abi {
    /// 32 bits: all arguments on the stack.
    Cdecl,
    /// 32 bits with `-mregparm=3`, as in Linux: EAX, EDX, ECX, then the stack.
    Regparm,
    /// System V for x86-64: RDI, RSI, RDX, RCX, R8, R9, then the stack.
    SysV,
}

/// An unknown calling convention.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown calling convention {0:?}; use cdecl, regparm or sysv")]
pub struct AbiError(pub String);

impl FromStr for Abi {
    type Err = AbiError;

    fn from_str(text: &str) -> Result<Self, AbiError> {
        match text {
            "cdecl" => Ok(Self::Cdecl),
            "regparm" => Ok(Self::Regparm),
            "sysv" => Ok(Self::SysV),
            _ => Err(AbiError(text.to_owned())),
        }
    }
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cdecl => "cdecl: on the stack",
            Self::Regparm => "regparm: in EAX, EDX and ECX, then on the stack",
            Self::SysV => "sysv: in RDI, RSI, RDX, RCX, R8 and R9, then on the stack",
        })
    }
}

impl Abi {
    /// Its name, as options have it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cdecl => "cdecl",
            Self::Regparm => "regparm",
            Self::SysV => "sysv",
        }
    }

    /// Width of the code that uses it.
    pub const fn width(self) -> Width {
        match self {
            Self::Cdecl | Self::Regparm => Width::W32,
            Self::SysV => Width::W64,
        }
    }

    /// Registers that hold the first arguments, and bytes of the word.
    pub(crate) const fn shape(self) -> (&'static [usize], u64) {
        match self {
            Self::Cdecl => (&[], 4),
            Self::Regparm => (&REGPARM, 4),
            Self::SysV => (&SYSV, 8),
        }
    }
}

/// The process that `$target` stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetProcess {
    /// By its number.
    Pid(u32),
    /// By the name of its task, or the last part of its program's path.
    Name(String),
    /// By its program's path in the guest.
    Path(String),
}

/// As options have it.
impl fmt::Display for TargetProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => pid.fmt(f),
            Self::Name(text) | Self::Path(text) => f.write_str(text),
        }
    }
}

/// An invalid target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text is empty.
    #[error("it is empty; give a process's name or id, or the path of its program")]
    Empty,
    /// A number that is not a valid process id.
    #[error("{0} is not a process id; use 1 to {LARGEST}")]
    Number(String),
    /// A path that depends on the current folder.
    #[error("{0} is not an absolute path; give the program's path in the guest, such as /bin/busybox")]
    Path(String),
}

impl FromStr for TargetProcess {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return process_number(text).map(Self::Pid).ok_or_else(|| TargetError::Number(text.to_owned()));
        }
        match text.contains('/') {
            true if text.starts_with('/') => Ok(Self::Path(text.to_owned())),
            true => Err(TargetError::Path(text.to_owned())),
            false => Ok(Self::Name(text.to_owned())),
        }
    }
}

/// The number of a process.
pub fn process_number(digits: &str) -> Option<u32> {
    digits.parse().ok().filter(|number| (1..=LARGEST).contains(number))
}
