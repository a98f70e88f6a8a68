//! The platform: the device cores at their PC port numbers, with their interrupt wires and the port-I/O bus.
//!
//! It holds no register semantics (those are in [`crate::devices`]) and no CPU. Time comes in with each call as
//! virtual nanoseconds that must not decrease. A call to [`Platform::advance`] before something is due changes
//! nothing, so the state depends on what the guest did and when, never on how often the machine asked.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use crate::devices::fdc::Register;
use crate::devices::i8042::Effect;
use crate::devices::pic8259::Chip;
use crate::devices::{Cmos, DebugConsole, DmaPair, FastA20, Fdc, I8042, PicPair, Pit, PostCode, Uart, Vga};

const IRQ_TIMER: u8 = 0;
const IRQ_KEYBOARD: u8 = 1;
const IRQ_FLOPPY: u8 = 6;
const IRQ_RTC: u8 = 8;
const IRQ_MOUSE: u8 = 12;

/// What the platform is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlatformConfig {
    /// Bytes of guest RAM, for the sizes in CMOS.
    pub mem_size: u64,
}

/// Which way the guest asked for a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortCount {
    /// Reads, which gave all ones.
    pub reads: u64,
    /// Writes, which were dropped.
    pub writes: u64,
}

/// Output that the machine has not taken yet, by its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleOut {
    /// Bytes sent by COM1.
    pub com1: Vec<u8>,
    /// Bytes sent by COM2.
    pub com2: Vec<u8>,
    /// Bytes written to port E9h.
    pub e9: Vec<u8>,
}

impl ConsoleOut {
    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.com1.is_empty() && self.com2.is_empty() && self.e9.is_empty()
    }
}

/// A UART with its interrupt wire and the pace of its receiver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Serial {
    uart: Uart,
    irq: u8,
    /// When the receiver has had the time for another character, in ns.
    ready_ns: u64,
}

impl Serial {
    fn new(irq: u8) -> Self {
        Self { uart: Uart::new(), irq, ready_ns: 0 }
    }

    fn next_event(&self) -> Option<u64> {
        self.uart.can_receive().then_some(self.ready_ns)
    }

    /// Receives the characters that are due, one character time apart; tells whether there were any.
    fn advance(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        while self.next_event().is_some_and(|at| at <= now_ns) {
            self.uart.receive();
            self.ready_ns = self.ready_ns.saturating_add(self.uart.char_time_ns());
            any = true;
        }
        any
    }

    /// Accesses the chip. When that makes room in a full receiver, the next character needs its time from now on.
    fn access<T>(&mut self, now_ns: u64, access: impl FnOnce(&mut Uart) -> T) -> T {
        let could = self.uart.can_receive();
        let result = access(&mut self.uart);
        if !could && self.uart.can_receive() {
            self.ready_ns = self.ready_ns.max(now_ns.saturating_add(self.uart.char_time_ns()));
        }
        result
    }
}

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
    /// An empty PCI bus: known, and nothing there.
    PciConfig,
    PciReset,
    Nothing,
}

/// All devices of the machine.
#[derive(Clone, Debug)]
pub struct Platform {
    com1: Serial,
    com2: Serial,
    pics: PicPair,
    pit: Pit,
    cmos: Cmos,
    keyboard: I8042,
    post: PostCode,
    fast_a20: FastA20,
    debug: DebugConsole,
    vga: Vga,
    floppy: Fdc,
    dma: DmaPair,
    a20: bool,
    reset: Option<ResetRequest>,
    output: ConsoleOut,
    unknown: BTreeMap<u16, PortCount>,
}

impl Platform {
    /// The devices as firmware leaves them before it enters a kernel.
    pub fn new(config: &PlatformConfig) -> Self {
        Self {
            com1: Serial::new(4),
            com2: Serial::new(3),
            pics: PicPair::new(),
            pit: Pit::new(),
            cmos: Cmos::new(config.mem_size),
            keyboard: I8042::new(),
            post: PostCode::default(),
            fast_a20: FastA20::default(),
            debug: DebugConsole,
            vga: Vga::new(),
            floppy: Fdc::new(),
            dma: DmaPair::default(),
            a20: true,
            reset: None,
            output: ConsoleOut::default(),
            unknown: BTreeMap::new(),
        }
    }

