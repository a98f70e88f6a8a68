//! The digest in stages, and moments: the basis of a run's recording.

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::{Digest, Moment, PAGE, StagedDigest, Stop};
use xxhash_rust::xxh3::xxh3_128;

/// Writes a word to one page after the other, from `DATA` on, forever.
fn writer() -> Setup {
    Setup::bits(32).asm(|a| {
        let (mut again, mut next) = (a.create_label(), a.create_label());
        a.set_label(&mut again).unwrap();
        a.mov(ebx, DATA as u32).unwrap();
        a.set_label(&mut next).unwrap();
        a.inc(ecx).unwrap();
        a.add(dword_ptr(ebx), ecx).unwrap();
        a.add(ebx, 0x1000).unwrap();
        a.cmp(ebx, DATA as u32 + 0x5000).unwrap();
        a.jb(next).unwrap();
        a.jmp(again).unwrap();
    })
}

/// The slow model of the memory's stage: every page hashed anew.
fn memory(g: &Guest) -> Digest {
    let over = |hashes: &[u128]| {
        let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        xxh3_128(&bytes)
    };
    let pages: Vec<u128> = g.core().ram().bytes().chunks(PAGE as usize).map(xxh3_128).collect();
    let nodes: Vec<u128> = pages.chunks(256).map(over).collect();
    Digest(over(&nodes))
}

#[test]
fn the_memory_stage_is_that_of_all_pages_hashed_anew() {
    let mut g = writer().boot();
    let mut random = Rng(0x1234_5678_9abc_def1);
    let mut saved = Vec::new();
    for n in 0..300 {
        let to = g.m.icount() + 1 + random.below(50);
        g.m.run(None, to);
        if random.below(4) == 0 {
            saved.push(g.m.snapshot());
        }
        if random.below(6) == 0 {
            let pick = random.below(saved.len().max(1) as u64) as usize;
            if let Some(saved) = saved.get(pick) {
                g.m.restore(saved).unwrap();
            }
        }
        if random.below(5) == 0 {
            g.m.write_physical(DATA + 8 * random.below(1000), &[n as u8]);
        }
        if random.below(3) == 0 {
            assert_eq!(g.m.staged_digest().memory, memory(&g), "round {n}");
        }
    }
}

#[test]
fn asking_for_digests_changes_neither_the_run_nor_its_snapshots() {
    let (mut plain, mut asked) = (writer().boot(), writer().boot());
    for to in (100..3_000).step_by(97) {
        plain.m.run(None, plain.base + to);
        asked.m.run(None, asked.base + to);
        asked.m.staged_digest();
        if to % 2 == 0 {
            let (a, b) = (plain.m.snapshot(), asked.m.snapshot());
            assert_eq!((a.bytes(), a.new_bytes()), (b.bytes(), b.new_bytes()));
        }
    }
    assert_eq!((plain.m.digest(), plain.m.icount()), (asked.m.digest(), asked.m.icount()));
}

#[test]
fn each_stage_says_what_differs() {
    let mut g = writer().boot();
    let before = g.m.staged_digest();
    assert_eq!(before.difference(&before), None);
    let other = |change: fn(&mut StagedDigest)| {
        let mut other = before;
        change(&mut other);
        assert_ne!(other.to_string(), before.to_string());
        before.difference(&other)
    };
    assert_eq!(other(|d| d.registers = Digest(1)), Some("registers"));
    assert_eq!(other(|d| d.devices = Digest(1)), Some("devices"));
    assert_eq!(other(|d| d.memory = Digest(1)), Some("memory"));
    g.m.console_input(b"x");
    assert_eq!(g.m.staged_digest().difference(&before), Some("devices"));
    g.m.write_physical(DATA + 4096, b"y");
    let after = g.m.staged_digest();
    assert_ne!(after.memory, before.memory);
    assert_eq!(
        g.m.changed_pages().iter().map(|(page, _)| *page).collect::<Vec<_>>(),
        [(DATA / PAGE) as u32 + 1]
    );
}

/// A guest that faults at each turn: #UD comes while no instruction retires.
fn faulting() -> Setup {
    Setup::bits(32)
        .gate(6, HANDLER, 0x8e00)
        .asm(|a| {
            a.inc(ecx).unwrap();
            a.ud2().unwrap();
        })
        .asm_at(HANDLER, |a| {
            a.inc(edx).unwrap();
            a.inc(edx).unwrap();
        })
}

const HANDLER: u64 = 0x5_0000;

#[test]
fn a_moment_between_an_exception_and_the_instruction_before_it_can_be_stopped_at() {
    let mut g = faulting().boot();
    g.m.run(None, g.base + 1);
    let before = g.m.moment();
    assert_eq!((before.icount, before.delivered), (g.base + 1, 0));
    let ip = g.ip();
    let inside = Moment { delivered: 1, ..before };
    assert_eq!(g.m.run_until(None, u64::MAX, inside), Stop::Limit);
    assert_eq!(g.m.moment(), inside);
    assert_ne!(g.ip(), ip);
    // A run to a past moment stops at once; a run to a moment that it does not pass through stops after it.
    assert_eq!(g.m.run_until(None, u64::MAX, before), Stop::Limit);
    assert_eq!(g.m.moment(), inside);
    let never = Moment { delivered: 7, ..inside };
    assert_eq!(g.m.run_until(None, u64::MAX, never), Stop::Limit);
    assert_eq!((g.m.moment().icount, g.m.moment().delivered), (g.base + 2, 0));
}
