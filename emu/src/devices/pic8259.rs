//! Two cascaded 8259A interrupt controllers (Intel 8259A data sheet, order 231468), wired as in a PC/AT.
//!
//! A latched edge stays requested until it is acknowledged or ICW1 is written, also when the input drops again (as in
//! PC chip sets and in QEMU); a level-triggered request follows its input. Not modelled: MCS-80 mode and buffered mode.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

bitflags! {
    /// The modes that OCW2, OCW3, ICW1 and ICW4 switched on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    struct Mode: u16 {
        /// ICW4: automatic end of interrupt.
        const AUTO_EOI = 0x01;
        /// OCW2: rotate priorities on automatic EOI.
        const ROTATE_AEOI = 0x02;
        /// OCW3: special mask mode.
        const SPECIAL_MASK = 0x04;
        /// ICW4: special fully nested mode.
        const FULLY_NESTED = 0x08;
        /// OCW3: the next read of the command port gives ISR instead of IRR.
        const READ_ISR = 0x10;
        /// OCW3: the next read is a poll.
        const POLL = 0x20;
        /// ICW1: all inputs are level-triggered.
        const LEVEL = 0x40;
    }
}

/// Which initialization command word the data port takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Init {
    Done,
    Icw2 { single: bool, icw4: bool },
    Icw3 { icw4: bool },
    Icw4,
}

/// One 8259A.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pic {
    master: bool,
    /// Present level of the eight inputs.
    lines: u8,
    irr: u8,
    imr: u8,
    isr: u8,
    elcr: u8,
    vector_base: u8,
    /// Input of highest priority.
    top: u8,
    mode: Mode,
    init: Init,
}

impl Pic {
    fn new(master: bool, vector_base: u8, imr: u8) -> Self {
        Self {
            master,
            lines: 0,
            irr: 0,
            imr,
            isr: 0,
            elcr: 0,
            vector_base,
            top: 0,
            mode: Mode::empty(),
            init: Init::Done,
        }
    }

    /// Interrupt request register: one bit an input.
    pub fn irr(&self) -> u8 {
        self.irr
    }

    /// In-service register: one bit an input.
    pub fn isr(&self) -> u8 {
        self.isr
    }

    /// Interrupt mask register: one bit an input, 1 = masked.
    pub fn imr(&self) -> u8 {
        self.imr
    }

    fn level_mask(&self) -> u8 {
        if self.mode.contains(Mode::LEVEL) { 0xff } else { self.elcr }
    }

    fn set_line(&mut self, line: u8, level: bool) {
        let bit = 1u8 << (line & 7);
        let was = self.lines & bit != 0;
        if level {
            self.lines |= bit;
        } else {
            self.lines &= !bit;
        }
        if self.level_mask() & bit != 0 {
            self.irr = (self.irr & !bit) | (self.lines & bit);
        } else if level && !was {
            self.irr |= bit;
        }
    }

    /// Rank of the highest-priority bit of `mask` (0 is the highest), 8 if no bit is set.
    fn rank(&self, mask: u8) -> u32 {
        mask.rotate_right(u32::from(self.top)).trailing_zeros()
    }

    fn input_at_rank(&self, rank: u32) -> u8 {
        ((rank + u32::from(self.top)) & 7) as u8
    }

    /// The input that asks for service now, if any: unmasked and of higher priority than what is in service.
    fn pending(&self) -> Option<u8> {
        let request = self.rank(self.irr & !self.imr);
        if request == 8 {
            return None;
        }
        let mut serving = self.isr;
        if self.mode.contains(Mode::SPECIAL_MASK) {
            serving &= !self.imr;
        }
        if self.mode.contains(Mode::FULLY_NESTED) && self.master {
            serving &= !(1 << CASCADE);
        }
        (request < self.rank(serving)).then(|| self.input_at_rank(request))
    }

    fn acknowledge(&mut self, input: u8) {
        let bit = 1u8 << (input & 7);
        if self.mode.contains(Mode::AUTO_EOI) {
            if self.mode.contains(Mode::ROTATE_AEOI) {
                self.top = (input + 1) & 7;
            }
        } else {
            self.isr |= bit;
        }
        if self.level_mask() & bit == 0 {
            self.irr &= !bit;
        }
    }

