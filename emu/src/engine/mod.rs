//! The engine: a thin, checked wrapper around one Unicorn instance in virtual-TLB mode.
//!
//! It knows how to run translated code, drop translations and TLB entries, and read and write the CPU
//! state. It does not know what a page table, an interrupt or a probe is.
//!
//! Invariants: the set of hooks is fixed at creation; guest RAM is host-owned; one engine belongs to one
//! thread at a time.

mod env;
mod float;
mod layout;
mod map;
mod near;
mod rescue;

pub(crate) use env::OwnEnv;
pub use env::{ARITH_FLAGS, Env, Operands, Seg, Segment, hflags};
pub(crate) use float::float_flags;
pub use layout::LayoutMismatch;
pub(crate) use map::{DROP_VA, SHADOW_BASE, SLOT_PADDR, SLOT_VA, VOID_PADDR, in_slots};
pub(crate) use rescue::Outside;

use layout::{block, cpu, hook, tcg, tlb, uc as uc_off};
use rescue::GaveUp;
use std::ffi::c_void;
use std::ptr;
use unicorn_engine_sys::{self as sys, Arch, ControlType, HookType, Mode, X86Insn, uc_engine, uc_error};

/// Error of the engine itself (not of the guest).
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A call into the engine failed.
    #[error("the CPU engine refused to {what}: {error:?}")]
    Call {
        /// The call.
        what: &'static str,
        /// The engine's answer.
        error: uc_error,
    },
    /// The engine is not the pinned build.
    #[error(transparent)]
    Layout(#[from] LayoutMismatch),
}

/// CPU models the engine executes; the guest sees the tables of `cpu::cpuid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// Pentium III with PAE, SSE.
    Ia32 = 10,
    /// Nehalem: SSE4.2, POPCNT, CX16, no AVX.
    X86_64 = 15,
}

/// Raw callbacks of the fixed hook set. All get the `user` pointer given to [`Engine::new`], except `block`, which gets
/// the cell that was current when the block was translated.
pub(crate) struct Callbacks {
    pub block: unsafe extern "C" fn(*mut uc_engine, u64, u32, *mut c_void),
    pub translated: unsafe extern "C" fn(
        *mut uc_engine,
        *mut sys::TranslationBlock,
        *mut sys::TranslationBlock,
        *mut c_void,
    ),
    pub interrupt: unsafe extern "C" fn(*mut uc_engine, u32, *mut c_void),
    pub invalid: unsafe extern "C" fn(*mut uc_engine, *mut c_void) -> bool,
    pub rdtsc: unsafe extern "C" fn(*mut uc_engine, *mut c_void) -> i32,
    pub fill:
        unsafe extern "C" fn(*mut uc_engine, u64, sys::MemType, *mut sys::TlbEntry, *mut c_void) -> bool,
    pub device_read: unsafe extern "C" fn(*mut uc_engine, u64, u32, *mut c_void) -> u64,
    pub device_write: unsafe extern "C" fn(*mut uc_engine, u64, u32, u64, *mut c_void),
}

/// Why `Engine::run` returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// A stop was requested, or the one block of a step is done.
    Stopped,
    /// The fill hook refused an access; the state is that before the instruction.
    Refused,
    /// The engine cannot translate the block at EIP; the state is that before it.
    Untranslatable,
    /// The engine has called `abort` while translated code ran. It must not run again.
    Aborted,
    /// The engine gave up for a reason of its own.
    Failed(uc_error),
}

/// One Unicorn instance.
pub(crate) struct Engine {
    uc: *mut uc_engine,
    cpu: *mut u8,
    /// Lives as long as `_open`.
    env: Env<'static>,
    block_hook: *mut u8,
    /// Closes the instance, after everything else is dropped.
    _open: Opened,
}

// SAFETY: an engine shares no state: all of it is reached from `uc` or lies in memory that the machine owns. The
// bundled source has one thread-local variable, in a device that is not built. Nothing ties an instance to the thread
// that made it, and without `Sync` one thread uses it at a time.
unsafe impl Send for Engine {}

/// An open instance.
struct Opened(*mut uc_engine);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the handle is live and never used again.
        unsafe { sys::uc_close(self.0) };
    }
}

