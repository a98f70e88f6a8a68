//! Instructions that the machine takes over from the engine do what they do in the engine: results, flags, faults, the
//! accesses that a watch sees, and what devices see.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use crate::watching::Watching;
use iced_x86::code_asm::*;
use iced_x86::{
    Code, CodeSize, ConditionCode, Encoder, Instruction, MemoryOperand, Mnemonic, OpCodeOperandKind as K,
    OpKind, Register,
};
use trapline_emu::{Digest, Stop, Verdict, Watch, WatchKind};

/// Instructions that are run.
const LENGTH: u64 = 8_000;
/// A page that can only be read, one that is not there, the local APIC, and the HPET.
const READ_ONLY: u64 = DATA + 0x1000;
const ABSENT: u64 = DATA + 0x2000;
const APIC: u64 = DATA + 0x3000;
const HPET: u64 = DATA + 0x4000;

/// The forms of the instructions that are taken over, and have an operand in memory, in code of so many bits.
fn forms(bits: u32) -> Vec<Code> {
    use Mnemonic as M;
    let taken = |code: Code| {
        let mnemonic = code.mnemonic();
        let moves =
            matches!(mnemonic, M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Xchg | M::Xadd | M::Cmpxchg);
        let with_one = matches!(mnemonic, M::Inc | M::Dec | M::Neg | M::Not);
        let with_two = matches!(
            mnemonic,
            M::Add | M::Or | M::Adc | M::Sbb | M::And | M::Sub | M::Xor | M::Cmp | M::Test
        );
        let sets = code.condition_code() != ConditionCode::None && code.op_code().op_count() == 1;
        moves || with_one || with_two || sets
    };
    let memory =
        |kind: &K| matches!(kind, K::mem | K::r8_or_mem | K::r16_or_mem | K::r32_or_mem | K::r64_or_mem);
    let all = Code::values().filter(|code| {
        let form = code.op_code();
        taken(*code)
            && form.is_instruction()
            && form.encoding() == iced_x86::EncodingKind::Legacy
            && if bits == 64 { form.mode64() } else { form.mode32() }
            && form.op_kinds().iter().any(memory)
            && !form.op_kinds().contains(&K::seg_reg)
    });
    let all: Vec<Code> = all.collect();
    assert!(all.len() > 106, "{} forms", all.len());
    all
}

/// An instruction of this form, with its operand in memory relative to ESI.
fn encoded(code: Code, bits: u32, rng: &mut Rng) -> Vec<u8> {
    let mut i = Instruction::default();
    i.set_code(code);
    let kinds = code.op_code().op_kinds();
    for (n, kind) in (0u32..).zip(kinds) {
        let register = |from: &[Register], rng: &mut Rng| from[rng.below(from.len() as u64) as usize];
        use Register as R;
        match kind {
            K::mem | K::r8_or_mem | K::r16_or_mem | K::r32_or_mem | K::r64_or_mem => {
                let base = if bits == 64 { R::RSI } else { R::ESI };
                let of = MemoryOperand::with_base_displ(base, rng.below(48) as i64);
                i.set_op_kind(n, OpKind::Memory);
                i.set_memory_base(of.base);
                i.set_memory_displacement64(of.displacement as u64);
                i.set_memory_displ_size(if bits == 64 { 8 } else { 4 });
            }
            K::r8_reg => {
                i.set_op_kind(n, OpKind::Register);
                i.set_op_register(n, register(&[R::AL, R::CL, R::DL, R::BL, R::AH, R::BH, R::CH], rng));
            }
            K::r16_reg => {
                i.set_op_kind(n, OpKind::Register);
                i.set_op_register(n, register(&[R::AX, R::CX, R::DX, R::BX], rng));
            }
            K::r32_reg => {
                i.set_op_kind(n, OpKind::Register);
                i.set_op_register(n, register(&[R::EAX, R::ECX, R::EDX, R::EBX], rng));
            }
            K::r64_reg => {
                i.set_op_kind(n, OpKind::Register);
                i.set_op_register(n, register(&[R::RAX, R::RCX, R::RDX, R::RBX], rng));
            }
            K::imm8 => {
                i.set_op_kind(n, OpKind::Immediate8);
                i.set_immediate8(rng.below(256) as u8);
            }
            K::imm8sex16 | K::imm8sex32 | K::imm8sex64 => {
                i.set_op_kind(
                    n,
                    match kind {
                        K::imm8sex16 => OpKind::Immediate8to16,
                        K::imm8sex32 => OpKind::Immediate8to32,
                        _ => OpKind::Immediate8to64,
                    },
                );
                i.set_immediate_i64(n, i64::from(rng.below(256) as u8 as i8));
            }
            K::imm16 => {
                i.set_op_kind(n, OpKind::Immediate16);
                i.set_immediate16(rng.below(0x1_0000) as u16);
            }
            K::imm32 => {
                i.set_op_kind(n, OpKind::Immediate32);
                i.set_immediate32(rng.below(1 << 32) as u32);
            }
            K::imm32sex64 => {
                i.set_op_kind(n, OpKind::Immediate32to64);
                i.set_immediate_i64(n, i64::from(rng.below(1 << 32) as u32 as i32));
            }
            other => panic!("{code:?} has an operand {other:?}"),
        }
    }
    let locks = code.op_code().can_use_lock_prefix() && rng.below(4) == 0;
    i.set_has_lock_prefix(locks && i.op0_kind() == OpKind::Memory);
    i.set_code_size(if bits == 64 { CodeSize::Code64 } else { CodeSize::Code32 });
    let mut encoder = Encoder::new(bits);
    encoder.encode(&i, CODE).unwrap_or_else(|e| panic!("{code:?}: {e}"));
    encoder.take_buffer()
}

