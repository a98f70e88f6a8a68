//! The devices together: wires, ports and time.

use std::collections::hash_map::DefaultHasher;

use super::*;

fn platform() -> Platform {
    let mut platform = Platform::new(&PlatformConfig::minimal(64 << 20));
    for (port, value) in [(0x20, 0x11), (0x21, 0x20), (0x21, 0x04), (0x21, 0x01), (0x21, 0x00)] {
        platform.port_write(port, 1, value, 0);
    }
    for (port, value) in [(0xa0, 0x11), (0xa1, 0x28), (0xa1, 0x02), (0xa1, 0x01), (0xa1, 0x00)] {
        platform.port_write(port, 1, value, 0);
    }
    platform
}

fn digest(platform: &Platform) -> u64 {
    let mut hasher = DefaultHasher::new();
    platform.hash_state(&mut hasher);
    hasher.finish()
}

#[test]
fn timer_interrupt_at_its_exact_nanosecond() {
    let mut p = platform();
    p.port_write(0x43, 1, 0x34, 1000);
    p.port_write(0x40, 1, 0x9c, 1000);
    p.port_write(0x40, 1, 0x2e, 1000);
    let due = p.next_event(1000).unwrap();
    assert_eq!(due, crate::devices::time::ns_of_tick(2 + 0x2e9c, 1_193_182));
    p.advance(due - 1);
    assert!(!p.intr());
    p.advance(due);
    assert!(p.intr());
    assert_eq!(p.intr_ack(0), 0x20);
    assert!(!p.intr());
    assert!(p.next_event(due).unwrap() > due);
}

#[test]
fn asking_more_often_gives_the_same_state() {
    let run = |step: u64| {
        let mut p = platform();
        p.console_input(b"hello", 0);
        for (port, value) in [(0x70, 0x0b), (0x71, 0x72), (0x3f9, 0x01), (0x21, 0x00)] {
            p.port_write(port, 1, value, 10);
        }
        let (mut now, end, mut vectors) = (10, 60_000_000, Vec::new());
        while now < end {
            let event = p.next_event(now).unwrap().min(end);
            while now + step < event {
                now += step;
                p.advance(now);
            }
            now = event;
            p.advance(now);
            while p.intr() {
                vectors.push((now, p.intr_ack(now)));
                p.port_write(0xa0, 1, 0x20, now);
                p.port_write(0x20, 1, 0x20, now);
                p.port_write(0x70, 1, 0x0c, now);
                p.port_read(0x71, 1, now);
                p.port_read(0x3f8, 1, now);
            }
        }
        (vectors, digest(&p))
    };
    let seldom = run(u64::MAX / 4);
    assert_eq!(seldom, run(777));
    assert!(seldom.0.iter().any(|(_, vector)| *vector == 0x24) && seldom.0.iter().any(|(_, v)| *v == 0x28));
}

#[test]
fn typed_characters_arrive_one_at_a_time() {
    let mut p = platform();
    p.port_write(0x3f9, 1, 0x01, 0);
    p.console_input(b"ab", 100);
    assert_eq!(p.next_event(100), Some(100));
    p.advance(100);
    assert_eq!(p.intr_ack(0), 0x24);
    p.port_write(0x20, 1, 0x20, 100);
    assert_eq!(p.next_event(100).map(|at| at > 2_000_000), Some(true), "the receiver is full");
    assert_eq!(p.port_read(0x3f8, 1, 200), u32::from(b'a'));
    let due = p.next_event(200).unwrap();
    assert_eq!(due, 200 + 12 * 160 * 1_000_000_000 / 1_843_200);
    assert!(!p.intr());
    p.advance(due);
    assert!(p.intr(), "a new edge for the second character");
    assert_eq!(p.port_read(0x3f8, 1, due), u32::from(b'b'));
}

