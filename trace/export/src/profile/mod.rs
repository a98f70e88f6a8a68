//! Where a run spends its instructions, as tables: from samples, which are records of ticks with their stacks.
//!
//! [`Samples`] puts the records of a tick together, [`Table`] counts, [`ProfileSink`] writes one table at the end of a run,
//! and [`Top`] holds what `trapline top` shows. None of them looks at the host's clock.

mod samples;
mod sink;
mod table;
mod top;
mod top_sink;

pub use samples::{Sample, Samples};
pub use sink::{Counted, ProfileSink};
pub use table::{By, Count, Table};
pub use top::{Moment, Top};
pub use top_sink::{Every, TopForm, TopSink, write_total};

/// The row of an instruction whose name is not known.
const UNKNOWN: &str = "(unknown)";

/// A share in percent.
#[must_use]
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// A number with commas between groups of three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_of_three_digits() {
        let all = [0, 12, 123, 1234, 123_456, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "12", "123", "1,234", "123,456", "1,234,567"]);
    }
}