    /// IN of `size` bytes (1, 2 or 4) at `port`; the result's upper bytes are 0. What an access covers is read byte
    /// by byte from successive ports; ports past FFFFh do not wrap and read all ones.
    pub fn port_read(&mut self, port: u16, size: u8, now_ns: u64) -> u32 {
        self.advance(now_ns);
        self.count_unknown(port, |count| &mut count.reads);
        let mut bytes = [0u8; 4];
        for (byte, offset) in bytes.iter_mut().take(usize::from(size)).zip(0u16..) {
            *byte = match port.checked_add(offset) {
                Some(port) => self.read_byte(port, now_ns),
                None => 0xff,
            };
        }
        self.update_lines();
        u32::from_le_bytes(bytes)
    }

    /// OUT of `size` bytes (1, 2 or 4) at `port`, low byte first to successive ports.
    pub fn port_write(&mut self, port: u16, size: u8, value: u32, now_ns: u64) {
        self.advance(now_ns);
        self.count_unknown(port, |count| &mut count.writes);
        for (byte, offset) in value.to_le_bytes().into_iter().take(usize::from(size)).zip(0u16..) {
            if let Some(port) = port.checked_add(offset) {
                if self.target(port) == Target::PciReset && size != 1 {
                    continue;
                }
                self.write_byte(port, byte, now_ns);
            }
        }
        self.update_lines();
    }

