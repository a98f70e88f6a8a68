//! GNU Mach of Debian 13, plain, with PAE and for x86-64, on the default machine: what it prints is what it prints under
//! qemu (`scripts/qemu-oracle mach13`).

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::trapline;
use trapline_session::{Command, Condition, Ending, GuestBuilder, Limits, Session};
use trapline_tests::{MACH_LIMIT, fetched, guest, root, turns};

/// What each says last, as in `scripts/qemu-oracle`.
const LAST: [(&str, &str); 3] =
    [("gnumach-13", "with the kernel!"), ("gnumach-13-pae", "db>"), ("gnumach-13-amd64", "db>")];

/// What qemu's machine without PCI makes the kernel say, and what the PCI bus here does.
const PCI: [&str; 4] = [
    "pcibios_init: Not supported chipset for direct PCI access !\n",
    "pci_init: no BIOS32 detected\n",
    "pcibios_init: Using configuration type 1\n",
    "Probing PCI hardware.\n",
];

/// It searches for SCSI controllers by the PCI BIOS, which neither machine has.
const SCSI: &str = "qlogicisp : PCI bios not present\n";

fn oracle(kernel: &str, place: &str) -> String {
    let text = std::fs::read_to_string(root().join("tests/oracle/gnumach-13.txt")).unwrap();
    let (_, rest) = text.split_once(&format!("== {kernel} {place}\n")).unwrap();
    rest.split("== ").next().unwrap().to_owned()
}

fn boot(kernel: &str, cmdline: Option<&str>) -> Session {
    turns::take().unwrap();
    let guest = GuestBuilder::image_bytes(kernel, fetched(&format!("{kernel}.gz")).unwrap());
    match cmdline {
        Some(text) => guest.cmdline(text),
        None => guest,
    }
    .start()
    .unwrap()
}

/// Without the lines that tell the machines apart.
fn alike(text: &str) -> String {
    let mut text = text.replace('\r', "");
    for line in PCI.iter().chain([&SCSI]) {
        text = text.replace(line, "");
    }
    let lines = text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>();
    lines.trim_end().to_owned()
}

/// Its console is qemu's, to the last line.
fn says_what_it_says_under_qemu(kernel: &str) {
    let last = LAST.iter().find(|(name, _)| *name == kernel).unwrap().1;
    let mut session = boot(kernel, Some("console=com0"));
    let end = session.run_until(&Condition::console(last), &Limits::insns(MACH_LIMIT));
    let said = String::from_utf8_lossy(session.console()).into_owned();
    assert_eq!(end, Ending::Until(last.to_owned()), "{said}");
    assert_eq!(alike(&said), alike(&oracle(kernel, "serial")));
    let pci = PCI.map(|line| said.replace('\r', "").contains(line));
    // The 64-bit kernel has no drivers.
    assert_eq!(pci, [false, false, kernel != "gnumach-13-amd64", kernel != "gnumach-13-amd64"], "{said}");
}

/// Without a command line, it writes to the screen, which is qemu's from the last driver on.
fn shows_what_it_shows_under_qemu(kernel: &str, insns: u64) {
    let mut session = boot(kernel, None);
    assert_eq!(session.run_until(&Condition::end(), &Limits::insns(insns)), Ending::Limit);
    assert_eq!(session.console(), b"");
    let from_the_end = |screen: &str| {
        let screen = alike(screen);
        let lines = screen.lines().filter(|line| *line != "unexpected ACK from keyboard");
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        let first =
            lines.iter().position(|line| line.starts_with("com0: ")).unwrap_or_else(|| panic!("{screen}"));
        lines[first..].join("\n")
    };
    assert_eq!(from_the_end(&session.screen()), from_the_end(&oracle(kernel, "screen")));
}

#[test]
fn guest_gnumach_13_without_pae_says_what_it_says_under_qemu() {
    says_what_it_says_under_qemu("gnumach-13");
}

#[test]
fn guest_gnumach_13_with_pae_says_what_it_says_under_qemu() {
    says_what_it_says_under_qemu("gnumach-13-pae");
}

#[test]
fn guest_gnumach_13_for_x86_64_says_what_it_says_under_qemu() {
    says_what_it_says_under_qemu("gnumach-13-amd64");
}

#[test]
fn guest_gnumach_13_without_options_shows_the_screen_that_it_shows_under_qemu() {
    shows_what_it_shows_under_qemu("gnumach-13-amd64", 30_000_000);
    shows_what_it_shows_under_qemu("gnumach-13-pae", 2_230_000_000);
}

#[test]
fn guest_gnumach_13_without_symbols_shows_the_screen_that_it_shows_under_qemu_at_length() {
    shows_what_it_shows_under_qemu("gnumach-13", 2_230_000_000);
}

#[test]
fn guest_gnumach_13_that_has_written_to_its_screen_only_is_said_to_have_done_so() {
    let image = guest("gnumach-13-amd64.gz");
    let said =
        |more: &[&str]| trapline(&root(), &[&["run", &image, "--limit-insns", "100M"], more].concat()).err;
    let note = "trapline: the guest has written to its text screen only; --console vga shows it\n";
    assert!(said(&[]).ends_with(note), "{}", said(&[]));
    for more in [&["--console", "vga"][..], &["--cmdline", "console=com0"], &["-q"]] {
        assert!(!said(more).contains("text screen"), "{more:?}");
    }
}

/// With a probe at each function, the count of instructions and the digest are those without.
fn does_not_notice_probes(kernel: &str, least: u64) {
    let run = |clause: Option<&str>| {
        turns::take().unwrap();
        let guest = GuestBuilder::image_bytes(kernel, fetched(&format!("{kernel}.gz")).unwrap());
        let guest = guest.cmdline("console=com0");
        let mut session = guest.start().unwrap();
        if let Some(clause) = clause {
            session.apply(Command::clause(clause)).unwrap();
        }
        let end = session.run_until(&Condition::console("db>"), &Limits::insns(MACH_LIMIT));
        assert_eq!(end, Ending::Until("db>".to_owned()));
        (session.icount(), session.digest().to_string(), session.stats().hits)
    };
    let (plain, probed) = (run(None), run(Some("fbt:::entry { abort }")));
    assert_eq!((probed.0, &probed.1), (plain.0, &plain.1));
    assert_eq!(plain.2, 0);
    assert!(probed.2 > least, "{} hits", probed.2);
}

#[test]
fn guest_gnumach_13_for_x86_64_does_not_notice_its_probes() {
    does_not_notice_probes("gnumach-13-amd64", 300_000);
}

#[test]
fn guest_gnumach_13_with_pae_does_not_notice_its_probes_at_length() {
    does_not_notice_probes("gnumach-13-pae", 300_000);
}
