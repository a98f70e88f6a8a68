//! The registers, in one table: their names and types in the target description, and their values.
//!
//! The features and names are gdb's (gdb's manual, appendix G.5.6: `org.gnu.gdb.i386.core`, `.sse`, `.segments`, `.linux`).
//! Those of the system, which gdb has no feature for, have the names that qemu gives them. The description of a 64-bit guest
//! holds from its first instruction on, also while the processor runs 32-bit code.

use std::fmt::Write as _;

use trapline_emu::{Core, Seg};
use trapline_rpn::Reg;

/// What a register is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Gpr(usize),
    Ip,
    Flags,
    Selector(Seg),
    Base(Seg),
    KernelGsBase,
    Control(usize),
    Efer,
    Stack(u32),
    Fpu(Fpu),
    Xmm(usize),
    Mxcsr,
    /// The number of a system call to be restarted, which the processor does not have.
    Call,
}

/// A word of the x87.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fpu {
    Control,
    Status,
    Tags,
    CodeSelector,
    CodeOffset,
    DataSelector,
    DataOffset,
    Opcode,
}

/// A register.
#[derive(Debug)]
struct Row {
    name: String,
    bytes: usize,
    /// Its type in the description.
    kind: &'static str,
    group: Option<&'static str>,
    feature: &'static str,
    source: Source,
}

const CORE: &str = "org.gnu.gdb.i386.core";
const SSE: &str = "org.gnu.gdb.i386.sse";
const LINUX: &str = "org.gnu.gdb.i386.linux";
const SEGMENTS: &str = "org.gnu.gdb.i386.segments";
const SYSTEM: &str = "org.trapline.i386.system";

/// The numbers that the machine gives the registers, in gdb's order.
const LONG: [(&str, usize); 16] = [
    ("rax", 0),
    ("rbx", 3),
    ("rcx", 1),
    ("rdx", 2),
    ("rsi", 6),
    ("rdi", 7),
    ("rbp", 5),
    ("rsp", 4),
    ("r8", 8),
    ("r9", 9),
    ("r10", 10),
    ("r11", 11),
    ("r12", 12),
    ("r13", 13),
    ("r14", 14),
    ("r15", 15),
];
const SHORT: [(&str, usize); 8] =
    [("eax", 0), ("ecx", 1), ("edx", 2), ("ebx", 3), ("esp", 4), ("ebp", 5), ("esi", 6), ("edi", 7)];
/// The registers as an RPN program names them, by their numbers.
const NAMED: [Reg; 16] = [
    Reg::Ax,
    Reg::Cx,
    Reg::Dx,
    Reg::Bx,
    Reg::Sp,
    Reg::Bp,
    Reg::Si,
    Reg::Di,
    Reg::R8,
    Reg::R9,
    Reg::R10,
    Reg::R11,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
];
/// The stack of the x87 and the SSE registers, by their numbers.
const STACK: [Reg; 8] = [Reg::Fr0, Reg::Fr1, Reg::Fr2, Reg::Fr3, Reg::Fr4, Reg::Fr5, Reg::Fr6, Reg::Fr7];
const XMM: [Reg; 16] = [
    Reg::Xmm0,
    Reg::Xmm1,
    Reg::Xmm2,
    Reg::Xmm3,
    Reg::Xmm4,
    Reg::Xmm5,
    Reg::Xmm6,
    Reg::Xmm7,
    Reg::Xmm8,
    Reg::Xmm9,
    Reg::Xmm10,
    Reg::Xmm11,
    Reg::Xmm12,
    Reg::Xmm13,
    Reg::Xmm14,
    Reg::Xmm15,
];
const SELECTORS: [(&str, Seg); 6] =
    [("cs", Seg::Cs), ("ss", Seg::Ss), ("ds", Seg::Ds), ("es", Seg::Es), ("fs", Seg::Fs), ("gs", Seg::Gs)];