const CTL_USE_EXITS: u32 = 4;
const CTL_CPU_MODEL: u32 = 7;
const CTL_REMOVE_CACHE: u32 = 9;
const CTL_FLUSH_BLOCKS: u32 = 10;
const CTL_FLUSH_TLB: u32 = 11;
const CTL_TLB_TYPE: u32 = 12;

const fn ctl(number: u32, args: u32) -> ControlType {
    const WRITE: u32 = 1;
    ControlType(number | (args << 26) | (WRITE << 30))
}

fn check(what: &'static str, error: uc_error) -> Result<(), EngineError> {
    if error == uc_error::OK { Ok(()) } else { Err(EngineError::Call { what, error }) }
}

impl Engine {
    /// Opens an engine of `model`. `user` is handed to every callback except `block`, which gets `first_cell` for the
    /// first blocks.
    pub fn new(
        model: Model,
        callbacks: &Callbacks,
        user: *mut c_void,
        first_cell: *mut c_void,
    ) -> Result<Self, EngineError> {
        let mut uc = ptr::null_mut();
        // SAFETY: `uc` is a valid out pointer.
        check("open", unsafe { sys::uc_open(Arch::X86, Mode::MODE_64, &mut uc) })?;
        let open = Opened(uc);
        // The last of these makes the engine allocate.
        near::with(sys::uc_open as *const c_void, || {
            // SAFETY: `uc` is a live handle; the control numbers and argument counts are those of unicorn.h.
            unsafe {
                check("select the CPU model", sys::uc_ctl(uc, ctl(CTL_CPU_MODEL, 1), model as i32))?;
                check("use exits", sys::uc_ctl(uc, ctl(CTL_USE_EXITS, 1), 1i32))?;
                check("use its virtual TLB", sys::uc_ctl(uc, ctl(CTL_TLB_TYPE, 1), 1i32))
            }
        })?;
        let (cpu, env) = locate(uc)?;
        let mut engine = Engine { uc, cpu, env, block_hook: ptr::null_mut(), _open: open };
        engine.verify()?;
        // SAFETY: verified layout; the flag is a C bool.
        unsafe { engine.uc.cast::<u8>().add(uc_off::NO_EXIT_REQUEST).write(1) };
        engine.add_hooks(callbacks, user, first_cell)?;
        Ok(engine)
    }

    fn verify(&self) -> Result<(), EngineError> {
        use sys::RegisterX86 as R;
        let gprs = [R::RAX, R::RCX, R::RDX, R::RBX, R::RSP, R::RBP, R::RSI, R::RDI, R::R8, R::R15];
        let index = [0, 1, 2, 3, 4, 5, 6, 7, 8, 15];
        for (n, (reg, i)) in gprs.iter().zip(index).enumerate() {
            let sentinel = 0x5452_4150_0000_0000 | n as u64;
            self.reg_write(*reg as i32, sentinel)?;
            if self.env.gpr(i) != sentinel {
                return Err(LayoutMismatch { what: "env->regs", offset: i * 8 }.into());
            }
        }
        let plain = [
            (R::RIP, layout::env::EIP, "env->eip"),
            (R::CR2, layout::env::CR + 16, "env->cr"),
            (R::GS_BASE, layout::env::SEGS + 5 * layout::segment::SIZE + layout::segment::BASE, "env->segs"),
            (R::DR0, layout::env::DR, "env->dr"),
        ];
        for (reg, offset, what) in plain {
            let sentinel = 0x0000_5345_4e54_0000 | offset as u64;
            self.sync_pc(true);
            self.reg_write(reg as i32, sentinel)?;
            // SAFETY: the handle has 14,912 bytes in the verified build. Only writing RIP sets the flag.
            let skips = unsafe { self.uc.cast::<u8>().add(uc_off::SKIP_SYNC_PC).read() } != 0;
            if skips != (reg == R::RIP) {
                let offset = uc_off::SKIP_SYNC_PC;
                return Err(LayoutMismatch { what: "uc->skip_sync_pc_on_exit", offset }.into());
            }
            // SAFETY: the offset lies inside `CPUX86State` (7,008 bytes in the verified build).
            let found = unsafe { self.env.base().add(offset).cast::<u64>().read() };
            self.reg_write(reg as i32, 0)?;
            if found != sentinel {
                return Err(LayoutMismatch { what, offset }.into());
            }
        }
        // SAFETY: as above; a fresh CPU has `old_exception` and `cflags_next_tb` at -1.
        let (old, cflags) = unsafe {
            (
                self.env.base().add(layout::env::OLD_EXCEPTION).cast::<i32>().read(),
                self.cpu.add(cpu::CFLAGS_NEXT_TB).cast::<i32>().read(),
            )
        };
        if old != -1 {
            return Err(
                LayoutMismatch { what: "env->old_exception", offset: layout::env::OLD_EXCEPTION }.into()
            );
        }
        if cflags != -1 {
            return Err(LayoutMismatch { what: "cpu->cflags_next_tb", offset: cpu::CFLAGS_NEXT_TB }.into());
        }
        Ok(())
    }

