//! ORC by its rules, and with invented tables and stacks.

use proptest::prelude::*;

use super::super::testing::{Noise, Written, walk};
use super::*;

const UNDEFINED: u16 = 0;
const PREV_SP: u16 = 1;
const BP_REG: u16 = 4;
const SP_REG: u16 = 5;
const R10: u16 = 6;
const BP_INDIRECT: u16 = 8;
const SP_INDIRECT: u16 = 9;
const CALL: u16 = 0;
const REGS_TYPE: u16 = 1;
const PARTIAL: u16 = 2;

const OLD_FORM: Form = Form { kinds: Kinds::EndBit(END_BIT), bases: OLD };
const KINDS: Form = Form { kinds: Kinds::Kinds, bases: OLD };

/// The bytes of an entry.
fn bytes(sp: (u16, i16), bp: (u16, i16), kind: u16) -> [u8; ENTRY] {
    let flags = sp.0 | bp.0 << 4 | kind << 8;
    let parts = [sp.1.to_le_bytes(), bp.1.to_le_bytes(), flags.to_le_bytes()];
    parts.as_flattened().try_into().unwrap()
}

/// An entry as Linux 5.10 and 6.1 have it.
fn entry(sp: (u16, i16), bp: (u16, i16), kind: u16, end: bool) -> Entry {
    Entry::new(&bytes(sp, bp, kind | u16::from(end) << (END_BIT - 8)), OLD_FORM)
}

/// An entry as Linux from 6.4 on has it.
fn newer(sp: (u16, i16), bp: (u16, i16), kind: u16) -> Entry {
    Entry::new(&bytes(sp, bp, kind), KINDS)
}

/// A state whose register n holds 0x100 n, with the stack pointer at 0x8000 and the frame pointer at 0x8040.
fn state() -> State {
    let mut state = State::new(std::array::from_fn(|n| 0x100 * n as u64), 0x1_0000);
    (state.gpr[SP], state.gpr[BP]) = (Some(0x8000), Some(0x8040));
    state
}

#[test]
fn a_call_is_above_the_stack_or_frame_pointer() {
    let memory = Written::new(true).with(0x8008, &[0xb0, 0x2_0000]).with(0x8040, &[0xb1, 0x3_0000]);
    // push %rbp has run: the frame pointer is below the return address.
    let mut at = state();
    assert_eq!(entry((SP_REG, 0x800), (PREV_SP, -16), CALL, false).step(&memory, &mut at), Step::Lost);
    assert_eq!(entry((SP_REG, 24), (PREV_SP, -16), CALL, false).step(&memory, &mut at), Step::Caller);
    assert_eq!((at.ip, at.sp(), at.bp(), at.exact), (0x2_0000, Some(0x8018), Some(0xb0), false));
    assert_eq!(at.gpr[10], None, "a callee may have changed it");
    let mut at = state();
    assert_eq!(entry((BP_REG, 16), (PREV_SP, -16), CALL, false).step(&memory, &mut at), Step::Caller);
    assert_eq!((at.ip, at.sp(), at.bp()), (0x3_0000, Some(0x8050), Some(0xb1)));
    assert_eq!(entry((R10, 0), (UNDEFINED, 0), CALL, false).step(&memory, &mut at), Step::Lost);
}

#[test]
fn a_stack_is_left_through_what_points_to_the_other() {
    // The interrupt stack's top holds the stack pointer of the task's.
    let memory = Written::new(true)
        .with(0x8000, &[0x9000])
        .with(0x9000, &[0x2_0000])
        .with(0x8038, &[0x9008])
        .with(0xa00, &[0]);
    let mut at = state();
    assert_eq!(entry((SP_INDIRECT, 8), (UNDEFINED, 0), CALL, false).step(&memory, &mut at), Step::Caller);
    assert_eq!((at.ip, at.sp(), at.bp()), (0x2_0000, Some(0x9008), Some(0x8040)));
    let mut at = state();
    assert_eq!(entry((BP_INDIRECT, -8), (UNDEFINED, 0), CALL, false).step(&memory, &mut at), Step::Caller);
    assert_eq!((at.ip, at.sp()), (0x2_0000, Some(0x9008)));
    // A register holds it.
    let memory = memory.with(0xa00 - 8, &[0x2_0000]);
    let mut at = state();
    assert_eq!(entry((R10, 0), (UNDEFINED, 0), CALL, false).step(&memory, &mut at), Step::Caller);
    assert_eq!((at.ip, at.sp()), (0x2_0000, Some(0xa00)));
}

