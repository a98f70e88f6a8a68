//! What has no effect, what is missing and what is damaged: each is told in one sentence, also under `-q`.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, folder, trapline};
use crate::patience::until_handled;
use tempfile::TempDir;
use trapline_session::Recording;
use trapline_tests::linux::KERNELS;
use trapline_tests::{guest, root};

const GUEST: &str = "embedded:ia32";

fn run(folder: &TempDir, args: &[&str]) -> Ran {
    trapline(folder.path(), &[&["run", GUEST, "--console", "none"], args].concat())
}

/// A kernel program with one probe point at `do_fork`.
fn program(header: &str, handler: &str) -> String {
    format!("name = vmlinux\nmodtype = kernel\n{header}\noffset = do_fork\nopcode = 0x55\n{handler}\n")
}

#[test]
fn options_that_no_program_needs_are_refused() {
    let folder = folder(&[]);
    let probe = ["-n", "fbt::do_fork:entry"];
    for (args, sentence) in [
        (&["--watch-unlimited"][..], "--watch-unlimited has no effect without a watchpoint"),
        (&["--max-cores", "3"], "--max-cores has no effect unless a handler has `exit 3`"),
        (&["--core-dir", "."], "--core-dir has no effect unless a handler has `exit 2` or `exit 3`"),
        (&["--file", "/bin/x=x"], "--file has no effect on an embedded guest, which has no files"),
        (&["--header", "none,pid"], "the header item `none` goes with no other item; give it alone"),
        (&["--header", "pid,all"], "the header item `all` goes with no other item; give it alone"),
        (&["--header", "pid,pid"], "the header item `pid` was named before; name each item once"),
        (&["--header", "eip,ip"], "the header item `ip` was named before; name each item once"),
    ] {
        let ran = run(&folder, &[&probe, args].concat());
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(sentence), "{args:?}: {}", ran.err);
    }
}

