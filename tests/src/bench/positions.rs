//! Going to positions of a run of Debian's cloud kernel: any of them, one instruction back, back to a probe's hit.

use super::table::{Row, Target, cpu_seconds};
use std::error::Error;
use trapline_session::{Command, Condition, Ending, HISTORY_MEM, Limits, Position, Session, Timeline};
use trapline_tests::boot::{LINUX_LIMIT, LinuxBoot, PROMPT};
use trapline_tests::linux::{Linux, STRESS_LINES};

/// Positions that are gone to.
const POSITIONS: u64 = 1000;
/// After how many of them one goes back to a hit.
const HIT_EVERY: u64 = 10;
/// The probe.
const PROBE: &str = "fbt::kernel_clone:entry { push pid; log 1 }";
/// Upper bounds, ms: for one instruction back, and for the previous hit.
const BACK_BOUND: f64 = 20.0;
const HIT_BOUND: f64 = 500.0;

/// Upper bounds for going to a position, ms.
struct Bounds {
    median: f64,
    worst: f64,
}

/// A run, and the text at which it ends.
struct Run<'a> {
    boot: &'a LinuxBoot,
    until: &'a str,
}

impl Run<'_> {
    fn start(&self) -> Result<Session, Box<dyn Error>> {
        let mut session = self.boot.session()?;
        session.apply(Command::clause(PROBE))?;
        Ok(session)
    }

    /// Instructions up to the text.
    fn length(&self) -> Result<u64, Box<dyn Error>> {
        let mut session = self.start()?;
        match session.run_until(&Condition::console(self.until), &Limits::insns(LINUX_LIMIT)) {
            Ending::Until(_) => Ok(session.icount()),
            other => Err(format!("Linux ended early: {other}").into()),
        }
    }

    /// The run as a timeline, at its end.
    fn timeline(&self) -> Result<(Timeline, u64), Box<dyn Error>> {
        let end = self.length()?;
        let mut timeline = Timeline::new(self.start()?, HISTORY_MEM)?;
        timeline.goto(count(end))?;
        Ok((timeline, end))
    }
}

fn count(icount: u64) -> Position {
    Position::At { icount, ordinal: 0 }
}

/// Milliseconds of CPU time, sorted.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn of<T, E>(&mut self, go: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let start = cpu_seconds();
        let gone = go();
        self.0.push((cpu_seconds() - start) * 1e3);
        gone
    }

    fn sorted(mut self) -> Self {
        self.0.sort_by(f64::total_cmp);
        self
    }

    fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    fn worst(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }
}

fn within(what: &str, ms: f64, bound: f64, of: &'static str) -> Row {
    Row::plain(what, ms, "ms").against(ms / bound, of, Target::AtMost(1.0))
}

fn rows(run: &Run<'_>, bounds: &Bounds, of: [&'static str; 2]) -> Result<Vec<Row>, Box<dyn Error>> {
    let (mut timeline, end) = run.timeline()?;
    let (mut gone, mut back, mut hits) = (Times::default(), Times::default(), Times::default());
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for n in 0..POSITIONS {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // There is an instruction to go back by.
        let at = 1 + seed % end;
        gone.of(|| timeline.goto(count(at)))?;
        back.of(|| timeline.back(1))?;
        if n % HIT_EVERY == 0 {
            hits.of(|| timeline.previous_hit(None))?;
        }
    }
    let (gone, back, hits) = (gone.sorted(), back.sorted(), hits.sorted());
    let bytes = timeline.history().bytes as f64;
    let memory = Row::plain("   saved states", bytes / f64::from(1 << 20), "MiB");
    Ok(vec![
        within("   any of 1,000 positions, median", gone.median(), bounds.median, of[0]),
        within("   any of 1,000 positions, worst", gone.worst(), bounds.worst, of[1]),
        within("   one instruction back, worst", back.worst(), BACK_BOUND, "20 ms"),
        Row::plain("   the previous hit, median", hits.median(), "ms"),
        within("   the previous hit, worst", hits.worst(), HIT_BOUND, "500 ms"),
        memory.against(bytes / HISTORY_MEM as f64, "--history-mem", Target::AtMost(1.0)),
    ])
}

/// Rows of a boot to the shell.
///
/// # Errors
/// A guest is missing, or does not reach its shell.
pub fn boot(linux: &Linux, _: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let run = Run { boot: &LinuxBoot::shell(linux)?, until: PROMPT };
    rows(&run, &Bounds { median: 100.0, worst: 250.0 }, ["100 ms", "250 ms"])
}

/// Rows of the stress script.
///
/// # Errors
/// As [`boot`].
pub fn stress(linux: &Linux, _: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let run = Run { boot: &LinuxBoot::stress(linux)?, until: STRESS_LINES.1 };
    rows(&run, &Bounds { median: 150.0, worst: 500.0 }, ["150 ms", "500 ms"])
}
