//! `trapline demo`: the man page's examples on the embedded guests, the same bytes twice, in agreement with what the
//! guest says of itself.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, trapline};
use trapline_tests::root;

fn demo() -> Ran {
    let ran = trapline(&root(), &["demo"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    ran
}

/// The logged data of each record with these codes at this probe point.
fn data<'a>(ran: &'a Ran, symbol: &str, codes: &str) -> Vec<&'a str> {
    let records =
        ran.out.lines().filter(|line| line.contains(symbol) && line.contains(&format!("DProbes({codes}) ")));
    records.map(|line| line.rsplit(' ').next().unwrap()).collect()
}

/// The 32-bit words of logged data.
fn words(data: &str) -> Vec<u32> {
    let number = |at: usize| u32::from_str_radix(&data[at..at + 8], 16).unwrap().swap_bytes();
    (0..data.len()).step_by(8).map(number).collect()
}

/// The line of the summary for an example: hits and variables.
fn summary(ran: &Ran, file: &str) -> Vec<u64> {
    let line = ran.out.lines().find(|line| line.starts_with(file)).unwrap();
    let numbers = line.split_whitespace().rev().map_while(|word| word.parse().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.reverse();
    numbers
}

/// The number after `word` on a line of the guest's console.
fn after(line: &str, word: &str) -> u32 {
    let rest = line.split(word).nth(1).unwrap();
    let text = rest.trim_start().split([' ', ',']).next().unwrap();
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

#[test]
fn prints_the_same_bytes_twice() {
    assert_eq!(demo(), demo());
}

#[test]
fn ends_with_questions_in_d_that_can_be_asked() {
    let ran = demo();
    let commands: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("trapline run ")).collect();
    assert_eq!(commands.len(), 3, "{}", ran.err);
    for command in commands {
        let (options, question) = command.trim_end_matches('\'').split_once(" '").unwrap();
        let options: Vec<&str> = options.split(' ').skip(1).collect();
        let asked = trapline(&root(), &[&options[..], &[question]].concat());
        assert_eq!(asked.code, 0, "{}", asked.err);
        assert!(asked.out.lines().count() > 1, "{}", asked.out);
    }
}

#[test]
fn runs_the_same_examples_on_the_x86_64_guest() {
    let (narrow, wide) = (demo(), trapline(&root(), &["demo", "x86_64"]));
    assert_eq!(wide.code, 0, "{}{}", wide.out, wide.err);
    for file in ["1-appln", "2-do_fork", "2b-vortex", "3-count", "4-swap_out", "5-general_protection"] {
        assert_eq!(
            summary(&wide, &format!("{file}.rpn")),
            summary(&narrow, &format!("{file}.rpn")),
            "{file}"
        );
    }
    // The 64-bit guest takes one more page fault, because it forbids code in data.
    assert_eq!(summary(&wide, "6-groups.rpn")[0], summary(&narrow, "6-groups.rpn")[0] + 1);
    let unknown = trapline(&root(), &["demo", "pdp11"]);
    assert_eq!(unknown.code, 2, "{}{}", unknown.out, unknown.err);
}

#[test]
fn example_1_sees_ring_3_selectors_at_main() {
    let ran = demo();
    let found = data(&ran, "appln:main", "1,2");
    assert_eq!(found.len(), 1, "{}", ran.out);
    let words = words(found[0]);
    // `log` takes from the top: DS was pushed last.
    assert_eq!(words.len(), 2);
    assert!(words.iter().all(|selector| selector & 3 == 3), "{words:x?}");
    let line =
        ran.out.lines().find(|line| line.contains("appln:main") && line.contains("DProbes(1,2)")).unwrap();
    let main = after(ran.err.lines().find(|line| line.starts_with("appln: main at")).unwrap(), "main at");
    assert!(line.contains("appln:main "), "{line}");
    assert!(line.contains(&format!("eip={main:08x}")), "{line}");
}

#[test]
fn example_2_logs_the_pid_and_task_that_the_guest_prints_at_each_fork() {
    let ran = demo();
    let logged: Vec<(u32, u32)> =
        data(&ran, "do_fork", "2,1").iter().map(|d| words(d)).map(|w| (w[0], w[1])).collect();
    let forks = ran.err.lines().filter(|line| line.starts_with("fork: "));
    let printed: Vec<(u32, u32)> =
        forks.map(|line| (after(line, " task"), after(line, "parent pid"))).collect();
    assert!(!printed.is_empty());
    assert_eq!(logged, printed);
}

#[test]
fn example_3_counts_the_forks_and_logs_nothing() {
    let ran = demo();
    let forks = ran.err.lines().filter(|line| line.starts_with("fork: ")).count() as u64;
    let counted = ran.err.lines().find(|line| line.contains(" forks, ")).unwrap();
    assert_eq!(u64::from(after(counted, "vmlinux:")), forks);
    assert_eq!(summary(&ran, "3-count.rpn"), [forks, 0, forks, 0]);
}

#[test]
fn example_5_stops_after_ten_of_twelve_general_protections() {
    let ran = demo();
    let seen = ran.err.lines().filter(|line| line.starts_with("general protection: ")).count();
    assert_eq!(seen, 12);
    let logged = data(&ran, "do_general_protection", "0,0");
    assert_eq!(logged.len(), 10);
    assert_eq!(summary(&ran, "5-general_protection.rpn"), [10, 0]);
    for record in logged {
        let words = words(record);
        // cr4, cr3, cr2, cr0: paging on, PSE on, a page-aligned directory.
        assert_eq!(words.len(), 4);
        assert_eq!((words[0] & 0x10, words[1] & 0xfff, words[3] & 0x8000_0001), (0x10, 0, 0x8000_0001));
    }
}

#[test]
fn hits_of_the_summary_are_the_records_and_the_counted_calls() {
    let ran = demo();
    let records = ran.out.lines().filter(|line| line.contains("DProbes(")).count() as u64;
    let end = ran.out.lines().find(|line| line.starts_with("the guest halted after ")).unwrap();
    let counted = summary(&ran, "3-count.rpn")[0];
    assert!(end.contains(&format!("; {} hits, 0 records lost", records + counted)), "{end}");
    assert!(ran.err.contains("every page is free again") && ran.err.contains("text ok"), "{}", ran.err);
}
