//! Snapshots: what they hold, which machines can restore them, and that a stop is always between two instructions.

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::platform::PlatformConfig;
use trapline_emu::{
    Archive, BootState, Core, CpuMode, CpuModel, Machine, MachineConfig, Snapshot, Stop, Trap, Verdict,
    hflags,
};

fn shared<T: Send + Sync + Clone>() {}

/// Writes letters to port E9h and counts in memory, forever.
fn writer(bits: u32) -> Setup {
    Setup::bits(bits).asm(|a| {
        let mut again = a.create_label();
        a.mov(edx, 0xe9u32).unwrap();
        a.mov(ebx, DATA as u32).unwrap();
        a.set_label(&mut again).unwrap();
        a.inc(ecx).unwrap();
        a.mov(eax, ecx).unwrap();
        a.and(eax, 15).unwrap();
        a.add(eax, 0x61).unwrap();
        a.out(dx, al).unwrap();
        if bits == 64 {
            a.add(dword_ptr(rbx), ecx).unwrap();
        } else {
            a.add(dword_ptr(ebx), ecx).unwrap();
        }
        a.jmp(again).unwrap();
    })
}

#[test]
fn snapshots_are_values_that_threads_may_share() {
    shared::<Snapshot>();
}

#[test]
fn going_forward_to_a_later_snapshot_brings_its_console_text() {
    let mut g = writer(32).boot();
    let early = g.m.snapshot();
    g.m.run(None, g.base + 70_000);
    let (text, digest) = (g.m.console().to_vec(), g.m.digest());
    assert_eq!(text.len(), 10_000);
    let late = g.m.snapshot();
    for _ in 0..2 {
        g.m.restore(&early).unwrap();
        assert_eq!((g.m.console(), early.console_len()), (&b""[..], 0));
        g.m.run(None, g.base + 702);
        assert_eq!(g.m.console(), &text[..100]);
        g.m.restore(&late).unwrap();
        assert!(g.m.console() == text && g.m.digest() == digest);
        assert_eq!(late.console_len(), text.len());
    }
}

#[test]
fn a_watched_text_may_begin_before_the_snapshot() {
    let mut g = writer(64).boot();
    g.m.run(None, g.base + 2 + 7 * 15 + 5);
    assert_eq!(g.m.console(), b"bcdefghijklmnopa");
    let half = g.m.snapshot();
    g.m.run(None, g.base + 7 * 2000);
    g.m.restore(&half).unwrap();
    g.m.watch_console(vec![b"nopabc".to_vec()]);
    assert_eq!(g.m.run(None, u64::MAX), Stop::Text(0));
    assert_eq!(g.m.console(), b"bcdefghijklmnopabc");
}

#[test]
fn a_machine_restores_the_snapshot_of_an_identical_machine() {
    for bits in [32, 64] {
        let (mut first, mut second) = (writer(bits).boot(), writer(bits).boot());
        // Snapshots of the second, so that both machines have taken equally many.
        second.m.run(None, second.base + 90);
        let own = second.m.snapshot();
        second.m.run(None, second.base + 3000);
        first.m.run(None, first.base + 777);
        let foreign = first.m.snapshot();
        let digest = first.m.digest();
        first.m.run(None, first.base + 5000);
        second.m.restore(&foreign).unwrap();
        assert_eq!(second.m.digest(), digest);
        second.m.run(None, first.base + 5000);
        assert_eq!((second.m.digest(), second.m.console()), (first.m.digest(), first.m.console()));
        second.m.restore(&own).unwrap();
        second.m.restore(&foreign).unwrap();
        assert_eq!(second.m.digest(), digest);
    }
}

#[test]
fn a_snapshot_of_another_machine_is_refused_and_changes_nothing() {
    let mut g = writer(32).boot();
    g.m.run(None, g.base + 123);
    let digest = g.m.digest();
    let sentence = |other: &mut Machine, g: &mut Guest| {
        let refused = g.m.restore(&other.snapshot()).unwrap_err().to_string();
        assert_eq!(g.m.digest(), digest);
        refused
    };
    let config = |mem_size, model| MachineConfig { mem_size, model };
    let minimal = |c: &MachineConfig| Machine::new(c).unwrap();
    assert_eq!(
        sentence(&mut minimal(&config(RAM, CpuModel::X86_64)), &mut g),
        "the snapshot is of another machine: the CPU model is X86_64 there and Ia32 here"
    );
    assert_eq!(
        sentence(&mut minimal(&config(2 * RAM, CpuModel::Ia32)), &mut g),
        "the snapshot is of another machine: the memory in bytes is 4194304 there and 2097152 here"
    );
    let mut pc = Machine::with_platform(&config(RAM, CpuModel::Ia32), &PlatformConfig::pc(RAM)).unwrap();
    assert_eq!(
        sentence(&mut pc, &mut g),
        "the snapshot is of another machine: the platform is pc there and minimal here"
    );
}

