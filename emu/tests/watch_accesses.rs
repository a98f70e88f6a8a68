//! The accesses that a watch reports, compared with those of the CPU engine: random instructions run on a bare engine
//! with hooks on every load and store, and then on a machine with four watches near what they touched.

#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(clippy::box_collection, reason = "the hook keeps the address of the vector itself")]

use crate::common::*;
use crate::watching::Watching;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use std::ffi::c_void;
use std::ptr;
use trapline_emu::{Stop, Watch, WatchAccess, WatchKind};
use unicorn_engine_sys as sys;

/// Bytes of memory that registers point into, and where.
const AREA: u64 = 0x3000;
const CASES: u64 = 2_000;

/// A load or store of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    write: bool,
    address: u64,
    size: u64,
}

/// The bare engine: no paging, flat segments, ring 0.
struct Bare {
    uc: *mut sys::uc_engine,
    context: *mut sys::uc_context,
    events: Box<Vec<Event>>,
    gprs: &'static [sys::RegisterX86],
}

unsafe extern "C" fn on_access(
    _: *mut sys::uc_engine,
    kind: sys::MemType,
    address: u64,
    size: i32,
    _: i64,
    events: *mut c_void,
) {
    // SAFETY: `events` is the vector of the `Bare` that runs.
    let events = unsafe { &mut *events.cast::<Vec<Event>>() };
    events.push(Event { write: kind == sys::MemType::WRITE, address, size: size as u64 });
}

const GPRS: [sys::RegisterX86; 16] = {
    use sys::RegisterX86 as R;
    [
        R::RAX,
        R::RCX,
        R::RDX,
        R::RBX,
        R::RSP,
        R::RBP,
        R::RSI,
        R::RDI,
        R::R8,
        R::R9,
        R::R10,
        R::R11,
        R::R12,
        R::R13,
        R::R14,
        R::R15,
    ]
};

const GPRS32: [sys::RegisterX86; 8] = {
    use sys::RegisterX86 as R;
    [R::EAX, R::ECX, R::EDX, R::EBX, R::ESP, R::EBP, R::ESI, R::EDI]
};

impl Bare {
    fn new(bits: u32) -> Self {
        let mut uc = ptr::null_mut();
        let mut context = ptr::null_mut();
        let mut events = Box::new(Vec::new());
        let mode = if bits == 64 { sys::Mode::MODE_64 } else { sys::Mode::MODE_32 };
        let mut handle: sys::uc_hook = Default::default();
        let kinds = sys::HookType::MEM_READ.0 | sys::HookType::MEM_WRITE.0;
        let user: *mut Vec<Event> = &mut *events;
        // SAFETY: out pointers are valid, the callback has the signature of its hook, `events` outlives the engine.
        unsafe {
            assert_eq!(sys::uc_open(sys::Arch::X86, mode, &mut uc), sys::uc_error::OK);
            assert_eq!(sys::uc_mem_map(uc, 0, RAM, 7), sys::uc_error::OK);
            let added = sys::uc_hook_add(
                uc,
                &mut handle,
                kinds as i32,
                on_access as *mut c_void,
                user.cast(),
                1u64,
                0u64,
            );
            assert_eq!(added, sys::uc_error::OK);
            assert_eq!(sys::uc_context_alloc(uc, &mut context), sys::uc_error::OK);
            assert_eq!(sys::uc_context_save(uc, context), sys::uc_error::OK);
        }
        Bare { uc, context, events, gprs: if bits == 64 { &GPRS } else { &GPRS32 } }
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        // SAFETY: a live engine and a slice.
        let done = unsafe { sys::uc_mem_write(self.uc, address, bytes.as_ptr().cast(), bytes.len() as u64) };
        assert_eq!(done, sys::uc_error::OK);
    }

