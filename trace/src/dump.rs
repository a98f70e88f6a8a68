//! The dump form of data, for `%z` and for data without a fitting template (the paper, section 6).

use std::fmt::Write;

use crate::printable::visible;

/// Bytes of a line.
const LINE: usize = 0x20;

/// Appends lines of offset, up to 0x20 bytes in hexadecimal padded to full width, and the same as characters. `base` is
/// the first offset. The last line has no line end; empty data appends nothing.
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
