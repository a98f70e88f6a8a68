//! `--who-wrote` against a list of all stores of a run, made one state at a time: what iced-x86 says that each instruction
//! stores, the frame that each delivery leaves on the stack, and beside both the memory itself, compared before and after.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use trapline_emu::{Access, Core, Seg};
use trapline_session::{Guest, GuestBuilder, HISTORY_MEM, Places, Position, Recording, Timeline, who_wrote};

use crate::cli::trapline;
use crate::common::Rng;
use tempfile::TempDir;

const PAGE: u64 = 4096;
/// Pages whose content is compared at each state.
const MOST_PAGES: usize = 24;
/// Vectors that push an error code.
const WITH_CODE: [u8; 8] = [8, 10, 11, 12, 13, 14, 17, 21];

/// What an instruction or a delivery has stored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Store {
    position: u64,
    ip: u64,
    vector: Option<u8>,
    address: u64,
    size: u64,
    /// The bytes after it.
    left: Vec<u8>,
}

fn number(register: Register) -> usize {
    register.full_register().number()
}

/// The value of a register in an address: of a segment, its base.
fn value(core: &Core, register: Register) -> u64 {
    let env = core.env();
    let segments = [Seg::Es, Seg::Cs, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs];
    if register.is_segment_register() {
        return env.seg(segments[register.number()]).base;
    }
    let whole = env.gpr(number(register));
    match register.size() {
        2 => whole & 0xffff,
        4 => whole & 0xffff_ffff,
        _ => whole,
    }
}

