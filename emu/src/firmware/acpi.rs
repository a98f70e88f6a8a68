//! ACPI tables (ACPI specification 6.5, chapter 5.2): RSDP, RSDT and XSDT, FADT, FACS, MADT, HPET, and a DSDT with `\_S5`, the
//! PCI root bridge and the virtio devices.

use super::aml::{
    PCI_ROOT, bridge_memory, bridge_ports, bus_zero, device, integer, interrupt, memory32, name, package,
    ports, resources, scope, string,
};
use super::seal;
use crate::devices::acpi_pm::SLP_TYP_S5;
use crate::devices::hpet::{HPET_BASE, HPET_ID};
use crate::devices::ioapic::IOAPIC_BASE;
use crate::devices::lapic::APIC_BASE;
use crate::devices::virtio::WINDOW_BYTES;
use crate::platform::{
    ACPI_PM_PORT, PCI_MEMORY, PlatformConfig, RESET_PORT, SCI_IRQ, VirtioWindow, virtio_windows,
};

/// Offset of a table's checksum.
const CHECKSUM: usize = 9;
/// The value that resets through [`RESET_PORT`].
const RESET_VALUE: u8 = 6;

/// A table from its body: the header of 36 bytes before it (5.2.6).
fn table(signature: &[u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = signature.to_vec();
    bytes.extend((36 + body.len() as u32).to_le_bytes());
    bytes.extend([revision, 0]);
    bytes.extend(b"TRAPLNVIRTPC  ");
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(b"TRAP");
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(body);
    seal(&mut bytes, CHECKSUM);
    bytes
}

/// All tables, for a place in memory that begins at `base` with the RSDP.
pub(super) fn tables(base: u64, config: &PlatformConfig) -> Vec<u8> {
    let mut place = Place { base: base as u32, bytes: vec![0; 64] };
    let facs = place.add(&facs());
    let dsdt = place.add(&dsdt(config));
    let fadt = place.add(&fadt(facs, dsdt));
    let madt = place.add(&madt());
    let hpet = place.add(&hpet());
    let narrow: Vec<u8> = [fadt, madt, hpet].iter().flat_map(|at| at.to_le_bytes()).collect();
    let wide: Vec<u8> = [fadt, madt, hpet].iter().flat_map(|at| u64::from(*at).to_le_bytes()).collect();
    let rsdt = place.add(&table(b"RSDT", 1, &narrow));
    let xsdt = place.add(&table(b"XSDT", 1, &wide));
    let root = rsdp(rsdt, xsdt);
    place.bytes.splice(..root.len(), root);
    place.bytes
}

/// Tables one after the other, each aligned to 64 bytes as the FACS must be.
struct Place {
    base: u32,
    bytes: Vec<u8>,
}

impl Place {
    /// Adds a table; its physical address.
    fn add(&mut self, table: &[u8]) -> u32 {
        let at = self.bytes.len().next_multiple_of(64);
        self.bytes.resize(at, 0);
        self.bytes.extend(table);
        self.base + at as u32
    }
}

/// Revision 2, with a checksum over its first 20 bytes and one over all (5.2.5.3).
fn rsdp(rsdt: u32, xsdt: u32) -> Vec<u8> {
    let mut bytes = b"RSD PTR \0TRAPLN\x02".to_vec();
    bytes.extend(rsdt.to_le_bytes());
    seal(&mut bytes, 8);
    bytes.extend(36u32.to_le_bytes());
    bytes.extend(u64::from(xsdt).to_le_bytes());
    bytes.extend([0; 4]);
    seal(&mut bytes, 32);
    bytes
}

/// Firmware control structure, version 2: no waking vector, no global lock (5.2.10). It has no checksum.
fn facs() -> Vec<u8> {
    let mut bytes = b"FACS".to_vec();
    bytes.extend(64u32.to_le_bytes());
    bytes.resize(64, 0);
    if let Some(version) = bytes.get_mut(32) {
        *version = 2;
    }
    bytes
}

/// Generic address of a port: I/O space, width and access size in bits and code (5.2.3.2).
fn port(at: u16, bits: u8, access: u8) -> Vec<u8> {
    let mut bytes = vec![1, bits, 0, access];
    bytes.extend(u64::from(at).to_le_bytes());
    bytes
}

/// Fixed ACPI description table, revision 5 (5.2.9). ACPI mode is always on, so there is no SMI command port.
fn fadt(facs: u32, dsdt: u32) -> Vec<u8> {
    /// WBINVD works; power and sleep buttons are not fixed hardware; there is a reset register.
    const FLAGS: u32 = 1 | 1 << 4 | 1 << 5 | 1 << 10;
    /// Legacy devices and an 8042; no VGA probing limits.
    const BOOT_ARCHITECTURE: u16 = 0b11;
    let (event, control, timer) = (ACPI_PM_PORT, ACPI_PM_PORT + 4, ACPI_PM_PORT + 8);
    let none = || vec![0; 12];
    let mut b = Vec::new();
    b.extend(facs.to_le_bytes());
    b.extend(dsdt.to_le_bytes());
    // Reserved; preferred profile: desktop.
    b.extend([0, 1]);
    b.extend(u16::from(SCI_IRQ).to_le_bytes());
    // SMI_CMD, ACPI_ENABLE, ACPI_DISABLE, S4BIOS_REQ, PSTATE_CNT.
    b.extend([0; 8]);
    for at in [event, 0, control, 0, 0, timer, 0, 0] {
        b.extend(u32::from(at).to_le_bytes());
    }
    // Lengths of PM1 event, PM1 control, PM2 control, timer, GPE0, GPE1; GPE1 base; CST_CNT.
    b.extend([4, 2, 0, 4, 0, 0, 0, 0]);
    // C2 and C3 latencies: neither state is supported.
    b.extend(101u16.to_le_bytes());
    b.extend(1001u16.to_le_bytes());
    // FLUSH_SIZE, FLUSH_STRIDE, DUTY_OFFSET, DUTY_WIDTH, DAY_ALRM, MON_ALRM; the century is in CMOS byte 32h.
    b.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x32]);
    b.extend(BOOT_ARCHITECTURE.to_le_bytes());
    b.push(0);
    b.extend(FLAGS.to_le_bytes());
    b.extend(port(RESET_PORT, 8, 1));
    b.push(RESET_VALUE);
    // ARM boot flags, minor revision.
    b.extend([0, 0, 0]);
    // Of the two pointers to a table one must be 0 (5.2.9): the 32-bit ones are used for the FACS.
    b.extend(0u64.to_le_bytes());
    b.extend(u64::from(dsdt).to_le_bytes());
    for block in [
        port(event, 32, 2),
        none(),
        port(control, 16, 2),
        none(),
        none(),
        port(timer, 32, 3),
        none(),
        none(),
        none(),
        none(),
    ] {
        b.extend(block);
    }
    table(b"FACP", 5, &b)
}