const FPU: [(&str, Fpu); 8] = [
    ("fctrl", Fpu::Control),
    ("fstat", Fpu::Status),
    ("ftag", Fpu::Tags),
    ("fiseg", Fpu::CodeSelector),
    ("fioff", Fpu::CodeOffset),
    ("foseg", Fpu::DataSelector),
    ("fooff", Fpu::DataOffset),
    ("fop", Fpu::Opcode),
];
/// Types that the descriptions of both widths use.
const FLAG_TYPES: &str = r#"<flags id="i386_eflags" size="4"><field name="CF" start="0" end="0"/><field name="" start="1" end="1"/><field name="PF" start="2" end="2"/><field name="AF" start="4" end="4"/><field name="ZF" start="6" end="6"/><field name="SF" start="7" end="7"/><field name="TF" start="8" end="8"/><field name="IF" start="9" end="9"/><field name="DF" start="10" end="10"/><field name="OF" start="11" end="11"/><field name="NT" start="14" end="14"/><field name="RF" start="16" end="16"/><field name="VM" start="17" end="17"/><field name="AC" start="18" end="18"/><field name="VIF" start="19" end="19"/><field name="VIP" start="20" end="20"/><field name="ID" start="21" end="21"/></flags>"#;
const SSE_TYPES: &str = r#"<vector id="v8bf16" type="bfloat16" count="8"/><vector id="v4f" type="ieee_single" count="4"/><vector id="v2d" type="ieee_double" count="2"/><vector id="v16i8" type="int8" count="16"/><vector id="v8i16" type="int16" count="8"/><vector id="v4i32" type="int32" count="4"/><vector id="v2i64" type="int64" count="2"/><union id="vec128"><field name="v8_bfloat16" type="v8bf16"/><field name="v4_float" type="v4f"/><field name="v2_double" type="v2d"/><field name="v16_int8" type="v16i8"/><field name="v8_int16" type="v8i16"/><field name="v4_int32" type="v4i32"/><field name="v2_int64" type="v2i64"/><field name="uint128" type="uint128"/></union><flags id="i386_mxcsr" size="4"><field name="IE" start="0" end="0"/><field name="DE" start="1" end="1"/><field name="ZE" start="2" end="2"/><field name="OE" start="3" end="3"/><field name="UE" start="4" end="4"/><field name="PE" start="5" end="5"/><field name="DAZ" start="6" end="6"/><field name="IM" start="7" end="7"/><field name="DM" start="8" end="8"/><field name="ZM" start="9" end="9"/><field name="OM" start="10" end="10"/><field name="UM" start="11" end="11"/><field name="PM" start="12" end="12"/><field name="FZ" start="15" end="15"/></flags>"#;

/// The values that a task that does not run is known to have: by their numbers in the machine, and the instruction pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// General registers.
    pub gpr: Vec<(usize, u64)>,
    /// The instruction pointer.
    pub ip: Option<u64>,
}

/// Why a register cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} cannot be written; docs/gdb.md says which registers can")]
pub struct Fixed(String);

/// A register of an RPN program, and the value that it is to have.
pub type Change = (Reg, u128);

impl Source {
    /// The register as an RPN program names it, if it can be written.
    fn written(self) -> Option<Reg> {
        match self {
            Self::Gpr(number) => NAMED.get(number).copied(),
            Self::Ip => Some(Reg::Ip),
            Self::Flags => Some(Reg::Flags),
            Self::Base(Seg::Fs) => Some(Reg::FsBase),
            Self::Base(Seg::Gs) => Some(Reg::GsBase),
            Self::Control(0) => Some(Reg::Cr0),
            Self::Control(2) => Some(Reg::Cr2),
            Self::Control(3) => Some(Reg::Cr3),
            Self::Control(4) => Some(Reg::Cr4),
            Self::Efer => Some(Reg::Efer),
            Self::Stack(n) => STACK.get(n as usize).copied(),
            Self::Fpu(word) => word.written(),
            Self::Xmm(n) => XMM.get(n).copied(),
            Self::Mxcsr => Some(Reg::Mxcsr),
            Self::Selector(_) | Self::Base(_) | Self::Control(_) | Self::KernelGsBase | Self::Call => None,
        }
    }
}

