//! The content of a dump.

use serde::{Deserialize, Serialize};
use trapline_emu::load::Width;
use trapline_emu::{Core, CpuState, PhysMem};

use crate::cpu;
use crate::mapped::Mapped;
use crate::notes::{self, Registers};
use crate::pages::OwnedPages;

/// What a dump contains beside the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineHead {
    /// Whether the kernel has 64 bits.
    pub wide: bool,
    /// Where the kernel's image is: a part of the memory, mapped at the addresses that its symbols have.
    pub kernel: Option<Mapped>,
    /// The memory, ascending and without overlaps.
    pub memory: Vec<Mapped>,
    /// The CPU's registers.
    pub registers: Registers,
    /// The rest of the CPU's state.
    pub cpu: CpuState,
    /// Process id of the current task, 0 if it is not known.
    pub pid: u32,
    /// The text with which a Linux kernel describes itself to readers of its dump, once it has made it.
    pub vmcoreinfo: Option<Vec<u8>>,
}

impl MachineHead {
    /// The state of a machine with this memory.
    pub fn of(
        core: &Core,
        width: Width,
        (kernel, memory): (Option<Mapped>, Vec<Mapped>),
        pid: u32,
        vmcoreinfo: Option<Vec<u8>>,
    ) -> Self {
        let wide = width == Width::Bits64;
        Self {
            wide,
            kernel,
            memory,
            registers: Registers::of_cpu(core),
            cpu: core.cpu_state(),
            pid,
            vmcoreinfo,
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.memory.iter().map(|range| range.size).sum()
    }

    pub(crate) fn notes(&self) -> Vec<u8> {
        notes::of_machine(
            &self.registers,
            cpu::note(&self.cpu),
            self.pid,
            self.vmcoreinfo.as_deref(),
            self.wide,
        )
    }

    /// A value of the kernel's description of itself, such as `OSRELEASE`.
    pub(crate) fn described(&self, name: &str) -> Option<String> {
        notes::described(self.vmcoreinfo.as_deref()?, name)
    }
}

/// The content of a dump: what a machine's kernel would leave if it crashed now.
pub struct Vmcore<'a> {
    /// Everything but the memory.
    pub head: MachineHead,
    /// The memory.
    pub memory: &'a dyn PhysMem,
}

/// The content of a dump that was taken while a machine ran, with its own copy of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashDump {
    /// Instructions that had retired.
    pub icount: u64,
    head: MachineHead,
    pages: OwnedPages,
}

impl CrashDump {
    /// Copies the memory of a dump.
    pub fn copy(vmcore: Vmcore<'_>, icount: u64) -> Self {
        let pages = OwnedPages::copy(vmcore.memory, &vmcore.head.memory);
        Self { icount, head: vmcore.head, pages }
    }

    /// Its content.
    pub fn vmcore(&self) -> Vmcore<'_> {
        Vmcore { head: self.head.clone(), memory: &self.pages }
    }
}
