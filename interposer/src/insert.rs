//! Arming and disarming.

use crate::changed::is_changed_page;
use crate::displace::Displaced;
use crate::process::Who;
use crate::provided::{Point, Provided};
use crate::table::{Interposer, Place, Probe, Program, ProgramId, Rest, Site};
use crate::user::holds;
use std::borrow::Borrow;
use std::sync::Arc;
use trapline_emu::symbols::UserModule;
use trapline_emu::{Core, PAGE, PatchError, WatchKind};
use trapline_rpn::LinkedProgram;

/// The patch of a breakpoint probe.
pub(crate) const INT3: u8 = 0xcc;
/// The patch of a `lock nop` site: the prefix, before a NOP.
const LOCK: u8 = 0xf0;
/// What stands at a `lock nop` site: where a call was, and where a tail call was.
const FIVE_NOPS: [u8; 5] = [0x90; 5];
const FOUR_NOPS_AND_RET: [u8; 5] = [0x90, 0x90, 0x90, 0x90, 0xc3];

/// A program cannot be inserted; nothing of it has been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct InsertError {
    /// Index of the probe point in the program.
    pub probe: usize,
    /// What is wrong.
    pub kind: InsertErrorKind,
}

/// What is wrong with a probe point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InsertErrorKind {
    /// The program says another byte is there.
    #[error("the byte at {at} is {found:#04x}, but the probe says opcode = {expected:#04x}")]
    OpcodeMismatch {
        /// Where.
        at: String,
        /// The probe's `opcode`.
        expected: u8,
        /// What is there.
        found: u8,
    },
    /// A `lock nop` site needs five one-byte NOPs, or four and a return.
    #[error(
        "at {at} is {found:02x?}, but a lock nop site is five one-byte NOPs, 90 each, the last of which may be c3"
    )]
    NotFiveNops {
        /// Where.
        at: String,
        /// What is there.
        found: [u8; 5],
    },
    /// No memory there.
    #[error("{0} is not in guest memory")]
    NotMapped(String),
    /// The machine refused the patch.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// A pointer that is not aligned to its size.
    #[error("the pointer at {linear:#x} is not aligned to its {bytes} bytes")]
    PointerAlignment {
        /// Where.
        linear: u64,
        /// Its size.
        bytes: u64,
    },
    /// A pointer that the guest, or someone else, uses already.
    #[error("the pointer at {linear:#x} holds {found:#x}; a dormant probe's is 0")]
    PointerTaken {
        /// Where.
        linear: u64,
        /// What it holds.
        found: u64,
    },
    /// A semaphore on two pages.
    #[error("the semaphore at {0:#x} lies across the end of a page")]
    SemaphoreCrosses(u64),
    /// A semaphore and a pointer in one place.
    #[error("{0:#x} is the place of both a semaphore and the pointer of a macro-declared probe")]
    WordTaken(u64),
    /// All stubs are in use.
    #[error("all {0} stubs of macro-declared probes are in use")]
    NoStub(usize),
    /// Nobody can tell whose process is running.
    #[error(
        "whose process runs is not known: this guest's system is none whose tasks can be read; pid* takes every process"
    )]
    NoProcesses,
    /// All debug registers are in use.
    #[error(
        "the watch of {low:#x}:{high:#x} would be one more than the hardware has debug registers for, which are {limit}; \
         --watch-unlimited takes any number"
    )]
    WatchLimit {
        /// Lowest address.
        low: u64,
        /// Highest address.
        high: u64,
        /// Debug registers.
        limit: usize,
    },
    /// No debug register can hold the range.
    #[error(
        "the range {low:#x}:{high:#x} is none that the hardware can watch, which is {allowed}; --watch-unlimited \
         takes any range"
    )]
    WatchRange {
        /// Lowest address.
        low: u64,
        /// Highest address.
        high: u64,
        /// What the hardware can.
        allowed: &'static str,
    },
    /// The range ends before it begins.
    #[error("the range {low:#x}:{high:#x} ends before it begins; its higher address comes second")]
    WatchReversed {
        /// First address.
        low: u64,
        /// Second address.
        high: u64,
    },
    /// No port.
    #[error("the range ends at {0:#x}, which is no port; the highest is 0xffff")]
    WatchPort(u64),
    /// Programs and places do not go together.
    #[error("{probes} probe points were given {places} places")]
    Places {
        /// Probe points of the program.
        probes: usize,
        /// Places given.
        places: usize,
    },
}

