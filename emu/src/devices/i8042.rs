//! The i8042 keyboard controller with a PS/2 keyboard and mouse attached (IBM PS/2 Technical Reference; QEMU's default
//! devices where that leaves room).
//!
//! Every command is answered at once. Keys are pressed only where the host hands in scan codes. Scan-code set 1 is assumed on the wire, so the translation bit is kept but changes only the ID bytes.
//! As in QEMU, the status bits "system flag" and "last write was a command" stay set.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

mod keys;
mod ps2;

pub use keys::codes_of;

use ps2::{Keyboard, Mouse};

const STATUS_OBF: u8 = 0x01;
const STATUS_SYSTEM: u8 = 0x04;
const STATUS_COMMAND: u8 = 0x08;
const STATUS_UNLOCKED: u8 = 0x10;
const STATUS_AUX: u8 = 0x20;

const CONFIG_KBD_INT: u8 = 0x01;
const CONFIG_AUX_INT: u8 = 0x02;
const CONFIG_KBD_OFF: u8 = 0x10;
const CONFIG_AUX_OFF: u8 = 0x20;
const CONFIG_TRANSLATE: u8 = 0x40;

const OUTPUT_RESET: u8 = 0x01;
const OUTPUT_A20: u8 = 0x02;

/// Longest queue of answers that is kept, as in the PS/2 devices of QEMU.
const QUEUE_LIMIT: usize = 256;

/// The use of the next byte written to port 60h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Operand {
    Keyboard,
    Ram(u8),
    OutputPort,
    KeyboardBuffer,
    MouseBuffer,
    Mouse,
}

/// The effect of a write outside the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing.
    None,
    /// The reset line of the processor was pulsed.
    Reset,
    /// Address line 20 was switched on or off.
    A20(bool),
}

/// The controller and its two devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct I8042 {
    status: u8,
    ram: [u8; 32],
    output_port: u8,
    operand: Operand,
    /// The output buffer: its byte stays readable after it was read.
    data: u8,
    /// The controller's own answers, and bytes that it was told to return as if a device had sent them; the flag marks
    /// the mouse. A device that is disabled does not hold these back.
    replies: VecDeque<(u8, bool)>,
    keyboard: Keyboard,
    mouse: Mouse,
}

impl Default for I8042 {
    fn default() -> Self {
        Self::new()
    }
}

impl super::Stored for I8042 {
    const NAME: &str = "keyboard controller";
    const VERSION: u16 = 1;
}

impl I8042 {
    /// As firmware leaves it: self test passed, keyboard on with its interrupt and translation, mouse off, A20 on.
    pub fn new() -> Self {
        let mut ram = [0; 32];
        ram[0] = CONFIG_KBD_INT | CONFIG_AUX_OFF | CONFIG_TRANSLATE;
        Self {
            status: STATUS_SYSTEM | STATUS_COMMAND | STATUS_UNLOCKED,
            ram,
            output_port: 0xcc | OUTPUT_RESET | OUTPUT_A20,
            operand: Operand::Keyboard,
            data: 0,
            replies: VecDeque::new(),
            keyboard: Keyboard::default(),
            mouse: Mouse::default(),
        }
    }

    /// Reads the status register (port 64h).
    pub fn read_status(&self) -> u8 {
        self.status
    }

    /// Reads the output buffer (port 60h) and lets the next waiting byte in.
    pub fn read_data(&mut self) -> u8 {
        let value = self.data;
        self.status &= !(STATUS_OBF | STATUS_AUX);
        self.refill();
        value
    }

    /// Writes a command (port 64h).
    pub fn write_command(&mut self, command: u8) -> Effect {
        self.operand = Operand::Keyboard;
        let effect = self.command(command);
        self.refill();
        effect
    }

    /// Writes data (port 60h): an operand of the last command, or a command to the keyboard.
    pub fn write_data(&mut self, value: u8) -> Effect {
        let mut effect = Effect::None;
        match std::mem::replace(&mut self.operand, Operand::Keyboard) {
            Operand::Keyboard => {
                self.ram[0] &= !CONFIG_KBD_OFF;
                let translated = self.ram[0] & CONFIG_TRANSLATE != 0;
                self.keyboard.write(value, translated);
            }
            Operand::Ram(at) => self.ram[usize::from(at & 0x1f)] = value,
            Operand::OutputPort => effect = self.write_output_port(value),
            Operand::KeyboardBuffer => self.reply(value),
            Operand::MouseBuffer => self.reply_as(value, true),
            Operand::Mouse => {
                self.ram[0] &= !CONFIG_AUX_OFF;
                self.mouse.write(value);
            }
        }
        self.refill();
        effect
    }

