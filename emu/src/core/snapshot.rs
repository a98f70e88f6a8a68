//! Snapshots of the whole machine.
//!
//! A snapshot holds the CPU, the devices, the clock, the architectural TLB and a full set of RAM pages shared
//! with the snapshot before it. Pages written since are known, so taking and restoring cost in proportion to
//! what changed. Probes are not part of it: what is armed stays armed.

use super::{Core, Mode};
use crate::clock::Clock;
use crate::mmu::TlbImage;
use crate::platform::Platform;
use crate::ram::{PAGE, PageState};
use std::sync::Arc;

/// A saved state of a machine. It can be restored into that machine only.
#[derive(Clone)]
pub struct Snapshot {
    id: u64,
    cpu: Vec<u8>,
    clock: Clock,
    platform: Platform,
    console_len: usize,
    tlb: TlbImage,
    /// Content of RAM: one entry a page, `None` for all zero. Shared between snapshots.
    pages: Vec<Option<Arc<[u8]>>>,
    halted: bool,
    nmi: (bool, bool),
    tsc_offset: u64,
    user_contexts: super::user::UserContexts,
    ram_size: u64,
}

/// A snapshot does not fit the machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot is of a machine with {snapshot} bytes of memory; this one has {machine}")]
pub struct SnapshotMismatch {
    /// RAM of the snapshot, bytes.
    pub snapshot: u64,
    /// RAM of the machine, bytes.
    pub machine: u64,
}

impl Core {
    /// Saves the machine. `base`, if given and the newest of this machine, lends the pages not written since.
    pub(crate) fn snapshot(&mut self, base: Option<&Snapshot>) -> Snapshot {
        let relative = base.filter(|b| b.id == self.snapshot_id && b.ram_size == self.ram.size());
        let pages = match relative {
            Some(b) => {
                let mut pages = b.pages.clone();
                for &page in &self.ram.dirty {
                    pages[page as usize] = self.copy_page(page);
                }
                pages
            }
            None => (0..(self.ram.size() / PAGE) as u32).map(|p| self.copy_page(p)).collect(),
        };
        self.clean_pages();
        self.snapshot_counter += 1;
        self.snapshot_id = self.snapshot_counter;
        let mut cpu = Vec::new();
        self.env.save(&mut cpu);
        Snapshot {
            id: self.snapshot_id,
            cpu,
            clock: self.hot.clock,
            platform: self.platform.clone(),
            console_len: self.console.len(),
            tlb: self.tlb.save(),
            pages,
            halted: self.halted,
            nmi: (self.nmi_pending, self.nmi_blocked),
            tsc_offset: self.tsc_offset,
            user_contexts: self.user_contexts.clone(),
            ram_size: self.ram.size(),
        }
    }

    fn copy_page(&self, page: u32) -> Option<Arc<[u8]>> {
        let at = page as usize * PAGE as usize;
        let bytes = &self.ram.bytes()[at..at + PAGE as usize];
        bytes.iter().any(|&b| b != 0).then(|| Arc::from(bytes))
    }

    /// Starts a new dirty set: the engine must ask again before it writes any page.
    fn clean_pages(&mut self) {
        for page in self.ram.dirty.drain(..) {
            self.ram.pages[page as usize].flags &= !PageState::DIRTY;
        }
        self.engine.flush_tlb();
    }

    /// Goes back to a saved state.
    ///
    /// # Errors
    /// When the snapshot is of a machine with another amount of memory.
    pub(crate) fn restore(&mut self, s: &Snapshot) -> Result<(), SnapshotMismatch> {
        if s.ram_size != self.ram.size() {
            return Err(SnapshotMismatch { snapshot: s.ram_size, machine: self.ram.size() });
        }
        let relative = s.id == self.snapshot_id;
        if relative {
            let dirty = std::mem::take(&mut self.ram.dirty);
            for &page in &dirty {
                self.restore_page(page, s);
                self.ram.pages[page as usize].flags &= !PageState::DIRTY;
            }
            self.ram.dirty = dirty;
            self.ram.dirty.clear();
        } else {
            for page in 0..(self.ram.size() / PAGE) as u32 {
                self.restore_page(page, s);
            }
            self.clean_pages();
            self.snapshot_id = s.id;
        }
        self.restore_cpu(s);
        self.departures += 1;
        self.hot.clock = s.clock;
        self.platform.clone_from(&s.platform);
        self.console.truncate(s.console_len);
        if let Some(sent) = &mut self.sent {
            sent.clear();
        }
        self.tlb.restore(&s.tlb);
        self.halted = s.halted;
        (self.nmi_pending, self.nmi_blocked) = s.nmi;
        self.tsc_offset = s.tsc_offset;
        self.user_contexts.clone_from(&s.user_contexts);
        self.user_writes = self.user_contexts.values().any(|c| c.written != 0);
        self.hot.last = None;
        self.active_slot = None;
        self.tentative = None;
        self.mode = Mode::Free;
        self.creep_to = 0;
        self.engine.flush_tlb();
        Ok(())
    }

    /// The CPU state, and the watches that stand for its breakpoints.
    fn restore_cpu(&mut self, s: &Snapshot) {
        self.env.restore(&s.cpu);
        self.follow_debug_registers();
    }

    fn restore_page(&mut self, page: u32, s: &Snapshot) {
        const ZERO: [u8; PAGE as usize] = [0; PAGE as usize];
        let content = s.pages.get(page as usize).and_then(|p| p.as_deref()).unwrap_or(&ZERO);
        let state = self.ram.pages[page as usize];
        let at = page as usize * PAGE as usize;
        if state.is(PageState::CODE | PageState::BOTH | PageState::ARMED) {
            if self.ram.bytes()[at..at + PAGE as usize] == *content {
                return;
            }
            self.drop_page_blocks(page);
            if state.is(PageState::ARMED) {
                self.ram.pages[page as usize].flags |= PageState::STALE;
            }
        }
        self.ram.restore_page(page, content);
    }
}
