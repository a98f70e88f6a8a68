//! Guest RAM, owned by the host, and the state that the machine keeps for each physical page.
//!
//! Three pieces of memory: RAM itself (the data view), the shadow (the fetch view of armed pages, as large
//! as RAM but touched only where armed), and the slots (displaced instructions run out of line). All writes
//! from Rust go through [`Ram::write`], which keeps the dirty set and reports stores to code.
//!
//! The RAM of a machine that is only looked at, such as that of a dump, holds nothing itself: it is read through a
//! [`PhysMem`], and nothing can be written.

use crate::layout::RamLayout;
use crate::phys_mem::PhysMem;
use memmap2::{MmapMut, MmapOptions};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Pages of out-of-line slots.
pub(crate) const SLOT_PAGES: u64 = 1024;

/// Most bytes of RAM: physical addresses of 36 bits reach it.
pub(crate) const MOST: u64 = 32 << 30;

/// Linear pages remembered for a physical page before a full TLB flush is needed to forget it.
const KNOWN_VAS: usize = 3;

/// The machine's state of one physical page.
#[derive(Debug, Clone, Copy, Default, bytemuck::Zeroable)]
pub(crate) struct PageState {
    /// `PageState::*` bits.
    pub flags: u8,
    /// How often the page went from code to data; past [`PageState::MAX_FLIPS`] it is given both permissions. For a
    /// page that has both, the number of grants since, starting higher where the page need not keep them long.
    pub flips: u8,
    known: u8,
    vas: [u64; KNOWN_VAS],
}

impl PageState {
    /// Translations of this page may exist; no linear page maps it writable.
    pub const CODE: u8 = 1;
    /// Some linear page maps it writable in the engine.
    pub const WRITABLE: u8 = 2;
    /// Both code and writable, on the engine's precise self-modifying-code path.
    pub const BOTH: u8 = 4;
    /// A fetch view differs from the data view.
    pub const ARMED: u8 = 8;
    /// Written since the last snapshot.
    pub const DIRTY: u8 = 16;
    /// The shadow may be older than RAM.
    pub const STALE: u8 = 32;
    /// Translations of the guest's own bytes may exist although the page is armed: instructions were stepped in place.
    pub const UNPATCHED: u8 = 64;
    /// Written since its hash was last worked out.
    pub const UNHASHED: u8 = 128;
    /// The bits that a write sets.
    const WRITTEN: u8 = Self::DIRTY | Self::UNHASHED;
    /// Flips before a page is given both permissions.
    pub const MAX_FLIPS: u8 = 32;
    /// Grants after which a page loses the double permission.
    pub const GRANTS: u8 = 64;
    /// The same for a page that has written to itself: kernels write to themselves once, at boot.
    pub const OWN_GRANTS: u8 = 8;

    /// Whether any of `bits` is set.
    #[inline]
    pub fn is(&self, bits: u8) -> bool {
        self.flags & bits != 0
    }

    /// Remembers that `va` maps this page in the engine's TLB.
    pub fn remember(&mut self, va: u64) {
        let n = usize::from(self.known);
        if self.vas[..n.min(KNOWN_VAS)].contains(&va) {
            return;
        }
        if n < KNOWN_VAS {
            self.vas[n] = va;
        }
        self.known = self.known.saturating_add(1);
    }

    /// Takes the linear pages to drop: `None` when there were too many to remember.
    pub fn forget(&mut self) -> Option<([u64; KNOWN_VAS], usize)> {
        let n = usize::from(std::mem::take(&mut self.known));
        (n <= KNOWN_VAS).then_some((self.vas, n))
    }
}

/// Devices reach memory as the rest of the machine does: what they write is marked dirty, and stores to code are noted.
impl crate::devices::virtio::Memory for Ram {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        Ram::read(self, paddr, to)
    }
    fn write(&mut self, paddr: u64, from: &[u8]) -> bool {
        Ram::write(self, paddr, from)
    }
}

