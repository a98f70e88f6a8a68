//! Stand-ins: bytes that the engine translates in place of an instruction that is expensive to run as it is.
//!
//! - An instruction that the machine executes, such as IN, cuts its block: the engine returns before the block, runs what
//!   precedes the instruction as a block of its own, returns again, and a turn of the run loop executes it. With an INT3
//!   in its place the block ends there with an exception, and the hook for exceptions executes the instruction.
//! - The same goes for an instruction whose execution is watched: the hook reports it first.
//! - Some instructions must begin a block. A jump to itself in the place of one ends the block before it, and with the
//!   guest's bytes back in place it then begins the next.
//! - PAUSE is one of the first, but a NOP of two bytes stands for it, which is all that it is to the guest.
//!
//! When a block with such an instruction is about to run for the first time, it is translated anew, and for this one
//! translation the bytes that the engine reads are replaced. They are put back before any hook does anything, so RAM has
//! the guest's bytes as far as the guest, probes, snapshots and digests can see.
//!
//! Invariant: bytes are replaced only while the engine looks up and translates the block at EIP.

use super::Core;
use crate::blocks::{BlockCell, CellRef, Cut, Lead};
use crate::cpu::execute::is_executable;
use crate::cpu::flags::TF;
use crate::isa::decode::{self, Compared, Kind};
use crate::isa::mended::{Mended, Status, floats, mended};
use crate::ram::{PAGE, PageState, Ram};
use crate::run::Halt;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};

/// A NOP as long as PAUSE.
const NOP: [u8; 2] = [0x66, 0x90];
/// INT3.
const INT3: [u8; 1] = [0xcc];
/// A JMP to itself. No instruction that it stands for is shorter.
const JUMP: [u8; 2] = [0xeb, 0xfe];

/// Where blocks with stand-ins come from.
#[derive(Default)]
pub(crate) struct StandIns {
    /// The block that was just analysed, at this linear address, should be translated anew.
    wanted: Option<u64>,
    /// The block at this linear address is translated anew when the engine runs next.
    next: Option<u64>,
    /// The replaced bytes.
    open: Option<Replaced>,
    /// Whether none are made.
    off: bool,
    /// The block that was translated from replaced bytes, and how it ends.
    made: Option<(CellRef, Tail)>,
}

/// How a block with stand-ins ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// As the guest's.
    Own,
    /// With an INT3 in place of the instruction at this linear address.
    Trap(u64),
    /// With a jump to the instruction at this linear address, which begins the next block.
    Jump(u64),
}

/// The bytes of one instruction.
struct Part {
    /// Physical address.
    paddr: u64,
    /// The guest's; as many as stand for them count.
    original: [u8; NOP.len()],
    /// Those that stand for them.
    stand_in: &'static [u8],
}

/// Bytes of one page that are replaced for a translation.
struct Replaced {
    /// Linear address of the block.
    begin: u64,
    tail: Tail,
    bytes: Vec<Part>,
    /// Whether the page was armed when they were replaced.
    armed: bool,
}

impl Replaced {
    /// Puts the guest's bytes back.
    fn put_back(&self, ram: &mut Ram) {
        for part in &self.bytes {
            ram.write_code(part.paddr, &part.original[..part.stand_in.len()], self.armed);
        }
    }

    /// Replaces the guest's bytes.
    fn put(&self, ram: &mut Ram) {
        for part in &self.bytes {
            ram.write_code(part.paddr, part.stand_in, self.armed);
        }
    }
}

/// Whether the hook for exceptions can execute the instruction: the machine executes it without the engine's help, but for
/// some rare forms.
pub(super) fn is_executed_in_hook(i: &Instruction) -> bool {
    use Mnemonic as M;
    let ports =
        matches!(i.mnemonic(), M::In | M::Out | M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd);
    let control = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_cr());
    ports
        || control
        || decode::is_set_in_memory(i)
        || floats(i).is_some()
        || mended(i).is_some_and(|what| what != Mended::Status(Status::Moved))
        || decode::is_refused_mov(i)
        || i.mnemonic() == M::Neg
        || matches!(
            i.mnemonic(),
            M::Cpuid | M::Rdmsr | M::Invlpg | M::Syscall | M::Sysenter | M::Loope | M::Loopne
        )
}

