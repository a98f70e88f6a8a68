//! `trapline tui` in a terminal: keys go in, and what the terminal shows is compared with the screens of docs/tui.md.
//! `TRAPLINE_WRITE_SCREENS=1` writes them there instead. The tour is in tmux; the other tests are in a pseudo-terminal that
//! `script` makes, which also tells exit codes and need not be read.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use crate::patience::until;
use crate::terminal::Terminal;
use crate::tmux::Tmux;
use trapline_tests::{guest, root};

const TUI: &str = "docs/tui.md";
const TOUR: &[&str] = &["embedded:ia32", "-p", "examples/man/6-groups.rpn"];

fn tui(args: &[&str]) -> Terminal {
    Terminal::new(&[&["tui"], args].concat())
}

/// The screen of a document, between what is before and after it, if it has one.
fn parts<'a>(text: &'a str, document: &str, mark: &str) -> (&'a str, Option<&'a str>, &'a str) {
    let (before, after) = text.split_once(mark).unwrap_or_else(|| panic!("no `{mark}` in {document}"));
    match after.strip_prefix("\n```text\n").and_then(|rest| rest.split_once("```\n")) {
        Some((shown, rest)) => (before, Some(shown), rest),
        None => (before, None, after),
    }
}

/// What is to hold for a screen.
type Holds<'a> = dyn Fn(&str) -> bool + 'a;

