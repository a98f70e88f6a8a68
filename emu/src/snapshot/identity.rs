//! The identity of the machine that a snapshot belongs to.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What two machines must have in common for one to restore a snapshot of the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineIdentity {
    /// The CPU model.
    pub model: String,
    /// Guest RAM in bytes.
    pub ram: u64,
    /// The platform and its devices.
    pub platform: String,
    /// XXH3-128 of what was loaded: image, command line, modules, initial RAM disk. 0 before anything was loaded.
    pub loaded: u128,
}

/// The snapshot belongs to another machine than the one that is to restore it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot is of another machine: {what} is {snapshot} there and {machine} here")]
pub struct SnapshotMismatch {
    /// What differs.
    pub what: &'static str,
    /// The snapshot's.
    pub snapshot: String,
    /// The machine's.
    pub machine: String,
}

impl SnapshotMismatch {
    /// The identities are equal, but the devices differ.
    pub(crate) fn of_devices() -> Self {
        Self { what: "the set of devices", snapshot: "one".to_owned(), machine: "another".to_owned() }
    }
}

impl MachineIdentity {
    /// Whether a snapshot of the machine `self` fits `machine`.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, machine: &Self) -> Result<(), SnapshotMismatch> {
        let differ = |what, snapshot: &dyn fmt::Display, machine: &dyn fmt::Display| {
            Err(SnapshotMismatch { what, snapshot: snapshot.to_string(), machine: machine.to_string() })
        };
        if self.model != machine.model {
            return differ("the CPU model", &self.model, &machine.model);
        }
        if self.ram != machine.ram {
            return differ("the memory in bytes", &self.ram, &machine.ram);
        }
        if self.platform != machine.platform {
            return differ("the platform", &self.platform, &machine.platform);
        }
        if self.loaded != machine.loaded {
            let hex = |hash: u128| format!("{hash:032x}");
            return differ("the digest of image and files", &hex(self.loaded), &hex(machine.loaded));
        }
        Ok(())
    }
}
