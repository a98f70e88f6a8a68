//! Random valid programs, made from the instruction table.
//!
//! A [`Generated`] program keeps its routines apart, with targets as indices in the routine, and has two views: code
//! for the verifier, and source text for the parser. Choices come from a seed or from the bytes of a coverage-guided
//! fuzzer; when the bytes run out every choice is the first, which ends the program. An instruction usually gets
//! suitable operands: with random ones, nearly all runs would end by an exception.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::fmt::Write as _;

use trapline_rpn::services::d;
use trapline_rpn::{Group, Insn, Limits, Op, OperandKind, REGISTERS, Row, TABLE, Unverified, Width};

/// The source of choices.
#[derive(Debug, Clone)]
pub enum Choices<'a> {
    /// A plain generator (SplitMix64) and its state.
    Seed(u64),
    /// Bytes, used up from the front.
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    /// Any number.
    pub fn any(&mut self) -> u64 {
        match self {
            Self::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                mix(*state)
            }
            Self::Bytes(_) => self.bytes(8),
        }
    }

    fn bytes(&mut self, count: usize) -> u64 {
        let Self::Bytes(left) = self else { return 0 };
        let (now, rest) = left.split_at(count.min(left.len()));
        *left = rest;
        now.iter().fold(0, |n, &b| n << 8 | u64::from(b))
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        let drawn = match self {
            Self::Seed(_) => self.any() >> 16,
            Self::Bytes(_) if n <= 1 << 8 => self.bytes(1),
            Self::Bytes(_) if n <= 1 << 16 => self.bytes(2),
            Self::Bytes(_) => self.bytes(8),
        };
        drawn % n
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// True once in `n` times; never when the choices are used up.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }
}

/// A scrambled number.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// A valid program.
#[derive(Debug, Clone)]
pub struct Generated {
    /// The handler, then the procedures. A label's operand is an index in its routine, at most its length (the `exit`
    /// or `ret` after it); a procedure's is its index here.
    pub routines: Vec<Vec<Insn>>,
    /// The limits from the headers.
    pub limits: Limits,
}

impl Generated {
    /// Code for the verifier.
    pub fn unverified(&self) -> Unverified {
        let mut starts = Vec::new();
        let mut next = 0;
        for routine in &self.routines {
            starts.push(next);
            next += routine.len() as u32 + 1;
        }
        let mut code = Vec::with_capacity(next as usize);
        for (n, routine) in self.routines.iter().enumerate() {
            for insn in routine {
                let arg = match insn.op.row().operand {
                    OperandKind::Label => insn.arg + u64::from(starts[n]),
                    OperandKind::Proc => u64::from(starts[insn.arg as usize]),
                    _ => insn.arg,
                };
                code.push(Insn { op: insn.op, arg });
            }
            code.push(Insn { op: if n == 0 { Op::Exit } else { Op::Ret }, arg: 0 });
        }
        Unverified { code, routines: starts, limits: self.limits }
    }

    /// Source text, with one probe point. Linked, it gives the code of [`Generated::unverified`] when every
    /// procedure is called in order of its index, and the same behaviour always.
    pub fn source(&self) -> String {
        let l = &self.limits;
        let modtype = if l.kernel { "kernel" } else { "user" };
        let mut out = format!(
            "name = generated\nmodtype = {modtype}\nvars = {}\ngvars = {}\nlogmax = {}\njmpmax = {}\n\
             excpt_mask = {:#x}\nexcpt_log = {}\nautostacktrace = {}\n",
            l.vars,
            l.gvars,
            l.logmax,
            l.jmpmax,
            l.excpt_mask,
            l.excpt_log,
            if l.autostacktrace { "yes" } else { "no" }
        );
        for (n, routine) in self.routines.iter().enumerate().skip(1) {
            let _ = writeln!(out, "proc p{n}");
            body(&mut out, routine, "ret");
            out.push_str("endproc\n");
        }
        out.push_str("offset = 0\nopcode = 0x90\n");
        body(&mut out, &self.routines[0], "exit");
        out
    }
}

fn body(out: &mut String, routine: &[Insn], end: &str) {
    for (n, insn) in routine.iter().enumerate() {
        let text = match insn.op.row().operand {
            OperandKind::Label => insn.op.row().form.replace('%', &format!("l{}", insn.arg)),
            OperandKind::Proc => insn.op.row().form.replace('%', &format!("p{}", insn.arg)),
            _ => insn.to_text(),
        };
        let _ = writeln!(out, "l{n}: {text}");
    }
    let _ = writeln!(out, "l{}: {end}", routine.len());
}

/// The constraints on a generated program.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The guest's word.
    pub width: Width,
    /// Whether stack tracing is among it.
    pub tracing: bool,
    /// Most items of a routine; an item is an instruction with its preparation, or a loop.
    pub items: u64,
}

