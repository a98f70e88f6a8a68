//! What a file is that a command cannot use, and what takes it.

use std::io;
use std::path::Path;

use trapline_dump::DumpError;
use trapline_rpn::{Diagnostics, near_miss};
use trapline_session::{FileError, FileKind, FormatError, RecordingError};
use trapline_trace::TraceFileError;

use crate::failure::Failure;

/// Languages by the endings of their files, and what to do with a program in them.
const LANGUAGES: &[(&str, &str, &str)] = &[
    ("d", "D", "give it with -s"),
    ("rpn", "RPN", "give it with -p"),
    ("bt", "bpftrace", "docs/d.md has the words of D for those of bpftrace"),
    ("stp", "SystemTap", "write it in D (docs/d.md)"),
    ("py", "Python", "write it in D (docs/d.md)"),
    ("c", "C", "write it in D (docs/d.md)"),
];

/// What the file of a failure is, if it is something else than it should be.
pub fn help(failure: &Failure) -> Option<String> {
    match failure {
        Failure::File(FileError::NotText { path, .. }) => is_a(path),
        Failure::File(FileError::Read { path, error }) if error.kind() == io::ErrorKind::NotFound => {
            near(path)
        }
        Failure::Trace { path, error: TraceFileError::Magic { .. } } => is_a(path),
        Failure::Dump { path, error: DumpError::Foreign(_) } => is_a(path),
        Failure::Recording(RecordingError::Format { file, error: FormatError::NotARecording }) => {
            is_a(Path::new(file))
        }
        Failure::Compile(found) => language(found),
        _ => None,
    }
}

fn is_a(path: &Path) -> Option<String> {
    let kind = FileKind::of_file(path)?;
    Some(format!("{} is {}: {}", path.display(), kind.is, kind.instead))
}

/// The file of the same folder that has nearly this name.
fn near(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    if name == "embedded" {
        return Some("the embedded guests are embedded:ia32 and embedded:x86_64".to_owned());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    // A file of another kind is not meant.
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
    let of_kind = |name: String| match name.rsplit_once('.') {
        Some((stem, its)) if its == ending => Some(stem.to_owned()),
        None if ending.is_empty() => Some(name),
        _ => None,
    };
    let mut stems: Vec<String> =
        entries.filter_map(|entry| of_kind(entry.ok()?.file_name().into_string().ok()?)).collect();
    stems.sort();
    let near = near_miss(stem, stems.iter().map(String::as_str))?;
    let dot = if ending.is_empty() { "" } else { "." };
    Some(format!("did you mean {}?", path.with_file_name(format!("{near}{dot}{ending}")).display()))
}

/// The language of a program that was compiled as one in another language.
pub fn language(found: &Diagnostics) -> Option<String> {
    let first = found.list.first()?;
    let ending = Path::new(&first.file).extension()?.to_str()?;
    let (_, language, instead) = LANGUAGES.iter().find(|(known, ..)| *known == ending)?;
    let compiled_as = if first.code.starts_with("D_") { "D" } else { "RPN" };
    (compiled_as != *language).then(|| format!("{} is a program in {language}: {instead}", first.file))
}
