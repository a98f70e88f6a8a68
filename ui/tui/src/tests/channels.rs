//! The pane of channels.

use trapline_session::trapline_dti::{View, show};

use super::*;

fn bench() -> Bench {
    let guest = GuestBuilder::embedded("dti-ia32").memory(16 << 20).open().unwrap();
    let opening = opening_of(guest, "embedded:dti-ia32", |guest| Arc::new(SameRun(guest)));
    Bench::of(opening, PLAIN, None)
}

/// The texts of all records of a run after so many instructions, in their order.
fn texts(at: u64) -> Vec<String> {
    let guest = GuestBuilder::embedded("dti-ia32").memory(16 << 20).open().unwrap();
    let mut session = session(&guest);
    session.run_until(&Condition::end(), &Limits::insns(at));
    let found = session.channels();
    let mut records = Vec::new();
    for channel in &found.channels {
        let contents = channel.read(session.core().ram());
        records.extend(contents.records().map(|one| (one.time, show(one.data, View::Text))));
    }
    records.sort_by_key(|(time, _)| *time);
    records.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn channels_are_those_at_the_position_both_ways() {
    let mut bench = bench();
    let channels = |bench: &Bench| bench.app.scene.as_ref().unwrap().channels.clone();
    assert_eq!(channels(&bench), None, "nothing is searched while the pane is not shown");
    bench.press("d");
    assert_eq!(channels(&bench).unwrap().records, 0);
    let mut seen = Vec::new();
    for at in [100_000, 1_000_000, 3_000_000] {
        bench.press(&format!("g{at}\n"));
        let shown = channels(&bench).unwrap();
        let texts = texts(at);
        let all = shown.lines.join("\n");
        assert_eq!((shown.records, shown.older), (texts.len(), 0), "at {at}");
        assert!(
            texts.iter().filter(|text| text.len() > 8).all(|text| all.contains(&text[..8])),
            "{texts:?} {all}"
        );
        seen.push((at, shown));
    }
    assert!(seen.windows(2).all(|pair| pair[0].1.records < pair[1].1.records), "{seen:?}");
    for (at, before) in seen.iter().rev() {
        bench.press(&format!("g{at}\n"));
        assert_eq!(channels(&bench).as_ref(), Some(before), "at {at}");
    }
    bench.press("1s");
    assert_eq!(channels(&bench), None);
}

#[test]
fn channels_at_three_sizes() {
    let mut bench = bench();
    bench.press(">dz");
    for size in SIZES {
        bench.screen(size);
        bench.key(KeyCode::End, KeyModifiers::NONE);
        insta::assert_snapshot!(format!("dti-{}x{}", size.0, size.1), bench.screen(size));
        bench.key(KeyCode::Home, KeyModifiers::NONE);
        insta::assert_snapshot!(format!("dti-table-{}x{}", size.0, size.1), bench.screen(size));
    }
}
