//! Block cells, which hold the state of each translated block; and the hot state in which the block hook counts.
//!
//! The engine takes the BLOCK hook's `user_data` as a constant of the block when it translates it. Giving
//! every block its own cell makes the hot path one load and one add, and the count exact whatever address
//! or mapping the block is reached through.

use crate::clock::Clock;
use crate::isa::Repeat;
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The special instruction of a block and its position: at most one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// No special instruction. The number of traps of the patch that ends the block.
    Traps(u16),
    /// An instruction that must not run as part of the block, and the number of instructions before it.
    Cut(Cut, u16),
    /// A repeated string instruction ends the block, at this offset in bytes.
    Repeated(u16),
    /// An instruction that reads the time stamp counter, and the number of instructions before it.
    Clock(u16),
}

/// Why an instruction must not run as part of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The machine executes it itself.
    Sensitive,
    /// A patch lies inside the instruction, after its first byte, so it must run from the guest's own bytes.
    Overlapped,
    /// Its execution is watched.
    Watched,
    /// The engine runs it rightly where it begins a block.
    Begins,
}

/// One translated block: half a cache line. Everything but `hot` is a [`Cell`], because the engine, the hooks and the core
/// all name the same cells.
#[repr(C, align(32))]
pub(crate) struct BlockCell {
    hot: NonNull<Hot>,
    /// Linear address of the first byte.
    pc: Cell<u64>,
    /// Instructions in the block.
    icount: Cell<u16>,
    /// `BlockCell::*` bits.
    flags: Cell<u16>,
    /// Bytes of the block.
    size: Cell<u16>,
    /// The number in [`Lead`]; the flags say which it is.
    number: Cell<u16>,
    /// For `REP_HEAD` the repeated instruction; for `SITE` the identifier of the patch that begins the block.
    head: Cell<u32>,
    /// The trap that ends the block: 0 for unknown, `NO_PATCH` for the guest's own, `BY_MACHINE` for a stand-in, else the
    /// patch identifier + 1.
    patch: Cell<u32>,
}

macro_rules! field {
    ($get:ident, $set:ident, $ty:ty) => {
        #[inline(always)]
        pub fn $get(&self) -> $ty {
            self.$get.get()
        }
        #[inline(always)]
        pub fn $set(&self, value: $ty) {
            self.$get.set(value);
        }
    };
}

impl BlockCell {
    pub(super) fn new(hot: NonNull<Hot>) -> Self {
        BlockCell {
            hot,
            pc: Cell::new(0),
            icount: Cell::new(0),
            flags: Cell::new(Self::NEW),
            size: Cell::new(0),
            number: Cell::new(0),
            head: Cell::new(0),
            patch: Cell::new(0),
        }
    }