#[test]
fn a_snapshot_costs_the_pages_that_were_written_since_the_last() {
    let mut g = writer(32).boot();
    // Accessed and dirty bits are set.
    g.m.run(None, g.base + 100);
    let first = g.m.snapshot();
    assert!(first.new_bytes() > 0);
    g.m.run(None, g.base + 500);
    let second = g.m.snapshot();
    assert_eq!(second.new_bytes(), 4096);
    assert_eq!((second.bytes_beyond(&first), first.bytes_beyond(&second)), (4096, 4096));
    assert_eq!(g.m.snapshot().new_bytes(), 0);
    g.m.run(None, g.base + 900);
    let third = g.m.snapshot();
    assert_eq!(Snapshot::bytes_of_all([&first, &second, &third]), first.bytes() + 2 * 4096);
    assert_eq!(Snapshot::bytes_of_all([&second, &second.clone()]), second.bytes());
    g.m.restore(&first).unwrap();
    assert_eq!(g.m.snapshot().new_bytes(), 0);
}

/// Saves and restores before every instruction; the engine's derived state must be what the engine itself would have.
fn restored_at_each_step(setup: &Setup, steps: u64) -> u64 {
    let (mut plain, mut g) = (setup.boot(), setup.boot());
    for n in 0..steps {
        let before = g.m.core().env().hflags();
        let saved = g.m.snapshot();
        g.m.restore(&saved).unwrap();
        let after = g.m.core().env().hflags();
        // The size of the stack segment means nothing in 64-bit code.
        let ignored = if after & hflags::CS64 != 0 { hflags::SS32 } else { 0 };
        let at = g.m.core().env().eip();
        assert_eq!(after | ignored, before | ignored, "before instruction {n} at {at:#x}");
        assert_eq!(g.m.snapshot().cpu(), saved.cpu());
        let limit = g.base + n + 1;
        assert_eq!(g.m.run(None, limit), plain.m.run(None, limit), "instruction {n}");
        assert_eq!(g.m.digest(), plain.m.digest(), "instruction {n}");
    }
    g.m.core().env().eip()
}

#[test]
fn a_restored_cpu_is_the_one_that_was_saved_to_the_last_flag() {
    for bits in [32, 64] {
        let mut setup = Setup::bits(bits);
        setup.cr4 |= 0x200;
        let setup = setup.asm(|a| {
            a.fninit().unwrap();
            a.fld1().unwrap();
            a.fldpi().unwrap();
            a.push(0x0e7f).unwrap();
            if bits == 64 {
                a.fldcw(word_ptr(rsp)).unwrap();
                a.fistp(qword_ptr(DATA + 8)).unwrap();
                a.fnstenv(ptr(DATA + 64)).unwrap();
            } else {
                a.fldcw(word_ptr(esp)).unwrap();
                a.fistp(qword_ptr(DATA + 8)).unwrap();
                a.fnstenv(ptr(DATA + 64)).unwrap();
            }
            a.mov(eax, 0x7f80u32).unwrap();
            a.mov(dword_ptr(DATA), eax).unwrap();
            a.ldmxcsr(dword_ptr(DATA)).unwrap();
            a.mov(eax, 0x1234_5678u32).unwrap();
            a.cvtsi2ss(xmm3, eax).unwrap();
            a.divss(xmm3, xmm3).unwrap();
            a.movups(xmm7, xmm3).unwrap();
            a.std().unwrap();
            a.stc().unwrap();
            a.mov(eax, u32::from(DS0)).unwrap();
            a.mov(ss, eax).unwrap();
            a.mov(es, eax).unwrap();
            a.sti().unwrap();
            a.cld().unwrap();
            a.cli().unwrap();
            a.xor(eax, eax).unwrap();
            a.mov(gs, eax).unwrap();
            a.mov(ecx, 3).unwrap();
            a.mov(esi, DATA as u32).unwrap();
            a.mov(edi, DATA as u32 + 512).unwrap();
            a.rep().movsb().unwrap();
            a.pushf().unwrap();
            a.hlt().unwrap();
        });
        let end = restored_at_each_step(&setup, 40);
        assert!((CODE + 90..CODE + 200).contains(&end), "{bits}-bit: {end:#x}");
    }
    for ring in [0, 3] {
        let code = [0x50, 0x9c, 0x58, 0x9d, 0xd9, 0xe8, 0xcd, 0x80, 0x90, 0x90];
        for setup in [Setup::flat32(), Setup::bits32(), Setup::pae(), Setup::bits64()] {
            restored_at_each_step(&setup.ring(ring).code(&code), 8);
        }
    }
}