    fn add_hooks(
        &mut self,
        cb: &Callbacks,
        user: *mut c_void,
        first_cell: *mut c_void,
    ) -> Result<(), EngineError> {
        let block = self.add_hook(HookType::BLOCK, cb.block as *mut c_void, first_cell)?;
        self.block_hook = block;
        self.add_hook(HookType::EDGE_GENERATED, cb.translated as *mut c_void, user)?;
        self.add_hook(HookType::INTR, cb.interrupt as *mut c_void, user)?;
        self.add_hook(HookType::INSN_INVALID, cb.invalid as *mut c_void, user)?;
        self.add_hook(HookType::TLB_FILL, cb.fill as *mut c_void, user)?;
        self.add_instruction_hook(X86Insn::RDTSC, cb.rdtsc as *mut c_void, user)?;
        // SAFETY: `block_hook` is the engine's `struct hook`; its user_data was just given.
        let found = unsafe { block.add(hook::USER_DATA).cast::<*mut c_void>().read() };
        if found != first_cell {
            return Err(LayoutMismatch { what: "hook->user_data", offset: hook::USER_DATA }.into());
        }
        Ok(())
    }

    fn add_instruction_hook(
        &self,
        instruction: X86Insn,
        callback: *mut c_void,
        user: *mut c_void,
    ) -> Result<(), EngineError> {
        let mut handle: sys::uc_hook = Default::default();
        let kind = HookType::INSN.0 as i32;
        // SAFETY: the callback has the signature of these instructions' hooks, which take the instruction as one argument
        // more; begin > end means every address.
        let error = unsafe {
            sys::uc_hook_add(
                self.uc,
                &mut handle,
                kind,
                callback,
                user,
                1,
                0,
                instruction as core::ffi::c_int,
            )
        };
        check("install an instruction hook", error)
    }

    fn add_hook(
        &self,
        kind: HookType,
        callback: *mut c_void,
        user: *mut c_void,
    ) -> Result<*mut u8, EngineError> {
        let mut handle: sys::uc_hook = Default::default();
        // SAFETY: the callback has the signature of its hook type; begin > end means every address.
        let error = unsafe { sys::uc_hook_add(self.uc, &mut handle, kind.0 as i32, callback, user, 1, 0) };
        check("install a hook", error)?;
        Ok(handle as *mut u8)
    }

    /// Maps host-owned memory at a physical address. The memory must outlive the engine.
    pub fn map(&self, paddr: u64, host: *mut u8, size: u64) -> Result<(), EngineError> {
        // SAFETY: the caller (`Ram`) owns `size` bytes at `host` for longer than the engine lives.
        check("map memory", unsafe { sys::uc_mem_map_ptr(self.uc, paddr, size, 7, host.cast()) })
    }

    /// Maps `size` bytes of MMIO handled by the `device_*` callbacks, which get the offset in them.
    pub fn map_devices(
        &self,
        paddr: u64,
        size: u64,
        cb: &Callbacks,
        user: *mut c_void,
    ) -> Result<(), EngineError> {
        // SAFETY: callbacks have the engine's signatures, `user` outlives the engine.
        let error = unsafe {
            sys::uc_mmio_map(self.uc, paddr, size, Some(cb.device_read), user, Some(cb.device_write), user)
        };
        check("map the device pages", error)
    }

