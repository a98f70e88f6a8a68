//! Waiting. A test waits for what lasts, such as a line of output or a file, and never for a time: so it passes on a host
//! of any speed.

#![allow(dead_code)]

use std::time::Duration;

/// How long a test waits for what never comes: less than the runner's limit, so that the test itself says what is missing.
pub const PATIENCE: Duration = Duration::from_secs(900);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Looks at what lasts, a moment apart, until there is no patience left.
pub fn looks() -> impl Iterator<Item = ()> {
    let many = PATIENCE.as_millis() / LOOK.as_millis();
    (0..many).map(|look| {
        if look > 0 {
            std::thread::sleep(LOOK);
        }
    })
}

/// Waits until this is so, which must last.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    assert!(looks().any(|()| is_so()), "it does not come about: {what}");
}

/// What `/proc/PID/status` says of a process under this name, such as `State`.
pub fn status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.unwrap_or_else(|error| panic!("the process {pid} has ended: {error}"));
    let field = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
}

/// Waits until a process handles these signals itself (proc(5), `SigCgt`). It must not have ended before.
pub fn until_handled(pid: u32, signals: &[u32]) {
    let wanted = signals.iter().fold(0, |all, signal| all | 1u64 << (signal - 1));
    until("it handles signals", || {
        u64::from_str_radix(&status(pid, "SigCgt"), 16).is_ok_and(|caught| caught & wanted == wanted)
    });
}
