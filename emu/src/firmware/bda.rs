//! The BIOS data area and the extended one, as POST leaves them (IBM PS/2 and PC BIOS Interface Technical Reference).
//!
//! Kernels read them before they find better tables: where conventional memory ends, which serial ports there are, how
//! wide the text screen is. Nothing here changes by itself: no BIOS runs.

use super::CONVENTIONAL_END;

const BDA: usize = 0x400;
const BDA_SIZE: usize = 0x100;

/// Equipment: an x87, a colour text screen of 80 columns at start, two serial ports.
const EQUIPMENT: u16 = 1 << 1 | 0b10 << 4 | 2 << 9;

/// The two areas, as physical addresses and bytes.
pub(super) fn areas() -> [(u64, Vec<u8>); 2] {
    // The first byte of the extended area is its size in KiB.
    [(BDA as u64, data_area()), (CONVENTIONAL_END, vec![1])]
}

fn data_area() -> Vec<u8> {
    let words = [
        (0x400, 0x3f8),
        (0x402, 0x2f8),
        (0x40e, (CONVENTIONAL_END / 16) as u16),
        (0x410, EQUIPMENT),
        (0x413, (CONVENTIONAL_END / 1024) as u16),
        // Columns, bytes of a page of text, and the port of the CRT controller.
        (0x44a, 80),
        (0x44c, 0x1000),
        (0x463, 0x3d4),
        // Bytes of a character's glyph.
        (0x485, 16),
    ];
    let mut area = vec![0; BDA_SIZE];
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in area.iter_mut().skip(at - BDA).zip(bytes) {
            *to = *from;
        }
    };
    for (at, word) in words {
        put(at, &u16::to_le_bytes(word));
    }
    // Video mode 3, and the number of the last row.
    put(0x449, &[3]);
    put(0x484, &[24]);
    area
}
