//! What the engine calls. Each hook turns its `user_data` into the core and does one thing.

use super::Core;
use super::cell::{BlockCell, Hot};
use std::ffi::c_void;
use unicorn_engine_sys::{MemType, Prot, TlbEntry, TranslationBlock, uc_engine};

/// A block is about to run: the hot path of the whole machine.
pub(super) unsafe extern "C" fn on_block(uc: *mut uc_engine, address: u64, size: u32, user: *mut c_void) {
    let cell = user.cast::<BlockCell>();
    // SAFETY: the engine hands back the cell that was current at translation; cells and their hot state outlive
    // the engine, and no other reference to either is alive while translated code runs.
    let (hot, b) = unsafe { (&mut *(*cell).hot, &*cell) };
    let after = hot.clock.icount + u64::from(b.icount);
    if after <= hot.clock.limit && b.flags & BlockCell::SLOW == 0 {
        hot.clock.icount = after;
        hot.last = cell;
        hot.last_count = b.icount.into();
        return;
    }
    // SAFETY: the arguments of this hook.
    unsafe { on_slow_block(uc, address, size, user) };
}

/// A block that needs more than counting. It takes what the hook takes, so that the hook ends in a jump to it and
/// needs no frame of its own.
#[cold]
#[inline(never)]
unsafe extern "C" fn on_slow_block(_: *mut uc_engine, address: u64, size: u32, cell: *mut c_void) {
    let cell = cell.cast::<BlockCell>();
    // SAFETY: as above; whoever runs the engine has lent the core through the hot state.
    let (core, flags) = unsafe { (&mut *(*(*cell).hot).core, (*cell).flags) };
    if flags & BlockCell::SLOW == BlockCell::SITE && core.arrive_freely(cell) {
        return;
    }
    core.block_slow(cell, address, size);
}

/// The core behind a hook's user data.
///
/// # Safety
/// `user` is the hot state given at creation, and the engine is being run by the core it names.
unsafe fn core_of<'a>(user: *mut c_void) -> &'a mut Core {
    // SAFETY: by the contract above; the borrow ends with the hook.
    unsafe { &mut *(*user.cast::<Hot>()).core }
}

/// A block was translated: give its cell what the engine knows, and prepare the next.
pub(super) unsafe extern "C" fn on_translated(
    _: *mut uc_engine,
    block: *mut TranslationBlock,
    _: *mut TranslationBlock,
    user: *mut c_void,
) {
    // SAFETY: `user` is the core given at creation; `block` is valid for this call.
    let (core, block) = unsafe { (core_of(user), &*block) };
    core.block_translated(block.pc, block.icount, block.size);
}

/// An exception other than #UD, or a software interrupt.
pub(super) unsafe extern "C" fn on_interrupt(_: *mut uc_engine, vector: u32, user: *mut c_void) {
    // SAFETY: as above.
    let core = unsafe { core_of(user) };
    core.engine_exception(vector as u8);
}

/// #UD. Always handled: by the interposer or by the guest.
pub(super) unsafe extern "C" fn on_invalid(_: *mut uc_engine, user: *mut c_void) -> bool {
    // SAFETY: as above.
    let core = unsafe { core_of(user) };
    core.engine_exception(6);
    true
}

/// RDTSC: the time of just this instruction. Always done here, so that the engine never reads the host's clock.
pub(super) unsafe extern "C" fn on_rdtsc(_: *mut uc_engine, user: *mut c_void) -> i32 {
    // SAFETY: as above.
    unsafe { core_of(user) }.read_clock(false);
    1
}

/// RDTSCP, likewise.
pub(super) unsafe extern "C" fn on_rdtscp(_: *mut uc_engine, user: *mut c_void) -> i32 {
    // SAFETY: as above.
    unsafe { core_of(user) }.read_clock(true);
    1
}

/// A TLB miss of the engine.
pub(super) unsafe extern "C" fn on_fill(
    _: *mut uc_engine,
    page: u64,
    kind: MemType,
    result: *mut TlbEntry,
    user: *mut c_void,
) -> bool {
    // SAFETY: as above; `result` is a valid out pointer.
    let (core, result) = unsafe { (core_of(user), &mut *result) };
    let access = match kind {
        MemType::WRITE => crate::mmu::Access::Write,
        MemType::FETCH => crate::mmu::Access::Fetch,
        _ => crate::mmu::Access::Read,
    };
    match core.fill(page, access) {
        Some((paddr, perms)) => {
            result.paddr = paddr;
            result.perms = Prot(perms);
            true
        }
        None => false,
    }
}

/// A read where no memory is.
pub(super) unsafe extern "C" fn on_device_read(
    _: *mut uc_engine,
    offset: u64,
    size: u32,
    user: *mut c_void,
) -> u64 {
    // SAFETY: as above.
    unsafe { core_of(user) }.device_page_read(offset, size)
}

/// A write where no memory is.
pub(super) unsafe extern "C" fn on_device_write(
    _: *mut uc_engine,
    offset: u64,
    size: u32,
    value: u64,
    user: *mut c_void,
) {
    // SAFETY: as above.
    unsafe { core_of(user) }.device_page_write(offset, size, value);
}

impl Core {
    pub(super) fn block_translated(&mut self, pc: u64, icount: u16, size: u16) {
        let cell = self.next_cell;
        self.note_opened(cell, pc);
        // SAFETY: `next_cell` is a live cell of the arena.
        unsafe {
            (*cell).pc = pc;
            (*cell).icount = icount;
            (*cell).size = size;
        }
        self.next_cell = self.cells.take();
        self.engine.set_next_cell(self.next_cell.cast());
    }
}
