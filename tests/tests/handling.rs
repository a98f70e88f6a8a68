//! How the command treats its user: numbers, options without effect, standard input, signals, `-q`, runs without hits.

use std::path::Path;
use std::process::{Command, Stdio};

use super::cli::{Ran, binary, finish, folder, kernel_probe, patient, trapline};
use super::patience::until;

const GUEST: &str = "embedded:ia32";

fn probe() -> String {
    kernel_probe("offset = do_fork", "0x55")
}

/// Runs `trapline ARGS` with these bytes as its standard input.
fn piped(folder: &Path, args: &[&str], input: &[u8]) -> Ran {
    std::fs::write(folder.join("input"), input).unwrap();
    let mut command = patient(binary());
    command.args(args).current_dir(folder);
    command.stdin(std::fs::File::open(folder.join("input")).unwrap());
    finish(command)
}

#[test]
fn every_option_takes_numbers_alike() {
    // A core file is what --max-cores is about.
    let folder = folder(&[("p.rpn", probe().replace("exit", "exit 3").as_bytes())]);
    for (more, same) in [
        (["--limit-insns", "3_000_000"], ["--limit-insns", "3M"]),
        (["--limit-insns", "0x2dc6c0"], ["--limit-insns", "3000K"]),
        (["--stop-after", "0x2"], ["--stop-after", "2"]),
        (["--max-steps", "1_000"], ["--max-steps", "1K"]),
        (["--stack", "0x10"], ["--stack", "16"]),
        (["--mem", "0x2000000"], ["--mem", "32M"]),
        (["--channel", "0x1000x0x10"], ["--channel", "4KiBx16"]),
        (["--max-cores", "0x0"], ["--max-cores", "0"]),
    ] {
        let run = |more: [&str; 2]| {
            let args = [&["run", GUEST, "-p", "p.rpn", "--digest"], &more[..]].concat();
            trapline(folder.path(), &args)
        };
        let (one, other) = (run(more), run(same));
        assert!(matches!(one.code, 0 | 124), "{more:?}: {}", one.err);
        assert_eq!(one, other, "{more:?} {same:?}");
    }
    let script = "at insns=0x10_0000 query\nevery insns=1_000_000 getvars\non hit 0x1 of p.rpn query\n";
    std::fs::write(folder.path().join("s"), script).unwrap();
    let ran = trapline(folder.path(), &["run", GUEST, "-p", "p.rpn", "--script", "s", "--limit-insns", "2M"]);
    assert!(ran.out.contains("query 1048576 ") && ran.out.contains("getvars 1000000 "), "{}", ran.out);
}

#[test]
fn options_without_effect_are_refused_with_one_sentence() {
    let folder = folder(&[("p.rpn", probe().as_bytes()), ("empty", b"")]);
    let none = "without probes; add -p FILE.rpn, -n CLAUSE or --script FILE";
    let target = "unless a probe is named pid$target:module:function:name";
    let cases: &[(&[&str], &str)] = &[
        (&["run", GUEST, "--stop-after", "2"], &format!("--stop-after has no effect {none}")),
        (&["run", GUEST, "--header", "pid"], &format!("--header has no effect {none}")),
        (&["run", GUEST, "--stack"], &format!("--stack has no effect {none}")),
        (&["run", GUEST, "--group", "g"], &format!("--group has no effect {none}")),
        (&["run", GUEST, "-D", "A"], &format!("-D has no effect {none}")),
        (&["run", GUEST, "--fail-on-loss"], &format!("--fail-on-loss has no effect {none}")),
        (
            &["run", GUEST, "-n", "fbt::do_fork:entry", "-D", "A"],
            "-D has no effect without a program; it does not apply to the handlers of --rpn",
        ),
        (
            &["run", GUEST, "-n", "fbt::do_fork:entry { trace(1); }", "--header", "pid"],
            "--header has no effect on D programs alone; add -p FILE.rpn or --rpn CLAUSE",
        ),
        (
            &["replay", "r.tlr", "-n", "fbt::do_fork:entry { trace(1); }", "--group", "g"],
            "--group has no effect on D programs alone; add -p FILE.rpn or --rpn CLAUSE",
        ),
        (
            &["run", GUEST, "-p", "p.rpn", "--header", "pid", "-f", "dtrace"],
            "--header has no effect with -f dtrace, whose columns are fixed",
        ),
        (
            &["run", GUEST, "-p", "p.rpn", "--symbols", "-f", "json"],
            "--symbols has no effect with -f json; use it with -f text",
        ),
        (&["run", GUEST, "-p", "p.rpn", "--target", "init"], &format!("--target has no effect {target}")),
        (&["run", GUEST, "-p", "p.rpn", "--type", "="], "--type has no effect without a name"),
        (&["run", GUEST, "--initrd", "empty"], "the initial RAM disk empty is empty"),
        (
            &["list", GUEST, "do_*", "-v"],
            "-v has no effect on functions and modules; give a SPEC with a colon, or --processes",
        ),
        (&["list", GUEST, "fbt:::entry", "--target", "9"], &format!("--target has no effect {target}")),
        (&["dis", GUEST, "do_fork", "--target", "9"], &format!("--target has no effect {target}")),
        (&["dis", GUEST, "do_fork", "-D", "A"], "-D has no effect without a probe program; add -p FILE.rpn"),
        (&["check", "p.rpn", "--disassemble", "-f", "json"], "--disassemble has no effect with -f json"),
        (&["run", "-", "-p", "-"], "standard input (-) can be read only once"),
        (&["check", "-", "-"], "standard input (-) can be read only once"),
    ];
    for (args, sentence) in cases {
        let ran = trapline(folder.path(), args);
        assert_eq!(ran.err, format!("trapline: error: {sentence}\n"), "{args:?}");
        assert!(matches!(ran.code, 2 | 7) && ran.out.is_empty(), "{args:?}: {}", ran.code);
    }
    for option in ["--until", "--crash-on", "--append"] {
        let ran = trapline(folder.path(), &["run", GUEST, option, ""]);
        assert!(
            ran.code == 2 && ran.err.contains("the text is empty; write the text to look for"),
            "{option}: {}",
            ran.err
        );
    }
}

