//! The fixed hardware of ACPI (specification 6.5, chapter 4.8): PM1a event and control registers and the PM timer.
//!
//! There is no legacy mode: SCI_EN is always set. The only event that the hardware can make is the timer's carry; no
//! button is ever pressed. The timer has 24 bits and follows virtual time.

use super::time::{ns_of_tick, ticks_at};
use serde::{Deserialize, Serialize};

/// Hertz of the PM timer.
pub const PM_TIMER_HZ: u64 = 3_579_545;
/// The value of SLP_TYP that `\_S5` names: soft off.
pub const SLP_TYP_S5: u8 = 5;

/// TMR_STS and TMR_EN.
const TIMER: u16 = 1;
/// TMR_EN, GBL_EN, PWRBTN_EN, SLPBTN_EN, RTC_EN.
const ENABLE_BITS: u16 = 0x0721;
const SCI_EN: u16 = 1;
/// BM_RLD and SLP_TYP stay; GBL_RLS and SLP_EN read 0.
const CONTROL_BITS: u16 = 0x1c02;

/// The registers, twelve bytes from the event block on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AcpiPm {
    enable: u16,
    control: u16,
    /// How often the timer's highest bit had changed when its status was last cleared.
    seen: u64,
}

impl super::Stored for AcpiPm {
    const NAME: &str = "ACPI power management";
    const VERSION: u16 = 1;
}

impl AcpiPm {
    /// How often the timer's highest bit has changed.
    fn carries(now_ns: u64) -> u64 {
        ticks_at(now_ns, PM_TIMER_HZ) >> 23
    }

    fn status(&self, now_ns: u64) -> u16 {
        if Self::carries(now_ns) > self.seen { TIMER } else { 0 }
    }

    /// Level of the system control interrupt.
    pub fn sci(&self, now_ns: u64) -> bool {
        self.enable & TIMER != 0 && self.status(now_ns) != 0
    }

    /// When the SCI next rises by itself; `None` when it is up or cannot.
    #[inline]
    pub fn next_event(&self, now_ns: u64) -> Option<u64> {
        if self.enable & TIMER == 0 || self.sci(now_ns) {
            return None;
        }
        Some(ns_of_tick((self.seen + 1) << 23, PM_TIMER_HZ))
    }

    /// Reads byte `offset` of the twelve.
    pub fn read(&self, offset: u8, now_ns: u64) -> u8 {
        let timer = (ticks_at(now_ns, PM_TIMER_HZ) & 0xff_ffff) as u32;
        let [status, enable] = [self.status(now_ns), self.enable].map(u16::to_le_bytes);
        let control = (self.control | SCI_EN).to_le_bytes();
        let registers = [status, enable, control, [0; 2]];
        match offset {
            0..=7 => registers.as_flattened().get(usize::from(offset)).copied().unwrap_or(0),
            _ => timer.to_le_bytes().get(usize::from(offset) - 8).copied().unwrap_or(0),
        }
    }

    /// Writes byte `offset`; true when that asks for soft off. There are no other sleep types.
    pub fn write(&mut self, offset: u8, value: u8, now_ns: u64) -> bool {
        let high = |old: u16| old & 0xff | u16::from(value) << 8;
        let low = |old: u16| old & 0xff00 | u16::from(value);
        match offset {
            0 if value & 1 != 0 => self.seen = Self::carries(now_ns),
            2 => self.enable = low(self.enable) & ENABLE_BITS,
            3 => self.enable = high(self.enable) & ENABLE_BITS,
            4 => self.control = low(self.control) & CONTROL_BITS,
            5 => {
                self.control = high(self.control) & CONTROL_BITS;
                return value & 0x20 != 0 && value >> 2 & 7 == SLP_TYP_S5;
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(pm: &AcpiPm, now_ns: u64) -> u32 {
        u32::from_le_bytes([8, 9, 10, 11].map(|n| pm.read(n, now_ns)))
    }

    #[test]
    fn the_timer_follows_virtual_time_and_wraps_at_24_bits() {
        let pm = AcpiPm::default();
        assert_eq!(timer(&pm, 1_000_000_000), 3_579_545);
        assert_eq!(timer(&pm, 10_000_000_000), 35_795_450 % (1 << 24));
    }

    #[test]
    fn its_carry_interrupts_where_that_is_enabled() {
        let mut pm = AcpiPm::default();
        let carry = ns_of_tick(1 << 23, PM_TIMER_HZ);
        assert_eq!(pm.next_event(0), None);
        pm.write(2, 1, 0);
        assert_eq!(pm.next_event(0), Some(carry));
        assert!(!pm.sci(carry - 1) && pm.sci(carry));
        assert_eq!((pm.read(0, carry), pm.next_event(carry)), (1, None));
        pm.write(0, 1, carry);
        assert!(!pm.sci(carry));
        assert_eq!(pm.next_event(carry), Some(ns_of_tick(2 << 23, PM_TIMER_HZ)));
    }

    #[test]
    fn soft_off_and_nothing_else() {
        let mut pm = AcpiPm::default();
        assert_eq!(pm.read(4, 0), 1);
        for (value, off) in [(0x14, false), (0x20, false), (0x30, false), (0x3c, false), (0x34, true)] {
            assert_eq!(pm.write(5, value, 0), off, "{value:#x}");
        }
        assert_eq!(pm.read(5, 0), 0x14);
    }
}
