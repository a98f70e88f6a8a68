//! fbt on functions of every shape that providers.md F names, in a kernel that is assembled here.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod cli;

use std::path::Path;

use cli::{finish, patient, trapline};
use serde_json::Value;
use tempfile::TempDir;

/// Calls `ten(1..10)`, `depth(5)`, `three(0)`, `three(1)`, `three(2)` and `leaf()`.
const SOURCE: &str = "
.text
.macro function name
.globl \\name
.type \\name, @function
\\name:
.endm
function _start
    mov $top, %esp
    .irp n, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1
    push $\\n
    .endr
    call ten
    push $5
    call depth
    .irp n, 0, 1, 2
    push $\\n
    call three
    .endr
    call leaf
    cli
    hlt
.size _start, . - _start
function ten
    push %ebp
    .byte 0x8b, 0xec
    mov 0x2c(%ebp), %eax
    leave
    ret
.size ten, . - ten
function depth
    push %ebp
    .byte 0x89, 0xe5
    mov 8(%ebp), %eax
    test %eax, %eax
    jz 1f
    dec %eax
    push %eax
    call depth
    add $4, %esp
1:  inc %eax
    leave
    ret
.size depth, . - depth
function three
    mov 4(%esp), %eax
    test %eax, %eax
    jz 1f
    dec %eax
    jz 2f
    mov $30, %eax
    ret
1:  mov $10, %eax
    ret
2:  mov $20, %eax
    ret
.size three, . - three
function leaf
    mov $7, %eax
    ret
.size leaf, . - leaf
.bss
.skip 4096
top:
";

fn kernel() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("kernel.s"), SOURCE).unwrap();
    let mut command = patient("gcc");
    let flags =
        "-m32 -nostdlib -static -no-pie -Wl,-Ttext-segment=0x100000 -Wl,-z,noexecstack -o kernel kernel.s";
    command.args(flags.split_whitespace()).current_dir(folder.path());
    let made = finish(command);
    assert_eq!(made.code, 0, "{}", made.err);
    folder
}

/// The hits of these clauses: the probe's name, its data in words, and the stack pointer.
fn hits(folder: &Path, clauses: &[&str]) -> Vec<(String, Vec<u32>, u64)> {
    let mut args = vec!["run", "kernel", "-f", "json", "--header", "esp", "-q", "--console", "none"];
    clauses.iter().for_each(|clause| args.extend(["-n", clause]));
    let ran = trapline(folder, &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let hit = |line: Value| {
        let text = line["data"].as_str().unwrap_or_default();
        let bytes: Vec<u8> = text
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let words = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let sp = u64::from_str_radix(line["sp"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        (line["probe"].as_str().unwrap().trim_start_matches("fbt:kernel:").to_owned(), words, sp)
    };
    lines.filter(|line| line["type"] == "hit").map(hit).collect()
}

/// The sites of the probes that a description names: identifier, and how far each is from its function's start.
fn sites(folder: &Path, spec: &str, rules: &str) -> Vec<(u64, Vec<u64>)> {
    let ran = trapline(folder, &["list", "kernel", spec, "--fbt", rules, "-f", "json", "-q"]);
    if ran.code == 3 {
        return Vec::new();
    }
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let probes = lines.filter(|line| line["type"] == "probe");
    let offsets = |probe: &Value| {
        probe["sites"].as_array().unwrap().iter().map(|site| site["offset"].as_u64().unwrap()).collect()
    };
    probes.map(|probe| (probe["id"].as_u64().unwrap(), offsets(&probe))).collect()
}

#[test]
fn three_rets_are_one_probe_with_one_identifier_and_tell_which_it_was() {
    let folder = kernel();
    let found = sites(folder.path(), "fbt::three:return", "full");
    let [(_, offsets)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(offsets.len(), 3);
    let told = hits(folder.path(), &["fbt::three:return"]);
    let values: Vec<u32> = told.iter().map(|(_, words, _)| words[1]).collect();
    assert_eq!(values, [10, 20, 30]);
    // The last `ret` of the source is that of 20, the first that of 30.
    let order: Vec<u64> = told.iter().map(|(_, words, _)| words[0].into()).collect();
    assert_eq!(order, [offsets[1], offsets[2], offsets[0]]);
}

#[test]
fn ten_arguments_and_what_is_returned_are_those_of_the_call() {
    let folder = kernel();
    let push: String = (0..10).rev().map(|n| format!("push arg, {n}; ")).collect();
    let told = hits(folder.path(), &[&format!("fbt::ten:entry {{ {push}log 10 }}"), "fbt::ten:return"]);
    let [entry, back] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(entry.1, (1..=10).collect::<Vec<u32>>());
    assert_eq!(back.1[1], 10, "its last argument");
    // leave is what stands before the return.
    assert_eq!(u64::from(back.1[0]), sites(folder.path(), "fbt::ten:return", "full")[0].1[0]);
}

#[test]
fn entries_and_returns_of_a_recursion_balance() {
    let folder = kernel();
    let told = hits(folder.path(), &["fbt::depth:"]);
    let (entries, returns) = told.split_at(6);
    assert_eq!(told.len(), 12);
    assert!(entries.iter().all(|(name, ..)| name == "depth:entry"), "{told:?}");
    assert_eq!(entries.iter().map(|(_, words, _)| words[0]).collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0]);
    assert!(returns.iter().all(|(name, ..)| name == "depth:return"), "{told:?}");
    assert_eq!(returns.iter().map(|(_, words, _)| words[1]).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    // Innermost first, each where it came in.
    let stack = |hits: &[(String, Vec<u32>, u64)]| hits.iter().map(|(.., sp)| *sp).collect::<Vec<_>>();
    assert_eq!(stack(entries).into_iter().rev().collect::<Vec<_>>(), stack(returns));
}

#[test]
fn both_frames_are_strict_entries_and_a_function_without_one_is_only_ours() {
    let folder = kernel();
    for (function, strict) in [("ten", 1), ("depth", 1), ("three", 0), ("leaf", 0)] {
        let spec = format!("fbt::{function}:entry");
        assert_eq!(sites(folder.path(), &spec, "strict").len(), strict, "{function}");
        let full = sites(folder.path(), &spec, "full");
        assert!(matches!(full.as_slice(), [(_, offsets)] if *offsets == [0]), "{function}: {full:?}");
        assert!(!hits(folder.path(), &[&spec]).is_empty(), "{function}");
    }
}
