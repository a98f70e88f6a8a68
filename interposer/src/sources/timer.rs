//! Probes on time: what is due when.

use crate::model::{Clock, Place, Probe, Timer};
use std::collections::BTreeMap;
use trapline_emu::Core;

fn now(timer: Timer, core: &Core) -> u64 {
    match timer.clock {
        Clock::Virtual => core.virtual_ns(),
        Clock::Instructions => core.icount(),
    }
}

/// The first multiple of the period after now.
fn next(timer: Timer, core: &Core) -> u64 {
    let period = timer.period.max(1);
    (now(timer, core) / period).saturating_add(1).saturating_mul(period)
}

/// The timers of the probes that are enabled, and when each is due.
#[derive(Debug, Default, Clone)]
pub(crate) struct Timers(BTreeMap<u32, (Timer, u64)>);

impl Timers {
    /// Starts the timer of a probe that has just been enabled.
    pub fn start(&mut self, core: &mut Core, probe: u32, timer: Timer) {
        self.0.insert(probe, (timer, next(timer, core)));
        self.set_alarm(core);
    }

    /// Stops the timer of a probe.
    pub fn stop(&mut self, core: &mut Core, probe: u32) {
        self.0.remove(&probe);
        self.set_alarm(core);
    }

    /// When each is due.
    pub fn to_stored(&self) -> BTreeMap<u32, u64> {
        self.0.iter().map(|(probe, (_, due))| (*probe, *due)).collect()
    }

    /// Restores the timers of probes; `None` if one has another kind.
    pub fn from_stored(stored: BTreeMap<u32, u64>, probes: &[Probe]) -> Option<Self> {
        let timer = |(probe, due)| match probes.get(probe as usize)?.place {
            Place::Timer(timer) => Some((probe, (timer, due))),
            _ => None,
        };
        stored.into_iter().map(timer).collect::<Option<_>>().map(Self)
    }

    fn next_of(&self, clock: Clock) -> Option<u64> {
        self.0.values().filter(|(timer, _)| timer.clock == clock).map(|(_, due)| *due).min()
    }

    /// Makes the machine stop when the next timer of virtual time is due.
    pub fn set_alarm(&self, core: &mut Core) {
        core.set_alarm(self.next_of(Clock::Virtual));
    }

    /// The instruction count at which the next timer that counts instructions is due.
    pub fn next_tick(&self) -> Option<u64> {
        self.next_of(Clock::Instructions)
    }

    /// The probes that have a timer.
    pub fn probes(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// Whether a probe's timer is due. If it is, it is set to its next time.
    pub fn take_due(&mut self, core: &Core, probe: u32) -> bool {
        let Some((timer, due)) = self.0.get_mut(&probe) else { return false };
        let is_due = now(*timer, core) >= *due;
        if is_due {
            *due = next(*timer, core);
        }
        is_due
    }
}
