//! Debian's Linux to `Run /init` and through the stress script: Trapline and qemu, resident memory, and the cost of armed
//! functions that never run.

use super::boot::qemu_until;
use super::table::{Row, Target, cpu_seconds, median};
use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::path::Path;
use std::process;
use std::time::Duration;
use trapline_emu::Stop;
use trapline_session::{Command, Condition, Ending, Limits, SavedSession, Session};
use trapline_tests::boot::{Function, LINUX_LIMIT, LinuxBoot, MEM};
use trapline_tests::linux::{Linux, STRESS_LINES};
use trapline_tests::root;

/// The kernel's message when it has booted.
const BOOTED: &str = "Run /init";
/// Functions that are armed and never run.
const ARMED: usize = 10_000;
/// Upper bound for the slowdown of a boot with them.
const ARMED_BOUND: f64 = 1.05;
/// Upper bound for the slowdown of a boot with all functions armed.
const ALL_ARMED_BOUND: f64 = 1.4;
/// Instructions from one snapshot to the next, and how many snapshots are kept.
const EVERY: u64 = 1_000_000;
const KEPT: usize = 100;
/// Upper bound for the slowdown of a boot with them.
const SNAPSHOT_BOUND: f64 = 1.10;
/// Resident memory beyond guest RAM, bytes.
const BEYOND_RAM: u64 = 160 << 20;
/// Upper bound for qemu's wall time.
const PATIENCE: Duration = Duration::from_secs(900);

/// The kernel's file, and the name of its sections for `--only`.
pub fn title(linux: &Linux) -> String {
    format!("linux-{}", linux.flavour)
}

/// The time that Trapline may take as a multiple of qemu's: for a boot, and for a boot with the stress script.
fn bounds(linux: &Linux) -> (Target, Target) {
    let (boot, stress) = match linux.flavour {
        "cloud-amd64" => (0.9, 1.0),
        "amd64" => (0.45, 1.0),
        "686" => (1.0, 1.1),
        _ => return (Target::None, Target::None),
    };
    (Target::AtMost(boot), Target::AtMost(stress))
}

/// CPU seconds of a run to this text.
fn timed(session: &mut Session, until: &str) -> Result<f64, Box<dyn Error>> {
    let start = cpu_seconds();
    match session.run_until(&Condition::console(until), &Limits::insns(LINUX_LIMIT)) {
        Ending::Until(_) => Ok(cpu_seconds() - start),
        other => Err(format!("Linux ended early: {other}").into()),
    }
}

/// CPU seconds of qemu's run to the same text, on a PC with a serial port alone; `None` without qemu. Its clock is the
/// host's: counting instructions, it takes three times as long.
fn qemu(linux: &Linux, boot: &LinuxBoot, initrd: &Path, until: &str) -> Result<Option<f64>, Box<dyn Error>> {
    let (qemu, cpu) = emulator(linux);
    let mut command = process::Command::new(qemu);
    command.args(["-accel", "tcg", "-cpu", cpu, "-m"]);
    command.arg((MEM >> 20).to_string()).args(["-nodefaults", "-display", "none", "-no-reboot"]);
    command.args(["-append", &boot.cmdline(), "-kernel"]);
    command.arg(root().join(".guests").join(title(linux))).arg("-initrd").arg(initrd);
    qemu_until(&mut command, until, PATIENCE)
}

/// qemu's program and CPU model for a kernel, as `scripts/qemu-oracle` has them.
fn emulator(linux: &Linux) -> (&'static str, &'static str) {
    match linux.arch {
        "i386" => ("qemu-system-i386", "pentium3"),
        _ => ("qemu-system-x86_64", "Nehalem"),
    }
}

