//! `trapline dis` is correct: a probe on an instruction displaces it as `dis` says.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use trapline_emu::load::Image;
use trapline_emu::symbols::Symbols;
use trapline_emu::{Stop, TrapInterposer};
use trapline_interposer::{Place, Way};
use trapline_providers::{Line, Target, disassemble};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::{embedded, interposer, observer};

/// Every instruction of the embedded kernel's functions.
fn lines() -> Vec<Line> {
    let guest = &trapline_guests::IA32;
    let image = Image::parse(guest.image, "vmlinux").unwrap();
    let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
    let names: Vec<String> = symbols.functions().map(|function| function.name.to_string()).collect();
    let target = Target::new(image, symbols, Vec::new());
    let listed = names.iter().map(|name| disassemble(&target, name).unwrap());
    // A name shared by several functions is listed once for each.
    let by_address: BTreeMap<u64, Line> =
        listed.flat_map(|listing| listing.lines).map(|line| (line.address, line)).collect();
    by_address.into_values().collect()
}

#[test]
fn each_site_is_displaced_in_the_way_that_was_said() {
    let lines = lines();
    assert!(lines.len() > 2000, "{}", lines.len());
    let plan = Image::parse(trapline_guests::IA32.image, "vmlinux").unwrap();
    let plan = plan.plan();
    let source = observer(lines.iter().map(|line| (line.address, line.bytes[0])));
    let program = parse("all.rpn", &source).unwrap().link(Width::W32, &NoSymbols).unwrap();
    let place = |line: &Line| Place::Kernel {
        linear: line.address,
        paddr: plan.vaddr_to_paddr(line.address).unwrap(),
    };
    let mut machine = embedded().unwrap();
    let mut interposer = interposer();
    interposer.insert(machine.core_mut(), "all.rpn", program, lines.iter().map(place).collect()).unwrap();
    let stop = machine.run(Some(&mut interposer as &mut dyn TrapInterposer), 1_000_000_000);
    assert_eq!(stop, Stop::Halted);
    let said: BTreeMap<u64, &Line> =
        lines.iter().map(|line| (plan.vaddr_to_paddr(line.address).unwrap(), line)).collect();
    let mut seen: BTreeMap<Way, usize> = BTreeMap::new();
    for (paddr, _, way) in interposer.armed_sites() {
        let Some(way) = way else { continue };
        let line = said[&paddr];
        assert_eq!(way, line.way, "{:#x} {}: {}", line.address, line.text, line.why);
        *seen.entry(way).or_default() += 1;
    }
    assert!(seen.len() == 3 && seen.values().sum::<usize>() > 1000, "{seen:?}");
}
