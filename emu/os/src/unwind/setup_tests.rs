//! Frames of functions as GCC makes them: with other instructions between, on one path only, without a frame.

use super::super::testing::Written;
use super::*;

const AT: u64 = 0x1_0000;

/// Each instruction's frame, from the code's beginning on.
fn frames(wide: bool, code: &[u8]) -> Vec<(u64, Option<Frame>)> {
    let memory = Written::new(wide).with_code(AT, code);
    let bits = if wide { 64 } else { 32 };
    let end = AT + code.len() as u64;
    Decoder::with_ip(bits, code, AT, DecoderOptions::NONE)
        .iter()
        .map(|i| (i.ip() - AT, frame_at(&memory, AT, end, i.ip())))
        .collect()
}

fn depth(bytes: i64) -> Option<Frame> {
    Some(Frame::Depth(bytes))
}

const POINTER: Option<Frame> = Some(Frame::Pointer);

#[test]
fn instructions_lie_between_those_that_set_up_a_frame() {
    // __init_single_page of Debian's linux-686: push ebp; mov ecx, 9; mov ebp, esp; push edi; .. pop edi; pop ebp; ret
    let code = [0x55, 0xb9, 9, 0, 0, 0, 0x89, 0xe5, 0x57, 0x31, 0xc0, 0x5f, 0x5d, 0xc3];
    let expected = [
        (0, depth(0)),
        (1, depth(4)),
        (6, depth(4)),
        (8, POINTER),
        (9, POINTER),
        (11, POINTER),
        (12, POINTER),
    ];
    assert_eq!(frames(false, &code)[..7], expected);
    assert_eq!(frames(false, &code)[7], (13, depth(0)));
}

#[test]
fn a_path_may_need_no_frame() {
    // test edi, edi; je out; push rbp; mov rbp, rsp; sub rsp, 16; leave; ret; out: xor eax, eax; ret
    let code = [
        0x85, 0xff, 0x74, 0x0a, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc9, 0xc3, 0x31, 0xc0, 0xc3,
    ];
    let found: Vec<Option<Frame>> = frames(true, &code).iter().map(|(_, frame)| *frame).collect();
    let zero = depth(0);
    assert_eq!(found, [zero, zero, zero, depth(8), POINTER, POINTER, zero, zero, zero]);
}

#[test]
fn a_function_may_have_no_frame_pointer() {
    // push ebx; sub esp, 8; call +0; pop ebx; lea esp, [esp+8]; pop ebx; ret
    let code = [0x53, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, 0x5b, 0x8d, 0x64, 0x24, 8, 0x5b, 0xc3];
    let found: Vec<Option<Frame>> = frames(false, &code).iter().map(|(_, frame)| *frame).collect();
    assert_eq!(found, [0, 4, 12, 16, 12, 4, 0].map(depth));
}

#[test]
fn a_function_may_align_its_stack() {
    // hrtimer_forward of Debian's linux-686: push edi; lea edi, [esp+8]; and esp, -8; push [edi-4]; push ebp;
    // mov ebp, esp; push edi; .. lea esp, [ebp-4]; pop edi; pop ebp; lea esp, [edi-8]; pop edi; ret
    let code = [
        0x57, 0x8d, 0x7c, 0x24, 8, 0x83, 0xe4, 0xf8, 0xff, 0x77, 0xfc, 0x55, 0x89, 0xe5, 0x57, 0x8d, 0x65,
        0xfc, 0x5f, 0x5d, 0x8d, 0x67, 0xf8, 0x5f, 0xc3,
    ];
    let found: Vec<Option<Frame>> = frames(false, &code).iter().map(|(_, frame)| *frame).collect();
    let above = Some(Frame::Above(7, -4));
    let expected = [
        depth(0),
        depth(4),
        depth(4),
        above,
        above,
        above,
        POINTER,
        POINTER,
        POINTER,
        POINTER,
        above,
        depth(4),
        depth(0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_call_within_a_function_begins_another() {
    // __x86_indirect_thunk_ecx: call out; in: pause; lfence; jmp in; out: mov [esp], ecx; ret
    let code = [0xe8, 7, 0, 0, 0, 0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9, 0x89, 0x0c, 0x24, 0xc3];
    let found: Vec<Option<Frame>> = frames(false, &code).iter().map(|(_, frame)| *frame).collect();
    assert_eq!(found, [depth(0); 6]);
}

#[test]
fn what_cannot_be_followed_is_unknown() {
    // and esp, -16; push ebp: the depth depends on the stack pointer. jmp eax; nop and ud2; nop: nothing leads to the nop.
    for (code, unknown) in
        [(&[0x83, 0xe4, 0xf0, 0x55, 0x90][..], 3), (&[0xff, 0xe0, 0x90], 2), (&[0x0f, 0x0b, 0x90], 2)]
    {
        let memory = Written::new(false).with_code(AT, code);
        assert_eq!(frame_at(&memory, AT, AT + code.len() as u64, AT + unknown), None);
    }
    // A loop without an end.
    let memory = Written::new(false).with_code(AT, &[0xeb, 0xfe, 0x90]);
    assert_eq!(frame_at(&memory, AT, AT + 3, AT + 2), None);
}

#[test]
fn a_return_address_follows_a_call() {
    // call +0; call eax; call [eax+8]; call [0x12345678]; call [eax+ecx*4+0x100]; nop
    let code = [
        0xe8, 0, 0, 0, 0, 0xff, 0xd0, 0xff, 0x50, 8, 0xff, 0x15, 0x78, 0x56, 0x34, 0x12, 0xff, 0x94, 0x88, 0,
        1, 0, 0, 0x90,
    ];
    let memory = Written::new(false).with_code(AT, &code);
    let after: Vec<u64> = (0..=code.len() as u64).filter(|n| follows_call(&memory, AT + n)).collect();
    assert_eq!(after, [5, 7, 10, 16, 23]);
}