    /// The CPU state, for the owner of this engine.
    pub fn own_env(&self) -> OwnEnv {
        OwnEnv(self.env)
    }

    /// Makes `cell` the constant of the next block to be translated.
    pub fn set_next_cell(&self, cell: *mut c_void) {
        // SAFETY: verified in `add_hooks`; the hook lives as long as the engine.
        unsafe { self.block_hook.add(hook::USER_DATA).cast::<*mut c_void>().write(cell) }
    }

    /// A handle that can run the engine without borrowing what owns it.
    pub fn handle(&self) -> Handle {
        Handle { uc: self.uc, env: self.env }
    }

    /// Caps the next block at `instructions` (1..=0x7fff); it applies to one block only. A block capped `apart` is
    /// found by no other look-up of its address: its flags have CF_LAST_IO, which has no meaning without icount.
    pub fn cap_next_block(&self, instructions: u32, apart: bool) {
        let flags = instructions & block::COUNT | if apart { block::APART } else { 0 };
        // SAFETY: verified layout.
        unsafe { self.cpu.add(cpu::CFLAGS_NEXT_TB).cast::<u32>().write(flags) }
    }

    /// Forgets a cap that was not used.
    pub fn uncap(&self) {
        // SAFETY: verified layout.
        unsafe { self.cpu.add(cpu::CFLAGS_NEXT_TB).cast::<u32>().write(u32::MAX) }
    }

    /// Sets whether hooks and stops compute the exact program counter, which costs a walk through the block's
    /// translation. RDTSC's hook needs none, but a stop at a block's start does.
    #[inline]
    pub fn sync_pc(&self, sync: bool) {
        // SAFETY: verified layout; a C bool.
        unsafe { self.uc.cast::<u8>().add(uc_off::SKIP_SYNC_PC).write(u8::from(!sync)) }
    }

    /// From a BLOCK hook: stop before this block.
    pub fn stop_before_block(&self) {
        // SAFETY: live handle.
        unsafe { sys::uc_emu_stop(self.uc) };
    }

    /// From a BLOCK or INTR hook: return from `run` when control is next in the main loop, that is after
    /// the current block, without looking up the one that follows.
    pub fn stop_after_block(&self) {
        // SAFETY: verified layout; both are C bools that `resume_all_vcpus` resets at the next run.
        unsafe {
            self.uc.cast::<u8>().add(uc_off::STOP_REQUEST).write(1);
            self.cpu.add(cpu::EXIT_REQUEST).write(1);
        }
    }

    /// Linear address of the access that was last refused.
    pub fn refused_address(&self) -> u64 {
        // SAFETY: verified layout.
        unsafe { self.uc.cast::<u8>().add(uc_off::INVALID_ADDR).cast::<u64>().read() }
    }

    /// Drops all TLB entries.
    pub fn flush_tlb(&self) {
        self.bound_tlb();
        // SAFETY: live handle.
        unsafe { sys::uc_ctl(self.uc, ctl(CTL_FLUSH_TLB, 0)) };
    }

    /// Takes the right to write away from all TLB entries: the engine asks again before it writes to a page.
    pub fn protect_writes(&self) {
        const WRITE_ADDRESS: usize = 1;
        for mode in 0..tlb::MODES {
            // SAFETY: verified layout; a table has (mask >> 6) + 1 entries, whose second word is the write address.
            unsafe {
                let fast = self.env.base().offset(tlb::FAST + tlb::FAST_SIZE * mode as isize);
                let entries = (fast.cast::<usize>().read() >> tlb::ENTRY_BITS) + 1;
                let table = fast.add(8).cast::<*mut u8>().read();
                let desc = self.env.base().offset(tlb::DESC + tlb::DESC_SIZE * mode as isize);
                let victims = desc.offset(tlb::VTABLE);
                for (first, count) in [(table, entries), (victims, tlb::VTABLE_LEN)] {
                    for n in 0..count {
                        let entry = first.add(n * tlb::ENTRY_SIZE).cast::<u64>();
                        entry.add(WRITE_ADDRESS).write(u64::MAX);
                    }
                }
            }
        }
    }

