//! The keys of an English keyboard with 101 keys, as scan codes of set 1.

const SHIFT: u8 = 0x2a;
const CONTROL: u8 = 0x1d;
const RELEASED: u8 = 0x80;

/// The keys from scan code 02h on: what each types without and with Shift; a blank where a key types nothing.
const PLAIN: &[u8; 52] = b"1234567890-=\x08\tqwertyuiop[]\n asdfghjkl;'` \\zxcvbnm,./";
const SHIFTED: &[u8; 52] = b"!@#$%^&*()_+\x08\tQWERTYUIOP{}\n ASDFGHJKL:\"~ |ZXCVBNM<>?";
const FIRST: u8 = 2;
const SPACE: u8 = 0x39;
const ESCAPE: u8 = 0x01;

/// The scan codes that type a character: the key, and the keys held with it, pressed and released. `None` if no key types it.
/// Carriage return and newline are Enter; 01h to 1Ah other than these are a letter with Control.
pub fn codes_of(character: u8) -> Option<Vec<u8>> {
    let find = |table: &[u8; 52], c: u8| {
        table.iter().position(|key| *key == c && c != b' ').map(|n| n as u8 + FIRST)
    };
    let character = if character == b'\r' { b'\n' } else { character };
    let (held, key) = match character {
        b' ' => (None, SPACE),
        0x1b => (None, ESCAPE),
        0x7f => (None, find(PLAIN, 8)?),
        c => match (find(PLAIN, c), find(SHIFTED, c)) {
            (Some(key), _) => (None, key),
            (None, Some(key)) => (Some(SHIFT), key),
            (None, None) if (1..=26).contains(&c) => (Some(CONTROL), find(PLAIN, c + b'a' - 1)?),
            (None, None) => return None,
        },
    };
    Some(match held {
        None => vec![key, key | RELEASED],
        Some(held) => vec![held, key, key | RELEASED, held | RELEASED],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printable_character_has_a_key() {
        for c in (0x20..0x7f).chain(*b"\n\r\t\x08\x1b\x03") {
            assert!(codes_of(c).is_some(), "{c:#x}");
        }
        assert_eq!(codes_of(b'a'), Some(vec![0x1e, 0x9e]));
        assert_eq!(codes_of(b'A'), Some(vec![0x2a, 0x1e, 0x9e, 0xaa]));
        assert_eq!(codes_of(b'\r'), Some(vec![0x1c, 0x9c]));
        assert_eq!(codes_of(b'|'), Some(vec![0x2a, 0x2b, 0xab, 0xaa]));
        assert_eq!(codes_of(b'z'), Some(vec![0x2c, 0xac]));
        assert_eq!(codes_of(b'/'), Some(vec![0x35, 0xb5]));
        assert_eq!(codes_of(3), Some(vec![0x1d, 0x2e, 0xae, 0x9d]));
        assert_eq!(codes_of(0xe9), None);
    }
}
