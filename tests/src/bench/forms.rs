//! Every opcode form of the displacement oracle: how it is displaced, and what a hit on it costs.
//!
//! The form runs in a loop that loads its registers again. Its jump targets and the handlers of its exceptions lead back
//! to the beginning. The cost of a hit is the difference between the probed and the unprobed loop, for as many instructions.
//! A form that breaks the loop (it loads a stack segment, a descriptor table, a mode) runs from a snapshot instead.

use std::collections::BTreeMap;
use std::error::Error;
use trapline_emu::{Snapshot, TrapInterposer};
use trapline_interposer::{Interposer, Place, ProgramId, Way};
use trapline_rpn::{LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::{cpu_seconds, interposer, median};

#[path = "../../../emu/tests/common/mod.rs"]
mod common;
#[path = "../../tests/displacement/forms.rs"]
mod encoded;

use common::{CODE, CS0, DATA, DS0, Guest, HANDLERS, STACK0, Setup, assemble};
use encoded::{Form, SHAPES, TARGET};

/// Address of the form.
const AT: u64 = CODE + 0x100;
/// Approximate number of instructions in one pass of the loop.
const LENGTH: u64 = 12;
/// Approximate number of passes in one measurement.
const PASSES: u64 = 1000;
/// A form with fewer hits than this breaks the loop.
const ENOUGH: u64 = 300;

/// Nanoseconds, and for a probed form its way and hits.
type Timed = (f64, Option<(Way, u64)>);

/// The measurements of one form in one mode.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// How it is displaced.
    pub way: Way,
    /// Nanoseconds that a hit adds.
    pub ns: f64,
    /// Whether it was run in the loop.
    pub looped: bool,
}

/// A form with its costs in 32- and 64-bit code; `None` where that mode does not have it.
pub struct Line {
    /// As the manual writes it: opcode, then instruction.
    pub form: String,
    /// In 32- and in 64-bit code.
    pub costs: [Option<Cost>; 2],
}

/// A machine in the loop, and a program with one probe.
struct Bench {
    guest: Guest,
    snapshot: Snapshot,
    program: LinkedProgram,
}

impl Bench {
    fn new(bits: u32) -> Result<Self, Box<dyn Error>> {
        let jump = |from: u64| {
            let mut code = vec![0xe9];
            code.extend((CODE as i32 - (from as i32 + 5)).to_le_bytes());
            code
        };
        let mut setup = Setup::bits(bits);
        setup.cr4 |= 0x600;
        let pattern: Vec<u8> = (0..0x1000u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 23) as u8).collect();
        setup = setup.at(DATA, &pattern).pte(encoded::ABSENT, 0).at(TARGET, &jump(TARGET));
        for vector in 0..0x90 {
            let handler = HANDLERS + 16 * vector;
            setup = setup.at(handler, &jump(handler));
        }
        // A frame with which a return continues in the loop.
        let frame = [TARGET, CS0.into(), 2, STACK0, DS0.into()];
        let frame: Vec<u8> =
            frame.iter().flat_map(|w| w.to_le_bytes()[..bits as usize / 8].to_vec()).collect();
        setup = setup.at(STACK0, &frame);
        let code = prologue(bits);
        let mut guest = setup.at(CODE, &code).boot();
        // This compares the ways of displacement. In line, all forms except stepped ones cost the same.
        guest.m.core_mut().set_in_line_after(0);
        let snapshot = guest.m.snapshot();
        let width = if bits == 64 { Width::W64 } else { Width::W32 };
        let text = "name = vmlinux\nmodtype = kernel\naddress = 0\nopcode = 0x90\nabort\n";
        let program = parse("form.rpn", text)?.link(width, &NoSymbols)?;
        Ok(Bench { guest, snapshot, program })
    }

    /// Puts the form in place, unprobed.
    fn place(&mut self, code: &[u8]) -> Result<(), Box<dyn Error>> {
        let m = &mut self.guest.m;
        m.restore(&self.snapshot)?;
        m.write_physical(AT, code);
        let end = AT + code.len() as u64;
        m.write_physical(end, &[0xe9]);
        m.write_physical(end + 1, &(CODE as i32 - (end as i32 + 5)).to_le_bytes());
        Ok(())
    }

    /// Puts a probe on the form.
    fn probe(&mut self, code: &[u8]) -> Result<(Interposer, ProgramId), Box<dyn Error>> {
        let mut probes = interposer();
        let mut program = self.program.clone();
        program.probes.iter_mut().for_each(|p| p.opcode = code[0]);
        let places = vec![Place::Kernel { linear: AT, paddr: AT }];
        let id = probes.insert(self.guest.m.core_mut(), "form", program, places)?;
        Ok((probes, id))
    }

    /// Nanoseconds of running `length` instructions further, and the hits.
    fn pass(&mut self, probes: &mut Interposer, length: u64) -> (f64, u64) {
        let before = probes.stats().hits;
        let limit = self.guest.m.icount() + length;
        let start = cpu_seconds();
        self.guest.m.run(Some(probes as &mut dyn TrapInterposer), limit);
        ((cpu_seconds() - start) * 1e9, probes.stats().hits - before)
    }

    /// The cost of a form; `None` when it cannot be encoded here.
    fn cost(&mut self, form: Form, bits: u32, rounds: usize) -> Result<Option<Cost>, Box<dyn Error>> {
        let Some(code) = SHAPES.iter().find_map(|&shape| form.encode(bits, shape, AT)) else {
            return Ok(None);
        };
        let (without, _) = self.looped(&code, false, rounds)?;
        let (with, found) = self.looped(&code, true, rounds)?;
        let (way, hits) = found.ok_or_else(|| format!("{form:?} in {bits}-bit code was not hit"))?;
        if hits < ENOUGH {
            return Ok(Some(Cost { way, ns: self.alone(&code, rounds)?, looped: false }));
        }
        Ok(Some(Cost { way, ns: (with - without) / hits as f64, looped: true }))
    }

    /// Nanoseconds of a thousand passes of the loop; of a probed one also the way of the form, and its hits.
    fn looped(&mut self, code: &[u8], probed: bool, rounds: usize) -> Result<Timed, Box<dyn Error>> {
        self.place(code)?;
        let (mut probes, id) = if probed {
            let (probes, id) = self.probe(code)?;
            (probes, Some(id))
        } else {
            (interposer(), None)
        };
        let (_, mut hits) = self.pass(&mut probes, PASSES * LENGTH);
        let way = probes.armed_sites().next().and_then(|(_, _, way)| way);
        let mut times = Vec::new();
        for _ in 0..rounds {
            let (ns, seen) = self.pass(&mut probes, PASSES * LENGTH);
            times.push(ns);
            hits = seen;
        }
        if let Some(id) = id {
            probes.remove(self.guest.m.core_mut(), id);
        }
        Ok((median(times), way.map(|way| (way, hits))))
    }

    /// The cost of a probe in the first pass after a snapshot's restore, including the translation of its blocks.
    fn alone(&mut self, code: &[u8], rounds: usize) -> Result<f64, Box<dyn Error>> {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..5 * rounds {
            self.place(code)?;
            without.push(self.pass(&mut interposer(), LENGTH).0);
            self.place(code)?;
            let (mut probes, id) = self.probe(code)?;
            with.push(self.pass(&mut probes, LENGTH).0);
            probes.remove(self.guest.m.core_mut(), id);
        }
        Ok(median(with) - median(without))
    }
}

