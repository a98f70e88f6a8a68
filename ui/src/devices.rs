//! The options that say which devices a machine has.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trapline_session::{GuestBuilder, PlatformKind};

use crate::named_file::named_file;

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
#[command(next_help_heading = "Guest")]
pub struct DeviceArgs {
    /// Devices of the machine (docs/platform.md) [default: pc for Linux, else minimal]
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true)]
    pub platform: Option<PlatformName>,
    /// Raw image of a virtio disk, with --platform pc; the file is only read: writes of the guest stay in memory
    #[arg(long, value_name = "FILE", value_parser = named_file())]
    pub disk: Option<PathBuf>,
    /// Add a virtio console, with --platform pc; its output goes where that of the console goes (--console)
    #[arg(long)]
    pub virtio_console: bool,
}

impl DeviceArgs {
    /// Each option, and whether it was given.
    pub fn given(&self) -> [(bool, &'static str); 3] {
        [
            (self.platform.is_some(), "--platform"),
            (self.disk.is_some(), "--disk"),
            (self.virtio_console, "--virtio-console"),
        ]
    }

    /// The guest with these devices.
    pub fn add_to(&self, mut guest: GuestBuilder) -> GuestBuilder {
        if let Some(name) = self.platform {
            guest = guest.platform(match name {
                PlatformName::Pc => PlatformKind::Pc,
                PlatformName::Minimal => PlatformKind::Minimal,
            });
        }
        if let Some(disk) = &self.disk {
            guest = guest.disk(disk.clone());
        }
        if self.virtio_console { guest.virtio_console() } else { guest }
    }

    /// Fields of a run's header line, for given options only.
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
