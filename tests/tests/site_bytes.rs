//! The bytes of each kind of site before a probe is armed there, while it is, and after: as seen by loads and by
//! instruction fetches. The bytes of each row come from the descriptions of the original tools, not from Trapline's
//! code.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use trapline_emu::load::Image;
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_emu::{
    BootState, CpuMode, CpuModel, Machine, MachineConfig, Stop, TrapInterposer, Watch, WatchKind,
};
use trapline_interposer::{Interposer, Place};
use trapline_os::TrapOs;
use trapline_providers::{Present, Spot, Target, find};
use trapline_rpn::{LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::{embedded_guest, interposer};

/// Physical and linear address of the page that is the whole file.
const AT: u64 = 0x1_0000;
/// The offset of a function in it that is called repeatedly.
const FUNCTION: usize = 0x110;
/// Logs the instruction pointer.
const LOG: &str = "push r, eip\nlog 1\nexit\n";
/// Sets AX to 1 and leaves no record.
const ANSWER: &str = "push 1\npop r, eax\nabort\n";

/// How a site is armed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    /// `int3` in the kernel.
    Kernel,
    /// `int3` in a page of a user program's file.
    User,
    /// The same with the handler of an is-enabled site.
    IsEnabled,
    /// `lock` before a NOP.
    LockNop,
    /// A watch, which patches no byte.
    Watch,
}