/// Loads the registers and goes to the form.
fn prologue(bits: u32) -> Vec<u8> {
    use iced_x86::code_asm::*;
    let of = |n: usize| encoded::REGISTERS[n] as u32;
    assemble(bits, CODE, |a| {
        // The assembler fails on operands that no encoding has; these have one.
        let loads = [
            (eax, of(0)),
            (ecx, of(1)),
            (edx, of(2)),
            (ebx, of(3)),
            (ebp, of(5)),
            (esi, of(6)),
            (edi, of(7)),
        ];
        let loaded = loads.into_iter().try_for_each(|(register, value)| a.mov(register, value));
        let stack = a.mov(esp, STACK0 as u32);
        let gone = a.cld().and_then(|()| a.jmp(AT));
        debug_assert!(loaded.and(stack).and(gone).is_ok());
    })
}

/// Every form, in the order of iced's tables.
///
/// # Errors
/// When a form's probe does not hit.
pub fn lines(rounds: usize) -> Result<Vec<Line>, Box<dyn Error>> {
    let mut lines: BTreeMap<usize, Line> = BTreeMap::new();
    for (n, bits) in [32, 64].into_iter().enumerate() {
        let mut bench = Bench::new(bits)?;
        for form in Form::all(bits) {
            let op = form.0.op_code();
            let cost = bench.cost(form, bits, rounds)?;
            let form_text = format!("{}  {}", op.op_code_string(), op.instruction_string());
            let line = lines.entry(form.0 as usize).or_insert(Line { form: form_text, costs: [None, None] });
            line.costs[n] = cost;
        }
    }
    Ok(lines.into_values().collect())
}

/// The costs of the forms with one way in one mode: their number, and the median, 95th percentile and maximum of the
/// looped ones.
pub fn summary(lines: &[Line], mode: usize, way: Way) -> Option<(usize, [f64; 3])> {
    let of_way: Vec<Cost> = lines.iter().filter_map(|l| l.costs[mode]).filter(|c| c.way == way).collect();
    let mut ns: Vec<f64> = of_way.iter().filter(|c| c.looped).map(|c| c.ns).collect();
    ns.sort_by(f64::total_cmp);
    let at = |part: usize| ns.get((ns.len() * part / 100).min(ns.len().saturating_sub(1))).copied();
    Some((of_way.len(), [at(50)?, at(95)?, at(100)?]))
}

/// The name of a way.
pub fn name(way: Way) -> &'static str {
    match way {
        Way::Emulated => "emulated",
        Way::OutOfLine => "out of line",
        Way::Stepped => "stepped",
    }
}