impl Interposer {
    /// Adds a linked program with a place for each of its probe points, in order, and arms it.
    ///
    /// # Errors
    /// The first probe point that cannot be armed; nothing of the program stays.
    pub fn insert<P: Into<Point>>(
        &mut self,
        core: &mut Core,
        name: &str,
        program: impl Borrow<LinkedProgram>,
        places: Vec<P>,
    ) -> Result<ProgramId, InsertError> {
        let program = program.borrow();
        let points: Vec<Point> = places.into_iter().map(P::into).collect();
        if points.len() != program.probes.len() {
            let kind = InsertErrorKind::Places { probes: program.probes.len(), places: points.len() };
            return Err(InsertError { probe: 0, kind });
        }
        for (probe, (linked, Point { place, provided })) in program.probes.iter().zip(&points).enumerate() {
            let checked = self.check_watch(place).and_then(|()| check_opcode(core, place, linked.opcode));
            let checked = checked.and_then(|()| self.check_processes(provided.as_ref()));
            checked.map_err(|kind| InsertError { probe, kind })?;
        }
        let id = self.programs.len();
        let first = self.probes.len();
        self.gv.resize(self.gv.len().max(program.header.gvars as usize), 0);
        for (linked, point) in program.probes.iter().zip(points) {
            let processes = point.provided.as_ref().and_then(|provided| provided.processes.as_ref());
            let filter = processes.map(|processes| self.filters.add(processes));
            let mut probe = Probe {
                program: id as u32,
                handler: linked.handler.clone(),
                lines: linked.lines.clone(),
                answers: matches!(point.place, Place::Question { .. }),
                place: point.place,
                at_call: point.provided.as_ref().is_some_and(|provided| provided.at_call),
                arguments: point.provided.as_ref().map(|provided| Arc::clone(&provided.arguments)),
                major: linked.major,
                minor: linked.minor,
                ignore: linked.ignore,
                limit: if self.last_hit.is_some() { 0 } else { u64::from(linked.maxhits) },
                rest: Box::new(Rest {
                    maxhits: u64::from(linked.maxhits),
                    offset: linked.location.offset,
                    group: linked.group.clone(),
                    kind: linked.kind.clone(),
                    provided: point.provided,
                    errors: 0,
                }),
                logonfault: linked.logonfault,
                filter,
                guarded: false,
                spent: false,
                enabled: false,
                seen: 0,
                run: 0,
                hit: 0,
            };
            probe.guarded = probe.is_guarded();
            self.probes.push(probe);
        }
        let own = first..self.probes.len();
        self.programs.push(Program {
            name: name.to_string(),
            module: program.header.name.clone(),
            id: program.header.id,
            lv: vec![0; program.header.vars as usize],
            tellers: own.clone().filter(|&probe| self.probes[probe].place.only_tells()).collect(),
            probes: own.collect(),
            removed: false,
            stop_at: None,
            counted: 0,
        });
        self.note_module_points(first);
        let mut users = Vec::new();
        for probe in first..self.probes.len() {
            // Those on user modules together: each has to be looked for on the pages that are executed already.
            if self.probes[probe].place.in_user_code().is_some() {
                self.probes[probe].enabled = true;
                users.push(probe as u32);
            } else if let Err(kind) = self.enable(core, probe) {
                self.enable_user(core, &users);
                self.remove(core, ProgramId(id));
                return Err(InsertError { probe: probe - first, kind });
            }
        }
        self.enable_user(core, &users);
        self.arm_modules(core);
        Ok(ProgramId(id))
    }