/// An instruction without an operand in memory, of those that the machine executes where their execution is watched.
fn on_registers(a: &mut CodeAssembler, rng: &mut Rng) {
    let (to, from) = (rng.below(3) as usize, rng.below(3) as usize);
    let (wide, bytes) = ([eax, ecx, edx], [al, ch, dl]);
    let value = rng.below(1 << 32) as i32;
    match rng.below(12) {
        0 => a.mov(wide[to], wide[from]),
        1 => a.mov(bytes[to], bytes[from]),
        2 => a.mov(wide[to], value),
        3 => a.movzx(wide[to], bytes[from]),
        4 => a.movsx(wide[to], bytes[from]),
        5 => a.lea(wide[to], ptr(wide[from] + esi * 4 + value)),
        6 => a.adc(wide[to], wide[from]),
        7 => a.sub(wide[to], value),
        8 => a.test(bytes[to], bytes[from]),
        9 => a.neg(wide[to]),
        10 => a.dec(bytes[to]),
        _ if a.bitness() == 64 => a.movsxd(rcx, wide[from]),
        _ => a.nop_1(dword_ptr(wide[from])),
    }
    .unwrap();
}

/// One random piece of the loop.
fn piece(a: &mut CodeAssembler, (bits, ring): (u32, u8), forms: &[Code], rng: &mut Rng) {
    let wide = bits == 64;
    match rng.below(19) {
        0..=8 => {
            let code = forms[rng.below(forms.len() as u64) as usize];
            a.db(&encoded(code, bits, rng)).unwrap();
        }
        // Across the end of the page, or into another one.
        9 => {
            let at = match rng.below(6) {
                0 => READ_ONLY - 20 + rng.below(20),
                1 => ABSENT - 20 + rng.below(20),
                2 => APIC + 0x80,
                3 => HPET + 0xf0,
                4 => HPET,
                _ => READ_ONLY + 64,
            };
            a.mov(esi, at as u32).unwrap();
        }
        10 | 11 => a.mov(esi, DATA as u32).unwrap(),
        12 if wide => {
            a.push(rax).unwrap();
            a.push(-7i32).unwrap();
            a.pop(rcx).unwrap();
            a.pop(rdx).unwrap();
        }
        12 => {
            a.push(eax).unwrap();
            a.push(-7i32).unwrap();
            a.pop(ecx).unwrap();
            a.pop(edx).unwrap();
        }
        13 => {
            let (mut over, mut function) = (a.create_label(), a.create_label());
            a.call(function).unwrap();
            a.jmp(over).unwrap();
            a.set_label(&mut function).unwrap();
            a.inc(ecx).unwrap();
            a.ret().unwrap();
            a.set_label(&mut over).unwrap();
            a.nop().unwrap();
        }
        14 => (0..3).for_each(|_| on_registers(a, rng)),
        15 => indirect(a, rng),
        16 => loops(a, rng),
        17 if ring == 0 => system(a, rng),
        // The timer's next interrupt.
        _ => {
            a.push_flags();
            a.cld().unwrap();
        }
    }
}

