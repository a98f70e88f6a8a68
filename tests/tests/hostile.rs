//! Hostile guests: random code under random page tables, descriptors and stacks, with probes anywhere. The host is
//! not harmed, the run ends, and two runs give the same results, with probes and without.
//!
//! `TRAPLINE_FUZZ=N` runs N times as many guests, `TRAPLINE_FUZZ_FROM=N` begins with seed N.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common;
use crate::common::{CODE, DATA, GDT, Guest, HANDLERS, IDT, Rng, STACK0, Setup, TABLES, TSS, assemble};
use iced_x86::code_asm::{dword_ptr, eax, esp, qword_ptr, rax, rsp};
use trapline_emu::{Stop, TrapInterposer};
use trapline_interposer::{Interposer, Place, Stats};
use trapline_rpn::{LinkedProbe, LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::interposer;

/// Guests of one run, instructions that each may run, and bytes of its code.
const GUESTS: u64 = 30;
const LIMIT: u64 = 20_000;
const LENGTH: u64 = 512;

fn handler(width: Width) -> LinkedProgram {
    let text = "name = v\nmodtype = kernel\naddress = 0\nopcode = 0x90\npush r, eax\npush r, esp\npush u, eip\nlog 3\nexit";
    parse("v.rpn", text).unwrap().link(width, &NoSymbols).unwrap()
}

/// Where the handlers of a guest that survives its exceptions continue, and the word that seeds their choices.
const RESUME: u64 = 0x6000;
const NUMBER: u64 = 0x6800;

/// Handlers that return to some byte of the code, so that a guest survives its exceptions.
fn surviving(mut setup: Setup) -> Setup {
    let wide = setup.wide();
    for vector in 0..=255u64 {
        let error = matches!(vector, 8 | 10..=14 | 17);
        let stub = assemble(if wide { 64 } else { 32 }, HANDLERS + 16 * vector, |a| {
            match (error, wide) {
                (true, true) => a.add(rsp, 8).unwrap(),
                (true, false) => a.add(esp, 4).unwrap(),
                _ => {}
            }
            a.jmp(RESUME).unwrap();
        });
        setup = setup.at(HANDLERS + 16 * vector, &stub);
    }
    setup.asm_at(RESUME, |a| {
        if wide {
            a.push(rax).unwrap()
        } else {
            a.push(eax).unwrap()
        }
        a.imul_3(eax, dword_ptr(NUMBER), 1_103_515_245).unwrap();
        a.add(eax, 12345).unwrap();
        a.mov(dword_ptr(NUMBER), eax).unwrap();
        a.shr(eax, 16).unwrap();
        a.and(eax, LENGTH as i32 - 1).unwrap();
        a.add(eax, CODE as i32).unwrap();
        if wide {
            a.mov(qword_ptr(rsp + 8), rax).unwrap();
            a.pop(rax).unwrap();
            a.iretq().unwrap();
        } else {
            a.mov(dword_ptr(esp + 4), eax).unwrap();
            a.pop(eax).unwrap();
            a.iretd().unwrap();
        }
    })
}

/// A guest whose every choice comes from the seed.
fn guest(seed: u64) -> Guest {
    let mut random = Rng(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed) | 1);
    let bits = if seed.is_multiple_of(2) { 32 } else { 64 };
    let ring = if random.below(2) == 0 { 0 } else { 3 };
    let code: Vec<u8> = (0..LENGTH).map(|_| random.next() as u8).collect();
    let setup = Setup::bits(bits).ring(ring).flags(random.next() & 0x4cd5).code(&code);
    let setup = if seed % 4 < 2 { setup } else { surviving(setup) };
    let mut guest = setup.boot();
    // Sites are hit in line at once, soon or never.
    guest.m.core_mut().set_in_line_after([1, 2, 0][(seed / 4 % 3) as usize]);
    for n in (0..16).filter(|n| *n != 4) {
        let near = [DATA, CODE, TABLES, IDT, GDT, STACK0][random.below(6) as usize];
        let value = if random.below(2) == 0 { near + random.below(0x1000) } else { random.next() };
        guest.set(n, if bits == 32 { value & 0xffff_ffff } else { value });
    }
    // Some structures that the CPU itself reads are broken.
    for _ in 0..random.below(6) {
        let place = [TABLES, TABLES + 0x1000, TABLES + 0x3000, IDT, GDT, TSS, STACK0 - 0x40]
            [random.below(7) as usize];
        let at = place + random.below(0x100);
        let bytes = random.next().to_le_bytes();
        guest.m.write_physical(at, &bytes[..1 + random.below(8) as usize]);
    }
    guest
}

