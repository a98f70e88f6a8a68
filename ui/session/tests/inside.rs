//! Within hits: the operations of handlers both ways, against what the hits of an ordinary run leave.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write;

use trapline_session::{
    Change, Command, Condition, DSource, Found, GuestBuilder, HISTORY_MEM, HandlerState, Limits, Position,
    Probing, Record, Reply, Session, SourceOptions, Timeline, TravelError, compile,
};

const GUESTS: [&str; 2] = ["ia32", "x86_64"];

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Operations of all kinds; some of them fault, and those that write do so below the stack.
fn operations(guest: &str) -> Vec<String> {
    let sp = if guest == "ia32" { "esp" } else { "rsp" };
    let store = format!("push r, {sp}\npush 0x3f\nneg\nadd\npush gv, 1\npop mem, u32");
    let mut all: Vec<String> = [
        "push 3",
        "push r, eax",
        "dup 1",
        "dup 40",
        "add",
        "mul",
        "xchg",
        "log 1",
        "log 2",
        "inc lv, 0",
        "inc gv, 1",
        "push gv, 1",
        "pop lv, 1",
        "push lv, 1",
        "push 7\npush 0\ndiv",
        "push task",
        "push pid",
        "push 0\npop lp",
        "sx caught\npush 1\npush mem, u8\nux",
        "call more",
        "setmin 3",
        "nop",
        "shl 3",
        "push arg, 0",
        "push 1\npush mem, u8",
        "push x",
        "log st",
    ]
    .map(str::to_owned)
    .into();
    all.push(format!("push r, {sp}\npush mem, u32"));
    all.extend([store.clone(), store]);
    all
}

/// A program on functions that are called often, whose handlers do something that the seed chooses.
fn busy(guest: &str, name: &str, seed: u64) -> Command {
    let mut seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let operations = operations(guest);
    let mut text = "name = vmlinux\nmodtype = kernel\nmajor = 7\nid = 3\nvars = 4\ngvars = 4\nlogmax = 90\n\
                    excpt_log = 400\n\nproc more\npush 9\nlog 1\nret\nendproc\n"
        .to_owned();
    for function in ["do_fork", "do_exit", "kmalloc"] {
        write!(text, "\noffset = {function}\nopcode = 0x55\n").unwrap();
        for _ in 0..1 + random(&mut seed) % 14 {
            text += &operations[(random(&mut seed) % operations.len() as u64) as usize];
            text.push('\n');
        }
        text += ["exit\n", "abort\n", "log 1\nexit\n", "push 1\npush mem, u8\nlog 1\nexit\n"]
            [(random(&mut seed) % 4) as usize];
        text += "caught:\nlog 3\nexit\n";
    }
    let program = compile(name, &text, &SourceOptions::default()).unwrap_or_else(|e| panic!("{text}\n{e:?}"));
    Command::insert(name, program)
}

/// Writes and reads of a word of a program, and handlers that run after instructions.
fn watched(guest: &str) -> Command {
    let low = if guest == "x86_64" { 0x40_b000u64 } else { 0x805_3000 };
    let text = format!(
        "name = vmlinux\nmodtype = kernel\nmajor = 4\nvars = 1\naddress = {low:#x}:{:#x}\nwatchpoint = rw\n\
         maxhits = 20\ninc lv, 0\npush lv, 0\nlog 1\nexit\n",
        low + 3
    );
    Command::insert("watched", compile("watched", &text, &SourceOptions::default()).unwrap())
}

fn start(guest: &str, seed: u64) -> Session {
    let probing = Probing { watch_unlimited: true, ..Probing::default() };
    let mut session = GuestBuilder::embedded(guest).memory(32 << 20).open().unwrap().start(probing).unwrap();
    session.apply(busy(guest, "one", seed)).unwrap();
    session.apply(busy(guest, "two", seed + 1000)).unwrap();
    session.apply(watched(guest)).unwrap();
    session
}

fn variables(session: &mut Session) -> (Vec<Vec<u64>>, Vec<u64>) {
    let Reply::GetVars { programs, gv, .. } = session.apply(Command::GetVars { name: None }).unwrap() else {
        panic!("no variables");
    };
    (programs.into_iter().map(|program| program.lv).collect(), gv)
}

