//! `trapline list IMAGE SPEC`: the probes that a description names, as `dtrace -l` lists them.

use std::io::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use trapline_emu::symbols::UserModule;
use trapline_interposer::Place;
use trapline_providers::{Description, MatchError, Probe, Site, find, user_probes};

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
    let found = find(&guest.target, description)?;
    write(args, (digits(guest), bits(guest)), description, &found, out, talk)
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
    if found.is_empty() {
        let nothing = MatchError::Nothing { description: wanted.to_string(), near: Vec::new() };
        return Err(nothing.into());
    }
    let bits = module.width().bits() as u8;
    write(args, (2 + usize::from(bits) / 4, bits), description, &found, out, talk)
}

fn write(
    args: &ListArgs,
    (digits, bits): (usize, u8),
    description: &str,
    found: &[Probe],
    out: &mut dyn Write,
    talk: &Talk,
) -> Result<Exit, Failure> {
    let written = match args.format {
        Format::Text => text(args, digits, found, out),
        Format::Json => json_lines((&args.guest.image, bits), found, out),
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

/// What is known of the arguments at a site.
fn arguments(site: &Site) -> String {
    if site.shown.is_empty() { String::new() } else { format!("  ({})", site.shown.join(", ")) }
}

/// The linear address of a site that has one; of a user module's the offset in its file.
fn address(site: &Site) -> Option<u64> {
    match site.place {
        Place::Kernel { linear, .. } | Place::LockNop { linear, .. } | Place::Pointer { linear, .. } => {
            Some(linear)
        }
        Place::User { offset, .. } | Place::UserExit { offset, .. } => Some(offset),
        _ => None,
    }
}

fn json_lines((name, bits): (&str, u8), found: &[Probe], out: &mut dyn Write) -> std::io::Result<()> {
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
    writeln!(out, "{}", json!({"type": "end", "probes": found.len(), "exit": 0}))
}

fn site_json(site: &Site) -> Value {
    json!({
        "address": address(site).map(|at| format!("{at:#x}")), "offset": site.offset,
        "opcode": format!("{:#04x}", site.opcode), "rule": site.rule, "arguments": site.shown,
    })
}
