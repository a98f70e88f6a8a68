//! `trapline tui` with a list of more than a million hits, looked through in a terminal. That no step of it is long is a matter of
//! the hits that it looks at, which tests of the crate count; how long frames and answers take, `make bench` measures.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::terminal::Terminal;

/// Every function of Debian's cloud kernel, for its first instructions. `make bench` goes on to the shell.
const ARGS: &[&str] = &[
    "tui",
    ".guests/linux-cloud-amd64",
    "--initrd",
    ".guests/initramfs-amd64.cpio.gz",
    "--rpn",
    "fbt:::entry { }",
    "--limit-insns",
    "60M",
    "--frame-stats",
];

/// The number before a text.
fn before(text: &str, mark: &str) -> f64 {
    let rest = text.split_once(mark).unwrap_or_else(|| panic!("no `{mark}` in {text}")).0;
    let digits = rest.rsplit(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

/// The text of `--frame-stats` after everything was done once that takes longer the more hits there are.
fn look_through() -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hits.txt");
    let mut terminal = Terminal::new(ARGS);
    let listed = terminal.shows("the run is listed to its end");
    let hits = listed.split_once("1 Hits ").unwrap().1;
    let hits: usize = hits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
    assert!(hits > 1_000_000, "{hits} hits");
    for hit in [hits - 1, 1, hits / 2, hits, 12_345] {
        terminal.press(&format!("g#{hit}\r"));
        // The line may have no room for more.
        let there = [format!("  hit {hit} "), format!("  hit {hit}\n")];
        terminal.shows_that(&there[0], |shown| {
            there.iter().any(|text| shown.contains(text)) && !shown.contains("  going ")
        });
    }
    terminal.press("\x1b[F");
    terminal.shows(&format!(" {hits} "));
    terminal.press("/kmalloc\r");
    terminal.shows("(kmalloc)");
    // Nothing is left of the filter.
    terminal.press("/\x15\r");
    terminal.press("tt");
    terminal.shows("by probe━");
    terminal.press("tt");
    terminal.shows(&format!("1 Hits {hits}━"));
    terminal.press(&format!("w\x15{}\r", file.display()));
    terminal.shows("written to ");
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), hits + 1);
    terminal.press("afbt::do_exit:entry { push pid; log 1 }\r");
    terminal.shows("the run is listed to its end");
    terminal.shows(&format!("1 Hits {hits}━"));
    terminal.press("q");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0));
    screen.screen().contents().replace('\n', "")
}

#[test]
fn guest_linux_more_than_a_million_hits_are_looked_through_at_length() {
    trapline_tests::turns::take().unwrap();
    let said = look_through();
    let bytes = before(&said, " bytes each");
    assert!(bytes <= 24.0, "{said}");
    println!("{said}");
}
