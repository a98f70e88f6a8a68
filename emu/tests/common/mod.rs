//! A bare guest for tests: GDT, IDT, TSS, page tables and stacks at fixed places, a stub that enters ring 0 or
//! ring 3 by IRET, and handlers that push EFLAGS and halt, so that a test reads the frame where the CPU left it.
//!
//! All of it lies identity-mapped in the first 2 MiB, every page user-accessible unless a test says otherwise.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use iced_x86::CpuidFeature;
use iced_x86::code_asm::CodeAssembler;
use trapline_emu::platform::PlatformConfig;
use trapline_emu::{
    BootState, Core, CpuMode, CpuModel, Digest, Machine, MachineConfig, Stop, Trap, TrapInterposer, Verdict,
};

pub const RAM: u64 = 2 << 20;
pub const GDT: u64 = 0x1000;
pub const IDT: u64 = 0x2000;
pub const TSS: u64 = 0x3000;
pub const STUB: u64 = 0x4000;
/// Handler of vector v: `pushf; cli; hlt` at `HANDLERS + 16 * v`.
pub const HANDLERS: u64 = 0x5000;
pub const TABLES: u64 = 0x8000;
/// Free pages for further page tables.
pub const MORE_TABLES: u64 = 0xc000;
/// Stack pointer at entry in ring 0.
pub const STACK0: u64 = 0x1_1000;
/// Stack pointer that the TSS holds for ring 0.
pub const RSP0: u64 = 0x1_3000;
/// IST1.
pub const IST1: u64 = 0x1_5000;
pub const STACK3: u64 = 0x1_7000;
pub const CODE: u64 = 0x2_0000;
pub const DATA: u64 = 0x3_0000;

pub const CS0: u16 = 0x08;
pub const DS0: u16 = 0x10;
pub const USER_CS32: u16 = 0x1b;
pub const USER_DS: u16 = 0x23;
pub const USER_CS64: u16 = 0x2b;
pub const TSS_SEL: u16 = 0x30;
/// Not present: data of ring 0, code of ring 0, data of ring 3.
pub const NP_DATA: u16 = 0x40;
pub const NP_CODE: u16 = 0x48;
pub const NP_USER: u16 = 0x50;
pub const CODE32: u16 = 0x58;
pub const CODE16: u16 = 0x68;
pub const DATA16: u16 = 0x70;

/// EFLAGS bits.
pub const TF: u64 = 0x100;
pub const IF: u64 = 0x200;
pub const NT: u64 = 0x4000;
pub const RF: u64 = 0x1_0000;

/// Page-table entry bits.
pub const P: u64 = 1;
pub const RW: u64 = 2;
pub const US: u64 = 4;
pub const A: u64 = 0x20;
pub const D: u64 = 0x40;
pub const PS: u64 = 0x80;
pub const G: u64 = 0x100;
pub const NX: u64 = 1 << 63;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    Off,
    Two,
    Pae,
    Four,
}

/// The guest to boot.
#[derive(Clone)]
pub struct Setup {
    pub tables: Tables,
    pub model: CpuModel,
    pub ring: u8,
    pub flags: u64,
    pub cr0: u64,
    pub cr4: u64,
    pub efer: u64,
    /// DR0 and DR7.
    pub dr: Option<(u64, u64)>,
    pub entry: u64,
    /// Memory to fill before boot.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// Gates: vector, target, attribute word (0x8e00: interrupt gate, ring 0), selector.
    pub gates: Vec<(u8, u64, u16, u16)>,
    pub idt_limit: Option<u16>,
    pub tss_limit: u32,
    /// Whether LTR has been executed.
    pub ltr: bool,
    /// The devices; none: the minimal platform.
    pub platform: Option<PlatformConfig>,
}

impl Setup {
    pub fn bits32() -> Self {
        Setup {
            tables: Tables::Two,
            model: CpuModel::Ia32,
            ring: 0,
            flags: 2,
            cr0: 0x8001_0031,
            cr4: 0x90,
            efer: 0,
            dr: None,
            entry: CODE,
            memory: Vec::new(),
            gates: Vec::new(),
            idt_limit: None,
            tss_limit: 0x67,
            ltr: true,
            platform: None,
        }
    }

    pub fn flat32() -> Self {
        Setup { tables: Tables::Off, cr0: 0x31, ..Self::bits32() }
    }

    pub fn pae() -> Self {
        Setup { tables: Tables::Pae, model: CpuModel::X86_64, cr4: 0xa0, efer: 0x800, ..Self::bits32() }
    }

