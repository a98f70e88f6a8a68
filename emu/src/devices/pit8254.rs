//! The 8254 programmable interval timer (Intel 8254 data sheet, order 231164), and port 61h's share of it.
//!
//! Nothing counts here: a channel remembers the tick at which its count was loaded, and every output is a function of
//! that and of the present tick of the 1.193182 MHz input, taken exactly from the nanoseconds given to each call.
//! A new count written to a running mode 2 or 3 channel takes effect at the end of the whole period.

use super::time::{ns_of_tick, ticks_at};
use serde::{Deserialize, Serialize};

/// The input clock in Hz.
pub const PIT_HZ: u64 = 1_193_182;

/// Refresh request toggles once every this many ticks of the input clock (about 15 us), bit 4 of port 61h.
const REFRESH_TICKS: u64 = 18;

/// How many and which bytes of a count one access moves (control word bits 5-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Access {
    Low,
    High,
    Both,
}

/// State of the counting element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Run {
    /// A control word has been written, a count or trigger is awaited.
    Idle,
    /// Loaded at this tick, counting since.
    Since(u64),
    /// The gate is low; this many ticks had been counted.
    Held(u64),
}

/// One of the three counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Channel {
    mode: u8,
    bcd: bool,
    access: Access,
    gate: bool,
    /// The count in ticks, 1 to 65536.
    count: u64,
    run: Run,
    /// A count for the next period, and the tick at which that begins.
    next: Option<(u64, u64)>,
    /// The low byte of a two-byte write that waits for its high byte.
    write_low: Option<u8>,
    read_high: bool,
    latched: Option<u16>,
    latched_status: Option<u8>,
}

impl Channel {
    fn new(gate: bool) -> Self {
        Self {
            mode: 2,
            bcd: false,
            access: Access::Both,
            gate,
            count: 0x1_0000,
            run: if gate { Run::Since(0) } else { Run::Idle },
            next: None,
            write_low: None,
            read_high: false,
            latched: None,
            latched_status: None,
        }
    }

    fn modulus(&self) -> u64 {
        if self.bcd { 10_000 } else { 0x1_0000 }
    }

    fn periodic(&self) -> bool {
        matches!(self.mode, 2 | 3)
    }

    fn triggered(&self) -> bool {
        matches!(self.mode, 1 | 5)
    }

    /// Takes over a count whose period has begun.
    fn sync(&mut self, tick: u64) {
        if let Some((count, start)) = self.next.filter(|(_, start)| tick >= *start) {
            self.count = count;
            self.run = Run::Since(start);
            self.next = None;
        }
    }

    /// Ticks counted so far, `None` while no count is loaded.
    fn elapsed(&self, tick: u64) -> Option<u64> {
        match self.run {
            Run::Idle => None,
            Run::Since(start) => Some(tick.saturating_sub(start)),
            Run::Held(done) => Some(done),
        }
    }

    fn loaded(&self, tick: u64) -> bool {
        matches!(self.run, Run::Held(_)) || matches!(self.run, Run::Since(start) if tick >= start)
    }

    /// Level of OUT (data sheet, "Mode definitions").
    fn out(&self, tick: u64) -> bool {
        let Some(elapsed) = self.elapsed(tick) else {
            return self.mode != 0;
        };
        if self.periodic() && !self.gate {
            return true;
        }
        match self.mode {
            0 | 1 => elapsed >= self.count,
            2 => elapsed % self.count != self.count - 1 || self.count == 1,
            3 => elapsed % self.count < self.count.div_ceil(2),
            _ => elapsed != self.count,
        }
    }

    /// What the counting element shows, in the channel's number system.
    fn counter(&self, tick: u64) -> u16 {
        let modulus = self.modulus();
        let value = match self.elapsed(tick) {
            None => self.count,
            Some(elapsed) => match self.mode {
                2 => self.count - elapsed % self.count,
                3 => self.square_counter(elapsed % self.count),
                _ => self.count + modulus - elapsed % modulus,
            },
        };
        let value = value % modulus;
        if self.bcd { to_bcd(value) } else { (value & 0xffff) as u16 }
    }

    /// Mode 3 counts each half down by two, from the count or, if that is odd, from one less.
    fn square_counter(&self, phase: u64) -> u64 {
        let high = self.count.div_ceil(2);
        let into = if phase < high { phase } else { phase - high };
        (self.count & !1).saturating_sub(2 * into)
    }

    /// The first rising edge of OUT after `tick`.
    fn rising_edge_after(&self, tick: u64) -> Option<u64> {
        let Run::Since(start) = self.run else {
            return None;
        };
        let once = |at: u64| (at > tick).then_some(at);
        match self.mode {
            0 | 1 => once(start.saturating_add(self.count)),
            2 | 3 => {
                let periods = tick.saturating_sub(start) / self.count + 1;
                Some(start.saturating_add(periods.saturating_mul(self.count)))
            }
            _ => once(start.saturating_add(self.count + 1)),
        }
    }

