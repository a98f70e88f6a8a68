//! The CPU and the devices of a PC against qemu's TCG, row by row: the kernel of `tests/kernels/rows.c` prints the result of
//! some hundred pieces of code, model-specific registers, features and registers of devices. `tests/oracle/cpu-rows.txt` has
//! qemu's rows, and `tests/oracle/cpu-differences.txt` each row that differs here, under the reason.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::{folder, trapline};
use crate::hobby_kernels::{build, under_qemu};
use trapline_tests::root;

/// The exit code that qemu makes of the value 10h.
const ENDED: i32 = 33;
const SOURCES: [&str; 6] = ["rows.c", "rows64.S", "devices.c", "msrs.c", "board.c", "lines.c"];
/// The source of entropy on its PCI bus.
const ENTROPY: &str = "virtio-rng-pci,disable-legacy=on";
/// What qemu lacks.
const MISSING: &str = "-";

fn stored(name: &str) -> String {
    std::fs::read_to_string(root().join("tests/oracle").join(name)).unwrap()
}

/// Builds the kernel; with `alone`, also the rows at which qemu ends or hangs.
fn kernel(folder: &Path, alone: bool) {
    let mut arguments = vec!["64", "MULTIBOOT", "elf32", "rows"];
    arguments.extend(SOURCES);
    if alone {
        arguments.extend(["--", "ALONE"]);
    }
    build(folder, &arguments);
}

/// The rows by their names, of which no two are equal.
fn rows(text: &str) -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| *line != "rows: end") {
        let (name, result) = line.rsplit_once(": ").unwrap_or_else(|| panic!("{line}"));
        assert!(rows.insert(name.to_owned(), result.to_owned()).is_none(), "two rows {name}");
    }
    rows
}

/// `name | here | qemu` for each row that differs.
fn differences(here: &str, qemu: &str) -> Vec<String> {
    let (here, qemu) = (rows(here), rows(qemu));
    let missing = MISSING.to_owned();
    let mut found = Vec::new();
    for (name, result) in &here {
        let other = qemu.get(name).unwrap_or(&missing);
        if other != result {
            found.push(format!("{name} | {result} | {other}"));
        }
    }
    for (name, other) in qemu.iter().filter(|(name, _)| !here.contains_key(*name)) {
        found.push(format!("{name} | {MISSING} | {other}"));
    }
    found
}

#[test]
fn every_row_is_as_under_qemu_or_its_difference_is_explained() {
    let folder = folder(&[("file", b"abc")]);
    let folder = folder.path();
    kernel(folder, true);
    let ran =
        trapline(folder, &["run", "rows", "--fw-cfg", "opt/rows=file", "--virtio", "pci", "--virtio-rng"]);
    assert_eq!(ran.code, ENDED, "{}\n{}", ran.err, ran.out);
    assert!(ran.out.ends_with("rows: end\n"));
    let qemu = stored("cpu-rows.txt");
    assert!(rows(&qemu).len() >= 500, "{} rows", rows(&qemu).len());
    let found = differences(&ran.out, &qemu);
    let text = stored("cpu-differences.txt");
    let mut explained: Vec<&str> =
        text.lines().filter(|line| line.contains(" | ") && !line.starts_with('#')).collect();
    explained.sort_unstable();
    let new: Vec<&String> = found.iter().filter(|line| !explained.contains(&line.as_str())).collect();
    let gone: Vec<&&str> = explained.iter().filter(|line| !found.iter().any(|f| f == **line)).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "not explained:\n{new:#?}\nexplained, but no longer so:\n{gone:#?}"
    );
}

/// Each difference stands under a reason.
#[test]
fn the_differences_have_reasons() {
    let text = stored("cpu-differences.txt");
    let mut reason = "";
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("= ") {
            Some(text) => reason = text,
            None => assert!(!reason.is_empty() && line.split(" | ").count() == 3, "{line}"),
        }
    }
}

#[test]
fn qemu_still_prints_the_stored_rows() {
    let folder = folder(&[("file", b"abc")]);
    let folder = folder.path();
    kernel(folder, false);
    let devices = ["-m", "256", "-icount", "shift=0,sleep=off", "-serial", "null", "-device", ENTROPY];
    let ran = under_qemu(
        folder,
        &[&devices[..], &["-fw_cfg", "name=opt/rows,file=file", "-kernel", "rows"]].concat(),
    );
    assert_eq!(ran.code, ENDED, "{}", ran.err);
    assert_eq!(ran.out, stored("cpu-rows.txt"));
}
