//! Lists of millions of hits: the thread of the user interface does a little at a time.
//!
//! `cargo test --profile ci -p trapline-tui -- --ignored --nocapture fourteen` measures it.

use super::*;
use crate::hits::{Batch, Hit, ProbeLabel, free_later, looks};

/// Probes and processes of Debian's cloud kernel with `fbt:::entry`, about.
const PROBES: u32 = 30_000;
const PROCESSES: u32 = 120;
/// Hits of a message.
const BATCH: u64 = 4096;
const SCREEN: (u16, u16) = (200, 60);
/// Hits that a step may look at. The next hit of a probe is about as many hits away as there are probes.
const MOST: usize = 100_000;

/// The time that this thread has had a processor, in milliseconds: other programs do not count.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e6
}

/// By what was done, the most hits that were looked at for it, and the longest times, in milliseconds.
#[derive(Default)]
struct Times(Vec<(&'static str, usize, f64)>);

impl Times {
    fn take<T>(&mut self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let (looks, began) = (looks::count(), processor_time());
        let done = work();
        let (looks, took) = (looks::count() - looks, processor_time() - began);
        match self.0.iter_mut().find(|(own, ..)| *own == what) {
            Some((_, most, longest)) => (*most, *longest) = ((*most).max(looks), longest.max(took)),
            None => self.0.push((what, looks, took)),
        }
        done
    }

    /// No step looks at more hits than this, however many there are.
    fn assert_small(&self) {
        for (what, most, longest) in &self.0 {
            println!("{what}: at most {most} hits, {longest:.2} ms");
            assert!(*most <= MOST, "{what}: {most} hits");
        }
    }
}

fn batch(from: u64) -> Batch {
    let mix = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32;
    let hit = |n: u64| Hit {
        at: n * 90,
        ip: 0xffff_ffff_8100_0000 + u64::from(mix(n) % PROBES) * 64,
        probe: mix(n) % PROBES,
        pid: mix(n / 500) % PROCESSES,
    };
    let label = |number: u32| ProbeLabel {
        number,
        program: "-n fbt:::entry".to_owned(),
        name: format!("fbt:vmlinux:function_{number}:entry"),
    };
    let first = from == 0;
    Batch {
        hits: (from..from + BATCH).map(hit).collect(),
        logged: (from..from + BATCH).map(|n| n.to_le_bytes().repeat(6)).collect(),
        probes: (0..if first { PROBES } else { 0 }).map(label).collect(),
        processes: (0..if first { PROCESSES } else { 0 })
            .map(|pid| (pid, 0, format!("task {pid}")))
            .collect(),
    }
}

/// A list of so many hits, opened, scrolled, filtered and travelled; the longest times.
fn looked_through(count: u64) -> (Bench, Times, usize) {
    let mut bench = Bench::new(PLAIN);
    bench.app.run.hits = Default::default();
    bench.app.run.ended = None;
    let mut times = Times::default();
    let mut terminal = Terminal::new(TestBackend::new(SCREEN.0, SCREEN.1)).unwrap();
    bench.app.size = Rect::new(0, 0, SCREEN.0, SCREEN.1);
    let mut draw = |app: &App| {
        terminal.draw(|frame| drop(view::draw(app, frame))).unwrap();
    };
    for from in (0..count).step_by(BATCH as usize) {
        let batch = batch(from);
        let input = Input::Hits(0, batch, (from + BATCH) * 90);
        times.take("a message", || drop(bench.app.update(input)));
        if from % (BATCH * 64) == 0 {
            times.take("a frame", || draw(&bench.app));
        }
    }
    for key in ["End", "PageUp", "Up", "Home", "PageDown", "End"] {
        let action = crate::action::TABLE.iter().find(|entry| entry.keys.contains(&key)).unwrap().action;
        times.take("a key", || drop(bench.app.perform(action)));
        times.take("a frame", || draw(&bench.app));
    }
    bench.app.cursor = Some(count as usize / 2);
    for what in ["next-hit", "previous-hit", "next-of-probe", "previous-of-probe"] {
        let action = crate::action::TABLE.iter().find(|entry| entry.id == what).unwrap().action;
        times.take("a move", || drop(bench.app.perform(action)));
        bench.app.travel = Default::default();
    }
    for filter in ["function_29999:", "pid=7", "task 11", "no such thing"] {
        bench.type_all("/");
        bench.app.prompt.as_mut().unwrap().text.clear();
        bench.type_all(filter);
        times.take("a key", || bench.key(KeyCode::Enter, KeyModifiers::NONE));
        while times.take("a step of a filter", || bench.app.tick()) {}
        times.take("a frame", || draw(&bench.app));
    }
    let sort = crate::action::Action::Sort;
    bench.app.filter = None;
    // By process and by probe, and then in the order of the run.
    for _ in 0..2 {
        times.take("a key", || drop(bench.app.perform(sort)));
        while times.take("a step of sorting", || bench.app.tick()) {}
        times.take("a frame", || draw(&bench.app));
    }
    times.take("a key", || drop(bench.app.perform(sort)));
    times.take("a key", || drop(bench.app.perform(sort)));
    let hits = std::mem::take(&mut bench.app.run.hits);
    let count = hits.len();
    times.take("a new list", || free_later(hits));
    // What is freed meanwhile is not given back by this thread.
    let freed = Arc::new(());
    free_later(Arc::clone(&freed));
    while Arc::strong_count(&freed) > 1 {
        times.take("a small piece of memory", || drop(vec![0; 1000]));
    }
    (bench, times, count)
}

#[test]
fn a_long_list_is_looked_through_in_small_steps() {
    for many in [BATCH * 50, BATCH * 200] {
        let (bench, times, count) = looked_through(many);
        assert_eq!((count as u64, bench.app.shown()), (many, 0));
        times.assert_small();
    }
}

#[test]
#[ignore = "measures"]
fn fourteen_million_hits() {
    let (_bench, times, count) = looked_through(14_000_000);
    println!("{count} hits");
    times.assert_small();
}
