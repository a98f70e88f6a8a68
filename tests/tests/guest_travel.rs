//! Journeys in boots of GNU Mach and of 32-bit Linux, and questions about them, against windows that a bare machine runs state
//! by state. `TRAPLINE_TRAVEL=100` tries so many windows of each guest.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crate::common::Rng;
use crate::recordings::cases;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};
use trapline_emu::{Machine, Moment, Seg};
use trapline_session::{
    Condition, Content, Ending, Found, Guest, GuestBuilder, HISTORY_MEM, Limits, Places, Position,
    RecordedCourse, Recorder, Recording, Span, StopPoint, Timeline, TravelError, Watch, WatchKind, Way,
    calls, when, who_wrote,
};
use trapline_tests::{guest, turns};

/// States of a window.
const WINDOW: usize = 20_000;
/// Positions from which each kind of journey begins, in a window.
const JOURNEYS: u64 = 4;
/// Bytes that a return may take from the stack with its address.
const MOST_POPPED: u64 = 64;
/// Bits in which the addresses of a kernel stack differ.
const STACK_BITS: u32 = 12;
/// Words that a window must change, to be looked at.
const LEAST_CHANGED: usize = 32;
/// Where both kernels have mapped the memory.
const MAPPED: u64 = 0xc000_0000;

/// In the order of their numbers.
const SEGMENTS: [Seg; 6] = [Seg::Es, Seg::Cs, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs];

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

/// The beginning of a boot, recorded.
struct Boot {
    guest: Guest,
    recording: Recording,
}

impl Boot {
    fn of(builder: &GuestBuilder, insns: u64) -> Self {
        turns::take().unwrap();
        let (builder, config, blobs) = builder.recorded(false).unwrap();
        let file = Shared::default();
        let recorder = Recorder::begin(Box::new(file.clone()), &config, &blobs).unwrap();
        let mut session = builder.open().unwrap().start(config.probing.clone()).unwrap();
        session.record(recorder).unwrap();
        let ending = session.run_until(&Condition::end(), &Limits::insns(insns));
        assert_eq!(ending, Ending::Limit);
        session.finish_recording().unwrap();
        let recording = Recording::from_bytes(&file.0.lock().unwrap()).unwrap();
        let guest = GuestBuilder::of_recording(&recording, &Places::default()).unwrap().open().unwrap();
        Self { guest, recording }
    }

    fn timeline(&self) -> Timeline {
        let mut session = self.guest.start(self.recording.config().probing.clone()).unwrap();
        session.begin_as(&mut RecordedCourse::of(&self.recording, Way::Same, |_| true)).unwrap();
        Timeline::of(session, &self.recording, |_| true, HISTORY_MEM).unwrap()
    }
}

/// A state: the instruction at `ip` comes next, or an interrupt before it.
#[derive(Debug, Clone, Copy)]
struct State {
    at: Moment,
    ip: u64,
    sp: u64,
    space: u64,
    user: bool,
    /// Where the instruction, a call, returns to.
    call: Option<u64>,
}

impl State {
    fn of(machine: &Machine) -> Self {
        let (core, ip) = (machine.core(), machine.core().linear_ip());
        let env = core.env();
        let is_call = |i: &iced_x86::Instruction| {
            matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
        };
        let call = core.decode_original(ip).filter(is_call).map(|i| ip + i.len() as u64);
        State { at: core.moment(), ip, sp: env.gpr(4), space: env.cr(3), user: env.cpl() == 3, call }
    }

    fn shares_stack(&self, sp: u64) -> bool {
        (self.sp - 1) >> STACK_BITS == (sp - 1) >> STACK_BITS
    }
}

/// States, one after the other.
struct Window {
    states: Vec<State>,
}

/// A call that has begun in a window, or an interrupt.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// The state of the call, and where it returns to; none for an interrupt or an exception.
    call: Option<(usize, u64)>,
    /// The stack pointer at the first instruction.
    sp: u64,
}

fn next(machine: &mut Machine) {
    let now = machine.core().moment();
    machine.run_until(None, u64::MAX, Moment { delivered: now.delivered + 1, ..now });
}

