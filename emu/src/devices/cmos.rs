//! The real-time clock and CMOS RAM (Motorola MC146818A data sheet; register use of the IBM PC/AT and QEMU).
//!
//! The date begins at 2000-01-01 00:00:00 UTC, a Saturday, and advances with virtual time alone. While the clock
//! runs, the time registers are brought up to date when the guest reads or writes one; bit SET of register B and
//! the divider reset stop it. Interrupt flags follow from the time since they were last settled, so that
//! [`Cmos::advance`] before anything is due changes no state.

use super::time::{NS_PER_SEC, ns_of_tick, ticks_at};
use crate::layout::{HIGH_START, RamLayout};
use serde::{Deserialize, Serialize};

mod calendar;

use calendar::{Date, civil_from_seconds, seconds_from_civil};

/// The time base in Hz.
const BASE_HZ: u64 = 32_768;
/// 2000-01-01 00:00:00 UTC in seconds since 1970.
const START_SECONDS: i64 = 946_684_800;
/// Update-in-progress is set for 244 us before an update (data sheet, figure 14).
const UIP_NS: u64 = 244_141;

const REG_A: usize = 0x0a;
const REG_B: usize = 0x0b;
const REG_CENTURY: usize = 0x32;

const B_SET: u8 = 0x80;
const B_PIE: u8 = 0x40;
const B_AIE: u8 = 0x20;
const B_UIE: u8 = 0x10;
const B_BINARY: u8 = 0x04;
const B_24H: u8 = 0x02;
const C_IRQF: u8 = 0x80;
const A_DIVIDER_RESET: u8 = 0x60;

/// The MC146818 with 128 bytes of RAM.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cmos {
    index: u8,
    #[serde(with = "super::bytes")]
    ram: [u8; 128],
    /// Seconds since 1970 that the clock showed at `base_ns`.
    base_seconds: i64,
    /// A virtual time at which a second began.
    base_ns: u64,
    /// PF, AF and UF of register C as settled at `settled_ns`.
    flags: u8,
    settled_ns: u64,
}

impl super::Stored for Cmos {
    const NAME: &str = "CMOS and clock";
    const VERSION: u16 = 1;
}

impl Cmos {
    /// A clock at its fixed start, with the memory sizes of `mem_size` bytes of RAM in the bytes where firmware puts
    /// them: 15h to 18h, 30h, 31h (KB), 34h, 35h (64 KB units above 16 MB), 5Bh to 5Dh (64 KB units above 4 GB).
    pub fn new(mem_size: u64) -> Self {
        let mut ram = [0; 128];
        ram[REG_A] = 0x26;
        ram[REG_B] = B_24H;
        ram[0x0d] = 0x80;
        // Equipment: FPU and PS/2 mouse.
        ram[0x14] = 0x06;
        let mut put = |at: usize, value: u64, limit: u64| {
            let value = value.min(limit).to_le_bytes();
            ram[at..at + 2].copy_from_slice(&value[..2]);
        };
        let layout = RamLayout::of(mem_size);
        let extended_kb = layout.low_end().saturating_sub(1 << 20) >> 10;
        put(0x15, 640, 0xffff);
        put(0x17, extended_kb, 0xffff);
        put(0x30, extended_kb, 0xffff);
        put(0x34, layout.low_end().saturating_sub(16 << 20) >> 16, 0xffff);
        let high = (layout.end().saturating_sub(HIGH_START) >> 16).to_le_bytes();
        ram[0x5b..0x5e].copy_from_slice(&high[..3]);
        let mut cmos =
            Self { index: 0, ram, base_seconds: START_SECONDS, base_ns: 0, flags: 0, settled_ns: 0 };
        cmos.store_date(civil_from_seconds(START_SECONDS));
        cmos
    }

    /// Writes the index port (70h); bit 7, the NMI mask, is not kept.
    pub fn select(&mut self, index: u8) {
        self.index = index & 0x7f;
    }

    /// Reads the selected register (port 71h).
    pub fn read(&mut self, now_ns: u64) -> u8 {
        match usize::from(self.index) {
            0 | 2 | 4 | 6..=9 | REG_CENTURY => {
                if self.running() {
                    self.store_date(civil_from_seconds(self.seconds_at(now_ns)));
                }
                self.ram_at(self.index)
            }
            REG_A => self.ram[REG_A] | if self.updating(now_ns) { 0x80 } else { 0 },
            0x0c => {
                self.settle(now_ns);
                let value = self.register_c();
                self.flags = 0;
                value
            }
            _ => self.ram_at(self.index),
        }
    }

