//! The progress line on standard error: how far a command has come that takes more than a second.
//!
//! It is for a person to watch, so it alone uses the host's clock. It has no effect on a run or on data.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use trapline_session::{Meter, Metered};

use crate::terminal;

/// When to show the progress line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// After a second, on a terminal, without -q.
    Auto,
    /// From the beginning; as lines, if standard error is no terminal.
    Always,
    /// Never.
    Never,
}

/// What is shown of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Sight {
    /// The part of the whole that is done, if the whole is known.
    pub part: Option<f64>,
    /// Where it is.
    pub words: String,
    /// What is done, for the speed.
    pub done: u64,
}

/// Looks how far a command has come.
pub type Look = Box<dyn Fn() -> Sight + Send>;

/// The time before the line is shown.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time from one drawing to the next.
const EVERY: Duration = Duration::from_millis(250);
/// The same for lines that remain.
const EVERY_LINE: Duration = Duration::from_secs(10);
/// Looks between the two that the speed is taken from.
const LOOKS: usize = 8;
/// The whole, in parts.
const WHOLE: u64 = 1_000_000;

/// What all guests of this command keep up.
pub fn meter() -> &'static Meter {
    static METER: LazyLock<Meter> = LazyLock::new(Meter::default);
    &METER
}

/// How far the runs of this command have come; the part, if it is known at which count they end.
pub fn of_runs(end: Option<u64>) -> Look {
    Box::new(move || of_run(&meter().read(), end))
}

fn of_run(now: &Metered, end: Option<u64>) -> Sight {
    let part = end.map(|end| if end == 0 { 1.0 } else { (now.icount as f64 / end as f64).min(1.0) });
    let seconds = now.virtual_ns as f64 / 1e9;
    let words = format!("{seconds:.3} s of virtual time, {} instructions", short(now.icount).trim());
    Sight { part, words, done: now.executed }
}

/// How much a search has executed that goes back and forth in runs.
pub fn of_search() -> Look {
    Box::new(|| {
        let done = meter().read().executed;
        Sight { part: None, words: format!("{} instructions executed", short(done).trim()), done }
    })
}

/// How far a file has been read, of this length if it is known.
pub fn of_file(read: Arc<AtomicU64>, length: Option<u64>) -> Look {
    Box::new(move || {
        let done = read.load(Ordering::Relaxed);
        let of = length.map(|length| format!(" of {}B", short(length))).unwrap_or_default();
        let part = length.map(|length| (done as f64 / length.max(1) as f64).min(1.0));
        Sight { part, words: format!("{}B{of} read", short(done)), done }
    })
}

/// A number with at most four digits, a space and the prefix of its unit, if it needs one.
pub fn short(number: u64) -> String {
    match number {
        0..10_000 => format!("{number} "),
        10_000..10_000_000 => format!("{} K", number / 1_000),
        10_000_000..10_000_000_000 => format!("{} M", number / 1_000_000),
        _ => format!("{} G", number / 1_000_000_000),
    }
}

/// A progress line; it ends when this is dropped.
#[must_use]
pub struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins one, if it is to be shown: on a terminal or as lines.
    pub fn begin(form: Option<Form>, look: Look) -> Self {
        let Some(form) = form else { return Self { stop: None, thread: None } };
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || match form {
            Form::Line(patience) => draw(&patience, &look, &stopped),
            Form::Lines => print(&look, &stopped),
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop = None;
        // If the thread has panicked, there is no line.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As one line of a terminal, after this time.
    Line(Duration),
    /// As lines that remain.
    Lines,
}

impl When {
    /// How progress is shown, if it is.
    pub fn form(self, is_terminal: bool, quiet: bool) -> Option<Form> {
        match (self, is_terminal) {
            (Self::Never, _) | (Self::Auto, false) => None,
            (Self::Auto, true) => (!quiet).then_some(Form::Line(PATIENCE)),
            (Self::Always, true) => Some(Form::Line(Duration::ZERO)),
            (Self::Always, false) => Some(Form::Lines),
        }
    }
}

/// Waits this long; whether the command has ended.
fn ends_within(time: Duration, stopped: &Receiver<()>) -> bool {
    !matches!(stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout))
}

/// The speed over the last looks.
struct Speed(Vec<(Instant, u64)>);

impl Speed {
    /// Units per second, with what is done now; nothing before the second look.
    fn next(&mut self, done: u64) -> Option<f64> {
        let now = Instant::now();
        let first = self.0.first().copied();
        self.0.push((now, done));
        if self.0.len() > LOOKS {
            self.0.remove(0);
        }
        let (then, before) = first?;
        let seconds = now.duration_since(then).as_secs_f64();
        (seconds > 0.0).then(|| done.saturating_sub(before) as f64 / seconds)
    }
}

