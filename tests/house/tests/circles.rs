//! No modules of a crate import each other in a circle, except a module and its own descendants. The library's front
//! page says what counts.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use trapline_house::{Crate, circles, members, root, targets};

/// The circles of a crate's library and programs, as text.
fn found(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for target in targets(folder) {
        let made = Crate::read(&target).unwrap_or_else(|error| panic!("{error}"));
        all.extend(circles(&made).iter().map(ToString::to_string));
    }
    all
}

#[test]
fn no_crate_has_an_import_circle() {
    let folders = members();
    assert!(folders.len() >= 10, "{folders:?}");
    let mut wrong = Vec::new();
    for folder in &folders {
        let circles = found(&root().join(folder));
        if !circles.is_empty() {
            wrong.push(format!("{folder}:\n{}", circles.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes a crate of these files and measures it.
fn sample(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join("src").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    found(folder.path())
}

const A: &str = "pub struct A; use crate::b::B;";

#[test]
fn a_circle_is_found_however_it_is_written() {
    let ways = [
        ("use", "use crate::a::A; pub struct B;"),
        ("a path in code", "pub struct B; fn f() -> crate::a::A { crate::a::A }"),
        ("super", "pub struct B(super::a::A);"),
        ("a use inside a function", "pub struct B; fn f() { use crate::a::A; }"),
        ("a re-export of the root", "use crate::A; pub struct B;"),
        ("a glob import of the root", "use super::*; pub struct B(A);"),
        ("a module that was imported", "use crate::a; pub struct B(a::A);"),
        ("an alias", "use crate::A as Other; pub struct B(Other);"),
        ("a macro's tokens", "pub struct B; fn f() { println!(\"{}\", crate::a::A::SIZE); }"),
        ("an inline module", "pub struct B; mod inner { use crate::a::A; }"),
    ];
    for (way, b) in ways {
        let found = sample(&[("lib.rs", "pub mod a; mod b; pub use a::A;"), ("a.rs", A), ("b.rs", b)]);
        assert_eq!(found.len(), 1, "{way}: {found:?}");
        let shown = "in crate: crate::a -> crate::b -> crate::a\n";
        assert!(found[0].starts_with(shown), "{way}: {}", found[0]);
        assert!(found[0].contains("a.rs:1: crate::b::B"), "{way}: {}", found[0]);
    }
}

#[test]
fn folders_that_import_each_other_are_a_circle() {
    let found = sample(&[
        ("lib.rs", "mod low; mod high;"),
        ("low/mod.rs", "pub mod x; pub mod y;"),
        ("low/x.rs", "use crate::high::v::V;"),
        ("low/y.rs", "pub struct Y;"),
        ("high/mod.rs", "pub mod u; pub mod v;"),
        ("high/u.rs", "use crate::low::y::Y;"),
        ("high/v.rs", "pub struct V;"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("in crate: crate::low -> crate::high -> crate::low\n")
            || found[0].starts_with("in crate: crate::high -> crate::low"),
        "{}",
        found[0]
    );
}

#[test]
fn what_is_allowed_is_not_reported() {
    let ways = [
        ("one direction", "pub struct B;"),
        ("tests", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"),
        ("a test's helper", "pub struct B; #[cfg(test)] use crate::a::A;"),
        ("the root's own item", "use crate::Root; pub struct B(Root);"),
        ("another crate", "use std::fmt; pub struct B(fmt::Error);"),
        ("a variable of the same name", "pub struct B; fn f(a: u8) -> u8 { a }"),
        ("its own children", "pub struct B; mod c { use super::B; pub struct C; } use c::C;"),
    ];
    for (way, b) in ways {
        let found = sample(&[("lib.rs", "pub mod a; mod b; pub struct Root;"), ("a.rs", A), ("b.rs", b)]);
        assert!(found.is_empty(), "{way}: {found:?}");
    }
}

#[test]
fn a_long_circle_is_shown_once_with_its_knot() {
    let found = sample(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::a::A; use crate::d::D; pub struct C;"),
        ("d.rs", "use crate::c::C; pub struct D;"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a knot of 4: crate::a, crate::b, crate::c, crate::d"), "{}", found[0]);
    assert!(found[0].contains("crate::c -> crate::d -> crate::c"), "{}", found[0]);
}