/// Rounds of runs to a text, Trapline's and qemu's in turn.
fn against_qemu(
    linux: &Linux,
    boot: &LinuxBoot,
    initrd: &str,
    until: &str,
    (rounds, bound): (usize, Target),
) -> Result<Vec<Row>, Box<dyn Error>> {
    let initrd = root().join(".guests").join(initrd);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(timed(&mut boot.session()?, until)?);
        theirs.extend(qemu(linux, boot, &initrd, until)?);
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(o, t)| o / t).collect();
    let row = Row::plain(format!("   Trapline to {until:?}"), median(ours), "s");
    if theirs.is_empty() {
        return Ok(vec![row]);
    }
    let yardstick = Row::plain(format!("   {} to {until:?}", emulator(linux).0), median(theirs), "s");
    Ok(vec![yardstick, row.against(median(ratios), "qemu's time", bound)])
}

/// The greatest resident memory of this process since [`forget_peak`], bytes (proc(5), `VmHWM`).
fn peak() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|l| l.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok());
    Ok(kib.ok_or("/proc/self/status has no VmHWM")? << 10)
}

/// Begins a new measurement of resident memory (proc(5), `clear_refs`).
fn forget_peak() -> std::io::Result<()> {
    std::fs::write("/proc/self/clear_refs", "5")
}

/// The greatest resident memory of this process while a kernel runs the stress script, bytes.
///
/// # Errors
/// As [`boot`].
pub fn resident_here(linux: &Linux) -> Result<u64, Box<dyn Error>> {
    let boot = LinuxBoot::stress(linux)?;
    forget_peak()?;
    timed(&mut boot.session()?, STRESS_LINES.1)?;
    peak()
}

