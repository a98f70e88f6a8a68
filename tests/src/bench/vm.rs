//! The interpreter against the crate `rbpf`'s on the same work, a whole program each, and the compiler.
//!
//! Both sides are checked to compute the same before anything is timed.

use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use std::hint::black_box;
use trapline_rpn::{Context, Fault, Host, LinkedProgram, NoSymbols, Reg, Vars, Vm, Width, parse};

/// Where the handlers see the memory.
const BASE: u64 = 0x10_0000;
const WORDS: usize = 4096;
/// Bytes of memory in front of the copies that the eBPF program makes.
const STRING: usize = 64;

/// A program in both languages. The eBPF program has the memory's address in r1, and returns its result in r0.
struct Case {
    what: &'static str,
    handler: &'static str,
    ebpf: &'static str,
    memory: fn() -> Vec<u8>,
    /// Whether handler and eBPF program agree: variable 1, the log, r0, the memory after the eBPF run.
    same: fn(u64, &[u8], u64, &[u8]) -> bool,
}

const CASES: &[Case] = &[
    Case {
        what: "arithmetic loop: 10,000 x (a * k + c)",
        handler: "push 1\npop lv, 1\npush 10000\nagain: push lv, 1\npush 1103515245\nmul\npush 12345\nadd\npop lv, 1\nloop again",
        ebpf: "mov r0, 1\nmov r1, 10000\nmul r0, 1103515245\nadd r0, 12345\nsub r1, 1\njne r1, 0, -4\nexit",
        memory: || vec![0; 8],
        same: |lv, _, r0, _| lv == r0,
    },
    Case {
        what: "memory sum: 4,096 words",
        handler: "push 0x100000\npop lv, 0\npush 0\npop lv, 1\npush 4096\n\
                  again: push lv, 0\npush mem, u32\npush lv, 1\nadd\npop lv, 1\n\
                  push lv, 0\npush 4\nadd\npop lv, 0\nloop again",
        ebpf: "mov r0, 0\nmov r2, 4096\nldxw r3, [r1]\nadd r0, r3\nadd r1, 4\nsub r2, 1\njne r2, 0, -5\nexit",
        memory: || (0..WORDS as u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect(),
        same: |lv, _, r0, _| lv == r0,
    },
    Case {
        what: "string log: 64 x 43 bytes up to a NUL",
        handler: "push 64\nagain: push 64\npush 0x100000\nlog str\nloop again",
        // r2: end of the copies, r3: from, r4: to, r5: most, r6: strings left. Token, length, bytes.
        ebpf: "mov r6, 64\nmov r2, r1\nadd r2, 64\n\
               mov r3, r1\nmov r4, r2\nadd r4, 3\nmov r5, 64\n\
               ldxb r0, [r3]\njeq r0, 0, +5\nstxb [r4], r0\nadd r3, 1\nadd r4, 1\nsub r5, 1\njne r5, 0, -7\n\
               mov r0, r4\nsub r0, r2\nsub r0, 3\nstb [r2], 1\nstxh [r2+1], r0\nmov r2, r4\n\
               sub r6, 1\njne r6, 0, -19\nexit",
        memory: || {
            let mut bytes = b"/lib/modules/2.2.12-20/net/3c59x.o, vortex\0".to_vec();
            bytes.resize(STRING + 64 * STRING, 0);
            bytes
        },
        same: |_, log, _, memory| !log.is_empty() && memory.get(STRING..STRING + log.len()) == Some(log),
    },
];

/// A guest that consists of memory only.
pub struct Memory<'a>(&'a [u8]);

impl Memory<'_> {
    /// A guest without memory.
    pub fn empty() -> Self {
        Self(&[])
    }
}

impl Host for Memory<'_> {
    fn read_reg(&mut self, _: Context, _: Reg) -> u64 {
        0
    }
    fn read_wide(&mut self, _: Context, _: Reg) -> u128 {
        0
    }
    fn write_reg(&mut self, _: Context, _: Reg, _: u64) -> bool {
        true
    }
    fn cpuid(&mut self, _: u32) -> [u32; 4] {
        [0; 4]
    }
    fn rdmsr(&mut self, _: u32) -> Option<u64> {
        None
    }
    fn read_mem(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let from = usize::try_from(addr.wrapping_sub(BASE)).ok();
        let bytes = from.and_then(|f| self.0.get(f..f.checked_add(buf.len())?)).ok_or(Fault(addr))?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
    fn write_mem(&mut self, addr: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault(addr))
    }
    fn can_write(&mut self, _: u64) -> bool {
        false
    }
    fn pid(&mut self) -> u64 {
        0
    }
    fn procid(&mut self) -> u64 {
        0
    }
    fn task(&mut self) -> u64 {
        0
    }
    fn io_read(&mut self, _: u16, _: u8) -> u32 {
        0
    }
    fn io_write(&mut self, _: u16, _: u8, _: u32) {}
    fn seg2lin(&mut self, _: u16, _: u64) -> Option<u64> {
        None
    }
}

fn compile(handler: &str) -> Result<LinkedProgram, Box<dyn Error>> {
    let text = format!(
        "name = bench\nmodtype = kernel\nvars = 2\nlogmax = 65535\njmpmax = 1000000\n\
         offset = 0\nopcode = 0x90\n{handler}\nexit\n"
    );
    Ok(parse("bench.rpn", &text)?.link(Width::W64, &NoSymbols)?)
}

