//! Runs the conformance tables in `conformance/*.txt`.
//!
//! A case starts with `== name`; `key: value` lines follow, then `code` and the
//! indented program. Keys before `code` are the initial state, keys after it the
//! expected one; `key32:` and `key64:` hold for one width only. Without `end:`
//! the handler must end by `exit`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::TestHost;
use trapline_rpn::{Availability, Outcome, TABLE, Termination, Unhandled, Vars, Vm, Width, by_name, parse};

#[derive(Debug, Default)]
struct Case {
    name: String,
    before: Vec<(String, String)>,
    code: String,
    after: Vec<(String, String)>,
}

fn read_cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("== ") {
            cases.push(Case { name: name.trim().to_owned(), ..Case::default() });
            in_code = false;
        } else if line.trim() == "code" {
            in_code = true;
        } else if line.starts_with(' ') {
            let case = cases.last_mut().expect("a case has begun");
            case.code.push_str(line);
            case.code.push('\n');
        } else if let Some((key, value)) = line.split_once(':') {
            let case = cases.last_mut().expect("a case has begun");
            let entry = (key.trim().to_owned(), value.trim().to_owned());
            if in_code { case.after.push(entry) } else { case.before.push(entry) }
        } else {
            assert!(line.trim().is_empty(), "not understood: {line}");
        }
    }
    cases
}

fn number(text: &str) -> u64 {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let n = digits
        .strip_prefix("0x")
        .map_or_else(|| digits.parse().unwrap(), |h| u64::from_str_radix(h, 16).unwrap());
    if negative { n.wrapping_neg() } else { n }
}

fn bytes(hex: &str) -> Vec<u8> {
    let hex: String = hex.split_whitespace().collect();
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().map(number).collect()
}

/// The key without its width suffix, if it is meant for this width.
fn key_for(key: &str, width: Width) -> Option<&str> {
    let other = if width == Width::W32 { "64" } else { "32" };
    let own = if width == Width::W32 { "32" } else { "64" };
    if key.ends_with(other) { None } else { Some(key.strip_suffix(own).unwrap_or(key)) }
}

struct Setup {
    host: TestHost,
    header: String,
    probe: String,
    lv: Vec<u64>,
    gv: Vec<u64>,
    modtype: String,
    widths: Vec<u64>,
}

fn setup(case: &Case, width: Width) -> Setup {
    let mut s = Setup {
        host: TestHost { pid: 42, procid: 1, task: 0xc000_2000, ..TestHost::default() },
        header: String::new(),
        probe: String::new(),
        lv: vec![0; 8],
        gv: vec![0; 8],
        modtype: "kernel".into(),
        widths: vec![32, 64],
    };
    for (key, value) in &case.before {
        let Some(key) = key_for(key, width) else { continue };
        let pair = value.split_once('=').map(|(a, b)| (a.trim(), b.trim()));
        match key {
            "width" => s.widths = numbers(value),
            "modtype" => s.modtype.clone_from(value),
            "header" => s.header.push_str(&format!("{value}\n")),
            "probe" => s.probe.push_str(&format!("{value}\n")),
            "lv" | "gv" => {
                let vars = if key == "lv" { &mut s.lv } else { &mut s.gv };
                for (to, from) in vars.iter_mut().zip(numbers(value)) {
                    *to = from & width.mask();
                }
            }
            "r" | "u" | "wide" | "mem" | "rom" | "msr" | "io" => {
                let (name, value) = pair.expect("name = value");
                match key {
                    "mem" => s.host.mem.extend((number(name)..).zip(bytes(value))),
                    "rom" => s.host.read_only.extend((number(name)..).zip(bytes(value))),
                    "msr" => drop(s.host.msr.insert(number(name) as u32, number(value))),
                    "io" => drop(s.host.io.insert(number(name) as u16, number(value) as u32)),
                    "wide" => {
                        let value = u128::from_str_radix(value.trim_start_matches("0x"), 16).unwrap();
                        s.host.wide.insert(by_name(name).unwrap().reg, value);
                    }
                    _ => {
                        let regs = if key == "r" { &mut s.host.current } else { &mut s.host.user };
                        regs.insert(by_name(name).unwrap().reg, number(value));
                    }
                }
            }
            _ => panic!("{}: unknown key {key}", case.name),
        }
    }
    s
}

fn source(s: &Setup, code: &str) -> String {
    let vars = if s.header.contains("vars") { "" } else { "vars = 8\ngvars = 8\n" };
    format!(
        "name = t\nmodtype = {}\n{vars}{}offset = 0\nopcode = 0x55\n{}{code}",
        s.modtype, s.header, s.probe
    )
}

