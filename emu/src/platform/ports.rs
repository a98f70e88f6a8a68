//! The port-I/O bus: which device answers where, and how wide accesses are split.

use super::config::{ACPI_PM_PORT, RESET_PORT};
use super::{IRQ_FLOPPY, IRQ_KEYBOARD, IRQ_MOUSE, Platform, PortCount, ResetRequest};
use crate::devices::fdc::Register;
use crate::devices::i8042::Effect;
use crate::devices::pic8259::Chip;

/// CONFIG_ADDRESS of PCI configuration mechanism 1 (PCI 3.0, 3.2.2.3.2): 32 bits at once, or nothing.
const PCI_ADDRESS: u16 = 0xcf8;
/// CONFIG_DATA.
const PCI_DATA: u16 = 0xcfc;
const PCI_DATA_LAST: u16 = 0xcff;
/// Selector of fw_cfg, 16 bits at once, and its data.
const FW_CFG_SELECT: u16 = 0x510;
const FW_CFG_DATA: u16 = 0x511;
/// The debug-exit port, as QEMU's `isa-debug-exit,iobase=0xf4,iosize=4`: a write of any width ends the run.
const DEBUG_EXIT: u16 = 0xf4;
const DEBUG_EXIT_LAST: u16 = DEBUG_EXIT + 3;
const ACPI_PM_LAST: u16 = ACPI_PM_PORT + 11;

/// Which device answers at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Com1(u8),
    Com2(u8),
    Pic {
        chip: Chip,
        data: bool,
    },
    Elcr(Chip),
    Pit(u8),
    Port61,
    CmosIndex,
    CmosData,
    KeyboardData,
    KeyboardStatus,
    Post,
    FastA20,
    Debug,
    Vga,
    Floppy(Register),
    DmaLow(u8),
    DmaHigh(u8),
    DmaPage(u8),
    AcpiPm(u8),
    /// Ports of PCI configuration that answer only as a whole.
    PciConfig,
    PciData(u8),
    FwCfgSelect,
    FwCfgData,
    PciReset,
    DebugExit,
    Nothing,
}

impl Platform {
    /// IN of `size` bytes (1, 2 or 4) at `port`; the result's upper bytes are 0. What an access covers is read byte
    /// by byte from successive ports; ports past FFFFh do not wrap and read all ones.
    pub fn port_read(&mut self, port: u16, size: u8, now_ns: u64) -> u32 {
        self.advance(now_ns);
        if (port, size) == (PCI_ADDRESS, 4)
            && let Some(pc) = &self.pc
        {
            return pc.pci.address();
        }
        if let (Target::PciData(_), Some(pc)) = (self.target(port), &mut self.pc) {
            pc.read_window();
        }
        self.count_unknown(port, |count| &mut count.reads);
        let mut bytes = [0u8; 4];
        for (byte, offset) in bytes.iter_mut().take(usize::from(size)).zip(0u16..) {
            *byte = match port.checked_add(offset) {
                Some(port) => self.read_byte(port, now_ns),
                None => 0xff,
            };
        }
        if !self.is_inert(port, size, false) {
            self.update_lines(now_ns);
        }
        u32::from_le_bytes(bytes)
    }

    /// OUT of `size` bytes (1, 2 or 4) at `port`, low byte first to successive ports.
    pub fn port_write(&mut self, port: u16, size: u8, value: u32, now_ns: u64) {
        self.advance(now_ns);
        if (port, size) == (PCI_ADDRESS, 4)
            && let Some(pc) = &mut self.pc
        {
            pc.pci.set_address(value);
            return;
        }
        if let (Target::PciData(offset), Some(pc)) = (self.target(port), &mut self.pc) {
            pc.pci.write(offset, size, value);
            if pc.write_window(now_ns) {
                self.update_lines(now_ns);
            }
            return;
        }
        if let ((FW_CFG_SELECT, 2), Some(pc)) = ((port, size), &mut self.pc) {
            pc.fw_cfg.select(value as u16);
            return;
        }
        if self.target(port) == Target::DebugExit {
            self.exit.get_or_insert(value);
            return;
        }
        self.count_unknown(port, |count| &mut count.writes);
        for (byte, offset) in value.to_le_bytes().into_iter().take(usize::from(size)).zip(0u16..) {
            if let Some(port) = port.checked_add(offset) {
                if self.target(port) == Target::PciReset && size != 1 {
                    continue;
                }
                self.write_byte(port, byte, now_ns);
            }
        }
        if !self.is_inert(port, size, true) {
            self.update_lines(now_ns);
        }
    }

