//! Random programs end in the same state wherever the host stops, watches, patches and takes snapshots.
//!
//! A program is a loop in ring 3 over random instructions of all forms. Each pass begins with the same registers but one,
//! so that the code stays busy whatever an instruction did; an exception ends the pass. There is no oracle: a run without
//! any observation is compared with runs under every kind of it.

use crate::common::*;
use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use trapline_emu::{Core, Digest, Snapshot, Trap, TrapInterposer, Verdict, Watch, WatchHit, WatchKind};

/// Where an exception of the program goes: in ring 0, it enters the next pass.
const RESUME: u64 = 0x2_8000;
/// Random instructions of a program.
const BODY: usize = 14;
/// Most instructions that a jump passes over: a byte tells how far it goes.
const FARTHEST: usize = 8;
/// Instructions that a run executes: some passes.
const LENGTH: u64 = 160;

/// Random bytes in the shape of an instruction: prefixes, an opcode of one of the maps, and operands that mostly lie in
/// memory that is there.
fn bytes(rng: &mut Rng, bits: u32) -> Vec<u8> {
    let mut code = Vec::new();
    let prefixes: &[u8] = &[0x66, 0xf2, 0xf3, 0xf0, 0x66, 0xf3];
    while rng.below(3) == 0 && code.len() < 2 {
        code.push(prefixes[rng.below(prefixes.len() as u64) as usize]);
    }
    if bits == 64 && rng.below(2) == 0 {
        code.push(0x40 | rng.next() as u8 & 0xf);
    }
    match rng.below(8) {
        0..=2 => {}
        3 => code.extend([0x0f, 0x38]),
        4 => code.extend([0x0f, 0x3a]),
        _ => code.push(0x0f),
    }
    // One in six is of the x87's eight opcodes.
    code.push(if rng.below(6) == 0 { 0xd8 | rng.next() as u8 & 7 } else { rng.next() as u8 });
    code.push([0x00, 0x40, 0xc0][rng.below(3) as usize] | rng.next() as u8 & 0x3f);
    code.extend(rng.next().to_le_bytes());
    code
}

/// A random instruction that goes on to the next one, faults, or jumps by a byte.
fn instruction(rng: &mut Rng, bits: u32) -> Vec<u8> {
    loop {
        let code = bytes(rng, bits);
        let mut decoder = Decoder::with_ip(bits, &code, CODE, DecoderOptions::NONE);
        let i = decoder.decode();
        let goes_on = match i.flow_control() {
            FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception => true,
            _ => i.is_jcc_short(),
        };
        // These enter ring 0 where no handler of the test is.
        let enters = matches!(i.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter);
        if !i.is_invalid() && goes_on && !enters {
            return code[..i.len()].to_vec();
        }
    }
}

fn decode(code: &[u8], bits: u32) -> Instruction {
    Decoder::with_ip(bits, code, CODE, DecoderOptions::NONE).decode()
}

struct Program {
    bits: u32,
    body: Vec<Vec<u8>>,
    setup: Setup,
    /// Where the random instructions begin.
    sites: Vec<u64>,
}

impl Program {
    /// A program whose instructions mostly go on: most that fault at its start are left out.
    fn new(rng: &mut Rng, bits: u32) -> Self {
        let mut body: Vec<Vec<u8>> = (0..BODY).map(|_| instruction(rng, bits)).collect();
        let head = assemble(bits, CODE, |a| head(a, rng));
        let data: Vec<u8> = (0..0x1000).map(|_| rng.next() as u8).collect();
        loop {
            let program = Self::of(bits, &head, &data, body.clone());
            let Some(faulting) = program.faulting().filter(|_| rng.below(8) != 0) else { return program };
            body.remove(faulting);
        }
    }

