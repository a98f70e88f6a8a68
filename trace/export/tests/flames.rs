//! Folded stacks and flame graphs.

use serde_json::json;
use trapline_export::{FlameForm, FlameSink, Notes, Stacks, Weight};
use trapline_trace::{Record, Shown};

use crate::made::{as_d, end, hit, items, show, stack};

/// The folded stacks of a run, and why there are none.
fn folded(records: &[Record], d: &[Shown], weight: Option<Weight>) -> (Vec<String>, Option<String>) {
    let (mut out, notes) = (Vec::new(), Notes::default());
    let mut sink = FlameSink::new(&mut out, FlameForm::Folded, items(), weight, notes.clone());
    show(&mut sink, records, d, &end(100, 0));
    let text = String::from_utf8(out).unwrap();
    (text.lines().map(str::to_owned).collect(), notes.missing())
}

/// a calls b, which task 2 interrupts; c has no return.
fn calls() -> Vec<Record> {
    [(0, 10, 1), (2, 20, 1), (4, 30, 2), (3, 45, 1), (1, 50, 1), (1, 60, 1)]
        .map(|(p, i, t)| hit(p, i, t))
        .to_vec()
}

#[test]
fn instructions_count_for_the_innermost_call_of_the_task_that_runs() {
    let (lines, missing) = folded(&calls(), &[], None);
    // The 40 instructions after the last hit of task 1 are in no call.
    assert_eq!(lines, ["task1;a 15", "task1;a;b 10", "task2;c 15"]);
    assert_eq!(missing, None);
    assert_eq!(folded(&[], &as_d(&calls()), None).0, lines);
}

#[test]
fn time_counts_by_thread_and_calls_by_number() {
    let (lines, _) = folded(&calls(), &[], Some(Weight::Ns));
    assert_eq!(lines, ["task1;a 30", "task1;a;b 50"]);
    let (lines, _) = folded(&calls(), &[], Some(Weight::Count));
    assert_eq!(lines, ["task1;a 1", "task1;a;b 1", "task2;c 1"]);
}

#[test]
fn a_task_without_a_name_keeps_its_frame() {
    let mut calls = calls();
    calls.iter_mut().filter(|record| record.header.pid == 2).for_each(|record| record.name.clear());
    assert_eq!(folded(&calls, &[], None).0, ["task 2;c 15", "task1;a 15", "task1;a;b 10"]);
    assert_eq!(folded(&[], &as_d(&calls), None).0, ["task 2;c 15", "task1;a 15", "task1;a;b 10"]);
    let mut unnamed = hit(0, 10, 3);
    unnamed.name.clear();
    let records = [unnamed.clone(), stack(&unnamed, &[0x210, 0x320])];
    assert_eq!(folded(&records, &[], None).0, ["task 3;kernel`f3;kernel`f2;kernel`a 1"]);
}

#[test]
fn recorded_stacks_are_counted_or_weighted() {
    let (first, second) = (hit(0, 10, 1), hit(0, 20, 1));
    let mut other = hit(0, 30, 1);
    other.data = vec![3, 0, 0, 0];
    let records = [
        first.clone(),
        stack(&first, &[0x210, 0x320]),
        second.clone(),
        stack(&second, &[0x250, 0x320]),
        other.clone(),
        stack(&other, &[0x320]),
    ];
    let (lines, _) = folded(&records, &[], None);
    let lines_of = |counts: [u64; 2]| {
        [
            format!("task1;kernel`f3;kernel`a {}", counts[0]),
            format!("task1;kernel`f3;kernel`f2;kernel`a {}", counts[1]),
        ]
    };
    assert_eq!(lines, lines_of([1, 2]));
    for weight in ["0", "bytes"] {
        let (lines, _) = folded(&records, &[], Some(weight.parse().unwrap()));
        assert_eq!(lines, lines_of([3, 14]), "{weight}");
    }
    let (lines, missing) = folded(&records, &[], Some(Weight::Argument("other".into())));
    assert!(lines.is_empty());
    assert_eq!(
        missing.unwrap(),
        "no hit with a stack holds a value for --weight other: record with --stack or --ustack, and log that value"
    );
}

#[test]
fn stacks_of_d_programs_are_their_aggregations_or_their_firings() {
    let entry = json!({"keys": [["inner+0x10", "outer"], "sh"], "value": 4});
    let minus = json!({"keys": [["inner"], "sh"], "value": -4});
    let plain = json!({"keys": ["sh"], "value": 9});
    let aggregation = json!({"type": "aggregation", "name": "@", "entries": [entry, minus, plain]});
    let firing = json!({"type": "d", "seq": 1, "icount": 5, "time_ns": 5, "probe": "fbt:k:f:entry", "id": 1,
        "parts": [{"action": "stack", "value": ["f", "main+0x3"]}]});
    let shown = |object: &serde_json::Value| Shown { objects: vec![object.clone()], ..Shown::default() };
    assert_eq!(folded(&[], &[shown(&firing)], None).0, ["main;f 1"]);
    assert_eq!(folded(&[], &[shown(&firing), shown(&aggregation)], None).0, ["sh;outer;inner 4"]);
}

#[test]
fn a_run_without_stacks_is_told_what_to_record() {
    let mut unnamed = hit(0, 10, 1);
    unnamed.header.probe = 99;
    let (lines, missing) = folded(&[unnamed], &[], None);
    assert!(lines.is_empty());
    assert!(
        missing.unwrap().starts_with("there are no stacks and no calls: record with --stack or --ustack")
    );
    let (_, missing) = folded(&[], &[], Some(Weight::Insns));
    assert!(missing.unwrap().starts_with("weights by instructions need calls: "));
}

#[test]
fn a_comparison_shows_both_runs() {
    let mut before = Stacks::new(None, items());
    show(&mut before, &calls()[..5], &[], &end(50, 0));
    let (before, unit) = before.finish(&Notes::default()).unwrap();
    assert_eq!(unit, "instructions");
    let mut out = Vec::new();
    fn sink(out: &mut Vec<u8>, form: FlameForm) -> FlameSink<&mut Vec<u8>> {
        FlameSink::new(out, form, items(), None, Notes::default())
    }
    let mut folded = sink(&mut out, FlameForm::Folded).compared_with(Some(before.clone()));
    show(&mut folded, &calls()[..2], &[], &end(80, 0));
    assert_eq!(String::from_utf8(out).unwrap(), "task1;a 15 10\ntask1;a;b 10 60\ntask2;c 15 0\n");
    let mut out = Vec::new();
    let mut svg = sink(&mut out, FlameForm::Svg).compared_with(Some(before));
    show(&mut svg, &calls()[..2], &[], &end(80, 0));
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("<title>b (60 instructions, 85.71 %), before 10</title>"), "{text}");
    assert!(text.contains("fill=\"rgb(255,0,0)\""), "{text}");
}
