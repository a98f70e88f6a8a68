//! Where included files come from: the file system, nowhere, or the library in this binary.

use std::io::Read;

/// Gives the preprocessor the text of included files.
pub trait Loader {
    /// Finds `path` as written in an `#include` of the file `from`; returns its name and text.
    ///
    /// # Errors
    /// Why it cannot be read, as the user should see it.
    fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String>;
}

/// Most bytes of an included file.
const MAX_BYTES: u64 = 16 << 20;

/// A loader that reads the file system: relative to the including file, then to the search folders.
#[derive(Debug, Clone, Default)]
pub struct FileLoader {
    /// Folders searched after the including file's own (`-I`).
    pub folders: Vec<std::path::PathBuf>,
}

impl Loader for FileLoader {
    fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String> {
        let own = std::path::Path::new(from).parent().map(std::path::Path::to_path_buf).unwrap_or_default();
        let mut reason = String::from("no such file");
        for folder in std::iter::once(&own).chain(&self.folders) {
            let full = folder.join(path);
            match std::fs::metadata(&full) {
                Ok(data) if data.is_file() => {
                    return read(&full).map(|text| (full.display().to_string(), text));
                }
                Ok(_) => reason = format!("{} is not a file", full.display()),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => reason = plain(&e),
            }
        }
        Err(reason)
    }
}

/// The system's message without its error number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

fn read(path: &std::path::Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|e| plain(&e))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| plain(&e))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    String::from_utf8(bytes)
        .map_err(|e| format!("it is not text: byte {} is not UTF-8", e.utf8_error().valid_up_to()))
}

/// A loader that has no files: every `#include` fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Loader for NoFiles {
    fn load(&mut self, _: &str, _: &str) -> Result<(String, String), String> {
        Err("files cannot be included here".to_owned())
    }
}
