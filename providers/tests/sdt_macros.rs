//! Macro-declared probes: the header compiled by the host's gcc, what it costs, and what the scanner finds.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::common::{folder, program, tool};
use std::path::Path;
use trapline_emu::load::{ElfView, Files, Image};
use trapline_emu::symbols::Symbols;
use trapline_interposer::Place;
use trapline_providers::sdt::{MacroProbe, MacroProbes};
use trapline_providers::{Description, Target, find};

const SOURCE: &str = r#"
#include <trapline/probe.h>
volatile long sink;
long work(int n, const char *s);
long work(int n, const char *s)
{
	TRAPLINE_PROBE_ns(begin, n * 2, s);
	TRAPLINE_PROBE_s(text, "a \"b\" \n\\ %d");
	TRAPLINE_PROBE_lp(wide, 0x123456789abcLL + n, (void *)&sink);
	TRAPLINE_PROBE_ns(begin, n + 1, "again");
	TRAPLINE_PROBE6(n, s, l, p, n, l, six, 1, s, 3, (void *)&sink, 5, 6);
	TRAPLINE_PROBE0(none);
	return n + 1;
}
void _start(void);
void _start(void) { sink = work((int)sink, "x"); for (;;) {} }
"#;

const ASSEMBLY: &str = r#"
#include <trapline/probe.h>
	.text
	.globl in_assembly
	.type in_assembly, @function
in_assembly:
#ifdef __x86_64__
	TRAPLINE_PROBE npl, assembled, %rcx, %rdi, $7
#else
	TRAPLINE_PROBE npl, assembled, %ecx, %edi, $7, $0
#endif
	ret
	.size in_assembly, . - in_assembly
	.section .note.GNU-stack, "", @progbits
"#;

/// Compiles both sources for `bits` with `flags`; folder and file.
fn compiled(name: &str, bits: u32, flags: &[&str]) -> (std::path::PathBuf, Vec<u8>) {
    let folder = folder(name);
    std::fs::write(folder.join("probes.c"), SOURCE).unwrap();
    std::fs::write(folder.join("assembly.S"), ASSEMBLY).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-images/include");
    let (width, file) = (format!("-m{bits}"), format!("image{bits}"));
    let mut arguments = vec![&*width, "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffreestanding"];
    arguments.extend(["-nostdlib", "-fno-asynchronous-unwind-tables", "-I", include.to_str().unwrap()]);
    arguments.extend(["-o", &file, "probes.c", "assembly.S"]);
    arguments.extend(flags);
    tool(&folder, "gcc", &arguments);
    let bytes = std::fs::read(folder.join(&file)).unwrap();
    (folder, bytes)
}

const FIXED: [&str; 3] = ["-fno-pic", "-no-pie", "-static"];

fn read(bytes: &[u8]) -> MacroProbes {
    MacroProbes::read(&ElfView::parse(bytes).unwrap()).unwrap()
}

/// Name, types, points of each probe, by name.
fn told(found: &MacroProbes) -> Vec<String> {
    let types = |probe: &MacroProbe| probe.types.iter().map(ToString::to_string).collect::<String>();
    let mut told: Vec<String> = found
        .probes
        .iter()
        .map(|probe| {
            let points = probe
                .points
                .iter()
                .map(|p| format!("{} {} [{}]", p.function, p.source, p.arguments.join("; ")));
            format!("{} {}: {}", probe.name, types(probe), points.collect::<Vec<_>>().join(", "))
        })
        .collect();
    told.sort();
    told
}

#[test]
fn the_header_declares_probes_with_types_places_and_source_text() {
    for bits in [32, 64] {
        let (_, bytes) = compiled("macros-declared", bits, &FIXED);
        let found = read(&bytes);
        assert_eq!(found.refused, []);
        let operands = if bits == 64 { "%rcx,%rdi,$7" } else { "%ecx,%edi,$7,$0" };
        assert_eq!(
            told(&found),
            [
                format!("assembled npl: in_assembly  [{operands}]").as_str(),
                "begin ns: work probes.c:7 [n * 2; s], work probes.c:10 [n + 1; \"again\"]",
                "none : work probes.c:12 []",
                "six nslpnl: work probes.c:11 [1; s; 3; (void *)&sink; 5; 6]",
                "text s: work probes.c:8 [\"a \\\"b\\\" \\n\\\\ %d\"]",
                "wide lp: work probes.c:9 [0x123456789abcLL + n; (void *)&sink]",
            ]
        );
        let six = found.probes.iter().find(|probe| probe.name == "six").unwrap();
        let places: Vec<String> = six.arguments().iter().map(|(_, argument)| argument.to_string()).collect();
        match bits {
            64 => assert_eq!(places, ["-8@%rdi", "8@%rsi", "-8@%rdx", "8@%rcx", "-8@%r8", "-8@%r9"]),
            _ => assert_eq!(
                places,
                ["-4@4(%esp)", "4@8(%esp)", "-8@12(%esp)", "4@20(%esp)", "-4@24(%esp)", "-8@28(%esp)"]
            ),
        }
    }
}

