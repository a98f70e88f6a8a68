//! The programs of `-p`, `-n`, `-s` and `--rpn`: what they record, and how they are inserted into a session.

use trapline_d::Options;
use trapline_providers::Clause;
use trapline_session::{
    Command, CommandError, DError, DSource, DText, Probing, Reply, Selection, Session, SourceOptions,
    clause_option, read_program,
};
use trapline_trace::{ChannelConfig, HeaderItems};

use crate::cli::ProbeArgs;
use crate::d_text::{Cpp, TextError};
use crate::failure::Failure;
use crate::no_effect;
use crate::talk::Talk;

/// What probes record.
pub fn probing(args: &ProbeArgs) -> Probing {
    probing_after(args, None)
}

/// The same after a snapshot: what no option says is as it was there.
pub fn probing_after(args: &ProbeArgs, before: Option<&Probing>) -> Probing {
    // `flowindent` pairs entries and returns by thread.
    let flow = args.d_options.iter().any(|option| option.split('=').next() == Some("flowindent"));
    let by_thread = if flow { HeaderItems::PID } else { HeaderItems::empty() };
    let channel = || if args.has_d() { d_channel(&bufsize(args)) } else { ChannelConfig::growing() };
    let base = before.cloned().unwrap_or_else(|| Probing { channel: channel(), ..Probing::default() });
    Probing {
        header: args.header.unwrap_or(base.header) | by_thread,
        channel: args.channel.unwrap_or(base.channel),
        max_steps: args.max_steps.or(base.max_steps),
        max_cores: args.max_cores.unwrap_or(base.max_cores),
        watch_unlimited: args.watch_unlimited || base.watch_unlimited,
        stack: args.stack.unwrap_or(base.stack),
        user_stack: args.ustack.unwrap_or(base.user_stack),
    }
}

/// Bytes that a sub-buffer of D has at least and at most, and that records which wait for their reader may take.
const LEAST_BUFFER: usize = 1 << 12;
const LARGEST_BUFFER: usize = 1 << 26;
const MOST_BUFFERED: usize = 1 << 29;

/// The channel of a run with D programs, whose records may hold whole aggregations: as `trapline dtrace` has it.
pub fn d_channel(options: &Options) -> ChannelConfig {
    let size = usize::try_from(options.number("bufsize")).unwrap_or(LARGEST_BUFFER);
    let size = size.clamp(LEAST_BUFFER, LARGEST_BUFFER);
    // A record of the whole size has a header, too.
    ChannelConfig {
        sub_buffer_size: size + LEAST_BUFFER,
        most_sub_buffers: (MOST_BUFFERED / size).clamp(16, 1024),
        ..ChannelConfig::growing()
    }
}

/// The options of D as far as they say how large records may be; what is wrong in them is told elsewhere.
fn bufsize(args: &ProbeArgs) -> Options {
    let mut options = Options::default();
    for value in args.d_options.iter().filter_map(|option| option.strip_prefix("bufsize=")) {
        let _ = options.set("bufsize", Some(value));
    }
    options
}

/// The programs' names.
pub fn names_of(args: &ProbeArgs) -> Vec<String> {
    let files = args.probe.iter().map(|path| path.display().to_string());
    let clauses = args.rpn_clauses().map(|text| format!("{} {text}", clause_option(text)));
    let scripts = args.d_scripts.iter().map(|path| path.display().to_string());
    let d_clauses = args.d_clauses().map(|text| format!("-n {text}"));
    files.chain(clauses).chain(scripts).chain(d_clauses).collect()
}

/// The D program of the command line, if there is one.
///
/// # Errors
/// A text cannot be read, or an option is wrong.
pub fn d_program(args: &ProbeArgs, source: &SourceOptions) -> Result<Option<DSource>, Failure> {
    if !args.has_d() {
        return Ok(None);
    }
    let options = d_options(args)?;
    let cpp = Cpp { always: options.flag("cpp"), stdc: options.text("stdc") != "s", ..Cpp::of(source) };
    let files = args.d_scripts.iter().map(|path| cpp.file(path));
    let texts: Result<Vec<_>, TextError> =
        files.chain(args.d_clauses().map(|text| cpp.clauses(text))).collect();
    let texts = texts.map_err(|error| match error {
        TextError::File(error) => Failure::from(error),
        TextError::Cpp(error) => CommandError::from(error).into(),
    })?;
    Ok(Some(DSource { texts, options: options.settings(), arguments: Vec::new() }))
}

/// The options of D.
///
/// # Errors
/// One that there is not, or a value that it cannot have.
pub fn d_options(args: &ProbeArgs) -> Result<Options, Failure> {
    let mut options = Options::default();
    let flags = args.destructive.then_some("destructive");
    for text in args.d_options.iter().map(String::as_str).chain(flags) {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let set = options.set(name, value);
        set.map_err(|error| Failure::Usage(format!("failed to set -x {name}: {error}")))?;
    }
    Ok(options)
}

