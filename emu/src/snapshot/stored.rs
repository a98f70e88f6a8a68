//! A machine's snapshot as parts of a file.

use super::{
    Archive, ArchiveError, MachineIdentity, MachineState, PageTable, Parts, Snapshot, SnapshotMismatch,
};
use crate::layout::RamLayout;
use crate::platform;
use crate::ram::{MOST as MOST_RAM, PAGE};
use std::sync::{Arc, OnceLock};

const IDENTITY: &str = "identity";
const VERSIONS: &str = "versions";
const MACHINE: &str = "machine";
const PAGES: &str = "pages";
/// The version of the parts above, and of the CPU's and the TLB's state in them.
const VERSION: u16 = 2;
/// Pages that are compressed together.
const RUN: usize = 64;
/// No machine has more RAM.
const MOST_PAGES: u64 = MOST_RAM / PAGE;

/// Why a stored snapshot cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// Its file.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// It belongs to another machine.
    #[error(transparent)]
    Foreign(#[from] SnapshotMismatch),
}

fn wrong(part: &str, reason: impl Into<String>) -> ArchiveError {
    ArchiveError::Part { part: part.to_owned(), reason: reason.into() }
}

impl Snapshot {
    /// Writes the snapshot as parts of a file.
    ///
    /// # Errors
    /// When a part cannot be written.
    pub fn store(&self, to: &mut Archive) -> Result<(), ArchiveError> {
        to.put(IDENTITY, VERSION, self.identity())?;
        to.put(VERSIONS, VERSION, &platform::versions())?;
        to.put(MACHINE, VERSION, self.state())?;
        to.put_bytes(PAGES, VERSION, compressed(self.pages()));
        Ok(())
    }

    /// Reads the parts that [`Snapshot::store`] has written.
    ///
    /// # Errors
    /// When a part is missing, cannot be read, or describes an impossible state.
    pub fn load(from: &Archive) -> Result<Self, ArchiveError> {
        let identity: MachineIdentity = from.get(IDENTITY, VERSION)?;
        check_versions(&from.get::<Vec<(String, u16)>>(VERSIONS, VERSION)?)?;
        let state: MachineState = from.get(MACHINE, VERSION)?;
        state.check().map_err(|what| wrong(MACHINE, format!("{what} is in no possible state")))?;
        if !identity.ram.is_multiple_of(PAGE) || identity.ram / PAGE > MOST_PAGES {
            return Err(wrong(IDENTITY, format!("no machine has {} bytes of memory", identity.ram)));
        }
        let layout = RamLayout::of(identity.ram);
        let count = layout.end() / PAGE;
        if state.code.len() as u64 != count.div_ceil(64) {
            return Err(wrong(MACHINE, "its list of code pages is of another size than its memory"));
        }
        let mut pages = PageTable::zeroed(count as u32);
        expand(from.bytes(PAGES, VERSION)?, &mut pages).ok_or_else(|| wrong(PAGES, "bad page data"))?;
        if !pages.stored().all(|(page, _)| layout.contains(u64::from(page) * PAGE, PAGE)) {
            return Err(wrong(PAGES, "it has a page outside of the machine's memory"));
        }
        Ok(Snapshot(Arc::new(Parts {
            identity: Arc::new(identity),
            state,
            pages,
            new_pages: 0,
            devices: OnceLock::new(),
        })))
    }
}

impl MachineState {
    /// Checks for impossible values: numbers that would index out of arrays or overflow time.
    fn check(&self) -> Result<(), &'static str> {
        const LAST: u64 = 1 << 62;
        if self.icount > LAST || self.skipped > LAST || self.idle_ns > LAST {
            return Err("the clock");
        }
        if self.cpu.cpl > 3 || self.cpu.x87.top > 7 {
            return Err("the CPU");
        }
        if !self.tlb.is_sound() {
            return Err("the TLB");
        }
        if !self.console.is_sound() {
            return Err("the console");
        }
        self.platform.unsound().map_or(Ok(()), Err)
    }
}

fn check_versions(found: &[(String, u16)]) -> Result<(), ArchiveError> {
    let known = platform::versions();
    for (name, version) in known.iter().copied() {
        match found.iter().find(|(part, _)| part == name) {
            Some((_, found)) if *found != version => {
                let part = name.to_owned();
                return Err(ArchiveError::PartVersion { part, found: *found, known: version });
            }
            Some(_) => {}
            None => return Err(ArchiveError::Missing(name.to_owned())),
        }
    }
    Ok(())
}

/// Runs of pages: their number, their page numbers, and their content compressed.
fn compressed(table: &PageTable) -> Vec<u8> {
    let all: Vec<(u32, &[u8])> = table.stored().collect();
    let mut out = Vec::new();
    for run in all.chunks(RUN) {
        let content: Vec<u8> = run.iter().flat_map(|(_, page)| page.iter().copied()).collect();
        let packed = lz4_flex::block::compress(&content);
        out.extend((run.len() as u32).to_le_bytes());
        out.extend((packed.len() as u32).to_le_bytes());
        run.iter().for_each(|(page, _)| out.extend(page.to_le_bytes()));
        out.extend(packed);
    }
    out
}

/// Reads what [`compressed`] has written; `None` when it is something else.
fn expand(mut from: &[u8], table: &mut PageTable) -> Option<()> {
    fn word(from: &mut &[u8]) -> Option<u32> {
        let (found, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(u32::from_le_bytes(*found))
    }
    let mut next = 0;
    let mut content = vec![0; RUN * PAGE as usize];
    while !from.is_empty() {
        let (count, packed) = (word(&mut from)? as usize, word(&mut from)? as usize);
        if !(1..=RUN).contains(&count) {
            return None;
        }
        let mut numbers = Vec::with_capacity(count);
        for _ in 0..count {
            let page = word(&mut from)?;
            if page < next || page >= table.len() {
                return None;
            }
            next = page + 1;
            numbers.push(page);
        }
        let (packed, rest) = from.split_at_checked(packed)?;
        from = rest;
        let content = content.get_mut(..count * PAGE as usize)?;
        if lz4_flex::block::decompress_into(packed, content).ok()? != content.len() {
            return None;
        }
        for (page, bytes) in numbers.into_iter().zip(content.chunks_exact(PAGE as usize)) {
            table.set(page, bytes);
        }
    }
    Some(())
}
