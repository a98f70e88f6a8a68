//! The manifests of the crates that can be published say what crates.io asks for, and contain all of their files.

use std::path::Path;
use toml::{Table, Value};
use trapline_house::{members, root};

fn manifest(folder: &str) -> Table {
    std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap().parse().unwrap()
}

#[test]
fn published_crates_have_a_description_a_licence_a_readme_and_categories() {
    let mut published = 0;
    for folder in members() {
        let package = manifest(&folder)["package"].as_table().unwrap().clone();
        if package.get("publish").and_then(Value::as_bool) == Some(false) {
            assert!(folder.starts_with("tests"), "{folder}");
            continue;
        }
        published += 1;
        for key in ["description", "license", "rust-version", "readme", "keywords", "categories"] {
            assert!(package.contains_key(key), "{folder}: no {key}");
        }
        let readme = root().join(&folder).join(package["readme"].as_str().unwrap());
        assert!(readme.is_file(), "{}", readme.display());
        assert!(package["categories"].as_array().unwrap().len() <= 5);
    }
    assert!(published >= 16, "{published}");
}

#[test]
fn dependencies_on_own_crates_have_the_version_that_would_be_published() {
    let workspace = manifest(".")["workspace"].as_table().unwrap().clone();
    let version = workspace["package"]["version"].as_str().unwrap();
    for (name, dependency) in workspace["dependencies"].as_table().unwrap() {
        if dependency.get("path").is_some() {
            assert_eq!(dependency.get("version").and_then(Value::as_str), Some(version), "{name}");
        }
    }
}

#[test]
fn the_container_is_built_with_the_tested_rust() {
    let dockerfile = std::fs::read_to_string(root().join(Path::new("Dockerfile"))).unwrap();
    let toolchain: Table =
        std::fs::read_to_string(root().join("rust-toolchain.toml")).unwrap().parse().unwrap();
    let version = toolchain["toolchain"]["channel"].as_str().unwrap();
    assert!(dockerfile.contains(&format!("FROM rust:{version}-bookworm ")), "{version}");
}