fn termination(outcome: &Outcome, thrown: Unhandled) -> String {
    match outcome.termination {
        Termination::Exit => "exit".into(),
        Termination::Abort => "abort".into(),
        Termination::ExitTo(n) => format!("exit {n}"),
        Termination::Exception => {
            format!("exception {:#x} {:#x} {:#x}", thrown.code, thrown.parm1, thrown.parm2)
        }
    }
}

fn check(case: &Case, width: Width, s: Setup, outcome: Outcome, vm: &Vm) {
    let (stack, (major, minor)) = (vm.stack(), vm.codes());
    let at = format!("{} ({width} bits)", case.name);
    let mut end = "exit".to_owned();
    for (key, value) in &case.after {
        let Some(key) = key_for(key, width) else { continue };
        let masked: Vec<u64> = match key {
            "stack" | "lv" | "gv" => numbers(value).into_iter().map(|n| n & width.mask()).collect(),
            _ => Vec::new(),
        };
        let pair = value.split_once('=').map(|(a, b)| (a.trim(), b.trim()));
        match key {
            "stack" => assert_eq!(stack, masked, "{at}: stack, top first"),
            "top" => assert_eq!(stack[..numbers(value).len()], numbers(value), "{at}: top of the stack"),
            "log" => assert_eq!(vm.log(), bytes(value), "{at}: log"),
            "lv" => assert_eq!(s.lv[..masked.len()], masked, "{at}: lv"),
            "gv" => assert_eq!(s.gv[..masked.len()], masked, "{at}: gv"),
            "end" => end = value.clone(),
            "wraps" => assert_eq!(u64::from(outcome.wraps), number(value), "{at}: wraps"),
            "major" => assert_eq!(major.map(u64::from), Some(number(value)), "{at}: major"),
            "minor" => assert_eq!(minor.map(u64::from), Some(number(value)), "{at}: minor"),
            "remove" => assert_eq!(outcome.remove.to_string(), *value, "{at}: remove"),
            "steps" => assert_eq!(u64::from(outcome.steps), number(value), "{at}: steps"),
            "r" | "u" => {
                let (name, value) = pair.expect("name = value");
                let regs = if key == "r" { &s.host.current } else { &s.host.user };
                assert_eq!(regs.get(&by_name(name).unwrap().reg), Some(&number(value)), "{at}: {key} {name}");
            }
            "mem" => {
                let (name, value) = pair.expect("name = value");
                let expected = bytes(value);
                let got: Vec<u8> = (number(name)..).take(expected.len()).map(|a| s.host.mem[&a]).collect();
                assert_eq!(got, expected, "{at}: memory");
            }
            "io" => {
                let (name, value) = pair.expect("name = value");
                assert_eq!(
                    s.host.io.get(&(number(name) as u16)),
                    Some(&(number(value) as u32)),
                    "{at}: port"
                );
            }
            _ => panic!("{at}: unknown key {key}"),
        }
    }
    assert_eq!(termination(&outcome, vm.unhandled()), end, "{at}: termination");
}

#[test]
fn every_case_of_the_tables_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut vm = Vm::new();
    let mut covered = BTreeSet::new();
    let mut runs = 0;
    for file in files {
        for case in read_cases(&std::fs::read_to_string(&file).unwrap()) {
            for width in [Width::W32, Width::W64] {
                let mut s = setup(&case, width);
                if !s.widths.contains(&u64::from(width.bits())) {
                    continue;
                }
                let text = source(&s, &case.code);
                let program = parse(&case.name, &text).unwrap_or_else(|d| panic!("{}\n{d}", case.name));
                let symbols = BTreeMap::from([("nr_free_pages".to_owned(), 0xc012_3450u64)]);
                let linked = program.link(width, &symbols).unwrap_or_else(|d| panic!("{}\n{d}", case.name));
                let handler = &linked.probes[0].handler;
                covered.extend(handler.code().iter().map(|i| i.op));
                let outcome = vm.run(handler, &mut s.host, Vars { lv: &mut s.lv, gv: &mut s.gv });
                check(&case, width, s, outcome, &vm);
                runs += 1;
            }
        }
    }
    let missing: Vec<_> = TABLE
        .iter()
        .filter(|r| r.available == Availability::Yes && !covered.contains(&r.op))
        .map(|r| r.form)
        .collect();
    assert!(missing.is_empty(), "instructions without a case: {missing:?}");
    println!("{runs} runs");
}
