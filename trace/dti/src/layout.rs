//! The fixed layout of marks, heads and rings, as `guest-images/include/trapline/dti.h` describes it.

use trapline_emu::PAGE;

use crate::damage::Damage;

/// What the marks of channels, handles and early buffers begin with.
pub(crate) const MARKER: &[u8; 7] = b"__DTI__";
/// Bytes of a mark.
pub(crate) const MARK: usize = 88;
/// Offset of the level in a mark.
pub(crate) const LEVEL_AT: u64 = 68;
/// Offset of the kind of clock behind a mark, and the kind that is the time stamp counter.
pub(crate) const CLOCK_AT: u64 = 92;
pub(crate) const CLOCK_TSC: u32 = 1;
/// Offset of the mark in the head of a channel; the pointer to the ring's description is before it.
pub(crate) const MARK_AT: u64 = 8;
/// Offset of the list of pages in the head of a channel.
pub(crate) const LIST_AT: u64 = 104;
/// Bytes of the description of all rings, and of one without its sub-buffers; bytes for a sub-buffer there.
pub(crate) const RCHAN: u64 = 8;
pub(crate) const RING: u64 = 32;
pub(crate) const SUBBUF: u64 = 8;
/// Bytes of what describes the rings of a channel of Linux, and of each CPU there.
pub(crate) const RELAY: u64 = 32;
pub(crate) const RELAY_CPU: u64 = 40;
/// Bytes of a record before its data.
pub(crate) const EVENT: usize = 10;
/// Sub-buffers of an early buffer.
pub(crate) const EARLY_SUBBUFS: u32 = 4;

/// The version of the layout.
const VERSION: u8 = 1;
/// The length of a name with its NUL.
const NAME: usize = 48;
const MAX_CPUS: u16 = 256;
const SUBBUF_SIZES: std::ops::RangeInclusive<u32> = 16..=16 << 20;
const MAX_SUBBUFS: u32 = 65_536;
/// Pages of a channel.
const MAX_PAGES: u64 = 16_384;

/// The longest name of a channel.
pub const NAME_MAX: usize = NAME - 1;
/// The longest data of a record.
pub const DATA_MAX: usize = 0xffff;
/// The level at which nothing is recorded.
pub const LEVEL_OFF: i32 = -1;
/// The level at which everything is recorded.
pub const LEVEL_MAX: i32 = 7;

const LEVELS: [&str; 9] =
    ["off", "emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"];

/// The name of a level, which syslog gives to it.
#[must_use]
pub fn level_name(level: i32) -> Option<&'static str> {
    LEVELS.get(usize::try_from(level.checked_add(1)?).ok()?).copied()
}

/// What a mark is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel,
    Handle,
    Early,
    /// A channel of Linux, whose rings are relay's.
    Relay,
}

/// A mark: the first fields can be trusted, for without them nothing is a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub name: String,
    pub kind: Kind,
    /// Bytes of a pointer.
    pub word: u8,
    /// Its own virtual address.
    pub own: u64,
    /// The virtual address of the mark of its handle, or 0.
    pub handle: u64,
    pub version: u8,
    pub shape: Shape,
    pub level: i32,
}

/// The geometry of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub cpus: u16,
    pub subbuf_size: u32,
    pub subbufs: u32,
}

/// The little-endian number of `N` bytes at an offset that lies within `bytes`.
pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let (Some(from), Some(to)) = (bytes.get(at..at.saturating_add(N)), word.get_mut(..N)) {
        to.copy_from_slice(from);
    }
    u64::from_le_bytes(word)
}