/// The words of `struct pt_regs`: register n is 0x1000 + n.
fn regs(cs: u64) -> Vec<u64> {
    let saved = ORDER.map(|n| 0x1000 + n as u64);
    [&saved[..], &[u64::MAX, 0x5_0000, cs, 0x202, 0x7000, 0x18]].concat()
}

#[test]
fn an_interrupt_leads_to_what_it_has_interrupted() {
    let memory = Written::new(true).with(0x8000, &regs(0x10));
    let mut at = state();
    assert_eq!(entry((SP_REG, 0), (UNDEFINED, 0), REGS_TYPE, false).step(&memory, &mut at), Step::Caller);
    assert_eq!((at.ip, at.sp(), at.exact), (0x5_0000, Some(0x7000), true));
    for n in (0..16).filter(|n| *n != SP) {
        assert_eq!(at.gpr[n], Some(0x1000 + n as u64));
    }
    // The CPU's frame alone: the other registers are still those of the handler.
    let mut at = state();
    let partial = entry((SP_REG, REGS as i16), (UNDEFINED, 0), PARTIAL, false);
    assert_eq!(partial.step(&memory, &mut at), Step::Caller);
    assert_eq!((at.ip, at.sp(), at.gpr[10], at.exact), (0x5_0000, Some(0x7000), Some(0xa00), true));
}

#[test]
fn the_stack_ends_where_user_mode_begins_or_the_table_says_so() {
    let memory = Written::new(true).with(0x8000, &regs(0x33));
    for kind in [REGS_TYPE, PARTIAL] {
        let offset = if kind == PARTIAL { REGS as i16 } else { 0 };
        let entry = entry((SP_REG, offset), (UNDEFINED, 0), kind, false);
        assert_eq!(entry.step(&memory, &mut state()), Step::End);
    }
    assert_eq!(entry((UNDEFINED, 0), (UNDEFINED, 0), CALL, true).step(&memory, &mut state()), Step::End);
    assert_eq!(entry((UNDEFINED, 0), (UNDEFINED, 0), CALL, false).step(&memory, &mut state()), Step::Lost);
    assert_eq!(entry((SP_REG, 8), (UNDEFINED, 0), 3, false).step(&memory, &mut state()), Step::Lost);
}

#[test]
fn the_newer_form_has_kinds_of_its_own() {
    let memory = Written::new(true).with(0x8000, &regs(0x10)).with(0x8200, &[0xb0, 0x2_0000]);
    let step = |entry: Entry| {
        let mut at = state();
        (entry.step(&memory, &mut at), at.ip, at.exact)
    };
    let none = (UNDEFINED, 0);
    assert_eq!(step(newer((SP_REG, 8), none, 0)).0, Step::Lost);
    assert_eq!(step(newer(none, none, 1)).0, Step::End);
    assert_eq!(step(newer((SP_REG, 0x210), (PREV_SP, -16), 2)), (Step::Caller, 0x2_0000, false));
    assert_eq!(step(newer((SP_REG, 0), none, 3)), (Step::Caller, 0x5_0000, true));
    assert_eq!(step(newer((SP_REG, REGS as i16), none, 4)), (Step::Caller, 0x5_0000, true));
    // The bit for signals is another one.
    assert_eq!(step(newer((SP_REG, 0), none, 3 | 8)), (Step::Caller, 0x5_0000, true));
    for kind in 5..8 {
        assert_eq!(step(newer((SP_REG, 8), none, kind)).0, Step::Lost);
    }
}

#[test]
fn the_form_is_that_in_which_most_frames_are_of_calls() {
    let all = |kinds: &[u16]| {
        kinds.iter().flat_map(|kind| bytes((SP_REG, 8), (UNDEFINED, 0), *kind)).collect::<Vec<u8>>()
    };
    assert_eq!(Kinds::of_entries(&all(&[0, 0, 1, 0, 2])), Some(Kinds::EndBit(END_BIT)));
    assert_eq!(Kinds::of_entries(&all(&[2, 0, 2, 3, 2 | 8])), Some(Kinds::Kinds));
    assert_eq!(Kinds::of_entries(&all(&[2, 0])), None);
    assert_eq!(Kinds::of_entries(&[]), None);
}

