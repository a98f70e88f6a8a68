//! `trapline dti`: the channels that drivers trace to, of a machine or of a crash dump.

mod follow;
mod list;
mod printer;
mod source;

use std::io::Write;

use crate::cli::{DtiArgs, DtiCommand, DtiShowArgs};
use crate::ctrl_c;
use crate::failure::{Exit, Failure};
use crate::talk::Talk;

use printer::Printer;
use source::Source;

/// Runs the command.
///
/// # Errors
/// Bad files or options, a position that is not reached, a channel that does not exist.
pub fn run(args: &DtiArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    match &args.command {
        DtiCommand::List(args) => list::run(args, out, talk),
        DtiCommand::Show(args) => show(args, out, talk),
        DtiCommand::Follow(args) => follow::run(args, out, talk),
    }
}

fn show(args: &DtiShowArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let printer = Printer::new(&args.records, args.source.form.format)?;
    let signals = ctrl_c::prepare();
    let Some(source) = Source::open(&args.source, &signals.run(), talk)? else {
        return Ok(Exit::Interrupted);
    };
    let found = source.find();
    let channels = printer.selected(&found)?;
    let read: Vec<_> = channels.iter().map(|channel| (*channel, channel.read(source.memory()))).collect();
    let all =
        read.iter().flat_map(|(channel, contents)| contents.records().map(move |record| (*channel, record)));
    printer.print(all, out)?;
    printer::warn(&found, talk);
    read.iter().for_each(|(channel, contents)| printer::warn_of(channel, contents, talk));
    Ok(source.exit())
}