impl Mark {
    /// The mark that these bytes at a physical address are. Text that only begins as one, and a copy of one elsewhere in its
    /// page, are none.
    pub fn parse(bytes: &[u8; MARK], paddr: u64) -> Option<Self> {
        let name = name(bytes.get(MARKER.len()..MARKER.len() + NAME)?)?;
        let kind = match bytes[57] {
            1 => Kind::Channel,
            2 => Kind::Handle,
            3 => Kind::Early,
            4 => Kind::Relay,
            _ => return None,
        };
        let word = bytes[56];
        let own = number::<8>(bytes, 72);
        let fits = word == 8 || word == 4 && u32::try_from(own).is_ok();
        (fits && own != 0 && own % PAGE == paddr % PAGE).then(|| Self {
            name,
            kind,
            word,
            own,
            handle: number::<8>(bytes, 80),
            version: bytes[55],
            shape: Shape {
                cpus: number::<2>(bytes, 58) as u16,
                subbuf_size: number::<4>(bytes, 60) as u32,
                subbufs: number::<4>(bytes, 64) as u32,
            },
            level: number::<4>(bytes, 68) as u32 as i32,
        })
    }

    /// Checks version and level.
    pub fn check(&self) -> Result<(), Damage> {
        if self.version != VERSION {
            return Err(Damage::Version(self.version));
        }
        if !(LEVEL_OFF..=LEVEL_MAX).contains(&self.level) {
            return Err(Damage::Level(self.level));
        }
        Ok(())
    }
}

/// A name: visible characters, a NUL, and zeros.
fn name(bytes: &[u8]) -> Option<String> {
    let len = bytes.iter().position(|byte| *byte == 0).filter(|len| *len > 0)?;
    let (name, rest) = bytes.split_at(len);
    let valid = name.iter().all(|byte| (0x20..0x7f).contains(byte)) && rest.iter().all(|byte| *byte == 0);
    valid.then(|| String::from_utf8_lossy(name).into_owned())
}

impl Shape {
    /// Checks that a channel can have this geometry.
    pub fn check(self) -> Result<(), Damage> {
        if !(1..=MAX_CPUS).contains(&self.cpus) {
            return Err(Damage::Cpus(self.cpus));
        }
        if !SUBBUF_SIZES.contains(&self.subbuf_size) {
            return Err(Damage::SubbufSize(self.subbuf_size));
        }
        if !(1..=MAX_SUBBUFS).contains(&self.subbufs) || self.data_pages() > MAX_PAGES {
            return Err(Damage::Subbufs(self.subbufs));
        }
        Ok(())
    }

    /// Bytes of the sub-buffers of a CPU.
    pub fn ring_bytes(self) -> u64 {
        u64::from(self.subbufs) * u64::from(self.subbuf_size)
    }

    /// Bytes of the description of one ring.
    pub fn ring_head(self) -> u64 {
        RING + u64::from(self.subbufs) * SUBBUF
    }

    fn data_pages(self) -> u64 {
        (u64::from(self.cpus) * self.ring_bytes()).div_ceil(PAGE)
    }

    /// Pages of the sub-buffers of a CPU in a channel of Linux.
    pub fn relay_ring_pages(self) -> u64 {
        self.ring_bytes().div_ceil(PAGE)
    }

    /// Pages of a channel, and of its head: the list in the head has all of them.
    pub fn pages(self) -> Result<(u64, u64), Damage> {
        self.pages_with(self.data_pages(), RCHAN + u64::from(self.cpus) * self.ring_head())
    }

    /// The same for a channel of Linux.
    pub fn relay_pages(self) -> Result<(u64, u64), Damage> {
        let cpus = u64::from(self.cpus);
        self.pages_with(cpus * self.relay_ring_pages(), RELAY + cpus * RELAY_CPU)
    }

    /// The same, with so many pages of data, and bytes behind the list.
    fn pages_with(self, data: u64, rest: u64) -> Result<(u64, u64), Damage> {
        let (mut head, mut pages) = (0, data);
        if pages > MAX_PAGES {
            return Err(Damage::Subbufs(self.subbufs));
        }
        loop {
            let needed = (LIST_AT + 8 * pages + rest).div_ceil(PAGE);
            if needed <= head {
                return Ok((pages, head));
            }
            (head, pages) = (needed, data + needed);
            if pages > MAX_PAGES {
                return Err(Damage::Subbufs(self.subbufs));
            }
        }
    }
}
