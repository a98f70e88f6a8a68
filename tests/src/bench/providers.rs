//! Probes by name on Debian's amd64 kernel, which has 49,665 functions: resolved, listed, armed; and the cost of probes that
//! are known but not enabled.

use super::table::{Row, Target as Bound, cpu_seconds, median};
use std::error::Error;
use std::process::{Command, Stdio};
use trapline_emu::load::Image;
use trapline_emu::symbols::Symbols;
use trapline_emu::{BootFiles, BootState, CpuMode, CpuModel, Machine, MachineConfig, Stop, TrapInterposer};
use trapline_interposer::{Interposer, Place};
use trapline_providers::{Clause, Target, Untyped, enable, find};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::boot::MEM;
use trapline_tests::linux::Linux;
use trapline_tests::{interposer, root};

/// The description that is resolved, listed and armed.
const SPEC: &str = "fbt:::entry";
/// Probes that the bounds are for.
const PROBES: usize = 40_000;
const RESOLVED_MS: f64 = 300.0;
const LISTED_MS: f64 = 500.0;
const ARMED_MS: f64 = 300.0;
/// Upper bound for the slowdown by a probe that is not enabled: the difference between two measurements of the same loop. For
/// a disabled point, one load and one branch, the bound is for a function of a hundred instructions.
const DORMANT: f64 = 1.1;

fn row(what: &str, times: Vec<f64>, bound_ms: f64, of: &'static str) -> Row {
    let ms = median(times);
    Row::plain(what, ms, "ms").against(ms / bound_ms, of, Bound::AtMost(1.0))
}

/// The rows of a Linux kernel.
///
/// # Errors
/// Its files are missing, or it lacks expected probes.
pub fn linux(linux: &Linux, rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let name = format!("linux-{}", linux.flavour);
    let image = Image::parse(&linux.kernel()?, &name)?;
    let symbols = Symbols::from_kallsyms(&image.plan().image, &name)?;
    let (mut named, mut armed, mut listed, mut whole) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let target = Target::new(image.clone(), symbols.clone(), Vec::new());
        let start = cpu_seconds();
        let found = find(&target, SPEC)?;
        named.push((cpu_seconds() - start) * 1e3);
        if found.len() < PROBES {
            return Err(format!("{name} has {} of {PROBES} probes", found.len()).into());
        }
        let mut machine = Machine::new(&MachineConfig { mem_size: MEM, model: CpuModel::X86_64 })?;
        machine.load(&image, &BootFiles::default())?;
        let (resolved, _) = enable(&target, &Clause::parse(SPEC)?, &Untyped)?;
        let mut probes = interposer();
        let start = cpu_seconds();
        probes.insert(machine.core_mut(), "bench", resolved.program, resolved.points)?;
        armed.push((cpu_seconds() - start) * 1e3);
        if (probes.stats().sites as usize) < PROBES {
            return Err(format!("{} sites are armed", probes.stats().sites).into());
        }
        // The time for opening and unpacking the kernel is not part of listing.
        let (opened, all) = (list(&name, "kernel_clone")?, list(&name, SPEC)?);
        listed.push(all - opened);
        whole.push(all);
    }
    Ok(vec![
        row("   fbt:::entry resolved", named, RESOLVED_MS, "300 ms"),
        row("   fbt:::entry listed", listed, LISTED_MS, "500 ms"),
        Row::plain("   the same with the kernel unpacked and opened", median(whole), "ms"),
        row("   fbt:::entry armed", armed, ARMED_MS, "300 ms"),
    ])
}

/// CPU milliseconds of `trapline list`.
fn list(kernel: &str, spec: &str) -> Result<f64, Box<dyn Error>> {
    let trapline = trapline_tests::built::trapline()?;
    let before = children()?;
    let mut command = Command::new(&trapline);
    command.args(["list", &format!(".guests/{kernel}"), spec, "-q"]).current_dir(root());
    let status =
        command.stdout(Stdio::null()).status().map_err(|e| format!("{}: {e}", trapline.display()))?;
    if !status.success() {
        return Err(format!("trapline list: {status}").into());
    }
    Ok((children()? - before) * 1e3)
}

/// CPU seconds of the children that have ended: user and system time of `/proc/self/stat`, in hundredths.
fn children() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?;
    let mut ticks = 0.0;
    for field in fields.split_whitespace().skip(13).take(2) {
        ticks += field.parse::<f64>()?;
    }
    Ok(ticks / 100.0)
}

const AT: u64 = 0x1_0000;
/// The pointer of a disabled probe.
const POINTER: u64 = 0x2_0000;

