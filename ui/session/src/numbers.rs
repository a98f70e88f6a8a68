//! Numbers as users write them. Every option and every script line reads them here, so they look alike everywhere.
//!
//! A number is decimal or `0x` and hexadecimal digits. `_` may separate digits. A unit may follow: in a *count*
//! (instructions, hits, steps) K, M and G are powers of 1000; in a *size* in bytes K, M, G and T are powers of 1024, and `KB`
//! and `KiB` mean the same as `K`.

use std::time::Duration;

use trapline_rpn::Width;
use trapline_trace::ChannelConfig;

use crate::plural::counted;

/// The largest channel in bytes.
const LARGEST_CHANNEL: u64 = 1 << 32;

/// Why a text is not a valid number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// It is not a number at all.
    #[error("`{0}` is not a number; write 1500000, 1_500_000, 0x16e360, 1500K or 2M")]
    NotANumber(String),
    /// It needs more than 64 bits.
    #[error("`{0}` does not fit 64 bits; use a smaller number")]
    TooLarge(String),
    /// It is outside the valid range.
    #[error("{value} is out of range; use a number from {least} to {most}")]
    Range {
        /// The number.
        value: u64,
        /// The smallest that is accepted.
        least: u64,
        /// The largest that is accepted.
        most: u64,
    },
    /// It must be at least 1.
    #[error("0 has no effect here; use a number of at least 1")]
    Zero,
    /// It is not `insns=N`.
    #[error("`{0}` is not a position; write insns=N, such as insns=1500K")]
    NotAPosition(String),
    /// It is not a time of the host.
    #[error("`{0}` is not a time; write 60s, 10m or 2h")]
    NotATime(String),
    /// It is not a time of the guest.
    #[error("`{0}` is not a time of the guest; write 500us, 10ms, 1s or 2m")]
    NotVirtual(String),
    /// It is not a size that guest memory can have.
    #[error("guest memory of {} is not possible; use 1M to 32G, in multiples of 4K", counted(*.0, "byte"))]
    Memory(u64),
    /// It is not a size that a channel can have.
    #[error("`{0}` is not a channel size; use at least one byte and one sub-buffer, at most 4G in all")]
    Channel(String),
}

/// The value of a unit; `None` for other text.
type Unit = fn(&str) -> Option<u64>;

fn thousands(unit: &str) -> Option<u64> {
    match unit {
        "" => Some(1),
        "K" => Some(1_000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        _ => None,
    }
}

fn bytes(unit: &str) -> Option<u64> {
    match unit {
        "" | "B" => Some(1),
        "K" | "KB" | "KIB" => Some(1 << 10),
        "M" | "MB" | "MIB" => Some(1 << 20),
        "G" | "GB" | "GIB" => Some(1 << 30),
        "T" | "TB" | "TIB" => Some(1 << 40),
        _ => None,
    }
}

fn parse(text: &str, unit: Unit) -> Result<u64, NumberError> {
    let no_number = || NumberError::NotANumber(text.to_owned());
    let (rest, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(rest) => (rest, 16),
        None => (text, 10),
    };
    let digits = rest.find(|c: char| !c.is_digit(radix) && c != '_').unwrap_or(rest.len());
    let (digits, suffix) = rest.split_at_checked(digits).ok_or_else(no_number)?;
    let unit = unit(&suffix.to_ascii_uppercase()).ok_or_else(no_number)?;
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return Err(no_number());
    }
    let too_large = || NumberError::TooLarge(text.to_owned());
    let value = u64::from_str_radix(&digits.replace('_', ""), radix).map_err(|_| too_large())?;
    value.checked_mul(unit).ok_or_else(too_large)
}

/// A count, such as one of instructions: `300M`, `1_000`, `0x100`.
///
/// # Errors
/// The text is not a number of 64 bits.
pub fn count(text: &str) -> Result<u64, NumberError> {
    parse(text, thousands)
}

/// A count of at least 1.
///
/// # Errors
/// The text is not a number of 64 bits, or is 0.
pub fn positive(text: &str) -> Result<u64, NumberError> {
    match count(text)? {
        0 => Err(NumberError::Zero),
        value => Ok(value),
    }
}

/// A count within a range.
///
/// # Errors
/// The text is not a number, or is out of the range.
pub fn within(text: &str, least: u64, most: u64) -> Result<u64, NumberError> {
    let value = count(text)?;
    if (least..=most).contains(&value) { Ok(value) } else { Err(NumberError::Range { value, least, most }) }
}

