//! The kernel in a dump, as the file that it was started from would show it: a Linux kernel carries its symbols (kallsyms),
//! its types (BTF) and its unwind tables in memory, so an ELF file can be made of them.
//!
//! Where the kernel is comes from its description of itself, or from the page tables: a kernel that was loaded at a random
//! address is found like any other. Nothing is guessed: a place counts only if the symbols there put `_text` at its beginning.
//! Code is as it is in memory, so with what the kernel has patched at its start.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EM_386, EM_X86_64, ET_EXEC, Header};
use goblin::elf::program_header::{PF_R, PF_W, PF_X, PT_LOAD, ProgramHeader};
use goblin::elf::section_header::{
    SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_PROGBITS, SHT_STRTAB, SectionHeader,
};
use scroll::Pwrite;
use scroll::ctx::SizeWith;
use trapline_emu::symbols::Symbols;
use trapline_emu::{Access, Core, PAGE};

use crate::cpu::{self, Tables};
use crate::exports;
use crate::notes::described;
use crate::read::DumpInfo;

/// Where 64-bit Linux maps its image, and the end of that part of the address space.
const IMAGE: u64 = 0xffff_ffff_8000_0000;
const IMAGE_END: u64 = 0xffff_ffff_c000_0000;
/// The distance of the places where a kernel may begin.
const ALIGNED: u64 = 2 << 20;
/// The alignment of data between two sections.
const ALIGNED_DATA: u64 = 16;
/// Where 32-bit Linux maps memory, and where its image usually begins.
const LOW_MEMORY: u64 = 0xc000_0000;
const NARROW: [u64; 3] = [0xc100_0000, 0xc010_0000, 0xc040_0000];
/// Most bytes that are searched for symbols, and most of a kernel.
const SEARCHED: u64 = 64 << 20;
const MOST: u64 = 128 << 20;
/// Most bytes of memory that are searched for a page table.
const MOST_MEMORY: u64 = 16 << 30;
/// The bit of CR3 that leads to the tables with the kernel, if user code has tables of its own.
const USER_TABLES: u64 = 1 << 12;

/// The sections of the exported symbols and of their names.
const EXPORTS: &str = "__ksymtab";
const EXPORTED_NAMES: &str = "__ksymtab_strings";
/// What a kernel keeps between two of its symbols, and whether that is code.
const SECTIONS: [(&str, &str, &str, bool); 12] = [
    (".text", "_text", "_etext", true),
    (".init.text", "_sinittext", "_einittext", true),
    (".BTF", "__start_BTF", "__stop_BTF", false),
    (".orc_unwind_ip", "__start_orc_unwind_ip", "__stop_orc_unwind_ip", false),
    (".orc_unwind", "__start_orc_unwind", "__stop_orc_unwind", false),
    (EXPORTS, "__start___ksymtab", "__stop___ksymtab", false),
    ("__ksymtab_gpl", "__start___ksymtab_gpl", "__stop___ksymtab_gpl", false),
    (EXPORTED_NAMES, "__stop___ksymtab_gpl", "__start___param", false),
    ("__param", "__start___param", "__stop___param", false),
    ("__ex_table", "__start___ex_table", "__stop___ex_table", false),
    (".data", "_sdata", "_edata", false),
    (".bss", "__bss_start", "__bss_stop", false),
];

/// Where a kernel is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// Virtual address of its first byte, `_text`.
    pub text: u64,
    /// Physical address of it.
    pub paddr: u64,
    /// Whether it has 64 bits.
    pub wide: bool,
}

/// The number that a kernel gives in its description of itself, in hexadecimal.
fn symbol(info: &DumpInfo, name: &str) -> Option<u64> {
    let text = described(info.vmcoreinfo.as_deref()?, &format!("SYMBOL({name})"))?;
    u64::from_str_radix(text.trim(), 16).ok()
}

