//! Programs, probes and sites.
//!
//! A site is a physical address that is patched; a probe is one enabling of one handler there. Several probes
//! may share a site, in order of insertion. A probe in a user module has as many sites as there are physical
//! pages that hold its module page; a watch of execution is a site without a patch, and so is the pointer of a
//! macro-declared probe. Invariant: a site is armed exactly while an enabled probe is on it.

use crate::core_file::CoreFile;
use crate::displace::Displaced;
use crate::life::{Hit, ParkedHits};
use crate::module::ProbedModule;
use crate::process::Filters;
use crate::provided::{Arguments, HandlerError, Provided};
use crate::service::{Asked, SymbolNames};
use crate::stacks::Stacks;
use crate::timer::Timer;
use crate::user::UserProbes;
use crate::word::Words;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use trapline_emu::Watch;
use trapline_emu::symbols::{KernelModule, UserModule};
use trapline_os::{OsProfile, Unwinder};
use trapline_rpn::{Verified, Vm};
use trapline_trace::{ChannelConfig, Channels, HeaderItems};

/// How an interposer is set up.
pub struct InterposerConfig {
    /// Optional items of each record's header.
    pub header: HeaderItems,
    /// Shape of the record channel.
    pub channel: ChannelConfig,
    /// What the guest's operating system is, for pid, uid, task and name.
    pub profile: Option<Box<dyn OsProfile>>,
    /// Instruction budget of a handler, instead of the language's 65,536.
    pub max_steps: Option<u32>,
}

/// A program that was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramId(pub(crate) usize);

/// Where a probe goes.
#[derive(Debug, Clone)]
pub enum Place {
    /// In the kernel: the physical address that holds the linear one.
    Kernel {
        /// Linear address, for messages.
        linear: u64,
        /// Physical address.
        paddr: u64,
    },
    /// The first of five one-byte NOPs in the kernel that a static probe's call was turned into (sdt on x86,
    /// docs/providers.md, "Calls to functions that do not exist"). The second NOP is patched with `f0`: `lock nop` raises
    /// #UD, and IP in a hit is the address after the first NOP.
    LockNop {
        /// Linear address of the first, for messages.
        linear: u64,
        /// Its physical address.
        paddr: u64,
    },
    /// In a user module, wherever a physical page holds that page of it.
    User {
        /// The module.
        module: Arc<UserModule>,
        /// Offset in the module's file.
        offset: u64,
    },
    /// Behind an instruction of a user module by which a function is left: handlers run when it has completed.
    UserExit {
        /// The module.
        module: Arc<UserModule>,
        /// The instruction's offset in the module's file.
        offset: u64,
        /// Of a jump the function, by offsets in the file: where that leads into it, nothing is left. `None` of a return.
        stays_in: Option<Range<u64>>,
    },
    /// In a kernel module, wherever the guest has loaded it; needs a profile that knows.
    Module {
        /// The module.
        module: Arc<KernelModule>,
        /// Offset in the module's file.
        offset: u64,
    },
    /// A time, again and again; nothing is patched.
    Timer(Timer),
    /// The pointer of a macro-declared probe in the kernel. Enabling writes a stub's address into it, disabling 0: the
    /// guest can see that, by design (docs/providers.md, "Statically defined probes").
    Pointer {
        /// Linear address of the pointer, for messages.
        linear: u64,
        /// Its physical address.
        paddr: u64,
        /// Whether it has 8 bytes, not 4.
        wide: bool,
    },
    /// A semaphore of a user module: it is never hit, but raised by 1 in each process while an enabled probe has it. The
    /// guest can see that, by design.
    Semaphore {
        /// The module.
        module: Arc<UserModule>,
        /// Its address as linked.
        address: u64,
    },
    /// An is-enabled site of a user module, wherever a physical page holds that page of it: a hit sets AX to 1, runs no
    /// handler and is not counted.
    Question {
        /// The module.
        module: Arc<UserModule>,
        /// Offset in the module's file of the byte that is patched.
        offset: u64,
    },
    /// The pointer of a macro-declared probe in a user module, written in each process: see [`Place::Pointer`].
    UserPointer {
        /// The module.
        module: Arc<UserModule>,
        /// Its address as linked.
        address: u64,
        /// Whether it has 8 bytes, not 4.
        wide: bool,
    },
    /// A range of linear addresses or ports, in every address space; nothing is patched.
    Watch(Watch),
}

impl Place {
    /// Whether it only tells a program that somebody listens.
    pub(crate) fn only_tells(&self) -> bool {
        matches!(self, Self::Semaphore { .. } | Self::Question { .. })
    }

    /// Whether the guest is to see it.
    fn is_visible(&self) -> bool {
        self.only_tells() || matches!(self, Self::Pointer { .. } | Self::UserPointer { .. })
    }

