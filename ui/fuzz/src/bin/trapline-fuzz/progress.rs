//! Progress on standard error: a line that changes on a terminal, else one JSON object a line.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The time between two lines.
const EVERY: Duration = Duration::from_secs(2);

/// How far a search is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Far {
    pub trials: u64,
    pub places: usize,
    pub states: usize,
    pub found: usize,
}

/// See the module.
pub struct Progress {
    quiet: bool,
    begun: Instant,
    told: Instant,
}

impl Progress {
    pub fn new(quiet: bool) -> Self {
        let now = Instant::now();
        Self { quiet, begun: now, told: now }
    }

    /// The time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Tells how far the search is, now and then.
    pub fn tell(&mut self, far: impl FnOnce() -> Far) {
        if self.quiet || self.told.elapsed() < EVERY {
            return;
        }
        self.told = Instant::now();
        let seconds = self.elapsed().as_secs_f64().max(0.001);
        let Far { trials, places, states, found } = far();
        let speed = (trials as f64 / seconds) as u64;
        let mut error = std::io::stderr().lock();
        // Progress that cannot be shown is not worth an end.
        let _ = if error.is_terminal() {
            write!(
                error,
                "\r{seconds:6.0} s  {trials} executions  {speed}/s  {places} places  {states} states  {found} findings  "
            )
        } else {
            let line = serde_json::json!({
                "seconds": seconds as u64, "executions": trials, "per_second": speed, "places": places,
                "states": states, "findings": found,
            });
            writeln!(error, "{line}")
        };
        let _ = error.flush();
    }

    /// Ends the line on a terminal.
    pub fn end(&self) {
        if std::io::stderr().is_terminal() && !self.quiet {
            eprintln!();
        }
    }
}
