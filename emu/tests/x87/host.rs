//! The CPU of the host as an oracle.

use super::cases::OPERATIONS;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use trapline_emu::x87::{F80, Operation, X87};

/// Bytes of an image of FSAVE in protected mode: control, status and tag word, pointers, the registers from the top.
const IMAGE: usize = 108;
const REGISTERS: usize = 28;
const TOP: u16 = 0x3800;

fn image(x87: &X87) -> [u8; IMAGE] {
    let mut bytes = [0; IMAGE];
    let tags = (0..8).filter(|n| x87.empty[*n]).fold(0u16, |all, n| all | 3 << (2 * n));
    for (at, word) in [(0, x87.control), (4, x87.status | (x87.top as u16) << 11), (8, tags)] {
        bytes[at..at + 2].copy_from_slice(&word.to_le_bytes());
    }
    for n in 0..8 {
        let value = x87.registers[(x87.top + n) % 8].to_bytes();
        bytes[REGISTERS + 10 * n..][..10].copy_from_slice(&value);
    }
    bytes
}

fn state(control: u16, bytes: &[u8]) -> X87 {
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (status, tags) = (word(4), word(8));
    let top = usize::from(status >> 11 & 7);
    let mut registers = [F80 { head: 0, mantissa: 0 }; 8];
    for n in 0..8 {
        registers[(top + n) % 8] = F80::from_bytes(bytes[REGISTERS + 10 * n..][..10].try_into().unwrap());
    }
    let empty = std::array::from_fn(|n| tags >> (2 * n) & 3 == 3);
    X87 { control, status: status & !TOP, top, empty, registers }
}

/// Executes the cases on the host.
pub fn run(cases: &[(Operation, X87)]) -> Vec<X87> {
    static BUILDS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let build = BUILDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("x87-host-{}-{build}", std::process::id());
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/x87/host.c");
    let built = Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(built.success());
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = Vec::new();
    for (operation, x87) in cases {
        input.push(OPERATIONS.iter().position(|one| one == operation).unwrap() as u8);
        input.extend(image(x87));
    }
    let mut to = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || to.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    std::fs::remove_file(&program).unwrap();
    assert!(output.status.success() && output.stdout.len() == IMAGE * cases.len(), "{:?}", output.status);
    cases.iter().zip(output.stdout.chunks(IMAGE)).map(|((_, x87), bytes)| state(x87.control, bytes)).collect()
}
