//! Channels at one moment: the records that they hold, where each is in its ring, and what was counted.

use super::{Channel, Channels, Counts, SubBuffer, Taken};
use crate::record::Record;
use crate::watch::WatchItem;
use serde::{Deserialize, Serialize};

/// An upper bound of all counts and sequence numbers.
const LAST: u64 = 1 << 62;

/// The channels of all CPUs with the number of the next record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedChannels {
    cpus: Vec<SavedChannel>,
    next: u64,
    /// Sequence number of the first record of the hit in progress.
    mark: u64,
}

/// Sub-buffers from the oldest to the one that is written: it determines which records are overwritten together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SavedChannel {
    buffers: Vec<Vec<Record>>,
    counts: Counts,
    lost: Vec<Taken>,
}

impl Channel {
    fn save(&self) -> SavedChannel {
        let (newer, older) = self.ring.split_at(self.write + 1);
        let records = |b: &SubBuffer| b.index.iter().map(|entry| b.view(entry).to_owned()).collect();
        SavedChannel {
            buffers: older.iter().chain(newer).map(records).collect(),
            counts: self.counts,
            lost: self.lost.clone(),
        }
    }

    fn restore(&mut self, saved: &SavedChannel) {
        let buffers = saved.buffers.len().max(1);
        self.ring.truncate(buffers);
        self.ring.resize_with(buffers, || SubBuffer::new(self.size));
        self.clear();
        for (at, records) in saved.buffers.iter().enumerate() {
            self.write = at;
            for record in records {
                self.commit(&record.view());
            }
        }
        self.write = buffers - 1;
        self.counts = saved.counts;
        self.lost.clone_from(&saved.lost);
    }

    /// Whether a channel with this configuration can have been in such a state.
    fn could_be(&self, saved: &SavedChannel) -> bool {
        let buffers = saved.buffers.len();
        // Counted as in `commit_from`.
        let commit = |used: usize, record: &Record| {
            let watch = if record.watch.is_some() { WatchItem::MAX } else { 0 };
            let size = Self::record_size(record.name.len(), record.data.len());
            let fits = used + size + watch <= self.size && record.header.seq < LAST;
            fits.then_some(used + size)
        };
        let fits = |records: &Vec<Record>| records.iter().try_fold(0, commit).is_some();
        let held = saved.buffers.iter().map(|records| records.len() as u64).sum::<u64>();
        let Counts { committed, overwritten, oversized } = saved.counts;
        let oversized_lost =
            saved.lost.iter().filter(|lost| matches!(lost, Taken::Lost { oversized: true, .. })).count()
                as u64;
        let overwritten_lost = saved.lost.len() as u64 - oversized_lost;
        (self.least..=self.most.max(self.least)).contains(&buffers)
            && saved.buffers.iter().all(fits)
            && [committed, overwritten, oversized].iter().all(|count| *count < LAST)
            && held + overwritten + oversized <= committed
            && overwritten_lost <= overwritten
            && oversized_lost <= oversized
    }
}

impl Channels {
    /// Saves them. The configuration is not saved.
    #[must_use]
    pub fn save(&self) -> SavedChannels {
        SavedChannels {
            cpus: self.cpus.iter().map(Channel::save).collect(),
            next: self.next,
            mark: self.mark,
        }
    }

    /// Whether channels with this configuration can have been in such a state.
    #[must_use]
    pub fn could_be(&self, saved: &SavedChannels) -> bool {
        let mut pairs = self.cpus.iter().zip(&saved.cpus);
        self.cpus.len() == saved.cpus.len()
            && (1..LAST).contains(&saved.next)
            && pairs.all(|(channel, saved)| channel.could_be(saved))
    }

    /// Restores a state that was saved from channels with the same configuration.
    pub fn restore(&mut self, saved: &SavedChannels) {
        (self.next, self.mark) = (saved.next, saved.mark);
        for (channel, saved) in self.cpus.iter_mut().zip(&saved.cpus) {
            channel.restore(saved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ChannelConfig;
    use crate::record::{Header, RecordView};

    fn commit(channels: &mut Channels, n: u64) {
        let data = vec![n as u8; (n * 37 % 200) as usize];
        let header = Header { icount: n, ..Header::default() };
        channels.commit(&RecordView { header, name: b"task", watch: None, data: &data });
    }

    /// What a reader sees, now and after further writes.
    fn seen(channels: &Channels) -> (Vec<Record>, Counts, u64) {
        (channels.records(), channels.counts(), channels.next_seq())
    }

    #[test]
    fn channels_go_on_from_what_was_saved_and_lose_the_same_records() {
        for config in [
            ChannelConfig::fixed(1000, 4),
            ChannelConfig { most_sub_buffers: 7, ..ChannelConfig::fixed(600, 2) },
        ] {
            let mut plain = Channels::new(1, config);
            for n in 0..300 {
                if n % 23 == 0 {
                    let saved = plain.save();
                    let mut other = Channels::new(1, config);
                    commit(&mut other, 999);
                    other.restore(&saved);
                    assert_eq!(other.save(), saved);
                    assert_eq!(seen(&other), seen(&plain));
                    let mut end = Channels::new(1, config);
                    end.restore(&saved);
                    for m in n..n + 60 {
                        commit(&mut other, m);
                        commit(&mut end, m);
                        assert_eq!(seen(&other), seen(&end));
                    }
                    let mut straight = Channels::new(1, config);
                    (0..n + 60).for_each(|m| {
                        if m > 0 && (m - 1) % 71 == 70 && m <= n {
                            straight.drain(|_| {});
                        }
                        commit(&mut straight, m);
                    });
                    assert_eq!(seen(&other), seen(&straight), "from {n}");
                }
                commit(&mut plain, n);
                if n % 71 == 70 {
                    plain.drain(|_| {});
                }
            }
        }
    }
}