/// A call of [`STUB`] and a jump there, whose targets are in a register or in memory that may be watched.
fn indirect(a: &mut CodeAssembler, rng: &mut Rng) {
    let (mut function, mut over) = (a.create_label(), a.create_label());
    let at = DATA as u32 + 4 * rng.below(10) as u32;
    let wide = a.bitness() == 64;
    let in_memory = rng.below(2) == 0;
    let target = |a: &mut CodeAssembler| {
        match wide {
            true => a.mov(rax, STUB).and_then(|()| a.mov(qword_ptr(at), rax)),
            false => a.mov(eax, STUB as u32).and_then(|()| a.mov(dword_ptr(at), eax)),
        }
        .unwrap();
    };
    target(a);
    match (wide, in_memory) {
        (true, true) => a.call(qword_ptr(at)),
        (true, false) => a.call(rax),
        (false, true) => a.call(dword_ptr(at)),
        (false, false) => a.call(eax),
    }
    .unwrap();
    a.call(function).unwrap();
    a.jmp(over).unwrap();
    a.set_label(&mut function).unwrap();
    target(a);
    match (wide, in_memory) {
        (true, true) => a.jmp(qword_ptr(at)),
        (true, false) => a.jmp(rax),
        (false, true) => a.jmp(dword_ptr(at)),
        (false, false) => a.jmp(eax),
    }
    .unwrap();
    a.set_label(&mut over).unwrap();
    a.nop().unwrap();
}

/// A short loop that ends by its count or by ZF.
fn loops(a: &mut CodeAssembler, rng: &mut Rng) {
    let mut again = a.create_label();
    a.mov(ecx, rng.below(6) as u32 + 1).unwrap();
    a.set_label(&mut again).unwrap();
    a.sub(eax, 1 + rng.below(2) as i32).unwrap();
    a.test(eax, 1 << rng.below(3)).unwrap();
    if rng.below(2) == 0 { a.loope(again) } else { a.loopne(again) }.unwrap();
}

/// Instructions of the kernel that the machine executes where they are displaced.
fn system(a: &mut CodeAssembler, rng: &mut Rng) {
    let wide = a.bitness() == 64;
    match rng.below(5) {
        0 => a.rdtsc(),
        1 if wide => a.swapgs().and_then(|()| a.swapgs()),
        1 | 2 if wide => a.mov(rax, [cr0, cr2, cr3, cr4][rng.below(4) as usize]),
        1 | 2 => a.mov(eax, [cr0, cr2, cr3, cr4][rng.below(4) as usize]),
        3 if wide => a.mov(rax, cr3).and_then(|()| a.mov(cr3, rax)),
        3 => a.mov(eax, cr3).and_then(|()| a.mov(cr3, eax)),
        _ => a.invlpg(ptr(esi)),
    }
    .unwrap();
}

/// Keeps the flags over a CLD; so that pieces end with whatever the one before has set.
trait Flags {
    fn push_flags(&mut self);
}

impl Flags for CodeAssembler {
    fn push_flags(&mut self) {
        if self.bitness() == 64 {
            self.pushfq().unwrap();
            self.popfq().unwrap();
        } else {
            self.pushfd().unwrap();
            self.popfd().unwrap();
        }
    }
}

/// The handler of page faults, and a function.
const FAULT: u64 = CODE + 0x1800;
const STUB: u64 = FAULT + 0x80;

/// A loop of random pieces; a page fault adds its error code to EBX and corrects ESI.
fn guest(bits: u32, seed: u64) -> Setup {
    let mut rng = Rng(seed + 1);
    let ring = if rng.below(3) == 0 { 3 } else { 0 };
    let traced = rng.below(8) == 0;
    let forms = forms(bits);
    let mut s = Setup::bits(bits).pc().ring(ring).flags(if traced { TF } else { 0 });
    let wide = s.wide();
    s = s.gate(14, FAULT, 0x8e00).gate(1, FAULT + 0x40, 0x8e00);
    s = s.pte(READ_ONLY, READ_ONLY | P | US).pte(ABSENT, 0);
    s = s.pte(APIC, 0xfee0_0000 | P | RW | US).pte(HPET, 0xfed0_0000 | P | RW | US);
    s = s.asm_at(FAULT, |a| {
        a.mov(esi, DATA as u32).unwrap();
        if wide {
            a.add(rbx, qword_ptr(rsp)).unwrap();
            a.add(rsp, 8i32).unwrap();
            a.iretq().unwrap()
        } else {
            a.add(ebx, dword_ptr(esp)).unwrap();
            a.add(esp, 4i32).unwrap();
            a.iretd().unwrap()
        }
    });
    s = s.asm_at(FAULT + 0x40, |a| {
        a.add(ebx, 3i32).unwrap();
        if wide { a.iretq().unwrap() } else { a.iretd().unwrap() }
    });
    s = s.asm_at(STUB, |a| {
        a.inc(edx).unwrap();
        a.ret().unwrap();
    });
    s.asm(|a| {
        let mut again = a.create_label();
        a.mov(ebp, 400u32).unwrap();
        a.mov(esi, DATA as u32).unwrap();
        a.set_label(&mut again).unwrap();
        for _ in 0..4 + rng.below(24) {
            piece(a, (bits, ring), &forms, &mut rng);
        }
        a.dec(ebp).unwrap();
        a.jnz(again).unwrap();
        // Ring 3 ends here by #GP.
        a.hlt().unwrap();
    })
}

