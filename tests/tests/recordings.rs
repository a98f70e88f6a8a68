//! `trapline record` and `trapline replay` on the embedded guests: the same output, checkpoint by checkpoint; new probes in an
//! old run; recorders that are killed, and files that are damaged.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cli::{Ran, binary, kernel_probe, patient, trapline};
use crate::common::Rng;
use tempfile::TempDir;
use trapline_session::Recording;

/// Instructions from one checkpoint to the next.
const EVERY: &str = "200K";

/// The number of cases, from this environment variable.
pub fn cases(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let probe = kernel_probe("offset = do_fork", "0x55");
    std::fs::write(folder.path().join("fork.rpn"), probe).unwrap();
    std::fs::write(folder.path().join("s.script"), SCRIPT).unwrap();
    folder
}

const SCRIPT: &str = "at insns=300K snapshot a\nat insns=500K type \"hello\\r\"\non hit 2 of fork.rpn query\n\
    at insns=1M insert late.rpn\nat insns=1200K restore a\nevery insns=900K getvars\nat insns=3M list do_*\n";

/// Records with these arguments into `r.tlr`; returns the recorder's output.
pub fn record(folder: &Path, args: &[&str]) -> Ran {
    let ran = trapline(folder, &[&["record", "-o", "r.tlr", "--checkpoint-insns", EVERY], args].concat());
    assert!([0, 4, 124].contains(&ran.code), "{args:?}: {}", ran.err);
    ran
}

/// Replays `r.tlr` with these arguments.
pub fn replay(folder: &Path, args: &[&str]) -> Ran {
    trapline(folder, &[&["replay", "r.tlr"], args].concat())
}

/// Asserts that a replay prints what the recorder printed, with every checkpoint the same.
fn same(folder: &Path, args: &[&str], form: &[&str]) {
    let live = record(folder, &[args, form].concat());
    let again = replay(folder, &[&["--verify", "-q"], form].concat());
    assert_eq!(again.code, 0, "{args:?}: {}", again.err);
    assert!(live.out == again.out, "{args:?} {form:?} prints\n{}\nand its replay\n{}", live.out, again.out);
}

#[test]
fn a_replay_prints_what_the_run_printed() {
    let folder = folder();
    std::fs::write(folder.path().join("late.rpn"), kernel_probe("offset = do_exit", "0x55")).unwrap();
    let folder = folder.path();
    for guest in ["embedded:ia32", "embedded:x86_64"] {
        same(folder, &[guest], &["--digest"]);
        same(
            folder,
            &[guest, "--platform", "pc", "--virtio-console", "--mem", "32M"],
            &["--digest", "-f", "json"],
        );
        same(folder, &[guest, "-n", "fbt::do_*:", "--stack"], &["--symbols"]);
        same(folder, &[guest, "-n", "fbt::schedule:entry", "--limit-insns", "3M"], &["-f", "json"]);
        same(folder, &[guest, "-n", "fbt::do_exit:entry", "--stop-after", "3"], &["-f", "dtrace"]);
        same(folder, &[guest, "-n", "profile:::tick-50us", "--channel", "256x2"], &["-f", "json", "--stats"]);
    }
    let scripted = ["embedded:ia32", "-p", "fork.rpn", "--script", "s.script"];
    same(folder, &scripted, &[]);
    same(folder, &scripted, &["-f", "json"]);
}

#[test]
fn a_digest_is_that_of_the_run() {
    let folder = TempDir::new().unwrap();
    let digest =
        |ran: Ran| ran.err.lines().find(|line| line.starts_with("digest ")).map(str::to_owned).unwrap();
    let live = digest(record(folder.path(), &["embedded:ia32", "-q", "--digest"]));
    assert_eq!(digest(replay(folder.path(), &["-q", "--digest"])), live);
    assert_eq!(
        digest(trapline(folder.path(), &["run", "embedded:ia32", "-q", "--digest", "--console", "none"])),
        live
    );
}