#[test]
fn unknown_ports_read_all_ones_and_are_counted() {
    let mut p = platform();
    assert_eq!(p.port_read(0x1234, 1, 0), 0xff);
    assert_eq!(p.port_read(0x1234, 2, 0), 0xffff);
    assert_eq!(p.port_read(0x1234, 4, 0), 0xffff_ffff);
    p.port_write(0x3e8, 1, 0, 0);
    assert_eq!(p.unknown_ports().get(&0x1234), Some(&PortCount { reads: 3, writes: 0 }));
    assert_eq!(p.unknown_ports().get(&0x3e8), Some(&PortCount { reads: 0, writes: 1 }));
    p.port_write(0xcf8, 4, 0x8000_0000, 0);
    assert_eq!(p.port_read(0xcf8, 4, 0), 0xffff_ffff);
    assert_eq!(p.port_read(0xcfc, 2, 0), 0xffff);
    assert_eq!(p.unknown_ports().len(), 2);
    assert_eq!(p.port_read(0xffff, 4, 0), 0xffff_ffff);
}

#[test]
fn wide_accesses_are_split() {
    let mut p = platform();
    p.port_write(0x3d4, 2, 0x0f | 0x55 << 8, 0);
    assert_eq!(p.vga().cursor(), 0x55);
    assert_eq!(p.port_read(0x3d4, 2, 0), 0x550f);
}

#[test]
fn outputs_are_separate() {
    let mut p = platform();
    p.port_write(0x3f8, 1, 0x41, 0);
    p.port_write(0x2f8, 1, 0x42, 0);
    p.port_write(0xe9, 1, 0x43, 0);
    assert!(p.has_output());
    let expected =
        ConsoleOut { com1: b"A".to_vec(), com2: b"B".to_vec(), e9: b"C".to_vec(), virtio: Vec::new() };
    assert_eq!(p.take_output(), expected);
    assert!(!p.has_output());
    assert_eq!(p.port_read(0xe9, 1, 0), 0xe9);
}

#[test]
fn resets_are_reported_and_the_first_one_stays() {
    for (port, value, expected) in [
        (0x64, 0xfe, ResetRequest::Keyboard),
        (0x92, 0x03, ResetRequest::FastReset),
        (0xcf9, 0x06, ResetRequest::PciReset),
    ] {
        let mut p = platform();
        assert_eq!(p.reset_requested(), None);
        p.port_write(port, 1, value, 0);
        p.port_write(0x64, 1, 0xfe, 0);
        assert_eq!(p.reset_requested(), Some(expected));
    }
}

#[test]
fn keyboard_bytes_in_a_row_each_make_an_edge() {
    let mut p = platform();
    p.port_write(0x60, 1, 0xff, 0);
    for expected in [0xfa, 0xaa] {
        assert!(p.intr());
        assert_eq!(p.intr_ack(0), 0x21);
        assert_eq!(p.port_read(0x60, 1, 0), expected);
        p.port_write(0x20, 1, 0x20, 0);
    }
    assert!(!p.intr());
}

#[test]
fn a20_follows_the_last_switch() {
    let mut p = platform();
    assert!(p.a20());
    p.port_write(0x64, 1, 0xdd, 0);
    assert!(!p.a20());
    assert_eq!(p.port_read(0x92, 1, 0), 0);
    p.port_write(0x92, 1, 0x02, 0);
    assert!(p.a20());
}

#[test]
fn no_port_access_can_break_it() {
    let mut p = platform();
    let mut seed = 3u64;
    for step in 0..300_000u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let now = step * 1_234;
        let port = (seed >> 48) as u16 & if seed & 0x100_0000 == 0 { 0x3ff } else { 0xffff };
        let size = [1, 2, 4][(seed >> 30) as usize % 3];
        if seed & 0x8000_0000 == 0 {
            p.port_read(port, size, now);
        } else {
            p.port_write(port, size, (seed >> 16) as u32, now);
        }
        if p.intr() {
            p.intr_ack(0);
        }
        let _ = p.next_event(now);
        p.take_output();
    }
    p.port_write(0x40, 1, 0, u64::MAX);
    p.advance(u64::MAX);
}

#[test]
fn the_floppy_controller_interrupts_after_its_reset() {
    let mut p = platform();
    p.port_write(0x3f2, 1, 0x08, 0);
    assert!(!p.intr());
    p.port_write(0x3f2, 1, 0x0c, 0);
    assert!(p.intr());
    assert_eq!(p.intr_ack(0), 0x26);
    p.port_write(0x3f5, 1, 0x08, 0);
    assert_eq!((p.port_read(0x3f5, 1, 0), p.port_read(0x3f5, 1, 0)), (0xc0, 0));
    assert_eq!(p.port_read(0x3f6, 1, 0), 0xff);
}

