//! The initramfs images: the format of the archive, its reproducibility, and the agreement of the stored stress script with
//! its sources.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use trapline_tests::linux::{KERNELS, STRESS_LINES, stress_oracle};
use trapline_tests::{fetched, guest, root};

const LIST: &str = "# A list.\n\nfile /bin/hello hello 755\ndir /bin 755\nslink /sh bin/hello 777\n\
                    dir /dev 755\nnod /dev/console 600 c 5 1\nnod /dev/ram300 600 b 1 300\n";

/// Runs `newc` on a list in a folder that has the file `hello`.
fn newc(folder: &Path, list: &str, output: &str) -> Output {
    fs::write(folder.join("list"), list).unwrap();
    fs::write(folder.join("hello"), "hello, world").unwrap();
    Command::new(root().join("scripts/guests/newc"))
        .args(["--root", ".", "list", output])
        .current_dir(folder)
        .output()
        .unwrap()
}

/// An archive's members as `name mode links mtime size device`, and contents.
fn members(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        assert_eq!(&archive[at..at + 6], b"070701");
        let field = |i: usize| {
            let text = std::str::from_utf8(&archive[at + 6 + 8 * i..at + 14 + 8 * i]).unwrap();
            usize::from_str_radix(text, 16).unwrap()
        };
        let [mode, uid, gid, links, mtime, size] = [1, 2, 3, 4, 5, 6].map(field);
        let (major, minor, name_size) = (field(9), field(10), field(11));
        let name = std::str::from_utf8(&archive[at + 110..at + 110 + name_size - 1]).unwrap();
        let data = (at + 110 + name_size).next_multiple_of(4);
        assert_eq!((uid, gid, mtime), (0, 0, 0), "{name}");
        if name == "TRAILER!!!" {
            return found;
        }
        let line = format!("{name} {mode:o} {links} {size} {major}:{minor}");
        found.push((line, archive[data..data + size].to_vec()));
        at = (data + size).next_multiple_of(4);
    }
}

#[test]
fn an_archive_has_what_its_list_says_sorted_and_without_times_or_owners() {
    let folder = TempDir::new().unwrap();
    let ran = newc(folder.path(), LIST, "out.cpio");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let archive = fs::read(folder.path().join("out.cpio")).unwrap();
    assert_eq!(archive.len() % 512, 0);
    let expected: [(&str, &[u8]); 6] = [
        ("bin 40755 2 0 0:0", b""),
        ("bin/hello 100755 1 12 0:0", b"hello, world"),
        ("dev 40755 2 0 0:0", b""),
        ("dev/console 20600 1 0 5:1", b""),
        ("dev/ram300 60600 1 0 1:300", b""),
        ("sh 120777 1 9 0:0", b"bin/hello"),
    ];
    let found = members(&archive);
    let found: Vec<(&str, &[u8])> =
        found.iter().map(|(line, data)| (line.as_str(), data.as_slice())).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_same_list_gives_the_same_bytes_whatever_the_order_and_the_times() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let reversed: Vec<&str> = LIST.lines().rev().collect();
    assert!(newc(one.path(), LIST, "out.cpio.gz").status.success());
    assert!(newc(other.path(), &reversed.join("\n"), "first.gz").status.success());
    let hello = fs::File::options().write(true).open(other.path().join("hello")).unwrap();
    hello.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let again = Command::new(root().join("scripts/guests/newc"))
        .args(["list", "second.gz"])
        .current_dir(other.path())
        .status()
        .unwrap();
    assert!(again.success());
    let bytes = fs::read(one.path().join("out.cpio.gz")).unwrap();
    assert_eq!(bytes, fs::read(other.path().join("first.gz")).unwrap());
    assert_eq!(bytes, fs::read(other.path().join("second.gz")).unwrap());
}

#[test]
fn a_list_with_a_mistake_is_refused_with_one_sentence_and_no_archive() {
    let folder = TempDir::new().unwrap();
    for (list, sentence) in [
        ("fifo /x 644\n", "line 1: `fifo` is none of dir, file, slink, nod"),
        ("\ndir /x\n", "line 2: `dir` takes 2 words, not 1"),
        ("dir /x 799\n", "line 1: the mode `799` is not a number from 0 to 7777"),
        ("dir /../x 755\n", "line 1: `/../x` cannot be a path in the archive"),
        ("dir / 755\n", "line 1: `/` cannot be a path in the archive"),
        ("dir /x 755\nslink x y 777\n", "line 2: `x` is there already"),
        ("file /x/y hello 644\n", "`x/y` lies in `x`, which is not in the list as a dir"),
        ("file /x nothing 644\n", "line 1: nothing: No such file or directory"),
        ("nod /x 600 p 1 1\n", "line 1: a device is `b` or `c`, not `p`"),
        ("nod /x 600 c 4096 1\n", "line 1: the major `4096` is not a number from 0 to 4095"),
    ] {
        let ran = newc(folder.path(), list, "out.cpio");
        assert_eq!(ran.status.code(), Some(1), "{list}");
        assert_eq!(String::from_utf8_lossy(&ran.stderr), format!("newc: list: {sentence}\n"));
        assert!(!folder.path().join("out.cpio").exists(), "{list}");
    }
}

