//! The names of the probes and modules that records number.

use crate::d::DSetup;
use crate::model::{Place, Probe, Program, ProgramId, Provided};
use std::sync::Arc;
use trapline_os::Unwinder;
use trapline_trace::Layout;

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

    /// What the records of a probe hold, if that is known.
    pub fn layout(&self, number: u32) -> Option<&'a Arc<Layout>> {
        self.probes.get(number as usize)?.rest.layout.as_ref()
    }

    /// The number of the D program that a probe point belongs to, and how its data are shown.
    pub fn d_setup(&self, number: u32) -> Option<(ProgramId, &'a Arc<DSetup>)> {
        let program = self.probes.get(number as usize)?.program as usize;
        Some((ProgramId(program), self.programs.get(program)?.definition.d.as_ref()?))
    }

    /// The program that a probe point belongs to, with the codes of the probe point.
    pub fn program(&self, number: u32) -> Option<(&'a str, u32, u32)> {
        let probe = self.probes.get(number as usize)?;
        Some((self.programs.get(probe.program as usize)?.name(), probe.major, probe.minor))
    }

    /// The symbol at a probe point in the file of a program or kernel module, such as `loop:loop_init` or
    /// `busybox:main+0x10`; in a file without symbols the function that the probe's own name gives.
    pub fn place_symbol(&self, number: u32) -> Option<String> {
        let probe = self.probes.get(number as usize)?;
        let (module, symbol) = match &probe.place {
            Place::User { module, offset } | Place::UserExit { module, offset, .. } => {
                (module.name(), module.symbol_at_offset(*offset))
            }
            Place::Module { module, offset } => (module.name(), module.file().symbols().at(*offset)),
            _ => return None,
        };
        let own = || {
            let name = &probe.rest.provided.as_ref()?.name;
            (&*name.name == "entry").then(|| name.function.to_string())
        };
        let symbol = symbol.map(|symbol| symbol.to_string()).or_else(own)?;
        Some(format!("{}:{symbol}", module.rsplit('/').next().unwrap_or(module)))
    }

    /// The symbol that holds a byte of a kernel module that a recorded stack goes through, and how far into it.
    pub fn module_symbol(&self, module: &str, offset: u64) -> Option<(String, u64)> {
        self.unwinder.module_symbol(module, offset)
    }

    /// The number of an enabled probe, from 1: its sites have one number, and so has each probe point without a provider.
    pub fn enabled(&self, number: u32) -> u32 {
        let until = self.probes.get(..=number as usize).unwrap_or(self.probes);
        1 + until.windows(2).filter(|pair| matches!(pair, [one, other] if !is_same(one, other))).count()
            as u32
    }

    /// The number of each probe point with handlers ended by an exception, and how many there were.
    pub fn errors(&self) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        let counts = (0..).zip(self.probes.iter().map(|probe| probe.errors));
        counts.filter(|(_, errors)| *errors > 0)
    }
}

/// Whether two probe points are sites of one probe, which a program has enabled once.
fn is_same(one: &Probe, other: &Probe) -> bool {
    let id = |probe: &Probe| probe.rest.provided.as_ref().map(|provided| provided.id);
    one.program == other.program && id(one).is_some() && id(one) == id(other)
}

/// Whether a handler of the same probe failed at another of its sites, which are beside each other.
pub(super) fn failed_elsewhere(probes: &[Probe], index: u32) -> bool {
    let (before, from) = probes.split_at_checked(index as usize).unwrap_or((probes, &[]));
    let Some((this, after)) = from.split_first() else { return false };
    let others = before.iter().rev().take_while(|probe| is_same(probe, this));
    others.chain(after.iter().take_while(|probe| is_same(probe, this))).any(|probe| probe.errors > 0)
}
