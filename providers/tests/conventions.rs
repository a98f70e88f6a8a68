//! The calling convention of a kernel, derived from its code, and the arguments and return value at a function's sites.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use trapline_emu::load::Image;
use trapline_emu::symbols::Symbols;
use trapline_providers::{Abi, Probe, Target, find};

fn fetched(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.guests").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; run `make guests`", path.display()))
}

fn linux(name: &str) -> Target {
    let image = Image::parse(&fetched(name), name).unwrap();
    let symbols = Symbols::from_kallsyms(&image.plan().image, name).unwrap();
    Target::new(image, symbols, Vec::new())
}

fn elf(bytes: &[u8], name: &str) -> Target {
    let image = Image::parse(bytes, name).unwrap();
    let symbols = Symbols::from_elf(image.bytes(), name).unwrap();
    Target::new(image, symbols, Vec::new())
}

/// How the arguments of a function are found at its entry.
fn at_entry(target: &Target, function: &str) -> String {
    let found: Vec<Probe> = find(target, &format!("fbt::{function}:entry")).unwrap();
    format!("{:?}", found[0].sites[0].arguments)
}

#[test]
fn guest_a_linux_kernel_with_names_of_functions_only_has_regparm_but_for_variadic_functions() {
    let target = linux("linux-686");
    assert!(target.symbols().sole("linux_banner").is_none(), "kallsyms names functions only");
    assert_eq!(Abi::of(&target), Abi::Regparm);
    // The last two align their frame by the address of the arguments.
    for function in
        ["getname", "vfs_read", "do_exit", "kfree", "__kmalloc", "aa_create_aafs", "timekeeping_resume"]
    {
        assert_eq!(at_entry(&target, function), "AtEntry(Regparm)", "{function}");
    }
    for function in ["_printk", "sprintf", "snprintf", "seq_printf", "kasprintf", "panic", "_dev_err"] {
        assert_eq!(at_entry(&target, function), "AtEntry(Cdecl)", "{function}");
    }
    let variadic = find(&target, "fbt:::entry").unwrap();
    let variadic = variadic.iter().filter(|p| format!("{:?}", p.sites[0].arguments) == "AtEntry(Cdecl)");
    let names: Vec<&str> = variadic.map(|probe| &*probe.name.function).collect();
    println!("{} variadic functions: {names:?}", names.len());
    assert!((50..400).contains(&names.len()), "{names:?}");
}

#[test]
fn guest_gnu_mach_has_cdecl_though_it_has_drivers_of_linux() {
    let target = elf(&fetched("gnumach.gz"), "gnumach");
    assert!(target.symbols().sole("linux_banner").is_some());
    assert_eq!(Abi::of(&target), Abi::Cdecl);
    assert_eq!(at_entry(&target, "kmem_cache_init"), "AtEntry(Cdecl)");
}

#[test]
fn the_embedded_guests_have_the_conventions_that_compilers_default_to() {
    for (guest, abi) in [(&trapline_guests::IA32, Abi::Cdecl), (&trapline_guests::X86_64, Abi::SysV)] {
        assert_eq!(Abi::of(&elf(guest.image, guest.name)), abi);
    }
}
