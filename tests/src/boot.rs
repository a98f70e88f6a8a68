//! Debian's Linux on the machine: loads a kernel, and runs it until its console shows a text.

use std::error::Error;
use std::fmt::Write as _;

use crate::linux::{Linux, QUICK};
use trapline_emu::load::linux::DEFAULT_CMDLINE;
use trapline_emu::load::{Image, Width};
use trapline_emu::{CpuModel, Machine};
use trapline_providers::Target;
use trapline_session::{Command, Guest, GuestBuilder, Probing, Session, SourceOptions, compile};

/// Bytes of guest RAM, as in `trapline run`.
pub const MEM: u64 = 256 << 20;
/// An instruction limit far beyond every boot.
pub const LINUX_LIMIT: u64 = 200_000_000_000;
/// The shell's prompt.
pub const PROMPT: &str = "/ # ";

/// A kernel with an initramfs, read once for any number of machines.
pub struct LinuxBoot {
    guest: Guest,
    initrd: Vec<u8>,
}

/// A function of the kernel.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its name; if it has several, the preferred one.
    pub name: String,
    /// Linear address.
    pub linear: u64,
    /// Physical address.
    pub paddr: u64,
    /// Its first byte as the image has it.
    pub byte: u8,
}

impl LinuxBoot {
    /// A kernel that ends in a shell.
    ///
    /// # Errors
    /// A file is missing or is not a kernel.
    pub fn shell(linux: &Linux) -> Result<Self, Box<dyn Error>> {
        Self::new(linux, linux.shell()?, DEFAULT_CMDLINE.to_owned())
    }

    /// A kernel that ends in a shell soon: see [`QUICK`].
    ///
    /// # Errors
    /// A file is missing or is not a kernel.
    pub fn quick(linux: &Linux) -> Result<Self, Box<dyn Error>> {
        Self::new(linux, linux.shell()?, format!("{DEFAULT_CMDLINE} {QUICK}"))
    }

    /// A kernel that runs the stress script and stops.
    ///
    /// # Errors
    /// A file is missing or is not a kernel.
    pub fn stress(linux: &Linux) -> Result<Self, Box<dyn Error>> {
        Self::new(linux, linux.stress()?, format!("{DEFAULT_CMDLINE} {QUICK} panic=-1"))
    }

    /// A kernel with this initramfs.
    ///
    /// # Errors
    /// A file is missing or is not a kernel.
    pub fn with(linux: &Linux, initrd: Vec<u8>) -> Result<Self, Box<dyn Error>> {
        Self::new(linux, initrd, format!("{DEFAULT_CMDLINE} {QUICK}"))
    }

    fn new(linux: &Linux, initrd: Vec<u8>, cmdline: String) -> Result<Self, Box<dyn Error>> {
        let name = format!("linux-{}", linux.flavour);
        // The 32-bit kernels are what tries the 32-bit CPU.
        let cpu = if linux.arch == "i386" { CpuModel::Ia32 } else { CpuModel::X86_64 };
        let guest = GuestBuilder::image_bytes(&name, linux.kernel()?).memory(MEM).cmdline(&cmdline).cpu(cpu);
        Ok(LinuxBoot { guest: guest.initrd(initrd.clone()).open()?, initrd })
    }

    /// The bytes of its initramfs.
    pub fn initrd(&self) -> &[u8] {
        &self.initrd
    }

    /// The guest.
    pub fn into_guest(self) -> Guest {
        self.guest
    }

    /// The kernel's command line.
    pub fn cmdline(&self) -> String {
        self.guest.cmdline()
    }

    /// A session at the kernel's entry.
    ///
    /// # Errors
    /// When the machine cannot be built or loaded.
    pub fn session(&self) -> Result<Session, Box<dyn Error>> {
        crate::turns::take()?;
        Ok(self.guest.start(Probing { watch_unlimited: true, ..Probing::default() })?)
    }

    /// A machine at the kernel's entry, whose run ends when the console shows `until`.
    ///
    /// # Errors
    /// When it cannot be built or loaded.
    pub fn machine(&self, until: &str) -> Result<Machine, Box<dyn Error>> {
        crate::turns::take()?;
        let mut machine = self.guest.machine()?;
        machine.watch_console(vec![until.as_bytes().to_vec()]);
        Ok(machine)
    }

    fn image(&self) -> &Image {
        self.guest.target().image()
    }

    /// The probe target of its kernel.
    pub fn target(&self) -> &Target {
        self.guest.target()
    }

    /// Every function of the image, one for each address, in the order of addresses. A symbol in a gap between sections,
    /// as `_etext` may be, is no function.
    pub fn functions(&self) -> Vec<Function> {
        let plan = self.image().plan();
        let mut found: Vec<Function> = Vec::new();
        for s in self.guest.target().symbols().functions() {
            let again = found.last().is_some_and(|f| f.linear == s.addr);
            let first = plan.bytes_at(s.addr, 1).and_then(|b| b.first().copied());
            let skipped = again || plan.is_executable(s.addr) == Some(false);
            if let (false, Some(byte), Some(paddr)) = (skipped, first, plan.vaddr_to_paddr(s.addr)) {
                found.push(Function { name: s.name.to_string(), linear: s.addr, paddr, byte });
            }
        }
        found
    }

    /// An observing probe, which logs two registers, at each function.
    ///
    /// # Errors
    /// The program is invalid.
    pub fn probes(&self, functions: &[Function]) -> Result<Command, Box<dyn Error>> {
        self.observer(functions, "")
    }

    /// Counts the executions of each function by a watch, which changes no byte of the guest. The session must allow
    /// any number of watches: [`LinuxBoot::session`] does.
    ///
    /// # Errors
    /// The program is invalid.
    pub fn watches(&self, functions: &[Function]) -> Result<Command, Box<dyn Error>> {
        self.observer(functions, "watchpoint = x\n")
    }

    fn observer(&self, functions: &[Function], kind: &str) -> Result<Command, Box<dyn Error>> {
        let (ax, sp) = match self.image().plan().width {
            Width::Bits32 => ("eax", "esp"),
            Width::Bits64 => ("rax", "rsp"),
        };
        let mut text = String::from("name = vmlinux\nmodtype = kernel\n");
        for f in functions {
            let opcode = if kind.is_empty() { format!("opcode = {:#x}\n", f.byte) } else { String::new() };
            let _ = write!(
                text,
                "address = {:#x}\n{opcode}{kind}push r, {ax}\npush r, {sp}\nlog 2\nexit\n",
                f.linear
            );
        }
        Ok(Command::insert("functions", compile("functions.rpn", &text, &SourceOptions::default())?))
    }
}
