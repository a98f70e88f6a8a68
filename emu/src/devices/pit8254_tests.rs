//! Behaviour of the 8254 against its data sheet.

use super::*;

fn at(tick: u64) -> u64 {
    ns_of_tick(tick, PIT_HZ)
}

fn program(pit: &mut Pit, channel: u8, mode: u8, count: u16, tick: u64) {
    pit.write(3, channel << 6 | 0x30 | mode << 1, at(tick));
    pit.write(channel, count.to_le_bytes()[0], at(tick));
    pit.write(channel, count.to_le_bytes()[1], at(tick));
}

fn status(pit: &mut Pit, channel: u8, tick: u64) -> u8 {
    pit.write(3, 0xe0 | 2 << channel, at(tick));
    pit.read(channel, at(tick))
}

fn count(pit: &mut Pit, channel: u8, tick: u64) -> u16 {
    pit.write(3, channel << 6, at(tick));
    u16::from_le_bytes([pit.read(channel, at(tick)), pit.read(channel, at(tick))])
}

#[test]
fn rate_generator_interrupts_every_count_without_drift() {
    let mut pit = Pit::new();
    program(&mut pit, 0, 2, 11_932, 0);
    assert_eq!(pit.next_edge(), Some(at(1 + 11_932)));
    for period in 1..=1000 {
        let edge = pit.next_edge().unwrap();
        assert_eq!(edge, at(1 + 11_932 * period));
        assert!(!pit.take_edge(edge - 1));
        assert!(pit.take_edge(edge));
        assert!(!pit.take_edge(edge));
    }
}

#[test]
fn asking_early_changes_nothing_and_late_edges_collapse() {
    let mut pit = Pit::new();
    program(&mut pit, 0, 3, 1000, 0);
    let before = pit.clone();
    assert!(!pit.take_edge(at(900)));
    assert_eq!(pit, before);
    assert!(pit.take_edge(at(5500)));
    assert_eq!(pit.next_edge(), Some(at(6001)));
}

#[test]
fn mode_0_counts_once_and_raises_out() {
    let mut pit = Pit::new();
    program(&mut pit, 0, 0, 100, 10);
    assert_eq!(status(&mut pit, 0, 10), 0x70, "null count until the next clock pulse");
    assert_eq!(status(&mut pit, 0, 110), 0x30);
    assert_eq!(status(&mut pit, 0, 111), 0xb0);
    assert_eq!(pit.next_edge(), Some(at(111)));
    assert!(pit.take_edge(at(111)));
    assert_eq!(pit.next_edge(), None);
    assert_eq!(count(&mut pit, 0, 112), 0xffff);
}

#[test]
fn mode_2_output_is_low_for_one_clock() {
    let mut pit = Pit::new();
    program(&mut pit, 0, 2, 3, 0);
    let levels: Vec<bool> = (1..8).map(|tick| status(&mut pit, 0, tick) & 0x80 != 0).collect();
    assert_eq!(levels, [true, true, false, true, true, false, true]);
    let counts: Vec<u16> = (1..6).map(|tick| count(&mut pit, 0, tick)).collect();
    assert_eq!(counts, [3, 2, 1, 3, 2]);
}

#[test]
fn mode_3_counts_by_two() {
    let mut pit = Pit::new();
    program(&mut pit, 0, 3, 5, 0);
    let seen: Vec<(u16, bool)> =
        (1..7).map(|tick| (count(&mut pit, 0, tick), status(&mut pit, 0, tick) & 0x80 != 0)).collect();
    assert_eq!(seen, [(4, true), (2, true), (0, true), (4, false), (2, false), (4, true)]);
    program(&mut pit, 0, 3, 4, 10);
    let counts: Vec<u16> = (11..16).map(|tick| count(&mut pit, 0, tick)).collect();
    assert_eq!(counts, [4, 2, 4, 2, 4]);
}

#[test]
fn a_new_count_waits_for_the_end_of_the_period() {
    let mut pit = Pit::new();
    program(&mut pit, 0, 2, 100, 0);
    pit.write(0, 50, at(30));
    pit.write(0, 0, at(30));
    assert!(status(&mut pit, 0, 40) & 0x40 != 0);
    assert_eq!(count(&mut pit, 0, 51), 50);
    assert!(pit.take_edge(at(101)));
    assert_eq!(pit.next_edge(), Some(at(151)));
    assert_eq!(status(&mut pit, 0, 102) & 0x40, 0);
}

