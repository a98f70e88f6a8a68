//! Notes of `<sys/sdt.h>`: what is read, what is refused alone, and real files against `readelf -n`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::common::program;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use trapline_emu::load::{ElfView, Width};
use trapline_providers::sdt::{StapNotes, argument};

/// A program with its sites, semaphores, and these notes: site, base, semaphore, then its texts as assembler.
fn source(bits: u32, notes: &[(&str, &str, &str, &str)]) -> String {
    let word = if bits == 64 { ".8byte" } else { ".4byte" };
    let mut text = String::from(
        ".text\n.globl _start\n_start:\nsite1: nop\nret\nsite2: nop\nret\n\
         .section .probes,\"aw\"\nsem1: .2byte 0\nsem2: .2byte 0\n\
         .section .stapsdt.base,\"a\"\nbase: .byte 0\n.section .note.stapsdt,\"\",\"note\"\n",
    );
    for (site, base, semaphore, texts) in notes {
        write!(
            text,
            ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n\
             993: {word} {site}, {base}, {semaphore}\n{texts}\n994: .balign 4\n"
        )
        .unwrap();
    }
    text
}

fn read(bytes: &[u8]) -> StapNotes {
    StapNotes::read(&ElfView::parse(bytes).unwrap()).unwrap()
}

#[test]
fn a_note_gives_provider_name_site_semaphore_and_arguments() {
    for bits in [32, 64] {
        let arguments = "-4@%eax 8@%eax 2@$7";
        let notes = [
            ("site1", "base", "sem1", &*format!(".asciz \"prov\", \"one\", \"{arguments}\"")),
            ("site2", "base", "0", ".asciz \"prov\", \"two\", \"\""),
        ];
        let bytes = program("notes-read", &format!("plain{bits}"), bits, &source(bits, &notes), &[]);
        let found = read(&bytes);
        assert_eq!(found.refused, [], "{bits}");
        let [one, two] = found.probes.as_slice() else { panic!("{:?}", found.probes) };
        assert_eq!((&*one.provider, &*one.name, &*one.note.arguments), ("prov", "one", arguments));
        assert_eq!((&*two.name, two.semaphore, two.arguments.len()), ("two", None, 0));
        assert_eq!((one.address, two.address), (one.note.site, one.note.site + 2));
        assert_eq!(one.semaphore, Some(one.note.semaphore));
        assert_eq!(bytes[one.offset as usize..][..4], [0x90, 0xc3, 0x90, 0xc3]);
        let told: Vec<String> = one
            .arguments
            .iter()
            .map(|a| a.as_ref().map_or_else(ToString::to_string, ToString::to_string))
            .collect();
        let wide = "argument \"8@%eax\": %eax has 4 bytes, fewer than the size 8";
        assert_eq!(told, ["-4@%eax", wide, "2@$7"]);
    }
}

#[test]
fn a_file_that_was_moved_has_its_sites_moved_with_its_base() {
    for bits in [32, 64] {
        // As prelink leaves it: the addresses in the notes are 0x1000 too low.
        let text = ".asciz \"p\", \"n\", \"\"";
        let notes =
            [("site1 - 0x1000", "base - 0x1000", "sem2 - 0x1000", text), ("site2", "0", "sem2", text)];
        let found = read(&program(
            "notes-moved",
            &format!("moved{bits}"),
            bits,
            &source(bits, &notes),
            &["-z", "norelro"],
        ));
        let [moved, unmoved] = found.probes.as_slice() else { panic!("{:?}", found.refused) };
        assert_eq!(moved.address, moved.note.site + 0x1000);
        assert_eq!(moved.semaphore, unmoved.semaphore);
        assert_eq!(unmoved.address, unmoved.note.site, "a base of 0 says nothing");
    }
}