impl Window {
    /// The states from here on.
    fn of(machine: &mut Machine) -> Self {
        let mut states = Vec::with_capacity(WINDOW);
        for _ in 0..WINDOW {
            states.push(State::of(machine));
            next(machine);
        }
        Self { states }
    }

    fn first(&self) -> u64 {
        self.states[0].at.icount
    }

    /// The count of the last state.
    fn end(&self) -> u64 {
        self.states[WINDOW - 1].at.icount
    }

    /// Whether an instruction leads from this state to the next.
    fn retires(&self, n: usize) -> bool {
        self.states.get(n + 1).is_some_and(|next| next.at.icount > self.states[n].at.icount)
    }

    /// The first state with an instruction count.
    fn at(&self, icount: u64) -> usize {
        self.states.partition_point(|state| state.at.icount < icount)
    }

    /// A random state that is the first one with its count.
    fn any(&self, random: &mut Rng) -> usize {
        self.at(self.states[1 + random.below(WINDOW as u64 - 2) as usize].at.icount)
    }

    /// The innermost frame at a state that has begun in the window.
    fn frame(&self, at: usize) -> Option<Frame> {
        let mut frames: Vec<Frame> = Vec::new();
        for n in 1..=at {
            let (before, now) = (&self.states[n - 1], &self.states[n]);
            frames.retain(|frame| !now.shares_stack(frame.sp) || now.sp <= frame.sp);
            match (self.retires(n - 1), before.call) {
                (true, Some(back)) if now.sp < before.sp => {
                    frames.push(Frame { call: Some((n - 1, back)), sp: now.sp });
                }
                (false, _) if now.at.delivered != before.at.delivered => {
                    frames.push(Frame { call: None, sp: now.sp });
                }
                _ => {}
            }
        }
        let here = &self.states[at];
        frames.into_iter().filter(|frame| here.shares_stack(frame.sp)).min_by_key(|frame| frame.sp)
    }

    /// The first state after `from` at which a call that was entered with the stack pointer `sp` has returned.
    fn returned(&self, from: usize, back: u64, sp: u64) -> Option<usize> {
        let is_back = |n: &usize| {
            let state = &self.states[*n];
            state.ip == back && (sp + 4..sp + 4 + MOST_POPPED).contains(&state.sp) && self.retires(*n)
        };
        (from + 1..WINDOW - 1).find(is_back)
    }
}

fn count(icount: u64) -> Position {
    Position::At { icount, ordinal: 0 }
}

fn met(found: Found) -> Option<Moment> {
    if let Found::Met(met) = found { Some(met.at) } else { None }
}

/// Breakpoints, forwards and backwards.
fn breakpoints(window: &Window, timeline: &mut Timeline, random: &mut Rng) {
    for _ in 0..JOURNEYS {
        let ip = window.states[random.below(WINDOW as u64 - 1) as usize].ip;
        let from = window.any(random);
        let here = window.states[from].at;
        // Where a fault or an interrupt comes instead, the instruction may or may not count as executed.
        let may = |n: &usize| window.states[*n].ip == ip;
        let must = |n: &usize| may(n) && window.retires(*n) && (*n == 0 || window.states[n - 1].ip != ip);
        let at = |n: usize| window.states[n].at;
        let point = [Timeline::breakpoint(ip)];
        timeline.goto(count(here.icount)).unwrap();
        let found = met(timeline.run_until(&point).unwrap());
        let least = (from + 1..WINDOW).find(may).map(at);
        if let Some(most) = (from + 1..WINDOW).find(must).map(at) {
            assert!(found >= least && found <= Some(most), "{ip:#x} after {here:?}: {found:?}, not {most:?}");
        }
        timeline.goto(count(here.icount)).unwrap();
        let found = met(timeline.reverse_continue(&point).unwrap());
        let latest = (0..from).rev().find(may).map(at);
        if let Some(least) = (0..from).rev().find(must).map(at) {
            assert!(
                found >= Some(least) && found <= latest,
                "{ip:#x} before {here:?}: {found:?}, not {least:?}"
            );
        }
    }
}

