//! libFuzzer around one fuzz target, which `TRAPLINE_TARGET` names. Built and run by `scripts/fuzz`.

#![no_main]

use std::sync::LazyLock;
use trapline_fuzz::{TARGETS, Target, find};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("TRAPLINE_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| {
        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("TRAPLINE_TARGET is `{name}`; one of {} would be right", known.join(", "));
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
