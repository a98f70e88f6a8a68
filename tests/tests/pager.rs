//! Long listings in a pseudo-terminal of 80x24: the pager that shows them, and what happens where there is none.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{binary, trapline};
use crate::terminal::Terminal;
use tempfile::TempDir;
use trapline_tests::root;

/// A listing of more than a screen.
const LONG: &str = "trapline list embedded:ia32";
/// A listing that fits on a screen.
const SHORT: &str = "trapline list embedded:ia32 \"do_*\"";

/// A shell without variables that choose or change a pager.
fn shell() -> Terminal {
    let mut terminal = Terminal::shell();
    terminal.ends_with("ready>");
    terminal.press("unset PAGER TRAPLINE_PAGER LESS LV; clear\n");
    terminal.ends_with("ready>");
    terminal
}

/// The text of the long listing, and what is said about it.
fn long() -> (String, String) {
    let ran = trapline(&root(), &["list", "embedded:ia32"]);
    assert!(ran.out.lines().count() > 60, "{}", ran.out);
    (ran.out, ran.err.trim_end().to_owned())
}

/// Runs a line whose pager writes the text to a file; the file's text and the screen.
fn into_file(line: &str, variables: &str) -> (String, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("text").display().to_string();
    let mut terminal = shell();
    terminal.press(&format!("{} {line}; echo code $?\n", variables.replace("FILE", &file)));
    let shown = terminal.shows("code 0");
    (std::fs::read_to_string(&file).unwrap_or_default(), shown)
}

#[test]
fn less_shows_a_long_listing_and_what_is_said_about_it_comes_after() {
    let (text, said) = long();
    let first: String = text.lines().take(23).map(|line| format!("{line}\n")).collect();
    let mut terminal = shell();
    terminal.press(&format!("clear; {LONG}; echo code $?\n"));
    let shown = terminal.ends_with("\n:");
    assert_eq!(shown.trim_end(), format!("{first}:").trim_end());
    // The keyboard is the pager's: Ctrl-C ends nothing.
    terminal.press("\x03");
    terminal.writes("\x07");
    // less silently drops the next key if the signal came before it read a key.
    terminal.press("GG");
    let last = text.lines().last().unwrap();
    assert!(terminal.shows("(END)").contains(last));
    assert!(!terminal.shows("(END)").contains(&said));
    terminal.press("q");
    let shown = terminal.shows("code 0");
    assert!(shown.contains(&said), "{shown}");
}

#[test]
fn a_pager_gets_the_text_that_a_pipe_gets() {
    let (text, said) = long();
    let own = "TRAPLINE_PAGER=\"cat > FILE\" PAGER=false";
    let (paged, shown) = into_file(LONG, own);
    assert_eq!(paged, text);
    assert!(shown.contains(&said), "{shown}");
    let (paged, _) = into_file(LONG, "PAGER=\"tee FILE\"");
    assert_eq!(paged, text);
    for (line, args) in [
        ("trapline reference rpn", &["reference", "rpn"][..]),
        ("trapline dis embedded:ia32 do_fork", &["dis", "embedded:ia32", "do_fork"]),
        ("trapline help run", &["help", "run"]),
        ("trapline run --help", &["run", "--help"]),
        ("trapline man run", &["man", "run"]),
    ] {
        let (paged, _) = into_file(line, own);
        let width = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        // The help has the width of the terminal.
        assert_eq!(width(&paged), width(&trapline(&root(), args).out), "{line}");
        assert!(!paged.is_empty(), "{line}");
    }
}

#[test]
fn a_short_listing_or_one_without_a_pager_goes_to_the_terminal() {
    let (text, said) = long();
    let last = format!("{}\n{said}\ncode 0\nready>", text.lines().last().unwrap());
    let plain = |line: &str| {
        let mut terminal = shell();
        terminal.press(&format!("{line}; echo code $?\n"));
        terminal.ends_with("code 0\nready>")
    };
    for line in [
        format!("{LONG} --no-pager"),
        format!("trapline --no-pager {}", LONG.strip_prefix("trapline ").unwrap()),
        format!("PAGER= {LONG}"),
        format!("PAGER=cat {LONG}"),
        format!("TRAPLINE_PAGER= PAGER=false {LONG}"),
        format!("TERM=dumb {LONG}"),
        // There is no less.
        format!("PATH=/nonexistent {} list embedded:ia32", binary().display()),
    ] {
        let shown = plain(&line);
        assert!(shown.trim_end().ends_with(&last), "{line}:\n{shown}");
    }
    // It would fail if it were started.
    let shown = plain(&format!("clear; PAGER=false {SHORT}"));
    let short = trapline(&root(), &["list", "embedded:ia32", "do_*"]);
    assert!(shown.contains(&format!("{}{}", short.out, short.err)), "{shown}");
}

#[test]
fn a_pager_that_is_not_there_is_named_and_the_text_is_shown() {
    let (text, said) = long();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("said").display().to_string();
    // The first is started without a shell, the second one by it.
    for pager in ["nowhere-to-be-found -x", "nowhere-to-be-found \"x\""] {
        let mut terminal = shell();
        terminal.press(&format!("PAGER='{pager}' {LONG} 2> {file}; echo code $?\n"));
        let shown = terminal.ends_with("code 0\nready>");
        assert!(shown.contains(&format!("{}\ncode 0", text.lines().last().unwrap())), "{pager}:\n{shown}");
        let sentence =
            format!("trapline: the pager `{pager}` cannot be started; the text is shown without it\n");
        let told = std::fs::read_to_string(&file).unwrap();
        assert!(told.contains(&sentence) && told.contains(&format!("{said}\n")), "{pager}: {told}");
    }
}

#[test]
fn a_command_whose_pager_is_left_early_ends_quietly() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("t").display().to_string();
    let run =
        ["run", "embedded:ia32", "-q", "--rpn", "fbt:::{ push 1; push 2; log 2 }", "-f", "raw", "-o", &file];
    assert_eq!(trapline(folder.path(), &run).code, 0);
    let all = trapline(folder.path(), &["trace", "cat", &file]).out;
    assert!(all.len() > 1 << 18, "{} bytes fit into a pipe", all.len());
    let mut terminal = shell();
    terminal.press(&format!("clear; PAGER='head -n 3' trapline trace cat {file}; echo code $?\n"));
    let shown = terminal.ends_with("code 0\nready>");
    let first: String = all.lines().take(3).map(|line| format!("{line}\n")).collect();
    assert_eq!(shown.trim_end(), format!("{first}code 0\nready>"));
    // Without a pager it is `head` that closes standard output.
    terminal.press(&format!("clear; trapline trace cat {file} | head -n 3; echo end\n"));
    assert_eq!(terminal.ends_with("end\nready>").trim_end(), format!("{first}end\nready>"));
}
