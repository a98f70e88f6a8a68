//! Memory-mapped devices from inside a guest: each access happens at the count of its instruction, whether the machine or the engine executes it.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use crate::watching;
use iced_x86::code_asm::*;
use trapline_emu::devices::lapic::TICK_NS;
use trapline_emu::devices::virtio::DiskImage;
use trapline_emu::platform::PlatformConfig;
use trapline_emu::{Core, CpuModel, Machine, Stop, Trap, TrapInterposer, Verdict, Watch, WatchKind};

/// Where paging guests map the local APIC.
const MAPPED: u64 = 0x10_0000;
const APIC: u64 = 0xfee0_0000;

const TPR: u64 = 0x80;
const EOI: u64 = 0xb0;
const ICR: u64 = 0x300;
const LVT_TIMER: u64 = 0x320;
const INITIAL: u64 = 0x380;
const CURRENT: u64 = 0x390;
const DIVIDE: u64 = 0x3e0;

/// Guests whose DI holds the APIC's address.
fn guests() -> Vec<(&'static str, Setup, u64)> {
    let paging = |s: Setup| s.pte(MAPPED, APIC | P | RW | US);
    vec![
        ("flat", Setup::flat32().pc(), APIC),
        ("two levels", paging(Setup::bits32().pc()), MAPPED),
        ("64-bit", paging(Setup::bits64().pc()), MAPPED),
        ("64-bit, ring 3", paging(Setup::bits64().pc().ring(3)), MAPPED),
    ]
}

fn write(a: &mut CodeAssembler, wide: bool, register: u64, value: u32) {
    if wide {
        a.mov(dword_ptr(rdi + register), value).unwrap();
    } else {
        a.mov(dword_ptr(edi + register), value).unwrap();
    }
}

/// Starts the timer at its full pace.
fn start_timer(a: &mut CodeAssembler, wide: bool, lvt: u32, initial: u32) {
    write(a, wide, DIVIDE, 0xb);
    write(a, wide, LVT_TIMER, lvt);
    write(a, wide, INITIAL, initial);
}

/// Runs to the end in slices of a few instructions, going back to a snapshot now and then.
fn in_slices(m: &mut Machine) -> Stop {
    let mut rng = Rng(77);
    for n in 0.. {
        let kept = m.snapshot();
        let slice = 1 + rng.below(7);
        let mut stop = m.run(None, m.icount() + slice);
        if n % 3 == 0 {
            m.restore(&kept).unwrap();
            stop = m.run(None, m.icount() + slice);
        }
        if stop != Stop::Limit {
            return stop;
        }
    }
    Stop::Limit
}

#[test]
fn every_way_of_reading_sees_the_count_of_its_own_instruction() {
    const START: u32 = 1_000_000;
    for (what, setup, apic) in guests() {
        let wide = setup.wide();
        let s = setup.asm(|a| {
            start_timer(a, wide, 0x1_0050, START);
            // Instructions 3 to 9: a 32-bit MOV, which the machine executes, and instructions that are stepped in the
            // engine.
            if wide {
                a.mov(eax, dword_ptr(rdi + CURRENT)).unwrap();
                a.add(ebx, dword_ptr(rdi + CURRENT)).unwrap();
                a.push(qword_ptr(rdi + CURRENT)).unwrap();
                a.lea(rsi, ptr(rdi + CURRENT)).unwrap();
                a.lodsd().unwrap();
            } else {
                a.mov(eax, dword_ptr(edi + CURRENT)).unwrap();
                a.add(ebx, dword_ptr(edi + CURRENT)).unwrap();
                a.push(dword_ptr(edi + CURRENT)).unwrap();
                a.lea(esi, ptr(edi + CURRENT)).unwrap();
                a.lodsd().unwrap();
            }
            for _ in 0..50 {
                a.nop().unwrap();
            }
            if wide {
                a.movzx(edx, word_ptr(rdi + CURRENT)).unwrap();
                a.cmp(dword_ptr(rdi + CURRENT), 0).unwrap();
            } else {
                a.movzx(edx, word_ptr(edi + CURRENT)).unwrap();
                a.cmp(dword_ptr(edi + CURRENT), 0).unwrap();
            }
        });
        let at = |n: u64| u64::from(START) - (n - 2) / TICK_NS;
        let mut g = s.boot();
        g.set(7, apic);
        assert_eq!(g.run_to(4), Stop::Limit, "{what}");
        assert_eq!(g.gpr(0), at(3), "{what}: mov");
        assert_eq!(g.run_to(8), Stop::Limit);
        assert_eq!(g.gpr(3), at(4), "{what}: add");
        assert_eq!(g.mem(g.gpr(4), 4), at(5), "{what}: push");
        assert_eq!(g.gpr(0), at(7), "{what}: lods");
        assert_eq!(g.run_to(60), Stop::Limit);
        assert_eq!(g.gpr(2), at(58) & 0xffff, "{what}: movzx");
        let digest = g.m.digest();
        let mut sliced = s.boot();
        sliced.set(7, apic);
        for n in 1..=60 {
            assert_eq!(sliced.run_to(n), Stop::Limit);
        }
        assert_eq!(sliced.m.digest(), digest, "{what}");
    }
}

