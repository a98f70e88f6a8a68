//! The local APIC of the one CPU, in xAPIC mode (Intel SDM volume 3, chapter 11 "Advanced Programmable Interrupt
//! Controller").
//!
//! The CPU is number 0 and the only one: interprocessor interrupts, INIT and start-up included, reach it or have no
//! receiver. Its timer counts [`TICK_NS`] of virtual time a tick. Not modelled: x2APIC mode, the TSC deadline,
//! relocation, suppression of EOI broadcasts, focus checking. An expired timer becomes visible when the state is next
//! read: the stored state changes only when an interrupt request does, or the guest writes.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

/// Virtual ns of one tick of the timer's clock before the divider: 100 MHz.
pub const TICK_NS: u64 = 10;
/// Hertz of that clock.
pub const TIMER_HZ: u32 = 100_000_000;
/// Where its registers are, physical.
pub const APIC_BASE: u64 = 0xfee0_0000;

/// IA32_APIC_BASE: this is the bootstrap processor.
const BASE_BSP: u64 = 1 << 8;
/// IA32_APIC_BASE: enabled.
const BASE_ENABLE: u64 = 1 << 11;

/// Version 14h, last LVT entry 5.
const VERSION: u32 = 0x0005_0014;
const SVR_ENABLE: u32 = 1 << 8;
const LVT_MASKED: u32 = 1 << 16;
const LVT_PERIODIC: u32 = 1 << 17;
/// Vectors below are the CPU's own exceptions: no interrupt may have them.
const FIRST_VECTOR: u8 = 16;

bitflags! {
    /// Error status register.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    struct Errors: u8 {
        /// An IPI was sent with an illegal vector.
        const SEND_VECTOR = 0x20;
        /// An interrupt with an illegal vector arrived.
        const RECEIVE_VECTOR = 0x40;
        /// A register that does not exist was accessed.
        const REGISTER = 0x80;
    }
}

/// Entries of the local vector table that have a source, by their place in register order from 320h on. The thermal
/// sensor's and the performance counters', 1 and 2, keep what is written and have no effect; LINT1, 4, has no source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
enum Lvt {
    Timer = 0,
    Lint0 = 3,
    Lint1 = 4,
    Error = 5,
}

/// Bits that a write to each entry can change.
const LVT_WRITABLE: [u32; 6] = [0x0003_00ff, 0x0001_07ff, 0x0001_07ff, 0x0001_a7ff, 0x0001_a7ff, 0x0001_00ff];

/// The delivery mode of an interrupt message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Delivery {
    /// By its vector. Lowest-priority delivery is the same, as there is one CPU.
    Fixed,
    /// Non-maskable.
    Nmi,
    /// The 8259 gives the vector.
    ExtInt,
    /// SMI, INIT, start-up, reserved: these have no effect here.
    Other,
}

impl Delivery {
    /// From the three bits of an LVT entry, the ICR or a redirection entry (SDM volume 3, figures 11-8 and 11-12).
    pub fn from_bits(bits: u32) -> Self {
        match bits & 7 {
            0 | 1 => Self::Fixed,
            4 => Self::Nmi,
            7 => Self::ExtInt,
            _ => Self::Other,
        }
    }
}

/// An interrupt message on its way to a local APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// How it is delivered.
    pub delivery: Delivery,
    /// Its vector.
    pub vector: u8,
    /// APIC ID, or logical destination.
    pub destination: u8,
    /// Whether the destination is logical.
    pub logical: bool,
    /// Whether its source is level-triggered.
    pub level: bool,
}

/// 256 bits, one a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Vectors([u64; 4]);

impl Vectors {
    fn assign(&mut self, vector: u8, value: bool) {
        let [a, b, c, d] = &mut self.0;
        let word = [a, b, c, d].into_iter().nth(usize::from(vector >> 6));
        let bit = 1u64 << (vector & 63);
        if let Some(word) = word {
            *word = if value { *word | bit } else { *word & !bit };
        }
    }