    /// Not analysed yet.
    pub const NEW: u16 = 1;
    /// [`Cut::Sensitive`].
    const SENSITIVE: u16 = 2;
    /// [`Lead::Repeated`].
    const REPEATED: u16 = 4;
    /// Is a single repeated string instruction.
    pub const REP_HEAD: u16 = 8;
    /// Runs a displaced instruction out of line; it is not counted, since its trap has been.
    pub const SLOT: u16 = 16;
    /// Is in a CPU mode that the machine does not support.
    pub const UNSUPPORTED: u16 = 32;
    /// Ends with IRET.
    pub const IRET_TAIL: u16 = 64;
    /// Is a single instruction that stores and does not jump to itself: the engine returns to such a block when a block
    /// has overwritten itself.
    pub const STORE: u16 = 128;
    /// [`Cut::Overlapped`].
    const OVERLAPPED: u16 = 256;
    /// Follows an x87 instruction in a slot.
    pub const SLOT_TAIL: u16 = 512;
    /// Ends with IRET, SYSRET or a far transfer, after which the machine sees to RF and to the base of CS.
    pub const FLAGS_TAIL: u16 = 1024;
    /// [`Cut::Watched`].
    const WATCHED: u16 = 2048;
    /// [`Lead::Clock`].
    const CLOCK: u16 = 4096;
    /// Begins at a patch and was translated from the original instruction: an in-line site.
    pub const SITE: u16 = 8192;
    /// Is a patch's jump to itself.
    pub const JUMP: u16 = 16384;
    /// [`Cut::Begins`].
    const BEGINS: u16 = 32768;
    /// Bits that say what the number is; at most one is set.
    const LEADS: u16 = Self::CUTS | Self::REPEATED | Self::CLOCK;
    /// The bits of [`Lead::Cut`].
    const CUTS: u16 = Self::SENSITIVE | Self::OVERLAPPED | Self::WATCHED | Self::BEGINS;
    /// Bits that take a block off the hot path.
    pub const SLOW: u16 = Self::NEW
        | Self::SENSITIVE
        | Self::REP_HEAD
        | Self::SLOT_TAIL
        | Self::UNSUPPORTED
        | Self::STORE
        | Self::FLAGS_TAIL
        | Self::OVERLAPPED
        | Self::WATCHED
        | Self::BEGINS
        | Self::SITE
        | Self::JUMP;
    /// Bits that keep a block from running in one go.
    pub const CUT: u16 = Self::CUTS | Self::REP_HEAD | Self::UNSUPPORTED;
    /// The value of `patch` for an INT3 that stands for an instruction that the machine executes. No identifier is as
    /// large.
    pub const BY_MACHINE: u32 = u32::MAX - 1;
    /// The value of `patch` for a trap of the guest's own.
    pub const NO_PATCH: u32 = u32::MAX;

    field!(pc, set_pc, u64);
    field!(icount, set_icount, u16);
    field!(flags, set_flags, u16);
    field!(size, set_size, u16);
    field!(head, set_head, u32);
    field!(patch, set_patch, u32);

    /// Whether any of these bits is set.
    #[inline(always)]
    pub fn is(&self, bits: u16) -> bool {
        self.flags.get() & bits != 0
    }

    /// Sets bits.
    pub fn mark(&self, bits: u16) {
        self.flags.set(self.flags.get() | bits);
    }

    /// Clears bits.
    pub fn clear(&self, bits: u16) {
        self.flags.set(self.flags.get() & !bits);
    }

    /// The special instruction of the block.
    #[inline(always)]
    pub fn lead(&self) -> Lead {
        let number = self.number.get();
        match self.flags.get() & Self::LEADS {
            0 => Lead::Traps(number),
            Self::SENSITIVE => Lead::Cut(Cut::Sensitive, number),
            Self::OVERLAPPED => Lead::Cut(Cut::Overlapped, number),
            Self::WATCHED => Lead::Cut(Cut::Watched, number),
            Self::BEGINS => Lead::Cut(Cut::Begins, number),
            Self::REPEATED => Lead::Repeated(number),
            _ => Lead::Clock(number),
        }
    }

    /// Sets the special instruction of the block, which replaces an earlier one.
    pub fn set_lead(&self, lead: Lead) {
        let (flag, number) = match lead {
            Lead::Traps(traps) => (0, traps),
            Lead::Cut(Cut::Sensitive, before) => (Self::SENSITIVE, before),
            Lead::Cut(Cut::Overlapped, before) => (Self::OVERLAPPED, before),
            Lead::Cut(Cut::Watched, before) => (Self::WATCHED, before),
            Lead::Cut(Cut::Begins, before) => (Self::BEGINS, before),
            Lead::Repeated(offset) => (Self::REPEATED, offset),
            Lead::Clock(before) => (Self::CLOCK, before),
        };
        self.flags.set(self.flags.get() & !Self::LEADS | flag);
        self.number.set(number);
    }

    /// Counts a trap of the patch that ends the block and returns the new count; `None` where the block has another
    /// special instruction.
    #[inline(always)]
    pub fn count_trap(&self) -> Option<u16> {
        if self.is(Self::LEADS) {
            return None;
        }
        self.number.set(self.number.get().wrapping_add(1));
        Some(self.number.get())
    }

    /// The linear address of the repeated string instruction that ends the block, or is the block.
    #[inline]
    pub fn repeated_at(&self) -> Option<u64> {
        match self.lead() {
            _ if self.is(Self::REP_HEAD) => Some(self.pc()),
            Lead::Repeated(offset) => Some(self.pc().wrapping_add(offset.into())),
            _ => None,
        }
    }