    /// Keeps the next flush from making the TLB too large. The engine scans all of it for each block that it
    /// translates, and it grows the TLB when entries live long or are filled again.
    pub fn bound_tlb(&self) {
        for (mode, large) in (0..).zip(layout::LARGE) {
            // SAFETY: verified layout.
            unsafe {
                let fast = self.env.base().offset(tlb::FAST + tlb::FAST_SIZE * mode);
                let entries = (fast.add(tlb::MASK).cast::<usize>().read() >> tlb::ENTRY_BITS) + 1;
                let desc = self.env.base().offset(tlb::DESC + tlb::DESC_SIZE * mode);
                let used = desc.offset(tlb::USED).cast::<usize>();
                if entries >= large {
                    // At half use the engine leaves the size unchanged.
                    used.write(used.read().min(entries / 2));
                }
            }
        }
    }

    /// Drops all translations.
    pub fn flush_blocks(&self) {
        // SAFETY: live handle, and no translated code is running.
        unsafe { sys::uc_ctl(self.uc, ctl(CTL_FLUSH_BLOCKS, 0)) };
    }

    /// Drops the translations that hold any of `length` bytes at linear address `va`, all of the page [`DROP_VA`]. The fill hook
    /// is asked where that page lies; it answers from the hot state alone.
    pub fn drop_blocks(&self, va: u64, length: u64) {
        // SAFETY: live handle; both arguments are 64 bits wide as the control expects.
        unsafe { sys::uc_ctl(self.uc, ctl(CTL_REMOVE_CACHE, 2), va, va + length) };
    }

    /// Drops the TLB entries of one linear page, in every MMU mode, the victim table included, and its entries in the
    /// jump cache.
    pub fn drop_tlb(&self, va: u64) {
        let page = va & !0xfff;
        for mode in 0..tlb::MODES {
            // SAFETY: verified layout; the table has (mask >> 6) + 1 entries and the index is masked with it.
            unsafe {
                let fast = self.env.base().offset(tlb::FAST + tlb::FAST_SIZE * mode as isize);
                let mask = fast.add(tlb::MASK).cast::<usize>().read();
                let table = fast.add(tlb::TABLE).cast::<*mut u8>().read();
                let index = ((page >> 12) as usize) << tlb::ENTRY_BITS & mask;
                let desc = self.env.base().offset(tlb::DESC + tlb::DESC_SIZE * mode as isize);
                if drop_entry(table.add(index), page) {
                    let used = desc.offset(tlb::USED).cast::<usize>();
                    used.write(used.read().saturating_sub(1));
                }
                for slot in 0..tlb::VTABLE_LEN {
                    drop_entry(desc.offset(tlb::VTABLE).add(slot * tlb::ENTRY_SIZE), page);
                }
            }
        }
        self.drop_jumps(page);
        // A block that begins on the page before may end on this one.
        self.drop_jumps(page.wrapping_sub(0x1000));
    }

    /// Drops the translation of just the block that begins at linear `pc`, if the jump cache has it.
    pub fn drop_block(&self, pc: u64) -> bool {
        unsafe extern "C" {
            fn tb_phys_invalidate_x86_64(tcg: *mut c_void, block: *mut u8, page: u64);
        }
        // SAFETY: verified layout, and a masked index. What the jump cache names is not freed before the cache is
        // emptied; the function is the pinned build's, and all ones mean "every page".
        unsafe {
            let tcg = self.uc.cast::<u8>().add(uc_off::TCG).cast::<*mut c_void>().read();
            let found = self.cpu.add(cpu::JUMP_CACHE).cast::<*mut u8>().add(layout::jump_index(pc)).read();
            let ours = !found.is_null()
                && found.add(block::PC).cast::<u64>().read() == pc
                && found.add(block::CFLAGS).cast::<u32>().read() & (block::COUNT | block::APART) == 0;
            if ours {
                tb_phys_invalidate_x86_64(tcg, found, u64::MAX);
            }
            ours
        }
    }

