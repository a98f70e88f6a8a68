//! Instructions that the machine takes over from the engine, because they keep accessing what the engine must not: pages
//! with a watched byte, and devices.
//!
//! Each such access ends the run of the engine, and then the instruction is stepped alone. Where that has happened to an
//! instruction a few times, its block is translated anew with a stand-in for it, and the hook for exceptions executes it
//! (`cpu/execute.rs`). If it then makes no such access for long, the engine gets it back.
//!
//! The guest cannot observe it, and no result depends on which instructions are taken over.

use super::stand_in::is_executed_in_hook;
use super::{Core, Halt};
use crate::cpu::Cpu;
use crate::cpu::execute::is_executable;
use crate::cpu::flags::TF;
use crate::isa::decode::LONGEST;
use crate::ram::PAGE;
use crate::ram::PageState;
use iced_x86::Instruction;
use std::collections::BTreeMap;

/// Refused accesses of an instruction until it is taken over: only then is a new translation worth its time.
const REFUSED: u16 = 4;
/// Executions in a row that the engine could have done, until it gets the instruction back.
const NOT_NEEDED: u16 = 1000;
/// Most instructions that are known. Past this they are counted anew.
const MOST: usize = 4096;

/// An instruction that was refused an access, or that an INT3 has stood for.
#[derive(Debug, Default)]
struct Known {
    /// Its accesses that the engine was refused.
    refused: u16,
    /// Executions since the last that the engine could not have done.
    not_needed: u16,
    /// The instruction as it was executed last.
    decoded: Option<Decoded>,
}

/// A decoded instruction, and what it was decoded from.
#[derive(Debug)]
struct Decoded {
    found: StoodFor,
    bits: u32,
    bytes: [u8; LONGEST],
}

/// An instruction that an INT3 stands for.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoodFor {
    pub instruction: Instruction,
    /// Its physical address.
    paddr: u64,
    /// Whether it is one of those that are taken over.
    pub is_executable: bool,
    /// Whether it is one of those that the hook for exceptions always executes.
    pub in_hook: bool,
}

impl StoodFor {
    fn new(instruction: Instruction, paddr: u64) -> Self {
        let is_executable = is_executable(&instruction);
        StoodFor { instruction, paddr, is_executable, in_hook: is_executed_in_hook(&instruction) }
    }
}

impl Decoded {
    /// The instruction, if it is still the one at EIP, which is at `paddr`.
    fn at(&self, cpu: &Cpu, paddr: u64) -> Option<StoodFor> {
        let mut bytes = [0; LONGEST];
        let instruction = &self.found.instruction;
        let length = instruction.len();
        let same = instruction.ip() == cpu.env.eip()
            && self.bits == cpu.code_bits()
            && cpu.ram.read(paddr, bytes.get_mut(..length)?)
            && bytes == self.bytes;
        same.then_some(self.found)
    }
}

/// The instructions that were refused an access or that an INT3 has stood for, by physical address.
#[derive(Debug, Default)]
pub(crate) struct TakenOver {
    known: BTreeMap<u64, Known>,
    /// Those that the engine gets back.
    given_back: Vec<u64>,
}

impl TakenOver {
    fn has(&self, paddr: u64) -> bool {
        self.known.get(&paddr).is_some_and(|known| known.refused >= REFUSED)
    }
}

impl Core {
    /// An access of the instruction at EIP was refused because the engine must not make it. To be called in a settled
    /// state.
    pub(super) fn note_refused(&mut self) {
        let linear = self.cpu.linear_ip();
        let Some(paddr) = self.cpu.code_paddr(linear).filter(|_| self.makes_stand_ins()) else { return };
        let known = self.known(paddr);
        known.refused = known.refused.saturating_add(1);
        if known.refused == REFUSED {
            self.blocks.forget_analysis(linear, linear);
        }
    }

