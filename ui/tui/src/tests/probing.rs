//! Probes that are added to the past and switched.

use super::*;

/// Count, address and data of the hits of a run with these commands at its beginning.
fn run_with(more: &[Command]) -> Vec<(u64, u64, Vec<u8>)> {
    let mut session = session(&guest());
    more.iter().for_each(|command| drop(session.apply(command.clone()).unwrap()));
    session.run_until(&Condition::end(), &Limits::insns(LIMIT));
    let data = session.records().filter(|record| record.header.kind == Kind::Data);
    data.map(|record| {
        (record.header.icount, record.header.ip, hex(&record.data, HexStyle::Pairs).into_bytes())
    })
    .collect()
}

pub fn listed(bench: &Bench) -> Vec<(u64, u64, Vec<u8>)> {
    let hits = &bench.app.run.hits;
    let one = |n| hits.get(n).map(|hit| (hit.at, hit.ip, hits.logged(n).unwrap().to_vec())).unwrap();
    (0..hits.len()).map(one).collect()
}

#[test]
fn a_probe_that_is_added_to_the_past_shows_the_hits_of_a_live_run() {
    const CLAUSE: &str = "fbt::do_fork:entry { push pid; log 1 }";
    let mut bench = Bench::new(PLAIN);
    let (end, before) = (bench.app.run.ended.clone(), bench.app.run.hits.len());
    bench.press("]]]");
    let (at, ip) = (bench.app.at(), bench.app.scene.as_ref().unwrap().ip);
    bench.press(&format!("a{CLAUSE}\n"));
    let added = run_with(&[Command::clause(CLAUSE)]);
    assert!(added.len() > before, "{} and {before}", added.len());
    assert_eq!(listed(&bench), added);
    assert_eq!((bench.app.at(), bench.app.scene.as_ref().unwrap().ip), (at, ip));
    assert_eq!(bench.app.cursor, added.iter().position(|hit| (hit.0, hit.1) == (at, ip)));
    assert_eq!(bench.app.run.ended, end);
    bench.press("]]]");
    assert_eq!(bench.app.at(), added[5].0);
}

#[test]
fn exit_1_of_a_handler_is_a_stop_point() {
    let mut bench = Bench::new(PLAIN);
    bench.type_all("c");
    bench.settle();
    let said = bench.app.message.clone().unwrap();
    assert!(said.starts_with("there is no breakpoint or watchpoint"), "{said}");
    bench.press("afbt::do_fork:entry { push 1; log 1; exit 1 }\n");
    let symbol = |bench: &Bench| bench.app.scene.as_ref().unwrap().symbol.clone();
    bench.press("c");
    let first = bench.app.at();
    assert_eq!(symbol(&bench).as_deref(), Some("do_fork"));
    bench.press("c");
    assert!(bench.app.at() > first && symbol(&bench).as_deref() == Some("do_fork"));
    bench.press("C");
    assert_eq!(bench.app.at(), first);
}

#[test]
fn a_probe_point_is_switched_for_the_whole_run() {
    let mut bench = Bench::new(PLAIN);
    let all = listed(&bench);
    let points: Vec<(String, usize)> =
        bench.app.points().map(|(program, n, _)| (program.name.clone(), n)).collect();
    bench.press("8jj");
    let (name, point) = points[2].clone();
    bench.press("e");
    let selection = Selection { name: Some(name), point: Some(point), ..Selection::default() };
    let without = run_with(&[Command::Switch { points: selection, on: false }]);
    assert!(without.len() < all.len());
    assert_eq!(listed(&bench), without);
    bench.press("\n");
    assert_eq!(listed(&bench), all);
}

#[test]
fn probes_that_the_past_cannot_have_are_refused_in_a_sentence() {
    let mut bench = Bench::new(PLAIN);
    let hits = listed(&bench);
    let mut refused = |typed: &str, why: &str| {
        bench.type_all(&format!("a{typed}\n"));
        bench.settle();
        let said = bench.app.message.clone().unwrap_or_default();
        assert!(said.contains(why), "{typed}: {said}");
    };
    refused("fbt::do_fork:entry { push 1; pop r, eax }", "writes to the guest");
    refused("fbt::no_such_function:entry", "no_such_function");
    refused("/nonexistent/a.rpn", "/nonexistent/a.rpn");
    bench.type_all("a");
    bench.key(KeyCode::Up, KeyModifiers::NONE);
    assert_eq!(bench.app.prompt.take().unwrap().text, "/nonexistent/a.rpn");
    assert_eq!(listed(&bench), hits);
}

#[test]
fn names_of_probes_are_completed() {
    let text = |app: &App| app.prompt.as_ref().map(|prompt| prompt.text.clone()).unwrap_or_default();
    let mut bench = Bench::new(PLAIN);
    bench.press("afbt::do_for\t");
    bench.wait_for(|app| text(app) == "fbt::do_fork:");
    bench.press("\t");
    bench.wait_for(|app| app.prompt.as_ref().is_some_and(|prompt| !prompt.found.is_empty()));
    let prompt = bench.app.prompt.clone().unwrap();
    assert_eq!(prompt.found, ["fbt::do_fork:entry", "fbt::do_fork:return"]);
    insta::assert_snapshot!("completion-80x24", bench.screen((80, 24)));
    bench.press("e\t");
    bench.wait_for(|app| text(app) == "fbt::do_fork:entry");
    bench.press("\n");
    bench.wait_for(|app| app.run.number == 1);
}
