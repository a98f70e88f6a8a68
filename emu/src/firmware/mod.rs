//! What firmware would leave in memory, as bytes at physical addresses: the BIOS data areas, the MP table and the ACPI
//! tables.
//!
//! Pure functions of the platform's configuration. They describe the devices of [`crate::platform`], and take addresses
//! and interrupt numbers from there. All tables lie below 1 MiB, where a system looks for them.

mod acpi;
mod aml;
mod bda;
pub mod memory_map;
mod mp;

use crate::platform::{PlatformConfig, PlatformKind};
use std::ops::Range;

/// Physical addresses that the tables take: a memory map must not call them usable.
pub const RESERVED: Range<u64> = 0xf_0000..0x10_0000;

/// Where conventional memory ends and the extended BIOS data area begins.
pub const CONVENTIONAL_END: u64 = 0x9_fc00;

/// The name that boot protocols tell a kernel.
pub(crate) const LOADER_NAME: &str = "trapline";

/// MP floating pointer and configuration table.
const MP_BASE: u64 = 0xf_0000;
/// ACPI's root pointer; the tables follow it.
const ACPI_BASE: u64 = 0xf_1000;

/// Bytes of ACPI's root pointer.
pub(crate) const RSDP_BYTES: usize = 36;

/// What firmware leaves in the RAM of a platform, as physical addresses and bytes. The minimal platform has the BIOS data
/// areas only.
pub fn tables(config: &PlatformConfig) -> Vec<(u64, Vec<u8>)> {
    let mut tables = bda::areas().to_vec();
    if config.kind == PlatformKind::Pc {
        tables.push((MP_BASE, mp::table(MP_BASE, config)));
        tables.push((ACPI_BASE, acpi::tables(ACPI_BASE, config)));
    }
    tables
}

/// Physical address of ACPI's root pointer, for boot protocols that hand it over.
pub fn rsdp(config: &PlatformConfig) -> Option<u64> {
    (config.kind == PlatformKind::Pc).then_some(ACPI_BASE)
}

/// Sets the byte at `at` so that all bytes sum to zero.
fn seal(bytes: &mut [u8], at: usize) {
    let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    if let Some(byte) = bytes.get_mut(at) {
        *byte = byte.wrapping_sub(sum);
    }
}

#[cfg(test)]
mod tests;
