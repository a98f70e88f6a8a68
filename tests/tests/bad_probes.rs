//! Invalid probes by name: descriptions, clauses, and files with hostile tables. Each error is reported in one
//! sentence, before the guest runs, and valid probes beside it work.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::fmt::Write as _;
use std::path::Path;

use crate::cli::{Ran, finish, patient, trapline};
use tempfile::TempDir;
use trapline_tests::root;

/// Descriptions, the exit code, and the beginning of the message, which is that of dtrace(1).
const DESCRIPTIONS: &[(&str, i32, &str)] = &[
    ("a:b:c:d:e", 2, "invalid probe specifier a:b:c:d:e: overspecified probe description: 5 fields"),
    ("::::::::", 2, "invalid probe specifier ::::::::: overspecified probe description: 9 fields"),
    (
        "fbt::[a:entry",
        2,
        "invalid probe specifier fbt::[a:entry: invalid glob \"[a\": unclosed character class",
    ),
    (
        "fbt::do\u{1}fork:",
        2,
        "invalid probe specifier \"fbt::do\\u{1}fork:\": a name cannot contain '\\u{1}'",
    ),
    ("fbt::do\u{200b}:", 3, "probe description fbt::do\u{200b}: does not match any probes"),
    (
        "fbt::do_frok:entry",
        3,
        "probe description fbt::do_frok:entry does not match any probes; did you mean fbt::do_fork:entry?",
    ),
    ("fbt::do_fork:enter", 3, "probe description fbt::do_fork:enter does not match any probes"),
    ("FBT::do_fork:entry", 3, "probe description FBT::do_fork:entry does not match any probes"),
    ("fbt:vmlinuz::entry", 3, "probe description fbt:vmlinuz::entry does not match any probes"),
    ("nothing:::", 3, "probe description nothing::: does not match any probes"),
    ("sdt:::no-such", 3, "probe description sdt:::no-such does not match any probes"),
    (
        "profile:::tick-0",
        2,
        "'tick-0' is an invalid probe name: the shortest period is 1000 ns or instructions",
    ),
    ("profile:::tick-1parsec", 2, "'tick-1parsec' is an invalid probe name: use tick-N or profile-N"),
    ("profile:::tick-99999999999999999999s", 2, "'tick-99999999999999999999s' is an invalid probe name"),
    (
        "profile:::tick-99999999999h",
        2,
        "'tick-99999999999h' is an invalid probe name: the shortest period is",
    ),
];

/// Errors of clauses, which only `-n` takes, and their sentences.
const CLAUSES: &[(&str, i32, &str)] = &[
    ("", 2, "\"\" has no probe description; write -n 'provider:module:function:name'"),
    ("{ log 1 }", 2, "\"{ log 1 }\" has no probe description"),
    ("fbt::a:entry,,fbt::b:entry", 2, "\"fbt::a:entry,,fbt::b:entry\" has no probe description"),
    ("fbt::do_fork:entry {", 2, "the handler of fbt::do_fork:entry is not closed; write { handler }"),
    ("fbt::do_fork:entry / push 1", 2, "the predicate of fbt::do_fork:entry is not closed"),
    ("fbt::do_fork:entry / / { exit }", 2, "the predicate of fbt::do_fork:entry is empty"),
    ("fbt::do_fork:entry { exit } more", 2, "unexpected \"more\" after the handler"),
    ("fbt::do_fork:entry { opcode = 1 }", 2, "`opcode = 1` is not an instruction"),
    ("fbt::do_fork:entry { push arg, 256 }", 3, ""),
    (
        "fbt::do_fork:return { push arg, 2; log 1 }",
        3,
        "the handler has `push arg, 2`, but fbt:vmlinux:do_fork:return has no such argument",
    ),
    (
        "fbt::do_fork:entry { push ret; log 1 }",
        3,
        "the handler has `push ret`, but fbt:vmlinux:do_fork:entry has no such argument",
    ),
    (
        "profile:::tick-1ms { push arg, 2; log 1 }",
        3,
        "the handler has `push arg, 2`, but profile:::tick-1ms has no such argument",
    ),
    ("fbt::do_fork:entry { jmp nowhere }", 3, ""),
];

/// The message of a refused command, without the name of the program.
fn refused(folder: &Path, args: &[&str], code: i32) -> String {
    let ran = trapline(folder, args);
    assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args:?}: {}", ran.err);
    unharmed(&ran, args);
    ran.err.trim_end().to_owned()
}

/// No panic, no end by a signal.
fn unharmed(ran: &Ran, what: &[&str]) {
    assert!((0..128).contains(&ran.code) && ran.code != 101, "{what:?}: exit {}: {}", ran.code, ran.err);
    assert!(!ran.err.contains("panicked"), "{what:?}: {}", ran.err);
}

