//! The state of the CPU as named fields: everything that the guest can observe, and nothing internal to the engine.
//!
//! The engine's derived state (hidden flags, lazy flags, rounding modes) is recomputed when a state is loaded. The
//! architectural TLB, which the guest can observe too, is saved separately.

use crate::cpu::flags::RF;
use crate::engine::{Env, Seg, Segment, float_flags, hflags};
use serde::{Deserialize, Serialize};
use std::hash::Hasher;

/// The order of segment registers: their encoding.
const SEGS: [Seg; 6] = [Seg::Es, Seg::Cs, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs];

/// A segment register with its hidden part, or a descriptor table register.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentState {
    /// Selector; 0 for GDTR and IDTR.
    pub selector: u32,
    /// Linear base.
    pub base: u64,
    /// Limit in bytes.
    pub limit: u32,
    /// Second word of the descriptor, its attributes in bits 8 to 23; 0 for GDTR and IDTR.
    pub attributes: u32,
}

/// Model-specific registers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MsrState {
    /// IA32_EFER.
    pub efer: u64,
    /// IA32_SYSENTER_CS.
    pub sysenter_cs: u32,
    /// IA32_SYSENTER_ESP.
    pub sysenter_esp: u64,
    /// IA32_SYSENTER_EIP.
    pub sysenter_eip: u64,
    /// IA32_STAR.
    pub star: u64,
    /// IA32_LSTAR.
    pub lstar: u64,
    /// IA32_CSTAR.
    pub cstar: u64,
    /// IA32_FMASK.
    pub fmask: u64,
    /// IA32_KERNEL_GS_BASE.
    pub kernel_gs_base: u64,
    /// IA32_TSC_AUX.
    pub tsc_aux: u64,
    /// IA32_PAT.
    pub pat: u64,
    /// What the guest has added to the time stamp counter, which otherwise is virtual time in nanoseconds.
    pub tsc_offset: u64,
}

/// The x87 with its pointers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct X87State {
    /// Control word.
    pub control: u16,
    /// Status word without TOP.
    pub status: u16,
    /// TOP, 0 to 7.
    pub top: u8,
    /// Whether each physical register is empty: 1 or 0.
    pub tags: [u8; 8],
    /// The physical registers, 80 bits each.
    pub registers: [[u8; 10]; 8],
    /// Last opcode.
    pub opcode: u16,
    /// Offset and selector of the last instruction.
    pub instruction: (u64, u16),
    /// Offset and selector of the last operand.
    pub operand: (u64, u16),
}

/// The state of the CPU between two instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuState {
    /// General registers in encoding order.
    pub gpr: [u64; 16],
    /// Offset in CS of the next instruction.
    pub ip: u64,
    /// EFLAGS, all of it.
    pub eflags: u64,
    /// Current privilege level.
    pub cpl: u8,
    /// ES, CS, SS, DS, FS, GS.
    pub segments: [SegmentState; 6],
    /// LDTR.
    pub ldt: SegmentState,
    /// TR.
    pub tr: SegmentState,
    /// GDTR.
    pub gdt: SegmentState,
    /// IDTR.
    pub idt: SegmentState,
    /// CR0, CR2, CR3, CR4.
    pub control: [u64; 4],
    /// DR0 to DR7.
    pub debug: [u64; 8],
    /// Model-specific registers.
    pub msr: MsrState,
    /// The x87.
    pub x87: X87State,
    /// MXCSR.
    pub mxcsr: u32,
    /// XMM0 to XMM15.
    pub xmm: [u128; 16],
    /// HLT has been executed, and nothing has woken the CPU.
    pub halted: bool,
    /// An NMI is pending.
    pub nmi_pending: bool,
    /// An NMI was taken, and no IRET has been executed since.
    pub nmi_blocked: bool,
    /// The next instruction follows STI, MOV to SS or POP to SS: no interrupt comes before it.
    pub interrupt_shadow: bool,
}

