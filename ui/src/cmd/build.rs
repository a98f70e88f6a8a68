//! `trapline build`: a probe program to a PPDF file, and keys to sign it with.

use std::path::{Path, PathBuf};

use trapline_rpn::{AnySymbol, Program, Width, ppdf};
use trapline_session::{counted, read_program};

use crate::cli::BuildArgs;
use crate::failure::{Exit, Failure};
use crate::talk::Talk;
use crate::{keys, options, overwrite};

/// Runs the command.
///
/// # Errors
/// The program cannot be read, does not compile for any width, or cannot be written; or a key is invalid.
pub fn run(args: &BuildArgs, talk: &Talk) -> Result<Exit, Failure> {
    if let Some(path) = &args.new_key {
        let key = keys::make(path)?;
        let (path, public) = (path.display(), keys::public_path(path));
        talk.note(&format!("{path} signs, {} checks: {key}", public.display()));
        return Ok(Exit::Ok);
    }
    let Some(path) = args.file.as_ref().or(args.build_ppdf.as_ref()) else {
        return Err(Failure::Usage("no probe program was given; write trapline build FILE.rpn".to_owned()));
    };
    let key = args.sign.as_deref().map(keys::private).transpose()?;
    let program = read_program(path, &options::source(&args.source)?)?;
    talk.remarks(&program.warnings);
    let widths = good_widths(&program, args.width, path, talk)?;
    let output = output(args, path)?;
    let bytes = ppdf::write(&program, key.as_ref())
        .map_err(|error| Failure::Unwritable { path: path.clone(), error })?;
    std::fs::write(&output, &bytes).map_err(|error| Failure::writing(Some(&output), error))?;
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

/// The widths for which the program links and is verified, of those asked for; at least one.
fn good_widths(
    program: &Program,
    asked: Option<u8>,
    path: &Path,
    talk: &Talk,
) -> Result<Vec<String>, Failure> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for width in [Width::W32, Width::W64].into_iter().filter(|width| asked.is_none_or(|n| n == width.bits()))
    {
        match program.link(width, &AnySymbol) {
            Ok(_) => good.push(width.to_string()),
            Err(found) => bad.push((width, found)),
        }
    }
    if good.is_empty() {
        let width = asked.unwrap_or_default();
        return Err(match bad.into_iter().next() {
            Some((_, found)) => Failure::Compile(found),
            None => Failure::Usage(format!("--width is {width}; use 32 or 64")),
        });
    }
    for (width, found) in bad {
        talk.note(&format!("{} cannot be used on {width}-bit guests:", path.display()));
        talk.remarks(&found);
    }
    Ok(good)
}

/// The file to write, which is never the one that was read.
fn output(args: &BuildArgs, path: &Path) -> Result<PathBuf, Failure> {
    if args.output.is_none() && path == Path::new("-") {
        return Err(Failure::Usage("a program from standard input has no name; add -o FILE.ppdf".to_owned()));
    }
    let output = args.output.clone().unwrap_or_else(|| path.with_extension("ppdf"));
    overwrite::check([path], [("the PPDF file", output.as_path())])?;
    Ok(output)
}
