//! The progress line: what it says, and that it leaves no trace in what else is on the terminal.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use crate::cli::{Ran, folder, trapline};
use crate::terminal::Terminal;
use crate::tmux::Tmux;
use tempfile::TempDir;
use trapline_tests::guest;
use trapline_tests::linux::{Linux, QUICK};

/// Runs a command with its progress as lines; what it printed, and the last of these lines.
fn lines(folder: &Path, args: &[&str], code: i32) -> (Ran, String) {
    let ran = trapline(folder, &[args, &["--progress", "always"]].concat());
    assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
    let of_progress = [" of virtual time, ", " read", " instructions executed", " recording, "];
    let mut said = ran.err.lines().filter(|line| of_progress.iter().any(|words| line.contains(words)));
    let last =
        said.next_back().unwrap_or_else(|| panic!("{args:?} shows no progress: {}", ran.err)).to_owned();
    (ran, last)
}

#[test]
fn progress_says_where_a_command_is_and_changes_no_data() {
    let here = TempDir::new().unwrap();
    let here = here.path();
    let run = [
        "run",
        "embedded:ia32",
        "-q",
        "--mem",
        "32M",
        "--limit-insns",
        "300K",
        "--rpn",
        "fbt::put: { push 1; log 1 }",
    ];
    let (ran, last) = lines(here, &[&run[..], &["--stats"]].concat(), 124);
    assert_eq!(ran.out, trapline(here, &run).out);
    let ns = ran
        .err
        .lines()
        .find_map(|line| line.strip_prefix("virtual_ns"))
        .unwrap()
        .trim()
        .parse::<f64>()
        .unwrap();
    assert!(
        last.starts_with(&format!("trapline: 100 %, {:.3} s of virtual time, 300 K instructions", ns / 1e9)),
        "{last}"
    );
    let record = ["record", "embedded:ia32", "-q", "--mem", "32M", "--console", "none", "--limit-insns"];
    let (_, last) = lines(here, &[&record[..], &["300K", "-o", "a.tlr"]].concat(), 124);
    assert!(last.starts_with("trapline: 100 %, "), "{last}");
    lines(here, &[&record[..], &["200K", "-o", "b.tlr"]].concat(), 124);
    let whole = "trapline: 100 %, ";
    for (args, begins, code) in [
        (&["replay", "a.tlr", "--verify", "-q"][..], whole, 0),
        (&["replay", "a.tlr", "--to", "end-100K", "-q"], whole, 0),
        (&["replay", "a.tlr", "-n", "fbt::put:entry", "-q"], whole, 0),
        (&["dump", "a.tlr", "--at", "100K", "-o", "core", "-q"], whole, 0),
        (&["verify", "a.tlr", "-q"], "trapline: 100 %, 1 of 1 recording, 300 K instructions", 0),
        (&["diff", "a.tlr", "b.tlr", "-q"], "trapline: ", 1),
        (&["run", "embedded:ia32", "-q", "--mem", "32M"], "trapline: ", 0),
    ] {
        let (_, last) = lines(here, args, code);
        assert!(last.starts_with(begins), "{args:?}: {last}");
    }
    assert_eq!(trapline(here, &[&run[..], &["-f", "raw", "-o", "t"]].concat()).code, 124);
    let bytes = here.join("t").metadata().unwrap().len();
    let (_, last) = lines(here, &["trace", "convert", "t", "--to", "csv", "-q"], 0);
    let size = if bytes < 10_000 { format!("{bytes} B") } else { format!("{} KB", bytes / 1000) };
    assert!(last.starts_with(&format!("trapline: 100 %, {size} of {size} read")), "{last}");
}

#[test]
fn in_a_pipe_there_is_no_progress_by_itself() {
    let here = folder(&[]);
    let ran = trapline(here.path(), &["run", "embedded:ia32", "-q", "--console", "none"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

/// The screen after a command that writes records, or the guest's console, to the terminal.
fn screen(more: &[&str]) -> String {
    let console = ["run", "embedded:ia32", "--mem", "32M"];
    let (code, screen) = Terminal::new(&[&console[..], more].concat()).end();
    assert_eq!(code, Some(0));
    screen.screen().contents()
}

#[test]
fn the_line_leaves_the_console_and_the_records_as_they_are() {
    for more in [
        &[][..],
        &["--rpn", "fbt::do_fork: { push 1; log 1 }"],
        &["--rpn", "fbt::put:entry { }", "--console", "stdio"],
    ] {
        let without = screen(&[more, &["--progress", "never"]].concat());
        assert_eq!(screen(&[more, &["--progress", "always"]].concat()), without, "{more:?}");
        assert!(!without.contains("virtual time"));
    }
}

/// What the progress line of a run has.
const SEEN: &str = " s of virtual time, ";

/// What a terminal shows when Debian's kernel has booted, with its console there, and all that the terminal got.
fn boot(progress: &str) -> (String, String) {
    let tmux = Tmux::new(220, 900);
    let line = format!(
        "clear; trapline run .guests/linux-cloud-amd64 --initrd .guests/initramfs-amd64.cpio.gz --append '{QUICK}' \
         --limit-insns 3G --until '/ # ' --progress {progress}; echo code $?"
    );
    tmux.types(&line);
    tmux.presses(&["Enter"]);
    let shown = tmux.shows("\ncode 0\nready>");
    (shown.split_once('\n').unwrap().1.to_owned(), tmux.written())
}

/// What a terminal shows of a guest that runs until a signal ends it, up to the message about that. Before, its console must
/// have had its last line, and the terminal this.
fn endless(progress: &str, seen: Option<&str>) -> String {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let script = "echo booted $((6*7))\nwhile true; do true; done\n";
    let initrd = Linux::of("cloud-amd64").unwrap().image(folder.path(), &[], &[], script).unwrap();
    let tmux = Tmux::new(220, 900);
    let line = format!(
        "clear; sh -c 'echo $$ > {}; exec trapline run .guests/linux-cloud-amd64 --initrd {} --append \"{QUICK}\" \
         --progress {progress}'; echo code $?",
        at("pid"),
        initrd.display()
    );
    tmux.types(&line);
    tmux.presses(&["Enter"]);
    tmux.shows("booted 42");
    seen.into_iter().for_each(|seen| tmux.writes(seen));
    let pid = std::fs::read_to_string(at("pid")).unwrap();
    assert!(Command::new("kill").args(["-INT", pid.trim()]).status().unwrap().success());
    let shown = tmux.shows("\ncode 130\nready>");
    let (shown, _) = shown.split_once("trapline: interrupted after ").unwrap_or_else(|| panic!("{shown}"));
    shown.split_once('\n').unwrap().1.to_owned()
}

#[test]
fn guest_linux_boots_under_a_line_that_is_seen_and_leaves_no_trace_at_length() {
    trapline_tests::turns::take().unwrap();
    guest("linux-cloud-amd64");
    guest("initramfs-amd64.cpio.gz");
    // From the beginning.
    let (without, written) = boot("never");
    assert!(without.lines().count() > 100, "{without}");
    assert!(!written.contains(SEEN), "{written}");
    let (shown, written) = boot("always");
    assert_eq!(shown, without);
    assert!(written.contains(SEEN), "{written}");
    // After a second, as it is on a terminal: on a fast host the guest would not need it, so this one does not end.
    let without = endless("never", None);
    assert!(without.contains("booted 42"), "{without}");
    assert_eq!(endless("auto", Some(SEEN)), without);
}