/// The current function's call and its return. Answers how often they are unknown, and how often they were found.
fn callers(window: &Window, timeline: &mut Timeline, random: &mut Rng) -> [u64; 2] {
    let mut told = [0; 2];
    for _ in 0..4 * JOURNEYS {
        let from = window.any(random);
        let here = window.states[from];
        let Some(Frame { call: Some((call, back)), sp }) = window.frame(from).filter(|_| !here.user) else {
            continue;
        };
        timeline.goto(count(here.at.icount)).unwrap();
        match timeline.back_to_caller() {
            Err(TravelError::NoCaller(_)) => {
                told[0] += 1;
                continue;
            }
            found => {
                let found = found.unwrap();
                let went = timeline.session().icount();
                assert!(
                    matches!(found, Found::Met(_)) && went == window.states[call].at.icount,
                    "back to caller from {here:x?}: {found:?} at {went}, not {:x?}",
                    window.states[call]
                );
            }
        }
        told[1] += 1;
        if let Some(returned) = window.returned(from, back, sp) {
            timeline.goto(count(here.at.icount)).unwrap();
            let found = met(timeline.finish().unwrap());
            let wanted = window.states[returned].at;
            assert_eq!(found.map(|at| at.icount), Some(wanted.icount), "finish from {here:x?}");
        }
    }
    told
}

/// A word in one state.
#[derive(Debug, Clone, Copy)]
struct Word {
    /// `None` where it is not mapped.
    value: Option<u32>,
    /// Whether the next instruction changes it without a store to its address: the page is mapped at another address too.
    elsewhere: bool,
}

/// The bytes that the instruction at a state stores to, by its operands: first and last address.
fn stores(registers: &[u64; 8], bases: &[u64; 6], instruction: &Instruction) -> Vec<[u64; 2]> {
    let value = |register: Register| {
        if register.is_segment_register() {
            return Some(bases[register.number()]);
        }
        let whole = registers.get(register.full_register().number()).copied()?;
        Some(if register.size() == 2 { whole & 0xffff } else { whole & 0xffff_ffff })
    };
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_memory().iter();
    let writes =
        used.filter(|m| !matches!(m.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess));
    writes
        .filter_map(|m| {
            let known = |size: usize| (size > 0).then_some(size as u64);
            let size = known(m.memory_size().size()).or(known(instruction.memory_size().size()))?;
            let low = m.virtual_address(0, |register, _, _| value(register))? & 0xffff_ffff;
            Some([low, low + size - 1])
        })
        .collect()
}

/// The words in each state.
fn values(machine: &mut Machine, words: &[u64]) -> Vec<Vec<Word>> {
    let value = |machine: &Machine, word: u64| {
        let mut bytes = [0; 4];
        machine.core().peek(word, &mut bytes).ok().map(|()| u32::from_le_bytes(bytes))
    };
    let row = |machine: &Machine| -> Vec<_> { words.iter().map(|word| value(machine, *word)).collect() };
    let mut rows = Vec::with_capacity(WINDOW);
    let mut now = row(machine);
    for _ in 0..WINDOW {
        let core = machine.core();
        let registers = std::array::from_fn(|n| core.env().gpr(n));
        let bases = SEGMENTS.map(|segment| core.env().seg(segment).base);
        let instruction = core.decode_original(core.linear_ip());
        next(machine);
        let then = row(machine);
        let stored = |word: u64| {
            let stores = instruction.map(|i| stores(&registers, &bases, &i)).unwrap_or_default();
            stores.iter().any(|[low, high]| *low <= word + 3 && *high >= word)
        };
        let word = |n: usize| Word { value: now[n], elsewhere: now[n] != then[n] && !stored(words[n]) };
        rows.push((0..words.len()).map(word).collect());
        now = then;
    }
    rows
}

/// The words of memory that a window changes.
fn changed(before: &[u8], after: &[u8]) -> Vec<u64> {
    let (before, after) = (before.as_chunks::<4>().0, after.as_chunks::<4>().0);
    let differ = |n: &u64| before[*n as usize] != after[*n as usize];
    (0..before.len() as u64).filter(differ).map(|n| MAPPED + 4 * n).collect()
}