#[test]
fn the_timer_interrupts_at_its_exact_instruction() {
    for bits in [32, 64] {
        for initial in [1, 2, 3, 17, 100] {
            let wide = bits == 64;
            let setup = Setup::bits(bits).pc().flags(IF).pte(MAPPED, APIC | P | RW | US);
            let s = setup.asm(|a| {
                start_timer(a, wide, 0x50, initial);
                for _ in 0..2000 {
                    a.nop().unwrap();
                }
            });
            let mut g = s.boot();
            g.set(7, MAPPED);
            let c = g.caught();
            // The write of the initial count sees the count of 2.
            let due = 2 + u64::from(initial) * TICK_NS;
            assert_eq!((c.vector, g.count()), (0x50, due + 3), "{bits}-bit, {initial}");
            let mut sliced = s.boot();
            sliced.set(7, MAPPED);
            assert_eq!(in_slices(&mut sliced.m), Stop::Halted);
            assert_eq!((sliced.m.digest(), sliced.frame()), (g.m.digest(), c));
        }
    }
}

#[test]
fn a_periodic_timer_wakes_the_cpu_until_it_is_told_to_stop() {
    const HANDLER: u64 = 0x2_4000;
    let s = Setup::flat32().pc().flags(IF).gate(0x50, HANDLER, 0x8e00);
    let s = s.asm_at(HANDLER, |a| {
        a.inc(ebx).unwrap();
        write(a, false, EOI, 0);
        a.iretd().unwrap();
    });
    let s = s.asm(|a| {
        start_timer(a, false, 0x2_0050, 5_000);
        let mut again = a.create_label();
        a.set_label(&mut again).unwrap();
        a.hlt().unwrap();
        a.cmp(ebx, 20).unwrap();
        a.jb(again).unwrap();
        a.cli().unwrap();
        a.hlt().unwrap();
    });
    let mut g = s.boot();
    g.set(7, APIC);
    assert_eq!(g.run(), Stop::Halted);
    assert_eq!(g.gpr(3), 20);
    let ns = g.core().virtual_ns() - g.base;
    assert!((1_000_000..1_000_100).contains(&ns), "20 periods of 50 us took {ns} ns");
    let mut sliced = s.boot();
    sliced.set(7, APIC);
    assert_eq!(in_slices(&mut sliced.m), Stop::Halted);
    assert_eq!(sliced.m.digest(), g.m.digest());
}

#[test]
fn an_interrupt_to_itself_is_taken_at_the_next_boundary() {
    for (what, setup, apic) in guests().into_iter().filter(|(what, ..)| !what.contains("ring")) {
        let wide = setup.wide();
        let s = setup.flags(IF).asm(|a| {
            write(a, wide, ICR, 0x0004_0050);
            for _ in 0..10 {
                a.nop().unwrap();
            }
        });
        let mut g = s.boot();
        g.set(7, apic);
        let c = g.caught();
        let length = s.memory.last().unwrap().1.len() as u64 - 10;
        assert_eq!((c.vector, c.ip), (0x50, CODE + length), "{what}");
        assert_eq!(g.count(), 1 + 3);
    }
}

