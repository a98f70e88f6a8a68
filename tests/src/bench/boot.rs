//! GNU Mach from its entry to its `db>` prompt: Trapline, the bare engine with its own paging, and qemu.

use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trapline_emu::bare::{BareBoot, Counting};
use trapline_emu::load::Image;
use trapline_emu::{Machine, Stop, TrapInterposer};
use trapline_rpn::Width;
use trapline_session::{Guest, GuestBuilder};
use trapline_tests::{probe_everywhere, root};

const CMDLINE: &str = "console=com0";
const PROMPT: &str = "db>";
const MEM: u64 = 256 << 20;
/// An instruction limit far beyond the prompt.
const LIMIT: u64 = 50_000_000_000;
/// Upper bound for the slowdown of a boot with a probe on every executed instruction.
const EVERYWHERE: f64 = 40.0;
const QEMU: &str = "qemu-system-i386";
/// A first guess, for the boot that finds the true value.
const BYTES_PER_INSTRUCTION: f64 = 2.5;

/// The guest, if `make guests` has fetched it.
pub fn guest() -> Option<PathBuf> {
    Some(root().join(".guests/gnumach")).filter(|p| p.is_file())
}

/// A machine that runs to the prompt.
fn machine(guest: &Guest) -> Result<Machine, Box<dyn Error>> {
    let mut m = guest.machine()?;
    m.watch_console(vec![PROMPT.as_bytes().to_vec()]);
    Ok(m)
}

/// CPU seconds and retired instructions of a boot on Trapline.
fn trapline(guest: &Guest) -> Result<(f64, u64), Box<dyn Error>> {
    let mut m = machine(guest)?;
    let start = cpu_seconds();
    match m.run(None, LIMIT) {
        Stop::Text(_) => Ok((cpu_seconds() - start, m.icount())),
        other => Err(format!("Trapline: GNU Mach ended with {other:?}").into()),
    }
}

/// CPU seconds and hits of a boot with a probe on every instruction that it executes.
fn probed(guest: &Guest) -> Result<(f64, u64), Box<dyn Error>> {
    let mut plain = machine(guest)?;
    plain.core_mut().collect_coverage();
    plain.run(None, LIMIT);
    let sites: Vec<u64> = plain.core().coverage().collect();
    let mut m = machine(guest)?;
    let mut probes = probe_everywhere(&mut m, &sites, Width::W32)?;
    let start = cpu_seconds();
    match m.run(Some(&mut probes as &mut dyn TrapInterposer), LIMIT) {
        Stop::Text(_) => Ok((cpu_seconds() - start, probes.stats().hits)),
        other => Err(format!("probed everywhere, GNU Mach ended with {other:?}").into()),
    }
}

/// CPU seconds, code bytes and (when counted exactly) instructions of a boot on the bare engine.
fn bare(image: &Image, counting: Counting) -> Result<(f64, u64, u64), Box<dyn Error>> {
    let boot = BareBoot::new(image, CMDLINE, MEM, PROMPT.as_bytes(), counting)?;
    let start = cpu_seconds();
    let report = boot.run();
    match report.failure {
        None => Ok((cpu_seconds() - start, report.bytes, report.instructions)),
        Some(why) => Err(format!("bare Unicorn: {why}").into()),
    }
}

/// A child that does not outlive this value.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The child may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CPU seconds of a process: user and system time of `/proc/PID/stat`, in hundredths.
pub fn used(child: &Child) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

