//! Returns through tail calls.
//!
//! A function that ends by a jump to another one returns when that returns, or whatever that has jumped to. Its return
//! probe therefore waits: after the jump the return address is on top of the stack, and the instruction there, in the
//! caller, is armed. When that is reached with the stack pointer above the return address, the function has returned,
//! on whatever path, and the value is in its register. Functions that have jumped to each other have one return address;
//! the last one returns first.
//!
//! Nothing of this is in the guest. A function that never returns stays here until its place on the stack is seen to
//! be another's: another thread's, or that of a call that returns elsewhere. Where no known instruction begins at the
//! return address, the probe fires at the jump, without a value.

use super::Interposer;
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use serde::{Deserialize, Serialize};
use trapline_emu::{Access, Core, PAGE, Trap};
use trapline_os::Birth;

/// The most functions that are awaited. Past this the oldest is dropped: usually its task has ended.
const MOST: usize = 4096;

/// A function that another one will return for.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Leaving {
    probe: u32,
    /// Offset in CS of the jump.
    ip: u64,
    /// Linear addresses: where the return address lies, and the return address.
    slot: u64,
    back: u64,
    /// The thread, by its descriptor and its birth, where threads are known.
    thread: Option<(u64, Birth)>,
}

/// All of them, the latest last.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct TailCalls {
    list: Vec<Leaving>,
    /// Whether one of them has returned, and its handlers run.
    #[serde(skip)]
    pub returning: bool,
}

impl TailCalls {
    fn add(&mut self, leaving: Leaving) {
        // A place on the stack holds one return address.
        self.list.retain(|other| other.slot != leaving.slot || other.back == leaving.back);
        if self.list.len() >= MOST {
            self.list.remove(0);
        }
        self.list.push(leaving);
    }

    /// Takes out those that return to an address with this place on the stack, the latest first. Those of a thread that has
    /// ended are dropped.
    fn take(&mut self, slot: u64, back: u64, thread: Option<(u64, Birth)>) -> Vec<Leaving> {
        let here = |leaving: &mut Leaving| leaving.slot == slot && leaving.back == back;
        let mut found: Vec<Leaving> = self.list.extract_if(.., here).collect();
        found.reverse();
        let same = |leaving: &Leaving| {
            let both = leaving.thread.zip(thread);
            both.is_none_or(|((task, then), (now, birth))| task == now && birth.continues(then))
        };
        found.retain(same);
        found
    }

    /// Whether their number is possible, and each has one of so many probes.
    pub fn is_sound(&self, probes: usize) -> bool {
        self.list.len() <= MOST && self.list.iter().all(|leaving| (leaving.probe as usize) < probes)
    }

    /// Drops those of a disabled probe.
    pub fn forget_probe(&mut self, probe: u32) {
        self.list.retain(|leaving| leaving.probe != probe);
    }
}

/// Bytes of a return address.
fn word(core: &Core) -> u64 {
    if core.env().code64() { 8 } else { 4 }
}

/// An interrupt between the return and the next instruction has overwritten the return address, which handlers look for to
/// find the caller. Puts it there again; returns the physical address, and the bytes to put back.
fn uncover(core: &mut Core, slot: u64, back: u64) -> Option<(u64, [u8; 8])> {
    let word = word(core);
    if core.peek_word(slot, word == 8) == Ok(back) || !slot.is_multiple_of(word) {
        return None;
    }
    let paddr = core.peek_translate(slot, Access::Read, false)?.paddr + slot % PAGE;
    let mut bytes = [0; 8];
    let before = bytes.get_mut(..word as usize)?;
    let own = back.to_le_bytes();
    (core.ram().read(paddr, before) && core.write_ram(paddr, own.get(..word as usize)?))
        .then_some((paddr, bytes))
}

impl Interposer {
    /// The descriptor and the birth of the current thread.
    fn current_thread(&self, core: &Core) -> Option<(u64, Birth)> {
        let profile = self.profile.as_deref()?;
        let task = profile.current_task(core);
        Some((task, profile.birth(core, task)))
    }

    /// A function has jumped to another one: its return is awaited.
    ///
    /// A kernel patches such jumps: to a return, where a static call does nothing, and to NOPs, with which the function goes on.
    pub(super) fn leave_later(&mut self, core: &mut Core, probe: u32, ip: u64) {
        let Some(site) = self.sites.get(self.hit.site) else { return };
        let bits = if core.env().code64() { 64 } else { 32 };
        match Decoder::new(bits, &site.original, DecoderOptions::NONE).decode().flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {}
            FlowControl::Return => return self.fire_returned(core, probe, ip),
            _ => return,
        }
        match self.await_return(core, probe) {
            Some((slot, back)) => {
                let thread = self.current_thread(core);
                self.tail_calls.add(Leaving { probe, ip, slot, back, thread });
            }
            None => self.hit_without_site(core, probe, Some(ip), None),
        }
    }

    /// Arms the return address on top of the stack; returns where it lies, and the address.
    fn await_return(&mut self, core: &mut Core, probe: u32) -> Option<(u64, u64)> {
        let slot = core.wrap_linear(core.stack().linear(core.env().gpr(4)));
        let back = core.peek_word(slot, word(core) == 8).ok()?;
        let back = core.wrap_linear(core.env().cs_base().wrapping_add(back));
        let page = core.peek_translate(back, Access::Fetch, false)?;
        let paddr = page.paddr + back % PAGE;
        if !self.sites.at(paddr).is_some_and(|(_, site)| site.awaited) {
            let arguments = self.inserted.probes.get(probe as usize)?.arguments.clone()?;
            arguments.later().filter(|later| later.is_code(core, back))?;
            self.sites.wait_at(core, paddr).ok()?;
        }
        Some((slot, back))
    }

    /// Fires the probe of a function that has just returned to EIP, with the processor as it would have returned itself.
    fn fire_returned(&mut self, core: &mut Core, probe: u32, from: u64) {
        let (sp, ip, word) = (core.env().gpr(4), core.env().eip(), word(core));
        let before = sp.wrapping_sub(word);
        core.env().set_gpr(4, before);
        core.env().set_eip(from);
        let slot = core.wrap_linear(core.stack().linear(before));
        let covered = uncover(core, slot, ip);
        self.tail_calls.returning = true;
        self.hit_without_site(core, probe, Some(from), None);
        self.tail_calls.returning = false;
        if let Some((paddr, bytes)) = covered {
            core.write_ram(paddr, bytes.get(..word as usize).unwrap_or_default());
        }
        core.env().set_eip(ip);
        // A handler may have moved the stack pointer.
        let moved = core.env().gpr(4).wrapping_sub(before);
        core.env().set_gpr(4, sp.wrapping_add(moved));
    }

    /// A trap in a function that others may have to return to: fires the probes of those that have just returned. Returns
    /// whether the trap is for nothing else.
    #[cold]
    pub(super) fn returned_to(&mut self, core: &mut Core, trap: &Trap) -> bool {
        let before = core.env().gpr(4).wrapping_sub(word(core));
        let slot = core.wrap_linear(core.stack().linear(before));
        let any = self.tail_calls.list.iter().any(|one| (one.slot, one.back) == (slot, trap.linear));
        let thread = if any { self.current_thread(core) } else { None };
        let found = if any { self.tail_calls.take(slot, trap.linear, thread) } else { Vec::new() };
        for Leaving { probe, ip, .. } in found {
            self.fire_returned(core, probe, ip);
        }
        // No record so far depends on the instruction here: it may fault.
        self.recorder.channels.begin_hit();
        self.sites.probes_at(trap.patch as usize).is_empty()
    }
}