    /// Whether an access changes no interrupt line and no time at which a device is due. Kernels poll such ports, and write
    /// to them to let time pass.
    pub fn is_inert(&self, port: u16, size: u8, out: bool) -> bool {
        match self.target(port) {
            Target::Nothing | Target::Post => size == 1,
            Target::Port61 => size == 1 && !out,
            _ => false,
        }
    }

    fn count_unknown(&mut self, port: u16, which: impl FnOnce(&mut PortCount) -> &mut u64) {
        if self.target(port) == Target::Nothing {
            let count = which(self.unknown.entry(port).or_default());
            *count = count.saturating_add(1);
        }
    }

    /// The device at `port`.
    fn target(&self, port: u16) -> Target {
        let low = (port & 7) as u8;
        match port {
            0x3f8..=0x3ff => Target::Com1(low),
            0x2f8..=0x2ff => Target::Com2(low),
            0x20 | 0x21 => Target::Pic { chip: Chip::Master, data: port & 1 != 0 },
            0xa0 | 0xa1 => Target::Pic { chip: Chip::Slave, data: port & 1 != 0 },
            0x4d0 => Target::Elcr(Chip::Master),
            0x4d1 => Target::Elcr(Chip::Slave),
            0x40..=0x43 => Target::Pit(low),
            0x60 => Target::KeyboardData,
            0x61 => Target::Port61,
            0x64 => Target::KeyboardStatus,
            0x70 => Target::CmosIndex,
            0x71 => Target::CmosData,
            0x00..=0x0f => Target::DmaLow(port as u8),
            0xc0..=0xdf => Target::DmaHigh((port as u8 & 0x1f) >> 1),
            0x80 => Target::Post,
            0x81..=0x8f => Target::DmaPage(port as u8 & 0x0f),
            0x92 => Target::FastA20,
            0xe9 => Target::Debug,
            DEBUG_EXIT..=DEBUG_EXIT_LAST => Target::DebugExit,
            ACPI_PM_PORT..=ACPI_PM_LAST if self.pc.is_some() => Target::AcpiPm((port - ACPI_PM_PORT) as u8),
            RESET_PORT => Target::PciReset,
            PCI_DATA..=PCI_DATA_LAST if self.pc.is_some() => Target::PciData(low & 3),
            0xcf8..=0xcff => Target::PciConfig,
            FW_CFG_SELECT if self.pc.is_some() => Target::FwCfgSelect,
            FW_CFG_DATA if self.pc.is_some() => Target::FwCfgData,
            0x3f0..=0x3f7 => Register::at(low).map_or(Target::Nothing, Target::Floppy),
            _ if self.vga.owns(port) => Target::Vga,
            _ => Target::Nothing,
        }
    }

