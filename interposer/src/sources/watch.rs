//! Watchpoint probes: the limits of the hardware's debug registers, and arming.

use crate::model::{InsertErrorKind, Place, Probe};
use crate::sites::SiteTable;
use trapline_emu::{Core, Watch, WatchKind};

/// Debug registers that hold an address: DR0 to DR3.
const REGISTERS: usize = 4;

/// Whether a debug register can hold the range: 1, 2, 4 or 8 bytes, aligned to their size (SDM volume 3, 17.2.5); for
/// execution one byte, for ports no more than `in` and `out` move.
fn fits_hardware(watch: &Watch) -> bool {
    let Some(size) = (watch.high - watch.low).checked_add(1) else { return false };
    let most = match watch.kind {
        WatchKind::Execute => 1,
        WatchKind::Io => 4,
        WatchKind::Write | WatchKind::ReadWrite => 8,
    };
    watch.low.is_multiple_of(size) && size <= most && matches!(size, 1 | 2 | 4 | 8)
}

/// The valid ranges of a watch, for messages.
fn allowed(kind: WatchKind) -> &'static str {
    match kind {
        WatchKind::Execute => "1 byte",
        WatchKind::Io => "1, 2 or 4 ports, aligned to their number",
        _ => "1, 2, 4 or 8 bytes, aligned to their size",
    }
}

fn too_many(watch: &Watch) -> InsertErrorKind {
    InsertErrorKind::WatchLimit { low: watch.low, high: watch.high, limit: REGISTERS }
}

/// Which watches are accepted.
#[derive(Debug, Default)]
pub(crate) struct WatchRules {
    /// Any range and any number.
    pub unlimited: bool,
    /// Whether the watches are counted only when the selection ends.
    pub selecting: bool,
}

impl WatchRules {
    /// Whether a place can be watched, regardless of the number of watches.
    pub fn check(&self, place: &Place) -> Result<(), InsertErrorKind> {
        let Some(watch) = place.watch() else { return Ok(()) };
        let Watch { low, high, kind } = watch;
        if high < low {
            return Err(InsertErrorKind::WatchReversed { low, high });
        }
        if kind == WatchKind::Io && high > 0xffff {
            return Err(InsertErrorKind::WatchPort(high));
        }
        if !self.unlimited && !fits_hardware(&watch) {
            return Err(InsertErrorKind::WatchRange { low, high, allowed: allowed(kind) });
        }
        Ok(())
    }

    /// The first enabled watch beyond the limit, and its program.
    pub fn one_too_many(&self, probes: &[Probe]) -> Option<(u32, InsertErrorKind)> {
        let enabled = probes.iter().filter(|p| p.enabled);
        let mut watches = enabled.filter_map(|p| Some((p.program, p.place.watch()?)));
        let (program, watch) = watches.nth(REGISTERS).filter(|_| !self.unlimited)?;
        Some((program, too_many(&watch)))
    }

    /// Arms the watch of a probe that has just been enabled.
    pub fn enable(
        &self,
        core: &mut Core,
        watch: Watch,
        number: u32,
        probes: &[Probe],
        sites: &mut SiteTable,
    ) -> Result<(), InsertErrorKind> {
        let armed = probes.iter().filter(|p| p.enabled && p.place.watch().is_some()).count();
        if armed > REGISTERS && !self.unlimited && !self.selecting {
            return Err(too_many(&watch));
        }
        if watch.kind != WatchKind::Execute {
            core.watch(number, watch);
            return Ok(());
        }
        Ok(sites.attach_watch(core, watch, number)?)
    }
}

/// Disarms the watch of a probe.
pub(crate) fn disable_watch(core: &mut Core, watch: Watch, number: u32, sites: &mut SiteTable) {
    if watch.kind == WatchKind::Execute {
        sites.leave_watch(core, watch, number);
    } else {
        core.unwatch(number, watch.kind);
    }
}

/// The watches of accesses that are armed now, with their probes.
pub(crate) fn data_watches(probes: &[Probe]) -> Vec<(u32, Watch)> {
    let armed = (0..).zip(probes).filter(|(_, p)| p.enabled);
    let watches = armed.filter_map(|(n, p)| Some((n, p.place.watch()?)));
    watches.filter(|(_, watch)| watch.kind != WatchKind::Execute).collect()
}
