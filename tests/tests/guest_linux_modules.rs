//! fbt of Linux's modules: their functions and returns, compared with readelf and objdump; and in a guest that loads
//! one repeatedly.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use crate::cli::{Ran, finish, patient, trapline};
use serde_json::Value;
use trapline_tests::linux::QUICK;
use trapline_tests::{guest, root};

/// A function and an offset in it.
type Site = (String, u64);

/// A function of a module: its section's number, where it begins there, and its size.
#[derive(Debug, Clone)]
struct Function {
    name: String,
    section: usize,
    start: u64,
    size: u64,
}

/// A `ret` or a `jmp`.
struct Exit {
    section: usize,
    at: u64,
    bytes: Vec<u8>,
    text: String,
    relocation: Option<String>,
}

/// A module as readelf and objdump show it.
struct Module {
    sections: Vec<String>,
    functions: Vec<Function>,
    exits: Vec<Exit>,
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
                let relocation = more.last().map(|text| (*text).to_owned());
                exits.push(Exit { section, at, bytes, text: (*text).to_owned(), relocation });
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
    fn target(&self, exit: &Exit) -> Option<(usize, u64)> {
        let Some(relocation) = &exit.relocation else {
            return Some((exit.section, hex(exit.text.split_whitespace().nth(1)?)?));
        };
        let (name, addend) = match relocation.rsplit_once(['+', '-']) {
            Some((name, digits)) if relocation.contains('+') => (name, hex(digits)? as i64),
            Some((name, digits)) => (name, -(hex(digits)? as i64)),
            None => (relocation.as_str(), 0),
        };
        // IA32 keeps the addend in the instruction.
        let there = i64::from(i32::from_le_bytes(*exit.bytes.last_chunk()?)) + addend + 4;
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
            let jumps = exit.text.split_whitespace().any(|word| word == "jmp");
            let target = jumps.then(|| self.target(exit)).flatten();
            for function in self.at(exit.section, exit.at) {
                let own = |name: &str| name.split(".cold").next() == function.name.split(".cold").next();
                let inside = target.is_some_and(|(there, to)| {
                    self.at(there, to).any(|f| f.name == function.name || own(&f.name))
                        || self.sections[there] == ".altinstr_aux"
                });
                if !inside {
                    found.insert((function.name.clone(), exit.at - function.start));
                }
            }
        }
        found
    }
}

