//! Calls of `__dtrace_probe_NAME` and macro-declared probes of the kernel and its modules.

use std::sync::Arc;

use goblin::elf::section_header::SHT_NOBITS;
use trapline_emu::load::{ElfView, Width};
use trapline_emu::symbols::KernelModule;
use trapline_interposer::Place;

use super::declared::declared;
use super::operands::Operands;
use super::read::{CallSite, CallSites, Domain, MacroProbe, MacroProbes};
use super::{Found, kernel_module};
use crate::provider::Site;
use crate::target::{Abi, Target};

/// Arguments of a call that are logged; their real number is unknown.
const LOGGED: u8 = 6;
/// Arguments of a call that a handler can use.
const MOST: u8 = 32;

/// Why a call in a module is refused.
const UNRESOLVED: &str =
    "the call is still there, and Linux loads no module that calls a function which does not exist";

/// Sections of a module that the guest frees when it has started.
const INIT: &str = ".init";
/// Why a pointer in a module is refused.
const NO_BYTES: &str =
    "the section of its pointer has no bytes in the file; use the header, or initialize the pointer";
const FREED: &str = "its pointer is in memory that Linux frees when the module has started";

/// Both kinds, and the refused entries with the reason.
pub fn probes(target: &Target, refused: &mut Vec<String>) -> Vec<Found> {
    let plan = target.image().plan();
    let Ok(view) = ElfView::parse(&plan.image) else { return Vec::new() };
    let module = kernel_module(target);
    let calls = CallSites::read(&view, Domain::Kernel).unwrap_or_else(|error| {
        refused.push(error.to_string());
        CallSites::default()
    });
    refused.extend(calls.refused.iter().map(ToString::to_string));
    let regparm = is_regparm(target, &calls);
    let call = |site| call(target, site, &module, regparm);
    let mut found: Vec<Found> = calls.sites.iter().filter_map(call).collect();
    let place = |probe: &MacroProbe| {
        let (linear, wide) = (probe.pointer, probe.width == Width::Bits64);
        Some(Place::Pointer { linear, paddr: plan.vaddr_to_paddr(linear)?, wide })
    };
    match MacroProbes::read(&view) {
        Ok(probes) => found.extend(declared(&probes, &module, &place, refused)),
        Err(error) => refused.push(error.to_string()),
    }
    found
}

fn call(target: &Target, site: &CallSite, module: &Arc<str>, regparm: bool) -> Option<Found> {
    let plan = target.image().plan();
    let offset = target.symbols().at(site.address).map_or(0, |at| at.offset);
    Some(Found {
        function: site.function.as_str().into(),
        name: site.name.as_str().into(),
        module: Arc::clone(module),
        logged: LOGGED,
        types: Vec::new(),
        site: Site {
            place: Place::LockNop { linear: site.address, paddr: plan.vaddr_to_paddr(site.address)? },
            offset,
            opcode: plan.bytes_at(site.address, 1)?.first().copied()?,
            rule: match (site.loaded, site.tail) {
                (true, false) => "lock nop",
                (true, true) => "lock nop, tail call",
                (false, _) => "a call that was not replaced by a loader",
            },
            arguments: arguments(site, regparm),
            within: None,
            shown: Vec::new(),
            at_call: false,
            tail_call: false,
            when: None,
        },
    })
}

/// The calls of a kernel module, and the refused entries with the reason.
pub fn module_probes(target: &Target, module: &Arc<KernelModule>, refused: &mut Vec<String>) -> Vec<Found> {
    let Ok(view) = ElfView::parse(module.file().bytes()) else { return Vec::new() };
    let mut found = match MacroProbes::read(&view) {
        Ok(probes) => module_pointers(module, &view, probes, refused),
        Err(error) => {
            refused.push(error.to_string());
            Vec::new()
        }
    };
    let calls = CallSites::read(&view, Domain::Kernel).unwrap_or_else(|error| {
        refused.push(error.to_string());
        CallSites::default()
    });
    refused.extend(calls.refused.iter().map(ToString::to_string));
    for site in calls.sites.iter().filter(|site| !site.loaded) {
        refused.push(format!("{} in {}: {UNRESOLVED}", site.name, site.function));
    }
    let regparm = is_regparm(target, &calls);
    let loaded = calls.sites.iter().filter(|site| site.loaded);
    found.extend(loaded.map(|site| module_call(module, site, regparm)));
    found
}

/// The macro-declared probes of a kernel module whose pointers have a place in its file and stay in memory.
fn module_pointers(
    module: &Arc<KernelModule>,
    view: &ElfView<'_>,
    mut probes: MacroProbes,
    refused: &mut Vec<String>,
) -> Vec<Found> {
    let section = |probe: &MacroProbe| view.sections().get(probe.section);
    probes.probes.retain(|probe| {
        let why = section(probe).and_then(|section| match section.kind {
            SHT_NOBITS => Some(NO_BYTES),
            _ => section.name.starts_with(INIT).then_some(FREED),
        });
        refused.extend(why.map(|why| format!("the macro-declared probe {:?}: {why}", probe.symbol)));
        why.is_none()
    });
    let place = |probe: &MacroProbe| {
        let offset = section(probe)?.offset.checked_add(probe.pointer)?;
        let wide = probe.width == Width::Bits64;
        Some(Place::ModulePointer { module: Arc::clone(module), offset, wide })
    };
    declared(&probes, &module.name().into(), &place, refused)
}

fn module_call(module: &Arc<KernelModule>, site: &CallSite, regparm: bool) -> Found {
    let file = module.file();
    Found {
        function: site.function.as_str().into(),
        name: site.name.as_str().into(),
        module: module.name().into(),
        logged: LOGGED,
        types: Vec::new(),
        site: Site {
            place: Place::Module { module: Arc::clone(module), offset: site.offset },
            offset: file.symbol_at_offset(site.offset).map_or(0, |at| at.offset),
            opcode: file
                .bytes_at(site.offset, 1)
                .and_then(|bytes| bytes.first().copied())
                .unwrap_or_default(),
            rule: if site.tail { "NOPs of a tail call" } else { "NOPs of a call" },
            arguments: arguments(site, regparm),
            within: None,
            shown: Vec::new(),
            at_call: false,
            tail_call: false,
            when: None,
        },
    }
}

fn arguments(site: &CallSite, regparm: bool) -> Arc<Operands> {
    Arc::new(Operands::new((0..MOST).map(|n| Some(site.argument(n, regparm))).collect()))
}

/// Whether the kernel's code, which has these calls, takes arguments in registers as IA32's Linux does.
fn is_regparm(target: &Target, calls: &CallSites) -> bool {
    let narrow = target.width() == trapline_rpn::Width::W32 && !calls.sites.is_empty();
    narrow && target.options().abi.unwrap_or_else(|| Abi::of(target)) == Abi::Regparm
}
