//! Going back and forth in a run, against runs that simply stopped there.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use trapline_session::{
    Arrival, Command, Condition, Found, GuestBuilder, HISTORY_MEM, Limits, Moment, Places, Position, Probing,
    Ran, Record, RecordedCourse, Recorder, Recording, Session, SourceOptions, StopPoint, Timeline,
    TravelError, Watch, WatchKind, Way, compile,
};

const GUESTS: [&str; 2] = ["ia32", "x86_64"];

/// The state read from a session without changing it.
#[derive(Debug, PartialEq)]
struct Seen {
    icount: u64,
    digest: String,
    stats: String,
    counts: String,
    records: Vec<Record>,
    console: String,
    programs: String,
}

fn seen(session: &mut Session) -> Seen {
    let json = |reply| serde_json::to_string(&reply).unwrap();
    let programs = [Command::Query, Command::GetVars { name: None }].map(|c| json(session.apply(c).unwrap()));
    let mut copy = session.snapshot();
    let records = {
        // The drained records, then the waiting ones.
        let mut records: Vec<Record> = session.records().collect();
        records.extend(session.waiting());
        session.restore(&copy).unwrap();
        records
    };
    copy = session.snapshot();
    drop(copy);
    Seen {
        icount: session.icount(),
        digest: session.digest().to_string(),
        stats: format!("{:?}", session.stats()),
        counts: format!("{:?}", session.counts()),
        records,
        console: String::from_utf8_lossy(session.console()).into_owned(),
        programs: programs.concat(),
    }
}

fn word(name: &str) -> u64 {
    if name == "x86_64" { 0x40_b000 } else { 0x805_3000 }
}

/// Probes of several kinds, and when they are inserted.
fn commands(name: &str) -> Vec<(u64, Command)> {
    let low = word(name);
    let watched = format!(
        "name = vmlinux\nmodtype = kernel\nmajor = 4\naddress = {low:#x}:{:#x}\nwatchpoint = rw\npush 1\nlog 1\n\
         exit\naddress = 0x3f8:0x3f8\nwatchpoint = io\nmaxhits = 90\npush 2\nlog 1\nexit\n",
        low + 3
    );
    let program = compile("watched", &watched, &SourceOptions::default()).unwrap();
    vec![
        (0, Command::clause("fbt::do_*:entry { push arg, 0; log 1 }")),
        (0, Command::clause("fbt::do_*:return { push ret; log 1 }")),
        (0, Command::insert("watched", program)),
        (0, Command::clause("profile:::tick-33333insn { push 1; log 1 }")),
        (100_003, Command::clause("profile:::tick-20us { push 2; log 1 }")),
        (250_000, Command::clause("pid*:appln:main:entry,pid*:appln:main:return { push pid; log 1 }")),
        (400_001, Command::Remove { name: "fbt::do_*:return".to_owned() }),
    ]
}

fn start(name: &str) -> Session {
    let probing = Probing { watch_unlimited: true, stack: 2, user_stack: 2, ..Probing::default() };
    GuestBuilder::embedded(name).memory(32 << 20).open().unwrap().start(probing).unwrap()
}

/// A run that simply stops there.
fn straight(name: &str, to: u64) -> Session {
    let mut session = start(name);
    for (at, command) in commands(name) {
        if at < to || at == 0 {
            session.run_until(&Condition::end(), &Limits::insns(at).in_passing());
            session.apply(command).unwrap();
        }
    }
    session.run_until(&Condition::end(), &Limits::insns(to).in_passing());
    session
}

/// The same run as a timeline that has been to its end.
fn timeline(name: &str) -> (Timeline, u64) {
    let mut session = start(name);
    let (first, later): (Vec<_>, Vec<_>) = commands(name).into_iter().partition(|(at, _)| *at == 0);
    for (_, command) in first {
        session.apply(command).unwrap();
    }
    let mut timeline = Timeline::new(session, HISTORY_MEM).unwrap();
    for (at, command) in later {
        assert_eq!(timeline.goto(count(at)).unwrap(), Arrival::There);
        assert!(!timeline.apply(command).unwrap().cut);
    }
    assert!(matches!(timeline.step(u64::MAX).unwrap(), Arrival::End(Some(_))));
    let end = timeline.session().icount();
    (timeline, end)
}

