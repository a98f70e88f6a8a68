//! Checks the house rules on dependencies between crates and on the use of `unsafe`.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

fn root() -> PathBuf {
    trapline_house::root()
}

/// Every workspace package with its direct dependencies on other workspace packages (not for tests).
fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let out = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let meta: Value = serde_json::from_slice(&out.stdout).unwrap();
    let packages = meta["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages.iter().map(|p| p["name"].as_str().unwrap()).collect();
    packages
        .iter()
        .map(|p| {
            let deps = p["dependencies"].as_array().unwrap().iter();
            let deps = deps
                .filter(|d| d["kind"].is_null())
                .map(|d| d["name"].as_str().unwrap())
                .filter(|d| names.contains(d))
                .map(str::to_string);
            (p["name"].as_str().unwrap().to_string(), deps.collect())
        })
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("trapline-trace", &[][..]),
        ("trapline-rpn", &["trapline-trace"][..]),
        ("trapline-d", &["trapline-rpn", "trapline-trace"]),
        ("trapline-emu", &[]),
        ("trapline-dump", &["trapline-emu"]),
        ("trapline-os", &["trapline-emu"]),
        ("trapline-dti", &["trapline-emu", "trapline-trace"]),
        ("trapline-export", &["trapline-trace"]),
        (
            "trapline-interposer",
            &[
                "trapline-dti",
                "trapline-dump",
                "trapline-emu",
                "trapline-os",
                "trapline-rpn",
                "trapline-trace",
            ],
        ),
        (
            "trapline-providers",
            &["trapline-emu", "trapline-os", "trapline-rpn", "trapline-trace", "trapline-interposer"],
        ),
        ("trapline-guests", &[]),
        ("trapline-house", &[]),
        (
            "trapline-session",
            &[
                "trapline-d",
                "trapline-dti",
                "trapline-dump",
                "trapline-emu",
                "trapline-guests",
                "trapline-os",
                "trapline-rpn",
                "trapline-trace",
                "trapline-interposer",
                "trapline-providers",
            ],
        ),
        (
            "trapline-tui",
            &[
                "trapline-emu",
                "trapline-export",
                "trapline-interposer",
                "trapline-providers",
                "trapline-session",
                "trapline-trace",
            ],
        ),
        (
            "trapline-gdb",
            &["trapline-emu", "trapline-os", "trapline-providers", "trapline-rpn", "trapline-session"],
        ),
        ("trapline-fuzz", &["trapline-emu", "trapline-interposer", "trapline-rpn", "trapline-session"]),
        (
            "trapline-fuzz-targets",
            &[
                "trapline-d",
                "trapline-emu",
                "trapline-gdb",
                "trapline-interposer",
                "trapline-os",
                "trapline-providers",
                "trapline-rpn",
                "trapline-session",
                "trapline-trace",
            ],
        ),
        ("trapline-fuzz-runner", &["trapline-fuzz-targets"]),
    ]);
    for (package, deps) in graph() {
        let Some(allowed) = allowed.get(package.as_str()) else {
            assert!(
                matches!(package.as_str(), "trapline" | "trapline-tests"),
                "{package} is not in the table"
            );
            continue;
        };
        for dep in deps {
            assert!(allowed.contains(&dep.as_str()), "{package} must not depend on {dep}");
        }
    }
}

#[test]
fn only_the_machine_names_the_engine() {
    for (dir, _) in crates() {
        let manifest = std::fs::read_to_string(root().join(&dir).join("Cargo.toml")).unwrap();
        assert_eq!(manifest.contains("unicorn-engine"), dir == "emu", "{dir}/Cargo.toml");
    }
}

fn crates() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = text.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    members
        .split(',')
        .map(|m| m.trim().trim_matches('"').to_string())
        .map(|dir| {
            let manifest = std::fs::read_to_string(root().join(&dir).join("Cargo.toml")).unwrap();
            (dir, manifest)
        })
        .collect()
}

#[test]
fn unsafe_code_is_forbidden_outside_the_machine() {
    for (dir, manifest) in crates() {
        let inherits = manifest.contains("[lints]\nworkspace = true");
        assert_eq!(inherits, dir != "emu", "{dir} must take the workspace's lints");
    }
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for lint in [
        "unsafe_code = \"forbid\"",
        "undocumented_unsafe_blocks = \"deny\"",
        "unwrap_used = \"deny\"",
        "panic = \"deny\"",
    ] {
        assert!(text.contains(lint), "the workspace must say {lint}");
    }
}

#[test]
fn every_manifest_states_the_licence() {
    for (dir, manifest) in crates() {
        assert!(manifest.contains("license.workspace = true"), "{dir}/Cargo.toml");
    }
}

#[test]
fn every_source_file_says_what_it_is() {
    let mut checked = 0;
    let mut stack: Vec<PathBuf> = crates().into_iter().map(|(dir, _)| root().join(dir)).collect();
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name != "target" {
                stack.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            // An included file lies in the middle of another one, where `//!` is an error.
            let opens = if text.contains("offsets! {") { "//" } else { "//!" };
            assert!(text.starts_with(opens), "{} must open with {opens}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "only {checked} files looked at");
}