#[test]
fn an_nmi_to_itself_is_taken_with_interrupts_disabled() {
    let s = Setup::flat32().pc().asm(|a| {
        write(a, false, ICR, 0x0004_0400);
        a.nop().unwrap();
        a.nop().unwrap();
    });
    let mut g = s.boot();
    g.set(7, APIC);
    assert_eq!(g.caught().vector, 2);
}

#[test]
fn registers_can_be_read_changed_and_written_back() {
    for (what, setup, apic) in guests() {
        let wide = setup.wide();
        let s = setup.asm(|a| {
            a.mov(eax, 0x55).unwrap();
            if wide {
                a.or(dword_ptr(rdi + TPR), 0x21).unwrap();
                a.xchg(dword_ptr(rdi + TPR), eax).unwrap();
                a.lock().xadd(dword_ptr(rdi + TPR), eax).unwrap();
                a.mov(byte_ptr(rdi + TPR), 0x11).unwrap();
                a.mov(rdx, qword_ptr(rdi + TPR)).unwrap();
            } else {
                a.or(dword_ptr(edi + TPR), 0x21).unwrap();
                a.xchg(dword_ptr(edi + TPR), eax).unwrap();
                a.lock().xadd(dword_ptr(edi + TPR), eax).unwrap();
                a.mov(byte_ptr(edi + TPR), 0x11).unwrap();
                a.mov(edx, dword_ptr(edi + TPR)).unwrap();
            }
        });
        let mut g = s.boot();
        g.set(7, apic);
        assert_eq!(g.run_to(6), Stop::Limit, "{what}");
        assert_eq!((g.gpr(0), g.gpr(2)), (0x55, 0x76), "{what}: a byte is dropped");
    }
}

#[test]
fn string_instructions_move_between_devices_and_memory() {
    for (what, setup, apic) in guests() {
        let wide = setup.wide();
        let s = setup.at(DATA, &0x30u32.to_le_bytes()).asm(|a| {
            if wide {
                a.mov(rsi, DATA).unwrap();
                a.add(rdi, TPR as i32).unwrap();
                a.movsd().unwrap();
                a.lea(rsi, ptr(rdi - 4)).unwrap();
                a.mov(rdi, DATA + 0x100).unwrap();
            } else {
                a.mov(esi, DATA as u32).unwrap();
                a.add(edi, TPR as i32).unwrap();
                a.movsd().unwrap();
                a.lea(esi, ptr(edi - 4)).unwrap();
                a.mov(edi, DATA as u32 + 0x100).unwrap();
            }
            a.mov(ecx, 9).unwrap();
            a.rep().movsd().unwrap();
        });
        let mut g = s.boot();
        g.set(7, apic);
        assert_eq!(g.run_to(6 + 9), Stop::Limit, "{what}");
        assert_eq!(
            (g.gpr(1), g.mem(DATA + 0x100, 4), g.mem(DATA + 0x120, 4)),
            (0, 0x30, 0x30),
            "{what}: TPR, PPR"
        );
    }
}

#[test]
fn a_disabled_apic_is_no_device_and_cpuid_says_so() {
    let read_cpuid = |a: &mut CodeAssembler| {
        a.mov(eax, 1).unwrap();
        a.cpuid().unwrap();
        a.shr(edx, 9).unwrap();
        a.and(edx, 1).unwrap();
    };
    let s = Setup::flat32().pc().asm(|a| {
        a.mov(esi, dword_ptr(edi + 0x30)).unwrap();
        read_cpuid(a);
        a.mov(ebp, edx).unwrap();
        a.mov(ecx, 0x1b).unwrap();
        a.rdmsr().unwrap();
        a.and(eax, !0x800).unwrap();
        a.wrmsr().unwrap();
        read_cpuid(a);
        a.mov(ebx, dword_ptr(edi + 0x30)).unwrap();
    });
    let mut g = s.boot();
    g.set(7, APIC);
    assert_eq!(g.run_to(15), Stop::Limit);
    assert_eq!((g.gpr(6), g.gpr(5)), (0x0005_0014, 1));
    assert_eq!((g.gpr(3), g.gpr(2)), (u64::from(u32::MAX), 0));
    let mut minimal = Setup::flat32().asm(|a| {
        a.mov(ecx, 0x1b).unwrap();
        a.rdmsr().unwrap();
        a.hlt().unwrap();
    });
    minimal.model = CpuModel::X86_64;
    let mut g = minimal.boot();
    assert_eq!(g.run(), Stop::Halted);
    assert_eq!(g.gpr(0), 0xfee0_0100, "the minimal platform's APIC is disabled");
}