/// The part of the CPU's state that the machine keeps, not the engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub tsc_offset: u64,
    pub halted: bool,
    pub nmi_pending: bool,
    pub nmi_blocked: bool,
}

fn saved(s: Segment) -> SegmentState {
    SegmentState { selector: s.selector, base: s.base, limit: s.limit, attributes: s.flags }
}

fn loaded(s: SegmentState) -> Segment {
    Segment::new(s.selector as u16, s.base, s.limit, s.attributes)
}

impl CpuState {
    /// The state that the engine has between two runs; `eflags` with the lazy flags in it.
    pub(crate) fn read(e: Env<'_>, eflags: u64, kept: Kept) -> Self {
        CpuState {
            gpr: std::array::from_fn(|i| e.gpr(i)),
            ip: e.eip(),
            eflags,
            cpl: e.cpl(),
            segments: SEGS.map(|s| saved(e.seg(s))),
            ldt: saved(e.ldt()),
            tr: saved(e.tr()),
            gdt: saved(e.gdt()),
            idt: saved(e.idt()),
            control: [0, 2, 3, 4].map(|i| e.cr(i)),
            debug: std::array::from_fn(|i| e.dr(i)),
            msr: MsrState {
                efer: e.efer(),
                sysenter_cs: e.sysenter_cs(),
                sysenter_esp: e.sysenter_esp(),
                sysenter_eip: e.sysenter_eip(),
                star: e.star(),
                lstar: e.lstar(),
                cstar: e.cstar(),
                fmask: e.fmask(),
                kernel_gs_base: e.kernel_gs_base(),
                tsc_aux: e.tsc_aux(),
                pat: e.pat(),
                tsc_offset: kept.tsc_offset,
            },
            x87: X87State {
                control: e.fpuc(),
                status: e.fpus(),
                top: (e.fpstt() & 7) as u8,
                tags: e.fptags(),
                registers: std::array::from_fn(|i| e.fpreg(i)),
                opcode: e.fpop(),
                instruction: (e.fpip(), e.fpcs()),
                operand: (e.fpdp(), e.fpds()),
            },
            mxcsr: e.mxcsr(),
            xmm: std::array::from_fn(|i| e.xmm(i)),
            halted: kept.halted,
            nmi_pending: kept.nmi_pending,
            nmi_blocked: kept.nmi_blocked,
            interrupt_shadow: e.hflags() & hflags::INHIBIT_IRQ != 0,
        }
    }

    /// Loads the state into an engine that does not run, and whose CPU state is `e`. Its TLB is not touched.
    pub(crate) fn write(&self, e: Env<'_>) {
        (0..16).for_each(|i| e.set_gpr(i, self.gpr[i]));
        SEGS.iter().zip(self.segments).for_each(|(seg, s)| e.set_seg_raw(*seg, loaded(s)));
        e.set_ldt(loaded(self.ldt));
        e.set_tr(loaded(self.tr));
        e.set_gdt(loaded(self.gdt));
        e.set_idt(loaded(self.idt));
        [0, 2, 3, 4].iter().zip(self.control).for_each(|(i, value)| e.set_cr_raw(*i, value));
        (0..8).for_each(|i| e.set_dr_raw(i, self.debug[i]));
        let m = &self.msr;
        e.set_efer(m.efer);
        e.set_sysenter_cs(m.sysenter_cs);
        e.set_sysenter_esp(m.sysenter_esp);
        e.set_sysenter_eip(m.sysenter_eip);
        e.set_star(m.star);
        e.set_lstar(m.lstar);
        e.set_cstar(m.cstar);
        e.set_fmask(m.fmask);
        e.set_kernel_gs_base(m.kernel_gs_base);
        e.set_tsc_aux(m.tsc_aux);
        e.set_pat(m.pat);
        self.write_fpu(e);
        e.set_hflags(self.hidden_flags());
        e.set_eflags(self.eflags);
        e.set_eip(self.ip);
    }