/// What is shown, with the speed and the time that is left.
fn sentence(sight: &Sight, speed: Option<f64>, left: Option<Duration>) -> String {
    let speed = speed.map(|speed| format!(", {}/s", short(speed as u64).trim())).unwrap_or_default();
    let left = left.map(|left| format!(", {} left", time(left))).unwrap_or_default();
    format!("{}{speed}{left}", sight.words)
}

/// A time that is about to pass.
fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

/// The time that is left, if the rest is as fast as the part that was done in this time.
fn left(took: Duration, from: f64, to: f64) -> Option<Duration> {
    let more = took.as_secs_f64() * (1.0 - to) / (to - from);
    (to > from && to < 1.0).then(|| Duration::try_from_secs_f64(more).ok()).flatten()
}

/// Draws the line until the command has ended.
fn draw(patience: &Duration, look: &Look, stopped: &Receiver<()>) {
    let (began, from) = (Instant::now(), look().part);
    // Without patience the line is drawn at least once, however fast the command is.
    if !patience.is_zero() && ends_within(*patience, stopped) {
        return;
    }
    let lines = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
    let bar = lines.add(ProgressBar::new(WHOLE));
    let known = look().part.is_some();
    let template = if known { "{percent:>3} % [{bar:16}] {wide_msg}" } else { "{wide_msg}" };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    terminal::begin_line(lines);
    let mut speed = Speed(Vec::new());
    loop {
        let sight = look();
        let left = sight.part.and_then(|part| left(began.elapsed(), from.unwrap_or(0.0), part));
        let text = sentence(&sight, speed.next(sight.done), left);
        terminal::draw_line(|| {
            bar.set_position(sight.part.map_or(0, |part| (part * WHOLE as f64) as u64));
            bar.set_message(text);
            bar.tick();
        });
        if ends_within(EVERY, stopped) {
            break;
        }
    }
    terminal::end_line(|| bar.finish_and_clear());
}

/// Prints a line from time to time, and one at the end.
fn print(look: &Look, stopped: &Receiver<()>) {
    let mut speed = Speed(Vec::new());
    loop {
        let ended = ends_within(EVERY_LINE, stopped);
        let sight = look();
        let percent = sight.part.map(|part| format!("{:.0} %, ", (part * 100.0).floor())).unwrap_or_default();
        let text = sentence(&sight, speed.next(sight.done), None);
        // If standard error is closed, there is nowhere to report that.
        let _ = terminal::message(format!("trapline: {percent}{text}\n").as_bytes());
        if ended {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_shown_on_a_terminal_unless_it_is_unwanted() {
        let shown = |when: When, is_terminal, quiet| when.form(is_terminal, quiet);
        assert_eq!(shown(When::Auto, true, false), Some(Form::Line(PATIENCE)));
        for (is_terminal, quiet) in [(true, true), (false, false), (false, true)] {
            assert_eq!(shown(When::Auto, is_terminal, quiet), None);
        }
        assert_eq!(shown(When::Always, true, true), Some(Form::Line(Duration::ZERO)));
        assert_eq!(shown(When::Always, false, true), Some(Form::Lines));
        assert_eq!(shown(When::Never, true, false), None);
    }

    #[test]
    fn a_line_says_where_the_run_is_how_fast_it_is_and_what_is_left() {
        let now = Metered { icount: 12_345_678, virtual_ns: 1_234_567_890, executed: 1 };
        let sight = of_run(&now, Some(24_691_356));
        assert_eq!(sight.part, Some(0.5));
        let text = sentence(&sight, Some(98_765_432.1), Some(Duration::from_secs(75)));
        assert_eq!(text, "1.235 s of virtual time, 12 M instructions, 98 M/s, 1:15 min left");
        assert_eq!(sentence(&of_run(&now, None), None, None), "1.235 s of virtual time, 12 M instructions");
        // A run from a snapshot may be past its end, and an empty one has none.
        assert_eq!(of_run(&now, Some(5)).part, Some(1.0));
        assert_eq!(of_run(&Metered::default(), Some(0)).part, Some(1.0));
    }

    #[test]
    fn the_rest_takes_as_long_as_the_part_before_it() {
        let of = |from, to| left(Duration::from_secs(10), from, to).map(|left| left.as_secs_f64().round());
        assert_eq!(of(0.0, 0.25), Some(30.0));
        assert_eq!(of(0.5, 0.75), Some(10.0));
        for (from, to) in [(0.0, 0.0), (0.5, 0.25), (0.0, 1.0), (f64::NAN, 0.5), (0.0, f64::MIN_POSITIVE)] {
            assert_eq!(of(from, to), None, "{from} {to}");
        }
    }
}
