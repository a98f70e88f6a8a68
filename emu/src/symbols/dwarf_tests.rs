//! On GNU Mach, whose debugging information gdb reads too; and damaged.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::load::testing::gnumach;
use crate::symbols::Symbols;

fn file() -> Vec<u8> {
    crate::load::unpack(&gnumach()).unwrap()
}

#[test]
fn guest_gnu_mach_lines_and_parameters() {
    let bytes = file();
    let dwarf = Dwarf::from_elf(&bytes).unwrap().unwrap();
    let symbols = Symbols::from_elf(&bytes, "gnumach").unwrap();
    let address = |name: &str| symbols.sole(name).unwrap().addr;
    let line = dwarf.line_at(address("thread_create")).unwrap();
    assert!(is_called(&line.file, "kern/thread.c"), "{line:?}");
    let places = dwarf.places("kern/thread.c", line.line);
    assert_eq!(places.addresses.first(), Some(&address("thread_create")), "{places:?}");
    assert_eq!(places.files.len(), 1);
    assert_eq!(dwarf.line_at(0), None);
    assert_eq!(dwarf.places("none.c", 1), LinePlaces::default());
    assert_eq!(dwarf.places("", 1), LinePlaces::default());
    let beyond = dwarf.places("thread.c", 1);
    assert!(beyond.addresses.is_empty() && beyond.next.is_some_and(|next| next > 1));
    let shown: Vec<String> = dwarf
        .parameters("thread_create")
        .unwrap()
        .iter()
        .map(|p| format!("{} {}", p.type_name, p.name))
        .collect();
    assert_eq!(shown, ["task_t parent_task", "thread_t * child_thread"]);
    assert!(dwarf.parameters("no_such_function").is_none());
}

/// Every statement that a line table names is found again under its line.
#[test]
fn guest_gnu_mach_lines_lead_back() {
    let bytes = file();
    let dwarf = Dwarf::from_elf(&bytes).unwrap().unwrap();
    let symbols = Symbols::from_elf(&bytes, "gnumach").unwrap();
    let mut checked = 0;
    for symbol in symbols.functions().filter(|symbol| symbol.sized).step_by(97) {
        let Some(line) = dwarf.line_at(symbol.addr) else { continue };
        assert!(dwarf.places(&line.file, line.line).addresses.contains(&symbol.addr), "{line:?}");
        checked += 1;
    }
    assert!(checked > 15, "{checked}");
}

#[test]
fn a_file_without_debugging_information_has_none() {
    let plain = crate::load::testing::TestElf::kernel(true, 0).build();
    assert!(Dwarf::from_elf(&plain).unwrap().is_none());
}

#[test]
fn guest_gnu_mach_damaged() {
    let good = file();
    let view = ElfView::parse(&good).unwrap();
    let section =
        |name: &str| view.sections().iter().find(|section| section.name == name).unwrap().offset as usize;
    for name in [".debug_info", ".debug_abbrev", ".debug_line", ".debug_line_str", ".debug_rnglists"] {
        for step in [1usize, 4097] {
            let mut bad = good.clone();
            for n in 0..64 {
                bad[section(name) + n * step % 0x2000] ^= 0x5a;
            }
            if let Ok(Some(dwarf)) = Dwarf::from_elf(&bad) {
                let _ =
                    (dwarf.line_at(0xc010_1000), dwarf.places("thread.c", 500), dwarf.parameters("panic"));
            }
        }
    }
}
