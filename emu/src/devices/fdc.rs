//! The floppy disk controller of a PC/AT, without drives: Intel 82077AA (data sheet, order 290166) with the 82078's
//! PART ID command (order 290474).
//!
//! Every PC/AT has the controller, and drivers wait for its interrupt. Every command completes at once, a data command
//! abnormally. Its results without drives are those of QEMU 7.2's `hw/block/fdc.c`, on which a seek to cylinder 0
//! "finds" it; except that READ ID and FORMAT TRACK fail too, that main status is 0 during reset, and that DOR,
//! DUMPREG, LOCK and the drive bits follow the data sheet. Not modelled: DMA requests.

use serde::{Deserialize, Serialize};

/// The result of PART ID: bits 7-5 are 010b, the 82078SL's.
const PART_ID: u8 = 0x41;
/// The result of VERSION: an enhanced controller.
const ENHANCED: u8 = 0x90;
const INVALID: u8 = 0x80;
/// Sector size code in results: 512 bytes.
const SIZE_CODE: u8 = 2;

const DOR_RUN: u8 = 0x04;
const DOR_DMA_GATE: u8 = 0x08;
const DSR_RESET: u8 = 0x80;
const DSR_POWER_DOWN: u8 = 0x40;
const MSR_READY: u8 = 0x80;
const MSR_TO_HOST: u8 = 0x40;
const MSR_BUSY: u8 = 0x10;
const ST0_ABNORMAL: u8 = 0x40;
const ST0_SEEK_END: u8 = 0x20;
/// Interrupt code 3: the drive's ready line changed, as polling finds after a reset.
const ST0_POLLING: u8 = 0xc0;
const ST1_END_OF_CYLINDER: u8 = 0x80;
const ST1_NO_ADDRESS_MARK: u8 = 0x01;
/// ST3: fixed ones, drive ready and two-sided.
const ST3_FIXED: u8 = 0x28;
const ST3_TRACK0: u8 = 0x10;
const CONFIG_FIFO_OFF: u8 = 0x20;
/// The parts of CONFIGURE's second byte that no software reset touches: implied seek and polling.
const CONFIG_KEPT: u8 = 0x50;
/// Bytes of the longest command or result.
const LONGEST: usize = 10;

/// The registers of the controller, by their offset from 3F0h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// 3F0h, status A (read only).
    StatusA,
    /// 3F1h, status B (read only).
    StatusB,
    /// 3F2h, digital output.
    DigitalOutput,
    /// 3F3h, tape drive.
    Tape,
    /// 3F4h, main status; data rate select when written.
    MainStatus,
    /// 3F5h, the FIFO.
    Fifo,
    /// 3F7h, digital input; configuration control when written.
    DigitalInput,
}

impl Register {
    /// The register at a port's offset from 3F0h; `None` for 3F6h, which is a disk controller's.
    pub fn at(offset: u8) -> Option<Self> {
        Some(match offset {
            0 => Self::StatusA,
            1 => Self::StatusB,
            2 => Self::DigitalOutput,
            3 => Self::Tape,
            4 => Self::MainStatus,
            5 => Self::Fifo,
            7 => Self::DigitalInput,
            _ => return None,
        })
    }
}

/// Why the interrupt pin is raised, or was until SENSE INTERRUPT STATUS reported the first drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Interrupt {
    None,
    /// After a reset the polling reports four drives in turn; this is the next.
    Polling(u8),
    /// A seek ended: status register 0.
    Seek(u8),
    /// A result waits; reading it is the acknowledgement.
    Result,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Phase {
    Command,
    Result,
}

/// The commands, by their number of parameter bytes and what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Specify,
    SenseDrive,
    Recalibrate,
    SenseInterrupt,
    DumpRegisters,
    Seek,
    Version,
    Perpendicular,
    Configure,
    Lock,
    PartId,
    ReadId,
    Format,
    /// READ, WRITE, READ TRACK, VERIFY and the SCANs.
    Transfer,
    /// READ and WRITE DELETED DATA.
    Deleted,
    Invalid,
}

impl Command {
    /// Bits 7-5 are flags (multitrack, MFM, skip), to the commands that have them.
    fn decode(byte: u8) -> Self {
        match byte {
            0x03 => Self::Specify,
            0x04 => Self::SenseDrive,
            0x07 => Self::Recalibrate,
            0x08 => Self::SenseInterrupt,
            0x0e => Self::DumpRegisters,
            // With bit 7 these are relative seeks; without a drive there is no position to seek from.
            0x0f | 0x8f | 0xcf => Self::Seek,
            0x10 => Self::Version,
            0x12 => Self::Perpendicular,
            0x13 => Self::Configure,
            0x14 | 0x94 => Self::Lock,
            0x18 => Self::PartId,
            _ => match byte & 0x1f {
                0x0a if byte & 0xa0 == 0 => Self::ReadId,
                0x0d if byte & 0xa0 == 0 => Self::Format,
                0x02 if byte & 0xa0 == 0 => Self::Transfer,
                0x05 | 0x06 | 0x11 | 0x16 | 0x19 | 0x1d => Self::Transfer,
                0x09 if byte & 0x20 == 0 => Self::Deleted,
                0x0c => Self::Deleted,
                _ => Self::Invalid,
            },
        }
    }