#[test]
fn cr8_is_the_task_priority() {
    let s = Setup::bits64().pc().pte(MAPPED, APIC | P | RW | US).asm(|a| {
        a.mov(eax, 5).unwrap();
        a.mov(cr8, rax).unwrap();
        a.mov(ebx, dword_ptr(rdi + TPR)).unwrap();
        a.mov(dword_ptr(rdi + TPR), 0x37).unwrap();
        a.mov(rcx, cr8).unwrap();
        a.mov(eax, 0x10).unwrap();
        a.mov(cr8, rax).unwrap();
    });
    let mut g = s.boot();
    g.set(7, MAPPED);
    let c = g.caught();
    assert_eq!((g.gpr(3), g.gpr(1), c.vector, c.error), (0x50, 3, 13, Some(0)));
}

#[test]
fn soft_off_ends_the_run() {
    let s = Setup::flat32().pc().asm(|a| {
        a.mov(edx, 0x604).unwrap();
        a.mov(eax, 0x3400).unwrap();
        a.out(dx, ax).unwrap();
        a.nop().unwrap();
    });
    let mut g = s.boot();
    assert_eq!(g.run(), Stop::PoweredOff);
    assert_eq!(g.count(), 3);
}

#[test]
fn firmware_leaves_its_tables_in_memory() {
    let g = Setup::flat32().pc().boot();
    assert_eq!(g.mem(0xf_0000, 4), u64::from(u32::from_le_bytes(*b"_MP_")));
    assert_eq!(g.mem(0xf_1000, 8), u64::from_le_bytes(*b"RSD PTR "));
    assert_eq!(Setup::flat32().boot().mem(0xf_0000, 8), 0);
}

/// A probed access is the same at the same time, whether its instruction runs out of line or is stepped in place.
#[test]
fn a_displaced_access_sees_the_time_of_its_own_instruction() {
    const ACCESSES: [(&str, &[u8]); 5] = [
        ("mov eax, [di+390h]", &[0x8b, 0x87, 0x90, 0x03, 0, 0]),
        ("add eax, [di+390h]", &[0x03, 0x87, 0x90, 0x03, 0, 0]),
        ("mov dword [di+380h], 100", &[0xc7, 0x87, 0x80, 0x03, 0, 0, 100, 0, 0, 0]),
        ("lodsd", &[0xad]),
        ("rep lodsd", &[0xf3, 0xad]),
    ];
    for (bits, (what, access)) in [32, 64].into_iter().flat_map(|bits| ACCESSES.map(|a| (bits, a))) {
        let wide = bits == 64;
        let lead = assemble(bits, CODE, |a| start_timer(a, wide, 0x50, 500));
        let site = CODE + lead.len() as u64;
        let code = [&lead[..], access, &[0x90; 8000]].concat();
        let s = Setup::bits(bits).pc().flags(IF).pte(MAPPED, APIC | P | RW | US).code(&code);
        let boot = || {
            let mut g = s.boot();
            g.set(7, MAPPED).set(6, MAPPED + CURRENT).set(1, 3);
            g
        };
        let mut plain = boot();
        let caught = plain.caught();
        assert_eq!(caught.vector, 0x50, "{what}");
        for slot in [false, true] {
            let mut g = boot();
            g.m.core_mut().arm(site, &[0xcc], 1).unwrap();
            let verdict = if slot {
                let size = access.len() as u8;
                Verdict::Slot(g.m.core_mut().take_slot(access, size, site, bits).unwrap())
            } else {
                Verdict::Step
            };
            let mut probe = Nops { verdict, ..Nops::new() };
            assert_eq!(g.m.run(Some(&mut probe), g.base + 100_000), Stop::Halted);
            assert_eq!(
                (probe.hits > 0, probe.faults, g.frame()),
                (true, 0, caught.clone()),
                "{what}, slot {slot}"
            );
            assert_eq!(g.m.digest(), plain.m.digest(), "{bits}-bit {what}, slot {slot}");
        }
    }
}

