//! Refuses outputs that would destroy an input or another output.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::{GuestArgs, OutputArgs, ProbeArgs};
use crate::failure::Failure;
use crate::options;

/// What a command writes to a file, as the beginning of a sentence, and the file.
pub type Written<'a> = (&'static str, &'a Path);

/// The identity of a file, whatever its path.
#[derive(PartialEq, Eq)]
enum Identity {
    /// Device and inode of one that exists.
    There(u64, u64),
    /// The path of one that does not.
    New(PathBuf),
}

/// Checks that no file is both read and written, or written twice. Devices and pipes may be written twice, since they
/// lose nothing.
///
/// # Errors
/// The first such file.
pub fn check<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    outputs: impl IntoIterator<Item = Written<'a>>,
) -> Result<(), Failure> {
    let mut taken: Vec<(Identity, &str)> =
        inputs.into_iter().filter_map(|path| Some((identity(path)?, "an input"))).collect();
    for (what, path) in outputs {
        if path == Path::new("-") {
            return Err(Failure::Usage(format!(
                "{what} would go to a file named -, which is not standard output; write ./- for such a file"
            )));
        }
        let Some(identity) = identity(path) else { continue };
        if let Some((_, whose)) = taken.iter().find(|(taken, _)| *taken == identity) {
            return Err(Failure::Usage(format!(
                "{what} would overwrite {whose} of this command, {}; give another file",
                path.display()
            )));
        }
        taken.push((identity, "another output"));
    }
    Ok(())
}

fn identity(path: &Path) -> Option<Identity> {
    match std::fs::metadata(path) {
        Ok(found) => found.is_file().then(|| Identity::There(found.dev(), found.ino())),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(Identity::New(folder.join(path.file_name()?)))
        }
    }
}

/// The files that make up a guest.
pub fn of_guest(guest: &GuestArgs) -> impl Iterator<Item = &Path> {
    let image = std::iter::once(Path::new(&guest.image));
    let modules = guest.module.iter().map(|text| Path::new(options::module_file(text).0));
    let programs = guest.file.iter().filter_map(|text| Some(Path::new(text.split_once('=')?.1)));
    let symbols = guest.sym.iter().map(PathBuf::as_path);
    image.chain(guest.initrd.as_deref()).chain(modules).chain(programs).chain(symbols)
}

/// The files that probes are read from.
pub fn of_probes(probes: &ProbeArgs) -> impl Iterator<Item = &Path> {
    probes
        .probe
        .iter()
        .chain(&probes.d_scripts)
        .map(PathBuf::as_path)
        .chain(probes.source.require_signed.as_deref())
}

/// The files that a run writes beside its recording.
pub fn of_output(output: &OutputArgs) -> impl Iterator<Item = Written<'_>> {
    let records = output.output.as_deref().map(|path| ("the records", path));
    let ports = [("the console's text", &output.console), ("the text of COM2", &output.com2)];
    let files = ports.into_iter().filter_map(|(what, place)| Some((what, place.as_deref()?)));
    let files = files.filter(|(_, place)| !matches!(*place, "none" | "stdio" | "vga"));
    records.into_iter().chain(files.map(|(what, place)| (what, Path::new(place))))
}