    fn read(&mut self, data_port: bool) -> u8 {
        if self.mode.contains(Mode::POLL) {
            self.mode.remove(Mode::POLL);
            return match self.pending() {
                Some(input) => {
                    self.acknowledge(input);
                    0x80 | input
                }
                None => 0,
            };
        }
        if data_port {
            self.imr
        } else if self.mode.contains(Mode::READ_ISR) {
            self.isr
        } else {
            self.irr
        }
    }

    fn write(&mut self, data_port: bool, value: u8) {
        if data_port {
            self.write_data(value);
        } else if value & 0x10 != 0 {
            self.write_icw1(value);
        } else if value & 0x08 != 0 {
            self.write_ocw3(value);
        } else {
            self.write_ocw2(value);
        }
    }

    /// ICW1 resets the edge sense, the mask, the priorities and the status read (data sheet, "ICW1").
    fn write_icw1(&mut self, value: u8) {
        self.mode = if value & 0x08 != 0 { Mode::LEVEL } else { Mode::empty() };
        self.irr = self.lines & self.level_mask();
        self.imr = 0;
        self.isr = 0;
        self.top = 0;
        self.init = Init::Icw2 { single: value & 0x02 != 0, icw4: value & 0x01 != 0 };
    }

    fn write_data(&mut self, value: u8) {
        let after_icw3 = |icw4| if icw4 { Init::Icw4 } else { Init::Done };
        match self.init {
            Init::Done => self.imr = value,
            Init::Icw2 { single, icw4 } => {
                self.vector_base = value & 0xf8;
                self.init = if single { after_icw3(icw4) } else { Init::Icw3 { icw4 } };
            }
            Init::Icw3 { icw4 } => self.init = after_icw3(icw4),
            Init::Icw4 => {
                self.mode.set(Mode::AUTO_EOI, value & 0x02 != 0);
                self.mode.set(Mode::FULLY_NESTED, value & 0x10 != 0);
                self.init = Init::Done;
            }
        }
    }

    fn write_ocw2(&mut self, value: u8) {
        let named = value & 7;
        match value >> 5 {
            0b000 => self.mode.remove(Mode::ROTATE_AEOI),
            0b100 => self.mode.insert(Mode::ROTATE_AEOI),
            0b001 => {
                self.end_highest();
            }
            0b101 => {
                if let Some(input) = self.end_highest() {
                    self.top = (input + 1) & 7;
                }
            }
            0b011 => self.isr &= !(1 << named),
            0b111 => {
                self.isr &= !(1 << named);
                self.top = (named + 1) & 7;
            }
            0b110 => self.top = (named + 1) & 7,
            _ => {}
        }
    }

    /// Non-specific EOI: the highest-priority bit in service that special mask mode does not hide.
    fn end_highest(&mut self) -> Option<u8> {
        let hidden = if self.mode.contains(Mode::SPECIAL_MASK) { self.imr } else { 0 };
        let rank = self.rank(self.isr & !hidden);
        if rank == 8 {
            return None;
        }
        let input = self.input_at_rank(rank);
        self.isr &= !(1 << input);
        Some(input)
    }

    fn write_ocw3(&mut self, value: u8) {
        if value & 0x04 != 0 {
            self.mode.insert(Mode::POLL);
        }
        if value & 0x02 != 0 {
            self.mode.set(Mode::READ_ISR, value & 0x01 != 0);
        }
        if value & 0x40 != 0 {
            self.mode.set(Mode::SPECIAL_MASK, value & 0x20 != 0);
        }
    }

    fn write_elcr(&mut self, value: u8) {
        self.elcr = value;
        self.irr = (self.irr & !value) | (self.lines & value);
    }
}

/// The master's input that the slave drives.
const CASCADE: u8 = 2;

/// Which controller of the pair a register access addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Chip {
    /// IRQ 0 to 7 (ports 20h, 21h, 4D0h).
    Master,
    /// IRQ 8 to 15 (ports A0h, A1h, 4D1h).
    Slave,
}

/// Master and slave with the cascade wire between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PicPair {
    master: Pic,
    slave: Pic,
}

impl Default for PicPair {
    fn default() -> Self {
        Self::new()
    }
}

impl super::Stored for PicPair {
    const NAME: &str = "8259 interrupt controllers";
    const VERSION: u16 = 1;

    fn is_sound(&self) -> bool {
        self.master.top < 8 && self.slave.top < 8
    }
}

impl PicPair {
    /// As firmware leaves them: vectors 08h and 70h, everything masked but the cascade.
    pub fn new() -> Self {
        Self { master: Pic::new(true, 0x08, !(1 << CASCADE)), slave: Pic::new(false, 0x70, 0xff) }
    }

