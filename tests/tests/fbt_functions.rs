//! fbt on functions of every shape: the behaviours of DTrace's provider, one by one, in a small kernel made for this
//! test.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::process::Command;

use crate::cli::{Ran, finish, patient, trapline};
use serde_json::Value;
use tempfile::TempDir;
use trapline_tests::root;

/// The kernel, made by the assembler and the linker.
struct Kernel {
    folder: TempDir,
    /// Its symbols, as nm has them.
    symbols: BTreeMap<String, u64>,
}

fn output(mut command: Command) -> String {
    let ran = finish(std::mem::replace(&mut command, Command::new("true")));
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out
}

impl Kernel {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let tool = |program: &str, args: &[&str]| {
            let mut command = patient(program);
            command.args(args).current_dir(folder.path());
            output(command)
        };
        let source = root().join("tests/tests/fbt_functions/kernel.s").display().to_string();
        tool("as", &["--32", "-o", "kernel.o", &source]);
        tool("ld", &["-m", "elf_i386", "-Ttext", "0x200000", "-o", "kernel", "kernel.o"]);
        let rows = tool("nm", &["kernel"]);
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[2].to_owned(), u64::from_str_radix(words[0], 16).unwrap())
        };
        Self { symbols: rows.lines().map(row).collect(), folder }
    }

    fn trapline(&self, args: &[&str]) -> Ran {
        let ran = trapline(self.folder.path(), args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        ran
    }

    /// Runs it to its end.
    fn run(&self, more: &[&str]) -> Vec<Value> {
        let args = ["run", "kernel", "-f", "json", "--digest", "--limit-insns", "100000", "-q"];
        let ran = self.trapline(&[&args[..], &["--console", "console"], more].concat());
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The output of the kernel's own handlers.
    fn console(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("console")).unwrap()
    }

    /// The hits of a `-n`.
    fn hits(&self, clause: &str) -> Vec<Value> {
        of(&self.run(&["--rpn", clause, "--header", "esp"]), "hit")
    }

    fn symbol(&self, name: &str) -> u64 {
        self.symbols[name]
    }
}

fn of(lines: &[Value], kind: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["type"] == kind).cloned().collect()
}

fn digest(lines: &[Value]) -> Value {
    of(lines, "end")[0]["digest"].clone()
}

/// A number in hexadecimal of a record.
fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// The words that a hit has logged.
fn words(hit: &Value) -> Vec<u64> {
    let data = hit["data"].as_str().unwrap();
    let byte = |at: usize| u64::from_str_radix(&data[at..at + 2], 16).unwrap();
    (0..data.len() / 8).map(|word| (0..4).rev().fold(0, |n, b| n << 8 | byte(8 * word + 2 * b))).collect()
}

fn ips(hits: &[Value]) -> Vec<u64> {
    hits.iter().map(|hit| number(&hit["ip"])).collect()
}

#[test]
fn both_encodings_of_the_frame_are_entered_and_left_by_strict_rules() {
    let kernel = Kernel::new();
    for (name, leave) in [("framed", 3), ("framed_the_other_way", 3)] {
        let lines = kernel.run(&["--fbt", "strict", "--rpn", &format!("fbt::{name}: {{ exit }}")]);
        let at = kernel.symbol(name);
        assert_eq!(ips(&of(&lines, "hit")), [at, at + leave], "{name}");
    }
}

#[test]
fn a_function_without_a_frame_or_after_endbr_has_its_first_byte_and_its_ret_by_full_rules() {
    let kernel = Kernel::new();
    for (name, ret) in [("frameless", 11), ("branch_target", 8)] {
        let at = kernel.symbol(name);
        assert_eq!(ips(&kernel.hits(&format!("fbt::{name}: {{ exit }}"))), [at, at + ret], "{name}");
        let strict =
            trapline(kernel.folder.path(), &["list", "kernel", &format!("fbt::{name}:"), "--fbt", "strict"]);
        assert!(strict.err.contains("does not match any probes"), "{name}: {}", strict.err);
    }
}

#[test]
fn three_ways_out_are_one_probe_each_with_its_offset_and_value() {
    let kernel = Kernel::new();
    let listed = kernel.trapline(&["list", "kernel", "fbt::three:return", "-f", "json", "-q"]).out;
    let probes: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let probes = of(&probes, "probe");
    let ways = ["first_way", "second_way", "third_way"].map(|name| kernel.symbol(name));
    let sites: Vec<u64> =
        probes[0]["sites"].as_array().unwrap().iter().map(|site| number(&site["address"])).collect();
    assert_eq!((probes.len(), sites), (1, ways.to_vec()));
    let hits = kernel.hits("fbt::three:return");
    assert!(hits.iter().all(|hit| hit["id"] == probes[0]["id"]), "{hits:?}");
    let expected: Vec<_> = ways.iter().zip(10..).map(|(way, n)| [way - kernel.symbol("three"), n]).collect();
    assert_eq!(hits.iter().map(words).collect::<Vec<_>>(), expected);
}

