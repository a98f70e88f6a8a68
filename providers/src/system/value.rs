//! The arguments and conditions of views, at a hit.

use std::sync::Arc;

use trapline_emu::Core;
use trapline_interposer::{Arguments, Condition};
use trapline_rpn::{Argument, ArgumentError};

use super::kernel::Kernel;
use super::table::{Value, When};
use crate::provider::{AtEntry, AtReturn};

/// Exit codes: the signal that has ended a process, and whether its memory was dumped.
const SIGNAL: u64 = 0x7f;
const DUMPED: u64 = 0x80;

/// A value of the table in a kernel.
fn value(kernel: &Kernel, core: &Core, value: Value) -> Result<u64, ArgumentError> {
    let argument = |n| AtEntry(kernel.abi()).argument(core, Argument::Number(n));
    let returned = || {
        let at = AtReturn { offset: 0, abi: kernel.abi() };
        at.argument(core, Argument::Returned).map(|value| (value as i32).into())
    };
    match value {
        Value::Argument(n) => argument(n),
        Value::Returned => returned().map(i64::cast_unsigned),
        Value::Error => returned().map(|value: i64| value.wrapping_neg().cast_unsigned()),
        Value::Current => kernel.current(core).ok_or(ArgumentError::None),
        Value::ProgramPath => {
            let at = match kernel.program_path {
                Some(offset) => argument(0)?.wrapping_add(offset),
                None => argument(2)?,
            };
            kernel.read(core, at).ok_or(ArgumentError::Fault(at))
        }
        Value::ExitReason(n) => argument(n).map(|code| match (code & SIGNAL, code & DUMPED) {
            (0, _) => 1,
            (_, 0) => 2,
            _ => 3,
        }),
        Value::Number(number) => Ok(number),
    }
}

/// The arguments of a view.
#[derive(Debug)]
pub struct Values {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// In order.
    pub list: Vec<Value>,
}

impl Arguments for Values {
    fn has(&self, which: Argument) -> bool {
        matches!(which, Argument::Number(n) if usize::from(n) < self.list.len())
    }

    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        let Argument::Number(n) = which else { return Err(ArgumentError::None) };
        let own = self.list.get(usize::from(n)).ok_or(ArgumentError::None)?;
        value(&self.kernel, core, *own)
    }
}

/// The condition of a view.
#[derive(Debug)]
pub struct Holds {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// When it fires.
    pub when: When,
}

impl Holds {
    /// `None` if the guest cannot be read.
    fn known(&self, core: &Core) -> Option<bool> {
        let of = |own| value(&self.kernel, core, own).ok();
        let int = |own| Some(of(own)? as i32);
        Some(match self.when {
            When::Always => true,
            When::FirstThread(task) => {
                let (task, (pid, tgid)) = (of(task)?, self.kernel.ids()?);
                let id = |offset| self.kernel.read_u32(core, task.wrapping_add(offset));
                id(pid)? == id(tgid)?
            }
            When::Zero(own) => int(own)? == 0,
            When::NotZero(own) => int(own)? != 0,
            When::Negative(own) => int(own)? < 0,
        })
    }
}

impl Condition for Holds {
    fn holds(&self, core: &Core) -> bool {
        self.known(core).unwrap_or(false)
    }
}
