//! The kernel inside a bzImage: gzip, xz, lz4 (the legacy frame) or zstd, or not packed at all.
//!
//! The build appends the unpacked size to each stream (gzip streams contain it already), so that it is always the last four bytes.

use std::io::{ErrorKind, Read};

use super::LinuxError;
use crate::load::{MAX_IMAGE, first_bytes};

type Opener = for<'a> fn(&'a [u8]) -> Result<Box<dyn Read + 'a>, String>;

/// A way to pack: its name, the first bytes of its streams, and its reader.
struct Format {
    name: &'static str,
    magic: &'static [u8],
    open: Opener,
}

const FORMATS: [Format; 4] = [
    Format { name: "gzip", magic: &[0x1f, 0x8b], open: |s| Ok(Box::new(flate2::bufread::GzDecoder::new(s))) },
    Format { name: "xz", magic: b"\xfd7zXZ\0", open: |s| Ok(Box::new(liblzma::bufread::XzDecoder::new(s))) },
    Format {
        name: "lz4",
        magic: &[0x02, 0x21, 0x4c, 0x18],
        open: |s| Ok(Box::new(lz4_flex::frame::FrameDecoder::new(s))),
    },
    Format {
        name: "zstd",
        magic: &[0x28, 0xb5, 0x2f, 0xfd],
        open: |s| match ruzstd::decoding::StreamingDecoder::new(s) {
            Ok(reader) => Ok(Box::new(reader)),
            Err(_) => Err("the head of the stream is damaged".to_owned()),
        },
    },
];

/// Unpacks a payload; returns its format too.
pub(in crate::load) fn unpack(payload: &[u8]) -> Result<(&'static str, Vec<u8>), LinuxError> {
    if payload.starts_with(b"\x7fELF") {
        return Ok(("plain", payload.to_vec()));
    }
    let format = FORMATS.iter().find(|format| payload.starts_with(format.magic));
    let format = format.ok_or_else(|| LinuxError::PayloadFormat { first: first_bytes(payload) })?;
    let name = format.name;
    // The appended size is not part of the stream, but gzip's own trailer is.
    let (stream, size) = payload.split_last_chunk::<4>().map_or((payload, 0), |(stream, size)| {
        (if name == "gzip" { payload } else { stream }, u32::from_le_bytes(*size))
    });
    let failed = |unpacked, reason| LinuxError::Payload { format: name, unpacked, reason };
    let reader = (format.open)(stream).map_err(|reason| failed(0, reason))?;
    let mut unpacked = Vec::with_capacity(size.min(MAX_IMAGE as u32) as usize);
    match reader.take(MAX_IMAGE + 1).read_to_end(&mut unpacked) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            return Err(failed(unpacked.len(), "the stream ends early".to_owned()));
        }
        // The decoders describe damage in their own terms, some as debug output.
        Err(_) => return Err(failed(unpacked.len(), "the stream is damaged".to_owned())),
        Ok(_) if unpacked.len() as u64 > MAX_IMAGE => {
            return Err(LinuxError::PayloadTooLarge { format: name });
        }
        Ok(_) => {}
    }
    if unpacked.len() as u64 != u64::from(size) {
        return Err(LinuxError::PayloadSize { format: name, found: unpacked.len() as u64, said: size });
    }
    Ok((name, unpacked))
}