    /// Writes the selected register (port 71h).
    pub fn write(&mut self, value: u8, now_ns: u64) {
        self.settle(now_ns);
        match usize::from(self.index) {
            reg @ (0 | 2 | 4 | 6..=9 | REG_CENTURY) => self.write_time(reg, value, now_ns),
            REG_A => self.write_control(REG_A, value & 0x7f, now_ns),
            REG_B => self.write_control(REG_B, value, now_ns),
            0x0c | 0x0d => {}
            reg => {
                if let Some(byte) = self.ram.get_mut(reg) {
                    *byte = value;
                }
            }
        }
    }

    /// Level of IRQ8.
    pub fn irq(&self) -> bool {
        self.register_c() & C_IRQF != 0
    }

    /// The next time in ns at which IRQ8 rises by itself; `None` while nothing is enabled or it is already high.
    pub fn next_edge(&self) -> Option<u64> {
        if self.irq() {
            return None;
        }
        let enabled = self.ram[REG_B];
        if enabled & (B_PIE | B_AIE | B_UIE) == 0 {
            return None;
        }
        let next = |bit: u8, time: fn(&Self, u64) -> Option<u64>| {
            if enabled & bit != 0 { time(self, self.settled_ns) } else { None }
        };
        [next(B_PIE, Self::next_periodic), next(B_AIE, Self::next_alarm), next(B_UIE, Self::next_update)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Settles the flags if IRQ8 is due at or before `now_ns`; otherwise nothing changes.
    pub fn advance(&mut self, now_ns: u64) {
        if let Some(due) = self.next_edge().filter(|due| *due <= now_ns) {
            self.settle(due);
        }
    }

    fn ram_at(&self, index: u8) -> u8 {
        self.ram.get(usize::from(index)).copied().unwrap_or(0xff)
    }

    fn running(&self) -> bool {
        self.ram[REG_B] & B_SET == 0 && self.ram[REG_A] & A_DIVIDER_RESET != A_DIVIDER_RESET
    }

    fn seconds_at(&self, now_ns: u64) -> i64 {
        let elapsed = now_ns.saturating_sub(self.base_ns) / NS_PER_SEC;
        self.base_seconds.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX))
    }

    fn updating(&self, now_ns: u64) -> bool {
        self.running() && self.next_update(now_ns).is_some_and(|next| next - now_ns <= UIP_NS)
    }

    fn register_c(&self) -> u8 {
        let asserted = self.flags & self.ram[REG_B] & (B_PIE | B_AIE | B_UIE);
        self.flags | if asserted != 0 { C_IRQF } else { 0 }
    }

    /// Brings PF, AF and UF up to `now_ns`.
    fn settle(&mut self, now_ns: u64) {
        let due = |time: Option<u64>| time.is_some_and(|time| time <= now_ns);
        if due(self.next_periodic(self.settled_ns)) {
            self.flags |= B_PIE;
        }
        if due(self.next_alarm(self.settled_ns)) {
            self.flags |= B_AIE;
        }
        if due(self.next_update(self.settled_ns)) {
            self.flags |= B_UIE;
        }
        self.settled_ns = self.settled_ns.max(now_ns);
    }

    /// The first edge of the periodic rate after `after_ns`; rates 1 and 2 are those of 8 and 9 (data sheet, table 5).
    fn next_periodic(&self, after_ns: u64) -> Option<u64> {
        let rate = match self.ram[REG_A] & 0x0f {
            0 => return None,
            rate @ 1..=2 => rate + 7,
            rate => rate,
        };
        let period = 1u64 << (rate - 1);
        let edges = ticks_at(after_ns, BASE_HZ) / period + 1;
        Some(ns_of_tick(edges * period, BASE_HZ))
    }

    /// The first time after `after_ns` at which a second begins.
    fn next_update(&self, after_ns: u64) -> Option<u64> {
        if !self.running() {
            return None;
        }
        if after_ns < self.base_ns {
            return Some(self.base_ns);
        }
        let done = (after_ns - self.base_ns) / NS_PER_SEC;
        self.base_ns.checked_add(done.checked_add(1)?.checked_mul(NS_PER_SEC)?)
    }

