//! Guests that execute the instructions.

use super::cases::{OPERATIONS, state};
use super::executed;
use crate::common::*;
use iced_x86::code_asm::*;
use std::process::Command;
use trapline_emu::x87::{F80, Operation, X87};
use trapline_emu::{Core, Digest, Seg, Stop, Trap, Verdict, Watch, WatchKind};

const WIDTHS: [u32; 2] = [32, 64];
/// Operands that a guest goes through.
const TIMES: u64 = 48;
/// Bytes of each: ST(0) and ST(1) at multiples of 16, and the control word.
const OPERANDS: u64 = 48;
/// Bytes of the results of one instruction: two registers, and the status word.
const RESULT: u64 = 48;
const RESULTS: u64 = DATA + 0x2000;
const CR0_EM: u64 = 4;
const CR0_TS: u64 = 8;
const CR0_NE: u64 = 0x20;
const CR4_OSFXSR: u64 = 0x200;

fn emit(a: &mut CodeAssembler, operation: Operation) {
    match operation {
        Operation::F2xm1 => a.f2xm1(),
        Operation::Fyl2x => a.fyl2x(),
        Operation::Fptan => a.fptan(),
        Operation::Fpatan => a.fpatan(),
        Operation::Fxtract => a.fxtract(),
        Operation::Fprem1 => a.fprem1(),
        Operation::Fprem => a.fprem(),
        Operation::Fyl2xp1 => a.fyl2xp1(),
        Operation::Fsincos => a.fsincos(),
        Operation::Fscale => a.fscale(),
        Operation::Fsin => a.fsin(),
        Operation::Fcos => a.fcos(),
    }
    .unwrap();
}

/// The operands: from those of the comparison with the host, with all exceptions masked or not.
fn operands(masked: bool) -> Vec<(F80, F80, u16)> {
    let mut rng = Rng(5);
    let mut one = || {
        let x87 = state(&mut rng, Operation::Fyl2x);
        let control = x87.control | if masked { 0x3f } else { 0 };
        (x87.registers[x87.top], x87.registers[(x87.top + 1) % 8], control)
    };
    (0..TIMES).map(|_| one()).collect()
}

/// A loop over the operands with all instructions.
fn guest(bits: u32) -> Setup {
    guest_with(bits, true)
}

/// FZ and DAZ, all exceptions masked; and MXCSR as it is at first.
const FLUSHING: u32 = 0x9fc0;
const USUAL: u32 = 0x1f80;

/// Arithmetic of the x87 and of SSE, in a state in which the machine executes all of it, and back in the usual one.
fn compute_exactly(a: &mut CodeAssembler, bits: u32) {
    let source = if bits == 64 { rsi + 0 } else { esi + 0 };
    a.ldmxcsr(dword_ptr(source + 36)).unwrap();
    a.movups(xmm0, xmmword_ptr(source)).unwrap();
    a.mulps(xmm2, xmm0).unwrap();
    a.addps(xmm2, xmmword_ptr(source + 16)).unwrap();
    a.minps(xmm3, xmm2).unwrap();
    a.cmpps(xmm0, xmm2, 1).unwrap();
    a.ldmxcsr(dword_ptr(source + 40)).unwrap();
    a.subps(xmm3, xmm0).unwrap();
    a.fadd_2(st0, st1).unwrap();
    a.fmul(dword_ptr(source)).unwrap();
    a.fcomi(st0, st1).unwrap();
    a.fsqrt().unwrap();
}