    fn has(&self, vector: u8) -> bool {
        self.0.get(usize::from(vector >> 6)).is_some_and(|word| word >> (vector & 63) & 1 != 0)
    }

    fn highest(&self) -> Option<u8> {
        let words = self.0.iter().zip([0u8, 64, 128, 192]).rev();
        words
            .filter(|(word, _)| **word != 0)
            .map(|(word, base)| base + (63 - word.leading_zeros()) as u8)
            .next()
    }

    /// Register `n` of the eight that show the vectors.
    fn register(&self, n: u32) -> u32 {
        let word = self.0.get((n / 2) as usize).copied().unwrap_or(0);
        (word >> (32 * (n % 2))) as u32
    }
}

/// The timer: a down-counter that was at `count` at time `base_ns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Timer {
    /// Divide configuration register.
    divide: u32,
    initial: u32,
    base_ns: u64,
    count: u32,
    periodic: bool,
}

impl Timer {
    /// Virtual ns of one count.
    fn count_ns(&self) -> u64 {
        let shift = ((self.divide & 3 | self.divide >> 1 & 4) + 1) & 7;
        TICK_NS << shift
    }

    /// When it reaches zero; `None` while it stands still.
    fn expiry(&self) -> Option<u64> {
        (self.count > 0).then(|| self.base_ns.saturating_add(u64::from(self.count) * self.count_ns()))
    }

    fn current(&self, now_ns: u64) -> u32 {
        let passed = now_ns.saturating_sub(self.base_ns) / self.count_ns();
        match u64::from(self.count).checked_sub(passed) {
            Some(left) if left > 0 => left as u32,
            _ if self.periodic && self.initial > 0 && self.count > 0 => {
                let over = (passed - u64::from(self.count)) % u64::from(self.initial);
                self.initial - over as u32
            }
            _ => 0,
        }
    }

    /// Forgets the ends of periods up to `now_ns`.
    fn skip(&mut self, now_ns: u64) {
        let Some(expiry) = self.expiry().filter(|at| *at <= now_ns) else { return };
        if self.periodic && self.initial > 0 {
            let period = u64::from(self.initial) * self.count_ns();
            self.base_ns = expiry + (now_ns - expiry) / period * period;
            self.count = self.initial;
        } else {
            self.count = 0;
        }
    }

    /// Goes on from the present count, before something that decides on the pace changes.
    fn rebase(&mut self, now_ns: u64) {
        self.count = self.current(now_ns);
        self.base_ns = now_ns;
    }

    fn start(&mut self, initial: u32, now_ns: u64) {
        (self.initial, self.count, self.base_ns) = (initial, initial, now_ns);
    }
}

/// The local APIC.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LocalApic {
    enabled: bool,
    tpr: u8,
    ldr: u32,
    dfr: u32,
    svr: u32,
    isr: Vectors,
    tmr: Vectors,
    irr: Vectors,
    esr: Errors,
    errors: Errors,
    icr: u64,
    lvt: [u32; 6],
    timer: Timer,
    lint0: bool,
    nmi: bool,
}

impl Default for LocalApic {
    fn default() -> Self {
        Self::new()
    }
}

impl super::Stored for LocalApic {
    const NAME: &str = "local APIC";
    const VERSION: u16 = 1;
}

impl LocalApic {
    /// As firmware leaves it: enabled, in virtual-wire mode (LINT0 takes the 8259's interrupts, LINT1 is NMI).
    pub fn new() -> Self {
        let mut apic = Self::after_reset(true);
        apic.svr = SVR_ENABLE | 0xff;
        apic.set_lvt(Lvt::Lint0, 0x700);
        apic.set_lvt(Lvt::Lint1, 0x400);
        apic
    }

