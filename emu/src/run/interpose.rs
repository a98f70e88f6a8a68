//! The interposition interface: where a trap is offered before the guest's IDT sees it.
//!
//! This is the place where Solaris's `brktrap` and `invoptrap` jump to DTrace. The machine knows patches (bytes
//! that fetches see instead of the guest's), not probes: who patched, and why, is the interposer's business.

use crate::cpu::Fault;
use crate::run::Core;
use crate::run::watch_hit::WatchHit;
use crate::views::Slot;

/// A trap or fault about to be delivered to the guest.
#[derive(Debug, Clone, Copy)]
pub struct Trap {
    /// Vector, 3 (#BP) or 6 (#UD); 1 (#DB) for an instruction whose execution is watched.
    pub vector: u8,
    /// Offset in CS of the instruction that trapped.
    pub ip: u64,
    /// Linear address of that instruction.
    pub linear: u64,
    /// Identifier given to [`Core::arm`], when the trap came out of a patch at this very address; for vector 1 that
    /// given to [`Core::watch`]. Such a trap must be answered by [`Verdict::Step`] or [`Verdict::Declined`]; in either
    /// case the instruction runs.
    pub patch: u32,
    /// Whether nothing has trapped: the site begins a block that was translated without the patch, and which runs next.
    pub in_line: bool,
}

/// What became of an offered trap.
#[derive(Debug, Clone, Copy)]
pub enum Verdict {
    /// Not ours: the guest gets it.
    Declined,
    /// The displaced instruction was emulated: the state is that after it, EIP included.
    Resumed,
    /// The displaced instruction runs where it is, in its block: an answer to a trap that is [`Trap::in_line`], before any of
    /// it has happened. To all others it is what `Step` is.
    InLine,
    /// Run the displaced instruction from this slot; execution continues behind the site by itself. To a trap that is
    /// [`Trap::in_line`] it is what `Step` is.
    Slot(Slot),
    /// Step the displaced instruction in place, with the guest's bytes.
    Step,
    /// The displaced instruction, emulated, raised this fault; nothing of it has happened.
    Raise(Fault),
}

/// Sees every trap before the guest does: those out of its patches with what it needs to displace an instruction,
/// all others to handle or decline.
pub trait TrapInterposer {
    /// A patch was hit. The state is that before the displaced instruction, with EIP at the site.
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict;

    /// Any other exception or software interrupt, before the guest's IDT sees it: the guest's own INT3, #PF, INT n.
    /// EIP is what the frame would hold, and `at` the instruction. True means handled: the guest does not get it, and
    /// goes on from the state that the interposer has left. Everything is declined unless this is overridden.
    fn exception(&mut self, core: &mut Core, vector: u8, at: u64) -> bool {
        let _ = (core, vector, at);
        false
    }

    /// IRET, SYSRET or another far transfer has completed: the state is that after it, at the instruction that it leads to.
    fn returned(&mut self, core: &mut Core) {
        let _ = core;
    }

    /// An external interrupt or NMI is about to be delivered at this boundary. The interposer cannot decline it.
    fn interrupting(&mut self, core: &mut Core) {
        let _ = core;
    }

    /// The guest has arrived at a stub ([`Core::stub`]), as a rule by a call: EIP is the stub's address, the return
    /// address is on top of the stack. Resumed means that the state is that after a near `ret`. Any other verdict but
    /// `Raise` is a fault of the guest's own: nothing is there.
    fn stub(&mut self, core: &mut Core, number: u32) -> Verdict {
        let _ = (core, number);
        Verdict::Declined
    }

    /// An instruction has accessed a watched range ([`Core::watch`]). The state is that after it; a repeated string
    /// instruction is told of after each iteration that did.
    fn watched(&mut self, core: &mut Core, hit: &WatchHit) {
        let _ = (core, hit);
    }

    /// A displaced instruction that was given a slot, runs in line or was stepped did not complete: it faulted. Completion
    /// is reported for stepped ones alone: for others the next `trap` or [`TrapInterposer::settled`] implies it.
    fn faulted(&mut self, core: &mut Core);

    /// A displaced string instruction with a repeat prefix, which was given a slot or stepped, was interrupted between
    /// two iterations: it has not completed, and its patch will be hit again for the rest of it.
    fn interrupted(&mut self, core: &mut Core);

    /// The machine stopped between instructions: whatever was displaced has completed.
    fn settled(&mut self, core: &mut Core);

    /// The guest rewrote bytes of an armed physical page; patches have been re-applied over the new content.
    fn page_rewritten(&mut self, core: &mut Core, paddr: u64);

    /// Code is fetched for the first time from a physical page; only called when
    /// [`TrapInterposer::wants_code_pages`] holds. Arming there takes effect before the fetch.
    fn code_page(&mut self, core: &mut Core, paddr: u64);

    /// Whether [`TrapInterposer::code_page`] is wanted.
    fn wants_code_pages(&self) -> bool;

    /// User code is about to run from the linear page `page`, which is the physical page `paddr`, for the first time since
    /// the guest last flushed that translation: as a rule since it switched to this address space. Only called when
    /// [`TrapInterposer::wants_user_code`] holds, perhaps more than once. A fault is given to the guest in place of the
    /// instruction, with nothing executed; when the guest comes back, the page is told of again.
    fn user_code(&mut self, core: &mut Core, page: u64, paddr: u64) -> Option<Fault> {
        let _ = (core, page, paddr);
        None
    }

    /// Whether [`TrapInterposer::user_code`] is wanted. Before it is for the first time, and whenever what was told of is to
    /// be told of again, [`Core::announce_user_code_again`] must be called.
    fn wants_user_code(&self) -> bool {
        false
    }
}
