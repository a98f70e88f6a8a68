//! pid by the files of an embedded guest: the probes, their processes, and refusals.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common;
use std::collections::BTreeSet;
use std::sync::Arc;
use trapline_emu::load::Image;
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_interposer::{Place, Processes, Who};
use trapline_providers::{
    MatchError, PidError, Probe, ProbeOptions, ProviderError, Target, TargetProcess, find,
};

/// The embedded guest, with further modules.
fn guest(more: Vec<UserModule>, options: ProbeOptions) -> Target {
    let guest = trapline_guests::find("ia32").unwrap();
    let image = Image::parse(guest.image, "vmlinux").unwrap();
    let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
    let own = guest.modules.iter().map(|(name, bytes)| UserModule::parse(bytes, name).unwrap());
    Target::new(image, symbols, own.chain(more).map(Arc::new).collect()).with_options(options)
}

fn target(options: ProbeOptions) -> Target {
    guest(Vec::new(), options)
}

fn of(process: &str) -> Target {
    target(ProbeOptions { target: Some(process.parse().unwrap()), ..ProbeOptions::default() })
}

fn names(probes: &[Probe]) -> Vec<String> {
    probes.iter().map(|probe| probe.name.to_string()).collect()
}

fn refused(target: &Target, description: &str) -> PidError {
    match find(target, description) {
        Err(MatchError::Provider(ProviderError::Own(error))) => error.downcast::<PidError>().unwrap().clone(),
        other => panic!("{description}: {other:?}"),
    }
}

#[test]
fn processes_are_those_that_the_provider_names() {
    let processes = |target: &Target, description: &str| {
        let found = find(target, description).unwrap();
        (found[0].name.provider.to_string(), (**found[0].processes.as_ref().unwrap()).clone())
    };
    let known = std::sync::Arc::new(std::collections::BTreeSet::from(["appln".to_owned()]));
    let copies = ["appln".to_owned()].into();
    let any = Processes { who: Who::Any, program: None, known, copies, forked: false };
    let none = target(ProbeOptions::default());
    assert_eq!(processes(&none, "pid*:appln:main:entry"), ("pid*".into(), any.clone()));
    let seven = Processes { who: Who::Number(7), ..any.clone() };
    assert_eq!(processes(&none, "pid7:appln:main:entry"), ("pid7".into(), seven.clone()));
    assert_eq!(processes(&none, "pid007:appln:main:entry").0, "pid7");
    assert_eq!(processes(&of("7"), "pid$target:appln:main:entry"), ("pid7".into(), seven.clone()));
    let program = Processes { program: Some("appln".into()), ..seven };
    assert_eq!(processes(&of("7"), "pid$target:a.out:main:entry"), ("pid7".into(), program));
    let named = Processes { who: Who::Name("appln".into()), forked: true, ..any.clone() };
    let options = ProbeOptions {
        target: Some(TargetProcess::Name("appln".into())),
        follow_fork: true,
        ..ProbeOptions::default()
    };
    assert_eq!(processes(&target(options), "pid$target:appln:main:entry"), ("pid$target".into(), named));
    let at = Processes { who: Who::Path("/bin/appln".into()), ..any };
    assert_eq!(processes(&of("/bin/appln"), "pid$target:appln:main:entry"), ("pid$target".into(), at));
    assert!(
        find(&none, "fbt::do_fork:entry").unwrap()[0].processes.is_none(),
        "the kernel belongs to no process"
    );
}

#[test]
fn every_instruction_is_a_name_and_returns_are_one_probe() {
    let target = target(ProbeOptions::default());
    let found = find(&target, "pid*:appln:syscall:").unwrap();
    let all = names(&found);
    assert_eq!(all[..3], ["entry", "return", "0"].map(|name| format!("pid*:appln:syscall:{name}")));
    let code = target.module("appln").unwrap();
    let symbol = code.symbols().sole("syscall").unwrap();
    let start = code.symbol_offset("syscall").unwrap();
    // Decoded independently from the bytes.
    let bytes = code.bytes_at(start, symbol.size as usize).unwrap();
    let mut decoder = iced_x86::Decoder::new(32, bytes, iced_x86::DecoderOptions::NONE);
    let mut offsets = Vec::new();
    while decoder.can_decode() {
        offsets.push(decoder.position());
        let _ = decoder.decode();
    }
    assert_eq!(all[2..], offsets.iter().map(|at| format!("pid*:appln:syscall:{at:x}")).collect::<Vec<_>>());
    for (probe, at) in found[2..].iter().zip(&offsets) {
        let [site] = &probe.sites[..] else { panic!("{probe:?}") };
        let Place::User { module, offset } = &site.place else { panic!("{site:?}") };
        assert!(Arc::ptr_eq(module, code));
        assert_eq!((*offset, site.opcode), (start + *at as u64, bytes[*at]));
    }
    let left = &found[1].sites;
    assert!(!left.is_empty());
    assert!(left.iter().all(|site| matches!(site.place, Place::UserExit { .. }) && site.opcode == 0xc3));
    let some = names(&find(&target, "pid*:app*:sys{call,log}:[er]*").unwrap());
    assert_eq!(some, ["pid*:appln:syscall:entry", "pid*:appln:syscall:return"]);
}

#[test]
fn a_probe_that_is_asked_for_again_has_the_same_number() {
    let target = target(ProbeOptions::default());
    let number = |description: &str| find(&target, description).unwrap()[0].id;
    let (entry, leave) = (number("pid*:appln:main:entry"), number("pid*:appln:child:return"));
    assert_eq!(leave, entry + 1);
    assert_eq!(number("pid*:appln:main:en*"), entry);
    assert!(entry > find(&target, "fbt:::").unwrap().last().unwrap().id);
    assert_eq!(number("profile:::tick-1ms"), leave + 1);
}