impl Shape {
    /// Whether a row of the table can occur.
    pub fn takes(self, row: &Row) -> bool {
        self.tracing || row.group != Group::Tracing
    }
}

/// Makes a program.
pub fn generate(choices: &mut Choices<'_>, shape: Shape) -> Generated {
    let procedures = choices.below(4);
    let limits = Limits {
        width: shape.width,
        logmax: choices.pick(&[1024, 64, 0, 2, 3, 7, 11, 200, 65_535]),
        jmpmax: choices.pick(&[256, 100, 100, 40, 40, 5, 1, 0]),
        vars: choices.pick(&[4, 1, 8, 3, 0]),
        gvars: choices.pick(&[4, 1, 9, 3, 0]),
        excpt_mask: match choices.below(4) {
            0 => 0x0fff,
            1 => 0xffff,
            2 => 0x1fff,
            _ => choices.any() as u32 & 0xffff,
        },
        excpt_log: 1024,
        autostacktrace: false,
        kernel: choices.below(2) == 0,
    };
    let mut maker = Maker { choices, shape, limits, procedures, code: Vec::new(), loops: 0 };
    let mut routines: Vec<Vec<Insn>> = (0..=procedures).map(|_| maker.routine()).collect();
    maker.witness();
    routines[0].append(&mut maker.code);
    let mut limits = limits;
    if shape.tracing {
        limits.excpt_log = maker.choices.pick(&[1024, 200, 36, 68, 0, 500, 65_535]);
        limits.autostacktrace = maker.choices.once_in(3);
    }
    Generated { routines, limits }
}

/// The purpose of an element on the stack.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Any,
    Address,
    Length,
    Small,
    Lv,
    Gv,
    Count,
    Bit,
    Port,
    Selector,
    Service,
    Msr,
    Displacement,
    Place,
    Code,
    LogPointer,
    TracePointer,
}

/// The purposes of the elements that an instruction pops, the top first.
fn wanted(op: Op) -> &'static [Wanted] {
    use Wanted as W;
    match op {
        Op::LogStr | Op::LogMrf => &[W::Address, W::Length],
        Op::Log => &[W::Count],
        Op::PushLv | Op::MoveLv | Op::IncLv | Op::DecLv => &[W::Lv],
        Op::PushGv | Op::MoveGv | Op::IncGv | Op::DecGv => &[W::Gv],
        Op::PopLv => &[W::Any, W::Lv],
        Op::PopGv => &[W::Any, W::Gv],
        Op::LogLv => &[W::Small, W::Lv],
        Op::LogGv => &[W::Small, W::Gv],
        Op::Rol | Op::Ror | Op::Shl | Op::Shr => &[W::Any, W::Bit],
        Op::Pbl | Op::Pbr => &[W::Bit, W::Any],
        Op::Dup => &[W::Any, W::Count],
        Op::PushMem8 | Op::PushMem16 | Op::PushMem32 | Op::PushMem64 | Op::Vfyr | Op::Vfyrw => &[W::Address],
        Op::PopMem8 | Op::PopMem16 | Op::PopMem32 => &[W::Any, W::Address],
        Op::PopMem64 => &[W::Any, W::Any, W::Address],
        Op::PushIo8 | Op::PushIo16 | Op::PushIo32 => &[W::Port],
        Op::PopIo8 | Op::PopIo16 | Op::PopIo32 => &[W::Any, W::Port],
        Op::Seg2lin => &[W::Any, W::Selector],
        Op::Callk => &[W::Service, W::Small],
        Op::Rx => &[W::Code, W::Any, W::Any],
        Op::PopLp => &[W::LogPointer],
        Op::PopStp => &[W::TracePointer],
        Op::RestoreSbp | Op::RestoreTsp => &[W::Place],
        Op::PushSbp | Op::CopySbp | Op::PushTsp | Op::CopyTsp => &[W::Displacement],
        Op::PopSbp | Op::PopTsp => &[W::Any, W::Displacement],
        Op::PushR | Op::PushU => &[W::Msr],
        Op::TracePv | Op::TraceLv | Op::TraceGv => &[W::Small, W::Small],
        _ => &[W::Any, W::Any],
    }
}

struct Maker<'a, 'b> {
    choices: &'a mut Choices<'b>,
    shape: Shape,
    limits: Limits,
    procedures: u64,
    code: Vec<Insn>,
    /// Loops that are open: one in another is enough.
    loops: u32,
}

impl Maker<'_, '_> {
    fn emit(&mut self, op: Op, arg: u64) {
        self.code.push(Insn { op, arg });
    }

