//! The baseline of `make bench`: Unicorn without Trapline. Nothing else uses it.
//!
//! It uses the engine's own MMU (its default TLB), estimates the instruction count, and adds the fewest hooks with
//! which a kernel that stays in ring 0 boots: exceptions and interrupts through its 32-bit IDT, ports, time. What it
//! leaves out (exact time, privilege changes, faults of a delivery, self-modifying aliases) is what Trapline is for. A
//! guest that needs any of it is refused with a sentence.

use crate::engine::EngineError;
use crate::load::{Image, build_multiboot};
use crate::machine::MachineError;
use crate::mmu::{self, Access, Paging};
use crate::platform::{Platform, PlatformConfig};
use crate::ram::{PAGE, Ram};
use std::ffi::c_void;
use std::ptr;
use unicorn_engine_sys::{
    self as sys, Arch, ControlType, HookType, Mode, RegisterX86 as Reg, X86Insn, uc_engine, uc_error,
};

/// Where the descriptor table of the entry state is put: low memory that no loader uses.
const GDT: u64 = 0x9_f000;
/// Entries of the table from block address to instruction count.
const SIZES: usize = 1 << 18;
const CODE32: u64 = 0x00cf_9b00_0000_ffff;
const DATA32: u64 = 0x00cf_9300_0000_ffff;

/// Private offsets, those of `engine/layout.rs`, whose checks guard the same build. Only the INTR hook needs them: the
/// public API gives neither the error code nor a segment's base, and does not reset `old_exception`.
mod raw {
    pub const UC_CPU: usize = 440;
    pub const CPU_ENV: usize = 296;
    pub const EIP: usize = 128;
    pub const HFLAGS: usize = 176;
    pub const CS: usize = 184 + 24;
    pub const SS: usize = 184 + 48;
    pub const BASE: usize = 8;
    pub const ERROR_CODE: usize = 5384;
    pub const OLD_EXCEPTION: usize = 5496;
}

fn check(what: &'static str, error: uc_error) -> Result<(), EngineError> {
    if error == uc_error::OK { Ok(()) } else { Err(EngineError::Call { what, error }) }
}

/// An engine in 32-bit mode with host-owned memory and flat segments.
struct Bare {
    uc: *mut uc_engine,
    ram: Ram,
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: the handle is live and not used again; memory outlives it.
        unsafe { sys::uc_close(self.uc) };
    }
}

const fn ctl(number: u32) -> ControlType {
    ControlType(number | 1 << 26 | 1 << 30)
}

impl Bare {
    fn new(mem_size: u64) -> Result<Self, MachineError> {
        const CTL_USE_EXITS: u32 = 4;
        const CTL_CPU_MODEL: u32 = 7;
        const PENTIUM3: i32 = 10;
        let mut bare = Bare { uc: ptr::null_mut(), ram: Ram::new(mem_size)? };
        // SAFETY: a valid out pointer, then a live handle with the argument counts of unicorn.h; RAM is dropped
        // after the engine is closed.
        unsafe {
            check("open", sys::uc_open(Arch::X86, Mode::MODE_32, &mut bare.uc))?;
            check("select the CPU model", sys::uc_ctl(bare.uc, ctl(CTL_CPU_MODEL), PENTIUM3))?;
            check("use exits", sys::uc_ctl(bare.uc, ctl(CTL_USE_EXITS), 1i32))?;
            let data = bare.ram.data_ptr().cast::<c_void>();
            check("map memory", sys::uc_mem_map_ptr(bare.uc, 0, mem_size, 7, data))?;
        }
        bare.flat_segments()?;
        Ok(bare)
    }

    /// Loads flat 32-bit segments through a descriptor table, as the public API wants it.
    fn flat_segments(&mut self) -> Result<(), EngineError> {
        for (n, entry) in [0, CODE32, DATA32].into_iter().enumerate() {
            self.ram.write(GDT + 8 * n as u64, &entry.to_le_bytes());
        }
        let gdtr = sys::uc_x86_mmr { selector: 0, base: GDT, limit: 23, flags: 0 };
        // SAFETY: GDTR is read as a `uc_x86_mmr`.
        let error = unsafe { sys::uc_reg_write(self.uc, Reg::GDTR as i32, (&raw const gdtr).cast()) };
        check("load GDTR", error)?;
        write(self.uc, Reg::CS, 8)?;
        [Reg::SS, Reg::DS, Reg::ES, Reg::FS, Reg::GS].into_iter().try_for_each(|r| write(self.uc, r, 16))
    }

