//! The local APIC by its registers, as a driver writes them.

use super::*;

const EOI: u16 = 0xb0;
const TPR: u16 = 0x80;
const SVR: u16 = 0xf0;
const ESR: u16 = 0x280;
const ICR_LOW: u16 = 0x300;
const ICR_HIGH: u16 = 0x310;
const LVT_TIMER: u16 = 0x320;
const LVT_LINT0: u16 = 0x350;
const LVT_ERROR: u16 = 0x370;
const INITIAL: u16 = 0x380;
const CURRENT: u16 = 0x390;
const DIVIDE: u16 = 0x3e0;

fn write(apic: &mut LocalApic, register: u16, value: u32) -> Option<u8> {
    apic.write(register, 4, value, 0)
}

fn fixed(vector: u8, level: bool) -> Message {
    Message { delivery: Delivery::Fixed, vector, destination: 0, logical: false, level }
}

#[test]
fn priorities_nest_by_class_and_by_task_priority() {
    let mut apic = LocalApic::new();
    apic.receive(&fixed(0x41, false));
    apic.receive(&fixed(0x51, false));
    assert_eq!(apic.acknowledge(0), 0x51);
    assert_eq!(apic.pending(), None, "a lower class waits");
    apic.receive(&fixed(0x5f, false));
    assert_eq!(apic.pending(), None, "so does the same class");
    apic.receive(&fixed(0x61, false));
    assert_eq!(apic.acknowledge(0), 0x61);
    assert_eq!(apic.read(0xa0, 4, 0), 0x60);
    write(&mut apic, EOI, 0);
    write(&mut apic, EOI, 0);
    assert_eq!(apic.acknowledge(0), 0x5f);
    write(&mut apic, EOI, 0);
    write(&mut apic, TPR, 0x40);
    assert_eq!(apic.pending(), None);
    write(&mut apic, TPR, 0x3f);
    assert_eq!(apic.pending(), Some(0x41));
    assert_eq!(apic.read(0x220, 4, 0), 1 << 1, "IRR of vectors 40h to 5fh");
}

#[test]
fn only_the_end_of_a_level_interrupt_is_broadcast() {
    let mut apic = LocalApic::new();
    apic.receive(&fixed(0x30, true));
    apic.acknowledge(0);
    assert_eq!(write(&mut apic, EOI, 0), Some(0x30));
    apic.receive(&fixed(0x30, false));
    apic.acknowledge(0);
    assert_eq!(write(&mut apic, EOI, 0), None);
    assert_eq!(write(&mut apic, EOI, 0), None, "nothing is in service");
}

#[test]
fn the_timer_expires_to_the_nanosecond() {
    let mut apic = LocalApic::new();
    write(&mut apic, LVT_TIMER, 0xec);
    write(&mut apic, DIVIDE, 0x3);
    apic.write(INITIAL, 4, 1000, 5);
    let due = 5 + 1000 * 16 * TICK_NS;
    assert_eq!(apic.next_event(), Some(due));
    assert_eq!(apic.read(CURRENT, 4, 5 + 16 * TICK_NS), 999);
    apic.advance(due - 1);
    assert_eq!((apic.pending(), apic.read(CURRENT, 4, due - 1)), (None, 1));
    apic.advance(due);
    assert_eq!((apic.pending(), apic.read(CURRENT, 4, due)), (Some(0xec), 0));
    assert_eq!(apic.next_event(), None, "one shot");
}

#[test]
fn a_periodic_timer_keeps_its_beat_however_seldom_it_is_asked() {
    let run = |step: u64| {
        let mut apic = LocalApic::new();
        write(&mut apic, LVT_TIMER, 0x2_00ec);
        write(&mut apic, DIVIDE, 0xb);
        write(&mut apic, INITIAL, 100);
        let mut taken = Vec::new();
        let mut now = 0;
        while now < 20_000 {
            let next = apic.next_event().unwrap();
            while now + step < next {
                now += step;
                apic.advance(now);
            }
            now = next;
            apic.advance(now);
            // Served late: the beats in between are lost, the next is on time.
            now += 2_500;
            apic.advance(now);
            taken.push((now, apic.acknowledge(now)));
            write(&mut apic, EOI, 0);
        }
        (taken, apic)
    };
    let (taken, apic) = run(u64::MAX / 4);
    assert_eq!(taken[..3], [(3_500, 0xec), (6_500, 0xec), (9_500, 0xec)]);
    assert_eq!((taken, apic), run(7));
}

#[test]
fn a_masked_timer_counts_and_does_not_interrupt() {
    let mut apic = LocalApic::new();
    write(&mut apic, LVT_TIMER, 0x1_00ec);
    write(&mut apic, DIVIDE, 0xb);
    write(&mut apic, INITIAL, 100);
    assert_eq!(apic.next_event(), None);
    apic.advance(5_000);
    assert_eq!(apic.read(CURRENT, 4, 400), 60);
    apic.write(LVT_TIMER, 4, 0xec, 5_000);
    assert_eq!((apic.next_event(), apic.pending()), (None, None), "it has expired while masked");
}