    fn routine(&mut self) -> Vec<Insn> {
        for _ in 0..self.choices.below(self.shape.items + 1) {
            self.item();
        }
        // Targets are chosen when the length is known.
        let mut code = std::mem::take(&mut self.code);
        let length = code.len() as u64;
        for (at, insn) in code.iter_mut().enumerate() {
            if insn.op.row().operand == OperandKind::Label && insn.arg == UNKNOWN {
                // Mostly forwards and near: long backward jumps use up the jump budget for little.
                let near = at as u64 + 1 + self.choices.below(6);
                insn.arg =
                    if self.choices.once_in(4) { self.choices.below(length + 1) } else { near.min(length) };
            }
        }
        code
    }

    fn item(&mut self) {
        match self.choices.below(16) {
            0..=10 => self.instruction(),
            11 => {
                let value = self.value(Wanted::Any);
                self.emit(Op::Push, value);
            }
            12 if self.loops < 2 => self.counted_loop(),
            13 => self.guarded(),
            15 if self.choices.below(2) == 0 => self.logged(),
            14 if self.procedures > 0 => {
                let procedure = 1 + self.choices.below(self.procedures);
                self.emit(Op::Call, procedure);
            }
            _ => self.deep(),
        }
    }

    /// Any row of the table, mostly with suitable operands.
    fn instruction(&mut self) {
        let mut row = &TABLE[self.choices.below(TABLE.len() as u64) as usize];
        // Instructions that end the run would be too frequent for long runs.
        let ends = matches!(row.op, Op::Exit | Op::Abort | Op::ExitN | Op::Ret);
        if !self.shape.takes(row) || ends && !self.choices.once_in(6) {
            row = Op::Push.row();
        }
        let Some(arg) = self.operand(row.operand) else { return };
        if !self.choices.once_in(5) && row.operand != OperandKind::Label {
            for &what in wanted(row.op).iter().rev() {
                self.prepare(what);
            }
        }
        self.emit(row.op, arg);
    }

    /// Puts one suitable element on the stack.
    fn prepare(&mut self, what: Wanted) {
        match (what, self.choices.below(6)) {
            (Wanted::LogPointer, 0..=1) => self.emit(Op::PushLp, 0),
            (Wanted::LogPointer, 2..=3) => self.emit(Op::PushPlp, 0),
            (Wanted::TracePointer, 0..=1) => self.emit(Op::PushStp, 0),
            (Wanted::Place, 0..=1) => self.emit(Op::SaveTsp, 0),
            (Wanted::Place, 2) => self.emit(Op::SaveSbp, 0),
            (Wanted::Any, 0) => {}
            _ => {
                let value = self.value(what);
                self.emit(Op::Push, value);
            }
        }
    }

    /// Pushes state that would not show otherwise, the registers and the last exception, for runs that reach the end.
    fn witness(&mut self) {
        if self.choices.once_in(2) {
            [Op::PushPlp, Op::SaveSbp, Op::PushX].into_iter().for_each(|op| self.emit(op, 0));
            let above = self.choices.below(40);
            self.emit(Op::PushTspN, above);
        }
    }

    /// One or two log instructions, of elements that are there.
    fn logged(&mut self) {
        for _ in 0..=self.choices.below(2) {
            let count = self.choices.below(4);
            (0..count).for_each(|n| self.emit(Op::Push, n));
            self.emit(Op::LogN, count);
        }
    }

    /// `push n; l: ..; loop l`.
    fn counted_loop(&mut self) {
        self.loops += 1;
        let times = self.choices.below(12);
        self.emit(Op::Push, times);
        let start = self.code.len() as u64;
        for _ in 0..self.choices.below(4) {
            self.item();
        }
        self.emit(Op::Loop, start);
        self.loops -= 1;
    }

    /// `sx l; ..; ux`, with `l` at the end or anywhere.
    fn guarded(&mut self) {
        self.emit(Op::Sx, UNKNOWN);
        for _ in 0..self.choices.below(3) {
            self.instruction();
        }
        if self.choices.below(2) == 0 {
            self.emit(Op::Ux, 0);
        }
    }

    /// Many elements at once, so that the stack fills and wraps.
    fn deep(&mut self) {
        let count = self.choices.pick(&[3, 14, 15, 16, 17, 31, 300, 1022, 1023, 1024]);
        let op = self.choices.pick(&[Op::DupN, Op::DupN, Op::Ros]);
        self.emit(op, count);
    }

