//! D programs: what a clause costs at a hit, what it computes against hand-written RPN, the compiler, and a kernel's boot
//! with every function counted.

use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use trapline_d::{Compiled, compile};
use trapline_emu::{BootState, CpuMode, CpuModel, Machine, MachineConfig, Stop, TrapInterposer};
use trapline_interposer::{Arguments, DSetup, Interposer, Place, Point, Provided};
use trapline_providers::{Abi, AtEntry};
use trapline_rpn::{LinkedProgram, NoSymbols, Vars, Vm, Width, parse};
use trapline_session::{Command, Condition, DSource, Ending, Limits};
use trapline_tests::boot::{LINUX_LIMIT, LinuxBoot};
use trapline_tests::interposer;
use trapline_tests::linux::Linux;
use trapline_trace::ProbeName;

use super::vm::Memory;

const AT: u64 = 0x10000;
/// Instructions of `l: dec eax; nop; jnz l`.
const LENGTH: u64 = 3;

/// Clauses: what they do, their text, and how many nanoseconds they may take above the empty one.
const CLAUSES: &[(&str, &str, f64)] = &[
    ("   @ = count()", "@ = count();", 60.0),
    ("   @[probefunc] = count()", "@[probefunc] = count();", 120.0),
    ("   @ = quantize(arg0)", "@ = quantize(arg0);", 70.0),
    ("   self->t = hit; n += self->t", "self->t = hit; n += self->t;", 40.0),
];

/// A machine in the paper's loop with a clause on its nop.
struct Hit {
    machine: Machine,
    interposer: Interposer,
}

/// The clauses of a program, all on the same instruction.
fn linked(compiled: &Compiled) -> Result<LinkedProgram, Box<dyn Error>> {
    let points = format!("address = {AT:#x}\nopcode = 0x90\nabort\n").repeat(compiled.clauses.len());
    let text = format!("name = bench\nmodtype = kernel\n{points}").replace(&format!("{AT:#x}"), "0x10001");
    let mut program = parse("bench.rpn", &text)?.link(Width::W32, &NoSymbols)?;
    program.width = Width::W64;
    program.header.vars = compiled.slots;
    for (probe, clause) in program.probes.iter_mut().zip(&compiled.clauses) {
        probe.handler = Arc::clone(&clause.handler);
    }
    Ok(program)
}

fn point() -> Point {
    let name = ProbeName {
        provider: "fbt".into(),
        module: "bench".into(),
        function: "some_function".into(),
        name: "entry".into(),
    };
    let arguments: Arc<dyn Arguments> = Arc::new(AtEntry(Abi::Cdecl));
    let provided = Provided { id: 10, name: Arc::new(name), arguments, at_call: true, when: None };
    Point::provided(Place::Kernel { linear: AT + 1, paddr: AT + 1 }, provided)
}

impl Hit {
    fn new(clause: &str) -> Result<Self, Box<dyn Error>> {
        let compiled = compile(&format!("fbt:bench:some_function:entry {{ {clause} }}"))?;
        let program = linked(&compiled)?;
        let setup = DSetup {
            tables: Arc::new(compiled.tables.clone()),
            limits: compiled.options.limits(),
            ..DSetup::default()
        };
        let mut machine = Machine::new(&MachineConfig { mem_size: 16 << 20, model: CpuModel::Ia32 })?;
        let mut interposer = interposer();
        machine.write_physical(AT, &[0x48, 0x90, 0x75, 0xfc]);
        machine.boot(&BootState { mode: CpuMode::Flat32, ip: AT, ax: 0xffff_ffff, bx: 7, sp: 0x8000, si: 0 });
        interposer.insert_d(machine.core_mut(), "bench", (&program, vec![point()]), Arc::new(setup))?;
        let mut hit = Self { machine, interposer };
        hit.run(100_000)?;
        Ok(hit)
    }

    /// Nanoseconds an iteration.
    fn run(&mut self, iterations: u32) -> Result<f64, Box<dyn Error>> {
        let limit = self.machine.icount() + LENGTH * u64::from(iterations);
        let before = self.interposer.stats().hits;
        let start = cpu_seconds();
        match self.machine.run(Some(&mut self.interposer as &mut dyn TrapInterposer), limit) {
            Stop::Limit => {}
            other => return Err(format!("the loop ended: {other:?}").into()),
        }
        let ns = (cpu_seconds() - start) * 1e9 / f64::from(iterations);
        let hits = self.interposer.stats().hits - before;
        if hits.abs_diff(iterations.into()) > 1 {
            return Err(format!("{hits} hits instead of {iterations}").into());
        }
        Ok(ns)
    }
}

/// What clauses add to an empty one, taken in the same round.
///
/// # Errors
/// A machine cannot be built, or does not run as expected.
pub fn clauses(rounds: usize, scale: u32, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut empty = Hit::new("0;")?;
    let mut rows = Vec::new();
    let iterations = 20_000 * scale;
    for (what, clause, bound) in CLAUSES.iter().filter(|(what, ..)| what.contains(only)) {
        let mut hit = Hit::new(clause)?;
        let mut above = Vec::new();
        for _ in 0..rounds {
            let (before, ns, after) = (empty.run(iterations)?, hit.run(iterations)?, empty.run(iterations)?);
            above.push(ns - f64::midpoint(before, after));
        }
        let above = median(above);
        let of: &'static str = match *bound as u32 {
            60 => "60 ns",
            120 => "120 ns",
            70 => "70 ns",
            _ => "40 ns",
        };
        rows.push(Row::plain(*what, above, "ns").against(above / bound, of, Target::AtMost(1.0)));
    }
    Ok(rows)
}

