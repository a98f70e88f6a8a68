//! Every stream that the program writes to: if what was asked for cannot be written, the exit code says so.
//!
//! Each command runs with standard output closed, full, and with a reader that is gone; the commands whose answers go to
//! standard error, with that; and each option that names a file, with a full one.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{PipeWriter, pipe};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::cli::{Ran, binary, finish, patient, trapline};
use trapline_tests::root;

/// Commands that answer on standard output, as a shell reads them.
const ANSWERS: &str = r#"
run embedded:ia32 -q
run embedded:ia32 -q --console vga
run embedded:ia32 -q -n fbt::do_fork:entry
run embedded:ia32 -q -n fbt::do_fork:entry -f json
run embedded:ia32 -q -n fbt::do_fork:entry -f raw
run embedded:ia32 -q -n fbt::do_fork:entry -f csv
run embedded:ia32 -q -n fbt::do_fork:entry -f dtrace
run embedded:ia32 -q -n fbt::do_fork:entry -f folded --stack
run embedded:ia32 -q -n fbt::do_fork:entry -f svg --stack
run embedded:ia32 -q -n fbt::do_fork:entry -f perfetto
run embedded:ia32 -q -n 'fbt::do_fork:entry { @ = count(); }'
run embedded:ia32 -q -n 'BEGIN { printf("x\n"); exit(0); }'
run embedded:ia32 -q -p p.rpn --query --getvars
record embedded:ia32 -q -o other.tlr
replay run.tlr -q
replay run.tlr --info
replay run.tlr -q --calls do_fork
replay run.tlr -q --who-wrote jiffies
replay run.tlr -q --when 'eip == do_fork'
diff run.tlr run.tlr -q
verify run.tlr -q
dump --info small.core
list embedded:ia32 do_fork -q
list embedded:ia32 fbt::do_fork: -q
list embedded:ia32 --processes --at insns=2M -q
dis embedded:ia32 do_fork -q
dis p.ppdf
check p.rpn -q
check -E p.rpn
check -f json p.rpn
check --explain old-form
demo -q
demo --manual -q
dtrace -qn 'BEGIN { printf("x\n"); exit(0); }'
man run
completions bash
reference rpn
profile embedded:ia32 -q
top embedded:ia32 -q
trace cat run.trace
trace convert run.trace --to csv
dti list embedded:dti-ia32 -q
fuzz embedded:ia32 -q --findings found --execs 5 --rpn 'fbt::do_fork:entry { push mem, u8 }'
--help
--version
run --help
"#;

/// Commands that answer on standard error.
const ASIDE: &str = r#"
run embedded:ia32 -q --digest
run embedded:ia32 -q --stats
run embedded:ia32 -q --digest --limit-insns 1M
run embedded:ia32 -q -n fbt::do_fork:entry --console stdio
replay run.tlr -q --digest
replay run.tlr -q --speed-report
trace cat run.trace --stats
check warned.rpn
"#;

/// Commands whose messages nobody has asked for.
const TALK: &str = r#"
run embedded:ia32 -n fbt::do_fork:entry
run embedded:ia32 -p warned.rpn
profile embedded:ia32
build p.rpn -o p2.ppdf
"#;

/// Commands that write a file.
const FILES: &str = r#"
run embedded:ia32 -q -n fbt::do_fork:entry -o /dev/full
run embedded:ia32 -q -n fbt::do_fork:entry -f json -o /dev/full
run embedded:ia32 -q -n fbt::do_fork:entry -f raw -o /dev/full
run embedded:ia32 -q -n fbt::do_fork:entry -f csv -o /dev/full
run embedded:ia32 -q -n fbt::do_fork:entry -f svg --stack -o /dev/full
run embedded:ia32 -q -n fbt::do_fork:entry -f perfetto -o /dev/full
run embedded:ia32 -q --console /dev/full
run embedded:ia32 -q -n fbt::do_fork:entry --log-to com2 --com2 /dev/full
run embedded:ia32 -q --save /dev/full
run embedded:ia32 -q --record /dev/full
record embedded:ia32 -q -o /dev/full
replay run.tlr -q -o /dev/full
replay run.tlr -q -n fbt::do_fork:entry --branch /dev/full
verify run.tlr -q --junit /dev/full
dump embedded:ia32 -q --limit-insns 1M --mem 8M -o /dev/full
build p.rpn -q -o /dev/full
profile embedded:ia32 -q -o /dev/full
trace cat run.trace -o /dev/full
trace convert run.trace --to csv -o /dev/full
dtrace -q -n 'BEGIN { printf("x\n"); exit(0); }' -o /dev/full
"#;

const PROGRAM: &str =
    "name = vmlinux\nmodtype = kernel\nvars = 1\noffset = do_fork\nopcode = 0x55\ninc lv, 0\npush 1\n";