    /// The absolute time in ns at which [`Platform::advance`] must be called next because an interrupt line may
    /// change; never before `now_ns`. `None` if nothing is scheduled.
    pub fn next_event(&self, now_ns: u64) -> Option<u64> {
        [self.pit.next_edge(), self.cmos.next_edge(), self.com1.next_event(), self.com2.next_event()]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.max(now_ns))
    }

    /// Does what is due up to and including `now_ns`; changes nothing if nothing is.
    pub fn advance(&mut self, now_ns: u64) {
        let mut changed = false;
        if self.pit.next_edge().is_some_and(|at| at <= now_ns) && self.pit.take_edge(now_ns) {
            self.pics.pulse_irq(IRQ_TIMER);
        }
        if self.cmos.next_edge().is_some_and(|at| at <= now_ns) {
            self.cmos.advance(now_ns);
            changed = true;
        }
        changed |= self.com1.advance(now_ns);
        changed |= self.com2.advance(now_ns);
        if changed {
            self.update_lines();
        }
    }

    /// Level of the master 8259's INTR pin.
    pub fn intr(&self) -> bool {
        self.pics.intr()
    }

    /// The interrupt-acknowledge cycle: the vector of the request, which is now in service.
    pub fn intr_ack(&mut self) -> u8 {
        self.pics.acknowledge()
    }

    /// Puts bytes on COM1's wire at `now_ns`; they arrive one character time apart. The machine must ask
    /// [`Platform::next_event`] again afterwards.
    pub fn console_input(&mut self, bytes: &[u8], now_ns: u64) {
        if !self.com1.uart.can_receive() {
            self.com1.ready_ns = self.com1.ready_ns.max(now_ns);
        }
        self.com1.uart.push_input(bytes);
    }

    /// Hands in keyboard scan codes (set 1).
    pub fn keyboard_input(&mut self, codes: &[u8]) {
        self.keyboard.push_scancodes(codes);
        self.update_lines();
    }

    /// True if [`Platform::take_output`] has something to give.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Everything the guest has sent since the last call.
    pub fn take_output(&mut self) -> ConsoleOut {
        std::mem::take(&mut self.output)
    }

    /// The first reset that the guest asked for, if any: the machine stops there.
    pub fn reset_requested(&self) -> Option<ResetRequest> {
        self.reset
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
        &self.pics
    }

    /// Feeds the state of every device, and nothing else, to `h`.
    pub fn hash_state(&self, h: &mut impl Hasher) {
        (&self.com1, &self.com2, &self.pics, &self.pit, &self.cmos, &self.keyboard).hash(h);
        (&self.post, &self.fast_a20, &self.debug, &self.vga, &self.floppy, &self.dma).hash(h);
        (self.a20, self.reset).hash(h);
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
            0xcf9 => Target::PciReset,
            0xcf8..=0xcff => Target::PciConfig,
            0x3f0..=0x3f7 => Register::at(low).map_or(Target::Nothing, Target::Floppy),
            _ if self.vga.owns(port) => Target::Vga,
            _ => Target::Nothing,
        }
    }

    fn read_byte(&mut self, port: u16, now_ns: u64) -> u8 {
        match self.target(port) {
            Target::Com1(reg) => self.com1.access(now_ns, |uart| uart.read(reg)),
            Target::Com2(reg) => self.com2.access(now_ns, |uart| uart.read(reg)),
            Target::Pic { chip, data } => self.pics.read(chip, data),
            Target::Elcr(chip) => self.pics.read_elcr(chip),
            Target::Pit(reg) => self.pit.read(reg, now_ns),
            Target::Port61 => self.pit.read_port61(now_ns),
            Target::CmosData => self.cmos.read(now_ns),
            Target::KeyboardData => self.read_keyboard(),
            Target::KeyboardStatus => self.keyboard.read_status(),
            Target::FastA20 => u8::from(self.a20) << 1 | self.fast_a20.read() & 1,
            Target::Debug => self.debug.read(),
            Target::Vga => self.vga.read(port, now_ns),
            Target::Floppy(register) => self.floppy.read(register),
            Target::DmaLow(index) => self.dma.low.read(index),
            Target::DmaHigh(index) => self.dma.high.read(index),
            Target::DmaPage(index) => self.dma.read_page(index),
            Target::CmosIndex | Target::Post | Target::PciConfig | Target::PciReset | Target::Nothing => 0xff,
        }
    }

    fn write_byte(&mut self, port: u16, value: u8, now_ns: u64) {
        match self.target(port) {
            Target::Com1(reg) => {
                self.output.com1.extend(self.com1.access(now_ns, |uart| uart.write(reg, value)))
            }
            Target::Com2(reg) => {
                self.output.com2.extend(self.com2.access(now_ns, |uart| uart.write(reg, value)))
            }
            Target::Pic { chip, data } => self.pics.write(chip, data, value),
            Target::Elcr(chip) => self.pics.write_elcr(chip, value),
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
            Target::Floppy(register) => self.floppy.write(register, value),
            Target::DmaLow(index) => self.dma.low.write(index, value),
            Target::DmaHigh(index) => self.dma.high.write(index, value),
            Target::DmaPage(index) => self.dma.write_page(index, value),
            Target::PciReset if value & 0x04 != 0 => self.request_reset(ResetRequest::PciReset),
            Target::PciReset | Target::PciConfig | Target::Nothing => {}
        }
    }

    /// Reading the output buffer drops its line, so that a byte that follows at once makes a new edge.
    fn read_keyboard(&mut self) -> u8 {
        let value = self.keyboard.read_data();
        self.pics.set_irq(IRQ_KEYBOARD, false);
        self.pics.set_irq(IRQ_MOUSE, false);
        value
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Reset => self.request_reset(ResetRequest::Keyboard),
            Effect::A20(enabled) => self.a20 = enabled,
        }
    }

    fn request_reset(&mut self, request: ResetRequest) {
        self.reset.get_or_insert(request);
    }

    /// Drives every level-holding line to what its device says.
    fn update_lines(&mut self) {
        self.pics.set_irq(self.com1.irq, self.com1.uart.irq());
        self.pics.set_irq(self.com2.irq, self.com2.uart.irq());
        self.pics.set_irq(IRQ_FLOPPY, self.floppy.irq());
        self.pics.set_irq(IRQ_RTC, self.cmos.irq());
        self.pics.set_irq(IRQ_KEYBOARD, self.keyboard.irq1());
        self.pics.set_irq(IRQ_MOUSE, self.keyboard.irq12());
    }
}

#[cfg(test)]
#[path = "platform_tests.rs"]
mod tests;
