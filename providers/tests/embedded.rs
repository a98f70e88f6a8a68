//! Resolving names of the embedded guest to places or errors. No guest runs here.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use trapline_emu::load::Image;
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_interposer::Place;
use trapline_os::CodePointer;
use trapline_providers::{FunctionGlob, Target, functions, resolve};
use trapline_rpn::parse;

fn target() -> Target {
    let guest = trapline_guests::find("ia32").unwrap();
    let image = Image::parse(guest.image, "vmlinux").unwrap();
    let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
    let modules = guest.modules.iter().map(|(name, bytes)| Arc::new(UserModule::parse(bytes, name).unwrap()));
    Target::new(image, symbols, modules.collect())
}

fn kernel(location: &str, opcode: &str) -> Result<Vec<Place>, String> {
    let text = format!(
        "name = vmlinux\nmodtype = kernel\nmajor = 1\n{location}\nopcode = {opcode}\nminor = 1\nexit\n"
    );
    places(&text)
}

fn user(module: &str, location: &str, opcode: &str) -> Result<Vec<Place>, String> {
    places(&format!("name = {module}\nmajor = 1\n{location}\nopcode = {opcode}\nminor = 1\nexit\n"))
}

fn places(text: &str) -> Result<Vec<Place>, String> {
    let program = parse("p.rpn", text).map_err(|e| e.to_string())?;
    resolve(&target(), &program)
        .map(|r| r.points.into_iter().map(|point| point.place).collect())
        .map_err(|e| e.to_string())
}

fn address(name: &str) -> u64 {
    target().symbols().sole(name).unwrap().addr
}

#[test]
fn a_kernel_symbol_is_its_address_and_load_address() {
    let list = kernel("offset = do_fork", "0x55").unwrap();
    let Place::Kernel { linear, paddr } = list[0] else { panic!("not a kernel place") };
    assert_eq!(linear, address("do_fork"));
    assert_eq!(paddr, linear - 0xc000_0000);
}

#[test]
fn a_kernel_number_counts_from_the_text_and_an_address_is_absolute() {
    let do_fork = address("do_fork");
    for location in [format!("offset = {:#x}", do_fork - 0xc010_0000), format!("address = {do_fork:#x}")] {
        let list = kernel(&location, "0x55").unwrap();
        let Place::Kernel { linear, .. } = list[0] else { panic!("not a kernel place") };
        assert_eq!(linear, do_fork, "{location}");
    }
}

#[test]
fn a_user_symbol_and_a_user_number_are_file_offsets() {
    let target = target();
    let number = target.modules()[0].symbol_offset("main").unwrap();
    for (module, location) in
        [("appln", "offset = main".to_owned()), ("\"appln\"", format!("offset = {number:#x}"))]
    {
        let list = user(module, &location, "0x55").unwrap();
        let Place::User { module, offset } = &list[0] else { panic!("not a user place") };
        assert_eq!(*offset, module.symbol_offset("main").unwrap());
    }
}

#[test]
fn an_impossible_probe_point_is_reported_with_its_source_line() {
    let cases = [
        kernel("offset = do_frok", "0x55"),
        kernel("offset = do_fork", "0x83"),
        kernel("offset = do_fork + 2", "0xe5"),
        kernel("address = 0x1000", "0x55"),
        kernel("offset = current_task", "0x55"),
        kernel("address = 0xc0100c61:0xc0100c64", "0x55"),
        user("nothere", "offset = main", "0x55"),
        user("vmlinux", "offset = do_fork", "0x55"),
        user("appln", "offset = mian", "0x55"),
        user("appln", "offset = table", "0x55"),
        user("appln", "offset = pattern", "0x55"),
        user("appln", "offset = 0x99999", "0x55"),
        user("appln", "offset = main", "0x90"),
        user("appln", "address = 0x0804940f", "0x55"),
        places("name = \"/lib/3c59x.o\"\nmodtype = kmod\noffset = f\nopcode = 0x55\nexit\n"),
    ];
    let text: Vec<String> = cases.into_iter().map(|case| case.unwrap_err()).collect();
    insta::assert_snapshot!(text.join("\n\n"));
}

#[test]
fn every_refused_probe_point_of_a_program_is_named() {
    let text = "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x1\nexit\noffset = kfree\nopcode = 0x2\nexit\n";
    assert_eq!(places(text).unwrap_err().matches("opcode-mismatch").count(), 0);
    assert_eq!(places(text).unwrap_err().matches("but the byte at").count(), 2);
}

#[test]
fn globs_select_functions() {
    let names = |pattern: &str| -> Vec<String> {
        let glob = FunctionGlob::new(pattern).unwrap();
        functions(&target(), Some(&glob)).into_iter().map(|f| format!("{}:{}", f.module, f.name)).collect()
    };
    assert_eq!(names("do_fork"), ["vmlinux:do_fork"]);
    assert_eq!(names("main"), ["appln:main"]);
    assert_eq!(names("k[!a-z]ree"), Vec::<String>::new());
    assert_eq!(names("k[a-f]ree"), ["vmlinux:kfree"]);
    assert_eq!(names("kfre?"), ["vmlinux:kfree"]);
    assert_eq!(names("\\kfree"), ["vmlinux:kfree"]);
    assert_eq!(names("{kfree,main}"), ["vmlinux:kfree", "appln:main"]);
    assert!(names("*").len() > 40);
    let error = FunctionGlob::new("[a").unwrap_err().to_string();
    assert!(error.contains("\"[a\""), "{error}");
}

#[test]
fn addresses_have_names() {
    let target = target();
    assert_eq!(target.symbol(CodePointer::At(address("do_fork") + 3)).unwrap(), "do_fork+0x3");
    let main = target.modules()[0].symbols().sole("main").unwrap().addr;
    assert_eq!(target.symbol(CodePointer::At(main)).unwrap(), "appln:main");
    assert_eq!(target.symbol(CodePointer::At(0x10)), None);
}
