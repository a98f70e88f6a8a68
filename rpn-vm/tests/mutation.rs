//! Hostile input: bytes and words of every program in the repository, mutated. Nothing panics, nothing hangs, memory
//! stays small. Deterministic; `TRAPLINE_MUTATIONS` sets the number of texts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::path::{Path, PathBuf};

use trapline_rpn::{AnySymbol, Diagnostics, LIBRARY, Loader, ParseOptions, Width, parse_with, preprocess};

/// A generator of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// Every include finds the text itself, or one that includes two others.
struct Wild<'a>(&'a str, usize);

impl Loader for Wild<'_> {
    fn load(&mut self, path: &str, _: &str) -> Result<(String, String), String> {
        self.1 += 1;
        match self.1 % 3 {
            0 => Err("no such file".to_owned()),
            1 => Ok((path.to_owned(), self.0.to_owned())),
            _ => Ok((format!("{path}{}", self.1), "#include \"a\"\n#include \"b\"\npush 1\n".to_owned())),
        }
    }
}

fn all_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all_files(&path, into) } else { into.push(path) }
    }
}

/// Programs, the library, the tables of cases, the documents: all files that contain the language.
fn corpus() -> Vec<Vec<u8>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["../examples", "../docs", "tests/conformance", "tests/preprocessor"] {
        all_files(&here.join(folder), &mut paths);
    }
    paths.sort();
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for path in paths {
        let text = std::fs::read(path).unwrap();
        // A long file is split into pieces.
        texts.extend(text.chunks(3000).take(8).map(<[u8]>::to_vec));
    }
    texts.extend(LIBRARY.iter().map(|(_, text)| text.as_bytes().to_vec()));
    assert!(texts.len() > 40);
    texts
}

const WORDS: &[&str] = &[
    "#define A A A\n",
    "#define F(x) x F(x)\n",
    "#define G(x,...) #x x##x __VA_ARGS__\n",
    "F(F(",
    "G(1,2)",
    "A",
    "#if 1\n",
    "#endif\n",
    "#else\n",
    "#elif (((\n",
    "#include \"a\"\n",
    "#include <trapline/bits.rpn>\n",
    "#line 9 \"x\"\n",
    "#undef F\n",
    "##",
    "/*",
    "*/",
    "\\\n",
    "\"",
    "'",
    "(",
    ")",
    "\n",
    "push ",
    "pop ",
    "lv, ",
    "0x",
    "99999999999999999999",
    "-",
    "loop x\n",
    "x:\n",
    "proc p\n",
    "endproc\n",
    "call p\n",
    "sx x\n",
    "ux\n",
    "offset = 1\n",
    "opcode = 1\n",
    "name = t\n",
    "modtype = kernel\n",
    "watchpoint = w\n",
    "log 65535\n",
    "dup 1023\n",
    "pop lp\n",
    "\u{e9}",
    "\0",
    "\u{feff}",
    "\r\n",
];

