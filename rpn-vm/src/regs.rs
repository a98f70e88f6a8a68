//! The registers of the manual's Appendix A (docs/probe-language.md, "Registers"): names, index numbers,
//! permissions, and the canonical register that the host is asked for.
//!
//! A table and its look-ups. Values of registers come from
//! the [`crate::Host`]. Indices up to 0x55 are Appendix A's; 0x80 and above
//! are Trapline's, for x86-64.

use crate::instructions::OperandKind;

macro_rules! canonical {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        /// A register as the host sees it: one name for each piece of state, for all widths.
        ///
        /// `Ax`..`R15`, `Ip` and `Flags` are the full registers of the mode (32 bits on IA32, 64 on x86-64);
        /// the interpreter cuts them to 32 bits for IA32 names.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the variants are the registers' own names")]
        pub enum Reg { $($(#[$meta])* $name),* }
    };
}

canonical! {
    Cs, Ds, Es, Fs, Gs, Ss, Ax, Bx, Cx, Dx, Di, Si, Flags, Ip, Sp, Bp,
    R8, R9, R10, R11, R12, R13, R14, R15,
    Tr, Ldtr, Gdtr, Idtr, Cr0, Cr2, Cr3, Cr4, Cr8, Dr0, Dr1, Dr2, Dr3, Dr6, Dr7,
    Efer, FsBase, GsBase,
    Fr0, Fr1, Fr2, Fr3, Fr4, Fr5, Fr6, Fr7, Fcw, Fsw, Ftw, Fip, Fcs, Fdp, Fds, Mxcsr,
    Xmm0, Xmm1, Xmm2, Xmm3, Xmm4, Xmm5, Xmm6, Xmm7,
    Xmm8, Xmm9, Xmm10, Xmm11, Xmm12, Xmm13, Xmm14, Xmm15,
    /// Not state: `push r, cpuid` asks [`crate::Host::cpuid`].
    Cpuid,
    /// Not state: `push r, msr` asks [`crate::Host::rdmsr`].
    Msr,
}

impl Reg {
    /// Number of an x87 stack register, 0 for `Fr0`.
    #[must_use]
    pub const fn fpr_number(self) -> Option<u8> {
        let n = (self as u8).wrapping_sub(Self::Fr0 as u8);
        if n < 8 { Some(n) } else { None }
    }

    /// Whether it is a segment register.
    #[must_use]
    pub const fn is_segment(self) -> bool {
        matches!(self, Self::Cs | Self::Ds | Self::Es | Self::Fs | Self::Gs | Self::Ss)
    }

    /// Number of an SSE register, 0 for `Xmm0`.
    #[must_use]
    pub const fn xmm_number(self) -> Option<u8> {
        let n = (self as u8).wrapping_sub(Self::Xmm0 as u8);
        if n < 16 { Some(n) } else { None }
    }

    /// The register's number in an x86 instruction encoding (Intel SDM vol. 2, table 2-2), for the
    /// sixteen general registers.
    #[must_use]
    pub const fn gpr_number(self) -> Option<u8> {
        Some(match self {
            Self::Ax => 0,
            Self::Cx => 1,
            Self::Dx => 2,
            Self::Bx => 3,
            Self::Sp => 4,
            Self::Bp => 5,
            Self::Si => 6,
            Self::Di => 7,
            Self::R8 => 8,
            Self::R9 => 9,
            Self::R10 => 10,
            Self::R11 => 11,
            Self::R12 => 12,
            Self::R13 => 13,
            Self::R14 => 14,
            Self::R15 => 15,
            _ => return None,
        })
    }
}

/// How a register is split into stack elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One element.
    Plain,
    /// One element, cut to 32 bits whatever the mode.
    Low32,
    /// 80 bits: three elements on IA32, two on x86-64, the most significant pushed first.
    Wide80,
    /// 128 bits: four elements on IA32, two on x86-64, the most significant pushed first.
    Wide128,
    /// Limit, then base.
    Table,
    /// Pops the leaf, pushes eax, ebx, ecx, edx.
    Cpuid,
    /// Pops the index, pushes the value (high, then low on IA32).
    Msr,
}

/// One register of the language.
#[derive(Debug, Clone, Copy)]
pub struct RegRow {
    /// Appendix A index, or 0x80 and above for x86-64.
    pub index: u8,
    /// Its name, lower case.
    pub name: &'static str,
    /// The register that the host is asked for.
    pub reg: Reg,
    /// How it is split into stack elements.
    pub shape: Shape,
    /// Whether `push u` may name it.
    pub push_u: bool,
    /// Whether `push r` may name it.
    pub push_r: bool,
    /// Whether `pop u` and `pop r` may name it.
    pub pop: bool,
    /// Whether it exists on x86-64 only.
    pub only64: bool,
}

macro_rules! registers {
    ($($index:literal $name:literal $reg:ident $shape:ident $u:literal $r:literal $pop:literal $only64:literal;)*) => {
        /// The registers in the order of their index.
        pub const REGISTERS: &[RegRow] = &[$(RegRow {
            index: $index, name: $name, reg: Reg::$reg, shape: Shape::$shape,
            push_u: $u != 0, push_r: $r != 0, pop: $pop != 0, only64: $only64 != 0,
        },)*];
    };
}

registers! {
    0x00 "cs" Cs Plain 1 1 0 0;
    0x01 "ds" Ds Plain 1 1 1 0;
    0x02 "es" Es Plain 1 1 1 0;
    0x03 "fs" Fs Plain 1 1 1 0;
    0x04 "gs" Gs Plain 1 1 1 0;
    0x05 "ss" Ss Plain 1 1 0 0;
    0x06 "eax" Ax Low32 1 1 1 0;
    0x07 "ebx" Bx Low32 1 1 1 0;
    0x08 "ecx" Cx Low32 1 1 1 0;
    0x09 "edx" Dx Low32 1 1 1 0;
    0x0a "edi" Di Low32 1 1 1 0;
    0x0b "esi" Si Low32 1 1 1 0;
    0x0c "eflags" Flags Low32 1 1 0 0;
    0x0d "eip" Ip Low32 1 1 0 0;
    0x0e "esp" Sp Low32 1 1 0 0;
    0x0f "ebp" Bp Low32 1 1 1 0;
    0x20 "tr" Tr Plain 0 1 0 0;
    0x21 "ldtr" Ldtr Plain 0 1 0 0;
    0x22 "gdtr" Gdtr Table 0 1 0 0;
    0x23 "idtr" Idtr Table 0 1 0 0;
    0x24 "cr0" Cr0 Plain 0 1 0 0;
    0x26 "cr2" Cr2 Plain 0 1 0 0;
    0x27 "cr3" Cr3 Plain 0 1 0 0;
    0x28 "cr4" Cr4 Plain 0 1 0 0;
    0x2c "dr0" Dr0 Plain 0 1 0 0;
    0x2d "dr1" Dr1 Plain 0 1 0 0;
    0x2e "dr2" Dr2 Plain 0 1 0 0;
    0x2f "dr3" Dr3 Plain 0 1 0 0;
    0x32 "dr6" Dr6 Plain 0 1 0 0;
    0x33 "dr7" Dr7 Plain 0 1 0 0;
    0x3c "cpuid" Cpuid Cpuid 1 1 0 0;
    0x3d "msr" Msr Msr 1 1 0 0;
    0x3e "fr0" Fr0 Wide80 1 0 0 0;
    0x3f "fr1" Fr1 Wide80 1 0 0 0;
    0x40 "fr2" Fr2 Wide80 1 0 0 0;
    0x41 "fr3" Fr3 Wide80 1 0 0 0;
    0x42 "fr4" Fr4 Wide80 1 0 0 0;
    0x43 "fr5" Fr5 Wide80 1 0 0 0;
    0x44 "fr6" Fr6 Wide80 1 0 0 0;
    0x45 "fr7" Fr7 Wide80 1 0 0 0;
    0x46 "fcw" Fcw Plain 1 0 0 0;
    0x47 "fsw" Fsw Plain 1 0 0 0;
    0x48 "ftw" Ftw Plain 1 0 0 0;
    0x49 "fip" Fip Plain 1 0 0 0;
    0x4a "fcs" Fcs Plain 1 0 0 0;
    0x4b "fdp" Fdp Plain 1 0 0 0;
    0x4c "fds" Fds Plain 1 0 0 0;
    0x4d "xmm0" Xmm0 Wide128 1 0 0 0;
    0x4e "xmm1" Xmm1 Wide128 1 0 0 0;
    0x4f "xmm2" Xmm2 Wide128 1 0 0 0;
    0x50 "xmm3" Xmm3 Wide128 1 0 0 0;
    0x51 "xmm4" Xmm4 Wide128 1 0 0 0;
    0x52 "xmm5" Xmm5 Wide128 1 0 0 0;
    0x53 "xmm6" Xmm6 Wide128 1 0 0 0;
    0x54 "xmm7" Xmm7 Wide128 1 0 0 0;
    0x55 "mxcsr" Mxcsr Plain 1 0 0 0;
    0x80 "rax" Ax Plain 1 1 1 1;
    0x81 "rbx" Bx Plain 1 1 1 1;
    0x82 "rcx" Cx Plain 1 1 1 1;
    0x83 "rdx" Dx Plain 1 1 1 1;
    0x84 "rdi" Di Plain 1 1 1 1;
    0x85 "rsi" Si Plain 1 1 1 1;
    0x86 "rflags" Flags Plain 1 1 0 1;
    0x87 "rip" Ip Plain 1 1 0 1;
    0x88 "rsp" Sp Plain 1 1 0 1;
    0x89 "rbp" Bp Plain 1 1 1 1;
    0x8a "r8" R8 Plain 1 1 1 1;
    0x8b "r9" R9 Plain 1 1 1 1;
    0x8c "r10" R10 Plain 1 1 1 1;
    0x8d "r11" R11 Plain 1 1 1 1;
    0x8e "r12" R12 Plain 1 1 1 1;
    0x8f "r13" R13 Plain 1 1 1 1;
    0x90 "r14" R14 Plain 1 1 1 1;
    0x91 "r15" R15 Plain 1 1 1 1;
    0x92 "cr8" Cr8 Plain 0 1 0 1;
    0x93 "efer" Efer Plain 0 1 0 1;
    0x94 "fs_base" FsBase Plain 0 1 0 1;
    0x95 "gs_base" GsBase Plain 0 1 0 1;
    0x98 "xmm8" Xmm8 Wide128 1 0 0 1;
    0x99 "xmm9" Xmm9 Wide128 1 0 0 1;
    0x9a "xmm10" Xmm10 Wide128 1 0 0 1;
    0x9b "xmm11" Xmm11 Wide128 1 0 0 1;
    0x9c "xmm12" Xmm12 Wide128 1 0 0 1;
    0x9d "xmm13" Xmm13 Wide128 1 0 0 1;
    0x9e "xmm14" Xmm14 Wide128 1 0 0 1;
    0x9f "xmm15" Xmm15 Wide128 1 0 0 1;
}

/// The row of a register index.
#[must_use]
pub fn by_index(index: u8) -> Option<&'static RegRow> {
    REGISTERS.binary_search_by_key(&index, |row| row.index).ok().map(|i| &REGISTERS[i])
}

