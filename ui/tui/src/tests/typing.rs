//! Lines that are typed at the guest's console.

use trapline_session::Script;

use super::probing::listed;
use super::*;

/// A run with these lines from a script.
pub fn plain(typed: &[Typed]) -> Session {
    let escaped =
        |bytes: &[u8]| bytes.escape_ascii().to_string().replace("\\\"", "\\x22").replace("\\'", "'");
    let line = |typed: &Typed| format!("at insns={} type \"{}\"\n", typed.at, escaped(&typed.bytes));
    let text: String = typed.iter().map(line).collect();
    let mut script = Script::parse("typed", &text, &[], &SourceOptions::default()).unwrap();
    let mut session = session(&guest());
    session.run_script(&mut script, &Condition::end(), &Limits::insns(LIMIT));
    session
}

fn hits_of(session: &mut Session) -> Vec<(u64, u64, Vec<u8>)> {
    let data = session.records().filter(|record| record.header.kind == Kind::Data);
    data.map(|record| {
        (record.header.icount, record.header.ip, hex(&record.data, HexStyle::Pairs).into_bytes())
    })
    .collect()
}

#[test]
fn a_line_that_is_typed_makes_the_run_that_a_script_makes() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]7l");
    assert_eq!(bench.app.prompt.as_ref().unwrap().purpose, crate::app::Purpose::Line);
    let at = bench.app.at();
    bench.press("ls\n");
    assert_eq!((bench.app.at(), bench.app.run.number), (at, 1));
    bench.press("\n-l\n");
    let typed = [Typed { at, bytes: b"ls\n-l\n".to_vec() }];
    assert_eq!(bench.typed, typed);
    let mut wanted = plain(&typed);
    let without = plain(&[]);
    assert_ne!(wanted.digest(), without.digest());
    assert_eq!(listed(&bench), hits_of(&mut wanted));
    bench.press(">");
    assert_eq!(bench.end().unwrap().session().digest(), wanted.digest());
}

#[test]
fn an_earlier_line_takes_the_place_of_later_ones_and_probes_keep_what_was_typed() {
    const CLAUSE: &str = "fbt::do_fork:entry { push pid; log 1 }";
    let mut bench = Bench::new(PLAIN);
    for keys in ["]]]", "7lsecond\n", "<", "]", "lfirst\n"] {
        bench.press(keys);
    }
    let first = Typed { at: bench.app.at(), bytes: b"first\n".to_vec() };
    assert_eq!(bench.typed, std::slice::from_ref(&first));
    bench.press("]");
    bench.press(&format!("a{CLAUSE}\n"));
    assert_eq!(bench.typed, std::slice::from_ref(&first));
    let digest = plain(&[first]).digest();
    bench.press(">");
    assert_eq!(bench.end().unwrap().session().digest(), digest);
}

#[test]
fn a_line_that_is_typed_where_the_guest_has_halted_is_in_the_run() {
    let mut bench = Bench::new(PLAIN);
    bench.press(">7l");
    let typed = [Typed { at: bench.app.at(), bytes: b"late\n".to_vec() }];
    bench.press("late\n");
    assert_eq!(bench.typed, typed);
    bench.press(">");
    let (with, without) = (plain(&typed), plain(&[]));
    assert_ne!(with.digest(), without.digest());
    assert_eq!(bench.end().unwrap().session().digest(), with.digest());
}

#[test]
fn a_line_where_the_run_has_ended_for_good_is_refused() {
    let opening = opening(|guest| Arc::new(SameRun(guest)));
    let limits = Limits::insns(3_000_000);
    let course = Course::Live { condition: Condition::end(), limits };
    let mut bench = Bench::of(Opening { course, ..opening }, PLAIN, None);
    bench.press(">7l");
    bench.type_all("late\n");
    bench.settle();
    bench.wait_for(|app| app.message.is_some());
    let said = bench.app.message.clone().unwrap();
    assert!(said.contains("the run ends here, so nothing reads what is typed"), "{said}");
    assert!(bench.typed.is_empty());
}

#[test]
fn the_next_hit_is_waited_for_while_the_run_is_listed() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]7l");
    bench.type_all("ls\n");
    bench.wait_for(|app| app.run.number == 1);
    let at = bench.app.at();
    // Whether or not a later hit is listed by now.
    bench.type_all("]");
    bench.settle();
    assert!(bench.app.at() > at, "{:?}", bench.app.message);
    assert_eq!(bench.app.travel.waits_for_hit, None);
}

#[test]
fn the_end_is_waited_for_while_the_run_is_listed() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]7l");
    bench.type_all("ls\n");
    bench.wait_for(|app| app.run.number == 1);
    // Whether or not the list is whole by now.
    bench.type_all(">");
    bench.settle();
    let (end, _) = bench.app.run.ended.clone().unwrap();
    assert_eq!(bench.app.at(), end.icount);
}
