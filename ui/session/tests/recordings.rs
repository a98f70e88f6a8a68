//! A run that is recorded, and replayed from its file.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use trapline_session::{
    Command, Condition, Deed, Ending, Followed, GuestBuilder, InputLine, Limits, Names, Observer, Operator,
    Places, Position, Probing, Record, RecordView, RecordedCourse, Recorder, Recording, Reply, SavedSession,
    Script, Session, SourceOptions, Way,
};

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

/// Everything that an observer receives.
#[derive(Debug, Default, PartialEq)]
struct Told {
    records: Vec<Record>,
    replies: Vec<Vec<String>>,
    console: Vec<u8>,
}

impl Observer for Told {
    type Error = Infallible;

    fn record(&mut self, record: &RecordView<'_>, _: &Names<'_>) -> Result<(), Infallible> {
        self.records.push(record.to_owned());
        Ok(())
    }
    fn reply(&mut self, reply: &Reply) -> Result<(), Infallible> {
        self.replies.push(reply.lines());
        Ok(())
    }
    fn console(&mut self, fresh: &[u8]) -> Result<(), Infallible> {
        self.console.extend_from_slice(fresh);
        Ok(())
    }
}

const EVERY: u64 = 100_000;

fn guest(name: &str) -> GuestBuilder {
    GuestBuilder::embedded(name).memory(32 << 20)
}

/// A session of the guest that records itself.
fn recorded(builder: &GuestBuilder, probing: &Probing) -> (Session, Memory) {
    let (builder, mut config, blobs) = builder.recorded(false).unwrap();
    config.probing = probing.clone();
    config.checkpoint_insns = EVERY;
    let file = Memory::default();
    let recorder = Recorder::begin(Box::new(file.clone()), &config, &blobs).unwrap();
    let mut session = builder.open().unwrap().start(probing.clone()).unwrap();
    session.record(recorder).unwrap();
    (session, file)
}

fn read(file: &Memory) -> Recording {
    Recording::from_bytes(&file.0.lock().unwrap()).unwrap()
}

fn replayed(recording: &Recording) -> Session {
    let builder = GuestBuilder::of_recording(recording, &Places::default()).unwrap();
    builder.open().unwrap().start(recording.config().probing.clone()).unwrap()
}

/// Replays all of it with every checkpoint verified, and asserts how it ends.
fn verify(recording: &Recording, ending: &Ending) -> (Session, Told) {
    let mut session = replayed(recording);
    session.verify(recording, true);
    let mut told = Told::default();
    let mut course = RecordedCourse::of(recording, Way::Same, |_| true);
    let Ok(followed) = session.follow(&mut course, None, &Limits::none(), &mut told);
    assert_eq!(followed, Ok(Followed::End(Some(ending.clone()))));
    assert_eq!(session.verifier().unwrap().verified(), recording.checkpoints().len());
    (session, told)
}

const SCRIPT: &str = "\
at insns=100K snapshot early
every insns=300K query
on hit 3 of fbt::do_fork:entry getvars
on hit 2 of fbt::console_write: type \"x\"
at insns=700K restore early
at insns=900K disable fbt::do_fork:entry
on console \"\\n\" 2 list do_*
";

/// Records a run with probes and a script, and replays it.
fn round_trip(name: &str, probing: &Probing) {
    let (mut session, file) = recorded(&guest(name), probing);
    for clause in ["fbt::do_fork:entry { push pid; log 1 }", "fbt::console_write:", "profile:::tick-100us"] {
        session.apply(Command::clause(clause)).unwrap();
    }
    let names = ["-n fbt::do_fork:entry".to_owned(), "-n fbt::console_write:".to_owned()];
    let mut script = Script::parse("s", SCRIPT, &names, &SourceOptions::default()).unwrap();
    let mut told = Told::default();
    let Ok(ending) = session.run(&mut script, &Condition::end(), &Limits::insns(3_000_000), &mut told);
    session.apply(Command::Silence).unwrap();
    session.finish_recording().unwrap();
    let recording = read(&file);
    assert!(recording.is_whole() && recording.checkpoints().len() > 10);
    let (again, said) = verify(&recording, &ending);
    assert_eq!((said.records.len(), said.replies.len()), (told.records.len(), told.replies.len()));
    assert!(told.records.len() > 10 && told == said);
    assert_eq!((again.icount(), again.digest()), (session.icount(), session.digest()));
}

#[test]
fn a_replay_does_what_the_recorded_run_did() {
    for name in ["ia32", "x86_64"] {
        round_trip(name, &Probing::default());
    }
}

