//! `trapline trace cat`: prints trace files as the run itself would have been printed.

use std::io::Write;

use serde_json::Value;
use trapline_trace::{Destination, End, Entry, Event, FileDestination, Logged, ShowError};

use super::{Reader, damaged, open_watched};
use crate::cli::{CatArgs, RecordFormat};
use crate::failure::{Exit, Failure};
use crate::output::{Form, no_terminal, to_stdout};
use crate::overwrite;
use crate::talk::Talk;

/// Runs the command.
///
/// # Errors
/// Bad files, or an output that cannot be written.
pub fn cat(args: &CatArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    if args.stats && args.format == RecordFormat::Raw {
        let text = "--stats goes with -f text, json or dtrace: -f raw copies the file as it is";
        return Err(Failure::Usage(text.to_owned()));
    }
    no_terminal(args.format, args.output.is_none())?;
    overwrite::check([args.file.as_path()], args.output.as_deref().map(|path| ("the output", path)))?;
    let (mut reader, _progress) = open_watched(&args.file, talk)?;
    let items = reader.head().items;
    let form = Form::new(args.format, items, args.symbols, args.templates.as_deref())?;
    let form = Form { paint: talk.paint(args.output.is_none()), ..form };
    let destination: Box<dyn Destination + '_> = match &args.output {
        Some(path) => Box::new(FileDestination::new(path)),
        None => to_stdout(out, false),
    };
    if args.format == RecordFormat::Raw {
        copy(&mut reader, destination, args)?;
    } else {
        let sink = Logged::new(form.name(), |page| form.sink(page), destination);
        print(&mut reader, sink, args, talk)?;
    }
    Ok(Exit::Ok)
}

/// Shows each piece to the sink that `run` would have used. All pieces before a damaged one arrive.
fn print(reader: &mut Reader, mut sink: Logged<'_>, args: &CatArgs, talk: &Talk) -> Result<(), Failure> {
    let writing = |error| Failure::writing(args.output.as_deref(), error);
    let mut counters = Vec::new();
    let shown = reader.show(&mut sink, |end| {
        if args.stats {
            counters = with_stats(end);
        }
    });
    match shown {
        Ok(()) if args.stats && args.format != RecordFormat::Json => {
            for (name, value) in &counters {
                talk.counter(name, value);
            }
            if counters.is_empty() {
                let file = args.file.display();
                talk.note(&format!("{file} holds no counters: an older version wrote it without --stats"));
            }
            Ok(())
        }
        Ok(()) => Ok(()),
        Err(ShowError::Sink(error)) => Err(writing(error)),
        Err(ShowError::File(error)) => {
            sink.break_off().map_err(writing)?;
            Err(damaged(&args.file, error))
        }
    }
}

/// Adds the counters to the JSON end line, as `run --stats` does, and returns them.
fn with_stats(end: &mut End) -> Vec<(String, Value)> {
    let there = end.extra.iter().find(|(name, _)| name == "stats").and_then(|(_, value)| value.as_object());
    if let Some(stats) = there {
        return stats.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    }
    if !end.counters.is_empty() {
        let stats: serde_json::Map<_, _> = end.counters.iter().cloned().collect();
        end.extra.push(("stats".to_owned(), stats.into()));
    }
    end.counters.clone()
}

/// Copies the whole pieces as they are.
fn copy(reader: &mut Reader, mut to: Box<dyn Destination + '_>, args: &CatArgs) -> Result<(), Failure> {
    let writing = |error| Failure::writing(args.output.as_deref(), error);
    let name = args.file.display().to_string();
    to.create(&Event { desc: format!("a copy of {name}"), name, format: "raw" }).map_err(writing)?;
    let copied = loop {
        to.log(&Entry { icount: None, data: reader.raw() }).map_err(writing)?;
        match reader.next_piece() {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    to.destroy().map_err(writing)?;
    copied.map(|_| ()).map_err(|error| damaged(&args.file, error))
}
