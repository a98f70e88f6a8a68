//! Arming and disarming ten thousand sites in a machine that has run.

use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use trapline_emu::{BootState, CpuMode, CpuModel, Machine, MachineConfig, TrapInterposer};
use trapline_interposer::Place;
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::interposer;

const AT: u64 = 0x10_0000;
const SITES: u64 = 10_000;
/// Bytes from one site to the next, as functions lie.
const STEP: u64 = 64;
/// What arming or disarming may take, milliseconds.
const BOUND_MS: f64 = 50.0;

/// A machine that goes round through all sites: a NOP, and a jump to the next.
fn machine() -> Result<Machine, Box<dyn Error>> {
    let mut m = Machine::new(&MachineConfig { mem_size: 16 << 20, model: CpuModel::Ia32 })?;
    for n in 0..SITES {
        m.write_physical(AT + n * STEP, &[0x90, 0xeb, STEP as u8 - 3]);
    }
    let back = -((SITES * STEP) as i32 + 5);
    m.write_physical(AT + SITES * STEP, &[0xe9]);
    m.write_physical(AT + SITES * STEP + 1, &back.to_le_bytes());
    m.boot(&BootState { mode: CpuMode::Flat32, ip: AT, ax: 0, bx: 0, sp: 0x8000, si: 0 });
    Ok(m)
}

/// Rows of arming and disarming.
///
/// # Errors
/// When a site cannot be armed or does not trap.
pub fn rows(rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let points: String =
        (0..SITES).map(|n| format!("address = {:#x}\nopcode = 0x90\nabort\n", AT + n * STEP)).collect();
    let text = format!("name = bench\nmodtype = kernel\n{points}");
    let program = parse("bench.rpn", &text)?.link(Width::W32, &NoSymbols)?;
    let (mut armed, mut disarmed) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut m = machine()?;
        let mut i = interposer();
        m.run(None, 100_000);
        let places =
            (0..SITES).map(|n| AT + n * STEP).map(|a| Place::Kernel { linear: a, paddr: a }).collect();
        let start = cpu_seconds();
        let id = i.insert(m.core_mut(), "bench", program.clone(), places)?;
        armed.push((cpu_seconds() - start) * 1e3);
        let limit = m.icount() + 2 * SITES + 1;
        m.run(Some(&mut i as &mut dyn TrapInterposer), limit);
        if i.stats().hits < SITES - 1 {
            return Err(format!("arming: {} hits of {SITES}", i.stats().hits).into());
        }
        let start = cpu_seconds();
        i.remove(m.core_mut(), id);
        disarmed.push((cpu_seconds() - start) * 1e3);
        let hits = i.stats().hits;
        m.run(Some(&mut i as &mut dyn TrapInterposer), limit + 100_000);
        if i.stats().hits != hits {
            return Err("disarming: a site still traps".into());
        }
    }
    let row = |what: &str, times: Vec<f64>| {
        let ms = median(times);
        Row::plain(what, ms, "ms").against(ms / BOUND_MS, "50 ms", Target::AtMost(1.0))
    };
    Ok(vec![row("   arming 10,000 sites", armed), row("   disarming them", disarmed)])
}
