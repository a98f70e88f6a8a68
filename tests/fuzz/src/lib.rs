//! Fuzz targets: code that must neither panic, nor hang, nor disagree with its model, for any input.
//!
//! A target takes bytes and panics when a promise is broken, which the fuzzer detects. `make fuzz TARGET=NAME` runs one
//! under libFuzzer, guided by coverage (`runner/`, which has a program for each), and keeps inputs that reached new
//! code in `corpus/NAME.tar`; the tests of this crate run every kept input. Random guests are in `tests/tests/hostile.rs`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a broken promise is told by a panic")]

mod channels;
#[path = "../../../rpn-vm/tests/common/compare.rs"]
mod compare;
mod d;
mod d_programs;
mod dumps;
mod gdb;
#[path = "../../../rpn-vm/tests/common/generate.rs"]
mod generate;
#[path = "../../../rpn-vm/tests/common/hostile.rs"]
mod hostile;
mod language;
#[path = "../../../rpn-vm/tests/common/naive.rs"]
mod naive;
#[path = "../../../rpn-vm/tests/common/ppdf.rs"]
mod ppdf_files;
mod probes;
mod recordings;
mod records;
mod sessions;
mod sites;
mod snapshots;

use generate::mix;

/// Parts of a promise that are expensive to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Printing the findings of a refused input.
    Shown,
    /// Preprocessing the text without compiling it.
    Preprocessed,
    /// Printing what was read, and reading it again.
    Printed,
    /// Running it on a hostile guest.
    Run,
    /// Doing everything at the other width too.
    OtherWidth,
}

/// Which parts of its promise a target checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks(u64);

impl Checks {
    /// Every part.
    pub const ALL: Self = Self(0);

    /// Each part for one input in eight, selected by a hash of the input: this allows many more inputs per second, and
    /// an input that broke a promise breaks it again.
    #[must_use]
    pub fn sampled(input: &[u8]) -> Self {
        let (eights, rest) = input.as_chunks::<8>();
        let rest = rest.iter().fold(input.len() as u64, |hash, &byte| hash << 8 ^ u64::from(byte));
        Self(eights.iter().fold(mix(rest), |hash, eight| mix(hash ^ u64::from_le_bytes(*eight))))
    }

    const fn have(self, part: Part) -> bool {
        (self.0 >> (8 * part as u32)) & 7 == 0
    }
}

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// What it promises.
    pub promise: &'static str,
    /// Runs it.
    pub run: fn(&[u8], Checks),
}

/// Program texts.
pub const SOURCE: Target = Target {
    name: "source",
    promise: "any text compiles or is refused with findings; what compiles is printed as the same program",
    run: language::source,
};

/// Compiled programs.
pub const PPDF: Target = Target {
    name: "ppdf",
    promise: "any file is refused, or is a program that has this one file and whose disassembly builds it again",
    run: language::ppdf,
};

/// Code and limits.
pub const VERIFIER: Target = Target {
    name: "verifier",
    promise: "code that the verifier takes runs to its end on a hostile guest",
    run: language::verifier,
};

/// Programs that the verifier accepts.
pub const INTERPRETER: Target = Target {
    name: "interpreter",
    promise: "a program made from the bytes does the same on the naive interpreter",
    run: language::interpreter,
};

/// Template files and data.
pub const TEMPLATES: Target = Target {
    name: "templates",
    promise: "any template is refused or formats any data, within bounds",
    run: records::templates,
};

/// Trace files.
pub const TRACE: Target = Target {
    name: "trace",
    promise: "of any trace file the whole records are read, then one error or the end",
    run: records::trace,
};

/// Arguments of `-n`.
pub const CLAUSE: Target = Target {
    name: "clause",
    promise: "any text after -n is refused in a sentence, or has descriptions and a source that the parser takes",
    run: probes::clause,
};

/// Notes of `<sys/sdt.h>`.
pub const NOTES: Target = Target {
    name: "notes",
    promise: "any section of stapsdt notes is read or refused note by note; an argument is what it prints as",
    run: sites::notes,
};

/// ELF files with static probes.
pub const SITES: Target = Target {
    name: "sites",
    promise: "of any ELF file each scanner of static probes takes what it can and refuses the rest",
    run: sites::sites,
};

/// Files of snapshots.
pub const SNAPSHOT: Target = Target {
    name: "snapshot",
    promise: "of any file a snapshot is read or refused in a sentence; a machine that goes on from what was read runs",
    run: snapshots::snapshot,
};

/// Files of sessions.
pub const SESSION: Target = Target {
    name: "session",
    promise: "of any file a session is read or refused in a sentence; one that goes on from what was read runs",
    run: sessions::session,
};

/// Files of recordings.
pub const RECORDING: Target = Target {
    name: "recording",
    promise: "any file is read as a recording up to its end, or refused in a sentence",
    run: recordings::recording,
};

/// Crash dumps.
pub const DUMP: Target = Target {
    name: "dump",
    promise: "any file is read as a dump, within bounds, or refused in a sentence",
    run: dumps::dump,
};

/// Memory with channels.
pub const CHANNELS: Target = Target {
    name: "channels",
    promise: "in any memory channels are found and read, within bounds, or refused in a sentence",
    run: channels::channels,
};

/// What a debugger sends.
pub const GDB: Target = Target {
    name: "gdb",
    promise: "whatever a debugger sends, the server of a recording answers the next one, and the run is the same",
    run: gdb::gdb,
};

/// Texts of D.
pub const D: Target = Target {
    name: "d",
    promise: "any text compiles or is refused with DTrace's tag and a sentence; what compiles runs within its bounds",
    run: d::d,
};

/// Programs of D, made from choices.
pub const D_PROGRAMS: Target = Target {
    name: "d_programs",
    promise: "a program of D made from the bytes does the same compiled as its tree, interpreted naively",
    run: d_programs::d_programs,
};

/// All targets.
pub const TARGETS: &[Target] = &[
    SOURCE,
    PPDF,
    VERIFIER,
    INTERPRETER,
    TEMPLATES,
    TRACE,
    CLAUSE,
    NOTES,
    SITES,
    SNAPSHOT,
    SESSION,
    RECORDING,
    DUMP,
    CHANNELS,
    GDB,
    D,
    D_PROGRAMS,
];