    /// The controller `chip`, for inspection.
    pub fn chip(&self, chip: Chip) -> &Pic {
        match chip {
            Chip::Master => &self.master,
            Chip::Slave => &self.slave,
        }
    }

    /// Reads the command (`data_port` false) or data port of `chip`.
    pub fn read(&mut self, chip: Chip, data_port: bool) -> u8 {
        let value = self.chip_mut(chip).read(data_port);
        self.cascade();
        value
    }

    /// Writes the command (`data_port` false) or data port of `chip`.
    pub fn write(&mut self, chip: Chip, data_port: bool, value: u8) {
        self.chip_mut(chip).write(data_port, value);
        self.cascade();
    }

    /// Reads the edge/level control register of `chip`: 1 = level.
    pub fn read_elcr(&self, chip: Chip) -> u8 {
        self.chip(chip).elcr
    }

    /// Writes the edge/level control register of `chip`; IRQ 0, 1, 2, 8 and 13 cannot be made level-triggered.
    pub fn write_elcr(&mut self, chip: Chip, value: u8) {
        let allowed = match chip {
            Chip::Master => 0xf8,
            Chip::Slave => 0xde,
        };
        self.chip_mut(chip).write_elcr(value & allowed);
        self.cascade();
    }

    /// Drives interrupt input `irq` (0 to 15; 2 is the cascade and cannot be driven).
    pub fn set_irq(&mut self, irq: u8, level: bool) {
        match irq {
            CASCADE => {}
            0..=7 => self.master.set_line(irq, level),
            _ => self.slave.set_line(irq & 7, level),
        }
        self.cascade();
    }

    /// Whether [`PicPair::set_irq`] changes nothing: the input is edge-triggered, and already has this level.
    #[inline]
    pub fn keeps(&self, irq: u8, level: bool) -> bool {
        let chip = if irq < 8 { &self.master } else { &self.slave };
        let bit = 1 << (irq & 7);
        irq == CASCADE || ((chip.lines & bit != 0) == level && chip.level_mask() & bit == 0)
    }

    /// A rising edge on `irq`, whatever its level was; the input stays high.
    pub fn pulse_irq(&mut self, irq: u8) {
        self.set_irq(irq, false);
        self.set_irq(irq, true);
    }

    /// Level of the master's INT pin.
    pub fn intr(&self) -> bool {
        self.master.pending().is_some()
    }

    /// The two INTA pulses: puts the request into service and gives its vector. Without a request it is the spurious
    /// input 7 of the chip that was asked, which enters no ISR (data sheet, "default IR7").
    pub fn acknowledge(&mut self) -> u8 {
        let Some(input) = self.master.pending() else {
            return self.master.vector_base | 7;
        };
        self.master.acknowledge(input);
        let vector = if input == CASCADE {
            let slave_input = self.slave.pending();
            if let Some(slave_input) = slave_input {
                self.slave.acknowledge(slave_input);
            }
            self.slave.vector_base | slave_input.unwrap_or(7)
        } else {
            self.master.vector_base | input
        };
        self.cascade();
        vector
    }

    fn chip_mut(&mut self, chip: Chip) -> &mut Pic {
        match chip {
            Chip::Master => &mut self.master,
            Chip::Slave => &mut self.slave,
        }
    }