/// A folder with what the commands read.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let good = |args: &[&str]| {
        let ran = trapline(folder.path(), args);
        assert!(matches!(ran.code, 0 | 124), "{args:?}: {}", ran.err);
    };
    std::fs::write(folder.path().join("p.rpn"), format!("{PROGRAM}log 1\n")).unwrap();
    std::fs::write(folder.path().join("warned.rpn"), format!("{PROGRAM}log b, 1\n")).unwrap();
    good(&["build", "p.rpn", "-q"]);
    good(&["record", "embedded:ia32", "-p", "p.rpn", "-q", "-o", "run.tlr"]);
    good(&["run", "embedded:ia32", "-n", "fbt::do_fork:entry", "-f", "raw", "-q", "-o", "run.trace"]);
    good(&["dump", "embedded:ia32", "--limit-insns", "1M", "--mem", "8M", "-q", "-o", "small.core"]);
    folder
}

/// A line with these redirections.
fn shell(folder: &Path, line: &str, redirected: &str) -> Command {
    let mut shell = patient("bash");
    let text = format!("\"$0\" {line} {redirected}");
    shell.args(["-c", &text]).arg(binary()).current_dir(folder).env_remove("RUST_BACKTRACE");
    shell
}

fn run(folder: &Path, line: &str, redirected: &str) -> Ran {
    finish(shell(folder, line, redirected))
}

/// A pipe whose reader is gone.
fn broken() -> PipeWriter {
    let (_, writer) = pipe().unwrap();
    writer
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty())
}

#[test]
fn an_answer_that_standard_output_does_not_take_is_an_error() {
    let folder = folder();
    for line in lines(ANSWERS) {
        let plain = run(folder.path(), line, "2> /dev/null < /dev/null");
        assert!(!plain.out.is_empty(), "{line}: writes nothing");
        for redirected in [">&-", "> /dev/full"] {
            let ran = run(folder.path(), line, &format!("< /dev/null {redirected}"));
            assert_eq!(ran.code, 7, "{line} {redirected}: {}", ran.err);
            assert!(ran.err.contains("cannot write standard output: "), "{line} {redirected}: {}", ran.err);
        }
        let mut left = shell(folder.path(), line, "< /dev/null");
        left.stdout(broken());
        let ran = finish(left);
        assert_eq!(ran.code, 141, "{line}: {}", ran.err);
        assert!(!ran.err.contains("cannot write"), "{line}: {}", ran.err);
        // A device that throws data away is no closed stream, even if it was opened for reading and writing.
        for redirected in ["> /dev/null", "1<> /dev/null"] {
            let ran = run(folder.path(), line, &format!("2> /dev/null < /dev/null {redirected}"));
            assert_eq!(ran.code, plain.code, "{line} {redirected}");
        }
    }
}

#[test]
fn an_answer_that_standard_error_does_not_take_is_an_error() {
    let folder = folder();
    for line in lines(ASIDE) {
        let plain = run(folder.path(), line, "> /dev/null < /dev/null");
        assert!(!plain.err.is_empty(), "{line}: writes nothing");
        for redirected in ["2>&-", "2> /dev/full"] {
            let ran = run(folder.path(), line, &format!("< /dev/null > /dev/null {redirected}"));
            assert_eq!(ran.code, 7, "{line} {redirected}");
        }
        let mut left = shell(folder.path(), line, "< /dev/null > /dev/null");
        left.stderr(broken());
        assert_eq!(finish(left).code, 141, "{line}");
        let ran = run(folder.path(), line, "< /dev/null > /dev/null 2> /dev/null");
        assert_eq!(ran.code, plain.code, "{line}");
    }
    for line in lines(TALK) {
        let plain = run(folder.path(), line, "> /dev/null < /dev/null");
        assert!(!plain.err.is_empty(), "{line}: says nothing");
        for redirected in ["2>&-", "2> /dev/full"] {
            let ran = run(folder.path(), line, &format!("> /dev/null < /dev/null {redirected}"));
            assert_eq!(ran.code, plain.code, "{line} {redirected}");
        }
    }
}

#[test]
fn a_file_that_is_full_is_an_error_with_its_name() {
    let folder = folder();
    for line in lines(FILES) {
        let ran = run(folder.path(), line, "< /dev/null");
        assert_eq!(ran.code, 7, "{line}: {}", ran.err);
        assert!(ran.err.contains("cannot write /dev/full: No space left on device"), "{line}: {}", ran.err);
    }
}

/// Every command is in one of the lists, or has no such stream.
#[test]
fn the_commands_are_all_commands() {
    let help = trapline(&root(), &["--help"]);
    let commands = help.out.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("     "));
    let names: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 15, "{names:?}");
    // `tui` has a terminal, and gdb's server a debugger; `help` is `--help`.
    for name in names.iter().filter(|name| !["tui", "gdb", "help"].contains(name)) {
        let begins = |line: &str| line.split(' ').next() == Some(name);
        assert!(lines(ANSWERS).chain(lines(FILES)).any(begins), "{name} is not tested");
    }
}
