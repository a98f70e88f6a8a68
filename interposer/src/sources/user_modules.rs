//! The modules of user probes by number, as the stored form names them.

use crate::model::{Address, Probe};
use std::sync::Arc;
use trapline_emu::symbols::UserModule;

/// The modules that probes are in, in the order of the first probe of each.
#[derive(Debug, Default)]
pub(crate) struct UserModules(Vec<Arc<UserModule>>);

impl UserModules {
    /// The modules of all probes.
    pub fn of<'a>(probes: impl IntoIterator<Item = &'a Probe>) -> Self {
        let mut found: Vec<Arc<UserModule>> = Vec::new();
        for probe in probes {
            let (Address::Program { module, .. } | Address::Word { module, .. }) = probe.place.address()
            else {
                continue;
            };
            // Consecutive probes are usually in the same module.
            if !found.iter().rev().any(|known| Arc::ptr_eq(known, module)) {
                found.push(Arc::clone(module));
            }
        }
        Self(found)
    }

    /// The number of one of the modules.
    pub fn number(&self, module: &Arc<UserModule>) -> u32 {
        self.0.iter().position(|known| Arc::ptr_eq(known, module)).map_or(u32::MAX, |number| number as u32)
    }

    /// The module of this number.
    pub fn get(&self, number: u32) -> Option<&Arc<UserModule>> {
        self.0.get(number as usize)
    }
}
