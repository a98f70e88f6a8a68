//! One version of Rust: the manifest names it, `rust-toolchain.toml` selects it, and these tests run with it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;
use toml::Table;
use trapline_house::root;

fn read(path: &str) -> Table {
    std::fs::read_to_string(root().join(path)).unwrap().parse().unwrap()
}

/// The first two numbers of a version.
fn minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

#[test]
fn the_version_that_the_manifest_names_is_the_one_that_is_tested() {
    let manifest = read("Cargo.toml");
    let named = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    let selected = read("rust-toolchain.toml");
    assert_eq!(minor(selected["toolchain"]["channel"].as_str().unwrap()), named, "rust-toolchain.toml");

    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let out = Command::new(rustc).arg("--version").current_dir(root()).output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    let used = out.split(' ').nth(1).unwrap();
    assert_eq!(minor(used), named, "these tests run with Rust {used}; Cargo.toml names another version");
}

#[test]
fn bootstrap_reads_the_version_from_the_manifest() {
    let out = Command::new(root().join("scripts/bootstrap")).arg("--rust-version").output().unwrap();
    let named = read("Cargo.toml");
    let named = named["workspace"]["package"]["rust-version"].as_str().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap().trim(), named);
}
