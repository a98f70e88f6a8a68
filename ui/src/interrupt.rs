//! Ctrl-C: asks the run to end at the next slice; a second one ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Exit;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Starts listening. When that cannot be had, Ctrl-C ends the program as it always does.
pub fn listen() {
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted.code().into());
        }
    });
}

/// Whether Ctrl-C was pressed.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
