//! Multiboot 2 headers, PVH notes, and the CPU that an image needs.

use super::testing::TestElf;
use super::*;

fn error(bytes: &[u8]) -> String {
    Image::parse(bytes, "test").map(|_| ()).unwrap_err().to_string()
}

/// A kernel with these tags, each with its type, flags and words, in a header at 8 of its first segment.
fn kernel(tags: &[(u16, u16, &[u32])], edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    kernel_of(TestElf::kernel(false, 0), tags, edit)
}

fn kernel_of(mut elf: TestElf, tags: &[(u16, u16, &[u32])], edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut header = vec![0; 16];
    for (kind, flags, words) in tags {
        header.extend(kind.to_le_bytes());
        header.extend(flags.to_le_bytes());
        header.extend((8 + 4 * words.len() as u32).to_le_bytes());
        words.iter().for_each(|word| header.extend(word.to_le_bytes()));
        header.resize(header.len().next_multiple_of(8), 0);
    }
    header.extend([0, 0, 0, 0, 8, 0, 0, 0]);
    let length = header.len() as u32;
    let magic = 0xe852_50d6u32;
    let sum = 0u32.wrapping_sub(magic).wrapping_sub(length);
    for (n, word) in [magic, 0, length, sum].into_iter().enumerate() {
        header[4 * n..][..4].copy_from_slice(&word.to_le_bytes());
    }
    edit(&mut header);
    elf.segments[0].data[8..8 + header.len()].copy_from_slice(&header);
    elf.build()
}

fn plan(bytes: &[u8]) -> LoadPlan {
    Image::parse(bytes, "k").unwrap().plan().clone()
}

#[test]
fn a_multiboot_2_header_is_found_and_its_entry_counts() {
    let found = plan(&kernel(&[(1, 0, &[1, 6, 15]), (3, 0, &[0x10_0040]), (4, 0, &[1])], |_| {}));
    let Some(Protocol::Multiboot2(header)) = &found.protocol else { panic!("{:?}", found.protocol) };
    assert_eq!((header.entry, header.addresses), (Some(0x10_0040), None));
    assert_eq!((found.entry, found.mode, found.takes_modules()), (0x10_0040, EntryMode::Flat32, true));
    let unknown = plan(&kernel(&[(99, 1, &[])], |_| {}));
    assert!(matches!(unknown.protocol, Some(Protocol::Multiboot2(_))), "an optional tag may be unknown");
}

#[test]
fn bad_multiboot_2_headers_get_one_sentence() {
    let none = |_: &mut [u8]| {};
    for (bytes, said) in [
        (
            kernel(&[(99, 0, &[])], none),
            "the Multiboot 2 header requires what tag 99 says, which is not supported",
        ),
        (
            kernel(&[(7, 0, &[])], none),
            "the Multiboot 2 header requires EFI boot services (tag 7), which is not supported",
        ),
        (
            kernel(&[(5, 0, &[800, 600, 32])], none),
            "the Multiboot 2 header requires a screen of 32 bits a pixel, which is not supported",
        ),
        (
            kernel(&[(1, 0, &[1, 400])], none),
            "the Multiboot 2 header requires information of type 400, which is not supported",
        ),
        (
            kernel(&[(2, 0, &[0x10_0008, 0x10_0000, 0, 0])], none),
            "the Multiboot 2 header gives load addresses (tag 2) but no entry point (tag 3)",
        ),
    ] {
        assert_eq!(error(&bytes), said);
    }
    let wrong = error(&kernel(&[], |header| header[12] ^= 1));
    assert!(wrong.starts_with("the Multiboot 2 header at 0x1008 has checksum 0x"), "{wrong}");
    let cut = error(&kernel(&[(4, 0, &[1])], |header| header[20..24].copy_from_slice(&[0xff; 4])));
    assert!(cut.starts_with("tag 4 of the Multiboot 2 header at 0x1008 ends at 0x"), "{cut}");
}

/// The tags of the information that a Multiboot 2 kernel is given, with what is written beside it.
fn information(bytes: &[u8]) -> (Vec<(u32, Vec<u8>)>, BootImage) {
    let found = plan(bytes);
    let facts = BootFacts { cmdline: "", mem_size: 64 << 20, rsdp_at: 0, rsdp: None };
    let image = boot_image(&found, &facts, &[]).unwrap().unwrap();
    let (_, all) = image.writes.iter().find(|(at, _)| *at == u64::from(image.ebx)).unwrap().clone();
    let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
    let (mut tags, mut at) = (Vec::new(), 8);
    while at < all.len() {
        let size = word(at + 4) as usize;
        tags.push((word(at), all[at + 8..at + size].to_vec()));
        at += size.next_multiple_of(8);
    }
    (tags, image)
}

