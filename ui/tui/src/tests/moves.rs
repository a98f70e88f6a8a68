//! Every move of a timeline has an action with a key.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::action::TABLE;

/// The actions of each move.
const MOVES: &[(&str, &[&str])] = &[
    ("goto", &["goto", "first", "end"]),
    ("goto_telling", &["goto"]),
    ("step", &["step", "goto"]),
    ("back", &["back", "goto"]),
    ("next_hit", &["next-hit", "next-of-probe"]),
    ("previous_hit", &["previous-hit", "previous-of-probe"]),
    ("run_until", &["continue", "run-to"]),
    ("reverse_continue", &["reverse", "reverse-to", "writer"]),
    ("finish", &["finish"]),
    ("back_to_caller", &["caller"]),
    ("into_hit", &["into-hit"]),
    ("step_operation", &["step-op"]),
    ("back_operation", &["back-op"]),
    ("out", &["out"]),
];
/// Functions that change a timeline and are no moves.
const OTHERS: [&str; 5] = ["ends_at", "session_mut", "apply", "layer", "take_due"];
/// Moves in the terms of gdb's protocol. Those above go as far.
const OF_GDB: [&str; 6] =
    ["run_on", "run_on_telling", "reverse_on", "next_state", "previous_state", "met_next"];

/// The public functions of the timeline that change it.
fn functions() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../session/src/timeline");
    let mut names = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let mut of_timeline = false;
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            if line.starts_with("impl") {
                of_timeline = line.starts_with("impl Timeline");
            }
            let Some(rest) = line.strip_prefix("    pub fn ").filter(|_| of_timeline) else { continue };
            let signature: String =
                lines[n..].iter().take_while(|line| !line.ends_with('{')).copied().collect();
            if rest.contains("&mut self") || signature.contains("&mut self") {
                names.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            }
        }
    }
    names
}

#[test]
fn every_move_of_a_timeline_has_an_action_with_a_key() {
    let moves: BTreeMap<&str, &[&str]> = MOVES.iter().copied().collect();
    let functions = functions();
    assert!(functions.len() >= moves.len(), "{functions:?}");
    for name in &functions {
        let others = OTHERS.iter().chain(&OF_GDB).any(|other| other == name);
        let known = moves.contains_key(name.as_str()) || others;
        assert!(known, "Timeline::{name} has no action: add one, and a row here");
    }
    for (name, actions) in moves {
        assert!(functions.iter().any(|function| function == name), "Timeline::{name} is gone");
        for id in actions {
            let entry = TABLE.iter().find(|entry| entry.id == *id);
            assert!(entry.is_some_and(|entry| !entry.keys.is_empty()), "{id}");
            let found = crate::app::matches(id);
            assert!(found.iter().any(|entry| entry.id == *id), "{id} is not in the palette");
        }
    }
}

#[test]
fn a_position_may_be_relative() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]");
    let at = bench.app.at();
    bench.press("g+1000\n");
    assert_eq!(bench.app.at(), at + 1000);
    bench.press("g-1500\n");
    assert_eq!(bench.app.at(), at - 500);
    bench.type_all("g+x\n");
    assert!(bench.app.message.is_some());
}

#[test]
fn moves_are_undone_and_made_again() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]");
    let second = bench.app.at();
    bench.press("sss");
    let third = bench.app.at();
    assert_eq!(third, second + 3);
    (0..3).for_each(|_| bench.press("\x0f"));
    assert_eq!((bench.app.at(), bench.app.cursor), (second, Some(1)));
    (0..2).for_each(|_| bench.press("\x19"));
    // As a terminal with the keyboard protocol of kitty sends it.
    bench.key(KeyCode::Char('i'), KeyModifiers::CONTROL);
    bench.settle();
    assert_eq!((bench.app.at(), bench.app.focused()), (third, Pane::Hits));
}
