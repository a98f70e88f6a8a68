//! Source lines as locations of probe points, by GNU Mach's own debugging information.

#![allow(clippy::unwrap_used, clippy::panic)]

use trapline_emu::load::Image;
use trapline_emu::symbols::Symbols;
use trapline_interposer::Place;
use trapline_providers::{Target, find, resolve, show_parameters};
use trapline_rpn::parse;
use trapline_tests::guest;

fn target() -> Target {
    let file = std::fs::read(guest("gnumach.gz")).expect("run `make guests`");
    let image = Image::parse(&file, "gnumach").unwrap();
    let symbols = Symbols::from_elf(image.bytes(), "gnumach").unwrap();
    Target::new(image, symbols, Vec::new())
}

/// Where a probe point with this offset and opcode is; the diagnostics if it is nowhere.
fn place(target: &Target, offset: &str, opcode: u8) -> Result<u64, String> {
    let text = format!("name = gnumach\nmodtype = kernel\noffset = {offset}\nopcode = {opcode:#x}\nexit\n");
    let resolved = resolve(target, &parse("p.rpn", &text).unwrap()).map_err(|error| error.to_string())?;
    match resolved.points.first().map(|point| &point.place) {
        Some(Place::Kernel { linear, .. }) => Ok(*linear),
        other => panic!("{other:?}"),
    }
}

#[test]
fn guest_a_function_is_found_by_its_source_line() {
    let target = target();
    let mut found = 0;
    for name in ["thread_create", "Panic", "vm_map_lookup_entry", "machine_idle"] {
        let Some(symbol) = target.symbols().sole(name) else { continue };
        let line = target.source_line(symbol.addr).unwrap();
        let short = line.file.rsplit('/').next().unwrap();
        let quoted = format!("\"{short}:{}\"", line.line);
        assert_eq!(place(&target, &quoted, 0x55), Ok(symbol.addr), "{name} is {quoted}");
        // The location is an expression: the byte after the `push ebp` of the line.
        assert_eq!(place(&target, &format!("{quoted} + 1"), 0x89), Ok(symbol.addr + 1), "{name}");
        found += 1;
    }
    assert!(found >= 3, "{found}");
}

#[test]
fn guest_a_line_without_a_unique_place_is_refused() {
    let target = target();
    let refused = |offset: &str| place(&target, offset, 0x55).unwrap_err();
    let error = refused("\"kern/thread.c:1\"");
    assert!(error.contains("`kern/thread.c:1` has no code"), "{error}");
    assert!(error.contains("the next line with code is kern/thread.c:"), "{error}");
    assert!(refused("\"threads.c:1\"").contains("no source file `threads.c` has code in the kernel"));
    // A name without a line number is the description of a probe.
    assert!(refused("\"thread.c:x\"").contains("probe description ::thread.c:x does not match any probes"));
    // A function that the compiler inlined into others is at several places.
    let header =
        (1..400).map(|line| refused_or_empty(&target, line)).find(|error| error.contains("has code at"));
    let header = header.expect("no line of a header is inlined twice");
    assert!(header.contains("write address = and one of them"), "{header}");
}

fn refused_or_empty(target: &Target, line: u32) -> String {
    place(target, &format!("\"kern/list.h:{line}\""), 0x55).err().unwrap_or_default()
}

#[test]
fn guest_the_parameters_of_a_function_are_shown_at_its_entry() {
    let target = target();
    let shown = |description: &str| {
        let mut found = find(&target, description).unwrap();
        show_parameters(&target, found.iter_mut());
        found.remove(0).sites.remove(0).shown
    };
    // As gdb's `info scope` and `ptype` have it.
    assert_eq!(shown("fbt::thread_create:entry"), ["task_t parent_task", "thread_t *child_thread"]);
    assert_eq!(shown("fbt::Panic:entry").last().unwrap(), "...");
    assert!(shown("fbt::thread_create:return").is_empty());
}

#[test]
fn guest_the_parameters_of_a_function_of_linux_are_shown_at_its_entry() {
    let file = std::fs::read(guest("linux-cloud-amd64")).expect("run `make guests`");
    let image = Image::parse(&file, "vmlinux").unwrap();
    let symbols = Symbols::from_kallsyms(image.bytes(), "vmlinux").unwrap();
    let target = Target::new(image, symbols, Vec::new());
    let mut found = find(&target, "fbt::{kernel_clone,vfs_read}:entry").unwrap();
    show_parameters(&target, found.iter_mut());
    let shown =
        |name: &str| &found.iter().find(|probe| *probe.name.function == *name).unwrap().sites[0].shown;
    assert_eq!(*shown("kernel_clone"), ["struct kernel_clone_args *args"]);
    assert_eq!(*shown("vfs_read"), ["struct file *file", "char *buf", "size_t count", "loff_t *pos"]);
}