    fn parameters(self) -> u8 {
        match self {
            Self::SenseInterrupt | Self::DumpRegisters | Self::Version => 0,
            Self::Lock | Self::PartId | Self::Invalid => 0,
            Self::SenseDrive | Self::Recalibrate | Self::Perpendicular | Self::ReadId => 1,
            Self::Specify | Self::Seek => 2,
            Self::Configure => 3,
            Self::Format => 5,
            Self::Transfer | Self::Deleted => 8,
        }
    }
}

/// The controller. See the module's text for what it does without drives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fdc {
    dor: u8,
    tape: u8,
    dsr: u8,
    phase: Phase,
    /// The command with its parameters, or the result.
    bytes: [u8; LONGEST],
    /// Bytes of the command written, or of the result read.
    position: u8,
    /// Bytes of the result.
    length: u8,
    interrupt: Interrupt,
    pin: bool,
    /// SPECIFY's two bytes.
    timers: [u8; 2],
    /// CONFIGURE's second and third byte.
    config: [u8; 2],
    perpendicular: u8,
    lock: bool,
    /// The last sector number that a data command named.
    end_of_track: u8,
}

impl Default for Fdc {
    fn default() -> Self {
        Self::new()
    }
}

impl super::Stored for Fdc {
    const NAME: &str = "floppy controller";
    const VERSION: u16 = 1;

    fn is_sound(&self) -> bool {
        usize::from(self.position.max(self.length)) <= LONGEST
    }
}

impl Fdc {
    /// A controller that firmware left running, with the interrupt gate on and nothing pending.
    pub fn new() -> Self {
        Self {
            dor: DOR_RUN | DOR_DMA_GATE,
            tape: 0,
            dsr: 0,
            phase: Phase::Command,
            bytes: [0; LONGEST],
            position: 0,
            length: 0,
            interrupt: Interrupt::None,
            pin: false,
            timers: [0; 2],
            config: [CONFIG_KEPT & 0x40 | CONFIG_FIFO_OFF, 0],
            perpendicular: 0,
            lock: false,
            end_of_track: 0,
        }
    }

    /// Level of the interrupt line: the pin. A PC/AT's adapter gates it by bit 3 of the digital output register; QEMU's does
    /// not, and a kernel that was written with QEMU at hand may leave the bit clear.
    pub fn irq(&self) -> bool {
        self.pin
    }

    /// Reads a register.
    pub fn read(&mut self, register: Register) -> u8 {
        match register {
            // Bit 7 is the pin, bit 6 says that there is no second drive.
            Register::StatusA => u8::from(self.pin) << 7 | 0x40,
            // Bits 7-6 are fixed; drive 0 selected, motors of drives 1 and 0.
            Register::StatusB => 0xc0 | (self.dor & 1) << 5 | self.dor >> 4 & 3,
            Register::DigitalOutput => self.dor,
            Register::Tape => self.tape,
            Register::MainStatus => self.main_status(),
            Register::Fifo => self.read_result(),
            // No drive asserts the disk change line.
            Register::DigitalInput => 0x80,
        }
    }

    /// Writes a register; true if the interrupt line was low for a moment, whatever its level is now. In reset only the
    /// digital output register can be written.
    pub fn write(&mut self, register: Register, value: u8) -> bool {
        let running = self.dor & DOR_RUN != 0;
        match register {
            Register::DigitalOutput => {
                self.dor = value;
                if !running && value & DOR_RUN != 0 {
                    self.reset();
                } else if value & DOR_RUN == 0 {
                    self.pin = false;
                }
            }
            _ if !running => {}
            Register::Tape => self.tape = value & 0x04,
            Register::MainStatus => {
                self.dsr = value & !DSR_RESET;
                if value & (DSR_RESET | DSR_POWER_DOWN) != 0 {
                    self.reset();
                    return true;
                }
            }
            Register::Fifo => self.write_command(value),
            Register::DigitalInput => self.dsr = self.dsr & !3 | value & 3,
            Register::StatusA | Register::StatusB => {}
        }
        false
    }

    fn main_status(&self) -> u8 {
        if self.dor & DOR_RUN == 0 {
            return 0;
        }
        match self.phase {
            Phase::Command if self.position == 0 => MSR_READY,
            Phase::Command => MSR_READY | MSR_BUSY,
            Phase::Result => MSR_READY | MSR_TO_HOST | MSR_BUSY,
        }
    }

