//! Per-CPU channels: bounded rings of sub-buffers, after relay and the Driver Tracing Interface.
//!
//! A commit copies the record into memory allocated when the channel was made, or when it grew.
//! When the ring is full and may not grow, the oldest sub-buffer is overwritten as a whole and its
//! records are counted as lost; every other loss is counted too. There is no
//! reservation: a record is complete or absent. The newest records can be
//! taken back as long as no reader has seen them.

mod saved;

pub use saved::SavedChannels;

use crate::record::{Header, Record, RecordView};
use crate::watch::WatchItem;
use serde::{Deserialize, Serialize};

/// Size of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelConfig {
    /// Bytes of a sub-buffer, at least 1.
    pub sub_buffer_size: usize,
    /// Sub-buffers of the ring, at least 1.
    pub sub_buffers: usize,
    /// Number of sub-buffers to which a full ring grows before it overwrites any; a ring of fixed size has at most
    /// `sub_buffers` here.
    pub most_sub_buffers: usize,
}

impl ChannelConfig {
    /// A ring of fixed size.
    #[must_use]
    pub const fn fixed(sub_buffer_size: usize, sub_buffers: usize) -> Self {
        Self { sub_buffer_size, sub_buffers, most_sub_buffers: sub_buffers }
    }

    /// For a reader that drains often but may be late for a burst: the default ring, which grows to 64 MiB.
    #[must_use]
    pub fn growing() -> Self {
        Self { most_sub_buffers: 1024, ..Self::default() }
    }
}

impl Default for ChannelConfig {
    /// 16 sub-buffers of 64 KiB: together they fit into a second-level cache.
    fn default() -> Self {
        Self::fixed(64 * 1024, 16)
    }
}

/// The counts of a channel since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Records committed, lost ones included.
    pub committed: u64,
    /// Records overwritten before they were drained.
    pub overwritten: u64,
    /// Records that were larger than a sub-buffer and were never stored.
    pub oversized: u64,
}

impl Counts {
    /// All records that no reader will see.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.overwritten + self.oversized
    }
}

/// One piece of the ring. `index` is filled in step with `bytes`.
#[derive(Debug, Default)]
struct SubBuffer {
    bytes: Vec<u8>,
    index: Vec<Entry>,
    /// The items of watch hits.
    watches: Vec<WatchItem>,
}

/// A record in a sub-buffer: name, then data, in `bytes`; the item of a watch hit, counted from 1, in `watches`.
#[derive(Debug, Clone, Copy)]
struct Entry {
    header: Header,
    start: u32,
    name: u32,
    watch: u32,
    data: u32,
}

/// Size that is charged for the fixed part of a record, in bytes.
const ENTRY: usize = size_of::<Entry>();

impl SubBuffer {
    fn new(size: usize) -> Self {
        Self { bytes: Vec::with_capacity(size), index: Vec::with_capacity(size / ENTRY), watches: Vec::new() }
    }

    fn used(&self) -> usize {
        self.bytes.len() + self.index.len() * ENTRY
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.index.clear();
        self.watches.clear();
    }

    fn view(&self, entry: &Entry) -> RecordView<'_> {
        let start = entry.start as usize;
        let middle = start + entry.name as usize;
        let end = middle + entry.data as usize;
        RecordView {
            header: entry.header,
            name: self.bytes.get(start..middle).unwrap_or_default(),
            watch: (entry.watch as usize).checked_sub(1).and_then(|n| self.watches.get(n)),
            data: self.bytes.get(middle..end).unwrap_or_default(),
        }
    }
}

/// The bounded buffer of one CPU.
#[derive(Debug)]
pub struct Channel {
    ring: Vec<SubBuffer>,
    size: usize,
    /// Sub-buffers that the ring had at first.
    least: usize,
    /// Most sub-buffers that the ring may have.
    most: usize,
    /// The sub-buffer that is written; those before it in the ring are older.
    write: usize,
    counts: Counts,
    /// Lost records of the hit in progress, and perhaps of earlier hits.
    lost: Vec<Taken>,
}

/// A record that was taken out of a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Taken {
    Whole(Record),
    /// Only its header is known.
    Lost {
        header: Header,
        oversized: bool,
    },
}

impl Taken {
    fn header(&self) -> &Header {
        match self {
            Self::Whole(record) => &record.header,
            Self::Lost { header, .. } => header,
        }
    }
}

/// Records that were taken out of the channels, in the order of their sequence numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TakenOut(Vec<Taken>);

impl TakenOut {
    /// How many there are, lost ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends others.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }
}

impl Channel {
    /// Makes a channel and allocates its memory, except what it may grow by.
    #[must_use]
    pub fn new(config: ChannelConfig) -> Self {
        let size = config.sub_buffer_size.clamp(1, u32::MAX as usize);
        let least = config.sub_buffers.max(1);
        let ring = std::iter::repeat_with(|| SubBuffer::new(size)).take(least).collect();
        let counts = Counts::default();
        Self { ring, size, least, most: config.most_sub_buffers, write: 0, counts, lost: Vec::new() }
    }

