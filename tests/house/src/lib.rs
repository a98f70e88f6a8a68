//! The house rules of the sources, measured: which module of a crate names which other module, and where modules
//! import each other in a circle.
//!
//! # What counts
//! A module names another one when its code holds a path that leads there: in a `use` (also inside a function), in an
//! expression, a type, a pattern or a bound, or in the tokens of a macro call. A path leads to the module that *defines*
//! the item: re-exports and glob imports are followed, so a detour through `lib.rs` does not hide a circle. Code under
//! `#[cfg(test)]` and `#[test]` does not count. Nor does a method call or a field access: neither names a module.
//!
//! # What a circle is
//! The children of one module are compared with each other, each child with everything below it. A circle is a chain of
//! references `a -> b -> .. -> a` among such siblings. References between a module and its own descendants are allowed.
//! The rule therefore holds for files and for folders: two folders whose files import each other both ways are a circle,
//! even if no two of these files are.
//!
//! `cargo run -p trapline-house [CRATE-FOLDER..]` prints the circles.

pub mod circles;
mod names;
pub mod tests;
pub mod tree;

pub use circles::{Circle, circles};
pub use tree::{Crate, ReadError, Reference};

use std::path::{Path, PathBuf};

/// The repository: that of the tree whose tests run, if cargo or nextest runs them, else that of the build.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

/// The root files of a crate: its library, its program, and the programs of `src/bin`.
pub fn targets(folder: &Path) -> Vec<PathBuf> {
    let source = folder.join("src");
    let mut found: Vec<PathBuf> =
        ["lib.rs", "main.rs"].iter().map(|file| source.join(file)).filter(|path| path.is_file()).collect();
    let programs = std::fs::read_dir(source.join("bin")).into_iter().flatten().flatten();
    found.extend(
        programs.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "rs")),
    );
    found.sort();
    found
}

/// The folders of the workspace's crates, as the manifest lists them.
pub fn members() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap_or_default();
    let list = text.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map_or("", |(list, _)| list).split(',');
    list.map(|folder| folder.trim().trim_matches('"').to_string())
        .filter(|folder| !folder.is_empty())
        .collect()
}
