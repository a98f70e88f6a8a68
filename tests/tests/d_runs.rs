//! D programs in `trapline run`, in recordings and in snapshots: the guest is as without them, and what they print is the same
//! live, in a replay, of the past, and from a trace file.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::cli::{Ran, trapline};
use tempfile::TempDir;
use trapline_session::{Command, Condition, DSource, GuestBuilder, Limits, Session};
use trapline_tests::root;

/// Aggregations, stacks, strings, speculation, thread-local variables, faulting pointers.
const PROGRAMS: [&str; 10] = [
    "fbt:::entry { @[probefunc, stackdepth] = count(); self->t = timestamp; } \
     fbt:::return /self->t/ { @t = quantize(timestamp - self->t); self->t = 0; }",
    "fbt::kmalloc:entry { trace(*(char *)arg0); trace(*(long *)1); } ERROR { @[arg4, arg5] = count(); }",
    "fbt:::entry { @[stack(5), execname, pid] = sum(arg0); } tick-100us { printa(@); clear(@); }",
    "BEGIN { spec = speculation(); } fbt::kmalloc:entry { speculate(spec); printf(\"%s %d\", probefunc, arg0); } \
     fbt::do_fork:return { commit(spec); spec = speculation(); } END { trace(spec); }",
    "fbt:::entry { p = (char *)alloca(64); bcopy((void *)caller, p, 16); this->x = strjoin(probefunc, \"!\"); \
     @[this->x, substr(this->x, 2)] = max(p[3]); }",
    "fbt::do_fork:entry { printf(\"%s %d %a\\n\", execname, pid, caller); stack(4); ustack(3); trace(timestamp); }",
    "fbt::kmalloc:entry { a[arg0, probefunc] = timestamp; n++; } fbt::do_exit:entry { trace(n); tracemem((void *)caller, 8); } \
     END { @a = lquantize(n, 0, 100, 10); @b = stddev(n); @c = llquantize(n, 2, 0, 6, 2); printa(@b); }",
    "BEGIN { x = strtok(\"a,b,c\", \",\"); } tick-50us { printf(\"%d %d %s\\n\", rand(), i++, x); x = strtok(NULL, \",\"); }",
    "fbt:::entry { @[probefunc] = count(); } fbt::do_wait:entry { trunc(@, 5); printa(\"%s %@d\\n\", @); }",
    "fbt::console_write:entry { @[ustack(), sym(caller)] = avg(arg1); @m[func(caller)] = min(arg1); normalize(@m, 2); }",
];

const GUESTS: [&str; 2] = ["ia32", "x86_64"];

fn start(guest: &str) -> Session {
    GuestBuilder::embedded(guest).memory(32 << 20).start().unwrap()
}

fn insert(session: &mut Session, program: &str) {
    session.apply(Command::D(DSource::clauses(program))).unwrap_or_else(|why| panic!("{program}: {why}"));
}

#[test]
fn d_programs_of_a_run_leave_digest_and_console_as_they_are() {
    for guest in GUESTS {
        let course = |program: Option<&str>| {
            let mut session = start(guest);
            program.into_iter().for_each(|program| insert(&mut session, program));
            session.run_until(&Condition::end(), &Limits::none());
            let hits = session.stats().hits;
            assert!(program.is_none() || hits > 0 && session.observe_only(), "{program:?}: {hits} hits");
            (session.digest().to_string(), session.icount(), session.console().to_vec())
        };
        let unprobed = course(None);
        for program in PROGRAMS {
            assert!(course(Some(program)) == unprobed, "{guest}: {program}");
        }
    }
}

fn ran(folder: &Path, args: &[&str]) -> Ran {
    let ran = trapline(folder, args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran
}

#[test]
fn a_program_prints_the_same_live_in_a_replay_of_the_past_and_from_a_file_at_length() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    for guest in ["embedded:ia32", "embedded:x86_64"] {
        ran(
            folder,
            &["record", guest, "-q", "-o", "none.tlr", "--console", "none", "--checkpoint-insns", "500K"],
        );
        for program in PROGRAMS {
            let record = [
                "record",
                guest,
                "-q",
                "-o",
                "d.tlr",
                "--console",
                "none",
                "-n",
                program,
                "--checkpoint-insns",
                "500K",
            ];
            let live = ran(folder, &record).out;
            assert!(live.lines().count() > 1, "{program}");
            assert!(ran(folder, &["replay", "d.tlr", "--verify", "-q"]).out == live, "{guest}: {program}");
            for of in ["none.tlr", "d.tlr"] {
                assert!(
                    ran(folder, &["replay", of, "-q", "-n", program]).out == live,
                    "{guest}, {of}: {program}"
                );
            }
            for format in ["text", "json", "dtrace"] {
                let direct = ran(folder, &["run", guest, "-q", "-n", program, "-f", format]).out;
                ran(folder, &["run", guest, "-q", "-n", program, "-f", "raw", "-o", "t"]);
                assert!(
                    ran(folder, &["trace", "cat", "t", "-f", format]).out == direct,
                    "{format}: {program}"
                );
                assert!(format != "text" || direct == live, "{program}");
            }
        }
    }
}