#[test]
fn bases_are_numbered_as_most_frames_are_above_the_stack_pointer() {
    let all = |bases: &[u16]| {
        bases.iter().flat_map(|base| bytes((*base, 8), (UNDEFINED, 0), 2)).collect::<Vec<u8>>()
    };
    assert_eq!(Bases::of_entries(&all(&[0, 0, 0, 5, 5, 4, 3])), None, "half of them is not enough");
    assert_eq!(Bases::of_entries(&all(&[0, 0, 0, 5, 5, 5, 4, 3])), Some(OLD));
    assert_eq!(Bases::of_entries(&all(&[0, 0, 0, 3, 3, 3, 4, 5])), Some(NEW));
    assert_eq!(Bases::of_entries(&all(&[0, 2, 2, 2])), None);
    assert_eq!(Form::of(None, &all(&[2, 2, 2])), None, "a form that is not known");
    // The same frame in both: the caller's stack pointer in memory at the frame pointer, and its frame pointer below the frame.
    let memory = Written::new(true).with(0x8048, &[0x9000]).with(0x8ff0, &[0xb0, 0x2_0000]);
    for (bases, indirect, previous) in [(OLD, 8, 1), (NEW, 10, 8)] {
        let mut at = state();
        let form = Form { kinds: Kinds::Kinds, bases };
        let entry = Entry::new(&bytes((indirect, 8), (previous, -16), 2), form);
        assert_eq!(entry.step(&memory, &mut at), Step::Caller);
        assert_eq!((at.ip, at.sp(), at.bp()), (0x2_0000, Some(0x9000), Some(0xb0)));
    }
}

/// The bytes of both sections, the first at `at`.
fn sections(at: u64, entries: &[(u64, [u8; 6])]) -> (Vec<u8>, Vec<u8>) {
    let place = |n: usize| at + 4 * n as u64;
    let ips = entries.iter().enumerate().flat_map(|(n, e)| ((e.0 - place(n)) as i32).to_le_bytes());
    (ips.collect(), entries.iter().flat_map(|e| e.1).collect())
}

#[test]
fn the_last_entry_that_begins_before_an_address_is_its_own() {
    let named = |n: u8| [n, 0, 0, 0, 5, 0];
    let weak = [0, 0, 0, 0, 0, 0];
    let all = [(0x3000, named(3)), (0x1000, named(1)), (0x2000, named(2)), (0x2000, weak), (0x4000, weak)];
    let (ips, entries) = sections(0x100, &all);
    let table = OrcTable::new(&ips, 0x100, &entries, OLD_FORM);
    let offset = |ip: u64| table.find(ip).map(|entry| entry.sp_offset);
    assert_eq!(
        [offset(0xfff), offset(0x1000), offset(0x1fff), offset(0x2000)],
        [None, Some(1), Some(1), Some(2)]
    );
    assert_eq!([offset(0x3fff), offset(0x4000), offset(u64::MAX)], [Some(3), Some(0), Some(0)]);
    // A truncated table counts up to the cut.
    let short = OrcTable::new(&ips, 0x100, &entries[..13], OLD_FORM);
    assert_eq!((short.starts.len(), OrcTable::new(&[], 0, &entries, OLD_FORM).starts.len()), (2, 0));
}

proptest! {
    #[test]
    fn no_table_and_no_stack_is_endless_or_panics(
        ips in proptest::collection::vec(any::<u8>(), 0..200),
        entries in proptest::collection::vec(any::<u8>(), 0..300),
        (at, seed, gpr, ip) in (any::<u64>(), any::<u64>(), any::<[u64; 16]>(), any::<u64>()),
        kinds in prop_oneof![(8u64..16).prop_map(Kinds::EndBit), Just(Kinds::Kinds)],
        bases in prop_oneof![Just(OLD), Just(NEW)],
    ) {
        let table = OrcTable::new(&ips, at, &entries, Form { kinds, bases });
        let memory = Noise { wide: true, seed };
        let mut state = State::new(gpr, ip);
        let found = walk(&mut state, 256, |state| match table.find(state.within()) {
            Some(entry) => entry.step(&memory, state),
            None => super::super::frame::step(&memory, state, Default::default()),
        });
        prop_assert!(found.len() <= 256);
    }
}
