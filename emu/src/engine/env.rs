//! `Env`: typed access to the CPU state that the engine executes on (`CPUX86State`).
//!
//! Reading and writing here is a plain memory access, about 1 ns, where the engine's register API costs
//! 7 to 50 ns. It is valid whenever no translated code is running: inside hooks and outside
//! `emu_start`. Lazy arithmetic flags are the one thing that is not plain; see [`Env::set_eflags`].

use super::layout::env as off;

/// Arithmetic flags: CF, PF, AF, ZF, SF, OF.
pub const ARITH_FLAGS: u64 = 0x8d5;

/// `HF_*` bits of the engine's hidden flags that the machine reads or writes.
pub mod hflags {
    #![allow(missing_docs)]
    pub const CPL: u32 = 3;
    pub const INHIBIT_IRQ: u32 = 1 << 3;
    pub const CS32: u32 = 1 << 4;
    pub const SS32: u32 = 1 << 5;
    pub const ADDSEG: u32 = 1 << 6;
    pub const PE: u32 = 1 << 7;
    pub const MP: u32 = 1 << 9;
    pub const EM: u32 = 1 << 10;
    pub const TS: u32 = 1 << 11;
    pub const LMA: u32 = 1 << 14;
    pub const CS64: u32 = 1 << 15;
    pub const OSFXSR: u32 = 1 << 22;
}

/// A segment register with its hidden part, as the engine keeps it (`SegmentCache`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Segment {
    /// Selector.
    pub selector: u32,
    _pad: u32,
    /// Linear base.
    pub base: u64,
    /// Limit in bytes, already scaled by G.
    pub limit: u32,
    /// Second descriptor word (attributes in bits 8..24).
    pub flags: u32,
}

impl Segment {
    /// A segment from its parts.
    pub fn new(selector: u16, base: u64, limit: u32, flags: u32) -> Self {
        Segment { selector: selector.into(), _pad: 0, base, limit, flags }
    }
}

/// Index of a segment register in the engine's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Seg {
    Es = 0,
    Cs = 1,
    Ss = 2,
    Ds = 3,
    Fs = 4,
    Gs = 5,
}

/// Typed pointer to the engine's CPU state. Copies alias the same state.
#[derive(Debug, Clone, Copy)]
pub struct Env(pub(super) *mut u8);

