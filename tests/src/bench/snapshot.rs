//! Restoring a snapshot after the guest has dirtied some pages.

use super::table::{Row, Target, median};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use trapline_emu::{BootState, CpuMode, CpuModel, Machine, MachineConfig, PAGE, Stop};

const AT: u64 = 0x10000;
/// The first page that the guest writes.
pub(super) const DATA: u64 = 0x40_0000;
const PAGES: [usize; 3] = [4, 64, 512];

/// `l: mov [edi], ecx; add edi, 4096; dec ecx; jnz l; cli; hlt`.
const DIRTY: [u8; 13] = [0x89, 0x0f, 0x81, 0xc7, 0, 0x10, 0, 0, 0x49, 0x75, 0xf5, 0xfa, 0xf4];

fn machine(pages: usize) -> Result<Machine, Box<dyn Error>> {
    let mut m = Machine::new(&MachineConfig { mem_size: 64 << 20, model: CpuModel::Ia32 })?;
    load(&mut m, pages);
    m.write_physical(DATA, &vec![0x5a; pages * PAGE as usize]);
    Ok(m)
}

/// The loop that writes to so many pages, and the CPU at its start.
pub(super) fn load(m: &mut Machine, pages: usize) {
    // mov ecx, pages; mov edi, DATA
    let mut code = vec![0xb9];
    code.extend((pages as u32).to_le_bytes());
    code.push(0xbf);
    code.extend((DATA as u32).to_le_bytes());
    code.extend(DIRTY);
    m.write_physical(AT, &code);
    m.boot(&BootState { mode: CpuMode::Flat32, ip: AT, ax: 0, bx: 0, sp: 0x8000, si: 0 });
}

/// Runs it to its end.
pub(super) fn dirty(m: &mut Machine) -> Result<(), Box<dyn Error>> {
    match m.run(None, u64::MAX) {
        Stop::Halted => Ok(()),
        other => Err(format!("the page-dirtying loop ended with {other:?}").into()),
    }
}

/// Microseconds of a restore, and of copying the same pages from where a snapshot keeps them.
fn once(
    m: &mut Machine,
    saved: &trapline_emu::Snapshot,
    kept: &[Box<[u8]>],
    to: &mut [u8],
) -> Result<(f64, f64), Box<dyn Error>> {
    dirty(m)?;
    let start = Instant::now();
    m.restore(saved)?;
    let restore = start.elapsed().as_nanos() as f64 / 1000.0;
    // As the guest left its pages: one line of each was just written.
    to.chunks_mut(PAGE as usize).for_each(|page| page[0] = 1);
    let start = Instant::now();
    for (page, from) in to.chunks_mut(PAGE as usize).zip(kept) {
        page.copy_from_slice(from);
    }
    black_box(&to);
    let copy = start.elapsed().as_nanos() as f64 / 1000.0;
    Ok((restore, copy))
}

/// A row for each number of dirty pages.
///
/// # Errors
/// The machine does not run as expected.
pub fn rows(rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for pages in PAGES {
        let mut m = machine(pages)?;
        let saved = m.snapshot();
        let kept: Vec<Box<[u8]>> = (0..pages).map(|_| vec![0x5a; PAGE as usize].into_boxed_slice()).collect();
        let mut to = vec![0u8; pages * PAGE as usize];
        let (mut restores, mut copies, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (restore, copy) = once(&mut m, &saved, &kept, &mut to)?;
            restores.push(restore);
            copies.push(copy);
            ratios.push(restore / (5.0 + 5.0 * copy));
        }
        let what = format!("   {pages} pages dirty (memcpy {:.2} us)", median(copies));
        rows.push(Row::plain(what, median(restores), "us").against(
            median(ratios),
            "5 us + 5 memcpy",
            Target::AtMost(1.0),
        ));
    }
    Ok(rows)
}
