//! Names for records: of addresses, and of providers' probes.

use std::sync::Arc;

use trapline_emu::Core;
use trapline_interposer::{DSetup, ProbeNames, ProgramId};
use trapline_providers::Target;
use trapline_trace::{Kind, Layout, NamedProbe, Symbolize};

/// CR0.PE.
const PE: u64 = 1;

/// The address of an instruction, and how it is named.
#[derive(Debug, Clone, Copy)]
pub struct CodeAddress {
    /// Its linear address.
    pub linear: u64,
    /// The instruction pointer, if the kernel's code segment has a base: early code runs so where it is linked.
    linked: Option<u64>,
}

impl CodeAddress {
    /// The address of the instruction with this instruction pointer in the current code segment.
    pub fn of(core: &Core, ip: u64) -> Self {
        let env = core.env();
        let base = env.cs_base();
        let linked = (base != 0 && env.cr(0) & PE != 0 && env.cpl() == 0).then_some(ip);
        Self { linear: core.wrap_linear(base.wrapping_add(ip)), linked }
    }

    /// Its symbol: that of the linear address, else that of the address where the instruction is linked.
    pub fn symbol(self, target: &Target) -> Option<String> {
        target.symbol(self.linear).or_else(|| target.symbol(self.linked?))
    }
}

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

    /// The symbol of any address, as D shows it.
    pub fn of_address(&self, address: u64) -> Option<String> {
        self.target.d_symbol(address)
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

    fn line(&self, kind: Kind, module: &str, address: u64) -> Option<String> {
        let line = match kind {
            Kind::UserStack => self.target.file_line(module, address),
            _ if module == self.target.kernel_name() => self.target.source_line(address),
            _ => None,
        };
        line.map(|line| format!("{}:{}", line.file, line.line))
    }

    fn probe(&self, number: u32) -> Option<NamedProbe<'_>> {
        let provided = self.probes.as_ref()?.get(number)?;
        Some(NamedProbe { id: provided.id, name: &provided.name })
    }

    fn layout(&self, probe: u32) -> Option<&Arc<Layout>> {
        self.probes.as_ref()?.layout(probe)
    }
}
