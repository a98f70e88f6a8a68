//! The stacks of GNU Mach, by its own `.eh_frame`, compared with those that gdb finds in the same kernel under qemu.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{finish, patient, trapline};
use serde_json::Value;
use trapline_tests::{guest, root};

/// The return addresses of the first three stacks that gdb prints. It shows inlined functions too, without addresses. On a
/// busy host qemu sometimes stops twice for one call; none of the three calls has the stack of the one before.
fn gdb_stacks(kernel: &str) -> Vec<Vec<String>> {
    let qemu = "exec qemu-system-i386 -S -gdb stdio -m 256 -append console=com0 -display none -monitor none \
                -serial null -no-reboot -kernel";
    let mut gdb = patient("gdb");
    gdb.args(["-nx", "-batch", "-ex", "set architecture i386"]);
    gdb.args(["-ex", &format!("target remote | {qemu} {kernel}"), "-ex", "hbreak kmem_init", "-ex", "c"]);
    gdb.args(["-ex", "bt", "-ex", "delete", "-ex", "hbreak thread_create", "-ex", "c", "-ex", "bt"]);
    gdb.args(["-ex", "c", "-ex", "bt", "-ex", "c", "-ex", "bt", "-ex", "kill", kernel]);
    let said = finish(gdb);
    let mut found: Vec<Vec<String>> = Vec::new();
    for line in said.out.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), found.last_mut()) {
            (Some("#0"), _, _) => found.push(Vec::new()),
            (Some(number), Some(address), Some(stack))
                if number.starts_with('#') && address.starts_with("0x") =>
            {
                stack.push(address.to_owned());
            }
            _ => {}
        }
    }
    found.dedup();
    found.truncate(3);
    assert_eq!(found.len(), 3, "{}\n{}", said.out, said.err);
    found
}

#[test]
fn guest_gnumach_stacks_are_those_of_gdb() {
    let kernel = guest("gnumach");
    let clause = "fbt::kmem_init:entry,fbt::thread_create:entry";
    let args = ["run", &kernel, "--cmdline", "console=com0", "--rpn", clause, "-f", "json", "--stack=64"];
    let ran = trapline(&root(), &[&args[..], &["--stop-after", "3"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found: Vec<Vec<String>> =
        lines.filter(|line| line["type"] == "kernel-stack").map(|line| addresses(&line)).collect();
    assert_eq!(found, gdb_stacks(&kernel));
}

/// The addresses in the data of a stack record of 32 bits (docs/records.md).
fn addresses(record: &Value) -> Vec<String> {
    let hex = record["data"].as_str().unwrap();
    let data: Vec<u8> =
        (0..hex.len()).step_by(2).map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect();
    let name = usize::from(u16::from_le_bytes([data[5], data[6]]));
    assert_eq!((data[0], &data[7..7 + name]), (1, &b"gnumach"[..]));
    let frames = data[7 + name..].chunks_exact(5);
    frames.map(|row| format!("{:#x}", u32::from_le_bytes(row[1..].try_into().unwrap()))).collect()
}
