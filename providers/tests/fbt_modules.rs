//! fbt of kernel modules by their files: the listed functions, their returns, and damaged files.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::assemble;
use trapline_emu::load::{Files, Image};
use trapline_emu::symbols::Symbols;
use trapline_interposer::Place;
use trapline_providers::{Probe, ProbeOptions, Rules, Target, find};

/// A function with every kind of exit, an init function, a weak and a global alias, and a section that is not loaded.
const SOURCE: &str = r#"
.macro function name, section
.section \section, "ax", @progbits
.type \name, @function
\name:
.endm
function ways, .text
    je 1f
    jmp __x86_return_thunk
1:  je 1f
    jmp there
1:  je 1f
    jmp elsewhere
1:  je 1f
    jmp ways.cold
1:  je 1f
    jmp .Ltest
1:  ret
.size ways, . - ways
function there, .text.more
    push $0
    ret $8
.size there, . - there
function ways.cold, .text.unlikely
    jmp ways
.size ways.cold, . - ways.cold
function module_start, .init.text
    repz ret
.size module_start, . - module_start
.globl init_module
.set init_module, module_start
.type init_module, @function
.weak second_name
.set second_name, module_start
.type second_name, @function
.section .altinstr_aux, "ax", @progbits
.Ltest:
    jmp ways
.section .gnu.linkonce.this_module, "aw", @progbits
    .skip 64
"#;

fn module(bits: u32) -> Vec<u8> {
    std::fs::read(assemble("fbt_modules", &format!("a-module{bits}"), bits, SOURCE)).unwrap()
}

/// The embedded guest of that width with this file.
fn target(bits: u32, file: Vec<u8>, rules: Rules) -> Target {
    let guest = trapline_guests::find(if bits == 64 { "x86_64" } else { "ia32" }).unwrap();
    let image = Image::parse(guest.image, "vmlinux").unwrap();
    let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
    let mut files = Files::default();
    files.insert("/lib/modules/a-module.ko", file);
    Target::new(image, symbols, Vec::new())
        .with_files(files, &mut |_, _| {})
        .with_options(ProbeOptions { fbt: rules, ..ProbeOptions::default() })
}

/// Name of the function, offset and rule of each site, as listed.
fn sites(probes: &[Probe]) -> Vec<(String, u64, &'static str)> {
    let of = |probe: &Probe| {
        let name = format!("{}:{}", probe.name.function, probe.name.name);
        probe.sites.iter().map(move |site| (name.clone(), site.offset, site.rule)).collect::<Vec<_>>()
    };
    probes.iter().flat_map(of).collect()
}

#[test]
fn the_functions_of_a_module_are_listed_with_the_ways_in_which_they_are_left() {
    for bits in [32, 64] {
        let target = target(bits, module(bits), Rules::Full);
        let listed = find(&target, "fbt:a_module::").unwrap();
        let expected = [
            ("init_module:entry", 0, "first byte"),
            ("init_module:return", 0, "ret"),
            ("module_start:entry", 0, "first byte"),
            ("module_start:return", 0, "ret"),
            ("there:entry", 0, "first byte"),
            ("there:return", 2, "ret imm16"),
            ("ways:entry", 0, "first byte"),
            ("ways:return", 2, "return thunk"),
            ("ways:return", 9, "tail jmp"),
            ("ways:return", 16, "tail jmp"),
            ("ways:return", 35, "ret"),
            ("ways.cold:entry", 0, "first byte"),
        ];
        let found = sites(&listed);
        let found: Vec<_> = found.iter().map(|(name, at, rule)| (name.as_str(), *at, *rule)).collect();
        assert_eq!(found, expected, "{bits}");
        for site in listed.iter().flat_map(|probe| &probe.sites) {
            let Place::Module { module, offset } = &site.place else { panic!("{:?}", site.place) };
            assert_eq!(module.file().bytes_at(*offset, 1), Some(&[site.opcode][..]), "the byte of the file");
        }
        // The module's probes are numbered before the kernel's, because of the order of their names.
        let all = find(&target, "fbt:::").unwrap();
        assert!(all.is_sorted_by_key(|probe| probe.id) && all[0].id == listed[0].id);
        assert!(all.iter().any(|probe| &*probe.name.module == "vmlinux"));
        let error = find(&target, "fbt:a_module:wais:entry").unwrap_err().to_string();
        assert!(error.ends_with("does not match any probes; did you mean fbt::ways:entry?"), "{error}");
    }
}

#[test]
fn a_module_of_the_other_width_is_no_part_of_the_kernel() {
    let target = target(64, module(32), Rules::Full);
    assert!(find(&target, "fbt:a_module::").is_err());
}

#[test]
fn a_damaged_module_is_refused_or_listed_as_far_as_it_can_be_read() {
    for bits in [32, 64] {
        let whole = module(bits);
        for at in 0..whole.len() {
            for value in [0, 0xff, whole[at] ^ 1, whole[at] ^ 0x80] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let target = target(bits, damaged, if at % 2 == 0 { Rules::Full } else { Rules::Strict });
                if let Ok(probes) = find(&target, "fbt:a_module::") {
                    assert!(probes.len() < 40, "byte {at:#x} = {value:#x}: {} probes", probes.len());
                }
            }
        }
    }
}
