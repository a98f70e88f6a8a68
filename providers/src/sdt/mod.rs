//! Providers of statically defined probes. The child `read` finds the sites in files; here they become probes with
//! names.
//!
//! | Provider | Probes | Function | Arguments |
//! |---|---|---|---|
//! | `sdt` | `__dtrace_probe_NAME` sites of the kernel and its modules | that of the site | as of the call |
//! | `sdt` | macro-declared probes of the kernel and its modules | that of all points, if they share one | by their letters |
//! | `sdt` | Linux's tracepoints, each time one is executed | the event's system | none |
//! | `tracepoint` | the same, while the guest has them switched on | the event's system | typed, by BTF; of modules words |
//! | `sdt` | macro-declared probes of the user modules | that of all points, if they share one | by their letters |
//! | as the note says | `<sys/sdt.h>` sites of the user modules | that of the site | the note's operands |
//! | as the symbol says | `__dtrace_PROVIDER___NAME` sites of the user modules | that of the site | as of the call |
//!
//! Two underscores in a name become one `-`, except in names of tracepoints. The kernel's tables are read
//! when their provider is first used. A semaphore or is-enabled site, which tells a program that its probe is enabled,
//! is a site of the probe too, after those where it fires.

mod declared;
mod kernel;
mod operands;
mod read;
mod stap;
mod tracepoint;
mod unit;
mod usdt;

pub use read::*;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use trapline_emu::symbols::{KernelModule, UserModule};
use trapline_interposer::Place;
use trapline_trace::ProbeName;

use crate::name::Description;
use crate::provider::{ArgumentType, Probe, Provider, ProviderError, Site};
use crate::target::{Holders, Target, basename};
use unit::Unit;

/// The provider of probes that name none.
const SDT: &str = "sdt";
/// Shortest unknown name for which names that contain it are suggested.
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
    /// The types of its arguments, as far as the site's own description tells; empty if it tells none.
    types: Vec<ArgumentType>,
}

/// The source of the probes.
#[derive(Debug)]
enum Source {
    /// Kernel sites, macro-declared probes, tracepoints as they are executed, and those of user modules, which are
    /// already read.
    Sdt(Vec<Found>, Arc<Units>),
    /// Tracepoints that are on.
    Tracepoint(Arc<Units>),
    /// Probes of user modules, already read.
    User(Vec<Found>),
}

/// The kernel and its modules with their tables, which are read once, at first use.
#[derive(Debug, Default)]
struct Units(OnceLock<Vec<Unit>>);

impl Units {
    fn read(&self, target: &Target) -> &[Unit] {
        self.0.get_or_init(|| Unit::all(target))
    }
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

    /// The providers of a target.
    pub fn all(target: &Target) -> Vec<Self> {
        let mut by_provider = by_provider(target.modules());
        let own = by_provider.remove(SDT).unwrap_or_default();
        let units = Arc::new(Units::default());
        let mut providers = vec![
            Self::new(SDT, Source::Sdt(own, Arc::clone(&units))),
            Self::new("tracepoint", Source::Tracepoint(units)),
        ];
        let user = by_provider.into_iter();
        providers.extend(user.map(|(name, found)| Self::new(&name, Source::User(found))));
        providers
    }

    fn probes(&self, target: &Target) -> &[Probe] {
        let holders = || target.programs().holders();
        self.probes.get_or_init(|| match &self.source {
            Source::Sdt(user, units) => {
                let mut found = kernel::probes(target, &mut Vec::new());
                kernel_modules(target)
                    .for_each(|module| found.extend(kernel::module_probes(target, module, &mut Vec::new())));
                found.extend(user.iter().cloned());
                found.extend(tracepoint::passed(target, units.read(target)));
                self.number(&holders(), found)
            }
            Source::Tracepoint(units) => {
                self.number(&holders(), tracepoint::traced(target, units.read(target)))
            }
            Source::User(found) => self.number(&holders(), found.clone()),
        })
    }