/// Some of the changed words, and some on stacks.
fn words(window: &Window, changed: &[u64], random: &mut Rng) -> Vec<u64> {
    let mut found: Vec<u64> = (0..2).map(|_| changed[random.below(changed.len() as u64) as usize]).collect();
    found.push(window.states[window.any(random)].sp & !3);
    found
}

fn bytes(value: u32) -> String {
    value.to_le_bytes().map(|byte| format!("{byte:02x}")).join(" ")
}

/// Writes to a word, and conditions on it.
fn writes(
    boot: &Boot,
    window: &Window,
    values: &[Word],
    word: u64,
    timeline: &mut Timeline,
    random: &mut Rng,
) {
    let end = window.end();
    let asked =
        who_wrote(&boot.guest, &boot.recording, &format!("{word:#x}:4"), Some(count(end)), 3000).unwrap();
    // Earlier ones were not asked for.
    let from = if asked.count.is_some() { 0 } else { asked.last[0].position };
    let writers: Vec<_> = asked.last.iter().filter(|writer| writer.position >= window.first()).collect();
    let positions: BTreeSet<u64> = writers.iter().map(|writer| writer.position).collect();
    for n in (0..WINDOW - 1).filter(|n| window.retires(*n) && window.states[*n].at.icount >= from) {
        let at = window.states[n].at.icount;
        let [now, then] = [values[n].value, values[n + 1].value];
        let changes = now != then && now.is_some() && then.is_some() && !values[n].elsewhere && at < end;
        // A change of the mapping changes the word as well.
        let same_space = window.states[n].space == window.states[n + 1].space;
        assert!(
            !(changes && same_space) || positions.contains(&at),
            "{word:#x} changes at {at}: {positions:?}"
        );
    }
    for writer in &writers {
        // The last state with this count is the one whose instruction wrote.
        let n = window.at(writer.position + 1) - 1;
        let state = &window.states[n];
        assert_eq!((state.ip, state.at.icount), (writer.ip, writer.position), "{word:#x}");
        let seen = [values[n], values[n + 1]].map(|word| word.value.map(bytes).unwrap_or_default());
        assert_eq!([&writer.old, &writer.new], [&seen[0], &seen[1]], "{word:#x} at {state:x?}");
    }
    let point = [StopPoint::Watch(Watch { kind: WatchKind::Write, low: word, high: word + 3 })];
    for _ in 0..JOURNEYS / 4 {
        let here = window.states[window.any(random)].at;
        timeline.goto(count(here.icount)).unwrap();
        let found = met(timeline.run_until(&point).unwrap()).map(|at| at.icount);
        let wanted = positions.range(here.icount..).next().map(|at| at + 1);
        assert!(
            found == wanted || wanted.is_none() && found.is_none_or(|at| at > end),
            "{word:#x} after {here:?}"
        );
        timeline.goto(count(here.icount)).unwrap();
        let found = met(timeline.reverse_continue(&point).unwrap()).map(|at| at.icount);
        let wanted = positions.range(..here.icount.saturating_sub(1)).next_back().map(|at| at + 1);
        assert!(
            found == wanted || wanted.is_none() && found.is_none_or(|at| at <= window.first()),
            "{word:#x} before {here:?}: {found:?} {wanted:?}"
        );
    }
    becomes(boot, window, values, word, random);
}

/// Where a word takes a value.
fn becomes(boot: &Boot, window: &Window, values: &[Word], word: u64, random: &mut Rng) {
    let Some(value) = values[random.below(WINDOW as u64) as usize].value else { return };
    let span =
        Span { from: Some(count(window.first())), to: Some(count(window.end())), first: false, most: 10_000 };
    let found = when(&boot.guest, &boot.recording, &format!("u32[{word:#x}] == {value:#x}"), span).unwrap();
    let last = window.at(window.end());
    let holds = |n: usize| values[n].value == Some(value);
    let wanted: Vec<u64> =
        (0..last).filter(|n| !holds(*n) && holds(n + 1)).map(|n| window.states[n].at.icount).collect();
    let positions: Vec<u64> = found.last.iter().map(|turn| turn.position).collect();
    assert_eq!(positions, wanted, "u32[{word:#x}] == {value:#x}");
}

