//! Calls of `__dtrace_probe_NAME` and macro-declared probes of the kernel.

use std::sync::Arc;

use trapline_emu::load::{ElfView, Width};
use trapline_interposer::Place;

use super::declared::declared;
use super::operands::Operands;
use super::{Found, kernel_module};
use crate::provider::Site;
use crate::sdt::{CallSite, CallSites, Domain, MacroProbe, MacroProbes};
use crate::target::Target;

/// Arguments of a call that are logged: how many it has is not known.
const LOGGED: u8 = 6;

/// Both kinds, and what is none with the reason.
pub fn probes(target: &Target, refused: &mut Vec<String>) -> Vec<Found> {
    let plan = target.image().plan();
    let Ok(view) = ElfView::parse(&plan.image) else { return Vec::new() };
    let module = kernel_module(target);
    let calls = CallSites::read(&view, Domain::Kernel).unwrap_or_else(|error| {
        refused.push(error.to_string());
        CallSites::default()
    });
    refused.extend(calls.refused.iter().map(ToString::to_string));
    let mut found: Vec<Found> = calls.sites.iter().filter_map(|site| call(target, site, &module)).collect();
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

fn call(target: &Target, site: &CallSite, module: &Arc<str>) -> Option<Found> {
    let plan = target.image().plan();
    let offset = target.symbols().at(site.address).map_or(0, |at| at.offset);
    Some(Found {
        function: site.function.as_str().into(),
        name: site.name.as_str().into(),
        module: Arc::clone(module),
        logged: LOGGED,
        site: Site {
            place: Place::LockNop { linear: site.address, paddr: plan.vaddr_to_paddr(site.address)? },
            offset,
            opcode: plan.bytes_at(site.address, 1)?.first().copied()?,
            rule: match (site.loaded, site.tail) {
                (true, false) => "lock nop",
                (true, true) => "lock nop, tail call",
                (false, _) => "a call that no loader has replaced",
            },
            arguments: Arc::new(Operands::new((0..LOGGED).map(|n| Some(site.argument(n))).collect())),
            within: None,
            shown: Vec::new(),
            at_call: false,
        },
    })
}
