//! The machine's state as hooks, interposers and the run loop see it.
//!
//! Hooks reach `Core` through a raw pointer while the engine runs; `publish` says who may hold what meanwhile.
//!
//! Here is what needs all parts of a machine: `hooks` (what the engine calls), `turns` (the run loop), `trap`, `in_line`, `stub` and
//! `watch` (what the interposer is asked), `fill` (linear pages to entries of the engine's TLB), `mmio` (accesses to devices).

mod fill;
mod hooks;
mod in_line;
pub(crate) mod interpose;
mod mmio;
pub(crate) mod publish;
mod snapshot;
mod stub;
mod trap;
pub(crate) mod turns;
pub(crate) mod watch;

pub use interpose::{Trap, TrapInterposer, Verdict};
pub use turns::Stop;
pub use watch::{WATCH_VALUE, Watch, WatchAccess, WatchHit, WatchKind};

use crate::blocks::cell::{CellArena, CellRef, HotBox};
use crate::cpu::deliver::Fault;
use crate::cpu::port_io::SentByte;
use crate::cpu::{control, user};
use crate::engine::{Callbacks, Engine, EngineError, Env, Exit, Model, OwnEnv, Seg};
use crate::mmu::{Access, Paging, Tlb};
use crate::platform::Platform;
use crate::ram::{PAGE, Ram, SLOT_PAGES};
use crate::snapshot::{MachineIdentity, PageTable, SavedConsole};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::Arc;

/// Physical address at which the shadow of RAM is mapped in the engine.
pub(crate) const SHADOW_BASE: u64 = 1 << 40;
/// Physical address of the slots in the engine.
pub(crate) const SLOT_PADDR: u64 = 1 << 41;
/// Physical address of the page that stands for everything that is neither RAM nor a device; the pages of devices that
/// an instruction may access now follow it.
pub(crate) const VOID_PADDR: u64 = 1 << 42;
/// Linear address of the slots: above 4 GiB, and not canonical, so that no guest has anything there. 64-bit code that
/// names it all the same finds them instead of #GP once a displaced instruction has run out of line.
pub(crate) const SLOT_VA: u64 = 0x5452_4150 << 32;

/// Whether a linear address, not yet cut to the code's size, is one of the slots'.
pub(crate) fn in_slots(linear: u64) -> bool {
    (SLOT_VA..SLOT_VA + SLOT_PAGES * PAGE).contains(&linear)
}

/// Linear page through which blocks of a physical page are dropped.
pub(crate) const DROP_VA: u64 = SLOT_VA + (1 << 32);

/// What translated code is being run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Until something needs the machine.
    Free,
    /// Exactly one block, capped at this many instructions.
    Step(u32),
    /// That block has begun.
    Stepped,
}

/// Why a hook stopped the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The next block would pass the deadline.
    Deadline,
    /// An interrupt can be delivered here.
    Interrupt,
    /// The next block holds, after this many instructions, one that the machine executes.
    Sensitive(u16),
    /// The next block holds, after this many instructions, one that a patch lies inside of.
    Overlapped(u16),
    /// The next block holds, after this many instructions, one whose execution is watched.
    Watched(u16),
    /// The mode is not supported.
    Unsupported,
    /// A displaced instruction must be stepped in place.
    StepSite,
    /// The block that comes is to be translated for hits in line.
    Open,
    /// The instruction that comes is a patch's jump to itself.
    Hit,
    /// The block that comes was translated for hits in line, which it cannot have.
    NotInLine,
    /// The run is over (see `Core::verdict`).
    Finished,
    /// The interposer has asked that the guest see this fault first.
    Fault(Fault),
}

/// An access that the fill hook refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A page fault with this error code.
    PageFault(u32),
    /// The address is not canonical.
    NonCanonical,
    /// The second page of a block is not known to be reached.
    SecondPage,
    /// A store into the page of the very instruction, which is armed.
    OwnPage,
    /// An access to a page with a watched byte.
    Watched,
    /// An access to a device.
    Device,
    /// An instruction fetch from where there is no memory.
    FetchVoid,
    /// An instruction fetch from a page of stubs.
    Stub,
}