#[test]
fn invalid_and_unmatched_descriptions_are_refused_alike_by_list_and_run() {
    for (text, code, sentence) in DESCRIPTIONS {
        let wanted = format!("trapline: error: {sentence}");
        let listed = refused(&root(), &["list", "embedded:ia32", text], *code);
        assert!(listed.starts_with(&wanted) && listed.lines().count() == 1, "{text:?}: {listed}");
        let ran = refused(&root(), &["run", "embedded:ia32", "--rpn", text], *code);
        assert_eq!(ran, listed, "{text:?}");
        // A valid description beside it does not change the result.
        let ran =
            refused(&root(), &["run", "embedded:ia32", "-q", "--rpn", &format!("fbt:::entry,{text}")], *code);
        assert_eq!(ran, listed, "{text:?}");
    }
    let long = format!("fbt::{}:", "x".repeat(2000));
    let said = refused(&root(), &["list", "embedded:ia32", &long], 2);
    assert_eq!(
        said,
        "trapline: error: invalid probe specifier: with three colons it has 2006 bytes; at most 1024 are allowed"
    );
}

#[test]
fn invalid_clauses_are_refused() {
    for (text, code, sentence) in CLAUSES {
        let said = refused(&root(), &["run", "embedded:ia32", "-q", "--rpn", text], *code);
        if sentence.is_empty() {
            // The language's own diagnostics, with place and caret.
            assert!(said.starts_with("--rpn:1:") && said.contains(": error: "), "{text}: {said}");
        } else {
            let wanted = format!("trapline: error: {sentence}");
            assert!(said.starts_with(&wanted) && said.lines().count() == 1, "{text}: {said}");
        }
    }
}

/// A program with three good sites and these notes: site, base and semaphore as expressions, provider, name, arguments.
fn program(folder: &Path, notes: &[[&str; 6]]) -> Vec<u8> {
    let mut text = String::from(
        ".text\n.globl _start\n.type _start, @function\n_start: nop\nsite: nop\nsite2: nop\nret\n.size _start, . - _start\n\
         .section .probes,\"aw\"\nsem: .2byte 0\n.section .stapsdt.base,\"a\"\nbase: .byte 0\n\
         .section .note.stapsdt,\"\",\"note\"\n",
    );
    for [site, base, semaphore, provider, name, arguments] in notes {
        write!(
            text,
            ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n\
             993: .8byte {site}, {base}, {semaphore}\n.asciz \"{provider}\", \"{name}\", \"{arguments}\"\n994: .balign 4\n"
        )
        .unwrap();
    }
    std::fs::write(folder.join("notes.s"), text).unwrap();
    let mut command = patient("gcc");
    command.args(["-m64", "-nostdlib", "-static-pie", "-o", "notes", "notes.s"]).current_dir(folder);
    let made = finish(command);
    assert_eq!(made.code, 0, "{}", made.err);
    std::fs::read(folder.join("notes")).unwrap()
}

/// Provider, name and whether an argument is unreadable, for each probe listed with its sites.
fn listed(text: &str) -> Vec<String> {
    let lines = text.lines().skip(1).filter(|line| !line.starts_with("      "));
    lines
        .filter(|line| !line.starts_with("refused"))
        .map(|line| line.split_whitespace().last().unwrap().to_owned())
        .collect()
}

