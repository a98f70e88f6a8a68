//! `trapline fuzz`, as a user runs it. The fuzzer is a program of its own; `make test` builds it, and where it is not built,
//! only that is tested.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::cli::{Ran, binary, finish, patient, trapline};
use trapline_tests::built::fuzzer;

/// The return address is a pointer into the kernel at every real hit, and only there.
const POINTER: &str = "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\n\
                       push r, esp\npush mem, u32\npush mem, u32\nlog 1\nexit\n";

fn fuzz(folder: &Path, args: &[&str]) -> Ran {
    trapline(folder, &[&["-q", "fuzz", "embedded:ia32", "--mem", "32M"], args].concat())
}

#[test]
fn a_fuzzer_that_is_not_built_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("trapline");
    std::fs::copy(binary(), &alone).unwrap();
    let mut command = patient(&alone);
    command.args(["fuzz", "embedded:ia32", "-n", "fbt::do_fork:entry { trace(arg0); }"]);
    command.current_dir(folder.path());
    let ran = finish(command);
    assert_eq!(ran.code, 2);
    let said = "trapline: error: the fuzzer is not built: `make fuzzer` builds trapline-fuzz beside this program, which takes a \
                few minutes\n";
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", said));
    assert!(!folder.path().join("findings").exists());
}

#[test]
fn a_finding_is_explained_replayed_and_kept_as_a_test() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pointer.rpn"), POINTER).unwrap();
    let search = ["-p", "pointer.rpn", "--execs", "20K", "--seed", "7", "--corpus", "corpus"];
    let ran = fuzz(folder.path(), &search);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let file = "findings/exception-invalid_addr-pointer.rpn-2.tlr";
    assert!(ran.out.contains(&format!("found {file} after ")), "{}", ran.out);
    assert!(ran.out.contains("pointer.rpn: all 5 operations were reached"), "{}", ran.out);
    assert!(
        ran.out.ends_with("nondeterminism, interpreters, exception, truncated, lost, assert\n"),
        "{}",
        ran.out
    );

    let told = trapline(folder.path(), &["fuzz", "--explain", file]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{}", told.out);
    let last = told.out.lines().last().unwrap();
    assert_eq!(
        last,
        "Then the objective exception falls INVALID_ADDR at operation 2 (push mem, u32, line 7)."
    );
    assert!(told.out.contains("; at the real hit "), "{}", told.out);

    let replayed = trapline(folder.path(), &["replay", file, "--verify", "-f", "json"]);
    assert_eq!(replayed.code, 0, "{}", replayed.err);
    assert!(replayed.out.contains("\"exception\":{\"code\":\"0x1\""), "{}", replayed.out);
    let kept = trapline(folder.path(), &["verify", "findings"]);
    assert_eq!(kept.code, 0, "{}{}", kept.out, kept.err);

    // The same seed gives the same again; a corpus is where a later search goes on.
    let states = || std::fs::read_dir(folder.path().join("corpus")).unwrap().count();
    assert!(states() > 0);
    let again = ["-p", "pointer.rpn", "--execs", "20K", "--seed", "7", "--findings", "again"];
    let again = fuzz(folder.path(), &again);
    assert_eq!(again.out.replace("again/", "findings/"), ran.out);
    let on = fuzz(folder.path(), &["-p", "pointer.rpn", "--execs", "300", "--corpus", "corpus"]);
    assert_eq!(on.code, 1, "what was found is found at once: {}", on.out);
}