    /// Whether a key that is pressed now is read next: the guest has taken everything before it, and listens.
    pub fn takes_keys(&self) -> bool {
        let on = self.ram[0] & CONFIG_KBD_OFF == 0;
        on && self.status & STATUS_OBF == 0 && self.keyboard.scanning()
    }

    /// Hands in scan codes as if keys were pressed (set 1 as the guest is to read them).
    pub fn push_scancodes(&mut self, codes: &[u8]) {
        if self.keyboard.scanning() {
            for code in codes {
                self.keyboard.inject(*code);
            }
            self.refill();
        }
    }

    /// Level of IRQ1: a byte of the keyboard or of the controller waits.
    pub fn irq1(&self) -> bool {
        let wanted = self.ram[0] & (CONFIG_KBD_INT | CONFIG_KBD_OFF) == CONFIG_KBD_INT;
        wanted && self.status & (STATUS_OBF | STATUS_AUX) == STATUS_OBF
    }

    /// Level of IRQ12: a byte of the mouse waits.
    pub fn irq12(&self) -> bool {
        self.ram[0] & CONFIG_AUX_INT != 0
            && self.status & (STATUS_OBF | STATUS_AUX) == STATUS_OBF | STATUS_AUX
    }

    /// True if the output port enables address line 20.
    pub fn a20(&self) -> bool {
        self.output_port & OUTPUT_A20 != 0
    }

    fn command(&mut self, command: u8) -> Effect {
        match command {
            0x20..=0x3f => {
                let value = self.ram[usize::from(command & 0x1f)];
                self.reply(value);
            }
            0x60..=0x7f => self.operand = Operand::Ram(command & 0x1f),
            0xa7 => self.ram[0] |= CONFIG_AUX_OFF,
            0xa8 => self.ram[0] &= !CONFIG_AUX_OFF,
            0xa9 | 0xab => self.reply(0x00),
            0xaa => self.reply(0x55),
            0xad => self.ram[0] |= CONFIG_KBD_OFF,
            0xae => self.ram[0] &= !CONFIG_KBD_OFF,
            0xc0 => self.reply(0x80),
            0xd0 => {
                let buffers = match (self.status & STATUS_OBF != 0, self.status & STATUS_AUX != 0) {
                    (true, false) => 0x10,
                    (true, true) => 0x20,
                    _ => 0,
                };
                self.reply(self.output_port & 0xcf | buffers);
            }
            0xd1 => self.operand = Operand::OutputPort,
            0xd2 => self.operand = Operand::KeyboardBuffer,
            0xd3 => self.operand = Operand::MouseBuffer,
            0xd4 => self.operand = Operand::Mouse,
            0xdd => return self.write_output_port(self.output_port & !OUTPUT_A20),
            0xdf => return self.write_output_port(self.output_port | OUTPUT_A20),
            0xf0..=0xff if command & OUTPUT_RESET == 0 => return Effect::Reset,
            _ => {}
        }
        Effect::None
    }

    fn write_output_port(&mut self, value: u8) -> Effect {
        let switched = (value ^ self.output_port) & OUTPUT_A20 != 0;
        self.output_port = value;
        if value & OUTPUT_RESET == 0 {
            Effect::Reset
        } else if switched {
            Effect::A20(self.a20())
        } else {
            Effect::None
        }
    }

    fn reply(&mut self, value: u8) {
        self.reply_as(value, false);
    }

    fn reply_as(&mut self, value: u8, mouse: bool) {
        if self.replies.len() < QUEUE_LIMIT {
            self.replies.push_back((value, mouse));
        }
    }