#[test]
fn records_that_were_lost_are_lost_again() {
    let channel = trapline_session::numbers::channel("200x2").unwrap();
    round_trip("ia32", &Probing { channel, ..Probing::default() });
}

#[test]
fn what_a_program_does_step_by_step_is_replayed() {
    let (mut session, file) = recorded(&guest("ia32"), &Probing::default());
    session.apply(Command::clause("fbt::do_fork:entry")).unwrap();
    session.step(250_000);
    let saved = session.snapshot();
    for hits in [1, 2, 1] {
        session.run_until(&Condition::end().or_hits(hits), &Limits::none());
    }
    session.restore(&saved).unwrap();
    session.apply(Command::Type { line: InputLine::Com1, bytes: b"hello\r".to_vec() }).unwrap();
    let ending = session.run_until(&Condition::end(), &Limits::none());
    session.finish_recording().unwrap();
    assert!(!session.records().count().eq(&0));
    let (again, _) = verify(&read(&file), &ending);
    assert_eq!(again.digest(), session.digest());
}

#[test]
fn a_replay_that_is_another_run_says_at_which_checkpoint() {
    let (mut session, file) = recorded(&guest("ia32"), &Probing::default());
    session.run_until(&Condition::end(), &Limits::insns(1_000_000));
    session.finish_recording().unwrap();
    let recording = read(&file);
    let mut other = replayed(&recording);
    other.verify(&recording, true);
    let mut course = RecordedCourse::of(&recording, Way::Same, |_| true);
    let at = Some("250K".parse::<Position>().unwrap());
    let mut told = Told::default();
    assert_eq!(other.follow(&mut course, at, &Limits::none(), &mut told), Ok(Ok(Followed::Reached)));
    assert_eq!(other.icount(), 250_000);
    other.apply(Command::Type { line: InputLine::Com1, bytes: b"x".to_vec() }).unwrap();
    let Ok(Ok(Followed::Diverged(found))) = other.follow(&mut course, None, &Limits::none(), &mut told)
    else {
        panic!("the replay is the same run")
    };
    let sentence = "checkpoint 3, at 300000 instructions, differs in the devices; up to 200000 instructions the run is the same";
    assert_eq!(found.to_string(), sentence);
}

#[test]
fn positions_are_gone_to() {
    let (mut session, file) = recorded(&guest("ia32"), &Probing::default());
    session.apply(Command::clause("fbt::do_fork:entry")).unwrap();
    session.run_until(&Condition::end(), &Limits::none());
    session.finish_recording().unwrap();
    let (recording, end) = (read(&file), session.icount());
    let hits: Vec<u64> = session.records().map(|record| record.header.icount).collect();
    let go = |text: &str| {
        let mut session = replayed(&recording);
        let mut course = RecordedCourse::of(&recording, Way::Same, |_| true);
        let to = Some(text.parse().unwrap());
        let Ok(followed) = session.follow(&mut course, to, &Limits::none(), &mut Told::default());
        (followed.map_err(|error| error.to_string()), session.icount())
    };
    assert_eq!(go("0"), (Ok(Followed::Reached), 0));
    assert_eq!(go("123_456"), (Ok(Followed::Reached), 123_456));
    assert_eq!(go("end-5"), (Ok(Followed::Reached), end - 5));
    assert_eq!(go("end"), (Ok(Followed::Reached), end));
    assert_eq!(go("hit:3"), (Ok(Followed::Reached), hits[2] + 1));
    assert_eq!(go("hit:1000"), (Ok(Followed::NeverReached), end));
    let past = format!("900000000 is past the end of the recording, which has {end} instructions");
    assert_eq!(go("900M"), (Err(past), 0));
    assert!(go("500.2").0.is_err());
}

#[test]
fn a_recorder_that_is_killed_leaves_what_it_had() {
    let (mut session, file) = recorded(&guest("ia32"), &Probing::default());
    session.apply(Command::clause("fbt::do_fork:entry")).unwrap();
    session.run_until(&Condition::end(), &Limits::none());
    session.finish_recording().unwrap();
    let whole = file.0.lock().unwrap().clone();
    let mut cuts: Vec<usize> = (0..whole.len()).step_by(whole.len() / 12).collect();
    cuts.push(whole.len() - 1);
    for cut in cuts {
        let Ok(recording) = Recording::from_bytes(&whole[..cut]) else {
            assert!(cut < 2_000, "{cut} of {} bytes", whole.len());
            continue;
        };
        assert!(!recording.is_whole());
        let mut session = replayed(&recording);
        session.verify(&recording, true);
        let mut course = RecordedCourse::of(&recording, Way::Same, |_| true);
        let Ok(followed) = session.follow(&mut course, None, &Limits::none(), &mut Told::default());
        assert!(matches!(followed, Ok(Followed::End(_))), "{cut}: {followed:?}");
        assert_eq!(session.icount(), recording.end().icount);
        assert_eq!(session.verifier().unwrap().verified(), recording.checkpoints().len());
    }
}

