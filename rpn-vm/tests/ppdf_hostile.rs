//! Damaged and hostile PPDF files: each is refused with one sentence, or yields a program whose disassembly builds to
//! the same file, and which linker and verifier treat like any other. Memory is bounded by the file's size.
//!
//! Allocations are counted for the test's thread alone, so other tests may run at the same time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use crate::files;
use std::collections::BTreeMap;
use std::path::Path;

use crate::common::TestHost;
use crate::files::{everything_built, fixed};
use trapline_rpn::ppdf::{MAGIC, Ppdf, SigningKey, disassemble, write};
use trapline_rpn::{AnySymbol, FileLoader, ParseOptions, Vars, Vm, Width, parse, parse_with};

/// The most bytes that reading may allocate for each byte of a file, and the constant part.
const FACTOR: usize = 40;
const BESIDE: usize = 64 << 10;

#[derive(Default)]
struct Seen {
    refused: BTreeMap<String, usize>,
    taken: usize,
    unlinked: usize,
    ran: usize,
}

impl Seen {
    fn read(&mut self, bytes: &[u8]) {
        let mut read = None;
        let peak = allocation_counter::measure(|| read = Some(Ppdf::read(bytes))).bytes_max;
        let most = (bytes.len() * FACTOR + BESIDE) as u64;
        assert!(peak <= most, "{peak} bytes for a file of {}", bytes.len());
        let read = read.unwrap();
        match read {
            Ok(file) => self.taken(&file, bytes),
            Err(error) => {
                let said = error.to_string();
                assert!(!said.is_empty() && !said.contains('\n') && said.len() < 600, "{said:?}");
                let kind = format!("{error:?}");
                let kind = kind.split([' ', '(', '{']).next().unwrap().to_owned();
                *self.refused.entry(kind).or_default() += 1;
            }
        }
    }

    /// Checks that an accepted file passes the same stages as source.
    fn taken(&mut self, file: &Ppdf, bytes: &[u8]) {
        self.taken += 1;
        let again = write(&file.program, None).unwrap();
        // A signed file has its signature at its end, which changes its length.
        let end = if file.signer.is_some() { bytes.len() - 120 } else { bytes.len() - 4 };
        assert!(again[16..again.len() - 4][..end - 16] == bytes[16..end]);
        let mut vm = Vm::new();
        for width in [Width::W32, Width::W64] {
            match file.program.link(width, &AnySymbol) {
                Ok(linked) => {
                    assert_eq!(linked.probes.len(), file.program.probes.len());
                    for probe in &linked.probes {
                        vm.run(&probe.handler, &mut TestHost::default(), Vars::default());
                        self.ran += 1;
                    }
                }
                Err(found) => {
                    assert!(!found.to_string().is_empty());
                    self.unlinked += 1;
                }
            }
        }
        let shown = disassemble(&file.program, None);
        match parse("shown.rpn", &shown) {
            Ok(program) => assert!(write(&program, None).unwrap() == again, "{shown}"),
            Err(found) => panic!("{shown}\n{found}"),
        }
    }
}

fn bases() -> Vec<Vec<u8>> {
    let mut all = vec![everything_built()];
    all.push(write(&files::everything(), Some(&SigningKey::from_secret(&[7; 32]))).unwrap());
    for name in ["2b-vortex.rpn", "4-swap_out.rpn"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/man").join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let path = path.display().to_string();
        let program = parse_with(&path, &text, &ParseOptions::default(), &mut FileLoader::default()).unwrap();
        all.push(write(&program, None).unwrap());
    }
    all
}

fn flipped(base: &[u8], at: usize, bits: u8) -> Vec<u8> {
    let mut bytes = base.to_vec();
    bytes[at] ^= bits;
    bytes
}

#[test]
fn every_damaged_file_is_refused_or_is_a_program_like_any_other() {
    let mut seen = Seen::default();
    for base in bases() {
        Ppdf::read(&base).unwrap();
        for end in 0..base.len() {
            let taken = seen.taken;
            seen.read(&base[..end]);
            assert_eq!(taken, seen.taken, "{end}");
            seen.read(&fixed(base[..end].to_vec()));
            // The content cut short, with a checksum after it.
            let mut cut = base[..end].to_vec();
            cut.extend_from_slice(b"CRC \x04\0\0\0\0\0\0\0");
            seen.read(&fixed(cut));
        }
        for at in 0..base.len() {
            for bit in 0..8 {
                let bytes = flipped(&base, at, 1 << bit);
                let taken = seen.taken;
                seen.read(&bytes);
                assert_eq!(taken, seen.taken, "byte {at}, bit {bit}");
                seen.read(&fixed(bytes));
            }
            // Extreme lengths and numbers, and damaged texts.
            for word in
                [0u32, 1, 0x7fff_ffff, 0xffff_fffe, u32::MAX, 50_000, 500_000, 0x2222_2222, 0x0a0a_0a0a]
            {
                let mut bytes = base.clone();
                let end = (at + 4).min(base.len());
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
                seen.read(&fixed(bytes));
            }
            let mut longer = base.clone();
            longer.insert(at, b'x');
            seen.read(&fixed(longer));
            let mut shorter = base.clone();
            shorter.remove(at);
            seen.read(&fixed(shorter));
        }
    }
    huge(&mut seen);
    let said = format!("{:?} taken {} unlinked {}", seen.refused, seen.taken, seen.unlinked);
    for kind in [
        "Magic",
        "NoHeader",
        "Version",
        "Length",
        "Checksum",
        "Section",
        "SectionLength",
        "Ends",
        "Trailing",
        "Value",
        "Form",
        "Signature",
    ] {
        assert!(seen.refused.contains_key(kind), "{kind}: {said}");
    }
    assert!(seen.taken > 1000 && seen.unlinked > 10 && seen.ran > 1000, "{said}");
}

/// Long files that claim to be longer.
fn huge(seen: &mut Seen) {
    let base = everything_built();
    for tag in ["HEAD", "PROB", "PROC", "CODE", "RELO", "LINE"] {
        let (start, end) = files::section(&base, tag);
        for filler in [0u8, 1, 3, 0x20, 0xff] {
            let content = vec![filler; 300_000];
            let mut bytes = base[..start - 4].to_vec();
            bytes.extend_from_slice(&300_000u32.to_le_bytes());
            bytes.extend_from_slice(&content);
            bytes.extend_from_slice(&base[end..]);
            for first in [filler.into(), 30_000u32, 32_768, 49_999, u32::MAX] {
                bytes[start..start + 4].copy_from_slice(&first.to_le_bytes());
                seen.read(&fixed(bytes.clone()));
            }
        }
    }
    let mut long = vec![0; 65 << 20];
    long[..8].copy_from_slice(&MAGIC);
    long[8] = 1;
    assert_eq!(
        Ppdf::read(&long).unwrap_err().to_string(),
        "the file has 68157440 bytes; a PPDF file has at most 67108864"
    );
}
