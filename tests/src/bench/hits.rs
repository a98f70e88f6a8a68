//! The paper's five experiments, on its loop `dec eax; nop; jnz`, and 4000 armed sites.

use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use std::sync::Arc;
use trapline_emu::bare::BareCode;
use trapline_emu::{BootState, CpuMode, CpuModel, EngineError, Machine, MachineConfig, Stop, TrapInterposer};
use trapline_interposer::{Arguments, Interposer, Place, Point, Provided};
use trapline_providers::{Abi, AtEntry};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::interposer;
use trapline_trace::ProbeName;

const AT: u64 = 0x10000;
const NOP: u8 = 0x90;
const DEC: u8 = 0x48;

/// Code with probes on it.
struct Case {
    what: &'static str,
    code: fn() -> Vec<u8>,
    /// Instructions of one iteration.
    length: u64,
    iterations: u32,
    /// Addresses and opcodes of the probes, and the handler they share.
    probes: Vec<(u64, u8)>,
    handler: &'static str,
    /// Whether they are fbt's, and so have arguments.
    provided: bool,
    /// Whether its sites trap at each hit, as sites do until they have been hit often.
    traps: bool,
    target: Target,
    paper: &'static str,
}

/// `l: dec eax; nop; jnz l`.
fn paper_loop() -> Vec<u8> {
    vec![DEC, NOP, 0x75, 0xfc]
}

/// The same after `push ebx; push ebx; call l`: two arguments on the stack, below them a return address, as at a
/// function's entry.
fn called_loop() -> Vec<u8> {
    let mut code = vec![0x53, 0x53, 0xe8, 0, 0, 0, 0];
    code.extend(paper_loop());
    code
}

/// `l: dec eax; loopne m; m: jnz l`: LOOPNE is stepped in place.
fn stepped_loop() -> Vec<u8> {
    vec![DEC, 0xe0, 0, 0x75, 0xfb]
}

/// Sites of the many-sites loops.
const SITES: usize = 4000;

/// The instruction 4000 times, then `dec eax; jnz`.
fn many(instruction: &[u8]) -> Vec<u8> {
    let mut code = instruction.repeat(SITES);
    let back = -(code.len() as i32 + 1 + 6);
    code.extend([DEC, 0x0f, 0x85]);
    code.extend(back.to_le_bytes());
    code
}

fn many_nops() -> Vec<u8> {
    many(&[NOP])
}

/// `lea esi, [esi]`, the nop of alignment, which runs out of line.
fn many_leas() -> Vec<u8> {
    many(&[0x8d, 0x36])
}

/// One `nop` every 64 bytes, as probes on function entries lie; a short jump leads to the next.
fn spread_nops() -> Vec<u8> {
    let mut one = vec![NOP, 0xeb, 61];
    one.resize(64, 0xcc);
    many(&one)
}

/// The same with `lea esi, [esi]`.
fn spread_leas() -> Vec<u8> {
    let mut one = vec![0x8d, 0x36, 0xeb, 60];
    one.resize(64, 0xcc);
    many(&one)
}

/// The paper's loop as the bare engine runs it: `mov eax, n` before, HLT after.
fn bare_loop(n: u32) -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend(n.to_le_bytes());
    code.extend(paper_loop());
    code.push(0xf4);
    code
}

fn every(step: u64, opcode: u8) -> Vec<(u64, u8)> {
    (0..SITES as u64).map(|i| (AT + i * step, opcode)).collect()
}

const LOG_TWO: &str = "push r, eax\npush r, ebx\nlog 2\nexit";

