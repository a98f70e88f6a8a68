//! Calls and stacks of random hits, against a slow second reading of docs/export.md: what is open is searched for anew at each hit.

use std::collections::BTreeMap;

use trapline_export::{FlameForm, FlameSink, Notes, Weight};
use trapline_trace::{Kind, Record};

use crate::made::{as_d, end, hit, items, show, stack};
use crate::perfetto::slices;

/// Random streams of hits.
const STREAMS: u64 = 10_000;
/// The instruction at which they end.
const END: u64 = 100;
/// Bytes between two stack pointers of one stack.
const STACK: u64 = 16 << 10;

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Up to thirty hits of three functions and of a probe without a name, by up to four tasks; in half of the streams with
/// stack pointers.
fn stream(dice: &mut Dice) -> Vec<Record> {
    let (mut icount, with_sp) = (0, dice.below(2) == 0);
    let mut made: Vec<Record> = Vec::new();
    for _ in 0..dice.below(30) {
        if dice.below(20) == 0 && !made.is_empty() {
            let again = made[made.len() - 1].clone();
            made.push(again);
            continue;
        }
        icount += 1 + dice.below(3);
        let probe = if dice.below(12) == 0 { 9 } else { dice.below(6) as u32 };
        let mut record = hit(probe, icount, 1 + dice.below(4) as u32);
        if with_sp && dice.below(8) > 0 {
            record.header.cs = 8 + 0x1b * u32::from(dice.below(8) == 0);
            record.header.sp = 0x9000 - 16 * dice.below(12) + 0x10000 * u64::from(dice.below(10) == 0);
        }
        made.push(record);
    }
    made
}

/// The fate of the call that a hit begins, and of the hit itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// No call begins here, and none of this function ends.
    Alone,
    /// A call, and the hit at which it has ended.
    Call(Option<usize>),
    /// The return of calls that were open.
    Return,
}

fn is_entry(record: &Record) -> bool {
    record.header.probe < 6 && record.header.probe.is_multiple_of(2)
}

/// The calls of a thread that are open before hit `at`, outermost first.
fn open(fates: &[Fate], all: &[Record], pid: u32) -> Vec<usize> {
    let of = |n: &usize| all[*n].header.pid == pid && fates[*n] == Fate::Call(None);
    (0..fates.len()).filter(of).collect()
}

/// Whether a hit shows that the frame of an earlier call is gone.
fn shows_gone(call: &Record, hit: &Record) -> bool {
    let (own, now) = (&call.header, &hit.header);
    let same_stack = own.cs == now.cs && own.sp != 0 && now.sp >= own.sp && now.sp - own.sp < STACK;
    same_stack && (now.sp > own.sp || is_entry(hit))
}

/// How many of the open calls are kept because the outermost one of those whose frames are gone, and whose function returns, is
/// the call that returns: the probe fires behind the `ret`. If it fires at the `ret`, a call that is left has its stack pointer.
fn returning(all: &[Record], waiting: &[usize], hit: &Record) -> usize {
    let is_own = |call: &usize| all[*call].header.probe + 1 == hit.header.probe && is_entry(&all[*call]);
    let left = waiting.iter().rposition(|call| !shows_gone(&all[*call], hit)).map_or(0, |last| last + 1);
    let at_ret = waiting[..left].last().is_some_and(|call| {
        let own = &all[*call].header;
        is_own(call) && (own.cs, own.sp) == (hit.header.cs, hit.header.sp)
    });
    let first = waiting[left..].iter().position(is_own).filter(|_| !at_ret);
    first.map_or(0, |at| left + at + 1)
}

/// Whether a hit is a further record of the one before it.
fn is_again(all: &[Record], at: usize) -> bool {
    let key = |n: usize| (all[n].header.icount, all[n].header.probe, all[n].header.pid);
    at > 0 && key(at) == key(at - 1)
}

/// The calls of a stream.
struct Calls {
    /// Of each hit.
    fates: Vec<Fate>,
    /// Those that end at each hit, innermost first.
    ends: Vec<Vec<usize>>,
    /// The stack that each hit leaves: its task and the functions that are open.
    paths: Vec<Option<String>>,
}

