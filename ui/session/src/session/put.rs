//! Puts values into the guest: the inputs of its functions that a search changes (docs/fuzzing.md).

use trapline_interposer::{Difference, Word};
use trapline_rpn::Reg;

use super::Session;
use super::apply::Answer;
use crate::commands::CommandError;

/// The flags that can be put: CF, PF, AF, ZF, SF, DF and OF. The others change what the processor does next.
const SETTABLE: u64 = 0xcd5;

impl Session {
    /// Puts numbers into registers and bytes into memory. Either all of them are put, or none.
    pub(super) fn put(&mut self, values: &[Difference]) -> Answer {
        for value in values {
            self.check_put(value)?;
        }
        let core = self.machine.core_mut();
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
            Difference::Word { what, .. } => Err(CommandError::NotPut(what.to_string())),
            _ => Err(CommandError::NotPut("this difference".to_owned())),
        }
    }
}