/// One case, ready to run on both sides.
struct Pair {
    case: &'static Case,
    program: LinkedProgram,
    vm: Vm,
    ebpf: Vec<u8>,
    memory: Vec<u8>,
}

impl Pair {
    fn new(case: &'static Case) -> Result<Self, Box<dyn Error>> {
        let mut vm = Vm::new();
        vm.set_max_steps(u32::MAX);
        let ebpf = rbpf::assembler::assemble(case.ebpf)?;
        Ok(Pair { case, program: compile(case.handler)?, vm, ebpf, memory: (case.memory)() })
    }

    /// Nanoseconds of one run of the handler.
    fn ours(&mut self, runs: u32) -> Result<f64, Box<dyn Error>> {
        let probe = self.program.probes.first().ok_or("no probe")?;
        let (mut lv, mut host) = ([0u64; 2], Memory(&self.memory));
        let start = cpu_seconds();
        for _ in 0..runs {
            let vars = Vars { lv: &mut lv, gv: &mut [] };
            black_box(self.vm.run(black_box(&probe.handler), &mut host, vars));
        }
        Ok((cpu_seconds() - start) * 1e9 / f64::from(runs))
    }

    /// Nanoseconds of one run of the eBPF program.
    fn theirs(&mut self, runs: u32) -> Result<f64, Box<dyn Error>> {
        let vm = rbpf::EbpfVmRaw::new(Some(&self.ebpf))?;
        let start = cpu_seconds();
        for _ in 0..runs {
            black_box(vm.execute_program(black_box(&mut self.memory))?);
        }
        Ok((cpu_seconds() - start) * 1e9 / f64::from(runs))
    }

    fn check(&mut self) -> Result<(), Box<dyn Error>> {
        let probe = self.program.probes.first().ok_or("no probe")?;
        let mut lv = [0u64; 2];
        self.vm.run(&probe.handler, &mut Memory(&self.memory), Vars { lv: &mut lv, gv: &mut [] });
        let r0 = rbpf::EbpfVmRaw::new(Some(&self.ebpf))?.execute_program(&mut self.memory)?;
        if (self.case.same)(lv[1], self.vm.log(), r0, &self.memory) {
            return Ok(());
        }
        Err(format!("{}: handler and eBPF program differ: {:#x}, {r0:#x}", self.case.what, lv[1]).into())
    }
}

/// The three programs, each against rbpf's interpreter in the same round.
///
/// # Errors
/// When a program does not compile, or both sides do not compute the same.
pub fn programs(rounds: usize, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for case in CASES.iter().filter(|c| c.what.contains(only)) {
        let mut pair = Pair::new(case)?;
        pair.check()?;
        let (mut times, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (ours, theirs) = (pair.ours(20)?, pair.theirs(20)?);
            times.push(ours);
            ratios.push(ours / theirs);
        }
        let row = Row::plain(case.what, median(times), "ns");
        rows.push(row.against(median(ratios), "rbpf interpreter", Target::AtMost(2.0)));
    }
    Ok(rows)
}

/// Lines of the source that is compiled.
const LINES: usize = 10_000;
/// Upper bound for compiling them, in milliseconds.
const COMPILE_MS: f64 = 50.0;

/// Source of exactly [`LINES`] lines: probe points whose handlers have labels, calls, registers and comments.
fn source() -> String {
    let mut text = "name = \"vmlinux\"\nmodtype = kernel\nvars = 8\n".to_owned();
    let mut lines = 3;
    let mut n = 0;
    while lines + 23 <= LINES - 5 {
        text.push_str(&format!(
            "\noffset = {:#x} // probe {n}\nopcode = 0x55\nminor = {n}\n\
             again: push r, eax\njz done{n}\npush {n}\nsub\nsx caught\npush r, ebx\npush mem, u32\nux\n\
             log 2\ninc lv, {}\ncall count\npush 64\npush r, esi\nlog str\nloop again\n\
             done{n}: push lv, 1\nlog 1\nexit\ncaught: abort\n",
            0x1000 + n * 16,
            n % 8
        ));
        lines += 23;
        n += 1;
    }
    while lines < LINES - 4 {
        text.push_str("// filler\n");
        lines += 1;
    }
    text.push_str("proc count\ninc lv, 0\nret\nendproc\n");
    text
}

/// Parsing and linking of a long source.
///
/// # Errors
/// When the source does not compile.
pub fn compiler(rounds: usize, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let what = "10,000 lines of source: parse and link";
    if !what.contains(only) {
        return Ok(Vec::new());
    }
    let text = source();
    if text.lines().count() != LINES {
        return Err(format!("the source has {} lines", text.lines().count()).into());
    }
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = cpu_seconds();
        let linked = parse("bench.rpn", black_box(&text))?.link(Width::W32, &NoSymbols)?;
        times.push((cpu_seconds() - start) * 1e3);
        black_box(linked);
    }
    let time = median(times);
    let row = Row::plain(what, time, "ms");
    Ok(vec![row.against(time / COMPILE_MS, "50 ms", Target::AtMost(1.0))])
}
