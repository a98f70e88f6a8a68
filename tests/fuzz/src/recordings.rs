//! The target of recordings' files.

use crate::Checks;
use trapline_session::{ChunkKind, Framer, Recording};

const KINDS: [ChunkKind; 7] = [
    ChunkKind::Config,
    ChunkKind::Blob,
    ChunkKind::Event,
    ChunkKind::Checkpoint,
    ChunkKind::Console,
    ChunkKind::Pages,
    ChunkKind::End,
];

/// A file of these chunks, with all checksums right: each has its kind, its length in two bytes, and its content.
fn framed(mut bytes: &[u8]) -> Vec<u8> {
    let (mut file, mut framer) = Framer::begin();
    while let [kind, low, high, rest @ ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (content, rest) = rest.split_at(length);
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        file.extend(framer.chunk(kind, content).unwrap());
        bytes = rest;
    }
    file
}

/// Reads a file; whatever its content, the result is a recording or a one-sentence error.
fn read(file: &[u8]) {
    match Recording::from_bytes(file) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(recording) => {
            let names: Vec<&str> =
                recording.config().all_files().map(|(_, file)| file.name.as_str()).collect();
            assert!(!names.is_empty());
            assert!(recording.commands().count() <= recording.log().len());
            let _ = (recording.end(), recording.ending(), recording.brought());
            // A truncated file is read up to its end, or refused in a sentence.
            for cut in [file.len() / 2, file.len().saturating_sub(1)] {
                match Recording::from_bytes(&file[..cut]) {
                    Ok(cut) => assert!(!cut.is_whole() && cut.log().len() <= recording.log().len()),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
}

pub fn recording(bytes: &[u8], _: Checks) {
    read(bytes);
    read(&framed(bytes));
}