    pub fn bits64() -> Self {
        Setup { tables: Tables::Four, model: CpuModel::X86_64, cr4: 0x2a0, efer: 0x901, ..Self::bits32() }
    }

    pub fn bits(n: u32) -> Self {
        if n == 64 { Self::bits64() } else { Self::bits32() }
    }

    pub fn ring(mut self, ring: u8) -> Self {
        self.ring = ring;
        self
    }

    pub fn flags(mut self, flags: u64) -> Self {
        self.flags = flags | 2;
        self
    }

    pub fn code(self, bytes: &[u8]) -> Self {
        self.at(CODE, bytes)
    }

    pub fn at(mut self, address: u64, bytes: &[u8]) -> Self {
        self.memory.push((address, bytes.to_vec()));
        self
    }

    /// Code at `CODE`, by the assembler.
    pub fn asm(self, write: impl FnOnce(&mut CodeAssembler)) -> Self {
        self.asm_at(CODE, write)
    }

    pub fn asm_at(self, address: u64, write: impl FnOnce(&mut CodeAssembler)) -> Self {
        let bytes = assemble(if self.wide() { 64 } else { 32 }, address, write);
        self.at(address, &bytes)
    }

    /// Addresses of the instructions at `CODE`.
    pub fn starts(&self) -> Vec<u64> {
        let code = &self.memory.iter().find(|(at, _)| *at == CODE).unwrap().1;
        let bits = if self.wide() { 64 } else { 32 };
        let all = iced_x86::Decoder::with_ip(bits, code, CODE, iced_x86::DecoderOptions::NONE);
        all.into_iter().map(|i| i.ip()).collect()
    }

    /// On a PC.
    pub fn pc(mut self) -> Self {
        self.platform = Some(PlatformConfig::pc(RAM));
        self
    }

    pub fn gate(mut self, vector: u8, target: u64, attributes: u16) -> Self {
        self.gates.push((vector, target, attributes, CS0));
        self
    }

    /// Sets the entry of the lowest-level table for `va`.
    pub fn pte(self, va: u64, value: u64) -> Self {
        let at = self.pte_at(va);
        let n = self.entry_bytes();
        self.at(at, &value.to_le_bytes()[..n])
    }

    pub fn pte_at(&self, va: u64) -> u64 {
        let n = self.entry_bytes() as u64;
        let table = match self.tables {
            Tables::Off => panic!("no paging"),
            Tables::Two => 1,
            Tables::Pae => 2,
            Tables::Four => 3,
        };
        TABLES + table * 0x1000 + (va >> 12) * n
    }

    pub fn entry_bytes(&self) -> usize {
        if self.tables == Tables::Two { 4 } else { 8 }
    }

    pub fn wide(&self) -> bool {
        self.tables == Tables::Four
    }

    pub fn boot(&self) -> Guest {
        let platform = self.platform.clone().unwrap_or_else(|| PlatformConfig::minimal(RAM));
        let config = MachineConfig { mem_size: RAM, model: self.model };
        let mut m = Machine::with_platform(&config, &platform).unwrap();
        self.write_tables(&mut m);
        self.write_descriptors(&mut m);
        for (address, bytes) in &self.memory {
            m.write_physical(*address, bytes);
        }
        let stub = self.stub();
        let (bits, mode) =
            if self.wide() { (64, CpuMode::Long64 { cr3: TABLES }) } else { (32, CpuMode::Flat32) };
        let bytes = assemble(bits, STUB, |a| stub(a));
        let count = instructions(bits, &bytes);
        m.write_physical(STUB, &bytes);
        m.boot(&BootState { mode, ip: STUB, ax: 0, bx: 0, sp: STACK0, si: 0 });
        assert_eq!(m.run(None, count), Stop::Limit, "{}", m.core().dump_registers());
        let e = m.core().env();
        assert_eq!((e.eip(), e.cpl()), (self.entry, self.ring), "{}", m.core().dump_registers());
        (0..8).filter(|&i| i != 4).for_each(|i| e.set_gpr(i, 0));
        Guest { m, wide: self.wide(), base: count }
    }

    fn write_tables(&self, m: &mut Machine) {
        let next = |n: u64| TABLES + n * 0x1000;
        let (links, last): (&[(u64, u64)], u64) = match self.tables {
            Tables::Off => return,
            Tables::Two => (&[(0, 1)], 1),
            Tables::Pae => (&[(0, 1), (1, 2)], 2),
            Tables::Four => (&[(0, 1), (1, 2), (2, 3)], 3),
        };
        let n = self.entry_bytes();
        for &(from, to) in links {
            let pdpte = self.tables == Tables::Pae && from == 0;
            let value = next(to) | if pdpte { P } else { P | RW | US };
            m.write_physical(next(from), &value.to_le_bytes()[..n]);
        }
        for page in 0..RAM / 0x1000 {
            let value = page << 12 | P | RW | US;
            m.write_physical(next(last) + page * n as u64, &value.to_le_bytes()[..n]);
        }
    }

