//! The records of a channel, merged over its CPUs.

use crate::damage::Damage;

/// A record and where its data are in [`Contents`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub time: u64,
    pub cpu: u16,
    pub len: u16,
    pub unread: bool,
    pub sequence: u32,
    pub offset: u32,
    pub start: usize,
}

/// The records of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The state of each CPU's ring.
    pub cpus: Vec<CpuState>,
    pub(crate) entries: Vec<Entry>,
    /// The used bytes of all sub-buffers.
    pub(crate) bytes: Vec<u8>,
}

/// The state of a ring.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuState {
    /// Sub-buffers that were entered since the channel was made, with the first.
    pub entered: u64,
    /// Records that were refused because they are longer than a sub-buffer.
    pub too_long: u32,
    /// Records that were refused because another one was reserving its place.
    pub nested: u32,
    /// Records of which the data are not complete: their writing had begun.
    pub incomplete: u32,
    /// Where reading ended because the ring is damaged.
    pub damage: Option<Damage>,
    /// The number in the sequence of the current sub-buffer.
    pub(crate) sequence: u32,
    /// The first record in the current sub-buffer that is not complete.
    pub(crate) writing_at: Option<u32>,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'c> {
    /// The CPU that wrote it.
    pub cpu: u16,
    /// The guest's clock.
    pub time: u64,
    /// Number in the sequence of sub-buffers of its CPU, and offset there.
    pub place: (u32, u32),
    /// Whether the guest itself has not read it yet.
    pub unread: bool,
    /// What the driver wrote.
    pub data: &'c [u8],
}

impl Record<'_> {
    /// Appends it as a reader in the guest gets it: `struct dti_event` with the data.
    pub fn raw(&self, out: &mut Vec<u8>) {
        out.extend((self.data.len() as u16).to_le_bytes());
        out.extend(self.time.to_le_bytes());
        out.extend(self.data);
    }
}

impl Contents {
    /// The records, by time, then CPU, then position.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.entries.iter().map(|entry| Record {
            cpu: entry.cpu,
            time: entry.time,
            place: (entry.sequence, entry.offset),
            unread: entry.unread,
            data: self.bytes.get(entry.start..entry.start + usize::from(entry.len)).unwrap_or_default(),
        })
    }
}
