//! Linux files with damage at one layer each, and options that do not fit a kernel: each is reported in one
//! sentence, before the guest runs.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::cli::{Ran, trapline};
use tempfile::TempDir;
use trapline_emu::load::Image;
use trapline_tests::linux::KERNELS;
use trapline_tests::{fetched, guest, root};

fn kernel(flavour: &str) -> Vec<u8> {
    fetched(&format!("linux-{flavour}")).unwrap()
}

/// Where a bzImage's payload lies.
fn payload(image: &[u8]) -> std::ops::Range<usize> {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let start = (usize::from(image[0x1f1]) + 1) * 512 + word(0x248);
    start..start + word(0x24c)
}

/// The message of a refused run after `trapline: error: `.
fn refused(folder: &Path, args: &[&str], code: i32) -> String {
    let ran = trapline(folder, &[&["run"], args].concat());
    assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    ran.err.strip_prefix("trapline: error: ").unwrap_or_else(|| panic!("{}", ran.err)).trim_end().to_owned()
}

/// The message about an image.
fn bad_image(bytes: &[u8]) -> String {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("image"), bytes).unwrap();
    let said = refused(folder.path(), &["image"], 7);
    said.strip_prefix("cannot load image: ").unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// The image with these bytes at `at`.
fn with(image: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    image[at..at + bytes.len()].copy_from_slice(bytes);
    image
}

#[test]
fn guest_linux_image_cut_at_each_layer() {
    let image = kernel("cloud-amd64");
    let packed = payload(&image);
    for (len, what) in [
        (0x206, "setup header".to_owned()),
        (0x300, "real-mode code".to_owned()),
        ((packed.start + packed.end) / 2, format!("payload ends at {:#x}", packed.end)),
    ] {
        let said = bad_image(&image[..len]);
        assert!(said.starts_with(&format!("the bzImage is truncated: its {what}")), "{said}");
        assert!(said.ends_with(&format!(", but the file has {len:#x} bytes")), "{said}");
    }
}

#[test]
fn guest_linux_image_with_a_wrong_header() {
    let image = kernel("cloud-amd64");
    let said = bad_image(&with(&image, 0x206, &[4, 1]));
    assert_eq!(said, "the bzImage speaks boot protocol 1.04; it must be 2.00 or newer");
    let said = bad_image(&with(&image, 0x211, &[image[0x211] & !1]));
    let zimage = "this is a zImage, which loads below 1 MiB; use a bzImage (LOADED_HIGH in loadflags)";
    assert_eq!(said, zimage);
}

#[test]
fn guest_linux_payload_that_is_damaged() {
    let image = kernel("cloud-amd64");
    let packed = payload(&image);
    let said = bad_image(&with(&image, packed.start, b"junk"));
    let format = "the bzImage's payload begins with 6a 75 6e 6b, which is neither a gzip, xz, lz4 or zstd stream nor an ELF";
    assert_eq!(said, format!("{format} file"));
    let said = bad_image(&with(&image, packed.end - 4, &1234u32.to_le_bytes()));
    assert!(said.starts_with("the bzImage's lz4 payload unpacks to 0x"), "{said}");
    assert!(said.ends_with(" bytes, but its last four bytes say 0x4d2"), "{said}");
    // xz has checksums of its own.
    let image = kernel("686");
    let middle = payload(&image).start + payload(&image).len() / 2;
    let said = bad_image(&with(&image, middle, &[!image[middle]]));
    assert!(said.starts_with("the bzImage's xz payload cannot be unpacked after "), "{said}");
}

#[test]
fn guest_linux_image_with_a_flipped_byte_anywhere() {
    for (flavour, flips) in [("686", 3), ("amd64", 2), ("cloud-amd64", 12)] {
        let image = kernel(flavour);
        // Debian has signed it after it was built.
        assert_eq!(image[..2], *b"MZ");
        Image::parse(&image, "k").unwrap();
        let packed = payload(&image);
        for n in 0..flips {
            let at = packed.start + (2 * n + 1) * packed.len() / (2 * flips);
            assert!(Image::parse(&with(&image, at, &[!image[at]]), "k").is_err(), "{flavour} at {at:#x}");
        }
    }
    // In the decompressor, which is not run, and in the last unpacked byte, which belongs to the unused relocations.
    let image = kernel("cloud-amd64");
    let packed = payload(&image);
    for at in [0x1000, packed.start - 1, packed.end - 5, packed.end + 1] {
        let said = bad_image(&with(&image, at, &[!image[at]]));
        assert!(said.starts_with("the bzImage is damaged: the CRC-32 of its 0x"), "{at:#x}: {said}");
        assert!(said.contains(" with the checksum at their end is 0x"), "{said}");
    }
}

