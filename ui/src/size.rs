//! Sizes and counts on the command line: `256M`, `64K`, `4096`, sub-buffers, `64Kx8`, instructions, `insns=2M`.

use trapline_trace::ChannelConfig;

/// Bytes, from a number with an optional K, M or G (powers of 1024).
///
/// # Errors
/// One sentence, for clap.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or("").to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        other => return Err(format!("the unit {other} is not one of K, M and G")),
    };
    let number: u64 = digits.parse().map_err(|_| "a number such as 256M would be right".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "the size does not fit 64 bits".to_owned())
}

/// A count of instructions: decimal or `0x..`, with `_`, and K, M or G for thousands, millions and thousand millions.
pub fn parse_count(text: &str) -> Option<u64> {
    let plain = text.replace('_', "");
    let (digits, unit) = match plain.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (plain.get(..at), 1_000),
        Some((at, 'M' | 'm')) => (plain.get(..at), 1_000_000),
        Some((at, 'G' | 'g')) => (plain.get(..at), 1_000_000_000),
        _ => (Some(plain.as_str()), 1),
    };
    let digits = digits.unwrap_or_default();
    let (digits, radix) = digits.strip_prefix("0x").map_or((digits, 10), |hex| (hex, 16));
    let value = if digits.starts_with('+') { None } else { u64::from_str_radix(digits, radix).ok() };
    value?.checked_mul(unit)
}

/// `insns=N`, as a script has it.
///
/// # Errors
/// One sentence, for clap.
pub fn parse_at(text: &str) -> Result<u64, String> {
    let count = text.strip_prefix("insns=").and_then(parse_count);
    count.ok_or_else(|| "insns=N, a count of instructions such as insns=1500K, would be right".to_owned())
}

/// The size of guest memory: whole pages, at least 1 MiB.
///
/// # Errors
/// One sentence, for clap.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if size < 1 << 20 || size % 4096 != 0 {
        return Err("at least 1M and a multiple of 4096 would be right".to_owned());
    }
    Ok(size)
}

/// `SIZE` or `SIZExCOUNT`: bytes of a sub-buffer and how many there are.
///
/// # Errors
/// One sentence, for clap.
pub fn parse_channel(text: &str) -> Result<ChannelConfig, String> {
    const MOST: u64 = 1 << 32;
    let default = ChannelConfig::default();
    let (size, count) = match text.split_once(['x', 'X']) {
        Some((size, count)) => {
            let count: usize = count.parse().map_err(|_| format!("{count:?} is no count of sub-buffers"))?;
            (parse_size(size)?, count)
        }
        None => (parse_size(text)?, default.sub_buffers),
    };
    let total = size.checked_mul(count as u64);
    if size == 0 || count == 0 || total.is_none_or(|total| total > MOST) {
        return Err("at least one byte and one sub-buffer, together at most 4G, would be right".to_owned());
    }
    let sub_buffer_size = usize::try_from(size).map_err(|error| error.to_string())?;
    Ok(ChannelConfig::fixed(sub_buffer_size, count))
}

#[cfg(test)]
mod tests {
    //! What is understood and what is not.
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_size("256M"), Ok(256 << 20));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("1gib"), Ok(1 << 30));
        assert!(parse_size("M").is_err());
        assert!(parse_size("1T").is_err());
        assert!(parse_size("99999999999999999999").is_err());
        assert!(parse_size("18446744073709551615K").is_err());
        assert!(parse_memory("100").is_err());
        assert!(parse_memory("1048577").is_err());
    }

    #[test]
    fn channels_are_sizes_and_counts() {
        let config = parse_channel("64Kx8").unwrap();
        assert_eq!((config.sub_buffer_size, config.sub_buffers), (65536, 8));
        assert_eq!(parse_channel("4K").unwrap().sub_buffer_size, 4096);
        assert!(parse_channel("0x4").is_err());
        assert!(parse_channel("1Gx100").is_err());
        assert!(parse_channel("1Kxmany").is_err());
    }
}