#[test]
fn a_recording_that_cannot_be_written_ends_the_run() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or_else(|| io::Error::other("the disk is full"))?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (builder, mut config, blobs) = guest("ia32").recorded(false).unwrap();
    config.checkpoint_insns = EVERY;
    assert!(Recorder::begin(Box::new(Full(100)), &config, &blobs).is_err());
    let recorder = Recorder::begin(Box::new(Full(2500)), &config, &blobs).unwrap();
    let mut session = builder.start().unwrap();
    session.record(recorder).unwrap();
    let ending = session.run_until(&Condition::end(), &Limits::none());
    assert_eq!(ending.to_string(), "the run ended, because its recording cannot be written,");
    assert_eq!(session.finish_recording().unwrap_err().to_string(), "the disk is full");
}

#[test]
fn a_recording_begins_with_the_run() {
    let (_, file) = recorded(&guest("ia32"), &Probing::default());
    let begun = |prepare: &dyn Fn(&mut Session)| {
        let config = read(&file).config().clone();
        let recorder = Recorder::begin(Box::new(Memory::default()), &config, &[]).unwrap();
        let mut session = guest("ia32").start().unwrap();
        prepare(&mut session);
        session.record(recorder).is_ok()
    };
    assert!(begun(&|_| {}));
    assert!(!begun(&|session| assert_eq!(session.step(1), None)));
    assert!(!begun(&|session| assert!(session.apply(Command::clause("fbt::do_fork:entry")).is_ok())));
}

/// An operator who types at random moments, and lets idle time pass in random parts.
struct Restless {
    random: u64,
    types: bool,
    /// How often the guest was idle, and how many of these times were cut short.
    idle: (u64, u64),
    saved: Vec<u64>,
}

impl Restless {
    fn new(random: u64, types: bool) -> Self {
        Self { random, types, idle: (0, 0), saved: Vec::new() }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }
}

impl Operator for Restless {
    fn deeds(&mut self) -> Vec<Deed> {
        let deed = match self.below(20) {
            0..8 if self.types => Deed::Type(InputLine::Com1, vec![self.below(256) as u8; 3]),
            8 if self.types => Deed::Type(InputLine::Virtio, b"nobody".to_vec()),
            9 => Deed::Save,
            _ => return Vec::new(),
        };
        vec![deed]
    }

    fn idle(&mut self, ns: Option<u64>) -> u64 {
        self.idle.0 += 1;
        let passed = match (self.below(3), ns) {
            (0, Some(ns)) => self.below(ns + 1),
            (1, _) => self.below(100_000),
            (_, ns) => ns.unwrap_or(1_000),
        };
        self.idle.1 += u64::from(ns.is_none_or(|ns| passed < ns));
        passed
    }

    fn saved(&mut self, saved: &SavedSession) {
        self.saved.push(saved.icount());
    }
}

