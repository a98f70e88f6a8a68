//! Names for records: of addresses, and of providers' probes.

use std::sync::Arc;

use trapline_interposer::{DSetup, ProbeNames, ProgramId};
use trapline_providers::Target;
use trapline_trace::{Kind, NamedProbe, Symbolize};

/// Names addresses, stack frames and probes of a session.
pub struct Names<'a> {
    target: &'a Target,
    probes: Option<ProbeNames<'a>>,
}

impl<'a> Names<'a> {
    /// The program of a probe, by the number that its records carry.
    pub fn program(&self, probe: u32) -> Option<&str> {
        self.probes.as_ref()?.program(probe).map(|(program, ..)| program)
    }

    /// The symbol of any address.
    pub fn of_address(&self, address: u64) -> Option<String> {
        self.target.symbol(address)
    }

    /// The D program of a probe, by the number that its records carry, and how its data are shown.
    pub fn d_setup(&self, probe: u32) -> Option<(ProgramId, &Arc<DSetup>)> {
        self.probes.as_ref()?.d_setup(probe)
    }

    pub(super) fn new(target: &'a Target, probes: Option<ProbeNames<'a>>) -> Self {
        Self { target, probes }
    }
}

impl Symbolize for Names<'_> {
    fn symbol(&self, ip: u64, probe: u32) -> Option<String> {
        let at_place = self.probes.as_ref().and_then(|probes| probes.place_symbol(probe));
        at_place.or_else(|| self.target.symbol(ip))
    }

    fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        match kind {
            Kind::UserStack => self.target.file_symbol(module, address),
            _ if module == self.target.kernel_name() => {
                self.target.symbols().at(address).map(|at| (at.symbol.name.to_string(), at.offset))
            }
            _ => self.probes.as_ref()?.module_symbol(module, address),
        }
    }

    fn probe(&self, number: u32) -> Option<NamedProbe<'_>> {
        let provided = self.probes.as_ref()?.get(number)?;
        Some(NamedProbe { id: provided.id, name: &provided.name })
    }
}