#[test]
fn a_watched_access_to_a_device_is_reported_and_changes_nothing() {
    for (what, setup, apic) in guests() {
        let wide = setup.wide();
        let s = setup.asm(|a| {
            start_timer(a, wide, 0x1_0050, 1_000);
            if wide {
                a.mov(eax, dword_ptr(rdi + CURRENT)).unwrap();
            } else {
                a.mov(eax, dword_ptr(edi + CURRENT)).unwrap();
            }
            a.nop().unwrap();
        });
        let (mut plain, mut g) = (s.boot(), s.boot());
        plain.set(7, apic);
        g.set(7, apic);
        assert_eq!(plain.run_to(5), Stop::Limit);
        let watch = Watch { kind: WatchKind::ReadWrite, low: apic + INITIAL, high: apic + CURRENT + 3 };
        g.m.core_mut().watch(1, watch);
        let mut seen = watching::Watching::default();
        assert_eq!(g.m.run(Some(&mut seen), g.base + 5), Stop::Limit);
        assert_eq!(g.m.digest(), plain.m.digest(), "{what}");
        let hits: Vec<u64> = seen.hits.iter().map(|hit| hit.address - apic).collect();
        assert_eq!(hits, [INITIAL, CURRENT], "{what}");
    }
}

/// A driver in a handful of MOVs, with its queue already built.
mod disk {
    use super::*;

    const WINDOW: u64 = 0xfeb0_0000;
    const DESCRIPTORS: u64 = 0x4_0000;
    const AVAILABLE: u64 = 0x4_1000;
    const USED: u64 = 0x4_2000;
    const HEADER: u64 = 0x4_3000;
    const STATUS: u64 = 0x4_3100;