    fn read_byte(&mut self, port: u16, now_ns: u64) -> u8 {
        match self.target(port) {
            Target::Com1(reg) => self.com1.read(reg, now_ns),
            Target::Com2(reg) => self.com2.read(reg, now_ns),
            Target::Pic { chip, data } => self.wires.pics.read(chip, data),
            Target::Elcr(chip) => self.wires.pics.read_elcr(chip),
            Target::Pit(reg) => self.pit.read(reg, now_ns),
            Target::Port61 => self.pit.read_port61(now_ns),
            Target::CmosData => self.cmos.read(now_ns),
            Target::KeyboardData => self.read_keyboard(),
            Target::KeyboardStatus => self.keyboard.read_status(),
            Target::FastA20 => u8::from(self.a20) << 1 | self.fast_a20.read() & 1,
            Target::Debug => self.debug.read(),
            Target::DebugExit => 0,
            Target::Vga => self.vga.read(port, now_ns),
            Target::Floppy(register) => self.floppy.read(register),
            Target::DmaLow(index) => self.dma.low.read(index),
            Target::DmaHigh(index) => self.dma.high.read(index),
            Target::DmaPage(index) => self.dma.read_page(index),
            Target::AcpiPm(offset) => self.pc.as_ref().map_or(0xff, |pc| pc.pm.read(offset, now_ns)),
            Target::PciData(offset) => self.pc.as_ref().map_or(0xff, |pc| pc.pci.read(offset)),
            Target::FwCfgData => self.pc.as_mut().map_or(0xff, |pc| pc.fw_cfg.read()),
            Target::FwCfgSelect => 0,
            Target::CmosIndex | Target::Post | Target::PciConfig | Target::PciReset | Target::Nothing => 0xff,
        }
    }

    fn write_byte(&mut self, port: u16, value: u8, now_ns: u64) {
        match self.target(port) {
            Target::Com1(reg) => {
                self.output.com1.extend(self.com1.write(reg, value, now_ns, &mut self.wires))
            }
            Target::Com2(reg) => {
                self.output.com2.extend(self.com2.write(reg, value, now_ns, &mut self.wires))
            }
            Target::Pic { chip, data } => self.wires.pics.write(chip, data, value),
            Target::Elcr(chip) => self.wires.pics.write_elcr(chip, value),
            Target::Pit(reg) => self.pit.write(reg, value, now_ns),
            Target::Port61 => self.pit.write_port61(value, now_ns),
            Target::CmosIndex => self.cmos.select(value),
            Target::CmosData => self.cmos.write(value, now_ns),
            Target::KeyboardData => {
                let effect = self.keyboard.write_data(value);
                self.apply(effect);
            }
            Target::KeyboardStatus => {
                let effect = self.keyboard.write_command(value);
                self.apply(effect);
            }
            Target::Post => self.post.write(value),
            Target::FastA20 => {
                if self.fast_a20.write(value) {
                    self.request_reset(ResetRequest::FastReset);
                }
                self.a20 = self.fast_a20.a20();
            }
            Target::Debug => self.output.e9.push(value),
            Target::Vga => self.vga.write(port, value),
            Target::Floppy(register) => {
                if self.floppy.write(register, value) {
                    self.wires.set_irq(IRQ_FLOPPY, false);
                }
            }
            Target::DmaLow(index) => self.dma.low.write(index, value),
            Target::DmaHigh(index) => self.dma.high.write(index, value),
            Target::DmaPage(index) => self.dma.write_page(index, value),
            Target::AcpiPm(offset) => {
                if let Some(pc) = &mut self.pc {
                    pc.off |= pc.pm.write(offset, value, now_ns);
                }
            }
            Target::PciReset if value & 0x04 != 0 => self.request_reset(ResetRequest::PciReset),
            Target::PciReset | Target::PciConfig | Target::DebugExit | Target::Nothing => {}
            Target::PciData(_) | Target::FwCfgSelect | Target::FwCfgData => {}
        }
    }

    /// Reading the output buffer drops its line, so that a byte that follows at once makes a new edge.
    fn read_keyboard(&mut self) -> u8 {
        let value = self.keyboard.read_data();
        self.wires.set_irq(IRQ_KEYBOARD, false);
        self.wires.set_irq(IRQ_MOUSE, false);
        value
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Reset => self.request_reset(ResetRequest::Keyboard),
            Effect::A20(enabled) => self.a20 = enabled,
        }
    }
}