#[test]
fn a_search_that_was_killed_goes_on_from_the_folder_of_its_findings() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("pointer.rpn"), POINTER).unwrap();
    let first = fuzz(here, &["-p", "pointer.rpn", "--execs", "1", "--findings", "first"]);
    assert!(!first.out.contains("that were kept"), "{}", first.out);
    let mut killed = Running::start(here, &["--findings", "first"]);
    let found = [killed.found(), killed.found()];
    killed.kill();
    // The real hits and the kept states alone: nothing is searched.
    let again = fuzz(here, &["-p", "pointer.rpn", "--execs", "1", "--findings", "first"]);
    assert_eq!(again.code, 1, "{}{}", again.out, again.err);
    assert!(again.out.contains(" states that were kept"), "{}", again.out);
    for file in &found {
        assert!(again.out.contains(&format!("found {file} ")), "{file}: {}", again.out);
        let replayed = trapline(here, &["replay", file, "--verify"]);
        assert_eq!(replayed.code, 0, "{}", replayed.err);
    }
    // Another search does not begin with these states.
    let other = ["-n", "fbt::do_fork:entry { trace(arg0); }", "--execs", "1", "--findings", "first"];
    let other = fuzz(here, &other);
    assert!(other.code == 0 && !other.out.contains("that were kept"), "{}{}", other.out, other.err);
}

/// A handler that looks at ECX in each of its operations; with a plan, it divides by zero if what it looks at is this number.
fn looks(at: &str, fault: Option<u32>) -> String {
    let head = "name = vmlinux\nmodtype = kernel\ngvars = 1\noffset = kmalloc\nopcode = 0x55\n";
    match fault {
        None => format!("{head}{at}log 1\nexit\n"),
        Some(value) => format!("{head}push 1\n{at}push {value:#x}\nxor\ndiv\nlog 1\nexit\n"),
    }
}

#[test]
fn every_handler_of_a_site_is_searched() {
    if fuzzer().is_none() {
        return;
    }
    trapline_tests::turns::take().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (many, planted) in (2..=5).flat_map(|many| (0..many).map(move |planted| (many, planted))) {
        let names: Vec<String> = (0..many).map(|n| format!("h{n}.rpn")).collect();
        for (n, name) in names.iter().enumerate() {
            let fault = (n == planted).then_some(0x4711_0000 + n as u32);
            std::fs::write(here.join(name), looks("push r, ecx\n", fault)).unwrap();
        }
        let probes: Vec<&str> = names.iter().flat_map(|name| ["-p", name.as_str()]).collect();
        for seed in ["0", "1", "2", "3", "4"] {
            let findings = format!("f{many}{planted}{seed}");
            let search = ["--execs", "20K", "--seed", seed, "--findings", &findings];
            let ran = fuzz(here, &[&probes[..], &search].concat());
            assert_eq!(ran.code, 1, "{findings}: {}{}", ran.out, ran.err);
            let file = format!("{findings}/exception-divide_by_zero-h{planted}.rpn-4.tlr");
            assert_eq!(first(&ran), file, "{}", ran.out);
            assert!(ran.out.contains("\n1 finding; "), "{}", ran.out);
            let told = trapline(here, &["fuzz", "--explain", &file]);
            let says = format!("at operation 4 of h{planted}.rpn (div, line 10).");
            assert!(told.out.contains(&says), "{}{}", told.out, told.err);
            let replayed = trapline(here, &["replay", &file, "--verify"]);
            assert_eq!(replayed.code, 0, "{}", replayed.err);
            let says = format!("h{planted}.rpn:10: error on probe (0,0): divide-by-zero");
            assert!(replayed.err.contains(&says), "{}", replayed.err);
        }
    }
}

