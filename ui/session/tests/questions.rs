//! Where conditions become true, against single steps of a session and conditions that are computed here; and who wrote last,
//! against watchpoints of a run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use trapline_session::{
    Between, Command, Condition, Guest, GuestBuilder, HISTORY_MEM, Limits, Places, Position, Probing,
    RecordedCourse, Recorder, Recording, Session, SourceOptions, Span, Timeline, Way, Writer, compile, when,
    who_wrote,
};

/// Positions at which the spans begin, and their length.
const SPANS: [u64; 2] = [100_000, 400_000];
const LENGTH: u64 = 6_000;

/// The bytes of a recording.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn recorded(name: &str, insns: u64) -> (Guest, Recording) {
    let builder = GuestBuilder::embedded(name).memory(32 << 20);
    let (builder, config, blobs) = builder.recorded(false).unwrap();
    let file = Shared::default();
    let recorder = Recorder::begin(Box::new(file.clone()), &config, &blobs).unwrap();
    let mut session = builder.open().unwrap().start(config.probing.clone()).unwrap();
    session.record(recorder).unwrap();
    session.run_until(&Condition::end(), &Limits::insns(insns));
    session.finish_recording().unwrap();
    let recording = Recording::from_bytes(&file.0.lock().unwrap()).unwrap();
    let guest = GuestBuilder::of_recording(&recording, &Places::default()).unwrap().open().unwrap();
    (guest, recording)
}

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// The value of a state; none where it cannot be read.
type Value = Box<dyn Fn(&Session) -> Option<u64>>;

/// A value with its text.
fn value(dice: &mut Dice, is_64: bool, deep: u32) -> (String, Value) {
    const SMALL: [&str; 8] = ["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"];
    const LARGE: [&str; 8] = ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"];
    let choice = dice.below(if deep == 0 { 3 } else { 9 });
    match choice {
        0 => {
            let number = dice.below(3) * dice.below(0x100);
            (format!("{number:#x}"), Box::new(move |_| Some(number)))
        }
        1 | 2 => {
            let n = dice.below(8) as usize;
            if is_64 && dice.below(2) == 0 {
                return (LARGE[n].to_owned(), Box::new(move |s| Some(s.core().env().gpr(n))));
            }
            (SMALL[n].to_owned(), Box::new(move |s| Some(s.core().env().gpr(n) & 0xffff_ffff)))
        }
        3 | 4 => {
            let (text, at) = value(dice, is_64, deep - 1);
            let bytes = 1usize << dice.below(4);
            let signed = dice.below(2) == 0;
            let read = move |s: &Session| {
                let mut read = [0u8; 8];
                s.core().peek(at(s)?, &mut read[..bytes]).ok()?;
                if signed && read[bytes - 1] >= 0x80 {
                    read[bytes..].fill(0xff);
                }
                Some(u64::from_le_bytes(read))
            };
            (format!("{}{}[{text}]", if signed { 's' } else { 'u' }, bytes * 8), Box::new(read))
        }
        5 => {
            let (text, of) = value(dice, is_64, deep - 1);
            (format!("!({text})"), Box::new(move |s| of(s).map(|v| u64::from(v == 0))))
        }
        _ => {
            let ((a, left), (b, right)) = (value(dice, is_64, deep - 1), value(dice, is_64, deep - 1));
            type Both = fn(u64, u64) -> Option<u64>;
            let all: [(&str, Both); 12] = [
                ("+", |a, b| Some(a.wrapping_add(b))),
                ("-", |a, b| Some(a.wrapping_sub(b))),
                ("*", |a, b| Some(a.wrapping_mul(b))),
                ("/", u64::checked_div),
                ("%", u64::checked_rem),
                ("&", |a, b| Some(a & b)),
                ("^", |a, b| Some(a ^ b)),
                ("<", |a, b| Some((a < b).into())),
                (">=", |a, b| Some((a >= b).into())),
                ("==", |a, b| Some((a == b).into())),
                ("!=", |a, b| Some((a != b).into())),
                (">>", |a, b| Some(if b > 63 { 0 } else { a >> b })),
            ];
            let (sign, both) = all[dice.below(12) as usize];
            (format!("({a}) {sign} ({b})"), Box::new(move |s| both(left(s)?, right(s)?)))
        }
    }
}

