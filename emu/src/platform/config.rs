//! The configuration of a platform, and the addresses of its parts.

use crate::devices::virtio::DiskImage;
use serde::{Deserialize, Serialize};

/// First port of the ACPI registers: PM1a event, PM1a control at +4, timer at +8.
pub(crate) const ACPI_PM_PORT: u16 = 0x600;
/// Port of the reset control register.
pub(crate) const RESET_PORT: u16 = 0xcf9;
/// The system control interrupt.
pub(crate) const SCI_IRQ: u8 = 9;

/// Physical address of the first virtio window; the next is a page on.
const VIRTIO_BASE: u64 = 0xfeb0_0000;
const DISK_IRQ: u8 = 10;
const CONSOLE_IRQ: u8 = 11;

/// The kind of platform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PlatformKind {
    /// The legacy devices of a PC, with two 8259s and nothing newer.
    #[default]
    Minimal,
    /// The same, and a local APIC, an I/O APIC, ACPI, an MP table, an empty PCI bus and virtio devices.
    Pc,
}

/// The configuration of a platform.
#[derive(Clone, Debug)]
pub struct PlatformConfig {
    /// Bytes of guest RAM, for the sizes in CMOS.
    pub mem_size: u64,
    /// Which devices there are.
    pub kind: PlatformKind,
    /// The virtio disk, of [`PlatformKind::Pc`] only.
    pub disk: Option<DiskImage>,
    /// Whether there is a virtio console, of [`PlatformKind::Pc`] only.
    pub console: bool,
}

impl PlatformConfig {
    /// The minimal platform.
    pub fn minimal(mem_size: u64) -> Self {
        Self { mem_size, kind: PlatformKind::Minimal, disk: None, console: false }
    }

    /// A PC without virtio devices.
    pub fn pc(mem_size: u64) -> Self {
        Self { kind: PlatformKind::Pc, ..Self::minimal(mem_size) }
    }
}

/// One line, different for platforms whose states are incompatible.
impl std::fmt::Display for PlatformConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.kind {
            PlatformKind::Minimal => return f.write_str("minimal"),
            PlatformKind::Pc => "pc",
        })?;
        if let Some(disk) = &self.disk {
            write!(f, ", disk of {} bytes ({:016x})", disk.size(), disk.fingerprint())?;
        }
        f.write_str(if self.console { ", virtio console" } else { "" })
    }
}

/// Where a virtio device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct VirtioWindow {
    /// Physical address of its registers.
    pub base: u64,
    /// Its interrupt, the same at the 8259s and at the I/O APIC.
    pub irq: u8,
}

/// The windows of the virtio devices that are there: the disk's, then the console's.
pub(crate) fn virtio_windows(config: &PlatformConfig) -> Vec<VirtioWindow> {
    let pc = config.kind == PlatformKind::Pc;
    let disk = VirtioWindow { base: VIRTIO_BASE, irq: DISK_IRQ };
    let console = VirtioWindow { base: VIRTIO_BASE + 0x1000, irq: CONSOLE_IRQ };
    let asked = [(config.disk.is_some(), disk), (config.console, console)];
    asked.into_iter().filter(|(there, _)| pc && *there).map(|(_, window)| window).collect()
}

/// The I/O APIC's pin of an ISA interrupt: the timer's is 2, and the cascade has none.
pub(crate) fn gsi(irq: u8) -> Option<u8> {
    match irq {
        0 => Some(2),
        2 => None,
        _ => Some(irq),
    }
}
