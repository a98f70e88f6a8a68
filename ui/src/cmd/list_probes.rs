//! `trapline list IMAGE SPEC`: the probes that a description names, as `dtrace -l` lists them.

use std::io::Write;

use serde_json::{Value, json};
use trapline_interposer::Place;
use trapline_providers::{Probe, Site, find};

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
    let written = match args.format {
        Format::Text => text(args, guest, &found, out),
        Format::Json => json_lines(guest, &found, out),
    };
    written.and_then(|()| out.flush()).map_err(Failure::Output)?;
    talk.note(&format!("description '{description}' matched {}", counted(found.len() as u64, "probe")));
    Ok(Exit::Ok)
}

fn text(args: &ListArgs, guest: &Guest, found: &[Probe], out: &mut dyn Write) -> std::io::Result<()> {
    let digits = digits(guest);
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
            write!(out, "      {at:#0digits$x}  {}+{:#x}", name.function, site.offset)?;
            if args.opcode {
                write!(out, "  {:#04x}", site.opcode)?;
            }
            writeln!(out, "  {}", site.rule)?;
        }
    }
    Ok(())
}

/// The linear address of a site that has one.
fn address(site: &Site) -> Option<u64> {
    match site.place {
        Place::Kernel { linear, .. } | Place::LockNop { linear, .. } => Some(linear),
        _ => None,
    }
}

fn json_lines(guest: &Guest, found: &[Probe], out: &mut dyn Write) -> std::io::Result<()> {
    let header = json!({"type": "header", "version": 1, "image": guest.name, "width": bits(guest)});
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
        "opcode": format!("{:#04x}", site.opcode), "rule": site.rule,
    })
}