#[test]
fn invalid_notes_are_left_out_and_bad_operands_are_named_and_the_others_work() {
    let folder = TempDir::new().unwrap();
    let good = ["site", "base", "sem", "p"];
    let with = |name, arguments| [good[0], good[1], good[2], good[3], name, arguments];
    program(
        folder.path(),
        &[
            with("good", "8@%rdi 4@$7"),
            ["0xffffffffffffffff", "base", "sem", "p", "site-beyond", ""],
            ["sem", "base", "sem", "p", "site-in-data", ""],
            ["site", "base", "0x7fffffffffffffff", "p", "semaphore-beyond", ""],
            ["site", "0xfffffffffffff000", "sem", "p", "base-beyond", ""],
            ["site", "base", "_start", "p", "semaphore-in-code", ""],
            ["site", "base", "sem", "p", "a:colon", ""],
            ["site", "base", "sem", "", "no-provider", ""],
            with(
                "operands",
                "-8@%eax 3@%rdi 8@%cr0 8@$99999999999999999999 8@(%rdi,%rsi,3) 8@ 4@%rdi 16f@%xmm0",
            ),
            with("many", &"1@%al ".repeat(200)),
            ["site2", "base", "sem", "p", "last", "8@%rsi"],
        ],
    );
    let ran = trapline(folder.path(), &["list", "notes", ":::", "-v"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(listed(&ran.out), ["good", "last", "many", "operands"], "{}", ran.out);
    let line = |name: &str| {
        let mut lines = ran.out.lines().skip_while(|line| !line.ends_with(&format!(" {name}"))).skip(1);
        lines.next().unwrap().to_owned()
    };
    assert!(line("good").ends_with("(8@%rdi, 4@$7)"), "{}", line("good"));
    let operands = line("operands");
    assert_eq!(operands.matches("unreadable: ").count(), 6, "{operands}");
    assert!(
        operands.contains("%eax has 4 bytes, fewer than the size 8") && operands.contains("4@%rdi"),
        "{operands}"
    );

    // As a program of a guest: its own probes and the kernel's are found, and an invalid argument is refused by name.
    let guest = ["run", "embedded:x86_64", "--module", "notes", "--limit-insns", "2000000", "-q"];
    let run = |clause: &str| trapline(folder.path(), &[&guest[..], &["--rpn", clause]].concat());
    let bad = run("p:::operands { push arg, 0; log 1 }");
    let sentence = "the handler has `push arg, 0`, but p:notes:_start:operands has no such argument";
    assert_eq!((bad.code, bad.err.trim_end()), (3, &*format!("trapline: error: {sentence}")));
    for clause in ["p:::operands { push arg, 6; log 1 }", "p:::", "p:::good,fbt::do_fork:entry"] {
        let ran = run(clause);
        assert_eq!(ran.code, 124, "{clause}: {}", ran.err);
    }
}

/// A change of a file: at an offset these bytes.
type Change = (&'static str, usize, Vec<u8>);

#[test]
fn damaged_files_are_read_or_refused_and_the_rest_of_the_guest_is_probed() {
    let folder = TempDir::new().unwrap();
    let bytes = program(folder.path(), &[["site", "base", "sem", "p", "good", "8@%rdi"]]);
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (programs, sections) = (long(0x20), long(0x28));
    let note = (0..60).map(|n| sections + n * 64).find(|at| bytes[at + 4] == 7).unwrap();
    let huge = || vec![0xff; 8];
    let changes: Vec<Change> = vec![
        ("a program header table beyond the file", 0x20, huge()),
        ("a section header table beyond the file", 0x28, huge()),
        ("65535 program headers", 0x38, vec![0xff; 2]),
        ("65535 sections", 0x3c, vec![0xff; 2]),
        ("section headers of no size", 0x3a, vec![0; 2]),
        ("a name table that is no section", 0x3e, vec![0xfe; 2]),
        ("a segment beyond the file", programs + 8, huge()),
        ("a segment larger than the file", programs + 0x20, huge()),
        ("a segment at the end of the address space", programs + 0x10, huge()),
        ("notes beyond the file", note + 0x18, huge()),
        ("notes without an end", note + 0x20, huge()),
        ("notes of a size that overflows", note + 0x20, (u64::MAX - 0x100).to_le_bytes().to_vec()),
        ("notes over the ELF header", note + 0x18, vec![0; 8]),
        ("notes in sections that overlap", note + 64 + 0x18, bytes[note + 0x18..note + 0x20].to_vec()),
        ("notes as text", note + 4, vec![1, 0, 0, 0]),
    ];
    let guest = trapline(&root(), &["list", "embedded:x86_64", "fbt:::entry", "-q"]).out;
    let mut cut: Vec<(String, Vec<u8>)> = changes
        .into_iter()
        .map(|(what, at, with)| {
            let mut changed = bytes.clone();
            changed[at..at + with.len()].copy_from_slice(&with);
            (what.to_owned(), changed)
        })
        .collect();
    cut.extend((0..16).map(|n| (format!("cut at {n}/16"), bytes[..bytes.len() * n / 16].to_vec())));
    for (what, changed) in cut {
        std::fs::write(folder.path().join("bad"), &changed).unwrap();
        let alone = trapline(folder.path(), &["list", "bad", "p:::", "-q"]);
        unharmed(&alone, &[&what]);
        assert!(alone.code == 0 || alone.err.lines().count() == 1, "{what}: {}", alone.err);
        let all = ["list", "embedded:x86_64", "--module", "bad", "fbt:::entry", "-q"];
        let beside = trapline(folder.path(), &all);
        assert_eq!((beside.code, &beside.out), (0, &guest), "{what}: {}", beside.err);
        let run =
            ["run", "embedded:x86_64", "--module", "bad", "-n", "fbt::do_fork:entry", "--stop-after", "1"];
        let ran = trapline(folder.path(), &run);
        assert_eq!((ran.code, ran.out.lines().count()), (0, 1), "{what}: {}", ran.err);
    }
}

/// Noise from a seed: the same in every run.
fn noise(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// The file with some bytes changed, the ELF header's more often than others.
fn damaged(bytes: &[u8], seed: &mut u64) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for _ in 0..1 + noise(seed) % 24 {
        let at = noise(seed) as usize % changed.len();
        changed[at] = [0, 0xff, 0x7f, noise(seed) as u8][noise(seed) as usize % 4];
    }
    for byte in changed.iter_mut().take(64) {
        if noise(seed).is_multiple_of(40) {
            *byte = noise(seed) as u8;
        }
    }
    changed
}

#[test]
fn programs_with_random_bytes_never_end_the_listing_of_a_guest() {
    let folder = TempDir::new().unwrap();
    let notes: Vec<[&str; 6]> =
        (0..8).map(|_| ["site", "base", "sem", "p", "n", "8@%rdi -4@8(%rsp,%rax,4)"]).collect();
    let bytes = program(folder.path(), &notes);
    let mut seed = 0x5eed_5eed_5eed_5eed;
    for _ in 0..60 {
        std::fs::write(folder.path().join("noise"), damaged(&bytes, &mut seed)).unwrap();
        let ran =
            trapline(folder.path(), &["list", "embedded:x86_64", "--module", "noise", ":::", "-v", "-q"]);
        unharmed(&ran, &["noise"]);
        assert!(ran.code == 0 && ran.out.contains("do_fork return"), "{}", ran.err);
        unharmed(&trapline(folder.path(), &["list", "noise", ":::", "-v", "-q"]), &["noise"]);
    }
}

#[test]
fn kernels_with_random_bytes_are_listed_or_refused_with_one_sentence() {
    // Calls of functions that do not exist, with their relocations, and the pointer of a macro-declared probe.
    let source = "
        .text
        .globl _start
        .type _start, @function
        _start: push %ebp
        mov %esp, %ebp
        call __dtrace_probe_one__more
        call work
        leave
        ret
        .size _start, . - _start
        .type work, @function
        work: jmp __dtrace_probe_last
        .size work, . - work
        .data
        .globl systemtap_probe_ns__request
        .type systemtap_probe_ns__request, @object
        systemtap_probe_ns__request: .4byte 0
        .size systemtap_probe_ns__request, 4
    ";
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("kernel.s"), source).unwrap();
    let mut command = patient("gcc");
    let flags = "-m32 -nostdlib -static -no-pie -Wl,-q -Wl,--unresolved-symbols=ignore-all -Wl,-Ttext-segment=0x100000 \
                 -Wl,-z,noexecstack -o kernel kernel.s";
    command.args(flags.split_whitespace()).current_dir(folder.path());
    let made = finish(command);
    assert_eq!(made.code, 0, "{}", made.err);
    let sound = trapline(folder.path(), &["list", "kernel", ":::", "-q"]);
    let names = ["entry", "return", "entry", "return", "request", "one-more", "last"];
    let mut listed = listed(&sound.out);
    listed.sort();
    let mut names = names.to_vec();
    names.sort_unstable();
    assert_eq!(listed, names, "{}", sound.out);
    let bytes = std::fs::read(folder.path().join("kernel")).unwrap();
    let (mut seed, mut refused) = (0x0dd_5eed, 0);
    for _ in 0..150 {
        std::fs::write(folder.path().join("noise"), damaged(&bytes, &mut seed)).unwrap();
        let ran = trapline(folder.path(), &["list", "noise", ":::", "-v", "-q"]);
        unharmed(&ran, &["noise"]);
        assert!(ran.code == 0 || ran.err.lines().count() == 1, "{}", ran.err);
        refused += i32::from(ran.code != 0);
    }
    assert!(
        (20..130).contains(&refused),
        "{refused} of 150 were refused: too much or too little was damaged"
    );
}

#[test]
fn guest_kernel_modules_with_random_bytes_never_end_the_listing_of_a_guest() {
    let bytes = trapline_tests::fetched("modules-cloud-amd64/dummy.ko").unwrap();
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("kernel"), trapline_guests::X86_64.image).unwrap();
    let (mut seed, mut sound) = (0xbad_5eed, 0);
    for _ in 0..100 {
        std::fs::write(folder.path().join("dummy.ko"), damaged(&bytes, &mut seed)).unwrap();
        let file = ["--file", "/lib/dummy.ko=dummy.ko"];
        let ran = trapline(folder.path(), &[&["list", "kernel", ":::", "-v", "-q"][..], &file].concat());
        unharmed(&ran, &["dummy.ko"]);
        let refused =
            ran.err.starts_with("trapline: error: dummy.ko cannot be the kernel module /lib/dummy.ko: ");
        let listed = ran.code == 0 && ran.out.contains("do_fork return");
        assert!(listed || ran.code == 7 && refused && ran.err.lines().count() == 1, "{}", ran.err);
        sound += u32::from(listed);
    }
    assert!((10..90).contains(&sound), "{sound} of 100 were read");
}
