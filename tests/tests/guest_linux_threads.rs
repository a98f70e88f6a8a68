//! D's thread-local variables where threads come and go: what a program adds up with them is computed a second time here,
//! from a trace of all calls. The kernel gives the structure of a thread that has ended to the next one; ids are not used
//! again in these runs, so the trace tells the threads apart by their ids.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use tempfile::TempDir;
use trapline_tests::guest;

use crate::cli::trapline_from_init;

/// The longest time of each call as docs/oneliners.md asks for it, how many calls that is of, how long threads were off the
/// CPU; and the trace.
const PROGRAM: &str = r#"
syscall:::entry { printf("E %d %s %d\n", tid, probefunc, timestamp); self->t = timestamp; }
syscall:::return { printf("R %d %s %d\n", tid, probefunc, timestamp); }
syscall:::return /self->t/ {
    @longest[probefunc] = max(timestamp - self->t);
    @calls[probefunc] = count();
    self->t = 0;
}
sched:::off-cpu { printf("F %d - %d\n", tid, timestamp); self->since = timestamp; self->who = tid; self->key[tid] = 1; }
sched:::on-cpu { printf("N %d - %d\n", tid, timestamp); }
sched:::on-cpu /self->since/ {
    @away = sum(timestamp - self->since);
    @others = sum(self->who != tid);
    @keys = sum(self->key[self->who] != 1);
    self->since = 0;
}
END {
    printa("longest %s %@d\n", @longest);
    printa("calls %s %@d\n", @calls);
    printa("away - %@d\n", @away);
    printa("others - %@d\n", @others);
    printa("keys - %@d\n", @keys);
}
"#;

/// What the program has to add up, from the trace alone, and how many threads there were.
fn slowly(trace: &str) -> (BTreeMap<String, u64>, usize) {
    let (mut calls, mut away) = (BTreeMap::new(), BTreeMap::new());
    let (mut sums, mut threads) =
        (BTreeMap::from([("others -".to_owned(), 0), ("keys -".to_owned(), 0)]), BTreeSet::new());
    for line in trace.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [event @ ("E" | "R" | "F" | "N"), thread, call, at] = words[..] else { continue };
        let at: u64 = at.parse().unwrap();
        threads.insert(thread);
        match event {
            "E" => drop(calls.insert(thread, at)),
            "F" => drop(away.insert(thread, at)),
            "R" => {
                let Some(since) = calls.remove(thread) else { continue };
                *sums.entry(format!("calls {call}")).or_default() += 1;
                let longest = sums.entry(format!("longest {call}")).or_default();
                *longest = (at - since).max(*longest);
            }
            _ => {
                let Some(since) = away.remove(thread) else { continue };
                *sums.entry("away -".to_owned()).or_default() += at - since;
            }
        }
    }
    (sums, threads.len())
}

/// The output of a program while a shell starts this many processes, each of which ends at once.
fn while_processes_come_and_go(processes: u32, program: &str) -> String {
    let folder = TempDir::new().unwrap();
    let shell = format!(
        "i=0; while [ $i -lt {processes} ]; do (exit 3); i=$((i+1)); done; usleep 30000; echo all$((6*7))"
    );
    let script = format!("on console \"/ # \" 1 type \"{shell}\\n\"\non console \"all42\" 1 stop\n");
    std::fs::write(folder.path().join("s"), script).unwrap();
    let (kernel, initrd) = (guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    let args = ["run", &kernel, "--initrd", &initrd, "--script", "s", "--console", "none", "-q"];
    let ran = trapline_from_init(folder.path(), &[&args[..], &["-x", "quiet", "-n", program]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out
}

fn short_lives(processes: u32) {
    let out = while_processes_come_and_go(processes, PROGRAM);
    let (sums, threads) = slowly(&out);
    assert!(threads > processes as usize, "{threads} threads");
    let shown = out.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let of_end = ["longest", "calls", "away", "others", "keys"].contains(&name.split(' ').next()?);
        of_end.then(|| (name.to_owned(), value.parse().unwrap()))
    });
    assert_eq!(shown.collect::<BTreeMap<String, u64>>(), sums);
}

#[test]
fn guest_linux_threads_have_their_own_variables() {
    short_lives(60);
}

#[test]
fn guest_linux_5000_threads_have_their_own_variables_at_length() {
    short_lives(5000);
}

/// Each switch, with the thread before and after it; the times of a thread at its calls.
const TIMES: &str = r#"
sched:::off-cpu { printf("S %d %d %d\n", tid, args[0]->pr_lwpid, icount); }
syscall:::entry,syscall:::return { printf("V %d %d %d %d\n", tid, icount, vtimestamp, timestamp); }
"#;

#[test]
fn guest_linux_vtimestamp_counts_the_instructions_of_the_thread_alone() {
    let out = while_processes_come_and_go(20, TIMES);
    // What each thread has run, the one that runs and since when, and the last times of each.
    let (mut own, mut runs, mut last) = (BTreeMap::<u64, u64>::new(), None, BTreeMap::new());
    let (mut compared, mut slept) = (0, 0);
    for line in out.lines() {
        let numbers: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
        match (line.get(..1), &numbers[..]) {
            (Some("S"), &[before, next, now]) => {
                if let Some((_, since)) = runs.filter(|(thread, _)| *thread == before) {
                    *own.entry(before).or_default() += now - since;
                }
                runs = Some((next, now));
            }
            (Some("V"), &[thread, now, vtimestamp, timestamp]) => {
                let Some((running, since)) = runs else { continue };
                assert_eq!(running, thread);
                let ran = own.get(&thread).copied().unwrap_or(0) + (now - since);
                if let Some((v, r, t)) = last.insert(thread, (vtimestamp, ran, timestamp)) {
                    assert_eq!(vtimestamp - v, ran - r, "{line}");
                    compared += 1;
                    slept += u64::from(timestamp - t > 10_000_000 && vtimestamp - v < 1_000_000);
                }
            }
            _ => {}
        }
    }
    assert!(compared > 500 && slept > 0, "{compared} times, {slept} over a sleep");
}