    fn write_descriptors(&self, m: &mut Machine) {
        let code0: u64 = if self.wide() { 0x00af_9b00_0000_ffff } else { 0x00cf_9b00_0000_ffff };
        let user64: u64 = if self.wide() { 0x00af_fb00_0000_ffff } else { 0x00cf_fb00_0000_ffff };
        let tss = u64::from(self.tss_limit) | TSS << 16 | 0x0000_8900_0000_0000;
        let gdt: [u64; 16] = [
            0,
            code0,
            0x00cf_9300_0000_ffff,
            0x00cf_fb00_0000_ffff,
            0x00cf_f300_0000_ffff,
            user64,
            tss,
            0,
            0x00cf_1300_0000_ffff,
            0x00cf_1b00_0000_ffff,
            0x00cf_7300_0000_ffff,
            0x00cf_9b00_0000_ffff,
            0x00cf_9100_0000_ffff,
            0x000f_9b00_0000_ffff,
            0x000f_9300_0000_ffff,
            0x00cf_9f00_0000_ffff,
        ];
        for (n, d) in gdt.iter().enumerate() {
            m.write_physical(GDT + n as u64 * 8, &d.to_le_bytes());
        }
        let size = if self.wide() { 16 } else { 8 };
        for vector in 0..=255u64 {
            let dpl3 = matches!(vector, 3 | 4 | 0x40 | 0x42..=0x48 | 0x80);
            let kind = if vector == 0x42 { 0x8f00 } else { 0x8e00 };
            let handler = HANDLERS + 16 * vector;
            self.write_gate(m, vector, handler, kind | if dpl3 { 0x6000 } else { 0 }, CS0);
            m.write_physical(handler, &[0x9c, 0xfa, 0xf4]);
        }
        let h = |v: u64| HANDLERS + 16 * v;
        self.write_gate(m, 0x43, h(0x43), 0x6e00, CS0);
        self.write_gate(m, 0x44, h(0x44), 0xec00, CS0);
        self.write_gate(m, 0x45, h(0x45), 0xee00, 0);
        self.write_gate(m, 0x46, h(0x46), 0xee00, NP_CODE);
        self.write_gate(m, 0x47, h(0x47), 0xee00, DS0);
        self.write_gate(m, 0x48, h(0x48), 0xee00, 0x1000);
        for &(vector, target, attributes, selector) in &self.gates {
            self.write_gate(m, vector.into(), target, attributes, selector);
        }
        self.write_pointer(m, GDT, 0x7f, STUB + 0xf00);
        self.write_pointer(m, IDT, self.idt_limit.unwrap_or(0x90 * size - 1), STUB + 0xf10);
        if self.wide() {
            m.write_physical(TSS + 4, &RSP0.to_le_bytes());
            m.write_physical(TSS + 0x24, &IST1.to_le_bytes());
        } else {
            m.write_physical(TSS + 4, &(RSP0 as u32).to_le_bytes());
            m.write_physical(TSS + 8, &u32::from(DS0).to_le_bytes());
        }
        // The I/O map begins right after the TSS; `tss_limit` decides how much of it there is.
        m.write_physical(TSS + 0x66, &0x68u16.to_le_bytes());
    }

    fn write_gate(&self, m: &mut Machine, vector: u64, target: u64, attributes: u16, selector: u16) {
        let gate = (target & 0xffff)
            | u64::from(selector) << 16
            | u64::from(attributes) << 32
            | (target & 0xffff_0000) << 32;
        if self.wide() {
            m.write_physical(IDT + vector * 16, &gate.to_le_bytes());
            m.write_physical(IDT + vector * 16 + 8, &(target >> 32).to_le_bytes());
        } else {
            m.write_physical(IDT + vector * 8, &gate.to_le_bytes());
        }
    }

    fn write_pointer(&self, m: &mut Machine, base: u64, limit: u16, at: u64) {
        m.write_physical(at, &limit.to_le_bytes());
        m.write_physical(at + 2, &base.to_le_bytes());
    }

