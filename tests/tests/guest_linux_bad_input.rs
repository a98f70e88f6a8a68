//! Linux files that are damaged at one layer each, and what does not go with a kernel: one sentence, before the guest
//! runs.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cli;

use std::path::Path;

use cli::trapline;
use tempfile::TempDir;
use trapline_tests::{fetched, root};

fn kernel(flavour: &str) -> Vec<u8> {
    fetched(&format!("linux-{flavour}")).unwrap()
}

/// Where a bzImage's payload lies.
fn payload(image: &[u8]) -> std::ops::Range<usize> {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let start = (usize::from(image[0x1f1]) + 1) * 512 + word(0x248);
    start..start + word(0x24c)
}

/// What a run that is refused says behind `trapline: error: `.
fn refused(folder: &Path, args: &[&str], code: i32) -> String {
    let ran = trapline(folder, &[&["run"], args].concat());
    assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    ran.err.strip_prefix("trapline: error: ").unwrap_or_else(|| panic!("{}", ran.err)).trim_end().to_owned()
}

/// What is said of an image.
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
    assert_eq!(said, "the bzImage speaks boot protocol 1.04; 2.00 or newer would be right");
    let said = bad_image(&with(&image, 0x211, &[image[0x211] & !1]));
    let zimage =
        "this is a zImage, which loads below 1 MiB; a bzImage (LOADED_HIGH in loadflags) would be right";
    assert_eq!(said, zimage);
}

#[test]
fn guest_linux_payload_that_is_damaged() {
    let image = kernel("cloud-amd64");
    let packed = payload(&image);
    let said = bad_image(&with(&image, packed.start, b"junk"));
    let format =
        "the bzImage's payload begins with 6a 75 6e 6b, which is no gzip, xz, lz4 or zstd stream and no ELF";
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
fn guest_linux_payload_that_is_a_damaged_elf() {
    // A payload may be an ELF file that is not packed: one that is no kernel, and one that is cut short.
    let image = kernel("cloud-amd64");
    let packed = payload(&image);
    let foreign = with(&image, packed.start, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0");
    let said = bad_image(&foreign);
    assert!(said.contains("the ELF machine is 183"), "{said}");
    let class = with(&image, packed.start, b"\x7fELF\x09");
    assert_eq!(bad_image(&class), "the ELF class is 9; 1 (32-bit) or 2 (64-bit) would be right");
}

#[test]
fn guest_linux_of_another_architecture() {
    let mut image = vec![0; 4096];
    image[..2].copy_from_slice(b"MZ");
    image[0x38..0x3c].copy_from_slice(b"ARM\x64");
    let can = "which cannot be loaded; an ELF or Multiboot 1 kernel or a bzImage can";
    assert_eq!(bad_image(&image), format!("this is an ARM64 Linux kernel, {can}"));
}

#[test]
fn guest_linux_with_what_does_not_fit() {
    let folder = TempDir::new().unwrap();
    let image = root().join(".guests/linux-cloud-amd64").display().to_string();
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
