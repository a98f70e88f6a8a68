//! Measures how long the thread of the user interface takes: for its frames, and from what the user does to the frame that
//! shows it.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The time that a frame may take.
pub const FRAME: Duration = Duration::from_millis(16);
/// The time from an input to its frame.
const ANSWER: Duration = Duration::from_millis(50);

/// Times of one kind: the longest, and how many were too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Their number.
    pub count: u64,
    /// The longest.
    pub longest: Duration,
    /// The number of those that were too long.
    pub late: u64,
}

impl Times {
    fn take(&mut self, time: Duration, most: Duration) {
        self.count += 1;
        self.longest = self.longest.max(time);
        self.late += u64::from(time > most);
    }

    fn longest_ms(&self) -> f64 {
        self.longest.as_secs_f64() * 1e3
    }
}

/// The list of hits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListStats {
    /// How many it has.
    pub hits: usize,
    /// The bytes that it takes, without the logged data.
    pub bytes: usize,
    /// The bytes of the logged data.
    pub logged: usize,
}

/// Times of the user interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameStats {
    /// From events to the finished frame, by the clock on the wall. Another thread writes it to the terminal.
    pub frames: Times,
    /// The same as the time for which the thread had a processor: other programs on the machine do not count.
    pub own: Times,
    /// From the read of an input to the finished frame that shows its effect, by the clock on the wall.
    pub answers: Times,
    /// The list of hits at the end.
    pub list: ListStats,
}

impl fmt::Display for FrameStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, own, answers, list } = self;
        writeln!(
            f,
            "{} frames, the longest {:.1} ms, {} over 16 ms; without waiting for a processor, the longest {:.1} ms, {} over 16 ms",
            frames.count,
            frames.longest_ms(),
            frames.late,
            own.longest_ms(),
            own.late
        )?;
        writeln!(
            f,
            "{} inputs, the longest answered after {:.1} ms, {} after more than 50 ms",
            answers.count,
            answers.longest_ms(),
            answers.late
        )?;
        let each = list.bytes as f64 / list.hits.max(1) as f64;
        let logged = list.logged >> 20;
        write!(f, "{} hits in the list, {each:.1} bytes each, and {logged} MiB of their data", list.hits)
    }
}

/// Measures one turn of the loop: events are handled, and a frame is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    began: Instant,
    /// The processor time of the thread then.
    own: Duration,
}

impl Turn {
    /// A turn begins.
    pub fn begin() -> Self {
        Self { began: Instant::now(), own: own_time() }
    }

    /// How long it takes so far.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// It ends. It has drawn a frame, or has no need to; `oldest` is when the first input was read whose effect this frame shows.
    pub fn end(self, stats: &mut FrameStats, oldest: Option<Instant>) {
        stats.frames.take(self.began.elapsed(), FRAME);
        stats.own.take(own_time().saturating_sub(self.own), FRAME);
        if let Some(read) = oldest {
            stats.answers.take(read.elapsed(), ANSWER);
        }
    }
}

/// The time for which this thread has had a processor.
pub fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}
