//! The programs of docs/oneliners.md: each gives an answer, and the guest is as without them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;

use trapline_session::{
    Command, Condition, DSource, Guest, GuestBuilder, Limits, Names, Observer, Probing, Script, Session,
};
use trapline_tests::boot::LINUX_LIMIT;
use trapline_tests::linux::QUICK;
use trapline_tests::{guest, root};
use trapline_trace::RecordView;
use trapline_trace::d::ERROR_PART;

/// A program, and whether its probes are hit in the guest of its section.
struct Asked {
    text: String,
    answered: bool,
}

/// The programs of a section of the document.
fn section(title: &str) -> Vec<Asked> {
    let document = std::fs::read_to_string(root().join("docs/oneliners.md")).unwrap();
    let of = document.split("\n## ").find(|section| section.starts_with(&format!("{title}\n"))).unwrap();
    let blocks = of.split("\n```d").skip(1).map(|block| block.split("\n```").next().unwrap());
    let program = |block: &str| {
        let (info, text) = block.split_once('\n').unwrap();
        Asked { text: text.to_owned(), answered: info.is_empty() }
    };
    blocks.map(program).collect()
}

/// Counts the records of each D program, and keeps the name of the first program with a fault.
#[derive(Default)]
struct Counter {
    records: BTreeMap<String, u64>,
    failed: Option<String>,
}

impl Observer for Counter {
    type Error = Infallible;

    fn record(&mut self, record: &RecordView<'_>, names: &Names<'_>) -> Result<(), Infallible> {
        let program = names.program(record.header.probe).unwrap_or_default().to_owned();
        if record.data.starts_with(&ERROR_PART.to_le_bytes()) {
            self.failed.get_or_insert_with(|| program.clone());
        }
        *self.records.entry(program).or_default() += 1;
        Ok(())
    }
}

/// What must be equal with and without programs.
fn course(session: &Session) -> (String, u64, String) {
    let console = String::from_utf8_lossy(session.console()).into_owned();
    (session.digest().to_string(), session.icount(), console)
}

fn unprobed(guest: &Guest, until: &Condition) -> (String, u64, String) {
    let mut session = guest.start(Probing::default()).unwrap();
    session.run_until(until, &Limits::insns(LINUX_LIMIT));
    course(&session)
}

/// Runs all programs in one session: each has an answer, none fails, and the guest does not notice them.
fn answers(guest: &Guest, until: &Condition, plain: &(String, u64, String), programs: &[&Asked]) {
    let mut session = guest.start(Probing::default()).unwrap();
    let mut names = Vec::new();
    for asked in programs {
        let before = session.d_ends().len();
        let inserted = session.apply(Command::D(DSource::clauses(&asked.text)));
        inserted.unwrap_or_else(|error| panic!("{}: {error}", asked.text));
        names.push(session.d_ends()[before].name.clone());
    }
    assert!(session.observe_only());
    let (limits, mut counter) = (Limits::insns(LINUX_LIMIT), Counter::default());
    let Ok(_) = session.run(&mut Script::default(), until, &limits, &mut counter);
    assert!(course(&session) == *plain, "the guest noticed {}", programs[0].text);
    assert_eq!(counter.failed, None);
    for ((asked, name), end) in programs.iter().zip(&names).zip(session.d_ends()) {
        let entries: usize = end.aggregations.iter().map(|aggregation| aggregation.entries.len()).sum();
        let records = counter.records.get(name).copied().unwrap_or_default();
        assert_eq!(entries > 0 || records > 0, asked.answered, "{}", asked.text);
        assert!(end.drops.sentences(false).is_empty(), "{}: {:?}", asked.text, end.drops.sentences(false));
    }
}

/// All programs of a section in one run.
fn together(title: &str, guest: &GuestBuilder, until: &str) {
    let (guest, until) = (guest.open().unwrap(), Condition::console(until));
    let programs = section(title);
    trapline_tests::turns::take().unwrap();
    let plain = unprobed(&guest, &until);
    answers(&guest, &until, &plain, &programs.iter().collect::<Vec<_>>());
}

#[test]
fn there_are_forty_one_liners() {
    let count = |title| section(title).len();
    let (linux, mach, embedded) = (count("Linux"), count("GNU Mach"), count("The embedded guests"));
    assert!(linux >= 24 && mach >= 8 && embedded >= 8, "{linux} {mach} {embedded}");
    assert!(linux + mach + embedded >= 40);
}

#[test]
fn each_one_liner_for_the_embedded_guests_has_an_answer() {
    for name in ["ia32", "x86_64"] {
        let guest = GuestBuilder::embedded(name).memory(32 << 20).open().unwrap();
        let plain = unprobed(&guest, &Condition::end());
        for asked in &section("The embedded guests") {
            answers(&guest, &Condition::end(), &plain, &[asked]);
        }
    }
}

#[test]
fn guest_linux_each_one_liner_has_an_answer() {
    let initrd = PathBuf::from(guest("initramfs-amd64.cpio.gz"));
    let guest = GuestBuilder::image(&guest("linux-cloud-amd64"));
    together("Linux", &guest.initrd(initrd).append(QUICK), "/ # ");
}

#[test]
fn guest_gnumach_each_one_liner_has_an_answer() {
    let guest = GuestBuilder::image(&guest("gnumach"));
    together("GNU Mach", &guest.cmdline("console=com0"), "db>");
}
