//! `exit 3`: an ELF core file of the current process, as Linux writes them and gdb reads them.
//!
//! It contains a note with the user registers, one with the floating-point registers, one with the process's name, and
//! every page that ring 3 can read now, as loads and stores see it. Pages that the guest has not brought in are not
//! there. The same machine gives the same bytes. The caller decides when one is taken, and where the file goes.
//!
//! Source of the layouts: Linux `include/uapi/linux/elfcore.h`, `arch/x86/include/asm/user_32.h` and `user_64.h`.

mod notes;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EM_386, EM_X86_64, ET_CORE, Header};
use goblin::elf::program_header::{PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE, ProgramHeader};
use scroll::Pwrite;
use serde::{Deserialize, Serialize};
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
    let registers = notes::Registers::of(core);
    let notes = notes::all(core, &registers, pid, &name, wide);
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
    let container = if wide { Container::Big } else { Container::Little };
    let ctx = Ctx::new(container, Endian::Little);
    let (header_size, entry_size) = (Header::size(ctx), ProgramHeader::size(ctx));
    let mut header = Header::new(ctx);
    header.e_type = ET_CORE;
    header.e_machine = if wide { EM_X86_64 } else { EM_386 };
    header.e_phoff = header_size as u64;
    header.e_phnum = (runs.len() + 1).min(0xffff) as u16;
    // There are no sections.
    (header.e_shentsize, header.e_shnum, header.e_shstrndx) = (0, 0, 0);
    let notes_at = header_size + entry_size * usize::from(header.e_phnum);
    let mut at = (notes_at + notes.len()).next_multiple_of(PAGE as usize) as u64;
    let mut headers = vec![ProgramHeader {
        p_type: PT_NOTE,
        p_offset: notes_at as u64,
        p_filesz: notes.len() as u64,
        p_align: 4,
        ..ProgramHeader::default()
    }];
    let runs = &runs[..usize::from(header.e_phnum) - 1];
    for run in runs {
        let size = run.pages.len() as u64 * PAGE;
        headers.push(ProgramHeader {
            p_type: PT_LOAD,
            p_flags: run.flags,
            p_offset: at,
            p_vaddr: run.va,
            p_filesz: size,
            p_memsz: size,
            p_align: PAGE,
            ..ProgramHeader::default()
        });
        at += size;
    }
    let mut bytes = vec![0; at as usize];
    // The buffer has room for all of them: a failure would leave zeroes, which readers refuse.
    let _ = bytes.pwrite_with(header, 0, ctx.le);
    for (n, one) in headers.into_iter().enumerate() {
        let _ = bytes.pwrite_with(one, header_size + n * entry_size, ctx);
    }
    bytes[notes_at..notes_at + notes.len()].copy_from_slice(notes);
    let mut to = at as usize - runs.iter().map(|r| r.pages.len()).sum::<usize>() * PAGE as usize;
    for paddr in runs.iter().flat_map(|run| &run.pages) {
        // A page outside of RAM stays zero.
        core.ram().read(*paddr, &mut bytes[to..to + PAGE as usize]);
        to += PAGE as usize;
    }
    bytes
}
