//! Everything that fuzzing has found worth keeping, run again.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use trapline_fuzz::TARGETS;

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
            let run = std::panic::catch_unwind(|| (target.run)(&bytes));
            assert!(run.is_ok(), "{} breaks its promise: {}", file.display(), target.promise);
        }
    }
}

#[test]
fn no_two_targets_have_one_name() {
    for (n, target) in TARGETS.iter().enumerate() {
        assert!(TARGETS[..n].iter().all(|other| other.name != target.name));
        assert_eq!(trapline_fuzz::find(target.name).unwrap().promise, target.promise);
    }
}
