//! Which of the standard streams were closed when the process began.
//!
//! Rust's runtime opens `/dev/null` in place of a closed stream before `main` runs, so that no other file gets its number. What
//! is written there is lost without an error. Only a function that runs earlier can see that a stream was closed, and
//! the linker's table of such functions is not reachable from safe code; so this is here, and not in the program.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each closed stream.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Runs before the runtime, and therefore uses nothing of it.
extern "C" fn look() {
    for stream in 0..=2 {
        // SAFETY: F_GETFD reads the flags of a descriptor, whatever its number is, and changes nothing.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << stream, Ordering::Relaxed);
        }
    }
}

// SAFETY: entries of this table are functions without arguments, which the loader calls once before `main`.
#[used]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static LOOK: extern "C" fn() = look;

/// Whether a standard stream was closed when the process began: 0, 1 or 2.
#[must_use]
pub fn was_closed(stream: c_int) -> bool {
    (0..=2).contains(&stream) && CLOSED.load(Ordering::Relaxed) & 1 << stream != 0
}

/// The error of a write to such a stream, as the system would give it.
///
/// # Errors
/// The stream was closed.
pub fn writable(stream: c_int) -> std::io::Result<()> {
    if was_closed(stream) { Err(std::io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
}
