//! kallsyms of tables made here, with every kind of damage.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::load::testing::{TestElf, TestSection};
use crate::symbols::Symbols;

const TEXT: u64 = 0x10_0000;
/// Address, type letter and name; more than two strides of them.
fn sample() -> Vec<(u64, String)> {
    let mut symbols = vec![(TEXT, "T_text".to_owned()), (TEXT, "T_stext".to_owned())];
    symbols.extend((0..600).map(|n| (TEXT + 0x10 + n * 2, format!("tstatic_function_{n}"))));
    symbols.push((TEXT + 0x7f0, format!("Tlong_{}", "name".repeat(40))));
    symbols
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Absolute,
    Relative,
    PerCpu,
    /// As in Linux 7.2, with its order and without padding to words.
    Distance,
}

/// Where the tables of a test are.
const RODATA: u64 = 0x20_0000;

/// Tables as scripts/kallsyms.c writes them, with two tokens of several characters; in the order of 6.4 the addresses
/// come last.
fn tables(symbols: &[(u64, String)], word: usize, form: Form, seqs: bool) -> Vec<u8> {
    tables_in_order(symbols, word, form, seqs, false)
}

fn tables_in_order(symbols: &[(u64, String)], word: usize, form: Form, seqs: bool, of_6_4: bool) -> Vec<u8> {
    let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte.max(1)]).collect();
    tokens[1] = b"static_".to_vec();
    tokens[2] = b"function_".to_vec();
    let (of_7_2, of_6_4) = (form == Form::Distance, of_6_4 || form == Form::Distance);
    let unit = if of_7_2 { 4 } else { word };
    let pad = |out: &mut Vec<u8>| out.resize(out.len().next_multiple_of(unit), 0);
    let put = |out: &mut Vec<u8>, value: u64| out.extend_from_slice(&value.to_le_bytes()[..word]);
    let addresses = |out: &mut Vec<u8>| {
        for (addr, _) in symbols {
            match form {
                Form::Absolute => put(out, *addr),
                Form::Relative => out.extend_from_slice(&((addr - TEXT) as u32).to_le_bytes()),
                Form::PerCpu if *addr < TEXT => out.extend_from_slice(&(*addr as u32).to_le_bytes()),
                Form::PerCpu => out.extend_from_slice(&(-1 - (addr - TEXT) as i32).to_le_bytes()),
                Form::Distance => {
                    let own = RODATA + out.len() as u64;
                    out.extend_from_slice(&(addr.wrapping_sub(own) as u32).to_le_bytes());
                }
            }
        }
        pad(out);
        if matches!(form, Form::Relative | Form::PerCpu) {
            put(out, TEXT);
        }
    };
    let numbers = |out: &mut Vec<u8>| {
        (0..symbols.len() as u32).for_each(|number| out.extend_from_slice(&number.to_be_bytes()[1..]));
        pad(out);
    };
    let mut out = vec![0xaa; 64];
    if !of_6_4 {
        addresses(&mut out);
    }
    out.extend_from_slice(&(symbols.len() as u64).to_le_bytes()[..unit]);
    let (start, mut markers) = (out.len(), Vec::new());
    for (index, (_, name)) in symbols.iter().enumerate() {
        if index % STRIDE == 0 {
            markers.push((out.len() - start) as u32);
        }
        let name = name.replace("static_", "\x01").replace("function_", "\x02");
        match name.len() {
            len @ 0..128 => out.push(len as u8),
            len => out.extend_from_slice(&[len as u8 & 0x7f | 0x80, (len >> 7) as u8]),
        }
        out.extend_from_slice(name.as_bytes());
    }
    pad(&mut out);
    markers.iter().for_each(|marker| out.extend_from_slice(&marker.to_le_bytes()));
    pad(&mut out);
    if seqs && !of_6_4 {
        numbers(&mut out);
    }
    let (start, mut index) = (out.len(), Vec::new());
    for token in &tokens {
        index.extend_from_slice(&((out.len() - start) as u16).to_le_bytes());
        out.extend_from_slice(token);
        out.push(0);
    }
    pad(&mut out);
    out.extend_from_slice(&index);
    if of_6_4 {
        addresses(&mut out);
        numbers(&mut out);
    }
    out.extend_from_slice(&[0x55; 32]);
    out
}

fn kernel(wide: bool, data: Vec<u8>) -> Vec<u8> {
    let mut elf = TestElf::kernel(wide, 0);
    let size = data.len() as u64;
    let (name, kind, flags, addr) = (".rodata", 1, 2, RODATA);
    elf.sections.push(TestSection { name, kind, flags, addr, data, size, link: 0, entry_size: 0 });
    elf.build()
}

