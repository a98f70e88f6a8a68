//! The dump form of data: `%z`, and what is shown where no template fits (the paper, section 6; rpn.md, section 6).

use std::fmt::Write;

/// Bytes of a line.
const LINE: usize = 0x20;

/// A byte as a character: itself from 0x20 to 0x7e, else a period, so that a guest cannot write to a terminal.
#[must_use]
pub const fn visible(byte: u8) -> char {
    if byte >= 0x20 && byte <= 0x7e { byte as char } else { '.' }
}

/// Appends lines of offset, up to 0x20 bytes in hexadecimal padded to full width, and the same as characters. `base` is
/// the first offset. There is no line end behind the last line, and nothing at all for no data.
pub fn dump(data: &[u8], base: usize, out: &mut String) {
    for (n, line) in data.chunks(LINE).enumerate() {
        if n > 0 {
            out.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = write!(out, "+{:08x} ", base + n * LINE);
        for place in 0..LINE {
            if place > 0 {
                out.push(' ');
            }
            let _ = match line.get(place) {
                Some(byte) => write!(out, "{byte:02x}"),
                None => write!(out, "  "),
            };
        }
        out.push_str(" *");
        out.extend(line.iter().map(|&byte| visible(byte)));
        out.push('*');
    }
}
