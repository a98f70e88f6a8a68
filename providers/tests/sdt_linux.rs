//! Linux's tables of sites: in objects and linked images of both widths, and in real modules against readelf.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::common;
use crate::common::{assemble, program, tool};
use std::collections::BTreeSet;
use std::path::Path;
use trapline_emu::load::{ElfView, Width};
use trapline_emu::symbols::Symbols;
use trapline_providers::sdt::{Format, KernelFile, LinuxSites, Standing, tracepoint_arguments};

/// A module with two entries of each kind, and invalid entries.
fn source(bits: u32) -> String {
    let (word, size) = if bits == 64 { (".8byte", 8) } else { (".4byte", 4) };
    let nop = if bits == 64 { "0x0f,0x1f,0x44,0,0" } else { "0x3e,0x8d,0x74,0x26,0" };
    format!(
        "
.text
.globl _start
_start:
first:  call __fentry__
        ret
second: .byte {nop}
site1:  .byte 0x0f,0x1f,0x44,0,0
        ret
likely: jmp there
there:  .byte 0x66,0x90
        ret
called: call __SCT__might_resched
tailed: .byte 0xe9
        .long __SCT__tail - 4 - .
broken: int3
__traceiter_one: ret
.section __mcount_loc, \"a\"
        {word} second, first, broken
.section __jump_table, \"aw\"
        .4byte site1 - ., there - .
        {word} __tracepoint_one + {size} - .
        .4byte likely - ., there - .
        {word} key + 1 - .
        .4byte there - ., there - .
        {word} __tracepoint_one + {size} - .
        .4byte broken - ., there - .
        {word} key - .
.section .static_call_sites, \"aw\"
        .4byte called - ., __SCK__might_resched - ., tailed - ., __SCK__tail + 1 - .
.section __tracepoints_strings, \"a\"
name1:  .asciz \"one\"
name2:  .asciz \"two\"
name3:  .asciz \"not a name\"
system: .asciz \"things\"
.section __tracepoints, \"aw\"
        .balign 8
__tracepoint_one: {word} name1, 0, 0
__tracepoint_two: {word} name2, 0, 0
__tracepoint_bad: {word} name3, 0, 0
.section __tracepoints_ptrs, \"a\"
        .4byte __tracepoint_two - ., __tracepoint_one - ., __tracepoint_bad - .
.data
        .balign 8
key:    {word} 0
class:  {word} system
event_one: {word} 0, 0, class
__SCK__might_resched: {word} 0
__SCK__tail: {word} 0
"
    )
}

fn check(file: &KernelFile, what: &str) {
    let found = LinuxSites::read(file);
    let at = |name: &str| file.address(name).unwrap();
    let mut entries = [at("first"), at("second")];
    entries.sort_unstable();
    assert_eq!(found.entries, entries, "{what}");
    let labels: Vec<_> =
        found.labels.iter().map(|l| (l.site, l.target, l.key, l.likely, l.standing)).collect();
    let tracepoint = at("__tracepoint_one") + if file.width() == Width::Bits64 { 8 } else { 4 };
    assert_eq!(
        labels,
        [
            (at("site1"), at("there"), tracepoint, false, Standing::Nop(5)),
            (at("likely"), at("there"), at("key"), true, Standing::Jump(2)),
            (at("there"), at("there"), tracepoint, false, Standing::Nop(2)),
        ],
        "{what}"
    );
    let calls: Vec<_> = found.calls.iter().map(|c| (c.site, &*c.name, c.tail, c.standing)).collect();
    let wanted = [
        (at("called"), "might_resched", false, Standing::Call(5)),
        (at("tailed"), "tail", true, Standing::Jump(5)),
    ];
    assert_eq!(calls, wanted, "{what}");
    let [one, two] = found.tracepoints.as_slice() else { panic!("{what}: {:?}", found.tracepoints) };
    assert_eq!((&*one.name, &*one.system, one.iterator), ("one", "things", file.address("__traceiter_one")));
    assert_eq!(one.sites, [at("site1"), at("there")]);
    assert_eq!((&*two.name, &*two.system, two.iterator, two.sites.len()), ("two", "", None, 0));
    let why: Vec<String> = found.refused.iter().map(ToString::to_string).collect();
    assert_eq!(why.len(), 3, "{why:?}");
    assert!(
        why[0].starts_with("entry 2 of __mcount_loc points to ")
            && why[0].contains("where the bytes are [cc, "),
        "{}",
        why[0]
    );
    assert!(why[1].ends_with("they must be a NOP or a jump of 2 or 5 bytes"), "{}", why[1]);
    assert!(why[2].starts_with("entry 2 of __tracepoints_ptrs points to "), "{}", why[2]);
}

