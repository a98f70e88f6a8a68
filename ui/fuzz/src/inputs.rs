//! The inputs of a function of the guest: what a search changes before it runs, and where that is at a real hit.

use std::fmt;
use std::str::FromStr;

use trapline_emu::{Core, PAGE};
use trapline_interposer::{Difference, Interposer, Word, difference, is_writable, processor_register};
use trapline_rpn::{Context, Reg, by_name};
use trapline_session::numbers;

use crate::error::FuzzError;
use crate::hits::Hit;

/// Most bytes of one input.
pub const MOST: u64 = 1 << 16;
/// Equal bytes between two differences of memory.
const GAP: usize = 8;

/// How many bytes an argument points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many.
    Bytes(u64),
    /// As many as another argument says at the real hit.
    Argument(u8),
}

/// An input, as `--input` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// `argN:LEN`: the memory to which an argument points.
    Argument(u8, Length),
    /// `FIRST:LAST`: memory at these addresses.
    Range(u64, u64),
    /// A general register.
    Register(Reg),
}

/// Why a text is not an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an input; write arg0:64 or arg0:arg1 for the memory to which an argument points, a register such as esi, or addresses FIRST:LAST, of at most 65536 bytes"
)]
pub struct InputError(String);

/// The number in `argN`.
fn argument(text: &str) -> Option<u8> {
    text.strip_prefix("arg")?.parse().ok().filter(|number| *number < 16)
}

impl FromStr for Input {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let wrong = || InputError(text.to_owned());
        let Some((first, second)) = text.split_once(':') else {
            let row = by_name(text).filter(|row| row.reg.gpr_number().is_some());
            return row.map(|row| Self::Register(row.reg)).ok_or_else(wrong);
        };
        if let Some(number) = argument(first) {
            let length = match argument(second) {
                Some(other) => Length::Argument(other),
                None => Length::Bytes(numbers::within(second, 1, MOST).map_err(|_| wrong())?),
            };
            return Ok(Self::Argument(number, length));
        }
        let range = numbers::count(first).ok().zip(numbers::count(second).ok());
        let range = range.filter(|(low, high)| low <= high && high - low < MOST);
        range.map(|(low, high)| Self::Range(low, high)).ok_or_else(wrong)
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(number, Length::Bytes(bytes)) => write!(f, "arg{number}:{bytes}"),
            Self::Argument(number, Length::Argument(other)) => write!(f, "arg{number}:arg{other}"),
            Self::Range(low, high) => write!(f, "{low:#x}:{high:#x}"),
            Self::Register(register) => {
                let name = Word::register(Context::Current, *register).name(true);
                f.write_str(name.strip_prefix("register ").unwrap_or(&name))
            }
        }
    }
}

/// An input at a real hit: where it is, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The register, or the address.
    pub at: At,
    /// What it holds at the real hit.
    pub real: Vec<u8>,
}

/// Where an input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// In a register.
    Register(Reg),
    /// In memory.
    Memory(u64),
}

impl Place {
    /// Finds an input at the hit at which the machine is, and keeps its real value with the hit.
    ///
    /// # Errors
    /// The argument is not known, or the memory cannot be written.
    pub fn find(
        input: Input,
        hit: &mut Hit,
        core: &Core,
        interposer: Option<&Interposer>,
    ) -> Result<Self, FuzzError> {
        let wrong = |why: String| FuzzError::Input { input: input.to_string(), hit: hit.number, why };
        let argument = |number: u8| {
            let probe = hit.handlers.first().map(|handler| handler.probe);
            let found = interposer.zip(probe).and_then(|(all, probe)| all.argument_of(core, probe, number));
            found.ok_or_else(|| wrong(format!("the probe has no argument {number}")))
        };
        let (address, length) = match input {
            Input::Register(register) => {
                let value = processor_register(core, register).unwrap_or_default();
                let size = if core.env().code64() { 8 } else { 4 };
                if let Some(handler) = hit.handlers.first_mut() {
                    handler.words.insert(Word::register(Context::Current, register), value);
                }
                let real = value.to_le_bytes().get(..size).unwrap_or_default().to_vec();
                return Ok(Self { at: At::Register(register), real });
            }
            Input::Range(low, high) => (low, high - low + 1),
            Input::Argument(number, Length::Bytes(bytes)) => (argument(number)?, bytes),
            Input::Argument(number, Length::Argument(other)) => (argument(number)?, argument(other)?),
        };
        if !(1..=MOST).contains(&length) {
            return Err(wrong(format!("{length} bytes are no length: use 1 to {MOST}")));
        }
        let mut real = vec![0; length as usize];
        let (mut page, last) = (address & !(PAGE - 1), address.wrapping_add(length - 1));
        while page <= last {
            let at = page.max(address);
            if !is_writable(core, at) {
                return Err(wrong(format!("{at:#x} cannot be written")));
            }
            hit.pages.entry(page).or_insert_with(|| Hit::look(core, page));
            let Some(next) = page.checked_add(PAGE) else { break };
            page = next;
        }
        core.peek(address, &mut real).map_err(|at| wrong(format!("{at:#x} cannot be read")))?;
        Ok(Self { at: At::Memory(address), real })
    }
}

