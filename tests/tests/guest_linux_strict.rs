//! The functions of Linux and DTrace's sites in them, against kallsyms, readelf and objdump.
//!
//! The only code of Trapline used here reads the kernel's symbol table. The functions, their beginnings and their
//! instructions are computed here independently.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::cli::{finish, patient, trapline};
use serde_json::Value;
use tempfile::TempDir;
use trapline_emu::symbols::{Binding, Symbol, Symbols};
use trapline_tests::linux::{KERNELS, unpack};
use trapline_tests::root;

/// A name and an address.
type Site = (String, u64);

/// A section with code.
struct Section {
    name: String,
    start: u64,
    bytes: Vec<u8>,
}

/// An instruction: its address, first byte and length; one that objdump calls bad has no bytes.
struct Instruction {
    at: u64,
    first: u8,
    len: usize,
}

/// A function: its names, and the instructions that decode from its first byte on.
struct Function<'a> {
    names: Vec<&'a str>,
    start: u64,
    section: &'a Section,
    code: &'a [Instruction],
    size: u64,
}

impl Function<'_> {
    fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.section.start)?).ok()?;
        self.section.bytes.get(from..from + len).filter(|_| at + len as u64 <= self.start + self.size)
    }

    /// Whether a pointer into the function lies over the byte at `at`.
    fn in_jump_table(&self, at: u64, word: usize) -> bool {
        (0..word as u64).filter_map(|before| self.bytes((at - before).max(self.start), word)).any(|bytes| {
            let value = bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
            (self.start..self.start + self.size).contains(&value)
        })
    }

    /// DTrace's sites: of the entry and of the returns.
    fn strict(&self, word: usize) -> (Option<u64>, Vec<u64>) {
        let entry = if word == 8 {
            self.code.iter().find(|i| i.first == 0x55).map(|i| i.at)
        } else {
            let framed = matches!(self.bytes(self.start, 3), Some([0x55, 0x8b, 0xec] | [0x55, 0x89, 0xe5]));
            framed.then_some(self.start)
        };
        let Some(from) = entry else { return (None, Vec::new()) };
        let is_return = |n: usize, i: &Instruction| match word {
            8 => i.first == 0xc3 && i.at >= from,
            // The next byte, not the next instruction: DTrace does not decode it.
            _ => {
                let next = self.bytes(i.at + 1, 1).map(|bytes| bytes[0]);
                i.len == 1 && matches!(i.first, 0xc9 | 0x5d) && matches!(next, Some(0xc3 | 0xc2)) && n > 0
            }
        };
        let returns = self.code.iter().enumerate().filter(|(n, i)| is_return(*n, i)).map(|(_, i)| i.at);
        (entry, returns.filter(|at| !self.in_jump_table(*at, word)).collect())
    }
}

/// The sections of the kernel that hold code, as readelf has them.
fn sections(vmlinux: &Path) -> Vec<Section> {
    let mut readelf = patient("readelf");
    readelf.arg("-SW").arg(vmlinux);
    let image = std::fs::read(vmlinux).unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let row = |line: &str| {
        let words: Vec<&str> = line.split_once(']')?.1.split_whitespace().collect();
        let [name, "PROGBITS", start, offset, size, _, flags, ..] = words[..] else { return None };
        let (from, size) = (hex(offset) as usize, hex(size) as usize);
        let section =
            || Section { name: name.to_owned(), start: hex(start), bytes: image[from..from + size].to_vec() };
        flags.contains('X').then(section)
    };
    finish(readelf).out.lines().filter_map(row).collect()
}

/// The output of objdump for a section with a function at each of `starts`.
fn disassemble(section: &Section, starts: &[u64], bits: u32, folder: &Path) -> Vec<Instruction> {
    std::fs::write(folder.join("code"), &section.bytes).unwrap();
    let mut source = ".text\n.incbin \"code\"\n".to_owned();
    for at in starts {
        let _ = writeln!(source, ".set f{at:x}, .text+{}\n.type f{at:x}, @function", at - section.start);
    }
    std::fs::write(folder.join("code.s"), source).unwrap();
    let mut assembler = patient("as");
    assembler.args([&format!("--{bits}"), "-o", "code.o", "code.s"]).current_dir(folder);
    let assembled = finish(assembler);
    assert_eq!(assembled.code, 0, "{}", assembled.err);
    let mut objdump = patient("objdump");
    objdump.args(["-dwz", "-j", ".text", &format!("--adjust-vma={:#x}", section.start), "code.o"]);
    let mut child = objdump.current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let instruction = |line: String| {
        let mut fields = line.split('\t');
        let at = u64::from_str_radix(fields.next()?.trim().strip_suffix(':')?, 16).ok()?;
        let mut bytes = fields.next()?.split_whitespace();
        let first = u8::from_str_radix(bytes.next()?, 16).ok()?;
        let bad = fields.next().is_none_or(|text| text.contains("(bad)"));
        Some(Instruction { at, first, len: if bad { 0 } else { 1 + bytes.count() } })
    };
    let found = lines.map_while(Result::ok).filter_map(instruction).collect();
    assert!(child.wait().unwrap().success());
    found
}

