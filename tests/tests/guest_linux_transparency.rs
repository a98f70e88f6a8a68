//! Debian's Linux to its shell: every run is equal, wherever the host stops it, and with 10,000 functions probed.

#![allow(clippy::unwrap_used, clippy::panic)]

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use trapline_session::{Command, Condition, Ending, Limits, Observer, Reply, Script, Session};
use trapline_tests::boot::{Function, LINUX_LIMIT, LinuxBoot, PROMPT};
use trapline_tests::linux::{Linux, STRESS_LINES, stress_oracle, stress_part};
use trapline_tests::{guest, root};

/// Functions that are probed in each kernel.
const PROBED: usize = 10_000;

/// Functions whose hits are also counted without patches: functions that boot, fork, open, fault, schedule and
/// interrupt, and functions that run before the kernel patches itself or do the patching. Inlined functions are
/// skipped.
const COUNTED: [&str; 26] = [
    "kernel_clone",
    "do_sys_openat2",
    "do_filp_open",
    "path_openat",
    "vfs_read",
    "vfs_write",
    "do_exit",
    "handle_mm_fault",
    "do_mmap",
    "load_elf_binary",
    "begin_new_exec",
    "schedule",
    "try_to_wake_up",
    "kfree",
    "dput",
    "mntput",
    "hrtimer_interrupt",
    "tick_handle_periodic",
    "vprintk_emit",
    "unpack_to_rootfs",
    "setup_arch",
    "start_kernel",
    "text_poke_early",
    "apply_alternatives",
    "jump_label_init",
    "kmem_cache_alloc",
];

/// One in this many of the other functions that ran is counted without patches.
const EACH: usize = 20;
/// 32-bit kernels run these before they turn paging on, when no instruction has their linear address: a probe, which is in
/// physical memory, has hits, and a watchpoint has none.
const BEFORE_PAGING: [&str; 4] =
    ["load_ucode_bsp", "load_ucode_intel_bsp", "load_ucode_amd_bsp", "mk_early_pgtbl_32"];

/// The results that must be equal between runs.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    console: String,
    icount: u64,
    digest: String,
}

impl Run {
    fn of(session: &Session) -> Self {
        Run {
            console: String::from_utf8_lossy(session.console()).into_owned(),
            icount: session.icount(),
            digest: session.digest().to_string(),
        }
    }
}

/// An observer that drops all records.
struct Discard;

impl Observer for Discard {
    type Error = std::convert::Infallible;
}

/// Runs until the console shows this text.
fn run(session: &mut Session, until: &str) -> Run {
    let (until, limits) = (Condition::console(until), Limits::insns(LINUX_LIMIT));
    let Ok(ending) = session.run(&mut Script::default(), &until, &limits, &mut Discard);
    assert!(matches!(ending, Ending::Until(_)), "{ending}: {}", String::from_utf8_lossy(session.console()));
    Run::of(session)
}

/// Hits of each probe point of the only program.
fn hits(session: &mut Session) -> Vec<u64> {
    let Reply::Query { programs, .. } = session.apply(Command::Query).unwrap() else { panic!() };
    programs.iter().flat_map(|program| &program.points).map(|point| point.hits).collect()
}

/// Pseudo-random numbers, the same in every run of the test: xorshift64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Runs to the prompt with the host stopping every few million instructions, sometimes twice close together.
fn run_in_slices(session: &mut Session) -> Run {
    let prompt = Condition::console(PROMPT);
    let mut numbers = Numbers(0x7261_6e64_6f6d);
    let mut stops = 0;
    loop {
        let most = if numbers.next().is_multiple_of(4) { 50 } else { 20_000_000 };
        let limit = session.icount() + 1 + numbers.next() % most;
        match session.run_until(&prompt, &Limits::insns(limit)) {
            Ending::Limit => assert_eq!(session.icount(), limit),
            Ending::Until(_) => break,
            other => panic!("{other:?}"),
        }
        stops += 1;
    }
    assert!(stops > 100, "{stops} stops");
    Run::of(session)
}

/// The counted functions, filled up with others spread evenly over the kernel.
fn chosen(boot: &LinuxBoot) -> Vec<Function> {
    let all = boot.functions();
    assert!(all.len() > 2 * PROBED, "{} functions", all.len());
    let (mut chosen, others): (Vec<Function>, Vec<Function>) =
        all.into_iter().partition(|f| COUNTED.contains(&f.name.as_str()));
    let missing = PROBED - chosen.len();
    chosen.extend((0..missing).map(|n| others[n * others.len() / missing].clone()));
    chosen
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The row of `tests/oracle/linux-digests.tsv` for just these files: count and digest.
fn recorded(linux: &Linux, files: &[String; 2]) -> Option<(u64, String)> {
    let text = std::fs::read_to_string(root().join("tests/oracle/linux-digests.tsv")).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [flavour, _, kernel, initramfs, count, digest] = fields[..] else { panic!("{line:?}") };
        let same = flavour == linux.flavour && [kernel, initramfs] == [&files[0], &files[1]];
        same.then(|| (count.parse().unwrap(), digest.to_owned()))
    })
}