    fn control(&mut self, word: u8, tick: u64) {
        match (word >> 4) & 3 {
            0 => return self.latch_count(tick),
            1 => self.access = Access::Low,
            2 => self.access = Access::High,
            _ => self.access = Access::Both,
        }
        self.mode = match (word >> 1) & 7 {
            mode @ 0..=5 => mode,
            dont_care => dont_care & 3,
        };
        self.bcd = word & 1 != 0;
        self.run = Run::Idle;
        self.next = None;
        self.write_low = None;
        self.read_high = false;
        self.latched = None;
        self.latched_status = None;
    }

    fn latch_count(&mut self, tick: u64) {
        if self.latched.is_none() {
            self.latched = Some(self.counter(tick));
        }
    }

    /// Status byte of the read-back command: OUT, null count, then the control word's low six bits.
    fn latch_status(&mut self, tick: u64) {
        if self.latched_status.is_some() {
            return;
        }
        let access = match self.access {
            Access::Low => 0x10,
            Access::High => 0x20,
            Access::Both => 0x30,
        };
        let null = self.next.is_some() || !self.loaded(tick);
        self.latched_status = Some(
            u8::from(self.out(tick)) << 7
                | u8::from(null) << 6
                | access
                | self.mode << 1
                | u8::from(self.bcd),
        );
    }

    fn read(&mut self, tick: u64) -> u8 {
        if let Some(status) = self.latched_status.take() {
            return status;
        }
        let [low, high] = self.latched.unwrap_or_else(|| self.counter(tick)).to_le_bytes();
        let (value, last) = match self.access {
            Access::Low => (low, true),
            Access::High => (high, true),
            Access::Both if self.read_high => (high, true),
            Access::Both => (low, false),
        };
        self.read_high = !last;
        if last {
            self.latched = None;
        }
        value
    }

    fn write(&mut self, value: u8, tick: u64) {
        match (self.access, self.write_low) {
            (Access::Low, _) => self.load(u16::from(value), tick),
            (Access::High, _) => self.load(u16::from(value) << 8, tick),
            (Access::Both, None) => {
                self.write_low = Some(value);
                if self.mode == 0 {
                    self.run = Run::Idle;
                }
            }
            (Access::Both, Some(low)) => {
                self.write_low = None;
                self.load(u16::from_le_bytes([low, value]), tick);
            }
        }
    }

    /// A count is transferred at the clock pulse after its write (data sheet, "Write operations").
    fn load(&mut self, raw: u16, tick: u64) {
        let count = match if self.bcd { from_bcd(raw) } else { u64::from(raw) } {
            0 => self.modulus(),
            count => count,
        };
        let start = tick.saturating_add(1);
        if self.periodic() && self.gate && matches!(self.run, Run::Since(_)) {
            let end = self.rising_edge_after(tick).unwrap_or(start);
            self.next = Some((count, end));
            return;
        }
        if self.triggered() && self.run != Run::Idle {
            // A running one-shot keeps its count until the next trigger.
            self.next = Some((count, u64::MAX));
            return;
        }
        self.count = count;
        if !self.triggered() {
            self.run = if self.gate { Run::Since(start) } else { Run::Held(0) };
        }
    }

    fn set_gate(&mut self, gate: bool, tick: u64) {
        let rising = gate && !self.gate;
        let falling = !gate && self.gate;
        self.gate = gate;
        let start = tick.saturating_add(1);
        match (self.mode, self.run) {
            (1 | 5, _) if rising => {
                self.take_next();
                self.run = Run::Since(start);
            }
            (2 | 3, Run::Held(_)) if rising => {
                self.take_next();
                self.run = Run::Since(start);
            }
            (0 | 4, Run::Held(done)) if rising => self.run = Run::Since(tick.saturating_sub(done)),
            (0 | 2 | 3 | 4, Run::Since(begun)) if falling => self.run = Run::Held(tick.saturating_sub(begun)),
            _ => {}
        }
    }

    fn take_next(&mut self) {
        if let Some((count, _)) = self.next.take() {
            self.count = count;
        }
    }
}

fn to_bcd(value: u64) -> u16 {
    let digit = |power: u64| value / power % 10;
    ((digit(1000) << 12 | digit(100) << 8 | digit(10) << 4 | digit(1)) & 0xffff) as u16
}

fn from_bcd(raw: u16) -> u64 {
    let digit = |shift: u16| u64::from((raw >> shift) & 0xf);
    (digit(12) * 1000 + digit(8) * 100 + digit(4) * 10 + digit(0)) % 10_000
}

/// The 8254 and the speaker gate of port 61h.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pit {
    channels: [Channel; 3],
    speaker: bool,
    /// Tick of the last rising edge of channel 0 that was reported.
    reported: u64,
    /// Tick at which a control word raised channel 0's OUT, until that edge is reported.
    risen: Option<u64>,
}

impl Default for Pit {
    fn default() -> Self {
        Self::new()
    }
}

impl super::Stored for Pit {
    const NAME: &str = "8254 timer";
    const VERSION: u16 = 1;

