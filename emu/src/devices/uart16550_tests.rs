//! What the serial port's registers read, and when its interrupt line rises and falls.

use super::*;
use Step::{Read, Time, Write};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A register, and the value that is read.
    Read(u8, u8),
    /// A register, and the value that is written.
    Write(u8, u8),
    /// Character times that pass.
    Time(u64),
}

/// A UART, how often its line rose, and the time.
struct Wired {
    uart: Uart,
    now_ns: u64,
    level: bool,
    rises: u32,
}

impl Wired {
    fn new() -> Self {
        Self { uart: Uart::new(), now_ns: 0, level: false, rises: 0 }
    }

    fn drive(&mut self, level: bool) {
        self.rises += u32::from(level && !self.level);
        self.level = level;
    }

    /// Takes a step; whether the line rose, and its level.
    fn take(&mut self, step: Step) -> (u32, bool) {
        let before = self.rises;
        match step {
            Read(register, value) => {
                assert_eq!(self.uart.read(register, self.now_ns), value, "register {register}")
            }
            Write(register, value) => {
                if self.uart.write(register, value, self.now_ns).fell {
                    self.drive(false);
                }
            }
            Time(characters) => {
                self.now_ns += characters * self.uart.char_time_ns();
                if self.uart.time_out_ns().is_some_and(|at| at <= self.now_ns) {
                    self.uart.time_out();
                }
            }
        }
        self.drive(self.uart.irq());
        (self.rises - before, self.level)
    }
}

fn check(steps: &[(Step, u32, bool)]) {
    let mut wired = Wired::new();
    for (n, (step, rises, level)) in steps.iter().enumerate() {
        assert_eq!(wired.take(*step), (*rises, *level), "step {n}: {step:?}");
    }
}

#[test]
fn the_transmitter_interrupts_once_for_each_byte() {
    check(&[
        (Write(1, 2), 1, true),
        (Write(1, 2), 0, true),
        (Write(0, b'a'), 1, true),
        (Write(0, b'b'), 1, true),
        (Read(2, 0x02), 0, false),
        (Read(2, 0x01), 0, false),
        (Write(0, b'c'), 1, true),
        (Write(1, 0), 0, false),
        (Write(0, b'd'), 0, false),
        (Write(1, 2), 1, true),
        (Read(2, 0x02), 0, false),
        (Write(2, 1), 1, true),
        (Write(0, b'e'), 1, true),
    ]);
}

/// Also without OUT2, which gates nothing.
#[test]
fn the_receiver_of_one_byte_is_overrun_in_loop_back() {
    check(&[
        (Write(4, 0x10), 0, false),
        (Write(1, 5), 0, false),
        (Write(0, 0x41), 1, true),
        (Read(2, 0x04), 0, true),
        (Read(5, 0x61), 0, true),
        (Read(0, 0x41), 0, false),
        (Write(0, 0x42), 1, true),
        (Write(0, 0x43), 0, true),
        (Read(2, 0x06), 0, true),
        (Read(5, 0x63), 0, true),
        (Read(5, 0x61), 0, true),
        (Read(2, 0x04), 0, true),
        (Read(0, 0x43), 0, false),
    ]);
}

#[test]
fn the_fifo_times_out_again_after_each_read() {
    check(&[
        (Write(4, 0x10), 0, false),
        (Write(2, 0x41), 0, false),
        (Write(1, 1), 0, false),
        (Write(0, 1), 0, false),
        (Write(0, 2), 0, false),
        (Time(3), 0, false),
        (Write(0, 3), 0, false),
        (Time(3), 0, false),
        (Read(2, 0xc1), 0, false),
        (Time(1), 1, true),
        (Read(2, 0xcc), 0, true),
        (Read(0, 1), 0, false),
        (Time(4), 1, true),
        (Write(0, 4), 0, true),
        (Write(0, 5), 0, true),
        (Read(2, 0xcc), 0, true),
        // Three are left, fewer than the trigger.
        (Read(0, 2), 0, false),
        (Write(0, 6), 1, true),
        (Read(2, 0xc4), 0, true),
        (Write(2, 0x43), 0, false),
        (Time(9), 0, false),
    ]);
}

#[test]
fn the_digest_of_a_silent_port_does_not_know_the_time_out() {
    let digest = |uart: &Uart| {
        let mut h = std::collections::hash_map::DefaultHasher::new();
        uart.hash(&mut h);
        h.finish()
    };
    let mut uart = Uart::new();
    uart.write(2, 0x41, 0);
    let silent = digest(&uart);
    uart.push_input(b"a");
    assert!(uart.receive(5));
    let [waits, later] = [5u64, 6].map(|at| {
        uart.await_time_out(at);
        digest(&uart)
    });
    assert!(silent != waits && waits != later);
    uart.read(0, 7);
    assert_eq!(digest(&uart), silent);
}

#[test]
fn divisor_latch_hides_data_and_ier() {
    let mut uart = Uart::new();
    uart.write(3, 0x83, 0);
    assert_eq!(uart.write(0, 0x01, 0), Written::default());
    uart.write(1, 0x00, 0);
    assert_eq!((uart.read(0, 0), uart.read(1, 0)), (1, 0));
    assert_eq!(uart.char_time_ns(), 86_805);
    uart.write(3, 0x03, 0);
    assert_eq!(uart.write(0, b'A', 0).sent, Some(b'A'));
    assert_eq!(uart.read(1, 0), 0);
}

#[test]
fn input_waits_on_the_wire_until_there_is_room() {
    let mut uart = Uart::new();
    uart.write(1, 0x01, 0);
    uart.push_input(b"ab");
    assert_eq!(uart.read(5, 0), 0x60);
    assert!(uart.receive(0));
    assert!(!uart.receive(0), "without FIFOs the receiver holds one byte");
    assert_eq!(uart.read(5, 0), 0x61);
    assert_eq!(uart.read(2, 0), 0x04);
    assert_eq!(uart.read(0, 0), b'a');
    assert!(!uart.irq());
    assert!(uart.receive(0));
    assert_eq!(uart.read(0, 0), b'b');
}

#[test]
fn clearing_the_fifo_loses_nothing_that_is_still_on_the_wire() {
    let mut uart = Uart::new();
    uart.write(2, 0x81, 0);
    uart.write(1, 0x01, 0);
    uart.push_input(&[0; 20]);
    while uart.receive(0) {}
    assert_eq!(uart.read(2, 0), 0xc4);
    uart.write(2, 0x83, 0);
    assert_eq!(uart.read(2, 0), 0xc1);
    assert!(uart.can_receive(), "the four bytes still on the wire were not lost");
}

#[test]
fn loop_back_as_linux_probes_it() {
    let mut uart = Uart::new();
    uart.write(4, 0x1a, 0);
    assert_eq!(uart.read(6, 0) & 0xf0, 0x90);
    assert_eq!(uart.write(0, 0x5a, 0).sent, None);
    assert_eq!(uart.read(0, 0), 0x5a);
    uart.write(4, 0x0b, 0);
    assert_eq!(uart.read(6, 0) & 0xf0, 0xb0);
}

#[test]
fn scratch_and_read_only_registers() {
    let mut uart = Uart::new();
    uart.write(7, 0xa5, 0);
    uart.write(5, 0, 0);
    assert_eq!((uart.read(7, 0), uart.read(5, 0)), (0xa5, 0x60));
    uart.write(1, 0xff, 0);
    assert_eq!(uart.read(1, 0), 0x0f);
}