    /// The module and the offset in its file of a place in a user module's code.
    pub(crate) fn in_user_code(&self) -> Option<(&Arc<UserModule>, u64)> {
        match self {
            Self::User { module, offset }
            | Self::UserExit { module, offset, .. }
            | Self::Question { module, offset } => Some((module, *offset)),
            _ => None,
        }
    }
}

/// Counters of everything that happened at probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sites and watches armed now.
    pub sites: u64,
    /// Traps taken at sites.
    pub traps: u64,
    /// Handlers run.
    pub hits: u64,
    /// Handlers that an exception ended.
    pub exceptions: u64,
    /// Displaced instructions emulated.
    pub emulated: u64,
    /// Displaced instructions run out of line.
    pub out_of_line: u64,
    /// Displaced instructions stepped in place.
    pub stepped: u64,
    /// Displaced instructions that faulted.
    pub faulted: u64,
    /// Stack trace records that `excpt_log` had no room for.
    pub traces_dropped: u64,
    /// Records dropped because the displaced instruction faulted.
    pub dropped: u64,
    /// Sites whose bytes the guest rewrote while they were armed.
    pub rewritten: u64,
    /// Pages of user modules that were armed while their process had them mapped from the module's path.
    pub by_mapping: u64,
    /// Pages of user modules that were armed for their content alone.
    pub by_content: u64,
    /// Semaphores and pointers of user programs that were raised, in each process.
    pub words_raised: u64,
    /// Those that could not be raised, since their page is not the process's own and cannot be made so.
    pub words_left: u64,
    /// Hits that a probe's `ignore` passed over.
    pub ignored: u64,
    /// Handlers whose RPN stack wrapped.
    pub wraps: u64,
    /// `push u` and `pop u` without a user context.
    pub no_user_context: u64,
    /// Hits without a record because the channel was frozen.
    pub frozen: u64,
    /// `exit 1`: a debugger was asked for.
    pub debugger_exits: u64,
    /// `exit 2`: a crash dump was asked for.
    pub dump_exits: u64,
    /// `exit 3` beyond the core files that may be taken.
    pub cores_left_out: u64,
}

/// An inserted program.
#[derive(Clone)]
pub(crate) struct Program {
    pub name: String,
    /// `name =` and `id =`, for stack traces.
    pub module: String,
    pub id: u32,
    pub lv: Vec<u64>,
    pub probes: Vec<usize>,
    /// Those that only tell a program that somebody listens.
    pub tellers: Vec<usize>,
    pub removed: bool,
    /// The hit after which the run is to stop, and hits counted towards it.
    pub stop_at: Option<u64>,
    pub counted: u64,
}

/// One probe point. What every hit touches is in its first cache line.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Probe {
    pub seen: u64,
    pub run: u64,
    /// Runs from which on a hit is looked at more closely: `maxhits`, or 0 while the program's hits are awaited.
    pub limit: u64,
    /// Number of the last hit that it took part in.
    pub hit: u64,
    pub handler: Arc<Verified>,
    pub program: u32,
    pub ignore: u32,
    pub major: u32,
    pub minor: u32,
    pub logonfault: bool,
    pub enabled: bool,
    /// Whether the stack pointer is at the return address there.
    pub at_call: bool,
    /// Whether a hit sets AX to 1 and does nothing else.
    pub answers: bool,
    /// Whether a hit is looked at before its handler runs.
    pub guarded: bool,
    /// Whether it has had its last hit, whose instruction has not completed: it takes part in no other.
    pub spent: bool,
    /// The processes that it is of, if not all.
    pub filter: Option<u32>,
    pub place: Place,
    pub arguments: Option<Arc<dyn Arguments>>,
    pub rest: Box<Rest>,
    /// Source line of each instruction of the handler.
    pub lines: Box<[u32]>,
}

/// What of a probe point no hit but the last touches.
#[derive(Clone)]
pub(crate) struct Rest {
    pub maxhits: u64,
    /// How far it is from the start of its module, for stack traces.
    pub offset: u64,
    pub group: Option<String>,
    pub kind: Option<String>,
    /// What its provider says of it.
    pub provided: Option<Provided>,
    /// Handlers that an exception ended.
    pub errors: u64,
}

/// A stub that calls through a pointer arrive at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stub {
    pub address: u64,
    /// Whether the pointer has 8 bytes.
    pub wide: bool,
    /// Whether the pointer is a user program's: `word` writes it in each process.
    pub user: bool,
}