/// The same; where exceptions are not masked, the machine executes all floating point, and nothing reports them.
fn guest_with(bits: u32, masked: bool) -> Setup {
    let mut data = Vec::new();
    for (a, b, control) in operands(masked) {
        data.extend(a.to_bytes());
        data.resize(data.len() + 6, 0);
        data.extend(b.to_bytes());
        data.resize(data.len() + 6, 0);
        data.extend(control.to_le_bytes());
        data.resize(data.len() + 2, 0);
        data.extend([FLUSHING.to_le_bytes(), USUAL.to_le_bytes(), [0; 4]].concat());
    }
    let mut setup = Setup::bits(bits).at(DATA, &data).asm(|a| {
        let mut again = a.create_label();
        a.mov(ebp, TIMES as u32).unwrap();
        a.mov(esi, DATA as u32).unwrap();
        a.mov(edi, RESULTS as u32).unwrap();
        a.set_label(&mut again).unwrap();
        for operation in OPERATIONS {
            a.fninit().unwrap();
            let (source, to) = if bits == 64 { (rsi + 0, rdi + 0) } else { (esi + 0, edi + 0) };
            a.fldcw(word_ptr(source + 32)).unwrap();
            a.fld(tbyte_ptr(source + 16)).unwrap();
            a.fld(tbyte_ptr(source)).unwrap();
            // Flags from before the instruction are used after it.
            a.cmp(eax, ebp).unwrap();
            if !masked {
                compute_exactly(a, bits);
            }
            emit(a, operation);
            a.adc(ebx, 0u32).unwrap();
            a.fnstsw(ax).unwrap();
            a.mov(word_ptr(to + 32), ax).unwrap();
            a.fstp(tbyte_ptr(to)).unwrap();
            a.fstp(tbyte_ptr(to + 16)).unwrap();
            a.add(edi, RESULT as u32).unwrap();
        }
        a.add(esi, OPERANDS as u32).unwrap();
        a.dec(ebp).unwrap();
        a.jnz(again).unwrap();
        a.hlt().unwrap();
    });
    if !masked {
        setup.cr0 &= !CR0_NE;
        setup.cr4 |= CR4_OSFXSR;
    }
    setup
}

/// How a guest is run.
#[derive(Debug, Clone, Copy, Default)]
struct How {
    no_stand_ins: bool,
    /// Instructions at a time; 0: all.
    pieces: u64,
    /// Whether each instruction has a patch.
    patched: bool,
    /// Traps until a patch is hit in line; 0: never.
    in_line_after: u16,
    /// Whether the execution of each is watched.
    watched: bool,
}

fn run(setup: &Setup, how: How) -> (Guest, u64) {
    let mut g = setup.boot();
    let mut hits = 0;
    g.m.core_mut().set_stand_ins(!how.no_stand_ins);
    g.m.core_mut().set_in_line_after(how.in_line_after);
    if how.patched {
        for (n, at) in setup.starts().into_iter().enumerate() {
            g.m.core_mut().arm(at, &[0xcc], n as u32).unwrap();
        }
    }
    let mut probes = Answers(|_: &mut Core, trap: &Trap| {
        hits += 1;
        if trap.in_line { Verdict::InLine } else { Verdict::Step }
    });
    if how.watched {
        for (n, at) in setup.starts().into_iter().enumerate() {
            let watch = Watch { kind: WatchKind::Execute, low: at, high: at };
            g.m.core_mut().watch(1000 + n as u32, watch);
        }
    }
    let stop = loop {
        let limit = if how.pieces == 0 { g.base + 1_000_000 } else { g.m.icount() + how.pieces };
        match g.m.run(Some(&mut probes), limit) {
            Stop::Limit => {}
            stop => break stop,
        }
    };
    assert_eq!(stop, Stop::Halted, "{how:?}");
    (g, hits)
}

fn digest(setup: &Setup, how: How) -> Digest {
    run(setup, how).0.m.digest()
}

#[test]
fn a_guest_gets_the_results_of_the_functions() {
    for bits in WIDTHS {
        let (g, _) = run(&guest(bits), How::default());
        let mut at = RESULTS;
        for (a, b, control) in operands(true) {
            let mut registers = [F80 { head: 0, mantissa: 0 }; 8];
            (registers[6], registers[7]) = (a, b);
            let empty = std::array::from_fn(|n| n < 6);
            let before = X87 { control, status: 0, top: 6, empty, registers };
            for operation in OPERATIONS {
                let after = executed(operation, &before);
                let status = u64::from(after.status) | (after.top as u64) << 11;
                assert_eq!(g.mem(at + 32, 2), status, "{operation:?} of {a:x?}, {b:x?}");
                for n in [0, 1] {
                    let place = (after.top + n) % 8;
                    let stored = F80 {
                        mantissa: g.mem(at + 16 * n as u64, 8),
                        head: g.mem(at + 16 * n as u64 + 8, 2) as u16,
                    };
                    if !after.empty[place] {
                        assert_eq!(stored, after.registers[place], "{operation:?} of {a:x?}, {b:x?}");
                    }
                }
                at += RESULT;
            }
        }
    }
}