impl PhysMem for Ram {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        Ram::read(self, paddr, to)
    }
}

/// Page-aligned, zeroed host memory, which the host commits only as it is touched.
struct Block {
    ptr: NonNull<u8>,
    /// Keeps the memory.
    map: MmapMut,
}

// SAFETY: a block owns its memory.
unsafe impl Send for Block {}

impl Block {
    fn new(size: u64) -> Option<Self> {
        // Not reserved: a guest may have more memory than it, or the host, ever uses.
        let options = MmapOptions::new().len(usize::try_from(size).ok()?).no_reserve_swap().to_owned();
        let mut map = options.map_anon().ok()?;
        let ptr = NonNull::new(map.as_mut_ptr())?;
        Some(Block { ptr, map })
    }

    /// Asks the host for large pages: fewer page faults while RAM is first touched. A host without large pages uses
    /// small ones.
    fn in_large_pages(self) -> Self {
        #[cfg(target_os = "linux")]
        let _ = self.map.advise(memmap2::Advice::HugePage);
        self
    }
}

/// Guest RAM and its page states.
pub struct Ram {
    data: Block,
    shadow: Block,
    slots: Block,
    layout: RamLayout,
    /// What of it the blocks hold: all, or nothing if it is elsewhere.
    held: RamLayout,
    /// Where RAM is, if it is elsewhere.
    elsewhere: Option<Box<dyn PhysMem + Send>>,
    pub(crate) pages: Vec<PageState>,
    pub(crate) dirty: Vec<u32>,
    /// Pages written since their hashes were last worked out.
    pub(crate) unhashed: Vec<u32>,
    /// A bit for each page that is `CODE`, which snapshots share.
    code: Arc<Vec<u64>>,
    /// Code pages written by Rust since the machine last looked.
    pub(crate) touched_code: Vec<u32>,
}

/// Why RAM cannot be allocated.
#[derive(Debug, thiserror::Error)]
#[error(
    "guest memory of {0} bytes is not possible; use 1M to 32G, in multiples of 4K, and not more than the host can give"
)]
pub struct RamError(pub u64);

impl Ram {
    /// Allocates `size` bytes of zeroed RAM.
    pub fn new(size: u64) -> Result<Self, RamError> {
        if !(1 << 20..=MOST).contains(&size) || !size.is_multiple_of(PAGE) {
            return Err(RamError(size));
        }
        let block = |n| Block::new(n).ok_or(RamError(size));
        let layout = RamLayout::of(size);
        let end = layout.end();
        Ok(Ram {
            data: block(end)?.in_large_pages(),
            shadow: block(end)?,
            slots: block(SLOT_PAGES * PAGE)?,
            layout,
            held: layout,
            elsewhere: None,
            pages: bytemuck::zeroed_vec((end / PAGE) as usize),
            dirty: Vec::new(),
            unhashed: Vec::new(),
            code: Arc::new(vec![0; (end / PAGE).div_ceil(64) as usize]),
            touched_code: Vec::new(),
        })
    }

    /// RAM that is elsewhere and can only be read: `size` bytes of it.
    pub(crate) fn elsewhere(memory: Box<dyn PhysMem + Send>, size: u64) -> Result<Self, RamError> {
        let blocks = Self::new(1 << 20)?;
        let layout = RamLayout::below(size);
        let (held, elsewhere) = (RamLayout::below(0), Some(memory));
        Ok(Ram { layout, held, elsewhere, pages: Vec::new(), code: Arc::default(), ..blocks })
    }

