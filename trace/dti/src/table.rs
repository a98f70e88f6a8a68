//! Channels as a table of text, a line for each.

use crate::channel::{Channel, Origin};
use crate::contents::Contents;
use crate::find::Found;
use crate::layout::level_name;

const COLUMNS: [&str; 8] = ["name", "state", "level", "cpus", "sub-buffers", "records", "unread", "refused"];

impl Origin {
    /// The state of such a channel, in a word.
    #[must_use]
    pub fn state(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::Early => "early",
        }
    }
}

/// A level with its name.
fn level(level: i32) -> String {
    level_name(level).map_or_else(|| level.to_string(), |name| format!("{level} {name}"))
}

/// Records that could not be written.
fn refused(contents: &Contents) -> u64 {
    contents.cpus.iter().map(|cpu| u64::from(cpu.too_long) + u64::from(cpu.nested)).sum()
}

/// The head of the table, then the channels and the handles without a channel. It is empty if there are none.
#[must_use]
pub fn table(found: &Found, read: &[(&Channel, Contents)]) -> Vec<String> {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(read.iter().map(|(channel, contents)| {
        let (subbufs, size) = channel.subbufs();
        [
            channel.name().to_owned(),
            channel.origin().state().to_owned(),
            level(channel.level()),
            channel.cpus().to_string(),
            format!("{subbufs} x {size}"),
            contents.records().count().to_string(),
            contents.records().filter(|record| record.unread).count().to_string(),
            refused(contents).to_string(),
        ]
    }));
    rows.extend(found.unbound.iter().map(|handle| {
        let none = || "-".to_owned();
        let level = level(handle.level);
        [handle.name.clone(), "unbound".to_owned(), level, none(), none(), none(), none(), none()]
    }));
    if rows.len() == 1 {
        return Vec::new();
    }
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..COLUMNS.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; COLUMNS.len()]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