    /// Whether it can be told whose process is running, where that matters.
    fn check_processes(&self, provided: Option<&Provided>) -> Result<(), InsertErrorKind> {
        let processes = provided.and_then(|provided| provided.processes.as_ref());
        let matters = processes.is_some_and(|processes| processes.who != Who::Any);
        if matters && self.config.profile.is_none() { Err(InsertErrorKind::NoProcesses) } else { Ok(()) }
    }

    /// Takes a program out: its probes are disarmed, what they recorded stays.
    pub fn remove(&mut self, core: &mut Core, id: ProgramId) {
        let Some(program) = self.programs.get_mut(id.0) else { return };
        program.removed = true;
        for probe in program.probes.clone() {
            self.disable(core, probe);
        }
    }

    /// Enables or disables one probe point of a program. Unknown numbers and removed programs are ignored.
    ///
    /// # Errors
    /// It cannot be armed, as a fifth watch. It is disabled then.
    pub fn set_enabled(
        &mut self,
        core: &mut Core,
        id: ProgramId,
        probe: usize,
        on: bool,
    ) -> Result<(), InsertErrorKind> {
        let Some(program) = self.programs.get(id.0).filter(|p| !p.removed) else { return Ok(()) };
        let Some(&index) = program.probes.get(probe) else { return Ok(()) };
        if !on {
            self.disable(core, index);
            return Ok(());
        }
        self.enable(core, index).inspect_err(|_| self.disable(core, index))?;
        self.arm_modules(core);
        Ok(())
    }

    /// Enables a probe; one in a kernel module is armed by the next [`Interposer::arm_modules`].
    fn enable(&mut self, core: &mut Core, probe: usize) -> Result<(), InsertErrorKind> {
        if std::mem::replace(&mut self.probes[probe].enabled, true) {
            return Ok(());
        }
        match self.probes[probe].place.clone() {
            Place::Kernel { paddr, .. } => self.attach(core, paddr, INT3, probe),
            Place::LockNop { paddr, .. } => self.attach(core, paddr + 1, LOCK, probe),
            Place::Timer(timer) => {
                self.start_timer(core, probe, timer);
                Ok(())
            }
            Place::Pointer { linear, paddr, wide } => self.enable_pointer(core, (linear, paddr, wide), probe),
            Place::Semaphore { module, address } => self.need_semaphore(core, &module, address, probe as u32),
            Place::UserPointer { module, address, wide } => {
                self.need_pointer(core, &module, (address, wide), probe as u32)
            }
            Place::Watch(watch) => self.enable_watch(core, watch, probe),
            Place::Module { module, .. } => {
                self.enable_in_module(&module);
                Ok(())
            }
            Place::User { .. } | Place::UserExit { .. } | Place::Question { .. } => {
                self.enable_user(core, &[probe as u32]);
                Ok(())
            }
        }
    }

    /// Disables a probe; sites without an enabled probe are disarmed.
    pub(crate) fn disable(&mut self, core: &mut Core, probe: usize) {
        if !std::mem::replace(&mut self.probes[probe].enabled, false) {
            return;
        }
        self.parked.forget_probe(probe as u32);
        self.probes[probe].set_spent(false);
        self.detach(core, probe);
        self.release_words(core, probe as u32);
        self.stop_telling(core, probe);
    }

    /// The last site of a provider's probe is disabled: its program need not be told any more that somebody listens.
    fn stop_telling(&mut self, core: &mut Core, probe: usize) {
        let program = &self.programs[self.probes[probe].program as usize];
        let Some(id) = self.probes[probe].rest.provided.as_ref().map(|provided| provided.id) else { return };
        let same = |&&other: &&usize| {
            let other = &self.probes[other];
            other.enabled && other.rest.provided.as_ref().is_some_and(|provided| provided.id == id)
        };
        let tellers: Vec<usize> = program.tellers.iter().filter(same).copied().collect();
        if tellers.is_empty() {
            return;
        }
        let mut others = program.probes.iter().filter(same);
        if !others.any(|&other| !self.probes[other].place.only_tells()) {
            tellers.into_iter().for_each(|teller| self.disable(core, teller));
        }
    }

