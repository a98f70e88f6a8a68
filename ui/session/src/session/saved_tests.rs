//! Sessions that are saved, restored and read from files at random, against one that runs straight through.

use super::*;

use crate::commands::{Command, Selection};
use crate::programs::{SourceOptions, compile};
use crate::snapshot_error::SnapshotError;
use trapline_trace::ChannelConfig;

/// Everything that can be read from a session without changing it.
#[derive(Debug, PartialEq)]
struct Seen {
    icount: u64,
    digest: Digest,
    stats: Stats,
    counts: Counts,
    waiting: Vec<Record>,
    records: Vec<Record>,
    errors: usize,
    console: String,
    programs: String,
}

fn seen(session: &mut Session) -> Seen {
    let json = |reply| serde_json::to_string(&reply).unwrap();
    let programs = [Command::Query, Command::GetVars { name: None }].map(|c| json(session.apply(c).unwrap()));
    Seen {
        icount: session.icount(),
        digest: session.digest(),
        stats: session.stats(),
        counts: session.counts(),
        waiting: session.waiting(),
        records: session.records.iter().cloned().collect(),
        errors: session.interposer().map_or(0, |i| i.names().errors().count()),
        console: String::from_utf8_lossy(session.console()).into_owned(),
        programs: programs.concat(),
    }
}

/// Asserts equality; a failure names the differences.
fn same(found: &Seen, expected: &Seen, what: &str) {
    let first = |a: &[Record], b: &[Record]| {
        let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
        format!("record {at} of {} and {}: {:?}\n{:?}", a.len(), b.len(), a.get(at), b.get(at))
    };
    if found == expected {
        return;
    }
    let mut text =
        format!("{what}: {} {}, {}\n", found.icount, found.digest, found.digest == expected.digest);
    text += &format!("{:?}\n{:?}\n{:?}\n", found.stats, expected.stats, (found.counts, expected.counts));
    text += &first(&found.records, &expected.records);
    text += &first(&found.waiting, &expected.waiting);
    let (a, b) = (found.programs.as_bytes(), expected.programs.as_bytes());
    if let Some(at) = a.iter().zip(b).position(|(a, b)| a != b) {
        let around =
            |text: &[u8]| text[at.saturating_sub(100)..(at + 60).min(text.len())].escape_ascii().to_string();
        text += &format!("\n{}\n{}", around(a), around(b));
    }
    panic!("{text}");
}

fn program(name: &str, text: &str) -> Command {
    Command::insert(name, compile(name, text, &SourceOptions::default()).unwrap())
}

fn switch(name: &str, on: bool) -> Command {
    Command::Switch { points: Selection { name: Some(name.to_owned()), ..Selection::default() }, on }
}

/// The commands of a run, with their instruction counts.
fn commands(wide: bool) -> Vec<(u64, Command)> {
    let word = if wide { 0x40_b000u64 } else { 0x805_3000 };
    let counted = "name = vmlinux\nmodtype = kernel\nvars = 2\ngvars = 1\noffset = do_fork\nopcode = 0x55\n\
         minor = 1\nignore = 1\nmaxhits = 3\ninc lv, 0\ninc gv, 0\npush lv, 0\nlog 1\nexit\n";
    let watched = format!(
        "name = vmlinux\nmodtype = kernel\nmajor = 4\naddress = {word:#x}:{:#x}\nwatchpoint = rw\npush 1\nlog 1\n\
         exit\naddress = 0x3f8:0x3f8\nwatchpoint = io\nmaxhits = 90\npush 2\nlog 1\nexit\n",
        word + 3
    );
    let thrower = "name = vmlinux\nmodtype = kernel\nmajor = 5\noffset = do_fork\nopcode = 0x55\npush 0x10\npush mem, u8\nlog 1\nexit\n";
    let process = "pid*:appln:main:entry,pid*:appln:main:return { push pid; log 1; exit 3 }";
    vec![
        (0, Command::clause("fbt:::entry { push arg, 0; log 1 }")),
        (0, Command::clause("fbt:::return { push ret; log 1 }")),
        (0, program("counted", counted)),
        (1_000, Command::clause("profile:::tick-20us,profile:::tick-33333insn { push arg, 1; log 1 }")),
        (50_000, program("watched", &watched)),
        (120_000, Command::clause(process)),
        (200_000, program("thrower", thrower)),
        (270_000, switch("fbt:::return", false)),
        (300_011, Command::clause("pid*:appln:forbidden:15 { logonfault = yes; exit }")),
        (700_000, switch("fbt:::return", true)),
        (900_000, Command::Remove { name: "fbt:::entry".to_owned() }),
        (1_100_000, Command::clause("fbt::do_*:entry { push 3; callk; push 1; log 1 }")),
        (1_300_000, switch("watched", false)),
        (1_500_000, switch("watched", true)),
    ]
}

