//! Actions of D that change the guest or the host, arguments with effects, and records of great size.

use std::process::{Command, Output};

use tempfile::TempDir;
use trapline_session::{Command as Insert, Condition, DSource, GuestBuilder, Limits};

fn dtrace(arguments: &[&str]) -> Output {
    Command::new(crate::cli::binary()).arg("dtrace").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of a program that ends with 0.
fn shown(arguments: &[&str]) -> String {
    let output = dtrace(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

const DESTRUCTIVE: [&str; 7] = [
    "copyout(alloca(8), arg0, 8)",
    "copyoutstr(\"x\", arg0, 2)",
    "chill(1000)",
    "breakpoint()",
    "panic()",
    "freopen(\"/dev/null\")",
    "system(\"true\")",
];

#[test]
fn destructive_actions_are_refused_without_the_option() {
    for action in DESTRUCTIVE {
        let program = format!("BEGIN {{ {action}; exit(0); }}");
        let output = dtrace(&["-n", &program]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{action}");
        assert!(
            said.contains("matched 1 probe\n")
                && said.ends_with("dtrace: could not enable tracing: Destructive actions not allowed\n"),
            "{action}: {said}"
        );
        let compiled = dtrace(&["-e", "-n", &program]);
        assert!(compiled.status.success(), "{action}: {}", text(&compiled.stderr));
        let run = Command::new(crate::cli::binary()).args(["run", "embedded:ia32", "-n", &program]).output();
        let run = run.unwrap();
        assert_eq!(run.status.code(), Some(2), "{action}: {}", text(&run.stderr));
        assert!(
            text(&run.stderr).contains("Destructive actions not allowed; -w allows them"),
            "{}",
            text(&run.stderr)
        );
    }
}

#[test]
fn what_only_the_guests_kernel_can_do_is_refused_with_the_reason() {
    for action in ["raise(9)", "stop()"] {
        let output = dtrace(&["-w", "-n", &format!("BEGIN {{ {action}; }}")]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("only the guest's kernel can send a signal to its process"), "{said}");
    }
    let output = dtrace(&["-w", "-n", "BEGIN { system(\"echo hello\"); exit(0); }"]);
    assert!(text(&output.stderr).ends_with("which -x system allows\n"), "{}", text(&output.stderr));
}

#[test]
fn commands_of_the_host_run_where_they_are_allowed() {
    let program = "#pragma D option destructive\n\
                   BEGIN { printf(\"a\\n\"); system(\"echo b %d\", 6 * 7); printf(\"c\"); exit(0); }";
    assert_eq!(shown(&["-q", "-x", "system", "-n", program]), "a\nb 42\nc\n");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("f");
    let program = format!(
        "BEGIN {{ freopen(\"{}\"); printf(\"in\"); freopen(\"\"); printf(\"out\"); exit(0); }}",
        file.display()
    );
    assert_eq!(shown(&["-q", "-w", "-n", &program]), "out\n");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "in");
}

#[test]
fn a_recording_neither_runs_commands_nor_writes_files() {
    let folder = TempDir::new().unwrap();
    let clause = "BEGIN { system(\"touch made\"); freopen(\"made\"); printf(\"x\"); }";
    let trapline = |arguments: &[&str]| {
        let mut command = Command::new(crate::cli::binary());
        let output = command.current_dir(folder.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        assert!(!folder.path().join("made").exists(), "{arguments:?}");
        text(&output.stderr)
    };
    let limit = ["--limit-insns", "100000"];
    let record = ["record", "embedded:idle", "-w", "-x", "system", "--record", "r.tlr", "-n", clause];
    let raw = ["run", "embedded:idle", "-w", "-x", "system", "-f", "raw", "-o", "r.tlt", "-n", clause];
    for arguments in [&record[..], &raw] {
        let mut command = Command::new(crate::cli::binary());
        let output = command.current_dir(folder.path()).args([arguments, &limit].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(124), "{}", text(&output.stderr));
        assert!(!folder.path().join("made").exists(), "{arguments:?}");
    }
    let said = trapline(&["replay", "r.tlr", "--verify"]);
    assert!(said.contains("system() has no effect here"), "{said}");
    trapline(&["trace", "cat", "r.tlt"]);
}

#[test]
fn chill_lets_time_pass_and_no_instruction() {
    let program = "BEGIN { this->t = timestamp; this->i = icount; chill(7000000); \
                   printf(\"%d %d\\n\", timestamp - this->t, icount - this->i); chill(493000000); } \
                   BEGIN { chill(1); } \
                   tick-1ms { printf(\"%d\", (timestamp - 1595) / 500000000); exit(0); }";
    let output = dtrace(&["-q", "-w", "-n", program]);
    assert_eq!(text(&output.stdout), "7000000 0\n1\n", "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("(dtrace:::BEGIN): illegal operation"), "{}", text(&output.stderr));
}

/// Digest, instruction count and console of a run, and whether its programs only observe.
fn course(program: &str) -> (String, u64, Vec<u8>, bool) {
    let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start().unwrap();
    let source =
        DSource { options: vec![("destructive".to_owned(), "1".to_owned())], ..DSource::clauses(program) };
    session.apply(Insert::D(source)).unwrap();
    session.run_until(&Condition::end(), &Limits::none());
    let observes = session.observe_only();
    (session.digest().to_string(), session.icount(), session.console().to_vec(), observes)
}

#[test]
fn a_chilled_guest_runs_the_same_each_time_hot_or_not() {
    let program = "fbt::kmalloc:entry { chill(20000); } fbt::kfree:entry { chill(1000); }";
    let chilled = course(program);
    assert_eq!(chilled, course(program));
    let (digest, _, _, observes) = course("fbt::kmalloc:entry { n++; }");
    assert!(observes && !chilled.3 && digest != chilled.0);
}

#[test]
fn a_breakpoint_ends_the_run_and_a_panic_is_a_crash() {
    let program = "fbt::do_fork:entry { printf(\"here\"); breakpoint(); } fbt::do_fork:return { trace(1); }";
    let output = dtrace(&["--guest", "embedded:ia32", "-q", "-w", "-n", program]);
    assert_eq!(text(&output.stdout), "here\n", "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("stopped the run"), "{}", text(&output.stderr));
    let folder = TempDir::new().unwrap();
    let run = Command::new(crate::cli::binary())
        .current_dir(folder.path())
        .args(["run", "embedded:ia32", "-w", "-n", "fbt::do_fork:entry /hit == 2/ { panic(); }"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(4), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("the guest crashed: panic( ) in "), "{}", text(&run.stderr));
    assert!(folder.path().join("vmcore.1").exists(), "{}", text(&run.stderr));
}

#[test]
fn unsigned_numbers_stay_so_as_keys_and_in_sums() {
    let program = "uint32_t u; int i; int64_t l; uint8_t c; int8_t d; \
        BEGIN { u = 3000000000; i = -7; l = u - i; c = 140; d = -1; \
                printf(\"%d %d %d %d\\n\", l, (int)(c - d), (c - d) % i, (u - i) / 1000LL); \
                @[u] = count(); @[0x80000000] = count(); @m = max(u - i); exit(0); }";
    let text = shown(&["-q", "-n", program]);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["3000000007", "141", "1", "3000000"], "{text}");
    for line in [vec!["2147483648", "1"], vec!["3000000000", "1"], vec!["3000000007"]] {
        assert!(lines.contains(&line), "{line:?}: {text}");
    }
}

#[test]
fn dates_have_both_forms() {
    let program = "BEGIN { printf(\"%T|%Y\", walltimestamp, walltimestamp); exit(0); }";
    assert_eq!(shown(&["-q", "-n", program]), "Sat, 01 Jan 2000 00:00:00 +0000|2000 Jan  1 00:00:00\n");
}

#[test]
fn an_argument_with_an_effect_has_it_once() {
    let program = "inline int twice[int x] = x + x; inline int none[int x] = 3; \
        struct both { int sum; int one; string name; }; \
        translator struct both < int T > { sum = T + T * 10; one = T; name = lltostr(T * T); }; \
        BEGIN { i = 1; printf(\"%d %d \", twice[i++], i); printf(\"%d %d \", none[i++], i); \
                printf(\"%d \", twice[twice[i++]]); printf(\"%d\\n\", i); } \
        BEGIN { i = 2; printf(\"%d %d \", xlate <struct both> (i++).sum, i); \
                printf(\"%s %d \", (xlate <struct both *> (i++))->name, i); \
                printf(\"%d %d\\n\", twice[xlate <struct both> (i++).sum], i); exit(0); }";
    assert_eq!(shown(&["-q", "-n", program]), "2 2 3 3 12 4\n22 3 9 4 88 5\n\n");
}

#[test]
fn a_record_as_large_as_the_buffer_is_whole_or_counted() {
    // Each part has 4 KiB; the last one takes the record past the size of the buffer, byte by byte.
    let program = |last: usize| {
        let parts = "tracemem(x, 4096); ".repeat(15);
        format!(
            "char x[4096]; BEGIN {{ {parts} tracemem(x, {last}); }} BEGIN {{ printf(\"end\"); exit(0); }}"
        )
    };
    let mut whole = 0;
    for last in
        [3_000, 3_800, 3_900, 3_950, 3_980, 3_990, 4_000, 4_010, 4_020, 4_030, 4_040, 4_050, 4_060, 4_096]
    {
        let output = dtrace(&["-q", "-x", "bufsize=64k", "-n", &program(last)]);
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out.ends_with("end\n"), "{last}: {said}");
        // A line for each 16 bytes, and the lines around them.
        let lines = out.lines().filter(|line| line.contains(": ")).count();
        if said.contains("dtrace: 1 drop on CPU 0") {
            assert_eq!(lines, 0, "{last}: {said}");
        } else {
            assert_eq!((lines, said.as_str()), (15 * 256 + last.div_ceil(16), ""), "{last}");
            whole += 1;
        }
    }
    assert!((1..14).contains(&whole), "{whole}");
}

#[test]
fn records_and_aggregations_of_4_mib_are_whole_or_counted() {
    let parts = "tracemem(x, 65536); ".repeat(16);
    let program = |times: usize| {
        format!("char x[65536]; BEGIN {{ {} }} BEGIN {{ printf(\"end\"); exit(0); }}", parts.repeat(times))
    };
    for (times, drops) in [(3, ""), (4, "dtrace: 1 drop on CPU 0\n")] {
        let output = dtrace(&["-q", "-n", &program(times)]);
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        let lines = out.lines().filter(|line| line.contains(": ")).count();
        assert_eq!(lines, if drops.is_empty() { times * 16 * 4096 } else { 0 });
        assert_eq!((said.as_str(), out.ends_with("end\n")), (drops, true));
    }
    // A snapshot of an aggregation that fills aggsize, printed as it is and at the end.
    let program = "int i; tick-1us /i < 100000/ { @[i] = count(); i++; } tick-1us /i == 100000/ { i++; \
                   printf(\"begin\\n\"); printa(\"%d %@d\\n\", @); printf(\"end\\n\"); trunc(@); exit(0); }";
    let output = dtrace(&["-q", "-n", program]);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    let counted = |what: &str| -> usize {
        let line = said.lines().find(|line| line.contains(what));
        line.map_or(0, |line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
    };
    let rows = out.lines().filter(|line| line.ends_with(" 1")).count();
    let dropped = counted("aggregation drop");
    if counted(" drop on CPU 0") > 0 && rows == 0 {
        assert!(!out.contains("begin"), "{said}");
    } else {
        assert!(out.contains("begin") && out.contains("end"), "{said}");
        assert_eq!(rows + dropped, 100_000, "{said}");
    }
}