    /// Loads everything and enters `entry`.
    fn stub(&self) -> impl Fn(&mut CodeAssembler) + use<'_> {
        use iced_x86::code_asm::*;
        move |a| {
            let wide = self.wide();
            a.lgdt(if wide { ptr(STUB + 0xf00) } else { fword_ptr(STUB + 0xf00) }).unwrap();
            a.lidt(if wide { ptr(STUB + 0xf10) } else { fword_ptr(STUB + 0xf10) }).unwrap();
            a.mov(eax, u32::from(DS0)).unwrap();
            a.mov(ds, eax).unwrap();
            a.mov(es, eax).unwrap();
            a.mov(ss, eax).unwrap();
            if self.ltr {
                a.mov(eax, u32::from(TSS_SEL)).unwrap();
                a.ltr(ax).unwrap();
            }
            if self.model == CpuModel::X86_64 {
                a.mov(ecx, 0xc000_0080u32).unwrap();
                a.mov(eax, self.efer as u32).unwrap();
                a.xor(edx, edx).unwrap();
                a.wrmsr().unwrap();
            }
            if wide {
                a.mov(eax, self.cr4 as u32).unwrap();
                a.mov(cr4, rax).unwrap();
                a.mov(eax, self.cr0 as u32).unwrap();
                a.mov(cr0, rax).unwrap();
                if let Some((dr0_value, dr7_value)) = self.dr {
                    a.mov(rax, dr0_value).unwrap();
                    a.mov(dr0, rax).unwrap();
                    a.mov(rax, dr7_value).unwrap();
                    a.mov(dr7, rax).unwrap();
                }
            } else {
                a.mov(eax, TABLES as u32).unwrap();
                a.mov(cr3, eax).unwrap();
                a.mov(eax, self.cr4 as u32).unwrap();
                a.mov(cr4, eax).unwrap();
                a.mov(eax, self.cr0 as u32).unwrap();
                a.mov(cr0, eax).unwrap();
                if let Some((dr0_value, dr7_value)) = self.dr {
                    a.mov(eax, dr0_value as u32).unwrap();
                    a.mov(dr0, eax).unwrap();
                    a.mov(eax, dr7_value as u32).unwrap();
                    a.mov(dr7, eax).unwrap();
                }
            }
            let (entry_cs, entry_ss, entry_sp) = match (self.ring, wide) {
                (0, _) => (CS0, DS0, STACK0),
                (_, false) => (USER_CS32, USER_DS, STACK3),
                (_, true) => (USER_CS64, USER_DS, STACK3),
            };
            if self.ring == 3 {
                a.mov(eax, u32::from(USER_DS)).unwrap();
                a.mov(ds, eax).unwrap();
                a.mov(es, eax).unwrap();
            }
            if wide || self.ring == 3 {
                a.push(i32::from(entry_ss)).unwrap();
                a.push(entry_sp as i32).unwrap();
            }
            a.push(self.flags as i32).unwrap();
            a.push(i32::from(entry_cs)).unwrap();
            a.push(self.entry as i32).unwrap();
            if wide { a.iretq().unwrap() } else { a.iretd().unwrap() }
        }
    }
}

pub fn assemble(bits: u32, address: u64, write: impl FnOnce(&mut CodeAssembler)) -> Vec<u8> {
    let mut a = CodeAssembler::new(bits).unwrap();
    write(&mut a);
    a.assemble(address).unwrap()
}

pub fn instructions(bits: u32, bytes: &[u8]) -> u64 {
    iced_x86::Decoder::new(bits, bytes, iced_x86::DecoderOptions::NONE).iter().count() as u64
}

/// A booted guest, at its entry.
pub struct Guest {
    pub m: Machine,
    pub wide: bool,
    /// Instructions retired before the entry.
    pub base: u64,
}

/// The frame and registers that a handler stub found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caught {
    pub vector: u8,
    pub error: Option<u64>,
    pub ip: u64,
    pub cs: u64,
    pub flags: u64,
    /// ESP and SS of the frame, if it has them.
    pub stack: Option<(u64, u64)>,
    pub handler_flags: u64,
    /// Stack pointer before the frame was pushed, and SS, in the handler.
    pub top: u64,
    pub ss: u32,
    pub cr2: u64,
}

impl Guest {
    pub fn core(&self) -> &Core {
        self.m.core()
    }

    pub fn gpr(&self, index: usize) -> u64 {
        self.core().env().gpr(index)
    }

    pub fn set(&mut self, index: usize, value: u64) -> &mut Self {
        self.core().env().set_gpr(index, value);
        self
    }

    pub fn ip(&self) -> u64 {
        self.core().env().eip()
    }

    /// Instructions retired since the entry.
    pub fn count(&self) -> u64 {
        self.m.icount() - self.base
    }