/// What a handler changes, later ones at the site see: registers, memory, global variables.
#[test]
fn a_handler_sees_what_earlier_ones_at_its_site_have_changed() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let add = "push r, ecx\npush 1\nadd\n";
    let ways = [
        ("register", format!("{add}pop r, ecx\npush 0\n"), "push r, ecx\n"),
        (
            "memory",
            format!("push 16\npush r, esp\nsub\n{add}pop mem, u32\npush 0\n"),
            "push 16\npush r, esp\nsub\npush mem, u32\n",
        ),
        ("global", format!("{add}pop gv, 0\npush 0\n"), "push gv, 0\n"),
    ];
    for (way, changes, sees) in ways {
        std::fs::write(here.join("changes.rpn"), looks(&changes, None)).unwrap();
        std::fs::write(here.join("sees.rpn"), looks(sees, Some(0x4712))).unwrap();
        let search = ["-p", "changes.rpn", "-p", "sees.rpn", "--fix", "variables", "--execs", "50K"];
        let ran = fuzz(here, &[&search[..], &["--findings", way]].concat());
        assert_eq!(ran.code, 1, "{way}: {}{}", ran.out, ran.err);
        let file = ran.out.lines().find(|line| line.contains("divide_by_zero-sees.rpn"));
        let file = file.unwrap().split(' ').nth(1).unwrap().to_owned();
        let told = trapline(here, &["fuzz", "--explain", &file]);
        assert!(told.out.contains("\n  register ecx is 0x4711; at the real hit it is 0x"), "{}", told.out);
        let replayed = trapline(here, &["replay", &file, "--verify"]);
        assert_eq!(replayed.code, 0, "{}", replayed.err);
        assert!(replayed.err.contains("sees.rpn:"), "{way}: {}", replayed.err);
        assert!(!replayed.err.contains("changes.rpn:"), "{way}: {}", replayed.err);
    }
}