#[test]
fn software_strobe_pulses_once() {
    let mut pit = Pit::new();
    program(&mut pit, 0, 4, 10, 0);
    assert_eq!(status(&mut pit, 0, 11) & 0x80, 0);
    assert_eq!(status(&mut pit, 0, 12) & 0x80, 0x80);
    assert_eq!(pit.next_edge(), Some(at(12)));
}

#[test]
fn port_61_gates_channel_2() {
    let mut pit = Pit::new();
    program(&mut pit, 2, 0, 1000, 0);
    assert_eq!(pit.read_port61(at(5000)) & 0x23, 0, "held while the gate is low");
    pit.write_port61(0x01, at(5000));
    assert_eq!(pit.read_port61(at(5999)) & 0x21, 0x01);
    assert_eq!(pit.read_port61(at(6000)) & 0x21, 0x21);
    pit.write_port61(0x02, at(6000));
    assert_eq!(pit.read_port61(at(6000)) & 0x03, 0x02);
}

#[test]
fn one_shot_starts_at_the_gate() {
    let mut pit = Pit::new();
    program(&mut pit, 2, 1, 20, 0);
    assert_eq!(pit.read_port61(at(10)) & 0x20, 0x20);
    pit.write_port61(1, at(10));
    assert_eq!(pit.read_port61(at(11)) & 0x20, 0);
    assert_eq!(pit.read_port61(at(31)) & 0x20, 0x20);
}

#[test]
fn refresh_bit_toggles_with_virtual_time() {
    let mut pit = Pit::new();
    assert_ne!(pit.read_port61(at(0)) & 0x10, pit.read_port61(at(18)) & 0x10);
    assert_eq!(pit.read_port61(at(0)) & 0x10, pit.read_port61(at(36)) & 0x10);
}

#[test]
fn bcd_counts_and_latches() {
    let mut pit = Pit::new();
    pit.write(3, 0x35, 0);
    pit.write(0, 0x00, 0);
    pit.write(0, 0x10, 0);
    assert_eq!(count(&mut pit, 0, 1), 0x1000);
    assert_eq!(count(&mut pit, 0, 2), 0x0999);
    pit.write(3, 0x00, at(3));
    pit.write(3, 0x00, at(500));
    assert_eq!([pit.read(0, at(501)), pit.read(0, at(502))], [0x98, 0x09], "the first latch stands");
}

#[test]
fn single_byte_access_modes() {
    let mut pit = Pit::new();
    pit.write(3, 0x14, 0);
    pit.write(0, 0x80, 0);
    assert_eq!(pit.read(0, at(1)), 0x80);
    assert_eq!(pit.next_edge(), Some(at(129)));
    pit.write(3, 0x24, at(200));
    pit.write(0, 0x01, at(200));
    assert_eq!(pit.next_edge(), Some(at(201 + 256)));
}

#[test]
fn a_control_word_that_raises_out_interrupts() {
    for (mode, elapsed, rises) in [(3, 4, false), (3, 7, true), (0, 4, true), (2, 4, false)] {
        let mut pit = Pit::new();
        program(&mut pit, 0, mode, 10, 0);
        pit.take_edge(at(elapsed));
        pit.write(3, 0x36, at(elapsed + 1));
        let expected = rises.then(|| at(elapsed + 1));
        assert_eq!(pit.next_edge(), expected, "mode {mode} after {elapsed}");
        assert_eq!(pit.take_edge(at(elapsed + 1)), rises);
        assert_eq!(pit.next_edge(), None);
    }
}

#[test]
fn no_sequence_of_bytes_can_break_it() {
    let mut pit = Pit::new();
    let mut seed = 1u64;
    for step in 0..20_000u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let now = step * 700 + if step > 19_000 { u64::MAX / 2 } else { 0 };
        let value = seed.to_le_bytes()[5];
        match seed >> 60 {
            0..=3 => pit.write(3, value, now),
            4..=7 => pit.write(value & 3, (seed >> 20) as u8, now),
            8..=11 => drop(pit.read(value & 7, now)),
            12 => pit.write_port61(value, now),
            13 => drop(pit.read_port61(now)),
            _ => drop(pit.take_edge(now)),
        }
        let _ = pit.next_edge();
    }
}
