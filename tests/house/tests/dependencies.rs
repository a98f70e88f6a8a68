//! The dependencies keep the rules of `deny.toml`: licences, one version of each, and the registry as their only source.

#![allow(clippy::unwrap_used, clippy::panic)]

use spdx::{Expression, ParseMode};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use toml::{Table, Value};
use trapline_house::root;

/// A package that the build uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
}

/// The packages that Cargo builds for this host, for these kinds of dependencies.
fn packages(kinds: &str, of: &[&str]) -> BTreeSet<Package> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--locked", "--offline", "--prefix", "none", "--format", "{p}|{l}", "--edges", kinds]);
    let out = tree.args(of).current_dir(root()).output().unwrap();
    assert!(out.status.success(), "cargo tree: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let package = |line: &str| {
        let (package, licence) = line.trim_end_matches(" (*)").split_once('|').unwrap();
        let mut words = package.split(' ');
        let (name, version) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        Package { name, version, licence: licence.to_owned() }
    };
    text.lines().filter(|line| !line.is_empty()).map(package).collect()
}

fn everything() -> BTreeSet<Package> {
    packages(
        "normal,build,dev",
        &["--workspace", "--features", "trapline-fuzz/libafl,trapline-fuzz-runner/libfuzzer"],
    )
}

fn rules() -> Table {
    std::fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap()
}

fn texts(value: &Value) -> BTreeSet<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Whether a licence expression offers a choice of these.
fn offers(licence: &str, allowed: &BTreeSet<String>) -> bool {
    let parsed = Expression::parse_mode(licence, ParseMode::LAX).unwrap_or_else(|e| panic!("{licence}: {e}"));
    let allowed: Vec<_> =
        allowed.iter().map(|one| Expression::parse_mode(one, ParseMode::LAX).unwrap()).collect();
    parsed.evaluate(|asked| allowed.iter().any(|one| one.requirements().any(|one| one.req == *asked)))
}

#[test]
fn every_licence_is_allowed_and_no_exception_is_idle() {
    let rules = rules();
    let allowed = texts(&rules["licenses"]["allow"]);
    let exceptions: BTreeMap<&str, BTreeSet<String>> = rules["licenses"]["exceptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["crate"].as_str().unwrap(), texts(&one["allow"])))
        .collect();
    let (mut used, all) = (BTreeSet::new(), everything());
    assert!(all.len() > 60, "{}", all.len());
    for package in &all {
        if !offers(&package.licence, &allowed) {
            let exception = exceptions.get(package.name.as_str());
            let also = exception.map(|other| other.union(&allowed).cloned().collect());
            assert!(also.is_some_and(|also| offers(&package.licence, &also)), "{package:?}");
            used.insert(package.name.as_str());
        }
    }
    assert_eq!(used, exceptions.keys().copied().collect(), "an exception that no package needs");
}

#[test]
fn the_programs_link_nothing_that_the_engines_licence_forbids() {
    let mut allowed = texts(&rules()["licenses"]["allow"]);
    allowed.insert("GPL-2.0".into());
    let programs: [&[&str]; 2] =
        [&["--package", "trapline"], &["--package", "trapline-fuzz", "--features", "libafl"]];
    for package in programs.iter().flat_map(|of| packages("normal", of)) {
        assert!(offers(&package.licence, &allowed), "{package:?}");
    }
}

#[test]
fn licence_expressions_are_read() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Unicode-3.0".to_owned()]);
    for good in ["MIT", "MIT OR Apache-2.0", "Apache-2.0/MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(offers(good, &allowed), "{good}");
    }
    for bad in ["Apache-2.0", "MIT AND Apache-2.0", "GPL-3.0-only"] {
        assert!(!offers(bad, &allowed), "{bad}");
    }
}

#[test]
fn each_dependency_has_one_version_or_a_reason() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in everything() {
        versions.entry(package.name).or_default().insert(package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let rules = rules();
    let skipped = rules["bans"]["skip"].as_array().unwrap().iter();
    let skipped: BTreeSet<&str> = skipped.map(|one| one["crate"].as_str().unwrap()).collect();
    assert_eq!(versions.keys().map(String::as_str).collect::<BTreeSet<_>>(), skipped, "{versions:?}");
}

#[test]
fn every_dependency_comes_from_the_registry() {
    let lock: Table = std::fs::read_to_string(root().join("Cargo.lock")).unwrap().parse().unwrap();
    for package in lock["package"].as_array().unwrap() {
        if let Some(source) = package.get("source") {
            let source = source.as_str().unwrap();
            assert!(source.starts_with("registry+") && source.ends_with("/crates.io-index"), "{package}");
        }
    }
}
