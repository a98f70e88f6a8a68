//! The rings of a channel of Linux, as their description says: checked, read, and written to.

use trapline_emu::{PAGE, PhysMem};

use crate::channel::Channel;
use crate::damage::Damage;
use crate::layout::{RELAY, RELAY_CPU, Shape, number};
use crate::relay::Relay;
use crate::ring::Ring;
use crate::write::{Stores, Tail};

/// The guest's memory with the size of its words.
#[derive(Clone, Copy)]
struct Words<'m> {
    memory: &'m dyn PhysMem,
    bytes: usize,
}

impl Words<'_> {
    /// The word so many bytes behind a physical address.
    fn at(self, paddr: u64, offset: u64, part: &'static str) -> Result<u64, Damage> {
        let mut word = [0; 8];
        let to = word.get_mut(..self.bytes).unwrap_or_default();
        let read = paddr.checked_add(offset).is_some_and(|at| self.memory.read(at, to));
        if read { Ok(u64::from_le_bytes(word)) } else { Err(Damage::Missing(part)) }
    }
}

/// A virtual address and a physical one of the same thing lie at the same place in their pages.
fn pointer(part: &'static str, found: u64, needed: u64, mask: u64) -> Result<(), Damage> {
    if found & mask == needed & mask { Ok(()) } else { Err(Damage::Pointer { part, found, needed }) }
}

impl Relay {
    /// Reads the description, which is behind the list of pages, and checks that the structures are what it says.
    pub fn read(channel: &Channel, memory: &dyn PhysMem) -> Result<Self, Damage> {
        let shape = channel.shape();
        let mut bytes = vec![0; (RELAY + u64::from(shape.cpus) * RELAY_CPU) as usize];
        channel.bytes(memory, channel.rings_at(), &mut bytes, "description of rings")?;
        let relay = Self::parse(&bytes);
        relay.check(channel, memory, number::<8>(&bytes, 0))?;
        Ok(relay)
    }

    fn check(&self, channel: &Channel, memory: &dyn PhysMem, rchan: u64) -> Result<(), Damage> {
        let words = Words { memory, bytes: channel.word().into() };
        let Shape { subbuf_size, subbufs, .. } = channel.shape();
        let mut head = [0; 8];
        channel.bytes(memory, 0, &mut head, "head")?;
        let chan = if channel.word() == 8 { number::<8>(&head, 0) } else { number::<4>(&head, 4) };
        pointer("struct rchan", chan, rchan, PAGE - 1)?;
        let part = "struct rchan";
        let size = words.at(rchan, self.fields.subbuf_size, part)?;
        let n = words.at(rchan, self.fields.subbufs, part)?;
        if (size, n) != (subbuf_size.into(), subbufs.into()) {
            return Err(Damage::Geometry { subbufs: n as u32, size: size as u32 });
        }
        for (index, cpu) in self.cpus.iter().enumerate() {
            let Some(cpu) = cpu else { continue };
            let part = "struct rchan_buf";
            pointer(part, words.at(cpu.buf, self.fields.chan, part)?, chan, u64::MAX)?;
            pointer("sub-buffers", words.at(cpu.buf, self.fields.start, part)?, cpu.start, u64::MAX)?;
            let padding = words.at(cpu.buf, self.fields.padding, part)?;
            pointer("unused bytes", padding, cpu.padding, PAGE - 1)?;
            if let Some((index, page)) = channel.absent_page(index as u16) {
                return Err(Damage::Page { index, page });
            }
        }
        Ok(())
    }

    /// The ring of a CPU; nothing if the CPU has not been online.
    pub fn ring(&self, channel: &Channel, memory: &dyn PhysMem, cpu: u16) -> Result<Option<Ring>, Damage> {
        let Some(Some(own)) = self.cpus.get(usize::from(cpu)) else { return Ok(None) };
        let words = Words { memory, bytes: channel.word().into() };
        let Shape { subbuf_size: size, subbufs, .. } = channel.shape();
        let part = "struct rchan_buf";
        let field = |offset| words.at(own.buf, offset, part);
        let produced = field(self.fields.produced)?;
        let n = u64::from(subbufs);
        let data = field(self.fields.data)?.wrapping_sub(own.start);
        let current = data / u64::from(size);
        let is_current = current < n && data.is_multiple_of(size.into());
        // Between two instructions of a switch, the next sub-buffer has been counted, but not entered.
        let is_switching = is_current && produced > 0 && current == (produced - 1) % n;
        if !is_current || current != produced % n && !is_switching {
            return Err(Damage::Entered { cpu, current, entered: produced });
        }
        let used = if current == produced % n { field(self.fields.offset)? } else { 0 };
        let mut padding = vec![0; n as usize * words.bytes];
        if !memory.read(own.padding, &mut padding) {
            return Err(Damage::Missing("unused bytes"));
        }
        let mut rings = vec![(0, 0); subbufs as usize];
        let entered = rings.len().min(usize::try_from(produced).unwrap_or(usize::MAX).saturating_add(1));
        for behind in 0..entered as u64 {
            let sequence = produced - behind;
            let index = sequence % n;
            let at = index as usize * words.bytes;
            let unused = if words.bytes == 8 { number::<8>(&padding, at) } else { number::<4>(&padding, at) };
            let used = match behind {
                0 => u32::try_from(used).unwrap_or(u32::MAX),
                _ => u64::from(size).checked_sub(unused).ok_or(Damage::Unused {
                    cpu,
                    index: index as u32,
                    unused,
                })? as u32,
            };
            if let Some(ring) = rings.get_mut(index as usize) {
                *ring = (sequence as u32, used);
            }
        }
        Ok(Some(Ring {
            cpu,
            current: (produced % n) as u32,
            consumed: (field(self.fields.consumed)? as u32, field(self.fields.bytes_consumed)? as u32),
            too_long: own.too_long,
            nested: own.nested,
            subbufs: rings,
        }))
    }
}

impl Relay {
    /// What relay's own functions would store for a record, except the size of the file that `stat` shows.
    pub fn append(
        &self,
        channel: &Channel,
        memory: &dyn PhysMem,
        ring: &Ring,
        tail: &Tail,
        stores: &mut Stores,
    ) -> Option<()> {
        let own = (*self.cpus.get(usize::from(ring.cpu))?)?;
        let words = Words { memory, bytes: channel.word().into() };
        let size = u64::from(channel.shape().subbuf_size);
        let (index, _) = tail.place;
        let mut word = |paddr: u64, offset: u64, value: u64| -> Option<()> {
            let bytes = value.to_le_bytes().get(..words.bytes)?.to_vec();
            stores.push((paddr.checked_add(offset)?, bytes));
            Some(())
        };
        if tail.enters {
            let used = ring.subbufs.get(ring.current as usize)?.1;
            let at = |index: u32| u64::from(index) * words.bytes as u64;
            word(own.padding, at(ring.current), size - u64::from(used))?;
            word(own.padding, at(index), 0)?;
            let produced = words.at(own.buf, self.fields.produced, "struct rchan_buf").ok()?;
            word(own.buf, self.fields.produced, produced.wrapping_add(1))?;
            word(own.buf, self.fields.data, own.start.wrapping_add(u64::from(index) * size))?;
        }
        word(own.buf, self.fields.offset, tail.used.into())
    }
}