/// Probes that only observe, of every kind, with the options for their records.
pub const ASKED: [&[&str]; 20] = [
    &["-n", "fbt::do_exit:entry"],
    &["-n", "fbt::do_fork:return"],
    &["-n", "fbt::do_*:"],
    &["-n", "fbt::kmalloc:entry", "-n", "fbt::kfree:entry"],
    &["--rpn", "fbt::schedule:entry { push pid; log 1 }", "--header", "pid,tsc"],
    &["-n", "fbt::do_fork:entry", "--stack"],
    &["-n", "fbt::console_write:entry", "--stack", "4", "--header", "all"],
    &["-n", "profile:::tick-100us"],
    &["--rpn", "profile:::profile-997 { push pid; log 1 }"],
    &["-n", "fbt::do_timer:"],
    &["-n", "fbt::get_free_page:return"],
    &["-n", "fbt::memset:entry"],
    &["-n", "fbt::printk:entry", "--channel", "512x2"],
    &["-n", "fbt::do_wait:return"],
    &["--rpn", "fbt::kmalloc:entry / push arg, 0; push 0x40; sub / { push arg, 0; log 1 }"],
    &["-p", "fork.rpn"],
    &["-p", "fork.rpn", "-n", "fbt::do_exit:entry"],
    &["-n", "fbt::pick:"],
    &["-n", "pid1:appln:main:entry"],
    &["-n", "fbt::wake_sleepers:,fbt::do_sleep:"],
];

/// Asserts that probes give in a finished recording, byte for byte, what they give live.
pub fn asked_later_is_as_asked_live(folder: &Path, run: &[&str], asked: &[&str], forms: &[&str]) {
    for form in forms {
        let form = &["-f", form];
        let live = trapline(folder, &[&["run"], run, &["-q", "--console", "none"], asked, form].concat());
        assert!(!live.out.is_empty(), "{asked:?}: {}", live.err);
        let later = replay(folder, &[&["--verify", "-q", "--console", "none"], asked, form].concat());
        assert_eq!(later.code, 0, "{asked:?}: {}", later.err);
        assert!(later.out == live.out, "{asked:?} live:\n{}\nand later:\n{}", live.out, later.out);
    }
}

#[test]
fn twenty_sets_of_probes_give_in_a_finished_recording_what_they_give_live() {
    let folder = folder();
    let folder = folder.path();
    // The recording has its own probes, which only observe.
    let run = ["embedded:ia32", "--platform", "pc"];
    record(folder, &[&run[..], &["-n", "fbt::do_fork:entry", "-n", "profile:::tick-1ms"]].concat());
    for asked in ASKED {
        asked_later_is_as_asked_live(folder, &run, asked, &["text", "json"]);
    }
}

#[test]
fn probes_that_write_make_a_branch_which_is_a_recording_too() {
    let folder = folder();
    let folder = folder.path();
    record(folder, &["embedded:ia32", "-n", "fbt::do_fork:entry"]);
    let writer = ["--rpn", "fbt::do_wait:entry { push 5; pop r, eax }"];
    let refused = replay(folder, &writer);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused.err.contains("the run diverges at their first hit: --branch FILE.tlr records that run"),
        "{}",
        refused.err
    );
    let branched = replay(folder, &[&writer[..], &["--branch", "b.tlr", "-q"]].concat());
    assert!([0, 124].contains(&branched.code), "{}", branched.err);
    let again = trapline(folder, &["replay", "b.tlr", "--verify", "-q"]);
    assert_eq!((again.code, &again.out), (0, &branched.out), "{}", again.err);
}

#[test]
fn a_recording_whose_probes_write_keeps_them_and_shows_what_was_asked_only() {
    let folder = folder();
    let folder = folder.path();
    let writer = "fbt::do_wait:entry { push 5; pop r, eax; push 1; log 1 }";
    record(folder, &["embedded:ia32", "--rpn", writer]);
    let later = replay(folder, &["--verify", "-q", "-n", "fbt::do_exit:entry", "-f", "json"]);
    assert_eq!(later.code, 0, "{}", later.err);
    let hits: Vec<&str> = later.out.lines().filter(|line| line.contains("\"type\":\"hit\"")).collect();
    assert!(!hits.is_empty() && hits.iter().all(|hit| hit.contains("do_exit")), "{}", later.out);
    assert!(hits[0].contains("\"seq\":1,"), "{}", hits[0]);
}

