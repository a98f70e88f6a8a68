//! Positions in a run as users write them. All commands and options parse them here.

use std::fmt;
use std::str::FromStr;

use crate::numbers::{NumberError, count};

/// A place in a run.
///
/// ```
/// use trapline_session::Position;
///
/// assert_eq!("300M".parse(), Ok(Position::At { icount: 300_000_000, ordinal: 0 }));
/// assert_eq!("1_000.4".parse(), Ok(Position::At { icount: 1_000, ordinal: 4 }));
/// assert_eq!("hit:7".parse(), Ok(Position::Hit(7)));
/// assert_eq!("hit:7.2".parse(), Ok(Position::InHit { hit: 7, operation: 2 }));
/// assert_eq!("end-5".parse(), Ok(Position::BeforeEnd(5)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// When this many instructions have retired, before the next one.
    At {
        /// How many.
        icount: u64,
        /// Within the hit there: the number of RPN instructions of the handlers at this count that have been executed.
        ordinal: u64,
    },
    /// When the displaced instruction of the hit of this number, from 1, of all probes together, has completed.
    Hit(u64),
    /// Within the hit of this number.
    InHit {
        /// The number, as of [`Position::Hit`].
        hit: u64,
        /// The number of RPN instructions of its handler that have been executed.
        operation: u64,
    },
    /// This many instructions before the end.
    BeforeEnd(u64),
}

/// Why a text is not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    /// It has a different form.
    #[error("`{0}` is not a position; write an instruction count such as 300M, hit:N, end or end-N")]
    Form(String),
    /// Its number is invalid.
    #[error(transparent)]
    Number(#[from] NumberError),
    /// Hits count from 1.
    #[error("hits count from 1: the first hit is hit:1")]
    HitZero,
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        if let Some(number) = text.strip_prefix("hit:") {
            let (hit, operation) =
                number.split_once('.').map_or((number, None), |(hit, operation)| (hit, Some(operation)));
            return match (count(hit)?, operation.map(count).transpose()?) {
                (0, _) => Err(PositionError::HitZero),
                (hit, None) => Ok(Self::Hit(hit)),
                (hit, Some(operation)) => Ok(Self::InHit { hit, operation }),
            };
        }
        if let Some(rest) = text.strip_prefix("end") {
            return match rest.strip_prefix('-') {
                Some(number) => Ok(Self::BeforeEnd(count(number)?)),
                None if rest.is_empty() => Ok(Self::BeforeEnd(0)),
                None => Err(PositionError::Form(text.to_owned())),
            };
        }
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(PositionError::Form(text.to_owned()));
        }
        match text.split_once('.') {
            // A unit there belongs to a fraction, which no count has.
            Some((_, ordinal)) if ordinal.chars().any(char::is_alphabetic) && !ordinal.starts_with("0x") => {
                Err(PositionError::Form(text.to_owned()))
            }
            Some((icount, ordinal)) => Ok(Self::At { icount: count(icount)?, ordinal: count(ordinal)? }),
            None => Ok(Self::At { icount: count(text)?, ordinal: 0 }),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { icount, ordinal: 0 } => write!(f, "{icount}"),
            Self::At { icount, ordinal } => write!(f, "{icount}.{ordinal}"),
            Self::Hit(number) => write!(f, "hit:{number}"),
            Self::InHit { hit, operation } => write!(f, "hit:{hit}.{operation}"),
            Self::BeforeEnd(0) => f.write_str("end"),
            Self::BeforeEnd(number) => write!(f, "end-{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_position_is_read_as_that_position() {
        for text in
            ["0", "5", "300000000", "17.3", "hit:1", "hit:1000", "hit:7.0", "hit:7.12", "end", "end-5"]
        {
            assert_eq!(text.parse::<Position>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_position_is_refused_in_a_sentence() {
        for (text, sentence) in [
            ("", "`` is not a position; write an instruction count such as 300M, hit:N, end or end-N"),
            (
                "ending",
                "`ending` is not a position; write an instruction count such as 300M, hit:N, end or end-N",
            ),
            ("hit:0", "hits count from 1: the first hit is hit:1"),
            ("5x", "`5x` is not a number; write 1500000, 1_500_000, 0x16e360, 1500K or 2M"),
            ("5.", "`` is not a number; write 1500000, 1_500_000, 0x16e360, 1500K or 2M"),
            ("end-x", "`x` is not a number; write 1500000, 1_500_000, 0x16e360, 1500K or 2M"),
        ] {
            assert_eq!(text.parse::<Position>().unwrap_err().to_string(), sentence);
        }
    }
}
