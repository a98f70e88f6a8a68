//! The options that say which devices a machine has.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trapline_emu::devices::virtio::{DiskError, DiskImage};
use trapline_emu::platform::{PlatformConfig, PlatformKind};

use crate::failure::Failure;

/// A platform, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlatformName {
    /// Local APIC, I/O APIC, ACPI, MP table, an empty PCI bus, virtio devices
    Pc,
    /// The legacy devices of a PC only
    Minimal,
}

/// Devices.
#[derive(Debug, Default, Clone, Args)]
pub struct DeviceArgs {
    /// Which machine the devices make up (docs/platform.md) [default: pc for Linux, else minimal]
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true)]
    pub platform: Option<PlatformName>,
    /// Raw image of a virtio disk, of --platform pc; it is read only: what the guest writes stays in memory
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    /// A virtio console, of --platform pc; what it prints goes where --console says
    #[arg(long)]
    pub virtio_console: bool,
}

impl DeviceArgs {
    /// The platform that they ask for; `default` where they do not say.
    ///
    /// # Errors
    /// The disk image is none, or the platform has no such devices.
    pub fn config(&self, mem_size: u64, default: PlatformKind) -> Result<PlatformConfig, Failure> {
        let kind = match self.platform {
            Some(PlatformName::Pc) => PlatformKind::Pc,
            Some(PlatformName::Minimal) => PlatformKind::Minimal,
            None => default,
        };
        let asked = [(self.disk.is_some(), "--disk"), (self.virtio_console, "--virtio-console")];
        if kind == PlatformKind::Minimal
            && let Some((_, option)) = asked.iter().find(|(asked, _)| *asked)
        {
            let sentence = "needs --platform pc: the minimal platform has no virtio devices";
            return Err(Failure::Usage(format!("{option} {sentence}")));
        }
        let disk = self.disk.as_ref().map(|path| {
            DiskImage::open(path).map_err(|error| match error {
                DiskError::Unreadable(error) => Failure::Read { path: path.clone(), error },
                error => Failure::Disk { path: path.clone(), error },
            })
        });
        Ok(PlatformConfig { mem_size, kind, disk: disk.transpose()?, console: self.virtio_console })
    }

    /// Fields of a run's header line: only what was asked for.
    pub fn header_fields(&self) -> Vec<(&'static str, serde_json::Value)> {
        let name = self.platform.map(|p| if p == PlatformName::Pc { "pc" } else { "minimal" });
        let disk = self.disk.as_ref().map(|path| path.display().to_string());
        let mut fields = Vec::new();
        fields.extend(name.map(|name| ("platform", name.into())));
        fields.extend(disk.map(|disk| ("disk", disk.into())));
        fields.extend(self.virtio_console.then(|| ("virtio_console", true.into())));
        fields
    }
}
