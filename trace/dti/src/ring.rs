//! The ring of one CPU: its sub-buffers from the oldest to the current one, and the records in them.

use trapline_emu::PhysMem;

use crate::channel::Channel;
use crate::contents::{Contents, CpuState, Entry};
use crate::damage::Damage;
use crate::layout::{EVENT, RING, number};

impl Channel {
    /// Reads all its records.
    pub fn read(&self, memory: &dyn PhysMem) -> Contents {
        let mut contents = Contents::default();
        for cpu in 0..self.cpus() {
            let ring = match self.relay() {
                Some(relay) => relay.ring(self, memory, cpu),
                None => Ring::read(self, memory, cpu).map(Some),
            };
            let state = match ring {
                // The CPU has not been online.
                Ok(None) => CpuState::default(),
                Ok(Some(ring)) => ring.records(self, memory, &mut contents),
                Err(damage) => CpuState { damage: Some(damage), ..CpuState::default() },
            };
            contents.cpus.push(state);
        }
        // Records of one CPU with the same time keep their order.
        contents.entries.sort_by_key(|entry| (entry.time, entry.cpu));
        contents
    }
}

/// The description of a ring.
pub(crate) struct Ring {
    pub cpu: u16,
    pub current: u32,
    /// Where the guest's own reading goes on: number in the sequence, and offset.
    pub consumed: (u32, u32),
    pub too_long: u32,
    pub nested: u32,
    /// Number in the sequence and used bytes of each sub-buffer.
    pub subbufs: Vec<(u32, u32)>,
}

impl Ring {
    pub fn read(channel: &Channel, memory: &dyn PhysMem, cpu: u16) -> Result<Self, Damage> {
        let shape = channel.shape();
        let mut bytes = vec![0; shape.ring_head() as usize];
        channel.bytes(memory, channel.ring_at(cpu), &mut bytes, "description of rings")?;
        let field = |at| number::<4>(&bytes, at) as u32;
        let current = field(8);
        if current >= shape.subbufs {
            return Err(Damage::Current { cpu, current, subbufs: shape.subbufs });
        }
        let subbufs = bytes[RING as usize..].chunks_exact(8);
        Ok(Self {
            cpu,
            current,
            consumed: (field(12), field(16)),
            too_long: field(20),
            nested: field(24),
            subbufs: subbufs
                .map(|subbuf| (number::<4>(subbuf, 0) as u32, number::<4>(subbuf, 4) as u32))
                .collect(),
        })
    }

    /// Appends the records, oldest first.
    fn records(&self, channel: &Channel, memory: &dyn PhysMem, to: &mut Contents) -> CpuState {
        let n = self.subbufs.len() as u32;
        let newest = self.subbufs.get(self.current as usize).map_or(0, |subbuf| subbuf.0);
        let mut state = CpuState {
            entered: u64::from(newest) + 1,
            too_long: self.too_long,
            nested: self.nested,
            sequence: newest,
            ..CpuState::default()
        };
        for behind in (0..n).rev() {
            let index = (self.current + n - behind) % n;
            if let Err(damage) = self.subbuf(channel, memory, (index, behind), to, &mut state) {
                state.damage.get_or_insert(damage);
            }
        }
        state
    }

    /// Appends the records of the sub-buffer that is so many behind the current one.
    fn subbuf(
        &self,
        channel: &Channel,
        memory: &dyn PhysMem,
        (index, behind): (u32, u32),
        to: &mut Contents,
        state: &mut CpuState,
    ) -> Result<(), Damage> {
        let cpu = self.cpu;
        let (sequence, used) = self.subbufs.get(index as usize).copied().unwrap_or_default();
        if used == 0 {
            return Ok(());
        }
        let size = channel.shape().subbuf_size;
        if used > size {
            return Err(Damage::Used { cpu, index, used });
        }
        let needed = state.sequence.wrapping_sub(behind);
        if sequence != needed {
            return Err(Damage::Sequence { cpu, index, found: sequence, needed });
        }
        let base = to.bytes.len();
        to.bytes.resize(base + used as usize, 0);
        let at = channel.data_at(cpu) + u64::from(index) * u64::from(size);
        channel.bytes(memory, at, &mut to.bytes[base..], "records")?;
        let bytes = &to.bytes[base..];
        let mut offset = 0;
        while offset < bytes.len() {
            let len = number::<2>(bytes, offset) as u16;
            let end = offset + EVENT + usize::from(len);
            if end > bytes.len() {
                return Err(Damage::Record { cpu, index, offset: offset as u32 });
            }
            let time = number::<8>(bytes, offset + 2);
            // The lower half of the time is stored last.
            if time as u32 == 0 {
                state.incomplete += 1;
                if behind == 0 {
                    state.writing_at.get_or_insert(offset as u32);
                }
            } else {
                to.entries.push(Entry {
                    time,
                    cpu,
                    len,
                    unread: self.unread(state.sequence, (behind, offset as u32)),
                    sequence,
                    offset: offset as u32,
                    start: base + offset + EVENT,
                });
            }
            offset = end;
        }
        Ok(())
    }

    /// Whether the guest's own reading has not come to an offset in a sub-buffer that is so many behind the current one.
    fn unread(&self, newest: u32, (behind, offset): (u32, u32)) -> bool {
        let consumed_behind = newest.wrapping_sub(self.consumed.0);
        let lost = consumed_behind as usize >= self.subbufs.len();
        lost || behind < consumed_behind || behind == consumed_behind && offset >= self.consumed.1
    }
}
