//! `Env`: typed access to the CPU state that the engine executes on (`CPUX86State`).
//!
//! Reading and writing here is a plain memory access, about 1 ns, where the engine's register API costs 7 to 50 ns. It
//! is valid whenever no translated code is running: inside hooks and outside `emu_start`. Only the lazily computed
//! arithmetic flags are an exception; see [`Env::set_eflags`].
//!
//! An `Env` borrows the machine that it belongs to, and the engine's memory is only ever reached through raw pointers, so
//! writing through a shared `Env` is like writing through a `Cell`. What the engine uses as an index is masked when it is
//! written. Fields that hold host pointers (breakpoint lists, return addresses) have no accessor.

use super::layout::{env as off, hidden, segment};
use std::marker::PhantomData;
use std::ops::Deref;

/// The bit of a task state segment's type that says that it is busy.
const TSS_BUSY: u32 = 1 << 9;

/// Arithmetic flags: CF, PF, AF, ZF, SF, OF.
pub const ARITH_FLAGS: u64 = 0x8d5;

/// `HF_*` bits of the engine's hidden flags that the machine reads or writes.
pub mod hflags {
    #![allow(missing_docs)]
    use super::hidden;
    pub const CPL: u32 = hidden::CPL;
    pub const INHIBIT_IRQ: u32 = hidden::INHIBIT_IRQ;
    pub const CS32: u32 = hidden::CS32;
    pub const SS32: u32 = hidden::SS32;
    pub const ADDSEG: u32 = hidden::ADDSEG;
    pub const PE: u32 = hidden::PE;
    pub const MP: u32 = hidden::MP;
    pub const EM: u32 = hidden::EM;
    pub const TS: u32 = hidden::TS;
    pub const LMA: u32 = hidden::LMA;
    pub const CS64: u32 = hidden::CS64;
    pub const OSFXSR: u32 = hidden::OSFXSR;
    /// Not the engine's: the machine executes all floating point of SSE, or all of the x87 and MMX. A block is translated for
    /// the hidden flags, so each program has its own translations (`engine/float.rs`).
    pub const EXACT_SSE: u32 = 1 << 30;
    pub const EXACT_X87: u32 = 1 << 31;
    const _: () = assert!(hidden::HIGHEST < EXACT_SSE);
}

/// The operands of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operands {
    /// The first.
    pub one: u64,
    /// The second, which was subtracted from it; 0 if the instruction was no comparison and this is its result.
    pub other: u64,
    /// Bytes of each.
    pub size: u8,
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

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(offset_of!(Segment, selector) == segment::SELECTOR && offset_of!(Segment, base) == segment::BASE);
    assert!(offset_of!(Segment, limit) == segment::LIMIT && offset_of!(Segment, flags) == segment::FLAGS);
    assert!(size_of::<Segment>() == segment::SIZE);
};

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

/// The engine's CPU state, borrowed from its machine. Copies alias the same state.
///
/// ```compile_fail,E0505
/// # use trapline_emu::{CpuModel, Machine, MachineConfig};
/// let machine = Machine::new(&MachineConfig { mem_size: 1 << 20, model: CpuModel::Ia32 }).unwrap();
/// let env = machine.core().env();
/// drop(machine);
/// env.eip(); // the state is gone with its machine
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Env<'a> {
    base: *mut u8,
    machine: PhantomData<&'a ()>,
}

/// The state of an engine, for the owner of that engine: the two live equally long.
pub(crate) struct OwnEnv(pub(super) Env<'static>);

// SAFETY: it is sent together with its engine. Any other `Env` is a borrow and cannot be sent.
unsafe impl Send for OwnEnv {}

impl Deref for OwnEnv {
    type Target = Env<'static>;
    #[inline(always)]
    fn deref(&self) -> &Env<'static> {
        &self.0
    }
}

