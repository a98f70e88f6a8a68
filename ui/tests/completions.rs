//! `trapline completions`: what the functions of bash, zsh and fish give. tests/tests/completions.rs types at bash's prompt.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

/// What a script of a shell prints, in which `trapline` is the program.
fn shell(name: &str, arguments: &[&str], script: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_BIN_EXE_trapline")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(name);
    command.args(arguments).arg("-c").arg(script).env("PATH", path);
    let ran = command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).output();
    let ran = ran.unwrap_or_else(|error| panic!("{name}: {error}; install it: scripts/bootstrap"));
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && err.is_empty(), "{name}: {err}");
    String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What bash puts in place of the last part of a line. Without quotes, this is the part after a colon or an equals sign.
fn bash(line: &str) -> Vec<String> {
    let quote = line.find('\'').map(|at| &line[at + 1..]);
    let word = quote.unwrap_or_else(|| line.rsplit([' ', ':', '=']).next().unwrap());
    let script = format!(
        "source <(trapline completions bash)\nCOMP_LINE={}; COMP_POINT=${{#COMP_LINE}}\n_trapline trapline {}\n\
         ((${{#COMPREPLY[@]}})) && printf '%s\\n' \"${{COMPREPLY[@]}}\"; :",
        quoted(line),
        quoted(word)
    );
    shell("bash", &["--norc"], &script)
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    assert_eq!(bash("trapline com"), ["completions"]);
    assert_eq!(bash("trapline trace c"), ["cat", "convert"]);
    assert_eq!(bash("trapline run --limit"), ["--limit-insns"]);
    assert_eq!(bash("trapline --color "), ["auto", "always", "never"]);
    assert_eq!(bash("trapline run --fbt=s"), ["strict"]);
    assert_eq!(
        bash("trapline completions "),
        ["bash", "zsh", "fish", "--color", "--progress", "--quiet", "--no-pager", "--help"]
    );
    assert_eq!(bash("trapline man trace co"), ["convert"]);
    assert_eq!(bash("trapline check examples/man/2-"), ["examples/man/2-do_fork.rpn"]);
}

#[test]
fn bash_completes_images_after_its_colon() {
    assert_eq!(bash("trapline run emb"), ["embedded:ia32", "embedded:x86_64"]);
    assert_eq!(bash("trapline run embedded:i"), ["ia32"]);
    assert_eq!(bash("trapline run 'embedded:i"), ["embedded:ia32"]);
    assert_eq!(bash("trapline demo x"), ["x86_64"]);
    assert_eq!(bash("trapline run guest-images/prebuilt/vmlinux-ia"), ["guest-images/prebuilt/vmlinux-ia32"]);
}

#[test]
fn bash_completes_probes_of_the_image_field_by_field() {
    let of = |text: &str| bash(&format!("trapline run embedded:ia32 -n {text}"));
    assert_eq!(of("f"), ["fbt::", "fbt:vmlinux:"]);
    assert_eq!(of("fbt:"), [":", "vmlinux:"]);
    assert_eq!(of("fbt::do_s"), ["do_sleep:", "do_syscall:"]);
    assert_eq!(of("fbt::do_f"), ["do_fork:entry", "do_fork:return"]);
    assert_eq!(of("'fbt::do_fork:"), ["fbt::do_fork:entry", "fbt::do_fork:return"]);
    assert_eq!(of("'fbt::do_fork:entry,fbt::do_ex"), ["fbt::do_fork:entry,fbt::do_exit:entry"]);
    assert_eq!(of("'fbt::do_fork:entry { tra"), Vec::<String>::new());
    assert_eq!(of("fbt::no_such"), Vec::<String>::new());
    assert_eq!(bash("trapline run no-such-file -n fbt::do_f"), Vec::<String>::new());
    assert_eq!(bash("trapline list embedded:ia32 do_fo"), ["do_fork"]);
    assert_eq!(bash("trapline dis embedded:x86_64 do_fo"), ["do_fork"]);
    assert_eq!(bash("trapline profile embedded:ia32 --exact do_fo"), ["do_fork"]);
}

#[test]
fn a_recording_on_the_line_names_its_guest() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.tlr").display().to_string();
    let recorded = Command::new(env!("CARGO_BIN_EXE_trapline"))
        .args(["record", "embedded:ia32", "--limit-insns", "1000", "-q", "-o", &file])
        .output()
        .unwrap();
    assert_eq!(recorded.status.code(), Some(124), "{}", String::from_utf8_lossy(&recorded.stderr));
    assert_eq!(bash(&format!("trapline replay {file} -n fbt::do_f")), ["do_fork:entry", "do_fork:return"]);
    assert_eq!(bash(&format!("trapline tui {file} --rpn fbt::do_fork:e")), ["entry"]);
}

#[test]
fn fish_and_zsh_complete_images_and_probes() {
    let script = "trapline completions fish | source; complete -C 'trapline run embedded:i'; \
                  complete -C 'trapline run embedded:ia32 -n fbt::do_fork:e'";
    assert_eq!(shell("fish", &["--no-config"], script), ["embedded:ia32", "fbt::do_fork:entry"]);
    // Outside of a prompt, zsh has no `_describe`.
    let script = "_describe() { print -r - ${(P)3}; }; compdef() {}; source <(trapline completions zsh)\n\
                  words=(trapline run embedded:i) CURRENT=3 PREFIX=$words[3]; _trapline\n\
                  words=(trapline run embedded:ia32 -n \"'fbt::do_f\") CURRENT=5 PREFIX=fbt::do_f; _trapline; :";
    let found = shell("zsh", &["-f"], script);
    assert_eq!(found, ["embedded\\:ia32", "fbt\\:\\:do_fork\\:entry fbt\\:\\:do_fork\\:return"]);
}