/// The CPU, its memory and its devices.
///
/// It has no size: whoever is given a `&mut Core` can use it, and cannot put another in its place. Two cores that have
/// changed places would leave the engine running in a machine that may be dropped.
///
/// ```compile_fail,E0277
/// fn exchange(a: &mut trapline_emu::Core, b: &mut trapline_emu::Core) {
///     std::mem::swap(a, b);
/// }
/// ```
pub struct Core<Unsized: ?Sized = [()]> {
    // First, so that it is dropped before what its hooks use.
    pub(crate) engine: Engine,
    /// The engine's state.
    pub(crate) env: OwnEnv,
    pub(crate) hot: HotBox,
    pub(crate) ram: Ram,
    pub(crate) tlb: Tlb,
    pub(crate) local_pages: control::LocalPages,
    pub(crate) platform: Platform,
    pub(crate) console: Vec<u8>,
    /// What went out of the serial ports, while someone asks for it.
    pub(crate) sent: Option<Vec<SentByte>>,
    /// Texts whose appearance on the console ends the run.
    pub(crate) watched: Vec<Vec<u8>>,
    pub(crate) cells: CellArena,
    /// Cell that the next translation will take.
    pub(crate) next_cell: CellRef,
    pub(crate) mode: Mode,
    pub(crate) halt: Option<Halt>,
    pub(crate) refusal: Option<(Refusal, u64, Access)>,
    /// Linear page whose fetch is not yet architectural.
    pub(crate) tentative: Option<u64>,
    pub(crate) interposer: Option<publish::Lent>,
    /// What has panicked, and where: the machine does not run again.
    pub(crate) failure: Option<String>,
    pub(crate) watch_code_pages: bool,
    pub(crate) watch_user_code: bool,
    pub(crate) patches: BTreeMap<u32, Vec<crate::views::patch::Patch>>,
    /// Those of the pages of the instruction that is being stepped.
    pub(crate) lifted: Vec<crate::views::patch::Lifted>,
    pub(crate) slots: crate::views::patch::Slots,
    pub(crate) active_slot: Option<crate::views::patch::ActiveSlot>,
    /// Traps after which a site is hit in line, see `in_line`.
    pub(crate) in_line_after: u16,
    pub(crate) hits_in_line: u64,
    /// Linear address of the site that is to be opened.
    pub(crate) to_open: Option<u64>,
    pub(crate) opening: Option<in_line::Opening>,
    /// Whether translations were dropped since this was last cleared.
    pub(crate) blocks_dropped: bool,
    pub(crate) halted: bool,
    pub(crate) irq: bool,
    pub(crate) nmi_pending: bool,
    pub(crate) nmi_blocked: bool,
    pub(crate) phys_bits: u32,
    pub(crate) model: Model,
    pub(crate) allow_own_page: bool,
    /// Whether the instruction being stepped has the patches of its pages taken away.
    pub(crate) unpatched: bool,
    /// Instruction count up to which the machine advances one instruction at a time.
    pub(crate) creep_to: u64,
    /// Count register when the last block off the hot path was begun.
    pub(crate) rep_from: u64,
    /// EFLAGS of before the instruction that the engine steps, when it loses them at a fault.
    pub(crate) flags_before: Option<u64>,
    /// Virtual ns skipped since the last instruction.
    pub(crate) idle_ns: u64,
    /// Virtual time at which a run stops, if nothing stops it before.
    pub(crate) alarm: Option<u64>,
    /// Physical page that `DROP_VA` stands for, while its translations are dropped.
    pub(crate) dropping: Option<u64>,
    pub(crate) verdict: Option<Stop>,
    /// Accesses to physical addresses where nothing is.
    pub(crate) void_accesses: u64,
    /// Instructions executed one at a time, for `--stats`.
    pub(crate) steps: u64,
    /// Which machine this is, for its snapshots.
    pub(crate) identity: Arc<MachineIdentity>,
    /// The pages of the snapshot that was last taken or gone back to; at first all zeros, as RAM was then.
    pub(crate) saved_pages: PageTable,
    /// The console of that snapshot.
    pub(crate) saved_console: SavedConsole,
    pub(crate) tsc_offset: u64,
    pub(crate) user_contexts: user::UserContexts,
    /// Whether a user context has registers to be written.
    pub(crate) user_writes: bool,
    /// How often ring 3 was left, and snapshots were gone back to.
    pub(crate) departures: u64,
    /// Physical addresses of the instructions that have run, when they are collected.
    pub(crate) coverage: Option<BTreeSet<u64>>,
    pub(crate) watches: watch::Watches,
    pub(crate) device_access: mmio::DeviceAccess,
    /// Whether 32-bit code may call stubs.
    pub(crate) narrow_stubs: bool,
    /// Takes the size away.
    pub(crate) _unsized: Unsized,
}

fn callbacks() -> Callbacks {
    Callbacks {
        block: hooks::on_block,
        translated: hooks::on_translated,
        interrupt: hooks::on_interrupt,
        invalid: hooks::on_invalid,
        rdtsc: hooks::on_rdtsc,
        fill: hooks::on_fill,
        device_read: hooks::on_device_read,
        device_write: hooks::on_device_write,
    }
}