#[test]
fn a_multiboot_2_kernel_is_loaded_where_its_header_wants_it() {
    let at = |words: [u32; 4]| kernel(&[(10, 0, &words), (3, 0, &[0x10_0040])], |_| {});
    let moved = at([0x40_0000, 0x80_0000, 0x10_0000, 0]);
    let found = plan(&moved);
    assert_eq!((found.start(), found.entry, found.end()), (0x40_0000, 0x40_0040, 0x40_4000));
    let (tags, _) = information(&moved);
    let base = tags.iter().find(|(kind, _)| *kind == 21).map(|(_, body)| body.clone());
    assert_eq!(base, Some(0x40_0000u32.to_le_bytes().to_vec()));
    assert!(information(&kernel(&[], |_| {})).0.iter().all(|(kind, _)| *kind != 21));
    assert_eq!(plan(&at([0, 0xffff_ffff, 0x1000, 1])).start(), 0x10_0000, "not below 1 MiB");
    assert_eq!(plan(&at([0x12_3456, 0xffff_ffff, 0x1000, 0])).start(), 0x12_4000, "aligned");
    assert_eq!(plan(&at([0, 0x10_3fff, 1, 0])).end(), 0x10_4000, "up to the last byte");
    assert_eq!(
        error(&at([0, 0x10_3ffe, 1, 0])),
        "the Multiboot 2 header wants the kernel's 0x4000 bytes at a multiple of 0x1 between 0x0 and 0x103ffe, where they do not fit"
    );
    // An entry point of the ELF header moves, too.
    assert_eq!(plan(&kernel(&[(10, 0, &[0x40_0000, 0x80_0000, 0x1000, 0])], |_| {})).entry, 0x40_0000);
}

#[test]
fn sections_that_no_segment_loads_are_loaded_for_a_multiboot_2_kernel() {
    let symbols = TestElf::kernel(false, 0).with_symbols(&[("start", 0x10_0000, 1, 0x12, 1)]);
    let bytes = kernel_of(symbols, &[], |_| {});
    let view = ElfView::parse(&bytes).unwrap();
    let (tags, image) = information(&bytes);
    let (_, body) = tags.iter().find(|(kind, _)| *kind == 9).unwrap();
    let word = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
    assert_eq!((word(0) as usize, word(4)), (view.sections().len(), 40));
    for (n, section) in view.sections().iter().enumerate() {
        let (address, contents) = (word(12 + 40 * n + 12), view.section_bytes(section).unwrap());
        if section.is_alloc() || contents.is_empty() {
            assert_eq!(u64::from(address), section.addr, "{section:?}");
            continue;
        }
        let loaded = image.writes.iter().find(|(at, _)| *at == u64::from(address));
        assert_eq!(loaded.map(|(_, bytes)| bytes.as_slice()), Some(contents), "{section:?}");
        assert!(address >= 0x10_4000, "after the kernel");
    }
}

/// No header breaks the parser, however its bytes are.
#[test]
fn any_bytes_of_a_multiboot_2_header_are_safe() {
    let mut seed = 7u64;
    for _ in 0..3000 {
        let bytes = kernel(&[(1, 0, &[1]), (2, 0, &[1, 2, 3, 4]), (3, 0, &[5])], |header| {
            for _ in 0..3 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let at = 16 + seed as usize % (header.len() - 16);
                header[at] = (seed >> 32) as u8;
            }
        });
        let _ = Image::parse(&bytes, "k");
    }
}

#[test]
fn the_cpu_is_chosen_by_what_the_code_names() {
    assert!(plan(&TestElf::kernel(true, 0).build()).may_enter_long_mode());
    let mut elf = TestElf::kernel(false, 0);
    assert!(!plan(&elf.build()).may_enter_long_mode());
    elf.segments[0].data[0x100..0x105].copy_from_slice(&[0xb9, 0x80, 0, 0, 0xc0]);
    assert!(plan(&elf.build()).may_enter_long_mode());
}
