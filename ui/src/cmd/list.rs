//! `trapline list`: the functions that can be probed, by address.

use std::io::Write;
use std::sync::Arc;

use serde_json::json;
use trapline_providers::{Function, FunctionGlob, functions};
use trapline_trace::{HexStyle, hex};

use crate::cli::{Format, ListArgs};
use crate::cmd::list_probes;
use crate::cmd::run::{bits, digits};
use crate::failure::{Exit, Failure};
use crate::guest::{self, Guest};
use crate::talk::{Talk, counted};

/// Near misses named when nothing matches.
const SUGGESTIONS: usize = 3;

/// Runs the command.
///
/// # Errors
/// Bad files or pattern, nothing that matches, output that cannot be written.
pub fn run(args: &ListArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let description = args.glob.as_ref().filter(|text| text.contains(':'));
    if let (Some(description), Some(module)) = (description, guest::user_module(&args.guest.image)) {
        return list_probes::of_module(args, &Arc::new(module), description, out, talk);
    }
    let guest = Guest::open(&args.guest, talk)?;
    if let Some(description) = description {
        return list_probes::run(args, &guest, description, out, talk);
    }
    let glob = args.glob.as_deref().map(FunctionGlob::new).transpose()?;
    let found = functions(&guest.target, glob.as_ref());
    if let (true, Some(pattern)) = (found.is_empty(), &args.glob) {
        return Err(nothing(&guest, pattern));
    }
    let written = match args.format {
        Format::Text => text(args, &guest, &found, out),
        Format::Json => json_lines(&guest, &found, out),
    };
    written.and_then(|()| out.flush()).map_err(Failure::Output)?;
    talk.note(&counted(found.len() as u64, "function"));
    Ok(Exit::Ok)
}

fn nothing(guest: &Guest, pattern: &str) -> Failure {
    let modules = guest.target.modules().iter();
    let near = |symbols: &trapline_emu::symbols::Symbols| -> Vec<String> {
        symbols.near_misses(pattern, SUGGESTIONS).into_iter().map(|name| format!("`{name}`")).collect()
    };
    let mut names = near(guest.target.symbols());
    names.extend(modules.flat_map(|module| near(module.symbols())));
    names.truncate(SUGGESTIONS);
    let mut sentence = format!("no function of {} matches `{pattern}`", guest.name);
    if !names.is_empty() {
        sentence.push_str(&format!("; did you mean {}?", names.join(" or ")));
    }
    Failure::Usage(sentence)
}

fn text(args: &ListArgs, guest: &Guest, found: &[Function], out: &mut dyn Write) -> std::io::Result<()> {
    let digits = digits(guest);
    let modules = found.iter().map(|function| function.module.len()).max().unwrap_or(0);
    for function in found {
        write!(out, "{:#0digits$x} {:>7}  ", function.address, function.size)?;
        if args.opcode {
            let opcode = function.bytes.first().map_or_else(|| "-".to_owned(), |byte| format!("{byte:#04x}"));
            write!(out, "{opcode:4}  ")?;
        }
        if args.bytes {
            write!(out, "{:23}  ", hex(&function.bytes, HexStyle::Spaced))?;
        }
        writeln!(out, "{:modules$}  {}", function.module, function.name)?;
    }
    Ok(())
}

fn json_lines(guest: &Guest, found: &[Function], out: &mut dyn Write) -> std::io::Result<()> {
    let header = json!({"type": "header", "version": 1, "image": guest.name, "width": bits(guest)});
    writeln!(out, "{header}")?;
    for function in found {
        let line = json!({
            "type": "function", "address": format!("{:#x}", function.address), "size": function.size,
            "module": function.module, "name": function.name,
            "offset": function.offset.map(|offset| format!("{offset:#x}")),
            "opcode": function.bytes.first().map(|byte| format!("{byte:#04x}")),
            "bytes": hex(&function.bytes, HexStyle::Pairs),
        });
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{}", json!({"type": "end", "functions": found.len(), "exit": 0}))
}