#[test]
fn dma_registers_are_at_their_ports() {
    let mut p = platform();
    for (port, value) in [(0x0c, 0), (0x04, 0x12), (0x04, 0x34), (0xd8, 0), (0xc4, 0x56), (0x81, 0x78)] {
        p.port_write(port, 1, value, 0);
    }
    assert_eq!([0x04, 0x04, 0x81].map(|port| p.port_read(port, 1, 0)), [0x12, 0x34, 0x78]);
    p.port_write(0xd8, 1, 0, 0);
    assert_eq!(p.port_read(0xc4, 1, 0), 0x56);
}

mod pc {
    use super::*;

    const IOAPIC: u64 = 0xfec0_0000;
    const APIC: u64 = 0xfee0_0000;

    fn pc() -> Platform {
        Platform::new(&PlatformConfig::pc(64 << 20))
    }

    /// Programs pin `pin` with the low half of a redirection entry.
    fn redirect(p: &mut Platform, pin: u32, entry: u32) {
        p.mmio_write(IOAPIC, 4, 0x10 + 2 * pin, 0);
        p.mmio_write(IOAPIC + 0x10, 4, entry, 0);
    }

    #[test]
    fn the_timer_comes_by_pin_two_and_by_the_8259() {
        let mut p = pc();
        redirect(&mut p, 2, 0x31);
        let due = p.next_event(0).unwrap();
        p.advance(due);
        assert!(p.intr());
        assert_eq!(p.intr_ack(due), 0x31);
        assert!(!p.intr(), "the 8259 has it masked");
        p.mmio_write(APIC + 0xb0, 4, 0, due);
        p.port_write(0x21, 1, 0xfa, due);
        assert_eq!(p.intr_ack(due), 0x08, "and through LINT0 as firmware leaves it");
    }

    #[test]
    fn the_8259_is_heard_through_pin_zero_too() {
        let mut p = pc();
        p.mmio_write(APIC + 0x350, 4, 0x1_0700, 0);
        p.port_write(0x21, 1, 0xfe, 0);
        p.advance(p.next_event(0).unwrap());
        assert!(!p.intr());
        redirect(&mut p, 0, 0x700);
        assert!(p.intr());
        assert_eq!(p.intr_ack(0), 0x08);
    }

    #[test]
    fn a_level_interrupt_comes_again_until_its_source_is_quiet() {
        let mut p = pc();
        redirect(&mut p, 4, 0x8034);
        p.port_write(0x3fc, 1, 0x0b, 0);
        p.port_write(0x3f9, 1, 0x02, 0);
        assert_eq!(p.intr_ack(0), 0x34);
        assert!(!p.intr());
        p.mmio_write(APIC + 0xb0, 4, 0, 0);
        assert_eq!(p.intr_ack(0), 0x34, "the transmitter is still empty");
        p.port_write(0x3f9, 1, 0, 0);
        p.mmio_write(APIC + 0xb0, 4, 0, 0);
        assert!(!p.intr());
    }

    #[test]
    fn soft_off_is_asked_for_at_the_acpi_ports() {
        let mut p = pc();
        p.port_write(0x604, 2, 0x3400, 0);
        assert!(p.powered_off());
        let mut minimal = platform();
        minimal.port_write(0x604, 2, 0x3400, 0);
        assert!(!minimal.powered_off());
        assert_eq!(minimal.port_read(0x608, 4, 0), 0xffff_ffff);
    }

    #[test]
    fn the_pci_bus_has_its_bridges() {
        let mut p = pc();
        p.port_write(0xcf8, 4, 0x8000_0000, 0);
        assert_eq!(p.port_read(0xcf8, 4, 0), 0x8000_0000);
        assert_eq!(p.port_read(0xcfc, 4, 0), 0x1237_8086);
        p.port_write(0xcf8, 4, 0x8000_1000, 0);
        assert_eq!(p.port_read(0xcfc, 4, 0), 0xffff_ffff, "no device 2");
        p.port_write(0xcf8, 4, 0xffff_ffff, 0);
        assert_eq!(p.port_read(0xcf8, 4, 0), 0x80ff_fffc);
        p.port_write(0xcf9, 1, 0x06, 0);
        assert_eq!(p.reset_requested(), Some(ResetRequest::PciReset));
    }

