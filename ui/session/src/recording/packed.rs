//! Bytes preceded by their length, compressed with zstd if this makes them shorter.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// Most bytes of a chunk of console text.
pub const MOST_CONSOLE: usize = 1 << 20;
/// Shorter texts are not compressed.
const LEAST: usize = 128;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

/// How, the length, and the bytes.
pub fn pack(bytes: &[u8]) -> Vec<u8> {
    let with = |how: u8, content: &[u8]| {
        let mut packed = vec![how];
        packed.extend((bytes.len() as u64).to_le_bytes());
        packed.extend_from_slice(content);
        packed
    };
    if bytes.len() < LEAST {
        return with(PLAIN, bytes);
    }
    let compressed = compress_to_vec(bytes, CompressionLevel::Fastest);
    if compressed.len() < bytes.len() { with(ZSTD, &compressed) } else { with(PLAIN, bytes) }
}

/// The length of the bytes that [`pack`] has packed.
pub fn length(packed: &[u8]) -> Option<u64> {
    packed.get(1..)?.first_chunk().map(|length| u64::from_le_bytes(*length))
}

/// The bytes that [`pack`] has packed, if there are at most `most` of them; otherwise the error, as the end of a
/// sentence.
pub fn unpack(packed: &[u8], most: u64) -> Result<Vec<u8>, String> {
    let wrong = || "is not what was packed".to_owned();
    let length = length(packed).ok_or_else(wrong)?;
    if length > most {
        return Err(format!("unpacks to {length} bytes, but at most {most} are possible"));
    }
    let content = packed.get(9..).ok_or_else(wrong)?;
    let bytes = match packed.first() {
        Some(&PLAIN) => content.to_vec(),
        Some(&ZSTD) => {
            let mut bytes = Vec::new();
            let decoder =
                StreamingDecoder::new(content).map_err(|error| format!("cannot be unpacked: {error}"))?;
            let read = decoder.take(length + 1).read_to_end(&mut bytes);
            read.map_err(|error| format!("cannot be unpacked: {error}"))?;
            bytes
        }
        _ => return Err(wrong()),
    };
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked_and_texts_become_shorter() {
        let text = b"[    0.000000] Linux version\r\n".repeat(200);
        let noise: Vec<u8> = (0..9000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for bytes in [&b""[..], b"short", &text, &noise] {
            assert_eq!(unpack(&pack(bytes), 10_000).unwrap(), bytes);
        }
        assert!(pack(&text).len() < text.len() / 4);
    }

    #[test]
    fn data_that_unpacks_to_more_than_the_limit_is_refused() {
        let packed = pack(&[0; 5000]);
        assert_eq!(
            unpack(&packed, 4999).unwrap_err(),
            "unpacks to 5000 bytes, but at most 4999 are possible"
        );
        let mut lies = packed.clone();
        lies[1] = 1;
        lies[2] = 0;
        assert!(unpack(&lies, 5000).is_err());
        assert!(unpack(&[], 1).is_err() && unpack(&[1; 8], 1).is_err() && unpack(&[7; 9], u64::MAX).is_err());
    }
}