/// Whether the hook for exceptions can execute the instruction where it is displaced, too: elsewhere its block need not end
/// for it.
fn is_executed_at_site(i: &Instruction) -> bool {
    is_executed_in_hook(i) || matches!(i.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Rdtscp)
}

/// Whether the instruction is a PAUSE that is as long as the NOP.
fn is_short_pause(i: &Instruction) -> bool {
    i.mnemonic() == Mnemonic::Pause && i.len() == NOP.len()
}

impl Core {
    /// Sets whether the engine may translate something else in place of port instructions, PAUSE and the like, which makes
    /// them fast. The guest cannot observe it.
    pub fn set_stand_ins(&mut self, on: bool) {
        self.stand_ins.off = !on;
    }

    /// Whether the engine may translate something else.
    pub(super) fn makes_stand_ins(&self) -> bool {
        !self.stand_ins.off
    }

    /// Whether the block that is analysed, `b`, should have a stand-in for `i`, its instruction number `n` at linear `at`.
    pub(super) fn wants_stand_in(&self, b: &BlockCell, i: &Instruction, (n, at): (u32, u64)) -> bool {
        let cut = b.lead() == Lead::Cut(Cut::Sensitive, n as u16);
        let begins = b.lead() == Lead::Cut(Cut::Begins, n as u16);
        (cut && (is_executed_in_hook(i) || is_short_pause(i)) || begins || self.is_taken_over(i, at))
            && !b.is(BlockCell::SITE | BlockCell::JUMP | BlockCell::SLOT | BlockCell::UNSUPPORTED)
    }

    /// Whether the block that is analysed, `b`, should have a stand-in for its instruction at linear `at`, whose execution
    /// is watched.
    pub(super) fn wants_watched_stand_in(&self, b: &BlockCell, at: u64) -> bool {
        !b.is(BlockCell::SITE | BlockCell::JUMP | BlockCell::SLOT | BlockCell::UNSUPPORTED)
            && self.decode_in(b, at).is_some_and(|i| self.is_reported_in_hook(&i, at))
    }

    /// Whether block `b`, which is analysed as `cell`, ends with an INT3 that stands for the instruction at linear `at`.
    pub(super) fn stands_in(&self, cell: CellRef, b: &BlockCell, at: u64) -> bool {
        let ends = b.pc().wrapping_add(b.size().into()) == at.wrapping_add(1);
        ends && (b.patch() == BlockCell::BY_MACHINE || self.stand_ins.made == Some((cell, Tail::Trap(at))))
    }

    /// Whether the block that is analysed as `cell` ends with a jump to the instruction at linear `at`.
    pub(super) fn ends_before(&self, cell: CellRef, at: u64) -> bool {
        self.stand_ins.made == Some((cell, Tail::Jump(at)))
    }

    /// Whether a NOP stands for the instruction `i` in the block that is analysed as `cell`.
    pub(super) fn nop_stands_for(&self, cell: CellRef, i: &Instruction) -> bool {
        is_short_pause(i) && self.stand_ins.made.is_some_and(|(made, _)| made == cell)
    }

    /// Notes that the block at linear `begin` was analysed, and whether it should be translated anew with stand-ins.
    pub(super) fn note_analysed(&mut self, cell: CellRef, begin: u64, wanted: bool) {
        let made = self.stand_ins.made.take().is_some_and(|(made, _)| made == cell);
        self.stand_ins.wanted = (wanted && !made && !self.stand_ins.off).then_some(begin);
    }

    /// Whether the block of `cell`, which is about to run, is to be translated anew first.
    pub(super) fn is_translated_anew(&mut self, b: &BlockCell) -> bool {
        if self.stand_ins.wanted.take() != Some(b.pc()) {
            return false;
        }
        let free = self.step.is_free() && self.halt.is_none() && self.replaceable(b.pc()).is_some();
        if free {
            self.halt = Some(Halt::Renew);
        }
        free
    }

    /// The block at EIP is translated anew when the engine runs next.
    pub(crate) fn translate_anew(&mut self) {
        self.stand_ins.next = Some(self.cpu.linear_ip());
    }