/// The same in a process of its own: the allocator keeps memory of the sections before.
fn resident(linux: &Linux) -> Result<Row, Box<dyn Error>> {
    let output =
        process::Command::new(std::env::current_exe()?).args(["--resident", linux.flavour]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let peak: u64 =
        text.trim().parse().map_err(|_| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    let row = Row::plain("   resident memory through the stress script", (peak >> 20) as f64, "MiB");
    Ok(row.against(peak as f64 / (MEM + BEYOND_RAM) as f64, "RAM + 160 MiB", Target::AtMost(1.0)))
}

/// Functions that the boot never executes, spread evenly over the kernel.
fn unexecuted(boot: &LinuxBoot) -> Result<Vec<Function>, Box<dyn Error>> {
    let mut machine = boot.machine(BOOTED)?;
    machine.core_mut().collect_coverage();
    if !matches!(machine.run(None, LINUX_LIMIT), Stop::Text(_)) {
        return Err(format!("the console never showed {BOOTED:?}").into());
    }
    let ran: BTreeSet<u64> = machine.core().coverage().collect();
    let idle: Vec<Function> = boot.functions().into_iter().filter(|f| !ran.contains(&f.paddr)).collect();
    if idle.len() < ARMED {
        return Err(format!("{} functions never run, fewer than {ARMED}", idle.len()).into());
    }
    Ok((0..ARMED).filter_map(|n| idle.get(n * idle.len() / ARMED).cloned()).collect())
}

/// A boot with functions armed that never run, against one without, in turn.
fn armed(boot: &LinuxBoot, rounds: usize) -> Result<Row, Box<dyn Error>> {
    let functions = unexecuted(boot)?;
    let (mut times, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let plain = timed(&mut boot.session()?, BOOTED)?;
        let mut session = boot.session()?;
        session.apply(boot.probes(&functions)?)?;
        let seconds = timed(&mut session, BOOTED)?;
        if session.stats().hits > 0 {
            return Err(format!("{} hits of functions that never run", session.stats().hits).into());
        }
        times.push(seconds);
        ratios.push(seconds / plain);
    }
    let row = Row::plain("   10,000 functions armed that never run", median(times), "s");
    Ok(row.against(median(ratios), "unprobed boot", Target::AtMost(ARMED_BOUND)))
}

/// A boot with every function's entry probed, by a handler that does nothing, against one without, in turn.
fn all_armed(boot: &LinuxBoot, rounds: usize) -> Result<Row, Box<dyn Error>> {
    const CLAUSE: &str = "fbt:::entry { abort }";
    let (mut times, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let plain = timed(&mut boot.session()?, BOOTED)?;
        let mut session = boot.session()?;
        session.apply(Command::clause(CLAUSE))?;
        let seconds = timed(&mut session, BOOTED)?;
        times.push(seconds);
        ratios.push(seconds / plain);
    }
    let row = Row::plain(format!("   every function armed: {CLAUSE}"), median(times), "s");
    Ok(row.against(median(ratios), "unprobed boot", Target::AtMost(ALL_ARMED_BOUND)))
}

/// CPU seconds of a session's run to the text, with a snapshot every `every` instructions; also returns the last
/// [`KEPT`] snapshots.
fn laddered(session: &mut Session, every: u64) -> Result<(f64, VecDeque<SavedSession>), Box<dyn Error>> {
    let start = cpu_seconds();
    let mut ladder = VecDeque::new();
    loop {
        let next = session.icount().saturating_add(every).min(LINUX_LIMIT);
        match session.run_until(&Condition::console(BOOTED), &Limits::insns(next).in_passing()) {
            Ending::Limit if next < LINUX_LIMIT => {}
            Ending::Until(_) => return Ok((cpu_seconds() - start, ladder)),
            other => return Err(format!("Linux ended: {other}").into()),
        }
        if ladder.len() == KEPT {
            ladder.pop_front();
        }
        ladder.push_back(session.snapshot());
    }
}

/// A boot of a session with many snapshots against one without, in turn; with probes on every function that `clause`
/// names. Also measures restoring each snapshot from the one after it.
fn snapshots(boot: &LinuxBoot, clause: Option<&str>, rounds: usize) -> Result<[Row; 2], Box<dyn Error>> {
    let session = || -> Result<Session, Box<dyn Error>> {
        let mut session = boot.session()?;
        if let Some(clause) = clause {
            session.apply(Command::clause(clause))?;
        }
        Ok(session)
    };
    let (mut times, mut ratios, mut backs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (plain, _) = laddered(&mut session()?, LINUX_LIMIT)?;
        let mut session = session()?;
        let (seconds, ladder) = laddered(&mut session, EVERY)?;
        times.push(seconds);
        ratios.push(seconds / plain);
        let start = cpu_seconds();
        for saved in ladder.iter().rev() {
            session.restore(saved)?;
        }
        backs.push((cpu_seconds() - start) * 1e6 / ladder.len().max(1) as f64);
    }
    let probed = clause.map(|clause| format!(", probed by {clause}")).unwrap_or_default();
    let row = Row::plain(format!("   a snapshot every 1,000,000 instructions{probed}"), median(times), "s");
    let row = row.against(median(ratios), "boot without", Target::AtMost(SNAPSHOT_BOUND));
    Ok([row, Row::plain(format!("   going back by one of them{probed}"), median(backs), "us")])
}

/// Rows of one kernel's boot.
///
/// # Errors
/// A guest is missing, or does not reach the expected text.
pub fn boot(linux: &Linux, rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let boot = LinuxBoot::shell(linux)?;
    let initrd = format!("initramfs-{}.cpio.gz", linux.arch);
    let mut rows = against_qemu(linux, &boot, &initrd, BOOTED, (rounds, bounds(linux).0))?;
    rows.push(armed(&boot, rounds)?);
    rows.push(all_armed(&boot, rounds)?);
    rows.extend(snapshots(&boot, None, rounds)?);
    rows.extend(snapshots(&boot, Some("fbt::vfs_*:"), rounds)?);
    Ok(rows)
}

/// Rows of the stress script on one kernel.
///
/// # Errors
/// As [`boot`].
pub fn stress(linux: &Linux, rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let boot = LinuxBoot::stress(linux)?;
    let memory = resident(linux)?;
    let initrd = format!("stress-{}.cpio.gz", linux.flavour);
    let mut rows = against_qemu(linux, &boot, &initrd, STRESS_LINES.1, (rounds, bounds(linux).1))?;
    rows.push(memory);
    Ok(rows)
}
