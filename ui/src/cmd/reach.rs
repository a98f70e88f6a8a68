//! A machine at a position: of a guest that is run to it, or of a recording.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trapline_session::{
    Condition, DEFAULT_MEMORY, Ending, HISTORY_MEM, Limits, Places, Position, Probing, RecordedCourse,
    Recording, Script, Session, Timeline, TravelError, Way, counted, read_file,
};
use trapline_trace::{HeaderItems, TextSink};

use super::travel;
use crate::cli::{MachineArgs, is_recording};
use crate::failure::{Exit, Failure};
use crate::options;
use crate::output::Outputs;
use crate::progress::of_runs;
use crate::talk::Talk;

/// The flag that a signal sets.
pub type Cancelled = Arc<AtomicBool>;

/// A machine at its position, and the exit code; nothing if a signal has ended the run.
pub type Reached = Result<Option<(Session, Exit)>, Failure>;

/// The files that are read.
pub fn inputs<'a>(image: &'a Path, args: &'a MachineArgs) -> impl Iterator<Item = &'a Path> {
    let modules = args.module.iter().map(|text| Path::new(options::module_file(text).0));
    let files = [Some(image), args.initrd.as_deref()];
    files
        .into_iter()
        .flatten()
        .chain(args.devices.files())
        .chain(modules)
        .chain(args.sym.iter().map(PathBuf::as_path))
}

/// Goes to the position that the options name. From a snapshot without a position, nothing runs.
///
/// # Errors
/// Bad files, or a position that is not reached.
pub fn machine(
    image: &Path,
    args: &MachineArgs,
    snapshot: Option<&Path>,
    cancelled: &Cancelled,
    talk: &Talk,
) -> Reached {
    if is_recording(image) {
        return recorded(image, args, cancelled, talk);
    }
    let mut session = start(image, args, snapshot, talk)?;
    if let Some(path) = snapshot {
        restore(&mut session, path)?;
        if args.at.is_none() && args.until.is_empty() && args.limit_insns.is_none() {
            return Ok(Some((session, Exit::Ok)));
        }
    }
    live(session, args, cancelled, talk)
}

/// A guest before its first instruction, which can be restored from this snapshot.
///
/// # Errors
/// Bad files.
pub fn start(
    image: &Path,
    args: &MachineArgs,
    snapshot: Option<&Path>,
    talk: &Talk,
) -> Result<Session, Failure> {
    let probing = probing_of_snapshot(snapshot)?.unwrap_or_default();
    let image = options::image(&image.to_string_lossy(), args.initrd.as_deref(), &args.sym);
    let guest = args.devices.add_to(image.memory(args.mem.unwrap_or(DEFAULT_MEMORY)));
    let guest = args.module.iter().fold(guest, |guest, text| options::module(guest, text));
    let guest = options::open(&options::with_cmdline(guest, &args.cmdline), talk)?;
    Ok(guest.start(probing)?)
}

/// What the probes of the snapshot in this file recorded, if there is one and it has probes.
///
/// # Errors
/// The file cannot be read, or is no snapshot.
pub fn probing_of_snapshot(path: Option<&Path>) -> Result<Option<Probing>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let probing = trapline_session::probing_of_snapshot(&read_file(path)?);
    probing.map_err(|error| Failure::Snapshot { path: path.to_owned(), error })
}

/// Restores a session from a snapshot in a file.
///
/// # Errors
/// The file cannot be read, or is of another session.
pub fn restore(session: &mut Session, path: &Path) -> Result<(), Failure> {
    let file = read_file(path)?;
    let restored = session.read_snapshot(&file).and_then(|saved| session.restore(&saved));
    restored.map_err(|error| Failure::Snapshot { path: path.to_owned(), error })
}

/// A recording in which one can go to positions.
///
/// # Errors
/// The recording or its files cannot be read.
pub fn timeline(image: &Path, args: &MachineArgs, cancelled: &Cancelled) -> Result<Timeline, Failure> {
    options::check_folders(&args.image_dir)?;
    let recording = Recording::read(image)?;
    let places = Places { folders: args.image_dir.clone(), ..Places::of(image) };
    let guest = options::of_recording(&recording, &places)?.open()?;
    let mut session = guest.start(recording.config().probing.clone())?;
    let mut course = RecordedCourse::of(&recording, Way::Same, |_| true);
    session.begin_as(&mut course).map_err(|diverged| Failure::Diverged(diverged.to_string()))?;
    let timeline = Timeline::of(session, &recording, |_| true, HISTORY_MEM).map_err(travel::failure)?;
    Ok(timeline.cancelled_by(Arc::clone(cancelled)))
}

/// Goes to the position in a recording.
fn recorded(image: &Path, args: &MachineArgs, cancelled: &Cancelled, talk: &Talk) -> Reached {
    let mut timeline = timeline(image, args, cancelled)?;
    let at = args.at.unwrap_or(Position::BeforeEnd(0));
    let end = timeline.end().and_then(|(end, _)| count_of(at, end.icount));
    let _progress = talk.progress(of_runs(end));
    match timeline.goto(at) {
        Ok(_) => Ok(Some((timeline.into_session(), Exit::Ok))),
        Err(TravelError::Interrupted) => Ok(None),
        Err(error) => Err(travel::failure(error)),
    }
}

/// The instruction count of a position in a run of this length; nothing if only the run shows it.
pub fn count_of(position: Position, length: u64) -> Option<u64> {
    match position {
        Position::At { icount, .. } => Some(icount.min(length)),
        Position::BeforeEnd(before) => Some(length.saturating_sub(before)),
        Position::Hit(_) | Position::InHit { .. } => None,
    }
}

/// The instruction count that `--at` names for a guest.
///
/// # Errors
/// It names another position.
pub fn count(args: &MachineArgs) -> Result<Option<u64>, Failure> {
    match args.at {
        None => Ok(None),
        Some(Position::At { icount, ordinal: 0 }) => Ok(Some(icount)),
        Some(other) => {
            let text = format!(
                "--at {other} is a position in a recording; give an instruction count, or record the run"
            );
            Err(Failure::Usage(text))
        }
    }
}

/// Runs a guest to the position.
fn live(mut session: Session, args: &MachineArgs, cancelled: &Cancelled, talk: &Talk) -> Reached {
    let at = count(args)?;
    if let Some(at) = at.filter(|at| *at < session.icount()) {
        let text = format!(
            "--at {at} is before the snapshot, which is after {}",
            counted(session.icount(), "instruction")
        );
        return Err(Failure::Usage(text));
    }
    let condition = args.until.iter().fold(Condition::end(), |condition, text| condition.or_console(text));
    let _progress = talk.progress(of_runs(at.or(args.limit_insns)));
    let limits =
        Limits::insns(at.or(args.limit_insns).unwrap_or(u64::MAX)).cancelled_by(Arc::clone(cancelled));
    let sink = Box::new(TextSink::new(io::sink(), HeaderItems::default()));
    let ending = session.run(&mut Script::default(), &condition, &limits, &mut Outputs::only(sink, *talk))?;
    match (&ending, at) {
        (Ending::Interrupted, _) => Ok(None),
        (Ending::Limit, Some(_)) => Ok(Some((session, Exit::Ok))),
        (_, Some(at)) => Err(Failure::Usage(format!(
            "{ending} after {}, before the position {at}; without --at the machine is taken there",
            counted(session.icount(), "instruction")
        ))),
        (_, None) => {
            talk.note(&format!("{ending} after {}", counted(session.icount(), "instruction")));
            Ok(Some((session, Exit::from(&ending))))
        }
    }
}
