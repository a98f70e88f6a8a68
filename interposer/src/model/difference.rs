//! Differences between a guest and what a handler sees of it: a state in which the guest is not.
//!
//! They change what handlers read. The guest itself stays as it is: what a handler with differences writes is seen by that run of
//! the handler, and by altered runs of later handlers at the same hit, unless it is to go through ([`AlteredRun::through`]).

use serde::{Deserialize, Serialize};
use std::fmt;
use trapline_emu::PAGE;
use trapline_rpn::{Argument, Context, REGISTERS, Reg, Shape};

/// A number that a handler can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Word {
    /// A register of the CPU at the hit, or of the user context.
    Register {
        /// Whether it is that of the user context.
        user: bool,
        /// Which.
        #[serde(with = "register")]
        register: Reg,
    },
    /// An argument of the probe.
    Argument(u8),
    /// The value that the function returns.
    Returned,
    /// `push pid`, and `tid` of D.
    Thread,
    /// `pid` of D.
    Process,
    /// `uid` and `gid` of D.
    User,
    /// `push task`, and `curthread` of D.
    Task,
    /// Virtual nanoseconds.
    Time,
    /// Instructions that the guest has executed.
    Instructions,
    /// `hit` of D.
    Hit,
    /// What a port gives.
    Port {
        /// Which.
        port: u16,
        /// Bytes.
        size: u8,
    },
}

impl Word {
    /// A register in a context.
    pub const fn register(context: Context, register: Reg) -> Self {
        Self::Register { user: matches!(context, Context::User), register }
    }

    /// An argument.
    pub const fn argument(which: Argument) -> Self {
        match which {
            Argument::Number(number) => Self::Argument(number),
            Argument::Returned => Self::Returned,
        }
    }
}

impl Word {
    /// Its name in a guest of 64 bits, or of 32.
    pub fn name(&self, wide: bool) -> String {
        match self {
            Self::Register { user, register } => {
                let whose = if *user { "user register" } else { "register" };
                format!("{whose} {}", register::name(*register, wide))
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register { .. } => f.write_str(&self.name(true)),
            Self::Argument(number) => write!(f, "argument {number}"),
            Self::Returned => write!(f, "return value"),
            Self::Thread => write!(f, "thread id"),
            Self::Process => write!(f, "process id"),
            Self::User => write!(f, "user id"),
            Self::Task => write!(f, "task"),
            Self::Time => write!(f, "virtual time"),
            Self::Instructions => write!(f, "instruction count"),
            Self::Hit => write!(f, "number of the hit"),
            Self::Port { port, size } => write!(f, "port {port:#x} ({size} bytes)"),
        }
    }
}

/// Registers by their names.
mod register {
    use super::{REGISTERS, Reg, Shape};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Its first name; in a guest of 64 bits that of the whole register where it has one.
    pub fn name(register: Reg, wide: bool) -> &'static str {
        let mut rows = REGISTERS.iter().filter(|row| row.reg == register);
        let first = rows.next();
        let whole = rows.find(|row| wide && row.shape != Shape::Low32);
        whole.or(first).map_or("?", |row| row.name)
    }

    pub fn serialize<S: Serializer>(register: &Reg, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(name(*register, true))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Reg, D::Error> {
        let name = String::deserialize(from)?;
        let row = REGISTERS.iter().find(|row| row.name == name);
        row.map(|row| row.reg).ok_or_else(|| D::Error::custom(format!("there is no register {name}")))
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Difference {
    /// A number has this value.
    Word {
        /// Which.
        what: Word,
        /// The value.
        value: u64,
    },
    /// Memory holds these bytes. A page that is not in memory is then there, and holds zeroes otherwise.
    Memory {
        /// Linear address.
        address: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// This page cannot be read: it is absent, a device's, or after the end of RAM.
    Absent {
        /// Its linear address.
        page: u64,
    },
    /// The task has this name.
    Name(Vec<u8>),
    /// A local variable has this value.
    Local {
        /// Which.
        number: u32,
        /// The value.
        value: u64,
    },
    /// A global variable has this value.
    Global {
        /// Which.
        number: u32,
        /// The value.
        value: u64,
    },
    /// A register that is no general one holds these bytes, the lowest first. It is only put into a guest: no handler sees
    /// this difference.
    Processor {
        /// Which.
        #[serde(with = "register")]
        register: Reg,
        /// Its bytes, at most 16.
        bytes: Vec<u8>,
    },
}

/// The value of a number, if a difference has it.
pub fn word(differences: &[Difference], asked: Word) -> Option<u64> {
    differences.iter().rev().find_map(|difference| match difference {
        Difference::Word { what, value } if *what == asked => Some(*value),
        _ => None,
    })
}

/// Whether a page is absent by a difference.
pub fn is_absent(differences: &[Difference], page: u64) -> bool {
    differences
        .iter()
        .any(|difference| matches!(difference, Difference::Absent { page: own } if *own == page))
}

/// Whether a difference puts bytes into a page, so that it is there.
pub fn is_made(differences: &[Difference], page: u64) -> bool {
    differences.iter().any(|difference| {
        let Difference::Memory { address, bytes } = difference else { return false };
        let last = address.wrapping_add((bytes.len() as u64).saturating_sub(1));
        !bytes.is_empty() && (address & !(PAGE - 1) <= page && page <= last)
    })
}

/// Reads memory with differences: `base` reads a part of a page of the guest.
///
/// # Errors
/// The first address that cannot be read.
pub fn read(
    differences: &[Difference],
    address: u64,
    to: &mut [u8],
    mut base: impl FnMut(u64, &mut [u8]) -> Result<(), u64>,
) -> Result<(), u64> {
    let mut at = address;
    let mut rest = to;
    while !rest.is_empty() {
        let page = at & !(PAGE - 1);
        let length = rest.len().min((PAGE - at % PAGE) as usize);
        let (part, after) = rest.split_at_mut(length);
        if is_absent(differences, page) {
            return Err(at);
        }
        if let Err(failed) = base(at, part) {
            if !is_made(differences, page) {
                return Err(failed);
            }
            part.fill(0);
        }
        for difference in differences {
            if let Difference::Memory { address, bytes } = difference {
                put(at, part, *address, bytes);
            }
        }
        at = at.wrapping_add(length as u64);
        rest = after;
    }
    Ok(())
}

/// Copies bytes at an address to the memory that begins at `low`, as far as they are in it.
pub fn put(low: u64, memory: &mut [u8], address: u64, bytes: &[u8]) {
    let (low, address) = (i128::from(low), i128::from(address));
    let begin = low.max(address);
    let end = (low + memory.len() as i128).min(address + bytes.len() as i128);
    if begin >= end {
        return;
    }
    let to = memory.get_mut((begin - low) as usize..(end - low) as usize);
    let from = bytes.get((begin - address) as usize..(end - address) as usize);
    if let Some((to, from)) = to.zip(from) {
        to.copy_from_slice(from);
    }
}

/// What a handler sees at one of its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlteredRun {
    /// The probe point of its program, from 0.
    pub point: usize,
    /// The number of the handler's run there, from 1.
    pub run: u64,
    /// How what it sees differs from the guest.
    pub differences: Vec<Difference>,
    /// Whether what it writes goes to the guest too. Otherwise only altered runs at that hit see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub through: bool,
}