impl Fpu {
    fn written(self) -> Option<Reg> {
        match self {
            Self::Control => Some(Reg::Fcw),
            Self::Status => Some(Reg::Fsw),
            Self::Tags => Some(Reg::Ftw),
            Self::CodeSelector => Some(Reg::Fcs),
            Self::CodeOffset => Some(Reg::Fip),
            Self::DataSelector => Some(Reg::Fds),
            Self::DataOffset => Some(Reg::Fdp),
            Self::Opcode => None,
        }
    }
}

/// The flags that can be written: CF, PF, AF, ZF, SF, DF and OF.
const ARITHMETIC: u128 = 0xcd5;

/// The table of a guest.
#[derive(Debug)]
pub struct Registers {
    wide: bool,
    /// Whether it is that of a program of Linux.
    program: bool,
    rows: Vec<Row>,
}

impl Registers {
    /// The registers of a 64-bit guest, or of a 32-bit one; of the machine, or of a program.
    pub fn new(wide: bool, program: bool) -> Self {
        let word = if wide { 8 } else { 4 };
        let integer = if wide { "int64" } else { "int32" };
        let (data, code) = ("data_ptr", "code_ptr");
        let mut all = Self { wide, program, rows: Vec::new() };
        let names: &[(&str, usize)] = if wide { &LONG } else { &SHORT };
        for (name, number) in names {
            let kind = if matches!(number, 4 | 5) { data } else { integer };
            all.row(name, word, kind, None, CORE, Source::Gpr(*number));
        }
        all.row(if wide { "rip" } else { "eip" }, word, code, None, CORE, Source::Ip);
        all.row("eflags", 4, "i386_eflags", None, CORE, Source::Flags);
        for (name, seg) in SELECTORS {
            all.row(name, 4, "int32", None, CORE, Source::Selector(seg));
        }
        for n in 0..8 {
            all.row(&format!("st{n}"), 10, "i387_ext", None, CORE, Source::Stack(n));
        }
        for (name, word) in FPU {
            all.row(name, 4, "int", Some("float"), CORE, Source::Fpu(word));
        }
        for n in 0..if wide { 16 } else { 8 } {
            all.row(&format!("xmm{n}"), 16, "vec128", None, SSE, Source::Xmm(n));
        }
        all.row("mxcsr", 4, "i386_mxcsr", Some("vector"), SSE, Source::Mxcsr);
        if program {
            let name = if wide { "orig_rax" } else { "orig_eax" };
            all.row(name, word, "int", Some("system"), LINUX, Source::Call);
        }
        let bases = if wide { SEGMENTS } else { SYSTEM };
        all.row("fs_base", word, integer, None, bases, Source::Base(Seg::Fs));
        all.row("gs_base", word, integer, None, bases, Source::Base(Seg::Gs));
        if wide {
            all.row("k_gs_base", word, integer, Some("system"), SYSTEM, Source::KernelGsBase);
        }
        for n in [0, 2, 3, 4] {
            all.row(&format!("cr{n}"), word, integer, Some("system"), SYSTEM, Source::Control(n));
        }
        all.row("efer", 8, "int64", Some("system"), SYSTEM, Source::Efer);
        all
    }

