//! The CPU of a dump, with what `elf_prstatus` lacks: control registers, descriptors, tables.
//!
//! qemu's `dump-guest-memory` writes them as a note of the owner `QEMU` (`QEMUCPUState` in qemu's
//! `target/i386/arch_dump.c`), which crash reads too, so our dumps have the same note. Without it, the state is made of the
//! registers: flat segments, and paging as the kernel's width has it. Model-specific registers are not in dumps.

use trapline_emu::{CpuState, SegmentState};

use crate::notes::{Registers, SP};

/// The version that is written and read.
const VERSION: u32 = 1;
/// Bytes up to the control registers, with them, and with the base of GS in user mode, which came later.
const CONTROL: usize = 8 + 18 * 8 + 10 * SEGMENT;
const SIZE: usize = CONTROL + 5 * 8;
const WITH_GS: usize = SIZE + 8;
/// Bytes of a segment.
const SEGMENT: usize = 24;
/// The general registers in the note's order, by their encoding.
const GENERAL: [usize; 16] = [0, 3, 1, 2, 6, 7, SP, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// CR0: protection, paging, write protection.
const CR0: u64 = 0x8001_0001;
/// CR4: PSE, PAE, PGE.
const PSE: u64 = 0x10;
const PAE: u64 = 0x20;
const PGE: u64 = 0x80;
/// CR4: five levels of tables.
const LA57: u64 = 0x1000;
/// EFER: SYSCALL, long mode enabled and active; no-execute.
const LONG: u64 = 0x501;
const NX: u64 = 0x800;
/// Attributes of flat segments: present, of code or data, 32 bits, in pages; L of 64-bit code instead of D.
const DATA: u32 = 0x00cf_9300;
const CODE32: u32 = 0x00cf_9b00;
const CODE64: u32 = 0x00af_9b00;
/// The selector of a 64-bit Linux for 32-bit programs.
const USER32: u64 = 0x23;
/// Where DPL is in the attributes.
const DPL: u32 = 13;

/// The content of the note.
pub(crate) fn note(cpu: &CpuState) -> Vec<u8> {
    let mut to = Vec::with_capacity(WITH_GS);
    to.extend(VERSION.to_le_bytes());
    to.extend((WITH_GS as u32).to_le_bytes());
    let mut word = |value: u64| to.extend(value.to_le_bytes());
    GENERAL.into_iter().for_each(|n| word(cpu.gpr[n]));
    word(cpu.ip);
    word(cpu.eflags);
    let [es, cs, ss, ds, fs, gs] = cpu.segments;
    for segment in [cs, ds, es, fs, gs, ss, cpu.ldt, cpu.tr, cpu.gdt, cpu.idt] {
        [segment.selector, segment.limit, segment.attributes, 0]
            .iter()
            .for_each(|part| to.extend(part.to_le_bytes()));
        to.extend(segment.base.to_le_bytes());
    }
    let [cr0, cr2, cr3, cr4] = cpu.control;
    [cr0, 0, cr2, cr3, cr4, cpu.msr.kernel_gs_base].iter().for_each(|value| to.extend(value.to_le_bytes()));
    to
}

/// The state in the content of such a note.
pub(crate) fn read(content: &[u8]) -> Option<CpuState> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(*content.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u64::from_le_bytes(*content.get(at..)?.first_chunk()?));
    let size = usize::try_from(u32_at(4)?).ok()?.min(content.len());
    if u32_at(0)? != VERSION || size < SIZE {
        return None;
    }
    let mut cpu = CpuState::default();
    for (n, register) in GENERAL.into_iter().enumerate() {
        cpu.gpr[register] = word(8 + 8 * n)?;
    }
    (cpu.ip, cpu.eflags) = (word(8 + 16 * 8)?, word(8 + 17 * 8)?);
    let segment = |n: usize| {
        let at = 8 + 18 * 8 + n * SEGMENT;
        let (selector, limit, attributes) = (u32_at(at)?, u32_at(at + 4)?, u32_at(at + 8)?);
        Some(SegmentState { selector, limit, attributes, base: word(at + 16)? })
    };
    let [cs, ds, es, fs, gs, ss] =
        [segment(0)?, segment(1)?, segment(2)?, segment(3)?, segment(4)?, segment(5)?];
    cpu.segments = [es, cs, ss, ds, fs, gs];
    (cpu.ldt, cpu.tr, cpu.gdt, cpu.idt) = (segment(6)?, segment(7)?, segment(8)?, segment(9)?);
    let control = |n: usize| word(CONTROL + 8 * n);
    cpu.control = [control(0)?, control(2)?, control(3)?, control(4)?];
    if size >= WITH_GS {
        cpu.msr.kernel_gs_base = word(SIZE)?;
    }
    cpu.cpl = (cs.selector & 3) as u8;
    // The note has no EFER. 64-bit code shows long mode, and 32-bit code of a 64-bit kernel has a 64-bit descriptor table.
    let long = cs.attributes & (1 << 21) != 0 || cpu.gdt.base >> 32 != 0 || cpu.control[2] >> 32 != 0;
    cpu.msr.efer = if long { LONG | NX } else { NX };
    Some(cpu)
}

/// The state of a CPU with these registers and with flat segments. Paging is off.
pub(crate) fn flat(registers: &Registers, wide: bool) -> CpuState {
    let mut cpu =
        CpuState { gpr: registers.gpr, ip: registers.ip, eflags: registers.flags, ..CpuState::default() };
    let [es, cs, ss, ds, fs, gs] = registers.selectors;
    let ring = (cs & 3) as u32;
    let segment = |selector: u64, attributes: u32, base: u64| SegmentState {
        selector: selector as u32,
        base,
        limit: u32::MAX,
        attributes: attributes | ring << DPL,
    };
    let code = if wide && cs != USER32 { CODE64 } else { CODE32 };
    let data = |selector| segment(selector, DATA, 0);
    let [fs_base, gs_base] = registers.bases;
    cpu.segments = [
        data(es),
        segment(cs, code, 0),
        data(ss),
        data(ds),
        segment(fs, DATA, fs_base),
        segment(gs, DATA, gs_base),
    ];
    cpu.cpl = ring as u8;
    cpu.control = [1, 0, 0, 0];
    cpu
}

/// How a kernel's page tables are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// Two levels of 32 bits.
    Narrow,
    /// Three levels: PAE.
    Pae,
    /// Four levels: 64 bits.
    Four,
}

/// Turns paging on, with the top table at the physical address `root`.
pub fn with_paging(cpu: &mut CpuState, tables: Tables, root: u64) {
    let (cr4, efer) = match tables {
        Tables::Narrow => (PSE | PGE, 0),
        Tables::Pae => (PSE | PAE | PGE, NX),
        Tables::Four => (PSE | PAE | PGE, LONG | NX),
    };
    cpu.control = [CR0, 0, root, cr4];
    cpu.msr.efer = efer;
}

/// Whether the tables have five levels, which no machine here has.
pub fn has_five_levels(cpu: &CpuState) -> bool {
    cpu.control[3] & LA57 != 0
}