/// A probed guest, and its commands.
struct Course {
    guest: Guest,
    commands: Vec<(u64, Command)>,
}

impl Course {
    fn new(name: &str) -> Self {
        let guest = GuestBuilder::embedded(name).memory(32 << 20).open().unwrap();
        Self { guest, commands: commands(name == "x86_64") }
    }

    fn probing() -> Probing {
        // So small that records are lost within a slice.
        let channel = ChannelConfig { most_sub_buffers: 3, ..ChannelConfig::fixed(5_000, 2) };
        Probing {
            channel,
            stack: 2,
            user_stack: 2,
            max_cores: 1,
            watch_unlimited: true,
            ..Probing::default()
        }
    }

    fn start(&self) -> Session {
        let mut session = self.guest.start(Self::probing()).unwrap();
        for (_, command) in self.commands.iter().filter(|(at, _)| *at == 0) {
            session.apply(command.clone()).unwrap();
        }
        session
    }

    /// Runs to an instruction count, with the commands on the way.
    fn go(&self, session: &mut Session, to: u64) {
        let from = session.icount();
        for (at, command) in &self.commands {
            if (from + 1..=to).contains(at) {
                session.run_until(&Condition::end(), &Limits::insns(*at).in_passing());
                session.apply(command.clone()).unwrap();
            }
        }
        session.run_until(&Condition::end(), &Limits::insns(to).in_passing());
    }

