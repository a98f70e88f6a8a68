//! GNU Mach from its entry to its `db>` prompt: Trapline, the bare engine with its own paging, and qemu.

use super::table::{Row, Target, median};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trapline_emu::bare::{BareBoot, Counting};
use trapline_emu::load::Image;
use trapline_emu::{CpuModel, Machine, MachineConfig, Stop};

const CMDLINE: &str = "console=com0";
const PROMPT: &[u8] = b"db>";
const MEM: u64 = 256 << 20;
const QEMU: &str = "qemu-system-i386";

/// The guest, if `make guests` has fetched it.
pub fn guest() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    Some(root.join(".guests/gnumach")).filter(|p| p.is_file())
}

/// Seconds and retired instructions of a boot on Trapline.
fn trapline(image: &Image) -> Result<(f64, u64), Box<dyn Error>> {
    let mut m = Machine::new(&MachineConfig { mem_size: MEM, model: CpuModel::Ia32 })?;
    m.load(image, CMDLINE, &[])?;
    m.watch_console(vec![PROMPT.to_vec()]);
    let start = Instant::now();
    match m.run(None, 50_000_000_000) {
        Stop::Text(_) => Ok((start.elapsed().as_secs_f64(), m.icount())),
        other => Err(format!("Trapline: GNU Mach ended with {other:?}").into()),
    }
}

/// Seconds, code bytes and (when counted exactly) instructions of a boot on the bare engine.
fn bare(image: &Image, counting: Counting) -> Result<(f64, u64, u64), Box<dyn Error>> {
    let boot = BareBoot::new(image, CMDLINE, MEM, PROMPT, counting)?;
    let start = Instant::now();
    let report = boot.run();
    match report.failure {
        None => Ok((start.elapsed().as_secs_f64(), report.bytes, report.instructions)),
        Some(why) => Err(format!("bare Unicorn: {why}").into()),
    }
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

/// Wall-clock seconds of qemu from its start until its serial file shows the prompt; `None` without qemu.
fn qemu(guest: &Path) -> Result<Option<f64>, Box<dyn Error>> {
    let serial = std::env::temp_dir().join(format!("trapline-bench-{}.serial", std::process::id()));
    let _ = std::fs::remove_file(&serial);
    let start = Instant::now();
    let spawned = Command::new(QEMU)
        .args(["-accel", "tcg", "-icount", "shift=0,sleep=off", "-m", "256", "-display", "none", "-no-reboot"])
        .args(["-append", CMDLINE, "-kernel"])
        .arg(guest)
        .arg("-serial")
        .arg(format!("file:{}", serial.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = spawned else { return Ok(None) };
    let mut child = Killed(child);
    let seconds = loop {
        std::thread::sleep(Duration::from_millis(5));
        let text = std::fs::read(&serial).unwrap_or_default();
        let seconds = start.elapsed().as_secs_f64();
        if text.windows(PROMPT.len()).any(|w| w == PROMPT) {
            break Some(seconds);
        }
        if seconds > 110.0 || child.0.try_wait()?.is_some() {
            break None;
        }
    };
    drop(child);
    let _ = std::fs::remove_file(&serial);
    seconds.map(Some).ok_or_else(|| "qemu ended, or ran 110 s, without GNU Mach's prompt".into())
}

/// Rows of the boot, and remarks.
///
/// # Errors
/// When a boot does not reach the prompt.
pub fn rows(guest: &Path, rounds: usize) -> Result<(Vec<Row>, Vec<String>), Box<dyn Error>> {
    let bytes = std::fs::read(guest)?;
    let image = Image::parse(&bytes, "gnumach")?;
    // The bare engine's clock runs on bytes of code. How many are an instruction is taken from a boot that counts
    // both, so that the timed boots do the work of Trapline's.
    let (_, insns) = trapline(&image)?;
    let (_, code, exact) = bare(&image, Counting::Exact(BYTES_PER_INSTRUCTION))?;
    let per = code as f64 / exact as f64;
    let (mut ours, mut bares, mut qemus) = (Vec::new(), Vec::new(), Vec::new());
    let (mut to_bare, mut to_qemu) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (t, _) = trapline(&image)?;
        let (b, code, _) = bare(&image, Counting::Bytes(per))?;
        let b = b * insns as f64 / (code as f64 / per);
        ours.push(t);
        bares.push(b);
        to_bare.push(b / t);
        if let Some(q) = qemu(guest)? {
            qemus.push(q);
            to_qemu.push(q / t);
        }
    }
    let mut rows = vec![Row::plain("   bare Unicorn, its own paging", median(bares), "s")];
    let row = Row::plain("   Trapline (speed)", median(ours), "s");
    rows.push(row.against(median(to_bare), "bare boot", Target::AtLeast(0.85)));
    let mut notes = vec![format!("{insns} instructions; the bare engine's time is scaled to as many")];
    if qemus.is_empty() {
        notes.push(format!("no comparison with {QEMU}: it is not installed"));
    } else {
        let row = Row::plain("   qemu-system-i386 -icount shift=0 (Trapline's speed)", median(qemus), "s");
        rows.push(row.against(median(to_qemu), "qemu's boot", Target::AtLeast(1.0)));
    }
    Ok((rows, notes))
}

/// A first guess, for the boot that finds the true value.
const BYTES_PER_INSTRUCTION: f64 = 2.5;