    /// Sites of one name are one probe.
    fn number(&self, holders: &Holders<'_>, found: Vec<Found>) -> Vec<Probe> {
        /// Module, function and name.
        type Key = (Arc<str>, Arc<str>, Arc<str>);
        let mut named: BTreeMap<Key, (u8, Vec<Site>, Vec<ArgumentType>)> = BTreeMap::new();
        for Found { function, name, module, site, logged, types } in found {
            let (most, sites, known) = named.entry((module, function, name)).or_default();
            if sites.is_empty() {
                *known = types;
            } else if *known != types {
                // The sites pass different values.
                known.clear();
            }
            *most = if sites.is_empty() { logged } else { logged.min(*most) };
            sites.push(site);
        }
        let probe = |(id, ((module, function, name), (logged, mut sites, types)))| {
            tell_once(&mut sites);
            // A page with the same bytes may belong to another file.
            let mut modules =
                sites.iter().filter_map(|site: &Site| Some(site.place.in_user_code()?.0)).peekable();
            let processes = modules.peek().is_some().then(|| Arc::new(holders.of(modules)));
            let provider = Arc::clone(&self.name);
            let name = Arc::new(ProbeName { provider, module, function, name });
            Probe { id, name, sites, logged, processes, types }
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

/// The static probes of one user program or library that match a description, and their number in all.
pub fn static_probes(module: &Arc<UserModule>, wanted: &Description) -> (Vec<Probe>, u32) {
    let mut found = Vec::new();
    let mut base = 0;
    for (name, sites) in by_provider(std::slice::from_ref(module)) {
        let provider = Static::new(&name, Source::User(Vec::new()));
        let probes = provider.number(&Holders::new(std::slice::from_ref(module)), sites);
        let count = probes.len() as u32;
        let meant = probes.into_iter().filter(|p| wanted.provider(&provider.name) && means(wanted, p));
        found.extend(meant.map(|probe| Probe { id: base + probe.id, ..probe }));
        base += count;
    }
    (found, base)
}

/// The probes of user modules by the names of their providers.
fn by_provider(modules: &[Arc<UserModule>]) -> BTreeMap<String, Vec<Found>> {
    let mut by_provider: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for module in modules {
        for (provider, found) in read(module, &mut Vec::new()) {
            by_provider.entry(provider).or_default().push(found);
        }
    }
    by_provider
}

/// The sites of a module with their providers, and the refused entries with the reason.
fn read(module: &Arc<UserModule>, refused: &mut Vec<String>) -> Vec<(String, Found)> {
    let mut found = stap::probes(module, refused);
    found.extend(usdt::probes(module, refused));
    found.extend(declared::of_module(module, refused).into_iter().map(|found| (SDT.to_owned(), found)));
    found
}

/// Adds the sites that only tell a program that the probe is enabled after the sites where it fires, each once.
fn tell_once(sites: &mut Vec<Site>) {
    let key = |site: &Site| match site.place {
        Place::IsEnabled { offset, .. } => Some((0, offset)),
        Place::Semaphore { address, .. } => Some((1, address)),
        _ => None,
    };
    sites.sort_by_key(key);
    sites.dedup_by(|a, b| key(a).is_some() && key(a) == key(b));
}

/// A refused entry of a statically defined probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Name of its kernel or module, without folders.
    pub module: String,
    /// The entry, its place, and the reason.
    pub reason: String,
}

/// The refused entries of the modules that match a description: damaged notes, sites with unexpected bytes.
pub fn refused(target: &Target, wanted: &Description) -> Vec<Refused> {
    let mut found = Vec::new();
    let kernel = kernel_module(target);
    if wanted.module(&kernel) {
        let mut reasons = Vec::new();
        kernel::probes(target, &mut reasons);
        found.extend(reasons.into_iter().map(|reason| Refused { module: kernel.to_string(), reason }));
    }
    for module in kernel_modules(target).filter(|module| wanted.module(module.name())) {
        let mut reasons = Vec::new();
        kernel::module_probes(target, module, &mut reasons);
        let module = module.name();
        found.extend(reasons.into_iter().map(|reason| Refused { module: module.to_owned(), reason }));
    }
    found.extend(target.modules().iter().flat_map(|module| refused_of(module, wanted)));
    found
}

/// The same of one user program or library.
pub fn refused_of(module: &Arc<UserModule>, wanted: &Description) -> Vec<Refused> {
    let name = basename(module.name());
    let mut reasons = Vec::new();
    if wanted.module(name) {
        read(module, &mut reasons);
    }
    reasons.into_iter().map(|reason| Refused { module: name.to_owned(), reason }).collect()
}

/// The kernel modules that the kernel could load, each once.
fn kernel_modules(target: &Target) -> impl Iterator<Item = &Arc<KernelModule>> {
    let width = target.image().plan().width;
    let mut names = BTreeSet::new();
    target
        .kernel_modules()
        .iter()
        .filter(move |module| module.file().width() == width && names.insert(module.name()))
}

/// The kernel's name, as probes have it.
fn kernel_module(target: &Target) -> Arc<str> {
    basename(&target.image().plan().name).into()
}

/// A name as DTrace writes it.
fn dashed(name: &str) -> Arc<str> {
    name.replace("__", "-").into()
}
