//! No sequence of bytes that a guest executes ends the process or hangs it.
//!
//! The test runs itself in child processes. A child executes one sequence after the other and writes each to a file
//! first. If a child dies or hangs, the file names the sequence. `TRAPLINE_HOSTILE_STEP=1` tries all sequences of the
//! grid (an hour); otherwise every [`STEP`]th is tried, and all with LOCK before a bit test.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use crate::patience::looks;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trapline_emu::{Snapshot, Stop};

/// One of this many sequences is tried.
const STEP: u64 = 1009;
/// Names the variable with a child's arguments: mode, step, and the file for its notes.
const CHILD: &str = "TRAPLINE_HOSTILE_CHILD";
/// Where 16-bit code lies: below 64 KiB.
const CODE_16: u64 = 0x7000;

const PREFIXES: [&[u8]; 24] = [
    &[],
    &[0xf0],
    &[0xf2],
    &[0xf3],
    &[0x66],
    &[0x67],
    &[0x48],
    &[0xf0, 0x48],
    &[0xf0, 0x66],
    &[0x66, 0xf0],
    &[0xf0, 0x67],
    &[0xf0, 0xf2],
    &[0xf0, 0xf3],
    &[0xf2, 0xf0],
    &[0x66, 0xf2],
    &[0x66, 0xf3],
    &[0x66, 0x67],
    &[0xf3, 0x48],
    &[0xf2, 0x48],
    &[0x66, 0x48],
    &[0x65, 0xf0, 0x4d],
    &[0x2e],
    &[0x64, 0x45],
    &[0xf2, 0xf3],
];

/// Opcode maps, by the bytes before the opcode.
const MAPS: [&[u8]; 12] = [
    &[],
    &[0x0f],
    &[0x0f, 0x38],
    &[0x0f, 0x3a],
    // VEX of two and three bytes, XOP, EVEX.
    &[0xc5, 0xf8],
    &[0xc5, 0x7d],
    &[0xc4, 0xe1, 0x79],
    &[0xc4, 0xe2, 0xfd],
    &[0xc4, 0xe3, 0x7b],
    &[0x8f, 0xe8, 0x78],
    &[0x62, 0xf1, 0x7c, 0x48],
    &[0x62, 0xf2, 0xfd, 0x08],
];

const GRID: u64 = (PREFIXES.len() * MAPS.len() * 256 * 256) as u64;

/// Sequence number `n` of the grid.
fn sequence(n: u64) -> Vec<u8> {
    let (modrm, n) = (n as u8, n >> 8);
    let (opcode, n) = (n as u8, n >> 8);
    let (map, prefix) = (MAPS[n as usize % MAPS.len()], PREFIXES[n as usize / MAPS.len()]);
    [prefix, map, &[opcode, modrm, 0x05, 0x11, 0x80, 0x40, 0x90, 0x90]].concat()
}

/// LOCK before bit tests, which the engine cannot translate for a register: each prefix before and after it.
fn locked_bit_tests() -> Vec<Vec<u8>> {
    let others: [&[u8]; 8] = [&[], &[0x66], &[0x67], &[0xf2], &[0xf3], &[0x2e], &[0x65], &[0x48]];
    let mut all = Vec::new();
    for before in others {
        for after in others {
            for opcode in [0xa3, 0xab, 0xb3, 0xbb, 0xba] {
                for modrm in [0xc0, 0xe1, 0xea, 0xf3, 0xff] {
                    all.push([before, &[0xf0], after, &[0x0f, opcode, modrm, 0x05, 0x90, 0x90]].concat());
                }
            }
        }
    }
    all
}

struct Child {
    bits: u32,
    g: Guest,
    start: Snapshot,
    notes: File,
}

impl Child {
    fn new(bits: u32, notes: &Path) -> Self {
        let setup = match bits {
            // jmp far 68h:7000h
            16 => Setup::bits32().code(&[0xea, 0, 0x70, 0, 0, CODE16 as u8, 0]),
            bits => Setup::bits(bits),
        };
        let mut g = setup.boot();
        for n in [0, 1, 2, 3, 5, 6, 7] {
            g.set(n, DATA + 8 * n as u64);
        }
        let start = g.m.snapshot();
        Child { bits, g, start, notes: File::create(notes).unwrap() }
    }

    fn execute(&mut self, bytes: &[u8]) {
        let mut note = [0u8; 24];
        note[0] = bytes.len() as u8;
        note[1..=bytes.len()].copy_from_slice(bytes);
        self.notes.write_at(&note, 0).unwrap();
        self.g.m.restore(&self.start).unwrap();
        let at = if self.bits == 16 { CODE_16 } else { CODE };
        self.g.m.write_physical(at, bytes);
        let limit = self.g.m.icount() + 3;
        let stop = self.g.m.run(None, limit);
        assert!(!matches!(stop, Stop::Engine(_) | Stop::Panicked(_)), "{bytes:02x?}: {stop:?}");
    }
}

/// The child's part, if this is one.
fn be_a_child() -> bool {
    let Ok(told) = std::env::var(CHILD) else { return false };
    let mut words = told.splitn(4, ' ');
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (bits, first, step) = (number(), number(), number());
    let mut child = Child::new(bits as u32, Path::new(words.next().unwrap()));
    if step > 1 {
        locked_bit_tests().iter().for_each(|bytes| child.execute(bytes));
    }
    (first..GRID).step_by(step as usize).for_each(|n| child.execute(&sequence(n)));
    true
}

/// Runs a child to its end; returns what it died of, and at which bytes.
fn run_child(test: &str, bits: u32, first: u64, step: u64) -> Result<(), String> {
    let notes = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{bits}-{first}-{step}"));
    let errors = notes.with_extension("err");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, format!("{bits} {first} {step} {}", notes.display()))
        .stdout(Stdio::null())
        .stderr(File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let mut last = Vec::new();
    let mut left = looks().skip(1);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let bytes = std::fs::read(&notes).unwrap_or_default();
            let said = std::fs::read_to_string(&errors).unwrap_or_default();
            let said = said.lines().rfind(|line| line.contains(':')).unwrap_or_default().to_owned();
            let at = bytes.get(1..).unwrap_or_default();
            return if status.success() {
                Ok(())
            } else {
                Err(format!("{bits}-bit code: {status} at {at:02x?}: {said}"))
            };
        }
        let now = std::fs::read(&notes).unwrap_or_default();
        if now != last {
            // Each sequence gets all the patience.
            (last, left) = (now, looks().skip(1));
        }
        if left.next().is_none() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{bits}-bit code: no end at {last:02x?}"));
        }
    }
}

#[test]
fn no_bytes_that_a_guest_executes_end_the_process() {
    if be_a_child() {
        return;
    }
    let step = std::env::var("TRAPLINE_HOSTILE_STEP").map_or(STEP, |text| text.parse().unwrap());
    let first = std::env::var("TRAPLINE_HOSTILE_FIRST").map_or(0, |text| text.parse().unwrap());
    let test = "hostile::no_bytes_that_a_guest_executes_end_the_process";
    let deaths: Vec<String> =
        [16, 32, 64].iter().filter_map(|bits| run_child(test, *bits, first, step).err()).collect();
    assert!(deaths.is_empty(), "{}", deaths.join("\n"));
}