    /// Leaves reset, by either register. Unless locked, the FIFO is switched off.
    fn reset(&mut self) {
        self.phase = Phase::Command;
        self.position = 0;
        self.perpendicular &= 0x3c;
        self.dsr &= !DSR_POWER_DOWN;
        if !self.lock {
            self.config = [self.config[0] & CONFIG_KEPT | CONFIG_FIFO_OFF, 0];
        }
        self.raise(Interrupt::Polling(0));
    }

    fn raise(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
        self.pin = true;
    }

    fn write_command(&mut self, value: u8) {
        if self.phase != Phase::Command {
            return;
        }
        if let Some(byte) = self.bytes.get_mut(usize::from(self.position)) {
            *byte = value;
        }
        self.position += 1;
        let [code, ..] = self.bytes;
        let command = Command::decode(code);
        if self.position > command.parameters() {
            self.position = 0;
            self.execute(command);
        }
    }

    fn read_result(&mut self) -> u8 {
        if self.phase != Phase::Result || self.dor & DOR_RUN == 0 {
            return 0;
        }
        let byte = self.bytes.get(usize::from(self.position)).copied().unwrap_or(0);
        self.position += 1;
        if self.interrupt == Interrupt::Result {
            self.interrupt = Interrupt::None;
            self.pin = false;
        }
        if self.position >= self.length {
            self.phase = Phase::Command;
            self.position = 0;
        }
        byte
    }

    fn answer(&mut self, result: &[u8]) {
        for (byte, value) in self.bytes.iter_mut().zip(result) {
            *byte = *value;
        }
        self.length = result.len().min(LONGEST) as u8;
        self.phase = Phase::Result;
    }

    fn execute(&mut self, command: Command) {
        let [code, first, second, third, ..] = self.bytes;
        match command {
            Command::Specify => self.timers = [first, second],
            Command::SenseDrive => self.answer(&[ST3_FIXED | ST3_TRACK0 | first & 0x07]),
            Command::Recalibrate | Command::Seek => self.raise(Interrupt::Seek(ST0_SEEK_END | first & 3)),
            Command::SenseInterrupt => self.sense_interrupt(),
            Command::DumpRegisters => self.dump_registers(),
            Command::Version => self.answer(&[ENHANCED]),
            Command::Perpendicular => {
                // Bit 7 allows the drive bits to be written.
                let kept = if first & 0x80 == 0 { self.perpendicular & 0x3c } else { first & 0x3c };
                self.perpendicular = kept | first & 3;
            }
            Command::Configure => self.config = [second, third],
            Command::Lock => {
                self.lock = code & 0x80 != 0;
                self.answer(&[u8::from(self.lock) << 4]);
            }
            Command::PartId => self.answer(&[PART_ID]),
            Command::ReadId => self.fail(ST0_ABNORMAL, ST1_NO_ADDRESS_MARK, [0, first >> 2 & 1, 0]),
            Command::Format => self.fail(ST0_ABNORMAL, 0, [0; 3]),
            Command::Deleted => self.fail(ST0_ABNORMAL | ST0_SEEK_END, 0, [0; 3]),
            Command::Transfer => self.transfer(),
            Command::Invalid => self.answer(&[INVALID]),
        }
    }

    /// READ and similar commands: without a medium, cylinder 0 of head 0 exists but has no sector.
    fn transfer(&mut self) {
        let [_, _, cylinder, head, sector, _, last, ..] = self.bytes;
        self.end_of_track = last;
        let beyond = cylinder == 0 && head == 0 && sector != 0;
        let status1 = if beyond { ST1_END_OF_CYLINDER } else { 0 };
        self.fail(ST0_ABNORMAL, status1, [cylinder, head, sector]);
    }

    /// Ends a data command with its seven result bytes and an interrupt.
    fn fail(&mut self, status0: u8, status1: u8, at: [u8; 3]) {
        let status0 = status0 | self.bytes[1] & 3;
        let [cylinder, head, sector] = at;
        self.answer(&[status0, status1, 0, cylinder, head, sector, SIZE_CODE]);
        self.raise(Interrupt::Result);
    }

    fn sense_interrupt(&mut self) {
        let (status0, next) = match self.interrupt {
            Interrupt::Polling(drive) if drive < 3 => (ST0_POLLING | drive, Interrupt::Polling(drive + 1)),
            Interrupt::Polling(drive) => (ST0_POLLING | drive & 3, Interrupt::None),
            Interrupt::Seek(status0) => (status0, Interrupt::None),
            Interrupt::None | Interrupt::Result => return self.answer(&[INVALID]),
        };
        self.interrupt = next;
        self.pin = false;
        self.answer(&[status0, 0]);
    }

    fn dump_registers(&mut self) {
        let [timer0, timer1] = self.timers;
        let [config, precompensation] = self.config;
        let modes = u8::from(self.lock) << 7 | self.perpendicular;
        self.answer(&[0, 0, 0, 0, timer0, timer1, self.end_of_track, modes, config, precompensation]);
    }
}

#[cfg(test)]
#[path = "fdc_tests.rs"]
mod tests;