/// A size in bytes: `256M`, `4096`, `0x1000`, `64KiB`.
///
/// # Errors
/// The text is not a number of 64 bits.
pub fn size(text: &str) -> Result<u64, NumberError> {
    parse(text, bytes)
}

/// The position `insns=N`, as a script has it.
///
/// # Errors
/// The text is not a position.
pub fn position(text: &str) -> Result<u64, NumberError> {
    let number = text.strip_prefix("insns=").ok_or_else(|| NumberError::NotAPosition(text.to_owned()))?;
    count(number)
}

/// A time of the host: seconds, minutes or hours.
///
/// # Errors
/// The text is not such a time, or is 0.
pub fn time(text: &str) -> Result<Duration, NumberError> {
    let not_a_time = || NumberError::NotATime(text.to_owned());
    let units = [('s', 1), ('m', 60), ('h', 3600)];
    let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, *seconds)));
    let (number, unit): (&str, u64) = found.ok_or_else(not_a_time)?;
    let number = number.parse::<u64>().map_err(|_| not_a_time())?;
    match number.checked_mul(unit) {
        Some(0) => Err(NumberError::Zero),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err(NumberError::TooLarge(text.to_owned())),
    }
}

/// A time of the guest in nanoseconds: `ns`, `us`, `ms`, `s` or `m`.
///
/// # Errors
/// The text is not such a time, or is 0.
pub fn virtual_time(text: &str) -> Result<u64, NumberError> {
    let not_a_time = || NumberError::NotVirtual(text.to_owned());
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000)];
    let found = units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns)));
    let (number, unit): (&str, u64) = found.ok_or_else(not_a_time)?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(not_a_time());
    }
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match number {
        Some(0) => Err(NumberError::Zero),
        Some(ns) => Ok(ns),
        None => Err(NumberError::TooLarge(text.to_owned())),
    }
}

/// The size of guest memory: at least 1 MiB, in whole pages.
///
/// # Errors
/// The text is not such a size.
pub fn memory(text: &str) -> Result<u64, NumberError> {
    let size = size(text)?;
    if size < 1 << 20 || !size.is_multiple_of(4096) { Err(NumberError::Memory(size)) } else { Ok(size) }
}

/// `SIZE` or `SIZExCOUNT`: the bytes of a sub-buffer and the number of sub-buffers.
///
/// # Errors
/// The text is not such a size, or the channel would have no room or more than 4 GiB.
pub fn channel(text: &str) -> Result<ChannelConfig, NumberError> {
    // The x of `0x1000` is part of the number.
    let first = if text.starts_with("0x") || text.starts_with("0X") { 2 } else { 0 };
    let separator = text.get(first..).and_then(|rest| rest.find(['x', 'X'])).map(|at| at + first);
    let (bytes, number) = match separator.and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?))) {
        Some((bytes, number)) => (size(bytes)?, count(number)?),
        None => (size(text)?, ChannelConfig::default().sub_buffers as u64),
    };
    let total = bytes.checked_mul(number).filter(|total| (1..=LARGEST_CHANNEL).contains(total));
    let config = total.and_then(|_| {
        Some(ChannelConfig::fixed(usize::try_from(bytes).ok()?, usize::try_from(number).ok()?))
    });
    config.ok_or_else(|| NumberError::Channel(text.to_owned()))
}

