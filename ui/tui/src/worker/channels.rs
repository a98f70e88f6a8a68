//! Reads the channels that drivers trace to.

use trapline_session::Session;
use trapline_session::trapline_dti::{Channel, Contents, Record, View, is_text, lines, show, table};
use trapline_trace::{HexStyle, hex, visible};

use crate::scene::Channels;

/// Most lines of records.
const LINES: usize = 2000;
/// Bytes in a line.
const LINE: usize = 16;
/// Most bytes of a record that are shown.
const BYTES: usize = 1024;

/// The channels at the position of a session.
pub fn read(session: &Session) -> Channels {
    let found = session.channels();
    let read: Vec<(&Channel, Contents)> =
        found.channels.iter().map(|channel| (channel, channel.read(session.core().ram()))).collect();
    let mut records: Vec<(&str, Record<'_>)> = read
        .iter()
        .flat_map(|(channel, contents)| contents.records().map(|record| (channel.name(), record)))
        .collect();
    // Stable: records of one channel are in order.
    records.sort_by_key(|(_, record)| record.time);
    let width = records.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut last = Vec::new();
    let mut older = records.len();
    for (name, record) in records.iter().rev() {
        let lines = lines_of(name, width, record);
        if last.len() + lines.len() > LINES {
            break;
        }
        last.extend(lines.into_iter().rev());
        older -= 1;
    }
    last.reverse();
    let damaged = found.damaged.iter().map(|one| {
        format!("channel {} at physical address {:#x} cannot be read: {}", one.name, one.paddr, one.damage)
    });
    let rings = read.iter().flat_map(|(channel, contents)| {
        let damage = contents.cpus.iter().filter_map(|cpu| cpu.damage.as_ref());
        damage.map(|damage| format!("channel {}: {damage}", channel.name()))
    });
    let unread = damaged.chain(rings).collect();
    Channels { table: table(&found, &read), unread, lines: last, records: records.len(), older }
}

/// A record as `dti show` prints it, but for the end of a long one. Lines of bytes fit a terminal of 80 columns.
fn lines_of(name: &str, width: usize, record: &Record<'_>) -> Vec<String> {
    let data = record.data.get(..BYTES).unwrap_or(record.data);
    let text = if is_text(data) { show(data, View::Text) } else { bytes(data) };
    let mut all = lines(name, width, record, &text, !is_text(data));
    if let Some(more) = record.data.len().checked_sub(BYTES).filter(|more| *more > 0) {
        all.push(format!("  and {more} bytes"));
    }
    all
}

/// Bytes with their offset, in hexadecimal digits and as characters.
fn bytes(data: &[u8]) -> String {
    let line = |(at, part): (usize, &[u8])| {
        let text: String = part.iter().map(|byte| visible(*byte)).collect();
        format!("{at:04x}  {:47}  {text}\n", hex(part, HexStyle::Spaced))
    };
    (0..).step_by(LINE).zip(data.chunks(LINE)).map(line).collect()
}