/// One run of a handler, as stepping through it shows it.
struct Seen {
    icount: u64,
    probe: u32,
    recorded: bool,
    states: Vec<HandlerState>,
}

/// All handlers at the hit that the timeline is at, forwards and then backwards.
fn walk(timeline: &mut Timeline) -> Vec<Seen> {
    timeline.into_hit().unwrap();
    while timeline.operation().unwrap().executed > 0 {
        timeline.back_operation(1).unwrap();
    }
    let all = timeline.operation().unwrap().all;
    let (mut forwards, mut runs) = (Vec::new(), Vec::<Seen>::new());
    for executed in 0..=all {
        let operation = timeline.operation().unwrap();
        assert_eq!((operation.executed, operation.all), (executed, all));
        forwards.push(operation.state.clone());
        if runs.len() < operation.handler.0 {
            let run = operation.run;
            let states = (0..=run.operations()).map(|n| run.state(n)).collect();
            let recorded = run.outcome.recorded();
            runs.push(Seen { icount: run.at.icount, probe: run.probe, recorded, states });
        }
        if executed < all {
            timeline.step_operation(1).unwrap();
        }
    }
    assert!(matches!(timeline.step_operation(1), Err(TravelError::Operations { .. })));
    for state in forwards.iter().rev() {
        assert_eq!(&timeline.operation().unwrap().state, state);
        if timeline.operation().unwrap().executed > 0 {
            timeline.back_operation(1).unwrap();
        }
    }
    assert!(matches!(timeline.back_operation(1), Err(TravelError::OperationsBefore { .. })));
    timeline.out().unwrap();
    runs
}

#[test]
fn the_operations_of_all_hits_lead_from_one_state_to_the_next_and_to_the_records() {
    let seeds = std::env::var("TRAPLINE_HANDLERS").map_or(3, |seeds| seeds.parse().unwrap());
    let (mut operations, mut thrown) = (0, 0);
    for guest in GUESTS {
        for seed in 0..seeds {
            let mut straight = start(guest, seed);
            straight.run_until(&Condition::end(), &Limits::none());
            let (digest, last) = (straight.digest(), variables(&mut straight));
            let records: Vec<Record> = straight.records().collect();
            let mut timeline = Timeline::new(start(guest, seed), HISTORY_MEM).unwrap();
            let mut runs: Vec<Seen> = Vec::new();
            let first = variables(timeline.session_mut());
            while let Found::Met(met) = timeline.next_hit(None).unwrap() {
                if runs.last().is_none_or(|run| run.icount != met.at.icount) {
                    let before = timeline.session().digest();
                    runs.extend(walk(&mut timeline));
                    assert_eq!(timeline.session().digest(), before);
                }
            }
            let mut gv = first.1;
            for run in &runs {
                let ends = [&run.states[0], run.states.last().unwrap()];
                assert_eq!(ends[0].gv, gv, "{guest}, seed {seed}, at {}", run.icount);
                gv.clone_from(&ends[1].gv);
                operations += run.states.len() - 1;
                thrown += u64::from(ends[1].thrown.is_some());
            }
            assert_eq!(gv, last.1, "{guest}, seed {seed}");
            let logs: Vec<(u64, u32, &[u8])> = (runs.iter().filter(|run| run.recorded))
                .map(|run| (run.icount, run.probe, run.states.last().unwrap().log.as_slice()))
                .collect();
            let data = records.iter().filter(|record| record.header.kind == trapline_trace::Kind::Data);
            let left: Vec<(u64, u32, &[u8])> = data
                .map(|record| (record.header.icount, record.header.probe, record.data.as_slice()))
                .collect();
            assert_eq!(logs, left, "{guest}, seed {seed}");
            timeline.step(u64::MAX).unwrap();
            assert_eq!(timeline.session().digest(), digest, "{guest}, seed {seed}");
            assert!(timeline.session_mut().records().eq(records), "{guest}, seed {seed}");
            assert_eq!(variables(timeline.session_mut()), last, "{guest}, seed {seed}");
        }
    }
    assert!(operations > 1000 && thrown > 10, "{operations} operations, {thrown} exceptions");
}

