//! Multiboot 2 headers, PVH notes, and the CPU that an image needs.

use super::testing::TestElf;
use super::*;

fn error(bytes: &[u8]) -> String {
    Image::parse(bytes, "test").map(|_| ()).unwrap_err().to_string()
}

/// A kernel with these tags, each with its type, flags and words, in a header at 8 of its first segment.
fn kernel(tags: &[(u16, u16, &[u32])], edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
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
    let mut elf = TestElf::kernel(false, 0);
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