#[test]
fn what_was_not_searched_or_reached_is_named_and_the_exit_code_says_so() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "BEGIN { trace(1); }\nfbt::kmalloc:entry { trace(arg0); }\nfbt::panic:entry { trace(2); }\n\
                  fbt::kmalloc:return { trace(arg1); }\n";
    std::fs::write(folder.path().join("all.d"), script).unwrap();
    let ran = fuzz(folder.path(), &["-s", "all.d", "--execs", "2K"]);
    assert_eq!(ran.code, 124, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("not searched: all.d:3 (no hit that is kept"), "{}", ran.out);
    assert!(ran.out.contains("not searched: all.d:1 (they do not run before an instruction)"), "{}", ran.out);
    assert!(ran.out.contains("all.d:2: all ") && ran.out.contains("all.d:4: all "), "{}", ran.out);
    std::fs::write(folder.path().join("dead.rpn"), looks("push r, ecx\njmp on\npush 2\non:\n", None))
        .unwrap();
    let ran = fuzz(folder.path(), &["-p", "dead.rpn", "--execs", "2K"]);
    assert_eq!(ran.code, 124, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("dead.rpn: 4 of 5 operations were reached; not: 2 push 0x2"), "{}", ran.out);
    let ran = fuzz(folder.path(), &["-n", "fbt::kmalloc:entry { trace(arg0); }", "--execs", "2K"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

#[test]
fn clauses_of_a_d_program_are_told_apart() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let clauses = "fbt::kmalloc:entry { self->n = arg0; @[execname] = quantize(arg0); }\n\
                   fbt::kmalloc:return /self->n/ { assert(arg1 != 4919); trace(stringof(arg1)); self->n = 0; }\n\
                   fbt::do_fork:entry { trace(*(int *)(arg0 + 6)); }\n";
    std::fs::write(folder.path().join("d.d"), clauses).unwrap();
    let ran = fuzz(folder.path(), &["-s", "d.d", "--execs", "20K", "--hits", "12"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let found: Vec<_> = ran.out.lines().filter_map(|line| line.strip_prefix("found ")).collect();
    for line in &found {
        let file = line.split(' ').next().unwrap();
        // Only the second clause asserts; a number that the others read is not the number of a service.
        assert!(!file.contains("assert") || file.contains("assert-d.d-2-"), "{file}");
        let told = trapline(folder.path(), &["fuzz", "--explain", file]);
        assert_eq!((told.code, told.err.as_str()), (0, ""), "{}", told.out);
        for value in told.out.lines().filter_map(|line| line.split_once(" is ")) {
            let (own, real) = value.1.split_once("; at the real hit it is ").unwrap_or((value.1, ""));
            assert_ne!(own, real, "a difference is none: {}", told.out);
        }
    }
    assert!(found.iter().any(|line| line.contains("/assert-d.d-2-")), "{}", ran.out);
    assert!(
        ran.out.contains("d.d:1: ") && ran.out.contains("d.d:2: ") && ran.out.contains("d.d:3: "),
        "{}",
        ran.out
    );
    let kept = trapline(folder.path(), &["verify", "findings"]);
    assert_eq!(kept.code, 0, "{}{}", kept.out, kept.err);
}

#[test]
fn output_that_cannot_be_written_is_one_sentence() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pointer.rpn"), POINTER).unwrap();
    let search = |out: std::fs::File| {
        let mut command = std::process::Command::new(binary());
        command.args(["-q", "fuzz", "embedded:ia32", "-p", "pointer.rpn", "--execs", "2K"]);
        let child = command.current_dir(folder.path()).stdout(out).stderr(std::process::Stdio::piped());
        let output = child.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let says = "trapline: error: cannot write standard output: No space left on device\n";
    assert_eq!(search(full), (Some(7), says.to_owned()));
}

#[test]
fn assertions_of_d_and_bytes_that_must_not_be_logged_are_found() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ran = fuzz(folder.path(), &["--execs", "20K", "-n", "fbt::kmalloc:entry { assert(arg0 != 4919); }"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("found findings/assert-"), "{}", ran.out);
    let fine = ["--execs", "2K", "--findings", "none", "-n", "fbt::kmalloc:entry { trace(arg0); }"];
    let ran = fuzz(folder.path(), &fine);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.lines().last().unwrap().starts_with("nothing was found; objectives: "), "{}", ran.out);
}

/// One mistake that is behind a comparison, found within so many executions; returns what was printed and the finding in words.
fn found(what: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let ran = fuzz(folder.path(), what);
    assert_eq!(ran.code, 1, "{what:?}: {}{}", ran.out, ran.err);
    let told = trapline(folder.path(), &["fuzz", "--explain", &first(&ran)]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{}", told.out);
    (ran.out, told.out)
}

#[test]
fn texts_that_are_compared_are_tried() {
    if fuzzer().is_none() {
        return;
    }
    let clauses = [
        ("fbt::do_fork:entry / execname == \"crash\" / { assert(0); }", "the task's name is \"crash\""),
        ("fbt::do_fork:entry / stringof(arg0) == \"crash\" / { assert(0); }", "63 72 61 73 68"),
    ];
    for (clause, says) in clauses {
        let (_, told) = found(&["--execs", "20K", "--no-objective", "exception", "-n", clause]);
        assert!(told.contains(says), "{told}");
    }
}

#[test]
fn variables_that_are_compared_are_solved_with_one_hit() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let code = "name = vmlinux\nmodtype = kernel\nvars = 1\noffset = do_fork\nopcode = 0x55\n\
                push lv, 0\npush 777\nsub\njnz a\npush 0\npush 6\ncallk\na:\ninc lv, 0\nexit\n";
    let path = folder.path().join("lv.rpn");
    std::fs::write(&path, code).unwrap();
    let (out, told) = found(&["--execs", "20K", "-p", path.to_str().unwrap()]);
    assert!(out.contains(": 1 hit, 1 difference"), "{out}");
    assert!(told.contains("local variable 0 is 0x309 before the handler runs"), "{told}");
    let d = "int y; int x; fbt::do_fork:entry { y = x; assert(x != 777); x = 1; }";
    let (out, told) = found(&["--execs", "20K", "-n", d]);
    assert!(out.contains(": 1 hit, 1 difference"), "{out}");
    assert!(told.contains("the variable x is 0x309 before the handler runs"), "{told}");
}

#[test]
fn faults_of_d_have_the_names_of_exceptions() {
    if fuzzer().is_none() {
        return;
    }
    let clause = "fbt::do_fork:entry { this->s = copyinstr(arg1); trace(this->s[0]); }";
    let only = ["--objective", "exception=INVALID_ADDR", "--execs", "5K", "-n", clause];
    let (out, told) = found(&only);
    assert!(out.contains("exception-invalid_addr-"), "{out}");
    assert!(told.contains("falls INVALID_ADDR at operation "), "{told}");
}

#[test]
fn a_function_that_is_not_called_is_one_sentence() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let never = ["--function", "fbt::do_fork:return", "--input", "ebx", "--limit-insns", "1K"];
    let ran = fuzz(folder.path(), &never);
    assert_eq!(ran.code, 2, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("fbt::do_fork:return is not hit in 1000 instructions"), "{}", ran.err);
}

/// The name of the first finding.
fn first(ran: &Ran) -> String {
    let line = ran.out.lines().find_map(|line| line.strip_prefix("found "));
    let line = line.unwrap_or_else(|| panic!("nothing was found: {}{}", ran.out, ran.err));
    line.split(' ').next().unwrap().to_owned()
}

#[test]
fn a_mistake_in_a_drivers_parser_is_found_through_the_function() {
    if fuzzer().is_none() {
        return;
    }
    for guest in ["embedded:planted", "embedded:planted-ia32"] {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let search = |more: &[&str]| {
            let what = ["--function", "fbt::vortex_control:entry", "--input", "arg0:arg1", "--mem", "32M"];
            trapline(here, &[&["-q", "fuzz", guest], &what[..], more].concat())
        };
        let ran = search(&["--execs", "20K", "--seed", "0"]);
        assert_eq!(ran.code, 1, "{guest}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains("returned, the longest after "), "{}", ran.out);
        let found = first(&ran);
        let again = search(&["--execs", "20K", "--seed", "0", "--findings", "again"]);
        assert_eq!(again.out.replace("again/", "findings/"), ran.out, "{guest}");
        let told = trapline(here, &["fuzz", "--explain", &found]);
        assert_eq!((told.code, told.err.as_str()), (0, ""), "{}", told.out);
        let last = told.out.lines().last().unwrap();
        assert!(last.starts_with("Then the objective ") && last.contains("vortex_control"), "{last}");
        let replayed = trapline(here, &["replay", &found, "--verify"]);
        assert!([0, 4].contains(&replayed.code), "{guest}: {}", replayed.err);
        let kept = trapline(here, &["verify", "findings"]);
        assert_eq!(kept.code, 0, "{}{}", kept.out, kept.err);
    }
}

/// What users of the fuzzer have found: clauses of a firing share `this`, other hits of a program are no calls, programs of files with
/// one name have a finding each, the handler that writes is blamed, and a handler that no call runs is named.
#[test]
fn findings_are_of_the_handler_and_the_call_that_they_name() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let this = "fbt::do_fork:entry { this->p = arg0; } fbt::do_fork:entry { trace(this->p); }";
    let ran = fuzz(here, &["-n", this, "--execs", "2K", "--findings", "this"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);

    let function = ["--function", "fbt::vortex_control:entry", "--input", "rsi", "--execs", "300"];
    let elsewhere = "fbt::vortex_control:entry { x = arg1; } fbt::do_fork:entry { assert(0); }";
    let of_planted = [&["-q", "fuzz", "embedded:planted", "-n", elsewhere], &function[..]].concat();
    let ran = trapline(here, &of_planted);
    assert_eq!(ran.code, 124, "{}{}", ran.out, ran.err);
    assert!(
        ran.out.contains("\nnot run: -n fbt::vortex_control:entry:1.2 (no call hits them)\n"),
        "{}",
        ran.out
    );

    let program = |code: &str| {
        format!("name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\n{code}exit\n")
    };
    for (n, number) in ["0x4711", "0x4712"].into_iter().enumerate() {
        let writes = format!("push r, eax\npush {number}\nsub\njz it\nexit\nit:\npush 5\npop r, ebp\n");
        std::fs::create_dir(here.join(format!("p{n}"))).unwrap();
        std::fs::write(here.join(format!("p{n}/x.rpn")), program(&writes)).unwrap();
    }
    std::fs::write(here.join("logs.rpn"), program("push r, eax\nlog 1\n")).unwrap();
    let programs = ["-p", "logs.rpn", "-p", "p0/x.rpn", "-p", "p1/x.rpn"];
    let ran = fuzz(here, &[&programs[..], &["--continue", "1000", "--execs", "5K"]].concat());
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    for file in ["findings/guest-differs-x.rpn-0.tlr", "findings/guest-differs-x.rpn-2-0.tlr"] {
        assert!(here.join(file).exists(), "{file}: {}", ran.out);
    }
    assert!(ran.out.contains("\n2 findings; "), "{}", ran.out);
}

#[test]
fn each_assertion_and_each_return_that_is_lost_is_one_finding() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let asserts = "fbt::vortex_control:entry { assert(*(char *)arg0 >= 0); assert(*(char *)(arg0 + 1) >= 0); }\n\
                   fbt::vortex_control:return { assert((int)arg1 == -1); }\n";
    std::fs::write(here.join("three.d"), asserts).unwrap();
    let what = ["--function", "fbt::vortex_control:entry", "--input", "arg0:arg1", "--execs", "60K"];
    let of_image = [&["-q", "fuzz", "embedded:planted", "-s", "three.d"], &what[..]].concat();
    let ran = trapline(here, &of_image);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let found = |with: &str| ran.out.lines().filter(|line| line.contains(with)).count();
    assert_eq!((found("/assert-three.d-1-"), found("/assert-three.d-2-")), (2, 1), "{}", ran.out);
    assert_eq!((found("after-vortex_control"), found("found ")), (1, 4), "{}", ran.out);
    let told = trapline(here, &["fuzz", "--explain", &first(&ran)]);
    assert!(told.out.contains("Then the objective assert falls at operation "), "{}{}", told.out, told.err);
}

#[test]
fn a_function_is_searched_in_a_recording_without_its_probe_as_in_the_image() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let recorded = trapline(here, &["-q", "run", "embedded:planted", "--record", "plain.tlr"]);
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    let what = ["--function", "fbt::vortex_control:entry", "--input", "arg0:arg1", "--execs", "7K"];
    let search = |of: &str, findings: &str| {
        let ran = trapline(here, &[&["-q", "fuzz", of], &what[..], &["--findings", findings]].concat());
        assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
        ran.out.replace(findings, "")
    };
    let of_image = search("embedded:planted", "image");
    assert_eq!(search("plain.tlr", "recording"), of_image);
    assert_eq!(search("image/run.tlr", "again"), of_image);
}

