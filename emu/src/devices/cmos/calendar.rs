//! Civil dates of the proleptic Gregorian calendar and seconds since 1970, in integers, total for every input.

/// A date and time of day as the clock's registers hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    /// Year, 0 to 9999 when computed; up to 26,000 when decoded from nonsense.
    pub year: u32,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Day of the week, 1 = Sunday.
    pub weekday: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
}

const DAY: i64 = 86_400;
/// Days of 400 years.
const ERA: i64 = 146_097;
/// Seconds before 1970 began 0000-03-01, in days.
const EPOCH_DAYS: i64 = 719_468;

/// Seconds since 1970 of `date`; fields beyond their range carry over, a month outside 1 to 12 is clamped.
pub(super) fn seconds_from_civil(date: Date) -> i64 {
    let month = i64::from(date.month.clamp(1, 12));
    let year = i64::from(date.year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + i64::from(date.day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * ERA + day_of_era - EPOCH_DAYS;
    days * DAY + i64::from(date.hour) * 3600 + i64::from(date.minute) * 60 + i64::from(date.second)
}

/// The date of `seconds` since 1970, years modulo 10000.
pub(super) fn civil_from_seconds(seconds: i64) -> Date {
    let days = seconds.div_euclid(DAY);
    let in_day = seconds.rem_euclid(DAY);
    let shifted = days + EPOCH_DAYS;
    let era = shifted.div_euclid(ERA);
    let day_of_era = shifted.rem_euclid(ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = (era * 400 + year_of_era + i64::from(month <= 2)).rem_euclid(10_000);
    let small = |value: i64| (value & 0xff) as u8;
    Date {
        year: u32::try_from(year).unwrap_or(0),
        month: small(month),
        day: small(day_of_year - (153 * shifted_month + 2) / 5 + 1),
        weekday: small((days + 4).rem_euclid(7) + 1),
        hour: small(in_day / 3600),
        minute: small(in_day / 60 % 60),
        second: small(in_day % 60),
    }
}

/// Seconds from `from` (inclusive) to the first time of day that matches; `None` in a field matches anything, the
/// result is `None` if nothing can match.
pub(super) fn seconds_until(
    from: i64,
    hour: Option<u8>,
    minute: Option<u8>,
    second: Option<u8>,
) -> Option<u64> {
    let start = from.rem_euclid(DAY);
    for day in 0..2i64 {
        for h in field(hour, 24) {
            let hour_start = day * DAY + h * 3600;
            if hour_start + 3599 < start {
                continue;
            }
            for m in field(minute, 60) {
                let minute_start = hour_start + m * 60;
                if minute_start + 59 < start {
                    continue;
                }
                if let Some(s) = field(second, 60).find(|s| minute_start + s >= start) {
                    return u64::try_from(minute_start + s - start).ok();
                }
            }
        }
    }
    None
}

/// The values of a field: one wanted value (none if it is out of range), or all.
fn field(wanted: Option<u8>, limit: i64) -> std::ops::Range<i64> {
    match wanted {
        None => 0..limit,
        Some(value) if i64::from(value) < limit => i64::from(value)..i64::from(value) + 1,
        Some(_) => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_round_trip() {
        for seconds in [0, 946_684_800, 951_782_400, 951_868_800, 4_102_444_799, -1, 1_709_164_800] {
            assert_eq!(seconds_from_civil(civil_from_seconds(seconds)), seconds);
        }
        let leap = civil_from_seconds(951_782_400);
        assert_eq!((leap.year, leap.month, leap.day, leap.weekday), (2000, 2, 29, 3));
    }

    #[test]
    fn alarm_distance() {
        assert_eq!(seconds_until(0, Some(0), Some(0), Some(0)), Some(0));
        assert_eq!(seconds_until(1, Some(0), Some(0), Some(0)), Some(86_399));
        assert_eq!(seconds_until(59, None, None, Some(0)), Some(1));
        assert_eq!(seconds_until(3600, None, Some(30), None), Some(1800));
        assert_eq!(seconds_until(0, Some(24), None, None), None);
    }
}