#[test]
fn what_hlt_has_skipped_is_part_of_a_snapshot() {
    // The timer's interrupt is masked: HLT skips from tick to tick until the run ends as idle.
    let setup = Setup::bits32().flags(IF).code(&[0xf4]);
    let mut g = setup.boot();
    let mut plain = setup.boot();
    let end = plain.m.run(None, u64::MAX);
    let alarm = 10_000_000_000;
    g.m.core_mut().set_alarm(Some(alarm));
    g.m.run(None, u64::MAX);
    let half = g.m.snapshot();
    g.m.core_mut().set_alarm(None);
    for _ in 0..2 {
        assert_eq!(g.m.run(None, u64::MAX), end);
        assert_eq!(g.m.digest(), plain.m.digest());
        g.m.restore(&half).unwrap();
    }
}

#[test]
fn a_run_that_a_handler_ends_stops_after_the_displaced_instruction() {
    const INC_EBX: [u8; 2] = [0xff, 0xc3];
    for bits in [32, 64] {
        let setup = Setup::bits(bits).code(&[0x90, INC_EBX[0], INC_EBX[1], 0x90, 0x90, 0xf4]);
        let mut plain = setup.boot();
        plain.m.run(None, plain.base + 2);
        let mut g = setup.boot();
        g.m.core_mut().arm(CODE + 1, &[0xcc], 1).unwrap();
        let slot = g.m.core_mut().take_slot(&INC_EBX, 2, CODE + 1, bits).unwrap();
        g.m.watch_console(vec![b"!".to_vec()]);
        // Writes a letter to port E9h before it answers, as a handler may.
        let mut talks = Answers(|core: &mut Core, _: &Trap| {
            core.handler_port_write(0xe9, 1, u32::from(b'!'));
            Verdict::Slot(slot)
        });
        assert_eq!(g.m.run(Some(&mut talks), u64::MAX), Stop::Text(0));
        assert_eq!(g.m.core().env().eip(), CODE + 3, "{bits}-bit");
        assert_eq!((g.m.digest(), g.m.icount()), (plain.m.digest(), plain.m.icount()), "{bits}-bit");
        let there = g.m.snapshot();
        g.m.restore(&there).unwrap();
        assert_eq!(g.m.digest(), plain.m.digest());
    }
}

#[test]
fn two_machines_in_two_threads_do_what_each_does_alone() {
    let alone = |bits: u32| {
        let mut g = writer(bits).boot();
        let mut seen = Vec::new();
        for n in 1..=40u64 {
            let saved = g.m.snapshot();
            g.m.run(None, g.base + n * 5003);
            if n % 7 == 0 {
                g.m.restore(&saved).unwrap();
                g.m.run(None, g.base + n * 5003);
            }
            seen.push(g.m.digest());
        }
        (seen, g.m.console().to_vec())
    };
    let expected = [alone(32), alone(64)];
    let threads: Vec<_> = [32, 64, 64, 32].map(|bits| (bits, std::thread::spawn(move || alone(bits)))).into();
    for (bits, thread) in threads {
        assert!(thread.join().unwrap() == expected[usize::from(bits == 64)], "{bits}-bit");
    }
}

#[test]
fn a_snapshot_taken_in_one_thread_is_restored_in_another() {
    let mut g = writer(64).boot();
    g.m.run(None, g.base + 4000);
    let half = g.m.snapshot();
    g.m.run(None, g.base + 9000);
    let (end, limit) = (g.m.digest(), g.base + 9000);
    let other = std::thread::spawn(move || {
        let mut g = writer(64).boot();
        g.m.restore(&half).unwrap();
        g.m.run(None, limit);
        g.m.digest()
    });
    assert_eq!(other.join().unwrap(), end);
}

