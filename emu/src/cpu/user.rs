//! User contexts: what the CPU held when each task last left ring 3.
//!
//! The man page's `u` registers are those of "the current process context just before it switched to kernel mode". The
//! machine sees every such switch (IDT delivery, SYSENTER, SYSCALL, far CALL, task switch), so it notes the registers then, keyed by the
//! ring-0 entry stack of the TSS. In most small systems each task has its own. Tasks that share one, as those of Linux do,
//! share a note: it is of the task that entered ring 0 last. A handler may change a context: the task finds the changed
//! registers when it is next in ring 3, whatever its kernel restored there. Where tasks share a stack, the interposer says
//! which task that is ([`TrapInterposer::user_task`](crate::TrapInterposer::user_task)), and its changes wait under that key.

use super::Cpu;
use crate::engine::Seg;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Contexts kept; past this the lowest key goes first. A guest with more live kernel stacks is not expected.
const MAX_CONTEXTS: usize = 4096;

/// Registers at the last departure from ring 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserContext {
    /// General registers in encoding order.
    pub gpr: [u64; 16],
    /// EIP of the next user instruction.
    pub ip: u64,
    /// EFLAGS.
    pub flags: u64,
    /// Selectors: ES, CS, SS, DS, FS, GS.
    pub selectors: [u16; 6],
    /// Bases of FS and GS.
    pub bases: [u64; 2],
    /// Registers that wait to be written at the return to ring 3: bit n is general register n, 16 + n is selector n.
    pub written: u32,
}

const SEGS: [Seg; 6] = [Seg::Es, Seg::Cs, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs];

impl UserContext {
    /// Changes general register `n`.
    pub fn set_gpr(&mut self, n: usize, value: u64) {
        if let Some(register) = self.gpr.get_mut(n) {
            *register = value;
            self.written |= 1 << n;
        }
    }

    /// Changes a selector.
    pub fn set_selector(&mut self, seg: Seg, value: u16) {
        if let Some(selector) = self.selectors.get_mut(seg as usize) {
            *selector = value;
            self.written |= 1 << (16 + seg as usize);
        }
    }

    /// These registers with the changes of `changed`.
    #[must_use]
    pub fn with_changes_of(mut self, changed: &Self) -> Self {
        for n in (0..16).filter(|n| changed.written & 1 << n != 0) {
            self.set_gpr(n, changed.gpr[n]);
        }
        for seg in SEGS.into_iter().filter(|seg| changed.written & 1 << (16 + *seg as usize) != 0) {
            self.set_selector(seg, changed.selectors[seg as usize]);
        }
        self
    }
}

/// All of them, shared with snapshots.
pub(crate) type UserContexts = Arc<BTreeMap<u64, UserContext>>;

impl Cpu {
    /// Notes the current registers as the user context of the task that enters ring 0 now.
    pub(crate) fn note_user_context(&mut self, ip: u64) {
        self.note_user_registers(self.user_registers(ip));
    }

    /// Notes the registers of the task that enters ring 0, under its entry stack.
    pub(crate) fn note_user_registers(&mut self, context: UserContext) {
        self.user_exit_epoch += 1;
        let key = self.entry_stack();
        self.user_context_of(key, context);
    }

    /// The current registers, with this instruction pointer.
    pub(crate) fn user_registers(&self, ip: u64) -> UserContext {
        let e = *self.env;
        UserContext {
            gpr: std::array::from_fn(|i| e.gpr(i)),
            ip,
            flags: self.eflags(),
            selectors: SEGS.map(|s| e.seg(s).selector as u16),
            bases: [e.seg(Seg::Fs).base, e.seg(Seg::Gs).base],
            written: 0,
        }
    }

    /// The context under a key, which begins as `new`.
    fn user_context_of(&mut self, key: u64, new: UserContext) -> &mut UserContext {
        let map = Arc::make_mut(&mut self.user_contexts);
        if map.len() >= MAX_CONTEXTS && !map.contains_key(&key) {
            map.pop_first();
        }
        map.entry(key).insert_entry(new).into_mut()
    }

    /// Has a task find the changed registers of `changed` when it is next in ring 3. `key` is that of the task, or its
    /// entry stack.
    pub fn set_user_context(&mut self, key: u64, changed: UserContext) {
        self.user_context_of(key, changed);
        self.user_writes = true;
        // The block hook looks at every block until they are written.
        self.hot.clock.limit = 0;
    }

    /// What waits for a task until it is next in ring 3.
    pub fn changed_user_context(&self, key: u64) -> Option<&UserContext> {
        let waits = |context: &&UserContext| context.written != 0;
        self.user_contexts.get(&key).filter(waits)
    }

    /// In ring 3, in the task with this key: writes what handlers have changed of its context.
    pub(crate) fn write_user_registers(&mut self, key: u64) {
        let is_note = key == self.entry_stack();
        let contexts = Arc::make_mut(&mut self.user_contexts);
        let Some(context) = contexts.get_mut(&key) else { return };
        let (written, c) = (std::mem::take(&mut context.written), *context);
        if !is_note {
            contexts.remove(&key);
        }
        self.user_writes = contexts.values().any(|c| c.written != 0);
        (0..16).filter(|n| written & 1 << n != 0).for_each(|n| self.env.set_gpr(n, c.gpr[n]));
        for (n, seg) in SEGS.into_iter().enumerate() {
            if written & 1 << (16 + n) != 0 {
                self.load_selector(seg, c.selectors[n]);
            }
        }
    }

    /// Ring-0 stack pointer of the current TSS; 0 when there is none.
    pub fn entry_stack(&self) -> u64 {
        let tr = self.env.tr();
        let (offset, size) = if self.env.long_mode() { (4, 8) } else { (4, 4) };
        let mut bytes = [0u8; 8];
        match self.peek(self.wrap_linear(tr.base.wrapping_add(offset)), &mut bytes[..size]) {
            Ok(()) => u64::from_le_bytes(bytes),
            Err(_) => 0,
        }
    }

    /// The user context of the current task; `None` for kernel threads and early boot. In ring 3 the CPU's own
    /// registers are the user context, and this is not asked.
    pub fn user_context(&self) -> Option<&UserContext> {
        self.user_contexts.get(&self.entry_stack())
    }
}
