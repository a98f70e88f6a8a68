//! How records are shown.

use serde_json::{Value, json};
use trapline_trace::{dump, visible};

use crate::contents::Record;

/// How the data of records are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// As text if all of it is text, otherwise as bytes.
    #[default]
    Auto,
    /// As text: what `dti_printk` wrote.
    Text,
    /// As bytes, in hexadecimal digits and as characters.
    Hex,
}

/// The data of a record in a view, without a line end after it.
#[must_use]
pub fn show(data: &[u8], view: View) -> String {
    match view {
        View::Auto if !is_text(data) => show(data, View::Hex),
        View::Auto | View::Text => without_line_end(data).iter().map(|byte| visible(*byte)).collect(),
        View::Hex => {
            let mut shown = String::new();
            dump(data, 0, &mut shown);
            shown
        }
    }
}

/// A record as lines of text: its time, its CPU, the channel in so many characters, and the data as text. Bytes are on lines of
/// their own.
#[must_use]
pub fn lines(channel: &str, width: usize, record: &Record<'_>, text: &str, are_bytes: bool) -> Vec<String> {
    let head = format!("{:>14} {} {channel:width$}", record.time, record.cpu);
    if !are_bytes {
        return vec![format!("{head}  {text}").trim_end().to_owned()];
    }
    let data = text.lines().map(|line| format!("  {line}"));
    std::iter::once(head.trim_end().to_owned()).chain(data).collect()
}

/// A record as a JSON object: its data in hexadecimal digits, and as text if they are text.
#[must_use]
pub fn json(channel: &str, record: &Record<'_>) -> Value {
    let hex: String = record.data.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut object = json!({
        "channel": channel,
        "cpu": record.cpu,
        "time": record.time,
        "subbuf": record.place.0,
        "offset": record.place.1,
        "unread": record.unread,
        "data": hex,
    });
    if is_text(record.data) {
        object["text"] = json!(String::from_utf8_lossy(without_line_end(record.data)));
    }
    object
}

/// Whether data are text: visible characters, and perhaps a line end after them.
#[must_use]
pub fn is_text(data: &[u8]) -> bool {
    let text = without_line_end(data);
    !text.is_empty() && text.iter().all(|byte| (0x20..0x7f).contains(byte) || *byte == b'\t')
}

fn without_line_end(data: &[u8]) -> &[u8] {
    data.strip_suffix(b"\n").unwrap_or(data)
}
