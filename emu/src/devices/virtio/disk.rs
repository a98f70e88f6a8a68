//! A raw disk image that is never written: what the guest writes is kept in memory, by blocks of 4 KiB.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a sector.
pub(super) const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;

/// Why a disk image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// It cannot be opened or measured.
    #[error("it cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// Its size is not a multiple of the sector size.
    #[error("a disk of {0} bytes is not possible: the size must be a multiple of 512, and not 0")]
    Size(u64),
}

#[derive(Clone, Debug)]
enum Base {
    File(Arc<File>),
    Bytes(Arc<[u8]>),
}

/// The blocks written over an image, and the image's size: a disk's state without the image itself.
#[derive(Serialize, Deserialize)]
struct DiskState {
    size: u64,
    written: BTreeMap<u64, Vec<u8>>,
}

/// A raw image and what has been written over it. Only the written blocks are stored. A clone shares the image and has
/// its own writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "DiskState", try_from = "DiskState")]
pub struct DiskImage {
    base: Base,
    size: u64,
    written: Arc<BTreeMap<u64, Arc<[u8; BLOCK as usize]>>>,
}

impl DiskImage {
    /// Opens a raw image for reading. It must not change while a machine uses it.
    ///
    /// # Errors
    /// It cannot be read, or its size is not a multiple of the sector size.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        // Checked before it is opened: opening a pipe would block until its other end is opened.
        let found = std::fs::metadata(path).map_err(DiskError::Unreadable)?;
        if !found.is_file() {
            return Err(DiskError::Unreadable(std::io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(DiskError::Unreadable)?;
        let size = found.len();
        Self::new(Base::File(Arc::new(file)), size)
    }

    /// A disk of these bytes.
    ///
    /// # Errors
    /// When their number is not a multiple of the sector size.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DiskError> {
        Self::new(Base::Bytes(bytes.into()), bytes.len() as u64)
    }

    fn new(base: Base, size: u64) -> Result<Self, DiskError> {
        if size == 0 || !size.is_multiple_of(SECTOR) {
            return Err(DiskError::Size(size));
        }
        Ok(Self { base, size, written: Arc::default() })
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// A hash of the beginning of the image, where file systems have their names and times.
    pub(crate) fn fingerprint(&self) -> u64 {
        const BLOCKS: u64 = 256;
        let mut h = xxhash_rust::xxh3::Xxh3::new();
        for index in 0..self.size.div_ceil(BLOCK).min(BLOCKS) {
            // An unreadable block fails again, with its own error, when the guest reads it.
            if let Ok(block) = self.base_block(index) {
                h.update(&block);
            }
        }
        h.digest()
    }

    /// Attaches a restored state, which has no image, to the image of `machine`.
    pub(crate) fn attach_image(&mut self, machine: &DiskImage) {
        self.base = machine.base.clone();
    }

    /// Blocks of 4 KiB that have been written.
    pub fn blocks_written(&self) -> usize {
        self.written.len()
    }

    /// Block `index` of the image; past its end zeros.
    fn base_block(&self, index: u64) -> std::io::Result<[u8; BLOCK as usize]> {
        let mut block = [0; BLOCK as usize];
        let at = index * BLOCK;
        let len = self.size.saturating_sub(at).min(BLOCK) as usize;
        let Some(part) = block.get_mut(..len) else { return Ok(block) };
        match &self.base {
            Base::File(file) => file.read_exact_at(part, at)?,
            Base::Bytes(bytes) => {
                if let Some(from) = bytes.get(at as usize..at as usize + len) {
                    part.copy_from_slice(from);
                }
            }
        }
        Ok(block)
    }

    /// Reads within one block: `offset + to.len()` must not pass its end.
    fn read_part(&self, index: u64, offset: usize, to: &mut [u8]) -> std::io::Result<()> {
        let kept;
        let block = match self.written.get(&index) {
            Some(block) => block.as_ref(),
            None => {
                kept = self.base_block(index)?;
                &kept
            }
        };
        if let Some(from) = block.get(offset..offset + to.len()) {
            to.copy_from_slice(from);
        }
        Ok(())
    }

    /// Reads at a byte offset that the caller has checked against the size.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> std::io::Result<()> {
        let mut done = 0;
        while done < to.len() {
            let here = at + done as u64;
            let offset = (here % BLOCK) as usize;
            let len = (BLOCK as usize - offset).min(to.len() - done);
            if let Some(part) = to.get_mut(done..done + len) {
                self.read_part(here / BLOCK, offset, part)?;
            }
            done += len;
        }
        Ok(())
    }

    /// Writes at a byte offset that the caller has checked against the size.
    pub(super) fn write(&mut self, at: u64, from: &[u8]) -> std::io::Result<()> {
        let mut done = 0;
        while done < from.len() {
            let here = at + done as u64;
            let (index, offset) = (here / BLOCK, (here % BLOCK) as usize);
            let len = (BLOCK as usize - offset).min(from.len() - done);
            if !self.written.contains_key(&index) {
                let block = Arc::new(self.base_block(index)?);
                Arc::make_mut(&mut self.written).insert(index, block);
            }
            if let Some(block) = Arc::make_mut(&mut self.written).get_mut(&index)
                && let Some(to) = Arc::make_mut(block).get_mut(offset..offset + len)
                && let Some(part) = from.get(done..done + len)
            {
                to.copy_from_slice(part);
            }
            done += len;
        }
        Ok(())
    }
}

impl From<DiskImage> for DiskState {
    fn from(disk: DiskImage) -> Self {
        let written = disk.written.iter().map(|(at, block)| (*at, block.to_vec()));
        Self { size: disk.size, written: written.collect() }
    }
}

/// The disk reads as zeros where nothing was written until it lies over an image again.
impl TryFrom<DiskState> for DiskImage {
    type Error = DiskError;