/// The bytes of all inputs, one after the other, with these differences.
#[must_use]
pub fn gather(places: &[Place], differences: &[Difference]) -> Vec<u8> {
    let mut all = Vec::new();
    for place in places {
        let mut own = place.real.clone();
        for difference in differences {
            match (place.at, difference) {
                (At::Memory(low), Difference::Memory { address, bytes }) => {
                    difference::put(low, &mut own, *address, bytes);
                }
                (At::Register(register), Difference::Word { what, value })
                    if *what == Word::register(Context::Current, register) =>
                {
                    own.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
                }
                _ => {}
            }
        }
        all.extend(own);
    }
    all
}

/// The differences that give the inputs these bytes: for memory, one for each run of bytes that are not as at the real hit. Bytes
/// that are missing are as there.
#[must_use]
pub fn scatter(places: &[Place], mut bytes: &[u8]) -> Vec<Difference> {
    let mut differences = Vec::new();
    for place in places {
        let (own, rest) = bytes.split_at(place.real.len().min(bytes.len()));
        bytes = rest;
        match place.at {
            At::Memory(low) => differences.extend(runs(&place.real, own).into_iter().map(|(first, last)| {
                let bytes = own.get(first..=last).unwrap_or_default().to_vec();
                Difference::Memory { address: low.wrapping_add(first as u64), bytes }
            })),
            At::Register(_) if place.real.starts_with(own) => {}
            At::Register(register) => {
                let mut value = [0; 8];
                value.iter_mut().zip(&place.real).for_each(|(to, from)| *to = *from);
                value.iter_mut().zip(own).for_each(|(to, from)| *to = *from);
                let what = Word::register(Context::Current, register);
                differences.push(Difference::Word { what, value: u64::from_le_bytes(value) });
            }
        }
    }
    differences
}

/// The first and last bytes of runs that differ; less than [`GAP`] equal bytes do not end one.
fn runs(real: &[u8], own: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, _) in own.iter().zip(real).enumerate().filter(|(_, (own, real))| own != real) {
        match runs.last_mut() {
            Some((_, last)) if at - *last <= GAP => *last = at,
            _ => runs.push((at, at)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_read_and_written_alike() {
        for text in ["arg0:64", "arg1:arg2", "0x1000:0x10ff", "rsi"] {
            assert_eq!(text.parse::<Input>().unwrap().to_string(), text);
        }
        for wrong in ["", "arg0", "arg0:0", "arg99:4", "5:1", "0:0x10000", "cr3", "xmm0", "arg0:70000"] {
            let error = wrong.parse::<Input>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is not an input; write ")), "{error}");
        }
    }

    #[test]
    fn only_what_differs_is_a_difference() {
        let places = [
            Place { at: At::Memory(0x1000), real: vec![1, 2, 3, 4] },
            Place { at: At::Register(by_name("esi").unwrap().reg), real: vec![9, 0, 0, 0] },
        ];
        let bytes = [1, 7, 8, 4, 9, 0, 1, 0];
        let differences = scatter(&places, &bytes);
        assert_eq!(differences[0], Difference::Memory { address: 0x1001, bytes: vec![7, 8] });
        assert!(matches!(differences[1], Difference::Word { value: 0x1_0009, .. }));
        assert_eq!(gather(&places, &differences), bytes);
        assert_eq!(runs(&[0; 30], &[&[1][..], &[0; 20], &[1, 0, 1, 0]].concat()), [(0, 0), (21, 23)]);
        assert_eq!(scatter(&places, &gather(&places, &[])), []);
        assert_eq!(scatter(&places, &[1, 2]), []);
    }
}