    /// Takes a probe from its sites; those without any left are disarmed.
    fn detach(&mut self, core: &mut Core, probe: usize) {
        let place = self.probes[probe].place.clone();
        let sites = match &place {
            Place::Kernel { paddr, .. } | Place::Pointer { paddr, .. } => {
                self.by_paddr.get(paddr).map_or(0..0, |&s| s..s + 1)
            }
            Place::LockNop { paddr, .. } => self.by_paddr.get(&(paddr + 1)).map_or(0..0, |&s| s..s + 1),
            Place::Semaphore { .. } => return,
            Place::UserPointer { .. } => 0..self.sites.len(),
            Place::User { module, offset }
            | Place::UserExit { module, offset, .. }
            | Place::Question { module, offset } => {
                for site in self.disable_user(module, *offset, probe as u32) {
                    self.leave_site(core, site, probe as u32);
                }
                return;
            }
            Place::Module { module, .. } => {
                self.disable_in_module(core, module, probe);
                return;
            }
            Place::Timer(_) => {
                self.stop_timer(core, probe);
                return;
            }
            Place::Watch(watch) if watch.kind == WatchKind::Execute => {
                self.by_range.get(&(watch.low, watch.high)).map_or(0..0, |&s| s..s + 1)
            }
            Place::Watch(watch) => {
                core.unwatch(probe as u32, watch.kind);
                return;
            }
        };
        sites.for_each(|site| self.leave_site(core, site, probe as u32));
    }

    /// Takes a probe off a site, which is disarmed if it was the last.
    fn leave_site(&mut self, core: &mut Core, index: usize, probe: u32) {
        let site = &mut self.sites[index];
        if site.probes.contains(&probe) {
            let none_left = site.change(|probes| probes.retain(|&p| p != probe));
            if none_left {
                self.disarm_site(core, index);
            }
        }
    }

    /// The last probe of a site has left it.
    pub(crate) fn disarm_site(&mut self, core: &mut Core, index: usize) {
        let site = &mut self.sites[index];
        if site.armed {
            site.disarm(core, index);
        }
        self.leave_parked(core, index);
    }

    /// Puts a probe on a physical address.
    pub(crate) fn attach(
        &mut self,
        core: &mut Core,
        paddr: u64,
        patch: u8,
        probe: usize,
    ) -> Result<(), InsertErrorKind> {
        let index = *self.by_paddr.entry(paddr).or_insert_with(|| {
            self.sites.push(Site::new(paddr));
            self.sites.len() - 1
        });
        if self.sites[index].stub.is_some() {
            return Err(PatchError::Taken(paddr).into());
        }
        if !self.sites[index].armed {
            self.sites[index].patch = patch;
        }
        Ok(self.attach_site(core, index, probe)?)
    }

    /// Puts a probe on a site, which is armed if it was not.
    pub(crate) fn attach_site(
        &mut self,
        core: &mut Core,
        index: usize,
        probe: usize,
    ) -> Result<(), PatchError> {
        let site = &mut self.sites[index];
        if !site.armed {
            site.arm(core, index)?;
            site.original = bytes_at(core, site.paddr);
            // What was known of it is of before: the guest may have rewritten it while nothing was armed here.
            if let Some(Displaced::OutOfLine { slot, .. }) = site.displaced.take() {
                core.free_slot(slot);
            }
        }
        let probe = probe as u32;
        if !site.probes.contains(&probe) {
            let at = site.probes.partition_point(|&p| p < probe);
            site.change(|probes| probes.insert(at, probe));
            if self.probes[probe as usize].is_behind() {
                self.forget_way(core, index);
            }
        }
        Ok(())
    }