/// The functions of a module in `trapline list`.
fn listed(flavour: &str, name: &str, file: &str, end: &str) -> BTreeSet<Site> {
    let kernel = format!(".guests/linux-{flavour}");
    let given = format!("/lib/modules/{name}.ko={file}");
    let spec = format!("fbt:{}::{end}", name.replace('-', "_"));
    let out = run(&["list", &kernel, "--file", &given, &spec, "-f", "json", "-q"]).out;
    let sites = lines(&out, "probe").into_iter().flat_map(|probe| {
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
    ] {
        let file = guest(&format!("modules-{flavour}/{name}.ko"));
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
    assert!(counts["686"] > 1500 && counts["cloud-amd64"] > 250, "{counts:?}");
}

/// A kernel, and an initramfs with the module `loop`.
const KERNEL: &str = ".guests/linux-cloud-amd64";
const INITRD: &str = ".guests/stress-cloud-amd64.cpio.gz";

fn lines(text: &str, kind: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["type"] == kind).collect()
}

/// Runs `trapline` to its end.
fn run(args: &[&str]) -> Ran {
    let ran = trapline(&root(), args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran
}

/// How many sites the functions of `loop` have in its file.
fn sites_of_loop() -> u64 {
    let listed = run(&["list", KERNEL, "--initrd", INITRD, "fbt:loop::", "-f", "json", "-q"]).out;
    lines(&listed, "probe").iter().map(|probe| probe["sites"].as_array().unwrap().len() as u64).sum()
}

/// The commands for a shell in the initramfs: load a module, print its address, unload it, and load it again.
const MODULES: [&str; 5] = [
    "/bin/busybox mount -t proc proc /proc; alias load='/bin/busybox insmod /lib/modules/6*/loop.ko max_loop=1'",
    "load; /bin/busybox grep '.loop.$' /proc/kallsyms",
    "/bin/busybox rmmod loop; /bin/busybox uname",
    "load; /bin/busybox rmmod loop; load; /bin/busybox grep '.loop.$' /proc/kallsyms",
    "/bin/busybox rmmod loop; /bin/busybox uname",
];

/// Boots to a shell, types [`MODULES`], and returns the console's text.
fn with_modules(more: &[&str]) -> (Ran, String) {
    let folder = tempfile::TempDir::new().unwrap();
    let mut script = String::new();
    for (n, line) in MODULES.iter().enumerate() {
        script +=
            &format!("on console \"/ # \" {} query\non console \"/ # \" {0} type \"{line}\\n\"\n", n + 1);
    }
    script += &format!("on console \"/ # \" {} query\non console \"/ # \" {0} stop\n", MODULES.len() + 1);
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("s.script"), script).unwrap();
    let guest =
        ["run", KERNEL, "--initrd", INITRD, "--append", QUICK, "--append", "rdinit=/bin/busybox -- sh"];
    let files = ["--script", &path("s.script"), "--console", &path("console"), "--limit-insns", "5000000000"];
    let ran = run(&[&guest[..], &files[..], &["--digest", "-f", "json"], more].concat());
    (ran, String::from_utf8_lossy(&std::fs::read(path("console")).unwrap()).into_owned())
}

/// The addresses of a function of the module, as the guest printed them.
fn in_kallsyms(console: &str, function: &str) -> Vec<u64> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.len() == 4 && words[2..] == [function, "[loop]"])
            .then(|| u64::from_str_radix(words[0], 16).unwrap())
    };
    console.lines().filter_map(line).collect()
}

#[test]
fn guest_functions_of_a_module_fire_where_it_is_loaded_each_time_at_length() {
    let (plain, _) = with_modules(&[]);
    let (probed, console) = with_modules(&["--rpn", "fbt:loop:: { exit }", "--header", "esp"]);
    let end = |ran: &Ran| lines(&ran.out, "end")[0]["digest"].clone();
    assert_eq!(end(&probed), end(&plain), "the guest noticed the probes of its module");
    let hits = lines(&probed.out, "hit");
    let of = |probe: &str| -> Vec<&Value> {
        let name = format!("fbt:loop:{probe}");
        hits.iter().filter(|hit| hit["probe"] == name.as_str()).collect()
    };
    // Loaded and unloaded three times. The module's init function is in .init.text and has two names.
    for name in ["init_module", "loop_init", "loop_add", "lo_free_disk", "loop_exit", "cleanup_module"] {
        let sps =
            |end: &str| of(&format!("{name}:{end}")).iter().map(|hit| hit["sp"].clone()).collect::<Vec<_>>();
        assert_eq!(sps("entry").len(), 3, "{name} in {console}");
        assert_eq!(sps("entry"), sps("return"), "{name}");
    }
    for name in ["loop_add", "lo_free_disk"] {
        let hit: Vec<u64> = of(&format!("{name}:entry")).iter().map(|hit| number(&hit["ip"])).collect();
        let said = in_kallsyms(&console, name);
        assert_eq!([hit[0], hit[2]], said[..], "where {name} is");
    }
    // Armed while it is loaded, and not armed after it was unloaded.
    let sites = lines(&probed.out, "query").iter().map(armed).collect::<Vec<u64>>();
    let all = sites_of_loop();
    assert!(sites[2] > 100 && sites[2] < all, "all but those of .init.text: {sites:?} of {all}");
    assert_eq!([sites[0], sites[1], sites[3], sites[5]], [0; 4], "{sites:?}");
    assert_eq!(sites[4], sites[2]);
}

/// A number in hexadecimal of a record.
fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// How many sites are armed, as a query says.
fn armed(query: &Value) -> u64 {
    let points = query["programs"][0]["points"].as_array();
    points.into_iter().flatten().map(|point| point["sites"].as_u64().unwrap()).sum()
}
