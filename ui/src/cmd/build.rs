//! `trapline build`: a probe program to a PPDF file, and keys to sign it with.

use std::path::{Path, PathBuf};

use trapline_rpn::ppdf;

use crate::cli::BuildArgs;
use crate::cmd::check;
use crate::failure::{Exit, Failure};
use crate::talk::{Talk, counted};
use crate::{keys, programs};

/// Runs the command.
///
/// # Errors
/// The program cannot be read, does not compile for any width, or cannot be written; a key is none.
pub fn run(args: &BuildArgs, talk: &Talk) -> Result<Exit, Failure> {
    if let Some(path) = &args.new_key {
        let key = keys::make(path)?;
        let (path, public) = (path.display(), keys::public_path(path));
        talk.note(&format!("{path} signs, {} checks: {key}", public.display()));
        return Ok(Exit::Ok);
    }
    let Some(path) = args.file.as_ref().or(args.build_ppdf.as_ref()) else {
        return Err(Failure::Usage("there is no probe program to build".to_owned()));
    };
    let key = args.sign.as_deref().map(keys::private).transpose()?;
    let program = programs::read(path, &args.source)?;
    talk.remarks(&program.warnings);
    let linked = check::link(&program, check::widths(args.width)?, path, talk)?;
    let output = output(args, path)?;
    let bytes = ppdf::write(&program, key.as_ref())
        .map_err(|error| Failure::Unwritable { path: path.clone(), error })?;
    std::fs::write(&output, &bytes).map_err(|error| Failure::writing(Some(&output), error))?;
    let widths: Vec<String> = linked.iter().map(|program| program.width.bits().to_string()).collect();
    let signed = key.map(|key| format!(", signed by {}", key.verifying())).unwrap_or_default();
    talk.note(&format!(
        "{}: {}, {} for {} bits{signed}",
        output.display(),
        counted(bytes.len() as u64, "byte"),
        counted(program.probes.len() as u64, "probe point"),
        widths.join(" and "),
    ));
    Ok(Exit::Ok)
}

/// The file to write, which is never the one that was read.
fn output(args: &BuildArgs, path: &Path) -> Result<PathBuf, Failure> {
    let output = args.output.clone().unwrap_or_else(|| path.with_extension("ppdf"));
    if output == path {
        return Err(Failure::Usage(format!(
            "{} would be written over; -o FILE.ppdf would be right",
            path.display()
        )));
    }
    Ok(output)
}