#[test]
fn no_guest_sees_how_it_is_run() {
    for (bits, masked) in WIDTHS.into_iter().flat_map(|bits| [(bits, true), (bits, false)]) {
        let setup = guest_with(bits, masked);
        let free = digest(&setup, How::default());
        let ways = [
            How { no_stand_ins: true, ..How::default() },
            How { pieces: 1, ..How::default() },
            How { pieces: 13, ..How::default() },
            How { patched: true, ..How::default() },
            How { patched: true, no_stand_ins: true, ..How::default() },
            How { patched: true, in_line_after: 1, ..How::default() },
            How { patched: true, in_line_after: 2, pieces: 7, ..How::default() },
            How { watched: true, ..How::default() },
            How { watched: true, patched: true, in_line_after: 1, ..How::default() },
        ];
        for how in ways {
            let (g, hits) = run(&setup, how);
            assert_eq!(g.m.digest(), free, "{bits} bits, {how:?}");
            assert_eq!(hits > 0, how.patched || how.watched, "{bits} bits, {how:?}");
        }
    }
}

/// Names the variable that makes a child of the test print the digests.
const CHILD: &str = "TRAPLINE_X87_CHILD";

fn digests() -> String {
    WIDTHS.map(|bits| format!("{:?}", digest(&guest(bits), How::default()))).join(" ")
}

#[test]
#[cfg(target_os = "linux")]
fn the_library_of_the_host_changes_nothing() {
    if std::env::var_os(CHILD).is_some() {
        println!("digests: {}", digests());
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "x87::guest::the_library_of_the_host_changes_nothing", "--nocapture"]);
    child.env(CHILD, "1").env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA,-AVX2,-AVX512F");
    let output = child.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let found = said.lines().find_map(|line| line.split_once("digests: ")).map(|(_, digests)| digests);
    assert_eq!(found, Some(digests().as_str()), "{said}");
}

/// A guest that runs `fninit`, the control word and `more` in ring 0, with these flags of CR0.
fn checked(bits: u32, flags: u64, control: u16, more: impl Fn(&mut CodeAssembler)) -> (Guest, Setup) {
    let mut setup = Setup::bits(bits).at(DATA, &control.to_le_bytes()).asm(|a| {
        a.fninit().unwrap();
        a.mov(esi, DATA as u32).unwrap();
        a.fldcw(word_ptr(if bits == 64 { rsi + 0 } else { esi + 0 })).unwrap();
        more(a);
        a.hlt().unwrap();
    });
    setup.cr0 = setup.cr0 & !CR0_NE | flags;
    (setup.boot(), setup)
}

/// Division by zero: 1 * log2(0).
fn divides(a: &mut CodeAssembler) {
    a.fld1().unwrap();
    a.fldz().unwrap();
    a.fyl2x().unwrap();
}

#[test]
fn a_pending_exception_is_raised_by_the_next_instruction() {
    for bits in WIDTHS {
        for control in [0x37bu16, 0x37f] {
            let (mut g, setup) = checked(bits, CR0_NE, control, |a| {
                divides(a);
                a.nop().unwrap();
                a.fsin().unwrap();
            });
            if control == 0x37f {
                assert_eq!(g.run(), Stop::Halted);
                assert_eq!(g.core().env().eip(), setup.starts().last().unwrap() + 1);
                continue;
            }
            let caught = g.caught();
            let site = setup.starts()[7];
            assert_eq!((caught.vector, caught.ip, caught.error), (16, site, None), "{bits} bits");
            let env = g.core().env();
            // The operands stay, and the pointer is that of FYL2X.
            assert_eq!((env.fpstt(), env.fpus() & 0x80ff), (6, 0x8084));
            assert_eq!(
                (env.fpip(), u64::from(env.fpcs())),
                (setup.starts()[5], env.seg(Seg::Cs).selector.into())
            );
        }
        // Without CR0.NE, nothing reports it.
        let (mut g, setup) = checked(bits, 0, 0x37b, |a| {
            divides(a);
            a.fcos().unwrap();
        });
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!(g.core().env().fpip(), setup.starts()[6]);
    }
}

#[test]
fn a_pending_exception_is_raised_by_fwait() {
    for bits in WIDTHS {
        let (mut g, setup) = checked(bits, CR0_NE, 0x37b, |a| {
            divides(a);
            a.wait().unwrap();
        });
        let caught = g.caught();
        assert_eq!((caught.vector, caught.ip), (16, setup.starts()[6]), "{bits} bits");
    }
}

