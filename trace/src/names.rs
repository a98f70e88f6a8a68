//! Names of probes and addresses, which records hold as numbers.
//!
//! The caller knows the guest and supplies the names; this file says only how a sink asks for them.

use std::fmt;
use std::sync::Arc;

use crate::layout::Layout;
use crate::record::Kind;

/// Gives the names of addresses and probes; each method returns `None` if there is no name.
pub trait Symbolize {
    /// The symbol of the address of a hit, such as `do_fork` or `do_fork+0x10`. The address alone names code of the kernel;
    /// the probe with the number in [`Header::probe`](crate::Header::probe) also code of modules and programs.
    fn symbol(&self, ip: u64, probe: u32) -> Option<String>;

    /// The symbol that holds an address in a module, and the offset of the address in it, for stack records of this
    /// kind. [`StackModule`](crate::StackModule) defines such addresses. The result may change when modules are loaded.
    fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        let _ = (kind, module, address);
        None
    }

    /// The symbol of an address of the kernel, with the offset, as D shows it: the address alone does not name code of
    /// programs.
    fn address(&self, address: u64) -> Option<String> {
        let _ = address;
        None
    }

    /// The source line of an address in a module, as `file.c:123`, for stack records of this kind; `None` if it is not
    /// known.
    fn line(&self, kind: Kind, module: &str, address: u64) -> Option<String> {
        let _ = (kind, module, address);
        None
    }

    /// The provider's probe with the number in [`Header::probe`](crate::Header::probe). Probe points that a probe
    /// program gives by offset or address have no name.
    fn probe(&self, number: u32) -> Option<NamedProbe<'_>> {
        let _ = number;
        None
    }

    /// What the records of the probe with this number hold, if that is known.
    fn layout(&self, probe: u32) -> Option<&Arc<Layout>> {
        let _ = probe;
        None
    }
}

impl<F: Fn(u64) -> Option<String>> Symbolize for F {
    fn symbol(&self, ip: u64, _: u32) -> Option<String> {
        self(ip)
    }

    fn address(&self, address: u64) -> Option<String> {
        self(address)
    }
}

/// The four-part name of a provider's probe, `provider:module:function:name`. Probes of one function share its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeName {
    /// The provider, such as `fbt`.
    pub provider: Arc<str>,
    /// The kernel or module, without folders; empty for a probe that lies in no module.
    pub module: Arc<str>,
    /// The function; empty for a probe that lies in no function.
    pub function: Arc<str>,
    /// The event in the function, such as `entry`.
    pub name: Arc<str>,
}

impl fmt::Display for ProbeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.provider, self.module, self.function, self.name)
    }
}

impl ProbeName {
    /// The name for a hit in process `number`: `pid$target` and `pid*` become `pid1234`. Process 0 leaves the name as
    /// it is.
    #[must_use]
    pub fn in_process(&self, number: u32) -> String {
        let any = self.provider.strip_suffix("$target").or_else(|| self.provider.strip_suffix('*'));
        match any {
            Some(base) if number > 0 => {
                format!("{base}{number}:{}:{}:{}", self.module, self.function, self.name)
            }
            _ => self.to_string(),
        }
    }
}

/// A probe's identifier and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedProbe<'a> {
    /// The identifier that `trapline list` prints.
    pub id: u32,
    /// The name.
    pub name: &'a ProbeName,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_names_the_process_that_was_found() {
        let of = |provider: &str, number| {
            let [module, function, name] = ["busybox", "main", "entry"].map(Arc::from);
            ProbeName { provider: provider.into(), module, function, name }.in_process(number)
        };
        assert_eq!(of("pid$target", 42), "pid42:busybox:main:entry");
        assert_eq!(of("pid*", 42), "pid42:busybox:main:entry");
        assert_eq!(of("pid7", 7), "pid7:busybox:main:entry");
        assert_eq!(of("pid$target", 0), "pid$target:busybox:main:entry");
    }
}
