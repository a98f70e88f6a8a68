//! The search for channels: every marker in memory, and what is behind it.

use std::collections::HashSet;
use std::ops::Range;

use trapline_emu::{PAGE, PhysMem};

use crate::channel::{Channel, Origin, Place};
use crate::damage::Damage;
use crate::layout::{
    CLOCK_AT, CLOCK_TSC, EARLY_SUBBUFS, Kind, LEVEL_AT, LIST_AT, MARK, MARK_AT, MARKER, Mark, RCHAN, RING,
    SUBBUF, Shape, number,
};
use crate::relay::Relay;

/// Bytes that are read at once. They stay in a processor's second cache until they have been searched.
const WINDOW: usize = 128 << 10;
/// Where a mark can be: at multiples of this, as its fields of four bytes.
const ALIGNMENT: usize = 4;
/// Damaged channels that are described; more are counted.
const MOST_DAMAGED: usize = 100;

/// What a memory has of the Driver Tracing Interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Channels, and early buffers whose records are not in a channel yet, by address.
    pub channels: Vec<Channel>,
    /// Handles that have neither.
    pub unbound: Vec<Handle>,
    /// Marks of which nothing can be read; the first hundred.
    pub damaged: Vec<Damaged>,
    /// Number of such marks.
    pub damaged_count: u64,
    /// All handles, also those that have a channel.
    handles: Vec<Handle>,
}

impl Found {
    /// Physical addresses of all levels, 4 bytes each, of what has this name: channels, early buffers, and handles.
    #[must_use]
    pub fn levels(&self, name: &str) -> Vec<u64> {
        let channels = self.channels.iter().filter(|channel| channel.name() == name).map(Channel::paddr);
        let handles = self.handles.iter().filter(|handle| handle.name == name).map(|handle| handle.paddr);
        channels.chain(handles).map(|mark| mark + LEVEL_AT).collect()
    }
}

/// A handle without a channel: no record has been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// The name that its channel will have.
    pub name: String,
    /// Records up to this priority will be written.
    pub level: i32,
    /// Physical address of its mark.
    pub paddr: u64,
    own: u64,
}

/// A mark of which nothing can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The name in it.
    pub name: String,
    /// Physical address of the mark.
    pub paddr: u64,
    /// What is wrong.
    pub damage: Damage,
}

/// Finds the channels in these ranges of memory, which do not overlap.
#[must_use]
pub fn find(memory: &dyn PhysMem, ranges: &[Range<u64>]) -> Found {
    let pages = ranges.iter().map(|range| (range.end.saturating_sub(range.start)).div_ceil(PAGE)).sum();
    let mut search =
        Search { memory, ranges, budget: pages, claimed: HashSet::new(), found: Found::default() };
    let longest = ranges.iter().map(|range| range.end.saturating_sub(range.start)).max().unwrap_or(0);
    let most = WINDOW + MARKER.len() - 1;
    let mut window = vec![0; usize::try_from(longest).unwrap_or(most).min(most)];
    for range in ranges {
        let first = range.start.next_multiple_of(ALIGNMENT as u64);
        for start in (first..range.end).step_by(WINDOW) {
            let size = window.len().min(usize::try_from(range.end - start).unwrap_or(usize::MAX));
            let part = &mut window[..size];
            fill(memory, start, part);
            markers(part).for_each(|at| search.meet(start + at as u64));
        }
    }
    search.end()
}

/// The offsets of markers in bytes that begin where a mark can be.
fn markers(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let blocks = bytes.chunks(PAGE as usize).zip((0..).step_by(PAGE as usize));
    blocks.filter(|(block, _)| may_begin(block)).flat_map(move |(block, base)| {
        let places = (base..base + block.len()).step_by(ALIGNMENT);
        places.filter(|at| bytes.get(*at..).is_some_and(|rest| rest.starts_with(MARKER)))
    })
}

/// Whether some word is the beginning of a marker. All memory is looked at, so there is no branch for each word, and what
/// is found in a line is kept by lanes, which the compiler makes vectors of.
fn may_begin(block: &[u8]) -> bool {
    const LANES: usize = 32;
    const BEGINNING: u32 = u32::from_le_bytes([MARKER[0], MARKER[1], MARKER[2], MARKER[3]]);
    let begins = |word: &[u8; ALIGNMENT]| u32::from_le_bytes(*word) == BEGINNING;
    let (words, _) = block.as_chunks();
    let (lines, rest) = words.as_chunks::<LANES>();
    let mut found = [0_u32; LANES];
    for line in lines {
        // By index: of two iterators at once, builds without LTO make calls.
        for lane in 0..LANES {
            found[lane] |= u32::from(begins(&line[lane])).wrapping_neg();
        }
    }
    found.iter().any(|lane| *lane != 0) || rest.iter().any(begins)
}