#[test]
fn a_bad_note_is_refused_with_its_reason_and_the_others_stand() {
    let name = ".asciz \"p\", \"n\", \"4@%eax\"";
    let notes = [
        ("site1", "base", "sem1", name),
        ("sem1", "base", "sem1", name),
        ("site1 + 1", "base", "sem1", name),
        ("0xdead0000", "base", "sem1", name),
        ("site1", "base", "site1", name),
        ("site1", "base", "sem1", ".asciz \"\", \"n\", \"\""),
        ("site1", "base", "sem1", ".asciz \"p\", \"a:b\", \"\""),
        ("site1", "base", "sem1", ".asciz \"p\", \"n\"\n.ascii \"4@%eax\""),
        ("site1", "base", "sem1", ".asciz \"p\""),
        ("site2", "base", "sem2", name),
        ("site2", "base", "edge", name),
    ];
    for bits in [32, 64] {
        let mut text = source(bits, &notes);
        // Content too short for its addresses; then a note that claims 4 GiB of content.
        text += ".4byte 8, 3, 3\n.asciz \"stapsdt\"\n.byte 1,2,3,0\n";
        text += ".4byte 8, 0xfffffff0, 3\n.asciz \"stapsdt\"\n.byte 1\n";
        text += ".section .probes\n.balign 4096\n.skip 4095\nedge: .2byte 0\n";
        let found = read(&program("notes-bad", &format!("bad{bits}"), bits, &text, &[]));
        assert_eq!(found.probes.len(), 2);
        let told: Vec<String> = found.refused.iter().map(|error| error.kind.to_string()).collect();
        let start = |at: usize, text: &str| assert!(told[at].starts_with(text), "{}", told[at]);
        start(0, "its site 0x");
        assert!(told[1].ends_with("is 0xc3, not a NOP (90)"), "{}", told[1]);
        assert_eq!(told[2], "its site 0xdead0000 is not in an executable segment of the file");
        assert!(told[3].ends_with("is not in a writable segment"), "{}", told[3]);
        start(4, "the provider \"\" is not a name;");
        start(5, "the name \"a:b\" is not a name;");
        assert!(told[6].ends_with("bytes end before the end of the arguments"), "{}", told[6]);
        assert!(told[7].ends_with("bytes end before the end of the name"), "{}", told[7]);
        assert!(told[8].ends_with("fff crosses a page boundary"), "{}", told[8]);
        assert_eq!(told[9], "its 3 bytes end before the site");
        assert_eq!(
            told[10],
            "it needs 0x100000004 bytes, but its section has 0x15 left; later notes are lost"
        );
        assert_eq!(told.len(), 11);
        assert!(found.refused[3].to_string().contains(", p:n: its semaphore"), "{}", found.refused[3]);
    }
}

#[test]
fn every_truncation_of_a_file_is_read_or_refused() {
    let notes = [("site1", "base", "sem1", ".asciz \"p\", \"n\", \"4@%eax 4@8(%rax,%rcx,4)\"")];
    let bytes = program("notes-cut", "cut", 64, &source(64, &notes), &[]);
    for end in 0..bytes.len() {
        if let Ok(view) = ElfView::parse(&bytes[..end]) {
            let _ = StapNotes::read(&view);
        }
    }
}

/// What `readelf -n` shows of the notes: size, provider, name, the line of addresses, arguments.
fn shown_by_readelf(file: &Path) -> Vec<[String; 5]> {
    let out = Command::new("readelf").arg("-n").arg(file).env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let mut found: Vec<[String; 5]> = Vec::new();
    for line in text.lines().map(str::trim_end) {
        if let Some(rest) = line.trim_start().strip_prefix("stapsdt") {
            found.push(Default::default());
            found.last_mut().unwrap()[0] = rest.split_whitespace().next().unwrap().to_owned();
        } else if let Some(note) = found.last_mut() {
            let fields = ["    Provider: ", "    Name: ", "    Location: ", "    Arguments: "];
            for (n, field) in fields.iter().enumerate() {
                if let Some(rest) = line.strip_prefix(field) {
                    note[n + 1] = if n == 2 { line.trim_start().to_owned() } else { rest.to_owned() };
                }
            }
        }
    }
    found
}

#[test]
fn guest_the_notes_of_real_programs_are_what_readelf_shows() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.guests/sdt");
    for (name, probes) in
        [("postgres", 71), ("libstdc++.so.6", 3), ("python3.11", 8), ("libruby-3.1.so", 40), ("php8.2", 14)]
    {
        let file = folder.join(name);
        let bytes =
            std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}; run `make guests`", file.display()));
        let found = read(&bytes);
        assert_eq!(found.refused, [], "{name}");
        let own: Vec<[String; 5]> = found
            .probes
            .iter()
            .map(|probe| {
                let note = &probe.note;
                [
                    format!("{:#010x}", note.size),
                    probe.provider.clone(),
                    probe.name.clone(),
                    format!(
                        "Location: {:#018x}, Base: {:#018x}, Semaphore: {:#018x}",
                        note.site, note.base, note.semaphore
                    ),
                    note.arguments.clone(),
                ]
            })
            .collect();
        let shown = shown_by_readelf(&file);
        assert_eq!(own, shown, "{name}");
        let arguments: usize = shown.iter().map(|note| note[4].split_whitespace().count()).sum();
        let all: Vec<_> = found.probes.iter().flat_map(|probe| &probe.arguments).collect();
        let bad: Vec<String> = all.iter().filter_map(|a| a.as_ref().err().map(ToString::to_string)).collect();
        assert_eq!((found.probes.len(), all.len(), bad), (probes, arguments, vec![]), "{name}");
        for good in all.iter().filter_map(|a| a.as_ref().ok()) {
            assert_eq!(argument(&good.to_string(), Width::Bits64).as_ref(), Ok(good), "{name}");
        }
        assert!(found.probes.iter().all(|probe| bytes[probe.offset as usize] == 0x90), "{name}");
    }
}
