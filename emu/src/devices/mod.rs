//! Device cores: pure synchronous state machines of a PC's chips: the legacy ones, the APICs, ACPI's registers,
//! and virtio devices.
//!
//! A core knows registers and nothing else: no port numbers, no bus, no interrupt controller, no host clock.
//! Where a chip has a notion of time, the caller hands in virtual nanoseconds with each call. [`crate::platform`]
//! is the thin attachment that gives the cores ports and wires.
//!
//! Invariants: every core derives `Clone` (a clone is its snapshot) and `Hash` (its part of the machine's digest),
//! and says the version of its stored form (`Stored`);
//! no value written by a guest can panic; equal inputs at equal times give equal states.

pub mod acpi_pm;
pub mod cmos;
pub mod dma8237;
pub mod fdc;
pub mod fw_cfg;
pub mod hpet;
pub mod i8042;
pub mod ioapic;
pub mod lapic;
pub mod misc;
pub mod pci;
pub mod pic8259;
pub mod pit8254;
mod stored;
pub mod time;
pub mod uart16550;
pub mod vga;
pub mod virtio;

pub use acpi_pm::AcpiPm;
pub use cmos::Cmos;
pub use dma8237::DmaPair;
pub use fdc::Fdc;
pub use fw_cfg::FwCfg;
pub use hpet::Hpet;
pub use i8042::I8042;
pub use ioapic::IoApic;
pub use lapic::LocalApic;
pub use misc::{DebugConsole, FastA20, PostCode};
pub use pci::PciBus;
pub use pic8259::PicPair;
pub use pit8254::Pit;
pub(crate) use stored::{Stored, bytes};
pub use uart16550::Uart;
pub use vga::{Vga, text_screen};
