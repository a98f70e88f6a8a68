//! Files of the host: how the library reads them, and the errors.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use trapline_emu::load::MAX_IMAGE;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses to read it.
    #[error("cannot read {}: {}", path.display(), io_sentence(error))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// It is larger than any file that is accepted.
    #[error("cannot read {}: it has more than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The largest size that is accepted, in bytes.
        limit: u64,
    },
    /// It should hold text.
    #[error("{} is not text: byte {at} is not UTF-8", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// Offset of the first byte that is not UTF-8.
        at: usize,
    },
}

/// The content of a file, at most [`MAX_IMAGE`] bytes. `-` is standard input.
///
/// # Errors
/// The file cannot be read or is larger.
pub fn read_file(path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |error| FileError::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(MAX_IMAGE + 1).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        File::open(path).and_then(|file| file.take(MAX_IMAGE + 1).read_to_end(&mut bytes)).map_err(failed)?;
    }
    if bytes.len() as u64 > MAX_IMAGE {
        return Err(FileError::TooLarge { path: path.to_owned(), limit: MAX_IMAGE });
    }
    Ok(bytes)
}

/// These bytes of a file as text.
///
/// # Errors
/// They are not UTF-8.
pub fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String, FileError> {
    String::from_utf8(bytes)
        .map_err(|error| FileError::NotText { path: path.to_owned(), at: error.utf8_error().valid_up_to() })
}

/// The last part of a path; of a path that ends in `/` the part before that.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// The system's message for an error, without the error number.
pub fn io_sentence(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