#[test]
fn a_dash_is_standard_input() {
    let folder = folder(&[("p.rpn", probe().as_bytes()), ("s", b"at insns=1M query\nat insns=2M stop\n")]);
    let run = |args: &[&str], input: &[u8]| {
        let ran = piped(folder.path(), args, input);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        ran.out
    };
    let named = run(&["run", GUEST, "-p", "p.rpn"], b"");
    assert!(!named.is_empty());
    assert_eq!(run(&["run", GUEST, "-p", "-"], probe().as_bytes()), named);
    let scripted = run(&["run", GUEST, "-p", "p.rpn", "--script", "s"], b"");
    let script = std::fs::read(folder.path().join("s")).unwrap();
    assert_eq!(run(&["run", GUEST, "-p", "p.rpn", "--script", "-"], &script), scripted);
    let checked = run(&["check", "-"], probe().as_bytes());
    assert!(checked.starts_with("-: ok for 32 and 64 bits\n"), "{checked}");
    let image = trapline_guests::IA32.image;
    let from_file = folder.path().join("kernel");
    std::fs::write(&from_file, image).unwrap();
    assert_eq!(run(&["list", "-", "do_*"], image), run(&["list", "kernel", "do_*"], b""));
    assert_eq!(run(&["list", "-", "fbt::do_fork:"], image), run(&["list", "kernel", "fbt::do_fork:"], b""));
    assert_eq!(run(&["run", "-"], image), run(&["run", "kernel"], b""));
}