/// Waits until the screen of a document is shown, or writes the first one there that has this in it.
fn compare(document: &str, name: &str, wanted: &str, shows: &mut dyn FnMut(&Holds<'_>) -> String) {
    let path = root().join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let mark = format!("<!-- screen: {name} -->\n");
    let (before, shown, rest) = parts(&text, document, &mark);
    if std::env::var_os("TRAPLINE_WRITE_SCREENS").is_some() {
        let screen = shows(&|screen| screen.contains(wanted) && !screen.contains("  going "));
        std::fs::write(&path, format!("{before}{mark}\n```text\n{screen}```\n{rest}")).unwrap();
        return;
    }
    let shown = shown.unwrap_or_else(|| panic!("no screen {name} in {document}"));
    assert!(shown.contains(wanted), "screen {name} of {document}:\n{shown}");
    shows(&|screen| screen == shown);
}

/// As a newcomer follows it, in tmux.
#[test]
fn the_tour() {
    trapline_tests::turns::take().unwrap();
    let tmux = Tmux::new(80, 24);
    let compare_in = |document: &str, name: &str, wanted: &str| {
        let what = format!("screen {name} of {document}");
        compare(document, name, wanted, &mut |holds| tmux.shows_that(&what, holds));
    };
    let compare = |name: &str, wanted: &str| compare_in(TUI, name, wanted);
    tmux.types(&format!("trapline tui {}", TOUR.join(" ")));
    tmux.presses(&["Enter"]);
    compare("start", "the run is listed to its end");
    assert_eq!(tmux.modes(), (true, false));
    for hit in 1..=3 {
        tmux.types("]");
        tmux.shows(&format!("  hit {hit} "));
    }
    compare("third", "  hit 3 ");
    compare_in("README.md", "third", "  hit 3 ");
    tmux.types("i");
    tmux.shows("6 Handler 0 of ");
    tmux.types("..");
    compare("handler", "6 Handler 2 of ");
    tmux.types("I12");
    tmux.shows("┏2 Code");
    tmux.types("ss");
    tmux.shows("at 82016 ");
    tmux.types("F");
    compare("caller", "at 82013 ");
    tmux.types("/kmalloc");
    tmux.presses(&["Enter"]);
    compare("filter", "(kmalloc)");
    tmux.presses(&["Escape"]);
    tmux.shows("1 Hits 244─");
    tmux.types("1t");
    tmux.shows("1 Hits 244 by process━");
    tmux.types("v");
    tmux.shows("by process, the last first━");
    tmux.types("afbt::do_fo");
    tmux.presses(&["Tab"]);
    tmux.shows("fbt::do_fork:");
    tmux.types("entry { trace(pid); }");
    tmux.presses(&["Enter"]);
    tmux.shows_that("250 hits at 82013", |shown| {
        shown.contains("1 Hits 250 ") && shown.contains("at 82013 ") && !shown.contains("  going ")
    });
    tmux.types("g#7");
    tmux.presses(&["Enter"]);
    tmux.shows("  hit 7 ");
    tmux.presses(&["C-o"]);
    tmux.shows("at 82013 ");
    tmux.presses(&["C-y"]);
    tmux.shows("  hit 7 ");
    tmux.types(":quit");
    tmux.shows("Action: quit");
    tmux.presses(&["Escape"]);
    tmux.shows_that("no action", |shown| shown.contains("1 Hits 250 ") && !shown.contains("Action: "));
    tmux.resize(120, 40);
    tmux.shows("5 Stack");
    tmux.types("q");
    let shell = tmux.shows("\nready>\n");
    assert!(!shell.contains("1 Hits"), "the terminal is not restored:\n{shell}");
    assert_eq!(tmux.modes(), (false, true));
    tmux.types("echo left with $?; stty -a | grep -o ' icanon'");
    tmux.presses(&["Enter"]);
    tmux.shows("\nleft with 0\n icanon\n");
}

#[test]
fn a_probe_that_is_added_to_a_recording_shows_the_hits_of_a_live_run() {
    const CLAUSE: &str = "fbt::do_fork:entry { push pid; log 1 }";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.tlr");
    let run =
        ["embedded:ia32", "-n", "fbt::do_page_fault:entry", "--limit-insns", "3M", "-q", "--rpn", CLAUSE];
    let live = crate::cli::trapline(&root(), &[&["run"], run.as_slice()].concat());
    let hits = live.out.lines().filter(|line| line.contains(":do_fork:")).count();
    assert!(hits > 0, "{}", live.out);
    let recorded =
        crate::cli::trapline(&root(), &[&["run"], &run[..6], &["--record", file.to_str().unwrap()]].concat());
    assert_eq!(recorded.code, live.code, "{}", recorded.err);
    trapline_tests::turns::take().unwrap();
    let mut terminal = tui(&[file.to_str().unwrap()]);
    terminal.shows("the run is listed to its end");
    terminal.press(&format!("/do_fork\ra{CLAUSE}\r"));
    terminal.shows(&format!("1 Hits {hits} of "));
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn channels_of_a_recording_are_those_at_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.tlr");
    let name = file.to_str().unwrap();
    let recorded = crate::cli::trapline(
        &root(),
        &["record", "embedded:dti", "--mem", "16M", "--console", "none", "-o", name],
    );
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    trapline_tests::turns::take().unwrap();
    let mut terminal = tui(&[name]);
    terminal.shows("the run is listed to its end");
    terminal.press("dz");
    for at in ["2757K", "end", "3M"] {
        let shown = crate::cli::trapline(&root(), &["dti", "show", name, "--at", at, "-q"]).out;
        let last = shown.lines().rfind(|line| !line.starts_with("  +")).unwrap();
        terminal.press(&format!("g{at}\r"));
        terminal.shows(last);
    }
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn sigterm_restores_the_terminal() {
    trapline_tests::turns::take().unwrap();
    let mut terminal = tui(TOUR);
    terminal.shows("the run is listed to its end");
    terminal.signal("-TERM");
    let (code, after) = terminal.end();
    assert_eq!(code, Some(130));
    assert!(!after.screen().alternate_screen());
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_and_fg_draws_the_screen_again() {
    trapline_tests::turns::take().unwrap();
    let mut terminal = Terminal::shell();
    terminal.shows("ready>");
    terminal.press(&format!("trapline tui {}\n", TOUR.join(" ")));
    terminal.shows("the run is listed to its end");
    terminal.press("]]]");
    let before = terminal.shows("hit 3 ");
    assert!(before.contains("┏1 Hits"), "{before}");
    terminal.press("\x1a");
    let shell = terminal.ends_with("ready>");
    assert!(shell.contains("Stopped") && !shell.contains("1 Hits"), "{shell}");
    assert!(!terminal.is_full_screen());
    terminal.press("stty -a | grep -o ' icanon'; echo 'of the shell'\n");
    terminal.shows(" icanon\nof the shell");
    terminal.press("fg\n");
    terminal.shows_that(&before, |shown| shown == before);
    assert!(terminal.is_full_screen());
    terminal.press("]");
    terminal.shows("hit 4 ");
    terminal.press("q");
    // Not before the prompt: the program may still read what is typed.
    let shell = terminal.ends_with("ready>");
    assert!(shell.contains("of the shell") && !shell.contains("1 Hits"), "{shell}");
    terminal.press("exit\n");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn a_session_file_keeps_bookmarks_and_layout() {
    trapline_tests::turns::take().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my session");
    let args = [TOUR, &["--session", file.to_str().unwrap()]].concat();
    let mut terminal = tui(&args);
    terminal.shows("the run is listed to its end");
    terminal.press("]]]");
    terminal.shows("hit 3 ");
    terminal.press("mfirst fault\rtz");
    terminal.shows("1 Hits 244 by process");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
    let mut terminal = tui(&args);
    let shown = terminal.shows("hit 3 ");
    assert!(!shown.contains("2 Code"), "the pane is zoomed:\n{shown}");
    terminal.shows("1 Hits 244 by process");
    terminal.press("<");
    terminal.shows("at 0 ");
    terminal.press("gfirst fault\r");
    terminal.shows("hit 3 ");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace("\nend\n", "\n")).unwrap();
    let damaged = tui(&args).end();
    assert_eq!(damaged.0, Some(7));
    let said = damaged.1.screen().contents().replace('\n', "");
    assert!(said.contains("its last line is not `end`: it is cut off"), "{said}");
    assert!(!said.contains("1 Hits"), "{said}");
}

#[test]
fn a_terminal_that_does_not_read_gets_the_last_state_later_and_not_every_frame() {
    trapline_tests::turns::take().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("after");
    let mut terminal = Terminal::unread(&[&["tui"], TOUR].concat());
    terminal.shows("the run is listed to its end");
    let before = terminal.received();
    // Each of them moves the list by a line. The file is written when all of them are handled, and no frame is read until then.
    terminal.press(&format!("{}w\x15{}\r", "j".repeat(200), file.display()));
    until("the keys are handled", || file.exists());
    let shown = terminal.shows("       203  ");
    assert!(shown.contains("       199  "), "{shown}");
    let bytes = terminal.received() - before;
    // 200 frames have more than 60,000. What is on its way in pipes and in the terminal comes out in any case.
    assert!(bytes < 30_000, "{bytes} bytes");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn a_recording_of_a_run_with_typed_lines_and_added_probes_replays() {
    trapline_tests::turns::take().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.tlr");
    let file = file.to_str().unwrap();
    let mut terminal = tui(&[TOUR, &["--limit-insns", "4M", "--record", file]].concat());
    terminal.shows("the run is listed to its end");
    terminal.press("]]]");
    terminal.shows("hit 3 ");
    terminal.press("7lecho typed\r");
    terminal.shows("the run is listed to its end");
    // The message is gone before the run is listed again.
    terminal.press("]");
    terminal.shows("hit 4 ");
    terminal.press("afbt::do_fork:entry { @forks = count(); }\r");
    terminal.shows("the run is listed to its end");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
    let replayed = crate::cli::trapline(&root(), &["replay", file, "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.err);
    let info = crate::cli::trapline(&root(), &["replay", file, "--info"]);
    // The recording ends as the run did, with the limit; another one with the guest, though a probe was added.
    for input in ["echo typed", "fbt::do_fork:entry", "the instruction limit was reached"] {
        assert!(info.out.contains(input), "{}", info.out);
    }
}

#[test]
fn a_recording_with_an_added_probe_ends_as_the_guest_did() {
    trapline_tests::turns::take().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.tlr");
    let file = file.to_str().unwrap();
    let mut terminal = tui(&[TOUR, &["--record", file]].concat());
    terminal.shows("the run is listed to its end: the guest halted");
    // Reports of a mouse outside of the window do no harm.
    terminal.press("\x1b[<0;0;0M\x1b[<0;5;0M\x1b[32;0;0M");
    // The message is gone before the run is listed again.
    terminal.press("]");
    terminal.shows("hit 1 ");
    terminal.press("afbt::do_fork:entry { @forks = count(); }\r");
    terminal.shows("the run is listed to its end: the guest halted");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
    let info = crate::cli::trapline(&root(), &["replay", file, "--info"]);
    assert!(info.out.contains("the guest halted after"), "{}", info.out);
}

#[test]
fn a_d_program_on_the_screen() {
    trapline_tests::turns::take().unwrap();
    let mut terminal = tui(&["embedded:ia32", "-s", "examples/d/forks.d"]);
    terminal.shows("the run is listed to its end");
    terminal.press(">");
    terminal.shows("the end");
    terminal.press("9z");
    compare(TUI, "d", "9 Variables", &mut |holds| terminal.shows_that("screen d", holds));
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
}

/// What `run` prints after the header of each record, in one line.
fn printed(args: &[&str]) -> Vec<String> {
    let run = crate::cli::trapline(&root(), &[&["run"], args, &["-q"]].concat());
    let mut records: Vec<String> = Vec::new();
    for line in run.out.lines() {
        let data = line.strip_prefix("DProbes(").map(|line| line.split_once(')').unwrap().1.trim());
        let after_name = |data: &str| data.split_once(' ').map_or(String::new(), |(_, data)| data.to_owned());
        match data {
            Some(data) if data.starts_with("probe=") => records.push(after_name(data)),
            Some(data) => records.push(data.to_owned()),
            None => {
                let last = records.last_mut().unwrap();
                *last = format!("{last} {}", line.trim()).trim().to_owned();
            }
        }
    }
    assert!(!records.is_empty(), "{}", run.err);
    records
}

/// The column `record` of the list, as it is written to a file.
fn listed(args: &[&str]) -> Vec<String> {
    trapline_tests::turns::take().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.txt");
    let mut terminal = tui(args);
    terminal.shows("the run is listed to its end");
    terminal.press("V\x15record\rw\x15");
    terminal.press(&format!("{}\r", file.display()));
    terminal.shows("written to ");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
    let text = std::fs::read_to_string(&file).unwrap();
    text.lines().skip(1).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn records_are_listed_as_run_prints_them() {
    let templates = ["-p", "examples/man/1-appln.rpn", "--templates", "examples/templates/man.dir"];
    for more in [&["-p", "examples/man/7a-nr_free_pages.rpn"], templates.as_slice()] {
        let args = [&["embedded:ia32", "--limit-insns", "2M"], more].concat();
        assert_eq!(listed(&args), printed(&args), "{more:?}");
    }
}

#[test]
fn guest_gnumach_arguments_are_listed_by_their_types() {
    let args = [".guests/gnumach", "-n", "fbt::kmem_cache_alloc:entry", "--limit-insns", "20M"];
    let wanted = printed(&args);
    assert!(wanted.iter().all(|record| record.starts_with("kmem_cache_alloc(cache=")), "{wanted:?}");
    assert_eq!(listed(&args), wanted);
}

/// The file of a function's source as the compiler knew it, and the line where the function begins.
fn source_of(function: &str) -> (String, u32) {
    let file = std::fs::read(guest("gnumach.gz")).expect("run `make guests`");
    let image = trapline_emu::load::Image::parse(&file, "gnumach").unwrap();
    let symbols = trapline_emu::symbols::Symbols::from_elf(image.bytes(), "gnumach").unwrap();
    let target = trapline_providers::Target::new(image, symbols, Vec::new());
    let line = target.source_line(target.symbols().sole(function).unwrap().addr).unwrap();
    (line.file, line.line)
}

#[test]
fn guest_gnumach_memory_is_shown_by_type_and_source_lines_are_shown() {
    trapline_tests::turns::take().unwrap();
    let (file, line) = source_of("kmem_cache_alloc");
    let (from, name) = file.rsplit_once('/').unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text: String = (1..10_000).map(|n| format!("source line {n};\n")).collect();
    std::fs::write(folder.path().join(name), text).unwrap();
    let sources = format!("{from}={}", folder.path().display());
    let clause = "fbt::kmem_cache_alloc:entry { trace(arg0); }";
    let mut terminal =
        tui(&[".guests/gnumach", "-n", clause, "--limit-insns", "20M", "--substitute-path", &sources]);
    terminal.shows("the run is listed to its end");
    terminal.press("]");
    terminal.shows("hit 1 ");
    terminal.shows(&format!("│{line:>6}  source line {line};"));
    terminal.press("x((struct kmem_cache *)&vm_map_entry_cache)\r");
    terminal.shows("4 Memory struct kmem_cache ");
    terminal.press("z");
    let shown = terminal.shows_that("all members", |shown| {
        shown.contains(".slab_size") && !shown.contains("3 Registers") && !shown.contains("  going ")
    });
    assert!(shown.contains("4096 0x1000  size_t"), "{shown}");
    terminal.press("j\r");
    terminal.shows("4 Memory struct list ");
    terminal.press("\x7f");
    terminal.shows_that(&shown, |now| now == shown);
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn frame_times_are_printed_at_the_end() {
    trapline_tests::turns::take().unwrap();
    let mut terminal = tui(&[TOUR, &["--frame-stats"]].concat());
    terminal.shows("the run is listed to its end");
    terminal.press("q");
    let (code, after) = terminal.end();
    assert_eq!(code, Some(0));
    let said = after.screen().contents();
    assert!(said.contains(" frames, the longest ") && said.contains("over 16 ms"), "{said}");
}

#[test]
fn without_a_terminal_it_is_refused() {
    let ran = crate::cli::trapline(&PathBuf::from("/"), &["tui", "embedded:ia32"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("tui needs a terminal for its input and its output"), "{}", ran.err);
}

#[test]
fn the_keys_of_the_document_are_those_of_the_table() {
    let path = root().join("docs/tui.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, after) = text.split_once("<!-- keys -->\n").unwrap();
    let mut table = "\n| Key | Action | Where | It does |\n|---|---|---|---|\n".to_owned();
    for entry in trapline_tui::TABLE {
        let keys: Vec<String> = entry.keys.iter().map(|key| format!("`{key}`")).collect();
        table += &format!(
            "| {} | `{}` | {} | {} |\n",
            keys.join(" "),
            entry.id,
            entry.context.word(),
            entry.sentence
        );
    }
    // A blank line follows the table.
    let shown = &after[..after.find("|\n\n").unwrap() + 2];
    if std::env::var_os("TRAPLINE_WRITE_SCREENS").is_some() {
        let rest = after.strip_prefix(shown).unwrap();
        std::fs::write(&path, format!("{before}<!-- keys -->\n{table}{rest}")).unwrap();
        return;
    }
    assert_eq!(shown, table);
}

#[test]
fn a_recording_is_whole_at_whatever_moment_one_leaves_after_a_change() {
    trapline_tests::turns::take().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.tlr");
    let name = file.to_str().unwrap();
    let mut terminal = tui(&[TOUR, &["--limit-insns", "4M", "--record", name]].concat());
    terminal.shows("the run is listed to its end");
    terminal.press("]]]7lls\rq");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0));
    let replayed = crate::cli::trapline(&root(), &["replay", name, "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.err);
    let said = screen.screen().contents();
    let kept = said.contains("holds the run before the last change");
    let info = crate::cli::trapline(&root(), &["replay", name, "--info"]);
    // It is the one run or the other, or the run was left before the line was typed.
    assert!(!(info.out.contains("type ") && kept), "{}{said}", info.out);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_session_file_of_another_guest_with_the_same_name_is_refused() {
    trapline_tests::turns::take().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let record = |name: &str, guest: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let file = file.to_str().unwrap().to_owned();
        let made = crate::cli::trapline(&root(), &["record", guest, "--limit-insns", "300K", "-o", &file]);
        assert_eq!(made.code, 124, "{}", made.err);
        file
    };
    let (one, other) = (record("a/x.tlr", "embedded:ia32"), record("b/x.tlr", "embedded:x86_64"));
    let session = folder.path().join("session");
    let with = |recording: &str| tui(&[recording, "--session", session.to_str().unwrap()]);
    let mut terminal = with(&one);
    terminal.shows("the run is listed to its end");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
    let refused = with(&other).end();
    assert_eq!(refused.0, Some(7));
    let said = refused.1.screen().contents().replace('\n', "");
    assert!(said.contains("also named x.tlr"), "{said}");
    // The same recording with another name.
    let copy = folder.path().join("y.tlr");
    std::fs::copy(&one, &copy).unwrap();
    let mut terminal = with(copy.to_str().unwrap());
    terminal.shows("the run is listed to its end");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
}