    fn after_reset(enabled: bool) -> Self {
        Self {
            enabled,
            tpr: 0,
            ldr: 0,
            dfr: u32::MAX,
            svr: 0xff,
            isr: Vectors::default(),
            tmr: Vectors::default(),
            irr: Vectors::default(),
            esr: Errors::empty(),
            errors: Errors::empty(),
            icr: 0,
            lvt: [LVT_MASKED; 6],
            timer: Timer::default(),
            lint0: false,
            nmi: false,
        }
    }

    /// Whether IA32_APIC_BASE enables it: then it answers at its address and CPUID announces it.
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// IA32_APIC_BASE.
    pub fn base_msr(&self) -> u64 {
        APIC_BASE | BASE_BSP | if self.enabled { BASE_ENABLE } else { 0 }
    }

    /// Writes IA32_APIC_BASE; false, and nothing done, for a value that would move it, ask for x2APIC mode, or set a
    /// reserved bit. Disabling it resets all its state (SDM volume 3, 11.4.3).
    pub fn set_base_msr(&mut self, value: u64) -> bool {
        if value & !(BASE_ENABLE | BASE_BSP) != APIC_BASE {
            return false;
        }
        let enabled = value & BASE_ENABLE != 0;
        if enabled != self.enabled {
            let lint0 = self.lint0;
            *self = Self { lint0, ..Self::after_reset(enabled) };
        }
        true
    }

    /// The task priority register.
    pub fn task_priority(&self) -> u8 {
        self.tpr
    }

    /// Writes the task priority register.
    pub fn set_task_priority(&mut self, value: u8) {
        self.tpr = value;
    }

    fn working(&self) -> bool {
        self.enabled && self.svr & SVR_ENABLE != 0
    }

    fn lvt(&self, which: Lvt) -> u32 {
        self.lvt.get(which as usize).copied().unwrap_or(LVT_MASKED)
    }

    fn set_lvt(&mut self, which: Lvt, value: u32) {
        if let Some(entry) = self.lvt.get_mut(which as usize) {
            *entry = value;
        }
    }

    /// Processor priority (SDM volume 3, 11.8.3.1).
    fn ppr(&self) -> u8 {
        let serving = self.isr.highest().unwrap_or(0);
        if self.tpr >> 4 >= serving >> 4 { self.tpr } else { serving & 0xf0 }
    }

    /// The vector of the interrupt that the CPU is to take now.
    #[inline]
    pub fn pending(&self) -> Option<u8> {
        let request = self.irr.highest()?;
        (self.working() && request >> 4 > self.ppr() >> 4).then_some(request)
    }

    /// The CPU takes the interrupt: its vector, which is in service now; the spurious one when there is none.
    pub fn acknowledge(&mut self, now_ns: u64) -> u8 {
        let Some(vector) = self.pending() else {
            return self.svr as u8;
        };
        if self.lvt(Lvt::Timer) as u8 == vector {
            // Expirations while the request was pending are merged into it.
            self.timer.skip(now_ns);
        }
        self.irr.assign(vector, false);
        self.isr.assign(vector, true);
        vector
    }

    /// Whether the interrupts of the 8259 reach the CPU through LINT0, or past an APIC that is disabled.
    #[inline]
    pub fn passes_extint(&self) -> bool {
        let entry = self.lvt(Lvt::Lint0);
        !self.enabled || (entry & LVT_MASKED == 0 && Delivery::from_bits(entry >> 8) == Delivery::ExtInt)
    }

    /// Drives the LINT0 pin, to which the 8259 is wired. In ExtINT mode [`LocalApic::passes_extint`] applies instead.
    pub fn set_lint0(&mut self, level: bool) {
        let rises = level && !self.lint0;
        self.lint0 = level;
        if rises {
            self.fire(Lvt::Lint0);
        }
    }

    /// Takes the NMI that has arrived, if one has.
    #[inline]
    pub fn take_nmi(&mut self) -> bool {
        std::mem::take(&mut self.nmi)
    }