#[test]
fn a_condition_becomes_true_where_single_steps_show_it() {
    let mut turned = 0;
    for name in ["ia32", "x86_64"] {
        let (guest, recording) = recorded(name, SPANS[1] + 2 * LENGTH);
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        let conditions: Vec<(String, Value)> = (0..20)
            .map(|_| {
                let ((a, left), (b, right)) =
                    (value(&mut dice, name == "x86_64", 3), value(&mut dice, name == "x86_64", 1));
                let less = move |s: &Session| Some(u64::from(left(s)? < right(s)?));
                (format!("({a}) < ({b})"), Box::new(less) as Value)
            })
            .collect();
        for from in SPANS {
            // What holds at each instruction count.
            let mut session = guest.start(recording.config().probing.clone()).unwrap();
            session.begin_as(&mut RecordedCourse::of(&recording, Way::Same, |_| true)).unwrap();
            let mut timeline = Timeline::of(session, &recording, |_| true, HISTORY_MEM).unwrap();
            timeline.goto(Position::At { icount: from, ordinal: 0 }).unwrap();
            let mut held: Vec<Vec<bool>> = Vec::new();
            for icount in from..=from + LENGTH {
                assert_eq!(timeline.session().icount(), icount);
                let holds = |(_, value): &(String, Value)| value(timeline.session()).is_some_and(|v| v != 0);
                held.push(conditions.iter().map(holds).collect());
                timeline.step(1).unwrap();
            }
            for (n, (text, _)) in conditions.iter().enumerate() {
                let at = |icount| Some(Position::At { icount, ordinal: 0 });
                let span = Span { from: at(from), to: at(from + LENGTH), first: false, most: usize::MAX };
                let found = when(&guest, &recording, text, span).unwrap();
                assert_eq!(
                    (found.from, found.to, found.held),
                    (from, from + LENGTH, Some(held[0][n])),
                    "{text}"
                );
                let is_held = |icount: u64| held[(icount - from) as usize][n];
                let wanted: Vec<u64> =
                    (from..from + LENGTH).filter(|at| !is_held(*at) && is_held(at + 1)).collect();
                let positions: Vec<u64> = found.last.iter().map(|turn| turn.position).collect();
                turned += wanted.len();
                assert!(wanted.iter().all(|at| positions.contains(at)), "{text}: {wanted:?} {positions:?}");
                // The states between two instruction counts are seen too.
                for turn in found.last.iter().filter(|turn| !wanted.contains(&turn.position)) {
                    assert!(
                        turn.by != Between::Instruction || is_held(turn.position + 1),
                        "{text}: {turn:?}"
                    );
                    assert!(turn.by != Between::Instruction || is_held(turn.position), "{text}: {turn:?}");
                }
                let first = when(&guest, &recording, text, Span { first: true, most: 1, ..span }).unwrap();
                assert_eq!(first.last.first(), found.last.first(), "{text}");
                for most in [1, 2, 10] {
                    let last = when(&guest, &recording, text, Span { most, ..span }).unwrap();
                    let fewer = found.last.len().saturating_sub(most);
                    assert_eq!(last.last, found.last[fewer..], "{text}: the last {most}");
                    assert_eq!(last.count.is_some(), found.last.len() < most, "{text}: the last {most}");
                }
            }
        }
    }
    assert!(turned > 100, "{turned}");
}

/// Instruction count and address of each write to these bytes, in a run with a watchpoint.
fn watched(guest: &Guest, recording: &Recording, low: u64, high: u64) -> Vec<(u64, u64)> {
    let text = format!(
        "name = vmlinux\nmodtype = kernel\naddress = {low:#x}:{high:#x}\nwatchpoint = w\npush 1\nlog 1\nexit\n"
    );
    let program = compile("watched", &text, &SourceOptions::default()).unwrap();
    let mut session = guest.start(Probing { watch_unlimited: true, ..Probing::default() }).unwrap();
    session.apply(Command::insert("watched", program)).unwrap();
    session.run_until(&Condition::end(), &Limits::insns(recording.end().icount));
    let mut records: Vec<_> = session.records().collect();
    records.extend(session.waiting());
    records.iter().map(|record| (record.header.icount, record.header.ip)).collect()
}

/// All writes to `LOW:LENGTH` before a position.
fn writes(
    guest: &Guest,
    recording: &Recording,
    asked: &str,
    before: Option<u64>,
    most: usize,
) -> Vec<Writer> {
    let before = before.map(|icount| Position::At { icount, ordinal: 0 });
    let found = who_wrote(guest, recording, asked, before, most).unwrap();
    assert_eq!(found.count, (found.last.len() < most).then_some(found.last.len() as u64));
    found.last
}

#[test]
fn the_last_writers_are_the_last_of_all_that_a_watchpoint_sees() {
    for name in ["ia32", "x86_64"] {
        let (guest, recording) = recorded(name, 2_000_000);
        let mut dice = Dice(0x1234_5678_9abc_def1);
        let current = guest.target().symbols().sole("current_task").unwrap().addr;
        // A page of variables, and the stack that is written most.
        let mut session = guest.start(Probing::default()).unwrap();
        let stacks: BTreeSet<u64> = (1..8)
            .map(|n| {
                session.run_until(&Condition::end(), &Limits::insns(n * 250_000).in_passing());
                (session.core().env().gpr(4) - 1) & !0xfff
            })
            .collect();
        let page = |page: u64| writes(&guest, &recording, &format!("{page:#x}:4096"), None, 2000);
        let stack = stacks.into_iter().map(page).max_by_key(Vec::len).unwrap();
        let pages = [page(current & !0xfff), stack];
        assert!(pages[0].len() > 20 && pages[1].len() == 2000, "{} {}", pages[0].len(), pages[1].len());
        for n in 0..8 {
            let page = &pages[n % 2];
            let of = &page[dice.below(page.len() as u64) as usize];
            let (low, length) = if n == 0 { (current, 4) } else { (of.address, 1 + dice.below(20)) };
            let live = watched(&guest, &recording, low, low + length - 1);
            let asked = format!("{low:#x}:{length}");
            let all = writes(&guest, &recording, &asked, None, usize::MAX);
            // A watchpoint sees no deliveries.
            let by_instructions = all.iter().filter(|w| w.vector.is_none());
            let places: Vec<(u64, u64)> = by_instructions.map(|w| (w.position + 1, w.ip)).collect();
            assert!(!live.is_empty() && places == live, "{name} {asked}: {places:?} {live:?}");
            // To the end, to just before and just after a write, and to any position.
            let at = all[dice.below(all.len() as u64) as usize].position;
            for before in [None, Some(at), Some(at + 1), Some(dice.below(recording.end().icount))] {
                let seen = all.iter().take_while(|w| before.is_none_or(|before| w.position < before)).count();
                for most in [1, 2, 5, 1 + dice.below(200) as usize] {
                    let mut wanted = all[seen.saturating_sub(most)..seen].to_vec();
                    wanted.first_mut().into_iter().for_each(|first| first.changed_before = None);
                    let last = writes(&guest, &recording, &asked, before, most);
                    assert_eq!(last, wanted, "{name} {asked}: the last {most} before {before:?}");
                }
            }
        }
    }
}
