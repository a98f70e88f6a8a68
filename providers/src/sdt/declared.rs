//! Macro-declared probes, of the kernel and of user programs.

use std::sync::Arc;

use trapline_emu::load::{ElfView, Width};
use trapline_emu::symbols::UserModule;
use trapline_interposer::Place;

use super::operands::Operands;
use super::read::{Argument, Format, Letter, MacroProbe, MacroProbes, Memory, Operand};
use super::{Found, dashed};
use crate::provider::{ArgumentType, Site};
use crate::target::basename;

/// The probes of a user program or library, and the refused entries with the reason.
pub fn of_module(module: &Arc<UserModule>, refused: &mut Vec<String>) -> Vec<Found> {
    let name: Arc<str> = basename(module.name()).into();
    let place = |probe: &MacroProbe| {
        let (module, address) = (Arc::clone(module), probe.pointer);
        Some(Place::UserPointer { module, address, wide: probe.width == Width::Bits64 })
    };
    let read = ElfView::parse(module.bytes()).and_then(|view| MacroProbes::read(&view));
    match read {
        Ok(probes) => declared(&probes, &name, &place, refused),
        Err(error) => {
            refused.push(error.to_string());
            Vec::new()
        }
    }
}

/// The probes of a file; `place` gives the place of a pointer, if it has one.
pub fn declared(
    probes: &MacroProbes,
    module: &Arc<str>,
    place: &dyn Fn(&MacroProbe) -> Option<Place>,
    refused: &mut Vec<String>,
) -> Vec<Found> {
    refused.extend(probes.refused.iter().map(ToString::to_string));
    probes.probes.iter().filter_map(|probe| Some(found(probe, module, place(probe)?))).collect()
}

fn found(probe: &MacroProbe, module: &Arc<str>, place: Place) -> Found {
    let mut functions: Vec<&str> = probe.points.iter().map(|point| point.function.as_str()).collect();
    functions.dedup();
    let function = if let [only] = functions[..] { only } else { "" };
    // Each of several points may have other arguments.
    let texts = if let [only] = &probe.points[..] { only.arguments.as_slice() } else { &[] };
    let (mut list, mut shown, mut types) = (Vec::new(), Vec::new(), Vec::new());
    for (n, (letter, argument)) in probe.arguments().into_iter().enumerate() {
        let text = texts.get(n).filter(|text| !text.is_empty());
        let words = |what: &str| text.map_or_else(|| what.to_owned(), |text| format!("{what} {text}"));
        if let (Letter::Long, Width::Bits32, Operand::Memory(low)) = (letter, probe.width, &argument.operand)
        {
            // It does not fit the guest's word: it is two arguments, as on the stack.
            types.push(ArgumentType { pair: true, ..ArgumentType::native("int64_t") });
            let high = Memory { displacement: low.displacement + 4, ..low.clone() };
            let half = |memory| Argument { format: Format::unsigned(4), operand: Operand::Memory(memory) };
            list.extend([Some(half(low.clone())), Some(half(high))]);
            shown.extend(["low", "high"].map(|half| words(&format!("{} ({half} half)", word(letter)))));
        } else {
            types.push(ArgumentType::native(native(letter, probe.width)));
            list.push(Some(argument));
            shown.push(words(word(letter)));
        }
    }
    Found {
        function: function.into(),
        name: dashed(&probe.name),
        module: Arc::clone(module),
        logged: list.len() as u8,
        types,
        site: Site {
            place,
            offset: 0,
            opcode: 0,
            rule: "pointer of a macro-declared probe, visible to the guest",
            arguments: Arc::new(Operands::new(list)),
            within: None,
            shown,
            at_call: false,
            tail_call: false,
            when: None,
        },
    }
}

/// The C type of a letter; that of an integer has a word of the program, whatever the kernel's word is.
fn native(letter: Letter, width: Width) -> &'static str {
    match (letter, width) {
        (Letter::Integer, Width::Bits32) => "int32_t",
        (Letter::Integer | Letter::Long, _) => "int64_t",
        (Letter::Text, _) => "char *",
        (Letter::Pointer, _) => "void *",
    }
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