/// One patched physical address. What every hit touches is in its first cache line.
#[repr(C, align(64))]
pub(crate) struct Site {
    /// How it is displaced; found at the first hit, and again when the guest rewrites it.
    pub displaced: Option<Displaced>,
    /// `probes[0]`, when there is one.
    pub first: u32,
    /// Whether there are more.
    pub several: bool,
    pub armed: bool,
    /// The byte that fetches see when it is armed.
    pub patch: u8,
    /// Whether `displaced` is for 64-bit code: the same bytes may be run in another code segment.
    pub wide: bool,
    /// Physical address; of a watch of execution its lowest linear one.
    pub paddr: u64,
    /// The watch of execution that it is, if it is no patch.
    pub watch: Option<Watch>,
    /// The stub whose address is written here, if it is a pointer.
    pub stub: Option<Stub>,
    /// The probes here, in order of insertion.
    pub probes: Vec<u32>,
    /// Bytes of the displaced instruction when it was last looked at.
    pub original: [u8; 15],
}

impl Site {
    pub fn new(paddr: u64) -> Self {
        Site {
            displaced: None,
            first: 0,
            several: false,
            armed: false,
            patch: 0,
            wide: false,
            paddr,
            watch: None,
            stub: None,
            probes: Vec::new(),
            original: [0; 15],
        }
    }

    /// Changes which probes are here; whether none is left.
    pub fn change(&mut self, change: impl FnOnce(&mut Vec<u32>)) -> bool {
        change(&mut self.probes);
        self.first = self.probes.first().copied().unwrap_or_default();
        self.several = self.probes.len() > 1;
        self.probes.is_empty()
    }
}

/// The probe table, and the state of the hit in progress.
pub struct Interposer {
    pub(crate) config: InterposerConfig,
    pub(crate) channels: Channels,
    pub(crate) vm: Vm,
    pub(crate) gv: Vec<u64>,
    pub(crate) programs: Vec<Program>,
    pub(crate) probes: Vec<Probe>,
    /// The kernel modules that have points.
    pub(crate) modules: Vec<ProbedModule>,
    /// The instruction count from which on they are looked for again at the end of a slice.
    pub(crate) next_look: u64,
    pub(crate) sites: Vec<Site>,
    pub(crate) by_paddr: BTreeMap<u64, usize>,
    /// The enabled probes on user modules.
    pub(crate) user: UserProbes,
    pub(crate) filters: Filters,
    /// Sites that are watches of execution, by their range.
    pub(crate) by_range: BTreeMap<(u64, u64), usize>,
    /// Sites that are pointers, by the number of their stub.
    pub(crate) by_stub: Vec<usize>,
    pub(crate) words: Words,
    pub(crate) watch_unlimited: bool,
    /// Whether the number of watches is counted only later.
    pub(crate) selecting: bool,
    /// Process name of the record being made.
    pub(crate) name: Vec<u8>,
    /// Data of the stack trace being made.
    pub(crate) trace: Vec<u8>,
    /// The hit in progress.
    pub(crate) hit: Hit,
    /// Hits whose instruction faulted or was interrupted.
    pub(crate) parked: ParkedHits,
    /// Programs whose awaited hit has completed.
    pub(crate) fired: Vec<ProgramId>,
    /// The program of the handler that has ended the run.
    pub(crate) stopped_by: Option<ProgramId>,
    pub(crate) asked: Asked,
    /// First failures of handlers that were not fetched yet.
    pub(crate) errors: Vec<HandlerError>,
    pub(crate) stacks: Stacks,
    /// Hits that leave a record after which the run stops.
    pub(crate) last_hit: Option<u64>,
    /// How many there have been while it was asked for.
    pub(crate) counted_hits: u64,
    /// When the probes on time that are enabled are due.
    pub(crate) timers: BTreeMap<u32, u64>,
    pub(crate) stats: Stats,
}

/// Names of probes by their number, which their records carry, and of kernel modules' functions on stacks.
#[derive(Clone, Copy)]
pub struct ProbeNames<'a> {
    probes: &'a [Probe],
    programs: &'a [Program],
    unwinder: &'a Unwinder,
}

impl<'a> ProbeNames<'a> {
    /// What the provider of a probe says of it; `None` if none has put it.
    pub fn get(&self, number: u32) -> Option<&'a Provided> {
        self.probes.get(number as usize)?.rest.provided.as_ref()
    }

    /// The program that a probe point belongs to, with the codes of the probe point.
    pub fn program(&self, number: u32) -> Option<(&'a str, u32, u32)> {
        let probe = self.probes.get(number as usize)?;
        Some((&self.programs.get(probe.program as usize)?.name, probe.major, probe.minor))
    }

    /// The symbol that holds a byte of a kernel module that a recorded stack goes through, and how far into it.
    pub fn module_symbol(&self, module: &str, offset: u64) -> Option<(String, u64)> {
        self.unwinder.module_symbol(module, offset)
    }

    /// Handlers that exceptions ended, of each probe where there were any: its number and how many.
    pub fn errors(&self) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        let counts = (0..).zip(self.probes.iter().map(|probe| probe.rest.errors));
        counts.filter(|(_, errors)| *errors > 0)
    }
}