    fn try_from(state: DiskState) -> Result<Self, DiskError> {
        let mut disk = Self::new(Base::Bytes(Arc::new([])), state.size)?;
        let block = |bytes: Vec<u8>| bytes.try_into().map(Arc::new).map_err(|_| DiskError::Size(state.size));
        let written = state.written.into_iter().map(|(at, bytes)| Ok((at, block(bytes)?)));
        disk.written = Arc::new(written.collect::<Result<_, DiskError>>()?);
        Ok(disk)
    }
}

/// By size and by what was written, not by the image below it.
impl Hash for DiskImage {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.size.hash(state);
        for (index, block) in self.written.iter() {
            index.hash(state);
            state.write(block.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_stay_in_memory_and_clones_diverge() {
        let path = std::env::temp_dir().join(format!("trapline-disk-{}", std::process::id()));
        let content: Vec<u8> = (0..9 * 512u32).map(|n| (n / 512) as u8 + 1).collect();
        std::fs::write(&path, &content).unwrap();
        let mut disk = DiskImage::open(&path).unwrap();
        let before = disk.clone();
        disk.write(4000, &[0xaa; 200]).unwrap();
        let mut bytes = [0; 300];
        disk.read(3950, &mut bytes).unwrap();
        assert_eq!((bytes[49], bytes[50], bytes[249], bytes[250]), (8, 0xaa, 0xaa, 9));
        before.read(3950, &mut bytes).unwrap();
        assert_eq!(bytes[50], 8);
        assert_eq!(std::fs::read(&path).unwrap(), content);
        assert_eq!((disk.blocks_written(), before.blocks_written()), (2, 0));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_disk_of_an_invalid_size_is_refused_with_that_size() {
        assert!(matches!(DiskImage::from_bytes(&[0; 513]), Err(DiskError::Size(513))));
        assert!(matches!(DiskImage::from_bytes(&[]), Err(DiskError::Size(0))));
        let missing = DiskImage::open(Path::new("/nowhere/disk.img"));
        assert!(matches!(missing, Err(DiskError::Unreadable(_))));
    }
}
