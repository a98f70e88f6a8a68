//! `trapline verify`: the recordings of `tests/recordings` give the expected results, and differences are reported.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use crate::cli::{binary, finish, patient, trapline};
use crate::common::Rng;
use tempfile::TempDir;
use trapline_session::{
    GuestBuilder, HISTORY_MEM, Places, Position, RecordedCourse, Recording, Timeline, Way,
};
use trapline_tests::root;

/// A folder with these recordings and their companion files.
fn copy(names: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in names {
        for extension in ["tlr", "expect", "out"] {
            let file = format!("{name}.{extension}");
            let from = root().join("tests/recordings").join(&file);
            if from.exists() {
                std::fs::copy(from, folder.path().join(file)).unwrap();
            }
        }
    }
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn the_recordings_of_the_tests_give_the_expected_results() {
    let ran = trapline(&root(), &["verify", "tests/recordings", "--jobs", "2"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(
        ran.out.lines().count() >= 30 && ran.out.lines().all(|line| line.starts_with("ok ")),
        "{}",
        ran.out
    );
    let alone = trapline(&root(), &["verify", "tests/recordings"]);
    assert_eq!(alone.out, ran.out);
}

/// The recordings of the tests.
fn recordings() -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(root().join("tests/recordings")).unwrap();
    let mut found: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "tlr"));
    found.sort();
    assert!(found.len() >= 30, "{found:?}");
    found
}

#[test]
fn the_recordings_are_verified_with_ticks_and_watches_at_random_places() {
    let folder = TempDir::new().unwrap();
    let mut dice = Rng(0x9e37_79b9_7f4a_7c15);
    for recording in recordings() {
        let watch = |dice: &mut Rng| {
            let (low, length) = (dice.below(0x2000), 1 + dice.below(64));
            let kind = ["w", "rw"][dice.below(2) as usize];
            let place = format!("current_task+{low:#x}:current_task+{:#x}", low + length);
            format!("address = {place}\nwatchpoint = {kind}\npush 1\nlog 1\nexit\n")
        };
        let header = "name = vmlinux\nmodtype = kernel\nmajor = 9\n".to_owned();
        write(folder.path(), "w.rpn", &(header + &watch(&mut dice) + &watch(&mut dice)));
        let tick = format!("profile:::tick-{}us {{ push 1; log 1 }}", 17 + dice.below(200));
        let name = recording.display().to_string();
        let more = ["--verify", "-q", "--rpn", &tick, "-p", "w.rpn", "--watch-unlimited"];
        let ran = trapline(folder.path(), &[&["replay", &name], &more[..]].concat());
        assert_eq!(ran.code, 0, "{name} {tick}: {}", ran.err);
    }
}

/// A timeline saves snapshots where it stops, and restores them to go back.
#[test]
fn the_recordings_have_their_digests_after_stops_and_snapshots_at_random_instructions() {
    let (mut dice, mut compared) = (Rng(0x1234_5678_9abc_def1), 0);
    for path in recordings() {
        let recording = Recording::read(&path).unwrap();
        let guest = GuestBuilder::of_recording(&recording, &Places::of(&path)).unwrap().open().unwrap();
        let begun = || {
            let mut session = guest.start(recording.config().probing.clone()).unwrap();
            session.begin_as(&mut RecordedCourse::of(&recording, Way::Same, |_| true)).unwrap();
            Timeline::of(session, &recording, |_| true, HISTORY_MEM).unwrap()
        };
        let (mut straight, mut shaken) = (begun(), begun());
        let at = |icount| Position::At { icount, ordinal: 0 };
        // A recording that restores a snapshot is a timeline up to there.
        let end = straight.end().map_or(0, |(end, _)| end.icount);
        let checkpoints = recording.checkpoints().iter().filter(|checkpoint| checkpoint.at.icount <= end);
        for checkpoint in checkpoints {
            compared += 1;
            for _ in 0..3 {
                shaken.goto(at(dice.below(end))).unwrap();
                if shaken.session().icount() + 40 < end {
                    shaken.step(dice.below(40)).unwrap();
                }
            }
            let digest = |timeline: &mut Timeline| {
                timeline.goto(at(checkpoint.at.icount)).unwrap();
                timeline.session().digest()
            };
            assert_eq!(digest(&mut shaken), digest(&mut straight), "{}: {:?}", path.display(), checkpoint.at);
        }
    }
    assert!(compared > 200, "{compared}");
}

/// The recordings themselves are older: these are made with what the configuration has today.
#[test]
fn recordings_that_are_made_anew_have_the_same_assertions_and_records() {
    let folder = TempDir::new().unwrap();
    let mut script = patient(root().join("scripts/recordings"));
    script.arg(folder.path()).env("TRAPLINE", binary());
    let made = finish(script);
    assert_eq!(made.code, 0, "{}", made.err);
    let names = |folder: &Path| -> BTreeSet<String> {
        let files = std::fs::read_dir(folder).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    };
    let (anew, kept) = (folder.path(), root().join("tests/recordings"));
    assert_eq!(names(anew), names(&kept));
    for name in names(anew).iter().filter(|name| !name.ends_with(".tlr")) {
        let text = |folder: &Path| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(text(anew), text(&kept), "{name}");
    }
}

