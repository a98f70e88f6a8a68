//! Frame pointers of both widths, complete and incomplete frames, and invalid ones.

use proptest::prelude::*;

use super::super::testing::{Noise, Written, walk};
use super::*;

fn state(sp: u64, bp: u64) -> State {
    let mut state = State::new([0; 16], 0x1_0000);
    (state.gpr[SP], state.gpr[BP]) = (Some(sp), Some(bp));
    state
}

#[test]
fn frames_are_followed_to_their_end() {
    for (wide, w) in [(false, 4), (true, 8)] {
        let memory = Written::new(wide).with(0x8010, &[0x8040, 0x2_0000]).with(0x8040, &[0, 0x3_0000]);
        let mut at = state(0x8000, 0x8010);
        let found = walk(&mut at, 10, |state| step(&memory, state, Hints::default()));
        assert_eq!(found, [0x1_0000, 0x2_0000, 0x3_0000]);
        assert_eq!(at.sp(), Some(0x8040 + 2 * w));
    }
}

#[test]
fn an_incomplete_frame_is_recognised() {
    let narrow = |code: &[u8]| Written::new(false).with_code(0x1_0000, code);
    let wide = |code: &[u8]| Written::new(true).with_code(0x1_0000, code);
    let cases: [(Written, u64); 8] = [
        (narrow(&[0x55, 0x89, 0xe5]), 0x8000),
        (narrow(&[0x89, 0xe5, 0x57]), 0x8004),
        (narrow(&[0x8b, 0xec, 0x57]), 0x8004),
        (narrow(&[0xc2, 4, 0]), 0x8000),
        (wide(&[0x55]), 0x8000),
        (wide(&[0x48, 0x89, 0xe5]), 0x8008),
        (wide(&[0xc3]), 0x8000),
        (wide(&[0xf3, 0xc3]), 0x8000),
    ];
    for (memory, slot) in cases {
        let memory = memory.with(slot, &[0x2_0000]);
        let mut at = state(0x8000, 0x8100);
        assert_eq!(step(&memory, &mut at, Hints::default()), Step::Caller);
        assert_eq!((at.ip, at.bp(), at.exact), (0x2_0000, Some(0x8100), false));
        assert_eq!(at.sp(), Some(slot + memory.size() as u64));
    }
    // A provider knows that there is no frame, whatever the instruction is: a traced function begins with a NOP.
    let memory = Written::new(true).with(0x8000, &[0x2_0000]);
    let hints = Hints { at_call: true, ..Hints::default() };
    assert_eq!(step(&memory, &mut state(0x8000, 0), hints), Step::Caller);
    assert_eq!(step(&memory, &mut state(0x8000, 0), Hints::default()), Step::End);
}

#[test]
fn linux_leads_through_an_interrupt() {
    let hints = Hints { at_call: false, encoded: true, cs: 0x60, ..Hints::default() };
    let regs =
        |cs: u64| [&ORDER32.map(|n| 0x10 + n as u64)[..], &[0; 5], &[0x5_0000, cs, 2, 0x9100]].concat();
    for (cs, expected) in [(0xabcd_0060, Step::Caller), (0x73, Step::End), (0x61, Step::Lost)] {
        let memory = Written::new(false).with(0xc100_9000, &regs(cs));
        let mut at = state(0xc100_8000, 0x4100_9000);
        assert_eq!(step(&memory, &mut at, hints), expected);
        if expected == Step::Caller {
            assert_eq!((at.ip, at.sp(), at.bp(), at.exact), (0x5_0000, Some(0x9100), Some(0x15), true));
        }
    }
    let saved = crate::unwind::REGISTERS64.map(|n| 0x10 + n as u64);
    let regs = [&saved[..], &[0, 0x5_0000, 0x60, 2, 0x9100]].concat();
    let memory = Written::new(true).with(0x9000, &regs);
    let mut at = state(0x8000, 0x9001);
    assert_eq!(step(&memory, &mut at, hints), Step::Caller);
    assert_eq!((at.ip, at.sp(), at.bp(), at.gpr[15]), (0x5_0000, Some(0x9100), Some(0x15), Some(0x1f)));
}

proptest! {
    #[test]
    fn no_stack_is_endless_or_panics(wide: bool, encoded: bool, seed: u64, gpr: [u64; 16], ip: u64, cs: u64) {
        let memory = Noise { wide, seed };
        let mut state = State::new(gpr, ip);
        let hints = Hints { at_call: seed & 1 != 0, encoded, cs, ..Hints::default() };
        prop_assert!(walk(&mut state, 256, |state| step(&memory, state, hints)).len() <= 256);
    }
}