#[test]
fn every_form_of_address_is_read() {
    // Width, bytes of a word, an index by name, the order of Linux 6.4.
    let cases = [
        (false, 4, true, false),
        (false, 4, false, false),
        (true, 8, true, false),
        (true, 8, false, false),
        (false, 4, true, true),
        (true, 8, true, true),
    ];
    for (wide, word, seqs, of_6_4) in cases {
        for form in [Form::Absolute, Form::Relative, Form::PerCpu, Form::Distance] {
            let mut wanted = sample();
            if form == Form::PerCpu {
                wanted.insert(0, (0x1c0, "Acurrent_task".to_owned()));
            }
            let image = kernel(wide, tables_in_order(&wanted, word, form, seqs, of_6_4));
            let symbols = Symbols::from_kallsyms(&image, "vmlinux").unwrap();
            assert_eq!(symbols.len(), wanted.len());
            for (addr, name) in &wanted {
                assert_eq!(symbols.sole(&name[1..]).map(|symbol| symbol.addr), Some(*addr), "{name}");
            }
            let function = symbols.sole("static_function_7").unwrap();
            assert_eq!((function.size, function.kind), (2, SymbolKind::Function), "ends at the next");
            assert_eq!(symbols.at(TEXT + 0x7ff).unwrap().offset, 15, "the last ends with its section");
            assert_eq!(symbols.at(0x1c0), None, "a per-CPU offset is no address");
        }
    }
}

#[test]
fn damage_is_named() {
    let good = tables(&sample(), 8, Form::PerCpu, true);
    let tokens = find_tokens(&good).unwrap().0;
    let (names, count) = find_names(&good, tokens, 8).unwrap();
    assert_eq!(count, sample().len());
    let markers = tokens - (count * 3).next_multiple_of(8) - 16;
    let error = |at: usize, byte: u8| {
        let mut data = good.clone();
        data[at] = byte;
        Symbols::from_kallsyms(&kernel(true, data), "vmlinux").unwrap_err().to_string()
    };
    let none = Symbols::from_kallsyms(&kernel(true, vec![0; 4096]), "vmlinux").unwrap_err().to_string();
    assert!(none.starts_with("the image holds no kallsyms"));
    assert!(error(tokens, 0).starts_with("the image holds no kallsyms"));
    for at in [markers, markers + 5, names - 8] {
        assert!(error(at, 9).contains("no list of names agrees with markers after it"), "{at:#x}");
    }
    assert!(error(names - 16, 1).contains("do not place _text at 0x100000"));
    assert!(error(names + 2, b'X').contains("_text"), "without _text the place of the addresses is unknown");
    let second = names + 1 + sample()[0].1.len();
    assert_eq!(error(second + 3, 0xff), format!("kallsyms is damaged: name 1 of {count} is not UTF-8"));
}

#[test]
fn no_cut_and_no_flip_panics() {
    let good = kernel(false, tables(&sample()[..300], 4, Form::Relative, true));
    for len in (0..good.len()).step_by(37) {
        let _ = Symbols::from_kallsyms(&good[..len], "cut");
    }
    for at in (0..good.len()).step_by(11) {
        let mut bad = good.clone();
        bad[at] ^= 0xa5;
        let _ = Symbols::from_kallsyms(&bad, "flipped");
    }
}

/// `TRAPLINE_VMLINUX` names pairs `VMLINUX=KALLSYMS`, separated by spaces: a kernel and what it said itself
/// (`scripts/linux-oracle boot`).
#[test]
#[ignore = "needs TRAPLINE_VMLINUX"]
fn a_kernel_agrees_with_its_own_kallsyms() {
    let pairs = std::env::var("TRAPLINE_VMLINUX").unwrap();
    for (image, listing) in pairs.split_whitespace().filter_map(|pair| pair.split_once('=')) {
        let bytes = std::fs::read(image).unwrap();
        let symbols = Symbols::from_kallsyms(&bytes, "vmlinux").unwrap();
        let own: Vec<String> = kallsyms(&ElfView::parse(&bytes).unwrap())
            .unwrap()
            .iter()
            .map(|symbol| format!("{:x} {}", symbol.addr, symbol.name))
            .collect();
        let said: Vec<String> = std::fs::read_to_string(listing)
            .unwrap()
            .lines()
            .filter(|line| !line.contains('['))
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .map(|words| format!("{:x} {}", u64::from_str_radix(words[0], 16).unwrap(), words[2]))
            .collect();
        assert_eq!(own.len(), said.len(), "{image}");
        assert!(own == said, "{image}");
        println!("{image}: {} symbols, {} in all", own.len(), symbols.len());
    }
}