macro_rules! field {
    ($(#[$doc:meta])* $get:ident, $set:ident, $ty:ty, $off:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $get(self) -> $ty {
            // SAFETY: `Env` is only made from a live engine whose layout was verified.
            unsafe { self.0.add($off).cast::<$ty>().read() }
        }
        $(#[$doc])*
        #[inline(always)]
        pub fn $set(self, value: $ty) {
            // SAFETY: as for the getter; no Rust reference to engine memory exists.
            unsafe { self.0.add($off).cast::<$ty>().write(value) }
        }
    };
}

impl Env {
    field!(/** Instruction pointer, an offset in CS. */ eip, set_eip, u64, off::EIP);
    field!(/** EFLAGS without the lazy arithmetic flags and DF. */ eflags_raw, set_eflags_raw, u64, off::EFLAGS);
    field!(/** The engine's hidden flags. */ hflags, set_hflags, u32, off::HFLAGS);
    field!(/** IA32_EFER. */ efer, set_efer, u64, off::EFER);
    field!(/** Error code of the exception being raised. */ error_code, set_error_code, i32, off::ERROR_CODE);
    field!(/** Whether the exception came from INT n, INT3 or INTO. */ exception_is_int, set_exception_is_int, i32, off::EXCEPTION_IS_INT);
    field!(/** Pending exception for double-fault detection; kept at -1. */ old_exception, set_old_exception, i32, off::OLD_EXCEPTION);
    field!(/** IA32_SYSENTER_CS. */ sysenter_cs, set_sysenter_cs, u32, off::SYSENTER_CS);
    field!(/** IA32_SYSENTER_ESP. */ sysenter_esp, set_sysenter_esp, u64, off::SYSENTER_ESP);
    field!(/** IA32_SYSENTER_EIP. */ sysenter_eip, set_sysenter_eip, u64, off::SYSENTER_EIP);
    field!(/** IA32_STAR. */ star, set_star, u64, off::STAR);
    field!(/** IA32_LSTAR. */ lstar, set_lstar, u64, off::LSTAR);
    field!(/** IA32_CSTAR. */ cstar, set_cstar, u64, off::CSTAR);
    field!(/** IA32_FMASK. */ fmask, set_fmask, u64, off::FMASK);
    field!(/** IA32_KERNEL_GS_BASE. */ kernel_gs_base, set_kernel_gs_base, u64, off::KERNELGSBASE);
    field!(/** IA32_TSC_AUX. */ tsc_aux, set_tsc_aux, u64, off::TSC_AUX);
    field!(/** IA32_PAT. */ pat, set_pat, u64, off::PAT);
    field!(/** x87 top of stack. */ fpstt, set_fpstt, u32, off::FPSTT);
    field!(/** x87 status word without TOP. */ fpus, set_fpus, u16, off::FPUS);
    field!(/** x87 control word. */ fpuc, set_fpuc, u16, off::FPUC);
    field!(/** x87 last opcode. */ fpop, set_fpop, u16, off::FPOP);
    field!(/** x87 instruction pointer. */ fpip, set_fpip, u64, off::FPIP);
    field!(/** x87 operand pointer. */ fpdp, set_fpdp, u64, off::FPDP);
    field!(/** MXCSR. */ mxcsr, set_mxcsr, u32, off::MXCSR);

    /// General register in encoding order (0 = rAX .. 15 = R15), full width.
    #[inline(always)]
    pub fn gpr(self, index: usize) -> u64 {
        // SAFETY: the index is masked to the 16 registers of a verified layout.
        unsafe { self.0.add(off::REGS).cast::<u64>().add(index & 15).read() }
    }

    /// Writes a general register, full width.
    #[inline(always)]
    pub fn set_gpr(self, index: usize, value: u64) {
        // SAFETY: as for `gpr`.
        unsafe { self.0.add(off::REGS).cast::<u64>().add(index & 15).write(value) }
    }

    fn segment_at(self, offset: usize) -> Segment {
        // SAFETY: `offset` is one of the verified offsets of a `SegmentCache`.
        unsafe { self.0.add(offset).cast::<Segment>().read() }
    }

    fn set_segment_at(self, offset: usize, value: Segment) {
        // SAFETY: as for `segment_at`.
        unsafe { self.0.add(offset).cast::<Segment>().write(value) }
    }

    /// A segment register.
    #[inline]
    pub fn seg(self, seg: Seg) -> Segment {
        self.segment_at(off::SEGS + seg as usize * 24)
    }

    /// Linear base of CS.
    #[inline(always)]
    pub fn cs_base(self) -> u64 {
        // SAFETY: verified layout: base is at +8 of the segment cache of CS.
        unsafe { self.0.add(off::SEGS + 24 + 8).cast::<u64>().read() }
    }

    /// Writes a segment register without updating hidden flags; see [`Env::load_seg`].
    pub fn set_seg_raw(self, seg: Seg, value: Segment) {
        self.set_segment_at(off::SEGS + seg as usize * 24, value);
    }

    /// GDTR as a segment (base, limit).
    pub fn gdt(self) -> Segment {
        self.segment_at(off::GDT)
    }
    /// IDTR as a segment (base, limit).
    pub fn idt(self) -> Segment {
        self.segment_at(off::IDT)
    }
    /// LDTR with its hidden part.
    pub fn ldt(self) -> Segment {
        self.segment_at(off::LDT)
    }
    /// TR with its hidden part.
    pub fn tr(self) -> Segment {
        self.segment_at(off::TR)
    }
    /// Writes GDTR.
    pub fn set_gdt(self, value: Segment) {
        self.set_segment_at(off::GDT, value);
    }
    /// Writes IDTR.
    pub fn set_idt(self, value: Segment) {
        self.set_segment_at(off::IDT, value);
    }
    /// Writes TR.
    pub fn set_tr(self, value: Segment) {
        self.set_segment_at(off::TR, value);
    }

    /// Control register 0, 2, 3 or 4 as stored.
    #[inline(always)]
    pub fn cr(self, index: usize) -> u64 {
        // SAFETY: verified layout: five control registers (index masked to 0..=4 by callers' constants).
        unsafe { self.0.add(off::CR).cast::<u64>().add(index.min(4)).read() }
    }

    /// Writes a control register without side effects.
    pub fn set_cr_raw(self, index: usize, value: u64) {
        // SAFETY: as for `cr`.
        unsafe { self.0.add(off::CR).cast::<u64>().add(index.min(4)).write(value) }
    }

    /// Debug register 0..=7.
    pub fn dr(self, index: usize) -> u64 {
        // SAFETY: verified layout: eight debug registers.
        unsafe { self.0.add(off::DR).cast::<u64>().add(index & 7).read() }
    }

    /// Writes a debug register without arming it in the engine.
    pub fn set_dr_raw(self, index: usize, value: u64) {
        // SAFETY: as for `dr`.
        unsafe { self.0.add(off::DR).cast::<u64>().add(index & 7).write(value) }
    }

    /// x87 tag bytes, 1 = empty.
    pub fn fptags(self) -> [u8; 8] {
        // SAFETY: verified layout.
        unsafe { self.0.add(off::FPTAGS).cast::<[u8; 8]>().read() }
    }

    /// x87 physical register: 10 bytes of the 80-bit value.
    pub fn fpreg(self, index: usize) -> [u8; 10] {
        // SAFETY: verified layout: eight registers of 16 bytes.
        unsafe { self.0.add(off::FPREGS + (index & 7) * 16).cast::<[u8; 10]>().read() }
    }

    /// XMM register.
    pub fn xmm(self, index: usize) -> u128 {
        // SAFETY: verified layout: 32 vector registers; the index is masked to 16.
        unsafe { self.0.add(off::XMM + (index & 15) * off::XMM_STRIDE).cast::<u128>().read_unaligned() }
    }

    /// Current privilege level.
    #[inline(always)]
    pub fn cpl(self) -> u8 {
        (self.hflags() & hflags::CPL) as u8
    }

    /// True in 64-bit code.
    #[inline(always)]
    pub fn code64(self) -> bool {
        self.hflags() & hflags::CS64 != 0
    }

    /// True in IA-32e mode (compatibility or 64-bit).
    #[inline(always)]
    pub fn long_mode(self) -> bool {
        self.hflags() & hflags::LMA != 0
    }

    /// Sets all of EFLAGS, the lazy arithmetic flags and DF included. Only while the engine does not run: when it is
    /// entered, it takes all of them from the raw ones.
    pub fn set_eflags(self, value: u64) {
        const CC_OP_EFLAGS: u32 = 1;
        let df: i32 = if value & 0x400 != 0 { -1 } else { 1 };
        // SAFETY: verified layout; these fields are what the engine itself leaves EFLAGS in
        // (`x86_cpu_exec_exit`).
        unsafe {
            self.0.add(off::CC_SRC).cast::<u64>().write(value & ARITH_FLAGS);
            self.0.add(off::CC_OP).cast::<u32>().write(CC_OP_EFLAGS);
            self.0.add(off::DF).cast::<i32>().write(df);
        }
        self.set_eflags_raw(value | 2);
    }

    /// Direction flag.
    pub fn df(self) -> bool {
        // SAFETY: verified layout.
        unsafe { self.0.add(off::DF).cast::<i32>().read() < 0 }
    }

    /// Loads a segment register and recomputes the hidden flags, as `cpu_x86_load_seg_cache` does. CS of 64-bit code has no
    /// base, whatever its descriptor says.
    pub fn load_seg(self, seg: Seg, value: Segment) {
        use hflags as hf;
        const DESC_L: u32 = 1 << 21;
        const DESC_B: u32 = 1 << 22;
        self.set_seg_raw(seg, value);
        let mut h = self.hflags();
        if seg == Seg::Cs {
            if h & hf::LMA != 0 && value.flags & DESC_L != 0 {
                self.set_seg_raw(seg, Segment { base: 0, ..value });
                h |= hf::CS32 | hf::SS32 | hf::CS64;
                h &= !hf::ADDSEG;
            } else {
                h &= !(hf::CS32 | hf::CS64);
                if value.flags & DESC_B != 0 {
                    h |= hf::CS32;
                }
            }
        }
        if seg == Seg::Ss {
            h = (h & !hf::CPL) | ((value.flags >> 13) & 3);
        }
        let mut new = if self.seg(Seg::Ss).flags & DESC_B != 0 { hf::SS32 } else { 0 };
        if h & hf::CS64 == 0 {
            let based = self.seg(Seg::Ds).base | self.seg(Seg::Es).base | self.seg(Seg::Ss).base != 0;
            if self.cr(0) & 1 == 0 || h & hf::CS32 == 0 || based {
                new |= hf::ADDSEG;
            }
        }
        self.set_hflags((h & !(hf::SS32 | hf::ADDSEG)) | new);
    }

    /// Sets the privilege level in the hidden flags.
    pub fn set_cpl(self, cpl: u8) {
        self.set_hflags((self.hflags() & !hflags::CPL) | u32::from(cpl & 3));
    }

    /// Copies the whole CPU state out.
    pub fn save(self, to: &mut Vec<u8>) {
        to.clear();
        // SAFETY: `SAVED` bytes belong to the CPU state of a verified layout.
        to.extend_from_slice(unsafe { std::slice::from_raw_parts(self.0, off::SAVED) });
    }

    /// Copies a state saved by [`Env::save`] back. A buffer of another size is ignored.
    pub fn restore(self, from: &[u8]) {
        if from.len() == off::SAVED {
            // SAFETY: as for `save`; the lengths are equal and the buffers do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.0, off::SAVED) }
        }
    }
}