#[test]
fn a_snapshot_file_holds_the_state_of_a_d_program() {
    for guest in GUESTS {
        for program in PROGRAMS {
            let mut session = start(guest);
            insert(&mut session, program);
            session.run_until(&Condition::end(), &Limits::insns(1_500_000));
            let file = session.snapshot().to_bytes().unwrap();
            let mut other = start(guest);
            let saved = other.read_snapshot(&file).unwrap();
            other.restore(&saved).unwrap();
            let mut ends = Vec::new();
            for session in [&mut session, &mut other] {
                session.run_until(&Condition::end(), &Limits::none());
                session.apply(Command::End).unwrap();
                let left = session.waiting();
                let records: Vec<_> = session.records().chain(left).collect();
                let end = session.d_ends().pop().unwrap();
                ends.push((session.digest(), records, end.aggregations, end.drops));
            }
            assert!(ends[0] == ends[1], "{guest}: {program}");
        }
    }
}

#[test]
fn travel_goes_through_the_state_of_a_d_program() {
    let mut session = start("ia32");
    insert(&mut session, "fbt::kmalloc:entry { @ = count(); printf(\"%d\", n++); }");
    let early = session.snapshot();
    session.run_until(&Condition::end(), &Limits::none());
    let whole = session.d_ends().pop().unwrap().aggregations;
    let records: Vec<_> = session.records().collect();
    session.restore(&early).unwrap();
    assert!(session.d_ends().pop().unwrap().aggregations[0].entries.is_empty());
    session.run_until(&Condition::end(), &Limits::none());
    assert_eq!(session.d_ends().pop().unwrap().aggregations, whole);
    assert!(session.records().eq(records));
}

#[test]
fn exit_ends_the_run_where_it_is_called() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let program = "BEGIN { trace(\"begin\"); exit(3); } END { trace(\"end\"); }";
    let at_once =
        trapline(folder, &["run", "embedded:ia32", "-q", "-x", "quiet", "-n", program, "--record", "r.tlr"]);
    // The status is the exit code of the run; a replay that is as recorded succeeds.
    assert_eq!((at_once.out.as_str(), at_once.code), ("beginend\n", 3));
    assert_eq!(ran(folder, &["replay", "r.tlr", "--verify", "-q"]).out, at_once.out);
    let program = "fbt::do_fork:entry { printf(\"%d\", icount); exit(0); }";
    let live = ran(folder, &["record", "embedded:ia32", "-o", "r.tlr", "-n", program]);
    assert!(live.err.contains("a handler of -n fbt::do_fork:entry stopped the run"), "{}", live.err);
    assert_eq!(ran(folder, &["replay", "r.tlr", "--verify", "-q"]).out, live.out);
    ran(folder, &["record", "embedded:ia32", "-o", "n.tlr", "-q"]);
    assert_eq!(ran(folder, &["replay", "n.tlr", "-q", "-n", program]).out, live.out);
}

#[test]
fn clauses_of_d_and_rpn_print_in_the_order_of_their_programs() {
    let args =
        ["run", "embedded:ia32", "-q", "-x", "quiet", "--rpn", "fbt::do_fork:entry { push pid; log 1 }"];
    let folder = TempDir::new().unwrap();
    let more = [
        "-n",
        "fbt::do_fork:entry { printf(\"fork %d\\n\", n++); }",
        "-n",
        "fbt::do_exit:entry { trace(n); }",
    ];
    let out = ran(folder.path(), &[&args[..], &more].concat()).out;
    let lines: Vec<&str> = out.lines().take(4).collect();
    let forks = ["DProbes(0,0) probe=fbt:vmlinux:do_fork:entry 01000000", "fork 0"];
    assert_eq!(lines[..2], forks, "{out}");
    // Both clauses of D are one program.
    assert!(out.contains("fork 5\n") && out.lines().any(|line| line.starts_with('6')), "{out}");
}

