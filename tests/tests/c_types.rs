//! C's types in D: random structs and enumerations, compiled with each version of DWARF and with BTF, for both widths.
//! gdb reads the same memory through the same description.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::Path;

use crate::cli::{Ran, finish, folder, patient, trapline};
use trapline_tests::root;

/// Structs in a program.
const STRUCTS: usize = 12;
/// Bytes of memory that each is laid over.
const ROOM: usize = 2048;
const BASE: &[&str] = &[
    "char",
    "signed char",
    "unsigned char",
    "short",
    "unsigned short",
    "int",
    "unsigned",
    "long",
    "unsigned long",
    "long long",
    "unsigned long long",
    "_Bool",
];
/// Enumerations of all ranges; `packed` ones are as small as their values.
const ENUMS: &str = "enum e_bytes { BA = 1, BB = 127, BC = 128, BD = 200, BE = 255 };
enum e_words { WA = 1, WB = 32768, WC = 40000, WD = 65535 };
enum e_high { HA = 1, HB = 0x80000000u, HC = 0xffffffffu };
enum e_negative { NA = -5, NB = 100, NC = -129, ND = 200 };
enum e_lowest { LA = -0x7fffffff - 1, LB = 0x7fffffff };
enum e_wide { XA = 1, XB = 0x8000000000ULL };
enum e_wide_negative { YA = -1, YB = 0x8000000000LL };
enum __attribute__((packed)) e_small { SA = 1, SB = 200 };
enum __attribute__((packed)) e_small_negative { TA = -1, TB = 100 };
enum __attribute__((packed)) e_middle { MA = 1, MB = 60000 };
typedef enum { AA = 3, AB = 0x90000000u } e_unnamed;
";
const ENUM_TYPES: &[&str] = &[
    "enum e_bytes",
    "enum e_words",
    "enum e_high",
    "enum e_negative",
    "enum e_lowest",
    "enum e_wide",
    "enum e_wide_negative",
    "enum e_small",
    "enum e_small_negative",
    "enum e_middle",
    "e_unnamed",
];
const ENUMERATORS: &[&str] = &[
    "BA", "BB", "BC", "BD", "BE", "WA", "WB", "WC", "WD", "HA", "HB", "HC", "NA", "NB", "NC", "ND", "LA",
    "LB", "XA", "XB", "YA", "YB", "SA", "SB", "TA", "TB", "MA", "MB", "AA", "AB",
];

/// A plain generator (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// What is asked of a struct: its scalar members by their paths, and the members whose offset C can say.
#[derive(Default)]
struct Asked {
    values: Vec<String>,
    /// Pointers, and what may be one.
    addresses: Vec<String>,
    offsets: Vec<String>,
}

/// Appends the members of a struct. `atomic`: whether the description can say `_Atomic`, as DWARF 5 does and BTF does
/// not.
fn members(
    random: &mut Random,
    text: &mut String,
    path: &str,
    depth: usize,
    atomic: bool,
    asked: &mut Asked,
) {
    for n in 0..2 + random.below(6) {
        let (name, own) =
            (format!("m{depth}_{n}_{}", random.below(1000)), |name: &str| format!("{path}{name}"));
        let placed = |asked: &mut Asked| asked.offsets.push(own(&name));
        match random.below(12) {
            0..=2 => {
                let qualifier =
                    random.one(&["", "const ", "volatile ", if atomic { "_Atomic " } else { "" }]);
                writeln!(text, "{qualifier}{} {name};", random.one(BASE)).unwrap();
                placed(asked);
                asked.values.push(own(&name));
            }
            3 => {
                writeln!(text, "{} {name};", random.one(ENUM_TYPES)).unwrap();
                placed(asked);
                asked.values.push(own(&name));
            }
            4..=6 => bit_field(random, text, &name, path, asked),
            7 => {
                let (rows, columns) = (1 + random.below(3), 1 + random.below(4));
                let at = (random.below(rows), random.below(columns));
                let of = if random.below(3) == 0 { random.one(ENUM_TYPES) } else { random.one(BASE) };
                // pahole describes an array of arrays as one of as many elements.
                let (length, index) = match atomic {
                    true => (format!("[{rows}][{columns}]"), format!("[{}][{}]", at.0, at.1)),
                    false => (format!("[{columns}]"), format!("[{}]", at.1)),
                };
                writeln!(text, "{of} {name}{length};").unwrap();
                placed(asked);
                asked.values.push(format!("{}{index}", own(&name)));
            }
            8 => {
                writeln!(
                    text,
                    "{} {name};",
                    random.one(&["void *", "struct s0 *const", "pointer_t", "number_t"])
                )
                .unwrap();
                placed(asked);
                asked.addresses.push(own(&name));
            }
            9 => {
                let of = random.one(&["float", "double", "long double", "_Complex double", "wide_t"]);
                writeln!(text, "{of} {name};").unwrap();
                placed(asked);
            }
            _ if depth < 3 => {
                let word = random.one(&["struct", "struct", "union"]);
                writeln!(text, "{word} {{").unwrap();
                let anonymous = random.below(2) == 0;
                let inner = if anonymous { path.to_owned() } else { format!("{}.", own(&name)) };
                members(random, text, &inner, depth + 1, atomic, asked);
                let packed = random.one(&["", "", "__attribute__((packed))"]);
                writeln!(text, "}} {packed} {};", if anonymous { "" } else { &name }).unwrap();
            }
            _ => writeln!(text, "char {name};").unwrap(),
        }
    }
}

