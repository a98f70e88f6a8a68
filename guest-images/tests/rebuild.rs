//! The prebuilt guests are what their sources give.

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
        // Cargo's job server is not make's.
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
    for name in ["vmlinux-ia32", "appln-ia32"] {
        let built = fs::read(out.join(name)).unwrap();
        let committed = fs::read(here().join("prebuilt").join(name)).unwrap();
        assert!(
            built == committed,
            "prebuilt/{name} is not what src-guest/ gives: run `make -C guest-images install`"
        );
    }
}

#[test]
fn the_embedded_bytes_are_the_prebuilt_files() {
    let guest = trapline_guests::find("ia32").unwrap();
    assert_eq!(guest.image, fs::read(here().join("prebuilt/vmlinux-ia32")).unwrap());
    assert_eq!(guest.modules.len(), 1);
    assert_eq!(guest.modules[0].0, "appln");
    assert_eq!(guest.modules[0].1, fs::read(here().join("prebuilt/appln-ia32")).unwrap());
}

#[test]
fn the_image_carries_a_multiboot_header_and_no_build_path() {
    let image = trapline_guests::IA32.image;
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let at =
        (0..8192).step_by(4).find(|&at| word(at) == 0x1BAD_B002).expect("header in the first 8192 bytes");
    assert_eq!(word(at).wrapping_add(word(at + 4)).wrapping_add(word(at + 8)), 0);
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has(image, "TRAPOS1\0"));
    for bytes in [image, trapline_guests::IA32.modules[0].1] {
        assert!(!has(bytes, "src-guest"));
        assert!(!has(bytes, "/home"));
    }
}

/// The man page's examples give 0x55 as the opcode at each of these.
#[test]
fn the_functions_that_the_man_page_probes_begin_with_a_frame() {
    let guest = &trapline_guests::IA32;
    let kernel = [
        "do_fork",
        "kmalloc",
        "kfree",
        "swap_out",
        "do_general_protection",
        "do_page_fault",
        "schedule",
        "do_timer",
    ];
    for (file, names) in [(guest.image, &kernel[..]), (guest.modules[0].1, &["main"][..])] {
        for name in names {
            let code = code_of(file, name).unwrap_or_else(|| panic!("no symbol {name}"));
            assert_eq!(code, [0x55, 0x89, 0xe5], "{name}");
        }
    }
}

/// The first three bytes of a function of an ELF32 file.
fn code_of(elf: &[u8], name: &str) -> Option<[u8; 3]> {
    let half = |at: usize| u16::from_le_bytes(elf[at..at + 2].try_into().unwrap()) as usize;
    let word = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap()) as usize;
    let section = |i: usize| word(32) + i * half(46);
    let symtab = (0..half(48)).map(section).find(|&s| word(s + 4) == 2)?;
    let strings = word(section(word(symtab + 24)) + 16);
    let entry = (word(symtab + 16)..word(symtab + 16) + word(symtab + 20)).step_by(16).find(|&entry| {
        let at = strings + word(entry);
        elf[at..].starts_with(name.as_bytes()) && elf[at + name.len()] == 0
    })?;
    let text = section(half(entry + 14));
    let at = word(text + 16) + word(entry + 4) - word(text + 12);
    elf[at..at + 3].try_into().ok()
}