    /// The physical address of linear `begin`, if bytes of its page can be replaced, and whether the page is armed.
    /// Single-stepped code has a block for each instruction and gains nothing.
    fn replaceable(&self, begin: u64) -> Option<(u64, bool)> {
        let paddr = self.cpu.code_paddr(begin)?;
        let page = self.cpu.ram.page_at(paddr)?;
        let steps = self.cpu.env.eflags_raw() & TF != 0;
        let can = !page.is(PageState::STALE) && !steps && self.opening.is_none();
        can.then_some((paddr, page.is(PageState::ARMED)))
    }

    /// Replaces bytes for the block at EIP, if it is the one that is to be translated anew.
    pub(crate) fn replace_wanted(&mut self, capped: bool) {
        let begin = self.cpu.linear_ip();
        let Some(begin) = self.stand_ins.next.take().filter(|&at| at == begin && !capped) else { return };
        let Some((paddr, armed)) = self.replaceable(begin) else { return };
        let (bytes, tail) = self.stand_ins_from(begin, paddr);
        if bytes.is_empty() {
            return;
        }
        if !self.cpu.engine.drop_block(begin) {
            self.cpu.drop_code_blocks(paddr, armed);
        }
        let replaced = Replaced { begin, tail, bytes, armed };
        replaced.put(&mut self.cpu.ram);
        self.stand_ins.open = Some(replaced);
    }

    /// The bytes to be replaced in a block that begins at linear `begin`, physical `paddr`: those of each PAUSE before the
    /// first instruction that the machine executes or that must begin a block, and of that one. Nothing beyond a branch, a
    /// patch or the page.
    fn stand_ins_from(&self, begin: u64, paddr: u64) -> (Vec<Part>, Tail) {
        let (mut at, mut bytes, mut compared) = (begin, Vec::new(), Compared::default());
        while let Some(i) = self.cpu.decode_original(at) {
            let next = at.wrapping_add(i.len() as u64);
            let crosses = begin / PAGE != next.wrapping_sub(1) / PAGE;
            if crosses || self.patches_in(at, next) {
                break;
            }
            let here = paddr + (at - begin);
            let by_machine = self.cpu.kind(&i).by_machine() && !compared.keeps_flags(&i);
            let in_hook = by_machine && is_executed_in_hook(&i);
            if in_hook || self.is_taken_over(&i, at) || self.is_reported_in_hook(&i, at) {
                bytes.extend(self.replacement(here, &INT3));
                return (bytes, Tail::Trap(at));
            }
            if at != begin && self.must_begin(&i, at, compared) {
                bytes.extend(self.replacement(here, &JUMP));
                return (bytes, Tail::Jump(at));
            }
            let pause = is_short_pause(&i);
            if pause {
                bytes.extend(self.replacement(here, &NOP));
            }
            let ends = i.flow_control() != FlowControl::Next;
            if ends || !pause && by_machine && decode::kind(&i) != Kind::Clock {
                break;
            }
            compared = compared.after(&i);
            at = next;
        }
        (bytes, Tail::Own)
    }

    /// The bytes `stand_in` for those at `paddr`.
    fn replacement(&self, paddr: u64, stand_in: &'static [u8]) -> Option<Part> {
        let mut original = [0; NOP.len()];
        let read = self.cpu.ram.read(paddr, &mut original[..stand_in.len()]);
        read.then_some(Part { paddr, original, stand_in })
    }

    /// Puts the guest's bytes back. To be called before anything but the engine's translator can read them. `made` is the
    /// block that has been translated meanwhile, at this linear address.
    #[inline]
    pub(crate) fn put_back(&mut self, made: Option<(CellRef, u64)>) {
        if self.stand_ins.open.is_some() {
            self.put_back_replaced(made);
        }
    }

    #[cold]
    fn put_back_replaced(&mut self, made: Option<(CellRef, u64)>) {
        let Some(replaced) = self.stand_ins.open.take() else { return };
        replaced.put_back(&mut self.cpu.ram);
        self.stand_ins.made = match made {
            Some((cell, pc)) if pc == replaced.begin => Some((cell, replaced.tail)),
            _ => None,
        };
    }

    /// Does what a hook does during a translation, with the guest's own bytes in RAM.
    #[inline]
    pub(crate) fn with_own_bytes<T>(&mut self, act: impl FnOnce(&mut Core) -> T) -> T {
        if self.stand_ins.open.is_none() { act(self) } else { self.with_replaced_put_back(act) }
    }

