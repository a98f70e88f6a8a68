//! The callbacks that the engine calls. Each finds the published core and does one thing.

use crate::blocks::{BlockCell, CellRef, Hot};
use crate::engine::DROP_VA;
use crate::run::Core;
use std::ffi::c_void;
use std::ptr::NonNull;
use unicorn_engine_sys::{MemType, Prot, TlbEntry, TranslationBlock, uc_engine};

/// A block is about to run: the hot path of the whole machine.
pub(crate) unsafe extern "C" fn on_block(uc: *mut uc_engine, address: u64, size: u32, user: *mut c_void) {
    // SAFETY: the engine hands back the cell that was current at translation. Cells and their hot state outlive
    // the engine, and no reference to the hot state is alive while translated code runs.
    let (cell, hot) = unsafe {
        let cell = CellRef::from_user_data(user);
        (cell, cell.hot().as_mut())
    };
    let after = hot.clock.icount + u64::from(cell.icount());
    if after <= hot.clock.limit && !cell.is(BlockCell::SLOW) {
        hot.clock.icount = after;
        hot.last = Some(cell);
        hot.last_count = cell.icount().into();
        return;
    }
    // SAFETY: the arguments of this hook are passed on.
    unsafe { on_slow_block(uc, address, size, user) };
}

/// A block that needs more than counting. It takes the hook's arguments, so that the hook ends in a tail call and needs
/// no stack frame.
#[cold]
#[inline(never)]
unsafe extern "C" fn on_slow_block(_: *mut uc_engine, address: u64, size: u32, user: *mut c_void) {
    // SAFETY: as above.
    let (cell, core) = unsafe {
        let cell = CellRef::from_user_data(user);
        (cell, published(cell.hot()))
    };
    let Some(core) = core else { return };
    core.guarded((), |core| {
        if cell.flags() & BlockCell::SLOW != BlockCell::SITE || !core.arrive_if_free(cell) {
            core.block_slow(cell, address, size);
        }
    });
}

/// The core that is published in a hot state.
///
/// # Safety
/// The hot state is alive, and the reference ends with the hook that asks (see `publish`).
#[inline(always)]
unsafe fn published<'a>(hot: NonNull<Hot>) -> Option<&'a mut Core> {
    // SAFETY: by the contract above: the caller that has published the core does not use it until the engine returns.
    unsafe { hot.as_ref().core.map(|core| Core::from_published(core).as_mut()) }
}

/// Does the work of a hook with the core found through the hook's user data; returns `otherwise` if that panics.
///
/// # Safety
/// `user` is the hot state given at creation, and the engine is calling.
unsafe fn with_core<T: Copy>(user: *mut c_void, otherwise: T, hook: impl FnOnce(&mut Core) -> T) -> T {
    // SAFETY: by the contract above.
    let core = NonNull::new(user.cast::<Hot>()).and_then(|hot| unsafe { published(hot) });
    core.map_or(otherwise, |core| core.guarded(otherwise, hook))
}

/// A block was translated: fill in its cell, and prepare the next.
pub(crate) unsafe extern "C" fn on_translated(
    _: *mut uc_engine,
    block: *mut TranslationBlock,
    _: *mut TranslationBlock,
    user: *mut c_void,
) {
    // SAFETY: `block` is valid for this call, and `user` was given at creation.
    unsafe {
        let block = &*block;
        with_core(user, (), |core| core.block_translated(block.pc, block.icount, block.size));
    }
}

/// An exception other than #UD, or a software interrupt.
pub(crate) unsafe extern "C" fn on_interrupt(_: *mut uc_engine, vector: u32, user: *mut c_void) {
    // SAFETY: `user` was given at creation.
    unsafe { with_core(user, (), |core| core.engine_exception(vector as u8)) };
}

/// #UD. Always handled: by the interposer, by the machine (RDTSCP) or by the guest.
pub(crate) unsafe extern "C" fn on_invalid(_: *mut uc_engine, user: *mut c_void) -> bool {
    // SAFETY: as above.
    unsafe { with_core(user, (), |core| core.engine_exception(6)) };
    true
}

/// RDTSC: the time of just this instruction. Always handled here, so that the engine never reads the host's clock.
pub(crate) unsafe extern "C" fn on_rdtsc(_: *mut uc_engine, user: *mut c_void) -> i32 {
    // SAFETY: as above.
    unsafe { with_core(user, (), |core| core.read_clock()) };
    1
}

/// A TLB miss of the engine.
pub(crate) unsafe extern "C" fn on_fill(
    _: *mut uc_engine,
    page: u64,
    kind: MemType,
    result: *mut TlbEntry,
    user: *mut c_void,
) -> bool {
    let access = match kind {
        MemType::WRITE => crate::mmu::Access::Write,
        MemType::FETCH => crate::mmu::Access::Fetch,
        _ => crate::mmu::Access::Read,
    };
    // SAFETY: `user` was given at creation; the hot state outlives the engine.
    let dropping = if page == DROP_VA { unsafe { (*user.cast::<Hot>()).dropping } } else { None };
    if let Some(paddr) = dropping {
        // SAFETY: the engine gives a valid out pointer.
        unsafe { *result = TlbEntry { paddr, perms: Prot::EXEC } };
        return true;
    }
    // SAFETY: as above.
    let granted =
        unsafe { with_core(user, None, |core| core.with_own_bytes(|core| core.fill(page, access))) };
    let Some((paddr, perms)) = granted else { return false };
    // SAFETY: the engine gives a valid out pointer.
    unsafe { *result = TlbEntry { paddr, perms: Prot(perms) } };
    true
}

/// A read of an address without memory.
pub(crate) unsafe extern "C" fn on_device_read(
    _: *mut uc_engine,
    offset: u64,
    size: u32,
    user: *mut c_void,
) -> u64 {
    // SAFETY: as above.
    unsafe { with_core(user, 0, |core| core.device_page_read(offset, size)) }
}

/// A write to an address without memory.
pub(crate) unsafe extern "C" fn on_device_write(
    _: *mut uc_engine,
    offset: u64,
    size: u32,
    value: u64,
    user: *mut c_void,
) {
    // SAFETY: as above.
    unsafe { with_core(user, (), |core| core.device_page_write(offset, size, value)) };
}

impl Core {
    /// Drops all translations, so that their cells can be used again, unless something still names one. The guest does not
    /// notice.
    #[cold]
    pub(crate) fn drop_all_blocks(&mut self) {
        if self.last().is_some() || self.opening.is_some() {
            return;
        }
        self.cpu.engine.flush_blocks();
        // SAFETY: the engine has no block left. The core names cells only in the fields just checked.
        unsafe { self.blocks.empty() };
        self.cpu.engine.set_next_cell(self.blocks.next().as_user_data());
    }

    /// Sets how many translations are made before all are dropped. The guest cannot observe it; a small number makes
    /// runs slow.
    pub fn set_most_blocks(&mut self, blocks: usize) {
        self.blocks.set_most(blocks);
    }

    pub(crate) fn block_translated(&mut self, pc: u64, icount: u16, size: u16) {
        let cell = self.blocks.translated(pc, icount, size);
        self.put_back(Some((cell, pc)));
        self.note_opened(cell, pc);
        self.cpu.engine.set_next_cell(self.blocks.next().as_user_data());
        if self.blocks.are_too_many() {
            self.cpu.hot.clock.limit = 0;
        }
    }
}
