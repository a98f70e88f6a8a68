//! Runs every input that fuzzing has kept.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use trapline_fuzz_targets::{Checks, TARGETS};

/// Files that a corpus has at least: an empty folder would test nothing.
const LEAST: usize = 20;

#[test]
fn every_kept_input_keeps_its_targets_promise() {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        assert!(files.len() >= LEAST, "{}: {} files", folder.display(), files.len());
        for file in files {
            let bytes = std::fs::read(&file).unwrap();
            for checks in [Checks::ALL, Checks::sampled(&bytes)] {
                let run = std::panic::catch_unwind(|| (target.run)(&bytes, checks));
                assert!(run.is_ok(), "{} breaks its promise: {}", file.display(), target.promise);
            }
        }
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
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&runner)).unwrap();
        assert!(text.contains(&format!("({}.run)", target.name.to_uppercase())), "{runner}");
    }
}
