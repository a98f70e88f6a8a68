//! Semaphores and is-enabled sites: how a program learns that somebody listens.
//!
//! A semaphore is a u16 in the program's memory, raised by 1 while a probe is enabled and lowered again; sites that share
//! one raise it once for each enabling. An is-enabled site has its result register set to 1 while its probe is enabled.
//! Both are the guest's to see, by design. Here are the books alone; memory and sites are the caller's.

use super::calls::{CallSite, CallSites, Purpose};
use std::collections::{BTreeMap, BTreeSet};

/// The handler of an enabled is-enabled site, as an RPN program's body: AX is 1, and nothing is recorded.
pub const ANSWER: &str = "push 1\npop r, eax\nabort\n";

/// Memory that semaphores are in.
pub trait Words {
    /// The u16 at an address, if it is there.
    fn load(&mut self, address: u64) -> Option<u16>;
    /// Writes it; false if it cannot be written.
    fn store(&mut self, address: u64, value: u16) -> bool;
}

/// Why a semaphore was not changed; none of the enabling's were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SemaphoreError {
    /// Not in memory that can be written now.
    #[error("the semaphore at {0:#x} is not in writable memory")]
    NotThere(u64),
    /// It is as high as it can be.
    #[error("the semaphore at {0:#x} is 65535 already")]
    Full(u64),
}

/// What has been raised, so that no more is lowered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Semaphores {
    raised: BTreeMap<u64, u16>,
}

impl Semaphores {
    /// A probe is enabled whose sites have these semaphores: each distinct one is raised by 1.
    ///
    /// # Errors
    /// The first that cannot be raised; none is then.
    pub fn enable(
        &mut self,
        addresses: impl IntoIterator<Item = u64>,
        memory: &mut dyn Words,
    ) -> Result<(), SemaphoreError> {
        let distinct: BTreeSet<u64> = addresses.into_iter().collect();
        let mut done = Vec::new();
        for address in distinct {
            let outcome = match memory.load(address) {
                None => Err(SemaphoreError::NotThere(address)),
                Some(value) => match value.checked_add(1) {
                    None => Err(SemaphoreError::Full(address)),
                    Some(value) if memory.store(address, value) => Ok(()),
                    Some(_) => Err(SemaphoreError::NotThere(address)),
                },
            };
            if let Err(error) = outcome {
                self.disable(done, memory);
                return Err(error);
            }
            *self.raised.entry(address).or_default() += 1;
            done.push(address);
        }
        Ok(())
    }

    /// The probe is disabled: each distinct semaphore that was raised is lowered by 1. Memory that has gone is left; a
    /// program that has lowered it itself keeps its 0.
    pub fn disable(&mut self, addresses: impl IntoIterator<Item = u64>, memory: &mut dyn Words) {
        for address in addresses.into_iter().collect::<BTreeSet<u64>>() {
            let Some(raised) = self.raised.get_mut(&address) else { continue };
            *raised -= 1;
            if *raised == 0 {
                self.raised.remove(&address);
            }
            if let Some(value) = memory.load(address) {
                memory.store(address, value.saturating_sub(1));
            }
        }
    }

    /// By how much the semaphore at an address is raised.
    pub fn raised(&self, address: u64) -> u16 {
        self.raised.get(&address).copied().unwrap_or_default()
    }
}

/// Which probes are enabled, and so which is-enabled sites are armed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    enabled: BTreeMap<(String, String), u32>,
}

impl Questions {
    /// A probe is enabled: the sites that are to be armed now, none if it was enabled already.
    pub fn enable<'a>(&mut self, provider: &str, name: &str, sites: &'a CallSites) -> Vec<&'a CallSite> {
        let count = self.enabled.entry((provider.to_owned(), name.to_owned())).or_default();
        *count += 1;
        if *count == 1 { asking(provider, name, sites) } else { Vec::new() }
    }

    /// It is disabled: the sites that are to be disarmed now, none while it is enabled once more.
    pub fn disable<'a>(&mut self, provider: &str, name: &str, sites: &'a CallSites) -> Vec<&'a CallSite> {
        let key = (provider.to_owned(), name.to_owned());
        let Some(count) = self.enabled.get_mut(&key) else { return Vec::new() };
        *count -= 1;
        if *count > 0 {
            return Vec::new();
        }
        self.enabled.remove(&key);
        asking(provider, name, sites)
    }
}

fn asking<'a>(provider: &str, name: &str, sites: &'a CallSites) -> Vec<&'a CallSite> {
    let asks = |site: &&CallSite| {
        site.purpose == Purpose::IsEnabled && site.provider == provider && site.name == name
    };
    sites.sites.iter().filter(asks).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    impl Words for BTreeMap<u64, u16> {
        fn load(&mut self, address: u64) -> Option<u16> {
            self.get(&address).copied()
        }

        fn store(&mut self, address: u64, value: u16) -> bool {
            self.get_mut(&address).is_some_and(|word| {
                *word = value;
                true
            })
        }
    }

    #[test]
    fn a_semaphore_is_1_then_0_however_many_sites_share_it() {
        let mut memory = BTreeMap::from([(0x10, 0), (0x12, 7)]);
        let mut semaphores = Semaphores::default();
        semaphores.enable([0x10, 0x10, 0x12, 0x10], &mut memory).unwrap();
        assert_eq!(memory, BTreeMap::from([(0x10, 1), (0x12, 8)]));
        semaphores.enable([0x10], &mut memory).unwrap();
        assert_eq!((memory[&0x10], semaphores.raised(0x10)), (2, 2));
        semaphores.disable([0x10, 0x12, 0x12], &mut memory);
        semaphores.disable([0x10], &mut memory);
        // What is not raised is not lowered.
        semaphores.disable([0x10, 0x12], &mut memory);
        assert_eq!(memory, BTreeMap::from([(0x10, 0), (0x12, 7)]));
        assert_eq!(semaphores, Semaphores::default());
    }

    #[test]
    fn an_enabling_that_fails_leaves_every_semaphore_as_it_was() {
        let mut memory = BTreeMap::from([(0x10, 3), (0x20, u16::MAX)]);
        let before = memory.clone();
        let mut semaphores = Semaphores::default();
        let full = semaphores.enable([0x10, 0x20], &mut memory).unwrap_err();
        assert_eq!(full.to_string(), "the semaphore at 0x20 is 65535 already");
        let gone = semaphores.enable([0x10, 0x30], &mut memory).unwrap_err();
        assert_eq!(gone.to_string(), "the semaphore at 0x30 is not in writable memory");
        assert_eq!((memory, semaphores), (before, Semaphores::default()));
    }

    #[test]
    fn a_program_that_lowers_its_semaphore_itself_keeps_0() {
        let mut memory = BTreeMap::from([(0x10, 0)]);
        let mut semaphores = Semaphores::default();
        semaphores.enable([0x10], &mut memory).unwrap();
        memory.insert(0x10, 0);
        semaphores.disable([0x10], &mut memory);
        assert_eq!(memory[&0x10], 0);
    }
}
