//! Limits the number of guests that run at a time to what the host's memory holds.
//!
//! A test takes a turn before its first guest and keeps it to its end, so a test never waits while it holds one. Turns
//! are locks on files, so they count across processes too, whichever runner starts the tests.

use std::cell::RefCell;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::Duration;

use crate::root;

/// Bytes that a test with its guests takes: two machines of 256 MiB, their images and symbols, and the engine's code.
pub const EACH: u64 = 1 << 30;

/// How long to sleep when every turn is taken.
const PAUSE: Duration = Duration::from_millis(50);

thread_local! {
    /// The turn of this thread's test, released when the thread ends.
    static TURN: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// Waits for a turn, unless this thread has one.
///
/// # Errors
/// A sentence, when a lock cannot be made.
pub fn take() -> Result<(), String> {
    TURN.with_borrow_mut(|turn| {
        if turn.is_none() {
            *turn = Some(wait(root().join("target/turns"), count(), || std::thread::sleep(PAUSE))?);
        }
        Ok(())
    })
}

/// How many tests may run guests: `TRAPLINE_GUESTS`, or what three quarters of the memory hold.
pub fn count() -> u64 {
    let wanted = std::env::var("TRAPLINE_GUESTS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or_else(|| memory().unwrap_or(EACH) / 4 * 3 / EACH).max(1)
}

/// Bytes of memory that the machine has.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Locks one of `count` files of a folder, and pauses whenever all of them are locked.
///
/// # Errors
/// A sentence, when a file cannot be made or locked.
pub fn wait(folder: PathBuf, count: u64, pause: impl Fn()) -> Result<File, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    loop {
        for turn in 0..count {
            let file = File::create(folder.join(turn.to_string())).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        pause();
    }
}