/// The checks of the stress script, in order: the program's, then the script's.
fn checks() -> Vec<String> {
    let images = root().join("guest-images");
    let mut names = Vec::new();
    for group in ["process", "memory", "code", "fault", "trace"] {
        let source = fs::read_to_string(images.join(format!("stress/{group}.c"))).unwrap();
        let table = source.split_once(&format!("{group}_checks[] = {{")).unwrap().1;
        names.extend(table.split("{ \"").skip(1).map(|entry| entry.split('"').next().unwrap().to_owned()));
    }
    let script = fs::read_to_string(images.join("initramfs/stress.init")).unwrap();
    let calls = script.lines().filter_map(|line| line.strip_prefix("check '"));
    names.extend(calls.map(|call| call.split('\'').next().unwrap().to_owned()));
    names
}

#[test]
fn the_stored_output_of_the_stress_script_has_ok_for_each_check() {
    let (first, last) = STRESS_LINES;
    let mut expected = vec![first.to_owned()];
    expected.extend(checks().iter().map(|name| format!("{name}: ok")));
    expected.push(last.to_owned());
    assert!(expected.len() > 40);
    let stored = stress_oracle().unwrap();
    let stored: Vec<&str> = stored.lines().collect();
    assert_eq!(stored, expected, "run `scripts/qemu-oracle stress`");
}

#[test]
fn a_missing_guest_is_named_with_the_command_that_fetches_it() {
    let sentence = KERNELS[0].module("no_such_module").unwrap_err();
    assert!(sentence.contains("modules-686/no_such_module.ko"), "{sentence}");
    assert!(sentence.ends_with("run `make guests` first"), "{sentence}");
}

/// The kernels are bzImages, the modules relocatable files, and an external cpio reads the images.
#[test]
fn guest_linux_files_are_what_their_names_say() {
    for linux in &KERNELS {
        let kernel = linux.kernel().unwrap();
        assert_eq!((&kernel[0x1fe..0x200], &kernel[0x202..0x206]), (&[0x55, 0xaa][..], &b"HdrS"[..]));
        let module = linux.module("loop").unwrap();
        assert_eq!((&module[..4], module[16]), (&b"\x7fELF"[..], 1));
        linux.shell().unwrap();
        let listed = list(&format!("stress-{}.cpio.gz", linux.flavour));
        assert!(listed.iter().any(|name| name == "bin/stress"), "{listed:?}");
        assert_eq!(listed.iter().any(|name| name == "bin/stress32"), linux.arch == "amd64");
        assert!(listed.iter().any(|name| name.starts_with("lib/modules/6.") && name.ends_with("/loop.ko")));
        let mut sorted = listed.clone();
        sorted.sort();
        assert_eq!(listed, sorted);
    }
    fetched("memtest86+ia32.bin").unwrap();
    fetched("memtest86+x64.bin").unwrap();
    let versions = String::from_utf8(fetched("VERSIONS").unwrap()).unwrap();
    for file in ["gnumach", "linux-686", "linux-amd64", "linux-cloud-amd64", "busybox-i386", "bash-amd64"] {
        let lines = versions.lines().filter(|line| line.split(' ').nth(3) == Some(file));
        assert_eq!(lines.count(), 1, "{file} in\n{versions}");
    }
}

/// The output of busybox's `cpio -t` for an image.
fn list(image: &str) -> Vec<String> {
    let busybox = |applet: [&str; 2], input: Stdio| {
        Command::new(guest("busybox-amd64")).args(applet).stdin(input).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut unpacked = busybox(["gunzip", "-c"], fs::File::open(guest(image)).unwrap().into());
    let lister = busybox(["cpio", "-t"], unpacked.stdout.take().unwrap().into());
    let out = lister.wait_with_output().unwrap();
    assert!(out.status.success() && unpacked.wait().unwrap().success(), "{image}");
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}