/// What an error in the D program of the command line means: a text of RPN is one for another option.
fn refused(args: &ProbeArgs, error: CommandError) -> Failure {
    let CommandError::D(wrong) = &error else { return error.into() };
    if matches!(**wrong, DError::Destructive) {
        return Failure::Usage(format!("{wrong}; -w allows them"));
    }
    let DError::Text { name, is_file: false, .. } = &**wrong else { return error.into() };
    let is_meant = |text: &&String| DText::clauses(text).name == *name && Clause::is_rpn(text);
    match args.d_clauses().find(is_meant) {
        Some(text) => Failure::Usage(format!("-n takes D, and this clause is RPN: write --rpn '{text}'")),
        None => error.into(),
    }
}

/// The names of an option, which may follow a separate `=`, as in DProbes' manual.
fn names(values: &[String]) -> Vec<String> {
    let bare = values.iter().map(|value| value.strip_prefix('=').unwrap_or(value));
    bare.filter(|value| !value.is_empty()).map(str::to_owned).collect()
}

/// The probe points that `--group` and `--type` select.
fn selection(args: &ProbeArgs) -> Selection {
    Selection { groups: names(&args.group), kinds: names(&args.kind), ..Selection::default() }
}

/// The commands that insert the programs, each read when it is asked for: a program that cannot be read or does not
/// compile is an error.
pub fn commands(args: &ProbeArgs, source: &SourceOptions) -> impl Iterator<Item = Result<Command, Failure>> {
    let only = selection(args);
    let own = only.clone();
    let programs = args.probe.iter().map(move |path| {
        let program = Box::new(read_program(path, source)?);
        Ok(Command::Insert { name: path.display().to_string(), program, only: own.clone() })
    });
    let clause = move |text: &String| Ok(Command::Clause { text: text.clone(), only: only.clone() });
    let d = std::iter::once_with(|| d_program(args, source));
    let d = d.filter_map(|program| program.map(|program| program.map(Command::D)).transpose());
    let commands = programs.chain(args.rpn_clauses().map(clause)).chain(d);
    commands.map(|command| {
        let command = command?;
        command.check_signed(source.signed_by)?;
        Ok(command)
    })
}

/// Inserts all programs; without any the machine runs alone. `needs_target` says that one must name `$target`.
///
/// # Errors
/// A program cannot be read, does not compile or does not fit the guest.
pub fn insert_all(
    args: &ProbeArgs,
    source: &SourceOptions,
    needs_target: bool,
    session: &mut Session,
    talk: &Talk,
) -> Result<(), Failure> {
    insert(args, commands(args, source), needs_target, session, talk)
}

/// Inserts programs by their commands.
///
/// # Errors
/// As [`insert_all`].
pub fn insert(
    args: &ProbeArgs,
    commands: impl Iterator<Item = Result<Command, Failure>>,
    needs_target: bool,
    session: &mut Session,
    talk: &Talk,
) -> Result<(), Failure> {
    let mut targeted = false;
    for command in commands {
        let command = command?;
        let mut logmax = None;
        if let Command::Insert { name, program, .. } = &command {
            talk.remarks(&program.warnings);
            logmax = Some((name.clone(), program.header.logmax));
        }
        targeted |= names_target(&command);
        said(&session.apply(command).map_err(|error| refused(args, error))?, talk);
        // The default is meant by nobody.
        if let Some((name, logmax)) =
            logmax.filter(|(_, logmax)| *logmax > trapline_rpn::FileHeader::default().logmax)
            && !session.holds(logmax as usize)
        {
            talk.note(&format!(
                "{name}: a record of logmax = {logmax} bytes does not fit a sub-buffer of the channel and is lost; \
                 --channel SIZE makes them larger"
            ));
        }
    }
    if needs_target && !targeted {
        return Err(no_effect::unused_target());
    }
    let only = selection(args);
    if only != Selection::default() && !any_enabled(session) {
        return Err(Failure::Usage(format!("no probe point of the programs has {}", only.words())));
    }
    Ok(())
}

/// Whether the program of a command names `$target`.
fn names_target(command: &Command) -> bool {
    match command {
        Command::Insert { program, .. } => no_effect::names_target(program),
        Command::Clause { text, .. } => text.contains(no_effect::TARGET),
        Command::D(source) => source.texts.iter().any(|text| contains(&text.text, no_effect::TARGET)),
        _ => false,
    }
}

/// Says what the descriptions of a program matched, and by which convention its handlers find arguments.
fn said(reply: &Reply, talk: &Talk) {
    let Reply::Action { matched, convention, .. } = reply else { return };
    matched.iter().for_each(|matched| talk.note(&matched.sentence()));
    if let Some(abi) = convention {
        talk.note(&format!("the kernel's code takes arguments as {abi} (--abi overrides this)"));
    }
}

fn contains(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part == word.as_bytes())
}

fn any_enabled(session: &Session) -> bool {
    let programs = session.interposer().map(|interposer| interposer.programs()).unwrap_or_default();
    programs.iter().flat_map(|program| &program.points).any(|point| point.enabled)
}
