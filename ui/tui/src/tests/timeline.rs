//! The pane of the timeline.

use std::collections::BTreeMap;

use super::*;
use crate::hits::{Batch, Hit};

/// Hits of each probe, by the list.
fn counted(bench: &Bench) -> BTreeMap<u32, usize> {
    let hits = &bench.app.run.hits;
    let mut counts = BTreeMap::new();
    (0..hits.len()).for_each(|n| *counts.entry(hits.get(n).unwrap().probe).or_default() += 1);
    counts
}

#[test]
fn each_probe_has_a_line_with_the_density_of_its_hits() {
    let mut bench = Bench::new(PLAIN);
    let densities = bench.app.densities(60, 100);
    let sums: BTreeMap<u32, usize> = densities.iter().map(|own| (own.probe, own.sum())).collect();
    assert_eq!(sums, counted(&bench));
    assert!(densities.iter().all(|own| own.exact) && densities.is_sorted_by_key(|own| 1000 - own.sum()));
    let columns: Vec<usize> =
        (0..60).map(|column| densities.iter().map(|own| own.counts[column]).sum()).collect();
    let lengths: Vec<usize> = bench.app.hits_in_columns(60).iter().map(ExactSizeIterator::len).collect();
    assert_eq!(columns, lengths);
    bench.press("=z");
    let screen = bench.screen((120, 40));
    let first = densities.first().unwrap();
    let name = &bench.app.run.hits.probe(first.probe).unwrap().name;
    let line = screen.lines().find(|line| line.contains(name)).unwrap();
    assert!(line.contains(&format!(" {} ", first.sum())), "{line}");
    let whole = bench.app.window();
    bench.press("]]]+++");
    let (from, to) = bench.app.window();
    assert!(to - from < (whole.1 - whole.0) / 4 && (from..=to).contains(&bench.app.at()));
}

#[test]
fn many_hits_are_estimated() {
    let mut bench = Bench::new(PLAIN);
    let hit = |n: u64| Hit { at: n * 10, ip: 0, probe: n.is_multiple_of(3).into(), pid: 0 };
    bench.app.run.hits = Default::default();
    bench.app.run.hits.add(Batch { hits: (0..400_000).map(hit).collect(), ..Batch::default() });
    let densities = bench.app.densities(80, 2);
    assert_eq!(densities.iter().map(|own| own.sum()).sum::<usize>(), bench.app.run.hits.len());
    let about: Vec<usize> = densities.iter().map(|own| own.sum() / 10_000).collect();
    assert!((25..28).contains(&about[0]) && (12..15).contains(&about[1]), "{about:?}");
    assert!(densities.iter().all(|own| !own.exact));
    bench.press("=");
    assert!(bench.screen((80, 24)).contains(" ~"));
}

#[test]
fn inputs_are_marked_and_a_click_goes_there() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]");
    bench.press("7lecho\n");
    bench.press("=z");
    let typed = bench.app.at();
    assert_eq!(bench.app.scene.as_ref().unwrap().inputs_at.last(), Some(&typed));
    let screen = bench.screen((120, 40));
    let row = screen.lines().position(|line| line.contains("┃inputs ")).unwrap();
    let line = screen.lines().nth(row).unwrap();
    let column = line.chars().position(|c| c == '!').unwrap();
    bench.press(">");
    bench.event(Event::Mouse(MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column: column as u16,
        row: row as u16,
        modifiers: KeyModifiers::NONE,
    }));
    bench.settle();
    let distance = bench.app.at().abs_diff(typed);
    assert!(distance < bench.app.end() / 60, "{distance}");
}