#[test]
fn memory_is_what_the_handler_has_made_of_it_by_then() {
    let text = "name = vmlinux\nmodtype = kernel\nmajor = 1\noffset = do_fork\nopcode = 0x55\n\
                push r, esp\npush 0x3f\nneg\nadd\npush 0x12345678\npop mem, u32\npush r, esp\npush 0x3f\nneg\nadd\n\
                push 0x9abcdef0\npop mem, u32\npush 5\npop r, edx\nexit\n";
    let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start().unwrap();
    let program = compile("stores", text, &SourceOptions::default()).unwrap();
    session.apply(Command::insert("stores", program)).unwrap();
    let mut timeline = Timeline::new(session, HISTORY_MEM).unwrap();
    assert!(matches!(timeline.into_hit(), Err(TravelError::NoHandler(0))));
    assert!(matches!(timeline.step_operation(1), Err(TravelError::Outside)));
    timeline.next_hit(None).unwrap();
    let here = timeline.session().icount();
    let at = timeline.session().core().env().gpr(4) - 64;
    let word = |timeline: &Timeline| {
        let Reply::Lines { lines, .. } = timeline.examine(at, 4) else { panic!() };
        lines[0].split(": ").nth(1).unwrap()[..11].to_owned()
    };
    let outside = word(&timeline);
    timeline.into_hit().unwrap();
    for (executed, bytes) in [
        (0, outside.as_str()),
        (5, outside.as_str()),
        (6, "78 56 34 12"),
        (11, "78 56 34 12"),
        (12, "f0 de bc 9a"),
    ] {
        timeline.goto(Position::At { icount: here, ordinal: executed }).unwrap();
        if executed > 0 {
            assert_eq!(timeline.position(), Position::At { icount: here, ordinal: executed });
        }
        assert_eq!(word(&timeline), bytes, "{executed}");
    }
    timeline.step_operation(2).unwrap();
    let registers = timeline.changes_in_hit();
    assert!(matches!(registers.last(), Some(Change::Register { value: 5, .. })), "{registers:?}");
    timeline.out().unwrap();
    assert_eq!(word(&timeline), outside);
    timeline.step(1).unwrap();
    assert_eq!(word(&timeline), "f0 de bc 9a");
}

#[test]
fn a_hit_by_its_number_is_the_one_of_its_record() {
    for guest in GUESTS {
        let mut straight = start(guest, 5);
        straight.run_until(&Condition::end(), &Limits::none());
        let records: Vec<Record> =
            straight.records().filter(|record| record.header.kind == trapline_trace::Kind::Data).collect();
        let mut timeline = Timeline::new(start(guest, 5), HISTORY_MEM).unwrap();
        assert!(records.len() > 20, "{}", records.len());
        for (hit, record) in (1u64..).zip(&records).step_by(7) {
            timeline.goto(Position::InHit { hit, operation: 0 }).unwrap();
            let operation = timeline.operation().unwrap();
            let found = (operation.run.at.icount, operation.run.probe, operation.run.state(usize::MAX).log);
            assert_eq!(found, (record.header.icount, record.header.probe, record.data.clone()), "hit {hit}");
        }
        let error = timeline.goto(Position::InHit { hit: 1, operation: 900 });
        assert!(matches!(error, Err(TravelError::Operations { asked: 900, .. })), "{error:?}");
    }
}

#[test]
fn clauses_of_d_are_gone_through_as_handlers() {
    let text = "fbt::do_fork:entry { self->n = pid; trace(self->n + 1); } fbt::do_fork:entry { @[probefunc] = count(); }";
    let mut session = GuestBuilder::embedded("x86_64").memory(32 << 20).start().unwrap();
    session.apply(Command::D(DSource::clauses(text))).unwrap();
    let mut timeline = Timeline::new(session, HISTORY_MEM).unwrap();
    assert!(matches!(timeline.next_hit(None).unwrap(), Found::Met(_)));
    timeline.into_hit().unwrap();
    let mut seen = Vec::new();
    loop {
        let Reply::Operation { program, handlers, executed, operations, .. } =
            timeline.operation_reply(false).unwrap()
        else {
            panic!("no operation");
        };
        assert_eq!(handlers, 2);
        seen.push(program);
        if executed == operations {
            break;
        }
        timeline.step_operation(1).unwrap();
    }
    assert!(seen.len() > 6);
    seen.dedup();
    assert_eq!(seen, ["-n fbt::do_fork:entry clause 1", "-n fbt::do_fork:entry clause 2"]);
}
