//! The CPU: access to memory with the guest's rights, exceptions and interrupts through its IDT, the instructions that the
//! machine executes itself, control and debug registers.
//!
//! [`Cpu`] holds the registers and all that an instruction reaches: memory, devices, the console. It knows nothing of patches,
//! blocks and interposers.

pub(crate) mod access;
pub(crate) mod control;
pub(crate) mod cpuid;
pub(crate) mod debug;
pub(crate) mod deliver;
mod descriptor;
pub(crate) mod execute;
pub(crate) mod fault;
mod fetch;
pub(crate) mod flags;
mod mended;
pub(crate) mod operands;
pub(crate) mod outcome;
mod peek;
pub(crate) mod port_io;
mod ranges;
pub(crate) mod sensitive;
mod stack;
pub(crate) mod state;
pub(crate) mod strings;
pub(crate) mod task;
mod translations;
pub(crate) mod user;
mod x87;

pub use fault::{Fault, Vector};
pub use port_io::{SentByte, SerialPort};
pub(crate) use ranges::first_watched;
pub use ranges::{Watch, WatchKind};
pub use stack::StackShape;
pub use state::{BootState, CpuMode, CrashReport};
pub use user::UserContext;

use crate::blocks::HotBox;
use crate::engine::{Engine, Model, OwnEnv};
use crate::isa::decode::{self, Kind};
use crate::mmu::{Paging, Tlb, WIDEST};
use crate::platform::Platform;
use crate::ram::Ram;
use iced_x86::Instruction;
use port_io::Console;

/// The CPU, its memory and its devices.
pub(crate) struct Cpu {
    // First, so that it is dropped before what its hooks use.
    pub engine: Engine,
    /// The engine's state.
    pub env: OwnEnv,
    pub hot: HotBox,
    pub ram: Ram,
    pub tlb: Tlb,
    local_pages: control::LocalPages,
    pub platform: Platform,
    pub console: Console,
    pub model: Model,
    phys_bits: u32,
    pub halted: bool,
    /// While an event is delivered and data is watched: what the delivery has stored so far.
    pub stored: Option<Vec<deliver::Stored>>,
    /// Whether the interrupt line is asserted.
    pub irq: bool,
    pub nmi_pending: bool,
    pub nmi_blocked: bool,
    pub tsc_offset: u64,
    pub user_contexts: user::UserContexts,
    /// Whether a user context has register writes pending.
    pub user_writes: bool,
    /// Epoch, incremented on each exit from ring 3 and when a snapshot is restored.
    pub user_exit_epoch: u64,
    /// What is left to do after a hardware task switch.
    pub switched: Option<task::Switched>,
    /// Whether translations were dropped since this was last cleared.
    pub blocks_dropped: bool,
    /// Accesses to physical addresses with neither RAM nor a device.
    pub void_accesses: u64,
}

impl Cpu {
    /// A CPU on an engine, whose hooks use `hot` and whose memory is `ram`.
    pub fn new(model: Model, engine: Engine, hot: HotBox, ram: Ram, platform: Platform) -> Self {
        let env = engine.own_env();
        let phys_bits = match model {
            _ if ram.is_elsewhere() => WIDEST,
            Model::Ia32 => 36,
            Model::X86_64 => 40,
        };
        Cpu {
            engine,
            env,
            hot,
            ram,
            tlb: Tlb::default(),
            local_pages: control::LocalPages::default(),
            platform,
            console: Console::default(),
            model,
            phys_bits,
            halted: false,
            stored: None,
            irq: false,
            nmi_pending: false,
            nmi_blocked: false,
            tsc_offset: 0,
            user_contexts: user::UserContexts::default(),
            user_writes: false,
            user_exit_epoch: 0,
            switched: None,
            blocks_dropped: false,
            void_accesses: 0,
        }
    }

    /// How the machine treats an instruction now.
    pub fn kind(&self, i: &Instruction) -> Kind {
        if self.computes_exactly(i) { Kind::Sensitive } else { decode::kind(i) }
    }

    /// The registers that paging depends on.
    #[inline]
    pub fn paging(&self) -> Paging {
        Paging {
            cr0: self.env.cr(0),
            cr3: self.env.cr(3),
            cr4: self.env.cr(4),
            efer: self.env.efer(),
            phys_bits: self.phys_bits,
        }
    }

    /// EFLAGS with all flags materialised.
    pub fn eflags(&self) -> u64 {
        self.engine.eflags()
    }

    /// Samples the interrupt lines.
    pub fn update_irq(&mut self) {
        self.irq = self.platform.intr();
        self.nmi_pending |= self.platform.take_nmi();
    }

    /// Whether an interrupt can be taken at this boundary.
    #[inline]
    pub fn interruptible(&self) -> bool {
        if self.env.interrupt_shadow() {
            return false;
        }
        (self.nmi_pending && !self.nmi_blocked) || (self.irq && self.env.eflags_raw() & flags::IF != 0)
    }

    /// Whether CS has a base in 64-bit code, where it is ignored.
    pub fn has_cs_base(&self) -> bool {
        self.env.code64() && self.env.cs_base() != 0
    }

    /// Notes that the engine was given a translation of a linear page that is not global.
    #[inline]
    pub fn note_local_page(&mut self, page: u64) {
        self.local_pages.note(page);
    }
}
