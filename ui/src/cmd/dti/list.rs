//! `dti list`: the channels, with their levels and numbers of records.

use std::io::Write;

use serde_json::{Value, json};
use trapline_dti::{Channel, Contents, Found, table};

use super::printer;
use super::source::Source;
use crate::cli::{DtiListArgs, Format};
use crate::ctrl_c;
use crate::failure::{Exit, Failure};
use crate::talk::Talk;

/// Runs the command.
///
/// # Errors
/// Bad files or options, or a position that is not reached.
pub fn run(args: &DtiListArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let signals = ctrl_c::prepare();
    let Some(source) = Source::open(&args.source, &signals.run(), talk)? else {
        return Ok(Exit::Interrupted);
    };
    let found = source.find();
    let read: Vec<(&Channel, Contents)> =
        found.channels.iter().map(|channel| (channel, channel.read(source.memory()))).collect();
    let written = match args.source.form.format {
        Format::Json => objects(&found, &read).iter().try_for_each(|object| writeln!(out, "{object}")),
        Format::Text => table(&found, &read).iter().try_for_each(|line| writeln!(out, "{line}")),
    };
    written.map_err(Failure::Output)?;
    printer::warn(&found, talk);
    read.iter().for_each(|(channel, contents)| printer::warn_of(channel, contents, talk));
    Ok(source.exit())
}

/// A JSON object for each channel, each unbound handle and each damaged mark.
pub fn objects(found: &Found, read: &[(&Channel, Contents)]) -> Vec<Value> {
    let channels = read.iter().map(|(channel, contents)| {
        let (subbufs, size) = channel.subbufs();
        let cpus = contents.cpus.iter().map(|cpu| {
            json!({
                "entered": cpu.entered,
                "too_long": cpu.too_long,
                "nested": cpu.nested,
                "incomplete": cpu.incomplete,
                "damage": cpu.damage.as_ref().map(ToString::to_string),
            })
        });
        json!({
            "name": channel.name(),
            "state": channel.origin().state(),
            "level": channel.level(),
            "vaddr": channel.vaddr(),
            "paddr": channel.paddr(),
            "subbufs": subbufs,
            "subbuf_size": size,
            "records": contents.records().count(),
            "unread": contents.records().filter(|record| record.unread).count(),
            "cpus": cpus.collect::<Vec<_>>(),
        })
    });
    let unbound = found.unbound.iter().map(|handle| {
        json!({"name": handle.name, "state": "unbound", "level": handle.level, "paddr": handle.paddr})
    });
    let damaged = found.damaged.iter().map(|damaged| {
        let damage = damaged.damage.to_string();
        json!({"name": damaged.name, "state": "damaged", "paddr": damaged.paddr, "damage": damage})
    });
    channels.chain(unbound).chain(damaged).collect()
}
