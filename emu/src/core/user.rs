//! User contexts: what the CPU held when each task last left ring 3.
//!
//! The man page's `u` registers are those of "the current process context just before it switched to kernel
//! mode". The machine sees every such switch (IDT delivery, SYSENTER, SYSCALL), so it notes the registers then,
//! keyed by the ring-0 entry stack of the TSS, which tells tasks apart in any guest that gives each task a
//! kernel stack.

use super::Core;
use crate::engine::Seg;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Contexts kept; past this the lowest key goes first. A guest with more live kernel stacks is not expected.
const MAX_CONTEXTS: usize = 4096;

/// Registers at the last departure from ring 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// All of them, shared with snapshots.
pub(super) type UserContexts = Arc<BTreeMap<u64, UserContext>>;

impl Core {
    /// Notes the current registers as the user context of the task that enters ring 0 on stack `key`.
    pub(super) fn note_user_context(&mut self, ip: u64) {
        let key = self.entry_stack();
        let e = self.env;
        let segs = [Seg::Es, Seg::Cs, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs];
        let context = UserContext {
            gpr: std::array::from_fn(|i| e.gpr(i)),
            ip,
            flags: self.eflags(),
            selectors: segs.map(|s| e.seg(s).selector as u16),
            bases: [e.seg(Seg::Fs).base, e.seg(Seg::Gs).base],
        };
        let map = Arc::make_mut(&mut self.user_contexts);
        if map.len() >= MAX_CONTEXTS && !map.contains_key(&key) {
            map.pop_first();
        }
        map.insert(key, context);
    }

    /// Ring-0 stack pointer of the current TSS; 0 when there is none.
    fn entry_stack(&self) -> u64 {
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