    /// Whether it is elsewhere, and can only be read.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.layout.size()
    }

    /// Where it lies.
    pub fn layout(&self) -> RamLayout {
        self.layout
    }

    /// Whether `len` bytes from `paddr` on are RAM.
    #[inline]
    pub fn contains(&self, paddr: u64, len: u64) -> bool {
        self.layout.contains(paddr, len)
    }

    /// The ranges of physical addresses that the engine maps to the blocks, each at the offset that is its address.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = Range<u64>> {
        // Where RAM is elsewhere, the engine never runs, and has the blocks as they are.
        let blocks = RamLayout::below(self.data.map.len() as u64);
        if self.is_elsewhere() { blocks.ranges() } else { self.layout.ranges() }
    }

    pub(crate) fn data_ptr(&self) -> *mut u8 {
        self.data.ptr.as_ptr()
    }

    pub(crate) fn shadow_ptr(&self) -> *mut u8 {
        self.shadow.ptr.as_ptr()
    }

    pub(crate) fn slots_ptr(&self) -> *mut u8 {
        self.slots.ptr.as_ptr()
    }

    /// `len` bytes in data view; `None` unless all are RAM that is here.
    #[inline]
    pub fn slice(&self, paddr: u64, len: usize) -> Option<&[u8]> {
        self.in_range(paddr, len).then(|| &self.bytes()[paddr as usize..paddr as usize + len])
    }

    /// All of RAM in data view, by physical address: what is not RAM is zero. Nothing if it is elsewhere.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `held` bytes are owned; the engine writes them only while `&mut self` machines run, never
        // while a shared borrow from here is alive.
        unsafe { std::slice::from_raw_parts(self.data.ptr.as_ptr(), self.held.end() as usize) }
    }

    #[inline]
    fn in_range(&self, paddr: u64, len: usize) -> bool {
        self.held.contains(paddr, len as u64)
    }

    /// Copies from data view; false (and nothing copied) when any byte lies outside RAM.
    #[inline]
    pub fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        if !self.in_range(paddr, to.len()) {
            return self.read_elsewhere(paddr, to);
        }
        // SAFETY: in range, and `to` is Rust memory that cannot overlap the block.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.data.ptr.as_ptr().add(paddr as usize),
                to.as_mut_ptr(),
                to.len(),
            );
        }
        true
    }

    /// As many bytes; `None` outside RAM.
    #[inline]
    pub fn array<const N: usize>(&self, paddr: u64) -> Option<[u8; N]> {
        // SAFETY: in range, and an array of bytes has no alignment.
        self.in_range(paddr, N)
            .then(|| unsafe { self.data.ptr.as_ptr().add(paddr as usize).cast::<[u8; N]>().read() })
    }

    /// The state of the page at a physical address; `None` outside RAM.
    #[inline]
    pub(crate) fn page_at(&self, paddr: u64) -> Option<&PageState> {
        self.in_range(paddr, 1).then(|| &self.pages[(paddr / PAGE) as usize])
    }

    #[cold]
    fn read_elsewhere(&self, paddr: u64, to: &mut [u8]) -> bool {
        self.elsewhere.as_ref().is_some_and(|memory| memory.read(paddr, to))
    }

    /// A little-endian integer of `size` (1, 2, 4, 8) bytes; all ones outside RAM.
    #[inline]
    pub fn read_int(&self, paddr: u64, size: usize) -> u64 {
        let mut bytes = [0xff; 8];
        let size = size.min(8);
        if self.read(paddr, &mut bytes[..size]) {
            bytes[size..].fill(0);
        }
        u64::from_le_bytes(bytes)
    }

    /// Writes data view, marks pages dirty, and notes stores to code. False when outside RAM.
    #[inline]
    pub fn write(&mut self, paddr: u64, from: &[u8]) -> bool {
        if from.is_empty() {
            return true;
        }
        if !self.in_range(paddr, from.len()) {
            return false;
        }
        for page in paddr / PAGE..=(paddr + from.len() as u64 - 1) / PAGE {
            self.note_write(page as u32);
        }
        // SAFETY: in range; `from` cannot overlap a block that only raw pointers reach.
        unsafe {
            std::ptr::copy_nonoverlapping(
                from.as_ptr(),
                self.data.ptr.as_ptr().add(paddr as usize),
                from.len(),
            );
        }
        true
    }

    /// Copies `len` bytes from `from` to `to`, element after element upwards, as MOVS does: where they overlap, what was
    /// written is read again. Marks the target's page dirty. Nothing happens outside RAM or with elements of no size.
    pub(crate) fn move_up(&mut self, from: u64, to: u64, len: usize, element: usize) {
        if !self.in_range(from, len) || !self.in_range(to, len) || len == 0 || element == 0 {
            return;
        }
        self.mark_dirty((to / PAGE) as u32);
        let apart = to.wrapping_sub(from);
        // Where the target begins inside the source, at most `apart` bytes can be moved at a time without reading what
        // was written.
        let step = match usize::try_from(apart) {
            Ok(apart) if apart < len => (apart - apart % element).max(element),
            _ => len,
        };
        for offset in (0..len).step_by(step) {
            // SAFETY: both ranges lie in the data block; `copy` allows them to overlap.
            unsafe {
                let data = self.data.ptr.as_ptr();
                let n = step.min(len - offset);
                std::ptr::copy(data.add(from as usize + offset), data.add(to as usize + offset), n);
            }
        }
    }

    /// Writes `n` times `element` from `to` on, as STOS does, and marks the page dirty.
    pub(crate) fn fill(&mut self, to: u64, element: &[u8], n: usize) {
        let len = element.len() * n;
        if len == 0 || !self.in_range(to, len) {
            return;
        }
        self.mark_dirty((to / PAGE) as u32);
        // SAFETY: in range, and no other reference to the block is alive while `self` is borrowed exclusively.
        let target = unsafe { std::slice::from_raw_parts_mut(self.data.ptr.as_ptr().add(to as usize), len) };
        match element {
            [first, rest @ ..] if rest.iter().all(|byte| byte == first) => target.fill(*first),
            _ => target.chunks_exact_mut(element.len()).for_each(|chunk| chunk.copy_from_slice(element)),
        }
    }

    /// Marks a page written since the last snapshot, and since its hash was worked out.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, page: u32) {
        let state = &mut self.pages[page as usize];
        let before = state.flags & PageState::WRITTEN;
        if before != PageState::WRITTEN {
            state.flags |= PageState::WRITTEN;
            if before & PageState::DIRTY == 0 {
                self.dirty.push(page);
            }
            if before & PageState::UNHASHED == 0 {
                self.unhashed.push(page);
            }
        }
    }

    /// Notes whether code has been fetched from a page since it was last written.
    pub(crate) fn set_code(&mut self, page: u32, code: bool) {
        let Some(state) = self.pages.get_mut(page as usize).filter(|state| state.is(PageState::CODE) != code)
        else {
            return;
        };
        state.flags ^= PageState::CODE;
        if let Some(word) = Arc::make_mut(&mut self.code).get_mut(page as usize / 64) {
            *word ^= 1 << (page % 64);
        }
    }

    /// The pages that are `CODE`, a bit each.
    pub(crate) fn code(&self) -> &Arc<Vec<u64>> {
        &self.code
    }

    /// The pages that are `CODE` in exactly one of this RAM and `other`.
    pub(crate) fn differing_code(&self, other: &Arc<Vec<u64>>) -> Vec<u32> {
        if Arc::ptr_eq(&self.code, other) {
            return Vec::new();
        }
        let words = (0..).zip(self.code.iter().zip(other.iter()));
        let differing = words.map(|(n, (a, b))| (n, a ^ b)).filter(|(_, bits)| *bits != 0);
        let pages = differing.flat_map(|(n, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| 64 * n + bit)
        });
        pages.filter(|page| (*page as usize) < self.pages.len()).collect()
    }

    /// Notes a write by the host.
    #[inline]
    fn note_write(&mut self, page: u32) {
        self.mark_dirty(page);
        let state = &mut self.pages[page as usize];
        if state.is(PageState::CODE | PageState::BOTH | PageState::ARMED) {
            state.flags |= PageState::STALE;
            self.touched_code.push(page);
        }
    }

    /// Reads the fetch view of one page: the shadow where it is armed.
    pub(crate) fn read_code(&self, paddr: u64, to: &mut [u8]) -> bool {
        if !self.in_range(paddr, to.len()) {
            return false;
        }
        let armed = self.pages[(paddr / PAGE) as usize].is(PageState::ARMED);
        let base = if armed { self.shadow.ptr } else { self.data.ptr };
        // SAFETY: in range of either block, which have equal sizes.
        unsafe {
            std::ptr::copy_nonoverlapping(base.as_ptr().add(paddr as usize), to.as_mut_ptr(), to.len());
        }
        true
    }

    /// Makes the shadow of `page` a copy of the data view.
    pub(crate) fn refresh_shadow(&mut self, page: u32) {
        let at = page as usize * PAGE as usize;
        // SAFETY: a whole page inside both blocks, which are distinct.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.data.ptr.as_ptr().add(at),
                self.shadow.ptr.as_ptr().add(at),
                PAGE as usize,
            );
        }
        self.pages[page as usize].flags &= !PageState::STALE;
    }

    /// Writes the fetch view only.
    pub(crate) fn shadow_is(&self, paddr: u64, bytes: &[u8]) -> bool {
        // SAFETY: in range of the shadow block, which is not written meanwhile.
        self.in_range(paddr, bytes.len())
            && unsafe {
                std::slice::from_raw_parts(self.shadow.ptr.as_ptr().add(paddr as usize), bytes.len())
            } == bytes
    }

    pub(crate) fn write_shadow(&mut self, paddr: u64, from: &[u8]) {
        if self.in_range(paddr, from.len()) {
            // SAFETY: in range of the shadow block.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from.as_ptr(),
                    self.shadow.ptr.as_ptr().add(paddr as usize),
                    from.len(),
                );
            }
        }
    }

    /// Writes what the engine reads when it translates: the fetch view of an `armed` page, else the data view. Nothing is
    /// noted, so the bytes must be put back before anything else reads them.
    pub(crate) fn write_code(&mut self, paddr: u64, from: &[u8], armed: bool) {
        let base = if armed { self.shadow.ptr } else { self.data.ptr };
        if self.in_range(paddr, from.len()) {
            // SAFETY: in range of either block, which have equal sizes.
            unsafe {
                std::ptr::copy_nonoverlapping(from.as_ptr(), base.as_ptr().add(paddr as usize), from.len());
            }
        }
    }

    /// Writes slot memory at `offset`.
    pub(crate) fn write_slot(&mut self, offset: usize, from: &[u8]) {
        if offset + from.len() <= (SLOT_PAGES * PAGE) as usize {
            // SAFETY: just checked.
            unsafe {
                std::ptr::copy_nonoverlapping(from.as_ptr(), self.slots.ptr.as_ptr().add(offset), from.len());
            }
        }
    }

    /// Takes the pages written since the last call, in order.
    pub(crate) fn take_unhashed(&mut self) -> Vec<u32> {
        let mut written = std::mem::take(&mut self.unhashed);
        for &page in &written {
            self.pages[page as usize].flags &= !PageState::UNHASHED;
        }
        written.sort_unstable();
        written
    }

    /// Copies a whole page in, for snapshots: the only bookkeeping is that its hash is unknown.
    pub(crate) fn restore_page(&mut self, page: u32, from: &[u8]) {
        let at = page as usize * PAGE as usize;
        if from.len() == PAGE as usize && at + PAGE as usize <= self.held.end() as usize {
            let state = &mut self.pages[page as usize];
            if !state.is(PageState::UNHASHED) {
                state.flags |= PageState::UNHASHED;
                self.unhashed.push(page);
            }
            // SAFETY: a whole page inside the data block.
            unsafe {
                std::ptr::copy_nonoverlapping(from.as_ptr(), self.data.ptr.as_ptr().add(at), PAGE as usize);
            }
        }
    }
}
