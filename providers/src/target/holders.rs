//! The processes that probes in a file's code are for. Code is recognised by the content of its page, and another file may have
//! an equal page: what a process has mapped tells them apart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trapline_emu::symbols::UserModule;
use trapline_interposer::{Processes, Who};

/// The files that the host knows, and which of them have the same bytes.
pub(crate) struct Holders<'a> {
    known: Arc<BTreeSet<String>>,
    equal: BTreeMap<&'a [u8], Vec<&'a str>>,
}

impl<'a> Holders<'a> {
    /// Those of these modules.
    pub fn new(modules: &'a [Arc<UserModule>]) -> Self {
        let mut equal: BTreeMap<&[u8], Vec<&str>> = BTreeMap::new();
        for module in modules {
            equal.entry(module.bytes()).or_default().push(module.name());
        }
        Self { known: Arc::new(modules.iter().map(|module| module.name().to_owned()).collect()), equal }
    }

    /// All processes that have one of these modules mapped.
    pub fn of<'b>(&self, modules: impl IntoIterator<Item = &'b Arc<UserModule>>) -> Processes {
        let paths = modules.into_iter().filter_map(|module| self.equal.get(module.bytes())).flatten();
        let copies: BTreeSet<String> = paths.map(|path| (*path).to_owned()).collect();
        let (known, copies) = (Arc::clone(&self.known), copies.into_iter().collect());
        Processes { who: Who::Any, program: None, known, copies, forked: false }
    }
}
