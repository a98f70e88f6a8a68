//! `<sys/sdt.h>` probes of user modules.

use std::sync::Arc;

use trapline_emu::load::ElfView;
use trapline_emu::symbols::UserModule;
use trapline_interposer::Place;

use super::operands::Operands;
use super::{Found, dashed};
use crate::provider::Site;
use crate::sdt::{StapNotes, StapProbe};
use crate::target::basename;

/// The sites of a module with their providers. What cannot be read has none.
pub fn probes(module: &Arc<UserModule>) -> Vec<(String, Found)> {
    let notes = ElfView::parse(module.bytes()).and_then(|view| StapNotes::read(&view)).unwrap_or_default();
    notes.probes.iter().map(|probe| (probe.provider.replace("__", "-"), found(module, probe))).collect()
}

fn found(module: &Arc<UserModule>, probe: &StapProbe) -> Found {
    let at = module.symbols().at(probe.address);
    let (function, offset) = at.map_or((Arc::from(""), 0), |at| (Arc::clone(&at.symbol.name), at.offset));
    let list = probe.arguments.iter().map(|argument| argument.as_ref().ok().cloned()).collect();
    let operands = Operands::of_module(list, module, probe.address);
    let logged = operands.readable();
    let opcode = module.bytes_at(probe.offset, 1).and_then(|bytes| bytes.first().copied());
    Found {
        function,
        name: dashed(&probe.name),
        module: basename(module.name()).into(),
        logged,
        site: Site {
            place: Place::User { module: Arc::clone(module), offset: probe.offset },
            offset,
            opcode: opcode.unwrap_or_default(),
            rule: if probe.semaphore.is_some() { "stapsdt note, with a semaphore" } else { "stapsdt note" },
            arguments: Arc::new(operands),
            within: None,
            shown: probe.arguments.iter().map(shown).collect(),
            at_call: false,
        },
    }
}

/// An operand as written, or why it cannot be read.
fn shown(argument: &Result<crate::sdt::Argument, crate::sdt::ArgumentError>) -> String {
    match argument {
        Ok(argument) => argument.to_string(),
        Err(error) => format!("unreadable: {error}"),
    }
}