    /// The block has `n` instructions and ends before linear `at`, with a jump. The jump is not the guest's and is not counted.
    pub fn end_before(&self, n: u32, at: u64) {
        self.set_icount(n as u16);
        self.set_size(at.wrapping_sub(self.pc()) as u16);
        self.mark(if n == 0 { Self::JUMP } else { 0 });
    }

    /// Resets the cell to that of a block not yet analysed.
    pub(super) fn clean(&self) {
        self.set_flags(Self::NEW);
        self.set_pc(0);
        self.set_icount(0);
        self.set_size(0);
        self.number.set(0);
        self.set_head(0);
        self.set_patch(0);
    }

    /// Marks the block for a new analysis; only the fields set by its translation are kept.
    pub(super) fn forget(&self) {
        self.set_flags(Self::NEW | self.flags() & (Self::SITE | Self::JUMP));
        self.number.set(0);
    }

    /// The hot state of the machine that the block belongs to.
    #[inline(always)]
    pub fn hot(&self) -> NonNull<Hot> {
        self.hot
    }

    /// The repeated instruction of a `REP_HEAD` block.
    pub fn repeat(&self) -> Repeat {
        Repeat::from_bits(self.head.get())
    }
}

/// A reference to a cell. Only [`Blocks`](super::Blocks) makes one, and only owners that are dropped before `Blocks`
/// keep one: the engine, whose blocks name cells, and the core.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CellRef(pub(super) NonNull<BlockCell>);

// SAFETY: it goes where its core goes, which one thread uses at a time.
unsafe impl Send for CellRef {}

impl CellRef {
    /// The user data of the block hook.
    pub fn as_user_data(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// The cell that a block hook was given.
    ///
    /// # Safety
    /// `user` comes from [`CellRef::as_user_data`], and its arena is alive.
    #[inline(always)]
    pub unsafe fn from_user_data(user: *mut c_void) -> Self {
        // SAFETY: it was made of a non-null pointer.
        CellRef(unsafe { NonNull::new_unchecked(user.cast()) })
    }
}

impl Deref for CellRef {
    type Target = BlockCell;
    #[inline(always)]
    fn deref(&self) -> &BlockCell {
        // SAFETY: cells neither move nor are freed before their arena, and no exclusive reference to one is ever made.
        unsafe { self.0.as_ref() }
    }
}

/// The state that the block hook uses on its hot path. It is a separate allocation, reached by raw pointer from the
/// hook and the core, so that an exclusive borrow of the core does not conflict with the hook.
pub(crate) struct Hot {
    pub clock: Clock,
    /// The block that was last begun, and the number of instructions counted for it.
    pub last: Option<CellRef>,
    pub last_count: u32,
    /// The physical page whose translations are being dropped: the fill hook's answer for
    /// [`DROP_VA`](crate::engine::DROP_VA).
    pub dropping: Option<u64>,
    /// The machine, while it is published. Its type is known to the publisher and to the hooks.
    pub core: Option<NonNull<()>>,
}

/// Owner of a [`Hot`].
pub(crate) struct HotBox(NonNull<Hot>);

// SAFETY: it owns its `Hot`, and what that names belongs to the same core.
unsafe impl Send for HotBox {}

impl HotBox {
    pub fn new() -> Self {
        let hot = Hot { clock: Clock::default(), last: None, last_count: 0, dropping: None, core: None };
        HotBox(NonNull::from(Box::leak(Box::new(hot))))
    }

    pub fn as_ptr(&self) -> NonNull<Hot> {
        self.0
    }
}

impl Deref for HotBox {
    type Target = Hot;
    #[inline(always)]
    fn deref(&self) -> &Hot {
        // SAFETY: owned and live; the engine's hooks, the only other users, do not run while a borrow from
        // here is alive.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for HotBox {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Hot {
        // SAFETY: as for `deref`.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for HotBox {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak` in `new`; the engine, dropped before this field, no longer calls.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