    /// Runs the one instruction at `CODE`; `None` when it does not end well.
    fn run(&mut self, code: &[u8], regs: &[u64; 16]) -> Option<&[Event]> {
        const DROP_BLOCKS: u32 = 9 | 2 << 26 | 1 << 30;
        self.write(CODE, code);
        self.events.clear();
        // SAFETY: a live engine; the context is its own.
        unsafe {
            sys::uc_context_restore(self.uc, self.context);
            sys::uc_ctl(self.uc, sys::ControlType(DROP_BLOCKS), CODE, CODE + 16);
            for (reg, value) in self.gprs.iter().zip(regs) {
                sys::uc_reg_write(self.uc, *reg as i32, ptr::from_ref(value).cast());
            }
            let done = sys::uc_emu_start(self.uc, CODE, u64::MAX, 0, 1);
            (done == sys::uc_error::OK).then_some(&self.events)
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: live, and not used again.
        unsafe {
            sys::uc_context_free(self.context);
            sys::uc_close(self.uc);
        }
    }
}

/// Bytes of an instruction with memory operands as likely as not, from any opcode map.
fn candidate(rng: &mut Rng, bits: u32) -> Vec<u8> {
    let mut code = Vec::new();
    for (prefix, odds) in [(0x66, 4), (0xf0, 12), (0xf2, 8), (0xf3, 8), (0x67, 20)] {
        // The engine does not know that f2 and f3 take precedence over 66 where both select an instruction.
        let beside = prefix > 0xf0 && code.contains(&0x66);
        if rng.below(odds) == 0 && !beside {
            code.push(prefix);
        }
    }
    if bits == 64 && rng.below(2) == 0 {
        code.push(0x40 | rng.below(16) as u8);
    }
    match rng.below(6) {
        0 | 1 => code.push(0x0f),
        2 => code.extend([0x0f, 0x38]),
        _ => {}
    }
    code.push(rng.next() as u8);
    // No register form: mod 0 or 1, or 2 with a small displacement.
    code.push((rng.next() as u8 & 0x3f) | (rng.below(2) as u8) << 6);
    code.push(rng.next() as u8);
    code.extend((0..12).map(|_| if rng.below(3) == 0 { rng.next() as u8 } else { 0 }));
    code
}

/// A random instruction that both engines can be expected to run.
fn instruction(rng: &mut Rng, bits: u32) -> (Vec<u8>, Instruction) {
    loop {
        let code = candidate(rng, bits);
        let i = Decoder::with_ip(bits, &code, CODE, DecoderOptions::AMD).decode();
        let special = matches!(i.flow_control(), FlowControl::Interrupt | FlowControl::Exception)
            || i.is_privileged()
            || trapline_emu::is_sensitive(&i)
            || matches!(i.mnemonic(), Mnemonic::Sysexit | Mnemonic::Sysret | Mnemonic::Rsm | Mnemonic::Hlt);
        // In 64-bit code the engine loads 8 bytes for a branch through 16 bits, and 4 for a MOVSXD from 16.
        let wide = i.is_jmp_near_indirect() || i.is_call_near_indirect() || i.mnemonic() == Mnemonic::Movsxd;
        let narrow = bits == 64 && wide && i.memory_size().size() == 2;
        if !i.is_invalid() && !special && !narrow {
            return (code[..i.len()].to_vec(), i);
        }
    }
}

/// Neighbouring loads, and neighbouring stores, are one access: the engine halves what is wider than 8 bytes.
fn is_made_of(events: &[Event], write: bool, address: u64, size: u64) -> bool {
    let mut at = address;
    let mut sorted = events.to_vec();
    sorted.sort_by_key(|e| e.address);
    for e in sorted.iter().filter(|e| e.write == write) {
        if e.address == at {
            at += e.size;
        }
    }
    at >= address + size && events.iter().any(|e| e.write == write && e.address + e.size == address + size)
}

/// Where the engine's accesses are not the operand's bytes: it leaves out the reserved fields of the x87's and SSE's
/// images (SDM volume 1, 8.1.10 and 10.5.1; without CR4.OSFXSR there is no SSE in the latter), and loads more than the
/// operand for some instructions on vectors.
fn whole(i: &Instruction, events: &[Event], bits: u32) -> Vec<Event> {
    use Mnemonic as M;
    let vector = |n| i.op_register(n).is_mm() || i.op_register(n).is_xmm();
    let size = match i.mnemonic() {
        M::Fldenv | M::Fnstenv | M::Fnsave | M::Frstor => i.memory_size().size() as u64,
        M::Fxsave | M::Fxrstor | M::Fxsave64 | M::Fxrstor64 => {
            if bits == 64 {
                416
            } else {
                160
            }
        }
        _ if vector(0) && events.iter().all(|e| !e.write) => i.memory_size().size() as u64,
        _ => return events.to_vec(),
    };
    let address = events.iter().map(|e| e.address).min();
    address.into_iter().map(|address| Event { write: events[0].write, address, size }).collect()
}

fn touches(events: &[Event], write: bool, w: &Watch) -> bool {
    events.iter().any(|e| e.write == write && e.address <= w.high && e.address + e.size > w.low)
}

fn ranges(rng: &mut Rng, events: &[Event]) -> Vec<Watch> {
    let mut list = Vec::new();
    while list.len() < 4 {
        let size = 1u64 << rng.below(4);
        let near = match events.get(rng.below(events.len().max(1) as u64) as usize) {
            Some(e) => (e.address + rng.below(e.size + 16)).saturating_sub(8),
            None => DATA + rng.below(AREA),
        };
        let low = near & !(size - 1);
        let kind = if rng.below(2) == 0 { WatchKind::Write } else { WatchKind::ReadWrite };
        list.push(Watch { kind, low, high: low + size - 1 });
    }
    list
}

struct Tally {
    compared: u64,
    hits: u64,
    mnemonics: std::collections::BTreeSet<String>,
}

/// Runs the cases and compares hit by hit.
fn compare(bits: u32) -> Tally {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15 ^ u64::from(bits));
    let mut bare = Bare::new(bits);
    let mut g = Setup::bits(bits).boot();
    let base = g.m.snapshot();
    let mut tally = Tally { compared: 0, hits: 0, mnemonics: Default::default() };
    for case in 0..CASES {
        let (code, i) = instruction(&mut rng, bits);
        let mut regs = [0u64; 16];
        regs.iter_mut().for_each(|r| *r = DATA + 0x800 + rng.below(0x1000));
        regs[4] = DATA + 0x2000 + rng.below(0x800);
        if rng.below(2) == 0 {
            regs[1] = rng.below(300);
        }
        let content: Vec<u8> = (0..AREA).map(|_| rng.next() as u8).collect();
        bare.write(DATA, &content);
        let Some(events) = bare.run(&code, &regs) else { continue };
        let events = whole(&i, events, bits);
        if events.iter().any(|e| e.address < DATA || e.address + e.size > DATA + AREA) {
            continue;
        }
        let watches = ranges(&mut rng, &events);
        g.m.restore(&base).unwrap();
        g.m.write_physical(CODE, &code);
        g.m.write_physical(DATA, &content);
        for (n, value) in regs.iter().enumerate() {
            g.set(n, *value);
        }
        watches.iter().enumerate().for_each(|(n, w)| g.m.core_mut().watch(n as u32, *w));
        let mut seen = Watching::default();
        let stop = g.m.run(Some(&mut seen), g.base + 1);
        let frames_pushed =
            stop != Stop::Limit || g.m.icount() != g.base + 1 || (0x5000..0x6000).contains(&g.ip());
        watches.iter().enumerate().for_each(|(n, w)| assert!(g.m.core_mut().unwatch(n as u32, w.kind)));
        if frames_pushed {
            continue;
        }
        tally.compared += 1;
        tally.mnemonics.insert(format!("{:?}", i.mnemonic()));
        tally.hits += seen.hits.len() as u64;
        let what =
            format!("{bits}-bit case {case}: {i} ({code:02x?}), {events:x?}, {regs:x?}, {:x?}", seen.hits);
        for (n, w) in watches.iter().enumerate() {
            let hit = seen.hits.iter().find(|h| h.id == n as u32);
            let written = touches(&events, true, w);
            let read = touches(&events, false, w);
            let expected = written || (read && w.kind == WatchKind::ReadWrite);
            assert_eq!(hit.is_some(), expected, "{w:x?}: {what}");
            let Some(hit) = hit else { continue };
            let is_write = hit.access != WatchAccess::Read;
            assert_eq!(is_write, written, "{w:x?}: {what}");
            let image = matches!(
                i.mnemonic(),
                Mnemonic::Fxsave | Mnemonic::Fxrstor | Mnemonic::Fxsave64 | Mnemonic::Fxrstor64
            );
            // The operand is the whole image, whichever parts are accessed.
            assert!(!image || hit.size == 512, "{what}");
            let accessed = if image { events[0].size } else { hit.size.into() };
            assert!(is_made_of(&events, is_write, hit.address, accessed), "{w:x?}: {what}");
            let size = (w.high - w.low + 1) as usize;
            assert_eq!((hit.ip, usize::from(hit.len)), (CODE, size), "{what}");
            let mut new = vec![0; size];
            assert!(g.core().ram().read(w.low, &mut new));
            let at = (w.low.max(DATA) - DATA) as usize;
            if w.low >= DATA && at + size <= content.len() {
                assert_eq!(hit.old[..size], content[at..at + size], "old: {what}");
                assert_eq!(hit.new[..size], new, "new: {what}");
            }
        }
    }
    tally
}

#[test]
fn hits_are_what_the_engine_loads_and_stores() {
    for bits in [32, 64] {
        let tally = compare(bits);
        assert!(tally.compared > CASES / 4, "{bits}-bit: {} cases compared", tally.compared);
        assert!(tally.hits > CASES / 5, "{bits}-bit: {} hits", tally.hits);
        assert!(tally.mnemonics.len() > 100, "{bits}-bit: {} mnemonics", tally.mnemonics.len());
    }
}
