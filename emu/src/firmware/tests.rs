//! The tables as a system reads them, and as `iasl` disassembles them.

use super::*;
use crate::devices::virtio::DiskImage;
use std::collections::BTreeMap;
use std::process::Command;

fn config() -> PlatformConfig {
    let disk = Some(DiskImage::from_bytes(&[0; 512]).unwrap());
    PlatformConfig { disk, console: true, ..PlatformConfig::pc(64 << 20) }
}

/// The bytes at `at`, out of what firmware left.
fn memory(at: u64, length: usize) -> Vec<u8> {
    let found = tables(&config()).into_iter().find_map(|(base, bytes)| {
        let from = usize::try_from(at.checked_sub(base)?).ok()?;
        Some(bytes.get(from..from + length)?.to_vec())
    });
    found.unwrap_or_else(|| panic!("nothing at {at:#x}"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn sums_to_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

/// A table by its address, checked.
fn acpi_table(at: u64) -> (String, Vec<u8>) {
    let length = u32_at(&memory(at, 8), 4) as usize;
    let bytes = memory(at, length);
    let signature = String::from_utf8(bytes[..4].to_vec()).unwrap();
    assert!(signature == "FACS" || sums_to_zero(&bytes), "{signature}");
    (signature, bytes)
}

/// All ACPI tables, by way of the XSDT.
fn acpi_tables() -> BTreeMap<String, Vec<u8>> {
    let root = memory(rsdp(&config()).unwrap(), 36);
    assert!(root.starts_with(b"RSD PTR ") && sums_to_zero(&root[..20]) && sums_to_zero(&root));
    let (rsdt, xsdt) = (acpi_table(u32_at(&root, 16).into()), acpi_table(u32_at(&root, 24).into()));
    let wide = xsdt.1[36..].chunks(8).map(|at| u64::from_le_bytes(at.try_into().unwrap()));
    let narrow = rsdt.1[36..].chunks(4).map(|at| u64::from(u32_at(at, 0)));
    let wide: Vec<u64> = wide.collect();
    assert!(narrow.eq(wide.iter().copied()));
    let mut found = BTreeMap::from([rsdt, xsdt]);
    found.extend(wide.into_iter().map(acpi_table));
    let fadt = &found["FACP"];
    let (facs, dsdt) = (u32_at(fadt, 36), u32_at(fadt, 40));
    assert_eq!((facs % 64, u32_at(fadt, 140)), (0, dsdt));
    found.extend([acpi_table(facs.into()), acpi_table(dsdt.into())]);
    found
}

/// The same devices on the PCI bus.
fn on_pci() -> PlatformConfig {
    PlatformConfig { virtio: crate::platform::VirtioBus::Pci, entropy: true, ..config() }
}

#[test]
fn devices_on_the_pci_bus_are_not_described_by_address() {
    let all: Vec<u8> = tables(&on_pci()).into_iter().flat_map(|(_, bytes)| bytes).collect();
    let has = |needle: &[u8]| memchr::memmem::find(&all, needle).is_some();
    assert!(has(b"PCI0") && !has(b"LNRO0005"));
    // From bus 0, device 2, pin A to pin 10 of I/O APIC 1; and the same in the root bridge's list.
    assert!(has(&[3, 0, 0, 0, 0, 2 << 2, 1, 10]));
    assert!(has(&[0x12, 11, 4, 0x0c, 0xff, 0xff, 2, 0, 0, 0, 0x0a, 10]));
}

#[test]
fn the_bios_data_area_leads_to_the_extended_one_on_every_platform() {
    for config in [config(), PlatformConfig::minimal(1 << 20)] {
        let found: BTreeMap<u64, Vec<u8>> = tables(&config).into_iter().collect();
        let word = |at: usize| u16::from_le_bytes(found[&0x400][at..at + 2].try_into().unwrap());
        let extended = u64::from(word(0x0e)) * 16;
        // Its size is its first byte, and both end where video memory begins.
        assert_eq!(extended + u64::from(found[&extended][0]) * 1024, 0xa_0000);
        assert_eq!(u64::from(word(0x13)) * 1024, extended);
        assert_eq!((word(0), word(2), word(0x10), word(0x4a)), (0x3f8, 0x2f8, 0x0422, 80));
    }
}

#[test]
fn all_tables_are_where_they_should_be_and_sum_up() {
    for (at, bytes) in tables(&config()).into_iter().filter(|(at, _)| *at >= 0xe_0000) {
        assert!(RESERVED.contains(&at) && at + bytes.len() as u64 <= RESERVED.end);
        assert_eq!(at % 16, 0);
    }
    let found = acpi_tables();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["APIC", "DSDT", "FACP", "FACS", "HPET", "RSDT", "XSDT"]);
    assert_eq!(found["FACP"].len(), 268, "revision 5");
    assert!(tables(&PlatformConfig::minimal(64 << 20)).iter().all(|(at, _)| *at < 0xe_0000));
}

#[test]
fn the_mp_table_adds_up() {
    let floating = memory(MP_BASE, 16);
    assert!(floating.starts_with(b"_MP_") && sums_to_zero(&floating));
    let at = u64::from(u32_at(&floating, 4));
    let length = usize::from(u16::from_le_bytes(memory(at + 4, 2).try_into().unwrap()));
    let table = memory(at, length);
    assert!(table.starts_with(b"PCMP") && sums_to_zero(&table));
    let count = u16::from_le_bytes(table[34..36].try_into().unwrap());
    let (mut rest, mut seen, mut timer) = (&table[44..], 0, None);
    while let Some(kind) = rest.first() {
        let entry = &rest[..if *kind == 0 { 20 } else { 8 }];
        if entry[..2] == [3, 0] && entry[4] == 1 && entry[5] == 0 {
            timer = Some(entry[7]);
        }
        rest = &rest[entry.len()..];
        seen += 1;
    }
    assert_eq!((seen, timer), (count, Some(2)), "the timer is at pin 2");
}

/// ACPICA's own reading of the tables.
#[test]
fn iasl_reads_them_without_complaint() {
    let there = Command::new("iasl").arg("-v").output();
    assert!(there.is_ok(), "iasl is missing: `make bootstrap` installs it (package acpica-tools)");
    let folder = std::env::temp_dir().join(format!("trapline-acpi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (signature, bytes) in acpi_tables() {
        std::fs::write(folder.join(format!("{signature}.dat")), bytes).unwrap();
        let out =
            Command::new("iasl").current_dir(&folder).args(["-d", &format!("{signature}.dat")]).output();
        let text = String::from_utf8_lossy(&out.unwrap().stderr).into_owned();
        assert!(!text.contains("Error") && !text.contains("Warning"), "{signature}: {text}");
    }
    let dsdt = std::fs::read_to_string(folder.join("DSDT.dsl")).unwrap();
    let fadt = std::fs::read_to_string(folder.join("FACP.dsl")).unwrap();
    for text in
        ["LNRO0005", "0xFEB00000", "0xFEB01000", "Interrupt (ResourceConsumer, Level, ActiveHigh, Exclusive"]
    {
        assert!(dsdt.contains(text), "{text} is missing in {dsdt}");
    }
    assert!(!fadt.contains("Invalid"), "{fadt}");
    std::fs::remove_dir_all(folder).unwrap();
}
