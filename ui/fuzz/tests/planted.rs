//! The search finds planted mistakes, and nothing where there is none; the same seed gives the same.
//!
//! `TRAPLINE_FUZZ=N` makes N executions for the control instead of 100,000; `TRAPLINE_FUZZ_SEEDS=N` searches with N seeds.

#![cfg(feature = "libafl")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{CONTROL, PLANTED, recorded, trials};
use std::path::Path;

use trapline_fuzz::FuzzError;
use trapline_fuzz::finding::{Finding, Folder};
use trapline_fuzz::objectives::Objective;
use trapline_fuzz::search::{Begin, Listener, search};
use trapline_fuzz::subject::Subject;
use trapline_fuzz::trials::Trials;
use trapline_session::{
    Followed, GuestBuilder, Limits, Names, Observer, OwnPrograms, Places, RecordView, Recording, Way,
};

/// Executions in which each mistake must be found.
const ENOUGH: u64 = 2_000_000;

/// Listens until a finding of an objective, or so many executions.
struct Until {
    falls: &'static str,
    most: u64,
    found: Vec<(String, u64)>,
}

impl Listener<Trials> for Until {
    fn goes_on(&mut self, trials: &Trials, _: usize) -> bool {
        let is_found = self.found.iter().any(|(name, _)| name.starts_with(self.falls));
        !is_found && trials.summary.trials < self.most
    }

    fn found(&mut self, finding: &Finding, _: &mut Trials) -> Result<(), FuzzError> {
        self.found.push((finding.fallen.file_name(), finding.trials));
        Ok(())
    }
}

struct Done {
    found: Vec<(String, u64)>,
    trials: Trials,
    findings: Vec<Finding>,
}

fn run(path: &Path, objectives: &[&str], falls: &'static str, seed: u64, most: u64) -> Done {
    let (trials, scope) = trials(path, objectives);
    let mut until = Until { falls, most, found: Vec::new() };
    let (trials, findings) = search(trials, scope, &Begin { seed, ..Begin::default() }, &mut until).unwrap();
    Done { found: until.found, trials, findings }
}

/// Keeps how the handlers of records ended.
#[derive(Default)]
struct Ends(Vec<u16>);

impl Observer for Ends {
    type Error = std::convert::Infallible;

    fn record(&mut self, record: &RecordView<'_>, _: &Names<'_>) -> Result<(), Self::Error> {
        self.0.push(record.header.termination);
        Ok(())
    }
}

/// Replays the recording of a finding to its end, and compares all that it can be compared with. Returns how the last handler ended.
fn replays(path: &Path) -> Option<u16> {
    let recording = Recording::read(path).unwrap();
    let guest = GuestBuilder::of_recording(&recording, &Places::of(path)).unwrap().open().unwrap();
    let mut session = guest.start(recording.config().probing.clone()).unwrap();
    session.verify(&recording, true);
    let mut course = recording.course(Way::Same, OwnPrograms::Stay);
    session.begin_as(&mut course).unwrap();
    let mut ends = Ends::default();
    let Ok(followed) = session.follow(&mut course, None, &Limits::none(), &mut ends);
    assert!(matches!(followed, Ok(Followed::End(_))), "{}: {followed:?}", path.display());
    ends.0.last().copied()
}

/// Every finding is still one in the state that is kept, and its recording replays.
fn survive(path: &Path, folder: &Path, done: &mut Done) {
    let recording = Recording::read(path).unwrap();
    let places = Places::of(path);
    let to = Folder { recording: &recording, places: &places, folder };
    for finding in &done.findings {
        let fallen = done.trials.check(&finding.state).unwrap();
        assert!(fallen.contains(&finding.fallen), "{:?}: {fallen:?}", finding.fallen);
        let ended = replays(&Subject::write(&mut done.trials, finding, &to).unwrap());
        if finding.fallen.objective == Objective::Exception {
            let name = ended.map(|code| trapline_rpn::exception::name(code.into()));
            assert_eq!(name, Some(&*finding.fallen.what), "in the replay: {:?}", finding.fallen);
        }
    }
}

#[test]
fn planted_mistakes_are_found_and_the_same_seed_finds_them_alike() {
    let folder = common::Folder::new("planted");
    let seeds: u64 = std::env::var("TRAPLINE_FUZZ_SEEDS").map_or(1, |n| n.parse().unwrap());
    for planted in PLANTED {
        let path = recorded(folder.path(), planted.name, planted.code);
        let mut trials = Vec::new();
        for seed in 1..=seeds {
            let mut one = run(&path, planted.objectives, planted.falls, seed, ENOUGH);
            let found = one.found.iter().find(|(name, _)| name.starts_with(planted.falls));
            trials.push(found.unwrap_or_else(|| panic!("{}: {:?}", planted.name, one.found)).1);
            assert_eq!(run(&path, planted.objectives, planted.falls, seed, ENOUGH).found, one.found);
            survive(&path, folder.path(), &mut one);
            println!("{}, seed {seed}: {:?}", planted.name, one.found);
        }
        trials.sort_unstable();
        println!(
            "{}: found after {} executions, the median, and {} at most",
            planted.name,
            trials[trials.len() / 2],
            trials[trials.len() - 1]
        );
    }
}

#[test]
fn nothing_is_found_where_there_is_no_mistake() {
    let folder = common::Folder::new("control");
    let path = recorded(folder.path(), "control", CONTROL);
    let most = std::env::var("TRAPLINE_FUZZ").map_or(100_000, |n| n.parse().unwrap());
    let found = run(&path, &[], "any", 1, most).found;
    assert!(found.is_empty(), "{found:?}");
}
