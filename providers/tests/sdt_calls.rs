//! Calls to functions that do not exist, in objects and linked programs of both widths, against readelf and objdump.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::common::{assemble, folder, program, tool};
use trapline_emu::load::ElfView;
use trapline_providers::sdt::{CallSites, Domain, Purpose};

/// Kernel sites: two of one name in one function, a tail call, one in another section; and refused entries.
const KERNEL: &str = "
.text
.globl _start, defined, __dtrace_probe_real
.type first, @function
first:
    nop
    call __dtrace_probe_squeue__enter
inside:
    call __dtrace_probe_squeue__enter
    ret
.size first, . - first
.type last, @function
last:
    jmp __dtrace_probe_a__b___c
.size last, . - last
_start:
    call __dtrace_probe_real
__dtrace_probe_real:
    ret
    .byte 0x0f, 0x84
    .long __dtrace_probe_conditional - 4 - .
.section .text.cold, \"ax\"
.type cold, @function
cold:
    call __dtrace_probe_cold
.size cold, . - cold
.data
    .long __dtrace_probe_data - .
";

/// USDT in a program.
const USER: &str = "
.text
.globl _start
.type _start, @function
_start:
    call __dtraceenabled_web__srv___query__start
    call __dtrace_web__srv___query__start
    call __dtrace_probe_kernels
    jmp __dtrace_web__srv___query__done
.size _start, . - _start
.type asks, @function
asks:
    jmp __dtraceenabled_web__srv___query__done
.size asks, . - asks
";

fn read(bytes: &[u8], domain: Domain) -> CallSites {
    CallSites::read(&ElfView::parse(bytes).unwrap(), domain).unwrap()
}

/// A relocatable object, and a program linked from it with its relocations kept.
fn both(name: &str, bits: u32, source: &str) -> [Vec<u8>; 2] {
    let object = assemble(name, &format!("object{bits}"), bits, source);
    let keep = ["-q", "--unresolved-symbols=ignore-all", "-z", "noexecstack"];
    [std::fs::read(object).unwrap(), program(name, &format!("image{bits}"), bits, source, &keep)]
}

#[test]
fn a_kernels_calls_are_found_with_name_function_and_form() {
    for bits in [32, 64] {
        for bytes in both("calls-found", bits, KERNEL) {
            let found = read(&bytes, Domain::Kernel);
            let mut told: Vec<_> =
                found.sites.iter().map(|s| (&*s.name, &*s.function, s.tail, s.loaded)).collect();
            told.sort_unstable();
            let wanted = [
                ("a-b-_c", "last", true, false),
                ("cold", "cold", false, false),
                ("squeue-enter", "first", false, false),
                ("squeue-enter", "first", false, false),
            ];
            assert_eq!(told, wanted, "{bits}");
            assert!(found.sites.iter().all(|site| site.provider == "sdt"));
            // One name, many sites: one probe.
            let probes = found.probes();
            assert_eq!(probes.len(), 3);
            assert_eq!(probes[&("sdt", "first", "squeue-enter")].len(), 2);
            let mut why: Vec<String> = found.refused.iter().map(|e| e.kind.to_string()).collect();
            why.sort();
            assert_eq!(why.len(), 3, "{why:?}");
            assert_eq!(why[0], "it is not five bytes of executable code");
            assert!(why[2].starts_with("the file defines this function"), "{why:?}");
            assert!(why[1].starts_with("its bytes [84, "), "{why:?}");
        }
    }
}

#[test]
fn every_site_is_where_objdump_shows_its_call() {
    for bits in [32, 64] {
        let [_, image] = both("calls-objdump", bits, KERNEL);
        let found = read(&image, Domain::Kernel);
        let shown = tool(
            &folder("calls-objdump"),
            "objdump",
            &["-dr", "--no-show-raw-insn", &format!("image{bits}")],
        );
        // A relocation is listed below its instruction, with the address of its field.
        let mut addresses: Vec<u64> = shown
            .lines()
            .filter(|line| line.contains("R_") && !line.contains("_real") && !line.contains("_conditional"))
            .filter_map(|line| line.trim_start().split_once(':'))
            .map(|(address, _)| u64::from_str_radix(address, 16).unwrap() - 1)
            .collect();
        addresses.sort_unstable();
        let mut own: Vec<u64> = found.sites.iter().map(|site| site.address).collect();
        own.sort_unstable();
        assert_eq!(own, addresses, "{shown}");
    }
}