/// How a guest is run.
#[derive(Debug, Clone, Copy)]
struct How {
    taken_over: bool,
    watched: bool,
    probed: bool,
    pieces: bool,
}

/// What is seen of a run.
type Seen = (Stop, u64, Digest, String);

fn run(s: &Setup, seed: u64, length: u64, how: How) -> (Guest, Seen) {
    let mut g = s.boot();
    let mut rng = Rng(seed ^ 0x5555);
    let core = g.m.core_mut();
    core.set_stand_ins(how.taken_over);
    if how.watched {
        let stack = if s.ring == 0 { STACK0 } else { STACK3 };
        let data = [
            (WatchKind::Write, DATA + 8, DATA + 11),
            (WatchKind::ReadWrite, DATA + 0x20, DATA + 0x23),
            (WatchKind::Write, stack - 0x14, stack - 0x11),
            (WatchKind::ReadWrite, READ_ONLY + 70, READ_ONLY + 70),
            (WatchKind::ReadWrite, APIC + 0x81, APIC + 0x83),
            (WatchKind::ReadWrite, HPET, HPET + 0xff),
        ];
        for (id, (kind, low, high)) in (0..).zip(data) {
            core.watch(id, Watch { kind, low, high });
        }
        let starts = s.starts();
        for id in 0..3 {
            let at = starts[rng.below(starts.len() as u64) as usize];
            core.watch(id, Watch { kind: WatchKind::Execute, low: at, high: at });
        }
    }
    if how.probed {
        let starts = s.starts();
        for n in 0..4 {
            let at = starts[rng.below(starts.len() as u64) as usize];
            // Two probes may get the same place.
            let _ = core.arm(at, &[0xcc], n);
        }
    }
    let mut watching = Watching { verdict: Some(Verdict::Step), ..Watching::default() };
    let end = g.base + length;
    let stop = loop {
        let limit = if how.pieces { (g.m.icount() + 1 + rng.below(90)).min(end) } else { end };
        let stop = g.m.run(Some(&mut watching), limit);
        if stop != Stop::Limit || limit == end {
            break stop;
        }
    };
    let told = format!("{:?} {:?} {:?}", watching.hits, watching.after, watching.traps);
    let seen = (stop, g.m.icount(), g.m.digest(), told);
    (g, seen)
}

/// The first instruction after which two ways of running differ.
fn difference(s: &Setup, seed: u64, one: How, other: How) -> String {
    let (mut same, mut differs) = (0, LENGTH);
    while differs - same > 1 {
        let middle = (same + differs) / 2;
        if run(s, seed, middle, one).1 == run(s, seed, middle, other).1 {
            same = middle
        } else {
            differs = middle
        }
    }
    let at = run(s, seed, same, one).0;
    let after = [one, other].map(|how| {
        let (g, seen) = run(s, seed, differs, how);
        let told = &seen.3[seen.3.len().saturating_sub(300)..];
        format!("{}\n{told}", g.core().dump_registers())
    });
    let linear = at.core().env().eip();
    format!(
        "instruction {differs}: {:?}, from\n{}\nto\n{}\nand\n{}",
        at.core().decode_original(linear),
        at.core().dump_registers(),
        after[0],
        after[1]
    )
}

fn compare(bits: u32, seed: u64) -> u64 {
    let s = guest(bits, seed);
    let mut stepped = 0;
    for watched in [true, false] {
        for probed in [false, true] {
            let plain = How { taken_over: false, watched, probed, pieces: false };
            let wanted = run(&s, seed, LENGTH, plain);
            for pieces in [false, true] {
                let how = How { taken_over: true, pieces, ..plain };
                let found = run(&s, seed, LENGTH, how);
                if found.1 != wanted.1 {
                    panic!("{bits} bits, seed {seed}, {how:?}: {}", difference(&s, seed, how, plain));
                }
                stepped += found.0.core().watched_steps();
            }
        }
    }
    stepped
}

#[test]
fn an_instruction_does_the_same_when_it_is_taken_over() {
    let times = std::env::var("TRAPLINE_TAKEN_OVER").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let stepped: u64 = (1..=times).map(|seed| compare(32, seed) + compare(64, seed)).sum();
    assert!(stepped > times * 100, "{stepped} instructions reached watched pages");
}
