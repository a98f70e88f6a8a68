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

/// A probe by its identifier and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedProbe<'a> {
    /// Its identifier, as a listing gives it.
    pub id: u32,
    /// Its name.
    pub name: &'a ProbeName,
}