#[test]
fn a_failed_assertion_is_reported_with_the_actual_value() {
    let folder = copy(&["ia32-forks"]);
    let folder = folder.path();
    write(
        folder,
        "ia32-forks.expect",
        "# of six forks\nhits == 7 # not so\nhits('fbt::do_exit:entry') == 7\ninsns < 5M\n\
        ending == 'never'\nrpn_ops('fbt::do_fork:entry') / hits == 3\nconsole contains 'nothing'\n",
    );
    let ran = trapline(folder, &["verify", ".", "--junit", "r.xml"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert_eq!(
        ran.out,
        "FAILED  ./ia32-forks.tlr: the assertion of line 2 does not hold: hits == 7; found 6 and 7; \
         the assertion of line 5 does not hold: ending == 'never'; it is 'the guest halted'; \
         the assertion of line 7 does not hold: console contains 'nothing'; it does not show that\n"
    );
    let junit = std::fs::read_to_string(folder.join("r.xml")).unwrap();
    assert!(
        junit.contains("tests=\"1\" failures=\"1\" errors=\"0\"")
            && junit.contains("hits == 7; found 6 and 7"),
        "{junit}"
    );
}

#[test]
fn an_update_changes_the_numbers_and_nothing_else() {
    let folder = copy(&["ia32-forks"]);
    let folder = folder.path();
    let before = std::fs::read(folder.join("ia32-forks.tlr")).unwrap();
    write(folder, "ia32-forks.expect", "# of six forks\nhits == 7 # not so\ninsns < 5M\n");
    write(folder, "ia32-forks.out", "nothing\n");
    let failed = trapline(folder, &["verify", "ia32-forks.tlr"]);
    assert_eq!(failed.code, 5);
    assert!(
        failed.out.contains("--- records, kept\n  +++ records, found\n")
            && failed.out.contains("\n  -nothing\n"),
        "{}",
        failed.out
    );
    let updated = trapline(folder, &["verify", "ia32-forks.tlr", "--update"]);
    assert_eq!((updated.code, updated.out.as_str()), (0, "updated ia32-forks.tlr\n"));
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(text("ia32-forks.expect"), "# of six forks\nhits == 6 # not so\ninsns < 5M\n");
    assert_eq!(
        text("ia32-forks.out"),
        std::fs::read_to_string(root().join("tests/recordings/ia32-forks.out")).unwrap()
    );
    assert_eq!(std::fs::read(folder.join("ia32-forks.tlr")).unwrap(), before);
}

#[test]
fn a_changed_guest_is_an_error_and_an_update_records_it_anew() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let image = trapline_guests::IA32.image;
    std::fs::write(folder.join("kernel"), image).unwrap();
    let recorded = trapline(folder, &["record", "kernel", "-q", "-o", "k.tlr", "--checkpoint-insns", "200K"]);
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    assert_eq!(trapline(folder, &["verify", "k.tlr"]).code, 0);
    // Its text contains another name from now on.
    let mut changed = image.to_vec();
    let at = changed.windows(7).position(|window| window == b"vmlinux").unwrap();
    changed[at] = b'V';
    std::fs::write(folder.join("kernel"), &changed).unwrap();
    let refused = trapline(folder, &["verify", "k.tlr"]);
    assert_eq!(refused.code, 7, "{}", refused.out);
    assert!(
        refused.out.starts_with("ERROR   k.tlr: the image kernel differs from the recorded one: "),
        "{}",
        refused.out
    );
    let updated = trapline(folder, &["verify", "k.tlr", "--update"]);
    assert_eq!((updated.code, updated.out.as_str()), (0, "updated k.tlr\n"));
    assert!(trapline(folder, &["verify", "k.tlr"]).out.starts_with("ok      k.tlr: "));
}

#[test]
fn an_impossible_test_is_an_error() {
    let folder = copy(&["ia32-plain"]);
    let folder = folder.path();
    write(folder, "ia32-plain.expect", "speed > 5\n");
    let wrong = trapline(folder, &["verify", "ia32-plain.tlr"]);
    assert_eq!(wrong.code, 7);
    assert!(wrong.out.contains("ia32-plain.expect:1:1: error: a run has no `speed`"), "{}", wrong.out);
    write(folder, "ia32-plain.expect", "hits('fbt::nothing:entry') == 5\n");
    let nothing = trapline(folder, &["verify", "ia32-plain.tlr"]);
    assert!(nothing.out.contains("ia32-plain.expect:1: ") && nothing.code == 7, "{}", nothing.out);
    assert_eq!(trapline(folder, &["verify", "nowhere.tlr"]).code, 7);
    std::fs::create_dir(folder.join("empty")).unwrap();
    assert_eq!(trapline(folder, &["verify", "empty"]).code, 2);
}

#[test]
fn a_recording_that_breaks_off_fails() {
    let folder = copy(&["ia32-plain"]);
    let path = folder.path().join("ia32-plain.tlr");
    let file = std::fs::read(&path).unwrap();
    std::fs::write(&path, &file[..file.len() - 30]).unwrap();
    let ran = trapline(folder.path(), &["verify", "ia32-plain.tlr"]);
    assert_eq!(ran.code, 5);
    assert!(ran.out.contains("the recording is incomplete"), "{}", ran.out);
}
