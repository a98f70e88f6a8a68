//! The machine's state as hooks, interposers and the run loop see it.
//!
//! Hooks reach `Core` through a raw pointer while the engine runs; `publish` has the rules for references meanwhile.
//!
//! This module holds what needs all parts of a machine: `hooks` (called by the engine), `turns` (the run loop), `trap`,
//! `in_line`, `stub` and `watch` (which call the interposer), `stand_in` (what is translated in place of the machine's own
//! instructions), `taken_over` (instructions that the machine takes over from the engine), `fill` (linear pages to entries of the engine's TLB), `mmio` (accesses to devices).

mod analysis;
mod api;
mod count;
mod debugger;
mod deliver;
mod effort;
mod fetch_view;
mod fill;
mod hooks;
mod in_line;
pub(crate) mod interpose;
mod mmio;
mod own;
mod patching;
mod pause;
pub(crate) mod publish;
mod snapshot;
mod stand_in;
mod step;
mod stub;
mod taken_over;
mod trap;
pub(crate) mod turns;
pub(crate) mod watch;
mod watch_hit;

pub use debugger::{Settable, Unsettable};
pub use interpose::{Trap, TrapInterposer, Verdict};
pub use pause::Reader;
pub use turns::Stop;
pub use watch_hit::{WATCH_VALUE, WatchAccess, WatchHit};