/// The place that the kernel gives in its description of itself.
fn told(info: &DumpInfo) -> Option<Home> {
    let text = symbol(info, "_stext")? & !(PAGE - 1);
    let wide = text > u64::from(u32::MAX);
    Some(Home { text, paddr: image_paddr(info, text)?, wide })
}

/// The physical address of a virtual one in a kernel's image.
fn image_paddr(info: &DumpInfo, va: u64) -> Option<u64> {
    if va >= IMAGE {
        let base = described(info.vmcoreinfo.as_deref()?, "NUMBER(phys_base)")?.trim().parse::<i64>().ok()?;
        return Some((va - IMAGE).wrapping_add_signed(base));
    }
    let mapped = info.memory.iter().find_map(|range| {
        let into = va.checked_sub(range.vaddr?).filter(|into| *into < range.size)?;
        Some(range.paddr + into)
    });
    mapped.or_else(|| va.checked_sub(LOW_MEMORY))
}

/// The kernel's own page table as it describes itself, and how it is read: as the place of its image shows.
pub fn own_tables(core: &Core, info: &DumpInfo) -> Option<(Tables, u64)> {
    let home = told(info)?;
    let root = image_paddr(info, symbol(info, "swapper_pg_dir")?)?;
    let ways: &[Tables] = if home.wide { &[Tables::Four] } else { &[Tables::Pae, Tables::Narrow] };
    let fits = |tables: &&Tables| {
        let mut state = core.cpu_state();
        cpu::with_paging(&mut state, **tables, root);
        let paging = trapline_emu::Paging {
            cr0: state.control[0],
            cr3: root,
            cr4: state.control[3],
            efer: state.msr.efer,
            ..core.paging()
        };
        let found = trapline_emu::look(core.ram(), paging, home.text, Access::Read, false);
        found.is_ok_and(|page| page.paddr == home.paddr)
    };
    ways.iter().find(fits).map(|tables| (*tables, root))
}

/// The places where the page tables of the CPU may have a kernel.
fn mapped(core: &Core) -> Vec<Home> {
    let paging = core.paging();
    if !paging.enabled() {
        return Vec::new();
    }
    let wide = paging.long();
    let places = |cr3: u64| {
        let look = move |va: u64| {
            let paging = trapline_emu::Paging { cr3, ..paging };
            trapline_emu::look(core.ram(), paging, va, Access::Read, false).ok()
        };
        let home = move |text: u64| look(text).map(|page| Home { text, paddr: page.paddr, wide });
        if wide {
            (IMAGE..IMAGE_END).step_by(ALIGNED as usize).find_map(home).into_iter().collect::<Vec<_>>()
        } else {
            NARROW.into_iter().filter_map(home).collect()
        }
    };
    let mut found = places(paging.cr3 & !USER_TABLES);
    if found.is_empty() {
        found = places(paging.cr3);
    }
    found
}

/// A page table of a 64-bit Linux kernel in an image of the memory without registers: the first page that is one.
pub fn find_root(core: &Core) -> Option<u64> {
    const PRESENT: u64 = 1;
    const ENTRY: u64 = 0x000f_ffff_ffff_f000;
    let ram = core.ram();
    let entry = |table: u64, n: u64| {
        let mut word = [0; 8];
        ram.read(table + 8 * n, &mut word).then(|| u64::from_le_bytes(word)).filter(|e| e & PRESENT != 0)
    };
    (0..ram.layout().end().min(MOST_MEMORY)).step_by(PAGE as usize).find(|page| {
        // Almost every page fails here: the last 512 GiB are not mapped by a table with the image.
        let Some(upper) = entry(*page, 511).filter(|e| e & 0x80 == 0) else { return false };
        if entry(upper & ENTRY, 510).is_none_or(|e| e & 0x80 != 0) {
            return false;
        }
        let mut state = core.cpu_state();
        cpu::with_paging(&mut state, Tables::Four, *page);
        let (cr0, cr4, efer) = (state.control[0], state.control[3], state.msr.efer);
        let paging = trapline_emu::Paging { cr0, cr3: *page, cr4, efer, ..core.paging() };
        let text = (IMAGE..IMAGE_END).step_by(ALIGNED as usize).find_map(|va| {
            let found = trapline_emu::look(ram, paging, va, Access::Read, false).ok()?;
            Some(Home { text: va, paddr: found.paddr, wide: true })
        });
        text.is_some_and(|home| found_in(core, home).is_some())
    })
}

