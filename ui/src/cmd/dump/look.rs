//! `dump --list`: what is in the memory of a dump.

use std::io::{self, Write};
use std::path::Path;

use serde_json::json;
use trapline_session::{
    DumpFile, Guest, How, ListError, Listing, Look, Session, StackFrame, StillError, TaskStack, Wanted,
};

use crate::cli::{DumpArgs, Format, Listed};
use crate::cmd::dump_file::warn_if_cut;
use crate::cmd::rows::json_lines;
use crate::failure::{Exit, Failure};
use crate::talk::Talk;

/// Characters of an address with its `0x`.
fn digits(guest: &Guest) -> usize {
    2 + 2 * guest.target().width().bytes()
}

/// Most frames of a stack.
const DEPTH: usize = 64;

/// The machine of a dump, and its kernel.
///
/// # Errors
/// The file is no dump, or no kernel is found.
pub fn open(path: &Path, look: &Look, raw: bool, talk: &Talk) -> Result<(Guest, Session), Failure> {
    let opened = if raw { DumpFile::raw(path) } else { DumpFile::open(path) };
    let file = opened.map_err(|error| Failure::Dump { path: path.to_owned(), error })?;
    warn_if_cut(path, &file, talk);
    let found = Session::of_dump(file, look).map_err(|error| match error {
        StillError::Guest(error) => error.into(),
        error => Failure::Still { path: path.to_owned(), error: Box::new(error) },
    })?;
    found.0.notes().iter().for_each(|note| talk.warn(note));
    Ok(found)
}

/// How the options want a dump to be looked at.
pub fn look(args: &DumpArgs) -> Look {
    Look { symbols: args.symbols.clone(), cr3: args.cr3, ..Look::default() }
}

/// Prints a list.
///
/// # Errors
/// The file is no dump, it has no such list, or standard output cannot be written.
pub fn list(args: &DumpArgs, what: Listed, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let (guest, session) = open(&args.image, &look(args), args.raw, talk)?;
    let format = args.form.format;
    let written = match what {
        Listed::Processes => listing(args, &guest, &session, &Wanted::Processes, out, talk)?,
        Listed::Modules => listing(args, &guest, &session, &Wanted::Modules, out, talk)?,
        Listed::Stacks => {
            warn_if_damaged(&session, &Wanted::Processes, talk);
            stacks(&session.stacks(DEPTH), format, digits(&guest), out)
        }
        Listed::Console => {
            let log = session.log().map_err(|error| Failure::NoLog { path: args.image.clone(), error })?;
            console(&log, format, out)
        }
    };
    written.and_then(|()| out.flush()).map_err(Failure::Output)?;
    Ok(Exit::Ok)
}

/// What a dump has.
///
/// # Errors
/// Nothing matches, or it is not known where the kernel keeps it.
pub fn find(
    path: &Path,
    guest: &Guest,
    session: &Session,
    wanted: &Wanted,
    has_symbols: bool,
) -> Result<Listing, Failure> {
    let found = session.present(|present| Listing::find(guest.target(), Some(present), wanted));
    found.map_err(|error| match error {
        ListError::UnknownSystem if !has_symbols => {
            Failure::Still { path: path.to_owned(), error: Box::new(StillError::NoTasks) }
        }
        error => error.into(),
    })
}

/// Says why a list of modules or processes has not all of them.
pub fn warn_if_damaged(session: &Session, wanted: &Wanted, talk: &Talk) {
    if let Some(damage) = session.present(|present| Listing::damage(present, wanted)) {
        talk.warn(&damage);
    }
}

/// As `trapline list` prints it.
fn listing(
    args: &DumpArgs,
    guest: &Guest,
    session: &Session,
    wanted: &Wanted,
    out: &mut dyn Write,
    talk: &Talk,
) -> Result<io::Result<()>, Failure> {
    let found = find(&args.image, guest, session, wanted, args.symbols.is_some())?;
    warn_if_damaged(session, wanted, talk);
    let how = How { digits: digits(guest), ..How::default() };
    let image = args.image.display().to_string();
    let written = match args.form.format {
        Format::Text => found.text(how).iter().try_for_each(|line| writeln!(out, "{line}")),
        Format::Json => json_lines((&image, guest.target().width().bits()), (&found, &[]), Exit::Ok, out),
    };
    talk.note(&found.sentence(wanted));
    Ok(written)
}

fn stacks(all: &[TaskStack], format: Format, digits: usize, out: &mut dyn Write) -> io::Result<()> {
    if format == Format::Json {
        return all.iter().try_for_each(|stack| {
            let frame =
                |frame: &StackFrame| json!({"ip": format!("{:#x}", frame.ip), "symbol": frame.symbol});
            let frames: Vec<_> = stack.frames.iter().map(frame).collect();
            let TaskStack { pid, tgid, name, running, ended, .. } = stack;
            let row = json!({
                "type": "stack", "pid": pid, "tgid": tgid, "name": name, "running": running, "ended": ended,
                "frames": frames,
            });
            writeln!(out, "{row}")
        });
    }
    writeln!(out, "{:>7} {:>7}  {:16}  STATE", "PID", "TGID", "NAME")?;
    for TaskStack { pid, tgid, name, running, ended, frames } in all {
        let state = match (running, ended, frames.is_empty()) {
            (true, ..) => "running",
            (false, true, _) => "ended, no stack",
            (false, false, true) => "stack not known",
            (false, false, false) => "-",
        };
        writeln!(out, "{pid:>7} {tgid:>7}  {name:16}  {state}")?;
        for StackFrame { ip, symbol } in frames {
            writeln!(out, "        {ip:#0digits$x}  {}", symbol.as_deref().unwrap_or("-"))?;
        }
    }
    Ok(())
}

fn console(log: &[u8], format: Format, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Text => out.write_all(log),
        Format::Json => String::from_utf8_lossy(log)
            .lines()
            .try_for_each(|line| writeln!(out, "{}", json!({"type": "console", "text": line}))),
    }
}