use crate::blocks::{Blocks, Cut, HotBox};
use crate::clock::Moment;
use crate::cpu::Cpu;
use crate::cpu::fault::Fault;
use crate::digest::PageHashes;
use crate::engine::{Callbacks, Engine, EngineError, Exit, Model, SHADOW_BASE, SLOT_PADDR, Seg, VOID_PADDR};
use crate::mmu::Access;
use crate::platform::Platform;
use crate::ram::{PAGE, Ram, SLOT_PAGES};
use crate::snapshot::{MachineIdentity, PageTable, SavedConsole};
use crate::views::Views;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// Why a hook stopped the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The next block would pass the deadline.
    Deadline,
    /// An interrupt can be delivered here, or there are too many translations.
    Interrupt,
    /// The next block holds, after this many instructions, one that must not run as part of it.
    Cut(Cut, u16),
    /// The mode is not supported.
    Unsupported,
    /// A displaced instruction must be stepped in place.
    StepSite,
    /// The next block is to be translated for hits in line.
    Open,
    /// The next instruction is a patch's jump to itself.
    Hit,
    /// The execution of the next instruction has been reported to its watches, of which one may wait for its end.
    Reported(bool),
    /// The next block is to be translated anew, with stand-ins.
    Renew,
    /// The next block was translated for hits in line, but must run in parts.
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
    /// A store into the armed page of the storing instruction itself.
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
/// It is unsized: a holder of `&mut Core` can use it, but cannot replace it. Swapping two cores would leave the engine
/// running in a machine that may be dropped.
///
/// ```compile_fail,E0277
/// fn exchange(a: &mut trapline_emu::Core, b: &mut trapline_emu::Core) {
///     std::mem::swap(a, b);
/// }
/// ```
pub struct Core<Unsized: ?Sized = [()]> {
    // First, so that its engine is dropped before what the hooks use.
    pub(crate) cpu: Cpu,
    pub(crate) views: Views,
    pub(crate) blocks: Blocks,
    pub(crate) step: step::Step,
    pub(crate) halt: Option<Halt>,
    pub(crate) refusal: Option<(Refusal, u64, Access)>,
    /// Linear page whose fetch is not yet architectural.
    pub(crate) tentative: Option<u64>,
    pub(crate) interposer: Option<publish::Lent>,
    /// What has panicked, and where: the machine does not run again.
    pub(crate) failure: Option<String>,
    pub(crate) watch_code_pages: bool,
    pub(crate) watch_user_code: bool,
    /// Whether the interposer is told each block.
    pub(crate) tell_blocks: bool,
    /// Traps after which a site is hit in line, see `in_line`.
    pub(crate) in_line_after: u16,
    pub(crate) hits_in_line: u64,
    /// Linear address of the site that is to be opened.
    pub(crate) to_open: Option<u64>,
    pub(crate) opening: Option<in_line::Opening>,
    pub(crate) stand_ins: stand_in::StandIns,
    pub(crate) taken_over: taken_over::TakenOver,
    /// Linear address of the block that is to end after so many instructions, because the next one must begin a block.
    pub(crate) to_cap: Option<(u64, u16)>,
    /// Instruction count up to which the machine advances one instruction at a time.
    pub(crate) single_step_until: u64,
    /// Count register when the last block off the hot path was begun.
    pub(crate) rep_from: u64,
    /// Virtual ns skipped since the last instruction.
    pub(crate) idle_ns: u64,
    /// Whether a run stops where HLT would skip time.
    pub(crate) stops_when_idle: bool,
    /// Virtual time at which a run stops, if nothing stops it before.
    pub(crate) alarm: Option<u64>,
    /// Instruction count at which the run ends, at the latest.
    pub(crate) ends: u64,
    /// The moment at which a run stops, if nothing stops it before.
    pub(crate) until: Option<Moment>,
    /// Exceptions and interrupts that were delivered since the last instruction retired, with the instruction count there.
    pub(crate) delivered: (u64, u32),
    pub(crate) pauses: pause::Pauses,
    pub(crate) verdict: Option<Stop>,
    /// The stop that ends the next run: it arose while the machine settled after the last one.
    pub(crate) postponed: Option<Stop>,
    /// Instructions executed one at a time, for `--stats`.
    pub(crate) steps: u64,
    /// Iterations of string instructions that were done many at a time.
    pub(crate) repeated_at_once: u64,
    /// What running has cost.
    pub(crate) effort: effort::Effort,
    /// The machine's identity, for its snapshots.
    pub(crate) identity: Arc<MachineIdentity>,
    /// The pages of the snapshot that was last taken or restored; at first all zeros, as in fresh RAM.
    pub(crate) saved_pages: PageTable,
    /// The console of that snapshot.
    pub(crate) saved_console: SavedConsole,
    /// The hashes of RAM's pages, from the first request on.
    pub(crate) page_hashes: PageHashes,
    /// Physical addresses of the instructions that have run, when they are collected.
    pub(crate) coverage: Option<BTreeSet<u64>>,
    pub(crate) watches: watch::Watches,
    /// Whether 32-bit code may call stubs.
    pub(crate) narrow_stubs: bool,
    /// Makes the core unsized.
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
        let blocks = Blocks::new(hot.as_ptr());
        let first = blocks.next();
        let user = hot.as_ptr().as_ptr().cast::<c_void>();
        let cb = callbacks();
        let engine = Engine::new(model, &cb, user, first.as_user_data())?;
        for Range { start, end } in ram.mapped() {
            let offset = start as usize;
            engine.map(start, ram.data_ptr().wrapping_add(offset), end - start)?;
            engine.map(SHADOW_BASE + start, ram.shadow_ptr().wrapping_add(offset), end - start)?;
        }
        engine.map(SLOT_PADDR, ram.slots_ptr(), SLOT_PAGES * PAGE)?;
        engine.map_devices(VOID_PADDR, (1 + step::DeviceAccess::PAGES) * PAGE, &cb, user)?;
        let saved_pages = PageTable::zeroed((ram.bytes().len() as u64 / PAGE) as u32);
        Ok(Box::new(Core {
            cpu: Cpu::new(model, engine, hot, ram, platform),
            views: Views::default(),
            blocks,
            step: step::Step::new(),
            halt: None,
            refusal: None,
            tentative: None,
            interposer: None,
            failure: None,
            watch_code_pages: false,
            watch_user_code: false,
            tell_blocks: false,
            in_line_after: in_line::OFTEN,
            hits_in_line: 0,
            to_open: None,
            opening: None,
            stand_ins: stand_in::StandIns::default(),
            taken_over: taken_over::TakenOver::default(),
            to_cap: None,
            single_step_until: 0,
            rep_from: 0,
            idle_ns: 0,
            stops_when_idle: false,
            alarm: None,
            ends: 0,
            until: None,
            delivered: (0, 0),
            pauses: pause::Pauses::default(),
            verdict: None,
            postponed: None,
            steps: 0,
            repeated_at_once: 0,
            effort: effort::Effort::default(),
            identity: Arc::default(),
            saved_pages,
            saved_console: SavedConsole::default(),
            page_hashes: PageHashes::default(),
            coverage: None,
            watches: watch::Watches::default(),
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

    /// 64-bit code ignores the base of CS (SDM volume 3, 3.4.4), but the engine loads it from the descriptor and adds
    /// it. The base is cleared when the engine returns, before the first block runs, which would be at the wrong
    /// address. A refusal of the fetch at that address is ignored too.
    pub(crate) fn ignore_cs_base(&mut self, exit: Exit) -> Exit {
        if !self.cpu.has_cs_base() {
            return exit;
        }
        let mut cs = self.cpu.env.seg(Seg::Cs);
        cs.base = 0;
        self.cpu.env.set_seg_raw(Seg::Cs, cs);
        if self.refusal.is_some_and(|(.., access)| access == Access::Fetch) {
            self.refusal = None;
            return Exit::Stopped;
        }
        exit
    }
}
