//! Sessions in files: a new process that resumes one ends like an uninterrupted run, with the same digest, records,
//! statistics and console. The guests are probed in every way (`src/resume.rs`).
//!
//! `TRAPLINE_SNAPSHOTS=1000` takes that many of each guest instead of a few.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

/// Snapshots to take of a guest.
fn wanted(few: usize) -> usize {
    std::env::var("TRAPLINE_SNAPSHOTS").map_or(few, |n| n.parse().unwrap())
}

fn resumes(guest: &str, few: usize) {
    let n = wanted(few).to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_resume")).args([guest, "all", &n]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("{n} snapshots")), "{text}");
}

#[test]
fn an_embedded_guest_goes_on_from_a_file_in_a_new_process() {
    for guest in trapline_guests::ALL {
        resumes(&format!("embedded:{}", guest.name), 30);
    }
}

#[test]
fn guest_linux_goes_on_from_a_file_in_a_new_process() {
    resumes("linux:cloud-amd64", 3);
    resumes("linux:686", 1);
    // Semaphores and pointers of a program, and a kernel module that is loaded and unloaded.
    resumes("shop:cloud-amd64", 2);
}
