//! Progress on standard error: a panel on a terminal, else one JSON object a line.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The time between two looks of a panel, and between two lines.
const PANEL: Duration = Duration::from_millis(500);
const LINES: Duration = Duration::from_secs(2);

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
    terminal: bool,
    begun: Instant,
    told: Instant,
    /// How far it was when it was told last, and when it last reached something new.
    last: Far,
    new: Instant,
    /// Lines of the panel on the terminal.
    drawn: usize,
}

impl Progress {
    pub fn new(quiet: bool) -> Self {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        Self { quiet, terminal, begun: now, told: now, last: Far::default(), new: now, drawn: 0 }
    }

    /// The time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Tells how far the search is, now and then.
    pub fn tell(&mut self, far: impl FnOnce() -> Far) {
        let every = if self.terminal { PANEL } else { LINES };
        if self.quiet || self.told.elapsed() < every {
            return;
        }
        let far = far();
        let now = Instant::now();
        let since = (now - self.told).as_secs_f64().max(0.001);
        let speed = (far.trials.saturating_sub(self.last.trials) as f64 / since) as u64;
        if far.places > self.last.places || far.states > self.last.states {
            self.new = now;
        }
        (self.told, self.last) = (now, far);
        let Far { trials, places, states, found } = far;
        let seconds = self.elapsed().as_secs();
        if self.terminal {
            let quiet_for = self.new.elapsed().as_secs();
            let panel = [
                format!("time        {}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
                format!("executions  {trials}, {speed} a second"),
                format!("coverage    {places} places, {states} states; nothing new for {quiet_for} s"),
                format!("findings    {found}"),
            ];
            return self.draw(&panel);
        }
        let line = serde_json::json!({
            "seconds": seconds, "executions": trials, "per_second": speed, "places": places,
            "states": states, "findings": found,
        });
        // Progress that cannot be shown is not worth an end.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }

    /// Draws the panel in place of the last one.
    fn draw(&mut self, panel: &[String]) {
        self.clear();
        let mut error = std::io::stderr().lock();
        let _ = panel.iter().try_for_each(|line| writeln!(error, "{line}"));
        self.drawn = panel.len();
    }

    /// Takes the panel away: before something else is printed, and at the end.
    pub fn clear(&mut self) {
        if self.drawn > 0 {
            // Up by so many lines, and erase to the end of the screen.
            let _ = write!(std::io::stderr().lock(), "\x1b[{}A\x1b[J", self.drawn);
            self.drawn = 0;
        }
    }
}
