//! The options that say which devices a machine has.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};
use trapline_session::{CpuModel, GuestBuilder, LinuxEntry, PlatformKind, VirtioBus};

use crate::named_file::named_file;

/// A platform, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlatformName {
    /// Local APIC, I/O APIC, ACPI, MP table, HPET, a PCI bus, fw_cfg, virtio devices
    Pc,
    /// The legacy devices of a PC only
    Minimal,
}

/// A CPU, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CpuName {
    /// 32-bit, of the class of a Pentium III
    Ia32,
    /// 64-bit, of the class of a Nehalem
    #[value(name = "x86-64")]
    X86_64,
}

impl CpuName {
    fn word(self) -> &'static str {
        match self {
            Self::Ia32 => "ia32",
            Self::X86_64 => "x86-64",
        }
    }
}

/// How a bzImage is entered, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EntryName {
    /// The kernel inside, unpacked by the loader
    Kernel,
    /// The image's own code, at its 32-bit entry point
    #[value(name = "32")]
    Bits32,
    /// The image's own code, at its 64-bit entry point
    #[value(name = "64")]
    Bits64,
}

impl EntryName {
    fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Bits32 => "32",
            Self::Bits64 => "64",
        }
    }
}

/// Where virtio devices are, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VirtioName {
    /// At addresses that ACPI names
    Mmio,
    /// On the PCI bus
    Pci,
}

/// A file of fw_cfg: its name, and where its content is.
#[derive(Debug, Clone)]
pub struct FwCfgFile {
    name: String,
    path: PathBuf,
}

fn fw_cfg_file(text: &str) -> Result<FwCfgFile, String> {
    let wrong = || format!("{text:?} is not NAME=FILE, such as opt/settings=settings.txt");
    let (name, path) = text.split_once('=').ok_or_else(wrong)?;
    if name.is_empty() || path.is_empty() {
        return Err(wrong());
    }
    Ok(FwCfgFile { name: name.to_owned(), path: path.into() })
}

/// What the option about the CPU is called inside, and in commands whose `--cpu` is the number of one.
pub const CPU_MODEL: &str = "cpu-model";
/// The options that add virtio devices.
const ON_A_BUS: &str = "virtio-devices";

/// The CPU and the devices.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Guest", group = ArgGroup::new(ON_A_BUS).multiple(true))]
pub struct DeviceArgs {
    /// CPU of the machine: ia32 or x86-64 (docs/cpu-model.md) [default: x86-64, and ia32 for the embedded guests named so]
    #[arg(id = CPU_MODEL, long = "cpu", value_enum, value_name = "MODEL", hide_possible_values = true)]
    pub cpu: Option<CpuName>,
    /// Entry of a bzImage: kernel (unpacked by Trapline), or 32 or 64, the entry points of its own code, which unpacks it
    /// [default: kernel]
    #[arg(long, value_enum, value_name = "WHERE", hide_possible_values = true)]
    pub entry: Option<EntryName>,
    /// Devices of the machine (docs/platform.md) [default: pc]
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true)]
    pub platform: Option<PlatformName>,
    /// Raw image of a virtio disk; the file is only read: writes of the guest stay in memory
    #[arg(long, value_name = "FILE", value_parser = named_file(), group = ON_A_BUS)]
    pub disk: Option<PathBuf>,
    /// Add a virtio console; its output goes where that of the console goes (--console)
    #[arg(long, group = ON_A_BUS)]
    pub virtio_console: bool,
    /// Add a virtio source of entropy, whose bytes are the same in every run
    #[arg(long, group = ON_A_BUS)]
    pub virtio_rng: bool,
    /// Bus of the virtio devices: mmio (described by ACPI) or pci [default: mmio]
    #[arg(long, value_enum, value_name = "BUS", hide_possible_values = true, requires = ON_A_BUS)]
    pub virtio: Option<VirtioName>,
    /// Give the guest this file through QEMU's fw_cfg, as NAME=FILE; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = fw_cfg_file)]
    pub fw_cfg: Vec<FwCfgFile>,
}

impl DeviceArgs {
    /// Each option, and whether it was given.
    pub fn given(&self) -> [(bool, &'static str); 8] {
        [
            (self.cpu.is_some(), "--cpu"),
            (self.entry.is_some(), "--entry"),
            (self.platform.is_some(), "--platform"),
            (self.disk.is_some(), "--disk"),
            (self.virtio_console, "--virtio-console"),
            (self.virtio_rng, "--virtio-rng"),
            (self.virtio.is_some(), "--virtio"),
            (!self.fw_cfg.is_empty(), "--fw-cfg"),
        ]
    }

    /// The files that they are read from.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.disk.as_deref().into_iter().chain(self.fw_cfg.iter().map(|file| file.path.as_path()))
    }

    /// The guest with these devices.
    pub fn add_to(&self, mut guest: GuestBuilder) -> GuestBuilder {
        if let Some(name) = self.cpu {
            guest = guest.cpu(match name {
                CpuName::Ia32 => CpuModel::Ia32,
                CpuName::X86_64 => CpuModel::X86_64,
            });
        }
        guest = match self.entry {
            None | Some(EntryName::Kernel) => guest,
            Some(EntryName::Bits32) => guest.entry(LinuxEntry::Bits32),
            Some(EntryName::Bits64) => guest.entry(LinuxEntry::Bits64),
        };
        if let Some(name) = self.platform {
            guest = guest.platform(match name {
                PlatformName::Pc => PlatformKind::Pc,
                PlatformName::Minimal => PlatformKind::Minimal,
            });
        }
        if let Some(disk) = &self.disk {
            guest = guest.disk(disk.clone());
        }
        if self.virtio_console {
            guest = guest.virtio_console();
        }
        if self.virtio_rng {
            guest = guest.virtio_entropy();
        }
        if self.virtio == Some(VirtioName::Pci) {
            guest = guest.virtio_bus(VirtioBus::Pci);
        }
        self.fw_cfg.iter().fold(guest, |guest, file| guest.fw_cfg(&file.name, file.path.clone()))
    }

    /// Fields of a run's header line, for given options only.
    pub fn header_fields(&self) -> Vec<(&'static str, serde_json::Value)> {
        let name = self.platform.map(|p| if p == PlatformName::Pc { "pc" } else { "minimal" });
        let disk = self.disk.as_ref().map(|path| path.display().to_string());
        let mut fields = Vec::new();
        fields.extend(self.cpu.map(|cpu| ("cpu", cpu.word().into())));
        fields.extend(self.entry.map(|entry| ("entry", entry.word().into())));
        fields.extend(name.map(|name| ("platform", name.into())));
        fields.extend(disk.map(|disk| ("disk", disk.into())));
        fields.extend(self.virtio_console.then(|| ("virtio_console", true.into())));
        fields.extend(self.virtio_rng.then(|| ("virtio_rng", true.into())));
        let bus = self.virtio.map(|bus| if bus == VirtioName::Pci { "pci" } else { "mmio" });
        fields.extend(bus.map(|bus| ("virtio", bus.into())));
        let files: Vec<&str> = self.fw_cfg.iter().map(|file| file.name.as_str()).collect();
        fields.extend((!files.is_empty()).then(|| ("fw_cfg", files.into())));
        fields
    }
}
