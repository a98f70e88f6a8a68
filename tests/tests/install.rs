//! `make install`: what it puts where, and that the installed program and its completion work.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{binary, finish, patient};
use trapline_tests::root;

#[test]
fn make_install_brings_the_program_its_pages_and_its_completion() {
    let prefix = tempfile::tempdir().unwrap();
    let mut make = patient("make");
    let built = binary().parent().unwrap().display().to_string();
    make.args(["-s", "install", "STRIP=:", &format!("BUILT={built}")]);
    make.arg(format!("PREFIX={}", prefix.path().display())).current_dir(root());
    let made = finish(make);
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    let completion = prefix.path().join("share/bash-completion/completions/trapline");
    for file in [
        "share/man/man1/trapline.1.gz",
        "share/man/man1/trapline-trace-cat.1.gz",
        "share/doc/trapline/README.md",
    ] {
        assert!(prefix.path().join(file).is_file(), "{file}");
    }
    let mut bash = patient("bash");
    let line =
        "COMP_LINE='trapline tu'; COMP_POINT=11; _trapline trapline tu; echo $COMPREPLY; trapline --version";
    bash.args(["-c", &format!("source {}; {line}", completion.display())]);
    bash.env("PATH", format!("{}/bin:/usr/bin:/bin", prefix.path().display()));
    let ran = finish(bash);
    let version = format!("trapline {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(ran.out.lines().collect::<Vec<_>>(), ["tui", &version], "{}", ran.err);
}

#[test]
fn the_debian_package_holds_a_program_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut make = patient(root().join("scripts/package-deb"));
    make.arg(binary().parent().unwrap()).arg(folder.path()).env("STRIP", ":").env("COMPRESSION", "none");
    let made = finish(make);
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    let package = made.out.trim();
    let dpkg = |arguments: &[&str]| {
        let mut dpkg = patient("dpkg-deb");
        dpkg.args(arguments);
        let ran = finish(dpkg);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    let field = |name: &str| dpkg(&["-f", package, name]);
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    assert!(field("Depends").starts_with("libc6 (>= "), "{}", field("Depends"));
    let tree = folder.path().join("tree");
    dpkg(&["-x", package, tree.to_str().unwrap()]);
    for file in [
        "share/man/man1/trapline-run.1.gz",
        "share/doc/trapline/copyright",
        "share/doc/trapline/changelog.gz",
    ] {
        assert!(tree.join("usr").join(file).is_file(), "{file}");
    }
    let mut demo = patient(tree.join("usr/bin/trapline"));
    demo.args(["demo", "-q"]);
    let ran = finish(demo);
    assert!(ran.code == 0 && ran.out.contains("vortex_control"), "{}{}", ran.out, ran.err);
}
