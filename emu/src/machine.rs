//! `Machine`: one guest, from its image to the end of its run.

use crate::clock::Moment;
use crate::cpu::{BootState, CpuMode, SentByte};
use crate::devices::fw_cfg::Facts;
use crate::devices::i8042::codes_of;
use crate::digest::{Digest, StagedDigest, StateHasher};
use crate::engine::{EngineError, Model};
use crate::firmware::{self, memory_map::memory_map};
use crate::load::linux_params::{self, Layout};
use crate::load::{
    BootFacts, EntryMode, Image, LinuxEntry, LinuxError, LoadError, LoadPlan, MultibootError, boot_image,
};
use crate::phys_mem::PhysMem;
use crate::platform::{Platform, PlatformConfig};
use crate::ram::{Ram, RamError};
use crate::run::{Core, Stop, TrapInterposer};
use crate::snapshot::{CpuState, MachineIdentity, Snapshot, SnapshotMismatch};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const PAGE_SIZE: u64 = 4096;

/// The CPU model of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuModel {
    /// 32-bit: Pentium III class with PAE.
    Ia32,
    /// 64-bit: Nehalem class.
    X86_64,
}

impl From<CpuModel> for Model {
    fn from(model: CpuModel) -> Self {
        match model {
            CpuModel::Ia32 => Self::Ia32,
            CpuModel::X86_64 => Self::X86_64,
        }
    }
}

/// The configuration of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineConfig {
    /// Guest RAM in bytes, a multiple of 4096.
    pub mem_size: u64,
    /// CPU model.
    pub model: CpuModel,
}

/// A Multiboot module: what its string, and its bytes.
#[derive(Debug, Clone)]
pub struct BootModule {
    /// The module's string, by custom its path and arguments.
    pub string: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// What is loaded beside the image.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootFiles<'a> {
    /// The kernel's command line; for a Multiboot kernel, the kernel's name is put before it.
    pub cmdline: &'a str,
    /// Multiboot modules.
    pub modules: &'a [BootModule],
    /// Linux's initial RAM disk; empty for none.
    pub initrd: &'a [u8],
    /// How a bzImage is entered.
    pub entry: LinuxEntry,
}