/// The row of a register name, in any case.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static RegRow> {
    REGISTERS.iter().find(|row| row.name.eq_ignore_ascii_case(name))
}

impl RegRow {
    /// Whether the instruction form may name this register; the error says why not.
    ///
    /// # Errors
    /// The reason, with what to use instead if there is anything.
    pub fn permits(&self, kind: OperandKind) -> Result<(), String> {
        let n = self.name;
        match kind {
            OperandKind::PushU if !self.push_u => {
                Err(format!("`{n}` exists once for the CPU and not in the user context; use `push r, {n}`"))
            }
            OperandKind::PushR if !self.push_r => {
                Err(format!("the FPU and SSE register `{n}` belongs to the user context; use `push u, {n}`"))
            }
            OperandKind::PopR | OperandKind::PopU if !self.pop => Err(match self.shape {
                Shape::Cpuid | Shape::Msr => format!("`{n}` can only be pushed: a handler may not write it"),
                _ if self.index <= 0x0f || matches!(self.reg, Reg::Flags | Reg::Ip | Reg::Sp) => format!(
                    "`{n}` cannot be written: changing cs, ss, the flags, the instruction or the stack pointer \
                     would derail the probed code"
                ),
                _ => format!(
                    "`{n}` cannot be written: control, debug, system-table, FPU and SSE registers are read-only"
                ),
            }),
            _ => Ok(()),
        }
    }
}

/// Whether a name is a register, reserved ones included.
pub(crate) fn known(name: &str) -> bool {
    by_name(name).is_some() || reserved(name)
}

/// The reserved registers of Appendix A, which are refused.
pub(crate) fn reserved(name: &str) -> bool {
    let low = name.to_ascii_lowercase();
    matches!(low.as_str(), "cr1" | "cr5" | "cr6" | "cr7" | "dr4" | "dr5")
        || low.strip_prefix("tr").is_some_and(|n| matches!(n, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7"))
}

/// Whether a name is a register of Appendix B (S/390) or C (PowerPC).
pub(crate) fn foreign(name: &str) -> bool {
    let low = name.to_ascii_lowercase();
    if matches!(
        low.as_str(),
        "pswmask" | "pswaddr" | "fpc" | "nip" | "ctr" | "lnk" | "xer" | "ccr" | "mq" | "dar" | "dsisr"
    ) {
        return true;
    }
    ["gpr", "acr", "fpr", "cr_"].iter().any(|p| {
        low.strip_prefix(p)
            .is_some_and(|n| !n.is_empty() && n.len() <= 2 && n.bytes().all(|b| b.is_ascii_digit()))
    })
}
