//! The interposition interface: where a trap is offered before the guest's IDT sees it.
//!
//! This is the place where Solaris's `brktrap` and `invoptrap` jump to DTrace. The machine knows patches (bytes that
//! fetches see instead of the guest's), not probes; the purpose of a patch is known to the interposer alone.

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
    /// The identifier given to [`Core::arm`] for the patch at this address that has trapped; for vector 1 the one given
    /// to [`Core::watch`]. Such a trap must be answered by [`Verdict::Step`] or [`Verdict::Declined`]; in either case
    /// the instruction runs.
    pub patch: u32,
    /// Whether this is a hit in line, without a trap: the site begins a block that was translated without the patch and
    /// runs next.
    pub in_line: bool,
}

/// The interposer's answer to an offered trap.
#[derive(Debug, Clone, Copy)]
pub enum Verdict {
    /// The trap is the guest's own and is delivered to it.
    Declined,
    /// The displaced instruction was emulated: the state is that after it, EIP included.
    Resumed,
    /// The displaced instruction runs in place, in its block: for a trap with [`Trap::in_line`]. For all others it
    /// means `Step`.
    InLine,
    /// Run the displaced instruction from this slot; execution continues after the site by itself. For a trap with
    /// [`Trap::in_line`] it means `Step`.
    Slot(Slot),
    /// Step the displaced instruction in place, with the guest's bytes.
    Step,
    /// Emulating the displaced instruction raised this fault; the instruction has had no effect.
    Raise(Fault),
}

/// Sees every trap before the guest does: for traps of its patches it answers how the displaced instruction runs; all
/// others it handles or declines.
pub trait TrapInterposer {
    /// A patch was hit. The state is that before the displaced instruction, with EIP at the site.
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict;

    /// Any other exception or software interrupt, before the guest's IDT sees it: the guest's own INT3, #PF, INT n. EIP
    /// is the value that the frame would hold, and `at` the address of the instruction. True means handled: the event
    /// is not delivered, and the guest continues from the state that the interposer has left. The default declines
    /// everything.
    fn exception(&mut self, core: &mut Core, vector: u8, at: u64) -> bool {
        let _ = (core, vector, at);
        false
    }

    /// IRET, SYSRET, SYSEXIT or another far transfer has completed: the state is that after it, at the instruction that it leads to.
    fn returned(&mut self, core: &mut Core) {
        let _ = core;
    }

    /// What tells the current task from all others that enter ring 0 on the same stack; `None` where each has one of its
    /// own. Asked only while a changed user context waits for a task.
    fn user_task(&self, core: &Core) -> Option<u64> {
        let _ = core;
        None
    }

    /// An external interrupt or NMI is about to be delivered at this boundary. The interposer cannot decline it.
    fn interrupting(&mut self, core: &mut Core) {
        let _ = core;
    }

    /// The guest has arrived at a stub ([`Core::stub`]), as a rule by a call: EIP is the stub's address, the return
    /// address is on top of the stack. Resumed means that the state is that after a near `ret`. Any other verdict but
    /// `Raise` gives the guest the fault of a fetch without memory.
    fn stub(&mut self, core: &mut Core, number: u32) -> Verdict {
        let _ = (core, number);
        Verdict::Declined
    }

    /// An instruction has accessed a watched range ([`Core::watch`]). The state is that after it; a repeated string
    /// instruction is reported after each iteration with such an access.
    fn watched(&mut self, core: &mut Core, hit: &WatchHit) {
        let _ = (core, hit);
    }

    /// The delivery of an exception or interrupt has stored into a watched range ([`Core::watch`]): its frame, or the accessed
    /// bit of a descriptor. The state is that after it.
    fn delivered(&mut self, core: &mut Core, hit: &WatchHit) {
        let _ = (core, hit);
    }

    /// A displaced instruction that runs in a slot, in line or stepped has faulted instead of completing. Completion is
    /// reported for stepped instructions alone; for others the next `trap` or [`TrapInterposer::settled`] implies it.
    fn faulted(&mut self, core: &mut Core) {
        let _ = core;
    }

    /// A displaced string instruction with a repeat prefix, which was given a slot or stepped, was interrupted between
    /// two iterations: it has not completed, and its patch will be hit again for the rest of it.
    fn interrupted(&mut self, core: &mut Core) {
        let _ = core;
    }

    /// The machine stopped between instructions: any displaced instruction has completed.
    fn settled(&mut self, core: &mut Core) {
        let _ = core;
    }

    /// Whether something waits for the reader of what the interposer leaves, or is due before the instruction count `until`. The
    /// run pauses then ([`Core::pause_for`]). [`TrapInterposer::settled`] follows.
    fn waits(&self, until: u64) -> bool {
        let _ = until;
        false
    }

    /// The guest rewrote bytes of an armed physical page; patches have been re-applied over the new content.
    fn page_rewritten(&mut self, core: &mut Core, paddr: u64) {
        let _ = (core, paddr);
    }

    /// Code is fetched for the first time from a physical page; only called when
    /// [`TrapInterposer::wants_code_pages`] holds. Arming there takes effect before the fetch.
    fn code_page(&mut self, core: &mut Core, paddr: u64) {
        let _ = (core, paddr);
    }

    /// Whether [`TrapInterposer::code_page`] is wanted.
    fn wants_code_pages(&self) -> bool {
        false
    }

    /// User code is about to run from the linear page `page`, mapped to the physical page `paddr`, for the first time
    /// since the guest last flushed that translation: usually since it switched to this address space. Only called when
    /// [`TrapInterposer::wants_user_code`] holds, perhaps more than once. A returned fault is delivered to the guest in
    /// place of the instruction, which is not executed; when the guest returns to it, the page is announced again.
    fn user_code(&mut self, core: &mut Core, page: u64, paddr: u64) -> Option<Fault> {
        let _ = (core, page, paddr);
        None
    }

    /// Whether [`TrapInterposer::block`] is wanted. It is asked once, when a run begins.
    fn wants_blocks(&self) -> bool {
        false
    }

    /// A block of the guest's code is about to run from linear `at`; only called when [`TrapInterposer::wants_blocks`] holds,
    /// and then for every block, which makes a run slower. `whole` is false where the machine advances by single
    /// instructions, as before an event. Where blocks are cut depends on the engine, and a block that does not begin after
    /// all is told again. The interposer may end the run here ([`Core::finish`]): the block does not run then.
    fn block(&mut self, core: &mut Core, at: u64, whole: bool) {
        let _ = (core, at, whole);
    }

    /// Whether [`TrapInterposer::user_code`] is wanted. [`Core::announce_user_code_again`] must be called before this
    /// first returns true, and whenever pages are to be announced again.
    fn wants_user_code(&self) -> bool {
        false
    }
}