/// The kernel in a machine that is looked at: where it is, and an ELF file of it. `None` if no Linux kernel with symbols is
/// found.
pub fn find(core: &Core, info: &DumpInfo) -> Option<(Home, Vec<u8>)> {
    let homes = told(info).into_iter().chain(mapped(core));
    homes.into_iter().find_map(|home| Some((home, found_in(core, home)?)))
}

/// The file of a kernel that is to be here; `None` if it is not.
fn found_in(core: &Core, home: Home) -> Option<Vec<u8>> {
    let bytes = read(core, home.paddr, SEARCHED)?;
    // All but the first page is searched for symbols.
    let first = [Part { name: ".text", from: 0, to: PAGE, code: true }];
    let symbols = Symbols::from_kallsyms(&elf(home, &bytes, &first), "vmlinux").ok()?;
    let size = symbols.sole("_end").and_then(|end| end.addr.checked_sub(home.text));
    let size = size.map_or(bytes.len() as u64, |size| size.clamp(PAGE, MOST).next_multiple_of(PAGE));
    let bytes = if size <= bytes.len() as u64 { bytes } else { read(core, home.paddr, size)? };
    let bytes = bytes.get(..size as usize)?;
    let mut parts = parts(&symbols, home, size);
    add_exports(&mut parts, bytes);
    Some(elf(home, bytes, &parts))
}

/// Memory from a physical address on, up to the end of the memory; missing pages are zeros.
fn read(core: &Core, paddr: u64, most: u64) -> Option<Vec<u8>> {
    let size = core.ram().layout().end().checked_sub(paddr).filter(|size| *size >= PAGE)?.min(most);
    let mut bytes = vec![0; size as usize];
    let mut any = false;
    for (n, page) in (0..).zip(bytes.chunks_mut(PAGE as usize)) {
        if core.ram().read(paddr + n * PAGE, page) {
            any = true;
        } else {
            page.fill(0);
        }
    }
    any.then_some(bytes)
}

/// A section: a range of the image.
#[derive(Debug, Clone, Copy)]
struct Part {
    name: &'static str,
    from: u64,
    to: u64,
    code: bool,
}

/// The sections that the symbols show. None overlap.
fn parts(symbols: &Symbols, home: Home, size: u64) -> Vec<Part> {
    let place = |name: &str| symbols.sole(name)?.addr.checked_sub(home.text).filter(|at| *at <= size);
    let part = |(name, from, to, code): (&'static str, &str, &str, bool)| {
        let (from, to) = (place(from)?, place(to)?);
        (from < to).then_some(Part { name, from, to, code })
    };
    let mut found: Vec<Part> = SECTIONS.into_iter().filter_map(part).collect();
    found.sort_by_key(|part| part.from);
    let mut end = 0;
    found.retain(|part| {
        let fits = part.from >= end;
        end = if fits { part.to } else { end };
        fits
    });
    found
}

/// Adds the exported symbols, if the symbols do not show them.
fn add_exports(parts: &mut Vec<Part>, image: &[u8]) {
    if parts.iter().any(|part| part.name == EXPORTS) {
        return;
    }
    let Some(found) = exports::find(image) else { return };
    let added = [(EXPORTS, found.entries), (EXPORTED_NAMES, found.names)];
    let added = added.map(|(name, Range { start: from, end: to })| Part { name, from, to, code: false });
    // None overlap, here too.
    let overlaps = |one: &Part, other: &Part| one.from < other.to && other.from < one.to;
    let is_free = |one: &Part| !parts.iter().any(|other| overlaps(one, other));
    if added.iter().all(is_free) && !overlaps(&added[0], &added[1]) {
        parts.extend(added);
        parts.sort_by_key(|part| part.from);
    }
}