    pub fn mem(&self, at: u64, size: usize) -> u64 {
        self.core().ram().read_int(at, size)
    }

    pub fn run(&mut self) -> Stop {
        self.m.run(None, self.base + 10_000_000)
    }

    /// Runs until `n` instructions after the entry.
    pub fn run_to(&mut self, n: u64) -> Stop {
        self.m.run(None, self.base + n)
    }

    /// Runs into a handler stub.
    pub fn caught(&mut self) -> Caught {
        let stop = self.run();
        assert_eq!(stop, Stop::Halted, "{}", self.core().dump_registers());
        self.frame()
    }

    /// The frame that a handler stub found, after it has halted.
    pub fn frame(&self) -> Caught {
        let e = self.core().env();
        let at = e.eip().wrapping_sub(HANDLERS + 3);
        assert!(
            at.is_multiple_of(16) && at < 16 * 256,
            "halted outside the handlers\n{}",
            self.core().dump_registers()
        );
        let vector = (at / 16) as u8;
        let w = if self.wide { 8 } else { 4 };
        let sp = e.gpr(4);
        let word = |n: u64| self.mem(sp + n * w, w as usize);
        let has_error = matches!(vector, 8 | 10..=14 | 17);
        let first = 1 + u64::from(has_error);
        let cs = word(first + 1);
        let full = self.wide || cs & 3 != 0;
        Caught {
            vector,
            error: has_error.then(|| word(1)),
            ip: word(first),
            cs,
            flags: word(first + 2),
            stack: full.then(|| (word(first + 3), word(first + 4))),
            handler_flags: word(0),
            top: sp + (first + if full { 5 } else { 3 }) * w,
            ss: e.seg(trapline_emu::Seg::Ss).selector,
            cr2: e.cr(2),
        }
    }
}

/// Runs a guest with an interposer to its HLT.
pub fn run(g: &mut Guest, i: &mut dyn TrapInterposer) -> Digest {
    let stop = g.m.run(Some(i), g.base + 1_000_000);
    assert_eq!(stop, Stop::Halted, "{}", g.core().dump_registers());
    g.m.digest()
}

/// Digest of the same guest without patches.
pub fn unarmed(s: &Setup) -> Digest {
    let mut g = s.boot();
    assert_eq!(g.run(), Stop::Halted);
    g.m.digest()
}

/// Emulates one-byte NOPs, or answers whatever `verdict` says; counts what it sees.
pub struct Nops {
    pub verdict: Verdict,
    pub hits: u64,
    pub rewritten: Vec<u64>,
    pub faults: u64,
}

impl Nops {
    pub fn new() -> Self {
        Nops { verdict: Verdict::Resumed, hits: 0, rewritten: Vec::new(), faults: 0 }
    }
}

impl TrapInterposer for Nops {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        self.hits += 1;
        if matches!(self.verdict, Verdict::Resumed) {
            core.env().set_eip(trap.ip + 1);
        }
        self.verdict
    }
    fn faulted(&mut self, _: &mut Core) {
        self.faults += 1;
    }
    fn page_rewritten(&mut self, _: &mut Core, paddr: u64) {
        self.rewritten.push(paddr);
    }
}

/// Whether a model has a feature, by the names of iced's tables (`docs/cpu-model.md`).
pub fn model_has(bits: u32, feature: CpuidFeature) -> bool {
    use CpuidFeature as F;
    let both = matches!(
        feature,
        F::INTEL8086
            | F::INTEL186
            | F::INTEL286
            | F::INTEL386
            | F::INTEL486
            | F::X64
            | F::CMOV
            | F::CX8
            | F::FPU
            | F::FPU287
            | F::FPU387
            | F::FXSR
            | F::MMX
            | F::SSE
            | F::MULTIBYTENOP
            | F::CPUID
            | F::PAUSE
            | F::TSC
            | F::MSR
            | F::SEP
            | F::SYSCALL
            | F::RDPMC
    );
    let wide = matches!(
        feature,
        F::SSE2
            | F::SSE3
            | F::SSSE3
            | F::SSE4_1
            | F::SSE4_2
            | F::POPCNT
            | F::CMPXCHG16B
            | F::CLFSH
            | F::RDTSCP
    );
    both || bits == 64 && wide
}

/// An interposer that answers traps by a function, and does nothing else.
pub struct Answers<F>(pub F);

impl<F: FnMut(&mut Core, &Trap) -> Verdict> TrapInterposer for Answers<F> {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        (self.0)(core, trap)
    }
}

/// Xorshift, seeded: the same numbers every time.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