    /// An interrupt message; whether it is for this CPU and has been accepted.
    pub fn receive(&mut self, message: &Message) -> bool {
        if !self.enabled || !self.addressed(message.destination, message.logical) {
            return false;
        }
        match message.delivery {
            Delivery::Fixed => self.accept(message.vector, message.level),
            Delivery::Nmi => {
                self.nmi = true;
                true
            }
            Delivery::ExtInt | Delivery::Other => false,
        }
    }

    /// Whether a destination names this CPU (SDM volume 3, 11.6.2).
    pub fn addressed(&self, destination: u8, logical: bool) -> bool {
        if !logical {
            return destination == 0 || destination == 0xff;
        }
        let own = (self.ldr >> 24) as u8;
        if self.dfr >> 28 == 0xf {
            return destination & own != 0;
        }
        let cluster = destination >> 4 == own >> 4 || destination >> 4 == 0xf;
        cluster && destination & own & 0xf != 0
    }

    fn accept(&mut self, vector: u8, level: bool) -> bool {
        if !self.working() {
            return false;
        }
        if vector < FIRST_VECTOR {
            self.error(Errors::RECEIVE_VECTOR);
            return false;
        }
        self.irr.assign(vector, true);
        self.tmr.assign(vector, level);
        true
    }

    /// Raises the interrupt of a local vector table entry.
    fn fire(&mut self, which: Lvt) {
        let entry = self.lvt(which);
        if entry & LVT_MASKED != 0 || !self.enabled {
            return;
        }
        match Delivery::from_bits(entry >> 8) {
            Delivery::Fixed => {
                self.accept(entry as u8, false);
            }
            Delivery::Nmi => self.nmi = true,
            Delivery::ExtInt | Delivery::Other => {}
        }
    }

    fn error(&mut self, what: Errors) {
        self.errors |= what;
        let entry = self.lvt(Lvt::Error);
        if entry & LVT_MASKED == 0 {
            if (entry as u8) < FIRST_VECTOR {
                self.errors |= Errors::RECEIVE_VECTOR;
            } else {
                self.accept(entry as u8, false);
            }
        }
    }

    /// When the timer next makes a request that is not made already; it may lie before the present.
    #[inline]
    pub fn next_event(&self) -> Option<u64> {
        let entry = self.lvt(Lvt::Timer);
        let vector = entry as u8;
        if entry & LVT_MASKED != 0 || !self.working() || vector < FIRST_VECTOR || self.irr.has(vector) {
            return None;
        }
        self.timer.expiry()
    }

    /// Makes the timer's request if it is due.
    #[inline]
    pub fn advance(&mut self, now_ns: u64) {
        if self.next_event().is_some_and(|at| at <= now_ns) {
            self.timer.skip(now_ns);
            self.fire(Lvt::Timer);
        }
    }

    /// Reads `size` bytes at `offset` of its page. Only the first four of a register's sixteen bytes are implemented;
    /// the rest reads 0.
    pub fn read(&mut self, offset: u16, size: u8, now_ns: u64) -> u32 {
        let within = offset & 0xf;
        if within > 3 {
            return 0;
        }
        let value = self.register(u32::from(offset >> 4), now_ns);
        let mask = u32::MAX >> (32 - 8 * u32::from(size.clamp(1, 4)));
        value >> (8 * within) & mask
    }

    fn register(&mut self, index: u32, now_ns: u64) -> u32 {
        match index {
            0x02 | 0x09 | 0x0b | 0x0c => 0,
            0x03 => VERSION,
            0x08 => self.tpr.into(),
            0x0a => self.ppr().into(),
            0x0d => self.ldr,
            0x0e => self.dfr,
            0x0f => self.svr,
            0x10..=0x17 => self.isr.register(index - 0x10),
            0x18..=0x1f => self.tmr.register(index - 0x18),
            0x20..=0x27 => self.irr.register(index - 0x20),
            0x28 => self.esr.bits().into(),
            0x30 => self.icr as u32,
            0x31 => (self.icr >> 32) as u32,
            0x32..=0x37 => self.lvt.get(index as usize - 0x32).copied().unwrap_or(0),
            0x38 => self.timer.initial,
            0x39 => self.timer.current(now_ns),
            0x3e => self.timer.divide,
            _ => {
                self.error(Errors::REGISTER);
                0
            }
        }
    }

