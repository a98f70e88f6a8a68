//! Everything that fuzzing has found worth keeping, run again.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use trapline_fuzz::{Checks, TARGETS};

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

#[test]
fn every_target_has_its_runner() {
    for target in TARGETS {
        let runner = format!("runner/src/bin/{}.rs", target.name);
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&runner)).unwrap();
        assert!(text.contains(&format!("({}.run)", target.name.to_uppercase())), "{runner}");
    }
}