#[test]
fn a_dormant_probe_is_one_load_one_test_and_one_branch() {
    for (name, bits, flags) in [
        ("fixed", 64, &FIXED[..]),
        ("fixed", 32, &FIXED[..]),
        ("pie", 64, &["-fpie", "-pie"][..]),
        ("library", 64, &["-fpic", "-shared"][..]),
    ] {
        let (folder, bytes) = compiled(&format!("macros-cost-{name}"), bits, flags);
        let found = read(&bytes);
        let shown = tool(&folder, "objdump", &["-d", "--no-show-raw-insn", &format!("image{bits}")]);
        let lines: Vec<(u64, &str)> = shown
            .lines()
            .filter_map(|line| line.trim_start().split_once(":\t"))
            .filter_map(|(at, text)| Some((u64::from_str_radix(at, 16).ok()?, text)))
            .collect();
        let uses = |pointer: u64, text: &str| {
            text.contains(&format!("# {pointer:x}")) || text.contains(&format!("0x{pointer:x}"))
        };
        for probe in found.probes.iter().filter(|probe| probe.name != "assembled") {
            let loads: Vec<usize> = (0..lines.len()).filter(|n| uses(probe.pointer, lines[*n].1)).collect();
            assert_eq!(loads.len(), probe.points.len(), "{name}{bits} {}: {shown}", probe.name);
            for load in loads {
                // Instructions of the program itself may lie between.
                let next = |n: usize, what: &str| (n + 1..n + 4).find(|n| lines[*n].1.starts_with(what));
                let test = next(load, "test ").unwrap_or_else(|| panic!("{name}{bits}: {shown}"));
                let branch = next(test, "j").unwrap_or_else(|| panic!("{name}{bits}: {shown}"));
                let register =
                    lines[load].1.split("        #").next().unwrap().rsplit(',').next().unwrap().trim();
                assert!(lines[load].1.starts_with("mov "), "{}", lines[load].1);
                assert!(lines[test].1.contains(&format!("{register},{register}")), "{}", lines[test].1);
                assert!(lines[branch].1.starts_with("jne") || lines[branch].1.starts_with("je"));
            }
        }
        // In assembly, load and test are one instruction.
        let own = found.probes.iter().find(|probe| probe.name == "assembled").unwrap();
        let at = lines.iter().position(|(at, _)| *at == own.points[0].address).unwrap();
        assert!(lines[at].1.starts_with("cmp") && lines[at + 1].1.starts_with("jne"), "{}", lines[at].1);
        assert!(lines[at + 2].1.starts_with("ret"));
    }
}

