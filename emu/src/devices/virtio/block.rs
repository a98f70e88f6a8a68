//! The block device (virtio 1.2, chapter 5.2): reads, writes, flush, and its identifier.

use super::disk::{DiskImage, SECTOR};
use super::queue::{Broken, Chain, Memory, Queue, fill_spans, part, read_spans};
use super::{BYTE_NS, MAX_BYTES, REQUEST_NS};
use serde::{Deserialize, Serialize};

/// VIRTIO_BLK_F_SEG_MAX, _BLK_SIZE, _FLUSH.
pub(super) const FEATURES: u64 = 1 << 2 | 1 << 6 | 1 << 9;
/// Data segments of a request: a queue's descriptors but the header's and the status's.
const SEGMENTS: u32 = super::queue::MAX_SIZE as u32 - 2;
/// What the driver reads as the disk's serial number.
const IDENTIFIER: &[u8; 20] = b"trapline-disk\0\0\0\0\0\0\0";

const HEADER_BYTES: u64 = 16;

/// Status byte of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Status {
    Ok = 0,
    Error = 1,
    Unsupported = 2,
}

/// A disk.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub struct Block {
    disk: DiskImage,
}

impl crate::devices::Stored for Block {
    const NAME: &str = "virtio disk";
    const VERSION: u16 = 1;
}

impl Block {
    /// A disk with this content.
    pub fn new(disk: DiskImage) -> Self {
        Self { disk }
    }

    /// The image with what was written over it.
    pub fn disk(&self) -> &DiskImage {
        &self.disk
    }

    /// Attaches the written blocks to the image of `machine`.
    pub(super) fn attach_image(&mut self, machine: &Block) {
        self.disk.attach_image(&machine.disk);
    }

    /// Byte `offset` of the configuration space.
    pub(super) fn config(&self, offset: u64) -> u8 {
        let mut space = [0; 24];
        let (capacity, rest) = space.split_at_mut(8);
        capacity.copy_from_slice(&(self.disk.size() / SECTOR).to_le_bytes());
        let (_, rest) = rest.split_at_mut(4);
        let (segments, rest) = rest.split_at_mut(4);
        segments.copy_from_slice(&SEGMENTS.to_le_bytes());
        let (_, block_size) = rest.split_at_mut(4);
        block_size.copy_from_slice(&(SECTOR as u32).to_le_bytes());
        usize::try_from(offset).ok().and_then(|n| space.get(n).copied()).unwrap_or(0)
    }

    /// Does one request, if one waits; returns the virtual ns that it takes, and whether to interrupt the driver.
    pub(super) fn serve(
        &mut self,
        queue: &mut Queue,
        memory: &mut dyn Memory,
    ) -> Result<Option<(u64, bool)>, Broken> {
        let Some(chain) = queue.pop(memory)? else { return Ok(None) };
        let room = Chain::bytes(&chain.writable);
        if Chain::bytes(&chain.readable) < HEADER_BYTES || room == 0 {
            return Err(Broken);
        }
        let (status, moved) = self.request(&chain, memory)?;
        fill_spans(memory, &part(&chain.writable, room - 1, 1), |byte| byte.fill(status as u8))?;
        // The length says how far the buffer is filled from its start; the status lies at its end.
        let written = if status == Status::Ok { room } else { 1 };
        let interrupt = queue.push(memory, chain.head, u32::try_from(written).unwrap_or(u32::MAX))?;
        Ok(Some((REQUEST_NS + moved * BYTE_NS, interrupt)))
    }

    /// Carries out a request; returns its status and the number of bytes moved.
    fn request(&mut self, chain: &Chain, memory: &mut dyn Memory) -> Result<(Status, u64), Broken> {
        let mut header = Vec::with_capacity(HEADER_BYTES as usize);
        read_spans(memory, &part(&chain.readable, 0, HEADER_BYTES), |piece| {
            header.extend_from_slice(piece);
            Ok(())
        })?;
        let &[t0, t1, t2, t3, _, _, _, _, s0, s1, s2, s3, s4, s5, s6, s7] = header.as_slice() else {
            return Err(Broken);
        };
        let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let room = Chain::bytes(&chain.writable) - 1;
        let given = Chain::bytes(&chain.readable) - HEADER_BYTES;
        match u32::from_le_bytes([t0, t1, t2, t3]) {
            0 => self.read(chain, sector, room, memory),
            1 => self.write(chain, sector, given, memory),
            4 => Ok((Status::Ok, 0)),
            8 if room >= IDENTIFIER.len() as u64 => {
                let spans = part(&chain.writable, 0, IDENTIFIER.len() as u64);
                let mut left = IDENTIFIER.as_slice();
                fill_spans(memory, &spans, |piece| {
                    let (now, later) = left.split_at(piece.len().min(left.len()));
                    piece.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
                    left = later;
                })?;
                Ok((Status::Ok, IDENTIFIER.len() as u64))
            }
            8 => Ok((Status::Error, 0)),
            _ => Ok((Status::Unsupported, 0)),
        }
    }

    /// Byte offset of a transfer that lies on the disk and is not too long.
    fn offset(&self, sector: u64, length: u64) -> Option<u64> {
        let at = sector.checked_mul(SECTOR)?;
        let fits = at.checked_add(length)? <= self.disk.size();
        (fits && length.is_multiple_of(SECTOR) && length <= MAX_BYTES).then_some(at)
    }

    fn read(
        &self,
        chain: &Chain,
        sector: u64,
        length: u64,
        memory: &mut dyn Memory,
    ) -> Result<(Status, u64), Broken> {
        let Some(mut at) = self.offset(sector, length) else { return Ok((Status::Error, 0)) };
        let mut status = Status::Ok;
        fill_spans(memory, &part(&chain.writable, 0, length), |piece| {
            if self.disk.read(at, piece).is_err() {
                status = Status::Error;
            }
            at += piece.len() as u64;
        })?;
        Ok((status, length))
    }

    fn write(
        &mut self,
        chain: &Chain,
        sector: u64,
        length: u64,
        memory: &dyn Memory,
    ) -> Result<(Status, u64), Broken> {
        let Some(mut at) = self.offset(sector, length) else { return Ok((Status::Error, 0)) };
        let mut status = Status::Ok;
        read_spans(memory, &part(&chain.readable, HEADER_BYTES, length), |piece| {
            if self.disk.write(at, piece).is_err() {
                status = Status::Error;
            }
            at += piece.len() as u64;
            Ok(())
        })?;
        Ok((status, length))
    }
}