fn calls(all: &[Record]) -> Calls {
    let (mut fates, mut paths, mut ends) = (Vec::new(), Vec::new(), vec![Vec::new(); all.len()]);
    for (at, record) in all.iter().enumerate() {
        let again = is_again(all, at);
        let is_step = record.header.probe < 6 && !again;
        // An outer call does not end before an inner one. A hit that is none of a call looks as a return does.
        let mut waiting = open(&fates, all, record.header.pid);
        let mut seen = record.clone();
        if !is_step {
            seen.header.probe = 9;
        }
        let kept = if is_step { returning(all, &waiting, record) } else { 0 };
        while waiting.len() > kept
            && let Some(call) = waiting.pop_if(|call| shows_gone(&all[*call], &seen))
        {
            fates[call] = Fate::Call(Some(at));
            ends[at].push(call);
        }
        let fate = match is_step {
            true if is_entry(record) => Fate::Call(None),
            true => {
                let same = |call: &usize| all[*call].header.probe + 1 == record.header.probe;
                match waiting.iter().rposition(same) {
                    Some(first) => {
                        for call in waiting.drain(first..).rev() {
                            fates[call] = Fate::Call(Some(at));
                            ends[at].push(call);
                        }
                        Fate::Return
                    }
                    None => Fate::Alone,
                }
            }
            false => Fate::Alone,
        };
        fates.push(fate);
        let left = open(&fates, all, record.header.pid);
        let functions: Vec<&str> =
            left.iter().map(|call| FUNCTIONS[all[*call].header.probe as usize / 2]).collect();
        paths.push((!left.is_empty()).then(|| format!("task{};{}", record.header.pid, functions.join(";"))));
    }
    Calls { fates, ends, paths }
}

const FUNCTIONS: [&str; 3] = ["a", "b", "c"];

/// Time, kind, thread and name of each event that a Perfetto trace has: 1 begins a slice, 2 ends one, 3 is an instant.
fn events(all: &[Record]) -> Vec<(u64, u64, u32, String)> {
    let Calls { fates, ends, .. } = calls(all);
    let mut found = Vec::new();
    for (at, record) in all.iter().enumerate() {
        let h = &record.header;
        ends[at].iter().for_each(|_| found.push((h.time_ns, 2, h.pid, String::new())));
        let name = match FUNCTIONS.get(h.probe as usize / 2) {
            Some(function) => format!("{function}:{}", ["entry", "return"][h.probe as usize % 2]),
            None => "somewhere+0x4".to_owned(),
        };
        match fates[at] {
            Fate::Call(_) => found.push((h.time_ns, 1, h.pid, FUNCTIONS[h.probe as usize / 2].to_owned())),
            Fate::Alone => found.push((h.time_ns, 3, h.pid, name)),
            Fate::Return => {}
        }
    }
    for pid in 1..=4 {
        let left = open(&fates, all, pid).len();
        found.extend((0..left).map(|_| (2 * END, 2, pid, String::new())));
    }
    found
}

/// The folded stacks of calls by a weight.
fn by_calls(all: &[Record], weight: &Weight) -> BTreeMap<String, u64> {
    let (mut found, Calls { fates, paths, .. }) = (BTreeMap::new(), calls(all));
    for (at, record) in all.iter().enumerate() {
        let now = &record.header;
        let next_of_thread = || all[at + 1..].iter().find(|later| later.header.pid == now.pid);
        let weight = match weight {
            Weight::Count => u64::from(matches!(fates[at], Fate::Call(_))),
            Weight::Ns => next_of_thread().map_or(0, |next| next.header.time_ns - now.time_ns),
            _ => all.get(at + 1).map_or(END, |next| next.header.icount) - now.icount,
        };
        if let Some(path) = paths[at].as_ref().filter(|_| weight > 0) {
            *found.entry(path.clone()).or_default() += weight;
        }
    }
    found
}