    pub(crate) fn write_fpu(&self, e: Env<'_>) {
        let x = &self.x87;
        e.set_fpuc(x.control);
        e.set_mxcsr(self.mxcsr);
        e.set_fpus(x.status);
        e.set_fpstt(u32::from(x.top));
        e.set_fptags(x.tags);
        (0..8).for_each(|i| e.set_fpreg(i, x.registers[i]));
        e.set_fpop(x.opcode);
        e.set_fpip(x.instruction.0);
        e.set_fpcs(x.instruction.1);
        e.set_fpdp(x.operand.0);
        e.set_fpds(x.operand.1);
        (0..16).for_each(|i| e.set_xmm(i, self.xmm[i]));
    }

    /// The engine's hidden flags (`HF_*`), computed from the registers as the engine does.
    pub(crate) fn hidden_flags(&self) -> u32 {
        use hflags as hf;
        const DESC_L: u32 = 1 << 21;
        const DESC_B: u32 = 1 << 22;
        let [es, cs, ss, ds, ..] = self.segments;
        let cr0 = self.control[0] as u32;
        let long = self.msr.efer & 0x400 != 0;
        let code64 = long && cs.attributes & DESC_L != 0;
        let code32 = code64 || cs.attributes & DESC_B != 0;
        let based = ds.base | es.base | ss.base != 0;
        let protected = cr0 & 1 != 0;
        let flags = [
            (self.interrupt_shadow, hf::INHIBIT_IRQ),
            (code32, hf::CS32),
            (code64 || ss.attributes & DESC_B != 0, hf::SS32),
            (!code64 && (!protected || !code32 || based), hf::ADDSEG),
            (protected, hf::PE),
            (cr0 & 2 != 0, hf::MP),
            (cr0 & 4 != 0, hf::EM),
            (cr0 & 8 != 0, hf::TS),
            (long, hf::LMA),
            (code64, hf::CS64),
            (self.control[3] & 0x200 != 0, hf::OSFXSR),
        ];
        let floats = float_flags(self.x87.control, self.mxcsr);
        let set = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        set | floats | u32::from(self.cpl & hf::CPL as u8)
    }

    /// Feeds the state to the digest's hasher; `time` is the instruction count and the time that HLT has skipped.
    ///
    /// RF is left out: it lives for one instruction only, and the engine clears it lazily. The selectors of the x87's
    /// pointers are left out too.
    pub(crate) fn hash(&self, time: [u64; 2], h: &mut impl Hasher) {
        self.gpr.iter().for_each(|&r| h.write_u64(r));
        h.write_u64(self.ip);
        h.write_u64(self.eflags & !RF);
        h.write_u8(self.cpl);
        for s in self.segments.iter().chain([&self.ldt, &self.tr, &self.gdt, &self.idt]) {
            h.write_u32(s.selector);
            h.write_u64(s.base);
            h.write_u32(s.limit);
            h.write_u32(s.attributes);
        }
        self.control.iter().chain(&self.debug).for_each(|&r| h.write_u64(r));
        let m = &self.msr;
        for msr in [
            m.efer,
            m.sysenter_cs.into(),
            m.sysenter_esp,
            m.sysenter_eip,
            m.star,
            m.lstar,
            m.cstar,
            m.fmask,
            m.kernel_gs_base,
            m.tsc_aux,
            m.pat,
            m.tsc_offset,
        ] {
            h.write_u64(msr);
        }
        let x = &self.x87;
        h.write_u16(x.control);
        h.write_u16(x.status);
        h.write_u32(x.top.into());
        h.write(&x.tags);
        h.write_u16(x.opcode);
        h.write_u64(x.instruction.0);
        h.write_u64(x.operand.0);
        x.registers.iter().for_each(|r| h.write(r));
        h.write_u32(self.mxcsr);
        self.xmm.iter().for_each(|&r| h.write_u128(r));
        time.iter().for_each(|&t| h.write_u64(t));
        for flag in [self.halted, self.nmi_pending, self.nmi_blocked, self.interrupt_shadow] {
            h.write_u8(flag.into());
        }
    }
}