macro_rules! field {
    ($(#[$doc:meta])* $get:ident, $ty:ty, $off:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $get(self) -> $ty {
            // SAFETY: the engine lives for `'a`, and its layout was verified.
            unsafe { self.base.add($off).cast::<$ty>().read() }
        }
    };
    ($(#[$doc:meta])* $get:ident, $vis:vis $set:ident, $ty:ty, $off:expr) => {
        field!($(#[$doc])* $get, $ty, $off);
        $(#[$doc])*
        #[inline(always)]
        $vis fn $set(self, value: $ty) {
            // SAFETY: as for the getter; no Rust reference to engine memory exists.
            unsafe { self.base.add($off).cast::<$ty>().write(value) }
        }
    };
}

impl Env<'_> {
    /// The state at `base`.
    ///
    /// # Safety
    /// `base` is the `CPUX86State` of an engine that lives as long as the result and whose layout is the verified one.
    pub(super) unsafe fn new(base: *mut u8) -> Self {
        Env { base, machine: PhantomData }
    }

    /// Where the state begins: the engine keeps its TLB before it.
    pub(super) fn base(self) -> *mut u8 {
        self.base
    }

    field!(/** Instruction pointer, an offset in CS. */ eip, pub set_eip, u64, off::EIP);
    field!(/** EFLAGS without the lazy arithmetic flags and DF. */ eflags_raw, pub set_eflags_raw, u64, off::EFLAGS);
    field!(/** The engine's hidden flags. */ hflags, pub(crate) set_hflags, u32, off::HFLAGS);
    field!(/** IA32_EFER. */ efer, pub set_efer, u64, off::EFER);
    field!(/** Error code of the exception being raised. */ error_code, i32, off::ERROR_CODE);
    field!(/** Whether the exception came from INT n, INT3 or INTO. */ exception_is_int, i32, off::EXCEPTION_IS_INT);
    field!(/** Pending exception for double-fault detection; kept at -1. */ old_exception, pub(crate) set_old_exception, i32, off::OLD_EXCEPTION);
    field!(/** IA32_SYSENTER_CS. */ sysenter_cs, pub set_sysenter_cs, u32, off::SYSENTER_CS);
    field!(/** IA32_SYSENTER_ESP. */ sysenter_esp, pub set_sysenter_esp, u64, off::SYSENTER_ESP);
    field!(/** IA32_SYSENTER_EIP. */ sysenter_eip, pub set_sysenter_eip, u64, off::SYSENTER_EIP);
    field!(/** IA32_STAR. */ star, pub set_star, u64, off::STAR);
    field!(/** IA32_LSTAR. */ lstar, pub set_lstar, u64, off::LSTAR);
    field!(/** IA32_CSTAR. */ cstar, pub set_cstar, u64, off::CSTAR);
    field!(/** IA32_FMASK. */ fmask, pub set_fmask, u64, off::FMASK);
    field!(/** IA32_KERNEL_GS_BASE. */ kernel_gs_base, pub set_kernel_gs_base, u64, off::KERNELGSBASE);
    field!(/** IA32_TSC_AUX. */ tsc_aux, pub set_tsc_aux, u64, off::TSC_AUX);
    field!(/** IA32_PAT. */ pat, pub set_pat, u64, off::PAT);
    field!(/** x87 control word. */ fpuc, u16, off::FPUC);
    field!(/** x87 last opcode. */ fpop, pub set_fpop, u16, off::FPOP);
    field!(/** Selector of the x87 instruction pointer. */ fpcs, pub set_fpcs, u16, off::FPCS);
    field!(/** Selector of the x87 operand pointer. */ fpds, pub set_fpds, u16, off::FPDS);
    field!(/** x87 instruction pointer. */ fpip, pub set_fpip, u64, off::FPIP);
    field!(/** x87 operand pointer. */ fpdp, pub set_fpdp, u64, off::FPDP);

    /// General register in encoding order (0 = rAX .. 15 = R15), full width.
    #[inline(always)]
    pub fn gpr(self, index: usize) -> u64 {
        // SAFETY: the index is masked to the 16 registers of a verified layout.
        unsafe { self.base.add(off::REGS).cast::<u64>().add(index & 15).read() }
    }

    /// Writes a general register, full width.
    #[inline(always)]
    pub fn set_gpr(self, index: usize, value: u64) {
        // SAFETY: as for `gpr`.
        unsafe { self.base.add(off::REGS).cast::<u64>().add(index & 15).write(value) }
    }

    fn segment_at(self, offset: usize) -> Segment {
        // SAFETY: `offset` is one of the verified offsets of a `SegmentCache`.
        unsafe { self.base.add(offset).cast::<Segment>().read() }
    }

    fn set_segment_at(self, offset: usize, value: Segment) {
        // SAFETY: as for `segment_at`.
        unsafe { self.base.add(offset).cast::<Segment>().write(value) }
    }

    /// A segment register.
    #[inline]
    pub fn seg(self, seg: Seg) -> Segment {
        self.segment_at(off::SEGS + seg as usize * segment::SIZE)
    }

    /// Linear base of CS.
    #[inline(always)]
    pub fn cs_base(self) -> u64 {
        // SAFETY: verified layout: base is at +8 of the segment cache of CS.
        unsafe { self.base.add(off::SEGS + segment::SIZE + segment::BASE).cast::<u64>().read() }
    }

    /// Writes a segment register without updating hidden flags; see [`Env::load_seg`].
    pub fn set_seg_raw(self, seg: Seg, value: Segment) {
        self.set_segment_at(off::SEGS + seg as usize * segment::SIZE, value);
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
    /// TR with its hidden part. One that LTR has never loaded, which only it leaves without a selector, is busy, as a reset
    /// leaves it (SDM volume 3, table 10-1).
    pub fn tr(self) -> Segment {
        let tr = self.segment_at(off::TR);
        let busy = if tr.selector & !3 == 0 { TSS_BUSY } else { 0 };
        Segment { flags: tr.flags | busy, ..tr }
    }
    /// Writes GDTR.
    pub fn set_gdt(self, value: Segment) {
        self.set_segment_at(off::GDT, value);
    }
    /// Writes IDTR.
    pub fn set_idt(self, value: Segment) {
        self.set_segment_at(off::IDT, value);
    }
    /// Writes LDTR.
    pub fn set_ldt(self, value: Segment) {
        self.set_segment_at(off::LDT, value);
    }
    /// Writes TR. As its own LTR does, the engine wants the type that the descriptor had before it became busy: it aborts at
    /// any other when a call gate changes the stack.
    pub fn set_tr(self, value: Segment) {
        self.set_segment_at(off::TR, Segment { flags: value.flags & !TSS_BUSY, ..value });
    }

    /// Control register 0, 2, 3 or 4 as stored.
    #[inline(always)]
    pub fn cr(self, index: usize) -> u64 {
        // SAFETY: verified layout: five control registers (index masked to 0..=4 by callers' constants).
        unsafe { self.base.add(off::CR).cast::<u64>().add(index.min(4)).read() }
    }

    /// Writes a control register without side effects.
    pub fn set_cr_raw(self, index: usize, value: u64) {
        // SAFETY: as for `cr`.
        unsafe { self.base.add(off::CR).cast::<u64>().add(index.min(4)).write(value) }
    }

    /// Debug register 0..=7.
    pub fn dr(self, index: usize) -> u64 {
        // SAFETY: verified layout: eight debug registers.
        unsafe { self.base.add(off::DR).cast::<u64>().add(index & 7).read() }
    }

    /// Writes a debug register without arming it in the engine.
    pub fn set_dr_raw(self, index: usize, value: u64) {
        // SAFETY: as for `dr`.
        unsafe { self.base.add(off::DR).cast::<u64>().add(index & 7).write(value) }
    }

    /// x87 tag bytes, 1 = empty.
    pub fn fptags(self) -> [u8; 8] {
        // SAFETY: verified layout.
        unsafe { self.base.add(off::FPTAGS).cast::<[u8; 8]>().read() }
    }

    /// Writes the x87 tag bytes.
    pub fn set_fptags(self, value: [u8; 8]) {
        // SAFETY: verified layout.
        unsafe { self.base.add(off::FPTAGS).cast::<[u8; 8]>().write(value.map(|tag| tag & 1)) }
    }

    /// x87 top of stack, 0 to 7.
    pub fn fpstt(self) -> u32 {
        // SAFETY: verified layout.
        unsafe { self.base.add(off::FPSTT).cast::<u32>().read() & 7 }
    }

    /// Writes the x87 top of stack. The engine uses it as an index, so only its low three bits count.
    pub fn set_fpstt(self, value: u32) {
        // SAFETY: verified layout.
        unsafe { self.base.add(off::FPSTT).cast::<u32>().write(value & 7) }
    }

    /// x87 physical register: 10 bytes of the 80-bit value.
    pub fn fpreg(self, index: usize) -> [u8; 10] {
        // SAFETY: verified layout: eight registers of 16 bytes.
        unsafe { self.base.add(off::FPREGS + (index & 7) * off::FPREG_STRIDE).cast::<[u8; 10]>().read() }
    }

    /// Writes an x87 physical register: 10 bytes of the 80-bit value.
    pub fn set_fpreg(self, index: usize, value: [u8; 10]) {
        // SAFETY: as for `fpreg`.
        unsafe {
            self.base.add(off::FPREGS + (index & 7) * off::FPREG_STRIDE).cast::<[u8; 10]>().write(value)
        }
    }

    /// XMM register.
    pub fn xmm(self, index: usize) -> u128 {
        // SAFETY: verified layout: 32 vector registers; the index is masked to 16.
        unsafe { self.base.add(off::XMM + (index & 15) * off::XMM_STRIDE).cast::<u128>().read_unaligned() }
    }

    /// Writes an XMM register.
    pub fn set_xmm(self, index: usize, value: u128) {
        // SAFETY: as for `xmm`.
        unsafe {
            self.base.add(off::XMM + (index & 15) * off::XMM_STRIDE).cast::<u128>().write_unaligned(value)
        }
    }

    /// Whether interrupts are held off for one instruction, after STI or a load of SS.
    pub fn interrupt_shadow(self) -> bool {
        self.hflags() & hflags::INHIBIT_IRQ != 0
    }

    /// Begins or ends that shadow.
    pub fn set_interrupt_shadow(self, on: bool) {
        let others = self.hflags() & !hflags::INHIBIT_IRQ;
        self.set_hflags(others | if on { hflags::INHIBIT_IRQ } else { 0 });
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

    /// Sets all of EFLAGS, the lazy arithmetic flags and DF included. Call it only while the engine does not run: on
    /// entry, the engine derives its lazy flags from EFLAGS.
    pub fn set_eflags(self, value: u64) {
        let df: i32 = if value & 0x400 != 0 { -1 } else { 1 };
        // SAFETY: verified layout; these fields are what the engine itself leaves EFLAGS in
        // (`x86_cpu_exec_exit`).
        unsafe {
            self.base.add(off::CC_SRC).cast::<u64>().write(value & ARITH_FLAGS);
            self.base.add(off::CC_OP).cast::<u32>().write(off::CC_OP_EFLAGS);
            self.base.add(off::DF).cast::<i32>().write(df);
        }
        self.set_eflags_raw(value | 2);
    }

    /// What was compared when the flags were set: by the last instruction that sets them, if the engine still has its
    /// operands. That of a subtraction or comparison are its own, the result of any other is compared with 0. Valid at the
    /// beginning of a block.
    pub fn compared(self) -> Option<Operands> {
        // SAFETY: verified layout, as for `set_eflags`; the engine leaves all three in memory between blocks.
        let (dst, src, op) = unsafe {
            (
                self.base.add(off::CC_DST).cast::<u64>().read(),
                self.base.add(off::CC_SRC).cast::<u64>().read(),
                self.base.add(off::CC_OP).cast::<u32>().read(),
            )
        };
        let of = |first: u32| op.checked_sub(first).filter(|log| *log < 4).map(|log| 1u8 << log);
        let (size, other) = match of(off::CC_OP_SUB) {
            Some(size) => (size, src),
            None => {
                let plain = [off::CC_OP_LOGIC, off::CC_OP_ADD, off::CC_OP_INC, off::CC_OP_DEC];
                (plain.into_iter().find_map(of)?, 0)
            }
        };
        let mask = u64::MAX >> (64 - 8 * u32::from(size));
        Some(Operands { one: dst.wrapping_add(other) & mask, other: other & mask, size })
    }

    /// Direction flag.
    pub fn df(self) -> bool {
        // SAFETY: verified layout.
        unsafe { self.base.add(off::DF).cast::<i32>().read() < 0 }
    }

    /// Loads a segment register and recomputes the hidden flags, as `cpu_x86_load_seg_cache` does. CS of 64-bit code has no
    /// base, whatever its descriptor says.
    pub fn load_seg(self, seg: Seg, value: Segment) {
        use hflags as hf;
        self.set_seg_raw(seg, value);
        let mut h = self.hflags();
        if seg == Seg::Cs {
            if h & hf::LMA != 0 && value.flags & segment::LONG != 0 {
                self.set_seg_raw(seg, Segment { base: 0, ..value });
                h |= hf::CS32 | hf::SS32 | hf::CS64;
                h &= !hf::ADDSEG;
            } else {
                h &= !(hf::CS32 | hf::CS64);
                if value.flags & segment::BIG != 0 {
                    h |= hf::CS32;
                }
            }
        }
        if seg == Seg::Ss {
            h = (h & !hf::CPL) | ((value.flags >> 13) & 3);
        }
        let mut new = if self.seg(Seg::Ss).flags & segment::BIG != 0 { hf::SS32 } else { 0 };
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
}
