//! Guarantees that hold whatever an interposer does: a panic ends its run and nothing else, and machines do not affect
//! each other.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use std::sync::Barrier;
use trapline_emu::{Core, Digest, Fault, Stop, Trap, TrapInterposer, Verdict, Watch, WatchHit, WatchKind};

/// Panics in the callback of this name, and steps displaced instructions.
struct Panics(&'static str);

impl Panics {
    fn called(&self, name: &str) {
        assert!(self.0 != name, "the interposer broke in {name}");
    }
}

impl TrapInterposer for Panics {
    fn trap(&mut self, _: &mut Core, trap: &Trap) -> Verdict {
        self.called(if trap.in_line { "trap in line" } else { "trap" });
        if trap.in_line { Verdict::InLine } else { Verdict::Step }
    }
    fn exception(&mut self, _: &mut Core, _: u8, _: u64) -> bool {
        self.called("exception");
        false
    }
    fn stub(&mut self, _: &mut Core, _: u32) -> Verdict {
        self.called("stub");
        Verdict::Declined
    }
    fn watched(&mut self, _: &mut Core, _: &WatchHit) {
        self.called("watched");
    }
    fn faulted(&mut self, _: &mut Core) {
        self.called("faulted");
    }
    fn interrupted(&mut self, _: &mut Core) {
        self.called("interrupted");
    }
    fn settled(&mut self, _: &mut Core) {
        self.called("settled");
    }
    fn page_rewritten(&mut self, _: &mut Core, _: u64) {
        self.called("page_rewritten");
    }
    fn code_page(&mut self, _: &mut Core, _: u64) {
        self.called("code_page");
    }
    fn wants_code_pages(&self) -> bool {
        self.called("wants_code_pages");
        self.0 == "code_page"
    }
    fn user_code(&mut self, _: &mut Core, _: u64, _: u64) -> Option<Fault> {
        self.called("user_code");
        None
    }
    fn wants_user_code(&self) -> bool {
        self.called("wants_user_code");
        self.0 == "user_code"
    }
}

/// A loop that begins with a NOP and stores to `DATA`.
fn looping(bits: u32) -> Setup {
    Setup::bits(bits).asm(|a| {
        let mut again = a.create_label();
        a.mov(ecx, 100).unwrap();
        a.set_label(&mut again).unwrap();
        a.nop().unwrap();
        a.mov(dword_ptr(DATA), ecx).unwrap();
        a.dec(ecx).unwrap();
        a.jnz(again).unwrap();
        a.hlt().unwrap();
    })
}

/// Where the NOP of [`looping`] is.
const NOP: u64 = CODE + 5;

/// A guest, prepared so that the callback of a name is called when it runs.
fn guest_for(name: &str, bits: u32) -> Guest {
    let setup = match name {
        "exception" => Setup::bits(bits).asm(|a| a.int3().unwrap()),
        "stub" => Setup::bits(bits).asm(|a| if bits == 64 { a.call(rax) } else { a.call(eax) }.unwrap()),
        // No page is there.
        "faulted" => Setup::bits(bits).asm(|a| a.mov(dword_ptr(RAM), eax).unwrap()),
        "interrupted" => Setup::bits(bits).asm(|a| {
            a.rep().stosb().unwrap();
            a.hlt().unwrap();
        }),
        // The page of the entry has been fetched from already.
        "code_page" => Setup::bits(bits).asm(|a| a.jmp(DATA).unwrap()).at(DATA, &[0xf4]),
        "user_code" => looping(bits).ring(3),
        _ => looping(bits),
    };
    let mut g = setup.boot();
    let core = g.m.core_mut();
    match name {
        "trap" | "page_rewritten" => core.arm(NOP, &[0xcc], 0).unwrap(),
        "trap in line" => {
            core.set_in_line_after(2);
            core.arm(NOP, &[0xcc], 0).unwrap();
        }
        "watched" => core.watch(0, Watch { kind: WatchKind::Write, low: DATA, high: DATA }),
        "faulted" | "interrupted" => core.arm(CODE, &[0xcc], 0).unwrap(),
        "stub" => {
            let stub = core.stub(1, bits == 64).unwrap();
            g.set(0, stub);
        }
        "user_code" => core.announce_user_code_again(),
        _ => {}
    }
    g.set(1, 3).set(7, DATA);
    g
}

#[test]
fn a_panic_in_a_callback_ends_the_run_with_its_place() {
    let callbacks = [
        "trap",
        "trap in line",
        "exception",
        "stub",
        "watched",
        "faulted",
        "interrupted",
        "settled",
        "page_rewritten",
        "code_page",
        "user_code",
        "wants_code_pages",
        "wants_user_code",
    ];
    for (name, bits) in callbacks.iter().flat_map(|name| [(*name, 32), (*name, 64)]) {
        let mut g = guest_for(name, bits);
        let snapshot = g.m.snapshot();
        let limit = g.base + 10_000;
        let stop = g.m.run(Some(&mut Panics(name)), limit);
        let Stop::Panicked(text) = &stop else { panic!("{name}, {bits} bits: {stop:?}") };
        let said = format!("the interposer broke in {name}, at ");
        assert!(text.starts_with(&said) && text.contains("soundness.rs:"), "{name}, {bits} bits: {text}");
        // The machine does not run again, whatever it is given.
        assert_eq!(g.m.run(None, limit + 1), stop, "{name}");
        g.m.restore(&snapshot).unwrap();
        assert_eq!(g.m.run(Some(&mut Panics("")), limit), stop, "{name}");
        // Others do.
        let mut other = looping(bits).boot();
        assert_eq!(other.m.run(Some(&mut Panics("")), limit), Stop::Halted, "{name}");
    }
}

#[test]
fn a_panic_in_a_watch_of_execution_and_in_an_undefined_instruction_of_a_patch_ends_the_run() {
    for bits in [32, 64] {
        let mut watched = looping(bits).boot();
        watched.m.core_mut().watch(0, Watch { kind: WatchKind::Execute, low: NOP, high: NOP });
        let mut undefined = looping(bits).boot();
        undefined.m.core_mut().arm(NOP, &[0x0f, 0x0b], 0).unwrap();
        for mut g in [watched, undefined] {
            let stop = g.m.run(Some(&mut Panics("trap")), g.base + 10_000);
            assert!(matches!(&stop, Stop::Panicked(text) if text.contains("broke in trap, at ")), "{stop:?}");
        }
    }
}

/// Runs a machine, counts its hits, and lets them run in line where possible.
fn run_counting(g: &mut Guest, hits: &mut u64, limit: u64) -> Stop {
    let mut counts = Answers(|_: &mut Core, trap: &Trap| {
        *hits += 1;
        if trap.in_line { Verdict::InLine } else { Verdict::Step }
    });
    g.m.run(Some(&mut counts), limit)
}

/// Stores the time, rewrites an instruction of its own, and flushes a page, many times over.
fn busy(bits: u32) -> Guest {
    const SITE: u64 = CODE + 0x100;
    let setup = Setup::bits(bits)
        .asm(|a| {
            a.mov(ebp, 3000).unwrap();
            a.mov(edi, DATA as u32).unwrap();
            a.jmp(SITE).unwrap();
        })
        .asm_at(SITE, |a| {
            let mut again = a.create_label();
            a.set_label(&mut again).unwrap();
            a.nop().unwrap();
            a.rdtsc().unwrap();
            if bits == 64 {
                a.mov(qword_ptr(rdi), rax).unwrap();
                a.add(rdi, 8).unwrap();
                a.and(rdi, 0x3_7fff).unwrap();
                a.or(rdi, 0x3_0000).unwrap();
            } else {
                a.mov(dword_ptr(edi), eax).unwrap();
                a.add(edi, 8).unwrap();
                a.and(edi, 0x3_7fff).unwrap();
                a.or(edi, 0x3_0000).unwrap();
            }
            a.mov(dword_ptr(CODE + 0x200), eax).unwrap();
            a.invlpg(ptr(DATA)).unwrap();
            a.dec(ebp).unwrap();
            a.jnz(again).unwrap();
            a.hlt().unwrap();
        });
    let mut g = setup.boot();
    g.m.core_mut().set_in_line_after(4);
    g.m.core_mut().arm(SITE, &[0xcc], 0).unwrap();
    g
}

/// Runs a machine to its end, `pieces` instructions at a time.
fn to_the_end(mut g: Guest, pieces: u64) -> (Stop, Digest, u64, u64) {
    let mut hits = 0;
    let mut limit = g.m.icount();
    let stop = loop {
        limit += pieces;
        match run_counting(&mut g, &mut hits, limit) {
            Stop::Limit => {}
            stop => break stop,
        }
    };
    (stop, g.m.digest(), g.m.icount(), hits)
}

#[test]
fn machines_in_two_threads_give_what_each_gives_alone() {
    let alone = [32, 64].map(|bits| to_the_end(busy(bits), 1009));
    assert!(alone.iter().all(|(stop, .., hits)| *stop == Stop::Halted && *hits == 3000), "{alone:?}");
    for pieces in [97, 1009, 1 << 40] {
        let start = Barrier::new(4);
        let together = std::thread::scope(|scope| {
            let threads = [32, 64, 32, 64].map(|bits| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    to_the_end(busy(bits), pieces)
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        for (n, seen) in together.iter().enumerate() {
            assert_eq!(*seen, alone[n % 2], "machine {n}, {pieces} instructions at a time");
        }
    }
}

#[test]
fn a_machine_goes_on_in_another_thread() {
    for bits in [32, 64] {
        let alone = to_the_end(busy(bits), 1 << 40);
        let mut g = busy(bits);
        let mut hits = 0;
        for limit in (g.base..).step_by(1013).skip(1) {
            let (back, stop, seen) = std::thread::spawn(move || {
                let stop = run_counting(&mut g, &mut hits, limit);
                (g, stop, hits)
            })
            .join()
            .unwrap();
            (g, hits) = (back, seen);
            if stop != Stop::Limit {
                assert_eq!((stop, g.m.digest(), g.m.icount(), hits), alone);
                break;
            }
        }
    }
}
