//! Typed keys: bytes for the guest, and commands after Ctrl-A.

const PREFIX: u8 = 1;

/// A part of the typed input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// Bytes for the guest.
    Typed(Vec<u8>),
    /// Ctrl-A and this key, in lower case.
    Command(u8),
}

/// Separates keys and commands, however the bytes arrive.
#[derive(Debug, Default)]
pub struct Keys {
    /// Whether Ctrl-A was the last.
    prefixed: bool,
}

impl Keys {
    /// The meaning of further bytes, in order.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for &byte in bytes {
            match (std::mem::take(&mut self.prefixed), byte) {
                (false, PREFIX) => self.prefixed = true,
                (true, PREFIX | b'a' | b'A') => typed(&mut keys, PREFIX),
                (false, byte) => typed(&mut keys, byte),
                (true, byte) => keys.push(Key::Command(byte.to_ascii_lowercase())),
            }
        }
        keys
    }
}

fn typed(keys: &mut Vec<Key>, byte: u8) {
    match keys.last_mut() {
        Some(Key::Typed(bytes)) => bytes.push(byte),
        _ => keys.push(Key::Typed(vec![byte])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_after_ctrl_a_wherever_the_bytes_are_cut() {
        let typed = |text: &[u8]| Key::Typed(text.to_vec());
        let all: &[(&[u8], &[Key])] = &[
            (b"ls\r", &[typed(b"ls\r")]),
            (b"\x03\x04\x1a", &[typed(b"\x03\x04\x1a")]),
            (b"a\x01x", &[typed(b"a"), Key::Command(b'x')]),
            (b"\x01\x01b\x01a\x01A", &[typed(b"\x01b\x01\x01")]),
            (b"\x01Sq", &[Key::Command(b's'), typed(b"q")]),
            (b"\x01\x1b", &[Key::Command(0x1b)]),
        ];
        for (bytes, keys) in all {
            assert_eq!(Keys::default().take(bytes), *keys);
            let mut one_by_one = Keys::default();
            let mut joined: Vec<Key> = Vec::new();
            for key in bytes.chunks(1).flat_map(|byte| one_by_one.take(byte)) {
                match (joined.last_mut(), key) {
                    (Some(Key::Typed(before)), Key::Typed(more)) => before.extend(more),
                    (_, key) => joined.push(key),
                }
            }
            assert_eq!(joined, *keys);
        }
    }
}