#[test]
fn a_description_that_cannot_be_is_refused() {
    let target = target(ProbeOptions::default());
    let refused = |description: &str| refused(&target, description).to_string();
    assert!(
        refused("pid$target:appln:main:entry").starts_with("'pid$target' needs a process; give --target")
    );
    assert!(refused("pid:::").starts_with("'pid' is not a valid provider; "));
    assert!(refused("pid?:::").starts_with("'pid?' is not a valid provider; "));
    assert!(refused("pid4194305:::").starts_with("'pid4194305' does not contain a valid pid; "));
    assert!(refused("pid1:appln:main:exit").starts_with("'exit' is an invalid probe name; "));
    assert!(refused("pid1:appln:main:fffffff").starts_with("offset 0xfffffff outside of function 'main'"));
    assert!(refused("pid1:appln:main:2").starts_with("offset 0x2 is not aligned on an instruction"));
    assert_eq!(
        refused("pid1:appln:mian:entry"),
        "failed to lookup 'mian' in module 'appln'; did you mean main?"
    );
    assert!(
        refused("pid1:*:-:0").starts_with("only the a.out module is valid with the '-' function, not '*'")
    );
    assert!(refused("pid1:a.out:-:x").starts_with("'x' is an invalid probe name; "));
    assert!(
        refused("pid1:a.out:-:8")
            .starts_with("failed to create offset probe for '-': 0x8 is not in the code")
    );
    for nothing in
        ["pid1:none:main:entry", "pid1:appln:*none*:entry", "pid1:*:none:entry", "pid1:appln:main:zz*"]
    {
        assert!(matches!(find(&target, nothing), Err(MatchError::Nothing { .. })), "{nothing}");
    }
    for text in ["", "0", "4194305", "a/b"] {
        assert!(text.parse::<TargetProcess>().is_err(), "{text:?}");
    }
}

/// A program without unwind tables, and the same stripped: starts of functions, and instructions.
#[test]
fn a_stripped_program_has_its_functions_and_every_instruction() {
    let folder = common::folder("pid-stripped");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tests/pid/program.c");
    let flags = ["-O2", "-fno-inline", "-fno-asynchronous-unwind-tables", "-fcf-protection=none"];
    common::tool(&folder, "gcc", &[&flags[..], &["-pthread", "-o", "whole", source]].concat());
    common::tool(&folder, "strip", &["-s", "-o", "stripped", "whole"]);
    let module = |name: &str| UserModule::parse(&std::fs::read(folder.join(name)).unwrap(), name).unwrap();
    let whole = module("whole");
    let target = guest(vec![module("stripped")], ProbeOptions::default());
    let starts = |description: &str| -> BTreeSet<u64> {
        let found = find(&target, description).unwrap();
        let place = |probe: &Probe| match &probe.sites[0].place {
            Place::User { offset, .. } => *offset,
            other => panic!("{other:?}"),
        };
        found.iter().map(place).collect()
    };
    let entries = starts("pid*:stripped:*:entry");
    // Functions that are called; the others are only pointed to.
    for name in ["_start", "main", "ten", "ret_plain", "ret_if", "again", "floats", "forked", "in_child"] {
        let start = whole.symbol_offset(name).unwrap_or_else(|| panic!("{name}"));
        assert!(entries.contains(&start), "{name} at {start:#x}");
    }
    assert_eq!(starts("pid*:stripped:main:entry").into_iter().next(), whole.symbol_offset("main"));
    let all = starts("pid*:stripped:*:[0-9a-f]*");
    let listing = common::tool(&folder, "objdump", &["-d", "-j", ".text", "--no-show-raw-insn", "whole"]);
    let addresses = listing.lines().filter_map(|line| {
        let (address, instruction) = line.strip_prefix("  ")?.split_once(":\t")?;
        let padding =
            ["nop", "data16", "cs nop", "xchg", "(bad)", ".byte"].iter().any(|p| instruction.starts_with(p));
        let address = u64::from_str_radix(address.trim(), 16).ok().filter(|_| !padding)?;
        Some((address, instruction.to_owned()))
    });
    let missing: Vec<_> =
        addresses.filter(|(at, _)| !all.contains(&whole.vaddr_to_offset(*at).unwrap())).collect();
    // After the two undefined bytes nothing is decoded until the next function.
    assert!(missing.len() <= 2, "{missing:x?}");
}

#[test]
fn the_name_of_an_indirect_function_is_not_that_of_its_resolver() {
    let source = ".text\n.globl chosen, plain\n.hidden plain\n.type plain, @function\nplain: ret\n.size plain, . - plain\n\
                  .type chosen, @gnu_indirect_function\nchosen: lea plain(%rip), %rax\n ret\n.size chosen, . - chosen\n";
    let library = common::program("pid-ifunc", "library.so", 64, source, &["-shared", "-z", "noexecstack"]);
    let module = UserModule::parse(&library, "/lib/library.so").unwrap();
    let target = guest(vec![module], ProbeOptions::default());
    let error = refused(&target, "pid*:library.so:chosen:entry");
    let wanted = "failed to create any probe for 'chosen': it is chosen when the program starts (IFUNC), by chosen.resolver";
    assert_eq!(error.to_string(), wanted);
    let found = find(&target, "pid*:library.so:{chosen,plain}*:entry").unwrap();
    assert_eq!(names(&found), ["pid*:library.so:plain:entry", "pid*:library.so:chosen.resolver:entry"]);
}
