//! The sixteen colours, in the form that every terminal knows.
//!
//! crossterm writes them as entries of a table of 256 (`38;5;10`). Terminals with eight or sixteen colours do not know
//! that table, and take its numbers for blinking text and other things.

/// Rewrites the first sixteen entries of the table, of text and of background, as the colours' own numbers.
pub fn sixteen(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(2).position(|two| two == b"\x1b[") {
        let (before, sequence) = rest.split_at(at + 2);
        out.extend_from_slice(before);
        let length = sequence.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b';')).count();
        let (parameters, after) = sequence.split_at(length);
        match std::str::from_utf8(parameters) {
            Ok(text) if after.first() == Some(&b'm') => out.extend(own_numbers(text).bytes()),
            _ => out.extend_from_slice(parameters),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

/// The parameters of one sequence.
fn own_numbers(parameters: &str) -> String {
    let mut written: Vec<String> = Vec::new();
    let mut parts = parameters.split(';');
    while let Some(part) = parts.next() {
        let mut ahead = parts.clone();
        let entry = match (part, ahead.next()) {
            ("38" | "48", Some("5")) => ahead.next().and_then(|entry| entry.parse::<u8>().ok()),
            _ => None,
        };
        let first = if part == "48" { 40 } else { 30 };
        match entry {
            Some(entry @ 0..8) => written.push((first + entry).to_string()),
            Some(entry @ 8..16) => written.push((first + 60 + entry - 8).to_string()),
            Some(entry) => written.push(format!("{part};5;{entry}")),
            None => {
                written.push(part.to_owned());
                continue;
            }
        }
        parts = ahead;
    }
    written.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_below_sixteen_have_their_own_numbers() {
        for (from, to) in [
            ("a\x1b[38;5;10mb", "a\x1b[92mb"),
            ("\x1b[38;5;6;48;5;0m", "\x1b[36;40m"),
            ("\x1b[48;5;15;1m", "\x1b[107;1m"),
            ("\x1b[38;5;214;49m", "\x1b[38;5;214;49m"),
            ("\x1b[38;2;5;10;9m", "\x1b[38;2;5;10;9m"),
            ("\x1b[0m\x1b[m\x1b[39;49m", "\x1b[0m\x1b[m\x1b[39;49m"),
            ("\x1b[5;1H38;5;10m\x1b[38;5", "\x1b[5;1H38;5;10m\x1b[38;5"),
            ("\x1b[38;5;999m\x1b", "\x1b[38;5;999m\x1b"),
        ] {
            assert_eq!(String::from_utf8(sixteen(from.as_bytes())).unwrap(), to);
        }
    }
}
