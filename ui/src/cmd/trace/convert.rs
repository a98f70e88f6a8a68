//! `trapline trace convert`: a trace file in the format of another tool.

use std::io::Write;
use std::path::Path;

use trapline_export::{FlameForm, FlameSink, Notes, Stacks, Tree, Weight};
use trapline_trace::{End, HeaderItems, Logged, ShowError, Sink};

use super::{damaged, open, open_watched};
use crate::cli::{ConvertArgs, RecordFormat};
use crate::failure::{Exit, Failure};
use crate::output::{Form, no_terminal, to_file, to_stdout};
use crate::talk::Talk;
use crate::{no_effect, overwrite};

/// Runs the command.
///
/// # Errors
/// Bad files, files that do not hold what the format needs, or an output that cannot be written.
pub fn convert(args: &ConvertArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let format = args.to.format();
    no_effect::of_convert(args)?;
    check(args, format)?;
    let inputs = std::iter::once(args.file.as_path()).chain(args.diff.as_deref());
    overwrite::check(inputs, args.output.as_deref().map(|path| ("the output", path)))?;
    no_terminal(format, args.output.is_none())?;
    let before = args.diff.as_deref().map(|path| stacks(path, args.weight.as_ref())).transpose()?;
    let (mut reader, _progress) = open_watched(&args.file, talk)?;
    let (items, notes) = (reader.head().items, Notes::default());
    let mut sink = sink(args, (items, before), &notes, out)?;
    let writing = |error| Failure::writing(args.output.as_deref(), error);
    let shown = reader.show(&mut sink, |_| {});
    let result = match shown {
        Ok(()) => Ok(()),
        Err(ShowError::Sink(error)) => Err(writing(error)),
        Err(ShowError::File(error)) => {
            // The other formats are completed, so that what precedes the damage can be used.
            match format {
                RecordFormat::Json | RecordFormat::Csv => sink.break_off(),
                _ => sink.end(&End::default()),
            }
            .map_err(writing)?;
            Err(damaged(&args.file, error))
        }
    };
    drop(sink);
    notes.take().iter().for_each(|note| talk.note(note));
    result?;
    let missing = notes.missing().map(|why| Failure::NotInTrace { path: args.file.clone(), why });
    missing.map_or(Ok(Exit::Ok), Err)
}

/// Refuses what cannot be read or written.
fn check(args: &ConvertArgs, format: RecordFormat) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
    if format == RecordFormat::Ctf && args.output.is_none() {
        return usage("a CTF trace is a folder; name it with -o FOLDER");
    }
    if args.diff.as_deref() == Some(Path::new("-")) && args.file == Path::new("-") {
        return usage("standard input is one trace file; give the other one by its name");
    }
    Ok(())
}

/// The sink of the format, with its destination.
fn sink<'a>(
    args: &ConvertArgs,
    (items, before): (HeaderItems, Option<Tree>),
    notes: &Notes,
    out: &'a mut dyn Write,
) -> Result<Logged<'a>, Failure> {
    let format = args.to.format();
    let destination = match &args.output {
        Some(path) => to_file(format, path),
        None => to_stdout(out, false),
    };
    let flame = match format {
        RecordFormat::Folded => Some(FlameForm::Folded),
        RecordFormat::Svg => Some(FlameForm::Svg),
        RecordFormat::Pprof => Some(FlameForm::Pprof),
        _ => None,
    };
    let folder = args.output.clone().unwrap_or_default();
    let form = Form { folder, notes: notes.clone(), ..Form::new(format, items, false, None)? };
    let (weight, notes) = (args.weight.clone(), notes.clone());
    Ok(match flame {
        None => Logged::new(form.name(), |page| form.sink(page), destination),
        Some(flame) => {
            let made = |page| FlameSink::new(page, flame, items, weight, notes).compared_with(before);
            Logged::new(form.name(), |page| Box::new(made(page)), destination)
        }
    })
}

/// The stacks of the file to compare with.
fn stacks(path: &Path, weight: Option<&Weight>) -> Result<Tree, Failure> {
    let mut reader = open(path)?;
    let mut stacks = Stacks::new(weight.cloned(), reader.head().items);
    match reader.show(&mut stacks, |_| {}) {
        Ok(()) => {}
        Err(ShowError::File(error)) => return Err(damaged(path, error)),
        Err(ShowError::Sink(error)) => return Err(Failure::writing(None, error)),
    }
    let found = stacks.finish(&Notes::default());
    let (tree, _) =
        found.map_err(|why| Failure::NotInTrace { path: path.to_owned(), why: why.to_string() })?;
    Ok(tree)
}
