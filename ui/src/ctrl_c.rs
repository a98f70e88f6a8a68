//! Ctrl-C and SIGTERM: the first one asks the run to end at the next slice, so that its outputs are whole; a second one
//! ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Exit;

/// Starts listening, and returns the flag that a signal raises. If the system refuses, a signal ends the program as
/// usual.
pub fn listen() -> Arc<AtomicBool> {
    let asked = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&asked);
    let _ = ctrlc::set_handler(move || {
        if raised.swap(true, Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted.code().into());
        }
    });
    asked
}
