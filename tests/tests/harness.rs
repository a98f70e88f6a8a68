//! The harness itself: turns of guests, and the program that the tests run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{File, FileTimes};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};
use tempfile::tempdir;
use trapline_tests::built::is_current;
use trapline_tests::turns;

#[test]
fn a_test_waits_while_every_turn_is_taken_and_goes_on_when_one_is_given_back() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("turns");
    let first = turns::wait(path.clone(), 2, || panic!("the first turn of two")).unwrap();
    let _second = turns::wait(path.clone(), 2, || panic!("the second turn of two")).unwrap();
    let (told, hears) = mpsc::sync_channel(0);
    let waiter = std::thread::spawn(move || {
        // Each pause lasts until the test has heard of it.
        let third = turns::wait(path, 2, || told.send("every turn is taken").unwrap()).unwrap();
        told.send("a turn").unwrap();
        drop(third);
    });
    for _ in 0..10 {
        assert_eq!(hears.recv().unwrap(), "every turn is taken");
    }
    drop(first);
    assert!(hears.iter().any(|told| told == "a turn"));
    waiter.join().unwrap();
}

#[test]
fn there_is_a_turn_for_each_gibibyte_in_three_quarters_of_the_memory_and_at_least_one() {
    let turns = turns::count();
    assert!((1..4096).contains(&turns), "{turns}");
}

fn write(path: &Path, text: &str, seconds: u64) {
    std::fs::write(path, text).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = File::options().write(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

#[test]
fn a_program_is_current_while_no_source_is_newer_or_gone() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (program, list) = (at("program"), at("program.d"));
    let (one, two) = (at("one.rs"), at("two words.rs"));
    let named = |path: &Path| path.display().to_string().replace(' ', "\\ ");
    write(&list, &format!("{}: {} {}\n", named(&program), named(&one), named(&two)), 0);
    write(&one, "", 100);
    write(&two, "", 200);
    assert!(!is_current(&program, &list), "there is no program");
    write(&program, "", 200);
    assert!(is_current(&program, &list));
    write(&two, "", 201);
    assert!(!is_current(&program, &list), "a source is newer");
    write(&program, "", 300);
    assert!(is_current(&program, &list));
    std::fs::remove_file(&one).unwrap();
    assert!(!is_current(&program, &list), "a source is gone");
    write(&one, "", 100);
    std::fs::remove_file(&list).unwrap();
    assert!(!is_current(&program, &list), "without a list of its sources");
}
