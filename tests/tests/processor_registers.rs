//! Registers that are the processor's own in the user context too: FS and GS, and those of the FPU with their selectors.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{CODE, DATA, DS0, Guest, Setup, USER_CS32, USER_CS64, USER_DS, assemble};
use iced_x86::code_asm::{CodeAssembler, cx, dword_ptr, fs, gs};
use trapline_emu::Stop;
use trapline_interposer::Place;
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::interposer;

/// The kernel's entry for INT 40h.
const ENTRY: u64 = CODE + 0x1000;

/// A program that loads FS and GS, loads a number through FS into the FPU, and calls a kernel that loads FS for itself.
fn guest(bits: u32) -> (Setup, u64, u64, u64) {
    let before = |a: &mut CodeAssembler| {
        a.mov(cx, u32::from(USER_DS)).unwrap();
        a.mov(fs, cx).unwrap();
        a.mov(gs, cx).unwrap();
    };
    let load = |a: &mut CodeAssembler| a.fld(dword_ptr(DATA + 8).fs()).unwrap();
    let enter = |a: &mut CodeAssembler| {
        a.mov(cx, u32::from(DS0)).unwrap();
        a.mov(fs, cx).unwrap();
    };
    let fld = CODE + assemble(bits, CODE, before).len() as u64;
    let user = fld + assemble(bits, fld, load).len() as u64;
    let kernel = ENTRY + assemble(bits, ENTRY, enter).len() as u64;
    let setup = Setup::bits(bits).ring(3).gate(0x40, ENTRY, 0xee00);
    let setup = setup.asm(|a| {
        before(a);
        load(a);
        a.nop().unwrap();
        a.int(0x40).unwrap();
    });
    let setup = setup.asm_at(ENTRY, |a| {
        enter(a);
        a.nop().unwrap();
        a.hlt().unwrap();
    });
    (setup, fld, user, kernel)
}

/// The values of these registers that a handler at `site` pushes.
fn pushed(g: &mut Guest, site: u64, registers: &[&str]) -> Vec<u64> {
    let (width, bytes) = if g.wide { (Width::W64, 8) } else { (Width::W32, 4) };
    let pushes: String = registers.iter().rev().map(|r| format!("push {r}\n")).collect();
    let count = registers.len();
    let text = format!("name = v\nmodtype = kernel\naddress = 0\nopcode = 0x90\n{pushes}log {count}\nexit");
    let program = parse("v.rpn", &text).unwrap().link(width, &NoSymbols).unwrap();
    let mut probes = interposer();
    let place = Place::Kernel { linear: site, paddr: site };
    probes.insert(g.m.core_mut(), "v", program, vec![place]).unwrap();
    assert_eq!(g.m.run(Some(&mut probes), g.base + 1000), Stop::Halted, "{}", g.core().dump_registers());
    let records = probes.channels().records();
    assert_eq!(records.len(), 1);
    records[0]
        .data
        .chunks(bytes)
        .map(|word| word.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
        .collect()
}

const FPU: [&str; 4] = ["u, fip", "u, fcs", "u, fdp", "u, fds"];

#[test]
fn the_fpus_pointers_have_their_selectors() {
    for (bits, cs) in [(32, USER_CS32), (64, USER_CS64)] {
        let (setup, fld, user, kernel) = guest(bits);
        for site in [user, kernel] {
            let found = pushed(&mut setup.boot(), site, &FPU);
            assert_eq!(found, [fld, cs.into(), DATA + 8, USER_DS.into()], "{bits}-bit, {site:#x}");
        }
    }
}

#[test]
fn fs_and_gs_do_not_depend_on_the_context() {
    for (bits, cs) in [(32, USER_CS32), (64, USER_CS64)] {
        let (setup, _, user, kernel) = guest(bits);
        let names = ["u, fs", "r, fs", "u, gs", "r, gs", "u, cs"];
        let [ds, user_ds, cs] = [DS0, USER_DS, cs].map(u64::from);
        let found = pushed(&mut setup.boot(), kernel, &names);
        assert_eq!(found, [ds, ds, user_ds, user_ds, cs], "{bits}-bit kernel");
        let found = pushed(&mut setup.boot(), user, &names);
        assert_eq!(found, [user_ds, user_ds, user_ds, user_ds, cs], "{bits}-bit program");
    }
}

#[test]
fn they_need_no_context() {
    // A kernel before its first program: the FPU and FS are there, and no user context is missed.
    let setup = Setup::bits32().asm(|a| {
        a.fld(dword_ptr(DATA)).unwrap();
        a.nop().unwrap();
        a.hlt().unwrap();
    });
    let site = CODE + 6;
    let found = pushed(&mut setup.boot(), site, &["u, fip", "u, fs", "u, ebx"]);
    assert_eq!(found, [CODE, DS0.into(), 0]);
}

#[test]
fn a_handler_writes_the_processors_fs() {
    let (setup, _, _, kernel) = guest(32);
    let mut g = setup.boot();
    let text = format!(
        "name = v\nmodtype = kernel\naddress = 0\nopcode = 0x90\npush {USER_DS}\npop u, fs\npush r, fs\nlog 1\nexit"
    );
    let program = parse("v.rpn", &text).unwrap().link(Width::W32, &NoSymbols).unwrap();
    let mut probes = interposer();
    let place = Place::Kernel { linear: kernel, paddr: kernel };
    probes.insert(g.m.core_mut(), "v", program, vec![place]).unwrap();
    assert_eq!(g.m.run(Some(&mut probes), g.base + 1000), Stop::Halted);
    let records = probes.channels().records();
    assert_eq!(records[0].data, u32::from(USER_DS).to_le_bytes());
}
