//! Snapshots: the state of a machine as data that can be kept, shared and stored.
//!
//! A snapshot holds everything that the guest can observe and what else the machine needs to continue exactly. It holds
//! no host state: no pointer, no translation, no patch. Patches, watches and displaced instructions belong to the
//! interposer, which has its own state. Pages are shared between snapshots.
//!
//! `run/snapshot.rs` takes them from a machine and puts them back.

mod archive;
mod console;
mod cpu;
mod identity;
mod pages;
mod store;
mod stored;

pub use archive::{Archive, ArchiveError};
pub(crate) use console::SavedConsole;
pub(crate) use cpu::Kept;
pub use cpu::{CpuState, MsrState, SegmentState, X87State};
pub use identity::{MachineIdentity, SnapshotMismatch};
pub(crate) use pages::PageTable;
pub use stored::StoredError;

use crate::cpu::UserContext;
use crate::digest::Digest;
use crate::mmu::TlbImage;
use crate::phys_mem::PhysMem;
use crate::platform::Platform;
use crate::ram::PAGE;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

/// The machine without its RAM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MachineState {
    pub cpu: CpuState,
    /// Retired instructions.
    pub icount: u64,
    /// Virtual nanoseconds that HLT has skipped.
    pub skipped: u64,
    /// Of these, the nanoseconds skipped since the last instruction.
    pub idle_ns: u64,
    pub tlb: TlbImage,
    pub platform: Platform,
    pub user_contexts: Arc<BTreeMap<u64, UserContext>>,
    /// Whether 32-bit code may call stubs: the guest may hold the address of one.
    pub narrow_stubs: bool,
    pub console: SavedConsole,
    /// Pages from which code has been fetched since they were last written, a bit each. The guest cannot observe them;
    /// the interposer is told when a page becomes one.
    pub code: Arc<Vec<u64>>,
}

#[derive(Debug)]
struct Parts {
    identity: Arc<MachineIdentity>,
    state: MachineState,
    pages: PageTable,
    new_pages: u64,
    /// The digest of the devices, once it is asked for.
    devices: OnceLock<Digest>,
}

/// A saved state of a machine, between two of its instructions. A clone shares all of it.
///
/// It can be restored into any machine of the same [`MachineIdentity`].
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Parts>);

impl Snapshot {
    /// `new_pages` is the number of pages that were stored for it.
    pub(crate) fn new(
        identity: Arc<MachineIdentity>,
        state: MachineState,
        pages: PageTable,
        new_pages: u64,
    ) -> Self {
        Snapshot(Arc::new(Parts { identity, state, pages, new_pages, devices: OnceLock::new() }))
    }

    pub(crate) fn state(&self) -> &MachineState {
        &self.0.state
    }

    /// The digest of the devices, which is made once.
    pub(crate) fn devices(&self, digest: impl FnOnce(&Platform) -> Digest) -> Digest {
        *self.0.devices.get_or_init(|| digest(&self.0.state.platform))
    }

    pub(crate) fn pages(&self) -> &PageTable {
        &self.0.pages
    }

    /// The identity of its machine.
    pub fn identity(&self) -> &MachineIdentity {
        &self.0.identity
    }

    /// Instructions that had retired when it was taken.
    pub fn icount(&self) -> u64 {
        self.0.state.icount
    }

    /// Virtual time at which it was taken, ns.
    pub fn virtual_ns(&self) -> u64 {
        self.0.state.icount + self.0.state.skipped
    }

    /// The state of the CPU.
    pub fn cpu(&self) -> &CpuState {
        &self.0.state.cpu
    }

    /// Bytes of console text.
    pub fn console_len(&self) -> usize {
        self.0.state.console.len()
    }

    /// Bytes of the pages that it holds, those that it shares with other snapshots included.
    pub fn bytes(&self) -> u64 {
        self.0.pages.stored().count() as u64 * PAGE
    }

    /// Bytes of the pages that were stored when it was taken, and that no earlier snapshot of the machine shares.
    pub fn new_bytes(&self) -> u64 {
        self.0.new_pages * PAGE
    }

    /// Bytes of its pages that it does not share with `other`, a snapshot of the same machine.
    pub fn bytes_beyond(&self, other: &Snapshot) -> u64 {
        self.0.pages.pages_beyond(&other.0.pages) * PAGE
    }

    /// Bytes of its pages that it shares with neither of two other snapshots of the same machine.
    pub fn bytes_beyond_both(&self, one: &Snapshot, other: &Snapshot) -> u64 {
        self.0.pages.pages_beyond_both(&one.0.pages, &other.0.pages) * PAGE
    }

    /// Bytes of the pages of all these snapshots together; a page that several of them share counts once. It is fast if those
    /// that follow each other share most pages.
    pub fn bytes_of_all<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> u64 {
        let (mut seen, mut before) = (HashSet::new(), None);
        let bytes = |snapshot: &'a Snapshot| {
            let pages = &snapshot.0.pages;
            pages.bytes_beyond(before.replace(pages), &mut seen)
        };
        snapshots.into_iter().map(bytes).sum()
    }
}

impl PhysMem for Snapshot {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        let size = u64::from(self.pages().len()) * PAGE;
        if paddr.checked_add(to.len() as u64).is_none_or(|end| end > size) {
            return false;
        }
        let mut at = paddr;
        let mut rest = to;
        while !rest.is_empty() {
            let within = (at % PAGE) as usize;
            let (part, after) = rest.split_at_mut(rest.len().min(PAGE as usize - within));
            match self.pages().get((at / PAGE) as u32) {
                Some(page) => part.copy_from_slice(&page[within..within + part.len()]),
                None => part.fill(0),
            }
            at += part.len() as u64;
            rest = after;
        }
        true
    }
}