#[test]
fn a_position_is_looked_at_with_the_commands_of_scripts() {
    let folder = folder();
    let folder = folder.path();
    record(folder, &["embedded:ia32", "-n", "fbt::do_fork:entry"]);
    let at = |position: &str, lines: &str| {
        let mut command = patient("bash");
        let text = format!("printf '{lines}' | '{}' replay r.tlr -q --at {position}", binary().display());
        command.args(["-c", &text]).current_dir(folder);
        crate::cli::finish(command)
    };
    let ran = at("hit:2", "query\\n\\n# a comment\\nlist do_f*\\nstop\\nquery\\n");
    let lines: Vec<&str> = ran.out.lines().collect();
    // The position is before the instruction of the second hit.
    assert_eq!((ran.code, lines.len()), (0, 4), "{}{}", ran.out, ran.err);
    assert!(lines[1].ends_with("-n fbt::do_fork:entry hits=1") && lines[3].ends_with("vmlinux  do_fork"));
    let wrong = at("end-100", "query\\ndance\\nquery\\n");
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("there is no action `dance`") && wrong.out.matches("hits=6").count() == 4,
        "{}{}",
        wrong.out,
        wrong.err
    );
    assert_eq!(at("900M", "").code, 2);
    assert_eq!(at("100.5", "").code, 2);
}

#[test]
fn a_changed_guest_is_refused_with_both_hashes() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let image = trapline_guests::IA32.image;
    std::fs::create_dir(folder.join("images")).unwrap();
    std::fs::write(folder.join("images/kernel"), image).unwrap();
    record(folder, &["images/kernel", "--limit-insns", "100K"]);
    assert_eq!(replay(folder, &["--verify"]).code, 0);
    let mut changed = image.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    std::fs::write(folder.join("images/kernel"), &changed).unwrap();
    let hash = |bytes: &[u8]| trapline_session::Hash::of(bytes).to_string();
    let refused = replay(folder, &[]);
    let sentence = format!(
        "trapline: error: the image images/kernel differs from the recorded one: its hash is {}, and the recorded \
         hash is {}\n",
        hash(&changed),
        hash(image)
    );
    assert_eq!((refused.code, refused.err), (7, sentence));
    std::fs::remove_file(folder.join("images/kernel")).unwrap();
    let missing = replay(folder, &[]);
    assert_eq!(missing.code, 7);
    assert!(missing.err.contains("cannot find") && missing.err.contains(&hash(image)), "{}", missing.err);
    // Found again elsewhere by its name, or beside the recording.
    std::fs::create_dir(folder.join("elsewhere")).unwrap();
    std::fs::write(folder.join("elsewhere/kernel"), image).unwrap();
    assert_eq!(replay(folder, &["--verify", "--image-dir", "elsewhere"]).code, 0);
    std::fs::write(folder.join("kernel"), image).unwrap();
    assert_eq!(replay(folder, &["--verify"]).code, 0);
}

#[test]
fn an_embedded_recording_needs_no_files() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("kernel"), trapline_guests::IA32.image).unwrap();
    std::fs::write(folder.join("appln"), trapline_guests::IA32.modules[0].1).unwrap();
    let args = ["kernel", "--module", "appln", "--embed", "--pages", "-n", "fbt::do_fork:entry"];
    let live = record(folder, &args);
    for name in ["kernel", "appln"] {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    let again = replay(folder, &["--verify", "-q"]);
    assert_eq!((again.code, again.out), (0, live.out), "{}", again.err);
    let recording = Recording::read(&folder.join("r.tlr")).unwrap();
    assert_eq!(recording.changed_pages().len(), recording.checkpoints().len());
    assert!(recording.changed_pages().iter().all(|pages| !pages.is_empty()));
}

/// Most rounds, if none has cut a recorder off.
const MOST_ROUNDS: u64 = 500;

/// Bytes of records that are read at most: the recorder has more of them, and a pipe does not hold the rest.
const RECORDS: u64 = 700_000;

