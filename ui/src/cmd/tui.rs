//! `trapline tui`: the hits of a live run or of a recording, in a terminal. The screen is the crate `trapline-tui`; here are its
//! options, and two sessions of the same run.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use trapline_d::Options;
use trapline_rpn::ppdf::disassemble;
use trapline_session::{
    Command, Condition, DEFAULT_MEMORY, DSource, DText, FileError, GuestBuilder, HISTORY_MEM, Limits,
    OwnPrograms, Places, Position, Probing, Recording, Session, SourceOptions, Timeline, Way, clause_option,
    file_name, read_file, text_of,
};
use trapline_trace::{ChannelConfig, Formatter, HeaderItems};
use trapline_tui::{Again, Colours, Course, Look, Opening, Settings, TuiError};

use super::insert::{commands, d_channel, d_options, insert, probing};
use super::replay::refuse_writers;
use super::run::begin_recording;
use super::same_run::{SameRun, ToRecord};
use super::travel;
use crate::cli::{Theme, TuiArgs};
use crate::failure::{Exit, Failure};
use crate::talk::Talk;
use crate::{no_effect, options, overwrite, reserved_file};

/// Runs the command.
///
/// # Errors
/// Before the screen is shown: bad files, programs and options, no terminal. Then: a terminal that cannot be used.
pub fn run(args: &TuiArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    no_effect::of_tui(args)?;
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "tui needs a terminal for its input and its output; `run` does not".to_owned(),
        ));
    }
    if let Some(folder) =
        args.session.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty())
        && !folder.is_dir()
    {
        return Err(Failure::Usage(format!(
            "--session: there is no folder {}; make it, or give a file in another one",
            folder.display()
        )));
    }
    let keys = keys(args)?;
    let source = options::source_of_run(&args.probes)?;
    let Opened { opening, programs, at, to_record } =
        if args.is_recording() { recorded(args, &source, talk)? } else { live(args, &source, talk)? };
    let look = Look { colours: colours(args, talk), utf8: utf8() };
    let session = session(args)?;
    let left = trapline_tui::run(opening, Settings { look, keys, programs, session, at }).map_err(
        |error| match (error, &args.session) {
            (TuiError::Saved(error), Some(path)) => Failure::TuiSession { path: path.clone(), error },
            (error, _) => Failure::Usage(error.to_string()),
        },
    )?;
    if let Some(sentence) = to_record.and_then(|to_record| to_record.give_up()) {
        talk.warn(&sentence);
    }
    if let Some(path) = &args.session {
        reserved_file::replace(path, left.session.as_bytes())?;
    }
    if args.frame_stats {
        writeln!(out, "{}", left.stats).map_err(Failure::Output)?;
    }
    Ok(if left.terminated { Exit::Interrupted } else { Exit::Ok })
}

/// The text of the session file, if it is there.
fn session(args: &TuiArgs) -> Result<Option<String>, Failure> {
    let Some(path) = args.session.as_deref().filter(|path| path.exists()) else { return Ok(None) };
    Ok(Some(text_of(path, read_file(path)?)?))
}

/// The text of the file of keys. The user's own file need not exist.
fn keys(args: &TuiArgs) -> Result<String, Failure> {
    let read = |path: &Path| -> Result<String, FileError> { text_of(path, read_file(path)?) };
    if let Some(path) = &args.keys {
        return Ok(read(path)?);
    }
    let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
    let path = folder.map(|folder| folder.join("trapline/keys.toml")).filter(|path| path.exists());
    Ok(path.map_or_else(|| Ok(String::new()), |path| read(&path))?)
}

fn colours(args: &TuiArgs, talk: &Talk) -> Colours {
    match (talk.colours_screen(), args.theme) {
        (false, _) => Colours::None,
        (true, Theme::Dark) => Colours::Dark,
        (true, Theme::Light) => Colours::Light,
    }
}

/// Whether the locale says that the terminal shows UTF-8.
fn utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The templates that show the data of records.
fn templates(args: &TuiArgs) -> Result<Option<Formatter>, Failure> {
    Ok(args.templates.as_deref().map(Formatter::initialise).transpose()?)
}

