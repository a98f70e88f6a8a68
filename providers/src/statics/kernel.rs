//! Calls of `__dtrace_probe_NAME` and macro-declared probes of the kernel.

use std::sync::Arc;

use trapline_emu::load::{ElfView, LoadPlan, Width};
use trapline_interposer::Place;

use super::operands::Operands;
use super::{Found, dashed, kernel_module};
use crate::provider::Site;
use crate::sdt::{CallSite, CallSites, Domain, Letter, MacroProbe, MacroProbes};
use crate::target::Target;

/// Arguments of a call that are logged: how many it has is not known.
const LOGGED: u8 = 6;

/// Both kinds. A table that cannot be read has none.
pub fn probes(target: &Target) -> Vec<Found> {
    let plan = target.image().plan();
    let Ok(view) = ElfView::parse(&plan.image) else { return Vec::new() };
    let module = kernel_module(target);
    let calls = CallSites::read(&view, Domain::Kernel).unwrap_or_default();
    let macros = MacroProbes::read(&view).unwrap_or_default();
    let calls = calls.sites.iter().filter_map(|site| call(target, site, &module));
    calls.chain(macros.probes.iter().filter_map(|probe| declared(plan, probe, &module))).collect()
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

fn declared(plan: &LoadPlan, probe: &MacroProbe, module: &Arc<str>) -> Option<Found> {
    let mut functions: Vec<&str> = probe.points.iter().map(|point| point.function.as_str()).collect();
    functions.dedup();
    let function = if let [only] = functions[..] { only } else { "" };
    let (types, list): (Vec<Letter>, Vec<_>) =
        probe.arguments().into_iter().map(|(letter, argument)| (letter, Some(argument))).unzip();
    let (linear, wide) = (probe.pointer, probe.width == Width::Bits64);
    Some(Found {
        function: function.into(),
        name: dashed(&probe.name),
        module: Arc::clone(module),
        logged: list.len() as u8,
        site: Site {
            place: Place::Pointer { linear, paddr: plan.vaddr_to_paddr(linear)?, wide },
            offset: 0,
            opcode: 0,
            rule: "pointer of a macro-declared probe",
            arguments: Arc::new(Operands::new(list)),
            within: None,
            shown: types.into_iter().map(|letter| word(letter).to_owned()).collect(),
            at_call: false,
        },
    })
}

/// What a letter stands for.
fn word(letter: Letter) -> &'static str {
    match letter {
        Letter::Integer => "integer",
        Letter::Text => "string",
        Letter::Long => "64-bit integer",
        Letter::Pointer => "pointer",
    }
}
