//! Control registers, and the TLBs that follow them.
//!
//! The engine drops its whole TLB at each MOV to CR3. That is more than needed: the kernel's pages are global, and most
//! of what runs next lies in them. So the machine writes CR3 itself and drops the pages that are not global, of which
//! the fill hook keeps a list. The architectural TLB is the authority; the engine's TLB is only a cache of it, so
//! entries that it keeps do no harm.

use super::Cpu;
use super::fault::Fault;
use super::outcome::{Done, Then};
use crate::engine::Seg;
use crate::isa::decode::{LEGACY_PREFIXES, LONGEST};
use crate::mmu::Paging;
use crate::ram::PAGE;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

pub(crate) const CR0_PE: u64 = 1;
pub(crate) const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 0x20;
const CR4_PGE: u64 = 0x80;

/// Linear pages that are not global and that the fill hook has given the engine since it dropped the last of them, some of
/// them more than once.
#[derive(Debug, Default)]
pub(crate) struct LocalPages(Vec<u64>);

impl LocalPages {
    /// Beyond this count, flushing the whole TLB is cheaper than dropping pages one by one.
    const MOST: usize = 1024;

    #[inline]
    pub fn note(&mut self, page: u64) {
        if self.0.len() <= Self::MOST {
            self.0.push(page);
        }
    }
}

impl Cpu {
    /// MOV to and from control registers, CLTS, LMSW.
    pub(crate) fn control_move(&mut self, i: &Instruction) -> Result<Done, Fault> {
        let (to, from) = (i.op0_register(), i.op1_register());
        // AMD's CPUs take LOCK for REX.R here, where their CPUID says so.
        if [to, from].contains(&Register::CR8) && self.is_locked() {
            return Err(Fault::ud());
        }
        self.privileged()?;
        if let Some(priority) = self.platform.task_priority()
            && [to, from].contains(&Register::CR8)
        {
            return self.move_cr8(i, priority);
        }
        let writes = i.mnemonic() == Mnemonic::Mov && i.op0_kind() == OpKind::Register && to.is_cr();
        if writes {
            let value = self.register(from);
            self.check_control(to, value)?;
            if to == Register::CR3 && !i.has_lock_prefix() {
                self.switch_space(value);
                return Ok(Done::Next);
            }
        } else if matches!(from, Register::CR0 | Register::CR2 | Register::CR3 | Register::CR4)
            && !i.has_lock_prefix()
        {
            let wide = if self.env.code64() { u64::MAX } else { 0xffff_ffff };
            self.env.set_gpr(to.full_register().number(), self.env.cr(from.number()) & wide);
            return Ok(Done::Next);
        }
        self.engine.bound_tlb();
        Ok(Done::ByEngine(Then::Follow(self.paging())))
    }

    /// Whether LOCK is among the prefixes of the instruction at EIP.
    fn is_locked(&self) -> bool {
        const LOCK: u8 = 0xf0;
        let mut bytes = [0; LONGEST];
        let read = self.peek_prefix(self.linear_ip(), &mut bytes);
        bytes.iter().take(read).take_while(|byte| LEGACY_PREFIXES.contains(byte)).any(|byte| *byte == LOCK)
    }

    /// Updates the TLBs after an instruction that may have changed paging; `before` is the state before it.
    pub(crate) fn follow_paging(&mut self, before: Paging) {
        const NXE: u64 = 0x800;
        const LMA: u64 = 0x400;
        let now = self.paging();
        if before.cr0 != now.cr0 || before.cr4 != now.cr4 || (before.efer ^ now.efer) & (NXE | LMA) != 0 {
            self.flush_paging();
        }
    }

    /// MOV to CR3: the translations of pages that are not global go (SDM volume 3, 4.10.4.1).
    pub(super) fn switch_space(&mut self, cr3: u64) {
        self.env.set_cr_raw(3, cr3);
        if self.env.cr(4) & CR4_PGE == 0 {
            self.tlb.flush_all();
        } else {
            self.tlb.flush_local();
            if self.local_pages.0.len() <= LocalPages::MOST {
                return self.drop_local();
            }
        }
        self.engine.flush_tlb();
        self.local_pages.0.clear();
    }

    fn drop_local(&mut self) {
        self.local_pages.0.sort_unstable();
        self.local_pages.0.dedup();
        for page in self.local_pages.0.drain(..) {
            self.engine.drop_tlb(page);
        }
    }

    /// Bits of a physical address.
    pub(crate) fn physical_bits(&self) -> u32 {
        self.phys_bits
    }

    /// Drops everything cached from the page tables.
    pub(crate) fn flush_paging(&mut self) {
        self.tlb.flush_all();
        self.engine.flush_tlb();
    }

    pub(crate) fn invlpg(&mut self, i: &Instruction) -> Result<Done, Fault> {
        self.privileged()?;
        let page = self.wrap_linear(self.effective_address(i)) & !(PAGE - 1);
        if self.tlb.invalidate(page) {
            // Other pages of the large one may be in the engine's TLB.
            self.engine.flush_tlb();
        } else {
            self.engine.drop_tlb(page);
        }
        Ok(Done::Next)
    }

    /// MOV to and from CR8: bits 7 to 4 of the local APIC's task priority (SDM volume 3, 11.8.6).
    fn move_cr8(&mut self, i: &Instruction, priority: u8) -> Result<Done, Fault> {
        if i.op0_register() != Register::CR8 {
            self.env.set_gpr(i.op0_register().number(), u64::from(priority >> 4));
            return Ok(Done::Next);
        }
        let value = self.register(i.op1_register());
        if value > 0xf {
            return Err(Fault::gp(0));
        }
        self.platform.set_task_priority((value as u8) << 4);
        self.update_irq();
        Ok(Done::Next)
    }

    /// Values that MOV to CR refuses with #GP(0) (SDM volume 3, 2.5).
    fn check_control(&self, register: Register, value: u64) -> Result<(), Fault> {
        let bad = match register {
            Register::CR0 => {
                let high = value >> 32 != 0;
                let pg = value & CR0_PG != 0;
                let long = pg && self.env.efer() & 0x100 != 0 && self.env.cr(4) & CR4_PAE == 0;
                let leaving = !pg && self.env.code64();
                // Where LME is set, this begins IA-32e mode (SDM volume 3, 10.8.5.1).
                let begins = pg && self.env.efer() & 0x100 != 0 && self.env.cr(0) & CR0_PG == 0;
                let unfit = begins && (self.in_long_segment() || self.has_narrow_tss());
                let nw_without_cd = value & (1 << 29) != 0 && value & (1 << 30) == 0;
                high || (pg && value & CR0_PE == 0) || long || unfit || leaving || nw_without_cd
            }
            Register::CR4 => {
                // TSD DE PSE PAE MCE PGE PCE OSFXSR OSXMMEXCPT: both models have the same.
                const KNOWN: u64 = 0x7fc;
                value & !KNOWN != 0 || (value & CR4_PAE == 0 && self.env.long_mode())
            }
            Register::CR3 => self.env.long_mode() && value >> self.phys_bits != 0,
            _ => false,
        };
        if bad { Err(Fault::gp(0)) } else { Ok(()) }
    }

    /// Whether CS has the L bit, which outside IA-32e mode has no effect yet.
    fn in_long_segment(&self) -> bool {
        const LONG: u32 = 1 << 21;
        self.env.seg(Seg::Cs).flags & LONG != 0
    }

    /// Whether the task register holds a 16-bit TSS.
    fn has_narrow_tss(&self) -> bool {
        self.env.tr().flags >> 8 & 0x1d == 1
    }
}