    /// Runs from `eip` until HLT, a stop or an error of the engine.
    fn run(&self, eip: u32) -> Result<(), EngineError> {
        // SAFETY: a live handle; hooks reach nothing that is borrowed here.
        check("run", unsafe { sys::uc_emu_start(self.uc, eip.into(), 0, 0, 0) })
    }

    fn hook(&self, kind: HookType, callback: *mut c_void, user: *mut c_void) -> Result<(), EngineError> {
        self.insn_hook(kind, callback, user, X86Insn::INVALID)
    }

    fn insn_hook(
        &self,
        kind: HookType,
        callback: *mut c_void,
        user: *mut c_void,
        insn: X86Insn,
    ) -> Result<(), EngineError> {
        let mut handle: sys::uc_hook = Default::default();
        // SAFETY: each callback has the signature of its hook type; only INSN hooks read the last argument.
        let error = unsafe {
            sys::uc_hook_add(self.uc, &mut handle, kind.0 as i32, callback, user, 1, 0, insn as i32)
        };
        check("install a hook", error)
    }
}

fn read(uc: *mut uc_engine, reg: Reg) -> u32 {
    let mut value = 0u64;
    // SAFETY: eight bytes hold any register asked for here.
    unsafe { sys::uc_reg_read(uc, reg as i32, (&raw mut value).cast()) };
    value as u32
}

fn write(uc: *mut uc_engine, reg: Reg, value: u32) -> Result<(), EngineError> {
    let value = u64::from(value);
    // SAFETY: eight bytes hold any register written here.
    check("write a register", unsafe { sys::uc_reg_write(uc, reg as i32, (&raw const value).cast()) })
}

/// A stretch of flat 32-bit code on an engine without a single hook.
pub struct BareCode {
    bare: Bare,
    at: u32,
}

impl BareCode {
    /// Puts `code`, which ends with HLT, at physical address `at`.
    ///
    /// # Errors
    /// When the engine or memory cannot be allocated.
    pub fn new(code: &[u8], at: u32) -> Result<Self, MachineError> {
        let mut bare = Bare::new(16 << 20)?;
        bare.ram.write(at.into(), code);
        Ok(BareCode { bare, at })
    }

    /// Installs an exception hook that does nothing, to measure the bare cost of a trap. After INT3 the engine
    /// continues with the next instruction by itself.
    ///
    /// # Errors
    /// When the engine refuses the hook.
    pub fn pass_traps(&mut self) -> Result<(), EngineError> {
        unsafe extern "C" fn nothing(_: *mut uc_engine, _: u32, _: *mut c_void) {}
        self.bare.hook(HookType::INTR, nothing as *mut c_void, ptr::null_mut())
    }

    /// Runs the code once, from its first byte to its HLT.
    ///
    /// # Errors
    /// When the engine gives up.
    pub fn run(&mut self) -> Result<(), EngineError> {
        write(self.bare.uc, Reg::ESP, 0x8000)?;
        self.bare.run(self.at)
    }
}

/// How the boot counts instructions, which drive its clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Counting {
    /// Guest code bytes divided by this: almost free.
    Bytes(f64),
    /// A table look-up each block, to find the divisor.
    Exact(f64),
}

/// The result of a boot.
#[derive(Debug, Clone, PartialEq)]
pub struct BareReport {
    /// The console.
    pub console: Vec<u8>,
    /// Code bytes of the blocks that ran.
    pub bytes: u64,
    /// Instructions of the blocks that ran; 0 unless counted exactly.
    pub instructions: u64,
    /// Exceptions and interrupts delivered.
    pub deliveries: u64,
    /// Why it ended before its text appeared.
    pub failure: Option<String>,
}

/// A Multiboot guest on the engine's own MMU.
pub struct BareBoot {
    /// From `Box::into_raw`: hooks hold it too.
    guest: *mut Guest,
}

impl Drop for BareBoot {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `new`; no engine is running.
        drop(unsafe { Box::from_raw(self.guest) });
    }
}

/// The state that the hooks share.
struct Guest {
    bare: Bare,
    env: *mut u8,
    platform: Platform,
    console: Vec<u8>,
    until: Vec<u8>,
    found: bool,
    bytes: u64,
    /// Byte count at which the block hook calls `look`.
    due: u64,
    ns_per_byte: f64,
    skipped: u64,
    icount: u64,
    /// Direct-mapped by address: a block and its instructions.
    sizes: Vec<(u64, u32)>,
    deliveries: u64,
    failure: Option<String>,
}