    /// Whether the guest has 64 bits.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    fn row(
        &mut self,
        name: &str,
        bytes: usize,
        kind: &'static str,
        group: Option<&'static str>,
        feature: &'static str,
        source: Source,
    ) {
        self.rows.push(Row { name: name.to_owned(), bytes, kind, group, feature, source });
    }

    /// The target description.
    pub fn description(&self) -> String {
        let architecture = if self.wide { "i386:x86-64" } else { "i386" };
        let system = if self.program { "GNU/Linux" } else { "none" };
        let mut text = format!(
            "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target version=\"1.0\">\
             <architecture>{architecture}</architecture><osabi>{system}</osabi>"
        );
        let mut feature = "";
        for row in &self.rows {
            if row.feature != feature {
                if !feature.is_empty() {
                    text.push_str("</feature>");
                }
                feature = row.feature;
                let types = match feature {
                    CORE => FLAG_TYPES,
                    SSE => SSE_TYPES,
                    _ => "",
                };
                let _ = write!(text, "<feature name=\"{feature}\">{types}");
            }
            let _ = write!(
                text,
                "<reg name=\"{}\" bitsize=\"{}\" type=\"{}\"",
                row.name,
                row.bytes * 8,
                row.kind
            );
            if let Some(group) = row.group {
                let _ = write!(text, " group=\"{group}\"");
            }
            text.push_str("/>");
        }
        text.push_str("</feature></target>");
        text
    }

    /// The values of all registers of the processor, as the description lays them out; `None` for the bytes of one that
    /// the processor does not have.
    pub fn of(&self, core: &Core) -> Vec<Option<u8>> {
        let bytes = |row: &Row| match value(core, row.source) {
            Some(value) => value.to_le_bytes().into_iter().take(row.bytes).map(Some).collect(),
            None => vec![None; row.bytes],
        };
        self.rows.iter().flat_map(bytes).collect()
    }

    /// The lowest 64 bits of a register of the processor.
    pub fn word(&self, core: &Core, number: usize) -> Option<u64> {
        value(core, self.rows.get(number)?.source).map(|value| value as u64)
    }

    /// The values of a task that does not run.
    pub fn known(&self, known: &Known) -> Vec<Option<u8>> {
        let bytes = |row: &Row| {
            let value = match row.source {
                Source::Gpr(number) => known.gpr.iter().find(|(n, _)| *n == number).map(|(_, value)| *value),
                Source::Ip => known.ip,
                _ => None,
            };
            match value {
                Some(value) => value.to_le_bytes().into_iter().take(row.bytes).map(Some).collect(),
                None => vec![None; row.bytes],
            }
        };
        self.rows.iter().flat_map(bytes).collect::<Vec<Option<u8>>>()
    }

    /// The place of a register's bytes.
    pub fn place(&self, number: usize) -> Option<std::ops::Range<usize>> {
        let bytes = self.rows.get(number)?.bytes;
        let before: usize = self.rows.get(..number)?.iter().map(|row| row.bytes).sum();
        Some(before..before + bytes)
    }

    /// The bytes of all registers.
    pub fn size(&self) -> usize {
        self.rows.iter().map(|row| row.bytes).sum()
    }

    /// The registers that have other values in `wanted` than in `now`, as the register of an RPN program and its value.
    ///
    /// # Errors
    /// One of them cannot be written.
    pub fn changes(&self, now: &[Option<u8>], wanted: &[Option<u8>]) -> Result<Vec<Change>, Fixed> {
        let mut changes = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            let Some(place) = self.place(number) else { continue };
            let (Some(now), Some(wanted)) = (now.get(place.clone()), wanted.get(place)) else { continue };
            if now == wanted {
                continue;
            }
            let register = row.source.written();
            let number = |bytes: &[Option<u8>]| {
                let digit = |value: u128, byte: &Option<u8>| byte.map(|byte| value << 8 | u128::from(byte));
                bytes.iter().rev().try_fold(0, digit)
            };
            let value = number(wanted);
            let fixed = |(now, wanted): (u128, u128)| (now ^ wanted) & !ARITHMETIC != 0;
            if register == Some(Reg::Flags) && number(now).zip(value).is_some_and(fixed) {
                return Err(Fixed("a system flag of eflags".to_owned()));
            }
            changes.push(register.zip(value).ok_or_else(|| Fixed(row.name.clone()))?);
        }
        Ok(changes)
    }
}

fn value(core: &Core, source: Source) -> Option<u128> {
    let env = core.env();
    Some(match source {
        Source::Gpr(number) => env.gpr(number).into(),
        Source::Ip => env.eip().into(),
        Source::Flags => core.eflags().into(),
        Source::Selector(seg) => env.seg(seg).selector.into(),
        Source::Base(seg) => env.seg(seg).base.into(),
        Source::KernelGsBase => env.kernel_gs_base().into(),
        Source::Control(number) => env.cr(number).into(),
        Source::Efer => env.efer().into(),
        Source::Stack(n) => {
            let mut bytes = [0; 16];
            let register = env.fpreg(((env.fpstt() + n) & 7) as usize);
            bytes.iter_mut().zip(register).for_each(|(to, from)| *to = from);
            u128::from_le_bytes(bytes)
        }
        Source::Fpu(word) => fpu(core, word).into(),
        Source::Xmm(n) => env.xmm(n),
        Source::Mxcsr => env.mxcsr().into(),
        Source::Call => return None,
    })
}

