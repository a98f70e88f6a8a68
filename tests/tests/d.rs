//! D programs, from the command line to their output; and the published tests of the language, if they are present.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use trapline_session::{Command as Insert, Condition, DSource, GuestBuilder, Limits};
use trapline_tests::root;

fn dtrace(arguments: &[&str]) -> Output {
    Command::new(crate::cli::binary()).arg("dtrace").args(arguments).output().unwrap()
}

/// Standard output of a program that ends with 0.
fn shown(arguments: &[&str]) -> String {
    let output = dtrace(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(program: &str) -> String {
    let output = dtrace(&["-xerrtags", "-n", program]);
    assert_eq!(output.status.code(), Some(1), "{program}");
    assert!(output.stdout.is_empty(), "{program}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_script_of_begin_needs_no_guest_and_no_time() {
    let text = shown(&["-q", "-n", "BEGIN { printf(\"%d %s %d\\n\", 6 * 7, probename, icount); exit(0); }"]);
    assert_eq!(text, "42 BEGIN 1595\n\n");
}

#[test]
fn begin_fires_when_the_idle_guest_is_idle() {
    let mut session = GuestBuilder::embedded("idle").memory(4 << 20).start().unwrap();
    session.run_until(&Condition::end(), &Limits::insns(1595));
    let ip = session.core().env().eip();
    assert_eq!(session.target().symbol(ip).as_deref(), Some("idle"));
}

#[test]
fn exit_gives_the_status_and_end_runs_after_it() {
    let output = dtrace(&["-q", "-n", "BEGIN { exit(3); } tick-1ms { trace(1); } END { trace(\"end\"); }"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "end\n");
}

#[test]
fn a_fault_runs_error_and_the_program_goes_on() {
    let program = "BEGIN { x = *(int *)16; trace(x); } BEGIN { trace(\"on\"); exit(0); } \
                   ERROR { printf(\"%d %d \", arg4, arg5); }";
    let output = dtrace(&["-q", "-n", program]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 16 on\n");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("for probe ID 1 (dtrace:::BEGIN): invalid address (0x10)"), "{error}");
}

#[test]
fn aggregations_count_what_the_guest_does() {
    let program = "fbt::do_fork:entry { @forks = count(); } fbt::kmalloc:entry { @sizes = quantize(arg0); n++; } \
                   END { printf(\"%d\", n); }";
    let text = shown(&["--guest", "embedded:x86_64", "-q", "-n", program]);
    // The kernel prints its own counts: 6 forks, 29 kmallocs.
    assert!(text.starts_with("29\n"), "{text}");
    assert!(text.contains(&format!("\n {:>16}\n", 6)), "{text}");
    let counts: u64 = text
        .lines()
        .filter(|line| line.contains(" |"))
        .map(|line| line.split_whitespace().last().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(counts, 29, "{text}");
}

/// Digest and instruction count of a whole run, with a D program or without.
fn course(guest: &str, program: Option<&str>) -> (String, u64) {
    let mut session = GuestBuilder::embedded(guest).start().unwrap();
    if let Some(program) = program {
        session.apply(Insert::D(DSource::clauses(program))).unwrap();
        assert!(session.observe_only(), "{program}");
    }
    session.run_until(&Condition::end(), &Limits::insns(u64::MAX));
    if program.is_some() {
        let hits = session.stats().hits;
        assert!(hits > 100, "{program:?}: {hits} hits");
    }
    (session.digest().to_string(), session.icount())
}

#[test]
fn d_programs_leave_the_guest_as_it_is() {
    let programs = [
        "fbt:::entry { @[probefunc, stackdepth] = count(); self->t = timestamp; s[probefunc] = timestamp; } \
         fbt:::return /self->t/ { @t = quantize(timestamp - self->t); self->t = 0; }",
        "fbt:::entry { trace(*(char *)arg0); } ERROR { @[arg4] = count(); }",
        "fbt:::entry { @[stack(5), execname, pid] = sum(arg0); } tick-100us { printa(@); clear(@); }",
        "BEGIN { spec = speculation(); } fbt:::entry { speculate(spec); printf(\"%s %d\", probefunc, arg0); } \
         fbt::do_fork:return { commit(spec); spec = speculation(); }",
        "fbt:::entry { p = (char *)alloca(64); bcopy((void *)caller, p, 16); this->x = strjoin(probefunc, \"!\"); \
         @[this->x, substr(this->x, 2)] = max(p[3]); }",
    ];
    for guest in ["ia32", "x86_64"] {
        let unprobed = course(guest, None);
        for program in programs {
            assert_eq!(course(guest, Some(program)), unprobed, "{guest}: {program}");
        }
    }
}

#[test]
fn drops_are_counted_and_reported() {
    let program = "int i; tick-1ms { a[i] = 1; @[i] = count(); i++; } tick-1ms /i == 100/ { exit(0); }";
    let output = dtrace(&["-q", "-x", "dynvarsize=40", "-x", "aggsize=500", "-n", program]);
    assert!(output.status.success());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("dynamic variable drops") && error.contains("aggregation drops on CPU 0"),
        "{error}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).lines().count() < 30);
}

#[test]
fn errors_have_the_tags_of_dtrace() {
    for (program, tag) in [
        ("BEGIN { c = 123 / (7 - 7); }", "D_DIV_ZERO"),
        ("BEGIN { trace(x); }", "D_IDENT_UNDEF"),
        ("no::such:probe { trace(1); }", "D_PDESC_ZERO"),
        ("BEGIN { printf(\"%d\"); }", "D_PRINTF_ARG_PROTO"),
        ("BEGIN { @ = f(); }", "D_FUNC_UNDEF"),
        ("BEGIN { trace(`jiffies); }", "D_IDENT_UNDEF"),
        ("BEGIN { panic(); }", "D_UNSUPPORTED"),
        ("BEGIN { trace(curpsinfo); }", "D_UNSUPPORTED"),
    ] {
        let error = refused(program);
        assert!(error.contains(&format!("[{tag}]")), "{program}: {error}");
    }
}

/// The names of the failing tests, from the runner's output.
fn failing(suite: &Path) -> BTreeSet<String> {
    let command = format!("{} dtrace", crate::cli::binary().display());
    let output = Command::new("python3")
        .arg(suite.join("run"))
        .args(["--dtrace", &command, "--jobs", "2", "--timeout", "10", "--verbose"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(" passed, "), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let names = text.lines().filter_map(|line| line.strip_prefix("test/unittest/")?.split_once(": "));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// Whether gawk is installed: the filters of some tests need it.
fn has_gawk() -> bool {
    Command::new("gawk").arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn the_published_tests_of_d_that_pass_go_on_passing() {
    let suite = root().join("../shared/dtrace-suite");
    if !suite.join("run").exists() || !has_gawk() {
        eprintln!("skipped: {} or gawk is not there", suite.display());
        return;
    }
    let known = std::fs::read_to_string(root().join("tests/d-suite-failing.txt")).unwrap();
    let known: BTreeSet<String> =
        known.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let found = failing(&suite);
    let fresh: Vec<_> = found.difference(&known).collect();
    assert!(fresh.is_empty(), "these passed before: {fresh:?}");
    let passing: Vec<_> = known.difference(&found).collect();
    assert!(passing.is_empty(), "these pass now; take them off tests/d-suite-failing.txt: {passing:?}");
}