/// A loop that never ends: `dec eax`, these instructions, `jmp` back.
struct Loop {
    body: Vec<u8>,
    /// Instructions of one iteration.
    length: u64,
}

impl Loop {
    fn new(body: Vec<u8>, instructions: u64) -> Self {
        Self { body, length: instructions + 2 }
    }

    /// A machine in the loop. If a place is given, the interposer has had a probe there, which is now disabled.
    fn warm(&self, place: Option<(Place, u8)>) -> Result<(Machine, Option<Interposer>), Box<dyn Error>> {
        let mut machine = Machine::new(&MachineConfig { mem_size: 4 << 20, model: CpuModel::Ia32 })?;
        let mut code = vec![0x48];
        code.extend(&self.body);
        code.push(0xe9);
        let back = -(code.len() as i32 + 4);
        code.extend(back.to_le_bytes());
        machine.write_physical(AT, &code);
        machine.boot(&BootState { mode: CpuMode::Flat32, ip: AT, ax: 0, bx: 0, sp: 0x8000, si: 0 });
        let mut probes = None;
        if let Some((place, opcode)) = place {
            let text = format!("name = bench\nmodtype = kernel\naddress = {AT}\nopcode = {opcode}\nabort\n");
            let program = parse("bench.rpn", &text)?.link(Width::W32, &NoSymbols)?;
            let mut interposer = interposer();
            let id = interposer.insert(machine.core_mut(), "bench", program, vec![place])?;
            interposer.remove(machine.core_mut(), id);
            probes = Some(interposer);
        }
        Ok((machine, probes))
    }

    /// Nanoseconds per iteration.
    fn turns(
        &self,
        (machine, probes): &mut (Machine, Option<Interposer>),
        turns: u64,
    ) -> Result<f64, Box<dyn Error>> {
        let limit = machine.icount() + self.length * turns;
        let start = cpu_seconds();
        let stop = machine.run(probes.as_mut().map(|p| p as &mut dyn TrapInterposer), limit);
        let ns = (cpu_seconds() - start) * 1e9 / turns as f64;
        if stop == Stop::Limit { Ok(ns) } else { Err(format!("dormant: {stop:?}").into()) }
    }
}

/// `cmp dword ptr [POINTER], 0; jne`: a macro-declared probe that is disabled.
fn point() -> Vec<u8> {
    let mut code = vec![0x83, 0x3d];
    code.extend((POINTER as u32).to_le_bytes());
    code.extend([0, 0x75, 0]);
    code
}

/// Inserted probes that are not enabled, against the same code without them.
///
/// # Errors
/// A machine cannot be built, or does not run as expected.
pub fn dormant(rounds: usize, scale: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let nop = || vec![0x90];
    let pointer = || Place::Pointer { linear: POINTER, paddr: POINTER, wide: false };
    let site = Place::Kernel { linear: AT + 1, paddr: AT + 1 };
    // A function of a hundred instructions that reads memory, with and without a point in its middle.
    let work: Vec<u8> = (0..25).flat_map(|_| [0x03, 0x1d, 0, 0, 3, 0, 0x43, 0x31, 0xd9, 0x4a]).collect();
    let half = work.len() / 2 / 10 * 10;
    let with_point = [&work[..half], &point(), &work[half..]].concat();
    let cases = [
        (
            "   a NOP that had a probe, in a loop of 3",
            "no probe",
            (Loop::new(nop(), 1), Some((site, 0x90))),
            Loop::new(nop(), 1),
        ),
        (
            "   a dormant macro probe, in a loop of 4",
            "no probe",
            (Loop::new(point(), 2), Some((pointer(), 0))),
            Loop::new(point(), 2),
        ),
        (
            "   a dormant macro probe, in 100 instructions",
            "the 100 alone",
            (Loop::new(with_point, 102), Some((pointer(), 0))),
            Loop::new(work, 100),
        ),
    ];
    let mut rows = Vec::new();
    for (what, of, (probed, place), plain) in cases {
        let (mut ours, mut theirs) = (probed.warm(place)?, plain.warm(None)?);
        let turns = scale * 1_200_000 / plain.length;
        let (mut times, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..=rounds {
            let (before, ns, after) = (
                plain.turns(&mut theirs, turns)?,
                probed.turns(&mut ours, turns)?,
                plain.turns(&mut theirs, turns)?,
            );
            times.push(ns);
            ratios.push(ns / f64::midpoint(before, after));
        }
        // The first round warms up.
        let warm = |all: Vec<f64>| median(all.into_iter().skip(1).collect());
        rows.push(Row::plain(what, warm(times), "ns").against(warm(ratios), of, Bound::AtMost(DORMANT)));
    }
    Ok(rows)
}