/// Why a machine cannot be built or an image cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Guest memory.
    #[error(transparent)]
    Ram(#[from] RamError),
    /// The image.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The Multiboot information.
    #[error(transparent)]
    Multiboot(#[from] MultibootError),
    /// Modules for an image that takes none.
    #[error("{0} has neither a Multiboot header nor a PVH note, so it cannot be given modules")]
    ModulesNeedMultiboot(String),
    /// An initrd for an image that takes none.
    #[error("{0} does not speak the Linux boot protocol, so it cannot be given an initrd")]
    InitrdNeedsLinux(String),
}

/// A whole guest machine.
pub struct Machine {
    core: Box<Core>,
    /// Physical address of ACPI's root pointer, 0 for none.
    rsdp: u64,
    /// Files of fw_cfg.
    files: Vec<(String, Vec<u8>)>,
}

/// A machine may go from thread to thread: each part of it that names memory by raw pointer owns that memory, and says so
/// where it is `Send`. It is not `Sync`.
const _: () = {
    const fn goes_to_another_thread<T: Send>() {}
    goes_to_another_thread::<Machine>();
};

impl Machine {
    /// Builds a machine with zeroed RAM, and the devices of the minimal platform.
    ///
    /// # Errors
    /// When memory cannot be allocated or the engine is not the pinned build.
    pub fn new(config: &MachineConfig) -> Result<Self, MachineError> {
        Self::with_platform(config, &PlatformConfig::minimal(config.mem_size))
    }

    /// Builds a machine with these devices, and with their firmware's tables in its RAM.
    ///
    /// # Errors
    /// As [`Machine::new`].
    pub fn with_platform(config: &MachineConfig, devices: &PlatformConfig) -> Result<Self, MachineError> {
        let mut ram = Ram::new(config.mem_size)?;
        for (paddr, bytes) in firmware::tables(devices) {
            ram.write(paddr, &bytes);
        }
        let platform = Platform::new(&PlatformConfig { mem_size: config.mem_size, ..devices.clone() });
        let model = Model::from(config.model);
        let rsdp = firmware::rsdp(devices).unwrap_or(0);
        let mut core = Core::new(model, ram, platform)?;
        core.identity = Arc::new(MachineIdentity {
            model: format!("{:?}", config.model),
            ram: config.mem_size,
            platform: devices.to_string(),
            loaded: 0,
        });
        Ok(Machine { core, rsdp, files: devices.files.clone() })
    }

    /// A machine that cannot run and is only looked at, such as that of a dump: `size` bytes of memory from physical
    /// address 0 on are read through `memory`, where there may be gaps. Nothing can be written.
    ///
    /// # Errors
    /// As [`Machine::new`].
    pub fn still(
        model: CpuModel,
        memory: Box<dyn PhysMem + Send>,
        size: u64,
        state: &CpuState,
    ) -> Result<Self, MachineError> {
        let platform = Platform::new(&PlatformConfig::minimal(size));
        let core = Core::new(model.into(), Ram::elsewhere(memory, size)?, platform)?;
        let mut machine = Machine { core, rsdp: 0, files: Vec::new() };
        machine.set_still(state);
        Ok(machine)
    }

    /// Gives the CPU of a machine that is only looked at another state; nothing happens to any other machine.
    pub fn set_still(&mut self, state: &CpuState) {
        if self.core.is_still() {
            self.core.load_cpu(state);
        }
    }

    /// Loads an image and puts the CPU at its entry.
    ///
    /// # Errors
    /// When the image, its command line and its files do not fit into memory, or the image does not take such files.
    pub fn load(&mut self, image: &Image, files: &BootFiles<'_>) -> Result<(), MachineError> {
        let plan = image.plan();
        let mem_size = self.core.cpu.ram.size();
        plan.check_fits(mem_size)?;
        check_files(plan, files)?;
        let Entered { ip, mode, end: kernel_end } = self.load_kernel(plan, files.entry)?;
        let mut boot = BootState { mode: CpuMode::Flat32, ip, ax: 0, bx: 0, sp: 0, si: 0 };
        let list: Vec<(&str, &[u8])> =
            files.modules.iter().map(|m| (m.string.as_str(), m.bytes.as_slice())).collect();
        let rsdp = self.root_pointer();
        let facts = BootFacts { cmdline: files.cmdline, mem_size, rsdp_at: self.rsdp, rsdp: rsdp.as_deref() };
        if let Some(info) = boot_image(plan, &facts, &list)? {
            for (paddr, bytes) in &info.writes {
                self.core.cpu.write_phys(*paddr, bytes);
            }
            (boot.ax, boot.bx) = (info.eax.into(), info.ebx.into());
        }
        let (mut tables, mut gdt) = (plan.end().next_multiple_of(PAGE_SIZE), None);
        if let Some(linux) = &plan.linux {
            let rsdp = self.rsdp;
            let own_code = (files.entry != LinuxEntry::Kernel || linux.is_own_code).then_some(mode);
            let (cmdline, initrd) = (files.cmdline, files.initrd);
            let layout = Layout { cmdline, initrd, mem_size, rsdp, kernel_end, own_code };
            let found = linux_params::build(plan, &layout).map_err(LoadError::from)?;
            for (paddr, bytes) in &found.writes {
                self.core.cpu.write_phys(*paddr, bytes);
            }
            (boot.si, tables, gdt) = (found.params, found.tables, found.gdt);
        }
        self.core.cpu.platform.fill_fw_cfg(&Facts {
            mem_size,
            cmdline: files.cmdline,
            initrd_len: files.initrd.len() as u32,
            map: memory_map(mem_size).iter().map(|range| (range.start, range.size(), range.kind)).collect(),
            files: &self.files,
        });
        if mode == EntryMode::Long64 {
            boot.mode = CpuMode::Long64 { cr3: self.identity_tables(tables)? };
        }
        self.core.cpu.boot(&boot);
        if let Some((base, limit)) = gdt {
            self.core.cpu.boot_with_gdt(base, limit);
        }
        Arc::make_mut(&mut self.core.identity).loaded = digest_of(plan, files);
        Ok(())
    }

    /// Writes the kernel, or the code of a bzImage that unpacks it, into memory.
    fn load_kernel(&mut self, plan: &LoadPlan, entry: LinuxEntry) -> Result<Entered, MachineError> {
        const ENTRY_64: u64 = 0x200;
        let (mode, offset, what) = match entry {
            LinuxEntry::Kernel => {
                self.write_segments(plan);
                return Ok(Entered { ip: plan.entry, mode: plan.mode, end: plan.end() });
            }
            LinuxEntry::Bits32 => (EntryMode::Flat32, 0, "32-bit"),
            LinuxEntry::Bits64 => (EntryMode::Long64, ENTRY_64, "64-bit"),
        };
        let refused = || LoadError::from(LinuxError::NoEntry { what });
        let linux = plan.linux.as_ref().ok_or_else(refused)?;
        if entry == LinuxEntry::Bits64 && !linux.header.has_64_bit_entry() {
            return Err(refused().into());
        }
        let ip = linux.start() + offset;
        if linux.is_own_code {
            self.write_segments(plan);
            return Ok(Entered { ip, mode, end: plan.end() });
        }
        let unpacker = linux.unpacker.as_ref().ok_or_else(refused)?;
        let (end, mem_size) = (linux.unpacking_end(), self.core.cpu.ram.size());
        if end > self.core.cpu.ram.layout().low_end() {
            return Err(LoadError::DoesNotFit { end, mem_size }.into());
        }
        let code = unpacker.file.get(unpacker.code.clone()).unwrap_or_default();
        self.core.cpu.write_phys(linux.start(), code);
        Ok(Entered { ip, mode, end })
    }

    fn write_segments(&mut self, plan: &LoadPlan) {
        for segment in &plan.segments {
            self.core.cpu.write_phys(segment.paddr, plan.segment_bytes(segment));
        }
    }

    /// ACPI's root pointer as it is in memory.
    fn root_pointer(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; firmware::RSDP_BYTES];
        (self.rsdp != 0 && self.core.cpu.ram.read(self.rsdp, &mut bytes)).then_some(bytes)
    }

    /// The machine's identity: a snapshot can be restored by every machine with an equal identity.
    pub fn identity(&self) -> &MachineIdentity {
        &self.core.identity
    }

    /// Writes tables that map the first 4 GiB one to one with 2 MiB pages, six pages from `pml4` on.
    fn identity_tables(&mut self, pml4: u64) -> Result<u64, MachineError> {
        const PRESENT_RW: u64 = 3;
        const LARGE: u64 = 0x83;
        if !self.core.cpu.ram.contains(pml4, 6 * PAGE_SIZE) {
            return Err(RamError(self.core.cpu.ram.size()).into());
        }
        let pdpt = pml4 + PAGE_SIZE;
        self.core.cpu.write_phys(pml4, &(pdpt | PRESENT_RW).to_le_bytes());
        for gib in 0..4u64 {
            let directory = pdpt + PAGE_SIZE * (gib + 1);
            self.core.cpu.write_phys(pdpt + gib * 8, &(directory | PRESENT_RW).to_le_bytes());
            for n in 0..512u64 {
                let page = ((gib << 30) + (n << 21)) | LARGE;
                self.core.cpu.write_phys(directory + n * 8, &page.to_le_bytes());
            }
        }
        Ok(pml4)
    }

    /// Puts the CPU into an entry state directly, for images that are not files.
    pub fn boot(&mut self, boot: &BootState) {
        self.core.cpu.boot(boot);
    }

    /// The machine's state.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The machine's state, to arm patches or write memory between runs.
    pub fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    /// Writes guest physical memory.
    pub fn write_physical(&mut self, paddr: u64, bytes: &[u8]) {
        self.core.cpu.write_phys(paddr, bytes);
    }

    /// Runs until something ends the run or the absolute instruction count `limit` is reached.
    pub fn run(&mut self, interposer: Option<&mut dyn TrapInterposer>, limit: u64) -> Stop {
        if self.core.is_still() {
            return Stop::Unsupported("running a machine that is only looked at".to_owned());
        }
        self.core.run(interposer, limit)
    }

    /// As [`Machine::run`], but stops with [`Stop::Limit`] at a given moment, or after it if the run does not pass
    /// through it.
    pub fn run_until(
        &mut self,
        interposer: Option<&mut dyn TrapInterposer>,
        limit: u64,
        until: Moment,
    ) -> Stop {
        self.core.until = Some(until);
        let stop = self.run(interposer, limit);
        self.core.until = None;
        stop
    }

    /// The current position in the run.
    pub fn moment(&self) -> Moment {
        self.core.moment()
    }

    /// Ends the run when any of these texts appears on the console (COM1 and port E9h).
    pub fn watch_console(&mut self, texts: Vec<Vec<u8>>) {
        self.core.cpu.console.watched = texts;
    }

    /// Everything the guest has written to its console.
    pub fn console(&self) -> &[u8] {
        &self.core.cpu.console.text
    }

    /// Sets how much the guest may write to its console before its run ends: 256 MiB if this is not called.
    pub fn limit_console(&mut self, bytes: usize) {
        self.core.cpu.console.most = bytes;
    }

    /// From now on keeps what the guest sends through its serial ports, for [`Machine::take_sent`].
    pub fn keep_sent(&mut self) {
        self.core.cpu.console.sent.get_or_insert_default();
    }

    /// What the guest has sent since the last call, in order. These bytes are not part of the machine's state:
    /// restoring a snapshot drops those not yet taken.
    pub fn take_sent(&mut self) -> Vec<SentByte> {
        self.core.cpu.console.sent.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Types into the guest's serial console.
    pub fn console_input(&mut self, bytes: &[u8]) {
        let now = self.core.cpu.hot.clock.now();
        self.core.cpu.platform.console_input(bytes, now);
    }

    /// Types into the guest's virtio console; false when it has none.
    pub fn virtio_console_input(&mut self, bytes: &[u8]) -> bool {
        let now = self.core.cpu.hot.clock.now();
        self.core.cpu.platform.virtio_console_input(bytes, now)
    }

    /// Types on the keyboard; nothing, and the first character that no key types, if there is one.
    ///
    /// # Errors
    /// The character.
    pub fn keyboard_input(&mut self, text: &[u8]) -> Result<(), u8> {
        let mut codes = Vec::new();
        for character in text {
            codes.extend(codes_of(*character).ok_or(*character)?);
        }
        let now = self.core.cpu.hot.clock.now();
        self.core.cpu.platform.keyboard_input(&codes, now);
        Ok(())
    }

    /// The VGA text screen, 80 by 25.
    pub fn screen(&self) -> String {
        use crate::devices::vga::{TEXT_BASE, TEXT_BYTES, TEXT_MEMORY, text_screen};
        // Systems scroll by moving the start in the 32 KiB of text memory.
        let scrolled = 2 * usize::from(self.core.cpu.platform.vga().start_address());
        let start = TEXT_BASE as usize + scrolled.min(TEXT_MEMORY - TEXT_BYTES);
        let bytes = self.core.cpu.ram.bytes();
        text_screen(bytes.get(start..start + TEXT_BYTES).unwrap_or(&[]))
    }

    /// Retired instructions.
    pub fn icount(&self) -> u64 {
        self.core.cpu.hot.clock.icount
    }

    /// The digest of the architectural state.
    pub fn digest(&self) -> Digest {
        let mut h = StateHasher::default();
        self.core.hash_cpu(&mut h);
        self.core.cpu.platform.hash_state(&mut h);
        let ram = &self.core.cpu.ram;
        for range in ram.layout().ranges() {
            let bytes = ram.slice(range.start, (range.end - range.start) as usize);
            std::hash::Hasher::write(&mut h, bytes.unwrap_or_default());
        }
        h.finish128()
    }

    /// The digest in stages, between two instructions. The first call hashes all pages ever written, a later call those
    /// written since the previous one. The guest cannot observe it.
    pub fn staged_digest(&mut self) -> StagedDigest {
        self.core.staged_digest()
    }

    /// The hashes of the pages whose content changed between the last two calls of [`Machine::staged_digest`].
    pub fn changed_pages(&self) -> &[(u32, u128)] {
        self.core.page_hashes.changed()
    }

    /// Saves the machine, between two instructions. The cost is proportional to what was written since the last
    /// snapshot was taken or restored.
    pub fn snapshot(&mut self) -> Snapshot {
        self.core.snapshot()
    }

    /// Restores a snapshot of this machine or of one with an equal identity. The cost is proportional to the pages that
    /// differ. Armed patches stay armed.
    ///
    /// # Errors
    /// When the snapshot belongs to another machine.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), SnapshotMismatch> {
        self.core.restore(snapshot)
    }

    /// Whether the machine is in a saved state: whether the digest of both is the same. This costs less than the digest.
    pub fn is_in(&self, snapshot: &Snapshot) -> bool {
        self.core.is_in(snapshot)
    }

    /// Single-stepped instructions, and accesses to addresses without memory.
    pub fn counters(&self) -> Counters {
        Counters {
            steps: self.core.steps,
            void_accesses: self.core.cpu.void_accesses,
            blocks: self.core.blocks.taken(),
        }
    }
}

