//! The program that runs every case on the host CPU: a static ELF file made of bytes alone, without a library.
//!
//! Each case is entered by `rt_sigreturn` with a frame that holds all registers and the FPU's state; it ends with the signal
//! of its own fault or, with TF set, with the trace trap after its first instruction. The handler writes what the kernel
//! saved to stdout and enters the next. Everything that depends on the case is data.

use crate::common::{CODE, DATA, assemble};
use iced_x86::code_asm::{
    CodeAssembler, dword_ptr, eax, ebp, ebx, ecx, edi, edx, esi, esp, qword_ptr, r8, r10, rax, rdi, rdx, rsi,
    rsp,
};

/// Where the instructions of a case are, and how many bytes they may have.
pub const AT: u64 = CODE + 0x100;
pub const CASE_BYTES: u64 = 96;
/// Data memory that each case finds the same, and the stack's two pages.
pub const DATA_BYTES: u64 = 0x8000;
pub const STACK_PAGES: u64 = 0x1_6000;
pub const STACK_BYTES: u64 = 0x2000;
/// The memory that is written after each case: address and length.
pub const SHOWN: [(u64, u64); 3] = [(DATA, 0x800), (DATA + DATA_BYTES - 64, 64), (0x1_6f00, 0x200)];
/// Bytes of the saved general registers in a record, by width.
pub const fn saved_bytes(bits: u32) -> usize {
    if bits == 64 { 23 * 8 } else { 22 * 4 }
}
pub const FX_BYTES: usize = 512;

const NEXT: u64 = 0x40_0000;
const HANDLER: u64 = NEXT + 0x400;
const ENTRY: u64 = NEXT + 0x800;
const FRAME: u64 = 0x41_0000;
const FX_IMAGE: u64 = 0x41_1000;
const ACTION: u64 = 0x41_2000;
const NUMBER: u64 = 0x41_3000;
const DATA_TEMPLATE: u64 = 0x42_0000;
const ALTERNATE: u64 = 0x43_0000;
const ALTERNATE_BYTES: u64 = 0x2_0000;
const CASES: u64 = 0x46_0000;
/// From the start of a 64-bit signal frame's ucontext to its registers; the same of a 32-bit one.
const REGISTERS64: i32 = 40;
const REGISTERS32: i32 = 20;

/// Room for a signal frame.
const FRAME_BYTES: u64 = 512;
/// FSAVE's image before FXSAVE's, in a frame of 32 bits.
const FSAVE_BYTES: u64 = 112;
/// A case in the table: its code, its frame, and its image of the FPU.
const ENTRY_BYTES: u64 = CASE_BYTES + FRAME_BYTES + FSAVE_BYTES + FX_BYTES as u64;

/// State from which a case starts.
#[derive(Clone)]
pub struct Start {
    pub registers: [u64; 16],
    pub flags: u64,
    pub fx: Vec<u8>,
}

/// Segment bytes at their address.
struct Segment {
    at: u64,
    bytes: Vec<u8>,
    size: u64,
    executable: bool,
}

/// The program for these cases, each of which finds this data.
pub fn program(bits: u32, data: &[u8], cases: &[(Vec<u8>, Start)]) -> Vec<u8> {
    let driver = driver(bits, cases.len() as u32);
    let mut control = vec![0; (CASES - FRAME) as usize];
    let mut put = |at: u64, bytes: &[u8]| {
        control[(at - FRAME) as usize..][..bytes.len()].copy_from_slice(bytes);
    };
    let mut table = Vec::new();
    for (code, start) in cases {
        let frame = if bits == 64 { frame64(start) } else { frame32(start) };
        let end = table.len() as u64;
        table.extend(code);
        table.resize((end + CASE_BYTES) as usize, 0x90);
        table.extend(frame);
        table.resize((end + CASE_BYTES + FRAME_BYTES) as usize, 0);
        table.extend(fsave_header(&start.fx));
        table.extend(&start.fx);
    }
    put(FRAME, &table[CASE_BYTES as usize..][..FRAME_BYTES as usize]);
    put(ACTION, &action(bits, HANDLER));
    put(DATA_TEMPLATE, data);
    let mut code = vec![0x90; 0x400];
    code.resize(0x1000, 0);
    let zero = |at, size| Segment { at, bytes: Vec::new(), size, executable: false };
    let full = |at, bytes: Vec<u8>, executable| Segment { at, size: bytes.len() as u64, bytes, executable };
    let segments = [
        zero(STACK_PAGES, STACK_BYTES),
        full(CODE, code, true),
        zero(DATA, DATA_BYTES),
        full(NEXT, driver, true),
        full(FRAME, control, false),
        full(CASES, table, false),
    ];
    elf(bits, ENTRY, &segments)
}