    fn of(bits: u32, head: &[u8], data: &[u8], body: Vec<Vec<u8>>) -> Self {
        let mut code = head.to_vec();
        let mut sites = Vec::new();
        for (n, i) in body.iter().enumerate() {
            sites.push(CODE + code.len() as u64);
            code.extend(i);
            // A jump goes to the start of a later instruction or behind the last.
            if decode(i, bits).is_jcc_short()
                && let Some(to) = code.last_mut()
            {
                let after = &body[n + 1..];
                *to = after[..usize::from(*to) % (after.len().min(FARTHEST) + 1)]
                    .iter()
                    .map(Vec::len)
                    .sum::<usize>() as u8;
            }
        }
        let back = -(code.len() as i32 + 5);
        code.push(0xe9);
        code.extend(back.to_le_bytes());
        let mut setup =
            Setup::bits(bits).ring(3).code(&code).at(DATA, data).asm_at(RESUME, |a| resume(a, bits));
        setup.cr4 |= 0x600;
        for vector in 0..32 {
            setup = setup.gate(vector, RESUME, 0x8e00);
        }
        for page in 0..RAM >> 12 {
            let at = page << 12;
            let rights = match at {
                CODE => US,
                DATA => US | RW,
                _ if at == STACK3 - 0x1000 => US | RW,
                _ => RW,
            };
            setup = setup.pte(at, at | P | rights);
        }
        Self { bits, body, setup, sites }
    }

    /// Which instruction ends the first pass by an exception.
    fn faulting(&self) -> Option<usize> {
        let mut guest = self.setup.boot();
        for count in 1..LENGTH {
            guest.run_to(count);
            if guest.ip() == CODE {
                return None;
            }
            if guest.ip() >> 12 == RESUME >> 12 {
                break;
            }
        }
        // The lowest word of the frame but for an error code.
        let width = if self.bits == 64 { 8 } else { 4 };
        let ip = guest.mem(RSP0 - 5 * width, width as usize);
        self.sites.iter().position(|site| *site == ip)
    }
}

/// Begins a pass: data segments, registers that mostly point to data, and one that counts.
fn head(a: &mut CodeAssembler, rng: &mut Rng) {
    a.mov(eax, u32::from(USER_DS)).unwrap();
    a.mov(ds, eax).unwrap();
    a.mov(es, eax).unwrap();
    a.mov(esp, (STACK3 - 0x800) as u32).unwrap();
    for register in [ebx, ecx, edx, ebp, esi, edi] {
        a.mov(register, (DATA + 0x100 + rng.below(0xe00)) as u32).unwrap();
    }
    if rng.below(2) == 0 {
        a.mov(ecx, rng.below(9) as u32).unwrap();
    }
    if rng.below(3) == 0 {
        // DAZ, FZ or both: the machine then takes instructions over.
        a.mov(dword_ptr(DATA + 16), [0x1fc0, 0x9f80, 0x9fc0][rng.below(3) as usize]).unwrap();
        a.ldmxcsr(dword_ptr(DATA + 16)).unwrap();
    }
    a.mov(eax, dword_ptr(DATA + 8)).unwrap();
    a.lea(eax, dword_ptr(eax + 0x0101_0107)).unwrap();
    a.mov(dword_ptr(DATA + 8), eax).unwrap();
}

/// Enters the next pass from an exception.
fn resume(a: &mut CodeAssembler, bits: u32) {
    a.fninit().unwrap();
    a.mov(esp, (RSP0 - 0x100) as u32).unwrap();
    let code = if bits == 64 { USER_CS64 } else { USER_CS32 };
    for value in [i32::from(USER_DS), STACK3 as i32, 2, i32::from(code), CODE as i32] {
        a.push(value).unwrap();
    }
    if bits == 64 { a.iretq().unwrap() } else { a.iretd().unwrap() }
}

/// Goes on after each event as if nothing had happened; how many there were.
struct Unseen(u64);

impl TrapInterposer for Unseen {
    fn trap(&mut self, _: &mut Core, trap: &Trap) -> Verdict {
        self.0 += 1;
        if trap.in_line { Verdict::InLine } else { Verdict::Step }
    }
    fn watched(&mut self, _: &mut Core, _: &WatchHit) {
        self.0 += 1;
    }
}

/// How a run is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Observed {
    Not,
    /// Stops after each instruction.
    EachInstruction,
    /// Stops at random instructions.
    Stops,
    /// Snapshots at random instructions.
    Snapshots,
    /// The run goes on, goes back, and goes the same way again.
    Back,
    /// Data is watched.
    Data,
    /// The execution of some instructions is watched.
    Execution,
    /// Some instructions are displaced by INT3, and stepped.
    Patches,
    /// The same with the instructions in line.
    InLine,
}

const ALL: [Observed; 8] = [
    Observed::EachInstruction,
    Observed::Stops,
    Observed::Snapshots,
    Observed::Back,
    Observed::Data,
    Observed::Execution,
    Observed::Patches,
    Observed::InLine,
];

