//! `<sys/sdt.h>` probes of user modules: the sites, and the semaphores that are raised with them.

use std::sync::Arc;

use trapline_emu::load::ElfView;
use trapline_emu::symbols::UserModule;
use trapline_interposer::Place;

use super::operands::Operands;
use super::read::{Format, StapNotes, StapProbe};
use super::{Found, dashed};
use crate::provider::{ArgumentType, Site};
use crate::target::basename;

/// The sites of a module with their providers, and the refused entries with the reason.
pub fn probes(module: &Arc<UserModule>, refused: &mut Vec<String>) -> Vec<(String, Found)> {
    let notes = match ElfView::parse(module.bytes()).and_then(|view| StapNotes::read(&view)) {
        Ok(notes) => notes,
        Err(error) => {
            refused.push(error.to_string());
            return Vec::new();
        }
    };
    refused.extend(notes.refused.iter().map(ToString::to_string));
    let mut sites = Vec::new();
    for probe in &notes.probes {
        let provider = probe.provider.replace("__", "-");
        let site = found(module, probe);
        if let Some(address) = probe.semaphore {
            sites.push((provider.clone(), Found { site: semaphore(module, address), ..site.clone() }));
        }
        sites.push((provider, site));
    }
    sites
}

/// The semaphore at a linked address.
fn semaphore(module: &Arc<UserModule>, address: u64) -> Site {
    Site {
        place: Place::Semaphore { module: Arc::clone(module), address },
        within: module.symbols().at(address).map(|at| Arc::clone(&at.symbol.name)),
        offset: module.symbols().at(address).map_or(0, |at| at.offset),
        opcode: 0,
        rule: "semaphore, 1 in each process while enabled, visible to the guest",
        arguments: Arc::new(Operands::new(Vec::new())),
        shown: Vec::new(),
        at_call: false,
        tail_call: false,
        when: None,
    }
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
        types: types(probe),
        site: Site {
            place: Place::User { module: Arc::clone(module), offset: probe.offset },
            offset,
            opcode: opcode.unwrap_or_default(),
            rule: if probe.semaphore.is_some() { "stapsdt note, with a semaphore" } else { "stapsdt note" },
            arguments: Arc::new(operands),
            within: None,
            shown: probe.arguments.iter().map(shown).collect(),
            at_call: false,
            tail_call: false,
            when: None,
        },
    }
}

/// The types of the readable arguments, by the sizes that the note gives them.
fn types(probe: &StapProbe) -> Vec<ArgumentType> {
    let readable = probe.arguments.iter().map_while(|argument| argument.as_ref().ok());
    readable.map(|argument| ArgumentType::native(named(argument.format))).collect()
}

/// The C type of a size.
fn named(format: Format) -> &'static str {
    match (format.bytes, format.signed) {
        (4, _) if format.float => "float",
        (8, _) if format.float => "double",
        _ if format.float => "long double",
        (1, true) => "int8_t",
        (1, false) => "uint8_t",
        (2, true) => "int16_t",
        (2, false) => "uint16_t",
        (4, true) => "int32_t",
        (4, false) => "uint32_t",
        (_, true) => "int64_t",
        (_, false) => "uint64_t",
    }
}

/// An operand as written, or why it cannot be read.
fn shown(argument: &Result<super::read::Argument, super::read::ArgumentError>) -> String {
    match argument {
        Ok(argument) => argument.to_string(),
        Err(error) => format!("unreadable: {error}"),
    }
}