    /// Fills the empty output buffer: the controller first, then the keyboard, then the mouse.
    fn refill(&mut self) {
        if self.status & STATUS_OBF != 0 {
            return;
        }
        let keyboard_on = self.ram[0] & CONFIG_KBD_OFF == 0;
        let mouse_on = self.ram[0] & CONFIG_AUX_OFF == 0;
        let mut next = self.replies.pop_front();
        if next.is_none() && keyboard_on {
            next = self.keyboard.take().map(|byte| (byte, false));
        }
        if next.is_none() && mouse_on {
            next = self.mouse.take().map(|byte| (byte, true));
        }
        if let Some((byte, aux)) = next {
            self.data = byte;
            self.status |= STATUS_OBF | if aux { STATUS_AUX } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(chip: &mut I8042) -> Vec<u8> {
        let mut bytes = Vec::new();
        while chip.read_status() & STATUS_OBF != 0 {
            bytes.push(chip.read_data());
        }
        bytes
    }

    #[test]
    fn self_test_and_port_tests() {
        let mut chip = I8042::new();
        for (command, answer) in [(0xaa, 0x55), (0xab, 0x00), (0xa9, 0x00)] {
            chip.write_command(command);
            assert_eq!(chip.read_status() & STATUS_OBF, STATUS_OBF);
            assert_eq!(drain(&mut chip), [answer]);
        }
    }

    #[test]
    fn command_byte_as_gnu_mach_sets_it() {
        let mut chip = I8042::new();
        chip.write_command(0x20);
        let byte = chip.read_data();
        chip.write_command(0x60);
        chip.write_data(byte & !CONFIG_KBD_OFF | CONFIG_KBD_INT);
        chip.write_data(0xed);
        assert_eq!(drain(&mut chip), [0xfa]);
        chip.write_data(0x02);
        assert_eq!(drain(&mut chip), [0xfa]);
    }

    #[test]
    fn keyboard_reset_and_identity() {
        let mut chip = I8042::new();
        chip.write_data(0xff);
        assert_eq!(drain(&mut chip), [0xfa, 0xaa]);
        chip.write_data(0xf2);
        assert_eq!(drain(&mut chip), [0xfa, 0xab, 0x41]);
        chip.write_command(0x60);
        chip.write_data(0x01);
        chip.write_data(0xf2);
        assert_eq!(drain(&mut chip), [0xfa, 0xab, 0x83]);
        chip.write_data(0xf5);
        chip.write_data(0xee);
        assert_eq!(drain(&mut chip), [0xfa, 0xee]);
        chip.write_data(0xf3);
        chip.write_data(0x20);
        assert_eq!(drain(&mut chip), [0xfa, 0xfa]);
    }

    #[test]
    fn mouse_answers_after_the_d4_prefix_on_irq12() {
        let mut chip = I8042::new();
        chip.write_command(0x60);
        chip.write_data(0x47);
        chip.write_command(0xd4);
        chip.write_data(0xff);
        assert!(chip.irq12() && !chip.irq1());
        assert_eq!(chip.read_status() & STATUS_AUX, STATUS_AUX);
        assert_eq!(drain(&mut chip), [0xfa, 0xaa, 0x00]);
        chip.write_command(0xd4);
        chip.write_data(0xe9);
        assert_eq!(drain(&mut chip), [0xfa, 0x00, 0x02, 0x64]);
    }

    /// The loop test by which Linux looks for a mouse port, which it has disabled.
    #[test]
    fn bytes_that_the_controller_is_told_to_give_come_although_the_device_is_disabled() {
        let mut chip = I8042::new();
        chip.write_command(0x60);
        chip.write_data(CONFIG_AUX_OFF | CONFIG_KBD_OFF | CONFIG_AUX_INT);
        chip.write_command(0xd3);
        chip.write_data(0x5a);
        assert_eq!(chip.read_status() & (STATUS_OBF | STATUS_AUX), STATUS_OBF | STATUS_AUX);
        assert!(chip.irq12());
        chip.write_command(0xd2);
        chip.write_data(0xa5);
        assert_eq!(chip.read_data(), 0x5a);
        assert_eq!(chip.read_status() & (STATUS_OBF | STATUS_AUX), STATUS_OBF);
        assert_eq!(drain(&mut chip), [0xa5]);
    }

    #[test]
    fn disabled_keyboard_holds_its_bytes() {
        let mut chip = I8042::new();
        chip.write_command(0xad);
        chip.push_scancodes(&[0x1e]);
        assert_eq!(chip.read_status() & STATUS_OBF, 0);
        chip.write_command(0xae);
        assert!(chip.irq1());
        assert_eq!(drain(&mut chip), [0x1e]);
        assert!(!chip.irq1());
    }

    #[test]
    fn reset_and_a20() {
        let mut chip = I8042::new();
        assert_eq!(chip.write_command(0xfe), Effect::Reset);
        assert_eq!(chip.write_command(0xff), Effect::None);
        assert_eq!(chip.write_command(0xdd), Effect::A20(false));
        chip.write_command(0xd1);
        assert_eq!(chip.write_data(0xdf), Effect::A20(true));
        chip.write_command(0xd1);
        assert_eq!(chip.write_data(0xfe), Effect::Reset);
    }

    #[test]
    fn queues_are_bounded_for_every_input() {
        let mut chip = I8042::new();
        for round in 0..5000u32 {
            for value in [0xd2, 0xd3, 0xd4, 0x20, 0xf3, (round & 0xff) as u8] {
                chip.write_command(value);
                chip.write_data((round >> 3) as u8 ^ value);
            }
        }
        assert!(drain(&mut chip).len() <= 3 * QUEUE_LIMIT + 1);
    }
}
