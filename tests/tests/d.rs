//! D programs, from the command line to their output; and the published tests of the language, if they are present.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use trapline_session::{CodePointer, Command as Insert, Condition, DSource, GuestBuilder, Limits};
use trapline_tests::{guest, root};

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
    assert_eq!(session.target().symbol(CodePointer::At(ip)).as_deref(), Some("idle"));
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
fn operands_keys_and_arguments_are_evaluated_from_left_to_right() {
    let program = "int v; int a[int, int]; \
        BEGIN { v = 5; printf(\"%d \", v > (v = 3)); v = 5; printf(\"%d \", v <= (v = 3)); \
                v = 2147483647; printf(\"%d \", (v = 2147483647) > (v *= 7)); } \
        BEGIN { v = 5; printf(\"%d \", v + v++); printf(\"%d \", v - (v = 2)); printf(\"%d\\n\", v); } \
        BEGIN { v = 0; a[v++, v++] = 7; printf(\"%d %d \", a[0, 1], a[1, 0]); \
                printf(\"%s \", strjoin(lltostr(v++), lltostr(v++))); printf(\"%d %d\\n\", v++, v++); } \
        BEGIN { p = (char *)alloca(8); v = 0; printf(\"%d \", (v = 2) + (p + v) - p); \
                v = 1; a[v, v] = v++; printf(\"%d %d\\n\", a[1, 1], a[2, 2]); } \
        BEGIN { v = 1; @[v++, v++] = sum(v++); printa(\"%d %d %@d\\n\", @); exit(0); }";
    assert_eq!(shown(&["-q", "-n", program]), "1 0 1 10 4 2\n7 0 23 4 5\n4 0 1\n1 2 3\n\n");
}

#[test]
fn an_element_can_be_changed_while_it_is_assigned_to() {
    let program = "BEGIN { a[1] = 40; a[1] += (a[1] = 0) + 2; printf(\"%d \", a[1]); \
        self->x = 3; printf(\"%d %d \", self->x++, --self->x); s[\"k\", 2] -= 5; printf(\"%d\", s[\"k\", 2]++); \
        printf(\" %d\\n\", s[\"k\", 2]); exit(0); }";
    assert_eq!(shown(&["-q", "-n", program]), "42 3 3 -5 -4\n\n");
}

#[test]
fn a_value_is_cut_to_its_type_by_an_assignment_a_cast_and_as_a_key() {
    let program = "int v; BEGIN { v = 127 + 2147483647; printf(\"%d %d \", v, v < 0); v = 2147483647; \
        printf(\"%d \", (int)(v * 2) < 0); printf(\"%d\\n\", (long long)(int)(127 + 2147483647)); \
        @[v * 2] = count(); @[-2] = count(); printa(\"%d %@d\\n\", @); exit(0); }";
    assert_eq!(shown(&["-q", "-n", program]), "-2147483522 1 1 -2147483522\n-2 2\n\n");
}

/// Found by an outsider: `stringof(copyin(address, length))` failed where the program has no end of a string.
#[test]
fn a_string_ends_with_the_memory_that_was_allocated_for_it() {
    let program = "BEGIN { p = (char *)alloca(3); p[0] = 'a'; p[1] = 'b'; p[2] = 'c'; printf(\"%s\\n\", stringof(p)); } \
        BEGIN { printf(\"%s\", stringof((char *)alloca(0))); } ERROR { exit(0); }";
    assert_eq!(shown(&["-q", "-n", program]), "abc\n\n");
}

#[test]
fn a_fault_leaves_the_variables_of_its_firing() {
    let program = "BEGIN { this->x = 7; this->s = \"text\"; } BEGIN { trace(1 / (this->x - 7)); } \
        ERROR { this->x = 1; this->s = \"other\"; } BEGIN { printf(\"%d %s\\n\", this->x, this->s); exit(0); }";
    assert_eq!(shown(&["-q", "-n", program]), "7 text\n\n");
}

#[test]
fn entries_with_fixed_keys_are_found_again_after_trunc() {
    let program = "int n; tick-1ms { @a[probename, 4, \"k\"] = count(); n++; } \
        tick-1ms /n == 3/ { printa(\"%s %d %s %@d\\n\", @a); trunc(@a); } \
        tick-1ms /n == 5/ { printa(\"%s %d %s %@d\\n\", @a); exit(0); }";
    assert_eq!(shown(&["-q", "-n", program]), "tick-1ms 4 k 3\ntick-1ms 4 k 2\n\n");
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
        ("BEGIN { raise(9); }", "D_UNSUPPORTED"),
        ("BEGIN { speculate(1); chill(1); }", "D_ACT_SPEC"),
        ("BEGIN { trace(curpsinfo); }", "D_UNSUPPORTED"),
    ] {
        let error = refused(program);
        assert!(error.contains(&format!("[{tag}]")), "{program}: {error}");
    }
}