/// An ELF kernel with an endless loop.
fn endless() -> Vec<u8> {
    const AT: u32 = 0x10_0000;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0\x01\0\0\0".to_vec();
    for word in [AT + 0x80, 52, 0, 0, 0x20_0034, 1, 0, 1, 0, AT, AT, 0x82, 0x82, 5, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.resize(0x80, 0);
    file.extend([0xeb, 0xfe]);
    file
}

#[test]
fn a_signal_leaves_a_whole_trace_file() {
    let folder = folder(&[("endless", &endless())]);
    // As soon as there is a file, and later.
    let rounds = (0..4).flat_map(|_| [0, 16, 256]).zip(["INT", "TERM"].into_iter().cycle());
    for (least, signal) in rounds {
        let trace = folder.path().join(format!("{signal}.trace"));
        let mut command = Command::new(binary());
        command.args(["run", "endless", "--rpn", "profile:::tick-1ms { push 1; log 1 }", "-f", "raw", "-o"]);
        command.arg(&trace).current_dir(folder.path()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        until("a record is written", || {
            assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
            std::fs::metadata(&trace).is_ok_and(|file| file.len() >= least)
        });
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{signal}: {said}");
        assert!(said.contains("trapline: interrupted after "), "{signal}: {said}");
        let read = trapline(folder.path(), &["trace", "cat", &trace.display().to_string(), "-f", "json"]);
        assert_eq!(read.code, 0, "{signal}: {}", read.err);
        let last = read.out.lines().last().unwrap();
        assert!(last.contains("\"type\":\"end\"") && last.contains("interrupted"), "{signal}: {last}");
        std::fs::remove_file(&trace).unwrap();
    }
}

#[test]
fn digest_and_counters_are_printed_beside_a_trace_file() {
    let folder = folder(&[]);
    let run = |more: &[&str]| {
        let args = ["run", GUEST, "-q", "-n", "fbt::do_fork:entry", "--digest", "--stats"];
        let ran = trapline(folder.path(), &[&args[..], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran
    };
    let text = run(&[]);
    assert!(text.err.contains("digest ") && text.err.contains("hits "), "{}", text.err);
    assert_eq!(run(&["-f", "raw", "-o", "t.trace"]).err, text.err);
}

#[test]
fn lost_records_are_reported_even_when_quiet() {
    let folder = folder(&[]);
    let clause = "fbt::do_fork:entry { push 200; push r, esp; log mrf }";
    let args = ["run", GUEST, "-q", "--rpn", clause, "--channel", "64x2"];
    for more in [&[][..], &["-f", "raw", "-o", "t.trace"], &["-f", "json"], &["-f", "dtrace"]] {
        let ran = trapline(folder.path(), &[&args[..], more].concat());
        assert!(ran.err.contains("6 hits, 6 records lost"), "{more:?}: {}", ran.err);
    }
}

#[test]
fn a_folder_for_core_files_must_be_there_before_the_run() {
    let folder = folder(&[("p.rpn", probe().replace("exit", "exit 3").as_bytes())]);
    let args = ["run", GUEST, "-q", "-p", "p.rpn", "--core-dir", "nothere"];
    let ran = trapline(folder.path(), &args);
    let said = "trapline: error: --core-dir nothere: there is no such folder; make it first\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (2, "", said));
}

#[test]
fn a_function_is_disassembled_by_an_address_in_it() {
    let folder = folder(&[]);
    let dis = |what: &str| trapline(folder.path(), &["dis", GUEST, what, "-f", "json", "-q"]);
    let by_name = dis("do_fork");
    let second = by_name.out.lines().filter(|line| line.contains("\"address\"")).nth(2).unwrap();
    let second: serde_json::Value = serde_json::from_str(second).unwrap();
    assert_eq!(dis(second["address"].as_str().unwrap()), by_name);
    let ran = dis("0x10");
    assert_eq!((ran.code, ran.err.as_str()), (2, "trapline: error: no function of the kernel is at 0x10\n"));
}

#[test]
fn quiet_does_not_silence_errors_of_handlers() {
    let folder = folder(&[]);
    let clause = "fbt::do_fork:entry { push 0; push 0; div; log 1 }";
    let ran = trapline(folder.path(), &["run", GUEST, "--rpn", clause, "-q"]);
    assert!(ran.err.contains("trapline: error on enabled probe ID 1 "), "{}", ran.err);
    assert!(!ran.err.contains("powered off"), "{}", ran.err);
}

#[test]
fn a_script_can_disable_a_clause_of_the_command_line() {
    let folder = folder(&[(
        "s",
        b"at insns=1M disable fbt::do_fork:entry\nat insns=1M disable \"-n fbt::do_exit:entry,fbt::do_wait:entry\"\n",
    )]);
    let clauses = ["-n", "fbt::do_fork:entry", "-n", "fbt::do_exit:entry,fbt::do_wait:entry"];
    let args = [&["run", GUEST, "-f", "json", "--script", "s"], &clauses[..]].concat();
    let ran = trapline(folder.path(), &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let icount = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["icount"].as_u64();
    let hits: Vec<u64> =
        ran.out.lines().filter(|l| l.contains("\"type\":\"hit\"")).filter_map(icount).collect();
    assert!(hits.iter().all(|at| *at < 1_000_000), "{hits:?}");
    let disabled = ran.err.matches("trapline: disabled ").count();
    assert_eq!(disabled, 2, "{}", ran.err);
    std::fs::write(folder.path().join("s"), "at insns=1M disable fbt::nothing:\n").unwrap();
    let ran = trapline(folder.path(), &args);
    assert!(ran.code == 2 && ran.err.contains("no program is called `fbt::nothing:`"), "{}", ran.err);
}

#[test]
fn a_run_without_hits_says_why() {
    let folder = folder(&[("p.rpn", probe().replace("minor", "ignore = 1000\nminor").as_bytes())]);
    let said = |args: &[&str]| {
        let ran = trapline(folder.path(), &[&["run", GUEST, "--limit-insns", "4M"], args].concat());
        assert_eq!(ran.code, 124, "{}", ran.err);
        ran.err
    };
    let err = said(&["-n", "fbt::panic:entry"]);
    assert!(err.contains("-n fbt::panic:entry had no hits: its site was never executed\n"), "{err}");
    let err = said(&["-n", "pid$target:appln:main:entry", "--target", "nobody"]);
    assert!(err.contains("had no hits: no process nobody executed the probed code\n"), "{err}");
    let err = said(&["-n", "fbt::do_fork:entry"]);
    assert!(!err.contains("had no hits"), "{err}");
    let err = said(&["-p", "p.rpn"]);
    assert!(err.contains("p.rpn had no hits: `ignore` passed over "), "{err}");
}

#[test]
fn a_truncated_initial_ram_disk_is_refused_at_load() {
    let Ok(initrd) = trapline_tests::fetched("initramfs-i386.cpio.gz") else { return };
    let folder = folder(&[("cut.gz", &initrd[..initrd.len() / 2])]);
    let ran = trapline(folder.path(), &["run", GUEST, "--initrd", "cut.gz"]);
    assert_eq!(ran.code, 7, "{}", ran.err);
    let sentence = "trapline: error: cannot load the initial RAM disk cut.gz: the gzip stream of the initramfs cannot be unpacked";
    assert!(ran.err.starts_with(sentence) && ran.err.lines().count() == 1, "{}", ran.err);
}