    /// Writes a register: 32 bits at a multiple of 16, all else is dropped. Returns the vector whose end of interrupt
    /// must be passed to the I/O APIC.
    pub fn write(&mut self, offset: u16, size: u8, value: u32, now_ns: u64) -> Option<u8> {
        if offset & 0xf != 0 || size != 4 {
            return None;
        }
        match offset >> 4 {
            0x02 | 0x03 | 0x09 | 0x0a | 0x0c | 0x10..=0x27 | 0x39 => {}
            0x08 => self.tpr = value as u8,
            0x0b => return self.end_of_interrupt(),
            0x0d => self.ldr = value & 0xff00_0000,
            0x0e => self.dfr = value | 0x0fff_ffff,
            0x0f => self.write_svr(value),
            0x28 => self.esr = std::mem::replace(&mut self.errors, Errors::empty()),
            0x30 => {
                self.icr = self.icr & !0xffff_ffff | u64::from(value & 0x000c_cfff);
                self.send();
            }
            0x31 => self.icr = self.icr & 0xffff_ffff | u64::from(value & 0xff00_0000) << 32,
            index @ 0x32..=0x37 => self.write_lvt(usize::from(index) - 0x32, value, now_ns),
            0x38 => self.timer.start(value, now_ns),
            0x3e => {
                self.timer.rebase(now_ns);
                self.timer.divide = value & 0xb;
            }
            _ => self.error(Errors::REGISTER),
        }
        None
    }

    /// While it is switched off by software all local vectors are masked (SDM volume 3, 11.4.7.2).
    fn write_svr(&mut self, value: u32) {
        self.svr = value & 0x3ff;
        if self.svr & SVR_ENABLE == 0 {
            self.lvt.iter_mut().for_each(|entry| *entry |= LVT_MASKED);
        }
    }

    fn write_lvt(&mut self, index: usize, value: u32, now_ns: u64) {
        let off = self.svr & SVR_ENABLE == 0;
        let (Some(entry), Some(writable)) = (self.lvt.get_mut(index), LVT_WRITABLE.get(index)) else {
            return;
        };
        *entry = value & writable | if off { LVT_MASKED } else { 0 };
        if index == Lvt::Timer as usize {
            self.timer.rebase(now_ns);
            self.timer.periodic = value & LVT_PERIODIC != 0;
        }
    }

    fn end_of_interrupt(&mut self) -> Option<u8> {
        let vector = self.isr.highest()?;
        self.isr.assign(vector, false);
        self.tmr.has(vector).then_some(vector)
    }

    /// Sends the interprocessor interrupt in the ICR (SDM volume 3, 11.6.1).
    fn send(&mut self) {
        let (low, destination) = (self.icr as u32, (self.icr >> 56) as u8);
        let (vector, logical) = (low as u8, low >> 11 & 1 != 0);
        let here = match low >> 18 & 3 {
            0 => self.addressed(destination, logical),
            1 | 2 => true,
            _ => false,
        };
        let delivery = Delivery::from_bits(low >> 8);
        if delivery == Delivery::Fixed && vector < FIRST_VECTOR {
            return self.error(Errors::SEND_VECTOR);
        }
        match delivery {
            Delivery::Fixed if here => {
                self.accept(vector, false);
            }
            Delivery::Nmi if here => self.nmi = true,
            // INIT and start-up for CPUs that are not there.
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "lapic_tests.rs"]
mod tests;
