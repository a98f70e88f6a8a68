//! Call frame information out of ELF files that are made here, whole and damaged.

use proptest::prelude::*;

use super::super::testing::{Noise, Written, walk};
use super::*;

const TEXT: u64 = 0x40_1000;
const EH: u64 = 0x40_2000;

/// An ELF file of this width with one section `.eh_frame` at [`EH`].
fn elf(wide: bool, frames: &[u8]) -> Vec<u8> {
    elf_with(wide, ".eh_frame", frames)
}

/// The same with the section called so.
fn elf_with(wide: bool, name: &str, frames: &[u8]) -> Vec<u8> {
    let names = format!("\0{name}\0.shstrtab\0").into_bytes();
    let w = if wide { 8 } else { 4 };
    let header = if wide { 64 } else { 52 };
    let (frames_at, names_at) = (header, header + frames.len());
    let table = (names_at + names.len()).next_multiple_of(8);
    let word = |value: usize, to: &mut Vec<u8>| to.extend(&(value as u64).to_le_bytes()[..w]);
    let half = |value: u16, to: &mut Vec<u8>| to.extend(value.to_le_bytes());
    let full = |value: u32, to: &mut Vec<u8>| to.extend(value.to_le_bytes());
    let mut file = vec![0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    half(2, &mut file);
    half(if wide { 62 } else { 3 }, &mut file);
    full(1, &mut file);
    for value in [0, 0, table] {
        word(value, &mut file);
    }
    full(0, &mut file);
    let entry = if wide { 64 } else { 40 };
    for value in [header as u16, 0, 0, entry, 3, 2] {
        half(value, &mut file);
    }
    file.extend(frames);
    file.extend(&names);
    file.resize(table, 0);
    file.extend(vec![0; entry.into()]);
    for (name, kind, flags, at, from, size) in [
        (1, 1, 2, EH as usize, frames_at, frames.len()),
        (name.len() as u32 + 2, 3, 0, 0, names_at, names.len()),
    ] {
        full(name, &mut file);
        full(kind, &mut file);
        for value in [flags, at, from, size] {
            word(value, &mut file);
        }
        full(0, &mut file);
        full(0, &mut file);
        for value in [1, 0] {
            word(value, &mut file);
        }
    }
    file
}

/// A CIE: CFA is the stack pointer and one word, the return address below it. `signal` marks a signal's frame.
fn cie(wide: bool, signal: bool) -> Vec<u8> {
    let (w, sp, ra) = if wide { (8, 7, 16) } else { (4, 4, 8) };
    let mut body = vec![0, 0, 0, 0, 1];
    body.extend(if signal { &b"zRS\0"[..] } else { b"zR\0" });
    // Alignment of code 1 and of data -8 or -4; pointers are 32-bit and relative to their own place.
    body.extend([1, if wide { 0x78 } else { 0x7c }, ra, 1, 0x1b, 0x0c, sp, w, 0x80 | ra, 1]);
    padded(body)
}

fn padded(mut body: Vec<u8>) -> Vec<u8> {
    body.resize(body.len().next_multiple_of(4), 0);
    [&(body.len() as u32).to_le_bytes()[..], &body].concat()
}

/// An FDE after `before`, where its CIE begins, for `size` bytes of code at `start`.
fn fde(before: &[u8], start: u64, size: u32, program: &[u8]) -> Vec<u8> {
    let at = before.len() as u64;
    let pointer = (start.wrapping_sub(EH + at + 8)) as i32;
    let mut body = (at as u32 + 4).to_le_bytes().to_vec();
    body.extend(pointer.to_le_bytes());
    body.extend(size.to_le_bytes());
    body.push(0);
    body.extend(program);
    padded(body)
}

fn frames(wide: bool, signal: bool, functions: &[(u64, u32, &[u8])]) -> Vec<u8> {
    let mut bytes = cie(wide, signal);
    for (start, size, program) in functions {
        let entry = fde(&bytes, *start, *size, program);
        bytes.extend(entry);
    }
    bytes.extend([0; 4]);
    bytes
}

fn state(ip: u64) -> State {
    let mut state = State::new(std::array::from_fn(|n| n as u64), ip);
    state.gpr[SP] = Some(0x8000);
    state
}

/// `push bp` at 1: DW_CFA_advance_loc 1, DW_CFA_def_cfa_offset, DW_CFA_offset of BP.
fn pushes(wide: bool) -> [u8; 5] {
    if wide { [0x41, 0x0e, 16, 0x86, 2] } else { [0x41, 0x0e, 8, 0x85, 2] }
}

#[test]
fn a_caller_is_found_before_and_after_a_push() {
    for (wide, w) in [(true, 8), (false, 4)] {
        let file = elf(wide, &frames(wide, false, &[(TEXT, 16, &pushes(wide)), (TEXT + 16, 16, &[])]));
        let mut cfi = Cfi::from_elf(&file).unwrap();
        assert_eq!((cfi.wide(), cfi.index.len()), (wide, 2));
        let memory = Written::new(wide).with(0x8000, &[0xb0, 0x2_0000]);
        // As linked, and loaded elsewhere.
        for bias in [0, 0x1000_0000] {
            let mut at = state(TEXT + bias);
            assert_eq!(cfi.step(&memory, &mut at, bias), Some(Step::Caller));
            assert_eq!((at.ip, at.sp(), at.bp()), (0xb0, Some(0x8000 + w), Some(5)));
            let mut at = state(TEXT + 1 + bias);
            assert_eq!(cfi.step(&memory, &mut at, bias), Some(Step::Caller));
            assert_eq!((at.ip, at.sp(), at.bp()), (0x2_0000, Some(0x8000 + 2 * w), Some(0xb0)));
            // A call was the function's last instruction: its caller is not in the next function.
            at.ip = TEXT + 16 + bias;
            at.gpr[SP] = Some(0x8000);
            assert_eq!(cfi.step(&memory, &mut at, bias), Some(Step::Caller));
            assert_eq!(at.ip, 0x2_0000);
        }
        assert_eq!(cfi.step(&memory, &mut state(TEXT + 32), 0), None);
        assert_eq!(cfi.step(&memory, &mut state(TEXT - 1), 0), None);
        assert_eq!(cfi.step(&Written::new(wide), &mut state(TEXT), 0), Some(Step::Lost));
    }
}

#[test]
fn debug_frames_are_read_as_well() {
    let cie = [&u32::MAX.to_le_bytes()[..], &[1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1]].concat();
    let fde = [&0u32.to_le_bytes()[..], &TEXT.to_le_bytes(), &32u64.to_le_bytes(), &pushes(true)].concat();
    let file = elf_with(true, ".debug_frame", &[padded(cie), padded(fde)].concat());
    let mut cfi = Cfi::from_elf(&file).unwrap();
    let memory = Written::new(true).with(0x8000, &[0xb0, 0x2_0000]);
    let mut at = state(TEXT + 2);
    assert_eq!(cfi.step(&memory, &mut at, 0), Some(Step::Caller));
    assert_eq!((at.ip, at.sp(), at.bp()), (0x2_0000, Some(0x8010), Some(0xb0)));
    assert_eq!(cfi.step(&memory, &mut state(TEXT + 32), 0), None);
}

#[test]
fn the_outermost_function_and_a_signals_frame_are_known() {
    // DW_CFA_undefined of the return address.
    let file = elf(true, &frames(true, false, &[(TEXT, 16, &[0x07, 16])]));
    let memory = Written::new(true).with(0x8000, &[0x2_0000]);
    assert_eq!(Cfi::from_elf(&file).unwrap().step(&memory, &mut state(TEXT), 0), Some(Step::End));
    let file = elf(true, &frames(true, true, &[(TEXT, 16, &[])]));
    let mut at = state(TEXT);
    assert_eq!(Cfi::from_elf(&file).unwrap().step(&memory, &mut at, 0), Some(Step::Caller));
    assert!(at.exact, "a signal interrupts, it does not call");
}

#[test]
fn expressions_are_evaluated_up_to_a_limit() {
    let memory = Written::new(true).with(0x8010, &[0x9000]).with(0x8ff8, &[0x2_0000]);
    // DW_CFA_def_cfa_expression: DW_OP_breg7 16, DW_OP_deref.
    let file = elf(true, &frames(true, false, &[(TEXT, 16, &[0x0f, 3, 0x77, 16, 0x06])]));
    let mut at = state(TEXT);
    assert_eq!(Cfi::from_elf(&file).unwrap().step(&memory, &mut at, 0), Some(Step::Caller));
    assert_eq!((at.ip, at.sp()), (0x2_0000, Some(0x9000)));
    // DW_OP_lit0, DW_OP_dup, DW_OP_skip -4: an endless loop.
    let file = elf(true, &frames(true, false, &[(TEXT, 16, &[0x0f, 5, 0x30, 0x12, 0x2f, 0xfc, 0xff])]));
    assert_eq!(Cfi::from_elf(&file).unwrap().step(&memory, &mut state(TEXT), 0), Some(Step::Lost));
}

#[test]
fn a_file_without_tables_has_none() {
    assert!(Cfi::from_elf(b"text").is_none());
    assert!(Cfi::from_elf(&elf(true, &[])).is_none());
    assert!(Cfi::from_elf(&elf(false, &[0; 4])).is_none());
}

proptest! {
    #[test]
    fn no_table_and_no_stack_is_endless_or_panics(
        (wide, signal, seed, gpr) in any::<(bool, bool, u64, [u64; 16])>(),
        program in proptest::collection::vec(any::<u8>(), 0..40),
        damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        into in 0u64..64,
    ) {
        let functions = [(TEXT, 32, &program[..]), (TEXT + 16, 64, &pushes(wide)[..])];
        let mut file = elf(wide, &frames(wide, signal, &functions));
        for (at, byte) in damage {
            let at = usize::from(at) % file.len();
            file[at] = byte;
        }
        if let Some(mut cfi) = Cfi::from_elf(&file) {
            let memory = Noise { wide, seed };
            let mut state = State::new(gpr, TEXT + into);
            let found = walk(&mut state, 256, |state| {
                // Walks continue in the same function, wherever they lead.
                state.ip = TEXT + (state.ip & 63);
                cfi.step(&memory, state, 0).unwrap_or(Step::Lost)
            });
            prop_assert!(found.len() <= 256);
        }
    }
}