/// The channel whose mark is at a physical address, as [`find`] would find it if it were the only one.
#[must_use]
pub fn channel_at(memory: &dyn PhysMem, ranges: &[Range<u64>], paddr: u64) -> Option<Channel> {
    let pages = ranges.iter().map(|range| (range.end.saturating_sub(range.start)).div_ceil(PAGE)).sum();
    let mut search =
        Search { memory, ranges, budget: pages, claimed: HashSet::new(), found: Found::default() };
    let mut marker = [0; MARKER.len()];
    let aligned = paddr.is_multiple_of(ALIGNMENT as u64);
    if aligned && memory.read(paddr, &mut marker) && marker == *MARKER {
        search.meet(paddr);
    }
    search.found.channels.pop()
}

/// Reads memory, with zeros in place of pages that cannot be read.
fn fill(memory: &dyn PhysMem, start: u64, to: &mut [u8]) {
    if memory.read(start, to) {
        return;
    }
    let first = (PAGE - start % PAGE) as usize;
    let (head, rest) = to.split_at_mut(first.min(to.len()));
    let mut at = start;
    for part in std::iter::once(head).chain(rest.chunks_mut(PAGE as usize)) {
        if !memory.read(at, part) {
            part.fill(0);
        }
        at += part.len() as u64;
    }
}

struct Search<'m> {
    memory: &'m dyn PhysMem,
    ranges: &'m [Range<u64>],
    /// Pages that lists may still have.
    budget: u64,
    /// Pages of channels.
    claimed: HashSet<u64>,
    found: Found,
}

