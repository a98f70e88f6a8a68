//! The terminal, which has one owner at a time. While a pager shows a text, messages wait until it has ended. The progress line
//! is erased before anything else is written, and is drawn only where a line begins: it never stands in a line of the guest's
//! console, or of the records.

use std::io::{self, IsTerminal, StdoutLock, Write};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use indicatif::MultiProgress;
use trapline_emu::standard;

/// The state of the terminal.
struct State {
    /// Messages that wait, if they have to.
    held: Option<Vec<u8>>,
    /// The progress line.
    line: Option<MultiProgress>,
    /// Whether the progress line is on the screen.
    drawn: bool,
    /// Whether the next character begins a line.
    at_start: bool,
}

impl State {
    /// Takes the progress line off the screen.
    fn erase(&mut self) {
        if let Some(line) = self.line.as_ref().filter(|_| self.drawn) {
            // If standard error is closed, there is no line.
            let _ = line.clear();
        }
        self.drawn = false;
    }

    /// Writes to standard error.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        static IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| io::stderr().is_terminal());
        self.erase();
        if *IS_TERMINAL {
            self.has_shown(bytes);
        }
        standard::writable(2)?;
        io::stderr().write_all(bytes)
    }

    /// The terminal gets these bytes.
    fn has_shown(&mut self, bytes: &[u8]) {
        self.at_start = bytes.last().map_or(self.at_start, |last| *last == b'\n');
    }
}

/// Why an answer has not reached standard error, if one has not.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

static STATE: Mutex<State> = Mutex::new(State { held: None, line: None, drawn: false, at_start: true });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes to standard error, now or when the pager has ended.
///
/// # Errors
/// Standard error cannot be written.
pub fn message(bytes: &[u8]) -> io::Result<()> {
    let mut state = state();
    match &mut state.held {
        Some(held) => held.write_all(bytes),
        None => state.write(bytes),
    }
}

/// Writes what was asked for to standard error, as [`message`] does. That it cannot be written is told by [`lost`].
pub fn answer(bytes: &[u8]) {
    if let Err(error) = message(bytes) {
        lose(error);
    }
}

fn lose(error: io::Error) {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
}

/// Why an answer could not be written since the last call, if one could not.
pub fn lost() -> Option<io::Error> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// From here on, messages wait.
pub fn hold() {
    let mut state = state();
    state.erase();
    state.held.get_or_insert_default();
}

/// Writes the messages that have waited.
pub fn release() {
    let mut state = state();
    if let Some(held) = state.held.take() {
        // There may be answers among them.
        if let Err(error) = state.write(&held) {
            lose(error);
        }
    }
}

/// A progress line may be drawn from here on.
pub fn begin_line(line: MultiProgress) {
    state().line = Some(line);
}

/// Draws the progress line, where a line begins.
pub fn draw_line(draw: impl FnOnce()) {
    let mut state = state();
    if state.line.is_some() && state.at_start && state.held.is_none() {
        draw();
        state.drawn = true;
    }
}

/// Erases the progress line for good, and lets its owner forget it.
pub fn end_line(forget: impl FnOnce()) {
    let mut state = state();
    state.erase();
    forget();
    state.line = None;
}

/// The same before the process ends at once, whatever other threads do.
pub fn give_back() {
    if let Ok(mut state) = STATE.try_lock() {
        state.erase();
    }
}

/// Standard output, which may be the terminal too.
pub struct Stdout {
    out: StdoutLock<'static>,
    is_terminal: bool,
}

impl Stdout {
    /// Takes it.
    pub fn take() -> Self {
        let out = io::stdout().lock();
        let is_terminal = out.is_terminal();
        Self { out, is_terminal }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        standard::writable(1)?;
        if !self.is_terminal {
            return self.out.write(bytes);
        }
        let mut state = state();
        state.erase();
        let written = self.out.write(bytes)?;
        state.has_shown(bytes.get(..written).unwrap_or_default());
        self.out.flush()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