    /// A site's bytes changed: probes of a user module leave when the page is no longer that module's.
    pub(crate) fn leave_foreign_page(&mut self, core: &mut Core, site: usize, page: u64) {
        let (probes, profile) = (&self.probes, self.config.profile.as_deref());
        let (index, site) = (site, &mut self.sites[site]);
        let stays = |p: u32| match &probes[p as usize].place {
            Place::Kernel { .. } | Place::LockNop { .. } | Place::Pointer { .. } | Place::Watch(_) => true,
            // Whether a module is still there its guest is asked.
            Place::Timer(_) | Place::Module { .. } | Place::Semaphore { .. } | Place::UserPointer { .. } => {
                true
            }
            Place::User { module, offset }
            | Place::UserExit { module, offset, .. }
            | Place::Question { module, offset } => {
                module.page((offset / PAGE) as usize).is_some_and(|content| holds(core, page, content))
                    || is_changed_page(core, profile, module, *offset, page)
            }
        };
        if site.change(|here| here.retain(|&p| stays(p))) {
            self.disarm_site(core, index);
        }
    }
}

/// The bytes at a physical address, as many as its page has.
pub(crate) fn bytes_at(core: &Core, paddr: u64) -> [u8; 15] {
    let mut bytes = [0; 15];
    let n = ((PAGE - paddr % PAGE) as usize).min(15);
    core.ram().read(paddr, &mut bytes[..n]);
    bytes
}

impl Site {
    /// Arms it: patches it, or has the machine watch it. Its index is what traps out of it carry.
    pub(crate) fn arm(&mut self, core: &mut Core, index: usize) -> Result<(), PatchError> {
        match (self.watch, self.stub) {
            (Some(watch), _) => core.watch(index as u32, watch),
            (None, Some(stub)) if stub.user => {}
            (None, Some(stub)) => stub.write(core, self.paddr)?,
            (None, None) => core.arm(self.paddr, &[self.patch], index as u32)?,
        }
        self.armed = true;
        Ok(())
    }

    /// Disarms it.
    pub(crate) fn disarm(&mut self, core: &mut Core, index: usize) {
        match (self.watch, self.stub) {
            (Some(watch), _) => core.unwatch(index as u32, watch.kind),
            (None, Some(stub)) => !stub.user && stub.clear(core, self.paddr),
            (None, None) => core.disarm(self.paddr),
        };
        self.armed = false;
    }
}

/// The byte at an offset in a module's file, and what to call that place.
fn file_byte(module: &UserModule, offset: u64) -> Result<(u8, String), InsertErrorKind> {
    let at = format!("offset {offset:#x} of {}", module.name());
    match module.bytes_at(offset, 1) {
        Some([byte]) => Ok((*byte, at)),
        _ => Err(InsertErrorKind::NotMapped(at)),
    }
}

fn check_opcode(core: &Core, place: &Place, expected: u8) -> Result<(), InsertErrorKind> {
    let (found, at) = match place {
        Place::Kernel { linear, paddr } => {
            let mut byte = [0];
            if !core.ram().read(*paddr, &mut byte) {
                return Err(InsertErrorKind::NotMapped(format!("linear address {linear:#x}")));
            }
            // `opcode` is of the file. A guest that runs may have changed its code, as Linux does where it can trace.
            if core.icount() > 0 {
                return Ok(());
            }
            (byte[0], format!("{linear:#x}"))
        }
        Place::LockNop { linear, paddr } => {
            let (mut found, at) = ([0; 5], format!("{linear:#x}"));
            if !core.ram().read(*paddr, &mut found) {
                return Err(InsertErrorKind::NotMapped(format!("linear address {at}")));
            }
            if found != FIVE_NOPS && found != FOUR_NOPS_AND_RET {
                return Err(InsertErrorKind::NotFiveNops { at, found });
            }
            (found[0], at)
        }
        Place::Pointer { .. } | Place::UserPointer { .. } | Place::Semaphore { .. } => return Ok(()),
        Place::Watch(_) | Place::Timer(_) => return Ok(()),
        Place::User { module, offset }
        | Place::UserExit { module, offset, .. }
        | Place::Question { module, offset } => file_byte(module, *offset)?,
        Place::Module { module, offset } => file_byte(module.file(), *offset)?,
    };
    if found == expected { Ok(()) } else { Err(InsertErrorKind::OpcodeMismatch { at, expected, found }) }
}
