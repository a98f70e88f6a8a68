//! Watchpoint probes: what the hardware's debug registers allow, arming, and the life of a watch hit.
//!
//! A watch of execution is a site that the machine tells of instead of a patch: its hits are traps (`hit`), before the
//! instruction. All others are told of when the instruction has retired: nothing is pending then, no retry can follow,
//! and the record is committed at once.

use crate::host::Guest;
use crate::insert::InsertErrorKind;
use crate::table::{Interposer, Place, ProgramId, Site};
use trapline_emu::{Core, Stop, Trap, Watch, WatchAccess, WatchHit, WatchKind};
use trapline_rpn::{Outcome, Vars};
use trapline_trace::{Accessed, WatchItem};

/// Debug registers that hold an address: DR0 to DR3.
const REGISTERS: usize = 4;

/// Whether a debug register can hold the range: 1, 2, 4 or 8 bytes, aligned to their number (SDM volume 3, 17.2.5), of
/// an execution one byte.
fn fits_hardware(watch: &Watch) -> bool {
    let Some(size) = (watch.high - watch.low).checked_add(1) else { return false };
    let wide = watch.kind != WatchKind::Execute;
    watch.low.is_multiple_of(size) && (size == 1 || wide && matches!(size, 2 | 4 | 8))
}

/// What the range of a watch must be.
fn allowed(kind: WatchKind) -> &'static str {
    match kind {
        WatchKind::Execute => "1 byte",
        _ => "1, 2, 4 or 8 bytes, aligned to their number",
    }
}

fn too_many(watch: &Watch) -> InsertErrorKind {
    InsertErrorKind::WatchLimit { low: watch.low, high: watch.high, limit: REGISTERS }
}

/// The item of a record that a watch of execution leaves.
pub(crate) fn executed(trap: &Trap) -> WatchItem {
    WatchItem { access: Accessed::Execute, address: trap.linear, size: 1, ..WatchItem::default() }
}

pub(crate) fn item(hit: &WatchHit) -> WatchItem {
    let access = match hit.access {
        WatchAccess::Read => Accessed::Read,
        WatchAccess::Write => Accessed::Write,
        WatchAccess::ReadWrite => Accessed::ReadWrite,
        WatchAccess::In => Accessed::In,
        WatchAccess::Out => Accessed::Out,
    };
    WatchItem { access, address: hit.address, size: hit.size, old: hit.old, new: hit.new, len: hit.len }
}

impl Interposer {
    /// Takes watches of any range and any number, not only what four debug registers can hold.
    pub fn set_watch_unlimited(&mut self, on: bool) {
        self.watch_unlimited = on;
    }

    /// Puts off the count of the watches: what is inserted now is to be selected from before the guest runs.
    pub fn begin_selection(&mut self) {
        self.selecting = true;
    }

    /// What is enabled now is what was selected.
    ///
    /// # Errors
    /// The program of the first watch that is one too many, and which it is.
    pub fn end_selection(&mut self) -> Result<(), (&str, InsertErrorKind)> {
        self.selecting = false;
        let enabled = self.probes.iter().filter(|p| p.enabled);
        let mut watches = enabled.filter_map(|p| match p.place {
            Place::Watch(watch) => Some((p.program, watch)),
            _ => None,
        });
        match watches.nth(REGISTERS) {
            Some((program, watch)) if !self.watch_unlimited => {
                Err((self.programs.get(program as usize).map_or("", |p| &p.name), too_many(&watch)))
            }
            _ => Ok(()),
        }
    }

    /// Whether a place can be watched, but for the number of watches.
    pub(crate) fn check_watch(&self, place: &Place) -> Result<(), InsertErrorKind> {
        let Place::Watch(watch) = *place else { return Ok(()) };
        let Watch { low, high, kind } = watch;
        if high < low {
            return Err(InsertErrorKind::WatchReversed { low, high });
        }
        if kind == WatchKind::Io && high > 0xffff {
            return Err(InsertErrorKind::WatchPort(high));
        }
        if !self.watch_unlimited && !fits_hardware(&watch) {
            return Err(InsertErrorKind::WatchRange { low, high, allowed: allowed(kind) });
        }
        Ok(())
    }