#[test]
fn one_probe_in_inline_functions_of_two_files_is_one_pointer_also_in_cpp_and_by_clang() {
    let folder = folder("macros-inline");
    let c = "#include <trapline/probe.h>\n\
             static inline __attribute__((always_inline)) int f(int n) { TRAPLINE_PROBE_n(shared, n); return n; }\n\
             int h(int n); int h(int n) { return f(n) + f(n + 1); }\n";
    let cpp = "#include <trapline/probe.h>\n\
               namespace a { inline int f(int n) { TRAPLINE_PROBE_n(shared, n); return n; } }\n\
               template <class T> T g(T t) { TRAPLINE_PROBE_n(shared, t); return t; }\n\
               namespace b { template <class T> T k(T t) { TRAPLINE_PROBE_n(shared, t); return t; } }\n\
               namespace b { template <class T> struct S { T m(T t) { TRAPLINE_PROBE_n(shared, t); return t; } }; }\n\
               namespace { template <class T> T l(T t) { TRAPLINE_PROBE_n(shared, t); return t; } }\n\
               int h(int n) { b::S<int> s; return a::f(n) + g(n) + g((long)n) + b::k(n) + s.m(n) + l(n); }\n";
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-images/include");
    let include = include.to_str().unwrap();
    for (compiler, language, text) in
        [("gcc", "c", c), ("clang", "c", c), ("gcc", "c++", cpp), ("clang", "c++", cpp)]
    {
        std::fs::write(folder.join("one"), text).unwrap();
        std::fs::write(folder.join("two"), text.replace("int h(", "int i(")).unwrap();
        for (level, bits) in [("-O0", "-m64"), ("-O2", "-m64"), ("-O3", "-m64"), ("-O2", "-m32")] {
            let arguments = [
                level,
                bits,
                "-Wall",
                "-Werror",
                "-fPIC",
                "-shared",
                "-nostdlib",
                "-Wl,--gc-sections",
                "-I",
                include,
            ];
            let files = ["-o", "lib.so", "-x", language, "one", "two"];
            tool(&folder, compiler, &[&arguments[..], &files].concat());
            let found = read(&std::fs::read(folder.join("lib.so")).unwrap());
            assert_eq!((found.probes.len(), found.refused.len()), (1, 0), "{compiler} {language} {level}");
            let least = if language == "c" { 3 } else { 6 };
            assert!(found.probes[0].points.len() >= least, "{compiler} {language} {level}: {found:?}");
        }
    }
}

#[test]
fn a_stripped_program_keeps_its_probes_by_their_notes() {
    let (folder, bytes) = compiled("macros-stripped", 64, &FIXED);
    tool(&folder, "strip", &["-o", "stripped", "image64"]);
    let stripped = read(&std::fs::read(folder.join("stripped")).unwrap());
    let pointers =
        |found: &MacroProbes| found.probes.iter().map(|p| (p.pointer, p.name.clone())).collect::<Vec<_>>();
    assert_eq!(pointers(&stripped), pointers(&read(&bytes)));
    assert_eq!(stripped.refused, []);
}

#[test]
fn pointers_declared_otherwise_are_found_and_other_symbols_are_refused() {
    let text = "
.globl _start, dtrace_probe_create
.text
.type dtrace_probe_create, @function
.type systemtap_probe_n__function, @function
_start: ret
dtrace_probe_create: ret
systemtap_probe_n__function: ret
.section .rodata
systemtap_probe_n__constant: .8byte 0
.data
.balign 16
dtrace_probe_sl__foreign: .8byte 0
systemtap_probe_n__static.3: .8byte 0
systemtap_probe_nx__letter: .8byte 0
systemtap_probe_nnnnnnnnnnnnnnnnn__seventeen: .8byte 0
systemtap_probe_nslpnlsp__eight: .8byte 0
systemtap_probe_n__: .8byte 0
.4byte 0
systemtap_probe_n__crooked: .8byte 0
.type systemtap_probe_n__short, @object
.size systemtap_probe_n__short, 2
.balign 8
systemtap_probe_n__short: .2byte 0
systemtap_probe_nothing: .8byte 0
dtrace_probe_nothing.7: .8byte 0
systemtap_probe_N__capital: .8byte 0
";
    let found = read(&program("macros-foreign", "image", 64, text, &[]));
    let names: Vec<&str> = found.probes.iter().map(|probe| &*probe.name).collect();
    assert_eq!(names, ["foreign", "static", "eight"]);
    let places: Vec<String> =
        found.probes[2].arguments().iter().map(|(_, place)| place.to_string()).collect();
    assert_eq!(places[5..], ["-8@%r9", "8@8(%rsp)", "8@16(%rsp)"]);
    assert!(found.probes.iter().all(|probe| probe.points.is_empty()));
    let mut why: Vec<String> = found.refused.iter().map(ToString::to_string).collect();
    why.sort();
    let starts = [
        "the macro-declared probe \"dtrace_probe_nothing.7\": its symbol does not say what its arguments are; their letters ",
        "the macro-declared probe \"systemtap_probe_N__capital\": the argument type 'N' is unknown",
        "the macro-declared probe \"systemtap_probe_n__\": \"\" is not a name",
        "the macro-declared probe \"systemtap_probe_n__constant\": the 0 bytes at ",
        "the macro-declared probe \"systemtap_probe_n__crooked\": the 0 bytes at ",
        "the macro-declared probe \"systemtap_probe_n__short\": the 2 bytes at ",
        "the macro-declared probe \"systemtap_probe_nnnnnnnnnnnnnnnnn__seventeen\": it has 17 arguments; at most 16",
        "the macro-declared probe \"systemtap_probe_nothing\": its symbol does not say what its arguments are; their letters ",
        "the macro-declared probe \"systemtap_probe_nx__letter\": the argument type 'x' is unknown",
    ];
    assert_eq!(why.len(), starts.len(), "{why:#?}");
    for (told, start) in why.iter().zip(starts) {
        assert!(told.starts_with(start), "{told}");
    }
}