/// What probes record here: all items, since the list shows processes; and as much at a time as a D program that is added may
/// print, unless the user has chosen a ring of fixed size.
fn for_the_screen(probing: Probing) -> Probing {
    let ChannelConfig { sub_buffer_size: own, sub_buffers, most_sub_buffers: most } = probing.channel;
    let size = if most > sub_buffers { own.max(d_channel(&Options::default()).sub_buffer_size) } else { own };
    let channel = ChannelConfig { sub_buffer_size: size, ..probing.channel };
    Probing { header: HeaderItems::all(), channel, ..probing }
}

/// The session file, as an output.
fn written(args: &TuiArgs) -> Option<overwrite::Written<'_>> {
    args.session.as_deref().map(|path| ("the session file", path))
}

/// What the screen begins with.
struct Opened {
    opening: Opening,
    /// The texts of the programs.
    programs: Vec<String>,
    /// The first position; none for the beginning.
    at: Option<Position>,
    /// The recording that is made.
    to_record: Option<Arc<ToRecord>>,
}

fn live(args: &TuiArgs, source: &SourceOptions, talk: &Talk) -> Result<Opened, Failure> {
    let inputs = overwrite::of_guest(&args.guest).chain(overwrite::of_probes(&args.probes));
    let recording = args.recording.record.as_deref().map(|path| ("the recording", path));
    let outputs = recording.into_iter().chain(written(args));
    let inputs = inputs.chain(args.devices.files()).chain(args.keys.as_deref());
    overwrite::check(inputs.chain(args.templates.as_deref()), outputs)?;
    let templates = templates(args)?;
    let memory = args.mem.unwrap_or(DEFAULT_MEMORY);
    let builder = options::guest(&args.guest, memory, &args.cmdline, &args.devices)?;
    let builder = builder.require_signed(source.signed_by);
    let probing = for_the_screen(probing(&args.probes));
    let to_record = Arc::new(ToRecord {
        builder: builder.clone(),
        args: args.recording.clone(),
        unfinished: Mutex::default(),
    });
    let image = builder.recorded(false)?.1.image.hash.to_string();
    let recorder = match &args.recording.record {
        None => None,
        Some(path) => {
            Some(begin_recording(&builder, path, &args.recording, |config| config.probing = probing.clone())?)
        }
    };
    let (builder, recorder) =
        recorder.map_or((builder, None), |(builder, recorder)| (builder, Some(recorder)));
    let guest = options::open(&builder, talk)?;
    let mut session = guest.start(probing.clone())?;
    let mut file = None;
    if let Some((recorder, late)) = recorder {
        session.record(recorder).map_err(|error| Failure::Usage(error.to_string()))?;
        file = Some(late);
    }
    let commands = commands(&args.probes, source).collect::<Result<Vec<Command>, Failure>>()?;
    let each = || commands.iter().cloned().map(Ok);
    insert(&args.probes, each(), args.guest.target.is_some(), &mut session, talk)?;
    let mut traveller = guest.start(probing.clone())?;
    insert(&args.probes, each(), args.guest.target.is_some(), &mut traveller, &talk.silenced())?;
    let until = args.until.iter().fold(Condition::end(), |condition, text| condition.or_console(text));
    let crash = args.crash_on.iter().fold(until, |condition, text| condition.or_crash_text(text));
    let condition = args.stop_after.into_iter().fold(crash, Condition::or_hits);
    let limits = Limits::insns(args.limit_insns.unwrap_or(u64::MAX));
    let memory = args.history_mem.unwrap_or(HISTORY_MEM);
    let timeline = Timeline::new(traveller, memory).map_err(travel::failure)?;
    let programs = commands.iter().filter_map(text_of_command).collect();
    if let Some(file) = file {
        file.open()?;
    }
    let title = file_name(guest.name()).to_owned();
    let target = Arc::clone(guest.target());
    let run = SameRun {
        guest,
        probing,
        commands,
        source: source.clone(),
        d_options: d_options(&args.probes)?.settings(),
        memory,
        recorded: None,
        recording: Some(Arc::clone(&to_record)),
    };
    let again: Arc<dyn Again> = Arc::new(run);
    let course = Course::Live { condition, limits };
    let sources = args.substitute_path.clone();
    let opening = Opening { title, image, target, session, course, timeline, templates, sources, again };
    Ok(Opened { opening, programs, at: None, to_record: Some(to_record) })
}