/// Kind of site; width; the function's bytes; where in it the site is; the same bytes as fetches see them.
type Row = (&'static str, u32, &'static [u8], usize, &'static [u8], How);

#[rustfmt::skip]
const SITES: &[Row] = &[
    ("fbt entry, mov ebp,esp as 89 e5", 32, &[0x55, 0x89, 0xe5, 0xc9, 0xc3], 0, &[0xcc, 0x89, 0xe5, 0xc9, 0xc3], How::Kernel),
    ("fbt entry, mov ebp,esp as 8b ec", 32, &[0x55, 0x8b, 0xec, 0xc9, 0xc3], 0, &[0xcc, 0x8b, 0xec, 0xc9, 0xc3], How::Kernel),
    ("fbt entry, 64 bits", 64, &[0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3], 0, &[0xcc, 0x48, 0x89, 0xe5, 0xc9, 0xc3], How::Kernel),
    ("fbt entry at endbr64", 64, &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3], 0, &[0xcc, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3], How::Kernel),
    ("fbt entry after endbr64, strict", 64, &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3], 4, &[0xf3, 0x0f, 0x1e, 0xfa, 0xcc, 0x5d, 0xc3], How::Kernel),
    ("fbt entry at call __fentry__", 64, &[0xe8, 1, 0, 0, 0, 0xc3, 0xc3], 0, &[0xcc, 1, 0, 0, 0, 0xc3, 0xc3], How::Kernel),
    ("fbt return, ret", 32, &[0x55, 0x89, 0xe5, 0xc9, 0xc3], 4, &[0x55, 0x89, 0xe5, 0xc9, 0xcc], How::Kernel),
    ("fbt return, leave, strict", 32, &[0x55, 0x89, 0xe5, 0xc9, 0xc3], 3, &[0x55, 0x89, 0xe5, 0xcc, 0xc3], How::Kernel),
    ("fbt return, rep ret", 64, &[0x55, 0x5d, 0xf3, 0xc3], 2, &[0x55, 0x5d, 0xcc, 0xc3], How::Kernel),
    ("fbt return, jmp to a thunk", 64, &[0xe9, 0, 0, 0, 0, 0xc3], 0, &[0xcc, 0, 0, 0, 0, 0xc3], How::Kernel),
    ("pid entry", 32, &[0x55, 0x89, 0xe5, 0xc9, 0xc3], 0, &[0xcc, 0x89, 0xe5, 0xc9, 0xc3], How::User),
    ("pid return", 64, &[0x55, 0x5d, 0xc2, 0, 0], 2, &[0x55, 0x5d, 0xcc, 0, 0], How::User),
    ("pid offset", 64, &[0x48, 0x31, 0xc0, 0xc3], 0, &[0xcc, 0x31, 0xc0, 0xc3], How::User),
    ("sdt, a call", 32, &[0x90, 0x90, 0x90, 0x90, 0x90, 0xc3], 0, &[0x90, 0xf0, 0x90, 0x90, 0x90, 0xc3], How::LockNop),
    ("sdt, a call, 64 bits", 64, &[0x90, 0x90, 0x90, 0x90, 0x90, 0xc3], 0, &[0x90, 0xf0, 0x90, 0x90, 0x90, 0xc3], How::LockNop),
    ("sdt, a tail call", 32, &[0x90, 0x90, 0x90, 0x90, 0xc3], 0, &[0x90, 0xf0, 0x90, 0x90, 0xc3], How::LockNop),
    ("sdt, a tail call, 64 bits", 64, &[0x90, 0x90, 0x90, 0x90, 0xc3], 0, &[0x90, 0xf0, 0x90, 0x90, 0xc3], How::LockNop),
    ("USDT, a call", 32, &[0x90, 0x90, 0x90, 0x90, 0x90, 0xc3], 0, &[0xcc, 0x90, 0x90, 0x90, 0x90, 0xc3], How::User),
    ("USDT, a call, 64 bits", 64, &[0x90, 0x90, 0x90, 0x90, 0x90, 0xc3], 0, &[0xcc, 0x90, 0x90, 0x90, 0x90, 0xc3], How::User),
    ("USDT, a tail call", 32, &[0xc3, 0x90, 0x90, 0x90, 0x90], 0, &[0xcc, 0x90, 0x90, 0x90, 0x90], How::User),
    ("USDT, is it enabled", 32, &[0x33, 0xc0, 0x90, 0x90, 0x90, 0xc3], 2, &[0x33, 0xc0, 0xcc, 0x90, 0x90, 0xc3], How::IsEnabled),
    ("USDT, is it enabled, 64 bits", 64, &[0x48, 0x33, 0xc0, 0x90, 0x90, 0xc3], 3, &[0x48, 0x33, 0xc0, 0xcc, 0x90, 0xc3], How::IsEnabled),
    ("stapsdt", 32, &[0x90, 0xc3], 0, &[0xcc, 0xc3], How::User),
    ("stapsdt, 64 bits", 64, &[0x90, 0xc3], 0, &[0xcc, 0xc3], How::User),
    ("Linux, nopl 0(%rax,%rax)", 64, &[0x0f, 0x1f, 0x44, 0, 0, 0xc3], 0, &[0xcc, 0x1f, 0x44, 0, 0, 0xc3], How::Kernel),
    ("Linux, lea 0(%esi,%eiz)", 32, &[0x3e, 0x8d, 0x74, 0x26, 0, 0xc3], 0, &[0xcc, 0x8d, 0x74, 0x26, 0, 0xc3], How::Kernel),
    ("Linux, xchg %ax,%ax", 64, &[0x66, 0x90, 0xc3], 0, &[0xcc, 0x90, 0xc3], How::Kernel),
    ("Linux, a static key that is on, 5 bytes", 64, &[0xe9, 0, 0, 0, 0, 0xc3], 0, &[0xcc, 0, 0, 0, 0, 0xc3], How::Kernel),
    ("Linux, a static key that is on, 2 bytes", 64, &[0xeb, 0, 0xc3], 0, &[0xcc, 0, 0xc3], How::Kernel),
    ("a watch of execution", 32, &[0x55, 0x5d, 0xc3], 0, &[0x55, 0x5d, 0xc3], How::Watch),
];

