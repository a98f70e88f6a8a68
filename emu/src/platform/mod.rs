//! The platform: the device cores at their PC port numbers, with their interrupt wires and the port-I/O bus.
//!
//! It holds no register semantics (those are in [`crate::devices`]) and no CPU. Time comes in with each call as
//! virtual nanoseconds that must not decrease. A call to [`Platform::advance`] before something is due changes
//! nothing, so the state depends on what the guest did and when, never on how often the machine asked.
//!
//! `config` lists the devices and their addresses, `ports` and `mmio` are the buses, `wires` routes the interrupts.

mod config;
mod mmio;
mod ports;
mod serial;
mod stored;
mod typist;
mod wires;

pub(crate) use config::{ACPI_PM_PORT, PCI_MEMORY, RESET_PORT, SCI_IRQ, VirtioWindow, gsi, virtio_windows};
pub use config::{PlatformConfig, PlatformKind, VirtioBus};
pub(crate) use stored::versions;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use crate::devices::{Cmos, DebugConsole, DmaPair, FastA20, Fdc, I8042, PicPair, Pit, PostCode, Vga};
use mmio::PcParts;
use serial::Serial;
use typist::Typist;
use wires::{Apics, Wires};

const IRQ_TIMER: u8 = 0;
const IRQ_KEYBOARD: u8 = 1;
const IRQ_FLOPPY: u8 = 6;
const IRQ_RTC: u8 = 8;
const IRQ_MOUSE: u8 = 12;

/// Which way the guest asked for a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ResetRequest {
    /// The keyboard controller pulsed the reset line (port 64h).
    Keyboard,
    /// Bit 0 of port 92h rose.
    FastReset,
    /// The PCI reset control register (port CF9h).
    PciReset,
}

impl std::fmt::Display for ResetRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keyboard => "the keyboard controller (port 0x64)",
            Self::FastReset => "fast reset (port 0x92)",
            Self::PciReset => "PCI reset control (port 0xcf9)",
        })
    }
}

/// How often a port that no device answers was accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortCount {
    /// Reads, which gave all ones.
    pub reads: u64,
    /// Writes, which were dropped.
    pub writes: u64,
}

/// Output that the machine has not taken yet, by its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleOut {
    /// Bytes sent by COM1.
    pub com1: Vec<u8>,
    /// Bytes sent by COM2.
    pub com2: Vec<u8>,
    /// Bytes written to port E9h.
    pub e9: Vec<u8>,
    /// Bytes sent by the virtio console.
    pub virtio: Vec<u8>,
}

impl ConsoleOut {
    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        [&self.com1, &self.com2, &self.e9, &self.virtio].into_iter().all(Vec::is_empty)
    }
}

/// All devices of the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Platform {
    com1: Serial,
    com2: Serial,
    wires: Wires,
    pit: Pit,
    cmos: Cmos,
    keyboard: I8042,
    typist: Typist,
    post: PostCode,
    fast_a20: FastA20,
    debug: DebugConsole,
    vga: Vga,
    floppy: Fdc,
    dma: DmaPair,
    a20: bool,
    reset: Option<ResetRequest>,
    /// What the guest has written to the debug-exit port.
    exit: Option<u32>,
    pc: Option<PcParts>,
    output: ConsoleOut,
    unknown: BTreeMap<u16, PortCount>,
}

impl Platform {
    /// The devices as firmware leaves them before it enters a kernel.
    pub fn new(config: &PlatformConfig) -> Self {
        Self {
            com1: Serial::new(4),
            com2: Serial::new(3),
            wires: Wires::new(config.kind == PlatformKind::Pc),
            pit: Pit::new(),
            cmos: Cmos::new(config.mem_size),
            keyboard: I8042::new(),
            typist: Typist::default(),
            post: PostCode::default(),
            fast_a20: FastA20::default(),
            debug: DebugConsole,
            vga: Vga::new(),
            floppy: Fdc::new(),
            dma: DmaPair::default(),
            a20: true,
            reset: None,
            exit: None,
            pc: (config.kind == PlatformKind::Pc).then(|| PcParts::new(config)),
            output: ConsoleOut::default(),
            unknown: BTreeMap::new(),
        }
    }

    /// The absolute time in ns at which [`Platform::advance`] must be called next because an interrupt line may
    /// change; never before `now_ns`. `None` if nothing is scheduled.
    pub fn next_event(&self, now_ns: u64) -> Option<u64> {
        let pc = match (&self.wires.apics, &self.pc) {
            (Some(apics), Some(pc)) => earlier(apics.local.next_event(), pc.next_event(now_ns)),
            _ => None,
        };
        let keys = self.typist.next_event(&self.keyboard);
        [
            self.pit.next_edge(),
            self.cmos.next_edge(),
            self.com1.next_event(),
            self.com2.next_event(),
            keys,
            pc,
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|at| at.max(now_ns))
    }