    /// The slave's INT pin drives the master's input 2. While the slave keeps asking, each acknowledge of it is
    /// followed by a fresh edge, since the pin drops during INTA.
    fn cascade(&mut self) {
        let asking = self.slave.pending().is_some();
        if asking && self.master.irr & (1 << CASCADE) == 0 {
            self.master.set_line(CASCADE, false);
        }
        self.master.set_line(CASCADE, asking);
        if !asking {
            self.master.irr &= !(1 << CASCADE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn initialized() -> PicPair {
        let mut pics = PicPair::new();
        for (chip, base, wiring) in [(Chip::Master, 0x20, 0x04), (Chip::Slave, 0x28, 0x02)] {
            pics.write(chip, false, 0x11);
            pics.write(chip, true, base);
            pics.write(chip, true, wiring);
            pics.write(chip, true, 0x01);
            pics.write(chip, true, 0x00);
        }
        pics
    }

    #[test]
    fn edges_are_latched_once_and_masked_by_imr() {
        let mut pics = initialized();
        pics.write(Chip::Master, true, 0x01);
        pics.set_irq(0, true);
        assert!(!pics.intr());
        assert_eq!(pics.read(Chip::Master, false), 0x01);
        pics.write(Chip::Master, true, 0x00);
        assert!(pics.intr());
        assert_eq!(pics.acknowledge(), 0x20);
        pics.set_irq(0, true);
        pics.write(Chip::Master, false, 0x20);
        assert!(!pics.intr(), "no second edge");
        pics.pulse_irq(0);
        assert!(pics.intr());
    }

    #[test]
    fn priorities_nest() {
        let mut pics = initialized();
        pics.set_irq(4, true);
        assert_eq!(pics.acknowledge(), 0x24);
        pics.set_irq(5, true);
        assert!(!pics.intr());
        pics.set_irq(1, true);
        assert_eq!(pics.acknowledge(), 0x21);
        pics.write(Chip::Master, false, 0x0b);
        assert_eq!(pics.read(Chip::Master, false), 0x12);
        pics.write(Chip::Master, false, 0x20);
        assert_eq!(pics.read(Chip::Master, false), 0x10);
        pics.write(Chip::Master, false, 0x64);
        assert_eq!(pics.acknowledge(), 0x25);
    }

    #[test]
    fn slave_goes_through_the_cascade() {
        let mut pics = initialized();
        pics.set_irq(8, true);
        pics.set_irq(12, true);
        assert_eq!(pics.acknowledge(), 0x28);
        assert!(!pics.intr());
        pics.write(Chip::Slave, false, 0x20);
        pics.write(Chip::Master, false, 0x20);
        assert!(pics.intr());
        assert_eq!(pics.acknowledge(), 0x2c);
    }

    #[test]
    fn spurious_requests_are_input_seven_and_enter_no_isr() {
        let mut pics = initialized();
        assert_eq!(pics.acknowledge(), 0x27);
        assert_eq!(pics.chip(Chip::Master).isr(), 0);
        pics.write_elcr(Chip::Master, 0x20);
        pics.set_irq(5, true);
        assert!(pics.intr());
        pics.set_irq(5, false);
        assert!(!pics.intr());
        assert_eq!(pics.acknowledge(), 0x27);
    }

    #[test]
    fn level_inputs_ask_again_until_they_drop() {
        let mut pics = initialized();
        pics.write_elcr(Chip::Slave, 0xff);
        assert_eq!(pics.read_elcr(Chip::Slave), 0xde);
        pics.set_irq(11, true);
        assert_eq!(pics.acknowledge(), 0x2b);
        pics.write(Chip::Slave, false, 0x20);
        pics.write(Chip::Master, false, 0x20);
        assert!(pics.intr());
        pics.set_irq(11, false);
        assert!(!pics.intr());
    }

    #[test]
    fn auto_eoi_rotation_and_poll() {
        let mut pics = initialized();
        for value in [0x13, 0x20, 0x03] {
            pics.write(Chip::Master, value != 0x13, value);
        }
        pics.write(Chip::Master, false, 0x80);
        pics.set_irq(0, true);
        pics.set_irq(1, true);
        assert_eq!(pics.acknowledge(), 0x20);
        assert_eq!(pics.chip(Chip::Master).isr(), 0);
        pics.pulse_irq(0);
        assert_eq!(pics.acknowledge(), 0x21, "input 0 became the lowest");
        pics.write(Chip::Master, false, 0x0c);
        assert_eq!(pics.read(Chip::Master, false), 0x80);
        pics.write(Chip::Master, false, 0x0c);
        assert_eq!(pics.read(Chip::Master, false), 0);
    }

    #[test]
    fn special_mask_mode_lets_lower_inputs_through() {
        let mut pics = initialized();
        pics.set_irq(1, true);
        assert_eq!(pics.acknowledge(), 0x21);
        pics.set_irq(3, true);
        assert!(!pics.intr());
        pics.write(Chip::Master, true, 0x02);
        pics.write(Chip::Master, false, 0x68);
        assert_eq!(pics.acknowledge(), 0x23);
    }

    #[test]
    fn initialization_forgets_latched_edges() {
        let mut pics = initialized();
        pics.set_irq(3, true);
        pics.write(Chip::Master, false, 0x11);
        assert_eq!(pics.chip(Chip::Master).irr(), 0);
    }

    #[test]
    fn linux_probe_of_the_mask_register() {
        let mut pics = PicPair::new();
        pics.write(Chip::Master, true, 0xfb);
        assert_eq!(pics.read(Chip::Master, true), 0xfb);
    }
}
