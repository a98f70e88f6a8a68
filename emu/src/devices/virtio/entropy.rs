//! The entropy device (virtio 1.2, chapter 5.4). Its bytes are the same in every run: they are not random, only unlike one
//! another.

use super::queue::{Broken, Chain, Memory, Queue, fill_spans, part};
use super::{BYTE_NS, REQUEST_NS};
use serde::{Deserialize, Serialize};

/// Most bytes of one answer; a driver that asks for more gets fewer.
const MOST: u64 = 4096;

/// A source of bytes: the number of words that it has given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entropy {
    given: u64,
}

impl crate::devices::Stored for Entropy {
    const NAME: &str = "virtio entropy";
    const VERSION: u16 = 1;
}

impl Entropy {
    /// The next eight bytes: SplitMix64 of their number.
    fn next(&mut self) -> [u8; 8] {
        self.given = self.given.wrapping_add(1);
        let mut z = self.given.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31).to_le_bytes()
    }

    /// Fills one buffer, if one waits; returns the virtual ns that it takes, and whether to interrupt the driver.
    pub(super) fn serve(
        &mut self,
        queue: &mut Queue,
        memory: &mut dyn Memory,
    ) -> Result<Option<(u64, bool)>, Broken> {
        let Some(chain) = queue.pop(memory)? else { return Ok(None) };
        let length = Chain::bytes(&chain.writable).min(MOST);
        fill_spans(memory, &part(&chain.writable, 0, length), |piece| {
            for eight in piece.chunks_mut(8) {
                eight.iter_mut().zip(self.next()).for_each(|(to, from)| *to = from);
            }
        })?;
        let interrupt = queue.push(memory, chain.head, length as u32)?;
        Ok(Some((REQUEST_NS + length * BYTE_NS, interrupt)))
    }
}
