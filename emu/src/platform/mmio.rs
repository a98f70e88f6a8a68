//! Memory-mapped devices: their pages, and the accesses of the CPU and of the devices to memory.

use super::Platform;
use super::config::{PlatformConfig, VirtioWindow, virtio_windows};
use crate::devices::AcpiPm;
use crate::devices::ioapic::IOAPIC_BASE;
use crate::devices::lapic::APIC_BASE;
use crate::devices::virtio::{Block, Console, DiskImage, Function, Memory, VirtioMmio};
use serde::{Deserialize, Serialize};

/// A virtio device at its place.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(super) struct Attached {
    pub window: VirtioWindow,
    pub device: VirtioMmio,
}

/// The devices of a PC that the minimal platform lacks, except its APICs.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(super) struct PcParts {
    pub pm: AcpiPm,
    /// Level of the SCI's wire.
    pub sci: bool,
    /// Whether the guest has switched the machine off.
    pub off: bool,
    /// CONFIG_ADDRESS of the empty PCI bus.
    pub pci_address: u32,
    pub virtio: Vec<Attached>,
}

impl PcParts {
    pub fn new(config: &PlatformConfig) -> Self {
        let disk = config.disk.clone().map(|disk| Function::Block(Block::new(disk)));
        let console = config.console.then(|| Function::Console(Console::default()));
        let virtio = virtio_windows(config)
            .into_iter()
            .zip(disk.into_iter().chain(console))
            .map(|(window, function)| Attached { window, device: VirtioMmio::new(function) })
            .collect();
        Self { pm: AcpiPm::default(), sci: false, off: false, pci_address: 0, virtio }
    }

    /// When one of the devices is due.
    pub fn next_event(&self, now_ns: u64) -> Option<u64> {
        let virtio = self.virtio.iter().filter_map(|v| v.device.next_event()).min();
        super::earlier(virtio, self.pm.next_event(now_ns))
    }

    /// Whether the SCI's level has changed and must be driven.
    pub fn sci_changes(&self, now_ns: u64) -> bool {
        self.pm.sci(now_ns) != self.sci
    }
}

/// The device that answers in a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    LocalApic,
    IoApic,
    Virtio(usize),
}

const OFFSET: u64 = 0xfff;

impl Platform {
    fn mmio_target(&self, paddr: u64) -> Option<Page> {
        let (apics, pc) = (self.wires.apics.as_ref()?, self.pc.as_ref()?);
        match paddr & !OFFSET {
            APIC_BASE => apics.local.enabled().then_some(Page::LocalApic),
            IOAPIC_BASE => Some(Page::IoApic),
            page => pc.virtio.iter().position(|v| v.window.base == page).map(Page::Virtio),
        }
    }

    /// Whether a device answers in the 4-KiB page of this physical address.
    #[inline]
    pub fn has_mmio(&self, paddr: u64) -> bool {
        self.wires.apics.is_some() && self.mmio_target(paddr).is_some()
    }

    /// Reads `size` bytes (1, 2 or 4) of a device at a physical address; all ones where there is none.
    pub fn mmio_read(&mut self, paddr: u64, size: u8, now_ns: u64) -> u32 {
        self.advance(now_ns);
        let offset = (paddr & OFFSET) as u16;
        match (self.mmio_target(paddr), &mut self.wires.apics, &mut self.pc) {
            (Some(Page::LocalApic), Some(apics), _) => apics.local.read(offset, size, now_ns),
            (Some(Page::IoApic), Some(apics), _) => apics.io.read(offset, size),
            (Some(Page::Virtio(n)), _, Some(pc)) => {
                pc.virtio.get_mut(n).map_or(u32::MAX, |v| v.device.read(offset, size))
            }
            _ => u32::MAX >> (32 - 8 * u32::from(size.clamp(1, 4))),
        }
    }

    /// Writes `size` bytes (1, 2 or 4) to a device at a physical address.
    pub fn mmio_write(&mut self, paddr: u64, size: u8, value: u32, now_ns: u64) {
        self.advance(now_ns);
        let offset = (paddr & OFFSET) as u16;
        match (self.mmio_target(paddr), &mut self.wires.apics, &mut self.pc) {
            (Some(Page::LocalApic), Some(apics), _) => apics.write_local(offset, size, value, now_ns),
            (Some(Page::IoApic), Some(apics), _) => apics.write_io(offset, size, value),
            (Some(Page::Virtio(n)), _, Some(pc)) => {
                if let Some(v) = pc.virtio.get_mut(n) {
                    v.device.write(offset, size, value, now_ns);
                    self.wires.set_irq(v.window.irq, v.device.irq());
                }
            }
            _ => {}
        }
    }

    /// Whether a device has a memory transfer due at `now_ns`.
    #[inline]
    pub fn dma_due(&self, now_ns: u64) -> bool {
        self.pc
            .as_ref()
            .is_some_and(|pc| pc.virtio.iter().any(|v| v.device.next_event().is_some_and(|at| at <= now_ns)))
    }

    /// Does the devices' memory transfers that are due at `now_ns`.
    pub fn dma(&mut self, memory: &mut dyn Memory, now_ns: u64) {
        let Some(pc) = &mut self.pc else { return };
        for v in &mut pc.virtio {
            v.device.serve(now_ns, memory);
            self.output.virtio.append(&mut v.device.take_output());
            self.wires.set_irq(v.window.irq, v.device.irq());
        }
    }

    /// Types into the virtio console; false when there is none.
    pub fn virtio_console_input(&mut self, bytes: &[u8], now_ns: u64) -> bool {
        let devices = self.pc.iter_mut().flat_map(|pc| &mut pc.virtio);
        let mut consoles = devices.filter(|v| matches!(v.device.function(), Function::Console(_)));
        let console = consoles.next();
        if let Some(v) = console {
            v.device.type_in(bytes, now_ns);
            return true;
        }
        false
    }

    /// The virtio disk with what was written over it, if there is one.
    pub fn disk(&self) -> Option<&DiskImage> {
        self.pc.as_ref()?.virtio.iter().find_map(|v| match v.device.function() {
            Function::Block(block) => Some(block.disk()),
            Function::Console(_) => None,
        })
    }

    /// IA32_APIC_BASE, if there is a local APIC.
    pub fn apic_base(&self) -> Option<u64> {
        self.wires.apics.as_ref().map(|apics| apics.local.base_msr())
    }

    /// Writes IA32_APIC_BASE; false when it cannot take this value.
    pub fn set_apic_base(&mut self, value: u64) -> bool {
        self.wires.apics.as_mut().is_some_and(|apics| apics.local.set_base_msr(value))
    }

    /// The task priority register, if there is an enabled local APIC; CR8 is an alias of it.
    pub fn task_priority(&self) -> Option<u8> {
        self.wires
            .apics
            .as_ref()
            .filter(|apics| apics.local.enabled())
            .map(|apics| apics.local.task_priority())
    }

    /// Writes the task priority register.
    pub fn set_task_priority(&mut self, value: u8) {
        if let Some(apics) = &mut self.wires.apics {
            apics.local.set_task_priority(value);
        }
    }

    /// Takes the NMI that the local APIC has received, if one has come.
    #[inline]
    pub fn take_nmi(&mut self) -> bool {
        self.wires.apics.as_mut().is_some_and(|apics| apics.local.take_nmi())
    }
}
