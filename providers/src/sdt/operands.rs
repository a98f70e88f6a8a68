//! Arguments by operands: registers, memory, constants, at the site's own state.

use std::fmt;
use std::sync::Arc;

use trapline_emu::Core;
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_interposer::Arguments;
use trapline_rpn::{Argument as Wanted, ArgumentError};

use super::read::{Argument, EvaluateError, GuestScene};

/// The operands of a site's arguments; `None` for one that cannot be read.
pub struct Operands {
    list: Vec<Option<Argument>>,
    /// The user module that the site is in, and the site's address as linked.
    home: Option<(Arc<UserModule>, u64)>,
    none: Symbols,
}

impl Operands {
    /// Arguments in the kernel.
    pub fn new(list: Vec<Option<Argument>>) -> Self {
        Self { list, home: None, none: Symbols::default() }
    }

    /// Arguments at the linked address `site` of a user module.
    pub fn of_module(list: Vec<Option<Argument>>, module: &Arc<UserModule>, site: u64) -> Self {
        Self { home: Some((Arc::clone(module), site)), ..Self::new(list) }
    }

    fn get(&self, which: Wanted) -> Option<&Argument> {
        let Wanted::Number(n) = which else { return None };
        self.list.get(usize::from(n))?.as_ref()
    }

    /// The number of readable arguments before the first unreadable one.
    pub fn readable(&self) -> u8 {
        self.list.iter().take_while(|argument| argument.is_some()).count() as u8
    }
}

impl fmt::Debug for Operands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

impl Arguments for Operands {
    fn has(&self, which: Wanted) -> bool {
        self.get(which).is_some()
    }

    fn argument(&self, core: &Core, which: Wanted) -> Result<u64, ArgumentError> {
        let argument = self.get(which).ok_or(ArgumentError::None)?;
        let scene = match &self.home {
            // The module is mapped where the site is reached.
            Some((module, site)) => {
                GuestScene { core, symbols: module.symbols(), bias: core.env().eip().wrapping_sub(*site) }
            }
            None => GuestScene { core, symbols: &self.none, bias: 0 },
        };
        match argument.evaluate(&scene) {
            Ok(value) => Ok(value.word()),
            Err(EvaluateError::InvalidAddress(at)) => Err(ArgumentError::Fault(at)),
            Err(EvaluateError::UnknownSymbol(_) | EvaluateError::NoOffsetTable) => Err(ArgumentError::None),
        }
    }
}