/// The folded stacks of recorded stacks.
fn by_stacks(all: &[Record]) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for (at, record) in all.iter().enumerate().filter(|(_, record)| record.header.kind == Kind::Data) {
        let own = all[at + 1..].iter().take_while(|later| later.header.kind != Kind::Data);
        let frames: Vec<Vec<String>> = own.map(frames_of).collect();
        let Some(first) = frames.first() else { continue };
        let function = FUNCTIONS.get(record.header.probe as usize / 2).map(|f| format!("kernel`{f}"));
        let leaf = function.unwrap_or_else(|| "kernel`somewhere".to_owned());
        let all = std::iter::once(format!("task{}", record.header.pid)).chain(first.iter().rev().cloned());
        *found.entry(all.chain([leaf]).collect::<Vec<_>>().join(";")).or_default() += 1;
    }
    found
}

/// The names of the frames of a made stack, innermost first.
fn frames_of(stack: &Record) -> Vec<String> {
    let stack = trapline_trace::GuestStack::decode(&stack.data, 32).unwrap();
    stack.frames.iter().map(|frame| format!("kernel`f{}", (frame.ip - 1) / 0x100)).collect()
}

fn folded(records: &[Record], d: bool, weight: Option<Weight>) -> BTreeMap<String, u64> {
    let mut out = Vec::new();
    let shown = if d { as_d(records) } else { Vec::new() };
    let mut sink = FlameSink::new(&mut out, FlameForm::Folded, items(), weight, Notes::default());
    show(&mut sink, if d { &[] } else { records }, &shown, &end(END, 0));
    let text = String::from_utf8(out).unwrap();
    let line =
        |line: &str| line.rsplit_once(' ').map(|(path, n)| (path.to_owned(), n.parse().unwrap())).unwrap();
    let lines: Vec<(String, u64)> = text.lines().map(line).collect();
    let found: BTreeMap<String, u64> = lines.iter().cloned().collect();
    assert_eq!(found.len(), lines.len(), "a stack is one line: {text}");
    found
}

#[test]
fn slices_and_stacks_of_random_calls_are_those_of_a_slow_model() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut ended, mut lines) = (0, 0);
    for n in 0..STREAMS {
        let records = stream(&mut dice);
        let wanted = events(&records);
        assert_eq!(slices(&records), wanted, "stream {n}: {records:#?}");
        ended += wanted.iter().filter(|event| event.1 == 2).count();
        // Clauses of D have no stack pointers in these objects.
        let with_sp = records.iter().any(|record| record.header.sp != 0);
        for weight in [Weight::Count, Weight::Insns, Weight::Ns] {
            let wanted = by_calls(&records, &weight);
            lines += wanted.len();
            assert_eq!(
                folded(&records, false, Some(weight.clone())),
                wanted,
                "stream {n}, {weight:?}: {records:#?}"
            );
            let named = records.iter().all(|record| record.header.probe < 6);
            if !with_sp && named {
                assert_eq!(
                    folded(&records, true, Some(weight.clone())),
                    wanted,
                    "stream {n} of D, {weight:?}"
                );
            }
        }
    }
    assert!(ended > 20_000 && lines > 50_000, "{ended} calls, {lines} lines");
}

#[test]
fn recorded_stacks_of_random_hits_are_counted_as_a_slow_model_counts_them() {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let mut hits = 0;
    for n in 0..STREAMS {
        let mut records = Vec::new();
        for record in stream(&mut dice) {
            let addresses: Vec<u64> =
                (0..1 + dice.below(4)).map(|_| 0x100 * (1 + dice.below(3)) + 1 + dice.below(0x80)).collect();
            let with = (dice.below(4) > 0).then(|| stack(&record, &addresses));
            records.push(record);
            records.extend(with);
        }
        let wanted = by_stacks(&records);
        hits += wanted.values().sum::<u64>();
        if !wanted.is_empty() {
            assert_eq!(folded(&records, false, None), wanted, "stream {n}: {records:#?}");
        }
    }
    assert!(hits > 50_000, "{hits}");
}
