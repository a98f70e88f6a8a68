//! The fuzzer in Debian's kernel: a mistake that is planted in the parser of a module is found through the function.
//!
//! `TRAPLINE_FUZZ_SEEDS=N` searches with N seeds and prints how long each took.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::cli::{folder, trapline};
use trapline_tests::built::fuzzer;
use trapline_tests::root;

/// Messages that the driver refuses.
const TEST: &str = "
dmesg -n 8
insmod /lib/planted.ko
for i in 1 2 3 4; do printf 'a message of the real world, number %d .........' $i > /dev/planted; done
";

const FUNCTION: &str = "fbt:planted:planted_parse:entry";

fn file(name: &str) -> PathBuf {
    let path = root().join(".guests").join(name);
    assert!(path.exists(), "{}: run `make guests` first", path.display());
    path
}

/// The initramfs with /test.
fn initrd(here: &Path, flavour: &str) -> PathBuf {
    std::fs::write(here.join("test"), TEST).unwrap();
    std::fs::write(here.join("list"), "file /test test 644\n").unwrap();
    let mut newc = Command::new(root().join("scripts/guests/newc"));
    newc.args(["--root", ".", "list", "added.cpio.gz"]).current_dir(here);
    assert!(newc.status().unwrap().success());
    let mut image = std::fs::read(file(&format!("dti-{flavour}.cpio.gz"))).unwrap();
    image.extend(std::fs::read(here.join("added.cpio.gz")).unwrap());
    std::fs::write(here.join("initrd"), image).unwrap();
    here.join("initrd")
}

#[test]
fn a_mistake_in_a_modules_parser_is_found_through_the_function() {
    if fuzzer().is_none() {
        return;
    }
    let flavour = "cloud-amd64";
    file(&format!("dti-{flavour}/planted.ko"));
    let folder = folder(&[]);
    let here = folder.path();
    let (kernel, initrd) = (file(&format!("linux-{flavour}")), initrd(here, flavour));
    let (kernel, initrd) = (kernel.to_str().unwrap(), initrd.to_str().unwrap());
    let seeds = std::env::var("TRAPLINE_FUZZ_SEEDS").map_or(1, |n| n.parse().unwrap());
    let mut found = String::new();
    for seed in 1..=seeds {
        let (seed, findings) = (seed.to_string(), format!("findings{seed}"));
        let begun = Instant::now();
        let search = ["--hits", "2", "--execs", "300K", "--seed", &seed, "--findings", &findings];
        let what = ["--function", FUNCTION, "--input", "arg0:arg1", "--limit-insns", "40G"];
        let ran =
            trapline(here, &[&["-q", "fuzz", kernel, "--initrd", initrd], &what[..], &search[..]].concat());
        println!("seed {seed}: {:?}\n{}", begun.elapsed(), ran.out);
        assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
        let text = ran.out.lines().find_map(|line| line.strip_prefix("found ")).unwrap();
        found = text.split(' ').next().unwrap().to_owned();
        assert!(found.starts_with(&format!("{findings}/text-planted-planted_parse")), "{found}");
    }
    let told = trapline(here, &["fuzz", "--explain", &found]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{}", told.out);
    assert!(told.out.contains("; at the real hit it holds "), "{}", told.out);
    assert!(told.out.contains("Then the objective text falls at planted:planted_parse+0x"), "{}", told.out);
    let replayed = trapline(here, &["replay", &found, "--verify"]);
    assert_eq!(replayed.code, 4, "{}", replayed.err);
}