/// Address and size of what an instruction is about to store.
fn stores_of(core: &Core, instruction: &Instruction, is_64: bool) -> Vec<(u64, u64)> {
    let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    let counted = instruction.is_string_instruction() && repeated;
    if counted && core.env().gpr(1) & if is_64 { u64::MAX } else { 0xffff_ffff } == 0 {
        return Vec::new();
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let writes = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let used = info.used_memory().iter().filter(|memory| writes(memory.access()));
    let place = |memory: &iced_x86::UsedMemory| {
        let address = memory.virtual_address(0, |register, _, _| Some(value(core, register))).unwrap();
        let address = if is_64 { address } else { address & 0xffff_ffff };
        // Of a repeated instruction the size of all iterations is not known, but that of each is.
        let one = if counted { instruction.memory_size() } else { memory.memory_size() };
        (address, one.size() as u64)
    };
    used.map(place).filter(|(_, size)| *size > 0).collect()
}

/// The vector whose handler begins at this address.
fn vector_of(core: &Core, handler: u64, is_64: bool) -> u8 {
    let idt = core.env().idt();
    let word = |at: u64| {
        let mut bytes = [0; 2];
        core.peek(at, &mut bytes).map_or(0, |()| u64::from(u16::from_le_bytes(bytes)))
    };
    let gate = |vector: u8| {
        let at = idt.base + u64::from(vector) * if is_64 { 16 } else { 8 };
        let upper = if is_64 { word(at + 8) << 32 | word(at + 10) << 48 } else { 0 };
        word(at) | word(at + 6) << 16 | upper
    };
    (0..=u8::MAX).find(|vector| gate(*vector) == handler).expect("no gate leads there")
}

/// The frame that a delivery has just pushed.
fn frame(core: &Core, cpl_before: u8, is_64: bool) -> Store {
    let env = core.env();
    let vector = vector_of(core, core.linear_ip(), is_64);
    let word = if is_64 { 8 } else { 4 };
    let code = u64::from(WITH_CODE.contains(&vector)) * word;
    let words = if !is_64 && cpl_before == env.cpl() { 3 } else { 5 };
    let (address, size) = (env.gpr(4) & if is_64 { u64::MAX } else { 0xffff_ffff }, words * word + code);
    let left = bytes(core, address, size).unwrap();
    let saved = left.iter().skip(code as usize).take(word as usize).rev();
    let ip = saved.fold(0, |value, byte| value << 8 | u64::from(*byte));
    Store { position: core.moment().icount, ip, vector: Some(vector), address, size, left }
}

fn bytes(core: &Core, at: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    core.peek(at, &mut bytes).ok().map(|()| bytes)
}

/// The physical address of a linear one.
fn memory(core: &Core, at: u64) -> Option<u64> {
    Some(core.peek_translate(at, Access::Read, false)?.paddr + at % PAGE)
}

/// What some pages held in the state before.
#[derive(Default)]
struct Pages {
    known: BTreeMap<u64, Option<Vec<u8>>>,
    /// Bytes that were seen to change.
    changed: u64,
}

impl Pages {
    /// Notes the pages of a place that is about to be stored to, up to some number.
    fn note(&mut self, core: &Core, address: u64, size: u64) {
        for page in [address & !(PAGE - 1), (address + size - 1) & !(PAGE - 1)] {
            if self.known.len() < MOST_PAGES && !self.known.contains_key(&page) {
                self.known.insert(page, bytes(core, page, PAGE));
            }
        }
    }

    /// Asserts that nothing has changed but what these have stored. In another address space, nothing is compared.
    fn compare(&mut self, core: &Core, stores: &[Store], same_space: bool) {
        let gdt = core.env().gdt();
        for (page, known) in &mut self.known {
            let now = bytes(core, *page, PAGE);
            if *known == now {
                continue;
            }
            if let (Some(known), Some(now), true) = (&known, &now, same_space) {
                for (n, (before, after)) in (*page..).zip(known.iter().zip(now)).filter(|(_, (b, a))| b != a)
                {
                    self.changed += 1;
                    // Accessed and dirty bits of a page table, accessed and busy bits of a descriptor.
                    let bits = before ^ after;
                    let in_table =
                        n.checked_sub(gdt.base).is_some_and(|n| n <= gdt.limit.into() && n % 8 == 5);
                    let by_processor = bits & !0x60 == 0 && n % 4 == 0 || bits & !3 == 0 && in_table;
                    // By this address, or by another one of the same memory.
                    let by = |store: &Store| {
                        (store.address..store.address + store.size)
                            .any(|at| at == n || memory(core, at) == memory(core, n))
                    };
                    assert!(
                        by_processor || stores.iter().any(by),
                        "{n:#x} has changed from {before:#x} to {after:#x} at {:?}: {stores:x?}",
                        core.moment()
                    );
                }
            }
            *known = now;
        }
    }
}

/// All stores of a recording in their order, and how many bytes were seen to change.
fn trace(guest: &Guest, recording: &Recording, is_64: bool) -> (Vec<Store>, u64) {
    let session = guest.start(recording.config().probing.clone()).unwrap();
    let mut timeline = Timeline::of(session, recording, |_| true, HISTORY_MEM).unwrap();
    timeline.goto(Position::At { icount: 0, ordinal: 0 }).unwrap();
    let (mut stores, mut pages) = (Vec::new(), Pages::default());
    let space = |core: &Core| [0, 3, 4].map(|n| core.env().cr(n));
    while timeline.session().icount() < recording.end().icount {
        let core = timeline.session().core();
        let (before, ip, cpl, in_space) = (core.moment(), core.linear_ip(), core.env().cpl(), space(core));
        let instruction = core.decode_original(ip);
        let places = instruction.map_or(Vec::new(), |i| stores_of(core, &i, is_64));
        places.iter().for_each(|(address, size)| pages.note(core, *address, *size));
        timeline.next_state().unwrap();
        let core = timeline.session().core();
        let (after, retired) = (core.moment(), core.moment().icount > before.icount);
        let own = |(address, size): (u64, u64)| {
            let left = bytes(core, address, size).unwrap_or_default();
            Store { position: before.icount, ip, vector: None, address, size, left }
        };
        let made: Vec<Store> = match after.delivered > 0 {
            // INT n stores its frame itself.
            true if retired => {
                let software =
                    instruction.is_some_and(|i| matches!(i.mnemonic(), Mnemonic::Int | Mnemonic::Int3));
                assert!(software, "{instruction:?} and a delivery make one state");
                vec![Store { vector: None, position: before.icount, ip, ..frame(core, cpl, is_64) }]
            }
            true => vec![frame(core, cpl, is_64)],
            false => places.into_iter().filter(|_| retired).map(own).collect(),
        };
        pages.compare(core, &made, in_space == space(core));
        stores.extend(made);
    }
    (stores, pages.changed)
}

/// Asks about random ranges near stores, and compares the answers with the list.
fn ask(name: &str, insns: u64, questions: u64) {
    let folder = TempDir::new().unwrap();
    let image = format!("embedded:{name}");
    let count = insns.to_string();
    let args = ["record", &image, "--mem", "32M", "--limit-insns", &count, "-q", "-o", "r.tlr"];
    let ran = trapline(folder.path(), &args);
    assert_eq!(ran.code, 124, "{}", ran.err);
    let recording = Recording::read(&folder.path().join("r.tlr")).unwrap();
    let guest = GuestBuilder::of_recording(&recording, &Places::default()).unwrap().open().unwrap();
    let is_64 = name == "x86_64";
    let (stores, changed) = trace(&guest, &recording, is_64);
    assert!(stores.len() > 1_000 && changed > 1_000, "{} stores, {changed} bytes", stores.len());
    let deliveries = stores.iter().filter(|store| store.vector.is_some()).count();
    assert!(deliveries > 5, "{deliveries}");
    let (mut dice, mut told) = (Rng(0x9e37_79b9_7f4a_7c15), 0);
    for _ in 0..questions {
        // One question in four is about a delivery.
        let near = loop {
            let store = &stores[dice.below(stores.len() as u64) as usize];
            if store.vector.is_some() || dice.below(4) > 0 {
                break store;
            }
        };
        let low = near.address + dice.below(near.size + 4) - dice.below(4);
        let high = low + dice.below(20);
        let before = (dice.below(2) == 0).then(|| dice.below(insns));
        let most = [1, 2, 5, 10, 100, 5_000][dice.below(6) as usize];
        let mut wanted: Vec<&Store> = stores
            .iter()
            .filter(|store| store.address <= high && store.address + store.size > low)
            .filter(|store| before.is_none_or(|before| store.position < before))
            .collect();
        // Several stores of one instruction are one write.
        wanted.dedup_by_key(|store| (store.position, store.vector));
        let all = wanted.len();
        let wanted = &wanted[all.saturating_sub(most)..];
        let asked = format!("{low:#x}:{}", high - low + 1);
        let before = before.map(|icount| Position::At { icount, ordinal: 0 });
        let found = who_wrote(&guest, &recording, &asked, before, most).unwrap();
        let about = format!("{name} {asked} before {before:?}, the last {most}");
        assert_eq!(found.count, (all < most).then_some(all as u64), "{about}");
        assert_eq!(found.last.len(), wanted.len(), "{about}: {:x?} {wanted:x?}", found.last);
        for (found, wanted) in found.last.iter().zip(wanted) {
            let key = (found.position, found.ip, found.vector);
            assert_eq!(key, (wanted.position, wanted.ip, wanted.vector), "{about}: {found:x?} {wanted:x?}");
            if wanted.vector.is_none() {
                let place = (found.address, u64::from(found.size));
                assert_eq!(place, (wanted.address, wanted.size), "{about}: {found:x?}");
            }
            // Of a long range, the bytes from the first accessed one on are shown.
            let first = if high - low < 16 { low } else { low.max(found.address) };
            let shown: Vec<u8> =
                found.new.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
            for (at, byte) in (first..).zip(&shown) {
                if let Some(left) = at.checked_sub(wanted.address).and_then(|n| wanted.left.get(n as usize)) {
                    assert_eq!(byte, left, "{about}: {at:#x} of {found:x?} {wanted:x?}");
                }
            }
            told += 1;
        }
    }
    assert!(told as u64 > questions, "{told} writers in {questions} answers");
}

#[test]
fn writers_of_random_ranges_are_those_of_a_list_of_all_stores() {
    for name in ["ia32", "x86_64"] {
        ask(name, 200_000, 100);
    }
}

#[test]
fn ten_thousand_random_ranges_have_the_writers_of_a_list_of_all_stores_at_length() {
    for name in ["ia32", "x86_64"] {
        ask(name, 400_000, 5_000);
    }
}