    /// An operand that the verifier accepts; `None` where there is no valid operand, as without variables.
    fn operand(&mut self, kind: OperandKind) -> Option<u64> {
        let below = |choices: &mut Choices<'_>, n: u32| (n > 0).then(|| choices.below(u64::from(n)));
        Some(match kind {
            OperandKind::None => 0,
            OperandKind::Label => UNKNOWN,
            OperandKind::Proc if self.procedures == 0 => return None,
            OperandKind::Proc => 1 + self.choices.below(self.procedures),
            OperandKind::Value => self.value(Wanted::Any),
            OperandKind::Count8 => self.choices.pick(&[1, 0, 7, 31, 32, 33, 63, 64, 65, 200, 255]),
            OperandKind::Count16 => self.choices.pick(&[1, 2, 0, 3, 5, 16, 200, 1024, 65_535]),
            OperandKind::U32 => self.choices.pick(&[1, 2, 3, 0, 8, 32, 33, 64, 65, 1025, 0xffff_ffff]),
            OperandKind::Lv => below(self.choices, self.limits.vars)?,
            OperandKind::Gv => below(self.choices, self.limits.gvars)?,
            OperandKind::Disp => {
                let far = [i64::from(i32::MIN), i64::from(i32::MAX), 1023, 1024, -1024, 512];
                let near = self.choices.below(9) as i64 - 4;
                (if self.choices.once_in(6) { self.choices.pick(&far) } else { near }) as u64
            }
            kind => {
                let fits = |r: &&trapline_rpn::RegRow| {
                    r.permits(kind).is_ok() && (self.shape.width == Width::W64 || !r.only64)
                };
                let count = REGISTERS.iter().filter(fits).count() as u64;
                let chosen = self.choices.below(count) as usize;
                u64::from(REGISTERS.iter().filter(fits).nth(chosen)?.index)
            }
        })
    }

    /// A value for this purpose, cut to the word.
    fn value(&mut self, what: Wanted) -> u64 {
        let mask = self.shape.width.mask();
        if self.choices.once_in(16) {
            return self.choices.any() & mask;
        }
        let c = &mut *self.choices;
        let value = match what {
            Wanted::Any => c.pick(&[
                1,
                0,
                2,
                3,
                5,
                10,
                31,
                32,
                63,
                64,
                127,
                128,
                255,
                256,
                0x7fff_ffff,
                0x8000_0000,
                0xffff_ffff,
                mask,
                mask - 1,
                mask >> 1,
                (mask >> 1) + 1,
                0x0123_4567_89ab_cdef,
                0x1000,
                0x2008,
            ]),
            Wanted::Address => address(c, mask),
            Wanted::Length => c.pick(&[4, 0, 1, 2, 8, 13, 16, 40, 64, 70, 200, 1021, 70_000]),
            Wanted::Small => c.below(6),
            Wanted::Lv => index(c, self.limits.vars),
            Wanted::Gv => index(c, self.limits.gvars),
            Wanted::Count => c.pick(&[1, 2, 0, 3, 7, 30, 1023, 1024, 1025, 3_000, mask]),
            Wanted::Bit => c.pick(&[1, 2, 5, 8, 16, 24, 31, 32, 0, 33, 63, 64, 65, 1 << 31]),
            Wanted::Port => c.pick(&[0x60, 0x3f8, 0, 0xffff, 0x1_0060]),
            Wanted::Selector => c.pick(&[0x10, 0, 0x23, 0x1_0010]),
            Wanted::Service => c.pick(&[1, 2, 1, 2, 3, 3, 4, 5, d::GET, d::GET, d::PUT, d::PUT, d::BUILTIN]),
            Wanted::Msr => c.pick(&[0, 1, 0x10, 0xc000_0080, mask]),
            Wanted::Displacement => (c.below(9) as i64 - 4) as u64,
            Wanted::Place => c.pick(&[1, 0, 2, 15, 16, 40, 600, 1023, 1024, 1500]),
            Wanted::Code => c.pick(&[0x8000, 0, 1, 0x40, 0x1000, 0x8001, 0x12_8000, 0x0008, 0x1_0000]),
            Wanted::LogPointer => c.below(40),
            Wanted::TracePointer => c.below(300),
        };
        value & mask
    }
}

/// The operand of a label that is not yet chosen.
const UNKNOWN: u64 = u64::MAX;

/// Regions of a test's guest, by their first address and length; the last is the end of memory.
pub const REGIONS: [(u64, u64); 3] = [(0x1000, 0x400), (0x2000, 0x40), (0, 0x80)];
/// Bytes at the end of the address space.
pub const TOP: u64 = 0x80;

/// The index of a variable, seldom one that does not exist.
fn index(c: &mut Choices<'_>, count: u32) -> u64 {
    let beyond = if c.once_in(12) { 2 } else { 0 };
    c.below((u64::from(count) + beyond).max(1))
}

fn address(c: &mut Choices<'_>, mask: u64) -> u64 {
    let region = c.below(5) as usize;
    let (start, length) = REGIONS.get(region).copied().unwrap_or((mask - (TOP - 1), TOP));
    match c.below(4) {
        0 => start,
        1 => start + c.below(length),
        // Across the edges; after the last address they wrap.
        2 => start.wrapping_add(length).wrapping_sub(c.below(9)),
        _ => start.wrapping_sub(c.below(9)),
    }
}
