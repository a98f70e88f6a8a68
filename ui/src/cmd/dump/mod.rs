//! `trapline dump`: the memory and registers of a machine, as a crash of its kernel would leave them.

mod info;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trapline_session::{
    Compression, Condition, DEFAULT_MEMORY, Ending, GuestBuilder, HISTORY_MEM, Limits, Places, Position,
    Probing, Recording, Script, Session, Timeline, TravelError, Vmcore, counted,
};
use trapline_trace::{HeaderItems, TextSink};

use super::travel;
use crate::cli::DumpArgs;
use crate::failure::{Exit, Failure};
use crate::output::Outputs;
use crate::reserved_file::ReservedFile;
use crate::talk::Talk;
use crate::{ctrl_c, no_effect, options, overwrite};

/// Runs the command.
///
/// # Errors
/// Bad files or options, a position that is not reached, a dump that cannot be written.
pub fn run(args: &DumpArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    no_effect::of_dump(args)?;
    let Some(to) = &args.output else {
        info::print(&args.image, args.form.format, out)?;
        return Ok(Exit::Ok);
    };
    overwrite::check(inputs(args), [("the dump", to.as_path())])?;
    let signals = ctrl_c::prepare();
    let file = ReservedFile::reserve(to)?;
    let reached = if args.is_recording() {
        recorded(args, &Arc::clone(&signals.run()))
    } else {
        live(args, &Arc::clone(&signals.run()), talk)
    };
    let (session, exit) = match reached {
        Ok(Some(reached)) => reached,
        Ok(None) => {
            file.give_up();
            talk.warn("the run was interrupted, and no dump was written");
            return Ok(Exit::Interrupted);
        }
        Err(failure) => {
            file.give_up();
            return Err(failure);
        }
    };
    write(&file, &session.vmcore(), args.compress.map_or(Compression::None, Compression::from))?;
    talk.note(&format!(
        "the machine after {} is in {}",
        counted(session.icount(), "instruction"),
        to.display()
    ));
    Ok(exit)
}

/// The files that are read.
fn inputs(args: &DumpArgs) -> impl Iterator<Item = &Path> {
    let modules = args.module.iter().map(|text| Path::new(options::module_file(text).0));
    let files = [Some(args.image.as_path()), args.initrd.as_deref(), args.devices.disk.as_deref()];
    files.into_iter().flatten().chain(modules).chain(args.sym.iter().map(PathBuf::as_path))
}

type Cancelled = Arc<std::sync::atomic::AtomicBool>;

/// A machine at its position, and the exit code; nothing if a signal has ended the run.
type Reached = Result<Option<(Session, Exit)>, Failure>;

/// Goes to the position in a recording.
fn recorded(args: &DumpArgs, cancelled: &Cancelled) -> Reached {
    options::check_folders(&args.image_dir)?;
    let recording = Recording::read(&args.image)?;
    let places = Places { folders: args.image_dir.clone(), ..Places::of(&args.image) };
    let guest = GuestBuilder::of_recording(&recording, &places)?.open()?;
    let session = guest.start(recording.config().probing.clone())?;
    let timeline = Timeline::of(session, &recording, |_| true, HISTORY_MEM).map_err(travel::failure)?;
    let mut timeline = timeline.cancelled_by(Arc::clone(cancelled));
    match timeline.goto(args.at.unwrap_or(Position::BeforeEnd(0))) {
        Ok(_) => Ok(Some((timeline.into_session(), Exit::Ok))),
        Err(TravelError::Interrupted) => Ok(None),
        Err(error) => Err(travel::failure(error)),
    }
}

/// Runs a guest to the position.
fn live(args: &DumpArgs, cancelled: &Cancelled, talk: &Talk) -> Reached {
    let at = match args.at {
        None => None,
        Some(Position::At { icount, ordinal: 0 }) => Some(icount),
        Some(other) => {
            let text = format!(
                "--at {other} is a position in a recording; give an instruction count, or record the run"
            );
            return Err(Failure::Usage(text));
        }
    };
    let guest = options::open(&guest(args), talk)?;
    let mut session = guest.start(Probing::default())?;
    let condition = args.until.iter().fold(Condition::end(), |condition, text| condition.or_console(text));
    let limits =
        Limits::insns(at.or(args.limit_insns).unwrap_or(u64::MAX)).cancelled_by(Arc::clone(cancelled));
    let sink = Box::new(TextSink::new(io::sink(), HeaderItems::default()));
    let ending = session.run(&mut Script::default(), &condition, &limits, &mut Outputs::only(sink, *talk))?;
    match (&ending, at) {
        (Ending::Interrupted, _) => Ok(None),
        (Ending::Limit, Some(_)) => Ok(Some((session, Exit::Ok))),
        (_, Some(at)) => Err(Failure::Usage(format!(
            "{ending} after {}, before the position {at}; without --at the machine is dumped there",
            counted(session.icount(), "instruction")
        ))),
        (_, None) => {
            talk.note(&format!("{ending} after {}", counted(session.icount(), "instruction")));
            Ok(Some((session, Exit::from(&ending))))
        }
    }
}

fn guest(args: &DumpArgs) -> GuestBuilder {
    let image = options::image(&args.image.to_string_lossy(), args.initrd.as_deref(), &args.sym);
    let guest = args.devices.add_to(image.memory(args.mem.unwrap_or(DEFAULT_MEMORY)));
    let guest = args.module.iter().fold(guest, |guest, text| options::module(guest, text));
    options::with_cmdline(guest, &args.cmdline)
}

/// Writes a dump, in place of what the file held.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &ReservedFile<'_>, vmcore: &Vmcore<'_>, compression: Compression) -> Result<(), Failure> {
    let written = File::create(file.path()).and_then(|file| {
        let mut file = io::BufWriter::with_capacity(1 << 20, file);
        vmcore.write(&mut file, compression)
    });
    written.map_err(|error| Failure::writing(Some(file.path()), error))
}