impl BareBoot {
    /// Loads `image` into `mem_size` bytes; the run ends when `until` appears on the console.
    ///
    /// # Errors
    /// When the image cannot be loaded or the engine refuses a call.
    pub fn new(
        image: &Image,
        cmdline: &str,
        mem_size: u64,
        until: &[u8],
        counting: Counting,
    ) -> Result<Self, MachineError> {
        let mut bare = Bare::new(mem_size)?;
        let plan = image.plan();
        plan.check_fits(mem_size)?;
        for segment in &plan.segments {
            bare.ram.write(segment.paddr, plan.segment_bytes(segment));
        }
        let info = build_multiboot(plan, cmdline, &[], mem_size)?;
        for (paddr, bytes) in &info.writes {
            bare.ram.write(*paddr, bytes);
        }
        write(bare.uc, Reg::EAX, info.eax)?;
        write(bare.uc, Reg::EBX, info.ebx)?;
        write(bare.uc, Reg::EIP, plan.entry as u32)?;
        let (Counting::Bytes(per) | Counting::Exact(per)) = counting;
        // SAFETY: two pointer fields of the pinned build (see `raw`).
        let env = unsafe {
            let cpu = bare.uc.cast::<u8>().add(raw::UC_CPU).cast::<*mut u8>().read();
            cpu.add(raw::CPU_ENV).cast::<*mut u8>().read()
        };
        let guest = Box::into_raw(Box::new(Guest {
            bare,
            env,
            platform: Platform::new(&PlatformConfig::minimal(mem_size)),
            console: Vec::new(),
            until: until.to_vec(),
            found: false,
            bytes: 0,
            due: 0,
            ns_per_byte: 1.0 / per,
            skipped: 0,
            icount: 0,
            sizes: vec![(0, 0); SIZES],
            deliveries: 0,
            failure: None,
        }));
        let boot = BareBoot { guest };
        // SAFETY: just made; the engine does not run.
        add_hooks(unsafe { &(*guest).bare }, guest.cast(), matches!(counting, Counting::Exact(_)))?;
        Ok(boot)
    }

    /// Boots.
    pub fn run(self) -> BareReport {
        let guest = self.guest;
        loop {
            // SAFETY: the guest is alive in its box; while the engine runs only hooks touch it.
            let go_on = unsafe { (*guest).turn() };
            if !go_on {
                break;
            }
            // SAFETY: as above; no borrow lives across the run.
            let (uc, eip) = unsafe { ((*guest).bare.uc, (*guest).eip()) };
            // SAFETY: a live handle.
            let error = unsafe { sys::uc_emu_start(uc, eip.into(), 0, 0, 0) };
            // SAFETY: as above; the engine has returned.
            unsafe { (*guest).returned(error) };
        }
        // SAFETY: as above.
        let g = unsafe { &*guest };
        BareReport {
            console: g.console.clone(),
            bytes: g.bytes,
            instructions: g.icount,
            deliveries: g.deliveries,
            failure: g.failure.clone(),
        }
    }
}

fn add_hooks(bare: &Bare, user: *mut c_void, exact: bool) -> Result<(), EngineError> {
    type Block = unsafe extern "C" fn(*mut uc_engine, u64, u32, *mut c_void);
    let block: Block = if exact { on_block_exact } else { on_block };
    bare.hook(HookType::BLOCK, block as *mut c_void, user)?;
    if exact {
        bare.hook(HookType::EDGE_GENERATED, on_translated as *mut c_void, user)?;
    }
    bare.hook(HookType::INTR, on_interrupt as *mut c_void, user)?;
    bare.insn_hook(HookType::INSN, on_in as *mut c_void, user, X86Insn::IN)?;
    bare.insn_hook(HookType::INSN, on_out as *mut c_void, user, X86Insn::OUT)?;
    bare.insn_hook(HookType::INSN, on_rdtsc as *mut c_void, user, X86Insn::RDTSC)
}

