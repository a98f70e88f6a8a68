//! Runs every input that fuzzing has kept.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use trapline_fuzz_targets::{Checks, TARGETS};

/// Inputs that a corpus has at least: an empty archive would test nothing.
const LEAST: usize = 20;

/// A file of this crate, in the tree whose tests run.
fn file(name: &str) -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join(name)
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

/// A tree with `scripts/corpus` and a target with these inputs, and what an action of the script says there.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for folder in ["scripts", "tests/fuzz/corpus", "target/fuzz/corpus/few"] {
            std::fs::create_dir_all(tree.at(folder)).unwrap();
        }
        std::fs::copy(file("../../scripts/corpus"), tree.at("scripts/corpus")).unwrap();
        std::fs::write(tree.at("seed"), "one").unwrap();
        let mut tar = Command::new("tar");
        tar.args(["-cf", "tests/fuzz/corpus/few.tar", "seed"]).current_dir(tree.at(""));
        assert!(tar.status().unwrap().success());
        std::fs::write(tree.at("two"), "two").unwrap();
        tree
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Runs the script in the folder `target`: exit code and standard error.
    fn run(&self, args: &[&str]) -> (i32, String) {
        let mut script = Command::new(self.at("scripts/corpus"));
        let output = script.args(args).current_dir(self.at("target")).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap().trim_end().to_owned())
    }

    fn inputs(&self) -> Vec<String> {
        let archive = std::fs::File::open(self.at("tests/fuzz/corpus/few.tar")).unwrap();
        let mut archive = tar::Archive::new(archive);
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
    }
}

#[test]
fn what_cannot_be_packed_or_added_is_refused_and_leaves_nothing() {
    let tree = Tree::new();
    let few = tree.at("target/fuzz/corpus/few");
    let refused = |args: &[&str], sentence: &str| {
        let (code, said) = tree.run(args);
        assert!(code == 2 && said.lines().count() == 1 && said.contains(sentence), "{args:?}: {said}");
        let archives = std::fs::read_dir(tree.at("tests/fuzz/corpus")).unwrap().count();
        assert_eq!((archives, tree.inputs()), (1, vec!["seed".to_owned()]));
    };
    refused(&["pack", "few"], "few is empty");
    refused(&["pack", "many"], "no fuzz target many; the targets are: few");
    refused(&["pack", "few", "nowhere"], "no folder nowhere");
    refused(&["add", "few", "../nothing"], "no file ../nothing");
    refused(&["add", "few", "../scripts"], "no file ../scripts");
    std::fs::write(few.join("named"), "three").unwrap();
    refused(&["pack", "few"], "named is not named by its SHA-1");
    std::fs::remove_file(few.join("named")).unwrap();
    std::fs::create_dir(few.join(".below")).unwrap();
    refused(&["pack", "few"], ".below is no file");
    for args in [&["unpack", "few", "more"][..], &["add", "few"], &["pack", "few", "a", "b", "c"], &["pack"]]
    {
        let (code, said) = tree.run(args);
        assert!(code == 2 && said.starts_with("scripts/corpus unpack TARGET"), "{args:?}: {said}");
    }
}

#[test]
fn an_input_that_was_removed_by_hand_stays_removed() {
    let tree = Tree::new();
    assert_eq!(tree.run(&["unpack", "few"]).0, 0);
    assert_eq!(tree.run(&["add", "few", "../two"]), (0, String::new()));
    let two = "ad782ecdac770fc6eb9a62e44f90873fb97fb26b";
    assert_eq!(tree.inputs(), [two, "seed"]);
    // The archive is the newer one: it is unpacked again.
    let few = tree.at("target/fuzz/corpus/few");
    std::fs::write(tree.at("two"), "more").unwrap();
    assert_eq!(tree.run(&["add", "few", "../two"]), (0, String::new()));
    assert_eq!(tree.inputs().len(), 3);
    std::fs::remove_file(few.join("seed")).unwrap();
    std::fs::write(tree.at("two"), "two").unwrap();
    assert_eq!(tree.run(&["add", "few", "../two"]), (0, String::new()));
    assert_eq!(tree.inputs().len(), 2);
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
