//! Key files: Ed25519 keys as PEM text.

use std::io::Write;
use std::path::{Path, PathBuf};

use trapline_rpn::ppdf::{KeyError, SigningKey, VerifyingKey};
use trapline_session::{read_file, text_of};

use crate::failure::Failure;

/// The private key of a file.
///
/// # Errors
/// The file cannot be read or holds no private key.
pub fn private(path: &Path) -> Result<SigningKey, Failure> {
    let text = text_of(path, read_file(path)?)?;
    SigningKey::from_pem(&text).map_err(|error| Failure::Key { path: path.to_owned(), error })
}

/// Where the public half of a new key goes.
pub fn public_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Makes a key from the system's randomness and writes both halves. It overwrites no file.
///
/// # Errors
/// There is no randomness, or a file exists or cannot be written.
pub fn make(path: &Path) -> Result<VerifyingKey, Failure> {
    let mut secret = [0u8; 32];
    getrandom::fill(&mut secret)
        .map_err(|error| Failure::Usage(format!("the system gives no randomness for a key: {error}")))?;
    let key = SigningKey::from_secret(&secret);
    let unwritable = |error: KeyError| Failure::Key { path: path.to_owned(), error };
    let halves = (key.to_pem().map_err(unwritable)?, key.verifying().to_pem().map_err(unwritable)?);
    write(path, &halves.0, true)?;
    write(&public_path(path), &halves.1, false)?;
    Ok(key.verifying())
}

fn write(path: &Path, text: &str, secret: bool) -> Result<(), Failure> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if secret {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::writing(Some(path), error))
}
