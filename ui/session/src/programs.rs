//! Probe programs: from files to [`Program`]s. A file holds source text, or a program that was compiled to PPDF.

use std::path::{Path, PathBuf};

use trapline_rpn::ppdf::{self, KeyError, Ppdf, PpdfError, VerifyingKey};
use trapline_rpn::{Diagnostics, FileLoader, ParseOptions, Preprocessed, Program, parse_with, preprocess};

use crate::files::{FileError, read_file, text_of};
use crate::signed::NotSigned;

/// How probe programs are read.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// Macros and their texts.
    pub defines: Vec<(String, String)>,
    /// Folders that are searched for `#include`.
    pub folders: Vec<PathBuf>,
    /// Only PPDF files that this key has signed are accepted.
    pub signed_by: Option<VerifyingKey>,
    /// The instructions that a hit may execute, of which warnings speak; the default budget if `None`.
    pub max_steps: Option<u32>,
}

/// Why a probe program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Its file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It does not compile, or does not fit the guest.
    #[error("{0}")]
    Compile(Diagnostics),
    /// A PPDF file cannot be used.
    #[error("{}: {error}", path.display())]
    Ppdf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: PpdfError,
    },
    /// It is not signed by the key that is required.
    #[error(transparent)]
    NotSigned(#[from] NotSigned),
    /// A key file does not hold such a key.
    #[error("{} holds no key of this kind: {error}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: KeyError,
    },
}

impl SourceOptions {
    /// The options and the file loader for compiling a program's text.
    fn parts(&self) -> (ParseOptions, FileLoader) {
        let parse = ParseOptions { defines: self.defines.clone(), max_steps: self.max_steps };
        (parse, FileLoader { folders: self.folders.clone() })
    }

    /// Refuses a program that is text if programs must be signed: text has no signature.
    ///
    /// # Errors
    /// [`ProgramError::NotSigned`].
    pub fn refuse_text(&self, name: &str) -> Result<(), ProgramError> {
        match self.signed_by {
            Some(wanted) => Err(NotSigned::text(name, wanted).into()),
            None => Ok(()),
        }
    }
}

/// Reads a probe program: a PPDF file, recognised by its first bytes, or source text. `-` is standard input.
///
/// # Errors
/// See [`ProgramError`].
pub fn read(path: &Path, options: &SourceOptions) -> Result<Program, ProgramError> {
    let bytes = read_file(path)?;
    match compiled(path, &bytes, options)? {
        Some(file) => Ok(file.program),
        None => compile(&path.display().to_string(), &text_of(path, bytes)?, options),
    }
}

/// Compiles the text of a probe program; diagnostics call it `name`.
///
/// # Errors
/// [`ProgramError::Compile`], and [`ProgramError::NotSigned`] if programs must be signed, which a text cannot be.
pub fn compile(name: &str, text: &str, options: &SourceOptions) -> Result<Program, ProgramError> {
    options.refuse_text(name)?;
    let (parse, mut loader) = options.parts();
    parse_with(name, text, &parse, &mut loader).map_err(ProgramError::Compile)
}

/// Reads these bytes as a PPDF file, if they are one.
///
/// # Errors
/// The PPDF file is damaged, or the program is not signed as `options` require.
pub fn compiled(path: &Path, bytes: &[u8], options: &SourceOptions) -> Result<Option<Ppdf>, ProgramError> {
    let file = match ppdf::is_ppdf(bytes) {
        true => Some(Ppdf::read(bytes).map_err(|error| ProgramError::Ppdf { path: path.to_owned(), error })?),
        false => None,
    };
    let Some(wanted) = options.signed_by else { return Ok(file) };
    let how = match file.as_ref().map(|file| file.signer) {
        Some(Some(signer)) if signer == wanted => return Ok(file),
        Some(Some(signer)) => format!("is signed by {signer}"),
        Some(None) => "is not signed".to_owned(),
        None => "is not a PPDF file".to_owned(),
    };
    Err(NotSigned { name: path.display().to_string(), how, wanted }.into())
}

/// Reads and preprocesses a probe program. `-` is standard input.
///
/// # Errors
/// The file cannot be read or is not text, or programs must be signed.
pub fn preprocessed(path: &Path, options: &SourceOptions) -> Result<Preprocessed, ProgramError> {
    options.refuse_text(&path.display().to_string())?;
    let text = text_of(path, read_file(path)?)?;
    let (parse, mut loader) = options.parts();
    Ok(preprocess(&path.display().to_string(), &text, &parse, &mut loader))
}

/// The public key in a file.
///
/// # Errors
/// The file cannot be read or holds no public key.
pub fn public_key(path: &Path) -> Result<VerifyingKey, ProgramError> {
    let text = text_of(path, read_file(path)?)?;
    VerifyingKey::from_pem(&text).map_err(|error| ProgramError::Key { path: path.to_owned(), error })
}