    /// Bytes of a sub-buffer that a record with this much name and data occupies.
    #[must_use]
    pub const fn record_size(name: usize, data: usize) -> usize {
        ENTRY + name + data
    }

    /// Commits a record under the sequence number that its header has. Returns false when it is larger than a
    /// sub-buffer and was counted as lost.
    #[inline]
    pub fn commit(&mut self, record: &RecordView<'_>) -> bool {
        self.commit_from(record, u64::MAX)
    }

    /// Like `commit`; records from sequence number `mark` on belong to the hit in progress.
    #[inline]
    fn commit_from(&mut self, record: &RecordView<'_>, mark: u64) -> bool {
        self.counts.committed += 1;
        let watch = if record.watch.is_some() { WatchItem::MAX } else { 0 };
        let need = Self::record_size(record.name.len(), watch + record.data.len());
        if need > self.size {
            self.give_up(record.header, mark);
            return false;
        }
        if self.ring[self.write].used() + need > self.size {
            self.advance(mark);
        }
        let buffer = &mut self.ring[self.write];
        let mut entry = Entry {
            header: record.header,
            start: buffer.bytes.len() as u32,
            name: record.name.len() as u32,
            watch: 0,
            data: record.data.len() as u32,
        };
        if let Some(watch) = record.watch {
            buffer.watches.push(*watch);
            entry.watch = buffer.watches.len() as u32;
        }
        buffer.bytes.extend_from_slice(record.name);
        buffer.bytes.extend_from_slice(record.data);
        buffer.index.push(entry);
        true
    }

    /// Counts a record that is larger than a sub-buffer.
    #[cold]
    fn give_up(&mut self, header: Header, mark: u64) {
        self.counts.oversized += 1;
        self.lost.retain(|lost| lost.header().seq >= mark);
        if header.seq >= mark {
            self.lost.push(Taken::Lost { header, oversized: true });
        }
    }

    /// Goes to the next sub-buffer. If the ring is full, adds one where it may grow, else overwrites the oldest.
    #[cold]
    fn advance(&mut self, mark: u64) {
        let next = (self.write + 1) % self.ring.len();
        if self.ring.len() < self.most && !self.ring[next].index.is_empty() {
            self.write += 1;
            self.ring.insert(self.write, SubBuffer::new(self.size));
            return;
        }
        self.write = next;
        let oldest = &mut self.ring[self.write];
        self.counts.overwritten += oldest.index.len() as u64;
        self.lost.retain(|lost| lost.header().seq >= mark);
        let own = oldest.index.iter().map(|entry| entry.header).filter(|header| header.seq >= mark);
        self.lost.extend(own.map(|header| Taken::Lost { header, oversized: false }));
        oldest.clear();
    }

    /// Takes the records from sequence number `seq` on out of the channel, as if they had not been committed. Of lost
    /// records, only those of the hit in progress are known.
    fn take_from(&mut self, seq: u64, taken: &mut Vec<Taken>) {
        for lost in self.lost.extract_if(.., |lost| lost.header().seq >= seq) {
            let Taken::Lost { oversized, .. } = lost else { continue };
            self.counts.committed -= 1;
            *(if oversized { &mut self.counts.oversized } else { &mut self.counts.overwritten }) -= 1;
            taken.push(lost);
        }
        loop {
            let buffer = &mut self.ring[self.write];
            while let Some(&last) = buffer.index.last().filter(|e| e.header.seq >= seq) {
                taken.push(Taken::Whole(buffer.view(&last).to_owned()));
                buffer.index.pop();
                buffer.bytes.truncate(last.start as usize);
                if last.watch != 0 {
                    buffer.watches.pop();
                }
                self.counts.committed -= 1;
            }
            let before = (self.write + self.ring.len() - 1) % self.ring.len();
            let newer = self.ring[before].index.last().is_some_and(|e| e.header.seq >= seq);
            if !self.ring[self.write].index.is_empty() || !newer {
                return;
            }
            self.write = before;
        }
    }