    fn is_sound(&self) -> bool {
        let count = |count: u64| (1..=0x1_0000).contains(&count);
        let channel =
            |c: &Channel| c.mode <= 5 && count(c.count) && c.next.is_none_or(|(next, _)| count(next));
        self.channels.iter().all(channel)
    }
}

impl Pit {
    /// As firmware leaves it: channel 0 in mode 2 with the full count of 65536, channel 2's gate off.
    pub fn new() -> Self {
        Self {
            channels: [Channel::new(true), Channel::new(true), Channel::new(false)],
            speaker: false,
            reported: 0,
            risen: None,
        }
    }

    /// Reads counter 0 to 2 (`port` is the offset from 40h); the control word port 3 reads all ones.
    pub fn read(&mut self, port: u8, now_ns: u64) -> u8 {
        let tick = ticks_at(now_ns, PIT_HZ);
        match self.channels.get_mut(usize::from(port)) {
            Some(channel) => {
                channel.sync(tick);
                channel.read(tick)
            }
            None => 0xff,
        }
    }

    /// Writes counter 0 to 2 or the control word, port 3 (`port` is the offset from 40h).
    pub fn write(&mut self, port: u8, value: u8, now_ns: u64) {
        let tick = ticks_at(now_ns, PIT_HZ);
        if let Some(channel) = self.channels.get_mut(usize::from(port)) {
            channel.sync(tick);
            channel.write(value, tick);
        } else if port == 3 {
            self.control(value, tick);
        }
    }

    /// Reads port 61h: gate of channel 2, speaker data, refresh toggle (bit 4), OUT of channel 2 (bit 5).
    pub fn read_port61(&mut self, now_ns: u64) -> u8 {
        let tick = ticks_at(now_ns, PIT_HZ);
        let [_, _, speaker_channel] = &mut self.channels;
        speaker_channel.sync(tick);
        u8::from(speaker_channel.gate)
            | u8::from(self.speaker) << 1
            | u8::from(tick / REFRESH_TICKS % 2 == 1) << 4
            | u8::from(speaker_channel.out(tick)) << 5
    }

    /// Writes port 61h: bit 0 is the gate of channel 2, bit 1 the speaker data.
    pub fn write_port61(&mut self, value: u8, now_ns: u64) {
        let tick = ticks_at(now_ns, PIT_HZ);
        let [_, _, speaker_channel] = &mut self.channels;
        speaker_channel.sync(tick);
        speaker_channel.set_gate(value & 1 != 0, tick);
        self.speaker = value & 2 != 0;
    }

    /// The time in ns of channel 0's next rising edge that [`Pit::take_edge`] has not reported; it may lie in the past
    /// if it was not taken in time. `None` if channel 0 is not running.
    pub fn next_edge(&self) -> Option<u64> {
        let [timer, ..] = &self.channels;
        let edge = self.risen.or_else(|| timer.rising_edge_after(self.reported));
        edge.map(|tick| ns_of_tick(tick, PIT_HZ))
    }

    /// True if channel 0's OUT has risen since the last report, up to and including `now_ns`. Several edges count as
    /// one, as on an interrupt line that was not served in between.
    pub fn take_edge(&mut self, now_ns: u64) -> bool {
        let tick = ticks_at(now_ns, PIT_HZ);
        let [timer, ..] = &mut self.channels;
        let mut seen = self.risen.take_if(|at| *at <= tick).is_some();
        while let Some(first) = timer.rising_edge_after(self.reported).filter(|edge| *edge <= tick) {
            timer.sync(first);
            self.reported = first;
            seen = true;
            if timer.periodic() && timer.next.is_none() {
                self.reported = last_edge_until(timer, first, tick);
            }
        }
        seen
    }

    fn control(&mut self, word: u8, tick: u64) {
        if word >> 6 == 3 {
            return self.read_back(word, tick);
        }
        let before = self.timer_out(tick);
        if let Some(channel) = self.channels.get_mut(usize::from(word >> 6)) {
            channel.sync(tick);
            channel.control(word, tick);
        }
        // Every mode but 0 begins with OUT high (data sheet, "Mode definitions"): that too is an edge.
        if !before && self.timer_out(tick) {
            self.risen = Some(tick);
        }
    }

    fn timer_out(&self, tick: u64) -> bool {
        let [timer, ..] = &self.channels;
        timer.out(tick)
    }

    /// Read-back command: bits 5 and 4 low latch count and status, bits 3-1 select the channels.
    fn read_back(&mut self, word: u8, tick: u64) {
        for (index, channel) in self.channels.iter_mut().enumerate() {
            if word & (2 << index) == 0 {
                continue;
            }
            channel.sync(tick);
            if word & 0x20 == 0 {
                channel.latch_count(tick);
            }
            if word & 0x10 == 0 {
                channel.latch_status(tick);
            }
        }
    }
}

/// The last rising edge at or before `tick` of a periodic channel that has one at `first`.
fn last_edge_until(timer: &Channel, first: u64, tick: u64) -> u64 {
    first + (tick.saturating_sub(first)) / timer.count * timer.count
}

#[cfg(test)]
#[path = "pit8254_tests.rs"]
mod tests;
