//! The high precision event timers (Intel IA-PC HPET specification 1.0a): a counter of 100 MHz and three comparators.
//!
//! Each comparator can interrupt by pin 2 of the I/O APIC. With legacy replacement, the first takes the place of the 8254
//! (IRQ 0) and the second that of the real-time clock (IRQ 8). There are no message-signalled interrupts. The counter
//! follows virtual time; the stored state changes only when a comparator fires or the guest writes.

use serde::{Deserialize, Serialize};

/// Where its registers are, physical.
pub const HPET_BASE: u64 = 0xfed0_0000;
/// Virtual ns of one count.
const TICK_NS: u64 = 10;
/// Femtoseconds of one count.
const PERIOD_FS: u64 = TICK_NS * 1_000_000;
/// Comparators.
const TIMERS: usize = 3;
/// Capabilities: revision 1, three timers, 64 bits, legacy replacement, Intel; and the period.
const CAPABILITIES: u64 = PERIOD_FS << 32 | HPET_ID as u64;
/// The lower half of the capabilities, which ACPI's table repeats.
pub const HPET_ID: u32 = 0x8086_a201;

/// General configuration: the counter runs, legacy replacement.
const RUNS: u64 = 1;
const LEGACY: u64 = 2;

/// A comparator's configuration.
const LEVEL: u64 = 1 << 1;
const ENABLED: u64 = 1 << 2;
const PERIODIC: u64 = 1 << 3;
const SET_VALUE: u64 = 1 << 6;
const NARROW: u64 = 1 << 8;
const ROUTE: u64 = 0x1f << 9;
/// What a write can change.
const WRITABLE: u64 = LEVEL | ENABLED | PERIODIC | SET_VALUE | NARROW | ROUTE;
/// Periodic mode, 64 bits; pin 2 of the I/O APIC.
const TIMER_CAPABILITIES: u64 = 1 << 4 | 1 << 5 | 1 << (32 + PIN as u64);
/// The pin of the I/O APIC to which comparators can be routed.
pub const PIN: u8 = 2;

/// Where a comparator's interrupt goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// An ISA interrupt, by legacy replacement.
    Irq(u8),
    /// A pin of the I/O APIC.
    Pin(u8),
}

/// One comparator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Comparator {
    config: u64,
    value: u64,
    period: u64,
    /// The absolute count at which it fires next; none while it waits for a new value.
    due: Option<u64>,
}

/// The timers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hpet {
    config: u64,
    status: u64,
    /// The count at `since_ns`; it advances from there while it runs.
    count: u64,
    since_ns: u64,
    comparators: [Comparator; TIMERS],
}

impl super::Stored for Hpet {
    const NAME: &str = "HPET";
    const VERSION: u16 = 1;
}

impl Hpet {
    fn runs(&self) -> bool {
        self.config & RUNS != 0
    }

    /// Whether it stands in for the 8254 and the real-time clock, whose interrupts then go nowhere.
    pub fn replaces_legacy(&self) -> bool {
        self.config & LEGACY != 0
    }

    fn counter(&self, now_ns: u64) -> u64 {
        let passed = if self.runs() { now_ns.saturating_sub(self.since_ns) / TICK_NS } else { 0 };
        self.count.wrapping_add(passed)
    }

    /// Sets when a comparator fires next, from the present count on.
    fn schedule(&mut self, n: usize, now_ns: u64) {
        let (count, runs) = (self.counter(now_ns), self.runs());
        let Some(c) = self.comparators.get_mut(n) else { return };
        let left = c.value.wrapping_sub(count);
        let left = if c.config & NARROW != 0 { left & 0xffff_ffff } else { left };
        // A value that has just passed comes again only when the counter wraps.
        c.due = (runs && left != 0).then(|| count.checked_add(left)).flatten();
    }

    fn schedule_all(&mut self, now_ns: u64) {
        (0..TIMERS).for_each(|n| self.schedule(n, now_ns));
    }