impl Core {
    /// Builds the engine around `ram` and `platform`.
    pub(crate) fn new(model: Model, ram: Ram, platform: Platform) -> Result<Box<Core>, EngineError> {
        let hot = HotBox::new();
        let mut cells = CellArena::new(hot.as_ptr());
        let first = cells.take();
        let user = hot.as_ptr().as_ptr().cast::<c_void>();
        let cb = callbacks();
        let engine = Engine::new(model, &cb, user, first.as_user_data())?;
        engine.map(0, ram.data_ptr(), ram.size())?;
        engine.map(SHADOW_BASE, ram.shadow_ptr(), ram.size())?;
        engine.map(SLOT_PADDR, ram.slots_ptr(), SLOT_PAGES * PAGE)?;
        engine.map_devices(VOID_PADDR, (1 + mmio::PAGES) * PAGE, &cb, user)?;
        let env = engine.own_env();
        let saved_pages = PageTable::zeroed((ram.size() / PAGE) as u32);
        Ok(Box::new(Core {
            engine,
            env,
            hot,
            ram,
            tlb: Tlb::default(),
            local_pages: control::LocalPages::default(),
            platform,
            console: Vec::new(),
            sent: None,
            watched: Vec::new(),
            cells,
            next_cell: first,
            mode: Mode::Free,
            halt: None,
            refusal: None,
            tentative: None,
            interposer: None,
            failure: None,
            watch_code_pages: false,
            watch_user_code: false,
            patches: BTreeMap::new(),
            lifted: Vec::new(),
            slots: crate::views::patch::Slots::default(),
            active_slot: None,
            in_line_after: in_line::OFTEN,
            hits_in_line: 0,
            to_open: None,
            opening: None,
            blocks_dropped: false,
            halted: false,
            irq: false,
            nmi_pending: false,
            nmi_blocked: false,
            phys_bits: if model == Model::Ia32 { 36 } else { 40 },
            model,
            allow_own_page: false,
            unpatched: false,
            creep_to: 0,
            rep_from: 0,
            flags_before: None,
            idle_ns: 0,
            alarm: None,
            dropping: None,
            verdict: None,
            void_accesses: 0,
            steps: 0,
            identity: Arc::default(),
            saved_pages,
            saved_console: SavedConsole::default(),
            tsc_offset: 0,
            user_contexts: user::UserContexts::default(),
            user_writes: false,
            departures: 0,
            coverage: None,
            watches: watch::Watches::default(),
            device_access: mmio::DeviceAccess::default(),
            narrow_stubs: false,
            _unsized: [(); 0],
        }))
    }

    /// Runs translated code.
    pub(crate) fn run_engine(&mut self) -> Exit {
        // SAFETY: the core is published, and the engine is alive.
        let exit = self.publish_core(|engine| unsafe { engine.run() });
        self.ignore_cs_base(exit)
    }

    /// Whether CS has a base where it does not count.
    pub(crate) fn has_cs_base(&self) -> bool {
        self.env.code64() && self.env.cs_base() != 0
    }

    /// 64-bit code has no base of CS (SDM volume 3, 3.4.4), but the engine loads it from the descriptor, and adds it. It goes
    /// when the engine comes back, which is before the first block: that one would be at another place. What the fetch there
    /// was refused for does not count either.
    pub(crate) fn ignore_cs_base(&mut self, exit: Exit) -> Exit {
        if !self.has_cs_base() {
            return exit;
        }
        let mut cs = self.env.seg(Seg::Cs);
        cs.base = 0;
        self.env.set_seg_raw(Seg::Cs, cs);
        if self.refusal.is_some_and(|(.., access)| access == Access::Fetch) {
            self.refusal = None;
            return Exit::Stopped;
        }
        exit
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

    /// The engine's CPU state, for crates that emulate displaced instructions.
    #[inline(always)]
    pub fn env(&self) -> Env<'_> {
        *self.env
    }

    /// Guest RAM.
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    /// Devices.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Retired instructions. Inside a trap: those before the trapping instruction.
    #[inline]
    pub fn icount(&self) -> u64 {
        self.hot.clock.icount
    }

    /// Virtual time, ns: one a retired instruction, plus what HLT skipped.
    #[inline]
    pub fn virtual_ns(&self) -> u64 {
        self.hot.clock.now()
    }

    /// EFLAGS with all flags materialised.
    pub fn eflags(&self) -> u64 {
        self.engine.eflags()
    }
}
