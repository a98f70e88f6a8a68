//! Taking snapshots of the machine, and going back to them.
//!
//! The machine remembers the pages of the snapshot that it last took or went back to, and which pages were written
//! since. So taking one costs what was written, and restoring one what differs. Probes are not part of it: what is
//! armed stays armed.

use crate::ram::{PAGE, PageState};
use crate::run::{Core, Mode};
use crate::snapshot::{MachineState, PageTable, Snapshot, SnapshotMismatch};
use std::sync::Arc;

impl Core {
    /// Saves the machine.
    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let written = std::mem::take(&mut self.ram.dirty);
        for &page in &written {
            let at = page as usize * PAGE as usize;
            self.saved_pages.set(page, &self.ram.bytes()[at..at + PAGE as usize]);
        }
        let new_pages = written.len() as u64;
        self.clean_pages(written);
        self.saved_console = self.saved_console.grown_to(&self.console);
        let state = MachineState {
            cpu: self.cpu_state(),
            icount: self.hot.clock.icount,
            skipped: self.hot.clock.skipped,
            idle_ns: self.idle_ns,
            tlb: self.tlb.save(),
            platform: self.platform.clone(),
            user_contexts: self.user_contexts.clone(),
            narrow_stubs: self.narrow_stubs,
            console: self.saved_console.clone(),
        };
        Snapshot::new(self.identity.clone(), state, self.saved_pages.clone(), new_pages)
    }

    /// Starts a new set of written pages, with the memory of the last: the engine must ask again before it writes any page.
    fn clean_pages(&mut self, mut written: Vec<u32>) {
        for page in written.drain(..) {
            self.ram.pages[page as usize].flags &= !PageState::DIRTY;
        }
        self.ram.dirty = written;
        self.engine.protect_writes();
    }

    /// Goes back, or forward, to a saved state.
    ///
    /// # Errors
    /// When the snapshot is of another machine.
    pub(crate) fn restore(&mut self, s: &Snapshot) -> Result<(), SnapshotMismatch> {
        s.identity().check(&self.identity)?;
        if !s.state().platform.has_devices_of(&self.platform) {
            return Err(SnapshotMismatch::of_devices());
        }
        self.restore_pages(s.pages());
        let state = s.state();
        self.restore_cpu(state);
        self.departures += 1;
        self.hot.clock.icount = state.icount;
        self.hot.clock.skipped = state.skipped;
        self.idle_ns = state.idle_ns;
        self.platform.restore(&state.platform);
        state.console.copy_to(&mut self.console);
        self.saved_console = state.console.clone();
        if let Some(sent) = &mut self.sent {
            sent.clear();
        }
        self.tlb.restore(&state.tlb);
        self.user_contexts.clone_from(&state.user_contexts);
        self.user_writes = self.user_contexts.values().any(|c| c.written != 0);
        self.narrow_stubs = state.narrow_stubs;
        self.hot.last = None;
        self.active_slot = None;
        self.tentative = None;
        self.to_open = None;
        self.mode = Mode::Free;
        self.halt = None;
        self.verdict = None;
        self.creep_to = 0;
        self.engine.flush_tlb();
        Ok(())
    }

    /// The CPU state, and the watches that stand for its breakpoints.
    fn restore_cpu(&mut self, state: &MachineState) {
        let cpu = &state.cpu;
        cpu.write(&self.engine, *self.env);
        (self.halted, self.tsc_offset) = (cpu.halted, cpu.msr.tsc_offset);
        (self.nmi_pending, self.nmi_blocked) = (cpu.nmi_pending, cpu.nmi_blocked);
        self.follow_debug_registers();
    }

    /// Makes RAM what `to` holds: the pages that were written since the last snapshot, and those that differ from it.
    fn restore_pages(&mut self, to: &PageTable) {
        let mut written = std::mem::take(&mut self.ram.dirty);
        for page in written.drain(..) {
            self.restore_page(page, to);
            self.ram.pages[page as usize].flags &= !PageState::DIRTY;
        }
        self.ram.dirty = written;
        for page in self.saved_pages.differing(to) {
            self.restore_page(page, to);
        }
        self.saved_pages = to.clone();
    }

    fn restore_page(&mut self, page: u32, from: &PageTable) {
        const ZERO: [u8; PAGE as usize] = [0; PAGE as usize];
        let content = from.get(page).map_or(&ZERO[..], Arc::as_ref);
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
