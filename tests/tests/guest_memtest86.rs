//! memtest86+, which uses Linux's boot protocol but is not Linux: its screen equals that under qemu, and it tests memory.

#![allow(clippy::unwrap_used, clippy::panic)]

use trapline_session::{Condition, CpuModel, Ending, GuestBuilder, Limits, PlatformKind};
use trapline_tests::{fetched, root};

/// No pause, no benchmark, no detection of absent devices; output to the terminal too, because its text ends the run.
const CMDLINE: &str = "console=ttyS0,115200 nosmp nobench nosm nopause keyboard=legacy";
const MEM: u64 = 64 << 20;
/// A virtual second is a billion instructions; the test is reached after 52 million.
const LIMIT: u64 = 1_000_000_000;

/// The screen as qemu showed it (`scripts/qemu-oracle memtest`); `?` where it depends on machine or time.
fn oracle(width: &str) -> String {
    let text = std::fs::read_to_string(root().join("tests/oracle/memtest86.txt")).unwrap();
    let (_, rest) = text.split_once(&format!("== {width}\n")).unwrap();
    rest.split("== ").next().unwrap().to_owned()
}

/// Runs to the middle of the first test.
fn screen(width: &str) -> String {
    let bytes = fetched(&format!("memtest86+{width}.bin")).unwrap();
    let model = if width == "x64" { CpuModel::X86_64 } else { CpuModel::Ia32 };
    let guest =
        GuestBuilder::image_bytes("memtest", bytes).memory(MEM).platform(PlatformKind::Pc).cmdline(CMDLINE);
    let guest = guest.cpu(model);
    let mut session = guest.start().unwrap();
    let half = Condition::console(" 50% ");
    let ending = session.run_until(&half, &Limits::insns(LIMIT));
    assert_eq!(ending, Ending::Until(" 50% ".to_owned()), "{}", session.screen());
    session.screen()
}

fn shows_its_screen(width: &str) {
    let (shown, oracle) = (screen(width), oracle(width));
    let rows = |text: &str| -> Vec<Vec<char>> {
        text.lines().map(|line| line.chars().chain(std::iter::repeat(' ')).take(80).collect()).collect()
    };
    let (ours, wanted) = (rows(&shown), rows(&oracle));
    assert_eq!((ours.len(), wanted.len()), (25, 25));
    for (ours, wanted) in ours.iter().zip(&wanted) {
        let same = ours.iter().zip(wanted).all(|(ours, wanted)| *wanted == '?' || ours == wanted);
        assert!(same, "{shown}\nqemu:\n{oracle}");
    }
    // The 32-bit CPU has no brand string: memtest86+ names it by family and model.
    let (cpu, ones) = match width {
        "x64" => ("│ Trapline virtual CPU", "0xffffffffffffffff"),
        _ => ("│ Pentium III", "0xffffffff "),
    };
    for text in [
        cpu,
        "CLK/Temp: 1000MHz ",
        "Memory  :   64MB ",
        "Test 50% ####################",
        "Test #0  [Address test, walking ones, no cache]",
        "Testing: 0KB - 4MB [4MB of 63",
        "Using: Core #0 ",
    ] {
        assert!(shown.contains(text), "{text}:\n{shown}");
    }
    assert!(format!("{shown} ").replace('\n', " ").contains(&format!("Pattern: {ones}")), "{shown}");
}

#[test]
fn guest_memtest86_x64_shows_its_screen_and_tests_memory_at_length() {
    shows_its_screen("x64");
}

#[test]
fn guest_memtest86_ia32_shows_its_screen_and_tests_memory() {
    shows_its_screen("ia32");
}