fn mutated(random: &mut Random, corpus: &[Vec<u8>]) -> String {
    let mut text = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(8) {
        let at = random.below(text.len() + 1);
        let to = (at + random.below(40)).min(text.len());
        match random.below(7) {
            0 => text.insert(at, random.below(256) as u8),
            1 => drop(text.drain(at..to)),
            2 => drop(text.splice(at..at, text[at..to].to_vec())),
            3 => drop(text.splice(at..at, WORDS[random.below(WORDS.len())].bytes())),
            4 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len());
                let piece = other[from..(from + 200).min(other.len())].to_vec();
                text.splice(at..to, piece);
            }
            5 => {
                let word = WORDS[random.below(WORDS.len())].repeat(1 + random.below(200));
                text.splice(at..at, word.bytes());
            }
            _ => {
                if let Some(byte) = text.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn bounded(found: &Diagnostics) {
    assert!(found.list.len() <= Diagnostics::LIMIT);
    for one in &found.list {
        assert!(one.notes.len() < 24 && one.to_string().len() < 100_000);
    }
}

#[test]
fn mutated_programs_never_panic_hang_or_fill_memory() {
    let count: usize = std::env::var("TRAPLINE_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let corpus = corpus();
    let mut random = Random(1);
    let mut compiled = 0;
    for n in 0..count {
        let text = mutated(&mut random, &corpus);
        let options =
            ParseOptions { defines: vec![("N".to_owned(), "3".to_owned())], ..ParseOptions::default() };
        match parse_with("m", &text, &options, &mut Wild(&text, n)) {
            Ok(program) => {
                compiled += 1;
                bounded(&program.warnings);
                for width in [Width::W32, Width::W64] {
                    if let Err(found) = program.link(width, &AnySymbol) {
                        bounded(&found);
                    }
                }
            }
            Err(found) => bounded(&found),
        }
        let done = preprocess("m", &text, &options, &mut Wild(&text, n));
        bounded(&done.found);
        assert!(done.text.len() < 256 << 20, "text {n}");
    }
    assert!(compiled > 0);
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kilobytes < 1 << 20, "{kilobytes} kB");
        println!("{compiled} of {count} compiled, peak {kilobytes} kB");
    }
}

/// Programs of a size: many probes, labels, scopes, nested conditions and macros, comments, and calls.
fn large(size: usize) -> [String; 6] {
    let header = "name = t\nmodtype = kernel\nvars = 4\n";
    let probes: String = (0..size * 100)
        .map(|n| format!("offset = {n}\nopcode = 1\npush {n}\nlog 1\npush plp\npop lp\ncall p\nexit\n"))
        .collect();
    let point = "offset = 0\nopcode = 1\n";
    let labels: String =
        (0..size * 500).map(|n| format!("l{n}: push r, eax\njz l{}\nros 1\n", n / 2)).collect();
    let scopes: String = (0..size * 200).map(|n| format!("sx e{n}\npush 1\nros 1\ne{n}: nop\n")).collect();
    let deep: String = (0..size * 30).map(|n| format!("#if 1\n#define M{n} M{} + 1\n", n + 1)).collect();
    [
        format!("{header}{probes}proc p\nnop\nendproc\n"),
        format!("{header}{point}{labels}"),
        format!("{header}{point}{scopes}ux\n"),
        format!("{header}{deep}{point}push M0\n{}", "#endif\n".repeat(size * 30)),
        format!("{header}{point}{}", "push 1 + 1 /*\n*/\n".repeat(size * 1000)),
        format!("{header}{point}{}", "call p\n".repeat(size * 1000) + "proc p\nnop\nendproc\n"),
    ]
}

/// Nanoseconds for which this thread has had a processor.
fn processor_time() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// A program four times as large takes about four times as much, and not sixteen times. Both run in turn on the same
/// processor, and the least of several attempts counts: a slow host, and other programs on it, change nothing in that.
#[test]
fn large_programs_take_time_in_proportion() {
    const ATTEMPTS: usize = 4;
    for (n, (whole, part)) in large(100).iter().zip(large(25)).enumerate() {
        let compiled = |text: &str| {
            let begun = processor_time();
            let result = parse_with("large", text, &ParseOptions::default(), &mut Wild("", 0));
            let took = processor_time() - begun;
            let found = result.map_or_else(|found| found, |program| program.warnings);
            bounded(&found);
            took
        };
        let attempts: Vec<_> = (0..ATTEMPTS).map(|_| (compiled(&part), compiled(whole))).collect();
        let of_part = attempts.iter().map(|(part, _)| *part).min().unwrap();
        let of_whole = attempts.iter().map(|(_, whole)| *whole).min().unwrap();
        println!("case {n}: {} bytes take {of_part} ns, {} {of_whole}", part.len(), whole.len());
        assert!(of_whole < of_part * 10, "case {n}: {of_part} ns, and {of_whole} for four times as much");
    }
}
