//! The list of hits: sorted by its columns, and with other columns.

use super::*;
use crate::hits::{Column, SHOWN};

/// The numbers of the hits, row after row.
fn rows(bench: &Bench) -> Vec<usize> {
    bench.app.hits_of(0, bench.app.rows())
}

fn click(bench: &mut Bench, column: u16, row: u16) {
    let kind = MouseEventKind::Down(MouseButton::Left);
    bench.event(Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
    bench.settle();
}

#[test]
fn the_list_is_sorted_by_each_column_both_ways_round() {
    let mut bench = Bench::new(PLAIN);
    let all = bench.app.run.hits.len();
    let hits = |bench: &Bench, by: Column, number: usize| {
        let hits = &bench.app.run.hits;
        let hit = hits.get(number).unwrap();
        match by {
            Column::Process => (u64::from(hit.pid), String::new(), Vec::new()),
            Column::Probe => (0, hits.probe(hit.probe).unwrap().name.clone(), Vec::new()),
            Column::Record => (0, String::new(), hits.logged(number).unwrap().to_vec()),
            _ => (hit.at, String::new(), Vec::new()),
        }
    };
    for by in [Column::Process, Column::Probe, Column::Record] {
        bench.press("t");
        let mut wanted: Vec<usize> = (0..all).collect();
        wanted.sort_by_key(|number| (hits(&bench, by, *number), *number));
        assert_eq!(rows(&bench), wanted, "{by:?}");
        assert!(bench.screen((120, 40)).contains(&format!("1 Hits {all} by {}", by.name())));
        bench.press("v");
        wanted.reverse();
        assert_eq!(rows(&bench), wanted, "{by:?}");
    }
    bench.press("t");
    assert_eq!(rows(&bench), (0..all).collect::<Vec<_>>());
    bench.press("v");
    assert_eq!(rows(&bench), (0..all).rev().collect::<Vec<_>>());
    bench.press("v");
    assert!(bench.app.sorted.is_none());
}

#[test]
fn moves_go_along_the_run_however_the_list_is_sorted() {
    let mut bench = Bench::new(PLAIN);
    bench.press("/kmalloc\ntttv");
    let shown = rows(&bench);
    assert_eq!(shown.len(), bench.app.shown());
    assert!(!shown.is_sorted());
    bench.press("j\n");
    assert_eq!((bench.app.cursor, bench.app.selected.row), (Some(shown[1]), 1));
    let later = shown.iter().copied().filter(|number| *number > shown[1]).min().unwrap();
    bench.press("]");
    assert_eq!(bench.app.cursor, Some(later));
    assert_eq!(shown[bench.app.selected.row], later);
    bench.key(KeyCode::Esc, KeyModifiers::NONE);
    bench.settle();
    assert_eq!(bench.app.rows(), bench.app.run.hits.len());
    assert_eq!(bench.app.hit_of(bench.app.selected.row), Some(later));
}

#[test]
fn a_click_on_the_name_of_a_column_sorts_by_it_and_a_second_one_turns_it_round() {
    let mut bench = Bench::new(PLAIN);
    let head = bench.screen((80, 24)).lines().nth(4).unwrap().to_owned();
    let column = head.find("record").map(|at| head[..at].chars().count()).unwrap() as u16;
    click(&mut bench, column, 4);
    let sorted = |bench: &Bench| bench.app.sorted.as_ref().map(|sorted| (sorted.by(), sorted.descending()));
    assert_eq!(sorted(&bench), Some((Column::Record, false)));
    click(&mut bench, column, 4);
    assert_eq!(sorted(&bench), Some((Column::Record, true)));
    click(&mut bench, 9, 4);
    assert_eq!(sorted(&bench), None);
}

#[test]
fn columns_are_chosen() {
    let mut bench = Bench::new(PLAIN);
    let line = |bench: &mut Bench, nth: usize| bench.screen((120, 40)).lines().nth(nth).unwrap().to_owned();
    bench.press("Vx");
    assert_eq!(bench.app.prompt.as_ref().unwrap().text, "hit position process probe recordx");
    bench.key(KeyCode::Char('u'), KeyModifiers::CONTROL);
    bench.press("address program hit\n");
    assert_eq!(
        line(&mut bench, 4).split_whitespace().skip(1).collect::<Vec<_>>(),
        ["address", "program", "hit", "┃"]
    );
    let hit = bench.app.run.hits.get(0).unwrap();
    let row = line(&mut bench, 5);
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1..4], [format!("{:#x}", hit.ip).as_str(), "6-groups.rpn", "1"]);
    bench.type_all("V size\n");
    let said = bench.app.message.clone().unwrap();
    assert!(said.contains("there is no column `size`") && said.contains("hit position process"), "{said}");
    bench.press("V");
    bench.key(KeyCode::Char('u'), KeyModifiers::CONTROL);
    bench.press("\n");
    assert_eq!(bench.app.columns, SHOWN);
}

#[test]
fn an_exported_list_has_every_row() {
    let mut bench = Bench::new(PLAIN);
    let all = bench.app.run.hits.len();
    for keys in ["", "t", "/kmalloc\n"] {
        bench.press(keys);
        let text = view::plain(&bench.app, Pane::Hits, 0, usize::MAX);
        assert_eq!(text.lines().count(), bench.app.rows() + 1);
    }
    assert!(bench.app.rows() < all);
}
