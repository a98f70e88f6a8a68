//! Probes on time: what is due when, and a handler's run between two instructions.

use crate::table::{Interposer, Place};
use trapline_emu::Core;

/// What a timer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Virtual nanoseconds.
    Virtual,
    /// Instructions.
    Instructions,
}

/// A place in time: each multiple of a period since the machine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// What it counts.
    pub clock: Clock,
    /// Every how many.
    pub period: u64,
}

impl Timer {
    fn now(self, core: &Core) -> u64 {
        match self.clock {
            Clock::Virtual => core.virtual_ns(),
            Clock::Instructions => core.icount(),
        }
    }

    /// The first multiple after now.
    fn next(self, core: &Core) -> u64 {
        (self.now(core) / self.period.max(1)).saturating_add(1).saturating_mul(self.period.max(1))
    }
}

impl Interposer {
    /// Starts the timer of a probe that has just been enabled.
    pub(crate) fn start_timer(&mut self, core: &mut Core, probe: usize, timer: Timer) {
        self.timers.insert(probe as u32, timer.next(core));
        self.set_alarm(core);
    }

    /// Stops the timer of a probe.
    pub(crate) fn stop_timer(&mut self, core: &mut Core, probe: usize) {
        self.timers.remove(&(probe as u32));
        self.set_alarm(core);
    }

    /// Starts all timers anew, when the clock has been set to another time.
    pub(crate) fn restart_timers(&mut self, core: &mut Core) {
        let enabled = (0..).zip(&self.probes).filter(|(_, probe)| probe.enabled);
        let timers = enabled.filter_map(|(n, probe)| match probe.place {
            Place::Timer(timer) => Some((n, timer.next(core))),
            _ => None,
        });
        self.timers = timers.collect();
        self.set_alarm(core);
    }

    fn due(&self, clock: Clock) -> impl Iterator<Item = (u32, u64)> {
        let of = move |probe: u32| match self.probes.get(probe as usize)?.place {
            Place::Timer(timer) => Some(timer.clock == clock),
            _ => None,
        };
        self.timers
            .iter()
            .map(|(&probe, &due)| (probe, due))
            .filter(move |(probe, _)| of(*probe) == Some(true))
    }

    fn set_alarm(&self, core: &mut Core) {
        core.set_alarm(self.due(Clock::Virtual).map(|(_, due)| due).min());
    }

    /// The instruction count at which the next timer that counts instructions is due: a run must stop there, and
    /// [`Interposer::tick`] must follow each stop.
    pub fn next_tick(&self) -> Option<u64> {
        self.due(Clock::Instructions).map(|(_, due)| due).min()
    }

    /// Runs the handlers of timers that are due. The machine stands between two instructions.
    pub fn tick(&mut self, core: &mut Core) {
        if self.timers.is_empty() {
            return;
        }
        for number in self.timers.keys().copied().collect::<Vec<_>>() {
            let Some(probe) = self.probes.get(number as usize) else { continue };
            let Place::Timer(timer) = probe.place else { continue };
            if self.timers.get(&number).is_some_and(|due| timer.now(core) >= *due) {
                self.timers.insert(number, timer.next(core));
                self.hit_without_site(core, number, None, None);
            }
        }
        self.set_alarm(core);
    }
}
