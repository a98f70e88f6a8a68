//! The rules of the numbers on planted documents, tables and sources: each can fail.

use std::path::Path;

use super::{Outcome, check};

const SOURCE: &str = "
/// Holds 12 things, 3 of them red.
pub const MOST: u64 = 64 << 20;
const PART: Duration = Duration::from_millis(500);
const EACH: NonZeroU64 = NonZeroU64::new(20_000).unwrap();
const MASK: u32 = 0x0f00 | 1;
static LIST: [&str; 3] = [\"a\", \"b\", \"c\"];
impl Room { const SEATS: usize = (SIZE - 1) / 4; const SIZE: usize = 401; }
fn first() -> u8 { 7 }
fn second() -> u8 { 8 }
";

/// Checks one document, `d.md`, against a table's rows for it and a tree that holds the source above.
fn run(document: &str, rows: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.rs"), SOURCE).unwrap();
    let documents = [("d.md".to_owned(), document.to_owned())];
    check(&documents, &format!("[d.md]\n{rows}"), folder.path())
}

/// What is wrong.
fn wrong(document: &str, rows: &str) -> Vec<String> {
    run(document, rows).wrong
}

/// The places and numbers that nothing accounts for.
fn left(document: &str) -> Vec<String> {
    wrong(document, "").iter().map(|line| line.replacen("d.md:", "", 1)).collect()
}

fn fine(document: &str, rows: &str) {
    let wrong = wrong(document, rows);
    assert!(wrong.is_empty(), "{document}\n{rows}\n{wrong:?}");
}

fn fails(document: &str, rows: &str, because: &str) {
    let wrong = wrong(document, rows);
    assert!(wrong.iter().any(|line| line.contains(because)), "{document}\n{rows}\n{wrong:?}");
}

#[test]
fn a_number_without_a_source_is_named_with_its_line() {
    assert_eq!(left("Text.\n\nIt keeps\n64 things, at most 1,024."), ["4: 64", "4: 1,024"]);
    assert_eq!(left("| a | 2.5 |\n|---|---|\n| b | 7 % |"), ["1: 2.5", "3: 7"]);
    assert_eq!(left("- one\n- 12 of\n  13\n\n## Up to 5"), ["2: 12", "3: 13", "5: 5"]);
    assert_eq!(left("in ten seconds, five times as long"), ["1: ten", "1: five"]);
    assert_eq!(left("in two seconds, a fifth too slow"), ["1: two seconds", "1: a fifth too"]);
    assert_eq!(left("two and a half minutes"), ["1: two and a half minutes"]);
    assert_eq!(
        left("Three of twenty-five, a million; 3 million"),
        ["1: 3", "1: Three", "1: twenty-five", "1: million"]
    );
    assert_eq!(left("every 2^26 instructions"), ["1: 2^26"]);
    assert_eq!(left("takes 1 ns, 0 % or 1 MiB of 512M"), ["1: 1", "1: 0", "1: 1", "1: 512M"]);
    assert_eq!(left("16MB or 5x"), ["1: 16MB", "1: 5x"]);
}

#[test]
fn names_references_and_code_are_no_claims() {
    for text in [
        "x86-64, i386, IA32, 32-bit, 32- and 64-bit code, SSE4.1, ring 3, CPL 0, ext4, XXH3-128",
        "Debian 12, Linux 6.1 and 6.12, from 6.7 on; RFC 4180, virtio 1.2, SDM (volume 3, 17.2.4), 3.6.4",
        "the 686 kernel, CF9h, 92h, 16550A, an 8259, #GP(0), dtrace(1), 2000-01-01 00:00:00, 127.0.0.1",
        "the 8254 has a counter, examples 1 to 6, U+FFFD",
        "is 0 or 1, and -1 if not",
        "`--limit 300` and ``a `17` b`` and [a page](p2.md#part-17) and https://example.org/17",
        "1. a list\n2. of two",
        "## 3. A heading",
        "```console\n$ seq 17\n# 17\n```",
        "Text:\n\n    code 17\n",
    ] {
        assert!(left(text).is_empty(), "{text}: {:?}", left(text));
    }
    assert_eq!(left("- item\n\n    not code: 17"), ["3: 17"]);
    assert_eq!(left("it takes 6.4 s"), ["1: 6.4"], "a release has no unit");
}

#[test]
fn a_number_that_only_looks_like_a_name_is_a_claim() {
    for (text, numbers) in [
        ("4.5 others", vec!["4.5"]),
        ("6.1 others", vec!["6.1"]),
        ("0x20 pages", vec!["0x20"]),
        ("20h pages", vec!["20h"]),
        ("8254 records", vec!["8254"]),
        ("686 pages", vec!["686"]),
        ("CPU 17 hits", vec!["17"]),
        ("in ring 5", vec!["5"]),
        ("3x3 pages", vec!["3x3"]),
        ("Debian 14", vec!["14"]),
        ("examples 1 to 9", vec!["9"]),
        ("HPET 32 bits", vec!["32"]),
        ("of 32 and 64 bits", vec!["32", "64"]),
        ("(5.11, 6.2 and 6.13 were tried)", vec!["5.11", "6.13"]),
        ("```console\n$ seq 17   # to 18\n```", vec!["18"]),
    ] {
        let left: Vec<String> =
            left(text).iter().map(|line| line.split_once(": ").unwrap().1.into()).collect();
        assert_eq!(left, numbers, "{text}");
    }
}

#[test]
fn a_constant_is_evaluated_and_compared() {
    fine("at most 64 MiB of text", "at most {} MiB <- const s.rs MOST");
    fine("at most 67,108,864 bytes", "at most {} bytes <- const s.rs MOST");
    fine("each 500 ms, 20,000 times", "each {} ms, {} times <- const s.rs PART ; const s.rs EACH");
    fine("3 names, 100 seats", "{} names, {} seats <- const s.rs LIST ; const s.rs SEATS");
    fine("the mask f01 of 5", "mask {x} of {} <- const s.rs MASK ; const s.rs LIST + 2");
    fine("about 105 seats", "about {} seats <- const s.rs SEATS");

    fails("at most 63 MiB", "at most {} MiB <- const s.rs MOST", "d.md:1: 63 is 67108864");
    fails("at most 64 KiB", "at most {} KiB <- const s.rs MOST", "d.md:1: 64 is");
    fails("a\n\nb 105 seats", "{} seats <- const s.rs SEATS", "d.md:3: 105 is 100");
    fails("about 120 seats", "about {} seats <- const s.rs SEATS", "120 is 100");
    fails("mask f02", "mask {x} <- const s.rs MASK", "f02 is 3841");
}

#[test]
fn a_source_or_a_fragment_that_is_gone_fails() {
    fails("at most 64", "at most {} <- const s.rs GONE", "GONE is not there");
    fails("at most 64", "at most {} <- const gone.rs MOST", "gone.rs: No such file");
    fails("at most 64", "at least {} <- const s.rs MOST", "d.md has no `at least {}`");
    fails("at most 64", "at least {} <- const s.rs MOST", "d.md:1: 64");
    fails("none", "[other.md]\n{} <- const s.rs MOST", "there is no document other.md");
}

#[test]
fn a_text_with_a_number_is_compared() {
    fine("12 things", "{} things <- text s.rs Holds {} things, 3 of");
    fails("13 things", "{} things <- text s.rs Holds {} things", "13 is 12");
    fails("12 things", "{} things <- text s.rs Has {} things", "is not there");
    fails("7 of", "{} of <- text s.rs -> u8 { {} }", "with several numbers");
    fails("7 of", "{} of <- text s.rs no hole", "needs one {}");
}

#[test]
fn things_are_counted() {
    fine("has 2 functions", "{} functions <- count *.rs ^fn");
    fails("has 3 functions", "{} functions <- count *.rs ^fn", "3 is 2");
    fails("has three files", "{} files <- count *.rs file", "three is 1");
    fails("has 2 functions", "{} functions <- count *.txt ^fn", "nothing is `^fn`");
}

#[test]
fn a_rule_stands_for_its_fragment_its_section_or_its_page() {
    let text = "# A\n\n2 of 3\n\n## B\n\n4\n\n### C\n\n5\n\n## D\n\n6";
    assert_eq!(left(text).len(), 5);
    assert_eq!(wrong(text, "2 of 3 <- spec a rule"), ["d.md:7: 4", "d.md:11: 5", "d.md:15: 6"]);
    assert_eq!(wrong(text, "section B e55fe1cc <- spec a rule"), ["d.md:3: 2", "d.md:3: 3", "d.md:15: 6"]);
    for other in ["four", "16-bit", "| 5 | 5 |"] {
        let text = text.replacen('4', other, 1);
        fails(&text, "section B e55fe1cc <- spec a rule", "if these are right, write ");
    }
    fails(text, "section B <- spec a rule", "the numbers of B are: 4 5; if these are right, write e55fe1cc");
    fine(text, "page <- spec a rule");
    fails(text, "section E 811c9dc5 <- spec a rule", "no number is left there");
    fails("none", "page <- spec a rule", "no number is left there");
    fails("none of", "none of <- spec a rule", "no number is left there");
    fails("5", "page <- tested s.rs a_test", "s.rs has no test a_test");
}

#[test]
fn a_test_that_a_row_names_runs() {
    let documents = [("d.md".to_owned(), "5".to_owned())];
    let named = |test: &str| {
        let table = format!("[d.md]\npage <- tested tests/house/tests/numbers/planted.rs {test}");
        check(&documents, &table, &trapline_house::root()).wrong
    };
    assert!(named("a_test_that_a_row_names_runs").is_empty());
    assert_eq!(named("wrong").len(), 1, "a function that is no test");
}

#[test]
fn a_measurement_names_machine_and_date() {
    let mark = "measured 2026-11-24 on a 2-core cloud machine";
    fine(&format!("It takes 5 s\n({mark})."), "");
    fine(&format!("- It takes 5 s ({mark})."), "");
    fine(&format!("M{}, all of it:\n\n| a | 5 s |\n|---|---|\n| b | 6 s |", &mark[1..]), "");
    fine(&format!("| a | 5 s |\n| b | 6 s |\n\nM{}.", &mark[1..]), "");
    fine(&format!("Times, {mark}:\n\n| a | 5 s |\n| b | 6 s |"), "");
    let section = mark.replacen("measured", "Measurements of this section:", 1);
    fine(&format!("## A\n\n{section}.\n\n5 s\n\n### B\n\n6 s"), "");

    for date in ["2026-19-39", "2026-02-29", "2026-11-31", "2026-11-00", "26-11-24"] {
        assert!(
            left(&format!("It takes 5 s ({}).", mark.replace("2026-11-24", date)))
                .contains(&"1: 5".to_owned())
        );
    }
    assert_eq!(left("It takes 5 s (measured 2026-11-24)."), ["1: 5"]);
    assert_eq!(left("It takes 5 s (measured on a 2-core cloud machine)."), ["1: 5", "1: 2"]);
    assert_eq!(left(&format!("5 s ({mark}).\n\n6 s")), ["3: 6"]);
    assert_eq!(left(&format!("Times, {mark}.\n\n| a | 6 s |")), ["3: 6"]);
    assert_eq!(left(&format!("- 5 s ({mark}).\n- 6 s")), ["2: 6"]);
    assert_eq!(left(&format!("| a | 5 s ({mark}) |\n| b | 6 s |")), ["2: 6"]);
    assert_eq!(left(&format!("## A\n\n{section}.\n\n## B\n\n6 s")), ["7: 6"]);
}

#[test]
fn an_exit_code_is_compared_with_its_meaning() {
    let row = "with exit code {}. <- text s.rs fn first() -> u8 { {} }";
    fine("It ends with exit code 7.", row);
    fails("It ends with exit code 8.", row, "8 is 7");
    assert_eq!(left("Exit code 0; the exit code is 1; exit code 7"), ["1: 0", "1: 1", "1: 7"]);
    assert_eq!(left("It exits with 1 (code 0), a code other than 1"), ["1: 1", "1: 0", "1: 1"]);
    assert_eq!(left("## Exit codes of `a`\n\n0: done; 1: not\n\n## B\n\n0 or 1"), ["3: 0", "3: 1"]);
    let table = "| The guest | Exit code |\n|---|---|\n| `a|b` 0 | 0 |\n| 1 | 1 |";
    assert_eq!(left(table), ["3: 0", "4: 1"]);
    assert_eq!(left(&table.replace("Exit code", "Bit")), [""; 0]);
    assert_eq!(left(&format!("{table}\n\n| A | B |\n|---|---|\n| 0 | 1 |")), ["3: 0", "4: 1"]);
}

#[test]
fn a_row_that_says_nothing_is_refused() {
    for row in ["5 <- guess", "5", "{} <- spec a rule", "{} {} <- const s.rs MOST", "5 <- const s.rs MOST"] {
        let read = super::table::rows(&format!("[d.md]\n{row}"));
        assert!(read.is_err(), "{row}");
    }
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("numbers.txt").is_file());
}