#[test]
fn the_loaded_image_is_part_of_a_machines_identity() {
    let config = MachineConfig { mem_size: 64 << 20, model: CpuModel::Ia32 };
    let mut m = Machine::new(&config).unwrap();
    let boot = BootState { mode: CpuMode::Flat32, ip: CODE, ax: 0, bx: 0, sp: STACK0, si: 0 };
    m.boot(&boot);
    assert_eq!(m.identity().loaded, 0);
    assert_eq!((m.identity().model.as_str(), m.identity().platform.as_str()), ("Ia32", "minimal"));
}

fn file_of(snapshot: &Snapshot) -> Vec<u8> {
    let mut archive = Archive::new();
    snapshot.store(&mut archive).unwrap();
    archive.to_bytes()
}

fn from_file(file: &[u8]) -> Snapshot {
    Snapshot::load(&Archive::from_bytes(file).unwrap()).unwrap()
}

#[test]
fn a_snapshot_comes_back_from_its_file() {
    for (bits, pc) in [(32, false), (64, false), (64, true)] {
        let setup = if pc { writer(bits).pc() } else { writer(bits) };
        let mut g = setup.boot();
        g.m.run(None, g.base + 40_000);
        let taken = g.m.snapshot();
        let digest = g.m.digest();
        g.m.run(None, g.base + 60_000);
        let file = file_of(&taken);
        assert!(file.len() < 200_000, "{} bytes", file.len());
        let back = from_file(&file);
        assert_eq!((back.cpu(), back.icount(), back.bytes()), (taken.cpu(), taken.icount(), taken.bytes()));
        assert_eq!(file_of(&back), file);
        let mut other = setup.boot();
        other.m.restore(&back).unwrap();
        assert_eq!(other.m.digest(), digest);
        other.m.run(None, g.base + 60_000);
        assert_eq!((other.m.digest(), other.m.console()), (g.m.digest(), g.m.console()));
        // Memory in one place and file in the other differ in no byte.
        other.m.restore(&taken).unwrap();
        assert_eq!(file_of(&other.m.snapshot()), file);
    }
}

#[test]
fn stale_translations_survive_a_file() {
    // The page's entry changes without INVLPG: the old translation holds, also after a restore.
    let setup = Setup::bits32().asm(|a| {
        a.mov(eax, dword_ptr(0x40000)).unwrap();
        a.mov(dword_ptr(Setup::bits32().pte_at(0x40000) as u32), 0).unwrap();
        a.nop().unwrap();
        a.mov(ebx, dword_ptr(0x40000)).unwrap();
        a.hlt().unwrap();
    });
    let mut plain = setup.boot();
    plain.m.run(None, plain.base + 4);
    assert_eq!(plain.m.core().env().eip(), CODE + 22, "{}", plain.m.core().dump_registers());
    let mut g = setup.boot();
    g.m.run(None, g.base + 3);
    let file = file_of(&g.m.snapshot());
    let mut other = setup.boot();
    other.m.restore(&from_file(&file)).unwrap();
    other.m.run(None, g.base + 4);
    assert_eq!(other.m.digest(), plain.m.digest());
}

#[test]
fn a_state_that_no_machine_can_have_is_refused() {
    let mut g = writer(32).boot();
    let mut archive = Archive::new();
    g.m.snapshot().store(&mut archive).unwrap();
    let machine = archive.bytes("machine", 2).unwrap().to_vec();
    let mut refused = 0;
    for at in 0..machine.len() {
        let mut changed = machine.clone();
        changed[at] ^= 0x80;
        archive.put_bytes("machine", 2, changed);
        // The result is an error or a state, never a panic, whatever the bytes.
        match Snapshot::load(&archive) {
            Err(error) => {
                assert!(error.to_string().starts_with("part `machine` of the snapshot cannot be read: "));
                refused += 1;
            }
            // A machine without these devices refuses it.
            Ok(snapshot) => drop(g.m.restore(&snapshot)),
        }
    }
    assert!(refused > 20, "{refused}");
    archive.put_bytes("machine", 3, machine);
    assert_eq!(
        Snapshot::load(&archive).unwrap_err().to_string(),
        "part `machine` of the snapshot has version 3, and this build reads version 2"
    );
}
