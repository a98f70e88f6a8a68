//! Ctrl-C and SIGTERM. While a command prepares its run, a signal ends the program at once: no output is begun. Once
//! the run is in progress, the first signal asks it to end at the next slice, so that its outputs are complete; a
//! second one ends the program at once. That a shell ignores SIGINT for a command in the background makes no
//! difference.
//!
//! While a pager shows a text, the keyboard is the pager's, and so is Ctrl-C: it ends nothing here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::failure::Exit;
use crate::{raw, terminal};

/// Whether a pager has the keyboard.
static PAGED: AtomicBool = AtomicBool::new(false);

/// The effect of a signal.
pub struct Signals {
    runs: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
}

/// Starts listening; later calls return the same. If the system refuses, a signal ends the program as it always does.
pub fn prepare() -> &'static Signals {
    static SIGNALS: OnceLock<Signals> = OnceLock::new();
    SIGNALS.get_or_init(install)
}

fn install() -> Signals {
    let signals = Signals { runs: Arc::default(), asked: Arc::default() };
    let (runs, asked) = (Arc::clone(&signals.runs), Arc::clone(&signals.asked));
    let _ = ctrlc::set_handler(move || {
        if PAGED.load(Ordering::SeqCst) {
            return;
        }
        let again = asked.swap(true, Ordering::SeqCst);
        if again || !runs.load(Ordering::SeqCst) {
            raw::leave();
            trapline_tui::leave();
            terminal::give_back();
            std::process::exit(Exit::Interrupted.code().into());
        }
    });
    signals
}

impl Signals {
    /// The run is in progress from here on. Returns the flag that a signal raises.
    pub fn run(&self) -> Arc<AtomicBool> {
        self.runs.store(true, Ordering::SeqCst);
        self.flag()
    }

    /// The flag that a signal raises while the run is in progress.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }
}

/// Listens for a run that begins now, and returns the flag that a signal raises. Later calls return the same flag.
pub fn listen() -> Arc<AtomicBool> {
    prepare().run()
}

/// A pager has the keyboard from here on.
pub fn leave_to_pager() {
    PAGED.store(true, Ordering::SeqCst);
    // Where there is a handler already, this changes nothing.
    let _ = prepare();
}

/// The pager has ended.
pub fn back_from_pager() {
    PAGED.store(false, Ordering::SeqCst);
}