/// Multiple APIC description table (5.2.12).
fn madt() -> Vec<u8> {
    /// Level-triggered, active high.
    const LEVEL_HIGH: u16 = 0b1101;
    /// Polarity and trigger mode conform to the bus.
    const CONFORMS: u16 = 0;
    /// There are 8259s too.
    const PCAT_COMPATIBLE: u32 = 1;
    let source_override = |irq: u8, gsi: u8, flags: u16| {
        let mut entry = vec![2, 10, 0, irq, gsi, 0, 0, 0];
        entry.extend(flags.to_le_bytes());
        entry
    };
    let mut b = Vec::new();
    b.extend((APIC_BASE as u32).to_le_bytes());
    b.extend(PCAT_COMPATIBLE.to_le_bytes());
    // Local APIC: processor 0, APIC ID 0, enabled.
    b.extend([0, 8, 0, 0, 1, 0, 0, 0]);
    // I/O APIC 1, from interrupt 0 on.
    b.extend([1, 12, 1, 0]);
    b.extend((IOAPIC_BASE as u32).to_le_bytes());
    b.extend([0; 4]);
    b.extend(source_override(0, 2, CONFORMS));
    b.extend(source_override(SCI_IRQ, SCI_IRQ, LEVEL_HIGH));
    // NMI at LINT1 of every processor.
    b.extend([4, 6, 0xff, 0, 0, 1]);
    table(b"APIC", 3, &b)
}

/// HPET description table (IA-PC HPET specification 1.0a, 3.2.4): its identification, its address, number 0.
fn hpet() -> Vec<u8> {
    /// The shortest period that does not lose interrupts, in ticks: one microsecond.
    const LEAST: u16 = 100;
    let mut b = HPET_ID.to_le_bytes().to_vec();
    // In memory.
    b.extend([0, 64, 0, 0]);
    b.extend(HPET_BASE.to_le_bytes());
    b.push(0);
    b.extend(LEAST.to_le_bytes());
    b.push(0);
    table(b"HPET", 1, &b)
}

/// Soft off, the PCI root bridge, and a device for each virtio window that is not on the PCI bus, by which Linux's `virtio_mmio`
/// finds it.
fn dsdt(config: &PlatformConfig) -> Vec<u8> {
    let off = integer(SLP_TYP_S5.into());
    let s5 = name("\\_S5", &package(&[off.clone(), off, integer(0), integer(0)]));
    let windows = virtio_windows(config);
    let mut devices = vec![pci_root(&windows)];
    for (n, window) in (0u8..).zip(windows.iter().filter(|window| window.slot.is_none())) {
        let body = [
            name("_HID", &string("LNRO0005")),
            name("_UID", &integer(n.into())),
            name("_CRS", &resources(&[memory32(window.base as u32, WINDOW_BYTES), interrupt(window.irq)])),
        ];
        devices.push(device(&format!("VR{n:02}"), &body));
    }
    table(b"DSDT", 2, &[s5, scope("\\_SB", &devices)].concat())
}

/// The PCI root bridge, with the interrupt of each device that is plugged in.
fn pci_root(windows: &[VirtioWindow]) -> Vec<u8> {
    let (first, last) = PCI_MEMORY;
    let passes = [
        bus_zero(),
        ports(0xcf8, 8),
        bridge_ports(0, 0xcf7),
        bridge_ports(0xd00, 0xffff),
        bridge_memory(first, last),
    ];
    let routes: Vec<Vec<u8>> = windows
        .iter()
        .filter_map(|window| Some((window.slot?, window.irq)))
        .map(|(slot, irq)| {
            let address = u32::from(slot) << 16 | 0xffff;
            package(&[integer(address), integer(0), integer(0), integer(irq.into())])
        })
        .collect();
    device(
        "PCI0",
        &[
            name("_HID", &integer(PCI_ROOT)),
            name("_BBN", &integer(0)),
            name("_CRS", &resources(&passes)),
            name("_PRT", &package(&routes)),
        ],
    )
}
