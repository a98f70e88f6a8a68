//! The `trapline` program that belongs to this build of the tests.
//!
//! Cargo puts it beside the tests, but builds it only when asked to. A program older than one of the sources that it
//! was made of is therefore built again before it is used, so that no test uses an outdated program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::root;

/// The program, built from the sources as they are.
///
/// # Errors
/// A sentence, when it cannot be built.
pub fn trapline() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(|| build(&folder()?)).clone()
}

/// A folder for `PATH` with the program and the fuzzer: beside the tests lie programs with other tools' names, such as the
/// fuzz target `gdb`.
///
/// # Errors
/// A sentence, when the program cannot be built or the folder cannot be made.
pub fn programs() -> Result<PathBuf, String> {
    trapline()?;
    let folder = folder()?.join("programs");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for program in ["trapline", "trapline-fuzz"] {
        let link = folder.join(program);
        // Another test may make the same link at this time. It holds in a copy of the folder, too.
        if let Err(error) = std::os::unix::fs::symlink(Path::new("..").join(program), &link)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(format!("{}: {error}", link.display()));
        }
    }
    Ok(folder)
}

/// The folder of the profile: the one above `deps` if this program is a test.
fn folder() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let folder = own.parent().unwrap_or(Path::new(""));
    let above = folder.parent().filter(|_| folder.ends_with("deps"));
    Ok(above.unwrap_or(folder).to_path_buf())
}

fn build(folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("trapline");
    if is_current(&program, &folder.join("trapline.d")) {
        return Ok(program);
    }
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "trapline", "--profile", profile, "--target-dir"]);
    build.arg(folder.parent().unwrap_or(folder)).current_dir(root());
    let done = build.output().map_err(|error| format!("cargo build: {error}"))?;
    if !done.status.success() {
        return Err(format!(
            "{} cannot be built: {}",
            program.display(),
            String::from_utf8_lossy(&done.stderr)
        ));
    }
    Ok(program)
}

/// Whether a program is at least as new as every file that Cargo's dependency list names.
pub fn is_current(program: &Path, list: &Path) -> bool {
    let changed = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let (Some(made), Ok(list)) = (changed(program), std::fs::read_to_string(list)) else { return false };
    let Some((_, sources)) = list.split_once(": ") else { return false };
    // A space within a name is escaped.
    let sources = sources.trim_end().replace("\\ ", "\0");
    let mut sources = sources.split(' ').map(|source| source.replace('\0', " "));
    sources.all(|source| changed(Path::new(&source)).is_some_and(|changed| changed <= made))
}

/// The fuzzer beside the program, if it is built and no older than its sources: `make test` builds it, which takes minutes.
#[must_use]
pub fn fuzzer() -> Option<PathBuf> {
    let folder = folder().ok()?;
    let program = folder.join("trapline-fuzz");
    is_current(&program, &folder.join("trapline-fuzz.d")).then_some(program)
}
