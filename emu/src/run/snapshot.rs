//! Taking and restoring snapshots of the machine.
//!
//! The machine remembers the pages of the snapshot that it last took or restored, and which pages were written since.
//! So taking a snapshot costs the pages written, and restoring one the pages that differ. Probes are not part of a
//! snapshot: armed patches stay armed.

use crate::digest::{StagedDigest, StateHasher};
use crate::platform::Platform;
use crate::ram::{PAGE, PageState};
use crate::run::Core;
use crate::snapshot::{CpuState, Kept, MachineState, PageTable, Snapshot, SnapshotMismatch};
use std::hash::Hasher;
use std::sync::Arc;

impl Core {
    /// The state of the CPU, between two instructions.
    pub fn cpu_state(&self) -> CpuState {
        let cpu = &self.cpu;
        let kept = Kept {
            tsc_offset: cpu.tsc_offset,
            halted: cpu.halted,
            nmi_pending: cpu.nmi_pending,
            nmi_blocked: cpu.nmi_blocked,
        };
        CpuState::read(*cpu.env, cpu.eflags(), kept)
    }

    /// Feeds the CPU's state and the clock to a hasher.
    pub(crate) fn hash_cpu(&self, h: &mut impl Hasher) {
        let clock = &self.cpu.hot.clock;
        self.cpu_state().hash([clock.icount, clock.skipped], h);
    }

    /// The digest in stages. It costs the pages that were written since the last call.
    pub(crate) fn staged_digest(&mut self) -> StagedDigest {
        let stage = |feed: &dyn Fn(&mut StateHasher)| {
            let mut h = StateHasher::default();
            feed(&mut h);
            h.finish128()
        };
        let registers = stage(&|h| self.hash_cpu(h));
        let devices = stage(&|h| self.cpu.platform.hash_state(h));
        let written = self.cpu.ram.take_unhashed();
        if !written.is_empty() {
            // The engine must ask again before it writes any page.
            self.cpu.engine.protect_writes();
        }
        let memory = self.page_hashes.update(self.cpu.ram.bytes(), &written);
        StagedDigest { registers, devices, memory }
    }