/// What makes an object a module of Linux, and pointers that cannot be written there.
const MODULE: &str = "
.section .gnu.linkonce.this_module, \"aw\", @progbits
    .skip 64
.bss
.balign 8
.type systemtap_probe_n__zeroed, @object
systemtap_probe_n__zeroed: .skip 8
.section .init.data, \"aw\", @progbits
.balign 8
.type systemtap_probe_n__early, @object
systemtap_probe_n__early: .skip 8
.section .note.GNU-stack, \"\", @progbits
";

/// Both sources as a module of Linux, which is relocatable.
fn module(name: &str, bits: u32) -> Vec<u8> {
    let (folder, _) = compiled(name, bits, &FIXED);
    std::fs::write(folder.join("module.s"), MODULE).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-images/include");
    let width = format!("-m{bits}");
    let flags = [&*width, "-O2", "-ffreestanding", "-fno-pic", "-mcmodel=kernel"];
    let flags = if bits == 64 { &flags[..] } else { &flags[..4] };
    let files = ["-I", include.to_str().unwrap(), "-r", "-nostdlib", "-o", "a-module.ko"];
    let sources = ["probes.c", "assembly.S", "module.s"];
    tool(&folder, "gcc", &[flags, &files, &sources].concat());
    std::fs::read(folder.join("a-module.ko")).unwrap()
}

#[test]
fn the_probes_of_a_module_are_those_of_the_linked_file_each_with_its_pointer() {
    for bits in [32, 64] {
        let file = module("macros-module", bits);
        let own = |told: Vec<String>| -> Vec<String> {
            let other = |line: &String| line.starts_with("early ") || line.starts_with("zeroed ");
            told.into_iter().filter(|line| !other(line)).collect()
        };
        let found = read(&file);
        assert_eq!(found.refused, []);
        let (_, linked) = compiled("macros-module", bits, &FIXED);
        assert_eq!(own(told(&found)), told(&read(&linked)), "{bits}");

        let guest = trapline_guests::find(if bits == 64 { "x86_64" } else { "ia32" }).unwrap();
        let image = Image::parse(guest.image, "vmlinux").unwrap();
        let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
        let mut files = Files::default();
        files.insert("/lib/modules/a-module.ko", file);
        let target = Target::new(image, symbols, Vec::new()).with_files(files, &mut |_, _| {});
        let listed = find(&target, "sdt:a_module::").unwrap();
        let names: Vec<&str> = listed.iter().map(|probe| &*probe.name.name).collect();
        assert_eq!(names, ["assembled", "begin", "none", "six", "text", "wide"], "{bits}");
        for probe in &listed {
            let [site] = &probe.sites[..] else { panic!("{probe:?}") };
            let Place::ModulePointer { module, offset, wide } = &site.place else { panic!("{site:?}") };
            let bytes = (bits / 8) as usize;
            assert_eq!((*wide, module.file().bytes_at(*offset, bytes)), (bits == 64, Some(&[0; 8][..bytes])));
            let (section, into) = module.section_at(*offset).unwrap();
            assert!(section.ends_with(&format!("__{}", probe.name.name)) && into == 0, "{section}");
        }
        let wanted = Description::parse("sdt:a_module::").unwrap();
        let mut reasons: Vec<String> =
            trapline_providers::refused(&target, &wanted).into_iter().map(|r| r.reason).collect();
        reasons.sort();
        let [early, zeroed] = &reasons[..] else { panic!("{reasons:?}") };
        assert!(early.contains("n__early\": its pointer is in memory that Linux frees"), "{early}");
        assert!(zeroed.contains("n__zeroed\": the section of its pointer has no bytes"), "{zeroed}");
    }
}

#[test]
fn a_damaged_module_is_read_or_refused() {
    let file = module("macros-damaged", 64);
    for at in 0..file.len() {
        let mut bytes = file.clone();
        bytes[at] ^= 0xff;
        for bytes in [&bytes[..], &file[..at]] {
            if let Ok(view) = ElfView::parse(bytes) {
                let _ = MacroProbes::read(&view);
            }
        }
    }
}
