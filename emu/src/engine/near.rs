//! Where the engine's translations lie: near the code that they call.
//!
//! Translated code calls the block hook and the engine's helpers all the time. Within 2 GiB of them it does so by a
//! direct CALL; further away it calls through a constant beside the translation, which costs another cache line and,
//! the first time, a branch misprediction: 7 % of a Linux run. The engine asks the host for its buffer without saying
//! where, and the host takes the highest gap, 40 TiB away from a program's text. So the gaps above the text are
//! reserved while the engine asks. If that fails, the run is only slower.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr;

/// Bytes of the engine's buffer (`DEFAULT_CODE_GEN_BUFFER_SIZE` of its translate-all.c).
const BUFFER: usize = 1 << 30;
/// How far above the text the buffer may begin: all of it is within the reach of a direct CALL.
const REACH: usize = (1 << 31) - BUFFER;
/// Left free above the existing mappings for the heap to grow: too small for the buffer.
const SLACK: usize = BUFFER / 4;
/// The most gaps that are reserved.
const GAPS: usize = 8;

/// Calls `ask`, during which the host chooses a place for the engine's buffer, while the highest free gap is the one
/// that ends at `code`.
pub(super) fn with<T>(code: *const c_void, ask: impl FnOnce() -> T) -> T {
    let taken = reserve_above(code.addr());
    let answer = ask();
    drop(taken);
    answer
}

/// Reserves the gaps that the host prefers to those near `code`.
fn reserve_above(code: usize) -> Vec<Taken> {
    let mut taken = Vec::new();
    for _ in 0..GAPS {
        let Some(at) = preferred().filter(|at| *at > code.saturating_add(REACH)) else { break };
        let Some(gap) = gap_below(at) else { break };
        let Some(one) = Taken::new(gap, at + BUFFER) else { break };
        taken.push(one);
    }
    taken
}

/// Where the host would put a buffer now.
fn preferred() -> Option<usize> {
    let one = Taken::map(ptr::null_mut(), BUFFER, MapFlags::empty())?;
    Some(one.at.addr())
}

/// The lowest address to reserve in the gap that contains `at`.
fn gap_below(at: usize) -> Option<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let ends = maps.lines().filter_map(|line| {
        let (range, _) = line.split_once(' ')?;
        usize::from_str_radix(range.split_once('-')?.1, 16).ok()
    });
    ends.filter(|end| *end <= at).max()?.checked_add(SLACK)
}

/// Reserved address space without memory, released on drop.
struct Taken {
    at: *mut c_void,
    size: usize,
}

impl Taken {
    /// Reserves the space between two addresses if it is free.
    fn new(from: usize, to: usize) -> Option<Self> {
        let at = ptr::without_provenance_mut(from);
        Self::map(at, to.checked_sub(from)?, MapFlags::FIXED_NOREPLACE)
    }

    fn map(at: *mut c_void, size: usize, more: MapFlags) -> Option<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | more;
        // SAFETY: a fresh mapping, which replaces none.
        let at = unsafe { mmap_anonymous(at, size, ProtFlags::empty(), flags) }.ok()?;
        Some(Taken { at, size })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and not known anywhere else.
        let _ = unsafe { munmap(self.at, self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_chooses_a_place_near_the_code() {
        let code = reserve_above as *const c_void;
        let at = with(code, preferred).unwrap();
        assert!(at < code.addr() + REACH, "{at:#x} is not near {code:p}");
        // The reserved space is released.
        assert!(preferred().unwrap() > code.addr() + REACH);
    }
}