#[test]
fn ten_arguments_are_those_of_the_call() {
    let kernel = Kernel::new();
    let push: String = (0..10).rev().map(|n| format!("push arg, {n}; ")).collect();
    let hits = kernel.hits(&format!("fbt::ten:entry {{ {push} log 10 }}"));
    assert_eq!(words(&hits[0]), (101..=110).collect::<Vec<u64>>());
}

#[test]
fn a_recursion_is_left_as_often_as_it_is_entered_and_in_the_reverse_order() {
    let kernel = Kernel::new();
    let hits = kernel.hits("fbt::factorial:");
    let (entries, returns) = hits.split_at(5);
    let sps = |hits: &[Value]| hits.iter().map(|hit| number(&hit["sp"])).collect::<Vec<_>>();
    let mut reversed = sps(returns);
    reversed.reverse();
    assert_eq!(sps(entries), reversed);
    assert!(reversed.is_sorted_by(|a, b| a > b), "{reversed:x?}");
    let arguments: Vec<u64> = entries.iter().map(|hit| words(hit)[0]).collect();
    let values: Vec<u64> = returns.iter().map(|hit| words(hit)[1]).collect();
    assert_eq!((arguments, values), (vec![5, 4, 3, 2, 1], vec![1, 2, 6, 24, 120]));
}

#[test]
fn the_kernels_own_breakpoint_and_undefined_instruction_reach_it_with_their_exact_addresses() {
    let kernel = Kernel::new();
    let plain = kernel.run(&[]);
    // #BP is a trap, so its address is the next one; #UD a fault. Each is on the first byte of its function's entry.
    let said = format!("{:08x}\n{:08x}\n", kernel.symbol("breakpoint") + 1, kernel.symbol("invalid"));
    assert_eq!(kernel.console(), said);
    let probed = kernel.run(&["--rpn", "fbt::: { exit }"]);
    assert_eq!((kernel.console(), digest(&probed)), (said, digest(&plain)));
    let entered = |name: &str| {
        let name = format!("fbt:kernel:{name}:entry");
        of(&probed, "hit").iter().filter(|hit| hit["probe"] == name.as_str()).count()
    };
    // The instruction at the second's entry never completes, so the hit leaves no record.
    assert_eq!([entered("breakpoint"), entered("invalid")], [1, 0]);
}

#[test]
fn two_probes_at_one_address_are_disabled_one_by_one_and_then_nothing_is_patched() {
    let kernel = Kernel::new();
    let write = |name: &str, text: &str| std::fs::write(kernel.folder.path().join(name), text).unwrap();
    let point = |group: &str, minor: u32| {
        format!("offset = \"fbt::often:entry\"\ngroup = {group}\nminor = {minor}\nexit\n")
    };
    let program = format!(
        "name = kernel\nmodtype = kernel\nmajor = 1\ngroupdef = a, b\n{}{}",
        point("a", 1),
        point("b", 2)
    );
    write("two.rpn", &program);
    let plain = kernel.run(&[]);
    let all = of(&kernel.run(&["-p", "two.rpn"]), "hit");
    assert_eq!(all.len(), 20);
    // Between two calls: after the fourth, and after the seventh.
    let after = |call: usize| all[2 * call - 1]["icount"].as_u64().unwrap() + 1;
    let script = format!(
        "at insns={} disable group=a\nat insns={0} query\nat insns={} disable group=b\nat insns={1} query\n",
        after(4),
        after(7)
    );
    write("s.script", &script);
    let lines = kernel.run(&["-p", "two.rpn", "--script", "s.script"]);
    let hits = of(&lines, "hit");
    let minors = |minor: u64| hits.iter().filter(|hit| hit["minor"] == minor).count();
    assert_eq!([minors(1), minors(2)], [4, 7]);
    let armed = |query: &Value| -> Vec<u64> {
        let points = query["programs"][0]["points"].as_array().unwrap();
        points.iter().map(|point| point["sites"].as_u64().unwrap()).collect()
    };
    assert_eq!(of(&lines, "query").iter().map(armed).collect::<Vec<_>>(), [[0, 1], [0, 0]]);
    assert_eq!(digest(&lines), digest(&plain));
}
