//! The search finds planted mistakes, and nothing where there is none; the same seed gives the same.
//!
//! `TRAPLINE_FUZZ=N` makes N executions for the control instead of 100,000.

#![cfg(feature = "libafl")]
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{CONTROL, PLANTED, recorded, trials};
use trapline_fuzz::FuzzError;
use trapline_fuzz::finding::Finding;
use trapline_fuzz::search::{Begin, Listener, search};
use trapline_fuzz::trials::Trials;

/// Executions in which each mistake must be found.
const ENOUGH: u64 = 2_000_000;

/// Listens until a finding of an objective, or so many executions.
struct Until {
    falls: &'static str,
    most: u64,
    found: Vec<(String, u64)>,
}

impl Listener for Until {
    fn goes_on(&mut self, trials: &Trials, _: usize) -> bool {
        let is_found = self.found.iter().any(|(name, _)| name.starts_with(self.falls));
        !is_found && trials.summary.trials < self.most
    }

    fn found(&mut self, finding: &Finding, _: &Trials) -> Result<(), FuzzError> {
        self.found.push((finding.fallen.file_name(), finding.trials));
        Ok(())
    }
}

fn run(path: &std::path::Path, objectives: &[&str], falls: &'static str, seed: u64, most: u64) -> Until {
    let (trials, scope) = trials(path, objectives);
    let mut until = Until { falls, most, found: Vec::new() };
    search(trials, scope, &Begin { seed, ..Begin::default() }, &mut until).unwrap();
    until
}

#[test]
fn planted_mistakes_are_found_and_the_same_seed_finds_them_alike() {
    let folder = common::Folder::new("planted");
    for planted in PLANTED {
        let path = recorded(folder.path(), planted.name, planted.code);
        let begun = std::time::Instant::now();
        let one = run(&path, planted.objectives, planted.falls, 1, ENOUGH);
        println!("{}: {:?} in {:?}", planted.name, one.found, begun.elapsed());
        assert!(one.found.iter().any(|(name, _)| name.starts_with(planted.falls)), "{}", planted.name);
        assert_eq!(run(&path, planted.objectives, planted.falls, 1, ENOUGH).found, one.found);
    }
}

#[test]
fn nothing_is_found_where_there_is_no_mistake() {
    let folder = common::Folder::new("control");
    let path = recorded(folder.path(), "control", CONTROL);
    let most = std::env::var("TRAPLINE_FUZZ").map_or(100_000, |n| n.parse().unwrap());
    let begun = std::time::Instant::now();
    let found = run(&path, &[], "any", 1, most).found;
    println!("{most} executions in {:?}", begun.elapsed());
    assert!(found.is_empty(), "{found:?}");
}
