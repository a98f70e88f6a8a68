//! The functions of Linux's modules and where they are left, against readelf and objdump.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cli;

use std::collections::{BTreeMap, BTreeSet};

use cli::{finish, patient, trapline};
use serde_json::Value;
use trapline_tests::root;

/// A function and how far into it.
type Site = (String, u64);

/// A function of a module: its section's number, where it begins there, and its size.
#[derive(Debug, Clone)]
struct Function {
    name: String,
    section: usize,
    start: u64,
    size: u64,
}

/// A module as readelf and objdump show it.
struct Module {
    sections: Vec<String>,
    functions: Vec<Function>,
    /// Instructions that are a `ret` or a `jmp`, by section and address: bytes, text, relocation.
    exits: Vec<(usize, u64, Vec<u8>, String, Option<String>)>,
}

fn output(program: &str, args: &[&str]) -> String {
    let mut command = patient(program);
    command.args(args);
    let ran = finish(command);
    assert_eq!(ran.code, 0, "{program}: {}", ran.err);
    ran.out
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

impl Module {
    fn new(path: &str) -> Self {
        let table = output("readelf", &["-SW", path]);
        let rows = table.lines().filter_map(|line| line.trim().strip_prefix('[')?.split_once(']'));
        let numbered = rows.filter(|(n, _)| n.trim().parse::<usize>().is_ok());
        let sections: Vec<String> =
            numbered.map(|(_, rest)| rest.split_whitespace().next().unwrap_or_default().to_owned()).collect();
        let symbols = output("readelf", &["-sW", path]);
        let function = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, start, size, "FUNC", binding, _, section, name] = words[..] else { return None };
            assert_ne!(binding, "WEAK", "{name}");
            let size = size.parse().ok().or_else(|| hex(size))?;
            let (section, start) = (section.parse().ok()?, hex(start)?);
            Some(Function { name: name.to_owned(), section, start, size })
        };
        let functions = symbols.lines().filter_map(function).collect();
        let mut exits = Vec::new();
        let mut section = 0;
        for line in output("objdump", &["-drw", path]).lines() {
            if let Some(name) = line.strip_prefix("Disassembly of section ") {
                section = sections.iter().position(|own| own == name.trim_end_matches(':')).unwrap();
            }
            let fields: Vec<&str> = line.split('\t').collect();
            let [at, bytes, text, more @ ..] = &fields[..] else { continue };
            let Some(at) = at.trim().strip_suffix(':').and_then(hex) else { continue };
            let bytes = bytes.split_whitespace().map(|byte| hex(byte).unwrap() as u8).collect();
            let jump = text.split_whitespace().any(|word| matches!(word, "ret" | "jmp"));
            if jump && !text.contains('*') {
                exits.push((section, at, bytes, (*text).to_owned(), more.last().map(|s| (*s).to_owned())));
            }
        }
        Self { sections, functions, exits }
    }

    /// The names of the functions at an address.
    fn at(&self, section: usize, at: u64) -> impl Iterator<Item = &Function> {
        let here = move |f: &&Function| f.section == section && (f.start..f.start + f.size).contains(&at);
        self.functions.iter().filter(here)
    }

    /// Section and address that a `jmp` leads to; nothing for another module's or the kernel's function.
    fn target(
        &self,
        (section, _, bytes, text, relocation): &(usize, u64, Vec<u8>, String, Option<String>),
    ) -> Option<(usize, u64)> {
        let Some(relocation) = relocation else {
            return Some((*section, hex(text.split_whitespace().nth(1)?)?));
        };
        let (name, addend) = match relocation.rsplit_once(['+', '-']) {
            Some((name, digits)) if relocation.contains('+') => (name, hex(digits)? as i64),
            Some((name, digits)) => (name, -(hex(digits)? as i64)),
            None => (relocation.as_str(), 0),
        };
        let there = i64::from(i32::from_le_bytes(*bytes.last_chunk()?)) + addend + 4;
        if let Some(section) = self.sections.iter().position(|own| own == name) {
            return Some((section, there as u64));
        }
        let function = self.functions.iter().find(|f| f.name == name)?;
        Some((function.section, function.start.checked_add_signed(there)?))
    }

    /// Where each function is left by a `ret`, a return thunk or a `jmp` to another one.
    fn returns(&self) -> BTreeSet<Site> {
        let mut found = BTreeSet::new();
        for exit in &self.exits {
            let (section, at, _, text, _) = exit;
            let jumps = text.split_whitespace().any(|word| word == "jmp");
            let target = jumps.then(|| self.target(exit)).flatten();
            for function in self.at(*section, *at) {
                let own = |name: &str| name.split(".cold").next() == function.name.split(".cold").next();
                let inside = target.is_some_and(|(there, to)| {
                    self.at(there, to).any(|f| f.name == function.name || own(&f.name))
                        || self.sections[there] == ".altinstr_aux"
                });
                if !inside {
                    found.insert((function.name.clone(), at - function.start));
                }
            }
        }
        found
    }
}

/// What `trapline list` says of the functions of a module.
fn listed(flavour: &str, name: &str, file: &str, end: &str) -> BTreeSet<Site> {
    let kernel = format!(".guests/linux-{flavour}");
    let given = format!("/lib/modules/{name}.ko={file}");
    let spec = format!("fbt:{}::{end}", name.replace('-', "_"));
    let ran = trapline(&root(), &["list", &kernel, "--file", &given, &spec, "-f", "json", "-q"]);
    assert_eq!(ran.code, 0, "{name}: {}", ran.err);
    let probes = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let sites = probes.filter(|line| line["type"] == "probe").flat_map(|probe| {
        let name = probe["function"].as_str().unwrap().to_owned();
        let sites = probe["sites"].as_array().unwrap().clone();
        sites.into_iter().map(move |site| (name.clone(), site["offset"].as_u64().unwrap()))
    });
    sites.collect()
}

#[test]
fn guest_functions_of_modules_begin_and_end_where_readelf_and_objdump_say() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (flavour, name) in [
        ("686", "ext4"),
        ("686", "loop"),
        ("686", "e1000"),
        ("cloud-amd64", "loop"),
        ("cloud-amd64", "virtio_net"),
        ("cloud-amd64", "tun"),
        ("cloud-amd64", "net_failover"),
    ] {
        let file = root().join(format!(".guests/modules-{flavour}/{name}.ko")).display().to_string();
        let module = Module::new(&file);
        let entries: BTreeSet<Site> = module.functions.iter().map(|f| (f.name.clone(), 0)).collect();
        assert_eq!(listed(flavour, name, &file, "entry"), entries, "{flavour} {name}");
        let (ours, theirs) = (listed(flavour, name, &file, "return"), module.returns());
        let only =
            |a: &BTreeSet<Site>, b: &BTreeSet<Site>| a.difference(b).take(9).cloned().collect::<Vec<_>>();
        let differences = (only(&ours, &theirs), only(&theirs, &ours));
        assert_eq!(
            differences,
            (vec![], vec![]),
            "returns only listed, only shown by objdump: {flavour} {name}"
        );
        *counts.entry(flavour).or_default() += ours.len();
    }
    println!("returns: {counts:?}");
    assert!(counts["686"] > 1500 && counts["cloud-amd64"] > 300, "{counts:?}");
}
