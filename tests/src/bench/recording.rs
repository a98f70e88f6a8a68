//! Debian's cloud kernel to its shell, recorded and replayed: Trapline against its own plain run and against qemu's record
//! and replay.

use super::boot::used;
use super::table::{Row, Target, cpu_seconds, median};
use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trapline_session::{
    Condition, Content, Ending, Followed, Guest, GuestBuilder, Limits, Observer, Places, Probing,
    RecordedCourse, Recorder, Recording, Session, Way,
};
use trapline_tests::boot::{LINUX_LIMIT, MEM, PROMPT};
use trapline_tests::linux::Linux;
use trapline_tests::root;

/// Upper bounds for the slowdown of a run that is recorded, and of a replay with every checkpoint verified.
const RECORD_BOUND: f64 = 1.02;
const VERIFY_BOUND: f64 = 1.05;
/// Upper bound for the size of the file, KiB.
const SIZE_BOUND: f64 = 64.0;
/// How much longer qemu must at least take to replay.
const QEMU_BOUND: f64 = 20.0;
/// Upper bound for qemu's wall time.
const PATIENCE: Duration = Duration::from_secs(600);

fn file(name: &str) -> PathBuf {
    root().join(".guests").join(name)
}

/// A file of this process that is removed when this value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("trapline-bench-{}.{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may not exist.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An observer that drops everything.
struct Unseen;

impl Observer for Unseen {
    type Error = Infallible;
}

/// The kernel, read once.
struct Boot {
    builder: GuestBuilder,
    guest: Guest,
    file: Scratch,
}

impl Boot {
    fn of(linux: &Linux) -> Result<Self, Box<dyn Error>> {
        let kernel = file(&format!("linux-{}", linux.flavour)).display().to_string();
        let initrd = Content::File(file(&format!("initramfs-{}.cpio.gz", linux.arch)));
        let builder = GuestBuilder::image(&kernel).memory(MEM).initrd(initrd);
        Ok(Boot { guest: builder.open()?, builder, file: Scratch::new("tlr") })
    }

    /// CPU seconds of a run to the shell's prompt.
    fn run(session: &mut Session) -> Result<f64, Box<dyn Error>> {
        let start = cpu_seconds();
        let ending = session.run_until(&Condition::console(PROMPT), &Limits::insns(LINUX_LIMIT));
        session.finish_recording()?;
        match ending {
            Ending::Until(_) => Ok(cpu_seconds() - start),
            other => Err(format!("Linux ended early: {other}").into()),
        }
    }

    fn plain(&self) -> Result<f64, Box<dyn Error>> {
        Self::run(&mut self.guest.start(Probing::default())?)
    }

    /// With each checkpoint of `trapline record`, into a file.
    fn recorded(&self) -> Result<f64, Box<dyn Error>> {
        let (_, config, blobs) = self.builder.recorded(false)?;
        let recorder = Recorder::begin(Box::new(File::create(&self.file.0)?), &config, &blobs)?;
        let mut session = self.guest.start(Probing::default())?;
        session.record(recorder)?;
        Self::run(&mut session)
    }

    /// The recording again, with each checkpoint compared.
    fn replayed(&self) -> Result<Took, Box<dyn Error>> {
        let recording = Recording::read(&self.file.0)?;
        let guest = GuestBuilder::of_recording(&recording, &Places::of(&self.file.0))?.open()?;
        let mut session = guest.start(recording.config().probing.clone())?;
        let (start, began) = (cpu_seconds(), Instant::now());
        session.verify(&recording, true);
        let mut course = RecordedCourse::of(&recording, Way::Same, |_| true);
        let Ok(followed) = session.follow(&mut course, None, &Limits::none(), &mut Unseen);
        let took = Took { cpu: cpu_seconds() - start, wall: began.elapsed().as_secs_f64() };
        let verified = session.verifier().map_or(0, trapline_session::Verifier::verified);
        match followed? {
            Followed::End(_) if verified == recording.checkpoints().len() => Ok(took),
            other => Err(format!("the replay ended with {other:?} after {verified} checkpoints").into()),
        }
    }
}

/// What a run took, seconds.
struct Took {
    cpu: f64,
    wall: f64,
}

/// qemu's record and replay, and the bytes of its log.
struct Qemu {
    recorded: Took,
    replayed: Took,
    log: u64,
}

