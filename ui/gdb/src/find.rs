//! `qSearch:memory`: gdb's `find`, without the memory being sent.

use std::sync::atomic::Ordering;

use memchr::memmem::Finder;

use crate::check::hexadecimal;
use crate::debuggee::Debuggee;

/// Bytes that are read at a time.
const PIECE: usize = 4096;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The pattern begins here first.
    At(u64),
    /// It is nowhere.
    Nowhere,
    /// Memory before a match is absent, or the search was interrupted.
    Unknown,
}

/// The range and the pattern of `ADDRESS;LENGTH;PATTERN`, whose pattern has escapes.
pub fn parse(text: &[u8]) -> Option<(u64, u64, Vec<u8>)> {
    let mut parts = text.splitn(3, |byte| *byte == b';');
    let mut number = || hexadecimal(std::str::from_utf8(parts.next()?).ok()?);
    let (address, length) = (number()?, number()?);
    let mut escaped = parts.next()?.iter();
    let mut pattern = Vec::new();
    while let Some(byte) = escaped.next() {
        pattern.push(if *byte == b'}' { *escaped.next()? ^ 0x20 } else { *byte });
    }
    (!pattern.is_empty()).then_some((address, length, pattern))
}

/// Searches memory for a pattern that lies in the range as a whole.
pub fn find(debuggee: &Debuggee, address: u64, length: u64, pattern: &[u8]) -> Found {
    let (mut seen, mut at, mut left) = (Vec::<u8>::new(), address, length);
    // An address that wraps is no range.
    if address.checked_add(length.saturating_sub(1)).is_none() {
        return Found::Unknown;
    }
    let finder = Finder::new(pattern);
    while left > 0 {
        let size = (PIECE as u64).min(left) as usize;
        let mut piece = vec![0; size];
        let read = debuggee.read_memory(at, &mut piece);
        seen.extend(piece.iter().take(read));
        if let Some(place) = finder.find(&seen) {
            return Found::At(at + read as u64 - seen.len() as u64 + place as u64);
        }
        if read < size || debuggee.cancel().load(Ordering::SeqCst) {
            return Found::Unknown;
        }
        // A match may begin in what is kept.
        seen.drain(..seen.len().saturating_sub(pattern.len() - 1));
        (at, left) = (at.wrapping_add(size as u64), left - size as u64);
    }
    Found::Nowhere
}