    /// Empties the part of the jump cache for blocks on a linear page.
    fn drop_jumps(&self, page: u64) {
        let first = layout::jump_index(page & !0xfff);
        let first = first - first % cpu::JUMPS_OF_PAGE;
        // SAFETY: verified layout; the index is that of a page's first entry inside the cache.
        unsafe {
            self.cpu.add(cpu::JUMP_CACHE).cast::<*mut u8>().add(first).write_bytes(0, cpu::JUMPS_OF_PAGE)
        }
    }

    /// Reads a register through the engine's API (for lazily kept ones: EFLAGS).
    pub fn reg_read(&self, id: i32) -> u64 {
        let mut value = 0u64;
        // SAFETY: the out value is 8 bytes, as wide as any register asked for here.
        unsafe { sys::uc_reg_read(self.uc, id, (&raw mut value).cast()) };
        value
    }

    /// Writes a register through the engine's API, with its side effects.
    pub fn reg_write(&self, id: i32, value: u64) -> Result<(), EngineError> {
        // SAFETY: the value is 8 bytes wide.
        check("write a register", unsafe { sys::uc_reg_write(self.uc, id, (&raw const value).cast()) })
    }

    /// EFLAGS with the lazy arithmetic flags computed.
    pub fn eflags(&self) -> u64 {
        self.reg_read(sys::RegisterX86::EFLAGS as i32) & 0xffff_ffff
    }
}

/// A copyable handle to a live engine, for the calls during which it calls hooks.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    uc: *mut uc_engine,
    env: Env<'static>,
}

impl Handle {
    /// Runs translated code from the current state.
    ///
    /// # Safety
    /// The engine is alive, and nothing that its hooks access is borrowed.
    pub unsafe fn run(self) -> Exit {
        // SAFETY: by the contract; exits are enabled, so `until` has no effect.
        let start = || unsafe { sys::uc_emu_start(self.uc, self.env.eip(), 0, 0, 0) };
        // SAFETY: the engine is alive, and was verified.
        match unsafe { rescue::run(self.uc, start) } {
            Ok(uc_error::OK) => Exit::Stopped,
            Ok(uc_error::EXCEPTION) => Exit::Refused,
            Ok(other) => Exit::Failed(other),
            Err(GaveUp::Translating) => Exit::Untranslatable,
            Err(GaveUp::Running) => Exit::Aborted,
        }
    }
}

/// Empties a TLB entry if any of its three addresses is in `page`; returns whether one was.
///
/// # Safety
/// `entry` points to a `CPUTLBEntry`.
unsafe fn drop_entry(entry: *mut u8, page: u64) -> bool {
    const FIELDS: [usize; 3] = [tlb::READ, tlb::WRITE, tlb::CODE];
    for at in FIELDS {
        // SAFETY: it is a field of an entry.
        let address = unsafe { entry.add(at).cast::<u64>().read() };
        if address != u64::MAX && address & !0xfff == page {
            for at in FIELDS {
                // SAFETY: as above.
                unsafe { entry.add(at).cast::<u64>().write(u64::MAX) };
            }
            return true;
        }
    }
    false
}

/// Finds the CPU's structures from the handle `uc`.
fn locate(uc: *mut uc_engine) -> Result<(*mut u8, Env<'static>), EngineError> {
    // SAFETY: the handle is at least as large as the verified build's; reading a pointer field of it is
    // in bounds, and the checks below refuse any other build.
    unsafe {
        let cpu = uc.cast::<u8>().add(uc_off::CPU).cast::<*mut u8>().read();
        if cpu.is_null() || !(cpu as usize).is_multiple_of(8) {
            return Err(LayoutMismatch { what: "uc->cpu", offset: uc_off::CPU }.into());
        }
        if cpu.add(cpu::UC).cast::<*mut uc_engine>().read() != uc {
            return Err(LayoutMismatch { what: "cpu->uc", offset: cpu::UC }.into());
        }
        let tcg = uc.cast::<u8>().add(uc_off::TCG).cast::<*mut u8>().read();
        if tcg.is_null() || tcg.add(tcg::UC).cast::<*mut uc_engine>().read() != uc {
            return Err(LayoutMismatch { what: "uc->tcg_ctx", offset: uc_off::TCG }.into());
        }
        Ok((cpu, Env::new(cpu.add(cpu::ENV_PTR).cast::<*mut u8>().read())))
    }
}
