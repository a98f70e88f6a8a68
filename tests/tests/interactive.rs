//! `run -i` and `record -i` in a pseudo-terminal: a person's keys go to the guest, and a recording repeats them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cli::trapline;
use crate::common::Rng;
use crate::patience::{status, until};
use crate::recordings::cases;
use crate::terminal::Terminal;
use tempfile::TempDir;
use trapline_tests::guest;
use trapline_tests::linux::QUICK;

const PROMPT: &str = "/ # ";

/// The kernel with its shell, recorded into this folder.
fn shell(folder: &Path) -> (Terminal, String) {
    let (kernel, initrd) = (guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    let file = folder.join("hand.tlr").display().to_string();
    let args = ["record", "-i", &kernel, "--initrd", &initrd, "-o", &file, "--append", QUICK];
    let mut terminal = Terminal::with_modes(&args);
    terminal.shows(PROMPT);
    (terminal, file)
}

/// Waits for the end, and asserts that the terminal has its modes again.
fn ends(terminal: Terminal) -> (Option<i32>, String) {
    let (code, screen) = terminal.end();
    let shown = screen.screen().contents();
    let (before, modes) = shown.split_once("the modes:").unwrap();
    let modes: Vec<&str> = modes.split_whitespace().collect();
    for mode in ["icanon", "echo", "isig", "opost"] {
        assert!(modes.contains(&mode), "{mode}:\n{shown}");
    }
    (code, before.to_owned())
}

#[test]
fn guest_linux_shell_by_hand() {
    trapline_tests::turns::take().unwrap();
    let folder = TempDir::new().unwrap();
    let (mut terminal, file) = shell(folder.path());
    terminal.press("echo $((6*7))-\r");
    terminal.shows("42-");
    // Ctrl-C goes to the guest; so does Ctrl-A if it is typed twice.
    terminal.press("\x03");
    terminal.press("echo c\x01\x01bra\r");
    terminal.shows("bra");
    let before = Instant::now();
    terminal.press("sleep 2; echo $((6*9))-\r");
    terminal.shows("54-");
    // Idle time passes in real time. So far a host cannot be too slow for it.
    assert!(before.elapsed() > Duration::from_secs(1));
    // While the guest is idle, so is the program: it goes to sleep each time that it wakes up.
    let slept = || status(terminal.pid(), "voluntary_ctxt_switches").parse::<u64>().unwrap();
    let so_far = slept();
    until("the program sleeps", || slept() >= so_far + 30);
    terminal.press("echo $((6*8))-\r");
    terminal.shows("48-");
    terminal.press("\x01h");
    terminal.shows("Ctrl-A h shows this");
    terminal.press("\x01x");
    let (code, said) = ends(terminal);
    assert_eq!(code, Some(0));
    assert!(said.contains("the run was ended at the terminal after "), "{said}");
    let again = trapline(folder.path(), &["replay", &file, "--verify", "--console", "later"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let console = std::fs::read_to_string(folder.path().join("later")).unwrap();
    assert!(console.contains("\n42-") && console.contains("\n54-"), "{console}");
    let info = trapline(folder.path(), &["replay", &file, "--info"]).out;
    assert!(info.contains("\\x03") && info.contains("\\x01"), "{info}");
    // And it executes next to nothing: in each virtual second that it does not sleep there are about 10^9 instructions.
    let typed = |text: &str| -> u64 {
        let line = info.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{info}"));
        line.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
    };
    let executed = typed("6*8") - typed("6*9");
    assert!(executed < 200_000_000, "an idle guest executed {executed} instructions");
}

/// What a command says when it reads the terminal, and the keys that end it then. Before, the shell would take them as its own.
const ENDED: [(&str, &str); 2] = [("sl2ps", "\x03"), ("re2ds", "line\r\x04")];

/// What people type: commands, mistakes that they take back, keys that end what runs.
const TYPED: [&str; 10] = [
    "ls -l /proc/self\r",
    "cat /proc/uptime /proc/interrupts\r",
    "for i in 1 2 3; do echo $i; done | wc -l\r",
    "ecjo wrong\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7fcho right\r",
    "echo sl$((1+1))ps; sleep 1000\r",
    "echo re$((1+1))ds; cat > /tmp/typed\r",
    "wc /tmp/typed; dmesg | tail -n 3\r",
    "\x1b[A\x1b[A\r",
    "yes | head -n 2000 | md5sum & \r",
    "date; ps | grep sh\r",
];

/// `TRAPLINE_TYPED=300` types so many lines. Keys come one after the other, as fast as the guest takes them, or each when
/// something is written after the one before.
#[test]
fn guest_linux_a_long_shell_session_replays_at_length() {
    trapline_tests::turns::take().unwrap();
    let folder = TempDir::new().unwrap();
    let (mut terminal, file) = shell(folder.path());
    let (mut random, mut answers) = (Rng(0x0123_4567_89ab_cdef), Vec::new());
    let mut line = "";
    for _ in 0..cases("TRAPLINE_TYPED", 12) {
        let typed = TYPED[random.below(TYPED.len() as u64) as usize];
        for key in typed.chars() {
            terminal.press(&key.to_string());
            // The guest shows it, whatever runs, unless it is of a longer code.
            if key.is_ascii_graphic() && !typed.contains('\x1b') && random.below(2) == 0 {
                terminal.writes_more();
            }
        }
        // The keys up and up again type the last line once more.
        line = if typed.starts_with('\x1b') { line } else { typed };
        for (says, keys) in ENDED.iter().filter(|(says, _)| line.contains(&says.replace('2', "$((1+1))"))) {
            terminal.writes(says);
            terminal.press(keys);
        }
        let number = answers.len();
        terminal.press(&format!("echo a$(({number}+0))z\r"));
        answers.push(format!("a{number}z"));
        terminal.shows(&answers[number]);
    }
    terminal.press("\x01x");
    assert_eq!(ends(terminal).0, Some(0));
    let again = trapline(folder.path(), &["replay", &file, "--verify", "--console", "later"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let console = std::fs::read_to_string(folder.path().join("later")).unwrap();
    for answer in answers {
        assert!(console.contains(&format!("\n{answer}")), "{answer}: {console}");
    }
}

#[test]
fn guest_gnumach_debugger_by_hand() {
    trapline_tests::turns::take().unwrap();
    let kernel = guest("gnumach.gz");
    let mut terminal = Terminal::with_modes(&["run", "-i", &kernel, "--cmdline", "console=com0"]);
    terminal.shows("db>");
    terminal.press("show registers\r");
    terminal.shows("eip");
    terminal.press("\x01x");
    assert_eq!(ends(terminal).0, Some(0));
}

#[test]
fn a_snapshot_by_hand_is_one_of_the_session() {
    trapline_tests::turns::take().unwrap();
    let folder = TempDir::new().unwrap();
    let name = folder.path().join("idle.elf").display().to_string();
    std::fs::write(&name, trapline_guests::find("idle").unwrap().image).unwrap();
    let mut terminal = Terminal::in_folder(folder.path(), &["run", "-i", "idle.elf"]);
    terminal.press("\x01s");
    let shown = terminal.shows(" instructions");
    terminal.press("\x01q");
    terminal.shows("Ctrl-A q means nothing");
    terminal.press("\x01x");
    assert_eq!(ends(terminal).0, Some(0));
    let file = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let file = file.map(|name| name.into_string().unwrap()).find(|name| name.ends_with(".snapshot")).unwrap();
    assert!(shown.contains(&format!("snapshot {file} at ")), "{shown}");
    let guest = trapline_session::GuestBuilder::image(&name).start().unwrap();
    let saved = guest.read_snapshot(&std::fs::read(folder.path().join(&file)).unwrap()).unwrap();
    assert_eq!(file, format!("idle.elf-{}.snapshot", saved.icount()));
}

#[test]
fn guest_linux_signals_give_the_terminal_back() {
    trapline_tests::turns::take().unwrap();
    for signal in ["-TERM", "-HUP"] {
        let folder = TempDir::new().unwrap();
        let (terminal, file) = shell(folder.path());
        terminal.signal(signal);
        let (code, said) = ends(terminal);
        assert_eq!(code, Some(130), "{said}");
        let again = trapline(folder.path(), &["replay", &file, "--verify", "--console", "none", "-q"]);
        assert_eq!(again.code, 0, "{}", again.err);
    }
}

#[test]
fn a_run_by_hand_goes_on_from_a_snapshot() {
    trapline_tests::turns::take().unwrap();
    let folder = TempDir::new().unwrap();
    let save = ["run", "embedded:ia32", "--console", "none", "-q", "--limit-insns", "500K", "--save"];
    for (name, probes, code, words) in [
        ("plain", &[][..], Some(0), "the guest halted after "),
        ("probed", &["-n", "fbt::do_fork:entry"], Some(2), "write the records into a file with -o FILE"),
    ] {
        let file = folder.path().join(name).display().to_string();
        let ran = trapline(folder.path(), &[&save[..], &[file.as_str()], probes].concat());
        assert_eq!(ran.code, 124, "{}", ran.err);
        let ended = ends(Terminal::with_modes(&["run", "-i", "embedded:ia32", "--restore", &file]));
        assert!(ended.0 == code && ended.1.contains(words), "{name}: {ended:?}");
    }
}

#[test]
fn without_a_terminal_a_guest_is_not_run_by_hand() {
    let folder = TempDir::new().unwrap();
    for args in [&["run", "-i", "embedded:ia32"][..], &["record", "-i", "embedded:ia32", "-o", "r.tlr"]] {
        let ran = trapline(folder.path(), args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""));
        assert!(ran.err.contains("-i needs a terminal as standard input"), "{}", ran.err);
    }
    assert!(!folder.path().join("r.tlr").exists());
    let ran = trapline(folder.path(), &["run", "-i", "embedded:ia32", "--console", "none"]);
    assert!(ran.code == 2 && ran.err.contains("cannot be used with"), "{}", ran.err);
}

#[test]
fn records_do_not_go_to_the_terminal_of_the_guest() {
    trapline_tests::turns::take().unwrap();
    let terminal = Terminal::with_modes(&["run", "-i", "embedded:ia32", "-n", "fbt::do_fork:entry"]);
    let (code, said) = ends(terminal);
    assert_eq!(code, Some(2));
    assert!(said.contains("write the records into a file with -o FILE"), "{said}");
}
