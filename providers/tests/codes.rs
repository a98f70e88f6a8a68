//! Findings that need a guest: every code that is reported when probe points are armed has a case here, against the
//! embedded guest; most cases are the wrong example of the table of codes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use trapline_emu::load::Image;
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_providers::{Target, insert_error, resolve};
use trapline_rpn::{CODES, Diagnostics, ModType, Program, Severity, Stage, parse};

fn target() -> Target {
    let guest = trapline_guests::find("ia32").unwrap();
    let image = Image::parse(guest.image, "vmlinux").unwrap();
    let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
    let modules = guest.modules.iter().map(|(name, bytes)| Arc::new(UserModule::parse(bytes, name).unwrap()));
    Target::new(image, symbols, modules.collect())
}

fn program(text: &str) -> Program {
    parse("p.rpn", &format!("{text}\n")).unwrap_or_else(|d| panic!("{d}"))
}

/// An ELF kernel whose one segment is data.
fn without_text() -> Target {
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend([2u16, 3].iter().flat_map(|n| n.to_le_bytes()));
    elf.extend([1u32, 0x10_0000, 52, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    elf.extend([52u16, 32, 1, 40, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    let segment = [1u32, 0, 0x10_0000, 0x10_0000, 4096, 4096, 4, 4096];
    elf.extend(segment.iter().flat_map(|n| n.to_le_bytes()));
    elf.resize(4096, 0);
    let image = Image::parse(&elf, "vmlinux").unwrap();
    Target::new(image, Symbols::default(), Vec::new())
}

/// The findings of a code's case.
fn findings(code: &str, wrong: &str) -> Diagnostics {
    match code {
        // A compiled file may contain what the compiler refuses.
        "address-in-user" => {
            let mut made = program("name = appln\nmodtype = kernel\naddress = 0x1000\nopcode = 0x55\nexit");
            made.header.modtype = ModType::User;
            resolve(&target(), &made).unwrap_err()
        }
        "no-text" => resolve(&without_text(), &program(wrong)).unwrap_err(),
        "not-armed" => {
            let resolved = resolve(
                &target(),
                &program("name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\nexit"),
            );
            insert_error(&resolved.unwrap().program, 0, &"two programs claim this place")
        }
        _ => resolve(&target(), &program(wrong)).unwrap_err(),
    }
}

#[test]
fn every_code_of_arming_has_a_case_that_gives_it() {
    let mut shown = String::new();
    for row in CODES.iter().filter(|row| row.stage == Stage::Arm) {
        let found = findings(row.name, row.wrong);
        assert!(found.list.iter().all(|d| d.code == row.name), "{}:\n{found}", row.name);
        assert!(found.errors() == found.list.len() && row.severity == Severity::Error);
        shown.push_str(&format!("== {}\n{found}\n", row.name));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn every_right_example_of_arming_can_be_armed() {
    for row in CODES.iter().filter(|row| row.stage == Stage::Arm && row.name != "no-text") {
        if let Err(found) = resolve(&target(), &program(row.right)) {
            panic!("{}:\n{found}", row.name);
        }
    }
}