fn action(bits: u32, handler: u64) -> Vec<u8> {
    // SA_SIGINFO, SA_ONSTACK, SA_NODEFER, SA_RESTORER.
    const FLAGS: u64 = 0x4c00_0004;
    let words = [handler, FLAGS, handler, 0, 0];
    let size = if bits == 64 { 8 } else { 4 };
    words.iter().flat_map(|w| w.to_le_bytes()[..size].to_vec()).collect()
}

/// The driver's pieces, each at its own address: what comes after a case, the handler, and the start.
fn driver(bits: u32, count: u32) -> Vec<u8> {
    let wide = bits == 64;
    let mut bytes = assemble(bits, NEXT, |a| if wide { next64(a, count) } else { next32(a, count) });
    bytes.resize((HANDLER - NEXT) as usize, 0xcc);
    bytes.extend(assemble(bits, HANDLER, |a| if wide { handler64(a) } else { handler32(a) }));
    bytes.resize((ENTRY - NEXT) as usize, 0xcc);
    bytes.extend(assemble(bits, ENTRY, |a| if wide { start64(a) } else { start32(a) }));
    bytes
}

/// SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV.
const SIGNALS: [u32; 5] = [4, 5, 7, 8, 11];

fn start64(a: &mut CodeAssembler) {
    a.mov(rdi, FRAME + 8 + 16).unwrap();
    a.xor(esi, esi).unwrap();
    system64(a, 131);
    for signal in SIGNALS {
        a.mov(edi, signal).unwrap();
        a.mov(rsi, ACTION).unwrap();
        a.xor(edx, edx).unwrap();
        a.mov(r10, 8u64).unwrap();
        system64(a, 13);
    }
    a.jmp(NEXT).unwrap();
}

fn start32(a: &mut CodeAssembler) {
    a.mov(ebx, FRAME as u32 + 144 + 8).unwrap();
    a.xor(ecx, ecx).unwrap();
    system32(a, 186);
    for signal in SIGNALS {
        a.mov(ebx, signal).unwrap();
        a.mov(ecx, ACTION as u32).unwrap();
        a.xor(edx, edx).unwrap();
        a.mov(esi, 8).unwrap();
        system32(a, 174);
    }
    a.jmp(NEXT).unwrap();
}

fn system64(a: &mut CodeAssembler, number: u32) {
    a.mov(eax, number).unwrap();
    a.syscall().unwrap();
}

fn system32(a: &mut CodeAssembler, number: u32) {
    a.mov(eax, number).unwrap();
    a.int(0x80).unwrap();
}

fn handler64(a: &mut CodeAssembler) {
    a.mov(r8, rdx).unwrap();
    let write = |a: &mut CodeAssembler, length: u64| {
        a.mov(edi, 1).unwrap();
        a.mov(edx, length as u32).unwrap();
        system64(a, 1);
    };
    a.lea(rsi, qword_ptr(r8 + REGISTERS64)).unwrap();
    write(a, saved_bytes(64) as u64);
    a.mov(rsi, qword_ptr(r8 + REGISTERS64 + 23 * 8)).unwrap();
    write(a, FX_BYTES as u64);
    for (at, length) in SHOWN {
        a.mov(rsi, at).unwrap();
        write(a, length);
    }
    a.jmp(NEXT).unwrap();
}

