//! The engine's private layout: the one place that knows where Unicorn 2.1.5 keeps its state.
//!
//! The constants are the table in `offsets.rs`. They hold for exactly the pinned, bundled build: the build script
//! compares each of them with the headers that the engine was built from. The linked library may still be another
//! build, so at start-up sentinels are written through the public API and read back here ([`LayoutMismatch`]).
//!
//! Invariant: nothing outside `engine/` adds an offset to an engine pointer.

macro_rules! offsets {
    ($($(#[$about:meta])* mod $room:ident {
        $($(#[$doc:meta])* $name:ident: $ty:ty = $value:expr, $says:literal;)*
    })*) => {
        $($(#[$about])*
        #[allow(dead_code, missing_docs)]
        pub mod $room {
            $($(#[$doc])* pub const $name: $ty = $value;)*
        })*
    };
}

include!("offsets.rs");

/// The largest TLB of each MMU index. User entries are lost at each switch of address spaces, so their tables are
/// smaller.
pub(super) const LARGE: [usize; tlb::MODES] = [256, 256, 1024];

/// The entry of the jump cache for a block at linear `pc` (qemu's `exec/tb-hash.h`).
pub(super) fn jump_index(pc: u64) -> usize {
    const FOLD: u32 = 12 - cpu::JUMP_CACHE_BITS / 2;
    let folded = pc ^ pc >> FOLD;
    let page = (folded >> FOLD) as usize & ((1 << cpu::JUMP_CACHE_BITS) - cpu::JUMPS_OF_PAGE);
    page | folded as usize & (cpu::JUMPS_OF_PAGE - 1)
}

/// The engine is not the build whose layout this file describes.
#[derive(Debug, thiserror::Error)]
#[error(
    "the engine's layout differs from Unicorn 2.1.5's bundled build: {what} was not found at offset {offset}; \
     build with the pinned, bundled engine (UNICORN_NO_PKG_CONFIG=1)"
)]
pub struct LayoutMismatch {
    /// Which field.
    pub what: &'static str,
    /// Where it was looked for, in bytes.
    pub offset: usize,
}