/// A guest with its probes, and how long it runs.
type Guest = (&'static str, &'static [&'static str], u64);

const BUSY: [Guest; 2] = [("ia32", CLAUSES, 3_000_000), ("x86_64", CLAUSES, 3_000_000)];
const CLAUSES: &[&str] =
    &["fbt::do_fork:entry { push pid; log 1 }", "fbt::console_write:", "profile:::tick-100us"];
/// It halts from one interrupt of its timer to the next.
const IDLE: Guest = ("idle", &["fbt::timer:entry { push 1; log 1 }", "profile:::tick-3ms"], 5_000);

fn probed(mut session: Session, clauses: &[&str]) -> Session {
    for clause in clauses {
        session.apply(Command::clause(clause)).unwrap();
    }
    session
}

fn attended(session: &mut Session, insns: u64, operator: &mut Restless) -> (Ending, Told) {
    let (mut told, limits) = (Told::default(), Limits::insns(insns));
    let Ok(ending) =
        session.run_attended(&mut Script::default(), &Condition::end(), &limits, &mut told, operator);
    (ending, told)
}

#[test]
fn an_operator_who_only_watches_changes_nothing() {
    for (name, clauses, insns) in [BUSY[0], IDLE] {
        for clauses in [&clauses[..0], &clauses[..1], clauses] {
            let session = || probed(guest(name).start().unwrap(), clauses);
            let (mut alone, mut plain) = (session(), Told::default());
            let limits = Limits::insns(insns);
            let Ok(ending) = alone.run(&mut Script::default(), &Condition::end(), &limits, &mut plain);
            for seed in 1..6 {
                let (mut watched, mut operator) = (session(), Restless::new(seed, false));
                let (same, told) = attended(&mut watched, insns, &mut operator);
                assert_eq!((&same, watched.icount()), (&ending, alone.icount()));
                assert_eq!(watched.digest(), alone.digest());
                assert!(told == plain, "{name} with {clauses:?}, seed {seed}");
                let (idle, short) = operator.idle;
                assert!(name != IDLE.0 || short > 100 && idle > short && !operator.saved.is_empty());
            }
        }
    }
}

#[test]
fn what_an_operator_does_is_replayed() {
    for (seed, (name, clauses, insns)) in (1..10).zip([BUSY[0], BUSY[1], IDLE].into_iter().cycle()) {
        let (session, file) = recorded(&guest(name), &Probing::default());
        let mut session = probed(session, clauses);
        let (ending, told) = attended(&mut session, insns, &mut Restless::new(seed, true));
        session.finish_recording().unwrap();
        let recording = read(&file);
        let moments: Vec<_> = typed(&recording).map(|logged| logged.at).collect();
        let skipped = |at: &trapline_session::Moment| at.virtual_ns - at.icount;
        let (first, last) = (moments.first().unwrap(), moments.last().unwrap());
        assert!(name != IDLE.0 || moments.len() > 100 && skipped(last) > skipped(first));
        let (again, said) = verify(&recording, &ending);
        assert!(told == said, "{name}, seed {seed}");
        assert_eq!((again.icount(), again.digest()), (session.icount(), session.digest()));
    }
}

fn typed(recording: &Recording) -> impl Iterator<Item = &trapline_session::Logged> {
    let is_typed = |logged: &&trapline_session::Logged| {
        matches!(&logged.event, trapline_session::Event::Command(Command::Type { .. }))
    };
    recording.log().iter().filter(is_typed)
}

#[test]
fn an_operator_who_types_is_like_a_script_that_types_there() {
    /// Types at the first slices, as long as the guest has never been idle.
    struct First(u64);
    impl Operator for First {
        fn deeds(&mut self) -> Vec<Deed> {
            self.0 = self.0.saturating_sub(1);
            if self.0 > 0 { vec![Deed::Type(InputLine::Com1, b"ls\r".to_vec())] } else { Vec::new() }
        }
        fn idle(&mut self, ns: Option<u64>) -> u64 {
            self.0 = 0;
            ns.unwrap_or(0)
        }
    }
    let (mut session, file) = recorded(&guest("ia32"), &Probing::default());
    session.apply(Command::clause("fbt::console_write:")).unwrap();
    let (condition, limits) = (Condition::end(), Limits::insns(2_000_000));
    let mut told = Told::default();
    let Ok(ending) =
        session.run_attended(&mut Script::default(), &condition, &limits, &mut told, &mut First(9));
    session.finish_recording().unwrap();
    let recording = read(&file);
    let line = |logged: &trapline_session::Logged| format!("at insns={} type \"ls\\r\"", logged.at.icount);
    let lines: Vec<String> = typed(&recording).map(line).collect();
    assert!(lines.len() > 2, "{lines:?}");
    let mut script = Script::parse("s", &lines.join("\n"), &[], &SourceOptions::default()).unwrap();
    let mut other = guest("ia32").start().unwrap();
    other.apply(Command::clause("fbt::console_write:")).unwrap();
    let mut scripted = Told::default();
    assert_eq!(other.run(&mut script, &condition, &limits, &mut scripted), Ok(ending));
    assert!(scripted == told);
    assert_eq!((other.icount(), other.digest()), (session.icount(), session.digest()));
}

#[test]
fn an_nmi_is_input_like_any_other() {
    let (mut session, file) = recorded(&guest("ia32"), &Probing::default());
    session.step(500_000);
    let before = session.digest();
    session.apply(Command::Nmi).unwrap();
    assert_ne!(session.digest(), before, "it is pending");
    let ending = session.run_until(&Condition::end(), &Limits::insns(1_000_000));
    session.finish_recording().unwrap();
    let plain = {
        let mut plain = guest("ia32").start().unwrap();
        plain.run_until(&Condition::end(), &Limits::insns(1_000_000));
        plain.digest()
    };
    assert_ne!(session.digest(), plain, "the guest has not noticed");
    let (again, _) = verify(&read(&file), &ending);
    assert_eq!(again.digest(), session.digest());
}