    #[cold]
    fn with_replaced_put_back<T>(&mut self, act: impl FnOnce(&mut Core) -> T) -> T {
        let replaced = self.stand_ins.open.take();
        replaced.iter().for_each(|replaced| replaced.put_back(&mut self.cpu.ram));
        let result = act(self);
        let begin = self.cpu.linear_ip();
        self.stand_ins.open = replaced
            .filter(|replaced| self.replaceable(begin).is_some_and(|(_, armed)| armed == replaced.armed));
        if let Some(replaced) = &self.stand_ins.open {
            replaced.put(&mut self.cpu.ram);
        }
        result
    }

    /// Whether the INT3 that ended the last block before linear `next` stood for an instruction of the machine's.
    pub(super) fn stood_in(&self, next: u64) -> bool {
        self.last().is_some_and(|b| {
            b.patch() == BlockCell::BY_MACHINE && b.pc().wrapping_add(b.size().into()) == next
        })
    }

    /// Executes the instruction at `ip` for which an INT3 has trapped. Called from the hook for exceptions.
    pub(super) fn execute_stood_for(&mut self, ip: u64) {
        self.cpu.env.set_eip(ip);
        // The INT3 was counted in its place.
        self.cpu.hot.clock.icount -= 1;
        self.cpu.hot.last = None;
        self.views.active = None;
        if self.watched_code(self.cpu.linear_ip()) {
            self.execute_watched_in_hook();
        } else if !self.stood_for().is_some_and(|found| self.execute_found(&found)) {
            // The guest may have changed the bytes after the first, which are not in the block.
            self.halt = Some(Halt::Cut(Cut::Sensitive, 0));
        }
        self.after_hook();
        if self.halt.is_none() {
            // As when a block begins: RDTSC need not search for its program counter.
            self.cpu.engine.sync_pc(false);
        }
    }

    /// Reports the execution of the instruction at EIP, which is watched, and executes it, or leaves that to the run loop.
    fn execute_watched_in_hook(&mut self) {
        let linear = self.cpu.linear_ip();
        let found = self.stood_for().filter(|_| !self.watches.breaks_at(linear));
        if !found.is_some_and(|found| found.in_hook || found.is_executable) {
            self.halt = Some(Halt::Cut(Cut::Watched, 0));
            return;
        }
        let before = self.cpu.hot.clock.icount;
        let waits = self.report_execution();
        // A handler may have changed the instruction.
        let Some(found) = self.stood_for().filter(|found| self.execute_found(found)) else {
            self.halt = Some(Halt::Reported(waits));
            return;
        };
        if waits {
            let unfinished = decode::repeats(&found.instruction) && self.cpu.linear_ip() == linear;
            self.tell_end(before, unfinished);
        }
    }

    /// Whether the execution of the instruction `i` at linear `at` is watched, and the hook for exceptions can report it: a
    /// breakpoint of the guest is for the run loop.
    fn is_reported_in_hook(&self, i: &Instruction, at: u64) -> bool {
        let by_machine = || is_executed_in_hook(i) && self.cpu.kind(i).by_machine();
        self.watched_code(at) && !self.watches.breaks_at(at) && (by_machine() || is_executable(i))
    }

    /// Executes the displaced instruction at EIP if that does not need the engine; else false, and nothing has happened.
    pub(super) fn execute_displaced_in_hook(&mut self, i: &Instruction) -> bool {
        if is_executed_at_site(i) { self.execute_by_machine(i) } else { self.execute_taken_over(i) }
    }

    pub(super) fn execute_by_machine(&mut self, i: &Instruction) -> bool {
        let inert = self.cpu.is_inert(i);
        let executed = self.makes_stand_ins() && self.execute_alone(i).is_none();
        if executed && !inert {
            self.follow_devices();
        }
        executed
    }

    /// After an instruction that may have changed devices: what is due next, or back to the run loop.
    pub(super) fn follow_devices(&mut self) {
        let now = self.cpu.hot.clock.now();
        let platform = &self.cpu.platform;
        let leaves = platform.dma_due(now)
            || platform.powered_off()
            || platform.exit_requested().is_some()
            || platform.reset_requested().is_some();
        if leaves {
            self.halt.get_or_insert(Halt::Finished);
        } else {
            self.set_next_due(now);
        }
    }
}