/// The last of `length` bytes from an address of a guest on.
///
/// # Errors
/// The guest can have no such addresses: it has as many bits as its word, and of 64 the upper ones are equal (Intel SDM, vol. 1,
/// 3.3.7.1, "Canonical Addressing").
pub fn last_address(width: Width, low: u64, length: u64) -> Result<u64, String> {
    let last = low.checked_add(length.saturating_sub(1));
    // All 0 or all 1 in a canonical address.
    let upper = |address: u64| address.cast_signed() >> 47;
    let fits = |address: u64| match width {
        Width::W32 => address >> 32 == 0,
        Width::W64 => matches!(upper(address), 0 | -1),
    };
    let has = match width {
        Width::W32 => "have 32 bits",
        Width::W64 => "have 48 bits, and the bits above them are as the highest of these",
    };
    if !fits(low) {
        return Err(format!("{low:#x} is no address of this guest: its addresses {has}"));
    }
    last.filter(|last| fits(*last) && (width == Width::W32 || upper(*last) == upper(low))).ok_or_else(|| {
        format!("{length} bytes at {low:#x} reach beyond the addresses of this guest, which {has}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sizes_are_written_alike() {
        for (text, value) in
            [("0", 0), ("300", 300), ("1_000", 1_000), ("0x100", 256), ("0X1_00", 256), ("007", 7)]
        {
            assert_eq!((count(text), size(text)), (Ok(value), Ok(value)), "{text}");
        }
        assert_eq!((count("300M"), size("300M")), (Ok(300_000_000), Ok(300 << 20)));
        assert_eq!((count("1_500k"), size("0x10K")), (Ok(1_500_000), Ok(16 << 10)));
        assert_eq!((size("1gib"), size("4096B"), size("2KB")), (Ok(1 << 30), Ok(4096), Ok(2048)));
    }

    #[test]
    fn addresses_are_those_that_the_guest_can_have() {
        let last = |width, low, length| last_address(width, low, length).ok();
        assert_eq!(last(Width::W32, 0xffff_fff8, 8), Some(0xffff_ffff));
        for (low, length) in [(0xffff_fff8, 9), (1 << 32, 1), (u64::MAX, 2)] {
            assert_eq!(last(Width::W32, low, length), None, "{low:#x}:{length}");
        }
        let (half, upper) = (1 << 47, 0xffff_8000_0000_0000);
        assert_eq!(last(Width::W64, half - 1, 1), Some(half - 1));
        assert_eq!(last(Width::W64, upper, 16), Some(upper + 15));
        assert_eq!(last(Width::W64, u64::MAX, 1), Some(u64::MAX));
        for (low, length) in
            [(half - 1, 2), (half, 1), (upper - 1, 1), (u64::MAX, 2), (half - 1, u64::MAX / 2 + 2)]
        {
            assert_eq!(last(Width::W64, low, length), None, "{low:#x}:{length}");
        }
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for text in ["", "M", "_1", "+1", "-1", "1P", "0x", "0xg", "1 000", "1.5M", "M5", "0x_1", "é", "1é"]
        {
            assert_eq!(count(text), Err(NumberError::NotANumber(text.to_owned())), "{text}");
            assert_eq!(size(text), Err(NumberError::NotANumber(text.to_owned())), "{text}");
        }
        for text in ["99999999999999999999", "18446744073709551615K", "0x1_0000_0000_0000_0000"] {
            assert_eq!(count(text), Err(NumberError::TooLarge(text.to_owned())), "{text}");
        }
        assert_eq!((count("1T").is_err(), size("1T")), (true, Ok(1 << 40)));
        assert_eq!(positive("0"), Err(NumberError::Zero));
        assert_eq!(within("257", 1, 256), Err(NumberError::Range { value: 257, least: 1, most: 256 }));
    }

    #[test]
    fn memory_is_whole_pages() {
        assert_eq!(memory("256M"), Ok(256 << 20));
        assert_eq!(memory("0x100000"), Ok(1 << 20));
        assert_eq!(memory("100"), Err(NumberError::Memory(100)));
        assert_eq!(memory("1048577"), Err(NumberError::Memory(1_048_577)));
    }

    #[test]
    fn channels_are_sizes_and_counts() {
        let config = channel("64Kx8").unwrap();
        assert_eq!((config.sub_buffer_size, config.sub_buffers), (65536, 8));
        let config = channel("0x1000x0x10").unwrap();
        assert_eq!((config.sub_buffer_size, config.sub_buffers), (4096, 16));
        assert_eq!(channel("4K").unwrap().sub_buffer_size, 4096);
        assert_eq!(channel("0x4").unwrap().sub_buffer_size, 4);
        for bad in ["1Gx100", "1Kxmany", "0x0", "4x0", "0x4x", "x4"] {
            assert!(channel(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_of_the_guest_have_a_unit() {
        let all = ["7ns", "500us", "10ms", "1s", "2m"].map(|text| virtual_time(text).unwrap());
        assert_eq!(all, [7, 500_000, 10_000_000, 1_000_000_000, 120_000_000_000]);
        for bad in ["", "s", "5", "1h", "-1s", "1.5s", "+1s", "1 s"] {
            assert_eq!(virtual_time(bad), Err(NumberError::NotVirtual(bad.to_owned())), "{bad}");
        }
        assert_eq!(virtual_time("0ms"), Err(NumberError::Zero));
        assert!(matches!(virtual_time("99999999999m"), Err(NumberError::TooLarge(_))));
    }

    #[test]
    fn positions_are_counts() {
        assert_eq!(position("insns=3M"), Ok(3_000_000));
        assert_eq!(position("3M"), Err(NumberError::NotAPosition("3M".to_owned())));
    }
}