    #[test]
    fn the_minimal_platform_has_no_memory_mapped_devices() {
        let (mut p, q) = (platform(), pc());
        for page in [IOAPIC, APIC, 0xfed0_0000] {
            assert!(!p.has_mmio(page) && q.has_mmio(page));
            assert_eq!(p.mmio_read(page, 2, 0), 0xffff);
        }
        assert!(!q.has_mmio(0xfeb0_0000));
        assert_eq!((p.apic_base(), q.apic_base()), (None, Some(0xfee0_0900)));
    }

    /// The capability of type 5 (virtio 1.2, 4.1.4.9): the registers of a device through its configuration space.
    #[test]
    fn a_virtio_device_is_reached_through_its_configuration_space() {
        let config = PlatformConfig { entropy: true, virtio: VirtioBus::Pci, ..PlatformConfig::pc(64 << 20) };
        let mut p = Platform::new(&config);
        let base = 0xfeb0_2000;
        let select = |p: &mut Platform, at: u32| p.port_write(0xcf8, 4, 0x8000_0000 | 4 << 11 | at, 0);
        let read = |p: &mut Platform, at: u32| {
            select(p, at);
            p.port_read(0xcfc, 4, 0)
        };
        let mut at = read(&mut p, 0x34);
        let mut kinds = Vec::new();
        while at != 0 {
            let (head, here) = (read(&mut p, at), at);
            kinds.push((head >> 24, here));
            at = head >> 8 & 0xff;
        }
        assert_eq!(kinds.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [1, 3, 2, 4, 5]);
        let window = kinds.last().unwrap().1;
        assert_eq!(read(&mut p, window) >> 16 & 0xff, 20, "its length");
        let access = |p: &mut Platform, offset: u32, length: u32, value: Option<u32>| {
            for (field, value) in [(4, 0), (8, offset), (12, length)] {
                select(p, window + field);
                p.port_write(0xcfc, if field == 4 { 1 } else { 4 }, value, 0);
            }
            select(p, window + 16);
            match value {
                Some(value) => {
                    p.port_write(0xcfc, length as u8, value, 0);
                    value
                }
                None => p.port_read(0xcfc, length as u8, 0),
            }
        };
        assert_eq!(access(&mut p, 0x12, 2, None), p.mmio_read(base + 0x12, 2, 0), "queues");
        assert_eq!(access(&mut p, 0x04, 4, None), p.mmio_read(base + 0x04, 4, 0), "features");
        access(&mut p, 0x14, 1, Some(3));
        assert_eq!(p.mmio_read(base + 0x14, 1, 0), 3, "status");
        access(&mut p, 0x14, 3, Some(1));
        access(&mut p, 0x15, 2, Some(1));
        access(&mut p, 0x1000, 4, Some(1));
        assert_eq!(access(&mut p, 0x14, 1, None), 3, "an access that cannot be made does nothing");
        select(&mut p, 4);
        p.port_write(0xcfc, 2, 0, 0);
        access(&mut p, 0x14, 1, Some(1));
        assert_eq!(
            p.mmio_read(base + 0x14, 1, 0),
            3,
            "nor does one while the device answers no memory access"
        );
    }

    #[test]
    fn no_memory_access_can_break_it() {
        let disk = crate::devices::virtio::DiskImage::from_bytes(&[0; 4096]).unwrap();
        let config = PlatformConfig { disk: Some(disk), console: true, ..PlatformConfig::pc(64 << 20) };
        let (mut p, mut ram) = (Platform::new(&config), crate::Ram::new(1 << 20).unwrap());
        let mut seed = 5u64;
        for step in 0..300_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let now = step * 999;
            let page = [IOAPIC, APIC, 0xfeb0_0000, 0xfeb0_1000][(seed >> 60) as usize % 4];
            let (at, size) = (page + (seed >> 40 & 0xffc), [1, 2, 4, 4][(seed >> 30) as usize % 4]);
            match seed >> 20 & 3 {
                0 => drop(p.mmio_read(at, size, now)),
                1 => p.port_write(0x600 + (seed >> 50) as u16 % 16, 1, (seed >> 8) as u32, now),
                _ => p.mmio_write(at, size, (seed >> 12) as u32, now),
            }
            if p.intr() {
                p.intr_ack(now);
            }
            p.advance(p.next_event(now).unwrap_or(now).min(now));
            p.dma(&mut ram, now);
        }
    }
}
