//! The four names of a probe that a provider has put: `provider:module:function:name`.

use std::fmt;
use std::sync::Arc;

/// The name of one probe. Probes of one function share its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeName {
    /// Who has put it, such as `fbt`.
    pub provider: Arc<str>,
    /// Kernel or module that it is in, without folders; empty if it is in none.
    pub module: Arc<str>,
    /// The function; empty if it is in none.
    pub function: Arc<str>,
    /// What it is in the function, such as `entry`.
    pub name: Arc<str>,
}

impl fmt::Display for ProbeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.provider, self.module, self.function, self.name)
    }
}

impl ProbeName {
    /// The name as a hit in a process shows it: in `pid$target` and `pid*` the process's number, as `pid1234`. 0 is no
    /// number.
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

/// A probe by its identifier and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedProbe<'a> {
    /// Its identifier, as a listing gives it.
    pub id: u32,
    /// Its name.
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