/// The texts of a D program.
fn text_of_d(source: &DSource) -> String {
    let text = |text: &DText| format!("// {}\n{}", text.name, String::from_utf8_lossy(&text.text));
    source.texts.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// The text of a program that a command inserts.
fn text_of_command(command: &Command) -> Option<String> {
    match command {
        Command::Insert { name, program, .. } => Some(format!("// {name}\n{}", disassemble(program, None))),
        Command::Clause { text, .. } => Some(format!("// {}\n{text}", clause_option(text))),
        Command::D(source) => Some(text_of_d(source)),
        _ => None,
    }
}

fn recorded(args: &TuiArgs, source: &SourceOptions, talk: &Talk) -> Result<Opened, Failure> {
    let path = Path::new(&args.guest.image);
    let inputs = overwrite::of_guest(&args.guest).chain(overwrite::of_probes(&args.probes));
    let inputs = inputs.chain(args.keys.as_deref()).chain(args.templates.as_deref());
    overwrite::check(inputs, written(args))?;
    let templates = templates(args)?;
    let recording = Recording::read(path)?;
    let places = Places { folders: args.image_dir.clone(), ..Places::of(path) };
    recording.check_signed(source.signed_by)?;
    let builder = GuestBuilder::of_recording(&recording, &places)?.require_signed(source.signed_by);
    let guest = options::open(&builder, talk)?;
    let asks = args.probes.any();
    let probing = if asks { probing(&args.probes) } else { recording.config().probing.clone() };
    let probing = for_the_screen(probing);
    let own = if asks {
        refuse_writers(&args.probes, source, &mut guest.start(probing.clone())?, talk)?;
        recording.own_programs(&guest)
    } else {
        OwnPrograms::Stay
    };
    if asks && own == OwnPrograms::Stay {
        let text =
            "a program of this recording writes to the guest, so its hits cannot be left out; omit -n and -p";
        return Err(Failure::Usage(text.to_owned()));
    }
    let commands = commands(&args.probes, source).collect::<Result<Vec<Command>, Failure>>()?;
    let each = || commands.iter().cloned().map(Ok);
    let start = || -> Result<Session, Failure> {
        let mut session = guest.start(probing.clone())?;
        let course = recording.course(Way::Same, own);
        let mut course = if asks { course.with_others() } else { course };
        session.begin_as(&mut course).map_err(|diverged| Failure::Diverged(diverged.to_string()))?;
        insert(&args.probes, each(), false, &mut session, &talk.silenced())?;
        Ok(session)
    };
    let keep = |command: &Command| own == OwnPrograms::Stay || !command.is_about_programs();
    let memory = args.history_mem.unwrap_or(HISTORY_MEM);
    let timeline = Timeline::of(start()?, &recording, keep, memory).map_err(travel::failure)?;
    let programs = match asks {
        true => commands.iter().filter_map(text_of_command).collect(),
        false => recording.commands().filter_map(text_of_command).collect(),
    };
    // The first inputs of the recording are applied when the hits are listed.
    let mut session = guest.start(probing.clone())?;
    insert(&args.probes, each(), false, &mut session, &talk.silenced())?;
    let title = file_name(&args.guest.image).to_owned();
    let target = Arc::clone(guest.target());
    let image = recording.config().image.hash.to_string();
    let recording = Arc::new(recording);
    let recorded = Some((Arc::clone(&recording), own));
    let again: Arc<dyn Again> = Arc::new(SameRun {
        guest,
        probing,
        commands,
        source: source.clone(),
        d_options: d_options(&args.probes)?.settings(),
        memory,
        recorded,
        recording: None,
    });
    // A finding of the fuzzer opens at the operation.
    let at = trapline_fuzz::finding::position(&recording).filter(|_| !asks);
    let course = Course::Recorded { recording, own, others: asks };
    let sources = args.substitute_path.clone();
    let opening = Opening { title, image, target, session, course, timeline, templates, sources, again };
    Ok(Opened { opening, programs, at, to_record: None })
}
