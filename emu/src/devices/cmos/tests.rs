//! Behaviour of the clock against the MC146818A data sheet.

use super::*;

const SEC: u64 = NS_PER_SEC;

fn get(cmos: &mut Cmos, index: u8, now: u64) -> u8 {
    cmos.select(index);
    cmos.read(now)
}

fn put(cmos: &mut Cmos, index: u8, value: u8, now: u64) {
    cmos.select(index);
    cmos.write(value, now);
}

#[test]
fn starts_on_a_fixed_saturday_and_advances_with_virtual_time() {
    let mut cmos = Cmos::new(64 << 20);
    let date = |cmos: &mut Cmos, now| [0x32, 9, 8, 7, 6, 4, 2, 0].map(|index| get(cmos, index, now));
    assert_eq!(date(&mut cmos, 0), [0x20, 0x00, 0x01, 0x01, 0x07, 0, 0, 0]);
    assert_eq!(date(&mut cmos, 86_399 * SEC), [0x20, 0x00, 0x01, 0x01, 0x07, 0x23, 0x59, 0x59]);
    assert_eq!(date(&mut cmos, 86_400 * SEC), [0x20, 0x00, 0x01, 0x02, 0x01, 0, 0, 0]);
}

#[test]
fn binary_and_twelve_hour_formats() {
    let mut cmos = Cmos::new(64 << 20);
    let now = 13 * 3600 * SEC + 45 * SEC;
    put(&mut cmos, 0x0b, 0x04, now);
    assert_eq!((get(&mut cmos, 4, now), get(&mut cmos, 0, now)), (0x81, 45));
    put(&mut cmos, 0x0b, 0x00, now);
    assert_eq!(get(&mut cmos, 0, now), 0x45);
    assert_eq!(get(&mut Cmos::new(0), 4, 0), 0x00);
}

#[test]
fn setting_the_time_with_set() {
    let mut cmos = Cmos::new(64 << 20);
    put(&mut cmos, 0x0b, 0x82, 0);
    for (index, value) in [(0, 0x30), (2, 0x59), (4, 0x23), (7, 0x31), (8, 0x12), (9, 0x99), (0x32, 0x19)] {
        put(&mut cmos, index, value, SEC);
    }
    assert_eq!(get(&mut cmos, 0, 50 * SEC), 0x30, "stopped");
    put(&mut cmos, 0x0b, 0x02, 100 * SEC);
    assert_eq!(get(&mut cmos, 0, 100 * SEC + SEC - 1), 0x30);
    assert_eq!(get(&mut cmos, 9, 130 * SEC), 0x00);
    assert_eq!(get(&mut cmos, 0x32, 130 * SEC), 0x20);
}

#[test]
fn update_in_progress_precedes_each_second() {
    let mut cmos = Cmos::new(64 << 20);
    assert_eq!(get(&mut cmos, 0x0a, 0), 0x26);
    assert_eq!(get(&mut cmos, 0x0a, SEC - 1000), 0xa6);
    assert_eq!(get(&mut cmos, 0x0a, SEC), 0x26);
}

#[test]
fn periodic_interrupt_at_1024_hz() {
    let mut cmos = Cmos::new(64 << 20);
    assert_eq!(cmos.next_edge(), None);
    put(&mut cmos, 0x0b, 0x42, 0);
    for tick in 1..=2048u64 {
        let due = cmos.next_edge().unwrap();
        assert_eq!(due, ns_of_tick(tick * 32, BASE_HZ));
        cmos.advance(due - 1);
        assert!(!cmos.irq());
        cmos.advance(due);
        assert!(cmos.irq());
        assert_eq!(cmos.next_edge(), None);
        assert_eq!(get(&mut cmos, 0x0c, due) & 0xc0, 0xc0);
        assert!(!cmos.irq());
    }
}

#[test]
fn update_and_alarm_interrupts() {
    let mut cmos = Cmos::new(64 << 20);
    put(&mut cmos, 0x0b, 0x12, SEC / 2);
    assert_eq!(cmos.next_edge(), Some(SEC));
    put(&mut cmos, 0x0b, 0x22, SEC / 2);
    for (index, value) in [(1, 0x05), (3, 0xc0), (5, 0xff)] {
        put(&mut cmos, index, value, SEC / 2);
    }
    assert_eq!(cmos.next_edge(), Some(5 * SEC));
    cmos.advance(5 * SEC);
    assert_eq!(get(&mut cmos, 0x0c, 5 * SEC) & 0xb0, 0xb0);
    assert_eq!(cmos.next_edge(), Some(65 * SEC));
}

#[test]
fn asking_early_changes_nothing() {
    let mut cmos = Cmos::new(64 << 20);
    put(&mut cmos, 0x0b, 0x12, 0);
    let before = cmos.clone();
    cmos.advance(SEC - 1);
    assert_eq!(cmos, before);
}

#[test]
fn memory_sizes() {
    let mut cmos = Cmos::new(256 << 20);
    let mut word = |at: u8| u16::from_le_bytes([get(&mut cmos, at, 0), get(&mut cmos, at + 1, 0)]);
    assert_eq!((word(0x15), word(0x17), word(0x30), word(0x34)), (640, 0xffff, 0xffff, 3840));
    let mut small = Cmos::new(16 << 20);
    assert_eq!((get(&mut small, 0x17, 0), get(&mut small, 0x18, 0), get(&mut small, 0x34, 0)), (0, 0x3c, 0));
}

#[test]
fn no_sequence_of_bytes_can_break_it() {
    let mut cmos = Cmos::new(u64::MAX);
    let mut seed = 7u64;
    for step in 0..20_000u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let now = step * 31_000_000 + if step > 19_000 { u64::MAX - (1 << 40) } else { 0 };
        cmos.select((seed >> 40) as u8 & if seed >> 63 == 0 { 0x0f } else { 0xff });
        cmos.write((seed >> 50) as u8, now);
        let _ = (cmos.read(now), cmos.next_edge(), cmos.irq());
        cmos.advance(now);
    }
}