fn cases(scale: u32) -> Vec<Case> {
    let on = |what, at: u64, opcode, handler, target, paper| Case {
        what,
        code: paper_loop,
        length: 3,
        iterations: 40_000 * scale,
        probes: vec![(AT + at, opcode)],
        handler,
        provided: false,
        traps: false,
        target,
        paper,
    };
    vec![
        Case {
            what: "1  Trapline, unprobed (speed)",
            code: paper_loop,
            length: 3,
            iterations: 400_000 * scale,
            probes: Vec::new(),
            handler: "",
            provided: false,
            traps: false,
            target: Target::AtLeast(0.70),
            paper: "1x",
        },
        on("2  probe on dec eax, abort: out of line", 0, DEC, "abort", Target::AtMost(12.0), "533x"),
        on("3  probe on nop, abort: emulated", 1, NOP, "abort", Target::AtMost(8.0), "267x"),
        on("4  as 2, push r,eax; abort", 0, DEC, "push r, eax\nabort", Target::AtMost(14.0), "533x"),
        trapping(on("   as 2, abort, with a trap", 0, DEC, "abort", Target::None, "")),
        trapping(on("   as 3, abort, with a trap", 1, NOP, "abort", Target::None, "")),
        on("5  as 2, exit: a record each", 0, DEC, "exit", Target::None, "6667x"),
        on("   probe on nop, two registers logged", 1, NOP, LOG_TWO, Target::AtMost(20.0), ""),
        on("   probe on dec eax, two registers logged", 0, DEC, LOG_TWO, Target::AtMost(20.0), ""),
        Case {
            code: stepped_loop,
            length: 3,
            iterations: 10_000 * scale,
            ..on("   probe on loopne, abort: emulated", 1, 0xe0, "abort", Target::None, "")
        },
    ]
}

/// The same with a trap at each hit.
fn trapping(case: Case) -> Case {
    Case { traps: true, ..case }
}

fn site_cases(scale: u32) -> Vec<Case> {
    let sites = |what, code, probes| Case {
        what,
        code,
        length: SITES as u64 + 2,
        iterations: 10 * scale,
        probes,
        handler: "abort",
        provided: false,
        traps: false,
        target: Target::None,
        paper: "",
    };
    // Real probes lie on functions, so only that row has a target. Adjacent sites share, by the thousands, the 64
    // entries that the engine's jump cache has for a page; out of line each takes two of its 4,096.
    vec![
        sites("4000 sites, nop side by side: emulated, each", many_nops as fn() -> Vec<u8>, every(1, NOP)),
        Case {
            length: 2 * SITES as u64 + 2,
            target: Target::AtMost(3.0),
            ..sites("4000 sites, nop 64 bytes apart: emulated, each", spread_nops, every(64, NOP))
        },
        sites("4000 sites, lea side by side: out of line, each", many_leas, every(2, 0x8d)),
        Case {
            length: 2 * SITES as u64 + 2,
            ..sites("4000 sites, lea 64 bytes apart: out of line, each", spread_leas, every(64, 0x8d))
        },
    ]
}

impl Case {
    /// A fresh machine in the loop, probed.
    fn prepare(&self) -> Result<(Machine, Interposer), Box<dyn Error>> {
        let mut m = Machine::new(&MachineConfig { mem_size: 16 << 20, model: CpuModel::Ia32 })?;
        let mut i = interposer();
        if self.traps {
            m.core_mut().set_in_line_after(0);
        }
        m.write_physical(AT, &(self.code)());
        // EAX runs down from its largest value: the run ends by its instruction limit.
        m.boot(&BootState { mode: CpuMode::Flat32, ip: AT, ax: 0xffff_ffff, bx: 7, sp: 0x8000, si: 0 });
        if !self.probes.is_empty() {
            let points: String = self
                .probes
                .iter()
                .map(|(at, opcode)| format!("address = {at:#x}\nopcode = {opcode:#x}\n{}\n", self.handler))
                .collect();
            let text = format!("name = bench\nmodtype = kernel\n{points}");
            let program = parse("bench.rpn", &text)?.link(Width::W32, &NoSymbols)?;
            let points = self.probes.iter().map(|&(a, _)| self.point(a)).collect();
            i.insert(m.core_mut(), "bench", program, points)?;
        }
        Ok((m, i))
    }

