//! Fuzz targets: what must neither panic, nor hang, nor disagree, whatever its bytes are.
//!
//! A target takes bytes and panics when a promise is broken; that is how a fuzzer is told. `make fuzz TARGET=NAME` runs
//! one under libFuzzer, guided by coverage (`runner/`), and keeps what reached new code in `corpus/NAME/`; the tests of
//! this crate run every file that was kept. Not here: guests, which `tests/tests/hostile.rs` makes up.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a broken promise is told by a panic")]

#[path = "../../../providers/src/clause.rs"]
mod clause;
#[path = "../../../rpn-vm/tests/common/compare.rs"]
mod compare;
#[path = "../../../providers/src/description.rs"]
#[allow(dead_code, reason = "the target does not match names of every kind")]
mod description;
#[path = "../../../rpn-vm/tests/common/generate.rs"]
mod generate;
#[path = "../../../providers/src/glob.rs"]
mod glob;
#[path = "../../../rpn-vm/tests/common/hostile.rs"]
mod hostile;
mod language;
#[path = "../../../rpn-vm/tests/common/naive.rs"]
mod naive;
#[path = "../../../rpn-vm/tests/common/naive_rules.rs"]
mod naive_rules;
#[path = "../../../rpn-vm/tests/common/ppdf.rs"]
mod ppdf_files;
mod probes;
mod records;
mod sites;

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// What it promises.
    pub promise: &'static str,
    /// Runs it.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "source",
        promise: "any text compiles or is refused with findings; what compiles is printed as the same program",
        run: language::source,
    },
    Target {
        name: "ppdf",
        promise: "any file is refused, or is a program that has this one file and whose disassembly builds it again",
        run: language::ppdf,
    },
    Target {
        name: "verifier",
        promise: "code that the verifier takes runs to its end on a hostile guest",
        run: language::verifier,
    },
    Target {
        name: "interpreter",
        promise: "a program made from the bytes does the same on the naive interpreter",
        run: language::interpreter,
    },
    Target {
        name: "templates",
        promise: "any template is refused or formats any data, within bounds",
        run: records::templates,
    },
    Target {
        name: "trace",
        promise: "of any trace file the whole records are read, then one error or the end",
        run: records::trace,
    },
    Target {
        name: "clause",
        promise: "any text after -n is refused in a sentence, or has descriptions and a source that the parser takes",
        run: probes::clause,
    },
    Target {
        name: "notes",
        promise: "any section of stapsdt notes is read or refused note by note; an argument is what it prints as",
        run: sites::notes,
    },
    Target {
        name: "sites",
        promise: "of any ELF file each scanner of static probes takes what it can and refuses the rest",
        run: sites::sites,
    },
];

/// The target of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