    /// Saves the machine.
    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let written = std::mem::take(&mut self.cpu.ram.dirty);
        for &page in &written {
            let at = page as usize * PAGE as usize;
            self.saved_pages.set(page, &self.cpu.ram.bytes()[at..at + PAGE as usize]);
        }
        let new_pages = written.len() as u64;
        self.clean_pages(written);
        self.saved_console = self.saved_console.grown_to(&self.cpu.console.text);
        let state = MachineState {
            cpu: self.cpu_state(),
            icount: self.cpu.hot.clock.icount,
            skipped: self.cpu.hot.clock.skipped,
            idle_ns: self.idle_ns,
            tlb: self.cpu.tlb.save(),
            platform: self.cpu.platform.clone(),
            user_contexts: self.cpu.user_contexts.clone(),
            narrow_stubs: self.narrow_stubs,
            console: self.saved_console.clone(),
            code: self.cpu.ram.code().clone(),
        };
        Snapshot::new(self.identity.clone(), state, self.saved_pages.clone(), new_pages)
    }

    /// Starts a new set of written pages, with the memory of the last: the engine must ask again before it writes any page.
    fn clean_pages(&mut self, mut written: Vec<u32>) {
        for page in written.drain(..) {
            self.cpu.ram.pages[page as usize].flags &= !PageState::DIRTY;
        }
        self.cpu.ram.dirty = written;
        self.cpu.engine.protect_writes();
    }

    /// Restores a saved state, earlier or later than the current one.
    ///
    /// # Errors
    /// When the snapshot belongs to another machine.
    pub(crate) fn restore(&mut self, s: &Snapshot) -> Result<(), SnapshotMismatch> {
        s.identity().check(&self.identity)?;
        if !s.state().platform.has_devices_of(&self.cpu.platform) {
            return Err(SnapshotMismatch::of_devices());
        }
        self.restore_pages(s.pages());
        let state = s.state();
        self.restore_code(&state.code);
        self.load_cpu(&state.cpu);
        self.cpu.user_exit_epoch += 1;
        self.effort.jumps(self.cpu.hot.clock.icount, state.icount);
        self.cpu.hot.clock.icount = state.icount;
        self.cpu.hot.clock.skipped = state.skipped;
        self.idle_ns = state.idle_ns;
        self.cpu.platform.restore(&state.platform);
        state.console.copy_to(&mut self.cpu.console.text);
        self.saved_console = state.console.clone();
        if let Some(sent) = &mut self.cpu.console.sent {
            sent.clear();
        }
        self.cpu.tlb.restore(&state.tlb);
        self.cpu.user_contexts.clone_from(&state.user_contexts);
        self.cpu.user_writes = self.cpu.user_contexts.values().any(|c| c.written != 0);
        self.narrow_stubs = state.narrow_stubs;
        self.cpu.hot.last = None;
        self.views.active = None;
        self.tentative = None;
        self.to_open = None;
        self.step.free();
        self.halt = None;
        self.verdict = None;
        self.postponed = None;
        self.delivered = (0, 0);
        self.single_step_until = 0;
        self.cpu.engine.flush_tlb();
        Ok(())
    }

    /// Whether the machine is in a saved state, as far as the digest tells states apart. It costs the pages that were written
    /// since a snapshot was last taken or restored, and those in which that one and this one differ.
    pub(crate) fn is_in(&self, s: &Snapshot) -> bool {
        const ZERO: [u8; PAGE as usize] = [0; PAGE as usize];
        let clock = &self.cpu.hot.clock;
        let state = s.state();
        if (clock.icount, clock.skipped) != (state.icount, state.skipped) || self.cpu_state() != state.cpu {
            return false;
        }
        let devices = |platform: &Platform| {
            let mut h = StateHasher::default();
            platform.hash_state(&mut h);
            h.finish128()
        };
        let same = |page: &u32| {
            let at = *page as usize * PAGE as usize;
            self.cpu.ram.bytes()[at..at + PAGE as usize] == *s.pages().get(*page).unwrap_or(&ZERO)
        };
        self.cpu.ram.dirty.iter().all(same)
            && self.saved_pages.differing(s.pages()).iter().all(same)
            && devices(&self.cpu.platform) == s.devices(devices)
    }

    /// The CPU state, and the watches for its breakpoints.
    pub(crate) fn load_cpu(&mut self, cpu: &CpuState) {
        cpu.write(*self.cpu.env);
        (self.cpu.halted, self.cpu.tsc_offset) = (cpu.halted, cpu.msr.tsc_offset);
        (self.cpu.nmi_pending, self.cpu.nmi_blocked) = (cpu.nmi_pending, cpu.nmi_blocked);
        self.follow_debug_registers();
    }

    /// Restores RAM to `to`: copies the pages written since the last snapshot, and those in which the two snapshots
    /// differ.
    fn restore_pages(&mut self, to: &PageTable) {
        let mut written = std::mem::take(&mut self.cpu.ram.dirty);
        for page in written.drain(..) {
            self.restore_page(page, to);
            self.cpu.ram.pages[page as usize].flags &= !PageState::DIRTY;
        }
        self.cpu.ram.dirty = written;
        for page in self.saved_pages.differing(to) {
            self.restore_page(page, to);
        }
        self.saved_pages = to.clone();
    }

    /// Marks the pages `CODE` from which code had been fetched, so that all others are announced to the interposer
    /// ([`crate::TrapInterposer::code_page`]) as in the original run.
    fn restore_code(&mut self, code: &Arc<Vec<u64>>) {
        for page in self.cpu.ram.differing_code(code) {
            let state = self.cpu.ram.pages[page as usize];
            if state.is(PageState::CODE) {
                self.cpu.drop_page_blocks(page);
            }
            // The engine's TLB is emptied: nothing maps the page writable.
            self.cpu.ram.pages[page as usize].flags &= !(PageState::BOTH | PageState::WRITABLE);
            self.cpu.ram.set_code(page, !state.is(PageState::CODE));
        }
    }

    fn restore_page(&mut self, page: u32, from: &PageTable) {
        const ZERO: [u8; PAGE as usize] = [0; PAGE as usize];
        let content = from.get(page).unwrap_or(&ZERO);
        let state = self.cpu.ram.pages[page as usize];
        let at = page as usize * PAGE as usize;
        if state.is(PageState::CODE | PageState::BOTH | PageState::ARMED) {
            if self.cpu.ram.bytes()[at..at + PAGE as usize] == *content {
                return;
            }
            self.cpu.drop_page_blocks(page);
            if state.is(PageState::ARMED) {
                self.cpu.ram.pages[page as usize].flags |= PageState::STALE;
            }
        }
        self.cpu.ram.restore_page(page, content);
    }
}