fn bit_field(random: &mut Random, text: &mut String, name: &str, path: &str, asked: &mut Asked) {
    let (of, most) = match random.below(12) {
        0 => ("unsigned char", 8),
        1 => ("_Bool", 1),
        2 => ("long long", 56),
        3 => ("unsigned long long", 56),
        4 => ("enum e_bytes", 32),
        5 => ("enum e_negative", 32),
        6 => ("enum e_high", 32),
        7 => ("short", 16),
        8..=9 => ("unsigned", 32),
        _ => ("int", 32),
    };
    writeln!(text, "{of} {name} : {};", 1 + random.below(most)).unwrap();
    asked.values.push(format!("{path}{name}"));
}

/// A kernel's source, and what is asked of each struct.
fn source(random: &mut Random, atomic: bool, wide: bool) -> (String, Vec<Asked>) {
    let mut text = ENUMS.to_owned();
    let number = if wide { "__int128 wide_t" } else { "long double wide_t" };
    writeln!(
        text,
        "struct s0; typedef {number}; typedef const struct s0 *pointer_t; typedef volatile unsigned number_t;"
    )
    .unwrap();
    let mut all = Vec::new();
    for n in 0..STRUCTS {
        let mut asked = Asked::default();
        writeln!(text, "{} s{n} {{", if n % 5 == 4 { "union" } else { "struct" }).unwrap();
        members(random, &mut text, "", 0, atomic, &mut asked);
        writeln!(text, "}}{};", random.one(&["", "", " __attribute__((packed))"])).unwrap();
        let word = if n % 5 == 4 { "union" } else { "struct" };
        let bytes: Vec<String> = (0..ROOM).map(|_| (random.next() >> 40 & 0xff).to_string()).collect();
        writeln!(text, "{word} s{n} *p{n}; unsigned char raw{n}[] = {{ {} }};", bytes.join(",")).unwrap();
        all.push(asked);
    }
    let kept: Vec<String> = ENUM_TYPES.iter().enumerate().map(|(n, of)| format!("{of} kept{n};")).collect();
    writeln!(text, "{}\nint main{}(void) {{ return 0; }}", kept.join(" "), if wide { 64 } else { 32 })
        .unwrap();
    (text, all)
}

/// The D program and the script for gdb that print the same lines.
fn questions(all: &[Asked], addresses: &[u64]) -> (String, String, usize) {
    let (mut d, mut gdb, mut count) = ("BEGIN {\n".to_owned(), String::new(), 0);
    let mut ask = |own: &str, theirs: &str| {
        writeln!(d, "printf(\"{own} %d\\n\", (long long){own});").unwrap();
        writeln!(gdb, "printf \"{own} %lld\\n\", (long long){theirs}").unwrap();
        count += 1;
    };
    for name in ENUMERATORS {
        ask(name, name);
    }
    for (n, asked) in all.iter().enumerate() {
        let word = if n % 5 == 4 { "union" } else { "struct" };
        let it = format!("(({word} s{n} *){:#x})", addresses[n]);
        ask(&format!("sizeof({word} s{n})"), &format!("sizeof({word} s{n})"));
        for path in &asked.offsets {
            let plain = !path.contains('.');
            if plain {
                let address = format!("(unsigned long)&(({word} s{n} *)0)->{path}");
                ask(&format!("offsetof({word} s{n}, {path})"), &address);
            }
        }
        for path in &asked.values {
            ask(&format!("{it}->{path}"), &format!("{it}->{path}"));
        }
        for path in &asked.addresses {
            ask(&format!("(unsigned long){it}->{path}"), &format!("(unsigned long){it}->{path}"));
        }
    }
    d.push_str("exit(0);\n}\n");
    (d, gdb, count)
}

