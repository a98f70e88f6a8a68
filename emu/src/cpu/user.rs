//! User contexts: what the CPU held when each task last left ring 3.
//!
//! The man page's `u` registers are those of "the current process context just before it switched to kernel mode". The
//! machine sees every such switch (IDT delivery, SYSENTER, SYSCALL), so it notes the registers then, keyed by the
//! ring-0 entry stack of the TSS. In most small systems each task has its own. Tasks that share one, as those of Linux do,
//! share a note: it is of the task that entered ring 0 last. A handler may change a context: the task finds the changed
//! registers when it is next in ring 3, whatever its kernel restored there.

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

/// All of them, shared with snapshots.
pub(crate) type UserContexts = Arc<BTreeMap<u64, UserContext>>;

impl Cpu {
    /// Notes the current registers as the user context of the task that enters ring 0 on stack `key`.
    pub(crate) fn note_user_context(&mut self, ip: u64) {
        // Writes still pending although the task is back in ring 3: its first fetch faulted, so no block began.
        self.write_user_registers();
        self.user_exit_epoch += 1;
        let key = self.entry_stack();
        let e = *self.env;
        let context = UserContext {
            gpr: std::array::from_fn(|i| e.gpr(i)),
            ip,
            flags: self.eflags(),
            selectors: SEGS.map(|s| e.seg(s).selector as u16),
            bases: [e.seg(Seg::Fs).base, e.seg(Seg::Gs).base],
            written: 0,
        };
        let map = Arc::make_mut(&mut self.user_contexts);
        if map.len() >= MAX_CONTEXTS && !map.contains_key(&key) {
            map.pop_first();
        }
        map.insert(key, context);
    }

    /// Changes general register `n` of the current task's user context; whether it has one. In ring 3 the CPU's own
    /// registers are to be written instead.
    pub fn set_user_gpr(&mut self, n: usize, value: u64) -> bool {
        self.change_user_context(|c| {
            c.gpr[n] = value;
            c.written |= 1 << n;
        })
    }

    /// Changes a selector of the current task's user context; whether it has one.
    pub fn set_user_selector(&mut self, seg: Seg, value: u16) -> bool {
        self.change_user_context(|c| {
            c.selectors[seg as usize] = value;
            c.written |= 1 << (16 + seg as usize);
        })
    }

    fn change_user_context(&mut self, change: impl FnOnce(&mut UserContext)) -> bool {
        let key = self.entry_stack();
        let Some(context) = Arc::make_mut(&mut self.user_contexts).get_mut(&key) else { return false };
        change(context);
        self.user_writes = true;
        // The block hook looks at every block until they are written.
        self.hot.clock.limit = 0;
        true
    }

    /// In ring 3 again: writes what handlers have changed of this task's context.
    #[inline(always)]
    pub(crate) fn write_user_registers(&mut self) {
        if self.user_writes && self.env.cpl() == 3 {
            self.write_noted_registers();
        }
    }

    #[cold]
    fn write_noted_registers(&mut self) {
        let key = self.entry_stack();
        let contexts = Arc::make_mut(&mut self.user_contexts);
        let Some(context) = contexts.get_mut(&key) else { return };
        let (written, c) = (std::mem::take(&mut context.written), *context);
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
