//! The console device (virtio 1.2, chapter 5.3): one port, without the control queues of several.

use super::queue::{Broken, Chain, Memory, Queue, fill_spans, part, read_spans};
use super::{BYTE_NS, REQUEST_NS};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Bytes of output that one chain may carry; more breaks the rules.
const MAX_OUTPUT: u64 = 64 << 10;

/// A console.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Console {
    input: VecDeque<u8>,
    output: Vec<u8>,
}

impl crate::devices::Stored for Console {
    const NAME: &str = "virtio console";
    const VERSION: u16 = 1;
}

impl Console {
    /// Queues input until the driver provides buffers.
    pub(super) fn type_in(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
    }

    /// Takes the output of the guest.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Takes a buffer of output, or else fills one with input; returns the virtual ns that it takes, and whether to
    /// interrupt the driver.
    pub(super) fn serve(
        &mut self,
        [receive, transmit]: &mut [Queue; 2],
        memory: &mut dyn Memory,
    ) -> Result<Option<(u64, bool)>, Broken> {
        if let Some(chain) = transmit.pop(memory)? {
            let length = Chain::bytes(&chain.readable);
            if length > MAX_OUTPUT {
                return Err(Broken);
            }
            read_spans(memory, &chain.readable, |piece| {
                self.output.extend_from_slice(piece);
                Ok(())
            })?;
            let interrupt = transmit.push(memory, chain.head, 0)?;
            return Ok(Some((REQUEST_NS + length * BYTE_NS, interrupt)));
        }
        if self.input.is_empty() {
            return Ok(None);
        }
        let Some(chain) = receive.pop(memory)? else { return Ok(None) };
        let length = Chain::bytes(&chain.writable).min(self.input.len() as u64);
        fill_spans(memory, &part(&chain.writable, 0, length), |piece| {
            for byte in piece {
                *byte = self.input.pop_front().unwrap_or(0);
            }
        })?;
        let interrupt = receive.push(memory, chain.head, length as u32)?;
        Ok(Some((REQUEST_NS + length * BYTE_NS, interrupt)))
    }
}
