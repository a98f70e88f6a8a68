//! `trapline list IMAGE SPEC`: the probes that a description names, as `dtrace -l` lists them.

use std::io::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use trapline_emu::symbols::UserModule;
use trapline_interposer::Place;
use trapline_providers::{
    Description, MatchError, Probe, Refused, Site, find, refused, refused_of, user_probes,
};

use crate::cli::{Format, ListArgs};
use crate::cmd::run::{bits, digits};
use crate::failure::{Exit, Failure};
use crate::guest::Guest;
use crate::talk::{Talk, counted};

/// Lists the probes.
pub fn run(
    args: &ListArgs,
    guest: &Guest,
    description: &str,
    out: &mut dyn Write,
    talk: &Talk,
) -> Result<Exit, Failure> {
    if args.bytes {
        return Err(Failure::Usage(
            "--bytes goes with functions; of probes --opcode shows the byte".to_owned(),
        ));
    }
    let wanted = Description::parse(description).map_err(MatchError::from)?;
    let refused = if args.verbose { refused(&guest.target, &wanted) } else { Vec::new() };
    match find(&guest.target, description) {
        Ok(found) => write(args, (digits(guest), bits(guest)), description, (&found, &refused), out, talk),
        Err(error) => nothing(args, error, &refused, out),
    }
}

/// Lists the probes of a user program or library that was given as the image.
pub fn of_module(
    args: &ListArgs,
    module: &Arc<UserModule>,
    description: &str,
    out: &mut dyn Write,
    talk: &Talk,
) -> Result<Exit, Failure> {
    let wanted = Description::parse(description).map_err(MatchError::from)?;
    let found = user_probes(module, &wanted);
    let refused = if args.verbose { refused_of(module, &wanted) } else { Vec::new() };
    if found.is_empty() {
        let error = MatchError::Nothing { description: wanted.to_string(), near: Vec::new() };
        return nothing(args, error, &refused, out);
    }
    let bits = module.width().bits() as u8;
    write(args, (2 + usize::from(bits) / 4, bits), description, (&found, &refused), out, talk)
}

/// There is no such probe; what was refused may say why.
fn nothing(
    args: &ListArgs,
    error: MatchError,
    refused: &[Refused],
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    if args.format == Format::Text {
        refusals(refused, out).and_then(|()| out.flush()).map_err(Failure::Output)?;
    }
    Err(error.into())
}

fn write(
    args: &ListArgs,
    (digits, bits): (usize, u8),
    description: &str,
    (found, refused): (&[Probe], &[Refused]),
    out: &mut dyn Write,
    talk: &Talk,
) -> Result<Exit, Failure> {
    let written = match args.format {
        Format::Text if args.verbose => text(args, digits, found, out).and_then(|()| refusals(refused, out)),
        Format::Text => text(args, digits, found, out),
        Format::Json => json_lines((&args.guest.image, bits), (found, refused), out),
    };
    written.and_then(|()| out.flush()).map_err(Failure::Output)?;
    talk.note(&format!("description '{description}' matched {}", counted(found.len() as u64, "probe")));
    Ok(Exit::Ok)
}

fn text(args: &ListArgs, digits: usize, found: &[Probe], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{:>5} {:>10} {:>17} {:>33} NAME", "ID", "PROVIDER", "MODULE", "FUNCTION")?;
    for Probe { id, name, sites, .. } in found {
        writeln!(
            out,
            "{id:>5} {:>10} {:>17} {:>33} {}",
            name.provider, name.module, name.function, name.name
        )?;
        if !args.verbose && !args.opcode {
            continue;
        }
        for site in sites {
            let Some(at) = address(site) else { continue };
            write!(
                out,
                "      {at:#0digits$x}  {}+{:#x}",
                site.within.as_ref().unwrap_or(&name.function),
                site.offset
            )?;
            if args.opcode {
                write!(out, "  {:#04x}", site.opcode)?;
            }
            writeln!(out, "  {}{}", site.rule, arguments(site))?;
        }
    }
    Ok(())
}

/// What looks like a probe and is none.
fn refusals(refused: &[Refused], out: &mut dyn Write) -> std::io::Result<()> {
    refused.iter().try_for_each(|Refused { module, reason }| writeln!(out, "refused in {module}: {reason}"))
}

/// What is known of the arguments at a site.
fn arguments(site: &Site) -> String {
    if site.shown.is_empty() { String::new() } else { format!("  ({})", site.shown.join(", ")) }
}

/// The linear address of a site that has one; in a user module's code the offset in its file, in its data the address as
/// linked.
fn address(site: &Site) -> Option<u64> {
    match site.place {
        Place::Kernel { linear, .. } | Place::LockNop { linear, .. } | Place::Pointer { linear, .. } => {
            Some(linear)
        }
        Place::User { offset, .. } | Place::Question { offset, .. } => Some(offset),
        Place::Semaphore { address, .. } | Place::UserPointer { address, .. } => Some(address),
        _ => None,
    }
}

fn json_lines(
    (name, bits): (&str, u8),
    (found, refused): (&[Probe], &[Refused]),
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let header = json!({"type": "header", "version": 1, "image": name, "width": bits});
    writeln!(out, "{header}")?;
    for Probe { id, name, sites, .. } in found {
        let sites: Vec<Value> = sites.iter().map(site_json).collect();
        let line = json!({
            "type": "probe", "id": id, "provider": *name.provider, "module": *name.module,
            "function": *name.function, "name": *name.name, "sites": sites,
        });
        writeln!(out, "{line}")?;
    }
    for Refused { module, reason } in refused {
        writeln!(out, "{}", json!({"type": "refused", "module": module, "reason": reason}))?;
    }
    writeln!(out, "{}", json!({"type": "end", "probes": found.len(), "exit": 0}))
}

fn site_json(site: &Site) -> Value {
    json!({
        "address": address(site).map(|at| format!("{at:#x}")), "offset": site.offset,
        "opcode": format!("{:#04x}", site.opcode), "rule": site.rule, "arguments": site.shown,
    })
}
