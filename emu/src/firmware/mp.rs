//! The MP table (Intel MultiProcessor Specification 1.4, chapter 4): one CPU, a PCI and an ISA bus, an
//! I/O APIC.

use super::seal;
use crate::devices::ioapic::IOAPIC_BASE;
use crate::devices::lapic::APIC_BASE;
use crate::platform::{PlatformConfig, gsi, virtio_windows};

const IOAPIC_ID: u8 = 1;
/// A PCI bus has its own number as its identifier.
const PCI_BUS: u8 = 0;
const ISA_BUS: u8 = 1;

/// Interrupt types.
const INT: u8 = 0;
const NMI: u8 = 1;
const EXTINT: u8 = 3;

/// Polarity and trigger mode conform to the bus.
const CONFORMS: u16 = 0;

/// Entry types.
const PROCESSOR: u8 = 0;
const BUS: u8 = 1;
const IOAPIC: u8 = 2;
const IO_INTERRUPT: u8 = 3;
const LOCAL_INTERRUPT: u8 = 4;

/// The floating pointer structure at `base` and the configuration table after it.
pub(super) fn table(base: u64, config: &PlatformConfig) -> Vec<u8> {
    let table_at = base as u32 + 16;
    let mut bytes = b"_MP_".to_vec();
    bytes.extend(table_at.to_le_bytes());
    // One paragraph, revision 1.4, checksum, a table is there, no IMCR: virtual-wire mode.
    bytes.extend([1, 4, 0, 0, 0, 0, 0, 0]);
    seal(&mut bytes, 10);
    bytes.extend(configuration(config));
    bytes
}

fn configuration(config: &PlatformConfig) -> Vec<u8> {
    let entries = entries(config);
    let mut bytes = b"PCMP".to_vec();
    let length = 44 + entries.iter().map(Vec::len).sum::<usize>();
    bytes.extend((length as u16).to_le_bytes());
    bytes.extend([4, 0]);
    bytes.extend(b"TRAPLINEvirtual PC  ");
    // No OEM table.
    bytes.extend([0; 6]);
    bytes.extend((entries.len() as u16).to_le_bytes());
    bytes.extend((APIC_BASE as u32).to_le_bytes());
    bytes.extend([0; 4]);
    entries.iter().for_each(|entry| bytes.extend(entry));
    seal(&mut bytes, 7);
    bytes
}

fn entries(config: &PlatformConfig) -> Vec<Vec<u8>> {
    let mut entries = vec![processor(), bus(PCI_BUS, b"PCI   "), bus(ISA_BUS, b"ISA   "), ioapic()];
    // Interrupt A of each device on the PCI bus.
    let on_pci = virtio_windows(config).into_iter().filter_map(|window| Some((window.slot?, window.irq)));
    entries.extend(
        on_pci.map(|(slot, irq)| interrupt(IO_INTERRUPT, INT, (PCI_BUS, slot << 2), (IOAPIC_ID, irq))),
    );
    // The 8259 pair is wired to pin 0 as well.
    entries.push(interrupt(IO_INTERRUPT, EXTINT, (ISA_BUS, 0), (IOAPIC_ID, 0)));
    for irq in 0..16 {
        if let Some(pin) = gsi(irq) {
            entries.push(interrupt(IO_INTERRUPT, INT, (ISA_BUS, irq), (IOAPIC_ID, pin)));
        }
    }
    entries.push(interrupt(LOCAL_INTERRUPT, EXTINT, (ISA_BUS, 0), (0, 0)));
    entries.push(interrupt(LOCAL_INTERRUPT, NMI, (ISA_BUS, 0), (0xff, 1)));
    entries
}

fn processor() -> Vec<u8> {
    // APIC ID 0, version 14h, usable and the bootstrap processor, family 6, feature flags with FPU and APIC.
    let mut entry = vec![PROCESSOR, 0, 0x14, 3];
    entry.extend(0x0000_0600u32.to_le_bytes());
    entry.extend(0x0000_0201u32.to_le_bytes());
    entry.extend([0; 8]);
    entry
}

fn bus(number: u8, kind: &[u8; 6]) -> Vec<u8> {
    let mut entry = vec![BUS, number];
    entry.extend(kind);
    entry
}

fn ioapic() -> Vec<u8> {
    let mut entry = vec![IOAPIC, IOAPIC_ID, 0x11, 1];
    entry.extend((IOAPIC_BASE as u32).to_le_bytes());
    entry
}

/// An interrupt, from a bus and a number on it to a pin of an APIC.
fn interrupt(entry: u8, kind: u8, (bus, irq): (u8, u8), (apic, pin): (u8, u8)) -> Vec<u8> {
    let [low, high] = CONFORMS.to_le_bytes();
    vec![entry, kind, low, high, bus, irq, apic, pin]
}
