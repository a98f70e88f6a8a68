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
/// The addresses, from first to last, that belong to the PCI bus.
pub(crate) const PCI_MEMORY: (u32, u32) = (VIRTIO_BASE as u32, VIRTIO_BASE as u32 + 0xf_ffff);
const DISK_IRQ: u8 = 10;
const CONSOLE_IRQ: u8 = 11;
const ENTROPY_IRQ: u8 = 5;
/// Device number on the PCI bus of the first virtio device.
const FIRST_SLOT: u8 = 2;

/// The kind of platform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PlatformKind {
    /// The legacy devices of a PC, with two 8259s and nothing newer.
    #[default]
    Minimal,
    /// The same, and a local APIC, an I/O APIC, ACPI, an MP table, HPET, a PCI bus, fw_cfg and virtio devices.
    Pc,
}

/// Where a driver finds the virtio devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VirtioBus {
    /// At addresses that ACPI names.
    #[default]
    Mmio,
    /// On the PCI bus.
    Pci,
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
    /// Whether there is a virtio source of entropy, of [`PlatformKind::Pc`] only.
    pub entropy: bool,
    /// Where the virtio devices are.
    pub virtio: VirtioBus,
    /// Files of fw_cfg by their names, of [`PlatformKind::Pc`] only.
    pub files: Vec<(String, Vec<u8>)>,
}

impl PlatformConfig {
    /// The minimal platform.
    pub fn minimal(mem_size: u64) -> Self {
        Self {
            mem_size,
            kind: PlatformKind::Minimal,
            disk: None,
            console: false,
            entropy: false,
            virtio: VirtioBus::Mmio,
            files: Vec::new(),
        }
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
        for (there, what) in [
            (self.console, ", virtio console"),
            (self.entropy, ", virtio entropy"),
            (self.virtio == VirtioBus::Pci, ", virtio on PCI"),
        ] {
            f.write_str(if there { what } else { "" })?;
        }
        for (name, bytes) in &self.files {
            write!(f, ", fw_cfg {name:?} ({:016x})", xxhash_rust::xxh3::xxh3_64(bytes))?;
        }
        Ok(())
    }
}

/// Where a virtio device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VirtioWindow {
    /// Physical address of its registers.
    pub base: u64,
    /// Its interrupt, the same at the 8259s and at the I/O APIC.
    pub irq: u8,
    /// Its device number on the PCI bus, if it is there.
    pub slot: Option<u8>,
}

impl std::hash::Hash for VirtioWindow {
    /// A device that is not on the PCI bus adds what it did before there was one.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.base, self.irq).hash(state);
        if let Some(slot) = self.slot {
            slot.hash(state);
        }
    }
}

/// The windows of the virtio devices that are there: the disk's, the console's, that of the source of entropy.
pub(crate) fn virtio_windows(config: &PlatformConfig) -> Vec<VirtioWindow> {
    let there = [config.disk.is_some(), config.console, config.entropy];
    let places = [DISK_IRQ, CONSOLE_IRQ, ENTROPY_IRQ].into_iter().zip(0u8..).map(|(irq, n)| VirtioWindow {
        base: VIRTIO_BASE + 0x1000 * u64::from(n),
        irq,
        slot: (config.virtio == VirtioBus::Pci).then_some(FIRST_SLOT + n),
    });
    let pc = config.kind == PlatformKind::Pc;
    places.zip(there).filter(|(_, there)| pc && *there).map(|(window, _)| window).collect()
}

/// The I/O APIC's pin of an ISA interrupt: the timer's is 2, and the cascade has none.
pub(crate) fn gsi(irq: u8) -> Option<u8> {
    match irq {
        0 => Some(2),
        2 => None,
        _ => Some(irq),
    }
}
