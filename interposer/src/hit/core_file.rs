//! `exit 3`: an ELF core file of the current process, as Linux writes them and gdb reads them.
//!
//! It contains a note with the user registers, one with the floating-point registers, one with the process's name, and
//! every page that ring 3 can read now, as loads and stores see it. Pages that the guest has not brought in are not
//! there. The same machine gives the same bytes. The caller decides when one is taken, and where the file goes.

use super::user_context;
use serde::{Deserialize, Serialize};
use trapline_dump::elf::{self, PF_R, PF_W, PF_X, Segment};
use trapline_dump::notes::{self, Registers};
use trapline_emu::{Core, PAGE, Translation};
use trapline_os::OsProfile;

/// Pages that a core file holds at most: 256 MiB.
const MAX_PAGES: usize = 1 << 16;

/// A core file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreFile {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Process id, 0 without a profile.
    pub pid: u32,
    /// The process's name, empty without a profile.
    pub name: String,
    /// Instruction pointer of the process.
    pub ip: u64,
    /// Pages of 4 KiB in it.
    pub pages: usize,
    /// The process has more pages than fit.
    pub cut: bool,
}

/// Pages next to each other with the same rights.
struct Run {
    va: u64,
    flags: u32,
    pages: Vec<u64>,
}

/// Takes a core file of the current process.
pub(crate) fn take(core: &Core, profile: Option<&dyn OsProfile>) -> CoreFile {
    let wide = core.env().long_mode();
    let found = core.user_pages(MAX_PAGES);
    let runs = runs(&found.pages);
    let task = profile.and_then(|p| p.current(core));
    let (pid, name) = task.map_or((0, String::new()), |t| (t.pid, t.name));
    let left = user_context::of_current(core, profile);
    let registers = Registers::of_process(core, left);
    let notes = notes::of_process(core, &registers, pid, &name, wide);
    let bytes = file(core, &runs, &notes, wide);
    CoreFile { bytes, pid, name, ip: registers.ip, pages: found.pages.len(), cut: found.cut }
}

fn flags(t: &Translation) -> u32 {
    PF_R | if t.writable { PF_W } else { 0 } | if t.executable { PF_X } else { 0 }
}

fn runs(pages: &[(u64, Translation)]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (va, t) in pages {
        let flags = flags(t);
        match runs.last_mut() {
            Some(run) if run.flags == flags && run.va + run.pages.len() as u64 * PAGE == *va => {
                run.pages.push(t.paddr);
            }
            _ => runs.push(Run { va: *va, flags, pages: vec![t.paddr] }),
        }
    }
    runs
}

/// The headers, the notes, and the pages from the next page boundary on.
fn file(core: &Core, runs: &[Run], notes: &[u8], wide: bool) -> Vec<u8> {
    let segments = runs.iter().map(|run| {
        let size = run.pages.len() as u64 * PAGE;
        Segment { vaddr: run.va, paddr: 0, size, flags: run.flags, shares: None }
    });
    let segments: Vec<Segment> = segments.take(elf::MAX_SEGMENTS).collect();
    let mut bytes = elf::head(elf::Of::Process, wide, notes, &segments);
    let mut page = [0; PAGE as usize];
    for paddr in runs.iter().take(segments.len()).flat_map(|run| &run.pages) {
        // A page outside of RAM is zero.
        if !core.ram().read(*paddr, &mut page) {
            page.fill(0);
        }
        bytes.extend(page);
    }
    bytes
}