fn handler32(a: &mut CodeAssembler) {
    a.mov(ebp, dword_ptr(esp + 12)).unwrap();
    let write = |a: &mut CodeAssembler, length: u64| {
        a.mov(ebx, 1).unwrap();
        a.mov(edx, length as u32).unwrap();
        system32(a, 4);
    };
    a.lea(ecx, dword_ptr(ebp + REGISTERS32)).unwrap();
    write(a, saved_bytes(32) as u64);
    // The FXSAVE image follows FSAVE's, to which the 20th word points.
    a.mov(ecx, dword_ptr(ebp + REGISTERS32 + 19 * 4)).unwrap();
    a.add(ecx, FSAVE_BYTES as i32).unwrap();
    write(a, FX_BYTES as u64);
    for (at, length) in SHOWN {
        a.mov(ecx, at as u32).unwrap();
        write(a, length);
    }
    a.jmp(NEXT).unwrap();
}

fn next64(a: &mut CodeAssembler, count: u32) {
    let mut done = a.create_label();
    a.mov(rdx, NUMBER).unwrap();
    a.mov(eax, dword_ptr(rdx)).unwrap();
    a.cmp(eax, count as i32).unwrap();
    a.jae(done).unwrap();
    a.add(dword_ptr(rdx), 1).unwrap();
    a.imul_3(eax, eax, ENTRY_BYTES as i32).unwrap();
    a.lea(rsi, qword_ptr(rax + CASES as i32)).unwrap();
    copy_case(a);
    copy(a, Some(DATA_TEMPLATE), DATA, DATA_BYTES);
    clear(a);
    a.mov(rsp, FRAME + 8).unwrap();
    system64(a, 15);
    a.set_label(&mut done).unwrap();
    a.xor(edi, edi).unwrap();
    system64(a, 60);
}

fn next32(a: &mut CodeAssembler, count: u32) {
    let mut done = a.create_label();
    a.mov(edx, NUMBER as u32).unwrap();
    a.mov(eax, dword_ptr(edx)).unwrap();
    a.cmp(eax, count as i32).unwrap();
    a.jae(done).unwrap();
    a.add(dword_ptr(edx), 1).unwrap();
    a.imul_3(eax, eax, ENTRY_BYTES as i32).unwrap();
    a.lea(esi, dword_ptr(eax + CASES as i32)).unwrap();
    copy_case(a);
    copy(a, Some(DATA_TEMPLATE), DATA, DATA_BYTES);
    clear(a);
    a.mov(esp, FRAME as u32 + 4).unwrap();
    system32(a, 173);
    a.set_label(&mut done).unwrap();
    a.xor(ebx, ebx).unwrap();
    system32(a, 1);
}

/// Copies the parts of a case to their places.
fn copy_case(a: &mut CodeAssembler) {
    copy(a, None, AT, CASE_BYTES);
    copy(a, None, FRAME, FRAME_BYTES);
    copy(a, None, FX_IMAGE - FSAVE_BYTES, FSAVE_BYTES + FX_BYTES as u64);
}

fn copy(a: &mut CodeAssembler, from: Option<u64>, to: u64, length: u64) {
    a.cld().unwrap();
    if let Some(from) = from {
        a.mov(esi, from as u32).unwrap();
    }
    a.mov(edi, to as u32).unwrap();
    a.mov(ecx, length as u32).unwrap();
    a.rep().movsb().unwrap();
}

fn clear(a: &mut CodeAssembler) {
    a.mov(edi, STACK_PAGES as u32).unwrap();
    a.mov(ecx, STACK_BYTES as u32).unwrap();
    a.xor(eax, eax).unwrap();
    a.rep().stosb().unwrap();
}

