//! Runs every input that fuzzing has kept.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use trapline_fuzz_targets::{Checks, TARGETS};

/// Inputs that a corpus has at least: an empty archive would test nothing.
const LEAST: usize = 20;

/// A file of this crate.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The inputs of a corpus, by their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let archive = std::fs::File::open(file(&format!("corpus/{target}.tar"))).unwrap();
    let mut inputs = Vec::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        inputs.push((entry.path().unwrap().display().to_string(), bytes));
    }
    inputs
}

#[test]
fn every_kept_input_keeps_its_targets_promise() {
    for target in TARGETS {
        let inputs = corpus(target.name);
        assert!(inputs.len() >= LEAST, "{}: {} inputs", target.name, inputs.len());
        for (name, bytes) in inputs {
            for checks in [Checks::ALL, Checks::sampled(&bytes)] {
                let run = std::panic::catch_unwind(|| (target.run)(&bytes, checks));
                assert!(run.is_ok(), "{}.tar: {name} breaks a promise: {}", target.name, target.promise);
            }
        }
    }
}

/// `scripts/corpus`, which also `scripts/fuzz` uses: what is unpacked and packed again is the same archive.
#[test]
fn an_archive_is_made_again_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    for target in TARGETS {
        let inputs = at(target.name);
        std::fs::create_dir(&inputs).unwrap();
        for (name, bytes) in corpus(target.name) {
            std::fs::write(Path::new(&inputs).join(name), bytes).unwrap();
        }
        let archive = at("archive.tar");
        let script = file("../../scripts/corpus");
        let done = Command::new(script).args(["pack", target.name, &inputs, &archive]).status().unwrap();
        assert!(done.success(), "{}", target.name);
        let kept = std::fs::read(file(&format!("corpus/{}.tar", target.name))).unwrap();
        assert!(std::fs::read(&archive).unwrap() == kept, "{} is packed in another way", target.name);
    }
}

/// How many random inputs, and a generator of random numbers (`TRAPLINE_INPUTS`, `TRAPLINE_SEED`).
fn random(default: u32) -> (u32, impl FnMut() -> u64) {
    let count = std::env::var("TRAPLINE_INPUTS").map_or(default, |count| count.parse().unwrap());
    let mut seed = std::env::var("TRAPLINE_SEED").map_or(1u64, |seed| seed.parse().unwrap());
    let next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    (count, next)
}

/// Random changes of a session's file, not guided by coverage.
#[test]
fn random_changes_of_a_session_keep_its_promise() {
    let (count, mut random) = random(150);
    for _ in 0..count {
        let mut input = vec![1];
        for _ in 0..1 + random() % 4 {
            let [low, high, add, wide, ..] = random().to_le_bytes();
            let high = if wide < 128 { high % 16 } else { high };
            input.extend([low, high, add]);
        }
        let run = std::panic::catch_unwind(|| (trapline_fuzz_targets::SESSION.run)(&input, Checks::ALL));
        assert!(run.is_ok(), "{input:?}");
    }
}

/// Random programs of D, not guided by coverage.
#[test]
fn random_programs_of_d_keep_their_promise() {
    let (count, mut random) = random(2_000);
    for _ in 0..count {
        let length = random() % 400;
        let input: Vec<u8> = (0..length).map(|_| (random() >> 32) as u8).collect();
        let run = std::panic::catch_unwind(|| (trapline_fuzz_targets::D_PROGRAMS.run)(&input, Checks::ALL));
        assert!(run.is_ok(), "{input:?}");
    }
}

#[test]
fn every_target_has_its_runner() {
    for target in TARGETS {
        let runner = format!("runner/src/bin/{}.rs", target.name);
        let text = std::fs::read_to_string(file(&runner)).unwrap();
        assert!(text.contains(&format!("({}.run)", target.name.to_uppercase())), "{runner}");
    }
}
