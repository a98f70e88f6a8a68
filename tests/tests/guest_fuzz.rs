//! Functions of real guests are fuzzed: a mistake that is planted in the parser of a module is found in Debian's kernel, and a pointer
//! that is wrong in GNU Mach.
//!
//! `TRAPLINE_FUZZ_SEEDS=N` searches with N seeds, each until it is found, and prints how long each took.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::trapline;
use trapline_tests::built::fuzzer;
use trapline_tests::guest;
use trapline_tests::linux::drivers_image;

/// Messages that the driver refuses.
const TEST: &str = "
dmesg -n 8
insmod /lib/planted.ko
for i in 1 2 3 4; do printf 'a message of the real world, number %d .........' $i > /dev/planted; done
";

/// Writes what kernels say when they die.
const SPEAKS: &str = "
for i in 1 2 3; do
    echo 'Kernel panic - not syncing: x' > /dev/ttyS0; echo 'BUG: unable to handle' > /dev/ttyS0
    echo 'Oops: 0000 [#1] SMP' > /dev/ttyS0
done
";

const FUNCTION: [&str; 6] =
    ["--function", "fbt:planted:planted_parse:entry", "--input", "arg0:arg1", "--hits", "2"];
/// A seed that finds the mistake early.
const SEED: u64 = 17;

#[test]
fn guest_linux_mistake_in_a_modules_parser_is_found_through_the_function_at_length() {
    if fuzzer().is_none() {
        return;
    }
    let flavour = "cloud-amd64";
    guest(&format!("dti-{flavour}/planted.ko"));
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    drivers_image(here, flavour, TEST).unwrap();
    let kernel = guest(&format!("linux-{flavour}"));
    let guest = [&kernel, "--initrd", "initrd", "--limit-insns", "40G"];
    let search = |guest: &[&str], seed: u64, execs: &str| {
        let findings = format!("findings{seed}");
        let (seed, name) = (seed.to_string(), findings.as_str());
        let options = ["--execs", execs, "--seed", &seed, "--findings", name];
        let ran = trapline(here, &[&["-q", "fuzz"], guest, &FUNCTION, &options].concat());
        println!("seed {seed}:\n{}", ran.out);
        assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
        let text = ran.out.lines().find_map(|line| line.strip_prefix("found ")).unwrap();
        let found = text.split(' ').next().unwrap().to_owned();
        assert!(found.starts_with(&format!("{findings}/guest-crash-planted-planted_parse")), "{found}");
        found
    };
    let found = search(&guest, SEED, "2K");
    let replayed = trapline(here, &["replay", &found, "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.err);
    assert!(replayed.err.contains("the guest crashed: kernel "), "{}", replayed.err);

    let seeds: u64 = std::env::var("TRAPLINE_FUZZ_SEEDS").map_or(0, |n| n.parse().unwrap());
    let recorded = format!("findings{SEED}/run.tlr");
    for seed in 100..100 + seeds {
        search(&[&recorded], seed, "300K");
    }
}

/// What a program writes on the console is no crash of the kernel.
#[test]
fn guest_linux_program_that_speaks_of_crashes_is_none() {
    if fuzzer().is_none() {
        return;
    }
    let flavour = "cloud-amd64";
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    drivers_image(here, flavour, SPEAKS).unwrap();
    let kernel = guest(&format!("linux-{flavour}"));
    let guest = [kernel.as_str(), "--initrd", "initrd", "--limit-insns", "40G"];
    let function = ["--function", "fbt::n_tty_write:entry", "--input", "arg2:arg3", "--hits", "4"];
    let ran = trapline(here, &[&["-q", "fuzz"], &guest[..], &function, &["--execs", "100"]].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(!ran.out.contains("crash:") && !ran.out.contains("passed over"), "{}", ran.out);
    assert!(ran.out.contains(" executions from 4 real hits\n"), "{}", ran.out);
}

#[test]
fn guest_gnumach_pointer_that_is_wrong_is_found_where_it_is_followed() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mach = guest("gnumach");
    let what =
        ["--function", "fbt::rbtree_remove:entry", "--input", "arg1:12", "--hits", "1", "--execs", "100"];
    let ran = trapline(here, &[&["-q", "fuzz", &mach], &what[..]].concat());
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    // The kernel's own handler of page faults fails, too, so early; the mistake is not there.
    assert!(ran.out.contains("found findings/guest-crash-rbtree_remove-"), "{}", ran.out);
    assert!(ran.out.contains("the guest crashed: triple fault"), "{}", ran.out);
    let kept = trapline(here, &["verify", "findings"]);
    assert_eq!(kept.code, 0, "{}{}", kept.out, kept.err);
}

/// GNU Mach's first messages are printed while CS has a base that is not 0.
#[test]
fn guest_gnumach_function_returns_where_the_code_segment_has_a_base() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mach = guest("gnumach");
    let what = ["--function", "fbt::printf:entry", "--input", "eax", "--hits", "1", "--execs", "100"];
    let ran = trapline(folder.path(), &[&["-q", "fuzz", &mach], &what[..]].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains(" returned, the longest after 4174 instructions"), "{}", ran.out);
}
