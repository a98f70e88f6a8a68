//! No command destroys what it reads, nor writes a file twice.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

/// Runs in a folder; the exit code and standard error.
fn trapline(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_trapline")).args(args).current_dir(folder).output().unwrap();
    (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
}

#[test]
fn an_output_that_is_an_input_or_another_output_is_refused_and_all_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\nlog 0\nexit\n";
    std::fs::write(folder.join("p.rpn"), program).unwrap();
    std::fs::hard_link(folder.join("p.rpn"), folder.join("link")).unwrap();
    std::os::unix::fs::symlink("p.rpn", folder.join("symbolic")).unwrap();
    std::fs::write(folder.join("kernel"), "not read before it is refused").unwrap();
    let short = ["--limit-insns", "1K", "-q"];
    let record = [&["record", "embedded:ia32", "-o", "r.tlr"][..], &short].concat();
    assert_eq!(trapline(folder, &record).0, Some(124));
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let before = ["p.rpn", "kernel", "r.tlr"].map(read);

    let guest = "embedded:ia32";
    for args in [
        &["record", guest, "-p", "p.rpn", "-o", "p.rpn"][..],
        &["run", guest, "-p", "p.rpn", "-o", "./p.rpn"],
        &["run", guest, "-p", "p.rpn", "-o", "link"],
        &["run", guest, "-p", "symbolic", "--console", "p.rpn"],
        &["record", "kernel", "-o", "kernel"],
        &["run", "kernel", "--console", "kernel"],
        &["run", guest, "--disk", "kernel", "--platform", "pc", "--com2", "kernel"],
        &["run", guest, "--module", "kernel with arguments", "--console", "kernel"],
        &["record", guest, "-o", "new", "-p", "p.rpn", "--output-file", "new"],
        &["record", guest, "-o", "new", "--console", "./new"],
        &["replay", "r.tlr", "-n", "fbt::do_fork:entry", "-o", "r.tlr"],
        &["replay", "r.tlr", "--at", "100", "--branch", "r.tlr"],
        &["build", "p.rpn", "-o", "link"],
    ] {
        let (code, err) = trapline(folder, args);
        assert_eq!(code, Some(2), "{args:?}: {err}");
        assert!(err.contains(" would overwrite ") && err.lines().count() == 1, "{args:?}: {err}");
        assert_eq!(["p.rpn", "kernel", "r.tlr"].map(read), before, "{args:?}");
        assert!(!folder.join("new").exists(), "{args:?}");
    }
    // A device loses nothing.
    let twice = [&["run", guest, "-p", "p.rpn", "-o", "/dev/null", "--console", "/dev/null"], &short[..]];
    assert_eq!(trapline(folder, &twice.concat()).0, Some(124));
}

#[test]
fn an_output_named_like_a_stream_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(
        folder.join("p.rpn"),
        "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\nlog 0\nexit\n",
    )
    .unwrap();
    let record = ["record", "embedded:ia32", "-o", "r.tlr", "--limit-insns", "1K", "-q"];
    assert_eq!(trapline(folder, &record).0, Some(124));
    for args in [
        &["run", "embedded:ia32", "-o", "-"][..],
        &["record", "embedded:ia32", "-o", "-"],
        &["replay", "r.tlr", "--at", "100", "--branch", "-"],
        &["verify", "r.tlr", "--junit", "-"],
        &["build", "p.rpn", "-o", "-"],
    ] {
        let (code, err) = trapline(folder, args);
        assert_eq!((code, err.lines().count()), (Some(2), 1), "{args:?}: {err}");
        assert!(err.contains(" would go to a file named -, which is not standard output"), "{args:?}: {err}");
        assert!(!folder.join("-").exists(), "{args:?}");
    }
    assert_eq!(
        trapline(folder, &["run", "embedded:ia32", "-o", "./-", "--limit-insns", "1K", "-q"]).0,
        Some(124)
    );
    assert!(folder.join("-").is_file());
}
