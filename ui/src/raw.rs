//! The raw mode of the terminal, which always ends: at the end, on errors, on a panic, and on a signal.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

/// Whether the terminal is in raw mode.
static RAW: AtomicBool = AtomicBool::new(false);

/// The terminal in raw mode; the mode ends when this is dropped.
pub struct Raw(());

impl Raw {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It has no raw mode.
    pub fn enter() -> io::Result<Self> {
        static AT_PANIC: Once = Once::new();
        AT_PANIC.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                before(panic);
            }));
        });
        enable_raw_mode()?;
        RAW.store(true, Ordering::SeqCst);
        Ok(Self(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        leave();
    }
}

/// Whether lines must end in CR LF.
pub fn is_raw() -> bool {
    RAW.load(Ordering::SeqCst)
}

/// Ends the raw mode. If this fails, nothing more can be done.
pub fn leave() {
    if RAW.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
    }
}
