//! Session files.

use super::*;
use crate::app::{Saved, SavedError};

#[test]
fn a_session_goes_on_where_it_was_left() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]");
    bench.press("mthe third one\nbdo_fork\nW0x1000:4\n/kmalloc\ntvLL++2zz");
    let third = bench.app.at();
    let text = Saved::of(&bench.app).to_string();
    insta::assert_snapshot!("session-file", text);
    let mut other = Bench::restored(&text);
    assert_eq!(Saved::of(&other.app).to_string(), text);
    // The same hit is selected, and the same registers have changed.
    bench.press("][");
    other.press("][");
    assert_eq!(other.screen((120, 40)), bench.screen((120, 40)));
    other.press("<gthe third one\n");
    assert_eq!(other.app.at(), third);
    other.press("c");
    assert_eq!(other.app.scene.as_ref().unwrap().symbol.as_deref(), Some("do_fork"));
}

#[test]
fn a_damaged_session_file_is_refused_with_a_sentence() {
    let whole = Saved::of(&Bench::new(PLAIN).app).to_string();
    let refused = |text: &str| Saved::parse(text).unwrap_err().to_string();
    assert!(Saved::parse(&whole).is_ok());
    let lines: Vec<&str> = whole.lines().collect();
    for kept in 1..lines.len() {
        let cut = Saved::parse(&lines[..kept].join("\n"));
        assert_eq!(cut, Err(SavedError::Cut), "{kept} lines");
    }
    assert_eq!(Saved::parse(""), Err(SavedError::Other));
    assert_eq!(Saved::parse("\x7fELF\0\n"), Err(SavedError::Other));
    assert_eq!(Saved::parse("trapline tui session 1\nend\n"), Err(SavedError::NoRun));
    for (line, why) in [
        ("at nowhere", "nowhere"),
        ("layout huge", "there is no such layout"),
        ("panes hits hits", "each once"),
        ("zoomed perhaps", "write yes or no"),
        ("timeline 41", "41"),
        ("columns size", "there is no column `size`"),
        ("sorted probe sideways", "up or down"),
        ("sorted size up", "there is no column `size`"),
        ("filter pid=x", "`x` is not a process id"),
        ("breakpoint 0x1000", "a value is missing at its end"),
        ("watchpoint 0x20 0x10 x", "ends before it begins"),
        ("bookmark 7", "a value is missing at its end"),
        ("colour green", "a session file has no such line"),
        ("", "a session file has no such line"),
    ] {
        let text = format!("{}\n{line}\n{}", lines[..2].join("\n"), lines[2..].join("\n"));
        let said = refused(&text);
        assert!(said.starts_with(&format!("line 3, `{line}`: ")) && said.contains(why), "{said}");
    }
    let mut bench = Bench::new(PLAIN);
    let other = Saved::parse(&whole.replace("run embedded:ia32", "run embedded:amd64")).unwrap();
    let said = bench.app.restore(other).unwrap_err().to_string();
    assert_eq!(said, "it is of another run, embedded:amd64; this one is embedded:ia32");
}