/// A word of the x87, in 32 bits.
fn fpu(core: &Core, word: Fpu) -> u32 {
    let env = core.env();
    match word {
        Fpu::Control => env.fpuc().into(),
        Fpu::Status => u32::from(env.fpus() & !0x3800) | (env.fpstt() & 7) << 11,
        Fpu::Tags => (0..8).map(|n| tag(env.fpreg(n), env.fptags().get(n) == Some(&0)) << (2 * n)).sum(),
        Fpu::CodeSelector => env.fpcs().into(),
        Fpu::CodeOffset => env.fpip() as u32,
        Fpu::DataSelector => env.fpds().into(),
        Fpu::DataOffset => env.fpdp() as u32,
        Fpu::Opcode => env.fpop().into(),
    }
}

/// The tag of a physical register of the x87 (SDM volume 1, 8.1.7): valid, zero, special or empty.
fn tag(register: [u8; 10], used: bool) -> u32 {
    let [m0, m1, m2, m3, m4, m5, m6, m7, e0, e1] = register;
    let mantissa = u64::from_le_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
    let exponent = u16::from_le_bytes([e0, e1]) & 0x7fff;
    match (used, exponent, mantissa) {
        (false, ..) => 3,
        (true, 0, 0) => 1,
        (true, 0 | 0x7fff, _) => 2,
        (true, _, mantissa) if mantissa >> 63 == 0 => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_gdb() {
        // gdb's own numbers: eip 8, st0 16, xmm0 32 and mxcsr 40; rip 16, st0 24, xmm0 40 and mxcsr 56.
        for (wide, places) in [(false, [8, 16, 32, 40]), (true, [16, 24, 40, 56])] {
            let all = Registers::new(wide, false);
            let names: Vec<&str> = places.iter().map(|n| all.rows[*n].name.as_str()).collect();
            let ip = if wide { "rip" } else { "eip" };
            assert_eq!(names, [ip, "st0", "xmm0", "mxcsr"]);
        }
    }

    #[test]
    fn tags_are_those_of_the_manual() {
        let one = [0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f];
        let infinity = [0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x7f];
        assert_eq!([tag(one, true), tag([0; 10], true), tag(infinity, true), tag(one, false)], [0, 1, 2, 3]);
    }

    #[test]
    fn system_flags_are_fixed() {
        let all = Registers::new(false, false);
        let flags = all.place(9).unwrap();
        let mut before: Vec<Option<u8>> = vec![Some(0); all.size()];
        before[flags.start + 1] = Some(2);
        let mut after = before.clone();
        after[flags.start] = Some(0x41);
        assert_eq!(all.changes(&before, &after).unwrap(), [(Reg::Flags, 0x241)]);
        after[flags.start + 1] = Some(0);
        let refused = all.changes(&before, &after).unwrap_err().to_string();
        assert!(refused.starts_with("a system flag of eflags cannot be written"), "{refused}");
    }

    #[test]
    fn what_was_not_written_does_not_change() {
        let all = Registers::new(true, false);
        let before: Vec<Option<u8>> = vec![Some(0); all.place(all.rows.len() - 1).unwrap().end];
        let mut after = before.clone();
        after[8] = Some(7);
        assert_eq!(all.changes(&before, &after).unwrap(), [(Reg::Bx, 7)]);
        let row = |name: &str| all.place(all.rows.iter().position(|row| row.name == name).unwrap()).unwrap();
        after[row("cr3").start] = Some(1);
        after[row("xmm3").end - 1] = Some(0x80);
        let changes = [(Reg::Bx, 7), (Reg::Xmm3, 0x80 << 120), (Reg::Cr3, 1)];
        assert_eq!(all.changes(&before, &after).unwrap(), changes);
        after[row("gs").start] = Some(1);
        assert!(all.changes(&before, &after).unwrap_err().to_string().starts_with("gs cannot"));
    }
}
