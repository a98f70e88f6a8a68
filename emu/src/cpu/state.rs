//! Entry states and register dumps.

use super::Cpu;
use crate::engine::{Seg, Segment};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The mode in which an image is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuMode {
    /// 32-bit protected mode, flat segments, no paging (Multiboot 1, plain ELF32).
    Flat32,
    /// 64-bit mode with identity tables at `cr3`.
    Long64 {
        /// Physical address of the PML4.
        cr3: u64,
    },
}

/// Registers at entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootState {
    /// Entry mode.
    pub mode: CpuMode,
    /// Entry point.
    pub ip: u64,
    /// EAX.
    pub ax: u64,
    /// EBX.
    pub bx: u64,
    /// ESP.
    pub sp: u64,
    /// ESI, RSI.
    pub si: u64,
}

/// State at a triple fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashReport {
    /// Vectors in the order in which they were raised.
    pub vectors: Vec<u8>,
    /// Offset in CS of the instruction.
    pub ip: u64,
    /// The register dump.
    pub registers: String,
}

const SEGS: [Seg; 6] = [Seg::Es, Seg::Cs, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs];
const NAMES: [&str; 16] =
    ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

impl Cpu {
    /// Puts the CPU into its entry state.
    pub(crate) fn boot(&mut self, boot: &BootState) {
        const CODE32: u32 = 0x00cf_9b00;
        const CODE64: u32 = 0x00af_9b00;
        const DATA: u32 = 0x00cf_9300;
        let env = *self.env;
        for i in 0..16 {
            env.set_gpr(i, 0);
        }
        env.set_hflags(0);
        env.set_efer(0);
        [0, 2, 3, 4].iter().for_each(|&i| env.set_cr_raw(i, 0));
        let code = match boot.mode {
            CpuMode::Flat32 => {
                self.set_cr(0, 0x11);
                CODE32
            }
            CpuMode::Long64 { cr3 } => {
                self.set_cr(3, cr3);
                self.set_cr(4, 0x20);
                env.set_efer(0x100 | 0x800);
                self.set_cr(0, 0x8001_0011);
                CODE64
            }
        };
        env.load_seg(Seg::Cs, Segment::new(0x08, 0, 0xffff_ffff, code));
        for seg in [Seg::Ss, Seg::Ds, Seg::Es, Seg::Fs, Seg::Gs] {
            env.load_seg(seg, Segment::new(0x10, 0, 0xffff_ffff, DATA));
        }
        env.set_gdt(Segment::new(0, 0, 0, 0));
        env.set_idt(Segment::new(0, 0, 0, 0));
        env.set_tr(Segment::new(0, 0, 0xffff, 0x8b00));
        env.set_eflags(2);
        env.set_eip(boot.ip);
        env.set_gpr(0, boot.ax);
        env.set_gpr(3, boot.bx);
        env.set_gpr(4, boot.sp);
        env.set_gpr(6, boot.si);
        env.set_fpuc(0x37f);
        env.set_mxcsr(0x1f80);
        env.set_fpus(0);
        env.set_pat(0x0007_0406_0007_0406);
        self.tlb.flush_all();
        self.engine.flush_tlb();
    }

    /// Selects the segments of Linux's boot protocol, which are flat: code at 10h of the GDT at `base`, data at 18h.
    pub(crate) fn boot_with_gdt(&mut self, base: u64, limit: u32) {
        let env = *self.env;
        for seg in SEGS {
            let selector = if seg == Seg::Cs { 0x10 } else { 0x18 };
            let flat = env.seg(seg);
            env.load_seg(seg, Segment::new(selector, flat.base, flat.limit, flat.flags));
        }
        env.set_gdt(Segment::new(0, base, limit, 0));
    }

    /// Writes a control register with the engine's side effects.
    fn set_cr(&mut self, index: i32, value: u64) {
        use unicorn_engine_sys::RegisterX86 as R;
        let id = match index {
            0 => R::CR0,
            3 => R::CR3,
            _ => R::CR4,
        };
        // Writing a control register that the engine knows cannot fail.
        let _ = self.engine.reg_write(id as i32, value);
    }

    /// A readable dump of the registers, one group a line.
    pub fn dump_registers(&self) -> String {
        let e = *self.env;
        let mut s = String::new();
        let wide = e.long_mode();
        for (i, name) in NAMES.iter().enumerate().take(if wide { 16 } else { 8 }) {
            let end = if i % 4 == 3 { '\n' } else { ' ' };
            let _ = if wide {
                write!(s, "{:>4}={:016x}{end}", name_of(i, name, 'r'), e.gpr(i))
            } else {
                write!(s, "{:>4}={:08x}{end}", name_of(i, name, 'e'), e.gpr(i))
            };
        }
        let _ = writeln!(s, "  ip={:08x} flags={:08x} cpl={}", e.eip(), self.eflags(), e.cpl());
        for seg in SEGS {
            let v = e.seg(seg);
            let _ = writeln!(
                s,
                "  {seg:?}={:04x} base={:08x} limit={:08x} flags={:08x}",
                v.selector, v.base, v.limit, v.flags
            );
        }
        let _ = writeln!(
            s,
            " cr0={:08x} cr2={:08x} cr3={:08x} cr4={:08x} efer={:x}",
            e.cr(0),
            e.cr(2),
            e.cr(3),
            e.cr(4),
            e.efer()
        );
        let (gdt, idt, tr) = (e.gdt(), e.idt(), e.tr());
        let _ = writeln!(
            s,
            " gdt={:08x}/{:04x} idt={:08x}/{:04x} tr={:04x} base={:08x}",
            gdt.base, gdt.limit, idt.base, idt.limit, tr.selector, tr.base
        );
        s
    }
}

fn name_of(index: usize, name: &str, prefix: char) -> String {
    if index < 8 { format!("{prefix}{name}") } else { name.to_string() }
}