    /// A session that was read from the file of another.
    fn moved(&self, session: &mut Session) -> Session {
        let file = session.snapshot().to_bytes().unwrap();
        let mut other = self.guest.start(Self::probing()).unwrap();
        // The receiving session need not be fresh.
        other.apply(Command::clause("fbt::do_fork:return")).unwrap();
        other.step(5_000);
        let saved = other.read_snapshot(&file).unwrap();
        other.restore(&saved).unwrap();
        assert_eq!(other.snapshot().to_bytes().unwrap(), file);
        other
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Walks through a run: forwards, back, from session to session; every restored state equals the saved one, and the end
/// equals that of the straight run.
fn walk(name: &str, steps: usize, mut seed: u64) {
    let course = Course::new(name);
    let mut straight = course.start();
    course.go(&mut straight, u64::MAX);
    let last = seen(&mut straight);
    assert!(last.counts.lost() > 0 && last.stats.words_left == 0, "{:?}", last.counts);
    assert!(
        last.stats.exceptions > 0 && last.stats.ignored > 0 && last.stats.frozen == 0,
        "{:?}",
        last.stats
    );
    let mut session = course.start();
    let mut saved = vec![(session.snapshot(), seen(&mut session))];
    for _ in 0..steps {
        match random(&mut seed) % 8 {
            0..=3 => {
                let far = random(&mut seed).is_multiple_of(3);
                let most = if far { last.icount } else { 40_000 };
                let to = session.icount() + random(&mut seed) % most;
                course.go(&mut session, to.min(last.icount));
            }
            4 => session = course.moved(&mut session),
            5 => saved.push((session.snapshot(), seen(&mut session))),
            _ => {
                let n = random(&mut seed) as usize % saved.len();
                session.restore(&saved[n].0).unwrap();
                same(&seen(&mut session), &saved[n].1, "back");
            }
        }
    }
    for (from, _) in saved.iter().rev().take(5) {
        session.restore(from).unwrap();
        course.go(&mut session, u64::MAX);
        same(&seen(&mut session), &last, &format!("{name} from {}", from.icount()));
    }
}

#[test]
fn a_random_walk_through_a_run_meets_what_the_straight_run_had() {
    let steps = std::env::var("TRAPLINE_STEPS").map_or(60, |steps| steps.parse().unwrap());
    for (name, seed) in [("ia32", 0x9e37_79b9_7f4a_7c15), ("x86_64", 0xd1b5_4a32_d192_ed03)] {
        walk(name, steps, seed);
    }
}

#[test]
fn a_restore_by_command_keeps_what_was_recorded() {
    let mut session = Course::new("ia32").start();
    session.step(300_000);
    session.apply(Command::Snapshot { label: "here".to_owned() }).unwrap();
    let (hits, next) = (session.stats().hits, session.counts().committed);
    session.step(300_000);
    let (more, later) = (session.stats().hits, session.counts().committed);
    assert!(more > hits && later > next);
    session.apply(Command::Restore { label: "here".to_owned() }).unwrap();
    assert_eq!((session.stats().hits, session.counts().committed), (more, later));
    session.step(300_000);
    assert_eq!(
        (session.stats().hits - more, session.counts().committed - later),
        (more - hits, later - next)
    );
}

#[test]
fn a_snapshot_shares_what_has_not_changed() {
    let mut session = Course::new("ia32").start();
    session.step(300_000);
    let first = session.snapshot();
    assert_eq!(session.snapshot().machine().new_bytes(), 0);
    session.restore(&first).unwrap();
    assert_eq!(session.snapshot().machine().new_bytes(), 0);
}

#[test]
fn a_file_of_another_guest_or_other_options_is_refused_in_a_sentence() {
    let mut session = Course::new("ia32").start();
    session.step(100_000);
    let file = session.snapshot().to_bytes().unwrap();
    let refusal = |session: Session, file: &[u8]| session.read_snapshot(file).err().unwrap();
    let other = Course::new("x86_64").guest.start(Course::probing()).unwrap();
    assert!(matches!(refusal(other, &file), SnapshotError::Foreign(_)));
    let larger = GuestBuilder::embedded("ia32").memory(64 << 20).start().unwrap();
    assert!(matches!(refusal(larger, &file), SnapshotError::Foreign(_)));
    let fresh = |probing| Course::new("ia32").guest.start(probing).unwrap();
    let refused = refusal(fresh(Probing::default()), &file).to_string();
    let names = "channel, max-cores, watch-unlimited, stack, ustack";
    assert_eq!(refused, format!("the snapshot was taken with other values of these probe options: {names}"));
    let refused = refusal(fresh(Course::probing()), b"ELF").to_string();
    assert_eq!(refused, "this is not a snapshot of Trapline");
    let mut damaged = file.clone();
    damaged[file.len() / 2] ^= 1;
    let refused = refusal(fresh(Course::probing()), &damaged).to_string();
    assert!(refused.starts_with("the snapshot is damaged: "), "{refused}");
    // A refused snapshot leaves the session unchanged.
    let mut session = fresh(Probing::default());
    let before = seen(&mut session);
    let foreign = Course::new("ia32").start().snapshot();
    assert!(matches!(session.restore(&foreign), Err(SnapshotError::Options(_))));
    assert_eq!(seen(&mut session), before);
}

#[test]
fn a_snapshot_without_probes_fits_a_session_with_any_probe_options() {
    let end = |session: &mut Session| {
        session.apply(Command::clause("fbt::do_fork:entry { push pid; log 1 }")).unwrap();
        session.run_until(&Condition::end(), &Limits::none());
        (session.digest(), session.stats().hits)
    };
    let guest = Course::new("ia32").guest;
    let mut first = guest.start(Probing::default()).unwrap();
    first.step(100_000);
    let file = first.snapshot().to_bytes().unwrap();
    let expected = end(&mut first);
    // A session that has probes loses them by the restore.
    let mut other = Course::new("ia32").start();
    other.step(10_000);
    let saved = other.read_snapshot(&file).unwrap();
    other.restore(&saved).unwrap();
    assert_eq!(end(&mut other), expected);
}
