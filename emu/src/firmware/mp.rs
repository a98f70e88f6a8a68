//! The MP table (Intel MultiProcessor Specification 1.4, chapter 4): one CPU, an ISA bus, an I/O APIC.

use super::seal;
use crate::devices::ioapic::IOAPIC_BASE;
use crate::devices::lapic::APIC_BASE;
use crate::platform::gsi;

const IOAPIC_ID: u8 = 1;
const ISA_BUS: u8 = 0;

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
pub(super) fn table(base: u64) -> Vec<u8> {
    let table_at = base as u32 + 16;
    let mut bytes = b"_MP_".to_vec();
    bytes.extend(table_at.to_le_bytes());
    // One paragraph, revision 1.4, checksum, a table is there, no IMCR: virtual-wire mode.
    bytes.extend([1, 4, 0, 0, 0, 0, 0, 0]);
    seal(&mut bytes, 10);
    bytes.extend(configuration());
    bytes
}

fn configuration() -> Vec<u8> {
    let entries = entries();
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

fn entries() -> Vec<Vec<u8>> {
    let mut entries = vec![processor(), bus(), ioapic()];
    // The 8259 pair is wired to pin 0 as well.
    entries.push(interrupt(IO_INTERRUPT, EXTINT, 0, IOAPIC_ID, 0));
    for irq in 0..16 {
        if let Some(pin) = gsi(irq) {
            entries.push(interrupt(IO_INTERRUPT, INT, irq, IOAPIC_ID, pin));
        }
    }
    entries.push(interrupt(LOCAL_INTERRUPT, EXTINT, 0, 0, 0));
    entries.push(interrupt(LOCAL_INTERRUPT, NMI, 0, 0xff, 1));
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

fn bus() -> Vec<u8> {
    let mut entry = vec![BUS, ISA_BUS];
    entry.extend(b"ISA   ");
    entry
}

fn ioapic() -> Vec<u8> {
    let mut entry = vec![IOAPIC, IOAPIC_ID, 0x11, 1];
    entry.extend((IOAPIC_BASE as u32).to_le_bytes());
    entry
}

fn interrupt(entry: u8, kind: u8, irq: u8, apic: u8, pin: u8) -> Vec<u8> {
    let [low, high] = CONFORMS.to_le_bytes();
    vec![entry, kind, low, high, ISA_BUS, irq, apic, pin]
}