impl Search<'_> {
    /// Looks at what is behind a marker.
    fn meet(&mut self, paddr: u64) {
        let mut bytes = [0; MARK];
        if !self.memory.read(paddr, &mut bytes) {
            return;
        }
        let Some(mark) = Mark::parse(&bytes, paddr) else { return };
        let name = mark.name.clone();
        let result = match mark.kind {
            Kind::Channel => self.channel(paddr, mark).map(|channel| self.found.channels.push(channel)),
            Kind::Relay => self.relay(paddr, mark).map(|channel| self.found.channels.push(channel)),
            Kind::Early => self.early(paddr, mark).map(|channel| self.found.channels.push(channel)),
            Kind::Handle => mark.check().map(|()| {
                let Mark { name, level, own, .. } = mark;
                self.found.handles.push(Handle { name, level, paddr, own });
            }),
        };
        if let Err(damage) = result {
            self.found.damaged_count += 1;
            if self.found.damaged.len() < MOST_DAMAGED {
                self.found.damaged.push(Damaged { name, paddr, damage });
            }
        }
    }

    /// Hides the early buffers whose records a channel has taken in, and the handles that have a channel or a buffer.
    fn end(self) -> Found {
        let mut found = self.found;
        let bound = |origin: Origin| {
            let channels = found.channels.iter().filter(|channel| channel.origin() == origin);
            channels.map(Channel::handle).filter(|handle| *handle != 0).collect::<HashSet<u64>>()
        };
        let (bound, early) = (bound(Origin::Channel), bound(Origin::Early));
        found
            .channels
            .retain(|channel| channel.origin() == Origin::Channel || !bound.contains(&channel.handle()));
        let unbound = |handle: &&Handle| !bound.contains(&handle.own) && !early.contains(&handle.own);
        found.unbound = found.handles.iter().filter(unbound).cloned().collect();
        found
    }

    fn channel(&mut self, paddr: u64, mark: Mark) -> Result<Channel, Damage> {
        mark.check()?;
        mark.shape.check()?;
        let (pages, head_pages) = mark.shape.pages()?;
        let place = self.pages(paddr, pages, pages)?;
        let rings = LIST_AT + 8 * pages;
        let channel = Channel::new(paddr, mark, Origin::Channel, place, (rings, head_pages * PAGE));
        self.check_rings(&channel)?;
        self.with_clock(channel)
    }

    /// A channel of Linux.
    fn relay(&mut self, paddr: u64, mark: Mark) -> Result<Channel, Damage> {
        mark.check()?;
        mark.shape.check()?;
        let (pages, head_pages) = mark.shape.relay_pages()?;
        let place = self.pages(paddr, pages, head_pages)?;
        let rings = LIST_AT + 8 * pages;
        let channel = Channel::new(paddr, mark, Origin::Channel, place, (rings, head_pages * PAGE));
        let relay = Relay::read(&channel, self.memory)?;
        self.with_clock(channel.with_relay(relay))
    }

    /// Notes the clock of a channel.
    fn with_clock(&self, channel: Channel) -> Result<Channel, Damage> {
        let mut clock = [0; 4];
        self.read(channel.paddr().saturating_add(CLOCK_AT), &mut clock, "head")?;
        Ok(channel.with_tsc(u32::from_le_bytes(clock) == CLOCK_TSC))
    }

    /// The pages of a channel whose head begins a page. Those from `optional` on may be absent.
    fn pages(&mut self, paddr: u64, needed: u64, optional: u64) -> Result<Place, Damage> {
        let head = paddr.wrapping_sub(MARK_AT);
        if !head.is_multiple_of(PAGE) {
            return Err(Damage::Unaligned(head));
        }
        let found = self.count(paddr)?;
        if found != needed {
            return Err(Damage::Pages { found, needed });
        }
        // Absent pages cost nothing but their entries in the list, which lie in pages that are there.
        self.spend(optional)?;
        let list = self.list(head, needed, optional)?;
        self.spend(list.iter().skip(optional as usize).filter(|page| **page != 0).count() as u64)?;
        Ok(Place::Pages(list))
    }

    fn spend(&mut self, pages: u64) -> Result<(), Damage> {
        self.budget = self.budget.checked_sub(pages).ok_or(Damage::TooMany)?;
        Ok(())
    }

    /// The number of pages that the list behind a mark has.
    fn count(&self, paddr: u64) -> Result<u64, Damage> {
        let mut count = [0; 4];
        self.read(paddr.saturating_add(MARK as u64), &mut count, "head")?;
        Ok(u32::from_le_bytes(count).into())
    }

    /// The list of a channel's pages. Each part of it lies in a page that is earlier in the list.
    fn list(&mut self, head: u64, pages: u64, optional: u64) -> Result<Vec<u64>, Damage> {
        let mut list: Vec<u64> = vec![head];
        for index in 0..pages {
            let at = LIST_AT + 8 * index;
            let page_of_entry = list.get((at / PAGE) as usize).copied().unwrap_or(head);
            let mut entry = [0; 8];
            self.read(page_of_entry + at % PAGE, &mut entry, "list of pages")?;
            let page = u64::from_le_bytes(entry);
            if index == 0 {
                if page != head {
                    return Err(Damage::Moved { found: page, head });
                }
                continue;
            }
            let within = |range: &Range<u64>| range.start <= page && page < range.end;
            if page == 0 && index >= optional {
                list.push(0);
                continue;
            }
            if !page.is_multiple_of(PAGE) || !self.ranges.iter().any(within) {
                return Err(Damage::Page { index, page });
            }
            list.push(page);
        }
        // Only a list that is right takes its pages.
        let mut own = HashSet::new();
        for (index, page) in (0..).zip(&list) {
            if *page == 0 && index >= optional {
                continue;
            }
            if self.claimed.contains(page) || !own.insert(*page) {
                return Err(Damage::Shared { index, page: *page });
            }
        }
        self.claimed.extend(own);
        Ok(list)
    }

    /// The buffer for records before memory can be allocated: one piece of the kernel's image, or pages of a module.
    fn early(&mut self, paddr: u64, mark: Mark) -> Result<Channel, Damage> {
        mark.check()?;
        mark.shape.check()?;
        let Shape { cpus, subbufs, .. } = mark.shape;
        if (cpus, subbufs) != (1, EARLY_SUBBUFS) {
            return Err(Damage::Subbufs(subbufs));
        }
        let pages = self.count(paddr)?;
        let rings = LIST_AT + 8 * pages;
        let data = rings + RCHAN + RING + u64::from(subbufs) * SUBBUF;
        let end = data + mark.shape.ring_bytes();
        let place = match pages {
            0 => Place::From(paddr.checked_sub(MARK_AT).ok_or(Damage::Missing("head"))?),
            // The last bytes of a buffer that do not make a sub-buffer's size larger may begin a page.
            _ => {
                self.pages(paddr, pages.clamp((end + 8).div_ceil(PAGE), (end + 11).div_ceil(PAGE)), pages)?
            }
        };
        let own = mark.own;
        let channel = Channel::new(paddr, mark, Origin::Early, place, (rings, data));
        let mut found = [0; 8];
        channel.bytes(self.memory, end, &mut found, "end")?;
        if u64::from_le_bytes(found) != own {
            return Err(Damage::Divided);
        }
        self.check_rings(&channel)?;
        self.with_clock(channel)
    }

    /// Checks the pointers and numbers before the records.
    fn check_rings(&self, channel: &Channel) -> Result<(), Damage> {
        let pointer = |part, found, needed| {
            if found == needed { Ok(()) } else { Err(Damage::Pointer { part, found, needed }) }
        };
        let mut bytes = [0; 8];
        channel.bytes(self.memory, 0, &mut bytes, "head")?;
        let chan = if channel.word() == 8 { number::<8>(&bytes, 0) } else { number::<4>(&bytes, 4) };
        pointer("struct rchan", chan, channel.address(channel.rings_at()))?;
        channel.bytes(self.memory, channel.rings_at(), &mut bytes, "description of rings")?;
        let (size, subbufs) = (number::<4>(&bytes, 0) as u32, number::<4>(&bytes, 4) as u32);
        let shape = channel.shape();
        if (size, subbufs) != (shape.subbuf_size, shape.subbufs) {
            return Err(Damage::Geometry { subbufs, size });
        }
        for cpu in 0..shape.cpus {
            channel.bytes(self.memory, channel.ring_at(cpu), &mut bytes, "description of rings")?;
            pointer("sub-buffers", number::<8>(&bytes, 0), channel.address(channel.data_at(cpu)))?;
        }
        Ok(())
    }

    fn read(&self, paddr: u64, to: &mut [u8], part: &'static str) -> Result<(), Damage> {
        if self.memory.read(paddr, to) { Ok(()) } else { Err(Damage::Missing(part)) }
    }
}
