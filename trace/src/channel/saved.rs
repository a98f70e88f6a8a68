//! Channels at one moment: the records that they hold, where each is in its ring, and what was counted.

use super::{Channel, Channels, Counts, SubBuffer};
use crate::record::Record;
use serde::{Deserialize, Serialize};

/// The channels of all CPUs with the number of the next record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedChannels {
    cpus: Vec<SavedChannel>,
    next: u64,
}

/// Sub-buffers from the oldest to the one that is written: which records are given up together depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedChannel {
    buffers: Vec<Vec<Record>>,
    counts: Counts,
}

impl Channel {
    fn save(&self) -> SavedChannel {
        let (newer, older) = self.ring.split_at(self.write + 1);
        let records = |b: &SubBuffer| b.index.iter().map(|entry| b.view(entry).to_owned()).collect();
        SavedChannel { buffers: older.iter().chain(newer).map(records).collect(), counts: self.counts }
    }

    fn restore(&mut self, saved: &SavedChannel) {
        let buffers = saved.buffers.len().max(1);
        self.ring.truncate(buffers);
        self.ring.resize_with(buffers, || SubBuffer::new(self.size));
        self.clear();
        self.lost.clear();
        for (at, records) in saved.buffers.iter().enumerate() {
            self.write = at;
            for record in records {
                self.commit(&record.view());
            }
        }
        self.write = buffers - 1;
        self.counts = saved.counts;
    }
}

impl Channels {
    /// Saves them. The configuration is not saved.
    #[must_use]
    pub fn save(&self) -> SavedChannels {
        SavedChannels { cpus: self.cpus.iter().map(Channel::save).collect(), next: self.next }
    }

    /// Puts back what was saved of channels with the same configuration.
    pub fn restore(&mut self, saved: &SavedChannels) {
        (self.next, self.mark) = (saved.next, u64::MAX);
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

    /// What a reader will see, now and when more was written.
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
