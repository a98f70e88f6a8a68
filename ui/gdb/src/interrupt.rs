//! Ctrl-C: the byte that interrupts the run.
//!
//! It may come while the run stands: gdb sends it so while it evaluates the condition of a breakpoint that was met, and then lets
//! the run go on. It is kept until then, as by gdbserver, and the run stops before it has moved.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What has come over a connection.
struct State {
    /// Whether the connection lasts. What comes later does not interrupt the next one's run.
    lasts: bool,
    /// Whether gdb has interrupted the run and no stop has told it so.
    waits: bool,
}

/// See the module.
#[derive(Clone)]
pub struct Interrupt {
    cancel: Arc<AtomicBool>,
    state: Arc<Mutex<State>>,
}

impl Interrupt {
    /// That of a new connection; `cancel` interrupts the run.
    pub fn new(cancel: &Arc<AtomicBool>) -> Self {
        let state = State { lasts: true, waits: false };
        Self { cancel: Arc::clone(cancel), state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interrupts the run, or the next one if it stands.
    pub fn raise(&self) {
        let mut state = self.state();
        if state.lasts {
            state.waits = true;
            self.cancel.store(true, Ordering::SeqCst);
        }
    }

    /// Whether it waits for a stop; from now on it does not.
    pub fn take(&self) -> bool {
        let mut state = self.state();
        if state.waits {
            self.cancel.store(false, Ordering::SeqCst);
        }
        std::mem::take(&mut state.waits)
    }

    /// The connection has ended.
    pub fn end(&self) {
        self.state().lasts = false;
        self.cancel.store(false, Ordering::SeqCst);
    }
}
