//! The answers are those of QEMU 7.2 (`-M isapc -nodefaults -S -qtest stdio`), but where a test says otherwise.

use super::*;

fn command(fdc: &mut Fdc, bytes: &[u8]) -> Vec<u8> {
    for byte in bytes {
        assert_eq!(fdc.read(Register::MainStatus) & 0xc0, 0x80);
        fdc.write(Register::Fifo, *byte);
    }
    let mut result = Vec::new();
    while fdc.read(Register::MainStatus) & 0xc0 == 0xc0 {
        result.push(fdc.read(Register::Fifo));
    }
    assert_eq!(fdc.read(Register::MainStatus), 0x80);
    result
}

fn sense(fdc: &mut Fdc) -> Vec<u8> {
    command(fdc, &[8])
}

/// Four reports, one for each drive there could be; the first takes the interrupt away.
fn polls(fdc: &mut Fdc) {
    assert!(fdc.irq());
    for drive in 0..4 {
        assert_eq!(sense(fdc), [0xc0 | drive, 0]);
        assert!(!fdc.irq());
    }
    assert_eq!(sense(fdc), [0x80]);
}

#[test]
fn starts_like_qemu() {
    let mut fdc = Fdc::new();
    let registers = (0..8).map(|offset| Register::at(offset).map(|register| fdc.read(register)));
    // isapc leaves 3F0h out; the others are QEMU's.
    let expected = [Some(0x40), Some(0xc0), Some(0x0c), Some(0), Some(0x80), Some(0), None, Some(0x80)];
    assert_eq!(registers.collect::<Vec<_>>(), expected);
    assert_eq!(sense(&mut fdc), [0x80]);
    assert_eq!(command(&mut fdc, &[0x0e]), [0, 0, 0, 0, 0, 0, 0, 0, 0x60, 0]);
}

#[test]
fn both_resets_report_four_drives() {
    let mut fdc = Fdc::new();
    fdc.write(Register::DigitalOutput, 0x08);
    assert_eq!((fdc.read(Register::DigitalOutput), fdc.read(Register::MainStatus)), (0x08, 0));
    assert!(!fdc.irq());
    fdc.write(Register::DigitalOutput, 0x0c);
    assert_eq!(fdc.read(Register::StatusA), 0xc0);
    polls(&mut fdc);
    assert!(fdc.write(Register::MainStatus, 0x80), "a reset ends an interrupt, and makes one");
    polls(&mut fdc);
}

#[test]
fn the_gate_does_not_hold_the_line_back() {
    let mut fdc = Fdc::new();
    fdc.write(Register::DigitalOutput, 0);
    assert!(!fdc.write(Register::DigitalOutput, 0x04));
    assert!(fdc.irq());
    // Entering reset drops it.
    fdc.write(Register::DigitalOutput, 0x08);
    assert!(!fdc.irq());
}

#[test]
fn identifies_itself() {
    let mut fdc = Fdc::new();
    for (bytes, expected) in [
        (&[0x10][..], &[0x90][..]),
        (&[0x13, 0, 0x1a, 0], &[]),
        (&[0x12, 0x80], &[]),
        (&[0x14], &[0]),
        (&[0x94], &[0x10]),
        (&[0x14], &[0]),
        (&[0x18], &[0x41]),
        (&[0x04, 0], &[0x38]),
        (&[0x1f], &[0x80]),
        (&[0x00], &[0x80]),
    ] {
        assert_eq!(command(&mut fdc, bytes), expected, "{bytes:02x?}");
        assert!(!fdc.irq());
    }
}

#[test]
fn seeks_end_at_once() {
    let mut fdc = Fdc::new();
    for (bytes, status0) in [(&[7, 0][..], 0x20), (&[0x0f, 1, 5], 0x21)] {
        assert_eq!(command(&mut fdc, bytes), []);
        assert!(fdc.irq());
        assert_eq!(sense(&mut fdc), [status0, 0]);
        assert!(!fdc.irq());
        assert_eq!(sense(&mut fdc), [0x80]);
    }
}

#[test]
fn data_commands_fail() {
    let mut fdc = Fdc::new();
    for (bytes, result) in [
        (&[0xe6, 0, 0, 0, 1, 2, 18, 0x1b, 0xff][..], [0x40, 0x80, 0, 0, 0, 1, 2]),
        (&[0xe6, 0, 0, 0, 0, 2, 18, 0x1b, 0xff], [0x40, 0, 0, 0, 0, 0, 2]),
        (&[0xc5, 1, 3, 0, 1, 2, 18, 0x1b, 0xff], [0x41, 0, 0, 3, 0, 1, 2]),
        // QEMU formats and finds an address mark where there is no drive.
        (&[0x4d, 0, 2, 18, 0x54, 0xf6], [0x40, 0, 0, 0, 0, 0, 2]),
        (&[0x4a, 0], [0x40, 1, 0, 0, 0, 0, 2]),
    ] {
        for byte in bytes {
            assert!(!fdc.irq());
            fdc.write(Register::Fifo, *byte);
        }
        assert!(fdc.irq());
        assert_eq!(fdc.read(Register::MainStatus), 0xd0);
        assert_eq!(result.map(|_| fdc.read(Register::Fifo)), result, "{bytes:02x?}");
        assert!(!fdc.irq());
        assert_eq!(sense(&mut fdc), [0x80]);
    }
}

#[test]
fn dumpreg_and_lock_follow_the_data_sheet() {
    let mut fdc = Fdc::new();
    command(&mut fdc, &[3, 0xdf, 2]);
    command(&mut fdc, &[0x13, 0, 0x5a, 7]);
    command(&mut fdc, &[0x12, 0x85]);
    command(&mut fdc, &[0x94]);
    fdc.write(Register::MainStatus, 0x80);
    assert_eq!(command(&mut fdc, &[0x0e]), [0, 0, 0, 0, 0xdf, 2, 0, 0x84, 0x5a, 7]);
    command(&mut fdc, &[0x14]);
    fdc.write(Register::MainStatus, 0x80);
    assert_eq!(command(&mut fdc, &[0x0e]), [0, 0, 0, 0, 0xdf, 2, 0, 0x04, 0x70, 0]);
}

#[test]
fn no_access_can_break_it() {
    let mut fdc = Fdc::new();
    let mut seed = 7u64;
    for _ in 0..200_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let [.., value, offset] = seed.to_le_bytes();
        let Some(register) = Register::at(offset & 7) else { continue };
        if offset & 0x80 == 0 {
            fdc.write(register, value | if register == Register::DigitalOutput { 4 } else { 0 });
        } else {
            fdc.read(register);
        }
    }
}
