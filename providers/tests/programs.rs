//! Probe programs on a user program: its own symbols in handlers, and its source lines.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{folder, tool};
use std::sync::Arc;
use trapline_emu::load::Image;
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_interposer::Place;
use trapline_providers::{Resolved, Target, resolve};
use trapline_rpn::{Diagnostics, parse};

/// A program for a guest, compiled with further flags.
fn target(name: &str, flags: &[&str]) -> Target {
    let folder = folder("programs");
    let source = "long counter;\n__attribute__((noinline)) long twice(long n)\n{\n\tcounter += n;\n\treturn 2 * n;\n}\n\
                  void _start(void) { for (;;) twice(counter); }\n";
    std::fs::write(folder.join("count.c"), source).unwrap();
    let base = ["-m32", "-O1", "-nostdlib", "-ffreestanding", "-fcf-protection=none", "-o", name, "count.c"];
    tool(&folder, "gcc", &[&base[..], flags].concat());
    let module = UserModule::parse(&std::fs::read(folder.join(name)).unwrap(), name).unwrap();
    let guest = trapline_guests::find("ia32").unwrap();
    let image = Image::parse(guest.image, "vmlinux").unwrap();
    let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
    Target::new(image, symbols, vec![Arc::new(module)])
}

fn resolved(target: &Target, name: &str, body: &str) -> Result<Resolved, Diagnostics> {
    let text = format!("name = {name}\nmodtype = user\n{body}\nexit\n");
    resolve(target, &parse("p.rpn", &text).unwrap_or_else(|found| panic!("{found}")))
}

#[test]
fn a_handler_pushes_the_addresses_of_its_programs_symbols() {
    let fixed = target("fixed", &["-static", "-no-pie", "-fno-pic"]);
    let module = fixed.module("fixed").unwrap();
    let (counter, twice) =
        (module.symbols().sole("counter").unwrap(), module.symbol_offset("twice").unwrap());
    let opcode = module.bytes_at(twice, 1).unwrap()[0];
    let probe = format!("offset = twice\nopcode = {opcode:#x}\npush counter\nlog 1");
    let found = resolved(&fixed, "fixed", &probe).unwrap();
    let pushed = found.program.probes[0].handler.code().iter().map(|insn| insn.arg).max();
    assert_eq!(pushed, Some(counter.addr));
    // The kernel's symbols are still found if the program has none of that name.
    let kernel = fixed.symbols().sole("nr_free_pages").unwrap().addr;
    let found = resolved(&fixed, "fixed", &probe.replace("push counter", "push nr_free_pages")).unwrap();
    assert_eq!(found.program.probes[0].handler.code().iter().map(|insn| insn.arg).max(), Some(kernel));

    let moving = target("moving", &["-pie", "-fpie", "-static-pie"]);
    let twice = moving.module("moving").unwrap().symbol_offset("twice").unwrap();
    let opcode = moving.module("moving").unwrap().bytes_at(twice, 1).unwrap()[0];
    let probe = format!("offset = twice\nopcode = {opcode:#x}\npush counter\nlog 1");
    let why = resolved(&moving, "moving", &probe).unwrap_err().to_string();
    assert!(why.contains("`counter` has no fixed address: moving can be mapped anywhere"), "{why}");
}

#[test]
fn a_source_line_of_a_program_is_an_offset_in_its_file() {
    for (name, flags) in
        [("lines", &["-g", "-static", "-no-pie"][..]), ("pielines", &["-g", "-pie", "-fpie"][..])]
    {
        let target = target(name, flags);
        let module = target.module(name).unwrap();
        let function = module.symbols().sole("twice").unwrap();
        let probe = |line: u32, opcode: u8| format!("offset = \"count.c:{line}\"\nopcode = {opcode:#x}");
        // The line's first byte is not known beforehand: the right one is among all.
        let found = (0..=255).find_map(|opcode| resolved(&target, name, &probe(4, opcode)).ok());
        let found =
            found.unwrap_or_else(|| panic!("{name}: {:?}", resolved(&target, name, &probe(4, 0)).err()));
        let Place::User { offset, .. } = found.points[0].place else { panic!("{:?}", found.points[0].place) };
        let address = module.offset_to_vaddr(offset).unwrap();
        assert!((function.addr..function.end()).contains(&address), "{address:#x}");
        let why = resolved(&target, name, &probe(1, 0x55)).unwrap_err().to_string();
        assert!(why.contains("`count.c:1` has no code"), "{why}");
        let other = resolved(&target, name, &probe(4, 0x55).replace("count.c", "other.c")).unwrap_err();
        assert!(
            other.to_string().contains(&format!("no source file `other.c` has code in {name}")),
            "{other}"
        );
    }
    let bare = target("bare", &["-static", "-no-pie"]);
    let why = resolved(&bare, "bare", "offset = \"count.c:4\"\nopcode = 0x55").unwrap_err().to_string();
    assert!(
        why.contains("`count.c:4` is a source line, and bare has no debugging information (DWARF)"),
        "{why}"
    );
}