#[test]
fn the_tables_of_modules_and_images_are_read_alike() {
    for bits in [32, 64] {
        let object = std::fs::read(assemble("linux", &format!("module{bits}"), bits, &source(bits))).unwrap();
        check(&KernelFile::module(&ElfView::parse(&object).unwrap()).unwrap(), "module");
        let flags = ["--unresolved-symbols=ignore-all", "-z", "noexecstack"];
        let image = program("linux", &format!("image{bits}"), bits, &source(bits), &flags);
        let view = ElfView::parse(&image).unwrap();
        check(&KernelFile::image(&view, &Symbols::new("image")).unwrap(), "image");
        // As in distributions: the file has no symbols, which come from elsewhere.
        let symbols = Symbols::from_elf(&image, "image").unwrap();
        let folder = common::folder("linux");
        tool(&folder, "strip", &["-s", "-o", &format!("stripped{bits}"), &format!("image{bits}")]);
        let stripped = std::fs::read(folder.join(format!("stripped{bits}"))).unwrap();
        check(&KernelFile::image(&ElfView::parse(&stripped).unwrap(), &symbols).unwrap(), "stripped");
    }
}

#[test]
fn every_truncation_and_every_changed_byte_of_a_module_is_read_or_refused() {
    let object = std::fs::read(assemble("linux-damaged", "module", 64, &source(64))).unwrap();
    let read = |bytes: &[u8]| {
        if let Ok(view) = ElfView::parse(bytes)
            && let Ok(file) = KernelFile::module(&view)
        {
            let _ = LinuxSites::read(&file);
        }
    };
    for at in 0..object.len() {
        read(&object[..at]);
        let mut bytes = object.clone();
        bytes[at] ^= 0xff;
        read(&bytes);
    }
}

#[test]
fn a_tracepoints_arguments_follow_its_functions_own() {
    let shown = |width: Width, sizes: &[u8]| {
        let formats: Vec<Format> = sizes.iter().map(|bytes| Format::unsigned(*bytes)).collect();
        let places = tracepoint_arguments(width, &formats);
        places
            .iter()
            .map(|a| a.as_ref().map_or("pair".to_owned(), ToString::to_string))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        shown(Width::Bits64, &[1, 8, 8, 4, 8, 8, 8]),
        "1@%rsi 8@%rdx 8@%rcx 4@%r8 8@%r9 8@8(%rsp) 8@16(%rsp)"
    );
    assert_eq!(shown(Width::Bits32, &[1, 4, 4]), "1@%edx 4@%ecx 4@4(%esp)");
    assert_eq!(shown(Width::Bits32, &[8, 4]), "pair 4@4(%esp)");
    assert_eq!(shown(Width::Bits32, &[4, 8, 4]), "4@%edx 8@4(%esp) 4@12(%esp)");
}

#[test]
fn guest_the_sites_of_real_modules_are_what_readelf_shows() {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.guests");
    for (name, bits) in [("modules-amd64/jbd2.ko", 64), ("modules-686/jbd2.ko", 32)] {
        let path = guests.join(name);
        let bytes =
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; run `make guests`", path.display()));
        let file = KernelFile::module(&ElfView::parse(&bytes).unwrap()).unwrap();
        let found = LinuxSites::read(&file);
        assert_eq!(found.refused, [], "{name}");
        let shown = tool(&guests, "readelf", &["-rW", path.to_str().unwrap()]);
        let table = |section: &str| -> Vec<&str> {
            let heading = [format!("'.rela{section}'"), format!("'.rel{section}'")];
            let rest = shown.lines().skip_while(|line| !heading.iter().any(|h| line.contains(h)));
            rest.skip(2).take_while(|line| !line.is_empty()).collect()
        };
        assert_eq!(found.entries.len(), table("__mcount_loc").len(), "{name}");
        assert_eq!(found.labels.len() * 3, table("__jump_table").len(), "{name}");
        assert_eq!(found.calls.len() * 2, table(".static_call_sites").len(), "{name}");
        let wanted: BTreeSet<&str> = table("__tracepoints_ptrs")
            .iter()
            .map(|line| line.split("__tracepoint_").nth(1).unwrap().split_whitespace().next().unwrap())
            .collect();
        let names: BTreeSet<&str> = found.tracepoints.iter().map(|t| &*t.name).collect();
        assert_eq!(names, wanted, "{name}");
        assert!(names.len() > 15 && found.entries.len() > 100 && bits > 0);
        assert!(found.tracepoints.iter().all(|t| t.system == "jbd2" && t.iterator.is_some()), "{name}");
        let label = |t: &str| {
            table("__jump_table")
                .iter()
                .filter(|l| l.split_whitespace().any(|w| w == format!("__tracepoint_{t}")))
                .count()
        };
        for tracepoint in &found.tracepoints {
            assert_eq!(tracepoint.sites.len(), label(&tracepoint.name), "{name} {}", tracepoint.name);
        }
        let checkpoint = found.tracepoints.iter().find(|t| t.name == "jbd2_checkpoint").unwrap();
        let (section, _) = file.section_at(checkpoint.sites[0]).unwrap();
        assert_eq!(section, ".text");
    }
}