/// Names of functions, and DTrace's sites of entries and returns, by name and address.
struct Counted {
    functions: BTreeSet<Site>,
    entries: BTreeSet<Site>,
    returns: BTreeSet<Site>,
}

fn count(vmlinux: &Path, folder: &Path) -> Counted {
    let image = std::fs::read(vmlinux).unwrap();
    let bits = if image[4] == 1 { 32 } else { 64 };
    let symbols = Symbols::from_kallsyms(&image, "vmlinux").unwrap();
    let mut named: BTreeMap<u64, Vec<&Symbol>> = BTreeMap::new();
    for symbol in symbols.iter() {
        named.entry(symbol.addr).or_default().push(symbol);
    }
    let mut counted =
        Counted { functions: BTreeSet::new(), entries: BTreeSet::new(), returns: BTreeSet::new() };
    // Code that tests for static_cpu_has() until it is patched; the linker's label _einittext is at its start.
    for section in sections(vmlinux).iter().filter(|section| section.name != ".altinstr_aux") {
        let end = section.start + section.bytes.len() as u64;
        let starts: Vec<u64> = named.range(section.start..end).map(|(at, _)| *at).collect();
        let code = disassemble(section, &starts, bits, folder);
        for (n, &start) in starts.iter().enumerate() {
            let size = starts.get(n + 1).copied().unwrap_or(end) - start;
            let index = |at: u64| code.partition_point(|i| i.at < at);
            let own = &code[index(start)..index(start + size)];
            let whole = own.iter().take_while(|i| i.len > 0 && i.at + i.len as u64 <= start + size).count();
            // A label that kallsyms lists as data is not a function, whatever its content. Of the names of an address
            // weak ones do not count if there is another.
            let named = named[&start].iter().filter(|symbol| symbol.is_function());
            let strong = named.clone().any(|symbol| symbol.binding != Binding::Weak);
            let names = named.filter(|symbol| symbol.binding != Binding::Weak || !strong);
            let names: Vec<&str> = names.map(|symbol| symbol.name.as_ref()).collect();
            assert!(!names.contains(&"_init") && !names.contains(&"_fini"));
            let function = Function { names, start, section, code: &own[..whole], size };
            let (entry, returns) = function.strict(bits as usize / 8);
            for name in &function.names {
                let site = |at: u64| (name.to_string(), at);
                counted.functions.insert(site(start));
                counted.entries.extend(entry.map(site));
                counted.returns.extend(returns.iter().copied().map(site));
            }
        }
    }
    counted
}

/// Name and address of each site in `trapline list`.
fn listed(kernel: &str, spec: &str, rules: &str) -> BTreeSet<Site> {
    let ran = trapline(&root(), &["list", kernel, spec, "--fbt", rules, "-f", "json", "-q"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let probes = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let sites = probes.filter(|line| line["type"] == "probe").flat_map(|probe| {
        let name = probe["function"].as_str().unwrap().to_owned();
        let sites = probe["sites"].as_array().unwrap().clone();
        sites.into_iter().map(move |site| {
            let at = site["address"].as_str().unwrap().trim_start_matches("0x");
            (name.clone(), u64::from_str_radix(at, 16).unwrap())
        })
    });
    sites.collect()
}

fn same(what: &str, ours: &BTreeSet<Site>, theirs: &BTreeSet<Site>) {
    let only = |a: &BTreeSet<Site>, b: &BTreeSet<Site>| -> Vec<String> {
        a.difference(b).take(20).map(|(name, at)| format!("{name} {at:#x}")).collect()
    };
    let (more, fewer) = (only(ours, theirs), only(theirs, ours));
    assert!(more.is_empty() && fewer.is_empty(), "{what}: only listed {more:?}; only counted {fewer:?}");
}

fn agrees(flavour: &str) {
    let linux = KERNELS.iter().find(|linux| linux.flavour == flavour).unwrap();
    let folder = TempDir::new().unwrap();
    let vmlinux = folder.path().join("vmlinux");
    std::fs::write(&vmlinux, unpack(&linux.kernel().unwrap()).unwrap()).unwrap();
    let counted = count(&vmlinux, folder.path());
    let kernel = format!(".guests/linux-{flavour}");
    same("functions", &listed(&kernel, "fbt:::entry", "full"), &counted.functions);
    same("entries", &listed(&kernel, "fbt:::entry", "strict"), &counted.entries);
    same("returns", &listed(&kernel, "fbt:::return", "strict"), &counted.returns);
    let [functions, entries, returns] =
        [&counted.functions, &counted.entries, &counted.returns].map(BTreeSet::len);
    println!("{flavour}: {functions} functions; strict: {entries} entries, {returns} returns");
    assert!(functions > 40_000 && entries > 3_000, "{functions} {entries}");
}

#[test]
fn guest_functions_and_strict_sites_of_linux_686_are_those_of_kallsyms_and_objdump_at_length() {
    agrees("686");
}

#[test]
fn guest_functions_and_strict_sites_of_linux_cloud_amd64_are_those_of_kallsyms_and_objdump_at_length() {
    agrees("cloud-amd64");
}

#[test]
fn guest_functions_and_strict_sites_of_linux_amd64_are_those_of_kallsyms_and_objdump_at_length() {
    agrees("amd64");
}
