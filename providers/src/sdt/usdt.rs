//! Probes of user programs that are calls to functions which do not exist: USDT, as `dtrace -G` leaves it.
//!
//! A probe has the sites of its calls, and every is-enabled site of its provider and name in the file: while it is
//! enabled they answer 1. Calls that were not replaced by a loader are not probes in a running program.

use std::sync::Arc;

use trapline_emu::load::ElfView;
use trapline_emu::symbols::UserModule;
use trapline_interposer::Place;

use super::Found;
use super::operands::Operands;
use super::read::{CallSite, CallSites, Domain, Purpose};
use crate::provider::Site;
use crate::target::basename;

/// Arguments of a call that are logged; their real number is unknown.
const LOGGED: u8 = 6;
/// Arguments of a call that a handler can use.
const MOST: u8 = 32;
/// Why a call is refused.
const NOT_LOADED: &str = "the call was not replaced by a loader, which writes NOPs over it";

/// The sites of a module with their providers, and the refused entries with the reason.
pub fn probes(module: &Arc<UserModule>, refused: &mut Vec<String>) -> Vec<(String, Found)> {
    let read = ElfView::parse(module.bytes()).and_then(|view| CallSites::read(&view, Domain::User));
    let calls = match read {
        Ok(calls) => calls,
        Err(error) => {
            refused.push(error.to_string());
            return Vec::new();
        }
    };
    refused.extend(calls.refused.iter().map(ToString::to_string));
    for site in calls.sites.iter().filter(|site| !site.loaded) {
        refused.push(format!("{}:{} at {:#x}: {NOT_LOADED}", site.provider, site.name, site.address));
    }
    let loaded = || calls.sites.iter().filter(|site| site.loaded);
    let mut found = Vec::new();
    for site in loaded().filter(|site| site.purpose == Purpose::User) {
        let provider = site.provider.replace("__", "-");
        found.push((provider.clone(), probe(module, site, fired(module, site))));
        let asks = |other: &&CallSite| {
            other.purpose == Purpose::IsEnabled
                && (&other.provider, &other.name) == (&site.provider, &site.name)
        };
        for is_enabled in loaded().filter(asks) {
            found.push((provider.clone(), probe(module, site, asked(module, is_enabled))));
        }
    }
    found
}

/// A site of the probe of `call`.
fn probe(module: &UserModule, call: &CallSite, site: Site) -> Found {
    Found {
        function: call.function.as_str().into(),
        name: call.name.as_str().into(),
        module: basename(module.name()).into(),
        logged: LOGGED,
        types: Vec::new(),
        site,
    }
}

/// The site of a call.
fn fired(module: &Arc<UserModule>, call: &CallSite) -> Site {
    let list = (0..MOST).map(|n| Some(call.argument(n, false))).collect();
    let rule = if call.tail { "NOPs of a tail call" } else { "NOPs of a call" };
    let place = Place::User { module: Arc::clone(module), offset: call.offset };
    let arguments = Arc::new(Operands::of_module(list, module, call.address));
    Site { arguments, ..site(module, call, place, (call.offset, rule)) }
}

/// An is-enabled site.
fn asked(module: &Arc<UserModule>, is_enabled: &CallSite) -> Site {
    let offset = is_enabled.offset + u64::from(is_enabled.patch().0);
    let place = Place::IsEnabled { module: Arc::clone(module), offset };
    Site {
        within: Some(is_enabled.function.as_str().into()),
        ..site(
            module,
            is_enabled,
            place,
            (offset, "is-enabled: answers 1 while enabled, visible to the guest"),
        )
    }
}

fn site(module: &UserModule, call: &CallSite, place: Place, (offset, rule): (u64, &'static str)) -> Site {
    let bytes = module.bytes_at(offset, 1);
    let at = module.symbols().at(call.address);
    Site {
        place,
        within: None,
        offset: at.map_or(0, |at| at.offset),
        opcode: bytes.and_then(|bytes| bytes.first().copied()).unwrap_or_default(),
        rule,
        arguments: Arc::new(Operands::new(Vec::new())),
        shown: Vec::new(),
        at_call: false,
        tail_call: false,
        when: None,
    }
}