    /// The virtual time of an absolute count.
    fn time_of(&self, count: u64) -> u64 {
        self.since_ns.saturating_add(count.saturating_sub(self.count).saturating_mul(TICK_NS))
    }

    /// When a comparator that interrupts is next due.
    #[inline]
    pub fn next_event(&self) -> Option<u64> {
        if !self.runs() {
            return None;
        }
        let enabled = self.comparators.iter().filter(|c| c.config & ENABLED != 0);
        enabled.filter_map(|c| c.due).map(|due| self.time_of(due)).min()
    }

    /// Lets the comparators that are due up to `now_ns` fire; those whose line is to be pulsed are returned, one bit each.
    pub fn advance(&mut self, now_ns: u64) -> u8 {
        if !self.runs() {
            return 0;
        }
        let count = self.counter(now_ns);
        let mut pulses = 0;
        for (n, c) in self.comparators.iter_mut().enumerate() {
            let Some(due) = c.due.filter(|due| *due <= count) else { continue };
            if c.config & ENABLED != 0 {
                if c.config & LEVEL != 0 {
                    self.status |= 1 << n;
                } else {
                    pulses |= 1 << n;
                }
            }
            c.due = None;
            if c.config & PERIODIC != 0 && c.period != 0 {
                let missed = (count - due) / c.period;
                let next = due.saturating_add(c.period.saturating_mul(missed + 1));
                c.due = Some(next);
                c.value = if c.config & NARROW != 0 { next & 0xffff_ffff } else { next };
            }
        }
        pulses
    }

    /// Where a comparator's interrupt goes.
    pub fn line(&self, n: u8) -> Line {
        match n {
            0 if self.replaces_legacy() => Line::Irq(0),
            1 if self.replaces_legacy() => Line::Irq(8),
            _ => Line::Pin(PIN),
        }
    }

    /// Whether a level-triggered comparator asks for service; `None` if it makes edges.
    pub fn level(&self, n: u8) -> Option<bool> {
        let c = self.comparators.get(usize::from(n))?;
        (c.config & LEVEL != 0).then_some(c.config & ENABLED != 0 && self.status >> n & 1 != 0)
    }

