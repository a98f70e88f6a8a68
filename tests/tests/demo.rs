//! `trapline demo`: its questions are answered by what is typed, on one screen; the man page's examples on the embedded guests
//! print the same bytes twice, in agreement with what the guest says of itself.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, binary, finish, patient, trapline};
use trapline_tests::root;

/// The height of the screen for which the questions are made.
const LINES: usize = 48;

fn demo() -> Ran {
    let ran = trapline(&root(), &["demo", "--manual"]);
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

/// Each command line, with the lines behind it.
fn asked(out: &str) -> Vec<(&str, Vec<&str>)> {
    let mut asked: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in out.lines() {
        match line.strip_prefix("$ trapline ") {
            Some(command) => asked.push((command, Vec::new())),
            None => asked.last_mut().into_iter().for_each(|(_, lines)| lines.push(line)),
        }
    }
    asked
}

#[test]
fn what_is_typed_gives_what_is_shown_on_one_screen() {
    let ran = trapline(&root(), &["demo"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.lines().count() <= LINES, "{}", ran.out);
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), folder.path().join("examples")).unwrap();
    let asked = asked(&ran.out);
    assert_eq!(asked.len(), 5, "{}", ran.out);
    for (command, shown) in asked {
        let mut shell = patient("sh");
        shell.args(["-c", &format!("{} {command}", binary().display())]).current_dir(folder.path());
        let typed = finish(shell);
        assert_eq!(typed.code, 0, "{command}: {}", typed.err);
        let answer: Vec<&str> = typed.out.lines().collect();
        assert_eq!(shown[..answer.len()], answer, "{command}");
    }
}

/// The last writer of the return address is the function that copied the frame's name, and what it wrote is where the kernel
/// died.
#[test]
fn the_answer_about_the_crash_is_right() {
    let out = trapline(&root(), &["demo"]).out;
    let died = out.lines().find_map(|line| line.strip_prefix("page fault: ")).unwrap();
    let went =
        u32::from_str_radix(died.split("ip 0x").nth(1).unwrap().split(' ').next().unwrap(), 16).unwrap();
    let asked = asked(&out);
    let ret = asked[3].1.iter().find(|line| line.contains(": ret")).unwrap();
    assert!(ret.contains(" vortex_control+"), "{ret}");
    let write = asked[4].1.iter().find(|line| line.contains(" -> ")).unwrap();
    let bytes = went.to_le_bytes().map(|byte| format!("{byte:02x}")).join(" ");
    assert!(write.contains(" memcpy+") && write.ends_with(&format!("-> {bytes}")), "{write}");
}

#[test]
fn runs_the_same_examples_on_the_x86_64_guest() {
    let (narrow, wide) = (demo(), trapline(&root(), &["demo", "--manual", "x86_64"]));
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
    let unknown = trapline(&root(), &["demo", "--manual", "pdp11"]);
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
