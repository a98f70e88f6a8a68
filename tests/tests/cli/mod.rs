//! The built `trapline`, run as a user runs it.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::patience::PATIENCE;
use trapline_tests::guests_of;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Exit code; 137 when it was killed for taking too long.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// A folder for `PATH` with the programs.
pub fn programs() -> String {
    trapline_tests::built::programs().unwrap_or_else(|error| panic!("{error}")).display().to_string()
}

/// The program, built from the sources as they are.
pub fn binary() -> PathBuf {
    trapline_tests::built::trapline().unwrap_or_else(|error| panic!("{error}"))
}

/// A command that is killed when it takes too long.
pub fn patient(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    // KILL, because timeout's own exit code, 124, is one of ours.
    command.arg("--signal=KILL").arg(PATIENCE.as_secs().to_string()).arg(program);
    command
}

/// Runs `command` to its end, when there is room for a guest.
pub fn finish(mut command: Command) -> Ran {
    command.get_args().for_each(|arg| guests_of(&arg.to_string_lossy()));
    trapline_tests::turns::take().unwrap();
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let code = output.status.code().unwrap_or(137);
    Ran { code, out: text(output.stdout), err: text(output.stderr) }
}

/// A new folder with these files.
pub fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

/// Runs `trapline ARGS` in `folder`.
pub fn trapline(folder: &Path, args: &[&str]) -> Ran {
    let mut command = patient(binary());
    command.args(args).current_dir(folder).env_remove("RUST_BACKTRACE");
    finish(command)
}

/// Runs `trapline run LINUX --initrd ..` in `folder`, from where the kernel executes the first process: for tests whose
/// subject begins there. Instruction counts are those of the whole run; what the kernel has printed before is missing.
pub fn trapline_from_init(folder: &Path, args: &[&str]) -> Ran {
    let more = trapline_tests::begun::options(folder, args).unwrap_or_else(|error| panic!("{error}"));
    trapline(folder, &[args, &more.each_ref().map(String::as_str)].concat())
}

/// A kernel probe on the embedded guest that logs the pid.
pub fn kernel_probe(place: &str, opcode: &str) -> String {
    let header = "name = vmlinux\nmodtype = kernel\nmajor = 1\n";
    format!("{header}{place}\nopcode = {opcode}\nminor = 1\npush pid\nlog 1\nexit\n")
}

/// The printed forms of a run, as options.
pub const FORMS: [&[&str]; 5] =
    [&["-f", "text"], &["-f", "json"], &["-f", "dtrace"], &["--symbols"], &["-f", "json", "--stats"]];

/// Runs `trapline ARGS` once for a trace file, and asserts that `trace cat` prints from it, byte for byte, what the run
/// itself prints in each of these forms. Returns the text of the first form.
pub fn trace_file_prints_the_run(folder: &Path, args: &[&str], forms: &[&[&str]]) -> String {
    let trapline = |args: &[&str]| {
        let ran = trapline(folder, args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        ran.out
    };
    trapline(&[args, &["-q", "-f", "raw", "-o", "providers.trace"]].concat());
    let mut first = None;
    for form in forms {
        // dtrace(1)'s columns are fixed: the run refuses --header with them, and the trace file's is ignored.
        let header = args.iter().position(|arg| *arg == "--header" && form.contains(&"dtrace"));
        let args: Vec<&str> = match header {
            Some(at) => [&args[..at], &args[at + 2..]].concat(),
            None => args.to_vec(),
        };
        let direct = trapline(&[&args[..], &["-q"], form].concat());
        let later = trapline(&[&["trace", "cat", "providers.trace"], *form].concat());
        assert!(direct == later, "{args:?} {form:?}: the run prints\n{direct}\nand its trace file\n{later}");
        first.get_or_insert(direct);
    }
    first.unwrap()
}