    /// Does what is due up to and including `now_ns`; changes nothing if nothing is.
    pub fn advance(&mut self, now_ns: u64) {
        let mut changed = false;
        let replaced = self.pc.as_ref().is_some_and(|pc| pc.hpet.replaces_legacy());
        if self.pit.next_edge().is_some_and(|at| at <= now_ns) && self.pit.take_edge(now_ns) && !replaced {
            self.wires.pulse_irq(IRQ_TIMER);
        }
        self.advance_hpet(now_ns);
        if self.cmos.next_edge().is_some_and(|at| at <= now_ns) {
            self.cmos.advance(now_ns);
            changed = true;
        }
        changed |= self.com1.advance(now_ns);
        changed |= self.com2.advance(now_ns);
        changed |= self.typist.advance(&mut self.keyboard, now_ns);
        if let (Some(apics), Some(pc)) = (&mut self.wires.apics, &self.pc) {
            apics.local.advance(now_ns);
            changed |= pc.sci_changes(now_ns);
        }
        if changed {
            self.update_lines(now_ns);
        }
    }

    /// Whether the CPU is asked to take an interrupt: by the local APIC, or by the master 8259's INTR pin.
    #[inline]
    pub fn intr(&self) -> bool {
        self.wires.intr()
    }

    /// The interrupt-acknowledge cycle: the vector of the request, which is now in service.
    pub fn intr_ack(&mut self, now_ns: u64) -> u8 {
        self.wires.acknowledge(now_ns)
    }

    /// Puts bytes on COM1's wire at `now_ns`; they arrive one character time apart. The machine must call
    /// [`Platform::next_event`] again afterwards.
    pub fn console_input(&mut self, bytes: &[u8], now_ns: u64) {
        self.com1.input(bytes, now_ns);
    }

    /// Presses keys: scan codes of set 1 from `now_ns` on, each when the guest has read the one before. The machine must call
    /// [`Platform::next_event`] again afterwards.
    pub fn keyboard_input(&mut self, codes: &[u8], now_ns: u64) {
        self.typist.press(codes, now_ns);
    }

    /// True if [`Platform::take_output`] would return output.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Takes over the state of all devices. Host resources, such as a disk's image, stay this machine's.
    pub(crate) fn restore(&mut self, state: &Platform) {
        let before = std::mem::replace(self, state.clone());
        if let (Some(now), Some(before)) = (&mut self.pc, &before.pc) {
            for (now, before) in now.virtio.iter_mut().zip(&before.virtio) {
                now.device.attach_as(&before.device);
            }
            now.fw_cfg.attach_as(&before.fw_cfg);
        }
    }

    /// Everything the guest has sent since the last call.
    pub fn take_output(&mut self) -> ConsoleOut {
        std::mem::take(&mut self.output)
    }

    /// The first reset that the guest asked for, if any: the machine stops there.
    pub fn reset_requested(&self) -> Option<ResetRequest> {
        self.reset
    }

    /// The first value that the guest has written to the debug-exit port, if any: the machine stops there.
    #[inline]
    pub fn exit_requested(&self) -> Option<u32> {
        self.exit
    }

    /// Whether the guest has switched the machine off: it stops there.
    #[inline]
    pub fn powered_off(&self) -> bool {
        self.pc.as_ref().is_some_and(|pc| pc.off)
    }

    /// Accesses to ports that no device answers, by the port of the access. They are no part of the digest.
    pub fn unknown_ports(&self) -> &BTreeMap<u16, PortCount> {
        &self.unknown
    }

    /// The diagnostic codes written to port 80h.
    pub fn post_code(&self) -> PostCode {
        self.post
    }

    /// True if address line 20 is enabled, by the last of port 92h and the keyboard controller to switch it.
    pub fn a20(&self) -> bool {
        self.a20
    }

    /// The VGA registers, for the start address and cursor of the text screen.
    pub fn vga(&self) -> &Vga {
        &self.vga
    }

    /// The interrupt controllers, for reports.
    pub fn pics(&self) -> &PicPair {
        &self.wires.pics
    }

    /// Feeds the state of every device, and nothing else, to `h`.
    pub fn hash_state(&self, h: &mut impl Hasher) {
        (&self.com1, &self.com2, &self.wires, &self.pit, &self.cmos, &self.keyboard).hash(h);
        (&self.post, &self.fast_a20, &self.debug, &self.vga, &self.floppy, &self.dma).hash(h);
        (self.a20, self.reset).hash(h);
        if !self.typist.is_idle() {
            self.typist.hash(h);
        }
        if let Some(value) = self.exit {
            value.hash(h);
        }
        if let (Some(apics), Some(pc)) = (&self.wires.apics, &self.pc) {
            (apics, pc).hash(h);
        }
    }

    fn request_reset(&mut self, request: ResetRequest) {
        self.reset.get_or_insert(request);
    }

    /// Drives every level-triggered line to its device's level.
    fn update_lines(&mut self, now_ns: u64) {
        self.wires.pics_accessed();
        self.wires.set_irq(self.com1.irq, self.com1.uart.irq());
        self.wires.set_irq(self.com2.irq, self.com2.uart.irq());
        self.wires.set_irq(IRQ_FLOPPY, self.floppy.irq());
        // With legacy replacement, the HPET drives this wire.
        if !self.pc.as_ref().is_some_and(|pc| pc.hpet.replaces_legacy()) {
            self.wires.set_irq(IRQ_RTC, self.cmos.irq());
        }
        self.wires.set_irq(IRQ_KEYBOARD, self.keyboard.irq1());
        self.wires.set_irq(IRQ_MOUSE, self.keyboard.irq12());
        if let Some(pc) = &mut self.pc {
            pc.sci = pc.pm.sci(now_ns);
            self.wires.set_irq(SCI_IRQ, pc.sci);
        }
    }
}

fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        _ => a.or(b),
    }
}

#[cfg(test)]
mod tests;
