//! The boot loader's data in memory for a Linux kernel: the "zero page" with the memory map, the command line, the
//! initrd.

use super::linux::{HEADER_AT, LinuxError};
use super::plan::{EntryMode, LoadPlan};
use crate::firmware::memory_map::memory_map;
use crate::layout::RamLayout;

/// Where the boot parameters lie: below the extended BIOS data, above what a BIOS uses.
const PARAMS_AT: u64 = 0x1_0000;
const CMDLINE_AT: u64 = 0x1_1000;
/// Six pages for the identity tables of a 64-bit entry.
const TABLES_AT: u64 = 0x1_8000;
const SEED_AT: u64 = 0x1_e000;
/// The descriptors of the boot protocol.
const GDT_AT: u64 = 0x1_e800;
const LOW_END: u64 = 0x1_f000;

const E820_COUNT_AT: usize = 0x1e8;
const E820_AT: usize = 0x2d0;
const HIGH_MEMORY: u64 = 0x10_0000;

/// The seed of the kernel's random numbers. A kernel without a seed waits a second to count ticks. This seed is fixed
/// so that every run draws the same numbers.
const SEED: &[u8; 32] = b"Trapline: the same in every run.";

/// The parts of a boot.
pub(crate) struct Layout<'a> {
    /// The command line, without a NUL.
    pub cmdline: &'a str,
    /// The initial RAM disk; empty for none.
    pub initrd: &'a [u8],
    /// Bytes of RAM.
    pub mem_size: u64,
    /// Physical address of ACPI's RSDP, 0 for none.
    pub rsdp: u64,
    /// First address after the memory that the kernel takes, or in which it is unpacked.
    pub kernel_end: u64,
    /// The mode in which the image's own code is entered; none where the kernel inside is.
    pub own_code: Option<EntryMode>,
}

/// What to write into memory, and where the registers point.
pub(crate) struct BootParams<'a> {
    /// Physical addresses and what is written there.
    pub writes: Vec<(u64, std::borrow::Cow<'a, [u8]>)>,
    /// The boot parameters, for ESI or RSI.
    pub params: u64,
    /// Where the identity tables of a 64-bit entry can lie.
    pub tables: u64,
    /// The address and the limit of the GDT, if the image is entered with one.
    pub gdt: Option<(u64, u32)>,
}

/// The GDT that the boot protocol asks for (boot.rst, "32-bit Boot Protocol"): `__BOOT_CS` at 10h and `__BOOT_DS` at 18h, flat.
fn descriptors(mode: EntryMode) -> Vec<u8> {
    const DATA: u64 = 0x00cf_9300_0000_ffff;
    let code = match mode {
        EntryMode::Flat32 => 0x00cf_9b00_0000_ffff,
        EntryMode::Long64 => 0x00af_9b00_0000_ffff,
    };
    [0, 0, code, DATA].iter().flat_map(|descriptor: &u64| descriptor.to_le_bytes()).collect()
}

/// Lays out everything beside the kernel.
pub(crate) fn build<'a>(plan: &LoadPlan, layout: &Layout<'a>) -> Result<BootParams<'a>, LinuxError> {
    let Some(linux) = &plan.linux else {
        return Ok(BootParams { writes: Vec::new(), params: 0, tables: TABLES_AT, gdt: None });
    };
    let header = &linux.header;
    if let Some(start) = plan.segments.first().map(|s| s.paddr).filter(|start| *start < LOW_END) {
        return Err(LinuxError::LowMemory { start, end: LOW_END });
    }
    let (len, most) = (layout.cmdline.len(), header.cmdline_size());
    if len > most as usize || len as u64 >= TABLES_AT - CMDLINE_AT {
        return Err(LinuxError::CommandLine { len, most: most.min((TABLES_AT - CMDLINE_AT - 1) as u32) });
    }
    if let Some(at) = layout.cmdline.bytes().position(|byte| byte == 0) {
        return Err(LinuxError::CommandLineNul { at });
    }
    let mut cmdline = layout.cmdline.as_bytes().to_vec();
    cmdline.push(0);
    let initrd = place_initrd(header.initrd_addr_max(), layout)?;
    let mut writes = vec![(CMDLINE_AT, cmdline.into())];
    if !layout.initrd.is_empty() {
        writes.push((u64::from(initrd), layout.initrd.into()));
    }
    writes.push((SEED_AT, seed_node().into()));
    let header = header.filled(CMDLINE_AT as u32, initrd, layout.initrd.len() as u32, SEED_AT);
    writes.push((PARAMS_AT, zero_page(&header, layout).into()));
    let gdt = layout.own_code.map(descriptors);
    let limit = gdt.as_ref().map(|gdt| (GDT_AT, gdt.len() as u32 - 1));
    writes.extend(gdt.map(|gdt| (GDT_AT, gdt.into())));
    Ok(BootParams { writes, params: PARAMS_AT, tables: TABLES_AT, gdt: limit })
}

/// `struct setup_data` of type SETUP_RNG_SEED: no next one, type, length, and the seed.
fn seed_node() -> Vec<u8> {
    const SETUP_RNG_SEED: u32 = 9;
    let mut node = vec![0; 8];
    node.extend(SETUP_RNG_SEED.to_le_bytes());
    node.extend((SEED.len() as u32).to_le_bytes());
    node.extend(SEED);
    node
}

/// As high as the kernel and RAM allow, at a page's start.
fn place_initrd(highest: u32, layout: &Layout<'_>) -> Result<u32, LinuxError> {
    let len = layout.initrd.len() as u64;
    if len == 0 {
        return Ok(0);
    }
    let low = layout.kernel_end.next_multiple_of(4096).max(HIGH_MEMORY);
    let high = RamLayout::of(layout.mem_size).low_end().min(u64::from(highest) + 1);
    let start = high.checked_sub(len).map(|start| start & !0xfff).filter(|start| *start >= low);
    let start = start.and_then(|start| u32::try_from(start).ok());
    start.ok_or(LinuxError::InitrdTooLarge { len, low, high })
}

/// `struct boot_params`: zeros but for the setup header, the text screen and the memory map.
fn zero_page(header: &[u8], layout: &Layout<'_>) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let mut put = |at: usize, value: &[u8]| {
        if let Some(field) = page.get_mut(at..at + value.len()) {
            field.copy_from_slice(value);
        }
    };
    // struct screen_info: mode 3, 80 by 25 characters of 16 lines, VGA.
    put(0x06, &[3, 80]);
    put(0x0e, &[25]);
    put(0x0f, &[1]);
    put(0x10, &16u16.to_le_bytes());
    put(0x70, &layout.rsdp.to_le_bytes());
    put(HEADER_AT, header);
    // ext_mem_k, for code that does not read the memory map: KiB above 1 MiB, at most 63 MiB.
    let high_kib =
        (RamLayout::of(layout.mem_size).low_end().saturating_sub(HIGH_MEMORY) >> 10).min(0xfc00) as u16;
    put(0x02, &high_kib.to_le_bytes());
    let map = memory_map(layout.mem_size);
    for (n, range) in map.iter().enumerate() {
        let at = E820_AT + n * 20;
        put(at, &range.start.to_le_bytes());
        put(at + 8, &range.size().to_le_bytes());
        put(at + 16, &range.kind.to_le_bytes());
    }
    put(E820_COUNT_AT, &[map.len() as u8]);
    page
}
