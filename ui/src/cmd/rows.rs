//! Listings as JSON.

use std::io::{self, Write};

use serde_json::json;
use trapline_providers::Refused;
use trapline_session::Listing;

use crate::failure::Exit;

/// Writes a listing as JSON, one object per line.
///
/// # Errors
/// Standard output cannot be written.
pub fn json_lines(
    (image, bits): (&str, u8),
    (found, refused): (&Listing, &[Refused]),
    exit: Exit,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{}", json!({"type": "header", "version": 1, "image": image, "width": bits}))?;
    for row in found.rows().items() {
        writeln!(out, "{}", json!(row))?;
    }
    for Refused { module, reason } in refused {
        writeln!(out, "{}", json!({"type": "refused", "module": module, "reason": reason}))?;
    }
    writeln!(out, "{}", json!({"type": "end", found.plural(): found.len(), "exit": exit.code()}))
}
