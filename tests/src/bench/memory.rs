//! What memory costs that the guest does not touch: the same machine with 4 GiB and with 256 MiB, in turn.

use super::arming::SITES;
use super::snapshot::{DATA, dirty, load};
use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use trapline_emu::{CpuModel, Machine, MachineConfig, PAGE};
use trapline_interposer::Place;
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::interposer;

const SMALL: u64 = 256 << 20;
const LARGE: u64 = 4 << 30;
/// Pages that the guest writes before each measurement.
const PAGES: usize = 64;
/// What is measured, in this order.
const WHAT: [&str; 6] = [
    "   start: a new machine, and its first instruction",
    "   its first digest",
    "   a snapshot, 64 pages written",
    "   a digest, 64 pages written",
    "   restoring, 64 pages written",
    "   arming 10,000 sites",
];

/// Microseconds of each measurement in a machine of `mem_size` bytes.
fn once(mem_size: u64) -> Result<[f64; WHAT.len()], Box<dyn Error>> {
    let mut times = [0.0; WHAT.len()];
    let mut begun = cpu_seconds();
    let mut lap = |times: &mut [f64], n: usize| {
        let now = cpu_seconds();
        if let Some(time) = times.get_mut(n) {
            *time = (now - begun) * 1e6;
        }
        begun = cpu_seconds();
    };
    let mut m = Machine::new(&MachineConfig { mem_size, model: CpuModel::X86_64 })?;
    load(&mut m, PAGES);
    m.run(None, 1);
    lap(&mut times, 0);
    m.staged_digest();
    lap(&mut times, 1);
    dirty(&mut m)?;
    let first = m.snapshot();
    m.restore(&first)?;
    load(&mut m, PAGES);
    dirty(&mut m)?;
    lap(&mut times, usize::MAX);
    let saved = m.snapshot();
    lap(&mut times, 2);
    load(&mut m, PAGES);
    dirty(&mut m)?;
    lap(&mut times, usize::MAX);
    m.staged_digest();
    lap(&mut times, 3);
    load(&mut m, PAGES);
    dirty(&mut m)?;
    lap(&mut times, usize::MAX);
    m.restore(&saved)?;
    lap(&mut times, 4);
    let points = "address = 0x100000\nopcode = 0x90\nabort\n".repeat(SITES as usize);
    let text = format!("name = bench\nmodtype = kernel\n{points}");
    let program = parse("bench.rpn", &text)?.link(Width::W32, &NoSymbols)?;
    let places: Vec<_> = (0..SITES).map(|n| DATA + (PAGES as u64 + 1) * PAGE + n * 64).collect();
    places.iter().for_each(|at| m.write_physical(*at, &[0x90]));
    let places = places.iter().map(|at| Place::Kernel { linear: *at, paddr: *at }).collect();
    let mut i = interposer();
    lap(&mut times, usize::MAX);
    i.insert(m.core_mut(), "bench", program, places)?;
    lap(&mut times, 5);
    Ok(times)
}

/// A row for each measurement: the time with 4 GiB, against that with 256 MiB.
///
/// # Errors
/// The machine does not run as expected.
pub fn rows(rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut pairs = Vec::new();
    for round in 0..rounds {
        let first = once(if round % 2 == 0 { SMALL } else { LARGE })?;
        let second = once(if round % 2 == 0 { LARGE } else { SMALL })?;
        pairs.push(if round % 2 == 0 { (first, second) } else { (second, first) });
    }
    let row = |(n, what): (usize, &&str)| {
        let time = median(pairs.iter().map(|(_, large)| large[n]).collect());
        let ratio = median(pairs.iter().map(|(small, large)| large[n] / small[n]).collect());
        // The root of a digest is over the hashes of all mebibytes: 16 bytes for each.
        let target = if what.contains("digest") { Target::None } else { Target::AtMost(1.1) };
        Row::plain(*what, time, "us").against(ratio, "256 MiB", target)
    };
    Ok(WHAT.iter().enumerate().map(row).collect())
}