unsafe extern "C" fn on_block(uc: *mut uc_engine, _: u64, size: u32, user: *mut c_void) {
    // SAFETY: `user` is the boxed guest; nothing else touches it while translated code runs.
    let g = unsafe { &mut *user.cast::<Guest>() };
    g.bytes += u64::from(size);
    if g.bytes >= g.due && g.look() {
        g.bytes -= u64::from(size);
        // SAFETY: a live handle. The block does not run, and its hook is called again.
        unsafe { sys::uc_emu_stop(uc) };
    }
}

unsafe extern "C" fn on_block_exact(uc: *mut uc_engine, pc: u64, size: u32, user: *mut c_void) {
    // SAFETY: as in `on_block`.
    let g = unsafe { &mut *user.cast::<Guest>() };
    let (known, count) = g.sizes[pc as usize % SIZES];
    g.icount += u64::from(if known == pc { count } else { size.div_ceil(3) });
    // SAFETY: as in `on_block`.
    unsafe { on_block(uc, pc, size, user) };
}

unsafe extern "C" fn on_translated(
    _: *mut uc_engine,
    block: *mut sys::TranslationBlock,
    _: *mut sys::TranslationBlock,
    user: *mut c_void,
) {
    // SAFETY: as in `on_block`; the block is valid for this call.
    let (g, b) = unsafe { (&mut *user.cast::<Guest>(), &*block) };
    g.sizes[b.pc as usize % SIZES] = (b.pc, b.icount.into());
}

unsafe extern "C" fn on_interrupt(_: *mut uc_engine, vector: u32, user: *mut c_void) {
    // SAFETY: as in `on_block`.
    let g = unsafe { &mut *user.cast::<Guest>() };
    g.put(raw::OLD_EXCEPTION, u32::MAX);
    let error = matches!(vector, 8 | 10..=14 | 17).then(|| g.get(raw::ERROR_CODE));
    g.deliver(vector, error);
}

unsafe extern "C" fn on_in(_: *mut uc_engine, port: u32, size: i32, user: *mut c_void) -> u32 {
    // SAFETY: as in `on_block`.
    let g = unsafe { &mut *user.cast::<Guest>() };
    g.due = 0;
    let now = g.now();
    g.platform.port_read(port as u16, size as u8, now)
}

unsafe extern "C" fn on_out(uc: *mut uc_engine, port: u32, size: i32, value: u32, user: *mut c_void) {
    // SAFETY: as in `on_block`.
    let g = unsafe { &mut *user.cast::<Guest>() };
    g.due = 0;
    let now = g.now();
    g.platform.port_write(port as u16, size as u8, value, now);
    if g.platform.has_output() {
        g.console.extend(g.platform.take_output().com1);
        if g.console.ends_with(&g.until) {
            g.found = true;
            // SAFETY: a live handle.
            unsafe { sys::uc_emu_stop(uc) };
        }
    }
}

unsafe extern "C" fn on_rdtsc(uc: *mut uc_engine, user: *mut c_void) -> i32 {
    // SAFETY: as in `on_block`.
    let now = unsafe { (*user.cast::<Guest>()).now() };
    // Writing these registers cannot fail.
    let _ = write(uc, Reg::EAX, now as u32);
    let _ = write(uc, Reg::EDX, (now >> 32) as u32);
    1
}

impl Guest {
    fn get(&self, offset: usize) -> u32 {
        // SAFETY: an offset of `raw`, inside the CPU state.
        unsafe { self.env.add(offset).cast::<u32>().read() }
    }

    fn put(&mut self, offset: usize, value: u32) {
        // SAFETY: as in `get`.
        unsafe { self.env.add(offset).cast::<u32>().write(value) }
    }

    fn eip(&self) -> u32 {
        self.get(raw::EIP)
    }

    fn now(&self) -> u64 {
        (self.bytes as f64 * self.ns_per_byte) as u64 + self.skipped
    }

    /// Advances time in the middle of a run; returns whether the run must end before this block.
    #[cold]
    fn look(&mut self) -> bool {
        let now = self.now();
        self.platform.advance(now);
        if self.platform.intr() {
            // Until the guest can take it, every block is looked at.
            self.due = 0;
            return self.interruptible();
        }
        let event = self.platform.next_event(now).unwrap_or(u64::MAX);
        self.due =
            self.bytes.saturating_add(((event.saturating_sub(now)) as f64 / self.ns_per_byte) as u64 + 1);
        false
    }

    fn interruptible(&self) -> bool {
        const INHIBIT: u32 = 1 << 3;
        self.get(raw::HFLAGS) & INHIBIT == 0 && read(self.bare.uc, Reg::EFLAGS) & 0x200 != 0
    }