#[test]
fn each_instruction_that_waits_raises_a_pending_exception() {
    type Emit = fn(&mut CodeAssembler);
    let waiting: [Emit; 7] = [
        |a| a.fadd_2(st0, st1).unwrap(),
        |a| a.fld1().unwrap(),
        |a| a.fxch(st0, st1).unwrap(),
        |a| a.fstp(st1).unwrap(),
        |a| a.fxam().unwrap(),
        |a| a.emms().unwrap(),
        |a| a.movq(mm0, mm1).unwrap(),
    ];
    for bits in WIDTHS {
        for waits in waiting {
            let (mut g, setup) = checked(bits, CR0_NE, 0x37b, |a| {
                a.fld1().unwrap();
                a.fldz().unwrap();
                a.fdivp(st1, st0).unwrap();
                a.nop().unwrap();
                waits(a);
            });
            let caught = g.caught();
            assert_eq!(
                (caught.vector, caught.ip, caught.error),
                (16, setup.starts()[7], None),
                "{bits} bits"
            );
            // Neither a result nor a pop.
            let env = g.core().env();
            assert_eq!((env.fpstt(), env.fpus() & 0x80ff, env.fpip()), (6, 0x8084, setup.starts()[5]));
        }
    }
}

#[test]
fn an_exception_of_sse_that_is_not_masked_is_raised() {
    // MXCSR with division by zero unmasked, 1 and 0.
    let data: Vec<u8> = [0x1d80u32, 0x3f80_0000, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    for bits in WIDTHS {
        for (reports, vector) in [(0x600, 19), (CR4_OSFXSR, 6)] {
            let mut setup = Setup::bits(bits).at(DATA, &data).asm(|a| {
                a.mov(esi, DATA as u32).unwrap();
                let source = if bits == 64 { rsi + 0 } else { esi + 0 };
                a.ldmxcsr(dword_ptr(source)).unwrap();
                a.movss(xmm0, dword_ptr(source + 4)).unwrap();
                a.divss(xmm0, dword_ptr(source + 8)).unwrap();
                a.hlt().unwrap();
            });
            setup.cr4 = setup.cr4 & !0x600 | reports;
            let mut g = setup.boot();
            let caught = g.caught();
            assert_eq!((caught.vector, caught.ip), (vector, setup.starts()[3]), "{bits} bits");
            let env = g.core().env();
            assert_eq!((env.xmm(0), env.mxcsr()), (0x3f80_0000, 0x1d84));
        }
    }
}

#[test]
fn fnstenv_masks_all_exceptions() {
    for bits in WIDTHS {
        let (mut g, _) = checked(bits, CR0_NE, 0x37b, |a| {
            divides(a);
            a.fnstenv(dword_ptr(if bits == 64 { rsi + 64 } else { esi + 64 })).unwrap();
            a.fld1().unwrap();
        });
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!(g.mem(DATA + 64, 2), 0x37b);
        assert_eq!(g.core().env().fpuc(), 0x37f);
    }
}

#[test]
fn without_an_fpu_there_is_no_result() {
    for bits in WIDTHS {
        for flag in [CR0_EM, CR0_TS] {
            for operation in OPERATIONS {
                let setup = Setup::bits(bits).asm(|a| {
                    emit(a, operation);
                    a.hlt().unwrap();
                });
                let mut g = Setup { cr0: setup.cr0 | flag | CR0_NE, ..setup }.boot();
                // An exception that is pending comes after it.
                g.core().env().set_fpus(0x8081);
                let before = g.core().env().fpip();
                let caught = g.caught();
                assert_eq!((caught.vector, caught.ip), (7, CODE), "{bits} bits, {operation:?}, {flag:x}");
                assert_eq!(g.core().env().fpip(), before);
            }
        }
    }
}

#[test]
fn prefixes_change_nothing() {
    for bits in WIDTHS {
        let legacy: [&[u8]; 7] = [&[], &[0x66], &[0xf2], &[0xf3], &[0x2e], &[0x67], &[0x66, 0xf3]];
        let wide: [&[u8]; 3] = [&[0x48], &[0x41], &[0xf3, 0x4f]];
        let all = legacy.iter().chain(if bits == 64 { &wide[..] } else { &[] });
        for prefix in all {
            let (mut g, setup) = checked(bits, CR0_NE, 0x37f, |a| {
                a.fldpi().unwrap();
                let bytes = [prefix, &[0xd9, 0xfe][..]].concat();
                a.db(&bytes).unwrap();
            });
            assert_eq!(g.run(), Stop::Halted, "{bits} bits, {prefix:02x?}");
            let env = g.core().env();
            // The sine of pi to 64 bits, with pi to 66.
            assert_eq!(
                F80::from_bytes(env.fpreg(7)),
                F80 { head: 0xbfbf, mantissa: 1 << 63 },
                "{prefix:02x?}"
            );
            assert_eq!(env.fpip(), setup.starts()[4], "{bits} bits, {prefix:02x?}");
        }
    }
}
