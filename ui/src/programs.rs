//! Probe programs: from files to what the interposer holds.

use std::path::Path;

use trapline_emu::Core;
use trapline_interposer::{Interposer, ProgramId};
use trapline_providers::{Clause, Matched, Resolved, Target, enable, insert_error, resolve};
use trapline_rpn::ppdf::{self, Ppdf};
use trapline_rpn::{FileLoader, ParseOptions, Preprocessed, Program, parse_with, preprocess};

use crate::cli::SourceArgs;
use crate::failure::Failure;
use crate::guest::read_file;
use crate::keys;
use crate::talk::{Talk, counted};

/// `KEY=VALUE`, or `KEY` alone, which defines it as 1.
fn defines(args: &SourceArgs) -> Vec<(String, String)> {
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (text.clone(), "1".to_owned()),
    };
    args.define.iter().map(pair).collect()
}

/// A probe program's text with what its compilation needs.
fn source(
    path: &Path,
    bytes: Vec<u8>,
    args: &SourceArgs,
) -> Result<(String, ParseOptions, FileLoader), Failure> {
    let text = String::from_utf8(bytes)
        .map_err(|error| Failure::NotText { path: path.to_owned(), at: error.utf8_error().valid_up_to() })?;
    Ok((text, ParseOptions { defines: defines(args) }, FileLoader { folders: args.include.clone() }))
}

/// Reads a probe program: a PPDF file, known by its first bytes, or source.
///
/// # Errors
/// The file cannot be read, is no text, does not compile, or is not signed as it must be.
pub fn read(path: &Path, args: &SourceArgs) -> Result<Program, Failure> {
    let bytes = read_file(path)?;
    match compiled(path, &bytes, args)? {
        Some(file) => Ok(file.program),
        None => compile(path, bytes, args),
    }
}

/// The PPDF file that these bytes are, if they are one.
///
/// # Errors
/// It is a bad one, or what it is is not signed as it must be.
pub fn compiled(path: &Path, bytes: &[u8], args: &SourceArgs) -> Result<Option<Ppdf>, Failure> {
    let file = match ppdf::is_ppdf(bytes) {
        true => Some(Ppdf::read(bytes).map_err(|error| Failure::Ppdf { path: path.to_owned(), error })?),
        false => None,
    };
    let Some(wanted) = args.require_signed.as_deref().map(keys::public).transpose()? else { return Ok(file) };
    let how = match file.as_ref().map(|file| file.signer) {
        Some(Some(signer)) if signer == wanted => return Ok(file),
        Some(Some(signer)) => format!("is signed by {signer}"),
        Some(None) => "is not signed".to_owned(),
        None => "is no PPDF file".to_owned(),
    };
    Err(Failure::NotSigned { path: path.to_owned(), how, wanted })
}

fn compile(path: &Path, bytes: Vec<u8>, args: &SourceArgs) -> Result<Program, Failure> {
    let (text, options, mut loader) = source(path, bytes, args)?;
    parse_with(&path.display().to_string(), &text, &options, &mut loader).map_err(Failure::Compile)
}

/// Reads and preprocesses a probe program.
///
/// # Errors
/// The file cannot be read or is no text.
pub fn preprocessed(path: &Path, args: &SourceArgs) -> Result<Preprocessed, Failure> {
    let (text, options, mut loader) = source(path, read_file(path)?, args)?;
    Ok(preprocess(&path.display().to_string(), &text, &options, &mut loader))
}

/// Links a program against the target and arms it.
///
/// # Errors
/// A name is unknown or a probe point cannot be armed.
pub fn insert(
    interposer: &mut Interposer,
    core: &mut Core,
    target: &Target,
    (name, program): (&str, &Program),
    talk: &Talk,
) -> Result<ProgramId, Failure> {
    talk.remarks(&program.warnings);
    let resolved = resolve(target, program).map_err(Failure::Compile)?;
    arm(interposer, core, name, resolved)
}

/// Puts the handler of a `-n` on the probes that it names.
///
/// # Errors
/// The text is no clause, names no probes, or its handler does not compile or fit.
pub fn insert_clause(
    interposer: &mut Interposer,
    core: &mut Core,
    target: &Target,
    text: &str,
    talk: &Talk,
) -> Result<ProgramId, Failure> {
    let clause = Clause::parse(text).map_err(|error| Failure::Usage(error.to_string()))?;
    let (resolved, matched) = enable(target, &clause).map_err(Failure::from)?;
    for Matched { description, probes } in matched {
        talk.note(&format!("description '{description}' matched {}", counted(probes as u64, "probe")));
    }
    arm(interposer, core, &format!("-n {}", clause.descriptions.join(",")), resolved)
}

fn arm(
    interposer: &mut Interposer,
    core: &mut Core,
    name: &str,
    resolved: Resolved,
) -> Result<ProgramId, Failure> {
    let Resolved { program, points } = resolved;
    interposer.insert(core, name, &program, points).map_err(|error| {
        let found = insert_error(&program, error.probe, &error.kind);
        if found.list.is_empty() {
            Failure::Program { file: name.to_owned(), reason: error.kind.to_string() }
        } else {
            Failure::Compile(found)
        }
    })
}