/// Probes on random bytes of the code, as many as fit at once.
fn probes(guest: &mut Guest, seed: u64, program: &LinkedProgram) -> Interposer {
    let mut random = Rng(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
    let mut at: Vec<u64> = (0..random.below(200)).map(|_| CODE + random.below(LENGTH)).collect();
    at.sort_unstable();
    at.dedup();
    let byte = |at: u64| guest.mem(at, 1) as u8;
    let mut program = program.clone();
    let first = program.probes[0].clone();
    program.probes = at.iter().map(|&a| LinkedProbe { opcode: byte(a), ..first.clone() }).collect();
    let places = at.iter().map(|&a| Place::Kernel { linear: a, paddr: a }).collect();
    let mut probes = interposer();
    // With any kind of stack.
    probes.set_stack_depth(16);
    probes.set_user_stack_depth(16);
    probes.insert(guest.m.core_mut(), "v", program, places).unwrap();
    probes
}

/// How a run ended: why, after how many instructions, and in what state.
#[derive(Debug, PartialEq, Eq)]
struct End {
    stop: String,
    icount: u64,
    digest: String,
    console: Vec<u8>,
}

/// Runs a guest for `length` instructions, with its probes or without.
fn run(seed: u64, program: Option<&LinkedProgram>, length: u64) -> (End, Stats, Guest) {
    let mut guest = guest(seed);
    let limit = guest.m.icount() + length;
    let mut probes = program.map(|p| probes(&mut guest, seed, p));
    let stop = guest.m.run(probes.as_mut().map(|p| p as &mut dyn TrapInterposer), limit);
    assert!(guest.m.icount() <= limit, "seed {seed}");
    assert!(!matches!(stop, Stop::Engine(_)), "seed {seed}: {stop:?}");
    let end = End {
        stop: format!("{stop:?}"),
        icount: guest.m.icount(),
        digest: guest.m.digest().to_string(),
        console: guest.m.console().to_vec(),
    };
    (end, probes.map_or_else(Stats::default, |p| p.stats()), guest)
}

/// The instruction that a guest is about to execute.
fn next(g: &Guest) -> String {
    let at = g.core().linear_ip();
    let instruction = g.core().decode_original(at);
    format!("{at:#x} {}", instruction.map_or_else(|| "nothing".to_owned(), |i| i.to_string()))
}

/// Where a guest begins to differ with and without probes.
fn difference(seed: u64, program: &LinkedProgram) -> String {
    let (mut same, mut differs) = (0, LIMIT);
    while differs - same > 1 {
        let middle = same + (differs - same) / 2;
        let alike = run(seed, None, middle).0 == run(seed, Some(program), middle).0;
        *(if alike { &mut same } else { &mut differs }) = middle;
    }
    let way: Vec<String> = (same.saturating_sub(8)..=differs)
        .flat_map(|n| [(n, None), (n, Some(program))])
        .map(|(n, program)| format!("{n} {}: {}", program.is_some(), next(&run(seed, program, n).2)))
        .collect();
    let (_, _, before) = run(seed, None, same);
    let (plain, _, without) = run(seed, None, differs);
    let (probed, _, with) = run(seed, Some(program), differs);
    let states = [&before, &without, &with].map(|g| g.core().dump_registers());
    let bytes = |g: &Guest| {
        let mut bytes = vec![0; common::RAM as usize];
        assert!(g.core().ram().read(0, &mut bytes));
        bytes
    };
    let (memory, probed_memory) = (bytes(&without), bytes(&with));
    let differing: Vec<String> = (0..memory.len())
        .filter(|&n| memory[n] != probed_memory[n])
        .take(16)
        .map(|n| format!("{n:#x}: {:02x} {:02x}", memory[n], probed_memory[n]))
        .collect();
    let at = before.ip();
    let code: Vec<u8> = (0..16).map(|n| before.mem(at.wrapping_add(n), 1) as u8).collect();
    format!(
        "seed {seed}: after {same} instructions {at:#x}: {code:02x?}\n{}\nwithout probes {plain:?}\n{}\nwith {probed:?}\n{}\n\
         memory without and with: {differing:?}\ninstructions, whether probed, what is next:\n{}",
        states[0],
        states[1],
        states[2],
        way.join("\n")
    )
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

#[test]
fn random_guests_end_alike_probed_or_not() {
    let first = from_environment("TRAPLINE_FUZZ_FROM").unwrap_or(1);
    let guests = GUESTS * from_environment("TRAPLINE_FUZZ").unwrap_or(1);
    let programs = [handler(Width::W32), handler(Width::W64)];
    let (mut ran, mut hits, mut crashed) = (0, 0, 0);
    for seed in first..first + guests {
        let program = &programs[(seed % 2) as usize];
        let (plain, _, guest) = run(seed, None, LIMIT);
        let (probed, stats, _) = run(seed, Some(program), LIMIT);
        if plain != probed {
            panic!("{}", difference(seed, program));
        }
        let (again, same_stats, _) = run(seed, Some(program), LIMIT);
        assert!(again == probed && same_stats == stats, "seed {seed}: {again:?} {probed:?}");
        ran += 3 * (plain.icount - guest.base);
        hits += stats.hits;
        crashed += u64::from(plain.stop.starts_with("TripleFault"));
    }
    println!(
        "seeds {first} to {}: {ran} instructions, {hits} hits, {crashed} triple faults",
        first + guests - 1
    );
    assert!(
        hits > guests / 2 && crashed > guests / 200,
        "{hits} hits, {crashed} triple faults: the guests are not hostile enough"
    );
}

/// Guests whose runs once differed; the code in `emu/` explains what each seed found.
#[test]
fn seeds_that_found_something_end_alike() {
    for seed in
        [1806, 2086, 2850, 3475, 3938, 4454, 5256, 6571, 5478, 6958, 7490, 7615, 8282, 10643, 26922, 30723]
    {
        let program = handler(if seed % 2 == 0 { Width::W32 } else { Width::W64 });
        assert_eq!(run(seed, None, LIMIT).0, run(seed, Some(&program), LIMIT).0, "seed {seed}");
    }
}
