//! Instructions that the machine executes itself, or lets the engine execute and then looks at.
//!
//! They need something that the engine cannot provide: the exact count of their own instruction (RDTSC, port I/O), a
//! permission check that it leaves out (IOPL, the I/O bitmap), entry points that it only reports (SYSCALL, SYSENTER),
//! or notice to the architectural TLB (MOV to CR, INVLPG, WRMSR) or to the watches (MOV to DR).

use super::Cpu;
use super::access::canonical;
use super::control::{CR0_PE, CR0_PG};
use super::cpuid::cpuid;
use super::fault::Fault;
use super::flags::{IF, RF, VM, ZF};
use super::outcome::{Accesses, Done, Then};
use crate::engine::{Model, Seg, Segment};
use crate::isa::decode::{self, Kind, LONGEST};
use crate::isa::mended::{floats, has_vector_prefix, mended};
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

/// FAST_STRING: the one feature of a Nehalem's IA32_MISC_ENABLE that this model has (SDM volume 4, table 2-2).
const MISC_ENABLE: u64 = 1;
const IA32_MISC_ENABLE: u32 = 0x1a0;
const APIC_BASE_MSR: u32 = 0x1b;
/// IA32_APIC_BASE where there is no local APIC: disabled, at its usual address, of the bootstrap processor.
const NO_APIC: u64 = 0xfee0_0100;
/// SF, ZF, AF, PF and CF, which LAHF and SAHF move.
const ARITHMETIC: u64 = 0xd5;
const EFER_SCE: u64 = 1;
const CR4_TSD: u64 = 4;