/// An ELF program of one page that calls the function forever.
fn file(bits: u32, function: &[u8]) -> Vec<u8> {
    let word = |value: u64| value.to_le_bytes()[..bits as usize / 8].to_vec();
    let mut elf = vec![0x7f, b'E', b'L', b'F', (bits / 32) as u8, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    elf.extend([2, 0, if bits == 64 { 62 } else { 3 }, 0, 1, 0, 0, 0]);
    let (header, program) = if bits == 64 { (64u16, 56u16) } else { (52, 32) };
    elf.extend([word(AT + 0x100), word(header.into()), word(0)].concat());
    elf.extend([0, 0, 0, 0]);
    elf.extend([header, program, 1, 0, 0, 0].iter().flat_map(|n: &u16| n.to_le_bytes()));
    elf.extend([1, 0, 0, 0]);
    let flags = [5, 0, 0, 0];
    elf.extend(if bits == 64 { flags.to_vec() } else { Vec::new() });
    elf.extend([word(0), word(AT), word(AT), word(4096), word(4096)].concat());
    elf.extend(if bits == 64 { Vec::new() } else { flags.to_vec() });
    elf.extend(word(4096));
    elf.resize(0x100, 0);
    elf.extend([0xe8, 0x0b, 0, 0, 0, 0xeb, 0xf9]);
    elf.resize(FUNCTION, 0xf4);
    elf.extend(function);
    elf.resize(4096, 0xf4);
    elf
}

fn machine(bits: u32, file: &[u8]) -> Machine {
    let model = if bits == 64 { CpuModel::X86_64 } else { CpuModel::Ia32 };
    let mut machine = Machine::new(&MachineConfig { mem_size: 4 << 20, model }).unwrap();
    machine.write_physical(AT, file);
    for (at, entry) in [(0x8000, 0x9003), (0x9000, 0xa003), (0xa000, 0x83u64)] {
        machine.write_physical(at, &entry.to_le_bytes());
    }
    let mode = if bits == 64 { CpuMode::Long64 { cr3: 0x8000 } } else { CpuMode::Flat32 };
    machine.boot(&BootState { mode, ip: AT + 0x100, ax: 7, bx: 0, sp: 0x7000, si: 0 });
    machine
}

fn program(bits: u32, opcode: u8, how: How) -> LinkedProgram {
    let handler = if how == How::IsEnabled { ANSWER } else { LOG };
    let opcode =
        if how == How::Watch { "watchpoint = x".to_owned() } else { format!("opcode = {opcode:#x}") };
    let text = format!("name = vmlinux\nmodtype = kernel\naddress = 0\n{opcode}\n{handler}");
    let width = if bits == 64 { Width::W64 } else { Width::W32 };
    parse("site.rpn", &text).unwrap().link(width, &NoSymbols).unwrap()
}

/// The bytes that loads and that fetches see; asserts that linear and physical addresses agree.
fn views(machine: &Machine, at: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
    let core = machine.core();
    let [mut data, mut code, mut ram, mut patched] = [const { Vec::new() }; 4].map(|_: Vec<u8>| vec![0; len]);
    core.peek(at, &mut data).unwrap();
    assert_eq!(core.peek_code(at, &mut code), len);
    assert!(core.ram().read(at, &mut ram) && core.read_code(at, &mut patched));
    assert_eq!((&data, &code), (&ram, &patched));
    (data, code)
}

fn run(machine: &mut Machine, probes: &mut Interposer, more: u64) {
    let limit = machine.icount() + more;
    assert_eq!(machine.run(Some(probes as &mut dyn TrapInterposer), limit), Stop::Limit);
}

#[test]
fn loads_see_the_original_and_fetches_the_patch_only_while_it_is_armed() {
    for (kind, bits, function, offset, patched, how) in SITES.iter().copied() {
        let file = file(bits, function);
        let module = Arc::new(UserModule::parse(&file, "program").unwrap());
        let (function_at, site) = (AT + FUNCTION as u64, AT + (FUNCTION + offset) as u64);
        let place = match how {
            How::Kernel => Place::Kernel { linear: site, paddr: site },
            How::LockNop => Place::LockNop { linear: site, paddr: site },
            How::User | How::IsEnabled => Place::User { module, offset: (FUNCTION + offset) as u64 },
            How::Watch => Place::Watch(Watch { kind: WatchKind::Execute, low: site, high: site }),
        };
        let mut plain = machine(bits, &file);
        plain.run(None, 300);
        let (mut machine, mut probes) = (machine(bits, &file), interposer());
        run(&mut machine, &mut probes, 100);
        let original = (function.to_vec(), function.to_vec());
        assert_eq!(views(&machine, function_at, function.len()), original, "{kind}: before");

        let program = program(bits, function[offset], how);
        let id = probes.insert(machine.core_mut(), kind, program, vec![place]).unwrap();
        run(&mut machine, &mut probes, 100);
        let armed = views(&machine, function_at, function.len());
        assert_eq!(armed, (function.to_vec(), patched.to_vec()), "{kind}: armed");
        let hits = probes.stats().hits;
        assert!(hits > 10, "{kind}: {hits} hits");
        let later = u64::from(how == How::LockNop);
        let logged = probes
            .channels()
            .records()
            .iter()
            .all(|r| u64::from(u32::from_le_bytes(*r.data.first_chunk().unwrap())) == site + later);
        assert!(logged, "{kind}: the instruction pointer in the handler");

        probes.remove(machine.core_mut(), id);
        assert_eq!(views(&machine, function_at, function.len()), original, "{kind}: after");
        run(&mut machine, &mut probes, 100);
        assert_eq!(views(&machine, function_at, function.len()), original, "{kind}: after, and run");
        assert_eq!(probes.stats().hits, hits, "{kind}: gone");
        if how != How::IsEnabled {
            assert_eq!(machine.digest(), plain.digest(), "{kind}: the guest noticed");
        }
    }
}

#[test]
fn the_pointer_of_a_macro_probe_is_the_guests_to_see_and_0_before_and_after() {
    for bits in [32, 64] {
        // cmp [pointer], 0; je over the call; call [pointer]; ret: absolute in 32 bits, relative in 64.
        let (pointer, wide) = (AT + 0x800, bits == 64);
        let relative = |end: u64| (pointer - (AT + FUNCTION as u64 + end)) as u32;
        let (compared, called) =
            if wide { (relative(8), relative(16)) } else { (pointer as u32, pointer as u32) };
        let mut function = if wide { vec![0x48] } else { Vec::new() };
        function.extend([&[0x83, 0x3d][..], &compared.to_le_bytes(), &[0, 0x74, 6, 0xff, 0x15]].concat());
        function.extend(called.to_le_bytes());
        function.push(0xc3);
        let mut file = file(bits, &function);
        let bytes = bits as usize / 8;
        file[0x800..0x808].fill(0);
        let (mut machine, mut probes) = (machine(bits, &file), interposer());
        run(&mut machine, &mut probes, 100);
        let zeros = (vec![0; bytes], vec![0; bytes]);
        assert_eq!(views(&machine, pointer, bytes), zeros, "before");
        let place = Place::Pointer { linear: pointer, paddr: pointer, wide };
        let text = program(bits, 0, How::Kernel);
        let id = probes.insert(machine.core_mut(), "pointer", text, vec![place]).unwrap();
        let armed = views(&machine, pointer, bytes);
        assert!(armed.0 != zeros.0 && armed.0 == armed.1, "{armed:?}: both views see it");
        run(&mut machine, &mut probes, 100);
        let hits = probes.stats().hits;
        assert!(hits > 10, "{hits}");
        assert_eq!(views(&machine, AT + FUNCTION as u64, function.len()).1, function, "no code is patched");
        probes.remove(machine.core_mut(), id);
        assert_eq!(views(&machine, pointer, bytes), zeros, "after");
        run(&mut machine, &mut probes, 100);
        assert_eq!(probes.stats().hits, hits, "gone");
    }
}

#[test]
fn a_site_that_the_guest_rewrites_while_it_is_armed_is_armed_anew_and_keeps_what_the_guest_wrote() {
    // A static key that is switched on: mov byte [site], 0xe9; with the NOP's zeros after it, this is a jump of 0.
    let site = AT + 0x200;
    let mut function = vec![0xe8];
    function.extend((0x200 - FUNCTION as u32 - 5).to_le_bytes());
    function.extend([0xc7, 0x05]);
    function.extend((site as u32).to_le_bytes());
    function.extend([0xe9, 0, 0, 0, 0xc3]);
    let mut file = file(32, &function);
    file[0x200..0x206].copy_from_slice(&[0x0f, 0x1f, 0x44, 0, 0, 0xc3]);
    let (mut machine, mut probes) = (machine(32, &file), interposer());
    let place = Place::Kernel { linear: site, paddr: site };
    let id = probes.insert(machine.core_mut(), "key", program(32, 0x0f, How::Kernel), vec![place]).unwrap();
    run(&mut machine, &mut probes, 3);
    assert_eq!(views(&machine, site, 5), (vec![0x0f, 0x1f, 0x44, 0, 0], vec![0xcc, 0x1f, 0x44, 0, 0]));
    run(&mut machine, &mut probes, 100);
    assert_eq!(views(&machine, site, 5), (vec![0xe9, 0, 0, 0, 0], vec![0xcc, 0, 0, 0, 0]));
    assert!(probes.stats().hits > 10 && probes.stats().rewritten > 0, "{:?}", probes.stats());
    probes.remove(machine.core_mut(), id);
    assert_eq!(views(&machine, site, 5), (vec![0xe9, 0, 0, 0, 0], vec![0xe9, 0, 0, 0, 0]));
}

#[test]
fn two_probes_at_one_site_are_disabled_one_by_one() {
    let kinds = ["fbt entry, mov ebp,esp as 89 e5", "pid return", "sdt, a tail call", "stapsdt, 64 bits"];
    for (kind, bits, function, offset, patched, how) in SITES.iter().filter(|row| kinds.contains(&row.0)) {
        for first_goes in [true, false] {
            let (mut machine, mut probes) = (machine(*bits, &file(*bits, function)), interposer());
            let module = Arc::new(UserModule::parse(&file(*bits, function), "program").unwrap());
            let (site, at) = (AT + (FUNCTION + offset) as u64, (FUNCTION + offset) as u64);
            let insert = |probes: &mut Interposer, machine: &mut Machine| {
                let place = match how {
                    How::Kernel => Place::Kernel { linear: site, paddr: site },
                    How::LockNop => Place::LockNop { linear: site, paddr: site },
                    _ => Place::User { module: Arc::clone(&module), offset: at },
                };
                let program = program(*bits, function[*offset], *how);
                probes.insert(machine.core_mut(), kind, program, vec![place]).unwrap()
            };
            let one = insert(&mut probes, &mut machine);
            let other = insert(&mut probes, &mut machine);
            run(&mut machine, &mut probes, 100);
            let both = (probes.runs(one)[0], probes.runs(other)[0]);
            assert!(both.0 > 10 && both.0 == both.1, "{kind}: {both:?}");
            let (goes, stays) = if first_goes { (one, other) } else { (other, one) };
            probes.set_enabled(machine.core_mut(), goes, 0, false).unwrap();
            run(&mut machine, &mut probes, 100);
            assert_eq!(probes.runs(goes)[0], both.0, "{kind}: disabled");
            assert!(probes.runs(stays)[0] > both.0 + 10, "{kind}: the other probe still fires");
            let function_at = AT + FUNCTION as u64;
            assert_eq!(views(&machine, function_at, function.len()), (function.to_vec(), patched.to_vec()));
            probes.set_enabled(machine.core_mut(), stays, 0, false).unwrap();
            assert_eq!(views(&machine, function_at, function.len()), (function.to_vec(), function.to_vec()));
        }
    }
}

/// The present state of a place of an embedded guest: in the kernel, or on a page of its user program in any process.
fn spot(machine: &Machine, profile: &TrapOs, place: &Place) -> Spot {
    let found = Present::new(machine.core(), Some(profile)).spots(place);
    let [spot] = found.as_slice() else { panic!("{place:?}: {found:?}") };
    spot.clone()
}

#[test]
fn probes_by_name_on_the_embedded_guests_do_the_same_in_the_kernel_and_on_a_user_page() {
    for (guest, width) in [(&trapline_guests::IA32, Width::W32), (&trapline_guests::X86_64, Width::W64)] {
        let (_, image) = embedded_guest(guest).unwrap();
        let symbols = Symbols::from_elf(guest.image, guest.name).unwrap();
        let profile = TrapOs::find(image.plan(), &symbols).unwrap();
        let module = Arc::new(UserModule::parse(guest.modules[0].1, "appln").unwrap());
        let target = Target::new(Image::parse(guest.image, guest.name).unwrap(), symbols, Vec::new());
        let named = |spec: &str| find(&target, spec).unwrap()[0].sites[0].place.clone();
        let work = Place::User { offset: module.symbol_offset("work").unwrap(), module: Arc::clone(&module) };
        for place in [named("fbt::do_fork:entry"), named("fbt::do_fork:return"), work] {
            let file: Vec<u8> = match &place {
                Place::Kernel { linear, .. } => image.plan().bytes_at(*linear, 5).unwrap(),
                Place::User { offset, .. } => module.bytes_at(*offset, 5).unwrap().to_vec(),
                other => panic!("{other:?}"),
            };
            let (mut machine, mut probes) = (embedded_guest(guest).unwrap().0, interposer());
            run(&mut machine, &mut probes, 3_000_000);
            let before = spot(&machine, &profile, &place);
            assert_eq!((&before.data, &before.code, before.is_armed()), (&file, &file, false));
            let text = program(if width == Width::W64 { 64 } else { 32 }, file[0], How::Kernel);
            let id = probes.insert(machine.core_mut(), "named", text, vec![place.clone()]).unwrap();
            probes.stop_after_hits(1);
            machine.run(Some(&mut probes as &mut dyn TrapInterposer), 100_000_000);
            assert_eq!(probes.stats().hits, 1);
            let armed = spot(&machine, &profile, &place);
            assert_eq!((&armed.data, armed.code[0], &armed.code[1..]), (&file, 0xcc, &file[1..]));
            probes.remove(machine.core_mut(), id);
            assert_eq!(spot(&machine, &profile, &place), before, "as if the site had never been armed");
        }
    }
}