/// CPU seconds of qemu from its start until its serial port, which is added to the command, prints `text`; `None`
/// without qemu.
///
/// # Errors
/// qemu ends before that, or takes more wall time than `patience`.
pub fn qemu_until(
    command: &mut Command,
    text: &str,
    patience: Duration,
) -> Result<Option<f64>, Box<dyn Error>> {
    let serial = std::env::temp_dir().join(format!("trapline-bench-{}.serial", std::process::id()));
    // Usually the file does not exist.
    let _ = std::fs::remove_file(&serial);
    command.arg("-serial").arg(format!("file:{}", serial.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(child) = command.spawn() else { return Ok(None) };
    let mut child = Killed(child);
    let start = Instant::now();
    let seconds = loop {
        std::thread::sleep(Duration::from_millis(5));
        let said = std::fs::read(&serial).unwrap_or_default();
        if String::from_utf8_lossy(&said).contains(text) {
            break used(&child.0);
        }
        if start.elapsed() > patience || child.0.try_wait()?.is_some() {
            break None;
        }
    };
    drop(child);
    // The file may not exist.
    let _ = std::fs::remove_file(&serial);
    seconds.map(Some).ok_or_else(|| {
        format!("qemu ended, or ran for {} s, without saying {text:?}", patience.as_secs()).into()
    })
}

/// CPU seconds of GNU Mach's boot under qemu.
fn qemu(guest: &Path) -> Result<Option<f64>, Box<dyn Error>> {
    let mut command = Command::new(QEMU);
    command.args(["-accel", "tcg", "-icount", "shift=0,sleep=off", "-m", "256", "-display", "none"]);
    command.args(["-no-reboot", "-append", CMDLINE, "-kernel"]).arg(guest);
    qemu_until(&mut command, PROMPT, Duration::from_secs(300))
}

/// Seconds of each boot, round by round.
#[derive(Default)]
struct Seconds {
    ours: Vec<f64>,
    bare: Vec<f64>,
    qemu: Vec<f64>,
}

impl Seconds {
    /// One boot of each. The bare engine's clock counts bytes of code, `per` bytes for an instruction; its time is
    /// scaled to Trapline's number of instructions, which is returned.
    fn round(&mut self, path: &Path, guest: &Guest, per: f64) -> Result<u64, Box<dyn Error>> {
        let (t, insns) = trapline(guest)?;
        let (b, code, _) = bare(guest.target().image(), Counting::Bytes(per))?;
        self.ours.push(t);
        self.bare.push(b * insns as f64 / (code as f64 / per));
        self.qemu.extend(qemu(path)?);
        Ok(insns)
    }

    /// Median of the speed ratios to another machine.
    fn against(&self, other: &[f64]) -> f64 {
        median(other.iter().zip(&self.ours).map(|(o, t)| o / t).collect())
    }
}

/// Rows of the boot, and remarks.
///
/// # Errors
/// When a boot does not reach the prompt.
pub fn rows(path: &Path, rounds: usize) -> Result<(Vec<Row>, Vec<String>), Box<dyn Error>> {
    let guest = GuestBuilder::image(&path.display().to_string()).memory(MEM).cmdline(CMDLINE).open()?;
    let (_, code, exact) = bare(guest.target().image(), Counting::Exact(BYTES_PER_INSTRUCTION))?;
    let per = code as f64 / exact as f64;
    let mut seconds = Seconds::default();
    let mut insns = 0;
    for _ in 0..rounds {
        insns = seconds.round(path, &guest, per)?;
    }
    let ours =
        |what: &str| Row::plain(format!("   Trapline {what} (speed)"), median(seconds.ours.clone()), "s");
    let bare = seconds.against(&seconds.bare);
    let mut rows = vec![
        Row::plain("   bare Unicorn, its own paging", median(seconds.bare.clone()), "s"),
        ours("against it").against(bare, "bare boot", Target::AtLeast(0.85)),
    ];
    let mut notes = vec![format!("GNU Mach runs {insns} instructions to {PROMPT}; CPU seconds")];
    if seconds.qemu.len() == seconds.ours.len() {
        rows.push(Row::plain("   qemu-system-i386 -icount shift=0", median(seconds.qemu.clone()), "s"));
        let qemu = seconds.against(&seconds.qemu);
        rows.push(ours("against it").against(qemu, "qemu's boot", Target::AtLeast(1.0)));
    } else {
        notes.push(format!("no comparison with {QEMU}: it is not installed"));
    }
    let (everywhere, hits) = probed(&guest)?;
    let plain = median(seconds.ours);
    let row = Row::plain("   Trapline, every executed instruction probed (time)", everywhere, "s");
    rows.push(row.against(everywhere / plain, "unprobed boot", Target::AtMost(EVERYWHERE)));
    notes.push(format!("with every executed instruction probed: {hits} hits"));
    Ok((rows, notes))
}
