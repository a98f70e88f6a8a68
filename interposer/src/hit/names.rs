//! The names of the probes and modules that records number.

use crate::model::{Probe, Program, Provided};
use trapline_os::Unwinder;

/// Names of probes by their number, which their records carry, and of kernel modules' functions on stacks.
#[derive(Clone, Copy)]
pub struct ProbeNames<'a> {
    pub(super) probes: &'a [Probe],
    pub(super) programs: &'a [Program],
    pub(super) unwinder: &'a Unwinder,
}

impl<'a> ProbeNames<'a> {
    /// The provider's description of a probe; `None` for a probe without a provider.
    pub fn get(&self, number: u32) -> Option<&'a Provided> {
        self.probes.get(number as usize)?.rest.provided.as_ref()
    }

    /// The program that a probe point belongs to, with the codes of the probe point.
    pub fn program(&self, number: u32) -> Option<(&'a str, u32, u32)> {
        let probe = self.probes.get(number as usize)?;
        Some((self.programs.get(probe.program as usize)?.name(), probe.major, probe.minor))
    }

    /// The symbol that holds a byte of a kernel module that a recorded stack goes through, and how far into it.
    pub fn module_symbol(&self, module: &str, offset: u64) -> Option<(String, u64)> {
        self.unwinder.module_symbol(module, offset)
    }

    /// The number of each probe with handlers ended by an exception, and how many there were.
    pub fn errors(&self) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        let counts = (0..).zip(self.probes.iter().map(|probe| probe.errors));
        counts.filter(|(_, errors)| *errors > 0)
    }
}