#[test]
fn what_was_computed_is_cut_to_the_type_of_the_variable_that_holds_it() {
    let program = "int x, a; char c; BEGIN { a = 0x7fffffff; x = a + 1; y = (long long)x; c = 100; c = c * 2; \
                   printf(\"%d %d %d %d\", y, x < 0, c, -c); exit(0); }";
    assert_eq!(shown(&["-q", "-n", program]), "-2147483648 1 -56 56\n");
}

#[test]
fn flow_is_indented_and_calls_are_timed() {
    let program = "fbt::do_fork:,fbt::kmalloc: { }";
    let text = shown(&["--guest", "embedded:ia32", "-F", "-n", program]);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], "FUNCTION");
    let fork = lines.iter().position(|line| *line == " -> do_fork").unwrap();
    assert_eq!(lines[fork + 1], "   -> kmalloc");
    assert!(lines[fork + 2].starts_with("   <- kmalloc ") && lines[fork + 2].ends_with(" ns"), "{text}");
    let back = lines[fork..].iter().find(|line| line.starts_with(" <- do_fork")).unwrap();
    assert!(back.ends_with(" us"), "{text}");
    let run = Command::new(crate::cli::binary())
        .args(["run", "embedded:ia32", "-q", "-x", "flowindent", "-n", program])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&run.stdout).contains("\n -> do_fork"), "{run:?}");
    let run = |clause: &str| {
        let mut command = Command::new(crate::cli::binary());
        let output = command.args(["run", "embedded:ia32", "-q", "-F", "-n", clause]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(run(program).contains("\n -> do_fork"));
    let bare = run("fbt::do_fork:,fbt::kmalloc:");
    let lines: Vec<&str> = bare.lines().collect();
    let fork = lines.iter().position(|line| line.starts_with(" -> do_fork")).unwrap();
    assert!(lines[fork + 1].starts_with("   -> kmalloc "), "{bare}");
    assert!(lines[fork + 2].starts_with("   <- kmalloc ") && lines[fork + 2].ends_with(" ns"), "{bare}");
    let back = lines[fork..].iter().find(|line| line.starts_with(" <- do_fork")).unwrap();
    assert!(back.contains(" in ") && back.ends_with(" us"), "{bare}");
}

#[test]
fn probes_are_listed_with_the_types_of_their_arguments() {
    let listed = shown(&["-l"]);
    assert!(listed.starts_with("   ID   PROVIDER") && listed.contains("BEGIN\n"), "{listed}");
    let listed = shown(&["--guest", "embedded:ia32", "-lv", "-n", "fbt::do_fork:entry"]);
    assert!(listed.contains("do_fork entry\n\n\tArgument Types\n"), "{listed}");
    let output = dtrace(&["-e", "-n", "BEGIN { trace(1); }"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn output_is_added_to_the_file_of_minus_o() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("out").display().to_string();
    for _ in 0..2 {
        assert_eq!(shown(&["-q", "-o", &file, "-n", "BEGIN { printf(\"x\"); exit(0); }"]), "");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\nx\n");
}

#[test]
fn a_process_needs_a_guest_that_has_some() {
    for option in [["-c", "ls"], ["-p", "1"]] {
        let output = dtrace(&[&option[..], &["-n", "BEGIN { exit(0); }"]].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            error.contains("-c and -p need a guest with processes; give it with --guest IMAGE"),
            "{error}"
        );
    }
}

#[test]
fn headers_of_c_come_with_d() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("p.d");
    let text = "#include <endian.h>\n#include <limits.h>\nBEGIN { printf(\"%d\", __BYTE_ORDER == __LITTLE_ENDIAN && \
                UINT_MAX == 0xffffffff); exit(0); }\n";
    std::fs::write(&file, text).unwrap();
    let output = dtrace(&["-q", "-C", "-H", "-s", file.to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("endian.h\nlimits.h\n"), "{output:?}");
}

#[test]
fn a_million_keys_stay_within_their_memory() {
    let program = "int i; tick-1us { a[i] = 1; @[i] = count(); i++; } tick-1us /i == 1000000/ { exit(0); }";
    let output = dtrace(&["-q", "-n", program]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let number = |what: &str| -> u64 {
        let line = error.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{error}"));
        line.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
    };
    let shown =
        String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.is_empty()).count() as u64;
    // What is not there was dropped, and every drop was counted.
    assert_eq!(shown + number("aggregation drops"), 1_000_000, "{error}");
    assert!((10_000..1_000_000).contains(&shown), "{shown}");
    assert!((100_000..1_000_000).contains(&number("dynamic variable drops")), "{error}");
}

/// The published tests, where they are.
struct Suite(std::path::PathBuf);

impl Suite {
    /// `None`, with a word about it, if the tests are not there.
    fn find() -> Option<Self> {
        let suite = root().join("../shared/dtrace-suite");
        if suite.join("run").exists() {
            assert!(has_gawk(), "gawk is not installed: run scripts/bootstrap");
            return Some(Self(suite));
        }
        eprintln!("skipped: {} is not there", suite.display());
        None
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("python3").arg(self.0.join("run")).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// All tests, or those of errors.
    fn count(&self, errors: bool) -> usize {
        let is_error = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("err."));
        self.run(&["--list"]).lines().filter(|path| !errors || is_error(path)).count()
    }
}

/// The names of the failing tests, from the runner's output.
fn failing(text: &str) -> BTreeSet<String> {
    assert!(text.contains(" passed, "), "{text}");
    let names = text.lines().filter_map(|line| line.strip_prefix("test/unittest/")?.split_once(": "));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// The tests that a list of ours names.
fn listed(file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("tests").join(file)).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Whether gawk is installed: the filters of some tests need it.
fn has_gawk() -> bool {
    Command::new("gawk").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// How many of the published tests must pass, and what part of those of errors must print exactly what the original
/// prints.
const LEAST_PASSED: usize = 545;
const LEAST_EXACT: f64 = 0.8;

#[test]
fn the_published_tests_of_d_that_pass_go_on_passing() {
    let Some(suite) = Suite::find() else { return };
    let (wrong, of_linux) = (listed("d-suite-failing.txt"), listed("d-suite-linux.txt"));
    let command = format!("{} dtrace", crate::cli::binary().display());
    let text = suite.run(&["--dtrace", &command, "--jobs", "2", "--timeout", "300", "--verbose"]);
    let found = failing(&text);
    let known: BTreeSet<String> = wrong.union(&of_linux).cloned().collect();
    let fresh: Vec<_> = found.difference(&known).collect();
    assert!(fresh.is_empty(), "these passed before: {fresh:?}");
    let passing: Vec<_> = known.difference(&found).collect();
    assert!(passing.is_empty(), "these pass now; take them off the lists: {passing:?}");
    // Those of `of_linux` pass in the test below.
    let passed = suite.count(false) - wrong.len();
    assert!(passed >= LEAST_PASSED, "{passed} pass");
    let exact: usize =
        text.lines().filter_map(|line| line.rsplit_once("exact ")?.1.trim().parse::<usize>().ok()).sum();
    let is_error = |path: &&String| path.rsplit('/').next().is_some_and(|name| name.starts_with("err."));
    let errors = suite.count(true);
    // A test of anything else passes only if it prints exactly what it should.
    let others = suite.count(false) - errors - found.iter().filter(|path| !is_error(path)).count();
    let exact = (exact - others) as f64 / errors as f64;
    assert!(exact >= LEAST_EXACT, "{exact} of the errors have the original's words");
}

#[test]
fn guest_linux_the_published_tests_that_name_the_kernel_pass() {
    let Some(suite) = Suite::find() else { return };
    let command = format!(
        "{} dtrace --guest {} --initrd {} --begin-at 'Memory:'",
        crate::cli::binary().display(),
        guest("linux-cloud-amd64"),
        guest("initramfs-amd64.cpio.gz")
    );
    let paths: Vec<String> =
        listed("d-suite-linux.txt").iter().map(|name| format!("test/unittest/{name}")).collect();
    let options = ["--dtrace", command.as_str(), "--jobs", "2", "--timeout", "300", "--verbose"];
    let arguments: Vec<&str> = options.into_iter().chain(paths.iter().map(String::as_str)).collect();
    let text = suite.run(&arguments);
    assert!(failing(&text).is_empty() && text.contains(&format!("{} passed", paths.len())), "{text}");
}