#[test]
fn all_divisors() {
    for (register, divisor) in [(0, 2), (1, 4), (2, 8), (3, 16), (8, 32), (9, 64), (10, 128), (11, 1)] {
        let mut apic = LocalApic::new();
        write(&mut apic, LVT_TIMER, 0xec);
        write(&mut apic, DIVIDE, register);
        write(&mut apic, INITIAL, 3);
        assert_eq!(apic.next_event(), Some(3 * divisor * TICK_NS), "{register}");
    }
}

#[test]
fn interprocessor_interrupts_reach_only_the_one_cpu() {
    let cases = [
        (0x0004_0040, 0, true, "self"),
        (0x0008_0040, 0, true, "all"),
        (0x000c_0040, 0, false, "all but self"),
        (0x0000_0040, 0, true, "physical 0"),
        (0x0000_0040, 0x0100_0000, false, "physical 1"),
        (0x0000_0040, 0xff00_0000, true, "physical broadcast"),
        (0x0000_0840, 0x0100_0000, true, "logical 1"),
        (0x0000_0840, 0x0200_0000, false, "logical 2"),
        (0x0000_4500, 0x0100_0000, false, "INIT for a CPU that is not there"),
        (0x0000_0608, 0x0100_0000, false, "start-up for a CPU that is not there"),
    ];
    for (low, high, here, what) in cases {
        let mut apic = LocalApic::new();
        write(&mut apic, 0xd0, 0x0100_0000);
        write(&mut apic, ICR_HIGH, high);
        write(&mut apic, ICR_LOW, low);
        assert_eq!(apic.pending(), here.then_some(0x40), "{what}");
        assert_eq!(apic.read(ICR_LOW, 4, 0) & 1 << 12, 0, "{what}: sent");
    }
    let mut apic = LocalApic::new();
    write(&mut apic, ICR_LOW, 0x0004_0400);
    assert!(apic.take_nmi() && !apic.take_nmi());
    write(&mut apic, 0xd0, 0x2100_0000);
    write(&mut apic, 0xe0, 0x0fff_ffff);
    assert!(apic.addressed(0x21, true) && apic.addressed(0xf1, true) && !apic.addressed(0x31, true));
}

#[test]
fn errors_show_after_a_write_of_the_status_register() {
    let mut apic = LocalApic::new();
    write(&mut apic, LVT_ERROR, 0xfe);
    write(&mut apic, ICR_LOW, 0x0004_0005);
    assert_eq!(apic.acknowledge(0), 0xfe);
    apic.read(0x40, 4, 0);
    assert_eq!(apic.read(ESR, 4, 0), 0);
    write(&mut apic, ESR, 0);
    assert_eq!(apic.read(ESR, 4, 0), 0xa0);
    write(&mut apic, ESR, 0);
    assert_eq!(apic.read(ESR, 4, 0), 0);
    assert!(!apic.receive(&fixed(3, false)));
    write(&mut apic, ESR, 0);
    assert_eq!(apic.read(ESR, 4, 0), 0x40);
}

#[test]
fn virtual_wire_mode_is_what_firmware_leaves() {
    let mut apic = LocalApic::new();
    assert!(apic.passes_extint());
    write(&mut apic, LVT_LINT0, 0x1_0700);
    assert!(!apic.passes_extint());
    write(&mut apic, LVT_LINT0, 0x31);
    apic.set_lint0(true);
    apic.set_lint0(true);
    assert_eq!(apic.acknowledge(0), 0x31);
    assert_eq!(apic.pending(), None, "an edge");
    write(&mut apic, SVR, 0xff);
    assert_eq!(apic.read(LVT_LINT0, 4, 0), 0x1_0031, "switched off: masked");
    assert!(apic.set_base_msr(APIC_BASE | BASE_BSP));
    assert!(apic.passes_extint() && !apic.enabled());
}

#[test]
fn the_base_register_takes_what_it_can_do() {
    let mut apic = LocalApic::new();
    assert_eq!(apic.base_msr(), 0xfee0_0900);
    assert!(!apic.set_base_msr(0xfed0_0900), "no relocation");
    assert!(!apic.set_base_msr(0xfee0_0d00), "no x2APIC");
    assert!(!apic.set_base_msr(0xfee0_0901));
    assert!(apic.set_base_msr(0xfee0_0100));
    assert!(!apic.receive(&fixed(0x40, false)));
    assert!(apic.set_base_msr(0xfee0_0900));
    assert_eq!((apic.read(SVR, 4, 0), apic.read(LVT_LINT0, 4, 0)), (0xff, 0x1_0000));
}

#[test]
fn no_access_can_break_it() {
    let mut apic = LocalApic::new();
    let mut seed = 7u64;
    for step in 0..300_000u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (offset, size) = ((seed >> 40) as u16 & 0xfff, [1, 2, 4][(seed >> 30) as usize % 3]);
        let offset = if seed & 1 << 20 == 0 { offset & 0xff0 } else { offset };
        if seed & 1 << 21 == 0 {
            apic.read(offset, size, step * 77);
        } else {
            apic.write(offset, size, (seed >> 10) as u32, step * 77);
        }
        apic.advance(step * 77);
        if apic.pending().is_some() {
            apic.acknowledge(step * 77);
        }
    }
    apic.write(INITIAL, 4, u32::MAX, u64::MAX);
    apic.advance(u64::MAX);
}
