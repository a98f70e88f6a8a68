//! What the scripts of the tests are asked for in a wrong way they refuse in a sentence, and do nothing.

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use trapline_house::root;

/// Exit code, standard output and standard error of a script or program in a folder.
fn run(folder: &Path, program: &str, args: &[&str]) -> (i32, String, String) {
    let program = if program.contains('/') { folder.join(program) } else { program.into() };
    let mut command = Command::new(program);
    command.args(args).current_dir(folder);
    // `make test` may run this.
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    for (name, value) in [("NAME", "a"), ("EMAIL", "a@example.org")] {
        command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A folder with this script.
fn with_script(name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("scripts")).unwrap();
    let script = format!("scripts/{name}");
    std::fs::copy(root().join(&script), folder.path().join(&script)).unwrap();
    folder
}

#[test]
fn a_third_that_does_not_exist_is_refused() {
    for third in ["0", "4", "x", "-1", "1 2"] {
        let (code, out, err) = run(&root(), "scripts/fuzz-smoke", &["--targets", third]);
        let sentence = format!("scripts/fuzz-smoke: a third is 1, 2 or 3, not {third}\n");
        assert_eq!((code, out.as_str(), err), (2, "", sentence));
        for target in ["test-long", "fuzz-smoke"] {
            let (code, out, err) = run(&root(), "make", &["-n", target, &format!("THIRD={third}")]);
            assert!(code == 2 && out.is_empty(), "{third}: {out}");
            assert!(err.contains(&format!("THIRD is 1, 2 or 3, not {third}.")), "{err}");
        }
    }
    let (code, _, err) = run(&root(), "scripts/fuzz-smoke", &["soon"]);
    assert_eq!((code, err.as_str()), (2, "scripts/fuzz-smoke: soon is no number of seconds\n"));
    let targets = |more: &[&str]| run(&root(), "scripts/fuzz-smoke", &[&["--targets"], more].concat()).1;
    let mut thirds: Vec<String> = ["1", "2", "3"]
        .iter()
        .flat_map(|n| targets(&[n]).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    thirds.sort();
    assert_eq!(thirds, targets(&[]).lines().collect::<Vec<_>>());
}

#[test]
fn a_commit_gets_another_third_only_if_there_is_something_to_push() {
    let folder = with_script("third");
    let folder = folder.path();
    let git = |args: &[&str]| {
        let (code, out, err) = run(folder, "git", args);
        assert_eq!(code, 0, "{args:?}: {err}");
        out
    };
    let refused = |args: &[&str], sentence: &str| {
        let (code, out, err) = run(folder, "scripts/third", args);
        assert_eq!((code, out.as_str(), err.trim_end()), (2, "", sentence), "{args:?}");
    };
    git(&["init", "-q"]);
    for message in ["one", "two"] {
        git(&["commit", "-q", "--allow-empty", "-m", message]);
    }
    refused(&["nope"], "scripts/third: no commit nope");
    refused(&["--after", "nope"], "scripts/third: no commit nope");
    refused(&["--after", "HEAD"], "scripts/third: HEAD has HEAD already: there is nothing to push");
    let old = git(&["rev-parse", "--short", "HEAD~1"]);
    git(&["commit", "-q", "--allow-empty", "--amend", "-m", "landed"]);
    let landed = git(&["rev-parse", "--short", "HEAD"]);
    let landed = landed.trim();
    git(&["reset", "-q", old.trim()]);
    git(&["commit", "-q", "--allow-empty", "-m", "two"]);
    let sentence = format!("scripts/third: HEAD does not descend from {landed}: rebase on {landed} first");
    refused(&["--after", landed], &sentence);
    git(&["add", "scripts/third"]);
    let head = git(&["rev-parse", "HEAD"]);
    refused(&["--after", "HEAD~1"], "scripts/third: there are staged changes: commit or unstage them first");
    assert_eq!(git(&["rev-parse", "HEAD"]), head);
    git(&["rm", "-q", "--cached", "scripts/third"]);
    let (code, ..) = run(folder, "scripts/third", &["--after", "HEAD~1"]);
    let third = |commit: &str| run(folder, "scripts/third", &[commit]).1.trim().parse::<u32>().unwrap();
    assert_eq!((code, third("HEAD")), (0, third("HEAD~1") % 3 + 1));
    for (args, code) in
        [(&["--help"][..], 0), (&["HEAD", "HEAD"], 2), (&["--after"], 2), (&["--before", "HEAD"], 2)]
    {
        let (ended, out, err) = run(folder, "scripts/third", args);
        assert!(ended == code && (out + &err).starts_with("scripts/third [COMMIT] "), "{args:?}: {err}");
    }
}

#[test]
fn an_input_that_was_changed_under_its_sha_1_is_refused() {
    let folder = with_script("corpus");
    let folder = folder.path();
    let inputs = folder.join("target/fuzz/corpus/few");
    std::fs::create_dir_all(folder.join("tests/fuzz/corpus")).unwrap();
    std::fs::write(folder.join("seed"), "one").unwrap();
    std::fs::write(folder.join("two"), "two").unwrap();
    assert_eq!(run(folder, "tar", &["-cf", "tests/fuzz/corpus/few.tar", "seed"]).0, 0);
    assert_eq!(run(folder, "scripts/corpus", &["add", "few", "two"]).0, 0);
    // The name of a seed says nothing of what is in it.
    std::fs::write(inputs.join("seed"), "another").unwrap();
    assert_eq!(run(folder, "scripts/corpus", &["pack", "few"]).0, 0);
    let two = "ad782ecdac770fc6eb9a62e44f90873fb97fb26b";
    std::fs::write(inputs.join(two), "more").unwrap();
    let (code, _, err) = run(folder, "scripts/corpus", &["pack", "few"]);
    assert!(code == 2 && err.contains(&format!("few/{two} is not named by its SHA-1")), "{err}");
}

#[test]
fn the_slowest_tests_are_those_of_a_run() {
    let folder = with_script("slowest");
    let folder = folder.path();
    for args in [&["x"][..], &["-1"], &["1", "2"]] {
        let (code, out, err) = run(folder, "scripts/slowest", args);
        assert_eq!(
            (code, out.as_str(), err.as_str()),
            (1, "", "usage: scripts/slowest [ROWS]\n"),
            "{args:?}"
        );
    }
    let (code, _, err) = run(folder, "scripts/slowest", &[]);
    assert!(code == 1 && err.starts_with("scripts/slowest: no times in target/times; "), "{err}");
    let times = folder.join("target/times");
    std::fs::create_dir_all(&times).unwrap();
    let cases =
        r#"<r><testcase name="a" classname="p" time="1"/><testcase name="b" classname="p" time="2"/></r>"#;
    std::fs::write(times.join("test.xml"), cases).unwrap();
    let (code, out, _) = run(folder, "scripts/slowest", &["1"]);
    let table = "test: 2 tests, 3 s one after the other; the slowest:\n     2.0 s  p  b\n";
    assert_eq!((code, out.as_str()), (0, table));
    std::fs::write(times.join("test.xml"), "<r>").unwrap();
    let (code, out, err) = run(folder, "scripts/slowest", &[]);
    assert!(code == 1 && out.is_empty() && err.lines().count() == 1, "{err}");
}
