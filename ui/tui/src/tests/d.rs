//! D programs on the screen.

use trapline_session::{AggregatedValue, DState};

use super::*;

const PROGRAM: &str = "int forks; string last;
fbt::do_fork:entry
{
    self->start = icount;
    forks++;
    last = execname;
    seen[pid, execname] = forks;
    printf(\"fork %d by %s\\n\", forks, last);
    trace(pid);
}
fbt::do_fork:return
/self->start/
{
    @took[pid] = quantize(icount - self->start);
    @forks = count();
    self->start = 0;
}
END { printf(\"%d forks\", forks); }";

/// The user interface with the program, which is added as a file would be: over several lines.
fn with_d() -> Bench {
    let mut bench = Bench::new(PLAIN);
    let wish = crate::message::Wish::Add(PROGRAM.to_owned());
    let effects = bench.app.change(wish, "to the program");
    bench.carry_out(effects);
    bench.settle();
    bench
}

/// A plain run with the program, to an instruction count.
fn states(to: u64) -> Vec<DState> {
    let mut session = session(&guest());
    session.apply(Command::D(DSource::clauses(PROGRAM))).unwrap();
    session.run_until(&Condition::end(), &Limits::insns(to));
    session.d_states(1000)
}

fn printed(bench: &Bench) -> Vec<(usize, String)> {
    let hits = &bench.app.run.hits;
    let of_d = |n: &usize| hits.probe(hits.get(*n).unwrap().probe).unwrap().program != "6-groups.rpn";
    let line = |data: &[u8]| String::from_utf8_lossy(data).split_whitespace().collect::<Vec<_>>().join(" ");
    let text = |n| (n, line(hits.logged(n).unwrap()));
    (0..hits.len()).filter(of_d).map(text).collect()
}

#[test]
fn a_d_program_prints_into_the_list_of_hits() {
    let bench = with_d();
    let lines = printed(&bench);
    assert!(lines.len() > 2, "{lines:?}");
    let (last, rest) = lines.split_last().unwrap();
    for (n, (_, line)) in rest.iter().enumerate() {
        assert!(line.starts_with(&format!("fork {} by ", n + 1)), "{line}");
    }
    assert_eq!(last.1, format!("{} forks", rest.len()));
}

#[test]
fn variables_and_aggregations_are_those_at_the_position_both_ways() {
    let mut bench = with_d();
    let lines = printed(&bench);
    let mut seen = Vec::new();
    for (hit, _) in &lines {
        bench.press(&format!("g#{}\n", hit + 1));
        let at = bench.app.at();
        assert_eq!(bench.app.scene.as_ref().unwrap().d, states(at), "at {at}");
        bench.press("s9z");
        seen.push(bench.screen((120, 40)));
        bench.press("z");
    }
    for ((hit, _), before) in lines.iter().zip(&seen).rev() {
        bench.press(&format!("g#{}\nsz", hit + 1));
        let focused = bench.screen((120, 40));
        assert_eq!(focused.lines().nth(5), before.lines().nth(5));
        bench.press("z");
    }
    bench.press(">");
    let d = &bench.app.scene.as_ref().unwrap().d[0];
    let count = &d.aggregations[1].entries[0].value;
    assert!(matches!(count, AggregatedValue::Number(1..)), "{d:?}");
    bench.press("9z");
    for size in SIZES {
        insta::assert_snapshot!(format!("d-variables-{}x{}", size.0, size.1), bench.screen(size));
    }
}

#[test]
fn the_text_of_a_clause_is_beside_its_operations() {
    let mut bench = with_d();
    let first = printed(&bench)[0].0;
    bench.press(&format!("g#{}\ni", first + 1));
    let handler = |bench: &Bench| bench.app.scene.as_ref().unwrap().handler.clone().unwrap();
    let all = handler(&bench).all;
    let mut lines = Vec::new();
    for executed in 0..=all {
        assert_eq!(handler(&bench).executed, executed);
        // The RPN program has a probe here too.
        lines.extend(handler(&bench).source.map(|source| source.line));
        if executed < all {
            bench.press(".");
        }
    }
    lines.dedup();
    assert_eq!(lines, [4, 5, 6, 7, 8, 9], "the lines of the clause, one after the other");
    bench.press(",,,,,,");
    for size in SIZES {
        insta::assert_snapshot!(format!("d-within-{}x{}", size.0, size.1), bench.screen(size));
        bench.press("z");
        insta::assert_snapshot!(format!("d-within-zoomed-{}x{}", size.0, size.1), bench.screen(size));
        bench.press("z");
    }
}

#[test]
fn clauses_of_d_are_typed_and_refused_with_a_sentence() {
    let mut bench = Bench::new(PLAIN);
    let before = bench.app.run.hits.len();
    bench.type_all("afbt::do_fork:entry { printf(\"%d\", nothing) }\n");
    bench.settle();
    let said = bench.app.message.clone().unwrap();
    assert!(said.contains("nothing"), "{said}");
    assert_eq!(bench.app.run.hits.len(), before);
    bench.press("afbt::do_fork:entry { trace(pid); }\n");
    let forks = printed(&bench);
    assert!(!forks.is_empty());
    assert_eq!(bench.app.run.hits.len(), before + forks.len());
    let end = bench.app.run.ended.clone();
    bench.press("afbt::do_fork:entry /pid == 1/ { exit(3); }\n");
    let exited = bench.app.run.ended.clone().unwrap();
    assert!(exited.0 < end.as_ref().unwrap().0, "{exited:?}");
    // Without it, the run has its end again.
    let points = bench.app.points().count();
    bench.app.selected.point = points - 1;
    bench.press("8e");
    assert_eq!(bench.app.run.ended, end);
}