fn count(icount: u64) -> Position {
    Position::At { icount, ordinal: 0 }
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn the_state_at_a_position_is_that_of_a_run_that_stopped_there() {
    let times = std::env::var("TRAPLINE_POSITIONS").map_or(60, |times| times.parse().unwrap());
    for name in GUESTS {
        let (mut timeline, end) = timeline(name);
        let mut seed = 0x9e37_79b9_7f4a_7c15;
        for n in 0..times {
            let at = match n {
                0 => end,
                1 => 250_000,
                2 => 0,
                _ => random(&mut seed) % end,
            };
            timeline.goto(count(at)).unwrap();
            let found = seen(timeline.session_mut());
            let expected = seen(&mut straight(name, at));
            assert!(found == expected, "{name} at {at}:\n{found:?}\n{expected:?}");
            if n % 4 == 3 && at > 5_000 {
                let less = 1 + random(&mut seed) % 5_000;
                timeline.back(less).unwrap();
                assert_eq!(timeline.position(), count(at - less));
                timeline.step(less).unwrap();
                assert!(
                    seen(timeline.session_mut()) == expected,
                    "{name}: {less} back from {at}, and on again"
                );
            }
        }
    }
}

/// How many places are looked at.
const PLACES: usize = 10;

/// The first places from here on that are met. The timeline is at the last of them.
fn forwards(timeline: &mut Timeline, point: &StopPoint) -> Vec<(u64, String)> {
    let mut met = Vec::new();
    while met.len() < PLACES
        && let Found::Met(_) = timeline.run_until(std::slice::from_ref(point)).unwrap()
    {
        met.push((timeline.session().icount(), timeline.session().digest().to_string()));
    }
    met
}

/// The last places before here, in the order of the run.
fn backwards(timeline: &mut Timeline, point: &StopPoint) -> Vec<(u64, String)> {
    let mut met = Vec::new();
    while met.len() < PLACES
        && let Found::Met(_) = timeline.reverse_continue(std::slice::from_ref(point)).unwrap()
    {
        met.push((timeline.session().icount(), timeline.session().digest().to_string()));
    }
    met.reverse();
    met
}

#[test]
fn hits_are_met_backwards_as_they_were_forwards() {
    for name in GUESTS {
        let (mut timeline, end) = timeline(name);
        let mut whole = straight(name, end);
        let mut recorded: Vec<u64> = whole.records().map(|record| record.header.icount).collect();
        recorded.extend(whole.waiting().iter().map(|record| record.header.icount));
        recorded.dedup();
        // The first ones: from a place of the run on.
        let from = recorded[recorded.len() / 3];
        let before = seen(timeline.session_mut());
        timeline.goto(count(from)).unwrap();
        let mut met = Vec::new();
        for _ in 0..PLACES {
            let Found::Met(hit) = timeline.next_hit(None).unwrap() else { panic!("no more hits") };
            assert_eq!(hit.at, timeline.session().moment());
            met.push(hit.at);
        }
        let last = met.last().unwrap().icount;
        let of_records: Vec<u64> = recorded.iter().copied().filter(|at| (from..=last).contains(at)).collect();
        let counts: Vec<u64> = met.iter().map(|at| at.icount).collect();
        assert!(of_records.iter().all(|at| *at == from || counts.contains(at)), "{of_records:?}\n{counts:?}");
        for expected in met.iter().rev().skip(1) {
            let Found::Met(hit) = timeline.previous_hit(None).unwrap() else { panic!("no hit before") };
            assert_eq!((hit.at, timeline.session().moment()), (*expected, *expected));
        }
        // Nothing of it is left.
        timeline.goto(Position::BeforeEnd(0)).unwrap();
        assert!(seen(timeline.session_mut()) == before);
        let of = seen(timeline.session_mut()).programs;
        assert!(of.contains("fbt::do_*:entry"));
        let first = recorded[0];
        timeline.goto(count(0)).unwrap();
        assert!(matches!(timeline.previous_hit(None).unwrap(), Found::Nothing));
        assert_eq!(timeline.position(), count(0));
        assert!(first > 0);
    }
}

#[test]
fn hits_of_one_program_are_those_of_its_records() {
    let (mut timeline, end) = timeline("ia32");
    let records: Vec<Record> = seen(&mut straight("ia32", end)).records;
    // The first program has the first probes.
    let mut whole = straight("ia32", end);
    whole.step(0);
    let of_program = |record: &Record| {
        let (name, ..) = whole.interposer().unwrap().probe(record.header.probe).unwrap();
        name == "--rpn fbt::do_*:entry" && record.header.kind == trapline_trace::Kind::Data
    };
    let mut expected: Vec<u64> =
        records.iter().filter(|record| of_program(record)).map(|record| record.header.icount).collect();
    expected.dedup();
    let point = timeline.hits_of(Some("fbt::do_*:entry")).unwrap();
    let counts = |met: Vec<(u64, String)>| met.iter().map(|(at, _)| *at).collect::<Vec<u64>>();
    let (few, all) = (PLACES.min(expected.len()), expected.len());
    assert!(few > 3, "{expected:?}");
    assert_eq!(counts(backwards(&mut timeline, &point)), expected[all - few..]);
    timeline.goto(count(0)).unwrap();
    assert_eq!(counts(forwards(&mut timeline, &point)), expected[..few]);
    let refused = timeline.next_hit(Some("nobody")).unwrap_err().to_string();
    assert!(refused.starts_with("no program `nobody` is inserted"), "{refused}");
}

#[test]
fn watchpoints_and_breakpoints_are_met_backwards_as_they_were_forwards() {
    for name in GUESTS {
        let (mut timeline, _) = timeline(name);
        let low = word(name);
        let watch = StopPoint::Watch(Watch { kind: WatchKind::ReadWrite, low, high: low + 3 });
        let symbol = timeline.session().symbols().sole("do_fork").unwrap().addr;
        for point in [watch, Timeline::breakpoint(symbol)] {
            timeline.goto(count(0)).unwrap();
            let on = forwards(&mut timeline, &point);
            assert!(on.len() > 1, "{name}: {point:?} {on:?}");
            assert_eq!(backwards(&mut timeline, &point), on[..on.len() - 1]);
        }
        timeline.goto(count(0)).unwrap();
        assert!(matches!(timeline.run_until(&[Timeline::breakpoint(symbol)]).unwrap(), Found::Met(_)));
        assert_eq!(timeline.session().core().linear_ip(), symbol);
    }
}

#[test]
fn a_function_is_finished_and_its_caller_found() {
    for name in GUESTS {
        let (mut timeline, _) = timeline(name);
        timeline.goto(count(0)).unwrap();
        let symbol = timeline.session().symbols().sole("do_fork").unwrap().addr;
        timeline.run_until(&[Timeline::breakpoint(symbol)]).unwrap();
        let entry = timeline.session().moment();
        let (sp, wide) = (timeline.session().core().env().gpr(4), name == "x86_64");
        let mut bytes = [0; 8];
        let word = if wide { 8 } else { 4 };
        timeline.session().core().peek(sp, &mut bytes[..word]).unwrap();
        let back_to = u64::from_le_bytes(bytes);
        // A little into the function, after its prologue.
        timeline.step(4).unwrap();
        assert!(matches!(timeline.back_to_caller().unwrap(), Found::Met(_)));
        let call = timeline.session().core().decode_original(timeline.session().core().linear_ip()).unwrap();
        assert_eq!(timeline.session().icount() + 1, entry.icount);
        assert_eq!(timeline.session().core().linear_ip() + call.len() as u64, back_to);
        timeline.step(1).unwrap();
        assert_eq!(timeline.session().core().linear_ip(), symbol);
        timeline.step(4).unwrap();
        assert!(matches!(timeline.finish().unwrap(), Found::Met(_)));
        assert_eq!(timeline.session().core().linear_ip(), back_to);
        assert_eq!(timeline.session().core().env().gpr(4), sp + word as u64);
        assert!(timeline.session().icount() > entry.icount + 5);
    }
}

#[test]
fn the_caller_of_a_function_is_found_from_its_first_instruction() {
    for name in GUESTS {
        let (mut timeline, _) = timeline(name);
        let symbols = timeline.session().symbols();
        let functions = symbols.iter().filter(|symbol| symbol.name.starts_with("do_"));
        let points: Vec<StopPoint> = functions.map(|symbol| Timeline::breakpoint(symbol.addr)).collect();
        timeline.goto(count(0)).unwrap();
        let mut called = 0;
        while let Found::Met(met) = timeline.run_until(&points).unwrap() {
            timeline.back(1).unwrap();
            let core = timeline.session().core();
            let instruction = core.decode_original(core.linear_ip()).unwrap().to_string();
            timeline.goto(count(met.at.icount)).unwrap();
            if instruction.starts_with("call") {
                assert!(matches!(timeline.back_to_caller().unwrap(), Found::Met(_)), "{name} {met:?}");
                assert_eq!(timeline.session().icount() + 1, met.at.icount, "{name}");
                timeline.goto(count(met.at.icount)).unwrap();
                called += 1;
            }
        }
        assert!(called > 20, "{name} {called}");
    }
}

#[test]
fn a_command_in_the_past_cuts_the_future() {
    let (mut timeline, end) = timeline("ia32");
    timeline.goto(count(200_000)).unwrap();
    assert!(!timeline.apply(Command::Query).unwrap().cut);
    assert!(matches!(timeline.apply(Command::Restore { label: "x".to_owned() }), Err(TravelError::Restore)));
    assert!(timeline.apply(Command::clause("nonsense")).is_err());
    assert_eq!(timeline.history().end, Some(end));
    let applied = timeline.apply(Command::Remove { name: "watched".to_owned() }).unwrap();
    assert!(applied.cut && timeline.history().end.is_none());
    timeline.step(400_000).unwrap();
    let there = seen(timeline.session_mut());
    timeline.back(500_000).unwrap();
    timeline.step(500_000).unwrap();
    assert!(seen(timeline.session_mut()) == there);
    // It is the run in which the program left there, and nothing came in later.
    let mut session = start("ia32");
    for (at, command) in commands("ia32").into_iter().filter(|(at, _)| *at < 200_000) {
        session.run_until(&Condition::end(), &Limits::insns(at).in_passing());
        session.apply(command).unwrap();
    }
    session.run_until(&Condition::end(), &Limits::insns(200_000).in_passing());
    session.apply(Command::Remove { name: "watched".to_owned() }).unwrap();
    session.run_until(&Condition::end(), &Limits::insns(600_000).in_passing());
    assert!(seen(&mut session) == there);
}

#[test]
fn positions_that_a_timeline_cannot_reach_are_reported() {
    let (mut timeline, end) = timeline("ia32");
    let said = |error: TravelError| error.to_string();
    let past = format!("900000000 is past the end of this run, which has {end} instructions");
    assert_eq!(said(timeline.goto(count(900_000_000)).unwrap_err()), past);
    let inside = said(timeline.goto("5.3".parse().unwrap()).unwrap_err());
    assert_eq!(
        inside,
        "no handler runs at 5 instructions; `next hit` goes to the next position where one runs"
    );
    timeline.goto(count(10)).unwrap();
    let before =
        "11 instructions back from 10 is before the beginning of this history, which begins at instruction 0";
    assert_eq!(said(timeline.back(11).unwrap_err()), before);
    assert_eq!(timeline.position(), count(10));
    let beyond = said(timeline.goto(Position::Hit(1_000_000_000)).unwrap_err());
    let number = beyond.strip_prefix("hit:1000000000 is not in this run: it has ");
    let number = number.and_then(|rest| rest.strip_suffix(" hits that leave a record")).unwrap();
    assert!(number.parse::<u64>().unwrap() > 0, "{beyond}");
    assert_eq!(timeline.position(), count(10));
    let mut live = Timeline::new(start("ia32"), HISTORY_MEM).unwrap();
    let refused = said(live.goto(Position::BeforeEnd(1)).unwrap_err());
    assert_eq!(refused, "this run has not ended, so nothing can be counted from its end");
}

#[test]
fn the_ladder_stays_within_its_memory() {
    let mut session = start("ia32");
    session.apply(Command::clause("fbt::do_*:entry { push arg, 0; log 1 }")).unwrap();
    let alone = Timeline::new(session, 0).unwrap().history().bytes;
    let budget = alone + (1 << 20);
    let mut session = start("ia32");
    session.apply(Command::clause("fbt::do_*:entry { push arg, 0; log 1 }")).unwrap();
    let mut timeline = Timeline::new(session, budget).unwrap();
    timeline.step(u64::MAX).unwrap();
    let end = timeline.session().icount();
    let mut seed = 7;
    for _ in 0..60 {
        timeline.goto(count(random(&mut seed) % end)).unwrap();
        let history = timeline.history();
        assert!(history.bytes <= budget, "{history:?} of {budget}");
        assert_eq!(history.first, 0);
    }
    let history = timeline.history();
    assert!(history.thinned > 0 && history.rungs > 1, "{history:?}");
}

#[test]
fn the_effort_of_a_run_is_the_same_each_time_and_does_not_go_back_with_a_snapshot() {
    const HALF: u64 = 500_000;
    let mut session = start("x86_64");
    session.step(HALF);
    let first = session.core().effort();
    // Interrupts, accesses to devices and pages of code count as several instructions.
    assert!(first > HALF);
    let saved = session.snapshot();
    session.step(HALF);
    let both = session.core().effort();
    session.restore(&saved).unwrap();
    assert_eq!((session.icount(), session.core().effort()), (HALF, both));
    session.step(1_000);
    assert!(session.core().effort() >= both + 1_000);
    let mut again = start("x86_64");
    again.step(2 * HALF);
    assert_eq!(again.core().effort(), both);
}

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_recording_is_travelled_in() {
    let builder = GuestBuilder::embedded("ia32").memory(32 << 20);
    let (builder, config, blobs) = builder.recorded(false).unwrap();
    let file = Memory::default();
    let recorder = Recorder::begin(Box::new(file.clone()), &config, &blobs).unwrap();
    let mut session = builder.open().unwrap().start(config.probing.clone()).unwrap();
    session.record(recorder).unwrap();
    session.apply(Command::clause("fbt::do_fork:entry { push pid; log 1 }")).unwrap();
    session.step(300_000);
    session.apply(Command::clause("fbt::console_write:")).unwrap();
    let ending = session.run_until(&Condition::end(), &Limits::none());
    session.finish_recording().unwrap();
    let recording = Recording::from_bytes(&file.0.lock().unwrap()).unwrap();
    let builder = GuestBuilder::of_recording(&recording, &Places::default()).unwrap();
    let mut fresh = builder.open().unwrap().start(config.probing.clone()).unwrap();
    fresh.begin_as(&mut RecordedCourse::of(&recording, Way::Same, |_| true)).unwrap();
    let mut timeline = Timeline::of(fresh, &recording, |_| true, HISTORY_MEM).unwrap();
    assert_eq!(timeline.history().end, Some(session.icount()));
    let records: Vec<Record> = session.records().collect();
    timeline.goto(Position::Hit(3)).unwrap();
    let forks: Vec<u64> = records.iter().map(|record| record.header.icount).collect();
    // Where `next_hit` stops: before the instruction.
    assert_eq!(timeline.session().icount(), forks[2]);
    let there = timeline.session().moment();
    timeline.back(1).unwrap();
    timeline.next_hit(None).unwrap();
    assert_eq!(timeline.session().moment(), there);
    timeline.goto(Position::BeforeEnd(0)).unwrap();
    assert_eq!(timeline.session().digest(), session.digest());
    assert_eq!(timeline.step(1).unwrap(), Arrival::End(Some(ending)));
    assert!(timeline.session_mut().records().eq(records));
}

/// `TRAPLINE_LINUX_POSITIONS=1000` goes to so many random positions of a boot of Debian's cloud kernel, and says what that takes;
/// every 20th is compared with a run that stopped there.
#[test]
fn positions_of_a_linux_boot() {
    let Ok(times) = std::env::var("TRAPLINE_LINUX_POSITIONS") else { return };
    let guests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.guests");
    let path = |name: &str| guests.join(name).display().to_string();
    let initrd = std::fs::read(path("initramfs-amd64.cpio.gz")).unwrap();
    let initrd = trapline_session::Content::Read { name: "initrd".to_owned(), bytes: initrd.into() };
    let guest = GuestBuilder::image(&path("linux-cloud-amd64")).initrd(initrd).open().unwrap();
    let fresh = || {
        let mut session = guest.start(Probing::default()).unwrap();
        session.apply(Command::clause("fbt::kernel_clone:entry { push pid; log 1 }")).unwrap();
        session
    };
    let mut booted = fresh();
    booted.run_until(&Condition::console("/ # "), &Limits::none());
    let end = booted.icount();
    drop(booted);
    let mut timeline = Timeline::new(fresh(), HISTORY_MEM).unwrap();
    timeline.goto(count(end)).unwrap();
    println!("{end} instructions, {:?}", timeline.history());
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let (mut gone, mut backs, mut hits) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..times.parse::<u64>().unwrap() {
        let at = random(&mut seed) % end;
        gone.push(worked(&mut timeline, |timeline| drop(timeline.goto(count(at)).unwrap())));
        if n % 20 == 0 {
            let found = seen(timeline.session_mut());
            let mut session = fresh();
            session.run_until(&Condition::end(), &Limits::insns(at).in_passing());
            assert!(found == seen(&mut session), "at {at}");
        }
        if at > 0 {
            backs.push(worked(&mut timeline, |timeline| drop(timeline.back(1).unwrap())));
        }
        if n % 10 == 0 {
            hits.push(worked(&mut timeline, |timeline| assert!(timeline.previous_hit(None).is_ok())));
        }
    }
    for (what, mut work) in [("goto", gone), ("one instruction back", backs), ("previous hit", hits)] {
        work.sort_unstable();
        let (median, most) = (work[work.len() / 2], work[work.len() - 1]);
        println!("{what}: the work of {median} instructions, the median, and of {most} at most");
    }
    let history = timeline.history();
    println!("{history:?}");
    assert!(history.bytes <= HISTORY_MEM);
}

/// The work that it takes: see `Core::effort`.
fn worked(timeline: &mut Timeline, run: impl FnOnce(&mut Timeline)) -> u64 {
    let effort = |timeline: &Timeline| timeline.session().core().effort();
    let from = effort(timeline);
    run(timeline);
    effort(timeline) - from
}

#[test]
fn states_follow_each_other_both_ways_across_deliveries() {
    let session = GuestBuilder::embedded("ia32").memory(16 << 20).start().unwrap();
    let mut timeline = Timeline::new(session, 64 << 20).unwrap();
    assert!(!timeline.previous_state().unwrap(), "there is no state before the first one");
    timeline.goto(Position::At { icount: 268_000, ordinal: 0 }).unwrap();
    let state = |timeline: &Timeline| (timeline.session().moment(), timeline.session().core().linear_ip());
    let mut seen = Vec::new();
    // The timer's interrupt comes within this part.
    while seen.iter().filter(|(moment, _): &&(Moment, u64)| moment.delivered > 0).count() < 2 {
        seen.push(state(&timeline));
        assert_eq!(timeline.next_state().unwrap(), Arrival::There);
        assert!(seen.len() < 50_000, "nothing was delivered");
    }
    seen.push(state(&timeline));
    let last: Vec<_> = seen.iter().rev().take(60).copied().collect();
    for pair in last.windows(2) {
        assert_eq!(state(&timeline), pair[0]);
        assert!(timeline.previous_state().unwrap());
    }
    assert_eq!(state(&timeline), last[last.len() - 1]);
}

#[test]
fn a_run_that_is_interrupted_stays_and_backwards_the_last_write_comes_first() {
    let session = GuestBuilder::embedded("ia32").memory(16 << 20).start().unwrap();
    let word = session.symbols().sole("current_task").unwrap().addr;
    let mut plain = GuestBuilder::embedded("ia32").memory(16 << 20).start().unwrap();
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let mut timeline = Timeline::new(session, 64 << 20).unwrap().cancelled_by(flag.clone());
    let point = [StopPoint::Watch(Watch { kind: WatchKind::Write, low: word, high: word + 3 })];
    let ran = timeline.run_on(&point, None).unwrap();
    assert!(matches!(ran, Ran::Interrupted(Position::At { .. })), "{ran:?}");
    flag.store(false, std::sync::atomic::Ordering::Relaxed);
    let Ran::Met(first) = timeline.run_on(&point, None).unwrap() else { panic!() };
    let Ran::Met(second) = timeline.run_on(&point, None).unwrap() else { panic!() };
    assert!(first.at < second.at);
    // The write that has just been made is the last one.
    assert_eq!(timeline.reverse_on(&point, None).unwrap(), Found::Met(second));
    assert_eq!(timeline.met_next(&point).unwrap(), None);
    assert!(timeline.previous_state().unwrap());
    assert_eq!(timeline.met_next(&point).unwrap(), Some(0));
    assert_eq!(timeline.reverse_on(&point, None).unwrap(), Found::Met(first));
    let Ran::Met(user) = timeline.run_on(&[StopPoint::UserMode], None).unwrap() else { panic!() };
    assert_eq!(timeline.session().core().env().cpl(), 3);
    plain.run_until(&Condition::end(), &Limits::insns(user.at.icount));
    assert_eq!(timeline.session().digest(), plain.digest());
}