/// Steps of the arithmetic.
const STEPS: usize = 50;
/// One step in D, and the same by hand.
const STEP_D: &str =
    "x = x * 1103515245 + 12345; y = (y ^ x) - (x >> 7); x = x & 1 ? x + 3 : x - (y & 255);\n";
const STEP_RPN: &str = "push lv, 0\npush 1103515245\nmul\npush 12345\nadd\npop lv, 0\n\
    push lv, 1\npush lv, 0\nxor\npush lv, 0\nshr 7\nxchg\nsub\npop lv, 1\n\
    push lv, 0\npush 1\nand\njz not#\nros 1\n\
    push lv, 0\npush 3\nadd\njmp both#\nnot#: ros 1\npush lv, 1\npush 255\nand\npush lv, 0\nsub\nboth#: pop lv, 0\n";

/// Arithmetic of D against the same by hand.
///
/// # Errors
/// When a program does not compile, or both sides do not compute the same.
pub fn arithmetic(rounds: usize, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let what = "   arithmetic on two variables of 64 bits";
    if !what.contains(only) {
        return Ok(Vec::new());
    }
    let text = format!("uint64_t x, y;\nBEGIN {{\n{}}}\n", STEP_D.repeat(STEPS));
    let ours = compile(&text)?;
    let ours = &ours.clauses.first().ok_or("no clause")?.handler;
    let steps: String = (0..STEPS).map(|n| STEP_RPN.replace('#', &n.to_string())).collect();
    let text = format!(
        "name = bench\nmodtype = kernel\nvars = 2\njmpmax = 65535\noffset = 0\nopcode = 0x90\n{steps}exit\n"
    );
    let by_hand = parse("bench.rpn", &text)?.link(Width::W64, &NoSymbols)?;
    let by_hand = &by_hand.probes.first().ok_or("no probe")?.handler;
    let (mut vm, runs) = (Vm::new(), 2_000u32);
    vm.set_max_steps(u32::MAX);
    let mut timed = |program: &trapline_rpn::Verified| {
        let (mut lv, mut host) = ([0u64; 2], Memory::empty());
        let start = cpu_seconds();
        for _ in 0..runs {
            black_box(vm.run(black_box(program), &mut host, Vars { lv: &mut lv, gv: &mut [] }));
        }
        ((cpu_seconds() - start) * 1e9 / f64::from(runs), lv)
    };
    let (mut times, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let ((ns, found), (base, wanted)) = (timed(ours), timed(by_hand));
        if found != wanted {
            return Err(format!("{what}: D gives {found:x?}, RPN {wanted:x?}").into());
        }
        times.push(ns);
        ratios.push(ns / base);
    }
    let row = Row::plain(what, median(times), "ns");
    Ok(vec![row.against(median(ratios), "hand-written RPN", Target::AtMost(1.2))])
}

/// Lines of the program that is compiled.
const LINES: usize = 10_000;
/// Upper bound for compiling them, in milliseconds.
const COMPILE_MS: f64 = 200.0;

/// A program of exactly [`LINES`] lines: types, variables, predicates, formats, aggregations.
fn source() -> String {
    let mut text = String::new();
    let mut n = 0;
    while (n + 1) * 10 <= LINES {
        text.push_str(&format!(
            "struct s{n} {{ int a; long b[4]; char name[16]; }};\n\
             struct s{n} v{n};\n\
             BEGIN, tick-{}ms\n\
             /v{n}.a < {n} && probename != \"x{n}\"/\n\
             {{\n\
             \tself->t{n} = timestamp; this->n = strlen(execname) + v{n}.b[1];\n\
             \tv{n}.a += (int)(arg0 >> 3) * {n} - sizeof (struct s{n});\n\
             \t@a{n}[probefunc, pid] = quantize(timestamp - self->t{n});\n\
             \tprintf(\"%d %s %-10x\\n\", v{n}.a, stringof(v{n}.name), this->n);\n\
             }}\n",
            n % 50 + 1
        ));
        n += 1;
    }
    text
}

/// The compiler of D.
///
/// # Errors
/// When the program does not compile.
pub fn compiler(rounds: usize, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let what = "10,000 lines of D compiled";
    if !what.contains(only) {
        return Ok(Vec::new());
    }
    let text = source();
    if text.lines().count() != LINES {
        return Err(format!("the program has {} lines", text.lines().count()).into());
    }
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = cpu_seconds();
        black_box(compile(black_box(&text))?);
        times.push((cpu_seconds() - start) * 1e3);
    }
    let time = median(times);
    let row = Row::plain(what, time, "ms");
    Ok(vec![row.against(time / COMPILE_MS, "200 ms", Target::AtMost(1.0))])
}

/// Every function of a kernel counted while it boots, against a boot without probes, in turn.
///
/// # Errors
/// A guest is missing, or does not reach the expected text.
pub fn boot(linux: &Linux, rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let boot = LinuxBoot::shell(linux)?;
    let program = "fbt:::entry { @[probefunc] = count(); }";
    let (mut times, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut seconds = [0.0; 2];
        for (probed, seconds) in seconds.iter_mut().enumerate() {
            let mut session = boot.session()?;
            if probed == 1 {
                session.apply(Command::D(DSource::clauses(program)))?;
            }
            let start = cpu_seconds();
            let ending = session.run_until(&Condition::console("Run /init"), &Limits::insns(LINUX_LIMIT));
            *seconds = cpu_seconds() - start;
            if !matches!(ending, Ending::Until(_)) {
                return Err(format!("Linux ended early: {ending}").into());
            }
        }
        times.push(seconds[1]);
        ratios.push(seconds[1] / seconds[0]);
    }
    let row = Row::plain("   fbt:::entry { @[probefunc] = count(); }", median(times), "s");
    Ok(vec![row.against(median(ratios), "unprobed boot", Target::AtMost(2.0))])
}