    /// The place of a probe, and its arguments.
    fn point(&self, at: u64) -> Point {
        let name = ProbeName {
            provider: "fbt".into(),
            module: "bench".into(),
            function: "loop".into(),
            name: "entry".into(),
        };
        let arguments: Arc<dyn Arguments> = Arc::new(AtEntry(Abi::Cdecl));
        let provided = Provided { id: 1, name: Arc::new(name), arguments, at_call: true, when: None };
        let place = Place::Kernel { linear: at, paddr: at };
        let mut point = Point::from(place);
        point.provided = self.provided.then_some(provided);
        point
    }

    fn pass(&self, m: &mut Machine, i: &mut Interposer, iterations: u32) -> Result<(), Box<dyn Error>> {
        let limit = m.icount() + self.length * u64::from(iterations);
        match m.run(Some(i as &mut dyn TrapInterposer), limit) {
            Stop::Limit => Ok(()),
            other => Err(format!("{}: {other:?}", self.what).into()),
        }
    }

    /// A machine for this case, warm: translated, displaced, and the record channel's memory touched.
    fn warm(&self) -> Result<Warm<'_>, Box<dyn Error>> {
        let (mut m, mut i) = self.prepare()?;
        self.pass(&mut m, &mut i, self.iterations)?;
        Ok(Warm { case: self, m, i })
    }
}

/// A case that has run before.
struct Warm<'a> {
    case: &'a Case,
    m: Machine,
    i: Interposer,
}

impl Warm<'_> {
    /// Nanoseconds an iteration.
    fn run(&mut self) -> Result<f64, Box<dyn Error>> {
        let n = self.case.iterations;
        let before = self.i.stats().hits;
        let start = cpu_seconds();
        self.case.pass(&mut self.m, &mut self.i, n)?;
        let ns = (cpu_seconds() - start) * 1e9 / f64::from(n);
        let (hits, expected) = (self.i.stats().hits - before, u64::from(n) * self.case.probes.len() as u64);
        if hits.abs_diff(expected) > 1 {
            return Err(format!("{}: {hits} hits instead of {expected}", self.case.what).into());
        }
        Ok(ns)
    }
}

/// The paper's loop on the bare engine, warm.
struct Bare {
    code: BareCode,
    iterations: u32,
}

impl Bare {
    fn warm(iterations: u32) -> Result<Self, Box<dyn Error>> {
        Self::running(&bare_loop(iterations), iterations, |_| Ok(()))
    }

    /// The same with INT3 in place of the NOP, and an empty hook for it: the engine's share of a hit.
    fn trapping(iterations: u32) -> Result<Self, Box<dyn Error>> {
        let mut code = bare_loop(iterations);
        let nop = code.iter().rposition(|b| *b == NOP).ok_or("the paper's loop has no NOP")?;
        code[nop] = 0xcc;
        Self::running(&code, iterations, BareCode::pass_traps)
    }

    fn running(
        code: &[u8],
        iterations: u32,
        prepare: impl FnOnce(&mut BareCode) -> Result<(), EngineError>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut code = BareCode::new(code, AT as u32)?;
        prepare(&mut code)?;
        code.run()?;
        Ok(Bare { code, iterations })
    }

    /// Nanoseconds an iteration.
    fn run(&mut self) -> Result<f64, Box<dyn Error>> {
        let start = cpu_seconds();
        self.code.run()?;
        Ok((cpu_seconds() - start) * 1e9 / f64::from(self.iterations))
    }
}

/// Nanoseconds of the bare engine's iteration, the baseline of a hit.
///
/// # Errors
/// When the engine cannot be built.
pub fn bare_iteration(rounds: usize, scale: u32) -> Result<f64, Box<dyn Error>> {
    let mut bare = Bare::warm(100_000 * scale)?;
    let times = (0..rounds).map(|_| bare.run()).collect::<Result<Vec<_>, _>>()?;
    Ok(median(times))
}

