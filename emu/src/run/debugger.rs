//! Registers that a debugger writes between two instructions, besides those that [`Env`](crate::Env) can set alone.
//!
//! All of a set are written, or none. Not here: what a register's value alone does not make, such as another mode of the
//! processor, or a selector, whose descriptor the processor would have to load.

use super::Core;
use crate::cpu::access::canonical;
use crate::engine::{Model, Seg, Segment};
use crate::snapshot::CpuState;

/// A register that a debugger can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settable {
    /// The base of FS.
    FsBase,
    /// The base of GS.
    GsBase,
    /// CR0.
    Cr0,
    /// CR2.
    Cr2,
    /// CR3.
    Cr3,
    /// CR4.
    Cr4,
    /// IA32_EFER.
    Efer,
    /// An x87 register, counted from the top of the stack: 80 bits.
    St(u8),
    /// The control word of the x87.
    FpuControl,
    /// Its status word, with TOP.
    FpuStatus,
    /// Its tag word: of each physical register, whether it is empty.
    FpuTags,
    /// The offset of its last instruction.
    FpuIp,
    /// The selector of its last instruction.
    FpuCs,
    /// The offset of its last operand.
    FpuDp,
    /// The selector of its last operand.
    FpuDs,
    /// MXCSR.
    Mxcsr,
    /// An SSE register: 128 bits.
    Xmm(u8),
}

/// Why a value cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsettable {
    /// The model has no such register.
    #[error("this processor does not have it")]
    Missing,
    /// It would change what code means, such as the width of addresses.
    #[error("a bit would change the mode of the processor, which only the guest can do")]
    Mode,
    /// MOV or WRMSR would raise #GP, or it is too wide.
    #[error("the processor refuses this value")]
    Value,
}

/// MP, EM, TS, NE, WP, AM, NW and CD (SDM volume 3, 2.5).
const FREE_CR0: u64 = 0x6005_002e;
/// PE and PG.
const MODE_CR0: u64 = 0x8000_0001;
/// CD, without which NW is refused.
const CACHE_DISABLED: u64 = 1 << 30;
const NOT_WRITE_THROUGH: u64 = 1 << 29;
/// TSD, DE, PSE, MCE, PGE, PCE, OSFXSR and OSXMMEXCPT: what MOV to CR4 takes, without PAE.
const FREE_CR4: u64 = 0x7dc;
const MODE_CR4: u64 = 0x20;
/// SCE and NXE.
const FREE_EFER: u64 = 0x801;
/// LME and LMA.
const MODE_EFER: u64 = 0x500;
/// TOP in the status word, its busy flag, and the summary of exceptions, of which that is a copy (SDM volume 1, 8.1.3).
const TOP: u16 = 7 << 11;
const BUSY: u16 = 1 << 15;
const SUMMARY: u16 = 1 << 7;
/// The segment registers with bases of their own, and their places in [`CpuState::segments`].
const BASED: [(Seg, usize); 2] = [(Seg::Fs, Seg::Fs as usize), (Seg::Gs, Seg::Gs as usize)];

/// Whether only these bits change.
fn changes(before: u64, after: u64, free: u64, mode: u64) -> Result<u64, Unsettable> {
    match (before ^ after) & !free {
        0 => Ok(after),
        fixed if fixed & mode != 0 => Err(Unsettable::Mode),
        _ => Err(Unsettable::Value),
    }
}

/// A value of so many bits.
fn within(value: u128, bits: u32) -> Result<u128, Unsettable> {
    if bits >= 128 || value >> bits == 0 { Ok(value) } else { Err(Unsettable::Value) }
}

impl Core {
    /// Whether these values can be written, all of them.
    ///
    /// # Errors
    /// The number of the first one that cannot, and why.
    pub fn check_registers(&self, values: &[(Settable, u128)]) -> Result<(), (usize, Unsettable)> {
        self.with_registers(values).map(|_| ())
    }

