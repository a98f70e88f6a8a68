//! LOCK before BT, BTS, BTR and BTC with a register, which the engine cannot translate, raises #UD at its own address,
//! whatever precedes it in its block, wherever it lies, and even if it was just written.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use std::process::Command;
use trapline_emu::{Core, Segment, Stop, Trap};

/// lock bts eax, ecx
const LOCKED: [u8; 4] = [0xf0, 0x0f, 0xab, 0xc8];

/// Runs into #UD at `at`, as instruction number `count`.
fn undefined_at(g: &mut Guest, at: u64, count: u64) {
    let caught = g.caught();
    assert_eq!((caught.vector, caught.ip, g.count()), (6, at, count + 3), "{}", g.core().dump_registers());
}

#[test]
fn instructions_before_it_in_its_block_are_executed() {
    for bits in [32, 64] {
        for ring in [0, 3] {
            let setup = Setup::bits(bits).ring(ring).asm(|a| {
                a.mov(ebx, DATA as u32).unwrap();
                // The engine keeps the address of the last access, which the instruction would use wrongly.
                a.mov(eax, dword_ptr(rbx_or_ebx(bits))).unwrap();
                a.inc(edx).unwrap();
                a.db(&LOCKED).unwrap();
            });
            let mut g = setup.boot();
            let at = CODE + if bits == 64 { 9 } else { 8 };
            undefined_at(&mut g, at, 3);
            assert_eq!((g.gpr(2), g.mem(DATA, 8)), (1, 0), "nothing is written");
        }
    }
}

fn rbx_or_ebx(bits: u32) -> AsmMemoryOperand {
    if bits == 64 { dword_ptr(rbx) } else { dword_ptr(ebx) }
}

#[test]
fn it_may_cross_a_page_or_begin_one() {
    for bits in [32, 64] {
        for before in 1..=4u64 {
            let at = CODE + 0x1000 - before;
            let jump = assemble(bits, CODE, |a| a.jmp(at).unwrap());
            let mut g = Setup::bits(bits).code(&jump).at(at, &LOCKED).boot();
            undefined_at(&mut g, at, 1);
        }
    }
}

#[test]
fn code_may_write_it_ahead_of_itself() {
    for bits in [32, 64] {
        // Flips the instruction at `there` between two NOPs and the locked one, and calls it, until its page is written and
        // executed at once.
        let there = CODE + 0x100;
        let mut g = Setup::bits(bits)
            .asm(|a| {
                let mut again = a.create_label();
                a.mov(ecx, 60).unwrap();
                a.set_label(&mut again).unwrap();
                a.mov(dword_ptr(there), 0x0090_9066_u32 as i32).unwrap();
                a.mov(byte_ptr(there + 3), 0xc3).unwrap();
                a.call(there).unwrap();
                a.dec(ecx).unwrap();
                a.jnz(again).unwrap();
                a.mov(dword_ptr(there), i32::from_le_bytes(LOCKED)).unwrap();
                a.call(there).unwrap();
            })
            .boot();
        assert_eq!(g.caught().ip, there);
        assert_eq!(g.frame().vector, 6);
        assert_eq!(g.count(), 1 + 60 * 8 + 2 + 3);
    }
}

#[test]
fn probes_before_it_in_its_block_change_nothing() {
    for bits in [32, 64] {
        let setup = Setup::bits(bits).asm(|a| {
            a.mov(ecx, 3).unwrap();
            a.nop().unwrap();
            a.inc(edx).unwrap();
            a.db(&LOCKED).unwrap();
        });
        let unprobed = unarmed(&setup);
        for after in [0, 1, 2] {
            let mut g = setup.boot();
            g.m.core_mut().set_in_line_after(after);
            g.m.core_mut().arm(CODE + 5, &[0xcc], 0).unwrap();
            let mut nops = Nops::new();
            assert_eq!(run(&mut g, &mut nops), unprobed);
            assert_eq!(nops.hits, 1);
        }
    }
}

#[test]
fn it_is_undefined_each_time() {
    // The handler of #UD goes back to it.
    let mut g = Setup::bits32().code(&LOCKED).at(HANDLERS + 16 * 6, &[0x42, 0xcf]).boot();
    assert_eq!(g.run_to(3000), Stop::Limit);
    assert_eq!((g.ip(), g.gpr(2)), (CODE, 1500));
}

#[test]
fn an_abort_while_translated_code_runs_ends_the_run_with_a_sentence() {
    // A call through a gate to ring 0, where TR holds a value that LTR cannot load: the engine aborts in its helper.
    let gate = 0x0000_ec00_0008_0000 | (CODE + 0x100);
    let gate = gate & 0xffff | 0x0000_ec00_0008_0000 | ((CODE + 0x100) >> 16) << 48;
    let mut g =
        Setup::bits32().ring(3).at(GDT + 0x78, &gate.to_le_bytes()).code(&[0x9a, 0, 0, 0, 0, 0x7b, 0]).boot();
    let tr = g.core().env().tr();
    g.core().env().set_tr(Segment::new(tr.selector as u16, tr.base, tr.limit, tr.flags & !0x8000));
    let Stop::Panicked(text) = g.run() else { panic!("{}", g.core().dump_registers()) };
    assert!(text.contains("the engine aborted"), "{text}");
    assert!(matches!(g.run(), Stop::Panicked(_)), "it does not run again");
}

#[test]
fn an_abort_in_a_hook_ends_the_process() {
    const CHILD: &str = "TRAPLINE_ABORTS";
    if std::env::var(CHILD).is_ok() {
        // The engine has been rescued before.
        let mut g = Setup::bits32().code(&LOCKED).boot();
        g.caught();
        let mut g = Setup::bits32().code(&[0x90, 0xf4]).boot();
        g.m.core_mut().arm(CODE, &[0xcc], 0).unwrap();
        let mut aborts = Answers(|_: &mut Core, _: &Trap| std::process::abort());
        let _ = g.m.run(Some(&mut aborts), 1000);
        return;
    }
    use std::os::unix::process::ExitStatusExt;
    let test = "untranslatable::an_abort_in_a_hook_ends_the_process";
    let child =
        Command::new(std::env::current_exe().unwrap()).args(["--exact", test]).env(CHILD, "1").output();
    assert_eq!(child.unwrap().status.signal(), Some(6));
}
