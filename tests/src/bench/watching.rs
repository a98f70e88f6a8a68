//! Watchpoints: the cost of a watch that is not hit, and that of a hit.

use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use trapline_emu::{
    BootState, CpuMode, CpuModel, Machine, MachineConfig, Stop, TrapInterposer, Watch, WatchKind,
};
use trapline_interposer::{Interposer, Place};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::interposer;

const AT: u64 = 0x1_0000;
/// The loop's data, and a byte of its page that it does not touch.
const DATA: u64 = 0x2_0000;

/// `l: inc dword [DATA]; mov ebx, [DATA]; push ebx; pop edx; dec eax; jnz l`.
fn memory_loop() -> Vec<u8> {
    let mut code = vec![0xff, 0x05];
    code.extend((DATA as u32).to_le_bytes());
    code.extend([0x8b, 0x1d]);
    code.extend((DATA as u32).to_le_bytes());
    code.extend([0x53, 0x5a, 0x48, 0x75, 0xef]);
    code
}

/// Instructions of one iteration.
const LENGTH: u64 = 6;

/// Most nanoseconds of a hit, and of a store beside what is watched.
const HIT_NS: f64 = 250.0;
const BESIDE_NS: f64 = 150.0;

struct Case {
    what: &'static str,
    watch: Option<Watch>,
    handler: &'static str,
    /// Hits an iteration.
    hits: u64,
    iterations: u32,
    bound: Bound,
}

/// What an iteration may cost.
#[derive(Clone, Copy)]
enum Bound {
    /// A ratio to the loop without a watch.
    Ratio(Target),
    /// Nanoseconds above that loop.
    More(f64, &'static str),
}

fn cases(scale: u32) -> Vec<Case> {
    let data = |kind, low, high| Some(Watch { kind, low, high });
    let watch = |what, watch, hits, bound| Case {
        what,
        watch,
        handler: "abort",
        hits,
        iterations: if matches!(bound, Bound::Ratio(_)) { 200_000 * scale } else { 10_000 * scale },
        bound,
    };
    let hit = Bound::More(HIT_NS, "250 ns");
    let (w, rw, x) = (WatchKind::Write, WatchKind::ReadWrite, WatchKind::Execute);
    let far = DATA + 0x8000;
    let free = Bound::Ratio(Target::AtMost(1.25));
    vec![
        watch("no watch", None, 0, Bound::Ratio(Target::None)),
        watch("a write watched in another page", data(w, far, far + 3), 0, free),
        watch("an access watched in another page", data(rw, far, far + 3), 0, free),
        watch("execution watched elsewhere", data(x, far, far), 0, free),
        watch("a hit of w: inc dword, abort", data(w, DATA, DATA + 3), 1, hit),
        Case { handler: "exit", ..watch("the same with a record", data(w, DATA, DATA + 3), 1, hit) },
        watch(
            "two hits of rw: inc dword, mov",
            data(rw, DATA, DATA + 3),
            2,
            Bound::More(2.0 * HIT_NS, "2 x 250 ns"),
        ),
        watch("a hit of x, abort", data(x, AT, AT), 1, hit),
        watch(
            "a store beside a watched one, in its page",
            data(w, DATA + 8, DATA + 11),
            0,
            Bound::More(BESIDE_NS, "150 ns"),
        ),
    ]
}

impl Case {
    fn prepare(&self) -> Result<(Machine, Interposer), Box<dyn Error>> {
        let mut m = Machine::new(&MachineConfig { mem_size: 16 << 20, model: CpuModel::Ia32 })?;
        let mut i = interposer();
        m.write_physical(AT, &memory_loop());
        m.boot(&BootState { mode: CpuMode::Flat32, ip: AT, ax: 0xffff_ffff, bx: 7, sp: 0x8000, si: 0 });
        if let Some(watch) = self.watch {
            let text =
                format!("name = bench\nmodtype = kernel\naddress = 0\nwatchpoint = w\n{}\n", self.handler);
            let program = parse("bench.rpn", &text)?.link(Width::W32, &NoSymbols)?;
            i.insert(m.core_mut(), "bench", program, vec![Place::Watch(watch)])?;
        }
        Ok((m, i))
    }

    /// Nanoseconds an iteration.
    fn run(&self, m: &mut Machine, i: &mut Interposer) -> Result<f64, Box<dyn Error>> {
        let (n, hits) = (u64::from(self.iterations), i.stats().hits);
        let (limit, start) = (m.icount() + LENGTH * n, cpu_seconds());
        match m.run(Some(i as &mut dyn TrapInterposer), limit) {
            Stop::Limit => {}
            other => return Err(format!("{}: {other:?}", self.what).into()),
        }
        let ns = (cpu_seconds() - start) * 1e9 / n as f64;
        let hits = i.stats().hits - hits;
        if hits.abs_diff(n * self.hits) > self.hits {
            return Err(format!("{}: {hits} hits instead of {}", self.what, n * self.hits).into());
        }
        Ok(ns)
    }
}

/// Every case against the loop without a watch in the same round.
///
/// # Errors
/// A machine cannot be built, or does not run as expected.
pub fn rows(rounds: usize, scale: u32, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut cases = cases(scale);
    // The first is what the others are compared with.
    let mut first = true;
    cases.retain(|case| std::mem::take(&mut first) || case.what.contains(only));
    let mut warm = Vec::new();
    for case in &cases {
        let (mut m, mut i) = case.prepare()?;
        case.run(&mut m, &mut i)?;
        warm.push((m, i));
    }
    let mut times = vec![Vec::new(); cases.len()];
    let mut ratios = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        let mut plain = 0.0;
        for (n, (case, (m, i))) in cases.iter().zip(&mut warm).enumerate() {
            let ns = case.run(m, i)?;
            if n == 0 {
                plain = ns;
            }
            times[n].push(ns);
            ratios[n].push(match case.bound {
                Bound::Ratio(_) => ns / plain,
                Bound::More(most, _) => (ns - plain) / most,
            });
        }
    }
    let mut rows = Vec::new();
    for ((case, times), ratios) in cases.iter().zip(times).zip(ratios) {
        if case.what.contains(only) {
            let row = Row::plain(case.what, median(times), "ns");
            rows.push(match case.bound {
                Bound::Ratio(target) => row.against(median(ratios), "no watch", target),
                Bound::More(_, words) => row.against(median(ratios), words, Target::AtMost(1.0)),
            });
        }
    }
    Ok(rows)
}
