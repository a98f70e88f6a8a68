//! Reads, runs and checks conformance cases. The cases are in `../conformance`.
//!
//! A table of cases: each starts with `== name`; `key: value` lines follow, then `code` and the indented program.
//! Keys before `code` are the initial state, keys after it the expected one; `key32:` and `key64:` hold for one width
//! only. Without `end:` the handler must end by `exit`.
//!
//! A table of forms: `= form` begins the cases of a row of the instruction table, one per line:
//! `[key: value; .. ::] instruction; .. -> key: value; ..`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::collections::BTreeMap;

use crate::common::TestHost;
use trapline_rpn::{Op, Outcome, Termination, Unhandled, Vars, Vm, Width, by_name, parse};

#[derive(Debug, Default)]
pub struct Case {
    pub name: String,
    pub before: Vec<(String, String)>,
    pub code: String,
    pub after: Vec<(String, String)>,
}

pub fn read_cases(text: &str) -> Vec<Case> {
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

/// Addresses from this one on, wrapping at the end of memory.
fn addresses(first: &str) -> impl Iterator<Item = u64> {
    let first = number(first);
    (0..).map(move |n| first.wrapping_add(n))
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
                    "mem" => s.host.mem.extend(addresses(name).zip(bytes(value))),
                    "rom" => s.host.read_only.extend(addresses(name).zip(bytes(value))),
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

/// Stack trace records, their number, and how many were dropped.
fn traced(vm: &Vm) -> (&[u8], u16, u32) {
    vm.stack_trace().map_or((&[], 0, 0), |t| (t.records, t.count, t.dropped))
}

/// Words of the width, and `TOKEN/COUNT` for a prefix.
fn trace_bytes(text: &str, width: Width) -> Vec<u8> {
    let mut out = Vec::new();
    for word in text.split_whitespace() {
        if let Some((token, count)) = word.split_once('/') {
            out.push(number(token) as u8);
            out.extend_from_slice(&(number(count) as u16).to_le_bytes());
        } else {
            out.extend_from_slice(&number(word).to_le_bytes()[..width.bytes()]);
        }
    }
    out
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
            "trace" => assert_eq!(traced(vm).0, trace_bytes(value, width), "{at}: stack trace records"),
            "traces" => {
                assert_eq!(u64::from(traced(vm).1), number(value), "{at}: number of stack trace records")
            }
            "dropped" => assert_eq!(u64::from(traced(vm).2), number(value), "{at}: records that did not fit"),
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
                let got: Vec<u8> = addresses(name).take(expected.len()).map(|a| s.host.mem[&a]).collect();
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

/// The forms of a table with their cases.
pub fn read_forms(text: &str) -> Vec<(String, Vec<Case>)> {
    let mut forms: Vec<(String, Vec<Case>)> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(form) = line.strip_prefix("= ") {
            forms.push((form.to_owned(), Vec::new()));
            continue;
        }
        let (form, cases) = forms.last_mut().unwrap_or_else(|| panic!("no form yet: {line}"));
        let (left, after) = line.split_once("->").unwrap_or_else(|| panic!("no `->`: {line}"));
        let (before, code) = left.split_once("::").unwrap_or(("", left));
        let code: String = code.split(';').map(|insn| format!("  {}\n", insn.trim())).collect();
        let name = format!("`{form}`, {line}");
        cases.push(Case { name, before: pairs(before), code, after: pairs(after) });
    }
    forms
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |item: &str| {
        let (key, value) = item.split_once(':').unwrap_or_else(|| panic!("no `key: value`: {item}"));
        (key.trim().to_owned(), value.trim().to_owned())
    };
    text.split(';').map(str::trim).filter(|item| !item.is_empty()).map(pair).collect()
}

/// Runs a case at each of its widths and checks it; returns the widths, and the instructions of its handler.
pub fn run(vm: &mut Vm, case: &Case) -> (Vec<Width>, Vec<Op>) {
    let (mut widths, mut ops) = (Vec::new(), Vec::new());
    for width in [Width::W32, Width::W64] {
        let mut s = setup(case, width);
        if !s.widths.contains(&u64::from(width.bits())) {
            continue;
        }
        let text = source(&s, &case.code);
        let program = parse(&case.name, &text).unwrap_or_else(|d| panic!("{}\n{d}", case.name));
        let symbols = BTreeMap::from([("nr_free_pages".to_owned(), 0xc012_3450u64)]);
        let linked = program.link(width, &symbols).unwrap_or_else(|d| panic!("{}\n{d}", case.name));
        let handler = &linked.probes[0].handler;
        ops.extend(handler.code().iter().map(|insn| insn.op));
        let outcome = vm.run(handler, &mut s.host, Vars { lv: &mut s.lv, gv: &mut s.gv });
        check(case, width, s, outcome, vm);
        widths.push(width);
    }
    (widths, ops)
}
