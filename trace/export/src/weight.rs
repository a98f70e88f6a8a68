//! What the width of a frame counts.

use std::str::FromStr;

use serde_json::Value;
use trapline_trace::{RecordView, Symbolize};

use crate::hit::number;

/// What the width of a frame counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weight {
    /// Hits with this stack, or calls.
    Count,
    /// Instructions between entry and return, without those of inner calls.
    Insns,
    /// Nanoseconds of virtual time between entry and return, without those of inner calls.
    Ns,
    /// The logged word of this number, from 0.
    Word(usize),
    /// The argument of this name, or `returns`: the value of the function.
    Argument(String),
}

/// Text that is no weight.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no weight; use count, insns, ns, the number of a logged word from 0, or the name of an argument"
)]
pub struct WeightError(String);

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |text: &str| {
            !text.starts_with(|c: char| c.is_ascii_digit())
                && !text.is_empty()
                && text.chars().all(|c| c.is_alphanumeric() || c == '_')
        };
        match text {
            "count" => Ok(Self::Count),
            "insns" => Ok(Self::Insns),
            "ns" => Ok(Self::Ns),
            word if word.bytes().all(|byte| byte.is_ascii_digit()) && !word.is_empty() => {
                word.parse().map(Self::Word).map_err(|_| WeightError(text.to_owned()))
            }
            name if is_name(name) => Ok(Self::Argument(name.to_owned())),
            _ => Err(WeightError(text.to_owned())),
        }
    }
}

impl Weight {
    /// The weight of a hit; `None` if its record does not hold the value, or the value is negative.
    pub(crate) fn of(&self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> Option<u64> {
        match self {
            Self::Count | Self::Insns | Self::Ns => Some(1),
            Self::Word(n) => {
                let size = usize::from(record.header.width / 8);
                let from = n.checked_mul(size)?;
                let bytes = record.data.get(from..from.checked_add(size)?)?;
                Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
            }
            Self::Argument(name) => {
                let layout = symbols.layout(record.header.probe)?;
                let (what, values) = layout.json(record.data, record.header.width)?;
                let value = match (what, &values) {
                    ("returns", value) if name == "returns" => value.get("value"),
                    (_, Value::Array(all)) => all
                        .iter()
                        .find(|one| one.get("name").is_some_and(|own| own == name.as_str()))?
                        .get("value"),
                    _ => None,
                }?;
                number(value).filter(|_| value.as_i64().is_none_or(|value| value >= 0))
            }
        }
    }

    /// The unit of the numbers.
    pub(crate) fn unit(&self) -> &str {
        match self {
            Self::Count => "hits",
            Self::Insns => "instructions",
            Self::Ns => "ns",
            Self::Word(_) => "of the logged word",
            Self::Argument(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_words_numbers_or_names() {
        assert_eq!("insns".parse(), Ok(Weight::Insns));
        assert_eq!("2".parse(), Ok(Weight::Word(2)));
        assert_eq!("bytes".parse(), Ok(Weight::Argument("bytes".to_owned())));
        for wrong in ["", "a b", "99999999999999999999999", "2x", "-1"] {
            assert!(wrong.parse::<Weight>().is_err(), "{wrong}");
        }
    }
}