/// A 64-bit signal frame: return address, ucontext (flags, link, stack, registers, mask).
fn frame64(start: &Start) -> Vec<u8> {
    let r = &start.registers;
    // UC_SIGCONTEXT_SS and UC_STRICT_RESTORE_SS; CS 33h, SS 2bh.
    let segments = 0x2b_u64 << 48 | 0x33;
    let words = [
        0,
        6,
        0,
        ALTERNATE,
        0,
        ALTERNATE_BYTES,
        r[8],
        r[9],
        r[10],
        r[11],
        r[12],
        r[13],
        r[14],
        r[15],
        r[7],
        r[6],
        r[5],
        r[3],
        r[2],
        r[0],
        r[1],
        r[4],
        AT,
        start.flags,
        segments,
        0,
        0,
        0,
        0,
        FX_IMAGE,
    ];
    words.iter().flat_map(|w: &u64| w.to_le_bytes()).chain([0; 256]).collect()
}

/// A 32-bit signal frame: return address, signal, two pointers, siginfo, ucontext.
fn frame32(start: &Start) -> Vec<u8> {
    let r = |n: usize| start.registers[n] as u32;
    let fpstate = (FX_IMAGE - FSAVE_BYTES) as u32;
    let words = [
        0,
        0,
        ALTERNATE as u32,
        0,
        ALTERNATE_BYTES as u32,
        0,
        0,
        0x2b,
        0x2b,
        r(7),
        r(6),
        r(5),
        r(4),
        r(3),
        r(2),
        r(1),
        r(0),
        0,
        0,
        AT as u32,
        0x23,
        start.flags as u32,
        r(4),
        0x2b,
        fpstate,
        0,
        0,
        0,
        0,
    ];
    let context = words.iter().flat_map(|w: &u32| w.to_le_bytes());
    [0; 144].into_iter().chain(context).collect()
}

/// The FSAVE image that a 32-bit frame has before its FXSAVE image: same control, status, tags and registers.
fn fsave_header(fx: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from(u16::from_le_bytes([fx[at], fx[at + 1]]));
    let tags = (0..8).filter(|n| fx[4] >> n & 1 == 0).fold(0xffff_0000, |all, n| all | 3 << (2 * n));
    let mut image: Vec<u8> = [0xffff_0000 | word(0), 0xffff_0000 | word(2), tags, 0, 0, 0, 0]
        .iter()
        .flat_map(|w: &u32| w.to_le_bytes())
        .collect();
    for n in 0..8 {
        image.extend(&fx[32 + 16 * n..][..10]);
    }
    image.extend([0; 4]);
    image
}

/// An ELF executable of these segments, each in pages of its own.
fn elf(bits: u32, entry: u64, segments: &[Segment]) -> Vec<u8> {
    let wide = bits == 64;
    let word = |v: u64| v.to_le_bytes()[..if wide { 8 } else { 4 }].to_vec();
    let (header, entry_bytes) = if wide { (64u16, 56u16) } else { (52, 32) };
    let mut file = vec![0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, 1, 1];
    file.resize(16, 0);
    file.extend(2u16.to_le_bytes());
    file.extend(if wide { 62u16 } else { 3 }.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    for value in [entry, header.into(), 0] {
        file.extend(word(value));
    }
    file.extend(0u32.to_le_bytes());
    for value in [header, entry_bytes, segments.len() as u16, 0, 0, 0] {
        file.extend(value.to_le_bytes());
    }
    let mut offset = 0x1000u64;
    let mut content = Vec::new();
    for s in segments {
        let flags = 6 | u32::from(s.executable);
        let (length, size) = (s.bytes.len() as u64, s.size);
        file.extend(1u32.to_le_bytes());
        if wide {
            file.extend(flags.to_le_bytes());
        }
        for value in [offset, s.at, s.at, length, size] {
            file.extend(word(value));
        }
        if !wide {
            file.extend(flags.to_le_bytes());
        }
        file.extend(word(0x1000));
        content.extend(&s.bytes);
        content.resize(content.len().next_multiple_of(0x1000), 0);
        offset = 0x1000 + content.len() as u64;
    }
    file.resize(0x1000, 0);
    file.extend(content);
    file
}