    /// The records held, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = RecordView<'_>> {
        let (newer, older) = self.ring.split_at(self.write + 1);
        older.iter().chain(newer).flat_map(|b| b.index.iter().map(move |e| b.view(e)))
    }

    /// Records held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.iter().map(|b| b.index.len()).sum()
    }

    /// Whether no record is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.iter().all(|b| b.index.is_empty())
    }

    /// Whether a record may be held; at once, however many sub-buffers there are.
    fn may_hold_records(&self) -> bool {
        self.write != 0 || self.ring.first().is_some_and(|buffer| !buffer.index.is_empty())
    }

    /// Shows each record held, oldest first, and empties the channel.
    pub fn drain(&mut self, mut each: impl FnMut(RecordView<'_>)) {
        for record in self.iter() {
            each(record);
        }
        self.clear();
    }

    /// Empties the channel without counting a loss. The memory that was last written is written next.
    pub fn clear(&mut self) {
        for buffer in &mut self.ring {
            buffer.clear();
        }
        self.write = 0;
    }

    /// The counts since the channel was made.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}

/// The channels of all CPUs with the one sequence of their records.
#[derive(Debug)]
pub struct Channels {
    cpus: Vec<Channel>,
    next: u64,
    /// Sequence number of the first record of the hit in progress; nothing can be taken out before the first hit.
    mark: u64,
}

impl Channels {
    /// A channel for each CPU, at least one.
    #[must_use]
    pub fn new(cpus: usize, config: ChannelConfig) -> Self {
        Self { cpus: (0..cpus.max(1)).map(|_| Channel::new(config)).collect(), next: 1, mark: u64::MAX }
    }

    /// Commits a record to the channel of `record.header.cpu` under the next sequence number, which is returned. A lost
    /// record also takes a number, so that readers see the gap.
    #[inline]
    pub fn commit(&mut self, record: &RecordView<'_>) -> u64 {
        let seq = self.next;
        self.next += 1;
        let record = RecordView { header: Header { seq, ..record.header }, ..*record };
        let cpu = (record.header.cpu as usize).min(self.cpus.len() - 1);
        self.cpus[cpu].commit_from(&record, self.mark);
        seq
    }

    /// Whether a record with this much name and data fits a sub-buffer; one that does not is lost.
    #[must_use]
    pub fn holds(&self, name: usize, data: usize) -> bool {
        self.cpus.iter().all(|channel| Channel::record_size(name, data) <= channel.size)
    }

    /// The sequence number of the record that is committed next.
    #[must_use]
    pub const fn next_seq(&self) -> u64 {
        self.next
    }

    /// Begins a hit: its records can be taken out until the next one begins.
    #[inline]
    pub fn begin_hit(&mut self) {
        self.mark = self.next;
    }

    /// Takes the records of the hit in progress out; no reader may have seen them. Their numbers are free again, and
    /// lost records among them are no longer counted.
    pub fn take_out(&mut self) -> TakenOut {
        self.take_from(self.mark)
    }

    fn take_from(&mut self, seq: u64) -> TakenOut {
        let mut taken = Vec::new();
        self.cpus.iter_mut().for_each(|channel| channel.take_from(seq, &mut taken));
        taken.sort_by_key(|taken| taken.header().seq);
        self.next = self.next.saturating_sub(taken.len() as u64);
        TakenOut(taken)
    }

    /// Commits the taken-out records that `keep` selects under new sequence numbers; returns how many it dropped.
    pub fn put_back(&mut self, taken: TakenOut, keep: impl Fn(&Header) -> bool) -> u64 {
        let all = taken.len();
        let kept: Vec<Taken> = taken.0.into_iter().filter(|taken| keep(taken.header())).collect();
        let dropped = all - kept.len();
        for taken in kept {
            match taken {
                Taken::Whole(record) => {
                    self.commit(&record.view());
                }
                Taken::Lost { header, oversized } => self.lose(header, oversized),
            }
        }
        dropped as u64
    }

    /// Counts a record that was lost before.
    fn lose(&mut self, header: Header, oversized: bool) {
        let cpu = (header.cpu as usize).min(self.cpus.len() - 1);
        let counts = &mut self.cpus[cpu].counts;
        counts.committed += 1;
        *(if oversized { &mut counts.oversized } else { &mut counts.overwritten }) += 1;
        self.next += 1;
    }

    /// Takes back the records from sequence number `seq` on, except those that `keep` selects; returns how many it
    /// removed. No reader may have seen them.
    pub fn take_back(&mut self, seq: u64, keep: impl Fn(&Header) -> bool) -> u64 {
        let taken = self.take_from(seq);
        self.put_back(taken, keep)
    }

    /// The channel of a CPU.
    #[must_use]
    pub fn cpu(&self, cpu: usize) -> Option<&Channel> {
        self.cpus.get(cpu)
    }

    /// Whether a record may be held: true where one is, and false where no channel was written since it was emptied.
    #[must_use]
    pub fn may_hold_records(&self) -> bool {
        self.cpus.iter().any(Channel::may_hold_records)
    }

    /// Shows the records of all CPUs in the order of their sequence numbers, and empties the channels.
    pub fn drain(&mut self, mut each: impl FnMut(RecordView<'_>)) {
        if let [only] = self.cpus.as_mut_slice() {
            only.drain(each);
            return;
        }
        let mut sources: Vec<_> = self.cpus.iter().map(|c| c.iter().peekable()).collect();
        loop {
            let first = sources
                .iter_mut()
                .filter_map(|s| s.peek().map(|r| r.header.seq).map(|seq| (seq, s)))
                .min_by_key(|(seq, _)| *seq);
            let Some(record) = first.and_then(|(_, source)| source.next()) else { break };
            each(record);
        }
        drop(sources);
        for channel in &mut self.cpus {
            channel.clear();
        }
    }

    /// All records held, in the order of their sequence numbers.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut all: Vec<Record> = self.cpus.iter().flat_map(Channel::iter).map(|r| r.to_owned()).collect();
        all.sort_by_key(|r| r.header.seq);
        all
    }

    /// Counts over all CPUs.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.cpus.iter().map(Channel::counts).fold(Counts::default(), |a, b| Counts {
            committed: a.committed + b.committed,
            overwritten: a.overwritten + b.overwritten,
            oversized: a.oversized + b.oversized,
        })
    }
}