    /// Handles what is due between two runs; returns whether to run again.
    fn turn(&mut self) -> bool {
        if self.found || self.failure.is_some() {
            return false;
        }
        let now = self.now();
        self.platform.advance(now);
        if self.platform.intr() && self.interruptible() {
            let vector = self.platform.intr_ack(now);
            self.deliver(vector.into(), None);
        }
        self.due = 0;
        self.failure.is_none()
    }

    /// After a run: a stop of ours, HLT, or the end.
    fn returned(&mut self, error: uc_error) {
        if error != uc_error::OK {
            self.failure = Some(format!("the engine gave up at {:#x}: {error:?}", self.eip()));
            return;
        }
        if self.found || self.platform.intr() {
            return;
        }
        let now = self.now();
        match self.platform.next_event(now) {
            Some(t) if read(self.bare.uc, Reg::EFLAGS) & 0x200 != 0 => {
                self.skipped += t.saturating_sub(now).max(1)
            }
            _ => self.failure = Some(format!("halted at {:#x}", self.eip())),
        }
    }

    /// Delivers a vector through a 32-bit gate of the IDT, on the same stack.
    fn deliver(&mut self, vector: u32, error: Option<u32>) {
        self.deliveries += 1;
        if self.try_deliver(vector, error).is_none() {
            self.failure =
                Some(format!("vector {vector} at {:#x} needs more than the yardstick does", self.eip()));
            // SAFETY: a live handle.
            unsafe { sys::uc_emu_stop(self.bare.uc) };
        }
    }

    fn try_deliver(&mut self, vector: u32, error: Option<u32>) -> Option<()> {
        let uc = self.bare.uc;
        let mut idtr = sys::uc_x86_mmr { selector: 0, base: 0, limit: 0, flags: 0 };
        // SAFETY: IDTR is written as a `uc_x86_mmr`.
        unsafe { sys::uc_reg_read(uc, Reg::IDTR as i32, (&raw mut idtr).cast()) };
        let low = self.load(idtr.base as u32 + vector * 8)?;
        let high = self.load(idtr.base as u32 + vector * 8 + 4)?;
        let kind = high >> 8 & 0x9f;
        let selector = self.get(raw::CS);
        if !matches!(kind, 0x8e | 0x8f) || low >> 16 != selector & 0xfffc || selector & 3 != 0 {
            return None;
        }
        let flags = read(uc, Reg::EFLAGS);
        let frame = [Some(flags), Some(selector), Some(self.eip()), error];
        let base = self.get(raw::SS + raw::BASE);
        let mut esp = read(uc, Reg::ESP);
        for value in frame.into_iter().flatten() {
            esp = esp.wrapping_sub(4);
            self.store(base.wrapping_add(esp), value)?;
        }
        const TF_IF_NT_RF: u32 = 0x1_4100 | 0x200;
        let cleared = if kind == 0x8e { TF_IF_NT_RF } else { TF_IF_NT_RF & !0x200 };
        write(uc, Reg::EFLAGS, flags & !cleared).ok()?;
        write(uc, Reg::ESP, esp).ok()?;
        self.put(raw::EIP, (low & 0xffff) | (high & 0xffff_0000));
        Some(())
    }

    /// Physical address of a linear address; the four bytes there lie in one page.
    fn translate(&self, linear: u32, access: Access) -> Option<u64> {
        let uc = self.bare.uc;
        let cr = |r| u64::from(read(uc, r));
        let paging =
            Paging { cr0: cr(Reg::CR0), cr3: cr(Reg::CR3), cr4: cr(Reg::CR4), efer: 0, phys_bits: 36 };
        let page = u64::from(linear) & !(PAGE - 1);
        let offset = u64::from(linear) & (PAGE - 1);
        let t = mmu::look(&self.bare.ram, paging, page, access, false).ok()?;
        (offset <= PAGE - 4).then_some(t.paddr | offset)
    }

    fn load(&self, linear: u32) -> Option<u32> {
        let mut bytes = [0; 4];
        let paddr = self.translate(linear, Access::Read)?;
        self.bare.ram.read(paddr, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    fn store(&mut self, linear: u32, value: u32) -> Option<()> {
        let paddr = self.translate(linear, Access::Write)?;
        self.bare.ram.write(paddr, &value.to_le_bytes()).then_some(())
    }
}