impl Interposer {
    /// An empty table.
    pub fn new(config: InterposerConfig) -> Self {
        let mut vm = Vm::new();
        if let Some(steps) = config.max_steps {
            vm.set_max_steps(steps);
        }
        Interposer {
            channels: Channels::new(1, config.channel),
            vm,
            gv: Vec::new(),
            programs: Vec::new(),
            probes: Vec::new(),
            modules: Vec::new(),
            next_look: 0,
            sites: Vec::new(),
            by_paddr: BTreeMap::new(),
            user: UserProbes::default(),
            filters: Filters::default(),
            by_range: BTreeMap::new(),
            by_stub: Vec::new(),
            words: Words::default(),
            watch_unlimited: false,
            selecting: false,
            name: Vec::new(),
            trace: Vec::new(),
            hit: Hit::default(),
            parked: ParkedHits::default(),
            fired: Vec::new(),
            stopped_by: None,
            asked: Asked::default(),
            errors: Vec::new(),
            stacks: Stacks::default(),
            last_hit: None,
            counted_hits: 0,
            timers: BTreeMap::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// What reads tasks and modules of the guest, if its system is known.
    pub fn profile(&self) -> Option<&dyn OsProfile> {
        self.config.profile.as_deref()
    }

    /// The records committed so far.
    pub fn channels(&mut self) -> &mut Channels {
        &mut self.channels
    }

    /// Lets `exit 3` take this many core files more; none at first.
    pub fn allow_cores(&mut self, count: u64) {
        self.asked.cores_left = count;
    }

    /// The core files taken since the last call.
    pub fn take_cores(&mut self) -> Vec<CoreFile> {
        std::mem::take(&mut self.asked.cores)
    }

    /// Sets where the service `symbol` finds names.
    pub fn name_symbols(&mut self, names: SymbolNames) {
        self.asked.names = Some(names);
    }

    /// The first failure of each probe's handler since the last call.
    pub fn take_errors(&mut self) -> Vec<HandlerError> {
        std::mem::take(&mut self.errors)
    }

    /// The records, and the names of the probes that they count.
    pub fn channels_and_names(&mut self) -> (&mut Channels, ProbeNames<'_>) {
        let names =
            ProbeNames { probes: &self.probes, programs: &self.programs, unwinder: &self.stacks.unwinder };
        (&mut self.channels, names)
    }

    /// The names of probes.
    pub fn names(&self) -> ProbeNames<'_> {
        ProbeNames { probes: &self.probes, programs: &self.programs, unwinder: &self.stacks.unwinder }
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let sites = self.sites.iter().filter(|s| s.armed).count() + self.data_watches().len();
        Stats { sites: sites as u64, ..self.stats }
    }

    /// Whether every handler only observes, and every place can be hidden, so that the guest is promised not to notice.
    pub fn observe_only(&self) -> bool {
        self.probes.iter().all(|p| p.handler.observe_only() && !p.place.is_visible())
    }

    /// Name, major, minor and number of runs of a probe, by the identifier that its records carry.
    pub fn probe(&self, id: u32) -> Option<(&str, u32, u32, u64)> {
        let p = self.probes.get(id as usize)?;
        Some((&self.programs.get(p.program as usize)?.name, p.major, p.minor, p.run))
    }

    /// Runs of each probe of a program, in the order of its probe points.
    pub fn runs(&self, id: ProgramId) -> Vec<u64> {
        let ids = self.programs.get(id.0).map(|p| p.probes.as_slice()).unwrap_or_default();
        ids.iter().filter_map(|&p| self.probes.get(p)).map(|p| p.run).collect()
    }

    /// Local variables of a program.
    pub fn locals(&self, id: ProgramId) -> &[u64] {
        self.programs.get(id.0).map(|p| p.lv.as_slice()).unwrap_or_default()
    }

    /// Global variables of the machine.
    pub fn globals(&self) -> &[u64] {
        &self.gv
    }

    /// Sites armed now: physical address, the displaced instruction's bytes as last seen, how it is displaced.
    pub fn armed_sites(&self) -> impl Iterator<Item = (u64, &[u8; 15], Option<crate::Way>)> {
        self.sites
            .iter()
            .filter(|s| s.armed && s.watch.is_none() && s.stub.is_none())
            .map(|s| (s.paddr, &s.original, s.displaced.as_ref().map(|d| d.way())))
    }
}