    /// A guest that negotiates, makes one request available and waits for it; then it calls `target`.
    fn guest(kind: u32, target: u64) -> Setup {
        let disk = DiskImage::from_bytes(&[[0xb8, 2, 0, 0, 0, 0xc3], [0; 6]].concat().repeat(512)).unwrap();
        let write = u16::from(kind == 0) * 2;
        let descriptor = |paddr: u64, len: u32, flags: u16, next: u16| {
            let mut bytes = paddr.to_le_bytes().to_vec();
            bytes.extend(len.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(next.to_le_bytes());
            bytes
        };
        let chain = [
            descriptor(HEADER, 16, 1, 1),
            descriptor(target, 512, 1 | write, 2),
            descriptor(STATUS, 1, 2, 0),
        ];
        let mut s = Setup::flat32()
            .at(DESCRIPTORS, &chain.concat())
            .at(AVAILABLE, &[0, 0, 1, 0])
            .at(HEADER, &kind.to_le_bytes())
            .at(STATUS, &[0xff])
            .at(target, &[0xb8, 1, 0, 0, 0, 0xc3]);
        s.platform = Some(PlatformConfig { disk: Some(disk), ..PlatformConfig::pc(RAM) });
        s.asm(|a| {
            a.mov(eax, target as u32).unwrap();
            a.call(eax).unwrap();
            a.mov(ebp, eax).unwrap();
            for (register, value) in [
                (0x70, 1),
                (0x70, 3),
                (0x24, 1),
                (0x20, 1),
                (0x70, 11),
                (0x38, 8),
                (0x80, DESCRIPTORS as u32),
                (0x90, AVAILABLE as u32),
                (0xa0, USED as u32),
                (0x44, 1),
                (0x70, 15),
                (0x50, 0),
            ] {
                a.mov(dword_ptr(edi + register), value).unwrap();
            }
            let mut wait = a.create_label();
            a.set_label(&mut wait).unwrap();
            a.cmp(word_ptr(USED + 2), 0).unwrap();
            a.je(wait).unwrap();
            a.rdtsc().unwrap();
            a.mov(esi, eax).unwrap();
            a.mov(eax, target as u32).unwrap();
            a.call(eax).unwrap();
            a.hlt().unwrap();
        })
    }

    #[test]
    fn a_disk_fills_memory_at_its_time_even_where_code_has_run() {
        let s = guest(0, DATA);
        let mut g = s.boot();
        g.set(7, WINDOW);
        assert_eq!(g.run(), Stop::Halted, "{}", g.core().dump_registers());
        assert_eq!((g.gpr(5), g.gpr(0)), (1, 2), "the new code runs");
        assert_eq!((g.mem(STATUS, 1), g.mem(USED + 2, 2), g.mem(USED + 8, 4)), (0, 1, 513));
        assert_eq!((g.gpr(6) - g.base) / 10_000, 1, "10 us after the notification");
        let mut sliced = s.boot();
        sliced.set(7, WINDOW);
        assert_eq!(in_slices(&mut sliced.m), Stop::Halted);
        assert_eq!(sliced.m.digest(), g.m.digest());
    }

    /// Notes the pages from which code is fetched for the first time since they were written.
    struct Fetched(Vec<u64>);

    impl TrapInterposer for Fetched {
        fn trap(&mut self, _: &mut Core, _: &Trap) -> Verdict {
            Verdict::Declined
        }
        fn code_page(&mut self, core: &mut Core, paddr: u64) {
            assert!(!core.code_pages().contains(&paddr));
            self.0.push(paddr);
        }
        fn wants_code_pages(&self) -> bool {
            true
        }
    }

    #[test]
    fn code_that_a_disk_has_written_is_announced_as_new_code_is() {
        let mut g = guest(0, DATA).boot();
        g.set(7, WINDOW);
        let mut seen = Fetched(Vec::new());
        let digest = run(&mut g, &mut seen);
        assert_eq!(g.gpr(0), 2);
        assert_eq!(seen.0, [DATA, DATA], "once before the transfer, once after it");
        assert!(g.core().code_pages().contains(&DATA));
        let mut plain = guest(0, DATA).boot();
        plain.set(7, WINDOW);
        assert_eq!(plain.run(), Stop::Halted);
        assert_eq!(plain.m.digest(), digest);
    }

    #[test]
    fn what_is_written_is_part_of_digest_and_snapshot() {
        let s = guest(1, DATA);
        let mut g = s.boot();
        g.set(7, WINDOW);
        let start = g.m.snapshot();
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!(g.mem(STATUS, 1), 0);
        let (digest, written) = (g.m.digest(), g.core().platform().disk().unwrap().blocks_written());
        assert_eq!(written, 1);
        g.m.restore(&start).unwrap();
        assert_eq!(g.core().platform().disk().unwrap().blocks_written(), 0);
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!(g.m.digest(), digest);
        // Other bytes on the disk change the digest even if all else is equal.
        g.m.restore(&start).unwrap();
        assert_eq!(g.run_to(5), Stop::Limit);
        g.m.write_physical(DATA + 100, &[1]);
        assert_eq!(g.run(), Stop::Halted);
        g.m.write_physical(DATA + 100, &[0]);
        assert_ne!(g.m.digest(), digest);
    }
}

#[test]
fn a_guest_that_writes_too_much_to_its_console_ends() {
    let mut g = Setup::bits64()
        .asm(|a| {
            let mut again = a.create_label();
            a.mov(dx, 0x3f8u32).unwrap();
            a.set_label(&mut again).unwrap();
            a.out(dx, al).unwrap();
            a.jmp(again).unwrap();
        })
        .boot();
    g.m.limit_console(100);
    let kept = g.m.snapshot();
    for _ in 0..2 {
        let stop = g.run();
        assert!(matches!(&stop, Stop::Unsupported(what) if what.contains("more than 100 bytes")), "{stop:?}");
        assert_eq!(g.m.console().len(), 101);
        g.m.restore(&kept).unwrap();
    }
}