/// The five experiments, against the bare engine's iteration in the same round.
///
/// # Errors
/// A machine cannot be built, or does not run as expected.
pub fn paper(rounds: usize, scale: u32, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut cases = cases(scale);
    cases.retain(|c| c.what.contains(only));
    let mut warm = cases.iter().map(Case::warm).collect::<Result<Vec<_>, _>>()?;
    let mut bare = Bare::warm(100_000 * scale)?;
    let mut trapping = Bare::trapping(40_000 * scale)?;
    let (mut yardstick, mut traps, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    let mut times = vec![Vec::new(); cases.len()];
    let mut ratios = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        let (trap, unit) = (trapping.run()?, bare.run()?);
        traps.push(trap);
        floor.push(trap / unit);
        yardstick.push(unit);
        for (n, case) in warm.iter_mut().enumerate() {
            let (before, ns, after) = (bare.run()?, case.run()?, bare.run()?);
            let unit = f64::midpoint(before, after);
            yardstick.push(unit);
            times[n].push(ns);
            ratios[n].push(if case.case.probes.is_empty() { unit / ns } else { ns / unit });
        }
    }
    let mut rows = vec![Row::plain("   bare Unicorn, one iteration", median(yardstick), "ns")];
    let row = Row::plain("   bare Unicorn, INT3 for the nop, an empty hook", median(traps), "ns");
    rows.push(row.against(median(floor), "bare iteration", Target::None));
    for ((case, times), ratios) in cases.iter().zip(times).zip(ratios) {
        let row = Row::plain(case.what, median(times), "ns");
        rows.push(row.against(median(ratios), "bare iteration", case.target).paper(case.paper));
    }
    Ok(rows)
}

/// Two arguments of a function logged, as fbt's entry probe finds them, against two registers in the same round.
///
/// # Errors
/// As for [`paper`].
pub fn arguments(rounds: usize, scale: u32, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let known = cases(scale);
    let Some(registers) = known.iter().find(|c| c.what.contains("probe on nop, two registers")) else {
        return Ok(Vec::new());
    };
    let handler = "push arg, 1\npush arg, 0\nlog 2\nexit";
    // The bound is for the record of a hit with a trap; in line, everything except the arguments takes less time.
    let ways = [
        ("   fbt's entry, two arguments logged, with a trap", true, Target::AtMost(1.3)),
        ("   fbt's entry, two arguments logged", false, Target::None),
    ];
    let mut rows = Vec::new();
    for (what, traps, target) in ways.into_iter().filter(|(what, ..)| what.contains(only)) {
        let probes = vec![(AT + called_loop().len() as u64 - 3, NOP)];
        let registers = Case { traps, code: called_loop, probes, ..*registers };
        let probes = registers.probes.clone();
        let arguments = Case { what, handler, provided: true, probes, ..registers };
        let (mut ours, mut theirs) = (arguments.warm()?, registers.warm()?);
        let (mut times, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (before, ns, after) = (theirs.run()?, ours.run()?, theirs.run()?);
            times.push(ns);
            ratios.push(ns / f64::midpoint(before, after));
        }
        let row = Row::plain(what, median(times), "ns");
        rows.push(row.against(median(ratios), "two registers logged", target));
    }
    Ok(rows)
}

/// 4000 armed sites, each against the hit of a single site of its kind in the same round.
///
/// # Errors
/// As for [`paper`].
pub fn sites(rounds: usize, scale: u32, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let singles = cases(scale);
    let mut rows = Vec::new();
    for (case, single) in site_cases(scale).iter().zip(["3", "3", "2", "2"]) {
        let Some(single) = singles.iter().find(|c| c.what.starts_with(single)) else { continue };
        if !case.what.contains(only) {
            continue;
        }
        let (mut many, mut one) = (case.warm()?, single.warm()?);
        let (mut times, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (hit, each) = (one.run()?, many.run()? / SITES as f64);
            times.push(each);
            ratios.push(each / hit);
        }
        let row = Row::plain(case.what, median(times), "ns");
        rows.push(row.against(median(ratios), "one site's hit", case.target));
    }
    Ok(rows)
}