    /// Arms the watch of a probe that has just been enabled.
    pub(crate) fn enable_watch(
        &mut self,
        core: &mut Core,
        watch: Watch,
        probe: usize,
    ) -> Result<(), InsertErrorKind> {
        let armed = self.probes.iter().filter(|p| p.enabled && matches!(p.place, Place::Watch(_))).count();
        if armed > REGISTERS && !self.watch_unlimited && !self.selecting {
            return Err(too_many(&watch));
        }
        if watch.kind != WatchKind::Execute {
            core.watch(probe as u32, watch);
            return Ok(());
        }
        let index = *self.by_range.entry((watch.low, watch.high)).or_insert_with(|| {
            self.sites.push(Site { watch: Some(watch), ..Site::new(watch.low) });
            self.sites.len() - 1
        });
        self.attach_site(core, index, probe).map_err(InsertErrorKind::from)
    }

    /// The watches of accesses that are armed now, with their probes.
    pub(crate) fn data_watches(&self) -> Vec<(u32, Watch)> {
        let armed = self.probes.iter().enumerate().filter(|(_, p)| p.enabled);
        let watches = armed.filter_map(|(n, p)| match p.place {
            Place::Watch(watch) if watch.kind != WatchKind::Execute => Some((n as u32, watch)),
            _ => None,
        });
        watches.collect()
    }

    /// One hit of a probe that no instruction waits for: at an access, which has been made, behind an instruction, or at a
    /// tick of its timer. `ip` is what handlers see, if not the CPU's.
    pub(crate) fn hit_without_site(
        &mut self,
        core: &mut Core,
        number: u32,
        ip: Option<u64>,
        watch: Option<&WatchItem>,
    ) {
        let Some(probe) = self.probes.get_mut(number as usize).filter(|p| p.enabled) else { return };
        probe.seen += 1;
        if probe.seen <= probe.ignore.into() {
            self.stats.ignored += 1;
            return;
        }
        probe.run += 1;
        let exhausted = probe.run >= probe.limit;
        self.stats.hits += 1;
        self.channels.begin_hit();
        let Some(program) = self.programs.get_mut(probe.program as usize) else { return };
        let mut guest = Guest {
            core,
            profile: &self.config.profile,
            stats: &mut self.stats,
            asked: &mut self.asked,
            ip,
            arguments: probe.arguments.as_deref(),
            at_call: false,
            unwinder: &mut self.stacks.unwinder,
        };
        let outcome = self.vm.run(&probe.handler, &mut guest, Vars { lv: &mut program.lv, gv: &mut self.gv });
        if self.needs_slow_path(&outcome) {
            self.oddities(core, number, false, &outcome);
        }
        if outcome.recorded() {
            let ip = ip.unwrap_or_else(|| core.env().eip());
            self.record(core, number, ip, watch, &outcome);
        }
        if outcome.remove || exhausted {
            self.last_hit_without_site(core, number, &outcome);
        }
    }

    /// A hit that reached its probe's limit, or whose handler asked to be removed.
    #[cold]
    fn last_hit_without_site(&mut self, core: &mut Core, index: u32, outcome: &Outcome) {
        let Some(probe) = self.probes.get(index as usize) else { return };
        let id = ProgramId(probe.program as usize);
        if outcome.remove || probe.run >= probe.rest.maxhits {
            self.disable(core, index as usize);
        }
        self.counted_hits += u64::from(self.last_hit.is_some() && outcome.recorded());
        if self.enough_hits().is_some() {
            self.stop_here(core, index, false);
        }
        let Some(program) = self.programs.get_mut(id.0) else { return };
        program.counted += 1;
        if program.stop_at.is_some_and(|n| program.counted >= n) && !self.fired.contains(&id) {
            self.fired.push(id);
            core.finish(Stop::Requested);
        }
    }
}
