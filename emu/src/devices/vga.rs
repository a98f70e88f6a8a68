//! The registers of a VGA in text mode 3 (IBM VGA; register numbers as in FreeVGA), without any drawing.
//!
//! Registers keep what is written; the input status toggles with virtual time as on a 640x400, 70 Hz screen. Text
//! memory at B8000h is plain RAM of the machine: [`text_screen`] shows what it holds.

use serde::{Deserialize, Serialize};

/// Nanoseconds of one scan line (800 dots at 25.175 MHz).
const LINE_NS: u64 = 31_778;
const VISIBLE_NS: u64 = 25_422;
const LINES: u64 = 449;
const VISIBLE_LINES: u64 = 400;
const RETRACE_LINES: std::ops::Range<u64> = 412..414;

/// Bytes of 80 columns by 25 rows of text with attributes.
pub const TEXT_BYTES: usize = 80 * 25 * 2;
/// Bytes of text memory.
pub const TEXT_MEMORY: usize = 32 << 10;
/// Physical address of colour text memory.
pub const TEXT_BASE: u64 = 0xb8000;

const MODE3_CRTC: [u8; 25] = [
    0x5f, 0x4f, 0x50, 0x82, 0x55, 0x81, 0xbf, 0x1f, 0x00, 0x4f, 0x0d, 0x0e, 0x00, 0x00, 0x00, 0x00, 0x9c,
    0x8e, 0x8f, 0x28, 0x1f, 0x96, 0xb9, 0xa3, 0xff,
];
const MODE3_SEQUENCER: [u8; 8] = [0x03, 0x00, 0x03, 0x00, 0x02, 0, 0, 0];
const MODE3_GRAPHICS: [u8; 16] = [0, 0, 0, 0, 0, 0x10, 0x0e, 0x0f, 0xff, 0, 0, 0, 0, 0, 0, 0];
const MODE3_ATTRIBUTE: [u8; 21] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x14, 0x07, 0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f, 0x0c,
    0x00, 0x0f, 0x08, 0x00,
];

/// 256 colours of three bytes.
const DAC_BYTES: usize = 768;

/// The register state of a VGA.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Vga {
    misc: u8,
    feature: u8,
    crtc_index: u8,
    crtc: [u8; 25],
    sequencer_index: u8,
    sequencer: [u8; 8],
    graphics_index: u8,
    graphics: [u8; 16],
    attribute_index: u8,
    attribute: [u8; 21],
    /// The next write to 3C0h is data.
    attribute_data: bool,
    dac_mask: u8,
    dac_write: u16,
    dac_read: u16,
    dac_reading: bool,
    dac: Vec<u8>,
}

impl Default for Vga {
    fn default() -> Self {
        Self::new()
    }
}

impl super::Stored for Vga {
    const NAME: &str = "VGA";
    const VERSION: u16 = 1;

    fn is_sound(&self) -> bool {
        self.dac.len() == DAC_BYTES && usize::from(self.dac_write.max(self.dac_read)) < DAC_BYTES
    }
}

impl Vga {
    /// As the BIOS leaves it: text mode 3 in colour, cursor at the top left.
    pub fn new() -> Self {
        Self {
            misc: 0x67,
            feature: 0,
            crtc_index: 0,
            crtc: MODE3_CRTC,
            sequencer_index: 0,
            sequencer: MODE3_SEQUENCER,
            graphics_index: 0,
            graphics: MODE3_GRAPHICS,
            attribute_index: 0x20,
            attribute: MODE3_ATTRIBUTE,
            attribute_data: false,
            dac_mask: 0xff,
            dac_write: 0,
            dac_read: 0,
            dac_reading: false,
            dac: vec![0; DAC_BYTES],
        }
    }

    /// True if the VGA answers at `port`: 3C0h to 3CFh, and 3Dxh or 3Bxh as the colour bit says.
    pub fn owns(&self, port: u16) -> bool {
        match port {
            0x3c0..=0x3cf => true,
            0x3b4 | 0x3b5 | 0x3ba => !self.color(),
            0x3d4 | 0x3d5 | 0x3da => self.color(),
            _ => false,
        }
    }

