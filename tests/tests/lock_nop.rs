//! Static sites as in DTrace's sdt on x86: five NOPs in place of a call, `lock nop` over the second, #UD.

#![allow(clippy::unwrap_used, clippy::panic)]

use trapline_emu::TrapInterposer;
use trapline_emu::symbols::Symbols;
use trapline_interposer::{InsertErrorKind, Interposer, Place};
use trapline_rpn::{LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::{embedded_guest, interposer};

/// A program that logs the low half of the instruction pointer at one point.
fn program(width: Width, opcode: u8) -> LinkedProgram {
    let text = format!(
        "name = vmlinux\nmodtype = kernel\naddress = 0\nopcode = {opcode:#x}\npush r, eip\nlog 1\nexit"
    );
    parse("site.rpn", &text).unwrap().link(width, &NoSymbols).unwrap()
}

fn logged(probes: &mut Interposer) -> Vec<(u64, u64)> {
    let low = |data: &[u8]| u64::from(u32::from_le_bytes([data[0], data[1], data[2], data[3]]));
    probes.channels().records().iter().map(|r| (r.header.icount, low(&r.data))).collect()
}

#[test]
fn lock_nop_traps_after_the_first_nop_and_the_guest_does_not_notice() {
    for (guest, width) in [(&trapline_guests::IA32, Width::W32), (&trapline_guests::X86_64, Width::W64)] {
        let symbols = Symbols::from_elf(guest.image, guest.name).unwrap();
        let run = |place: Option<fn(u64, u64) -> Place>, name: &str| {
            let (mut machine, image) = embedded_guest(guest).unwrap();
            let linear = symbols.sole(name).unwrap().addr;
            let paddr = image.plan().vaddr_to_paddr(linear).unwrap();
            let mut probes = interposer();
            if let Some(place) = place {
                let places = vec![place(linear, paddr)];
                probes.insert(machine.core_mut(), name, program(width, 0x90), places).unwrap();
            }
            machine.run(Some(&mut probes as &mut dyn TrapInterposer), 100_000_000);
            (linear, logged(&mut probes), machine.digest(), machine.icount())
        };
        for name in ["sdt_site_2", "sdt_site_3"] {
            let (linear, none, digest, icount) = run(None, name);
            let (_, breakpoints, ..) = run(Some(|linear, paddr| Place::Kernel { linear, paddr }), name);
            let (_, locked, locked_digest, locked_icount) =
                run(Some(|linear, paddr| Place::LockNop { linear, paddr }), name);
            assert!(none.is_empty() && !breakpoints.is_empty());
            // One NOP later than a breakpoint on the first, and as often.
            let later: Vec<_> = breakpoints.iter().map(|(at, ip)| (at + 1, ip + 1)).collect();
            assert_eq!(locked, later, "{} {name}", guest.name);
            assert!(locked.iter().all(|(_, ip)| *ip == (linear + 1) & 0xffff_ffff));
            assert_eq!((locked_digest, locked_icount), (digest, icount));
        }
    }
}

#[test]
fn lock_nop_wants_five_nops() {
    let guest = &trapline_guests::IA32;
    let (mut machine, image) = embedded_guest(guest).unwrap();
    let linear = Symbols::from_elf(guest.image, guest.name).unwrap().sole("sdt_site_0").unwrap().addr;
    let paddr = image.plan().vaddr_to_paddr(linear).unwrap();
    let places = vec![Place::LockNop { linear, paddr }];
    let error = interposer().insert(machine.core_mut(), "s", program(Width::W32, 0x0f), places).unwrap_err();
    assert!(matches!(error.kind, InsertErrorKind::NotFiveNops { .. }));
    assert!(
        error
            .to_string()
            .ends_with("are [0f, 1f, 44, 00, 00], but a lock nop site has five one-byte NOPs (90), the last of which may be c3")
    );
}
