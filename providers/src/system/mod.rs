//! The providers of the operating system: `syscall`, `proc`, `sched` and `io`, for Linux.
//!
//! Their probes are views of the kernel's functions: a probe has the sites of functions, a condition that says when it
//! fires there, and arguments that are derived from those of the function. `calls` finds the system calls in the code of
//! the kernel, and `exits` where they have their values; `table` has the rows of the other providers, and `view` makes their probes; `value` has arguments and
//! conditions, `kernel` the addresses and offsets that they need. A kernel that lacks a function lacks the probe, and
//! the message says so.
//!
//! Not here: translators of D, which are in the library of the compiler.

mod calls;
mod exits;
mod kernel;
mod syscall;
mod table;
mod value;
mod view;

use std::sync::{Arc, OnceLock};

use trapline_rpn::near_miss;

use crate::name::Description;
use crate::provider::{OwnError, Probe, Provider, ProviderError};
use crate::target::Target;
use kernel::Kernel;

/// The names of the providers.
const PROVIDERS: [&str; 4] = ["io", "proc", "sched", "syscall"];

/// Why a probe of these providers does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SystemError {
    /// The guest is another system.
    #[error("{provider} has probes for Linux only, and {kernel} is not Linux")]
    NotLinux {
        /// The provider.
        provider: String,
        /// The kernel's name.
        kernel: String,
    },
    /// The kernel lacks what the probe is a view of.
    #[error("{provider}:::{name} does not exist: {why}")]
    Missing {
        /// The provider.
        provider: &'static str,
        /// The name of the probe.
        name: String,
        /// What the kernel lacks.
        why: String,
    },
    /// DTrace has such a probe, and Linux has no place for it.
    #[error("{provider}:::{name} is a probe of DTrace that has no place in Linux{}", other(.instead))]
    NoPlace {
        /// The provider.
        provider: &'static str,
        /// The name of the probe.
        name: &'static str,
        /// The probe to use instead; empty if there is none.
        instead: &'static str,
    },
    /// A system call that the kernel calls otherwise.
    #[error("the kernel's name of the system call {name} is {own}")]
    Renamed {
        /// The name in the C library.
        name: String,
        /// The kernel's.
        own: &'static str,
    },
}

fn other(instead: &str) -> String {
    if instead.is_empty() { String::new() } else { format!("; use {instead}") }
}

/// What a provider has found in the kernel.
#[derive(Debug, Default)]
struct Found {
    /// By name, numbered from 1.
    probes: Vec<Probe>,
    /// The probes that do not exist, by name, and the reason.
    missing: Vec<(String, String)>,
}

/// One of the providers.
#[derive(Debug)]
pub struct System {
    name: &'static str,
    kernel: Arc<OnceLock<Option<Arc<Kernel>>>>,
    found: OnceLock<Found>,
}

impl System {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let kernel = Arc::new(OnceLock::new());
        PROVIDERS.into_iter().map(move |name| Self {
            name,
            kernel: Arc::clone(&kernel),
            found: OnceLock::new(),
        })
    }

    fn kernel(&self, target: &Target) -> Option<&Arc<Kernel>> {
        self.kernel.get_or_init(|| Kernel::new(target).map(Arc::new)).as_ref()
    }

    fn found(&self, target: &Target) -> &Found {
        self.found.get_or_init(|| {
            let Some(kernel) = self.kernel(target) else { return Found::default() };
            let mut found = match self.name {
                "syscall" => syscall::probes(target, kernel),
                name => view::probes(target, kernel, name),
            };
            found.probes.sort_by(|a, b| a.name.cmp(&b.name));
            for (id, probe) in (1..).zip(&mut found.probes) {
                probe.id = id;
            }
            found
        })
    }
}

impl Provider for System {
    fn name(&self) -> &str {
        self.name
    }

    fn ids(&self, target: &Target) -> u32 {
        self.found(target).probes.len() as u32
    }

    fn find(
        &self,
        target: &Target,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), ProviderError> {
        let meant = |probe: &&Probe| {
            let name = &probe.name;
            wanted.module(&name.module) && wanted.function(&name.function) && wanted.name(&name.name)
        };
        found.extend(self.found(target).probes.iter().filter(meant).cloned());
        Ok(())
    }

    fn refusal(&self, target: &Target, wanted: &Description) -> Option<ProviderError> {
        let [provider, _, function, name] = wanted.written();
        if provider != self.name {
            return None;
        }
        let error = if self.kernel(target).is_none() {
            let kernel = target.kernel_name().to_owned();
            Some(SystemError::NotLinux { provider: provider.clone(), kernel })
        } else if self.name == "syscall" {
            let renamed = syscall::kernel_name(function);
            renamed.map(|own| SystemError::Renamed { name: function.clone(), own })
        } else {
            let missing = self.found(target).missing.iter().find(|(own, _)| own == name);
            let missing = missing.map(|(name, why)| SystemError::Missing {
                provider: self.name,
                name: name.clone(),
                why: why.clone(),
            });
            missing.or_else(|| table::no_place(self.name, name))
        };
        error.map(|error| OwnError::new(error).into())
    }

    fn near(&self, target: &Target, wanted: &Description) -> Vec<String> {
        let [provider, _, function, name] = wanted.written();
        let is_named = provider == self.name;
        let (own, wanted): (fn(&Probe) -> &str, _) = match self.name {
            "syscall" => (|probe| &probe.name.function, function),
            _ => (|probe| &probe.name.name, name),
        };
        let alike = |probe: &&Probe| {
            let own = own(probe);
            wanted.len() >= 3 && (own.contains(wanted.as_str()) || wanted.contains(own) && own.len() >= 3)
        };
        let probes = &self.found(target).probes;
        let found: Vec<String> = probes.iter().filter(alike).map(|probe| probe.name.to_string()).collect();
        if !found.is_empty() || !is_named {
            return found;
        }
        // Letters that were exchanged or left out; a pattern may follow them.
        let nearest = near_miss(wanted.trim_matches('*'), probes.iter().map(own));
        let is_nearest = |probe: &&Probe| Some(own(probe)) == nearest;
        probes.iter().filter(is_nearest).map(|probe| probe.name.to_string()).collect()
    }
}