    /// Writes these values, all of them or none. Nothing may run meanwhile.
    ///
    /// # Errors
    /// As [`Core::check_registers`].
    pub fn write_registers(&mut self, values: &[(Settable, u128)]) -> Result<(), (usize, Unsettable)> {
        let (before, after) = (self.cpu_state(), self.with_registers(values)?);
        let env = *self.cpu.env;
        if (before.x87, before.mxcsr, before.xmm) != (after.x87, after.mxcsr, after.xmm) {
            after.write_fpu(env);
        }
        for (seg, place) in BASED {
            let (old, base) = (env.seg(seg), after.segments.get(place).map_or(0, |segment| segment.base));
            if old.base != base {
                env.set_seg_raw(seg, Segment::new(old.selector as u16, base, old.limit, old.flags));
            }
        }
        if (before.control, before.msr.efer) != (after.control, after.msr.efer) {
            [0, 2, 3, 4].into_iter().zip(after.control).for_each(|(n, value)| env.set_cr_raw(n, value));
            env.set_efer(after.msr.efer);
            env.set_hflags(after.hidden_flags());
            self.cpu.flush_paging();
        }
        Ok(())
    }

    /// The state with these values.
    fn with_registers(&self, values: &[(Settable, u128)]) -> Result<CpuState, (usize, Unsettable)> {
        let mut state = self.cpu_state();
        for (number, (register, value)) in values.iter().enumerate() {
            let set = match register {
                Settable::FsBase | Settable::GsBase | Settable::Efer if self.cpu.model != Model::X86_64 => {
                    Err(Unsettable::Missing)
                }
                Settable::Cr0 | Settable::Cr2 | Settable::Cr3 | Settable::Cr4 | Settable::Efer => {
                    self.set_system(&mut state, *register, *value)
                }
                register => set_other(&mut state, *register, *value),
            };
            set.map_err(|why| (number, why))?;
        }
        Ok(state)
    }

    /// Sets a control register or EFER.
    fn set_system(&self, state: &mut CpuState, register: Settable, value: u128) -> Result<(), Unsettable> {
        let word = within(value, 64)? as u64;
        let [cr0, cr2, cr3, cr4] = &mut state.control;
        match register {
            Settable::Cr0 => {
                if word & NOT_WRITE_THROUGH != 0 && word & CACHE_DISABLED == 0 {
                    return Err(Unsettable::Value);
                }
                *cr0 = changes(*cr0, word, FREE_CR0, MODE_CR0)?;
            }
            Settable::Cr2 => {
                let bits = if self.cpu.model == Model::X86_64 { 64 } else { 32 };
                *cr2 = within(value, bits)? as u64;
            }
            Settable::Cr3 => {
                let bits = if self.cpu.env.long_mode() { self.cpu.physical_bits() } else { 32 };
                *cr3 = within(value, bits)? as u64;
            }
            Settable::Cr4 => *cr4 = changes(*cr4, word, FREE_CR4, MODE_CR4)?,
            _ => state.msr.efer = changes(state.msr.efer, word, FREE_EFER, MODE_EFER)?,
        }
        Ok(())
    }
}

/// Sets a base, or a register of the x87 or SSE.
fn set_other(state: &mut CpuState, register: Settable, value: u128) -> Result<(), Unsettable> {
    let word = || within(value, 16).map(|value| value as u16);
    let base = || {
        let base = within(value, 64)? as u64;
        if canonical(base) { Ok(base) } else { Err(Unsettable::Value) }
    };
    let [.., fs, gs] = &mut state.segments;
    let x87 = &mut state.x87;
    match register {
        Settable::FsBase => fs.base = base()?,
        Settable::GsBase => gs.base = base()?,
        Settable::St(n) => {
            let value = within(value, 80)?.to_le_bytes();
            let place = usize::from((x87.top + n) & 7);
            let to = x87.registers.get_mut(place).ok_or(Unsettable::Missing)?;
            to.iter_mut().zip(value).for_each(|(to, from)| *to = from);
        }
        Settable::FpuControl => x87.control = word()?,
        Settable::FpuStatus => {
            let word = word()?;
            let busy = if word & SUMMARY != 0 { BUSY } else { 0 };
            (x87.status, x87.top) = (word & !(TOP | BUSY) | busy, (word >> 11 & 7) as u8);
        }
        Settable::FpuTags => {
            let word = word()?;
            x87.tags = std::array::from_fn(|n| u8::from(word >> (2 * n) & 3 == 3));
        }
        Settable::FpuIp => x87.instruction.0 = within(value, 64)? as u64,
        Settable::FpuCs => x87.instruction.1 = word()?,
        Settable::FpuDp => x87.operand.0 = within(value, 64)? as u64,
        Settable::FpuDs => x87.operand.1 = word()?,
        Settable::Mxcsr => state.mxcsr = word()?.into(),
        Settable::Xmm(n) => *state.xmm.get_mut(usize::from(n)).ok_or(Unsettable::Missing)? = value,
        _ => return Err(Unsettable::Missing),
    }
    Ok(())
}