/// Kills a recorder at a random moment, and replays what it leaves. Answers whether it was cut off. The moment is that
/// at which so many bytes of its records are read: it cannot be faster than its reader, but for what a pipe holds.
fn kill_one(folder: &Path, random: &mut Rng) -> bool {
    let mut command = Command::new(binary());
    command.args(["record", "embedded:ia32", "-n", "fbt:::entry", "--console", "none", "-o", "r.tlr"]);
    command.args(["--checkpoint-insns", "20K"]);
    command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let records = child.stdout.take().unwrap();
    std::io::copy(&mut records.take(random.below(RECORDS)), &mut std::io::sink()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let Ok(recording) = Recording::read(&folder.join("r.tlr")) else { return false };
    let again = replay(folder, &["--verify"]);
    let all = recording.checkpoints().len();
    assert_eq!(again.code, if all > 0 && recording.is_whole() { 0 } else { 5 }, "{}", again.err);
    assert_eq!(trapline(folder, &["verify", "r.tlr"]).code, again.code, "{}", again.err);
    assert_eq!(again.err.contains("the recording is incomplete"), !recording.is_whole(), "{}", again.err);
    assert!(all == 0 || again.err.contains(&format!("{all} of {all} checkpoint")), "{}", again.err);
    !recording.is_whole()
}

#[test]
fn a_recorder_that_is_killed_at_any_moment_leaves_a_recording_that_replays() {
    let rounds = cases("TRAPLINE_KILLS", 6);
    let (begun, cut) = (AtomicU64::new(0), AtomicU64::new(0));
    let goes_on = |round: u64| round < rounds || round < MOST_ROUNDS && cut.load(Relaxed) == 0;
    let several = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        for one in 1..=several {
            let (begun, cut) = (&begun, &cut);
            scope.spawn(move || {
                let folder = TempDir::new().unwrap();
                let mut random = Rng(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(one));
                while goes_on(begun.fetch_add(1, Relaxed)) {
                    cut.fetch_add(kill_one(folder.path(), &mut random).into(), Relaxed);
                }
            });
        }
    });
    let cut = cut.into_inner();
    assert!(cut > 0, "no recorder was killed before its end");
    println!("{cut} recorders were killed before their end");
}

#[test]
fn a_recording_that_is_cut_off_anywhere_says_so() {
    let folder = TempDir::new().unwrap();
    record(folder.path(), &["embedded:ia32", "-n", "fbt::do_fork:entry"]);
    let file = std::fs::read(folder.path().join("r.tlr")).unwrap();
    let mut incomplete = 0;
    // The last bytes are the end of the run, its last checkpoint, and the mark that nothing follows.
    for cut in (0..200).step_by(8).chain((200..file.len()).step_by(900)) {
        std::fs::write(folder.path().join("r.tlr"), &file[..file.len() - 1 - cut]).unwrap();
        let again = replay(folder.path(), &["--verify"]);
        let told = again.err.contains("the recording is incomplete");
        assert!(again.code == 5 && told || again.code == 7, "{cut} bytes less: {}", again.err);
        incomplete += u32::from(told);
    }
    assert!(incomplete > 25);
}

#[test]
fn every_flipped_byte_is_found() {
    let folder = TempDir::new().unwrap();
    record(folder.path(), &["embedded:ia32", "-n", "fbt::do_fork:entry", "--embed"]);
    let file = std::fs::read(folder.path().join("r.tlr")).unwrap();
    assert!(Recording::from_bytes(&file).unwrap().is_whole());
    let mut random = Rng(0x0123_4567_89ab_cdef);
    for _ in 0..cases("TRAPLINE_FLIPS", 500) {
        let mut flipped = file.clone();
        let at = random.below(file.len() as u64) as usize;
        flipped[at] ^= 1 + random.below(255) as u8;
        let read = Recording::from_bytes(&flipped);
        assert!(read.is_err(), "byte {at} of {}", file.len());
    }
    let mut flipped = file.clone();
    flipped[file.len() / 2] ^= 4;
    std::fs::write(folder.path().join("r.tlr"), flipped).unwrap();
    let refused = replay(folder.path(), &[]);
    assert_eq!(refused.code, 7);
    assert!(
        refused.err.contains("r.tlr: the recording is damaged: the checksum of chunk"),
        "{}",
        refused.err
    );
}

#[test]
fn options_without_effect_are_refused() {
    let folder = TempDir::new().unwrap();
    record(folder.path(), &["embedded:ia32", "--limit-insns", "100K"]);
    for (args, sentence) in [
        (&["--stack"][..], "--stack has no effect without probes"),
        (&["--from", "5"], "--from has no effect without probes"),
        (&["--branch", "b.tlr"], "--branch has no effect without something that makes another run"),
        (
            &["--verify", "--branch", "b.tlr", "-n", "fbt::do_fork:entry"],
            "--verify has no effect with --branch",
        ),
        (&["-D", "X"], "-D has no effect without a probe program"),
    ] {
        let refused = replay(folder.path(), args);
        assert_eq!(refused.code, 2, "{args:?}");
        assert!(refused.err.contains(sentence), "{args:?}: {}", refused.err);
    }
    let refused = trapline(folder.path(), &["run", "embedded:ia32", "--embed"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}