    /// Reads a byte at `port`; all ones where there is no register.
    pub fn read(&mut self, port: u16, now_ns: u64) -> u8 {
        match port {
            0x3c0 => self.attribute_index,
            0x3c1 => get(&self.attribute, self.attribute_index & 0x1f),
            0x3c2 => 0x10,
            0x3c4 => self.sequencer_index,
            0x3c5 => get(&self.sequencer, self.sequencer_index),
            0x3c6 => self.dac_mask,
            0x3c7 => {
                if self.dac_reading {
                    3
                } else {
                    0
                }
            }
            0x3c8 => ((self.dac_write / 3) & 0xff) as u8,
            0x3c9 => self.read_dac(),
            0x3ca => self.feature,
            0x3cc => self.misc,
            0x3ce => self.graphics_index,
            0x3cf => get(&self.graphics, self.graphics_index),
            0x3b4 | 0x3d4 => self.crtc_index,
            0x3b5 | 0x3d5 => get(&self.crtc, self.crtc_index),
            0x3ba | 0x3da => {
                self.attribute_data = false;
                input_status(now_ns)
            }
            _ => 0xff,
        }
    }

    /// Writes a byte at `port`.
    pub fn write(&mut self, port: u16, value: u8) {
        match port {
            0x3c0 => self.write_attribute(value),
            0x3c2 => self.misc = value,
            0x3c4 => self.sequencer_index = value & 0x07,
            0x3c5 => put(&mut self.sequencer, self.sequencer_index, value),
            0x3c6 => self.dac_mask = value,
            0x3c7 => {
                self.dac_read = u16::from(value) * 3;
                self.dac_reading = true;
            }
            0x3c8 => {
                self.dac_write = u16::from(value) * 3;
                self.dac_reading = false;
            }
            0x3c9 => self.write_dac(value),
            0x3ce => self.graphics_index = value & 0x0f,
            0x3cf => put(&mut self.graphics, self.graphics_index, value),
            0x3b4 | 0x3d4 => self.crtc_index = value & 0x3f,
            0x3b5 | 0x3d5 => self.write_crtc(value),
            0x3ba | 0x3da => self.feature = value,
            _ => {}
        }
    }

    /// Offset in characters of the first one shown (CRTC 0Ch, 0Dh).
    pub fn start_address(&self) -> u16 {
        u16::from_be_bytes([self.crtc[0x0c], self.crtc[0x0d]])
    }

    /// Offset in characters of the cursor (CRTC 0Eh, 0Fh).
    pub fn cursor(&self) -> u16 {
        u16::from_be_bytes([self.crtc[0x0e], self.crtc[0x0f]])
    }

    fn color(&self) -> bool {
        self.misc & 1 != 0
    }

    fn write_attribute(&mut self, value: u8) {
        if self.attribute_data {
            put(&mut self.attribute, self.attribute_index & 0x1f, value);
        } else {
            self.attribute_index = value & 0x3f;
        }
        self.attribute_data = !self.attribute_data;
    }

    /// Bit 7 of CRTC register 11h protects registers 0 to 7, but for bit 4 of register 7.
    fn write_crtc(&mut self, value: u8) {
        let protected = self.crtc[0x11] & 0x80 != 0;
        match self.crtc_index {
            7 if protected => self.crtc[7] = (self.crtc[7] & !0x10) | (value & 0x10),
            0..=7 if protected => {}
            index => put(&mut self.crtc, index, value),
        }
    }

    fn read_dac(&mut self) -> u8 {
        let value = self.dac.get(usize::from(self.dac_read)).copied().unwrap_or(0);
        self.dac_read = (self.dac_read + 1) % 768;
        value
    }

    fn write_dac(&mut self, value: u8) {
        if let Some(entry) = self.dac.get_mut(usize::from(self.dac_write)) {
            *entry = value & 0x3f;
        }
        self.dac_write = (self.dac_write + 1) % 768;
    }
}

