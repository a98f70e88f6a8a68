//! `trapline dti`: the channels that drivers trace to, of a machine or of a crash dump.

mod follow;
mod list;
mod printer;
pub mod save;
mod source;

use std::io::Write;
use std::path::Path;

use trapline_dti::{Channel, Contents, Cursor};
use trapline_session::{counted, read_file};

use crate::cli::{DtiArgs, DtiCommand, DtiShowArgs};
use crate::ctrl_c;
use crate::failure::{Exit, Failure};
use crate::reserved_file;
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
    match &args.cursor {
        Some(path) => after_cursor(path, args.reset, &read, (&printer, out, talk))?,
        None => {
            let all = read
                .iter()
                .flat_map(|(channel, contents)| contents.records().map(move |record| (*channel, record)));
            printer.print(all, out)?;
        }
    }
    printer::warn(&found, talk);
    read.iter().for_each(|(channel, contents)| printer::warn_of(channel, contents, talk));
    Ok(source.exit())
}

/// Prints the records after the position in a file, and moves it behind them.
fn after_cursor(
    path: &Path,
    reset: bool,
    read: &[(&Channel, Contents)],
    (printer, out, talk): (&Printer<'_>, &mut dyn Write, &Talk),
) -> Result<(), Failure> {
    let mut cursor = Cursor::new();
    if path.exists() {
        let text = read_file(path)?;
        cursor = Cursor::from_json(&text).ok_or_else(|| {
            Failure::Usage(format!("--cursor: {} is not a file that --cursor has written", path.display()))
        })?;
    }
    if reset {
        cursor.reset();
    }
    let mut lost = 0;
    let mut all = Vec::new();
    for (channel, contents) in read {
        let fresh = cursor.fresh(channel, contents);
        lost += fresh.lost;
        all.extend(fresh.records.into_iter().map(|record| (*channel, record)));
    }
    printer.print(all.into_iter(), out)?;
    out.flush().map_err(Failure::Output)?;
    if lost > 0 {
        let lost = counted(lost, "sub-buffer");
        talk.warn(&format!("{lost} overwritten before they were shown"));
    }
    reserved_file::replace(path, cursor.to_json().as_bytes())
}
