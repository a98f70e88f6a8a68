//! Puts values into the guest: the inputs of its functions that a search changes (docs/fuzzing.md).

use trapline_emu::{Settable, Unsettable};
use trapline_interposer::{Difference, Word};
use trapline_rpn::{Context, Reg};

use super::Session;
use super::apply::Answer;
use crate::commands::CommandError;

/// The flags that can be put: CF, PF, AF, ZF, SF, DF and OF. The others change what the processor does next.
const SETTABLE: u64 = 0xcd5;

/// A register as a debugger writes it.
fn settable(register: Reg) -> Option<Settable> {
    if let Some(n) = register.fpr_number() {
        return Some(Settable::St(n));
    }
    if let Some(n) = register.xmm_number() {
        return Some(Settable::Xmm(n));
    }
    Some(match register {
        Reg::FsBase => Settable::FsBase,
        Reg::GsBase => Settable::GsBase,
        Reg::Cr0 => Settable::Cr0,
        Reg::Cr2 => Settable::Cr2,
        Reg::Cr3 => Settable::Cr3,
        Reg::Cr4 => Settable::Cr4,
        Reg::Efer => Settable::Efer,
        Reg::Fcw => Settable::FpuControl,
        Reg::Fsw => Settable::FpuStatus,
        Reg::Ftw => Settable::FpuTags,
        Reg::Fip => Settable::FpuIp,
        Reg::Fcs => Settable::FpuCs,
        Reg::Fdp => Settable::FpuDp,
        Reg::Fds => Settable::FpuDs,
        Reg::Mxcsr => Settable::Mxcsr,
        _ => return None,
    })
}

fn not_written(register: Reg, why: Unsettable) -> CommandError {
    CommandError::NotWritten { register: Word::register(Context::Current, register).name(true), why }
}

/// The registers among these values that are no general ones, and what they are to hold.
fn processor(values: &[Difference]) -> Result<Vec<(Reg, Settable, u128)>, CommandError> {
    let mut found = Vec::new();
    for value in values {
        let Difference::Processor { register, bytes } = value else { continue };
        let settable = settable(*register).ok_or_else(|| not_written(*register, Unsettable::Missing))?;
        if bytes.len() > 16 {
            return Err(not_written(*register, Unsettable::Value));
        }
        let value = bytes.iter().rev().fold(0, |value: u128, byte| value << 8 | u128::from(*byte));
        found.push((*register, settable, value));
    }
    Ok(found)
}

impl Session {
    /// Puts numbers into registers and bytes into memory. Either all of them are put, or none.
    pub(super) fn put(&mut self, values: &[Difference]) -> Answer {
        for value in values {
            self.check_put(value)?;
        }
        let registers = processor(values)?;
        let list: Vec<(Settable, u128)> = registers.iter().map(|(_, what, value)| (*what, *value)).collect();
        let refused = |(number, why): (usize, Unsettable)| {
            not_written(registers.get(number).map_or(Reg::Ip, |(register, ..)| *register), why)
        };
        let core = self.machine.core_mut();
        core.check_registers(&list).map_err(refused)?;
        for value in values {
            match value {
                Difference::Word { what: Word::Register { register: Reg::Ip, .. }, value } => {
                    let ip = core.wrap_ip(*value);
                    core.env().set_eip(ip);
                }
                Difference::Word { what: Word::Register { register: Reg::Flags, .. }, value } => {
                    let kept = u64::from(core.eflags() as u32) & !SETTABLE;
                    core.env().set_eflags(kept | value & SETTABLE);
                }
                Difference::Word { what: Word::Register { register, .. }, value } => {
                    let number = register.gpr_number().map(usize::from);
                    let wide = core.env().code64();
                    number.into_iter().for_each(|number| {
                        core.env().set_gpr(number, if wide { *value } else { *value & 0xffff_ffff });
                    });
                }
                Difference::Memory { address, bytes } => {
                    core.poke(*address, bytes).map_err(CommandError::NotWritable)?;
                }
                _ => {}
            }
        }
        // Last: they may change which memory there is.
        core.write_registers(&list).map_err(refused)?;
        let count = crate::plural::counted(values.len() as u64, "value");
        Ok(self.done("put", "", format!("put {count} into the guest")))
    }

    /// Whether a value can be put.
    fn check_put(&self, value: &Difference) -> Result<(), CommandError> {
        let core = self.machine.core();
        match value {
            Difference::Word { what: Word::Register { user: false, register }, .. }
                if register.gpr_number().is_some() || matches!(register, Reg::Ip | Reg::Flags) =>
            {
                Ok(())
            }
            Difference::Memory { address, bytes } => {
                let writable = |at: u64| trapline_interposer::is_writable(core, at);
                trapline_interposer::all_writable(*address, bytes.len(), writable)
                    .map_err(CommandError::NotWritable)
            }
            Difference::Processor { .. } => Ok(()),
            Difference::Word { what, .. } => Err(CommandError::NotPut(what.to_string())),
            _ => Err(CommandError::NotPut("this difference".to_owned())),
        }
    }
}
