//! Memory-mapped devices: their pages, and the accesses of the CPU and of the devices to memory.

use super::Platform;
use super::config::{PlatformConfig, VirtioWindow, virtio_windows};
use crate::devices::hpet::{HPET_BASE, Line};
use crate::devices::ioapic::IOAPIC_BASE;
use crate::devices::lapic::APIC_BASE;
use crate::devices::virtio::{Block, Console, DiskImage, Entropy, Function, Memory, VirtioMmio};
use crate::devices::{AcpiPm, FwCfg, Hpet, PciBus, fw_cfg};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// A virtio device at its place.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(super) struct Attached {
    pub window: VirtioWindow,
    pub device: VirtioMmio,
}

impl Attached {
    fn read(&mut self, offset: u16, size: u8) -> u32 {
        match self.window.slot {
            None => self.device.read(offset, size),
            Some(_) => self.device.pci_read(offset, size),
        }
    }

    fn write(&mut self, offset: u16, size: u8, value: u32, now_ns: u64) {
        match self.window.slot {
            None => self.device.write(offset, size, value, now_ns),
            Some(_) => self.device.pci_write(offset, size, value, now_ns),
        }
    }
}

/// The devices of a PC that the minimal platform lacks, except its APICs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PcParts {
    pub pm: AcpiPm,
    /// Level of the SCI's wire.
    pub sci: bool,
    /// Whether the guest has switched the machine off.
    pub off: bool,
    pub pci: PciBus,
    pub hpet: Hpet,
    /// Level of the HPET's wire.
    hpet_level: bool,
    pub fw_cfg: FwCfg,
    pub virtio: Vec<Attached>,
}

impl Hash for PcParts {
    /// A device that no guest has touched adds nothing: where it is there but not used, the digest is as without it.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.pm, self.sci, self.off, self.pci.address(), &self.virtio).hash(state);
        if self.pci.functions() != pci_bus(&self.virtio).functions() {
            ("pci", self.pci.functions()).hash(state);
        }
        if self.hpet != Hpet::default() {
            ("hpet", &self.hpet, self.hpet_level).hash(state);
        }
        if !self.fw_cfg.is_untouched() {
            ("fw_cfg", &self.fw_cfg).hash(state);
        }
    }
}

/// The PCI bus with the virtio devices that are on it.
fn pci_bus(virtio: &[Attached]) -> PciBus {
    let function = |v: &Attached| {
        let window = v.window;
        window.slot.map(|slot| v.device.pci_function(slot, window.base as u32, window.irq))
    };
    PciBus::new(virtio.iter().filter_map(function).collect())
}

impl PcParts {
    pub fn new(config: &PlatformConfig) -> Self {
        let disk = config.disk.clone().map(|disk| Function::Block(Block::new(disk)));
        let console = config.console.then(|| Function::Console(Console::default()));
        let entropy = config.entropy.then(|| Function::Entropy(Entropy::default()));
        let virtio: Vec<Attached> = virtio_windows(config)
            .into_iter()
            .zip(disk.into_iter().chain(console).chain(entropy))
            .map(|(window, function)| Attached { window, device: VirtioMmio::new(function) })
            .collect();
        Self {
            pm: AcpiPm::default(),
            sci: false,
            off: false,
            pci: pci_bus(&virtio),
            hpet: Hpet::default(),
            hpet_level: false,
            fw_cfg: FwCfg::default(),
            virtio,
        }
    }

    /// CONFIG_DATA is about to be read: a window's data comes from its device.
    pub fn read_window(&mut self) {
        let Some(window) = self.pci.window() else { return };
        let device = self.virtio.iter_mut().find(|v| v.window.slot == Some(window.slot));
        if let Some(device) = device {
            let value = device.read(window.offset, window.length);
            self.pci.set_window_data(value, window.length);
        }
    }

    /// CONFIG_DATA has been written: a window's data goes to its device. Whether it was such data.
    pub fn write_window(&mut self, now_ns: u64) -> bool {
        let Some(window) = self.pci.window() else { return false };
        let value = self.pci.window_data() & u32::MAX >> (32 - 8 * u32::from(window.length));
        let device = self.virtio.iter_mut().find(|v| v.window.slot == Some(window.slot));
        if let Some(device) = device {
            device.write(window.offset, window.length, value, now_ns);
        }
        true
    }

    /// When one of the devices is due.
    pub fn next_event(&self, now_ns: u64) -> Option<u64> {
        let virtio = self.virtio.iter().filter_map(|v| v.device.next_event()).min();
        super::earlier(super::earlier(virtio, self.pm.next_event(now_ns)), self.hpet.next_event())
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
    Hpet,
    Virtio(usize),
}

const OFFSET: u64 = 0xfff;

impl Platform {
    fn mmio_target(&self, paddr: u64) -> Option<Page> {
        let (apics, pc) = (self.wires.apics.as_ref()?, self.pc.as_ref()?);
        match paddr & !OFFSET {
            APIC_BASE => apics.local.enabled().then_some(Page::LocalApic),
            IOAPIC_BASE => Some(Page::IoApic),
            HPET_BASE => Some(Page::Hpet),
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
            (Some(Page::Hpet), _, Some(pc)) => pc.hpet.read(offset, size, now_ns),
            (Some(Page::Virtio(n)), _, Some(pc)) => {
                let Some(v) = pc.virtio.get_mut(n) else { return u32::MAX };
                let value = v.read(offset, size);
                self.wires.set_irq(v.window.irq, v.device.irq());
                value
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
            (Some(Page::Hpet), _, Some(pc)) => {
                pc.hpet.write(offset, size, value, now_ns);
                self.drive_hpet(0);
            }
            (Some(Page::Virtio(n)), _, Some(pc)) => {
                if let Some(v) = pc.virtio.get_mut(n) {
                    v.write(offset, size, value, now_ns);
                    self.wires.set_irq(v.window.irq, v.device.irq());
                }
            }
            _ => {}
        }
    }

    /// Lets the HPET's comparators that are due fire.
    pub(super) fn advance_hpet(&mut self, now_ns: u64) {
        let Some(pc) = &mut self.pc else { return };
        if pc.hpet.next_event().is_some_and(|at| at <= now_ns) {
            let pulses = pc.hpet.advance(now_ns);
            self.drive_hpet(pulses);
        }
    }

    /// Drives the HPET's wires: pulses for these comparators, and the level that the others have.
    fn drive_hpet(&mut self, pulses: u8) {
        let Some(pc) = &mut self.pc else { return };
        for n in (0..3).filter(|n| pulses >> n & 1 != 0) {
            match pc.hpet.line(n) {
                Line::Irq(irq) => self.wires.pulse_irq(irq),
                Line::Pin(pin) => self.wires.pulse_pin(pin),
            }
        }
        let mut pin = false;
        for (line, level) in (0..3).filter_map(|n| Some((pc.hpet.line(n), pc.hpet.level(n)?))) {
            match line {
                Line::Irq(irq) => self.wires.set_irq(irq, level),
                Line::Pin(_) => pin |= level,
            }
        }
        if pin != pc.hpet_level {
            pc.hpet_level = pin;
            self.wires.set_pin(crate::devices::hpet::PIN, pin);
        }
    }

    /// Fills in what fw_cfg tells.
    pub fn fill_fw_cfg(&mut self, facts: &fw_cfg::Facts<'_>) {
        if let Some(pc) = &mut self.pc {
            pc.fw_cfg.fill(facts);
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
            Function::Console(_) | Function::Entropy(_) => None,
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