#[test]
fn guest_linux_payload_that_is_elsewhere() {
    let image = kernel("cloud-amd64");
    let packed = payload(&image);
    let said = bad_image(&with(&image, 0x202, b"hdrs"));
    assert_eq!(
        said,
        "this is a PE executable, which cannot be loaded; an ELF or Multiboot kernel or a bzImage can"
    );
    let said = bad_image(&with(&image, 0x248, &[0xff; 4]));
    assert!(said.starts_with("the bzImage is truncated: its payload ends at 0x1"), "{said}");
    let said = bad_image(&with(&image, 0x24c, &(packed.len() as u32 - 64).to_le_bytes()));
    assert!(said.starts_with("the bzImage's lz4 payload "), "{said}");
    let said = bad_image(&with(&image, 0x1f4, &u32::MAX.to_le_bytes()));
    assert!(said.starts_with("the bzImage is truncated: its protected-mode code ends at 0x10000"), "{said}");
}

#[test]
fn guest_linux_payload_that_is_a_damaged_elf() {
    // A payload may be an ELF file that is not packed: one that is no kernel, and one that is cut short.
    let image = kernel("cloud-amd64");
    let packed = payload(&image);
    let foreign = with(&image, packed.start, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0");
    let said = bad_image(&foreign);
    assert!(said.contains("the ELF machine is 183"), "{said}");
    let class = with(&image, packed.start, b"\x7fELF\x09");
    assert_eq!(bad_image(&class), "the ELF class is 9; it must be 1 (32-bit) or 2 (64-bit)");
}

#[test]
fn guest_linux_of_another_architecture() {
    let mut image = vec![0; 4096];
    image[..2].copy_from_slice(b"MZ");
    image[0x38..0x3c].copy_from_slice(b"ARM\x64");
    let can = "which cannot be loaded; an ELF or Multiboot kernel or a bzImage can";
    assert_eq!(bad_image(&image), format!("this is an ARM64 Linux kernel, {can}"));
}

#[test]
fn guest_linux_with_what_does_not_fit() {
    let folder = TempDir::new().unwrap();
    let image = guest("linux-cloud-amd64");
    std::fs::write(folder.path().join("initrd"), vec![0; 64 << 20]).unwrap();
    let refuse = |args: &[&str], code| {
        let said = refused(folder.path(), args, code);
        said.strip_prefix("cannot build the machine: ").unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let said = refuse(&[&image, "--initrd", "initrd", "--mem", "96M"], 7);
    let (begin, end) = (
        "the initrd has 0x4000000 bytes, but between the kernel, which takes memory up to 0x",
        "; more memory (--mem) or a smaller initrd would do",
    );
    assert!(
        said.starts_with(begin) && said.contains(" and 0x6000000 there are ") && said.ends_with(end),
        "{said}"
    );
    let said = refuse(&[&image, "--mem", "16M"], 2);
    assert!(said.starts_with("the image needs physical memory up to 0x"), "{said}");
    assert!(said.ends_with(", but the machine has 0x1000000 bytes of RAM"), "{said}");
    let said = refuse(&["embedded:ia32", "--initrd", "initrd"], 7);
    assert_eq!(said, "vmlinux does not speak the Linux boot protocol, so it cannot be given an initrd");
    let said = refuse(&[&image, "--cmdline", &"x".repeat(2048)], 7);
    assert_eq!(said, "the kernel command line has 2048 bytes, but this kernel takes at most 2047");
}

/// Runs the changed kernel of a bzImage; returns the messages besides the requested output.
fn damaged(change: impl Fn(&mut [u8]), args: &[&str]) -> Ran {
    let image = Image::parse(&kernel("cloud-amd64"), "k").unwrap();
    let mut vmlinux = image.bytes().to_vec();
    change(&mut vmlinux);
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("vmlinux"), vmlinux).unwrap();
    trapline(folder.path(), args)
}

fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

/// Where kallsyms has its 256 tokens: they are strings that end with NUL, followed by the index of where each begins.
fn tokens(vmlinux: &[u8]) -> std::ops::Range<usize> {
    let found =
        (0..vmlinux.len() - 512).step_by(4).filter(|at| vmlinux[*at..*at + 2] == [0, 0]).find_map(|at| {
            let index: Vec<usize> = vmlinux[at..at + 512]
                .chunks(2)
                .map(|e| usize::from(u16::from_le_bytes([e[0], e[1]])))
                .collect();
            let ascending = index.windows(2).all(|pair| pair[0] < pair[1]);
            let begins = |start: usize| index[1..].iter().all(|entry| vmlinux[start + entry - 1] == 0);
            let size = index[255];
            let start = (2..64)
                .filter_map(|last| at.checked_sub(size + last))
                .find(|start| ascending && begins(*start));
            start.map(|start| start..at)
        });
    found.unwrap()
}

const BOOTS: [&str; 6] = ["run", "vmlinux", "--until", "Linux version", "--console", "none"];

/// The kernel boots, and one note names the part that cannot be read.
fn boots_with_a_note(change: impl Fn(&mut [u8])) -> String {
    let ran = damaged(change, &BOOTS);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let (note, rest) = ran.err.split_once('\n').unwrap();
    assert!(rest.starts_with("trapline: the console showed \"Linux version\" after "), "{}", ran.err);
    assert_eq!(rest.lines().count(), 1, "{}", ran.err);
    note.strip_prefix("trapline: ").unwrap().to_owned()
}

#[test]
fn guest_linux_with_damaged_kallsyms() {
    let gone = boots_with_a_note(|vmlinux| {
        let range = tokens(vmlinux);
        vmlinux[range].fill(0);
    });
    let nothing = "vmlinux has no symbols: the image holds no kallsyms: no table of 256 tokens with its index was found";
    assert!(gone.starts_with(nothing), "{gone}");
    let cut = |vmlinux: &mut [u8]| {
        let end = tokens(vmlinux).start;
        vmlinux[end - (1 << 20)..end].fill(0);
    };
    let said = boots_with_a_note(cut);
    assert!(
        said.starts_with("vmlinux has no symbols: kallsyms is damaged, or has a layout that is not known: before its token table at "),
        "{said}"
    );
    // Probes by name are then refused.
    let ran = damaged(cut, &[&BOOTS[..], &["-n", "fbt::kernel_clone:entry"]].concat());
    assert_ne!(ran.code, 0);
    assert!(
        ran.err.contains("probe description fbt::kernel_clone:entry does not match any probes"),
        "{}",
        ran.err
    );
}

#[test]
fn guest_linux_with_damaged_btf() {
    const BTF: &[u8] = b"\x9f\xeb\x01\0\x18\0\0\0";
    let at = |vmlinux: &[u8]| find(vmlinux, BTF);
    let note = boots_with_a_note(|vmlinux| vmlinux[at(vmlinux) + 2] = 9);
    assert_eq!(note, "the kernel's types cannot be read: the BTF version is 9; it must be 1");
    let note = boots_with_a_note(|vmlinux| {
        let size = at(vmlinux) + 12;
        vmlinux[size..size + 4].fill(0xff);
    });
    assert!(note.starts_with("the kernel's types cannot be read: BTF is truncated or damaged: "), "{note}");
    let note = boots_with_a_note(|vmlinux| {
        let types = at(vmlinux) + 24;
        vmlinux[types..types + 12].fill(0xff);
    });
    assert!(
        note.starts_with("the kernel's types cannot be read: BTF is damaged: type 1 at offset 0x"),
        "{note}"
    );
}

#[test]
fn guest_linux_with_programs_of_another_architecture_at_length() {
    let (image, initrd) = (guest("linux-686"), guest("initramfs-amd64.cpio.gz"));
    let args = ["run", &image, "--initrd", &initrd, "--console", "none", "--limit-insns", "20000000000"];
    let ran = trapline(&root(), &args);
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(ran.err.contains("the guest crashed: kernel panic: No working init found."), "{}", ran.err);
    assert!(ran.err.contains("Failed to execute /init (error -8)"), "{}", ran.err);
}

/// The guest's list of modules is overwritten while one of them is probed.
#[test]
fn guest_linux_with_a_damaged_list_of_modules_at_length() {
    const INIT: &str =
        "insmod /loop.ko\necho the module is in\n(exit 0) & wait\n(exit 0) & wait\npoweroff -f\n";
    const HOSTILE: &str = "name = vmlinux\nmodtype = kernel\noffset = kernel_clone\nopcode = 0xe8\nmaxhits = 1\n\
                           push modules\npush 0xdead0000\npop mem, u64\nexit\n";
    let folder = TempDir::new().unwrap();
    KERNELS[1].image(folder.path(), &["loop"], &[], &format!("export PATH=/bin\n{INIT}")).unwrap();
    std::fs::write(folder.path().join("hostile.rpn"), HOSTILE).unwrap();
    std::fs::write(folder.path().join("s"), "on console \"the module is in\" insert hostile.rpn\n").unwrap();
    let image = guest("linux-cloud-amd64");
    let probe = root().join("examples/linux/loop.rpn").display().to_string();
    let args = ["run", &image, "--initrd", "initrd.gz", "-p", &probe, "--limit-insns", "20000000000"];
    let whole = trapline(folder.path(), &args);
    assert_eq!((whole.code, whole.err.contains("damaged")), (0, false), "{}", whole.err);
    assert!(whole.err.contains("trapline: 9 hits, 0 records lost"), "{}", whole.err);
    let ran = trapline(folder.path(), &[&args[..], &["--script", "s"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("the guest powered off after "), "{}", ran.err);
    assert!(ran.err.contains("trapline: 10 hits, 0 records lost"), "{}", ran.err);
    let said = ran
        .err
        .lines()
        .find_map(|line| line.strip_prefix("trapline: the guest's list of kernel modules at "));
    let why = " is damaged: after 1 entries the link at 0xdead0000 leads nowhere";
    assert!(said.is_some_and(|said| said.ends_with(why)), "{}", ran.err);
}
