//! GNU Mach from its entry to its `db>` prompt: Trapline, the bare engine with its own paging, and qemu.

use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trapline_emu::bare::{BareBoot, Counting};
use trapline_emu::load::Image;
use trapline_emu::{CpuModel, Machine, MachineConfig, Stop};

const CMDLINE: &str = "console=com0";
const PROMPT: &str = "db>";
/// Printed after about a twentieth of the boot. The bare engine needs minutes for all of it, because a 32-bit
/// guest's stores never get its fast path (engine hazard 9), so it is compared on this part.
const EARLY: &str = "floppy0";
const MEM: u64 = 256 << 20;
const QEMU: &str = "qemu-system-i386";
/// A first guess, for the boot that finds the true value.
const BYTES_PER_INSTRUCTION: f64 = 2.5;

/// The guest, if `make guests` has fetched it.
pub fn guest() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    Some(root.join(".guests/gnumach")).filter(|p| p.is_file())
}

/// CPU seconds and retired instructions of a boot on Trapline.
fn trapline(image: &Image, until: &str) -> Result<(f64, u64), Box<dyn Error>> {
    let mut m = Machine::new(&MachineConfig { mem_size: MEM, model: CpuModel::Ia32 })?;
    m.load(image, CMDLINE, &[])?;
    m.watch_console(vec![until.as_bytes().to_vec()]);
    let start = cpu_seconds();
    match m.run(None, 50_000_000_000) {
        Stop::Text(_) => Ok((cpu_seconds() - start, m.icount())),
        other => Err(format!("Trapline: GNU Mach ended with {other:?}").into()),
    }
}

/// CPU seconds, code bytes and (when counted exactly) instructions of a boot on the bare engine.
fn bare(image: &Image, until: &str, counting: Counting) -> Result<(f64, u64, u64), Box<dyn Error>> {
    let boot = BareBoot::new(image, CMDLINE, MEM, until.as_bytes(), counting)?;
    let start = cpu_seconds();
    let report = boot.run();
    match report.failure {
        None => Ok((cpu_seconds() - start, report.bytes, report.instructions)),
        Some(why) => Err(format!("bare Unicorn: {why}").into()),
    }
}

/// Trapline against the bare engine, up to `until`. The bare engine's clock runs on bytes of code; how many are an
/// instruction is taken from a boot that counts both, and its time is scaled to as many instructions as Trapline's.
fn against_bare(image: &Image, until: &str, rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let (_, code, exact) = bare(image, until, Counting::Exact(BYTES_PER_INSTRUCTION))?;
    let per = code as f64 / exact as f64;
    let (mut ours, mut bares, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (t, insns) = trapline(image, until)?;
        let (b, code, _) = bare(image, until, Counting::Bytes(per))?;
        let b = b * insns as f64 / (code as f64 / per);
        ours.push(t);
        bares.push(b);
        ratios.push(b / t);
    }
    let row = Row::plain(format!("   Trapline, to {until} (speed)"), median(ours), "s");
    Ok(vec![
        Row::plain(format!("   bare Unicorn, its own paging, to {until}"), median(bares), "s"),
        row.against(median(ratios), "bare boot", Target::AtLeast(0.85)),
    ])
}

/// A child that does not outlive this value.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CPU seconds of a process: user and system time of `/proc/PID/stat`, in hundredths.
fn used(child: &Child) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

fn start_qemu(guest: &Path, serial: &Path) -> std::io::Result<Child> {
    Command::new(QEMU)
        .args([
            "-accel",
            "tcg",
            "-icount",
            "shift=0,sleep=off",
            "-m",
            "256",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args(["-append", CMDLINE, "-kernel"])
        .arg(guest)
        .arg("-serial")
        .arg(format!("file:{}", serial.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// CPU seconds of qemu from its start until its serial file shows the prompt; `None` without qemu.
fn qemu(guest: &Path) -> Result<Option<f64>, Box<dyn Error>> {
    let serial = std::env::temp_dir().join(format!("trapline-bench-{}.serial", std::process::id()));
    // There is none as a rule.
    let _ = std::fs::remove_file(&serial);
    let Ok(child) = start_qemu(guest, &serial) else { return Ok(None) };
    let mut child = Killed(child);
    let start = Instant::now();
    let seconds = loop {
        std::thread::sleep(Duration::from_millis(5));
        let text = std::fs::read_to_string(&serial).unwrap_or_default();
        if text.contains(PROMPT) {
            break used(&child.0);
        }
        if start.elapsed().as_secs() > 300 || child.0.try_wait()?.is_some() {
            break None;
        }
    };
    drop(child);
    // It may not have been made.
    let _ = std::fs::remove_file(&serial);
    seconds.map(Some).ok_or_else(|| "qemu ended, or ran for 300 s, without GNU Mach's prompt".into())
}

/// Rows of the boot, and remarks. `whole`: the bare engine boots to the prompt, too.
///
/// # Errors
/// When a boot does not reach its text.
pub fn rows(guest: &Path, rounds: usize, whole: bool) -> Result<(Vec<Row>, Vec<String>), Box<dyn Error>> {
    let bytes = std::fs::read(guest)?;
    let image = Image::parse(&bytes, "gnumach")?;
    let mut rows = against_bare(&image, EARLY, rounds)?;
    if whole {
        rows.extend(against_bare(&image, PROMPT, 1)?);
    }
    let (mut ours, mut qemus, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut insns = 0;
    for _ in 0..rounds {
        let (t, n) = trapline(&image, PROMPT)?;
        insns = n;
        ours.push(t);
        if let Some(q) = qemu(guest)? {
            qemus.push(q);
            ratios.push(q / t);
        }
    }
    let mut notes =
        vec![format!("GNU Mach runs {insns} instructions to {PROMPT}; CPU seconds; bare: see --whole-bare")];
    let row = Row::plain(format!("   Trapline, to {PROMPT} (speed)"), median(ours), "s");
    if qemus.is_empty() {
        rows.push(row);
        notes.push(format!("no comparison with {QEMU}: it is not installed"));
    } else {
        rows.push(Row::plain("   qemu-system-i386 -icount shift=0, to db>", median(qemus), "s"));
        rows.push(row.against(median(ratios), "qemu's boot", Target::AtLeast(1.0)));
    }
    Ok((rows, notes))
}
