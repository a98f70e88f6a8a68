//! System calls of the process that is debugged, for gdb's `catch syscall`: which ones gdb wants, where they enter the kernel,
//! and which ones are under way.
//!
//! A call is met where the kernel begins, and shown in the state before, in which its instruction is about to be executed. It
//! ends where its thread runs in user mode again: behind the call, in a handler of a signal, or in another program.

use std::collections::{BTreeMap, BTreeSet};

use trapline_emu::{Core, Moment};

/// The interrupt of Linux's 32-bit system calls.
const VECTOR: u64 = 0x80;
/// SYSCALL, SYSENTER and `int 0x80`.
const INSTRUCTIONS: [[u8; 2]; 3] = [[0x0f, 0x05], [0x0f, 0x34], [0xcd, 0x80]];

/// The calls that gdb wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// All.
    All,
    /// Those with these numbers.
    These(BTreeSet<u64>),
}

impl Wanted {
    /// Whether it wants the call with this number.
    pub fn has(&self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::These(numbers) => numbers.contains(&number),
        }
    }
}

/// A call whose instruction is about to be executed, of which gdb was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// The moment at which the kernel begins.
    pub enters: Moment,
}

/// The system calls of the process, and which of them stop it.
#[derive(Debug, Default)]
pub struct Calls {
    /// Those that gdb wants, if it wants any.
    pub wanted: Option<Wanted>,
    /// The call of which gdb was told last.
    pub told: Option<Told>,
    /// The calls under way that gdb wants: their numbers, by those of their threads.
    pub under_way: BTreeMap<u32, u64>,
    /// The moment at which this holds.
    at: Option<Moment>,
}

impl Calls {
    /// The run goes on from here: what was noted somewhere else does not hold. Only what `continues` to the next stop sees
    /// all calls on its way.
    pub fn begin(&mut self, here: Moment, continues: bool) {
        if self.at != Some(here) || !continues {
            self.told = None;
            self.under_way.clear();
        }
    }

    /// The run has stopped here.
    pub fn end(&mut self, here: Moment) {
        self.at = Some(here);
    }
}

/// The number of the call that the kernel begins with.
pub fn number(core: &Core) -> u64 {
    // The kernel takes 32 bits of it.
    core.env().gpr(0) & 0xffff_ffff
}

/// Whether the next instruction is a system call.
pub fn is_call(core: &Core) -> bool {
    let mut bytes = [0; 2];
    core.peek(core.linear_ip(), &mut bytes).is_ok() && INSTRUCTIONS.contains(&bytes)
}

/// The addresses at which system calls enter the kernel.
pub fn entries(core: &Core) -> Vec<u64> {
    let env = core.env();
    let mut found = vec![env.sysenter_eip()];
    if env.long_mode() {
        found.push(env.lstar());
    }
    found.extend(gate(core));
    found.retain(|address| *address != 0);
    found.sort_unstable();
    found.dedup();
    found
}

/// The address in the gate of [`VECTOR`].
fn gate(core: &Core) -> Option<u64> {
    let (env, mut bytes) = (core.env(), [0; 16]);
    let size = if env.long_mode() { 16 } else { 8 };
    let at = env.idt().base.wrapping_add(VECTOR * size as u64);
    core.peek(core.wrap_linear(at), bytes.get_mut(..size)?).ok()?;
    let [b0, b1, _, _, _, _, b6, b7, b8, b9, b10, b11, ..] = bytes;
    Some(u64::from_le_bytes([b0, b1, b6, b7, b8, b9, b10, b11]))
}