impl Cpu {
    /// Executes one sensitive instruction at EIP, or says that the engine must execute it.
    pub(crate) fn sensitive(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Done, Fault> {
        use Mnemonic as M;
        if has_vector_prefix(i) || self.lacks(i) {
            return Err(Fault::ud());
        }
        if let Some(what) = mended(i) {
            return self.mended(i, what, told);
        }
        if let Some(what) = floats(i) {
            return self.compute_exactly(i, what, told);
        }
        match i.mnemonic() {
            // IA32 lacks it.
            _ if decode::is_absent(i).is_some() => Ok(Done::ByEngine(Then::Nothing)),
            M::In | M::Out => self.port_instruction(i, told),
            M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd => self.port_string(i, told),
            M::Rdtsc | M::Rdtscp => self.rdtsc(i),
            M::Cpuid => {
                let r = cpuid(self.model, self.platform.apic_base(), self.env.gpr(0) as u32);
                for (index, value) in [(0, r[0]), (3, r[1]), (1, r[2]), (2, r[3])] {
                    self.env.set_gpr(index, value.into());
                }
                Ok(Done::Next)
            }
            M::Hlt => {
                self.privileged()?;
                self.halted = true;
                Ok(Done::Next)
            }
            M::Rdmsr => self.rdmsr(),
            M::Wrmsr => self.wrmsr(),
            M::Rdpmc => Err(Fault::gp(0)),
            M::Pause => {
                self.exchange_with_r8(i);
                Ok(Done::Next)
            }
            M::Int1 => Ok(Done::Int1),
            M::Syscall => self.syscall(i),
            M::Sysenter => self.sysenter(i),
            M::Invlpg => self.invlpg(i),
            M::Ltr => self.load_task_register(i),
            M::Ret => self.near_return(i, told),
            M::Mov if i.op0_register().is_dr() || i.op1_register().is_dr() => self.debug_move(i),
            M::Loope | M::Loopne => Ok(self.loop_on_flag(i)),
            M::Lahf | M::Sahf => Ok(self.move_flags(i)),
            _ if decode::is_set_in_memory(i) => self.set_in_memory(i, told),
            M::Call | M::Jmp => self.far_transfer(i, told),
            M::Iret | M::Iretd | M::Iretq => self.task_return(i),
            M::Neg => self.execute_or_engine(i, told),
            _ if decode::is_refused_mov(i) => self.execute_or_engine(i, told),
            _ if decode::loses_flags(i) => Ok(Done::ByEngine(Then::FlagsBack(self.eflags()))),
            _ => self.control_move(i),
        }
    }

    /// Whether the CPU model does not have an instruction that the engine would run.
    fn lacks(&self, i: &Instruction) -> bool {
        decode::is_absent(i).is_some_and(|everywhere| everywhere || self.model == Model::Ia32)
    }

    pub(crate) fn privileged(&self) -> Result<(), Fault> {
        if self.env.cpl() == 0 { Ok(()) } else { Err(Fault::gp(0)) }
    }

    /// LTR, which refuses a null selector (SDM volume 2, LTR).
    fn load_task_register(&mut self, i: &Instruction) -> Result<Done, Fault> {
        self.privileged()?;
        let selector = match i.op0_kind() {
            OpKind::Register => self.register(i.op0_register()),
            _ => self.load_unreported(self.wrap_linear(self.effective_address(i)), 2)?,
        };
        if selector & 0xfffc == 0 { Err(Fault::gp(0)) } else { Ok(Done::ByEngine(Then::Nothing)) }
    }

    /// Time stamp counter: virtual ns plus what the guest has written to it.
    pub fn tsc(&self) -> u64 {
        self.hot.clock.now().wrapping_add(self.tsc_offset)
    }

    fn rdtsc(&mut self, i: &Instruction) -> Result<Done, Fault> {
        if i.mnemonic() == Mnemonic::Rdtscp && self.model == Model::Ia32 {
            return Err(Fault::ud());
        }
        if self.env.cr(4) & CR4_TSD != 0 && self.env.cpl() != 0 {
            return Err(Fault::gp(0));
        }
        self.give_tsc(self.tsc(), i.mnemonic() == Mnemonic::Rdtscp);
        Ok(Done::Next)
    }

    pub(crate) fn give_tsc(&self, tsc: u64, with_aux: bool) {
        self.env.set_gpr(0, tsc & 0xffff_ffff);
        self.env.set_gpr(2, tsc >> 32);
        if with_aux {
            self.env.set_gpr(1, self.env.tsc_aux() & 0xffff_ffff);
        }
    }

    /// The instruction at linear `at`, where the engine has raised #UD, if the CPU model does have it. That is RDTSCP:
    /// the engine calls no second instruction hook while a stop is pending, and would read the host's clock.
    pub(crate) fn engine_lacks(&self, at: u64) -> Option<Instruction> {
        if self.model == Model::Ia32 {
            return None;
        }
        // Linux reads it at every look at the time. Decoding takes as long as all the rest.
        let mut bytes = [0; decode::RDTSCP.len()];
        if self.peek(at, &mut bytes).is_ok() && bytes == decode::RDTSCP {
            let mut i = Instruction::with(Code::Rdtscp);
            i.set_len(bytes.len());
            return Some(i);
        }
        self.decode_original(at).filter(|i| decode::kind(i) == Kind::ClockAndAux)
    }

    /// Whether the model has an MSR, and whether the engine keeps it.
    fn known_msr(&self, index: u32) -> bool {
        match index {
            0x174..=0x176 | 0x277 => true,
            0xc000_0080..=0xc000_0084 | 0xc000_0100..=0xc000_0103 => self.model == Model::X86_64,
            _ => false,
        }
    }

    fn rdmsr(&mut self) -> Result<Done, Fault> {
        self.privileged()?;
        let index = self.env.gpr(1) as u32;
        let value = match index {
            0x10 => self.tsc(),
            // Microcode revision and platform: fixed.
            0x8b | 0x17 => 0,
            IA32_MISC_ENABLE if self.model == Model::X86_64 => MISC_ENABLE,
            APIC_BASE_MSR => self.platform.apic_base().unwrap_or(NO_APIC),
            _ if self.known_msr(index) => {
                return Ok(Done::ByEngine(Then::Nothing));
            }
            _ => return Err(Fault::gp(0)),
        };
        self.env.set_gpr(0, value & 0xffff_ffff);
        self.env.set_gpr(2, value >> 32);
        Ok(Done::Next)
    }

    fn wrmsr(&mut self) -> Result<Done, Fault> {
        self.privileged()?;
        let index = self.env.gpr(1) as u32;
        let value = (self.env.gpr(0) & 0xffff_ffff) | self.env.gpr(2) << 32;
        match index {
            0x10 => self.tsc_offset = value.wrapping_sub(self.hot.clock.now()),
            0x8b | 0x79 => {}
            IA32_MISC_ENABLE if self.model == Model::X86_64 && value == MISC_ENABLE => {}
            APIC_BASE_MSR if self.platform.apic_base().is_none() && value == NO_APIC => {}
            APIC_BASE_MSR => self.write_apic_base(value)?,
            0xc000_0080 if self.known_msr(index) => return self.write_efer(value),
            _ if self.known_msr(index) => {
                let address =
                    matches!(index, 0x175 | 0x176 | 0xc000_0082 | 0xc000_0083 | 0xc000_0100..=0xc000_0102);
                if address && self.model == Model::X86_64 && !canonical(value) {
                    return Err(Fault::gp(0));
                }
                match index {
                    // A task switch writes these.
                    0xc000_0100 => self.set_base(Seg::Fs, value),
                    0xc000_0101 => self.set_base(Seg::Gs, value),
                    0xc000_0102 => self.env.set_kernel_gs_base(value),
                    _ => return Ok(Done::ByEngine(Then::Nothing)),
                }
            }
            _ => return Err(Fault::gp(0)),
        }
        Ok(Done::Next)
    }

    fn set_base(&self, seg: Seg, base: u64) {
        let old = self.env.seg(seg);
        self.env.set_seg_raw(seg, Segment::new(old.selector as u16, base, old.limit, old.flags));
    }

    /// IA32_APIC_BASE: enables and disables the local APIC, which then no longer answers at its address.
    fn write_apic_base(&mut self, value: u64) -> Result<(), Fault> {
        if !self.platform.set_apic_base(value) {
            return Err(Fault::gp(0));
        }
        self.engine.flush_tlb();
        self.update_irq();
        Ok(())
    }

    fn write_efer(&self, value: u64) -> Result<Done, Fault> {
        const LME: u64 = 0x100;
        const LMA: u64 = 0x400;
        const NXE: u64 = 0x800;
        if value & !(EFER_SCE | LME | LMA | NXE) != 0 {
            return Err(Fault::gp(0));
        }
        if self.env.cr(0) & CR0_PG != 0 && (value ^ self.env.efer()) & LME != 0 {
            return Err(Fault::gp(0));
        }
        Ok(Done::ByEngine(Then::Follow(self.paging())))
    }

    fn syscall(&mut self, i: &Instruction) -> Result<Done, Fault> {
        if self.env.efer() & EFER_SCE == 0 || !self.env.code64() {
            // AMD's compatibility-mode SYSCALL is in neither model (SDM volume 2, SYSCALL).
            return Err(Fault::ud());
        }
        let (star, flags) = (self.env.star(), self.eflags());
        let next = self.env.eip().wrapping_add(i.len() as u64);
        self.note_user_context(next);
        self.env.set_gpr(1, next);
        self.env.set_gpr(11, flags & !RF);
        self.env.set_eip(self.env.lstar());
        self.env.set_eflags((flags & !(self.env.fmask() & 0xffff_ffff) & !RF) | 2);
        let cs = (star >> 32) as u16 & 0xfffc;
        self.flat_segments(cs, true);
        Ok(Done::Jumped)
    }

    /// CS and SS as SYSCALL and SYSENTER load them: flat, ring 0.
    fn flat_segments(&mut self, cs: u16, long: bool) {
        let code = 0x00c0_9b00 & if long { !0x0040_0000 } else { !0 } | if long { 0x0020_0000 } else { 0 };
        self.env.load_seg(Seg::Cs, Segment::new(cs, 0, 0xffff_ffff, code));
        self.env.load_seg(Seg::Ss, Segment::new(cs.wrapping_add(8), 0, 0xffff_ffff, 0x00c0_9300));
        self.env.set_cpl(0);
    }

    fn sysenter(&mut self, i: &Instruction) -> Result<Done, Fault> {
        let cs = self.env.sysenter_cs() as u16 & 0xfffc;
        if self.env.cr(0) & CR0_PE == 0 || cs == 0 {
            return Err(Fault::gp(0));
        }
        let long = self.env.long_mode();
        if self.env.cpl() == 3 {
            self.note_user_context(self.env.eip().wrapping_add(i.len() as u64));
        }
        self.env.set_eflags_raw(self.env.eflags_raw() & !(VM | IF | RF));
        self.flat_segments(cs, long);
        let (ip, sp) = (self.env.sysenter_eip(), self.env.sysenter_esp());
        self.env.set_eip(if long { ip } else { ip & 0xffff_ffff });
        self.env.set_gpr(4, if long { sp } else { sp & 0xffff_ffff });
        Ok(Done::Jumped)
    }

    /// LOOPE and LOOPNE (SDM volume 2, LOOP/LOOPcc); those of 16 bits are the engine's.
    fn loop_on_flag(&self, i: &Instruction) -> Done {
        let bits = i.code().op_code().address_size();
        if bits == 16 || i.op0_kind() == OpKind::NearBranch16 {
            return Done::ByEngine(Then::Nothing);
        }
        let left = self.env.gpr(1).wrapping_sub(1) & (u64::MAX >> (64 - bits));
        self.env.set_gpr(1, left);
        let zero = self.eflags() & ZF != 0;
        if left == 0 || zero != (i.mnemonic() == Mnemonic::Loope) {
            return Done::Next;
        }
        let distance = i.near_branch_target().wrapping_sub(i.ip());
        self.env.set_eip(self.wrap_ip(self.env.eip().wrapping_add(distance)));
        Done::Jumped
    }

    /// LAHF and SAHF (SDM volume 2).
    fn move_flags(&self, i: &Instruction) -> Done {
        const AX: usize = 0;
        let (ax, flags) = (self.env.gpr(AX), self.eflags());
        if i.mnemonic() == Mnemonic::Lahf {
            self.env.set_gpr(AX, ax & !0xff00 | (flags & ARITHMETIC | 2) << 8);
        } else {
            self.env.set_eflags(flags & !ARITHMETIC | ax >> 8 & ARITHMETIC);
        }
        Done::Next
    }

    /// Does what a PAUSE with REX.B does: XCHG of R8 and the accumulator (SDM volume 2, XCHG).
    fn exchange_with_r8(&self, i: &Instruction) {
        const OPERAND_SIZE: u8 = 0x66;
        const REX_W: u8 = 8;
        let mut bytes = [0; LONGEST];
        let Some(bytes) = bytes.get_mut(..i.len()) else { return };
        let read = self.peek_prefix(self.linear_ip(), bytes) == bytes.len();
        if !read || !self.env.code64() || !decode::is_xchg_r8(bytes) {
            return;
        }
        let [.., rex, _] = bytes else { return };
        let (ax, r8) = match (*rex & REX_W != 0, bytes.contains(&OPERAND_SIZE)) {
            (true, _) => (Register::RAX, Register::R8),
            (false, true) => (Register::AX, Register::R8W),
            (false, false) => (Register::EAX, Register::R8D),
        };
        let (to_ax, to_r8) = (self.register(r8), self.register(ax));
        self.set_register(ax, to_ax);
        self.set_register(r8, to_r8);
    }

    /// RET with an immediate, near (SDM volume 2, RET).
    fn near_return(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Done, Fault> {
        let stack = self.stack();
        let size = match i.code() {
            Code::Retnw_imm16 => 2,
            Code::Retnd_imm16 => 4,
            _ => 8,
        };
        let sp = self.env.gpr(4);
        let at = self.wrap_linear(stack.linear(sp));
        let ip = self.load(at, size, told).map_err(Fault::on_stack)?;
        self.env.set_eip(ip);
        self.set_stack_pointer(stack, sp.wrapping_add(size as u64 + u64::from(i.immediate16())));
        Ok(Done::Jumped)
    }

    /// Linear address of an instruction's memory operand.
    pub(crate) fn effective_address(&self, i: &Instruction) -> u64 {
        let operand = (0..i.op_count()).find(|&n| i.op_kind(n) == OpKind::Memory).unwrap_or(0);
        let value = i.virtual_address(operand, 0, |register, _, _| Some(self.register(register)));
        value.unwrap_or(0)
    }

    /// Value of a register as an address computation sees it: bases for segments.
    pub(crate) fn register(&self, r: Register) -> u64 {
        if r.is_segment_register() {
            let seg = match r {
                Register::ES => Seg::Es,
                Register::CS => Seg::Cs,
                Register::SS => Seg::Ss,
                Register::FS => Seg::Fs,
                Register::GS => Seg::Gs,
                _ => Seg::Ds,
            };
            let flat = self.env.code64() && !matches!(seg, Seg::Fs | Seg::Gs);
            return if flat { 0 } else { self.env.seg(seg).base };
        }
        if !r.is_gpr() {
            return 0;
        }
        let full = self.env.gpr(r.full_register().number());
        match r.size() {
            8 => full,
            4 => full & 0xffff_ffff,
            2 => full & 0xffff,
            _ if matches!(r, Register::AH | Register::CH | Register::DH | Register::BH) => {
                self.env.gpr(r.number() & 3) >> 8 & 0xff
            }
            _ => full & 0xff,
        }
    }

    /// The count register of a string instruction after one iteration; whether it is done.
    pub(crate) fn count_down(&mut self, i: &Instruction) -> bool {
        let rcx = self.env.gpr(1);
        let mask = match decode::address_bits(i) {
            16 => 0xffff,
            32 => 0xffff_ffff,
            _ => u64::MAX,
        };
        let count = (rcx & mask).wrapping_sub(1) & mask;
        self.env.set_gpr(1, if mask == 0xffff { (rcx & !0xffff) | count } else { count });
        count == 0
    }
}