/// The calls of a function that is called in the window.
fn called(boot: &Boot, window: &Window, random: &mut Rng) {
    let begun: Vec<usize> =
        (0..WINDOW - 1).filter(|n| window.states[*n].call.is_some() && window.retires(*n)).collect();
    let Some(call) = (!begun.is_empty()).then(|| begun[random.below(begun.len() as u64) as usize]) else {
        return;
    };
    let entry = window.states[call + 1].ip;
    let symbols = boot.guest.target().symbols();
    let Some(name) = symbols.at(entry).filter(|at| at.offset == 0).map(|at| at.symbol.name.to_string())
    else {
        return;
    };
    let end = window.end();
    // It may be a name of several functions, or of one that is not of the kernel itself.
    let Ok(found) = calls(&boot.guest, &boot.recording, &name, Some(count(end))) else { return };
    if found.functions.iter().map(|function| function.address).ne([entry]) {
        return;
    }
    let inside: Vec<_> = found.calls.iter().filter(|call| call.position >= window.first()).collect();
    let at: BTreeSet<u64> = inside.iter().map(|call| call.position).collect();
    let entered = |n: &usize| window.states[*n].ip == entry && window.states[*n].at.icount < end;
    let may: BTreeSet<u64> = (0..WINDOW).filter(entered).map(|n| window.states[n].at.icount).collect();
    let must: BTreeSet<u64> = (0..WINDOW)
        .filter(|n| entered(n) && window.retires(*n))
        .map(|n| window.states[n].at.icount)
        .collect();
    assert!(must.is_subset(&at) && at.is_subset(&may), "{name}: {at:?}, not {must:?}");
    for call in inside {
        let n = window.at(call.position + 1) - 1;
        let (state, back) = (&window.states[n], call.caller);
        let returned =
            window.returned(n, back, state.sp).map(|n| window.states[n].at.icount).filter(|at| *at < end);
        assert_eq!(call.returned, returned, "{name} at {state:x?}: {call:x?}");
    }
}

fn windows(builder: &GuestBuilder, insns: u64, seed: u64) {
    let boot = Boot::of(builder, insns);
    let (mut timeline, mut random) = (boot.timeline(), Rng(seed));
    let mut machine = boot.guest.machine().unwrap();
    let start = machine.snapshot();
    let length = boot.recording.end().icount;
    let (mut left, mut told) = (cases("TRAPLINE_TRAVEL", 1), [0; 2]);
    while left > 0 {
        let from = random.below(length - 2 * WINDOW as u64);
        machine.restore(&start).unwrap();
        machine.run(None, from);
        let begin = machine.snapshot();
        let before = machine.core().ram().bytes().to_vec();
        let window = Window::of(&mut machine);
        let changed = changed(&before, machine.core().ram().bytes());
        // It may be a loop that waits.
        if changed.len() < LEAST_CHANGED || window.end() >= length {
            continue;
        }
        left -= 1;
        println!("{from}: {:x?}", window.states[0]);
        breakpoints(&window, &mut timeline, &mut random);
        let callers = callers(&window, &mut timeline, &mut random);
        told = [told[0] + callers[0], told[1] + callers[1]];
        called(&boot, &window, &mut random);
        let words = words(&window, &changed, &mut random);
        machine.restore(&begin).unwrap();
        let rows = values(&mut machine, &words);
        for (n, word) in words.iter().enumerate() {
            let values: Vec<Word> = rows.iter().map(|row| row[n]).collect();
            writes(&boot, &window, &values, *word, &mut timeline, &mut random);
        }
    }
    println!("callers: {} unknown, {} found", told[0], told[1]);
    assert!(told[1] > told[0]);
}

#[test]
fn guest_gnumach_journeys_and_answers_are_those_of_single_steps() {
    windows(
        &GuestBuilder::image(&guest("gnumach")).cmdline("console=com0"),
        40_000_000,
        0x1357_9bdf_0246_8ace,
    );
}

#[test]
fn guest_linux_686_journeys_and_answers_are_those_of_single_steps_at_length() {
    let initrd = Content::from(guest("initramfs-i386.cpio.gz").as_str());
    windows(&GuestBuilder::image(&guest("linux-686")).initrd(initrd), 150_000_000, 0x0fed_cba9_8765_4321);
}