/// The parts with what lies between them as data.
fn whole(parts: &[Part], size: u64) -> Vec<Part> {
    let mut all = Vec::new();
    let mut end = 0_u64;
    for part in parts {
        // kallsyms are searched for at aligned places, and code may end anywhere.
        end = end.next_multiple_of(ALIGNED_DATA);
        if part.from > end {
            all.push(Part { name: ".rodata", from: end, to: part.from, code: false });
        }
        all.push(*part);
        end = part.to;
    }
    end = end.next_multiple_of(ALIGNED_DATA);
    if end < size {
        all.push(Part { name: ".rest", from: end, to: size, code: false });
    }
    all
}

/// An ELF file of the image: one segment with these sections.
fn elf(home: Home, bytes: &[u8], parts: &[Part]) -> Vec<u8> {
    let container = if home.wide { Container::Big } else { Container::Little };
    let ctx = Ctx::new(container, Endian::Little);
    let (header_size, program_size) = (Header::size(ctx), ProgramHeader::size(ctx));
    let section_size = SectionHeader::size_with(&ctx);
    let sections = whole(parts, bytes.len() as u64);
    let image_at = PAGE as usize;
    let names_at = image_at + bytes.len();
    let mut names = b"\0.shstrtab\0".to_vec();
    let mut headers = vec![SectionHeader::default()];
    headers.push(SectionHeader {
        sh_name: 1,
        sh_type: SHT_STRTAB,
        sh_offset: names_at as u64,
        ..SectionHeader::default()
    });
    for part in &sections {
        let kind = if part.code { SHF_EXECINSTR } else { SHF_WRITE };
        headers.push(SectionHeader {
            sh_name: names.len(),
            sh_type: SHT_PROGBITS,
            sh_flags: (SHF_ALLOC | kind).into(),
            sh_addr: home.text + part.from,
            sh_offset: image_at as u64 + part.from,
            sh_size: part.to - part.from,
            sh_addralign: 1,
            ..SectionHeader::default()
        });
        names.extend(part.name.bytes().chain([0]));
    }
    headers[1].sh_size = names.len() as u64;
    let sections_at = (names_at + names.len()).next_multiple_of(8);
    let mut file = vec![0; sections_at + headers.len() * section_size];
    file[image_at..names_at].copy_from_slice(bytes);
    file[names_at..names_at + names.len()].copy_from_slice(&names);
    let mut header = Header::new(ctx);
    header.e_type = ET_EXEC;
    header.e_machine = if home.wide { EM_X86_64 } else { EM_386 };
    header.e_entry = home.paddr;
    (header.e_phoff, header.e_phnum) = (header_size as u64, 1);
    (header.e_shoff, header.e_shnum, header.e_shstrndx) = (sections_at as u64, headers.len() as u16, 1);
    header.e_shentsize = section_size as u16;
    let segment = ProgramHeader {
        p_type: PT_LOAD,
        p_flags: PF_R | PF_W | PF_X,
        p_offset: image_at as u64,
        p_vaddr: home.text,
        p_paddr: home.paddr,
        p_filesz: bytes.len() as u64,
        p_memsz: bytes.len() as u64,
        p_align: PAGE,
    };
    // The buffer has room for all of them: a failure would leave zeros, which readers refuse.
    let _ = file.pwrite_with(header, 0, ctx.le);
    let _ = file.pwrite_with(segment, header_size, ctx);
    debug_assert!(header_size + program_size <= image_at);
    for (n, header) in headers.into_iter().enumerate() {
        let _ = file.pwrite_with(header, sections_at + n * section_size, ctx);
    }
    file
}
