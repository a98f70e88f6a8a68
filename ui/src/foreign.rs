//! Command lines of other tools: which word here does what an option does there.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error};
use std::ffi::OsString;
use std::path::Path;

use trapline_rpn::near_miss;

use crate::cli::{Cli, is_recording};

/// Options that people know from elsewhere, and what to write here.
const OPTIONS: &[(&[&str], &str)] = &[
    (&["-kernel", "--kernel", "--image", "-image"], "the kernel stands alone: `trapline run bzImage`"),
    (&["-initrd"], "write --initrd FILE"),
    (&["-append"], "write --append 'TEXT'"),
    (&["-m", "-mem", "--memory"], "write --mem SIZE, such as --mem 512M"),
    (&["-smp", "--smp", "-cpus", "--cpus"], "a guest has one CPU"),
    (&["-cpu"], "write --cpu MODEL"),
    (&["-machine", "-M"], "write --platform pc or --platform minimal"),
    (
        &["-nographic", "-display", "-vga", "-vnc", "-curses"],
        "the console is the serial line; -i connects it to this terminal",
    ),
    (
        &["-serial", "--serial", "-chardev", "-monitor"],
        "--console FILE writes the serial output to a file, and -i connects this terminal",
    ),
    (&["-hda", "-hdb", "-drive", "-cdrom", "-fda", "-blockdev", "--drive"], "write --disk FILE"),
    (
        &["-device", "-netdev", "-nic", "-net"],
        "there are disks (--disk), --virtio-console and --virtio-rng, and no network",
    ),
    (&["-enable-kvm", "--enable-kvm", "-accel"], "the guest is emulated, instruction by instruction"),
    (&["-icount", "--icount"], "time is always the number of executed instructions"),
    (&["-gdb"], "`trapline gdb IMAGE` serves gdb"),
    (&["-no-reboot"], "a reset always ends the run"),
    (
        &["-loadvm", "-savevm", "-snapshot"],
        "`save snapshot FILE` in a script saves, and --restore FILE restores (docs/snapshots.md)",
    ),
    (&["-e", "-exec", "--exec", "--eval"], "write -n 'PROBE { D }'"),
    (&["-probe"], "write -p FILE.rpn, or -n 'PROBE { D }'"),
    (&["-script"], "write --script FILE"),
    (&["--pid", "-pid"], "write --target PID with a probe of pid$target"),
    (&["--port", "-port"], "write --listen HOST:PORT"),
    (
        &["--verbose", "-verbose", "--debug"],
        "--stats tells what a run did, and --progress how far it has come",
    ),
    (&["--json", "-json"], "write -f json"),
    (&["--vmlinux", "--symbols-file", "--btf"], "write --sym FILE"),
    (&["--timeout"], "time is counted in instructions: write --limit-insns N"),
];

/// Options with a short name, where the long one is asked for.
const SHORT: &[(&str, &str)] =
    &[("--record <FILE.tlr>", "write -o FILE.tlr"), ("--output-file <FILE>", "write -o FILE")];

fn row(word: &str) -> Option<&'static str> {
    let name = word.split('=').next().unwrap_or(word);
    OPTIONS.iter().find(|(words, _)| words.contains(&name)).map(|(_, here)| *here)
}

/// A long option of another tool that would be read as short options with their values, such as `-nographic`.
pub fn refused(args: &[OsString]) -> Option<Error> {
    let words = args.iter().skip(1).filter_map(|arg| arg.to_str()).take_while(|word| *word != "--");
    let mut swallowed = words.filter(|word| word.len() > 2 && !word.starts_with("--"));
    swallowed.find_map(|word| {
        let here = row(word)?;
        let mut error = Error::new(ErrorKind::UnknownArgument).with_cmd(&Cli::command());
        error.insert(ContextKind::InvalidArg, ContextValue::String(word.to_owned()));
        tip(&mut error, here);
        Some(error)
    })
}

/// The same error, with what to write instead, where that is known.
pub fn explained(mut error: Error) -> Error {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        Some(ContextValue::Strings(words)) => words.first().cloned(),
        _ => None,
    };
    let here = match error.kind() {
        ErrorKind::UnknownArgument => {
            named(ContextKind::InvalidArg).and_then(|word| row(&word).map(str::to_owned))
        }
        ErrorKind::InvalidSubcommand => {
            let has_some = error.get(ContextKind::SuggestedSubcommand).is_some();
            named(ContextKind::InvalidSubcommand)
                .and_then(|word| file(&word).or_else(|| near(&word).filter(|_| !has_some)))
        }
        ErrorKind::MissingRequiredArgument => named(ContextKind::InvalidArg).and_then(|option| {
            SHORT.iter().find(|(long, _)| *long == option).map(|(_, here)| (*here).to_owned())
        }),
        _ => None,
    };
    if error.kind() == ErrorKind::UnknownArgument {
        // clap says how a word is given as a value: no command takes such values.
        error.remove(ContextKind::Suggested);
    }
    if let Some(here) = here {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        tip(&mut error, &here);
    }
    error
}

/// What to do with a guest or a recording that stands where a command is expected.
fn file(word: &str) -> Option<String> {
    let path = Path::new(word);
    if is_recording(path) {
        return Some(format!("to run a recording again: `trapline replay {word}`"));
    }
    let is_guest = word.starts_with("embedded:") || path.is_file();
    is_guest.then(|| format!("to run it: `trapline run {word}`"))
}

/// The command whose name is nearest to a word.
fn near(word: &str) -> Option<String> {
    let all = Cli::command();
    let near = near_miss(word, all.get_subcommands().map(clap::Command::get_name))?;
    Some(format!("a similar command exists: '{near}'"))
}

fn tip(error: &mut Error, text: &str) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![text.to_owned().into()]));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only where clap refuses a word may a row speak of it, and a long word behind one dash is refused before.
    #[test]
    fn the_words_that_are_refused_are_no_options_here() {
        let cli = Cli::command();
        let shorts: Vec<String> = cli
            .get_subcommands()
            .flat_map(|c| c.get_arguments())
            .filter_map(|arg| arg.get_short())
            .map(|c| format!("-{c}"))
            .collect();
        for word in OPTIONS.iter().flat_map(|(words, _)| *words) {
            assert!(word.starts_with('-') && !word.contains('='), "{word}");
            assert!(!shorts.iter().any(|short| short == word), "{word} is an option");
        }
    }
}
