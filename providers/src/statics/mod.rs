//! Providers of statically defined probes: what [`sdt`](crate::sdt) reads of the files, as probes with names.
//!
//! | Provider | Probes | Function | Arguments |
//! |---|---|---|---|
//! | `sdt` | `__dtrace_probe_NAME` sites of the kernel | that of the site | as of the call |
//! | `sdt` | macro-declared probes of the kernel | that of all points, if they share one | by their letters |
//! | `sdt` | Linux's tracepoints, each time one is passed | the event's system | none |
//! | `tracepoint` | the same, while the guest has them switched on | the event's system | typed, by BTF |
//! | as the note says | `<sys/sdt.h>` sites of the user modules | that of the site | the note's operands |
//!
//! Two underscores of a name are one `-`, but for tracepoints, whose names are the kernel's. A table is read when its
//! provider is first asked.

mod kernel;
mod operands;
mod stap;
mod tracepoint;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use trapline_emu::symbols::UserModule;
use trapline_trace::ProbeName;

use crate::description::Description;
use crate::provider::{Probe, Provider, ProviderError, Site};
use crate::target::{Target, basename};

/// Shortest name of which others that contain it are told when nothing has it.
const SHORTEST: usize = 4;

/// A probe without its number.
#[derive(Debug, Clone)]
struct Found {
    function: Arc<str>,
    name: Arc<str>,
    module: Arc<str>,
    site: Site,
    /// Arguments that are logged without a handler.
    logged: u8,
}

/// Who finds the probes.
#[derive(Debug)]
enum Source {
    /// Kernel sites, macro-declared probes, tracepoints as they are passed.
    Sdt,
    /// Tracepoints that are on.
    Tracepoint,
    /// Notes of user modules, read already.
    Notes(Vec<Found>),
}

/// A provider of static probes.
#[derive(Debug)]
pub struct Static {
    name: Arc<str>,
    source: Source,
    /// By name, numbered from 1.
    probes: OnceLock<Vec<Probe>>,
}

impl Static {
    fn new(name: &str, source: Source) -> Self {
        Self { name: name.into(), source, probes: OnceLock::new() }
    }

    /// Those of a target.
    pub fn all(target: &Target) -> Vec<Self> {
        let mut providers = vec![Self::new("sdt", Source::Sdt), Self::new("tracepoint", Source::Tracepoint)];
        providers.extend(Self::of_modules(target.modules()));
        providers
    }

    /// Those that the notes of user modules name.
    fn of_modules(modules: &[Arc<UserModule>]) -> impl Iterator<Item = Self> {
        let mut by_provider: BTreeMap<String, Vec<Found>> = BTreeMap::new();
        for module in modules {
            for (provider, found) in stap::probes(module) {
                by_provider.entry(provider).or_default().push(found);
            }
        }
        by_provider.into_iter().map(|(name, found)| Self::new(&name, Source::Notes(found)))
    }

    fn probes(&self, target: &Target) -> &[Probe] {
        self.probes.get_or_init(|| match &self.source {
            Source::Sdt => {
                let mut found = kernel::probes(target);
                found.extend(tracepoint::passed(target));
                self.number(found)
            }
            Source::Tracepoint => self.number(tracepoint::traced(target)),
            Source::Notes(found) => self.number(found.clone()),
        })
    }

    /// Sites of one name are one probe.
    fn number(&self, found: Vec<Found>) -> Vec<Probe> {
        /// Module, function and name.
        type Key = (Arc<str>, Arc<str>, Arc<str>);
        let mut named: BTreeMap<Key, (u8, Vec<Site>)> = BTreeMap::new();
        for Found { function, name, module, site, logged } in found {
            let (most, sites) = named.entry((module, function, name)).or_default();
            *most = if sites.is_empty() { logged } else { logged.min(*most) };
            sites.push(site);
        }
        let probe = |(id, ((module, function, name), (logged, sites)))| {
            let provider = Arc::clone(&self.name);
            let name = Arc::new(ProbeName { provider, module, function, name });
            Probe { id, name, sites, logged, processes: None }
        };
        (1..).zip(named).map(probe).collect()
    }
}

impl Provider for Static {
    fn name(&self) -> &str {
        &self.name
    }

    fn ids(&self, target: &Target) -> u32 {
        self.probes(target).len() as u32
    }

    fn find(
        &self,
        target: &Target,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), ProviderError> {
        let meant = |probe: &&Probe| means(wanted, probe);
        found.extend(self.probes(target).iter().filter(meant).cloned());
        Ok(())
    }

    fn near(&self, target: &Target, wanted: &Description) -> Vec<String> {
        let [.., name] = wanted.written();
        let name = name.to_lowercase();
        let resembles = |own: &str| {
            let own = own.to_lowercase();
            name.len() >= SHORTEST && (own.contains(&name) || name.contains(&own) && own.len() >= SHORTEST)
        };
        let probes = self.probes(target).iter().filter(|probe| resembles(&probe.name.name));
        probes.map(|probe| probe.name.to_string()).collect()
    }
}

fn means(wanted: &Description, probe: &Probe) -> bool {
    let name = &probe.name;
    wanted.module(&name.module) && wanted.function(&name.function) && wanted.name(&name.name)
}

/// The probes of one user program or library that a description names, without a kernel.
pub fn user_probes(module: &Arc<UserModule>, wanted: &Description) -> Vec<Probe> {
    let mut found = Vec::new();
    let mut base = 0;
    for provider in Static::of_modules(std::slice::from_ref(module)) {
        let Source::Notes(sites) = &provider.source else { continue };
        let probes = provider.number(sites.clone());
        let count = probes.len() as u32;
        let meant = probes.into_iter().filter(|p| wanted.provider(&provider.name) && means(wanted, p));
        found.extend(meant.map(|probe| Probe { id: base + probe.id, ..probe }));
        base += count;
    }
    found
}

/// The kernel's name, as probes have it.
fn kernel_module(target: &Target) -> Arc<str> {
    basename(&target.image().plan().name).into()
}

/// A name as DTrace writes it.
fn dashed(name: &str) -> Arc<str> {
    name.replace("__", "-").into()
}