fn tool(folder: &Path, program: &str, args: &[&str]) -> Ran {
    let mut command = patient(program);
    command.args(args).current_dir(folder);
    let ran = finish(command);
    assert_eq!(ran.code, 0, "{program} {args:?}: {} (`scripts/bootstrap` installs it)", ran.err);
    ran
}

/// Builds a kernel with one description of its types, and compares.
fn compare(seed: u64, debug: &str, wide: bool) -> usize {
    let is_btf = debug == "btf";
    // Only DWARF 5 can say `_Atomic`; before, gcc leaves the word out.
    let atomic = !is_btf;
    let (text, all) = source(&mut Random(seed), atomic, wide);
    let folder = folder(&[("types.c", text.as_bytes())]);
    let at = folder.path();
    let bits = if wide { "64" } else { "32" };
    let parts = root().join("tests/field/parts");
    let part = |name: &str| parts.join(format!("{name}{bits}.{}", if name == "mb" { "ld" } else { "S" }));
    let option = if is_btf { "-gdwarf-4".to_owned() } else { format!("-gdwarf-{debug}") };
    let (script, start) = (format!("-Wl,-T,{}", part("mb").display()), part("pre").display().to_string());
    let width = format!("-m{bits}");
    tool(
        at,
        "gcc",
        &[
            &width,
            &option,
            "-w",
            "-nostdlib",
            "-static",
            "-no-pie",
            "-fno-pie",
            &script,
            "-o",
            "kernel",
            &start,
            "types.c",
        ],
    );
    if is_btf {
        tool(at, "pahole", &["-J", "kernel"]);
    }
    let symbols = tool(at, "nm", &["kernel"]).out;
    let address = |n: usize| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" raw{n}"))).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    let addresses: Vec<u64> = (0..STRUCTS).map(address).collect();
    let (program, script, count) = questions(&all, &addresses);
    std::fs::write(at.join("types.d"), &program).unwrap();
    std::fs::write(at.join("types.gdb"), script).unwrap();
    let theirs = tool(at, "gdb", &["-nx", "-batch", "-x", "types.gdb", "kernel"]).out;
    let cpu = if wide { "x86-64" } else { "ia32" };
    let ours = trapline(
        at,
        &["run", "kernel", "--cpu", cpu, "-q", "-x", "quiet", "--console", "none", "-s", "types.d"],
    );
    assert_eq!(ours.code, 0, "{debug} {bits} {seed}: {}", ours.err);
    let ours: Vec<&str> = ours.out.lines().filter(|line| !line.is_empty()).collect();
    let theirs: Vec<&str> = theirs.lines().collect();
    assert_eq!((ours.len(), theirs.len()), (count, count), "{debug} {bits} {seed}");
    let wrong: Vec<String> = ours
        .iter()
        .zip(&theirs)
        .filter(|(ours, theirs)| ours != theirs)
        .map(|(ours, theirs)| format!("ours {ours}, gdb {theirs}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "{debug} {bits} {seed}:\n{}\n{text}",
        wrong.join("\n"),
        text = text.lines().filter(|line| !line.contains("raw")).collect::<Vec<_>>().join("\n")
    );
    count
}

#[test]
fn types_are_what_gdb_reads_from_each_version_of_dwarf() {
    let mut seed = 0x1234_5678;
    for debug in ["2", "3", "4", "5"] {
        for wide in [true, false] {
            for _ in 0..3 {
                seed += 0x9e37_79b9;
                assert!(compare(seed, debug, wide) > 60);
            }
        }
    }
}

#[test]
fn types_are_the_same_from_btf() {
    for (seed, wide) in [(77, true), (78, false), (79, true), (80, false)] {
        assert!(compare(seed * 0x9e37_79b9, "btf", wide) > 60);
    }
}
