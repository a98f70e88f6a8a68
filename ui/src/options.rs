//! Converts options to the library's types: guests and the sources of probe programs.

use std::path::{Path, PathBuf};

use trapline_providers::Rules;
use trapline_session::{Guest, GuestBuilder, Places, Recording, SourceOptions, file_name, public_key};

use crate::cli::{CmdlineArgs, FbtRules, GuestArgs, ProbeArgs, SourceArgs};
use crate::devices::DeviceArgs;
use crate::failure::Failure;
use crate::progress::meter;
use crate::talk::Talk;

/// How probe programs are read.
///
/// # Errors
/// The key file is invalid.
pub fn source(args: &SourceArgs) -> Result<SourceOptions, Failure> {
    // A KEY alone is defined as 1.
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (text.clone(), "1".to_owned()),
    };
    Ok(SourceOptions {
        defines: args.define.iter().map(pair).collect(),
        folders: args.include.clone(),
        signed_by: args.require_signed.as_deref().map(public_key).transpose()?,
        max_steps: None,
    })
}

/// How the programs of a run are read.
///
/// # Errors
/// The key file is invalid.
pub fn source_of_run(args: &ProbeArgs) -> Result<SourceOptions, Failure> {
    Ok(SourceOptions { max_steps: args.max_steps, ..source(&args.source)? })
}

/// A guest whose runs are seen by the progress line.
fn metered(image: &str) -> GuestBuilder {
    GuestBuilder::image(image).metered_by(meter())
}

/// The guest of a recording.
///
/// # Errors
/// Its files are not there, or are others.
pub fn of_recording(recording: &Recording, places: &Places) -> Result<GuestBuilder, Failure> {
    Ok(GuestBuilder::of_recording(recording, places)?.metered_by(meter()))
}

/// A guest of an image, an initial RAM disk and files of symbols, for D programs.
pub fn image(image: &str, initrd: Option<&Path>, symbols: &[PathBuf]) -> GuestBuilder {
    let builder = initrd.into_iter().fold(metered(image), |builder, file| builder.initrd(file));
    symbols.iter().fold(builder, |builder, file| builder.symbols(file))
}

/// Checks the folders of `--image-dir`.
///
/// # Errors
/// A folder does not exist.
pub fn check_folders(folders: &[PathBuf]) -> Result<(), Failure> {
    match folders.iter().find(|folder| !folder.is_dir()) {
        None => Ok(()),
        Some(folder) => {
            let text = format!("--image-dir {}: there is no such folder", folder.display());
            Err(Failure::Usage(text))
        }
    }
}

/// The parts of the guest.
///
/// # Errors
/// An option is malformed.
pub fn guest(
    args: &GuestArgs,
    memory: u64,
    cmdline: &CmdlineArgs,
    devices: &DeviceArgs,
) -> Result<GuestBuilder, Failure> {
    let mut guest = devices.add_to(metered(&args.image).memory(memory));
    for text in &args.module {
        guest = module(guest, text);
    }
    if let Some(initrd) = &args.initrd {
        guest = guest.initrd(initrd.clone());
    }
    for text in &args.file {
        guest = file(guest, text)?;
    }
    for path in &args.sym {
        guest = guest.symbols(path);
    }
    guest = guest.fbt(match args.fbt.unwrap_or(FbtRules::Full) {
        FbtRules::Full => Rules::Full,
        FbtRules::Strict => Rules::Strict,
    });
    if let Some(abi) = args.abi {
        guest = guest.abi(abi);
    }
    if let Some(process) = &args.target {
        guest = guest.target(process.clone());
    }
    if args.follow_fork {
        guest = guest.follow_fork();
    }
    Ok(with_cmdline(guest, cmdline))
}

/// A guest with a kernel command line.
pub fn with_cmdline(guest: GuestBuilder, args: &CmdlineArgs) -> GuestBuilder {
    let guest = args.cmdline.iter().fold(guest, |guest, line| guest.cmdline(line));
    args.append.iter().fold(guest, |guest, words| guest.append(words))
}

/// Reads a guest, and reports the parts that could not be read.
///
/// # Errors
/// Files are missing or invalid.
pub fn open(builder: &GuestBuilder, talk: &Talk) -> Result<Guest, Failure> {
    let guest = builder.open()?;
    guest.notes().iter().for_each(|note| talk.note(note));
    Ok(guest)
}

/// `FILE` or `FILE ARGUMENTS`; the module's string is the file's name and the arguments.
pub fn module(guest: GuestBuilder, text: &str) -> GuestBuilder {
    let (path, arguments) = module_file(text);
    let name = file_name(path);
    let string = arguments.map_or_else(|| name.to_owned(), |arguments| format!("{name} {arguments}"));
    guest.module(path, &string)
}

/// The file of a module, and its arguments.
pub fn module_file(text: &str) -> (&str, Option<&str>) {
    match text.split_once(' ') {
        Some((path, arguments)) if !Path::new(text).exists() => (path, Some(arguments)),
        _ => (text, None),
    }
}

/// `GUEST=FILE`.
fn file(guest: GuestBuilder, text: &str) -> Result<GuestBuilder, Failure> {
    let parts = text
        .split_once('=')
        .filter(|(path, here)| path.starts_with('/') && !path.ends_with('/') && !here.is_empty());
    let (path, here) = parts.ok_or_else(|| {
        Failure::Usage(format!(
            "--file {text} names no file of the guest; write /bin/busybox=FILE, a path in the guest and a file here"
        ))
    })?;
    Ok(guest.file(path, here))
}