    /// The first second's beginning after `after_ns` that matches the alarm registers.
    fn next_alarm(&self, after_ns: u64) -> Option<u64> {
        let first = self.next_update(after_ns)?;
        let from = self.seconds_at(first);
        let wanted = [5, 3, 1].map(|reg| (self.ram[reg] & 0xc0 != 0xc0).then_some(reg));
        let hour = wanted[0].map(|_| self.decode_hour(self.ram[5]));
        let minute = wanted[1].map(|_| self.decode(self.ram[3]));
        let second = wanted[2].map(|_| self.decode(self.ram[1]));
        let wait = calendar::seconds_until(from, hour, minute, second)?;
        first.checked_add(wait.checked_mul(NS_PER_SEC)?)
    }

    fn write_time(&mut self, reg: usize, value: u8, now_ns: u64) {
        if !self.running() {
            self.ram[reg & 0x7f] = value;
            return;
        }
        let begun = now_ns - now_ns.saturating_sub(self.base_ns) % NS_PER_SEC;
        self.store_date(civil_from_seconds(self.seconds_at(now_ns)));
        self.ram[reg & 0x7f] = value;
        self.base_seconds = seconds_from_civil(self.load_date());
        self.base_ns = begun.max(self.base_ns);
    }

    /// Stopping the clock stores the date; starting it again begins a second there, the first of half a second when
    /// the divider was held in reset (data sheet, "Divider control").
    fn write_control(&mut self, reg: usize, value: u8, now_ns: u64) {
        let was_running = self.running();
        let was_reset = self.ram[REG_A] & A_DIVIDER_RESET == A_DIVIDER_RESET;
        if was_running {
            self.store_date(civil_from_seconds(self.seconds_at(now_ns)));
        }
        let phase = if was_running { now_ns.saturating_sub(self.base_ns) % NS_PER_SEC } else { 0 };
        self.ram[reg] = value;
        if reg == REG_B && value & B_SET != 0 {
            self.ram[REG_B] &= !B_UIE;
        }
        if self.running() && !was_running {
            self.base_seconds = seconds_from_civil(self.load_date());
            self.base_ns = now_ns;
            if was_reset {
                self.base_ns = now_ns.saturating_sub(NS_PER_SEC / 2);
            }
        } else if was_running && self.running() {
            // The date format may have changed: the next read stores it anew.
            self.base_seconds = self.seconds_at(now_ns);
            self.base_ns = now_ns.saturating_sub(phase).max(self.base_ns);
        }
    }

    fn encode(&self, value: u8) -> u8 {
        if self.ram[REG_B] & B_BINARY != 0 { value } else { ((value / 10 % 10) << 4) + value % 10 }
    }

    fn decode(&self, raw: u8) -> u8 {
        if self.ram[REG_B] & B_BINARY != 0 { raw } else { (raw >> 4) * 10 + (raw & 0x0f) }
    }

    fn encode_hour(&self, hour: u8) -> u8 {
        if self.ram[REG_B] & B_24H != 0 {
            return self.encode(hour);
        }
        let twelve = (hour + 11) % 12 + 1;
        self.encode(twelve) | if hour >= 12 { 0x80 } else { 0 }
    }

    fn decode_hour(&self, raw: u8) -> u8 {
        if self.ram[REG_B] & B_24H != 0 {
            return self.decode(raw);
        }
        self.decode(raw & 0x7f) % 12 + if raw & 0x80 != 0 { 12 } else { 0 }
    }

    fn store_date(&mut self, date: Date) {
        self.ram[0] = self.encode(date.second);
        self.ram[2] = self.encode(date.minute);
        self.ram[4] = self.encode_hour(date.hour);
        self.ram[6] = self.encode(date.weekday);
        self.ram[7] = self.encode(date.day);
        self.ram[8] = self.encode(date.month);
        self.ram[9] = self.encode((date.year % 100) as u8);
        self.ram[REG_CENTURY] = self.encode((date.year / 100 % 100) as u8);
    }

    fn load_date(&self) -> Date {
        Date {
            year: u32::from(self.decode(self.ram[REG_CENTURY])) * 100 + u32::from(self.decode(self.ram[9])),
            month: self.decode(self.ram[8]),
            day: self.decode(self.ram[7]),
            weekday: self.decode(self.ram[6]),
            hour: self.decode_hour(self.ram[4]),
            minute: self.decode(self.ram[2]),
            second: self.decode(self.ram[0]),
        }
    }
}

#[cfg(test)]
mod tests;
