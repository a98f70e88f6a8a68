//! The embedded guests at both widths: their console equals qemu's, the man page's examples 1 to 6 record what
//! the guests count for themselves, and no probe that only observes changes a run.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, finish, patient, trapline};
use serde_json::Value;
use trapline_emu::Stop;
use trapline_emu::symbols::Symbols;
use trapline_os::{OsProfile, TrapOs};
use trapline_tests::{embedded_guest, root};

const GUESTS: [&str; 2] = ["ia32", "x86_64"];
/// An instruction limit far beyond the runs of both guests.
const LIMIT: &str = "100000000";

/// Runs a guest; on x86-64 the man page's `eip` is `rip`.
fn run(guest: &str, more: &[&str]) -> Ran {
    let image = format!("embedded:{guest}");
    let mut args = vec!["run", image.as_str(), "--limit-insns", LIMIT, "-q"];
    if guest == "x86_64" && more.contains(&"-p") {
        args.extend(["-D", "eip=rip"]);
    }
    args.extend(more);
    let ran = trapline(&root(), &args);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    ran
}

/// The console without the parts that depend on the timer's timing.
fn console(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("halted after"));
    lines.fold(String::new(), |all, line| all + line.trim_end_matches('\r') + "\n")
}

/// The stored output of qemu.
fn oracle(guest: &str) -> String {
    std::fs::read_to_string(root().join(format!("guest-images/oracle/console-{guest}.txt"))).unwrap()
}

