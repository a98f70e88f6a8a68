//! Linux's tracepoints, of the kernel and of its modules.
//!
//! At the branch of its static key, the location of a tracepoint's arguments is unknown: a probe there fires each
//! time the tracepoint is executed, on or off, without arguments. While the guest has the tracepoint switched on, it
//! calls its listener by the static call `tp_func_NAME`, with the arguments passed by the calling
//! convention. The kernel patches this call: with one listener it goes there directly, with several to
//! `__traceiter_NAME`. So the probe is at the call, or on IA32, where static calls go through a trampoline, at the
//! trampoline.

use std::collections::BTreeMap;
use std::sync::Arc;

use trapline_emu::load::Width;
use trapline_emu::symbols::{Btf, Parameter};

use super::Found;
use super::operands::Operands;
use super::read::{Argument, Format, Tracepoint, tracepoint_arguments, tracepoint_call_arguments};
use super::unit::Unit;
use crate::provider::{Site, declaration};
use crate::target::Target;

/// Prefix of the name of a tracepoint's iterator.
const ITERATOR: &str = "__traceiter_";
/// Prefixes of the names of a tracepoint and of the trampoline of its static call.
const TRACEPOINT: &str = "__tracepoint_";
const TRAMPOLINE: &str = "__SCT__tp_func_";
/// A listener's own first argument, before the tracepoint's.
const OWN: usize = 1;
/// Arguments in registers on x86-64, after the listener's own.
const IN_REGISTERS: usize = 5;

/// A probe at each branch, which fires when the tracepoint is executed.
pub fn passed(target: &Target, units: &[Unit]) -> Vec<Found> {
    let rule = "static key, fires on or off";
    let mut found = Vec::new();
    for (home, point) in points(units) {
        for site in &point.sites {
            found.extend(at(target, (home, point), (home, *site), rule, Vec::new()));
        }
        // A tracepoint of the kernel may be executed in modules too.
        for unit in units.iter().filter(|unit| unit.name != home.name) {
            for label in &unit.sites.labels {
                let own = label.key.wrapping_sub(u64::from(unit.width().bits() / 8));
                let name = unit.file.name_at(own).and_then(|name| name.strip_prefix(TRACEPOINT));
                if name == Some(&point.name) && unit.file.is_undefined(own) {
                    found.extend(at(target, (home, point), (unit, label.site), rule, Vec::new()));
                }
            }
        }
    }
    found
}

/// A probe at each call of a listener, where the tracepoint is on and has its arguments.
pub fn traced(target: &Target, units: &[Unit]) -> Vec<Found> {
    let types = types(target);
    let mut calls: BTreeMap<&str, Vec<(&Unit, u64, bool)>> = BTreeMap::new();
    for unit in units {
        for call in &unit.sites.calls {
            if let Some(name) = call.tracepoint() {
                calls.entry(name).or_default().push((unit, call.site, call.tail));
            }
        }
    }
    let mut found = Vec::new();
    for (home, point) in points(units) {
        let width = home.width();
        let known = if home.is_module() { None } else { types.get(point.name.as_str()) };
        let parameters = known.and_then(|all| all.get(OWN..)).unwrap_or_default();
        let formats = match known {
            Some(_) => parameters.iter().map(|parameter| format(&parameter.type_name, width)).collect(),
            // If the types are unknown, the registers are shown unchanged; on IA32 one argument may occupy two.
            None if width == Width::Bits64 => vec![Format::unsigned(8); IN_REGISTERS],
            None => Vec::new(),
        };
        let shown: Vec<String> = parameters.iter().map(declaration).collect();
        let mut add = |unit: &Unit, site, rule, list, at_call| {
            let one = at(target, (home, point), (unit, site), rule, list);
            found.extend(one.map(|found| {
                let site = Site { at_call, shown: shown.clone(), ..found.site };
                Found { site, ..found }
            }));
        };
        let own = calls.get(point.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        for (unit, site, tail) in own {
            let list = tracepoint_call_arguments(width, &formats, *tail);
            add(unit, *site, "call of the listener, while the guest has it on", list, *tail);
        }
        if own.is_empty() {
            let trampoline = home.file.address(&format!("{TRAMPOLINE}{}", point.name));
            let (site, rule) = match trampoline {
                Some(site) => (Some(site), "trampoline to the listener, while the guest has it on"),
                None => (point.iterator, "__traceiter, while the guest has it on"),
            };
            if let Some(site) = site {
                add(home, site, rule, tracepoint_arguments(width, &formats), true);
            }
        }
    }
    found
}

/// The tracepoints, each with the kernel or module that defines it.
fn points(units: &[Unit]) -> impl Iterator<Item = (&Unit, &Tracepoint)> {
    units.iter().flat_map(|unit| unit.sites.tracepoints.iter().map(move |point| (unit, point)))
}

/// A site of the tracepoint `point` of `home` in `unit`.
fn at(
    target: &Target,
    (home, point): (&Unit, &Tracepoint),
    (unit, address): (&Unit, u64),
    rule: &'static str,
    list: Vec<Option<Argument>>,
) -> Option<Found> {
    let operands = Operands::new(list);
    let here = unit.symbol(target, address);
    let (place, opcode) = unit.place(target, address)?;
    Some(Found {
        function: point.system.as_str().into(),
        name: point.name.as_str().into(),
        module: Arc::clone(&home.name),
        logged: operands.readable(),
        types: Vec::new(),
        site: Site {
            place,
            offset: here.map_or(0, |at| at.offset),
            opcode,
            rule,
            at_call: false,
            tail_call: false,
            when: None,
            arguments: Arc::new(operands),
            shown: Vec::new(),
            within: here.map(|at| Arc::clone(&at.symbol.name)),
        },
    })
}
/// Parameters of the iterators by tracepoint, if the kernel has its types.
fn types(target: &Target) -> BTreeMap<String, Vec<Parameter>> {
    let Ok(Some(btf)) = Btf::from_vmlinux(&target.image().plan().image) else { return BTreeMap::new() };
    let named =
        |(name, list): (String, Vec<Parameter>)| Some((name.strip_prefix(ITERATOR)?.to_owned(), list));
    btf.functions().filter_map(named).collect()
}

/// The format of a C type: the basic types and the kernel's names for them by their size, an enumeration as
/// 32 bits, all others as a word. The upper bits of a register with a shorter type are undefined.
fn format(type_name: &str, width: Width) -> Format {
    let name = type_name.trim_start_matches("const ").trim_start_matches("volatile ");
    let (bytes, signed) = match name {
        "char" | "signed char" | "s8" | "__s8" | "int8_t" => (1, true),
        "bool" | "_Bool" | "unsigned char" | "u8" | "__u8" | "uint8_t" => (1, false),
        "short" | "short int" | "s16" | "__s16" | "int16_t" => (2, true),
        "short unsigned int" | "unsigned short" | "u16" | "__u16" | "uint16_t" | "umode_t" => (2, false),
        "int" | "s32" | "__s32" | "int32_t" | "pid_t" => (4, true),
        "unsigned int" | "u32" | "__u32" | "uint32_t" | "gfp_t" | "dev_t" => (4, false),
        "long long int" | "s64" | "__s64" | "int64_t" | "loff_t" | "ktime_t" => (8, true),
        "long long unsigned int" | "u64" | "__u64" | "uint64_t" | "sector_t" => (8, false),
        "long int" | "ssize_t" => ((width.bits() / 8) as u8, true),
        _ if name.starts_with("enum ") && !name.ends_with('*') => (4, false),
        _ => ((width.bits() / 8) as u8, false),
    };
    Format { bytes, signed, float: false }
}