/// A run, from the snapshot at its start.
struct Run<'a> {
    guest: &'a mut Guest,
    interposer: Option<Unseen>,
}

impl Run<'_> {
    fn to(&mut self, count: u64) {
        let limit = self.guest.base + count;
        let interposer = self.interposer.as_mut().map(|i| i as &mut dyn TrapInterposer);
        self.guest.m.run(interposer, limit);
    }

    /// Makes what is observed known to the machine.
    fn prepare(&mut self, program: &Program, observed: Observed, rng: &mut Rng) {
        let core = self.guest.m.core_mut();
        core.set_in_line_after(if observed == Observed::InLine { 2 } else { 0 });
        let mut some: Vec<(u32, u64)> = (0..).zip(program.sites.iter().copied()).collect();
        some.retain(|_| rng.below(3) == 0);
        match observed {
            Observed::Data => {
                core.watch(0, Watch { kind: WatchKind::ReadWrite, low: DATA + 0x200, high: DATA + 0x5ff });
                core.watch(1, Watch { kind: WatchKind::Write, low: STACK3 - 0x900, high: STACK3 - 0x700 });
            }
            Observed::Execution => {
                for (n, at) in some {
                    core.watch(n, Watch { kind: WatchKind::Execute, low: at, high: at });
                }
            }
            Observed::Patches | Observed::InLine => {
                for (n, at) in some {
                    core.arm(at, &[0xcc], n).unwrap();
                }
            }
            _ => return,
        }
        self.interposer = Some(Unseen(0));
    }

    fn whole(&mut self, observed: Observed, rng: &mut Rng) {
        let mut at = 0;
        while at < LENGTH && observed != Observed::Not {
            at += if observed == Observed::EachInstruction { 1 } else { 1 + rng.below(40) };
            self.to(at.min(LENGTH));
            match observed {
                Observed::Snapshots => drop(self.guest.m.snapshot()),
                Observed::Back => {
                    let here = self.guest.m.snapshot();
                    self.to(LENGTH + rng.below(30));
                    self.guest.m.restore(&here).unwrap();
                }
                _ => {}
            }
        }
        self.to(LENGTH);
    }
}

/// The state at the end of a run that begins at this snapshot, and how many events were observed.
fn end(
    (program, guest, start): (&Program, &mut Guest, &Snapshot),
    observed: Observed,
    rng: &mut Rng,
) -> ((u64, Digest), u64) {
    guest.m.restore(start).unwrap();
    let mut run = Run { guest, interposer: None };
    run.prepare(program, observed, rng);
    run.whole(observed, rng);
    let events = run.interposer.map_or(0, |interposer| interposer.0);
    let core = guest.m.core_mut();
    for (id, at) in (0..).zip(&program.sites) {
        core.disarm(*at);
        for kind in [WatchKind::ReadWrite, WatchKind::Write, WatchKind::Execute] {
            core.unwatch(id, kind);
        }
    }
    ((guest.m.icount(), guest.m.digest()), events)
}

/// Runs so many random programs, which follow from the seed.
fn end_alike(seed: u64, programs: u64) {
    let mut rng = Rng(seed);
    let mut events = [0; ALL.len()];
    for n in 0..programs {
        let bits = if n % 2 == 0 { 32 } else { 64 };
        let program = Program::new(&mut rng, bits);
        let mut guest = program.setup.boot();
        let start = guest.m.snapshot();
        let (plain, _) = end((&program, &mut guest, &start), Observed::Not, &mut rng);
        for (observed, events) in ALL.into_iter().zip(&mut events) {
            let (found, more) = end((&program, &mut guest, &start), observed, &mut rng);
            *events += more;
            let listing = || -> Vec<String> {
                program.body.iter().map(|i| format!("{:02x?} {}", i, decode(i, program.bits))).collect()
            };
            assert_eq!(found, plain, "{bits} bits, program {n}, {observed:?}: {:#?}", listing());
        }
    }
    // The last four have events.
    for (observed, events) in ALL.into_iter().zip(events).skip(4) {
        assert!(events > programs, "{observed:?} saw only {events} events of {programs} programs");
    }
}

#[test]
fn random_programs_end_alike_however_they_are_observed() {
    end_alike(0x5eed_0001, 400);
}

#[test]
fn many_random_programs_end_alike_at_length() {
    end_alike(0x1096_2026, 12_000);
}
