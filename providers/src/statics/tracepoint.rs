//! Linux's tracepoints.
//!
//! At the branch of its static key a tracepoint's arguments are wherever the compiler has them: a probe there fires each
//! time the tracepoint is passed, on or off, without arguments. They are in their places by the calling convention where
//! `__traceiter_NAME` begins, which runs only while somebody in the guest has the tracepoint on.

use std::collections::BTreeMap;
use std::sync::Arc;

use trapline_emu::load::{ElfView, LoadPlan, Width};
use trapline_emu::symbols::{Btf, Parameter};
use trapline_interposer::Place;

use super::operands::Operands;
use super::{Found, kernel_module};
use crate::parameters::declaration;
use crate::provider::Site;
use crate::sdt::{Format, KernelFile, LinuxSites, Tracepoint, tracepoint_arguments};
use crate::target::Target;

/// What the name of a tracepoint's iterator begins with.
const ITERATOR: &str = "__traceiter_";
/// Its own first argument, before the tracepoint's.
const OWN: usize = 1;

/// The tracepoints of a Linux kernel; others have none.
fn tracepoints(target: &Target) -> Vec<Tracepoint> {
    if target.symbols().lookup("__start___tracepoints_ptrs").is_none() {
        return Vec::new();
    }
    let image = &target.image().plan().image;
    let file = ElfView::parse(image).and_then(|view| KernelFile::image(&view, target.symbols()));
    file.map(|file| LinuxSites::read(&file).tracepoints).unwrap_or_default()
}

/// A probe at each branch: the tracepoint is passed.
pub fn passed(target: &Target) -> Vec<Found> {
    let mut found = Vec::new();
    for point in tracepoints(target) {
        for site in &point.sites {
            found.extend(at(target, &point, *site, "static key, passed on or off", Vec::new(), Vec::new()));
        }
    }
    found
}

/// A probe at each iterator: the tracepoint is on, and here are its arguments.
pub fn traced(target: &Target) -> Vec<Found> {
    let types = types(target);
    let width = target.image().plan().width;
    let mut found = Vec::new();
    for point in tracepoints(target) {
        let Some(site) = point.iterator else { continue };
        let parameters = types.get(point.name.as_str()).and_then(|all| all.get(OWN..)).unwrap_or_default();
        let formats: Vec<Format> =
            parameters.iter().map(|parameter| format(&parameter.type_name, width)).collect();
        let shown = parameters.iter().map(declaration).collect();
        let rule = "__traceiter, while the guest has it on";
        found.extend(at(target, &point, site, rule, tracepoint_arguments(width, &formats), shown));
    }
    found
}

fn at(
    target: &Target,
    point: &Tracepoint,
    linear: u64,
    rule: &'static str,
    list: Vec<Option<crate::sdt::Argument>>,
    shown: Vec<String>,
) -> Option<Found> {
    let plan: &LoadPlan = target.image().plan();
    let operands = Operands::new(list);
    let here = target.symbols().at(linear);
    Some(Found {
        function: point.system.as_str().into(),
        name: point.name.as_str().into(),
        module: kernel_module(target),
        logged: operands.readable(),
        site: Site {
            place: Place::Kernel { linear, paddr: plan.vaddr_to_paddr(linear)? },
            offset: here.map_or(0, |at| at.offset),
            opcode: plan.bytes_at(linear, 1)?.first().copied()?,
            rule,
            at_call: point.iterator == Some(linear),
            arguments: Arc::new(operands),
            shown,
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

/// How a value of a C type is read: the basic types and the kernel's names for them by their own size, an enumeration as
/// 32 bits, all else as a word. A register above a shorter type holds anything.
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
