//! The last disarm leaves no trace: RAM, fetch view, count, console and digest are those of a machine that was never
//! armed, wherever the run was cut.

use super::alike::{observer, run};
use crate::common::{CODE, DATA, Guest, Setup};
use trapline_emu::symbols::Symbols;
use trapline_emu::{Machine, Stop, TrapInterposer};
use trapline_guests::ALL;
use trapline_interposer::{Interposer, Output, Place, ProgramId};
use trapline_rpn::{LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::{embedded_guest, interposer, observer as source};

/// The state compared at a point of a run: the digest covers RAM, registers, devices and the count.
fn shown(m: &Machine) -> (u64, String, Vec<u8>) {
    (m.icount(), m.digest().to_string(), m.console().to_vec())
}

/// Whether fetches and loads see the same at these linear addresses.
fn views_agree(m: &Machine, at: impl Iterator<Item = u64>) {
    for at in at {
        let (mut code, mut data) = ([0u8; 16], [0u8; 16]);
        let n = m.core().peek_code(at, &mut code);
        assert_eq!((n, code), (m.core().peek_prefix(at, &mut data), data), "{at:#x}");
    }
}

fn on(m: &mut Machine, probes: &mut Interposer, to: u64) -> Stop {
    m.run(Some(probes as &mut dyn TrapInterposer), to)
}

/// A loop that copies, stores, pushes, calls and divides, with all kinds of displacement in it.
fn looping(bits: u32, ring: u8) -> (Setup, Vec<u64>) {
    let mut code = Vec::new();
    let mut sites = Vec::new();
    for i in [
        &[0xb9u8, 9, 0, 0, 0][..],       // mov ecx, 9
        &[0xbe, 0, 0, 3, 0],             // mov esi, DATA
        &[0xbf, 0x40, 0, 3, 0],          // mov edi, DATA + 40h
        &[0xf3, 0xa4],                   // rep movsb
        &[0x0f, 0x1f, 0x44, 0, 0],       // nop
        &[0x50, 0x58, 0x9c, 0x5a],       // push, pop, pushf, pop
        &[0x01, 0x46, 0xf0],             // add [esi - 10h], eax
        &[0x0f, 0x96, 0x46, 0x10],       // setbe [esi + 10h]
        &[0xe8, 0, 0, 0, 0, 0x5b],       // call next; pop ebx
        &[0xff, 0xc0],                   // inc eax
        &[0xd9, 0xe8, 0xdd, 0xd8],       // fld1; fstp st0
        &[0xb9, 5, 0, 0, 0, 0xf3, 0xaa], // mov ecx, 5; rep stosb
    ] {
        let mut decoder = iced_x86::Decoder::new(bits, i, 0);
        while decoder.can_decode() {
            sites.push(CODE + (code.len() + decoder.position()) as u64);
            let _ = decoder.decode();
        }
        code.extend(i);
    }
    sites.push(CODE + code.len() as u64);
    let back = -(code.len() as i32 + 5);
    code.push(0xe9);
    code.extend(back.to_le_bytes());
    (Setup::bits(bits).ring(ring).flags(0).code(&code), sites)
}

fn inserted(guest: &mut Guest, probes: &mut Interposer, sites: &[u64]) -> ProgramId {
    let (program, places) = observer(guest, sites);
    probes.insert(guest.m.core_mut(), "a", program, places).unwrap()
}

#[test]
fn disarming_anywhere_in_a_loop_leaves_a_machine_that_was_never_armed() {
    for (bits, ring) in [(32, 0), (32, 3), (64, 0), (64, 3)] {
        let (setup, sites) = looping(bits, ring);
        let mut guest = setup.boot();
        let start = guest.m.snapshot();
        let base = guest.base;
        // The loop takes 28 instructions and iterations or so: each cut lies elsewhere in it, some inside a REP.
        let points: Vec<u64> = (0..260).map(|n| base + n).collect();
        let mut plain = Vec::new();
        for at in &points {
            assert_eq!(guest.m.run(None, *at), Stop::Limit);
            plain.push(shown(&guest.m));
        }
        for cut in 0..120usize {
            guest.m.restore(&start).unwrap();
            let mut probes = interposer();
            let id = inserted(&mut guest, &mut probes, &sites);
            assert_eq!(on(&mut guest.m, &mut probes, points[cut]), Stop::Limit);
            if cut % 3 == 1 {
                // Directly after a restore to a snapshot that was taken while all was armed.
                let armed = guest.m.snapshot();
                let table = probes.save(guest.m.core());
                on(&mut guest.m, &mut probes, points[cut + 17]);
                guest.m.restore(&armed).unwrap();
                probes.restore(guest.m.core_mut(), &table, Output::GoesOn);
            }
            probes.remove(guest.m.core_mut(), id);
            assert_eq!(probes.armed_sites().count(), 0);
            views_agree(&guest.m, sites.iter().copied());
            for later in [0, 1, 2, 30, 139] {
                // With the interposer still installed, and without.
                let to = points[cut + later];
                let stop = if later == 2 { guest.m.run(None, to) } else { on(&mut guest.m, &mut probes, to) };
                assert_eq!(stop, Stop::Limit);
                assert_eq!(
                    shown(&guest.m),
                    plain[cut + later],
                    "{bits} bits, ring {ring}, cut {cut} and {later}"
                );
            }
        }
        let (_, hits) = run(&|| setup.boot(), &sites, 120);
        assert!(hits > 60, "{hits}");
        assert_eq!(guest.mem(DATA, 1), 0);
    }
}

/// Every function of an embedded guest: its linear address and place.
fn functions(image: &trapline_emu::load::Image, symbols: &Symbols) -> (Vec<u64>, Vec<u8>, Vec<Place>) {
    let plan = image.plan();
    let (mut at, mut bytes, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for s in symbols.functions() {
        let first = plan.bytes_at(s.addr, 1).and_then(|b| b.first().copied());
        if let (false, Some(byte), Some(paddr)) = (at.contains(&s.addr), first, plan.vaddr_to_paddr(s.addr)) {
            at.push(s.addr);
            bytes.push(byte);
            places.push(Place::Kernel { linear: s.addr, paddr });
        }
    }
    (at, bytes, places)
}

#[test]
fn disarming_an_embedded_guest_leaves_a_machine_that_was_never_armed() {
    for guest in ALL {
        let (mut plain, image) = embedded_guest(guest).unwrap();
        let symbols = Symbols::from_elf(guest.image, guest.name).unwrap();
        let (at, bytes, places) = functions(&image, &symbols);
        assert!(at.len() > 20, "{}", at.len());
        let width = if guest.name.contains("64") { Width::W64 } else { Width::W32 };
        let text = source(at.iter().copied().zip(bytes));
        let program: LinkedProgram = parse("a.rpn", &text).unwrap().link(width, &NoSymbols).unwrap();
        assert_eq!(plain.run(None, u64::MAX), Stop::Halted);
        let total = plain.icount();
        // A point with interrupts off, where a handler runs, and others.
        let (mut masked, _) = embedded_guest(guest).unwrap();
        let mut limit = total / 2;
        while masked.run(None, limit) == Stop::Limit && masked.core().eflags() & 0x200 != 0 {
            limit += 7;
        }
        for cut in [total / 5, limit, total * 3 / 4] {
            let (mut reference, _) = embedded_guest(guest).unwrap();
            let (mut m, _) = embedded_guest(guest).unwrap();
            let mut probes = interposer();
            let id = probes.insert(m.core_mut(), "a", program.clone(), places.clone()).unwrap();
            assert_eq!(on(&mut m, &mut probes, cut), Stop::Limit);
            assert!(probes.stats().hits > 10);
            let armed = m.snapshot();
            let table = probes.save(m.core());
            on(&mut m, &mut probes, cut + 5000);
            m.restore(&armed).unwrap();
            probes.restore(m.core_mut(), &table, Output::GoesOn);
            probes.remove(m.core_mut(), id);
            views_agree(&m, at.iter().copied());
            for later in [0, 1, 1000, 100_000] {
                assert_eq!(reference.run(None, cut + later), on(&mut m, &mut probes, cut + later));
                assert_eq!(shown(&m), shown(&reference), "{}, cut {cut} and {later}", guest.name);
                assert!(m.core().ram().bytes() == reference.core().ram().bytes());
            }
            assert_eq!(on(&mut m, &mut probes, u64::MAX), Stop::Halted);
            assert_eq!(shown(&m), shown(&plain), "{}, cut {cut}", guest.name);
            views_agree(&m, at.iter().copied());
        }
    }
}