/// Input status 1: bit 0 while the display is blanked, bit 3 during vertical retrace.
fn input_status(now_ns: u64) -> u8 {
    let line = now_ns / LINE_NS % LINES;
    let blanked = line >= VISIBLE_LINES || now_ns % LINE_NS >= VISIBLE_NS;
    u8::from(blanked) | u8::from(RETRACE_LINES.contains(&line)) << 3
}

fn get(registers: &[u8], index: u8) -> u8 {
    registers.get(usize::from(index)).copied().unwrap_or(0)
}

fn put(registers: &mut [u8], index: u8, value: u8) {
    if let Some(register) = registers.get_mut(usize::from(index)) {
        *register = value;
    }
}

/// The 80x25 characters of `memory` (character and attribute bytes alternate), rows ended by newlines, trailing
/// blanks dropped. Missing bytes are blanks.
pub fn text_screen(memory: &[u8]) -> String {
    let mut text = String::new();
    for row in 0..25 {
        let line: String = (0..80)
            .map(|column| memory.get((row * 80 + column) * 2).map_or(' ', |byte| cp437(*byte)))
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The printable character of code page 437; 0 and FFh are blanks.
fn cp437(byte: u8) -> char {
    const LOW: &str = " ☺☻♥♦♣♠•◘○◙♂♀♪♫☼►◄↕‼¶§▬↨↑↓→←∟↔▲▼";
    const HIGH: &str = "⌂ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■ ";
    match byte {
        0x20..=0x7e => char::from(byte),
        0x00..=0x1f => LOW.chars().nth(usize::from(byte)).unwrap_or(' '),
        _ => HIGH.chars().nth(usize::from(byte - 0x7f)).unwrap_or(' '),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_set_through_the_crtc() {
        let mut vga = Vga::new();
        for (index, value) in [(0x0e, 0x01), (0x0f, 0x40)] {
            vga.write(0x3d4, index);
            vga.write(0x3d5, value);
        }
        assert_eq!(vga.cursor(), 320);
        assert_eq!(vga.read(0x3d5, 0), 0x40);
        assert!(vga.owns(0x3d4) && !vga.owns(0x3b4));
        vga.write(0x3c2, 0x66);
        assert!(!vga.owns(0x3d4) && vga.owns(0x3b4));
    }

    #[test]
    fn attribute_flip_flop_is_reset_by_reading_status() {
        let mut vga = Vga::new();
        vga.write(0x3c0, 0x10);
        vga.read(0x3da, 0);
        vga.write(0x3c0, 0x31);
        vga.write(0x3c0, 0x2a);
        assert_eq!(vga.read(0x3c1, 0), 0x2a);
    }

    #[test]
    fn retrace_comes_and_goes_with_time() {
        let mut vga = Vga::new();
        let seen: std::collections::BTreeSet<u8> =
            (0..20_000u64).map(|i| vga.read(0x3da, i * 1000)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 9]);
    }

    #[test]
    fn palette_auto_increments() {
        let mut vga = Vga::new();
        vga.write(0x3c8, 255);
        for value in [1, 2, 3, 4] {
            vga.write(0x3c9, value);
        }
        vga.write(0x3c7, 255);
        assert_eq!([0; 4].map(|_: u8| vga.read(0x3c9, 0)), [1, 2, 3, 4]);
    }

    #[test]
    fn crtc_protection() {
        let mut vga = Vga::new();
        vga.write(0x3d4, 0);
        vga.write(0x3d5, 0x11);
        assert_eq!(vga.read(0x3d5, 0), 0x5f);
    }

    #[test]
    fn screen_text() {
        let mut memory = vec![0u8; TEXT_BYTES];
        for (i, byte) in b"Hi\xb3".iter().enumerate() {
            memory[160 + i * 2] = *byte;
        }
        let text = text_screen(&memory);
        assert_eq!(text.lines().count(), 25);
        assert_eq!(text.lines().nth(1), Some("Hi│"));
        assert_eq!(text_screen(&[]).lines().count(), 25);
        assert_eq!((cp437(0xff), cp437(0xfe), cp437(0x80), cp437(0x1f)), (' ', '■', 'Ç', '▼'));
    }
}
