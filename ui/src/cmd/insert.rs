//! The programs of `-p` and `-n`: what they record, and how they are inserted into a session.

use trapline_session::{Command, Probing, Reply, Selection, Session, SourceOptions, read_program};
use trapline_trace::ChannelConfig;

use crate::cli::ProbeArgs;
use crate::failure::Failure;
use crate::no_effect;
use crate::talk::Talk;

/// What probes record.
pub fn probing(args: &ProbeArgs) -> Probing {
    Probing {
        header: args.header.unwrap_or_default(),
        channel: args.channel.unwrap_or_else(ChannelConfig::growing),
        max_steps: args.max_steps,
        max_cores: args.max_cores.unwrap_or(Probing::default().max_cores),
        watch_unlimited: args.watch_unlimited,
        stack: args.stack.unwrap_or_default(),
        user_stack: args.ustack.unwrap_or_default(),
    }
}

/// The programs' names.
pub fn names_of(args: &ProbeArgs) -> Vec<String> {
    let files = args.probe.iter().map(|path| path.display().to_string());
    files.chain(args.clauses.iter().map(|text| format!("-n {text}"))).collect()
}

/// The names of an option, which may follow a separate `=`, as in DProbes' manual.
fn names(values: &[String]) -> Vec<String> {
    let bare = values.iter().map(|value| value.strip_prefix('=').unwrap_or(value));
    bare.filter(|value| !value.is_empty()).map(str::to_owned).collect()
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
    let only = Selection { groups: names(&args.group), kinds: names(&args.kind), ..Selection::default() };
    let mut targeted = args.clauses.iter().any(|text| text.contains(no_effect::TARGET));
    for path in &args.probe {
        let program = Box::new(read_program(path, source)?);
        talk.remarks(&program.warnings);
        targeted |= no_effect::names_target(&program);
        let name = path.display().to_string();
        said(&session.apply(Command::Insert { name, program, only: only.clone() })?, talk);
    }
    for text in &args.clauses {
        let reply = session.apply(Command::Clause { text: text.clone(), only: only.clone() })?;
        said(&reply, talk);
    }
    if needs_target && !targeted {
        return Err(no_effect::unused_target());
    }
    if only != Selection::default() && !any_enabled(session) {
        return Err(Failure::Usage(format!("no probe point of the programs has {}", only.words())));
    }
    Ok(())
}

/// Says what the descriptions of a program matched, and by which convention its handlers find arguments.
fn said(reply: &Reply, talk: &Talk) {
    let Reply::Action { matched, convention, .. } = reply else { return };
    matched.iter().for_each(|matched| talk.note(&matched.sentence()));
    if let Some(abi) = convention {
        talk.note(&format!("by its code the kernel takes arguments as {abi} (--abi overrides this)"));
    }
}

fn any_enabled(session: &Session) -> bool {
    let programs = session.interposer().map(|interposer| interposer.programs()).unwrap_or_default();
    programs.iter().flat_map(|program| &program.points).any(|point| point.enabled)
}
