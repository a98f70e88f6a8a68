//! Arming and disarming in a machine that has run: ten thousand sites, and a program with forty thousand.

use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use std::sync::Arc;
use trapline_emu::symbols::UserModule;
use trapline_emu::{BootState, CpuMode, CpuModel, Machine, MachineConfig, PAGE, TrapInterposer};
use trapline_interposer::Place;
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::interposer;

const AT: u64 = 0x10_0000;
pub(super) const SITES: u64 = 10_000;
/// Bytes from one site to the next, about the size of a function.
const STEP: u64 = 64;
/// Upper bound for arming or disarming, in milliseconds.
const BOUND_MS: f64 = 50.0;

/// Probes on a program, and those on each page of it.
const OF_PROGRAM: u64 = 40_000;
const OF_PAGE: u64 = 250;
/// Upper bound for arming or disarming these, in milliseconds.
const PROGRAM_BOUND_MS: f64 = 300.0;

/// A machine that loops through all sites: a NOP, and a jump to the next site.
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
    let mut all = vec![
        row("   arming 10,000 sites", armed, BOUND_MS, "50 ms"),
        row("   disarming them", disarmed, BOUND_MS, "50 ms"),
    ];
    all.extend(program_rows(rounds)?);
    Ok(all)
}

fn row(what: &str, times: Vec<f64>, bound: f64, words: &'static str) -> Row {
    let ms = median(times);
    Row::plain(what, ms, "ms").against(ms / bound, words, Target::AtMost(1.0))
}

/// A 32-bit program of NOPs in a loop, in which each page begins with another instruction.
fn program() -> Vec<u8> {
    let pages = OF_PROGRAM / OF_PAGE;
    let size = (pages * PAGE) as u32;
    // ELF header and one executable segment: the file from its start, at AT.
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0\x01\0\0\0".to_vec();
    for word in
        [AT as u32 + 0x80, 52, 0, 0, 0x20_0034, 1, 0, 1, 0, AT as u32, AT as u32, size, size, 5, 0x1000]
    {
        file.extend(word.to_le_bytes());
    }
    file.resize(size as usize, 0x90);
    for page in 1..pages {
        let at = (page * PAGE) as usize;
        file[at] = 0xb8;
        file[at + 1..at + 5].copy_from_slice(&(page as u32).to_le_bytes());
    }
    let end = size as usize - 5;
    file[end] = 0xe9;
    file[end + 1..].copy_from_slice(&(0x80 - size as i32).to_le_bytes());
    file
}

/// Rows of arming a program's probes on pages that are executed already, and of disarming them.
fn program_rows(rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let file = program();
    let module = Arc::new(UserModule::parse(&file, "bench")?);
    let points = "address = 0\nopcode = 0x90\nabort\n".repeat(OF_PROGRAM as usize);
    let text = format!("name = bench\nmodtype = kernel\n{points}");
    let program = parse("bench.rpn", &text)?.link(Width::W32, &NoSymbols)?;
    let (mut armed, mut disarmed) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut m = Machine::new(&MachineConfig { mem_size: 16 << 20, model: CpuModel::Ia32 })?;
        m.write_physical(AT, &file);
        m.boot(&BootState { mode: CpuMode::Flat32, ip: AT + 0x80, ax: 0, bx: 0, sp: 0x8000, si: 0 });
        let round = file.len() as u64;
        m.run(None, round);
        let mut i = interposer();
        let at = |n: u64| n / OF_PAGE * PAGE + 0x90 + n % OF_PAGE * 15;
        let place = |n| Place::User { module: Arc::clone(&module), offset: at(n) };
        let places = (0..OF_PROGRAM).map(place).collect();
        let start = cpu_seconds();
        let id = i.insert(m.core_mut(), "bench", &program, places)?;
        armed.push((cpu_seconds() - start) * 1e3);
        let limit = m.icount() + round;
        m.run(Some(&mut i as &mut dyn TrapInterposer), limit);
        if i.stats().hits < OF_PROGRAM {
            return Err(format!("arming: {} hits of {OF_PROGRAM} in a program", i.stats().hits).into());
        }
        let start = cpu_seconds();
        i.remove(m.core_mut(), id);
        disarmed.push((cpu_seconds() - start) * 1e3);
        if i.stats().sites > 0 {
            return Err("disarming: a site of the program is still armed".into());
        }
    }
    Ok(vec![
        row("   arming 40,000 probes of a program", armed, PROGRAM_BOUND_MS, "300 ms"),
        row("   disarming them", disarmed, PROGRAM_BOUND_MS, "300 ms"),
    ])
}