    /// Whether the instruction `i` at linear `at` is taken over.
    pub(super) fn is_taken_over(&self, i: &Instruction, at: u64) -> bool {
        !self.taken_over.known.is_empty()
            && is_executable(i)
            && self.cpu.code_paddr(at).is_some_and(|paddr| self.taken_over.has(paddr))
    }

    /// The instruction at EIP, which an INT3 stands for. It is decoded once.
    pub(super) fn stood_for(&mut self) -> Option<StoodFor> {
        let linear = self.cpu.linear_ip();
        let paddr = self.cpu.code_paddr(linear)?;
        let known = self.taken_over.known.get(&paddr).and_then(|known| known.decoded.as_ref());
        if let Some(found) = known.and_then(|decoded| decoded.at(&self.cpu, paddr)) {
            return Some(found);
        }
        let instruction = self.cpu.decode_original(linear)?;
        let found = StoodFor::new(instruction, paddr);
        if linear % PAGE + instruction.len() as u64 <= PAGE {
            let mut bytes = [0; LONGEST];
            let read = self.cpu.ram.read(paddr, bytes.get_mut(..instruction.len())?);
            let decoded = Decoded { found, bits: self.cpu.code_bits(), bytes };
            self.known(paddr).decoded = read.then_some(decoded);
        }
        Some(found)
    }

    /// Executes it, at EIP; false if that is not possible, and nothing has happened.
    pub(super) fn execute_found(&mut self, found: &StoodFor) -> bool {
        if found.is_executable {
            return self.makes_stand_ins() && self.execute_at(&found.instruction, Some(found.paddr));
        }
        found.in_hook && self.execute_by_machine(&found.instruction)
    }

    fn known(&mut self, paddr: u64) -> &mut Known {
        if self.taken_over.known.len() >= MOST {
            self.taken_over.known.clear();
        }
        self.taken_over.known.entry(paddr).or_default()
    }

    /// Executes the instruction at EIP without the engine; false if that is not possible, and nothing has happened.
    pub(super) fn execute_taken_over(&mut self, i: &Instruction) -> bool {
        if !is_executable(i) || !self.makes_stand_ins() {
            return false;
        }
        let paddr = self.cpu.code_paddr(self.cpu.linear_ip());
        self.execute_at(i, paddr)
    }

    fn execute_at(&mut self, i: &Instruction, paddr: Option<u64>) -> bool {
        let tf = self.cpu.env.eflags_raw() & TF != 0;
        let (outcome, device) = match self.cpu.execute(i, &mut self.watches) {
            Ok(None) => return false,
            Ok(Some(executed)) => (Ok(executed.done), executed.device),
            Err(fault) => (Err(fault), false),
        };
        let needed = self.watches.take_reached() || device;
        self.end_own(i, outcome, tf);
        if device {
            self.follow_devices();
        }
        if let Some(paddr) = paddr {
            self.note_needed(paddr, needed);
        }
        true
    }

    fn note_needed(&mut self, paddr: u64, needed: bool) {
        let known = self.taken_over.known.get_mut(&paddr).filter(|known| known.refused >= REFUSED);
        let Some(known) = known else { return };
        known.not_needed = if needed { 0 } else { known.not_needed + 1 };
        if known.not_needed >= NOT_NEEDED {
            self.taken_over.known.remove(&paddr);
            self.taken_over.given_back.push(paddr);
            self.halt.get_or_insert(Halt::Finished);
        }
    }

    /// Drops the translations with stand-ins for instructions that the engine gets back. To be called between blocks.
    #[inline]
    pub(super) fn give_back(&mut self) {
        if !self.taken_over.given_back.is_empty() {
            self.drop_given_back();
        }
    }

    #[cold]
    fn drop_given_back(&mut self) {
        for paddr in std::mem::take(&mut self.taken_over.given_back) {
            let page = self.cpu.ram.page_at(paddr);
            let armed = page.is_some_and(|page| page.is(PageState::ARMED));
            self.cpu.drop_code_blocks(paddr, armed);
        }
    }
}
