//! Looks for bytes in the guest's memory.

use std::sync::atomic::{AtomicBool, Ordering};

use trapline_session::Timeline;

const PAGE: u64 = 4096;
/// Bytes that are read at a time.
const PART: u64 = 16 * PAGE;
/// Most bytes of addresses without memory, one after the other, before the search ends.
const GAP: u64 = 256 << 20;
/// Most bytes that are searched.
const MOST: u64 = 8 << 30;

/// The first address of these bytes, from an address on.
///
/// # Errors
/// A sentence that says where they are not.
pub fn find(timeline: &Timeline, wanted: &[u8], from: u64, cancel: &AtomicBool) -> Result<u64, String> {
    let overlap = wanted.len().saturating_sub(1) as u64;
    let (mut at, mut mapped, mut seen) = (from, from, 0_u64);
    let mut bytes = vec![0; (PART + overlap) as usize];
    while at.wrapping_sub(mapped) < GAP && seen < MOST {
        if cancel.load(Ordering::Relaxed) {
            return Err("the search is cancelled".to_owned());
        }
        let read = timeline.peek(at, &mut bytes);
        let there = bytes.get(..read).unwrap_or_default();
        if let Some(offset) = there.windows(wanted.len().max(1)).position(|part| part == wanted) {
            return Ok(at.wrapping_add(offset as u64));
        }
        // Up to the next page without memory, or past it.
        let by = match read as u64 {
            whole if whole == PART + overlap => PART,
            0 => PAGE - at % PAGE,
            part => part,
        };
        if read > 0 {
            mapped = at.saturating_add(by);
        }
        seen += read as u64;
        match at.checked_add(by).filter(|next| *next <= timeline.session().core().wrap_linear(u64::MAX)) {
            Some(next) => at = next,
            None => break,
        }
    }
    Err(format!("these bytes are not in memory from {from:#x} to {:#x}", mapped.saturating_sub(1)))
}