#[test]
fn a_handler_that_asserts_watches_a_function() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let watch = "fbt::vortex_control:return { assert((int)arg1 == -1); }";
    let what = ["--function", "fbt::vortex_control:entry", "--input", "arg0:arg1", "--hits", "1"];
    let ran = trapline(
        folder.path(),
        &[&["-q", "fuzz", "embedded:planted", "-n", watch, "--execs", "60K"], &what[..]].concat(),
    );
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("found findings/assert-"), "{}", ran.out);
    let long = ["--objective", "insns=300", "--execs", "20K", "--findings", "long"];
    let ran = trapline(folder.path(), &[&["-q", "fuzz", "embedded:planted"], &what[..], &long[..]].concat());
    assert!(ran.out.contains("found long/insns-fbt--vortex_control-entry-0.tlr"), "{}{}", ran.out, ran.err);
}

#[test]
fn a_handler_that_changes_the_guest_is_told_from_one_that_observes() {
    if fuzzer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // It writes only if it sees what no real hit has.
    let writes = "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\n\
                  push r, esi\npush 0x4711\nsub\njz bad\nexit\nbad:\npush 0x5000\npop r, esi\nexit\n";
    let writes = writes.replace("push 0x5000\npop r, esi", "push r, esp\npush 0\npop mem, u32");
    std::fs::write(folder.path().join("writes.rpn"), writes).unwrap();
    let ran = fuzz(folder.path(), &["-p", "writes.rpn", "--continue", "1000", "--execs", "2K"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("found findings/guest-"), "{}", ran.out);
    let found = first(&ran);
    let told = trapline(folder.path(), &["fuzz", "--explain", &found]);
    assert!(told.out.contains("What the handlers write goes to the guest."), "{}{}", told.out, told.err);
    let replayed = trapline(folder.path(), &["replay", &found, "--verify"]);
    assert!([0, 4].contains(&replayed.code), "{}", replayed.err);
    // What a handler sees is so in the guest if it writes: it may write what is there, and must not repair what is wrong.
    let head = "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\n";
    let same = "push r, esp\npush r, esp\npush mem, u32\npop mem, u32\npush r, edi\npop r, edi\nexit\n";
    let repairs = "push r, ebx\npush 0x1234\nsub\njz bad\nexit\nbad:\npush 0\npop r, ebx\nexit\n";
    for (name, code, differs) in [("same.rpn", same, false), ("repairs.rpn", repairs, true)] {
        std::fs::write(folder.path().join(name), format!("{head}{code}")).unwrap();
        let on = ["--continue", "1000", "--execs", "2K", "--no-objective", "exception"];
        let ran = fuzz(
            folder.path(),
            &[&["-p", name, "--findings", name.trim_end_matches(".rpn")], &on[..]].concat(),
        );
        assert_eq!(ran.code, i32::from(differs), "{name}: {}{}", ran.out, ran.err);
        if differs {
            let found = first(&ran);
            let told = trapline(folder.path(), &["fuzz", "--explain", &found]);
            let says = "in the guest, too: register ebx is 0x1234; at the real hit it is 0x";
            assert!(told.out.contains(says), "{}{}", told.out, told.err);
            let replayed = trapline(folder.path(), &["replay", &found, "--verify"]);
            assert_eq!(replayed.code, 0, "{}", replayed.err);
        }
    }
    let observes = ["-n", "fbt::do_fork:entry { trace(arg0 + pid); }", "--continue", "1000", "--execs", "5K"];
    let ran = fuzz(folder.path(), &[&observes[..], &["--findings", "none"]].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

/// A handler whose assertion fails for one value of EAX alone, which no search guesses.
fn hidden(eax: u32) -> String {
    let mixed = eax.wrapping_mul(0x9e37_79b1);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca77);
    let mixed = mixed ^ mixed >> 13;
    format!(
        "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\npush r, eax\npush 0x9e3779b1\nmul\n\
         dup 1\nshr 15\nxor\npush 0x85ebca77\nmul\ndup 1\nshr 13\nxor\npush {mixed:#x}\nsub\njz bad\nexit\nbad:\n\
         push 0\npush 6\ncallk\nexit\n"
    )
}

/// A search that runs until it is killed, and its output.
struct Running(std::process::Child, std::io::Lines<std::io::BufReader<std::process::ChildStdout>>);

impl Running {
    fn start(folder: &Path, args: &[&str]) -> Self {
        let mut command = std::process::Command::new(binary());
        command.args(["-q", "fuzz", "first/run.tlr", "--execs", "1000000G"]).args(args).current_dir(folder);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        Self(child, lines)
    }

    /// Waits for a finding; returns its file.
    fn found(&mut self) -> String {
        let line = self.1.find_map(|line| line.unwrap().strip_prefix("found ").map(str::to_owned));
        line.expect("it ends without a finding").split(' ').next().unwrap().to_owned()
    }

    /// Ends it by SIGKILL.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn processes_that_join_share_findings_and_lose_nothing_when_they_are_killed() {
    if fuzzer().is_none() {
        return;
    }
    trapline_tests::turns::take().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("hidden.rpn"), hidden(0x1234_5678)).unwrap();
    let alone = fuzz(here, &["-p", "hidden.rpn", "--execs", "50K", "--findings", "first"]);
    assert_eq!(alone.code, 124, "one process alone does not find it: {}{}", alone.out, alone.err);
    // The corpus of one process holds the value.
    std::fs::create_dir(here.join("corpus")).unwrap();
    let value =
        "{\"Word\":{\"what\":{\"Register\":{\"user\":false,\"register\":\"rax\"}},\"value\":305419896}}";
    let state = format!("{{\"first\":0,\"hits\":[[{value}]]}}");
    std::fs::write(here.join("corpus/value.json"), state).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut one = Running::start(here, &["--broker", &free, "--findings", "one", "--corpus", "corpus"]);
    let first = one.found();
    let mut two = Running::start(here, &["--join", &free, "--findings", "two"]);
    let second = two.found();
    assert_eq!(second, first.replace("one/", "two/"));
    two.kill();
    one.kill();
    for file in [first, second] {
        let replayed = trapline(here, &["replay", &file, "--verify"]);
        assert_eq!(replayed.code, 0, "{file}: {}", replayed.err);
    }
}

#[test]
fn searches_that_cannot_begin_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let one = |args: &[&str], code: i32, says: &str| {
        let ran = trapline(folder.path(), args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(says) && ran.err.lines().count() == 1, "{args:?}: {}", ran.err);
    };
    one(
        &["fuzz", "embedded:ia32", "-n", "fbt::do_fork:entry", "--objective", "speed"],
        2,
        "there is no objective `speed`",
    );
    one(&["fuzz", "--explain", "missing.tlr"], 7, "missing.tlr");
    one(&["fuzz", "embedded:ia32"], 2, "there is no handler to search: use -p, -s, -n or --rpn");
    let function = ["fuzz", "embedded:ia32", "--function", "fbt::kmalloc:entry"];
    one(&function, 2, "--function needs an input that is changed");
    one(
        &[&function[..], &["--input", "ebx", "--until", "hit:3"]].concat(),
        2,
        "--until hit:3: write `return`",
    );
    one(
        &["fuzz", "embedded:ia32", "--function", "fbt::kmalloc:entry { exit }", "--input", "ebx"],
        2,
        "without a handler",
    );
    one(
        &["fuzz", "embedded:ia32", "-n", "fbt::do_fork:entry", "--objective", "insns=3"],
        2,
        "give --continue or --function",
    );
    if fuzzer().is_some() {
        let never = [
            "-q",
            "fuzz",
            "embedded:planted",
            "--mem",
            "32M",
            "--function",
            "fbt::vortex_control:entry",
            "--hits",
            "1",
        ];
        one(
            &[&never[..], &["--input", "0x0:0xfff"]].concat(),
            2,
            "--input 0x0:0xfff: at hit 1, 0x0 cannot be written",
        );
        one(
            &[&never[..], &["--input", "ebx", "--broker", "10.0.0.1:5"]].concat(),
            2,
            "use 0.0.0.0:5 for other machines",
        );
        one(
            &[&never[..], &["--input", "ebx", "--join", "127.0.0.1:1"]].concat(),
            7,
            "cannot join 127.0.0.1:1: Connection refused\n",
        );
        let returns =
            never.map(|arg| if arg.starts_with("fbt") { "fbt::vortex_control:return" } else { arg });
        one(
            &[&returns[..], &["--input", "ebx"]].concat(),
            2,
            "the function returns at once: use the probe at",
        );
    }
    if fuzzer().is_some() {
        let never =
            ["-q", "fuzz", "embedded:ia32", "-n", "fbt::do_fork:entry { trace(1); }", "--limit-insns", "1K"];
        one(&never, 2, "no handler runs before an instruction");
    }
}
