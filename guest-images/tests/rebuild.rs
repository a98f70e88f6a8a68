//! The prebuilt guests match their sources.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy takes for the library

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The first line of a tool's `--version`.
fn version(tool: &str) -> String {
    let output = Command::new(tool)
        .arg("--version")
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|error| panic!("{tool} cannot be run ({error}); scripts/bootstrap installs it"));
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}

/// Builds the guests into a directory of this test's own.
fn build(name: &str) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&out);
    let output = Command::new("make")
        .arg("-C")
        .arg(here())
        .arg(format!("BUILD={}", out.display()))
        // Cargo's job server must not be used by make.
        .env_remove("MAKEFLAGS")
        .env_remove("MFLAGS")
        .env_remove("CARGO_MAKEFLAGS")
        .output()
        .unwrap_or_else(|error| panic!("make cannot be run ({error}); scripts/bootstrap installs it"));
    assert!(
        output.status.success(),
        "make failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    out
}

#[test]
fn rebuilding_with_the_recorded_toolchain_gives_the_same_bytes() {
    let recorded = fs::read_to_string(here().join("prebuilt/TOOLCHAIN")).unwrap();
    let mut lines = recorded.lines();
    for tool in ["gcc", "ld"] {
        let needed = lines.next().unwrap_or_default();
        let found = version(tool);
        assert_eq!(
            found, needed,
            "the prebuilt guests were built with `{needed}` and this {tool} is `{found}`: install the recorded one, \
             or run `make -C guest-images install` and commit what it gives"
        );
    }
    let out = build("guests");
    let names = [
        "vmlinux-ia32",
        "appln-ia32",
        "stress-ia32",
        "vmlinux-x86_64",
        "appln-x86_64",
        "stress-x86_64",
        "idle-x86_64",
        "vmlinux-dti-ia32",
        "vmlinux-dti-x86_64",
        "vmlinux-planted-ia32",
        "vmlinux-planted-x86_64",
    ];
    for name in names {
        let built = fs::read(out.join(name)).unwrap();
        let committed = fs::read(here().join("prebuilt").join(name)).unwrap();
        assert!(
            built == committed,
            "prebuilt/{name} does not match its sources: run `make -C guest-images install`"
        );
    }
}

#[test]
fn the_embedded_bytes_are_the_prebuilt_files() {
    assert_eq!(trapline_guests::ALL.len(), 2);
    assert_eq!(trapline_guests::IDLE.image, fs::read(here().join("prebuilt/idle-x86_64")).unwrap());
    let traced = [(&trapline_guests::DTI, "x86_64"), (&trapline_guests::DTI_IA32, "ia32")];
    for (guest, arch) in traced {
        let prebuilt = |what: &str| fs::read(here().join(format!("prebuilt/{what}-{arch}"))).unwrap();
        assert_eq!(guest.image, prebuilt("vmlinux-dti"));
        assert_eq!(guest.modules[0].1, prebuilt("appln"));
    }
    for guest in trapline_guests::ALL {
        let prebuilt = |what: &str| fs::read(here().join(format!("prebuilt/{what}-{}", guest.name))).unwrap();
        assert_eq!(guest.image, prebuilt("vmlinux"));
        assert_eq!(guest.modules.len(), 1);
        assert_eq!(guest.modules[0].0, "appln");
        assert_eq!(guest.modules[0].1, prebuilt("appln"));
    }
}

#[test]
fn the_images_carry_a_multiboot_header_and_no_build_path() {
    for guest in trapline_guests::ALL {
        let image = guest.image;
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        let at =
            (0..8192).step_by(4).find(|&at| word(at) == 0x1BAD_B002).expect("header in the first 8192 bytes");
        assert_eq!(word(at).wrapping_add(word(at + 4)).wrapping_add(word(at + 8)), 0);
        let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
        assert!(has(image, "TRAPOS1\0"));
        for bytes in [image, guest.modules[0].1] {
            assert!(!has(bytes, "src-guest"));
            assert!(!has(bytes, "/home"));
        }
    }
}

/// The man page's examples give 0x55 as the opcode at each of these, and 0xc3 at the exits.
#[test]
fn the_functions_that_the_man_page_probes_begin_with_a_frame() {
    let kernel = [
        "do_fork",
        "kmalloc",
        "kfree",
        "swap_out",
        "do_general_protection",
        "do_page_fault",
        "schedule",
        "do_timer",
        "vortex_open",
        "vortex_start_xmit",
        "vortex_close",
        "ext2_file_write",
    ];
    let leaves = ["do_fork_leave", "kmalloc_leave", "ext2_file_write_leave", "do_page_fault_leave"];
    for guest in trapline_guests::ALL {
        let wide = guest.name == "x86_64";
        let frame: &[u8] = if wide { &[0x55, 0x48, 0x89, 0xe5] } else { &[0x55, 0x89, 0xe5] };
        let expected = [(guest.image, &kernel[..], frame), (guest.image, &leaves[..], &[0xc3])];
        for (file, names, bytes) in expected.into_iter().chain([(guest.modules[0].1, &["main"][..], frame)]) {
            for name in names {
                let code = code_of(file, name).unwrap_or_else(|| panic!("no symbol {name}"));
                assert!(code.starts_with(bytes), "{}: {name}: {code:x?}", guest.name);
            }
        }
    }
}

/// The bytes of an ELF file from a symbol on.
fn code_of<'a>(elf: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let wide = elf[4] == 2;
    let half = |at: usize| u16::from_le_bytes(elf[at..at + 2].try_into().unwrap()) as usize;
    let word = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap()) as usize;
    let long = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
    // Of a field that is an address or a size: its place in ELF32 and in ELF64.
    let address =
        |at: usize, narrow: usize, broad: usize| if wide { long(at + broad) } else { word(at + narrow) };
    let size = if wide { 24 } else { 16 };
    let (entry_size, count) = if wide { (half(58), half(60)) } else { (half(46), half(48)) };
    let section = |i: usize| address(0, 32, 40) + i * entry_size;
    let (offset, bytes) = (|s: usize| address(s, 16, 24), |s: usize| address(s, 20, 32));
    let symtab = (0..count).map(section).find(|&s| word(s + 4) == 2)?;
    let strings = offset(section(word(symtab + if wide { 40 } else { 24 })));
    let mut symbols = (offset(symtab)..offset(symtab) + bytes(symtab)).step_by(size);
    let symbol = symbols.find(|&entry| {
        let at = strings + word(entry);
        elf[at..].starts_with(name.as_bytes()) && elf[at + name.len()] == 0
    })?;
    let text = section(half(symbol + if wide { 6 } else { 14 }));
    let at = offset(text) + address(symbol, 4, 8) - address(text, 12, 16);
    elf.get(at..)
}