#[test]
fn a_loaded_file_has_nops_for_calls_and_asks_for_no_symbol() {
    for bits in [32, 64] {
        for mut bytes in both("calls-loaded", bits, KERNEL) {
            let found = read(&bytes, Domain::Kernel);
            found.load_into(&mut bytes);
            for site in &found.sites {
                let wanted = if site.tail { [0x90, 0x90, 0x90, 0x90, 0xc3] } else { [0x90; 5] };
                assert_eq!(bytes[site.offset as usize..][..5], wanted);
                assert_eq!(site.patch(), (1, 0xf0));
            }
            let path = folder("calls-loaded").join(format!("loaded{bits}"));
            std::fs::write(&path, &bytes).unwrap();
            let shown = tool(&folder("calls-loaded"), "readelf", &["-srW", path.to_str().unwrap()]);
            let of = |kind: &str| shown.lines().filter(|line| line.contains(kind)).count();
            // Linux refuses a module of IA32 that has R_386_NONE.
            let (kind, other) =
                if bits == 64 { ("R_X86_64_NONE ", "_NONE") } else { ("R_386_32 ", "R_386_32 ") };
            assert_eq!((of(kind), of(other)), (4, 4), "{shown}");
            let weak = |name: &str| {
                shown.lines().any(|l| l.contains("NOTYPE  WEAK") && l.contains("UND") && l.ends_with(name))
            };
            assert!(weak("__dtrace_probe_squeue__enter") && !weak("__dtrace_probe_data"), "{shown}");
        }
    }
}

#[test]
fn calls_in_programs_have_a_provider_and_may_be_is_enabled_sites() {
    for bits in [32, 64] {
        for mut bytes in both("calls-usdt", bits, USER) {
            let found = read(&bytes, Domain::User);
            assert_eq!(found.refused, []);
            let told: Vec<_> =
                found.sites.iter().map(|s| (&*s.provider, &*s.name, s.purpose, s.tail)).collect();
            let provider = "web__srv";
            let wanted = [
                (provider, "query-start", Purpose::IsEnabled, false),
                (provider, "query-start", Purpose::User, false),
                (provider, "query-done", Purpose::User, true),
                (provider, "query-done", Purpose::IsEnabled, true),
            ];
            assert_eq!(told, wanted);
            found.load_into(&mut bytes);
            let now: Vec<&[u8]> = found.sites.iter().map(|s| &bytes[s.offset as usize..][..5]).collect();
            let (asked, asked_last): ([u8; 5], [u8; 5]) = match bits {
                64 => ([0x48, 0x33, 0xc0, 0x90, 0x90], [0x48, 0x33, 0xc0, 0xc3, 0x90]),
                _ => ([0x33, 0xc0, 0x90, 0x90, 0x90], [0x33, 0xc0, 0xc3, 0x90, 0x90]),
            };
            assert_eq!(now, [&asked[..], &[0x90; 5], &[0xc3, 0x90, 0x90, 0x90, 0x90], &asked_last]);
            let at = if bits == 64 { 3 } else { 2 };
            let patches: Vec<_> = found.sites.iter().map(|site| site.patch()).collect();
            assert_eq!(patches, [(at, 0xcc), (0, 0xcc), (0, 0xcc), (at, 0xcc)]);
        }
    }
}

#[test]
fn arguments_are_where_the_calling_convention_puts_them() {
    let shown = |bits: u32, name: &str, regparm: bool| {
        let [object, _] = both("calls-arguments", bits, KERNEL);
        let found = read(&object, Domain::Kernel);
        let site = found.sites.iter().find(|site| site.name == name).unwrap().clone();
        (0..8).map(|n| site.argument(n, regparm).to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        shown(64, "squeue-enter", false),
        "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8 8@%r9 8@(%rsp) 8@8(%rsp)"
    );
    assert_eq!(shown(64, "a-b-_c", false), "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8 8@%r9 8@8(%rsp) 8@16(%rsp)");
    assert!(shown(32, "squeue-enter", false).starts_with("4@(%esp) 4@4(%esp) 4@8(%esp)"));
    assert!(shown(32, "a-b-_c", false).starts_with("4@4(%esp) 4@8(%esp)"));
    // Linux's convention.
    assert!(shown(32, "squeue-enter", true).starts_with("4@%eax 4@%edx 4@%ecx 4@(%esp) 4@4(%esp)"));
    assert!(shown(32, "a-b-_c", true).starts_with("4@%eax 4@%edx 4@%ecx 4@4(%esp) 4@8(%esp)"));
    assert_eq!(shown(64, "a-b-_c", true), shown(64, "a-b-_c", false));
}

#[test]
fn every_truncation_and_every_changed_byte_of_an_object_is_read_or_refused() {
    for bits in [32, 64] {
        let [object, _] = both("calls-damaged", bits, KERNEL);
        for end in 0..object.len() {
            if let Ok(view) = ElfView::parse(&object[..end]) {
                let _ = CallSites::read(&view, Domain::Kernel);
            }
        }
        for at in 0..object.len() {
            let mut bytes = object.clone();
            bytes[at] ^= 0xff;
            if let Ok(view) = ElfView::parse(&bytes)
                && let Ok(found) = CallSites::read(&view, Domain::Kernel)
            {
                found.load_into(&mut bytes);
            }
        }
    }
}