/// Debian's version of the kernel's package.
fn package_version(linux: &Linux) -> String {
    let text = std::fs::read_to_string(guest("VERSIONS")).unwrap();
    let file = format!("linux-{}", linux.flavour);
    let mut rows = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    rows.find(|fields| fields.get(3) == Some(&file.as_str())).unwrap()[1].to_owned()
}

/// Compares with the stored results of other machines. Without a stored result, only the runs of this test are compared.
fn compare_with_recorded(linux: &Linux, boot: &LinuxBoot, run: &Run) {
    let files = [sha256(&linux.kernel().unwrap()), sha256(boot.initrd())];
    match recorded(linux, &files) {
        Some(expected) => assert_eq!(
            (run.icount, run.digest.clone()),
            expected,
            "the result differs from that of another machine"
        ),
        None => println!(
            "these files are of another version than those recorded; a row for them:\n{}\t{}\t{}\t{}\t{}\t{}",
            linux.flavour,
            package_version(linux),
            files[0],
            files[1],
            run.icount,
            run.digest
        ),
    }
}

/// To the prompt: as it is, with the host stopping it anywhere, probed, and counted without patches.
fn repeats_and_does_not_notice(flavour: &str) {
    let linux = Linux::of(flavour).unwrap();
    let boot = LinuxBoot::shell(linux).unwrap();
    // What is recorded was not stopped by the host.
    compare_with_recorded(linux, &boot, &run_in_slices(&mut boot.session().unwrap()));
    let boot = LinuxBoot::quick(linux).unwrap();
    let plain = run(&mut boot.session().unwrap(), PROMPT);
    let functions = chosen(&boot);

    let mut probed = boot.session().unwrap();
    probed.apply(boot.probes(&functions).unwrap()).unwrap();
    assert!(probed.observe_only());
    assert_eq!(run(&mut probed, PROMPT), plain, "the guest noticed its probes");
    let (stats, executed) = (probed.stats(), hits(&mut probed));
    println!("{flavour}: {} functions, {stats:?}", functions.len());
    assert!(stats.rewritten > 1000, "the kernel rewrites most of its functions' first bytes: {stats:?}");

    let ran = functions.into_iter().zip(executed).filter(|(_, hits)| *hits > 0).enumerate();
    let named = |f: &Function| COUNTED.contains(&f.name.as_str());
    let ran = ran.filter(|(_, (f, _))| !BEFORE_PAGING.contains(&f.name.as_str()));
    let (counted, executed): (Vec<Function>, Vec<u64>) =
        ran.filter(|(n, (f, _))| named(f) || n.is_multiple_of(EACH)).map(|(_, counted)| counted).unzip();
    assert!(counted.iter().filter(|f| named(f)).count() >= 20, "{counted:?}");
    let mut watched = boot.session().unwrap();
    watched.apply(boot.watches(&counted).unwrap()).unwrap();
    assert_eq!(run(&mut watched, PROMPT), plain, "the guest noticed that it was counted");
    let wrong: Vec<String> = counted
        .iter()
        .zip(executed.into_iter().zip(hits(&mut watched)))
        .filter(|(_, (hits, count))| hits != count)
        .map(|(f, (hits, count))| format!("{}: {hits} hits, {count} executions", f.name))
        .collect();
    assert!(wrong.is_empty(), "of {}:\n{}", counted.len(), wrong.join("\n"));
    println!("{flavour}: the hits of {} functions are their executions", counted.len());
}

#[test]
fn guest_linux_686_repeats_itself_and_does_not_notice_10_000_probes_at_length() {
    repeats_and_does_not_notice("686");
}

#[test]
fn guest_linux_cloud_amd64_repeats_itself_and_does_not_notice_10_000_probes() {
    repeats_and_does_not_notice("cloud-amd64");
}

#[test]
fn guest_linux_amd64_repeats_itself_and_does_not_notice_10_000_probes_at_length() {
    repeats_and_does_not_notice("amd64");
}

/// The guest's own function tracer, kprobes, jump labels and loaded modules work at probed functions. This is the minimal
/// platform, which has no ACPI: the guest cannot power off.
#[test]
fn guest_linux_stress_script_does_not_notice_10_000_probes_at_length() {
    let boot = LinuxBoot::stress(Linux::of("cloud-amd64").unwrap()).unwrap();
    let end = STRESS_LINES.1;
    let plain = run(&mut boot.session().unwrap(), end);
    let mut probed = boot.session().unwrap();
    probed.apply(boot.probes(&chosen(&boot)).unwrap()).unwrap();
    assert_eq!(run(&mut probed, end), plain, "the guest noticed its probes");
    let said = stress_part(&plain.console).unwrap();
    assert_eq!(said, stress_oracle().unwrap(), "{}", plain.console);
    println!("{:?}", probed.stats());
}