#[test]
fn options_that_a_program_needs_are_accepted() {
    let watch = "name = vmlinux\nmodtype = kernel\naddress = jiffies:jiffies+3\nwatchpoint = w\npush 1\nlog 1\nexit\n";
    let exits = "name = appln\noffset = main\nopcode = 0x55\ncall core\nproc core\nexit 3\nret\nendproc\n";
    let folder = folder(&[("w.rpn", watch.as_bytes()), ("c.rpn", exits.as_bytes())]);
    let ran = run(&folder, &["-p", "w.rpn", "--watch-unlimited"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for more in [&["-p", "c.rpn"][..], &["--script", "s"]] {
        std::fs::write(folder.path().join("s"), "at insns=1 insert c.rpn\n").unwrap();
        let ran = run(&folder, &[more, &["--max-cores", "1"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    for items in ["major,minor,pid", "none", "all"] {
        let ran = run(&folder, &["-n", "fbt::do_fork:entry", "--header", items]);
        assert_eq!(ran.code, 0, "{items}: {}", ran.err);
    }
}

#[test]
fn a_program_without_hits_is_told_where_others_had_some() {
    let args = ["--limit-insns", "4M", "-n", "fbt::do_fork:entry", "-n", "fbt::panic:entry"];
    let ran = run(&folder(&[]), &args);
    assert_eq!(ran.code, 124, "{}", ran.err);
    let told: Vec<&str> = ran.err.lines().filter(|line| line.contains("had no hits")).collect();
    assert_eq!(told, ["trapline: -n fbt::panic:entry had no hits: its site was never executed"]);
}

#[test]
fn warnings_and_errors_speak_of_the_budget_that_was_given() {
    let counts = program("jmpmax = 100000", "push 90000\na: loop a\npush 7\nlog 1\nexit");
    let jumps = program("jmpmax = 4294967295", "a: jmp a");
    let folder = folder(&[("counts.rpn", counts.as_bytes()), ("jumps.rpn", jumps.as_bytes())]);
    let said = |args: &[&str]| run(&folder, &[args, &["--stop-after", "1"]].concat());
    let enough = said(&["-p", "counts.rpn", "--max-steps", "1000000"]);
    assert!(!enough.err.contains("warning") && enough.out.ends_with("07000000\n"), "{}", enough.err);
    let default = said(&["-p", "counts.rpn"]);
    assert!(default.err.contains("executes more than 65536 instructions (--max-steps)"), "{}", default.err);
    for (args, budget) in [(&[][..], 65_536), (&["--max-steps", "1000"], 1_000)] {
        let ran = said(&[&["-p", "jumps.rpn"], args].concat());
        let ends = format!("it ends with JMP_MAX after {budget} instructions (--max-steps)");
        assert!(ran.err.contains(&ends), "{}", ran.err);
        let error = format!(
            "jumps.rpn:6: error on probe (0,0): more than {budget} instructions (--max-steps) in action #1 "
        );
        assert!(ran.err.contains(&error), "{}", ran.err);
    }
    let one = said(&["-n", "fbt::do_fork:entry", "--max-steps", "1"]);
    assert!(one.err.contains(": more than 1 instruction (--max-steps) in action #2 "), "{}", one.err);
}

#[test]
fn a_script_lists_nothing_only_with_an_error() {
    let folder = folder(&[]);
    for (spec, sentence) in [
        ("nosuch", "no function of vmlinux matches `nosuch`"),
        ("fbt::nosuch:", "probe description fbt::nosuch: does not match any probes"),
    ] {
        std::fs::write(folder.path().join("s"), format!("at insns=1M list {spec}\n")).unwrap();
        let ran = run(&folder, &["--script", "s"]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
        assert!(ran.err.contains(&format!("s:1: {sentence}")), "{}", ran.err);
    }
}

#[test]
fn a_file_that_is_given_for_a_kernel_module_is_one() {
    let folder = folder(&[("kernel", trapline_guests::IA32.image), ("text", b"garbage\n"), ("empty", b"")]);
    for (file, why) in [("text", "this is no ELF file"), ("empty", ""), ("kernel", "the ELF type is")] {
        let given = format!("/lib/modules/dummy.ko={file}");
        for command in [&["list", "kernel", "fbt:dummy::"][..], &["run", "kernel", "-n", "fbt:dummy::"]] {
            let ran = trapline(folder.path(), &[command, &["-q", "--file", &given]].concat());
            assert_eq!(ran.code, 7, "{}", ran.err);
            let sentence =
                format!("trapline: error: {file} cannot be the kernel module /lib/modules/dummy.ko: {why}");
            assert!(ran.err.starts_with(&sentence), "{}", ran.err);
        }
    }
    let cut = &trapline_guests::IA32.modules[0].1[..8_000];
    std::fs::write(folder.path().join("cut"), cut).unwrap();
    let ran = trapline(folder.path(), &["list", "kernel", "-q", "--file", "/bin/appln=cut"]);
    assert!(ran.code == 7 && ran.err.contains("cut cannot be the program /bin/appln: "), "{}", ran.err);
}

/// A cpio archive with one file.
fn archive() -> Vec<u8> {
    let numbers = [1, 0o100_644, 0, 0, 1, 0, 4, 0, 0, 0, 0, 2, 0];
    let header = |numbers: [u32; 13]| {
        let digits: String = numbers.iter().map(|number| format!("{number:08x}")).collect();
        format!("070701{digits}")
    };
    let trailer = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 11, 0];
    format!("{}a\0text{}TRAILER!!!\0\0\0\0", header(numbers), header(trailer)).into_bytes()
}

#[test]
fn every_damage_of_an_initial_ram_disk_is_refused_and_another_packing_is_told_with_the_probes_that_it_hides()
{
    let kernel = ("kernel", trapline_guests::IA32.image);
    let whole = archive();
    let with = |at: usize, bytes: &[u8]| {
        let mut damaged = whole.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        damaged
    };
    let list = |initrd: &[u8]| {
        let folder = folder(&[kernel, ("initrd", initrd)]);
        trapline(folder.path(), &["list", "kernel", "--initrd", "initrd", "pid*:busybox:main:entry", "-q"])
    };
    let good = list(&whole);
    assert_eq!(
        (good.code, good.err.trim_end()),
        (3, "trapline: error: probe description pid*:busybox:main:entry does not match any probes")
    );
    // A number, a size that is too large, and the second entry's magic.
    for (at, bytes) in [(54, &b"zzzzzzzz"[..]), (54, b"ffffffff"), (116, b"XXXXXX")] {
        let ran = list(&with(at, bytes));
        assert_eq!(ran.code, 7, "{}", ran.err);
        assert!(
            ran.err.starts_with("trapline: error: cannot load the initial RAM disk initrd: "),
            "{}",
            ran.err
        );
    }
    let packed = list(b"\xfd7zXZ\0 and so on");
    assert_eq!(packed.code, 3, "{}", packed.err);
    let reason = "does not match any probes; programs in the initial RAM disk cannot be probed: a part of the initramfs \
                  begins with ";
    assert!(packed.err.contains(reason), "{}", packed.err);
}

#[test]
fn a_recording_without_a_checkpoint_verifies_nothing() {
    let folder = folder(&[]);
    let path = folder.path().join("r.tlr");
    let args = ["record", GUEST, "-o", "r.tlr", "--checkpoint-insns", "1M", "-n", "fbt::do_fork:"];
    assert_eq!(trapline(folder.path(), &args).code, 0);
    let file = std::fs::read(&path).unwrap();
    let cut = (0..file.len()).rev().find(|len| {
        Recording::from_bytes(&file[..*len]).is_ok_and(|cut| cut.checkpoints().is_empty() && !cut.is_whole())
    });
    std::fs::write(&path, &file[..cut.unwrap()]).unwrap();
    let incomplete = "trapline: the recording is incomplete, because its recorder was killed: it ends after ";
    let ran = trapline(folder.path(), &["replay", "r.tlr", "--verify", "-q"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    let nothing =
        "trapline: error: --verify has nothing to compare: the recording ends before its first checkpoint";
    assert!(ran.err.starts_with(incomplete) && ran.err.contains(nothing), "{}", ran.err);
    let ran = trapline(folder.path(), &["replay", "r.tlr", "-q"]);
    assert!(ran.code == 0 && ran.err.starts_with(incomplete), "{}", ran.err);
    let ran = trapline(folder.path(), &["replay", "r.tlr"]);
    let at_once = ran.err.contains(" it ends after 0 instructions");
    assert!(!(at_once && ran.err.contains("had no hits")), "{}", ran.err);
}

#[test]
fn the_errors_of_a_probe_with_several_sites_are_counted_together() {
    let clause = "fbt::do_*:return { push 0x10; push mem, u8; log 1 }";
    let ran = run(&folder(&[]), &["--rpn", clause]);
    let name = |line: &str| line[line.find("fbt:").unwrap()..].split([' ', ')']).next().unwrap().to_owned();
    for part in ["error on enabled", "errors on probe ID"] {
        let mut names: Vec<String> = ran.err.lines().filter(|line| line.contains(part)).map(name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert!(all > 1 && names.len() == all, "{part}: {}", ran.err);
    }
}

#[test]
fn messages_name_the_rule_once_and_what_to_do() {
    let every = "at insns=1 query\nevery insns=0 query\n";
    let map = b"ffffffff8100000000 T a\n";
    let folder = folder(&[("s", every.as_bytes()), ("map", map)]);
    let probe = ["-n", "fbt::do_fork:entry"];
    for (args, sentence) in [
        (&["--abi", "sysv"][..], "and embedded:ia32 is a 32-bit guest; use cdecl or regparm"),
        (&["--templates", "none"], "error: none: the file cannot be read: No such file or directory"),
        (&["--mem", "1"], "guest memory of 1 byte is not possible; use 1M to 32G, in multiples of 4K"),
        (
            &["--mem", "1T"],
            "guest memory of 1099511627776 bytes is not possible; use 1M to 32G, in multiples of 4K",
        ),
        (
            &["--sym", "map"],
            "the address in line 1 of the System.map, ffffffff8100000000, has more than 64 bits",
        ),
        (&["--script", "s"], "the interval must be at least 1 instruction\n  every insns=0 query\n"),
    ] {
        let ran = run(&folder, &[&probe, args].concat());
        assert!(ran.code != 0 && ran.err.contains(sentence), "{args:?}: {}", ran.err);
    }
}

#[test]
fn guest_kernel_modules_have_symbols_but_no_fixed_addresses() {
    let program =
        "name = loop\nmodtype = kmod\noffset = loop_init\nopcode = 0xe8\npush loop_init\nlog 1\nexit\n";
    let folder = folder(&[("own.rpn", program.as_bytes())]);
    let init = "export PATH=/bin\ninsmod /loop.ko\npoweroff -f\n";
    KERNELS[1].image(folder.path(), &["loop"], &[], init).unwrap();
    let image = guest("linux-cloud-amd64");
    let run = |args: &[&str]| {
        let args = [&["run", &image, "--initrd", "initrd.gz", "-q", "--console", "none"], args].concat();
        trapline(folder.path(), &args)
    };
    let refused = run(&["-p", "own.rpn"]);
    let why = "`loop_init` has no fixed address: the guest decides where it loads the module loop";
    assert!(refused.code == 3 && refused.err.contains(why), "{}", refused.err);
    let ran =
        run(&["--symbols", "-n", "fbt:loop::entry", "-n", "pid*:busybox:main:entry", "--stop-after", "40"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (probe, symbol) in [("probe=fbt:loop:", "loop:"), ("probe=pid", "busybox:main")] {
        let mut lines = ran.out.lines().filter(|line| line.contains(probe)).peekable();
        assert!(lines.peek().is_some(), "{probe}: {}", ran.out);
        let named = |line: &str| line.split_whitespace().nth(1).unwrap().starts_with(symbol);
        assert!(lines.all(named), "{probe}: {}", ran.out);
    }
    let listed = trapline(&root(), &["list", ".guests/modules-cloud-amd64/loop.ko"]);
    let module =
        "is a kernel module; give its kernel as the image, and the module with --file /PATH/NAME.ko=";
    assert!(listed.code == 7 && listed.err.contains(module), "{}", listed.err);
}

/// A recording of the embedded guest with two programs, in a folder.
fn recorded() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let args = ["record", GUEST, "-o", "r.tlr", "--checkpoint-insns", "500K", "-n", "fbt::do_*:entry", "-q"];
    let ran =
        trapline(folder.path(), &[&args[..], &["--console", "none", "--output-file", "records"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    folder
}

#[test]
fn an_incomplete_recording_is_not_updated() {
    let folder = recorded();
    let bytes = std::fs::read(folder.path().join("r.tlr")).unwrap();
    let cut = folder.path().join("cut.tlr");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let kept = std::fs::read(&cut).unwrap();
    for _ in 0..2 {
        let ran = trapline(folder.path(), &["verify", "cut.tlr", "--update"]);
        assert!(ran.code == 5 && ran.out.contains("incomplete"), "{}: {}{}", ran.code, ran.out, ran.err);
        assert_eq!(std::fs::read(&cut).unwrap(), kept);
    }
}

#[test]
fn a_replay_that_has_passed_its_goal_says_so() {
    let folder = recorded();
    for goal in ["--to", "--at"] {
        let args = ["replay", "r.tlr", "-n", "fbt::do_exit:entry", "--from", "2M", goal, "1M", "-q"];
        let ran = trapline(folder.path(), &args);
        let sentence =
            "1000000 lies before 2000000 instructions, which the replay has reached; give a later position";
        assert!(ran.code == 2 && ran.err.contains(sentence), "{}: {}", ran.code, ran.err);
    }
}

#[test]
fn the_end_of_a_recording_includes_its_last_checkpoint() {
    let folder = recorded();
    let verified = |more: &[&str]| {
        let ran = trapline(folder.path(), &[&["replay", "r.tlr", "--verify"][..], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.err.lines().find(|line| line.contains(" verified")).unwrap().to_owned()
    };
    let whole = verified(&[]);
    let words: Vec<&str> = whole.split(' ').collect();
    assert_eq!(words[1], words[3], "{whole}");
    assert_eq!(verified(&["--to", "end"]), whole);
    assert_ne!(verified(&["--to", "end-1"]), whole);
}

#[test]
fn a_program_that_sends_lines_gets_each_answer_at_once() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let folder = recorded();
    let mut command = Command::new(crate::cli::binary());
    command.current_dir(folder.path()).args(["replay", "r.tlr", "--at", "1M", "-q", "--console", "none"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for (line, at) in [("where", 1_000_000), ("step", 1_000_001), ("back 2", 999_999)] {
        writeln!(stdin, "{line}").unwrap();
        let mut answer = String::new();
        while !answer.starts_with("at ") {
            answer.clear();
            assert!(stdout.read_line(&mut answer).unwrap() > 0, "no answer to {line}");
        }
        assert!(answer.starts_with(&format!("at {at} ")), "{answer}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_signal_ends_a_question_about_the_past() {
    use std::process::{Command, Stdio};
    let folder = recorded();
    for signal in ["-INT", "-TERM"] {
        let mut command = Command::new(crate::cli::binary());
        // Nobody reads the answer, which is longer than a pipe: the question does not end before the signal.
        command.current_dir(folder.path()).args(["replay", "r.tlr", "--when", "eax & 1", "--last", "50000"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        until_handled(child.id(), &[2, 15]);
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
    }
}

#[test]
fn questions_take_hits_of_the_recordings_programs_as_positions() {
    let folder = recorded();
    let ask = |before: &str| {
        let args =
            ["replay", "r.tlr", "--who-wrote", "current_task", "--last", "2", "-q", "--before", before];
        trapline(folder.path(), &args)
    };
    let at = trapline(folder.path(), &["replay", "r.tlr", "-q", "-f", "json"]).out;
    let hits = at.lines().filter(|line| line.contains(r#""type":"hit""#));
    let fifth: serde_json::Value = serde_json::from_str(hits.clone().nth(4).unwrap()).unwrap();
    let (by_hit, by_count) = (ask("hit:5"), ask(&fifth["icount"].to_string()));
    assert!(by_hit.code == 0 && !by_hit.out.is_empty(), "{}", by_hit.err);
    assert_eq!(by_hit.out, by_count.out);
    let none = ask("hit:100000");
    assert!(
        none.code == 2 && none.err.contains("--before hit:100000 is not in the recording"),
        "{}",
        none.err
    );
}