    fn register(&self, at: u16, now_ns: u64) -> u64 {
        match (at, self.comparators.get(usize::from((at.wrapping_sub(0x100)) >> 5))) {
            (0x000, _) => CAPABILITIES,
            (0x010, _) => self.config,
            (0x020, _) => self.status,
            (0x0f0, _) => self.counter(now_ns),
            (0x100.., Some(c)) => match at & 0x18 {
                0x00 => c.config | TIMER_CAPABILITIES,
                0x08 => c.value,
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Reads `size` bytes (1, 2 or 4) of a register of eight bytes.
    pub fn read(&self, offset: u16, size: u8, now_ns: u64) -> u32 {
        let value = self.register(offset & 0x3f8, now_ns) >> (8 * (offset & 7));
        value as u32 & (u32::MAX >> (32 - 8 * u32::from(size.clamp(1, 4))))
    }

    /// Writes four bytes; other sizes have no effect (2.3.2).
    pub fn write(&mut self, offset: u16, size: u8, value: u32, now_ns: u64) {
        if size != 4 || offset & 3 != 0 {
            return;
        }
        let at = offset & 0x3f8;
        let (shift, new) = (8 * u64::from(offset & 4), u64::from(value));
        let merged = |old: u64| old & !(0xffff_ffff << shift) | new << shift;
        match at {
            0x010 => {
                let config = merged(self.config) & (RUNS | LEGACY);
                self.count = self.counter(now_ns);
                (self.since_ns, self.config) = (now_ns, config);
                self.schedule_all(now_ns);
            }
            0x020 => self.status &= !(new << shift),
            // The counter can be written only while it stands (2.3.7).
            0x0f0 if !self.runs() => self.count = merged(self.count),
            0x100..0x160 => self.write_comparator(usize::from(at - 0x100) >> 5, at & 0x18, merged, now_ns),
            _ => {}
        }
    }

    fn write_comparator(&mut self, n: usize, field: u16, merged: impl Fn(u64) -> u64, now_ns: u64) {
        let Some(c) = self.comparators.get_mut(n) else { return };
        match field {
            0x00 => {
                let config = merged(c.config) & WRITABLE;
                // A route that the comparator does not have is not taken (2.3.8).
                let supported = (config & ROUTE) >> 9 == u64::from(PIN);
                c.config = if supported { config } else { config & !ROUTE | c.config & ROUTE };
                if c.config & LEVEL == 0 {
                    self.status &= !(1 << n);
                }
            }
            0x08 => {
                // In periodic mode a write sets the period, and the next value too if the configuration says so (2.3.9.2.2).
                let periodic = c.config & PERIODIC != 0;
                if periodic {
                    c.period = merged(c.period);
                }
                if !periodic || c.config & SET_VALUE != 0 {
                    c.value = merged(c.value);
                }
                c.config &= !SET_VALUE;
            }
            _ => return,
        }
        self.schedule(n, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Hpet {
        let mut h = Hpet::default();
        h.write(0x10, 4, 1, 1000);
        h
    }

    #[test]
    fn it_counts_while_it_runs() {
        let mut h = running();
        assert_eq!((h.read(0, 4, 0), h.read(4, 4, 0)), (0x8086_a201, 10_000_000));
        assert_eq!((h.read(0xf0, 4, 1000), h.read(0xf0, 4, 2005)), (0, 100));
        h.write(0xf0, 4, 7, 2005);
        assert_eq!(h.read(0xf0, 4, 2005), 100, "not while it runs");
        h.write(0x10, 4, 0, 2010);
        h.write(0xf4, 4, 1, 2010);
        assert_eq!((h.read(0xf0, 4, 9000), h.read(0xf4, 4, 9000)), (101, 1));
    }

    #[test]
    fn a_comparator_fires_once_or_again_and_again() {
        let mut h = running();
        h.write(0x100, 4, ENABLED as u32, 1000);
        h.write(0x108, 4, 50, 1000);
        assert_eq!(h.next_event(), Some(1500));
        assert_eq!((h.advance(1499), h.advance(1500), h.next_event()), (0, 1, None));
        h.write(0x120, 4, (ENABLED | PERIODIC | SET_VALUE) as u32, 1500);
        h.write(0x128, 4, 100, 1500);
        h.write(0x128, 4, 30, 1500);
        assert_eq!(h.next_event(), Some(2000));
        assert_eq!((h.advance(2000), h.next_event()), (2, Some(2300)));
        assert_eq!((h.advance(3000), h.next_event()), (2, Some(3200)), "missed periods are not made up for");
    }

    #[test]
    fn a_level_stays_until_it_is_cleared() {
        let mut h = running();
        h.write(0x140, 4, (ENABLED | LEVEL | 2 << 9) as u32, 1000);
        h.write(0x148, 4, 1, 1000);
        assert_eq!((h.advance(1010), h.level(2), h.line(2)), (0, Some(true), Line::Pin(2)));
        h.write(0x20, 4, 4, 1020);
        assert_eq!(h.level(2), Some(false));
        h.write(0x148, 4, 5, 1020);
        h.advance(1050);
        assert_eq!(h.level(2), Some(true));
        h.write(0x140, 4, (LEVEL | 4 << 9) as u32, 1050);
        assert_eq!(
            (h.level(2), h.read(0x140, 4, 1050) >> 9 & 0x1f),
            (Some(false), 2),
            "disabled, its route unchanged"
        );
        h.write(0x140, 4, ENABLED as u32, 1050);
        assert_eq!(h.level(2), None);
        h.write(0x10, 4, 3, 1020);
        assert_eq!([h.line(0), h.line(1), h.line(2)], [Line::Irq(0), Line::Irq(8), Line::Pin(2)]);
    }
}