/// qemu's record and replay of the same boot; `None` without qemu. With `shift=0` an instruction takes a nanosecond of
/// virtual time, as it does here, so that both guests see the same number of timer interrupts.
fn qemu(linux: &Linux) -> Result<Option<Qemu>, Box<dyn Error>> {
    let log = Scratch::new("rr");
    let run = |mode: &str| -> Result<Option<Took>, Box<dyn Error>> {
        let serial = Scratch::new("serial");
        let icount = format!("shift=0,rr={mode},rrfile={}", log.0.display());
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg", "-cpu", "Nehalem", "-m", "256", "-nodefaults", "-display", "none"]);
        command.args(["-no-reboot", "-net", "none", "-icount", &icount, "-append", "console=ttyS0 nokaslr"]);
        command.arg("-kernel").arg(file(&format!("linux-{}", linux.flavour)));
        command.arg("-initrd").arg(file(&format!("initramfs-{}.cpio.gz", linux.arch)));
        command.arg("-serial").arg(format!("file:{}", serial.0.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        until_prompt(&mut command, &serial.0)
    };
    let Some(recorded) = run("record")? else { return Ok(None) };
    let size = std::fs::metadata(&log.0)?.len();
    Ok(run("replay")?.map(|replayed| Qemu { recorded, replayed, log: size }))
}

/// What qemu takes until its serial port has printed the prompt. It is then asked to end, so that it writes its log.
fn until_prompt(command: &mut Command, serial: &Path) -> Result<Option<Took>, Box<dyn Error>> {
    let Ok(mut child) = command.spawn() else { return Ok(None) };
    let (start, mut seconds) = (Instant::now(), None);
    let printed = loop {
        std::thread::sleep(Duration::from_millis(5));
        seconds = used(&child).or(seconds);
        let printed =
            std::fs::read(serial).unwrap_or_default().windows(PROMPT.len()).any(|w| w == PROMPT.as_bytes());
        // A replay ends by itself soon after the prompt.
        if printed || start.elapsed() > PATIENCE || child.try_wait()?.is_some() {
            break printed;
        }
    };
    let wall = start.elapsed().as_secs_f64();
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    child.wait()?;
    match seconds {
        Some(cpu) if printed => Ok(Some(Took { cpu, wall })),
        _ => Err("qemu ended, or took too long, without a prompt".into()),
    }
}

/// Rows of recording and replaying one kernel's boot.
///
/// # Errors
/// A guest is missing, or does not reach its shell.
pub fn rows(linux: &Linux, rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let boot = Boot::of(linux)?;
    let (mut plain, mut recorded, mut replayed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.push(boot.plain()?);
        recorded.push(boot.recorded()?);
        replayed.push(boot.replayed()?);
    }
    let ratio = |times: &[f64]| median(times.iter().zip(&plain).map(|(time, plain)| time / plain).collect());
    let (cpu, wall): (Vec<f64>, Vec<f64>) = replayed.iter().map(|took| (took.cpu, took.wall)).unzip();
    let (to_record, to_replay) = (ratio(&recorded), ratio(&cpu));
    let kib = std::fs::metadata(&boot.file.0)?.len() as f64 / 1024.0;
    let (ours, waited) = (median(cpu), median(wall));
    let mut rows = vec![
        Row::plain("   a boot that is recorded", median(recorded), "s").against(
            to_record,
            "plain boot",
            Target::AtMost(RECORD_BOUND),
        ),
        Row::plain("   its replay, each checkpoint compared", ours, "s").against(
            to_replay,
            "plain boot",
            Target::AtMost(VERIFY_BOUND),
        ),
        Row::plain("   the recording", kib, "KiB").against(kib / SIZE_BOUND, "64 KiB", Target::AtMost(1.0)),
    ];
    if let Some(Qemu { recorded, replayed, log }) = qemu(linux)? {
        rows.push(Row::plain("   qemu's recording (rr=record, shift=0), CPU time", recorded.cpu, "s"));
        rows.push(Row::plain("   qemu's replay (rr=replay), CPU time", replayed.cpu, "s").against(
            replayed.cpu / ours,
            "our replay",
            Target::None,
        ));
        rows.push(Row::plain("   qemu's replay, time to wait", replayed.wall, "s").against(
            replayed.wall / waited,
            "our replay",
            Target::AtLeast(QEMU_BOUND),
        ));
        rows.push(Row::plain("   qemu's log", log as f64 / 1024.0, "KiB"));
    }
    Ok(rows)
}
