//! Good images are planned, bad ones get one sentence.

use std::io::Write;

use super::testing::{TestElf, gnumach};
use super::*;

fn error(bytes: &[u8]) -> String {
    Image::parse(bytes, "test").map(|_| ()).unwrap_err().to_string()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A raw kernel with the a.out kludge: header at `at`, loaded so that the file begins at 1 MB.
fn kludge(len: usize, at: usize, edit: impl FnOnce(&mut [u32; 8])) -> Vec<u8> {
    let flags = 0x1_0003u32;
    let check = 0u32.wrapping_sub(0x1bad_b002).wrapping_sub(flags);
    let mut words = [
        0x1bad_b002,
        flags,
        check,
        0x10_0000 + at as u32,
        0x10_0000,
        0,
        0x10_0000 + len as u32 + 0x1000,
        0x10_0040,
    ];
    edit(&mut words);
    let mut bytes = vec![0x90; len];
    for (index, word) in words.iter().enumerate() {
        bytes[at + index * 4..][..4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[test]
fn plain_elf_of_both_widths() {
    for (wide, mode) in [(false, EntryMode::Flat32), (true, EntryMode::Long64)] {
        let high = if wide { 0xffff_ffff_8000_0000 } else { 0xc000_0000 };
        let image = Image::parse(&TestElf::kernel(wide, high).build(), "k").unwrap();
        let plan = image.plan();
        assert_eq!(
            (plan.mode, plan.entry, plan.end(), plan.takes_modules()),
            (mode, 0x10_0000, 0x10_4000, false)
        );
        assert_eq!(plan.vaddr_to_paddr(0x10_3fff + high), Some(0x10_3fff));
        assert_eq!(plan.vaddr_to_paddr(0x10_4000 + high), None);
        assert_eq!(plan.paddr_to_vaddr(0x10_0010), Some(0x10_0010 + high));
        assert_eq!(plan.is_executable(0x10_07ff + high), Some(true));
        assert_eq!(plan.is_executable(0x10_0800 + high), Some(false), "outside .text");
        assert_eq!(plan.is_executable(0), None);
        assert_eq!(plan.bytes_at(0x10_0000 + high, 2), Some(vec![0xf4, 0x90]));
        assert_eq!(plan.bytes_at(0x10_0000 + 5999 + high, 3), Some(vec![0x90, 0, 0]));
        assert_eq!(plan.bytes_at(0x10_3fff + high, 2), None);
        assert!(plan.check_fits(0x10_4000).is_ok());
        assert_eq!(
            plan.check_fits(0x10_3fff).unwrap_err().to_string(),
            "the image needs physical memory up to 0x104000, but the machine has 0x103fff bytes of RAM"
        );
    }
}

#[test]
fn multiboot_elf_and_gzip() {
    let file = TestElf::kernel(false, 0xc000_0000).with_multiboot(0x20, 3).build();
    for bytes in [file.clone(), gzip(&file)] {
        let image = Image::parse(&bytes, "k").unwrap();
        assert_eq!(image.plan().mode, EntryMode::Flat32);
        let Some(Protocol::Multiboot(header)) = &image.plan().protocol else { panic!("no Multiboot") };
        assert_eq!(header.offset, 4096 + 0x20);
        assert_eq!(image.bytes(), file);
        assert!(image.is_elf());
    }
}

#[test]
fn without_sections_segment_flags_decide() {
    let mut elf = TestElf::kernel(false, 0);
    elf.sections.clear();
    let image = Image::parse(&elf.build(), "k").unwrap();
    assert_eq!(image.plan().is_executable(0x10_3000), Some(true));
}

#[test]
fn aout_kludge() {
    let image = Image::parse(&kludge(5000, 0x10, |_| {}), "k").unwrap();
    let plan = image.plan();
    assert_eq!((plan.entry, plan.end(), plan.segments[0].file.clone()), (0x10_0040, 0x10_2388, 0..5000));
    assert_eq!(plan.mode, EntryMode::Flat32);
    assert!(!image.is_elf());
}

#[test]
fn bad_kludges() {
    type Edit = fn(&mut [u32; 8]);
    let cases: [(Edit, &str); 6] = [
        (|w| w[3] = 0xf_0000, "the Multiboot header says it is at 0xf0000, below the load address 0x100000"),
        (
            |w| w[3] = 0x10_0014,
            "the Multiboot load address is 0x14 bytes before the header, which is at 0x10 of the file",
        ),
        (|w| w[5] = 0x10_0000, "the Multiboot load end 0x100000 is not above the load address 0x100000"),
        (
            |w| w[5] = 0x11_0000,
            "the Multiboot image is truncated: its data ends at 0x10000 of the file, which has 0x1388 bytes",
        ),
        (|w| w[6] = 0x10_0001, "the Multiboot bss end 0x100001 is below the end of the loaded data 0x101388"),
        (|w| w[7] = 0x20_0000, "the entry point 0x200000 lies in no loadable segment"),
    ];
    for (edit, sentence) in cases {
        assert_eq!(error(&kludge(5000, 0x10, edit)), sentence);
    }
}

#[test]
fn bad_multiboot_headers() {
    let mut file = TestElf::kernel(false, 0).with_multiboot(0x20, 3).build();
    file[4096 + 0x28] ^= 1;
    assert_eq!(error(&file), "the Multiboot header at 0x1020 has checksum 0xe4524ffa; it must be 0xe4524ffb");
    let required = TestElf::kernel(false, 0).with_multiboot(0x20, 0x13).build();
    assert_eq!(
        error(&required),
        "the Multiboot header requires features 0x13, of which 0x10 are not supported"
    );
    let optional = TestElf::kernel(false, 0).with_multiboot(0x20, 0x8002_0007).build();
    assert!(Image::parse(&optional, "k").is_ok());
    let raw = kludge(5000, 0x10, |w| (w[1], w[2]) = (0, 0u32.wrapping_sub(0x1bad_b002)));
    assert_eq!(
        error(&raw),
        "the Multiboot kernel is no ELF file and its flags 0x0 give no load addresses (bit 16)"
    );
    let mut cut = vec![0; 100];
    cut[96..].copy_from_slice(&0x1bad_b002u32.to_le_bytes());
    assert_eq!(
        error(&cut),
        "the Multiboot header at 0x60 does not lie within the first 0x64 bytes of the file"
    );
}

#[test]
fn files_that_are_something_else() {
    assert_eq!(error(b""), "the image is empty (0 bytes)");
    assert_eq!(
        error(b"#!/bin/sh\n"),
        "this is no ELF, Multiboot, bzImage or gzip file: it begins with 23 21 2f 62"
    );
    assert!(error(&gzip(&[])).contains("empty"));
    assert!(error(&[0x1f, 0x8b, 8]).starts_with("the gzip stream cannot be unpacked after 0 bytes: "));
}

#[test]
fn wrong_class_machine_and_type() {
    let with = |edit: fn(&mut TestElf)| {
        let mut elf = TestElf::kernel(false, 0);
        edit(&mut elf);
        error(&elf.build())
    };
    assert_eq!(with(|e| e.machine = 40), "the ELF machine is 40 (ARM) in a 32-bit file; it must be 3 (i386)");
    assert_eq!(
        with(|e| e.machine = 62),
        "the ELF machine is 62 (X86_64) in a 32-bit file; it must be 3 (i386)"
    );
    assert_eq!(
        with(|e| e.kind = 3),
        "the ELF type is DYN (position-independent, as a program is); it must be EXEC (fixed addresses)"
    );
    assert_eq!(
        with(|e| e.kind = 1),
        "the ELF type is REL (relocatable object); it must be EXEC (fixed addresses)"
    );
    let mut class = TestElf::kernel(false, 0).build();
    class[4] = 3;
    assert_eq!(error(&class), "the ELF class is 3; it must be 1 (32-bit) or 2 (64-bit)");
    class[4] = 2;
    assert!(Image::parse(&class, "k").is_err(), "a 32-bit file that says it is 64-bit");
    class[4] = 1;
    class[5] = 2;
    assert_eq!(error(&class), "the ELF byte order is 2; it must be 1 (little-endian)");
}

#[test]
fn hostile_segments() {
    let with = |wide: bool, edit: fn(&mut TestElf)| {
        let mut elf = TestElf::kernel(wide, 0);
        edit(&mut elf);
        error(&elf.build())
    };
    assert_eq!(with(false, |e| e.segments.clear()), "the ELF file has no loadable segment");
    assert_eq!(
        with(false, |e| e.segments[0].mem_size = 16),
        "segment 0 holds 0x1770 bytes in the file but only 0x10 in memory"
    );
    assert_eq!(
        with(false, |e| e.segments[0].paddr = 0xffff_f000),
        "segment 0 wraps around: 0x4000 bytes at physical address 0xfffff000"
    );
    assert_eq!(
        with(true, |e| e.segments[0].vaddr = u64::MAX - 0x3fff),
        "segment 0 wraps around: 0x4000 bytes at virtual address 0xffffffffffffc000"
    );
    assert_eq!(
        with(true, |e| e.segments[0].mem_size = u64::MAX),
        "segment 0 wraps around: 0xffffffffffffffff bytes at physical address 0x100000"
    );
    assert_eq!(
        with(false, |e| {
            let mut twin = e.segments[0].clone();
            twin.paddr += 0x1000;
            e.segments.push(twin);
        }),
        "segments overlap in physical memory: 0x100000..0x104000 and 0x101000..0x105000"
    );
    assert_eq!(
        with(false, |e| e.segments[0].paddr = 0),
        "the segment at physical 0x0..0x4000 overlaps the interrupt vectors and BIOS data at 0x0..0x500"
    );
    assert_eq!(
        with(false, |e| e.segments[0].paddr = 0x9_c000),
        "the segment at physical 0x9c000..0xa0000 overlaps the extended BIOS data, video memory and ROM at \
         0x9fc00..0x100000"
    );
    assert_eq!(with(false, |e| e.entry = 0x50_0000), "the entry point 0x500000 lies in no loadable segment");
    let mut interp = TestElf::kernel(false, 0).build();
    interp[52] = 3;
    assert!(error(&interp).contains("user program"));
}

#[test]
fn hostile_offsets() {
    let mut file = TestElf::kernel(true, 0).build();
    file[64 + 8..64 + 16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(error(&file).contains("its segment 0 ends at 0xffffffffffffffff"));
    for (field, what) in [(32, "program header table"), (40, "section header table")] {
        let mut file = TestElf::kernel(true, 0).build();
        file[field..field + 8].copy_from_slice(&(u64::MAX - 8).to_le_bytes());
        assert!(error(&file).contains(what));
    }
    let mut sizes = TestElf::kernel(true, 0).build();
    sizes[54] = 1;
    assert_eq!(error(&sizes), "the ELF program header table has entries of 1 bytes; it must be 56");
}

/// Every cut is refused in one line that names a number.
fn check_cuts(file: &[u8], step: usize) {
    for len in (0..file.len()).step_by(step) {
        let sentence = error(&file[..len]);
        assert!(
            !sentence.contains('\n') && sentence.bytes().any(|byte| byte.is_ascii_digit()),
            "{len}: {sentence}"
        );
    }
    Image::parse(file, "whole").unwrap();
}

#[test]
fn every_truncation_is_an_error() {
    for wide in [false, true] {
        let elf =
            TestElf::kernel(wide, 0).with_multiboot(0x20, 3).with_symbols(&[("main", 0x10_0000, 4, 0x12, 1)]);
        check_cuts(&elf.build(), 1);
        check_cuts(&gzip(&elf.build()), 7);
    }
}

#[test]
fn no_damaged_byte_causes_a_panic() {
    let file = TestElf::kernel(true, 0).with_symbols(&[("main", 0x10_0000, 4, 0x12, 1)]).build();
    for at in (0..256).chain(file.len() - 400..file.len()) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[at] = value;
            if let Ok(image) = Image::parse(&damaged, "k") {
                let plan = image.plan();
                let _ = (
                    plan.check_fits(1 << 30),
                    plan.bytes_at(plan.segments[0].vaddr, 64),
                    plan.is_executable(1),
                );
                let _ = crate::symbols::Symbols::from_elf(image.bytes(), "k");
            }
        }
    }
}

#[test]
fn no_random_damage_causes_a_panic() {
    let kernel = TestElf::kernel(false, 0).with_multiboot(0x20, 0x1_0003);
    let files =
        [kernel.build(), TestElf::kernel(true, 0).with_symbols(&[("f", 0x10_0000, 4, 0x12, 1)]).build()];
    let mut seed = 11u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize
    };
    for round in 0..20_000 {
        let mut file = files[round % 2].clone();
        for _ in 0..1 + next() % 4 {
            let places = [next() % 128, 4096 + 0x20 + next() % 32, file.len() - 1 - next() % 600];
            file[places[next() % 3]] = [0, 1, 0x10, 0x7f, 0x80, 0xff, next() as u8][next() % 7];
        }
        let _ = crate::symbols::Symbols::from_elf(&file, "k")
            .map(|symbols| symbols.at(0x10_0001).map(|at| at.offset));
        let _ = crate::symbols::UserModule::parse(&file, "m").map(|module| module.offset_to_vaddr(4096));
        if let Ok(image) = Image::parse(&file, "k") {
            let plan = image.plan();
            let _ = build_multiboot(plan, "x", &[("m", &[0; 10])], u64::MAX);
            let _ = plan.bytes_at(plan.entry, 1 << 16);
        }
    }
}

fn word(image: &BootImage, at: u64) -> u32 {
    let (base, bytes) =
        image.writes.iter().find(|(base, bytes)| (*base..base + bytes.len() as u64).contains(&at)).unwrap();
    let offset = (at - base) as usize;
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

fn text(image: &BootImage, at: u32) -> String {
    (u64::from(at)..)
        .map(|at| (word(image, at & !3) >> (8 * (at & 3))) as u8)
        .take_while(|b| *b != 0)
        .map(char::from)
        .collect()
}

#[test]
fn boot_information() {
    let plan = Image::parse(&TestElf::kernel(false, 0).with_multiboot(0x20, 3).build(), "mach")
        .unwrap()
        .plan()
        .clone();
    let modules: [(&str, &[u8]); 2] = [("ext2fs --x", &[1; 5000]), ("exec", &[2; 3])];
    let image = build_multiboot(&plan, "console=com0", &modules, 64 << 20).unwrap();
    assert_eq!((image.eax, image.ebx), (0x2bad_b002, 0x10_7000));
    let info = |at: u64| word(&image, u64::from(image.ebx) + at);
    assert_eq!((info(0), info(4), info(8)), (0x24d, 639, 63 * 1024));
    assert_eq!(text(&image, info(16)), "mach console=com0");
    assert_eq!(text(&image, info(64)), "trapline");
    assert_eq!(info(20), 2);
    let module = |index: u32, field: u32| word(&image, u64::from(info(24) + index * 16 + field * 4));
    assert_eq!((module(0, 0), module(0, 1)), (0x10_4000, 0x10_4000 + 5000));
    assert_eq!((module(1, 0), module(1, 1)), (0x10_6000, 0x10_6003));
    assert_eq!(text(&image, module(0, 2)), "ext2fs --x");
    assert_eq!(info(44), 120);
    let map: Vec<[u32; 6]> = (0..5)
        .map(|entry| {
            [0, 1, 2, 3, 4, 5].map(|field| word(&image, u64::from(info(48) + entry * 24 + field * 4)))
        })
        .collect();
    assert_eq!(map[0], [20, 0, 0, 0x9_fc00, 0, 1]);
    assert_eq!(map[1], [20, 0x9_fc00, 0, 0x400, 0, 2]);
    assert_eq!(map[2], [20, 0xf_0000, 0, 0x1_0000, 0, 2]);
    assert_eq!(map[3], [20, 0x10_0000, 0, 63 << 20, 0, 1]);
    assert_eq!(map[4], [20, 0xfffc_0000, 0, 0x4_0000, 0, 2]);
    assert_eq!(image, build_multiboot(&plan, "console=com0", &modules, 64 << 20).unwrap());
}

#[test]
fn boot_information_stands_above_a_low_kernel() {
    let mut elf = TestElf::kernel(false, 0).with_multiboot(0x20, 3);
    elf.segments[0].paddr = 0x8000;
    let plan = Image::parse(&elf.build(), "k").unwrap().plan().clone();
    assert_eq!(build_multiboot(&plan, "", &[], 64 << 20).unwrap().ebx, 0x10_0000);
}

#[test]
fn boot_information_that_does_not_fit() {
    let plan =
        Image::parse(&TestElf::kernel(false, 0).with_multiboot(0x20, 3).build(), "k").unwrap().plan().clone();
    let failure = |line: &str, modules: &[(&str, &[u8])], mem| {
        build_multiboot(&plan, line, modules, mem).unwrap_err().to_string()
    };
    assert_eq!(
        failure("", &[("big", &[0; 0x2000])], 0x10_5000),
        "module 0 (big) needs 0x2000 bytes at 0x104000, but RAM that a 32-bit kernel can use ends at 0x105000"
    );
    assert_eq!(failure("a\0b", &[], 64 << 20), "the command line holds a NUL character at byte 3");
    assert!(failure("", &[], 0x1000).contains("0x104000"));
    assert!(failure(&"x".repeat(0xa_0000), &[], 0x10_4000).starts_with("the Multiboot information needs"));
}

#[test]
fn guest_gnu_mach() {
    let file = gnumach();
    let image = Image::parse(&file, "gnumach").unwrap();
    let plan = image.plan();
    assert_eq!((plan.entry, plan.mode), (0x100_0000, EntryMode::Flat32));
    assert_eq!(plan.vaddr_to_paddr(0xc100_0010), Some(0x100_0010));
    assert_eq!(plan.is_executable(0xc100_0000), Some(true));
    assert_eq!(plan.is_executable(0xc10c_e3c0), Some(false), ".rodata in an executable segment");
    assert!(plan.check_fits(16 << 20).unwrap_err().to_string().contains("0x1147150"));
    check_cuts(image.bytes(), 4096);
}
