//! Formats single values: numbers, dates, symbols, faults.

use super::field::Field;
use super::format::Conversion;
use super::histogram::histogram;
use super::record::{ERROR_PART, Reader};
use super::sort::deviation;
use super::tables::{AggKind, Aggregation};
use crate::float::Float;
use crate::names::{NamedProbe, ProbeName, Symbolize};
use crate::record::Header;

/// The probe that has fired.
#[derive(Clone, Copy)]
pub struct Firing<'a> {
    /// Its name.
    pub name: &'a ProbeName,
    /// Its identifier.
    pub id: u32,
    /// The number of the clause.
    pub clause: u32,
    /// Virtual time in nanoseconds.
    pub time: u64,
    /// What tells the threads apart: the process id, if records have it.
    pub thread: u64,
    /// The names of addresses.
    pub symbols: ShowSymbols<'a>,
}

impl<'a> Firing<'a> {
    /// The firing of a probe that a record with this header is of.
    pub fn of(probe: NamedProbe<'a>, header: &Header, symbols: ShowSymbols<'a>) -> Self {
        Self {
            name: probe.name,
            id: probe.id,
            clause: header.major,
            time: header.time_ns,
            thread: header.pid.into(),
            symbols,
        }
    }
}

/// Names addresses of code.
pub type ShowSymbols<'a> = &'a dyn Symbolize;

/// The sentence about a fault, if a record contains one. It ends in the line of the program; in dtrace(1)'s words in what its
/// published tests have in place of an address of BPF, which RPN does not have.
pub(super) fn fault(firing: Firing<'_>, data: &[u8], like_dtrace: bool) -> Option<String> {
    let mut reader = Reader::new(data);
    reader.part().filter(|part| *part == ERROR_PART)?;
    let (kind, address, clause, probe) = (reader.int()?, reader.int()?, reader.int()?, reader.int()?);
    let what = match kind {
        1 => format!("invalid address ({address:#x})"),
        4 => "divide-by-zero".to_owned(),
        5 => "out of scratch space".to_owned(),
        11 => format!("index out of bounds ({})", address as i64),
        _ => "illegal operation".to_owned(),
    };
    let place = match reader.int() {
        _ if like_dtrace => " at BPF pc NNN".to_owned(),
        Some(line @ 1..) => format!(" at line {line}"),
        // An older record.
        _ => String::new(),
    };
    Some(format!("error in dt_clause_{clause} for probe ID {probe} ({}): {what}{place}", firing.name))
}

/// The least number of digits of an integer.
pub(super) const fn int_width(size: u8) -> i64 {
    match size {
        1 => 3,
        2 => 5,
        4 => 8,
        _ => 16,
    }
}

/// The least number of digits of an integer in `trace()`: as many as the type may need, without a sign.
pub(super) const fn trace_width(size: u8) -> i64 {
    match size {
        1 => 3,
        2 => 5,
        4 => 10,
        _ => 19,
    }
}

/// A value divided by its normal.
pub(super) fn shown_value(aggregation: &Aggregation, normal: u64, value: &[u64]) -> u64 {
    let normal = normal.max(1);
    let divided = |value: u64, by: u64| {
        if aggregation.signed { (value as i64).wrapping_div(by as i64) as u64 } else { value / by }
    };
    match (aggregation.kind, value) {
        (AggKind::Avg, [0, _]) => 0,
        (AggKind::Avg, [count, sum]) => divided(divided(*sum, normal), *count),
        (AggKind::Stddev, value) => deviation(value) / normal,
        (_, [first, ..]) => divided(*first, normal),
        _ => 0,
    }
}

/// A value at the end of a line.
pub(super) fn value_text(aggregation: &Aggregation, normal: u64, value: &[u64]) -> String {
    if aggregation.kind.is_histogram() {
        return histogram(aggregation.kind, value, normal);
    }
    let shown = shown_value(aggregation, normal, value);
    if aggregation.signed { format!(" {:>16}", shown as i64) } else { format!(" {shown:>16}") }
}

/// A number as the name of an address, which may lie in the kernel only: what a process had mapped is not known any more.
pub(super) fn named(symbols: ShowSymbols<'_>, address: u64) -> String {
    symbols.address(address).unwrap_or_else(|| format!("{address:#x}"))
}

/// A floating-point number, by the bits of its value, as a conversion shows it.
pub(super) fn float(c: &Conversion, field: Field, bits: u64, precision: Option<u32>) -> String {
    let size = if let Field::Float(size) = field { size } else { 8 };
    let shown = Float::of_word(bits, size);
    shown
        .map_or_else(String::new, |it| it.formatted(c.letter(), precision.unwrap_or(6) as usize, c.alternate))
}

/// The same without a conversion.
pub(super) fn float_text(bits: u64, size: u8) -> String {
    Float::of_word(bits, size).map_or_else(String::new, |float| float.to_string())
}

/// `%Y`: nanoseconds since 1970 as a date in UTC.
pub(super) fn date(nanoseconds: u64) -> String {
    let ((year, month, day), time) = moment(nanoseconds);
    format!("{year:04} {month} {day:2} {time}")
}

/// `%T`: the same in the form of RFC 822.
pub(super) fn date_of_mail(nanoseconds: u64) -> String {
    let ((year, month, day), time) = moment(nanoseconds);
    // The first day was a Thursday.
    let weekday = (nanoseconds / 86_400_000_000_000 + 4) % 7;
    let names = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    let weekday = names.get(weekday as usize).copied().unwrap_or("Sun");
    format!("{weekday}, {day:02} {month} {year:04} {time} +0000")
}

/// Year, month and day, and the time of the day, of a number of nanoseconds since 1970.
fn moment(nanoseconds: u64) -> ((i64, &'static str, i64), String) {
    let seconds = (nanoseconds / 1_000_000_000) as i64;
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Civil from days, with years that begin in March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year_of_era + era * 400 + year;
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let name = names.get(month as usize - 1).copied().unwrap_or("Jan");
    ((year, name, day), format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60))
}