/// Where a kernel is entered, and where the memory that it takes ends.
struct Entered {
    ip: u64,
    mode: EntryMode,
    end: u64,
}

fn check_files(plan: &LoadPlan, files: &BootFiles<'_>) -> Result<(), MachineError> {
    if !files.modules.is_empty() && !plan.takes_modules() {
        return Err(MachineError::ModulesNeedMultiboot(plan.name.clone()));
    }
    if !files.initrd.is_empty() && plan.linux.is_none() {
        return Err(MachineError::InitrdNeedsLinux(plan.name.clone()));
    }
    Ok(())
}

/// A digest of what was loaded, for the machine's identity.
fn digest_of(plan: &LoadPlan, files: &BootFiles<'_>) -> u128 {
    let mut h = StateHasher::default();
    let mut part = |bytes: &[u8]| {
        std::hash::Hasher::write_u64(&mut h, bytes.len() as u64);
        std::hash::Hasher::write(&mut h, bytes);
    };
    if plan.takes_modules() {
        part(plan.name.as_bytes());
    }
    part(&plan.entry.to_le_bytes());
    for segment in &plan.segments {
        part(&segment.paddr.to_le_bytes());
        part(plan.segment_bytes(segment));
    }
    part(files.cmdline.as_bytes());
    for module in files.modules {
        part(module.string.as_bytes());
        part(&module.bytes);
    }
    part(files.initrd);
    if files.entry != LinuxEntry::Kernel {
        part(format!("{:?}", files.entry).as_bytes());
    }
    h.finish128().0
}

/// Counters for `--stats`. They describe how the host ran the guest, not the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Instructions executed one at a time.
    pub steps: u64,
    /// Accesses to physical addresses with neither RAM nor a device.
    pub void_accesses: u64,
    /// Translations since all of them were last dropped ([`Core::set_most_blocks`]).
    pub blocks: usize,
}