/// The number before `word` on the guest's console.
fn counted(guest: &str, word: &str) -> u64 {
    let text = oracle(guest);
    let line = text.lines().find(|line| line.starts_with("vmlinux: ") && line.contains(word)).unwrap();
    let before = line[..line.find(word).unwrap()].trim_end();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// The numbers of a line `... ran A B C times`.
fn site_counts(guest: &str, start: &str) -> Vec<u64> {
    let text = oracle(guest);
    let line = text.lines().find(|line| line.starts_with(start)).unwrap();
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

struct Hits {
    records: Vec<Value>,
    end: Value,
}

impl Hits {
    /// The logged data of each record with these codes.
    fn data(&self, major: u64, minor: u64) -> Vec<&str> {
        let records = self.records.iter();
        let wanted = records.filter(|record| record["major"] == major && record["minor"] == minor);
        wanted.map(|record| record["data"].as_str().unwrap()).collect()
    }

    fn count(&self, major: u64, minor: u64) -> u64 {
        self.data(major, minor).len() as u64
    }
}

fn hits_of(ran: &Ran) -> Hits {
    let mut records: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = records.pop().unwrap();
    records.retain(|record| record["type"] == "hit");
    assert_eq!(end["lost"], 0);
    Hits { records, end }
}

/// One of the man page's examples, with the console on standard error.
fn example(guest: &str, file: &str) -> Hits {
    let path = format!("examples/man/{file}");
    let ran = run(guest, &["-f", "json", "--console", "stdio", "--channel", "1Mx4", "-p", &path]);
    assert_eq!(console(&ran.err), oracle(guest), "{file}");
    hits_of(&ran)
}

/// Bytes of an element and the elements of logged data.
fn elements(guest: &str, data: &str) -> Vec<u64> {
    let digits = if guest == "ia32" { 8 } else { 16 };
    let element = |at: usize| {
        let bytes = (at..at + digits).step_by(2).map(|i| u64::from_str_radix(&data[i..i + 2], 16).unwrap());
        bytes.enumerate().map(|(i, byte)| byte << (8 * i)).sum()
    };
    (0..data.len()).step_by(digits).map(element).collect()
}

/// The first bytes of a framed function, which a handler sees although the site is armed.
fn frame(guest: &str) -> &'static str {
    if guest == "ia32" { "5589e5" } else { "554889e5" }
}

#[test]
fn the_console_is_the_one_that_qemu_showed() {
    for guest in GUESTS {
        let ran = run(guest, &[]);
        assert_eq!(console(&ran.out), oracle(guest));
        for said in ["every page is free again", "text ok", "as written", "9 frames sent\n", "ticks, text ok"]
        {
            assert!(oracle(guest).contains(said), "{said}");
        }
    }
    assert!(oracle("x86_64").contains("1 double fault on its own stack"));
    assert!(oracle("x86_64").contains("code in data is refused"));
    assert!(oracle("ia32").contains("code in data runs"));
}

/// The stored consoles equal the output of the installed qemu.
#[test]
fn qemu_still_shows_the_stored_console() {
    let there = |tool: &str| std::process::Command::new(tool).arg("--version").output().is_ok();
    if !there("qemu-system-x86_64") || !there("objcopy") {
        eprintln!("no qemu-system-x86_64 or objcopy: nothing compared");
        return;
    }
    for guest in GUESTS {
        let prebuilt = root().join("guest-images/prebuilt");
        let mut command = patient(root().join("scripts/guest-console"));
        command.arg(prebuilt.join(format!("vmlinux-{guest}"))).arg(prebuilt.join(format!("appln-{guest}")));
        let ran = finish(command);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(ran.out, oracle(guest));
    }
}

#[test]
fn examples_1_to_3_see_ring_3_selectors_and_every_fork() {
    for guest in GUESTS {
        let selectors = example(guest, "1-appln.rpn");
        let found = elements(guest, selectors.data(1, 2)[0]);
        // `log` takes from the top: DS was pushed last.
        let code = if guest == "ia32" { 0x1b } else { 0x2b };
        assert_eq!((selectors.records.len(), found), (1, vec![0x23, code]));

        let forks = example(guest, "2-do_fork.rpn");
        let logged: Vec<Vec<u64>> = forks.data(2, 1).iter().map(|data| elements(guest, data)).collect();
        let text = oracle(guest);
        let printed: Vec<Vec<u64>> = text
            .lines()
            .filter_map(|line| line.strip_prefix("fork: parent pid "))
            .map(|line| {
                let (pid, rest) = line.split_once(" task 0x").unwrap();
                let task = u64::from_str_radix(rest.split(',').next().unwrap(), 16).unwrap();
                vec![task, pid.parse().unwrap()]
            })
            .collect();
        assert_eq!(logged, printed);
        assert_eq!(logged.len() as u64, counted(guest, " forks"));

        let count = example(guest, "3-count.rpn");
        assert!(count.records.is_empty());
        assert_eq!(count.end["hits"], counted(guest, " forks"));
    }
}

#[test]
fn example_2_of_the_network_driver_sees_each_call_and_the_original_bytes() {
    for guest in GUESTS {
        let hits = example(guest, "2b-vortex.rpn");
        assert_eq!(hits.count(0, 0), counted(guest, " vortex_opens"));
        assert_eq!(hits.count(0, 1), counted(guest, " vortex_start_xmits"));
        assert_eq!(hits.count(0, 2), counted(guest, " vortex_closes"));
        for data in hits.data(0, 0) {
            assert!(data.starts_with(&frame(guest)[..4]), "{data}");
        }
        for data in hits.data(0, 1).into_iter().chain(hits.data(0, 2)) {
            // Status and length of the memory range, then its bytes.
            assert!(data.starts_with(&format!("001000{}", frame(guest))), "{data}");
        }
    }
}

#[test]
fn examples_4_and_5_stop_where_ignore_and_maxhits_say() {
    for guest in GUESTS {
        let swaps = example(guest, "4-swap_out.rpn");
        assert_eq!(swaps.count(0, 1), counted(guest, " swap_outs") - 5);
        for data in swaps.data(0, 1) {
            assert!(data.contains(&format!("001000{}", frame(guest))), "{data}");
        }
        assert_eq!(counted(guest, " general protections"), 12);
        let faults = example(guest, "5-general_protection.rpn");
        assert_eq!(faults.count(0, 0), 10);
        for data in faults.data(0, 0) {
            // cr4, cr3, cr2, cr0: PSE or PAE, a page-aligned directory, paging on.
            let found = elements(guest, data);
            let big = if guest == "ia32" { 0x10 } else { 0x20 };
            assert_eq!(found.len(), 4);
            assert_eq!((found[0] & big, found[1] & 0xfff, found[3] & 0x8000_0001), (big, 0, 0x8000_0001));
        }
    }
}

#[test]
fn example_6_enters_and_leaves_as_often_as_the_guest_counted() {
    for guest in GUESTS {
        let hits = example(guest, "6-groups.rpn");
        let pairs = [
            (0, 1, counted(guest, " forks")),
            (2, 4, counted(guest, " kmallocs")),
            (5, 6, counted(guest, " ext2_file_writes")),
        ];
        for (enter, leave, calls) in pairs {
            assert_eq!(hits.count(1, enter), calls);
            // Each exit is at the stack pointer of its entry.
            assert_eq!(hits.data(1, enter), hits.data(1, leave));
        }
        let faults = counted(guest, " page faults");
        let fatal = oracle(guest).lines().filter(|line| line.starts_with("page fault: ")).count() as u64;
        assert_eq!(fatal, u64::from(guest == "x86_64"));
        assert_eq!((hits.count(1, 7), hits.count(1, 8)), (faults, faults - fatal));
    }
}

#[test]
fn observe_only_probes_leave_the_digest_as_it_was() {
    for guest in GUESTS {
        let digest = |more: &[&str]| {
            let mut args = vec!["--console", "none", "--digest"];
            args.extend(more);
            run(guest, &args).err
        };
        let plain = digest(&[]);
        assert!(plain.starts_with("digest "), "{plain}");
        let mut all = vec!["-o", "/dev/null"];
        let examples = [
            "1-appln",
            "2-do_fork",
            "2b-vortex",
            "3-count",
            "4-swap_out",
            "5-general_protection",
            "6-groups",
        ];
        let paths = examples.map(|name| format!("examples/man/{name}.rpn"));
        for path in &paths {
            assert_eq!(digest(&["-p", path, "-o", "/dev/null"]), plain, "{path}");
            all.extend(["-p", path]);
        }
        assert_eq!(digest(&all), plain);
    }
}

/// Writes a probe program that logs only its header's items.
fn program(folder: &std::path::Path, header: &str, points: &[(String, &str)]) -> String {
    let mut text = header.to_owned();
    for (minor, (symbol, opcode)) in points.iter().enumerate() {
        text += &format!("offset = {symbol}\nopcode = {opcode}\nminor = {minor}\nmaxhits = 1000\nexit\n");
    }
    let path = folder.join("p.rpn");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_profile_gives_task_pid_uid_and_name_of_tasks_that_yield() {
    let folder = tempfile::tempdir().unwrap();
    let header = "name = vmlinux\nmodtype = kernel\nmajor = 1\n";
    let path = program(folder.path(), header, &[("do_yield".to_owned(), "0x55")]);
    for guest in GUESTS {
        let ran = run(guest, &["-f", "json", "--header", "pid,uid,name", "-p", &path]);
        let hits = hits_of(&ran);
        assert_eq!(hits.records.len() as u64, counted(guest, " yields"));
        for (name, pid, uid) in [("ping", 5, 1001), ("pong", 6, 1002)] {
            let of = |record: &&Value| record["name"] == name && record["pid"] == pid && record["uid"] == uid;
            assert_eq!(hits.records.iter().filter(of).count(), 10, "{guest} {name}");
        }
    }
}

#[test]
fn the_profile_lists_tasks_and_modules_at_both_widths() {
    for guest in trapline_guests::ALL {
        let (mut machine, image) = embedded_guest(guest).unwrap();
        let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
        let profile = TrapOs::find(image.plan(), &symbols).unwrap();
        assert_eq!(profile.current(machine.core()).unwrap().name, "swapper");
        machine.watch_console(vec![b"appln: child is pid 2".to_vec()]);
        let stop = machine.run(None, 100_000_000);
        assert_eq!(stop, Stop::Text(0));
        let core = machine.core();
        let current = profile.current(core).unwrap();
        assert_eq!((current.pid, current.uid, current.name.as_str()), (2, 1000, "appln"));
        let tasks: Vec<(u32, u32)> = profile.tasks(core).iter().map(|task| (task.pid, task.uid)).collect();
        assert_eq!(tasks, [(0, 0), (1, 0), (2, 1000)]);
        let modules = profile.modules(core);
        let names: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["vmlinux", "appln", "3c59x"]);
        let open = symbols.sole("vortex_open").unwrap().addr;
        assert!((modules[2].base..modules[2].base + modules[2].size).contains(&open));
    }
}

#[test]
fn static_sites_run_as_often_as_the_guest_says() {
    let folder = tempfile::tempdir().unwrap();
    let old = |guest| if guest == "ia32" { "0x3e" } else { "0x0f" };
    for guest in GUESTS {
        let plain = run(guest, &["--console", "none", "--digest"]).err;
        let kernel = ["0x0f", "0x0f", "0x90", "0x90", "0x66", old(guest)];
        let cases = [
            ("name = vmlinux\nmodtype = kernel\nmajor = 1\n", "sdt_site_", &kernel[..], "vmlinux: sdt sites"),
            (
                "name = appln\nmodtype = user\nmajor = 1\n",
                "appln_sdt_",
                &["0x0f", "0x90", "0x66"][..],
                "appln: sdt sites",
            ),
        ];
        for (header, prefix, opcodes, line) in cases {
            let points: Vec<(String, &str)> =
                opcodes.iter().enumerate().map(|(i, opcode)| (format!("{prefix}{i}"), *opcode)).collect();
            let path = program(folder.path(), header, &points);
            let hits = hits_of(&run(guest, &["-f", "json", "--digest", "-p", &path]));
            let counts: Vec<u64> = (0..opcodes.len() as u64).map(|minor| hits.count(1, minor)).collect();
            assert_eq!(counts, site_counts(guest, line), "{guest} {prefix}");
            let digest = run(guest, &["--console", "none", "--digest", "-o", "/dev/null", "-p", &path]).err;
            assert_eq!(digest, plain);
        }
    }
}
