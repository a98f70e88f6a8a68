//! Floating point: programs that use no instruction which the machine executes cost what they cost in the engine; and what
//! those instructions cost.

use super::table::{Row, Target, cpu_seconds, median};
use std::error::Error;
use trapline_emu::bare::BareCode;
use trapline_emu::{BootState, CpuMode, CpuModel, Machine, MachineConfig, Stop};

const AT: u64 = 0x1_0000;
const WORD: u32 = 0x2_0000;
/// MXCSR with DAZ.
const DAZ: u32 = 0x1fc0;
/// `mulss xmm0, xmm1; addss xmm0, xmm2; minss xmm0, xmm3`.
const SSE: &[u8] = &[0xf3, 0x0f, 0x59, 0xc1, 0xf3, 0x0f, 0x58, 0xc2, 0xf3, 0x0f, 0x5d, 0xc3];
/// `fld1; fadd st(0), st(0); fstp st(0)`.
const X87: &[u8] = &[0xd9, 0xe8, 0xd8, 0xc0, 0xdd, 0xd8];
const FNSTSW: &[u8] = &[0xdf, 0xe0];
/// `fnstcw [WORD + 8]; fldcw [WORD + 8]`.
const FLDCW: &[u8] = &[0xd9, 0x3d, 8, 0, 2, 0, 0xd9, 0x2d, 8, 0, 2, 0];
/// `rcpss xmm0, xmm1`.
const RCPSS: &[u8] = &[0xf3, 0x0f, 0x53, 0xc1];
/// `stmxcsr [WORD]`.
const STMXCSR: &[u8] = &[0x0f, 0xae, 0x1d, 0, 0, 2, 0];

struct Case {
    what: &'static str,
    body: Vec<u8>,
    /// Instructions of it.
    length: u64,
    /// Whether MXCSR.DAZ is set.
    daz: bool,
    target: Target,
}

fn cases() -> Vec<Case> {
    let case = |what, parts: &[&[u8]], length, target| Case {
        what,
        body: parts.concat(),
        length,
        daz: false,
        target,
    };
    let free = Target::AtLeast(0.70);
    vec![
        case("mulss; addss; minss", &[SSE], 3, free),
        Case { daz: true, ..case("the same with MXCSR.DAZ", &[SSE], 3, Target::None) },
        case("the same and stmxcsr", &[SSE, STMXCSR], 4, Target::None),
        case("fld1; fadd; fstp", &[X87], 3, free),
        case("the same and fnstsw", &[X87, FNSTSW], 4, Target::None),
        case("the same, fnstcw and fldcw", &[X87, FLDCW], 5, Target::None),
        case("rcpss", &[RCPSS], 1, Target::None),
    ]
}

impl Case {
    /// The loop in 32-bit code: CR4.OSFXSR set, ECX its count, and HLT after it.
    fn code(&self, count: u32) -> Vec<u8> {
        let mut code = vec![0x0f, 0x20, 0xe0, 0x80, 0xcc, 2, 0x0f, 0x22, 0xe0];
        if self.daz {
            // mov dword [WORD], DAZ; ldmxcsr [WORD]
            code.extend([0xc7, 0x05]);
            code.extend(WORD.to_le_bytes());
            code.extend(DAZ.to_le_bytes());
            code.extend([0x0f, 0xae, 0x15]);
            code.extend(WORD.to_le_bytes());
        }
        code.push(0xb9);
        code.extend(count.to_le_bytes());
        let back = -(self.body.len() as i8 + 3);
        code.extend(&self.body);
        code.extend([0x49, 0x75, back as u8, 0xf4]);
        code
    }

    /// A machine in the loop.
    fn machine(&self) -> Result<Machine, Box<dyn Error>> {
        let mut m = Machine::new(&MachineConfig { mem_size: 16 << 20, model: CpuModel::Ia32 })?;
        m.write_physical(AT, &self.code(u32::MAX));
        m.boot(&BootState { mode: CpuMode::Flat32, ip: AT, ax: 0, bx: 0, sp: 0x8000, si: 0 });
        Ok(m)
    }

    /// Nanoseconds an iteration in the machine.
    fn pass(&self, m: &mut Machine, iterations: u32) -> Result<f64, Box<dyn Error>> {
        let limit = m.icount() + (self.length + 2) * u64::from(iterations);
        let start = cpu_seconds();
        match m.run(None, limit) {
            Stop::Limit => Ok((cpu_seconds() - start) * 1e9 / f64::from(iterations)),
            other => Err(format!("{}: {other:?}", self.what).into()),
        }
    }
}

/// Each loop, against the bare engine's.
///
/// # Errors
/// A machine cannot be built, or does not run as expected.
pub fn rows(rounds: usize, scale: u32, only: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let iterations = 20_000 * scale;
    let mut rows = Vec::new();
    for case in cases().into_iter().filter(|case| case.what.contains(only)) {
        let mut m = case.machine()?;
        let mut bare = BareCode::new(&case.code(iterations), AT as u32)?;
        case.pass(&mut m, iterations)?;
        bare.run()?;
        let (mut times, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = cpu_seconds();
            bare.run()?;
            let unit = (cpu_seconds() - start) * 1e9 / f64::from(iterations);
            let ns = case.pass(&mut m, iterations)?;
            times.push(ns);
            ratios.push(unit / ns);
        }
        rows.push(Row::plain(case.what, median(times), "ns").against(
            median(ratios),
            "bare Unicorn",
            case.target,
        ));
    }
    Ok(rows)
}