#[test]
fn what_minus_n_does_not_take_is_refused_with_one_sentence() {
    let folder = TempDir::new().unwrap();
    let refused = |args: &[&str], code: i32| {
        let ran = trapline(folder.path(), &[&["run", "embedded:ia32", "-q"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args:?}: {}", ran.err);
        ran.err
    };
    let rpn = "fbt::do_fork:entry { push pid; log 1 }";
    let said = refused(&["-n", rpn], 2);
    assert_eq!(said, format!("trapline: error: -n takes D, and this clause is RPN: write --rpn '{rpn}'\n"));
    let said = refused(&["-n", "fbt::do_fork:entry { prinf(\"x\"); }"], 3);
    assert!(
        said.starts_with("fbt::do_fork:entry:1:22: error: [D_FUNC_UNDEF] undefined function name: prinf\n"),
        "{said}"
    );
    assert!(said.ends_with("                       ^\n  help: did you mean printf?\n"), "{said}");
    let said = refused(&["-n", "no::such:probe { trace(1); }"], 3);
    assert!(
        said.contains("[D_PDESC_ZERO] probe description no::such:probe does not match any probes"),
        "{said}"
    );
    // The reason is that of a clause in RPN.
    let said = refused(&["-n", "fbt::do_frok:entry { trace(1); }"], 3);
    let reason =
        "probe description fbt::do_frok:entry does not match any probes; did you mean fbt::do_fork:entry?";
    assert!(said.contains(reason), "{said}");
    let said = refused(&["-n", "tick-0s { trace(1); }"], 3);
    assert!(said.contains("[D_PDESC_ZERO] 'tick-0s' is an invalid probe name"), "{said}");
    assert!(refused(&["-x", "nothing", "-n", "BEGIN { exit(0); }"], 2).contains("failed to set -x nothing"));
    assert!(
        refused(&["-x", "quiet", "-n", "fbt::do_fork:entry"], 2)
            .contains("-x has no effect without a D program")
    );
    assert!(refused(&["-n", "BEGIN { stop(); }"], 3).contains("D_"));
    assert!(refused(&["-s", "nosuch.d"], 7).contains("nosuch.d"));
}

#[test]
fn drops_of_a_run_are_told() {
    let folder = TempDir::new().unwrap();
    let program = "int i; tick-100us { a[i] = 1; @[i] = count(); i++; } tick-100us /i == 100/ { exit(0); }";
    let args = ["run", "embedded:ia32", "-q", "-x", "dynvarsize=40", "-x", "aggsize=500", "-n", program];
    let told = ran(folder.path(), &args).err;
    assert!(told.contains("dynamic variable drop") && told.contains("aggregation drop"), "{told}");
    let json = ran(folder.path(), &[&args[..], &["-f", "json"]].concat()).out;
    assert!(json.lines().any(|line| line.starts_with("{\"type\":\"drops\"")), "{json}");
}

#[test]
fn check_and_dis_take_d_programs() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let program = "fbt::do_fork:entry { self->t = timestamp; @a[execname, pid] = count(); }\n\
                   fbt::do_fork:return,fbt::do_exit:entry /self->t/ { n[pid] = 1; self->t = 0; }\n";
    std::fs::write(folder.join("p.d"), program).unwrap();
    let shown = ran(folder, &["check", "p.d", "--guest", "embedded:x86_64"]).out;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[..2], ["p.d: ok for 64 bits", "  2 clauses, observe-only"], "{shown}");
    assert!(
        lines[2].starts_with("  p.d:1: fbt::do_fork:entry: ") && lines[2].ends_with("instructions, 1 probe")
    );
    assert!(lines[4].starts_with("  p.d:2: fbt::do_exit:entry: "), "{shown}");
    for line in
        ["  @a: count() by 2 keys", "  self->t: 8 bytes for each thread", "  n: 8 bytes for each element"]
    {
        assert!(lines.contains(&line), "{shown}");
    }
    assert!(ran(folder, &["check", "p.d"]).out.starts_with("p.d: ok for 32 and 64 bits\n"));
    // The probes of the provider `dtrace` count, as in `matched 3 probes`.
    std::fs::write(folder.join("e.d"), "BEGIN,fbt::do_fork: { trace(1); }\nEND { trace(2); }\n").unwrap();
    let object = ran(folder, &["check", "e.d", "--guest", "embedded:ia32", "-f", "json"]).out;
    let object: serde_json::Value = serde_json::from_str(object.lines().nth(1).unwrap()).unwrap();
    let clauses = object["clauses"].as_array().unwrap().iter();
    let counts: Vec<u64> = clauses
        .flat_map(|clause| clause["descriptions"].as_array().unwrap())
        .map(|description| description["probes"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [1, 2, 1]);
    let listed = ran(folder, &["dis", "p.d"]).out;
    assert!(
        listed.contains("\n        1  ; fbt::do_fork:entry { self->t") && listed.contains("  callk\n"),
        "{listed}"
    );
    assert_eq!(ran(folder, &["check", "p.d", "--disassemble"]).out, listed);
    // The number of instructions is that of the listing.
    let object: serde_json::Value =
        serde_json::from_str(ran(folder, &["dis", "p.d", "-f", "json"]).out.lines().nth(1).unwrap()).unwrap();
    for clause in object["clauses"].as_array().unwrap() {
        assert_eq!(clause["instructions"], clause["code"].as_array().unwrap().len());
    }
    let cases = [
        ("BEGIN { x = ; }", None, 3, "p.d:1:13: error: [D_SYNTAX] syntax error near \";\""),
        ("BEGIN { trace(`no); }", None, 3, "[D_IDENT_UNDEF]"),
        ("fbt::nobody:entry { trace(1); }", None, 0, ""),
        ("fbt::nobody:entry { trace(1); }", Some("embedded:ia32"), 3, "[D_PDESC_ZERO]"),
        ("BEGIN { trace(1); }", Some("nowhere"), 7, "cannot read nowhere"),
    ];
    for (text, guest, code, sentence) in cases {
        std::fs::write(folder.join("p.d"), text).unwrap();
        let args = ["check", "p.d"].into_iter().chain(guest.map(|_| "--guest")).chain(guest);
        let checked = trapline(folder, &args.collect::<Vec<_>>());
        assert!(
            checked.code == code && checked.err.contains(sentence),
            "{text}: {} {}",
            checked.code,
            checked.err
        );
        assert!(!checked.err.contains("--explain"), "{}", checked.err);
    }
}

#[test]
fn faults_and_drops_of_a_program_set_the_exit_code_that_options_ask_for() {
    let folder = TempDir::new().unwrap();
    let run = |options: &[&str]| {
        trapline(folder.path(), &[&["run", "embedded:ia32", "-q", "--console", "none"], options].concat())
    };
    let faulting = "fbt::do_fork:entry { trace(*(int *)0x10); }";
    let dropping = "fbt:::entry { a[icount] = 1; }";
    assert_eq!(run(&["-n", faulting]).code, 0);
    assert_eq!(run(&["-n", faulting, "--fail-on-exception"]).code, 1);
    assert_eq!(run(&["-n", dropping, "--fail-on-exception"]).code, 0);
    assert_eq!(run(&["-n", dropping, "-x", "dynvarsize=64"]).code, 0);
    assert_eq!(run(&["-n", dropping, "-x", "dynvarsize=64", "--fail-on-loss"]).code, 6);
    assert_eq!(run(&["-n", "fbt::do_fork:entry { a[icount] = 1; }", "--fail-on-loss"]).code, 0);
}

/// Whether or not the program keeps only the greatest counts, they are those of functions or of the kernel, not of addresses.
#[test]
fn an_aggregation_has_one_entry_for_all_addresses_of_a_function_or_module() {
    let folder = TempDir::new().unwrap();
    let counts = |keys: &str, end: &str| -> Vec<(String, u64)> {
        let program = format!(
            "profile-20us /arg0/ {{ @[{keys}] = count(); }} END {{ {end} printa(\"%A %@u\\n\", @); }}"
        );
        let program = program.replace("%A", if keys == "arg0" { "%a" } else { "%s" });
        let ran = trapline(
            folder.path(),
            &["run", "embedded:ia32", "-q", "--console", "none", "-x", "quiet", "-n", &program],
        );
        assert_eq!(ran.code, 0, "{}", ran.err);
        let rows = ran.out.lines().filter_map(|line| line.rsplit_once(' '));
        rows.map(|(key, count)| (key.to_owned(), count.trim().parse().unwrap())).collect()
    };
    // The addresses, each by its name and offset.
    let mut expected = std::collections::BTreeMap::new();
    for (name, count) in counts("arg0", "") {
        *expected.entry(name.split('+').next().unwrap().to_owned()).or_insert(0) += count;
    }
    let mut found = counts("func(arg0)", "");
    let most: Vec<u64> = found.iter().rev().take(3).map(|(_, count)| *count).collect();
    let kept: Vec<u64> = counts("func(arg0)", "trunc(@, 3);").iter().rev().map(|(_, count)| *count).collect();
    assert_eq!(kept, most);
    found.sort();
    assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    assert!(found.len() > 5, "{found:?}");
    let sum = found.iter().map(|(_, count)| count).sum();
    assert_eq!(counts("mod(arg0)", ""), [("vmlinux".to_owned(), sum)]);
}

#[test]
fn registers_of_the_program_are_those_of_rpn() {
    for (guest, registers) in [
        ("embedded:ia32", ["eax", "ebx", "ecx", "edx", "esi", "edi", "ebp", "esp", "eip", "cs"]),
        ("embedded:x86_64", ["rax", "rbx", "rcx", "r11", "r12", "r15", "rbp", "rsp", "rip", "ss"]),
    ] {
        let lines = |args: &[&str]| {
            let all = [&["run", guest, "-q", "--console", "none", "-f", "json"][..], args].concat();
            let ran = trapline(&root(), &all);
            assert_eq!(ran.code, 0, "{}", ran.err);
            let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
            ran.out.lines().map(of).collect::<Vec<_>>()
        };
        let at = "fbt::do_fork:entry";
        let pushed: String = registers.iter().map(|name| format!("push u, {name}; log 1; ")).collect();
        let rpn: Vec<String> = lines(&["--rpn", &format!("{at} {{ {pushed} }}")])
            .iter()
            .filter_map(|line| Some(line["data"].as_str()?.to_owned()))
            .collect();
        // The same bytes, the low one first.
        let bytes = if guest == "embedded:ia32" { 4 } else { 8 };
        let printed: String = registers
            .iter()
            .flat_map(|name| (0..bytes).map(move |n| (name.to_uppercase(), 8 * n)))
            .map(|(name, shift)| format!("printf(\"%02x\", (int)(uregs[R_{name}] >> {shift} & 0xff)); "))
            .collect();
        let program = format!("{at} {{ {printed} }}");
        let text = |line: &serde_json::Value| {
            let parts = line["parts"].as_array()?;
            Some(parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<String>())
        };
        let d: Vec<String> = lines(&["-x", "quiet", "-n", &program]).iter().filter_map(text).collect();
        assert!(d == rpn && d.len() >= 3, "{guest}:\n{d:?}\n{rpn:?}");
        // The common names, and the low half of a register.
        let same = "fbt::do_fork:entry { @[uregs[R_PC] == uregs[sizeof (long) == 8 ? R_RIP : R_EIP], \
                    uregs[R_EAX] == (uregs[R_R0] & 0xffffffff), uregs[R_CS] & 3] = count(); }";
        let found = lines(&["-n", same]);
        let entries = &found.iter().find(|line| line["type"] == "aggregation").unwrap()["entries"];
        assert_eq!(entries.as_array().unwrap().len(), 1, "{entries}");
        assert_eq!(entries[0]["keys"], serde_json::json!([1, 1, 3]), "{entries}");
    }
}

#[test]
fn a_fault_is_told_with_its_line() {
    let folder = TempDir::new().unwrap();
    let program =
        "BEGIN\n{\n\tx = 1;\n\ttrace(*(int *)16 + x);\n}\n\nBEGIN\n{\n\ty = 0;\n\ttrace(7 / y);\n}\n";
    std::fs::write(folder.path().join("x.d"), program).unwrap();
    let run = ["run", "embedded:idle", "-q", "--console", "none", "--limit-insns", "1M", "-s", "x.d"];
    let ran = trapline(folder.path(), &run);
    for told in ["invalid address (0x10) at line 4\n", "divide-by-zero at line 10\n"] {
        assert!(ran.err.contains(told), "{}", ran.err);
    }
}

#[test]
fn what_has_no_registers_of_a_program_is_a_fault() {
    let fails = |guest: &str, program: &str| {
        let ran = trapline(&root(), &["run", guest, "-q", "--console", "none", "-n", program]);
        ran.err + &ran.out
    };
    let unknown = fails("embedded:ia32", "fbt::do_fork:entry { trace(uregs[4711]); exit(0); }");
    assert!(unknown.contains("illegal operation"), "{unknown}");
    let wide = fails("embedded:ia32", "fbt::do_fork:entry { trace(uregs[R_RAX]); exit(0); }");
    assert!(wide.contains("illegal operation"), "{wide}");
    let kernel = fails("embedded:idle", "tick-1ms { trace(uregs[R_PC]); exit(0); } ERROR { exit(1); }");
    assert!(kernel.contains("invalid address (0x0)"), "{kernel}");
    let types = fails("embedded:ia32", "fbt::do_fork:entry { trace(progenyof(1)); }");
    assert!(types.contains("progenyof( ) needs the types of a Linux kernel"), "{types}");
}
