//! Linux guests whose kernel has booted: snapshots from which tests go on, made once for each guest.
//!
//! A test whose subject begins with the first process does not boot the kernel again. The snapshots are made by the
//! `trapline` that the tests run, and lie in `target/begun`; each is named by the hash of all that it depends on.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::linux::QUICK;
use crate::{built, guests_of, root};

/// What the kernel prints last before it executes the first process, which it announces by `Run /init`.
const BEGIN: &str = "Freeing unused kernel image";
/// Snapshots that are kept: the newest.
const KEPT: usize = 64;

/// The options of the machine that tests use, each with a value.
const MACHINE: [&str; 5] = ["--append", "--cmdline", "--mem", "--platform", "--cpu"];

/// What is to be added to `args`, a command `run KERNEL --initrd INITRD ..` in the folder `at`, so that it goes on where the
/// first process begins.
///
/// # Errors
/// A sentence, when a file cannot be read or written or the guest does not get there.
pub fn options(at: &Path, args: &[&str]) -> Result<[String; 4], String> {
    args.iter().for_each(|arg| guests_of(arg));
    let quick = ["--append", QUICK];
    let snapshot = snapshot(at, &[args, &quick].concat())?;
    Ok([quick[0].to_owned(), quick[1].to_owned(), "--restore".to_owned(), snapshot.display().to_string()])
}

/// The snapshot from which such a command can go on.
fn snapshot(at: &Path, args: &[&str]) -> Result<PathBuf, String> {
    let program = built::trapline()?;
    let value = |wanted: &str| args.windows(2).find(|pair| pair[0] == wanted).map(|pair| at.join(pair[1]));
    let (Some(kernel), Some(initrd)) = (value("run"), value("--initrd")) else {
        return Err(format!("{args:?} names no kernel or no initramfs"));
    };
    let options: Vec<&str> =
        args.windows(2).filter(|pair| MACHINE.contains(&pair[0])).flatten().copied().collect();
    let folder = root().join("target/begun");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let name = format!("{:016x}", hash(&program, &kernel, &initrd, &options)?);
    let made = folder.join(&name);
    // One test makes it, others wait.
    let lock = File::create(folder.join(format!("{name}.lock"))).map_err(failed)?;
    lock.lock().map_err(failed)?;
    if !made.exists() {
        let part = folder.join(format!("{name}.part"));
        make(&program, &kernel, &initrd, &options, &part)?;
        fs::rename(&part, &made).map_err(failed)?;
        keep_newest(&folder);
    }
    Ok(made)
}

/// What a snapshot depends on: program and kernel by size and time, the initramfs by content, because tests make theirs
/// again and again.
fn hash(program: &Path, kernel: &Path, initrd: &Path, options: &[&str]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    for file in [program, kernel] {
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        let about = file.metadata().map_err(failed)?;
        (file, about.len(), about.modified().map_err(failed)?).hash(&mut hasher);
    }
    let bytes = fs::read(initrd).map_err(|error| format!("{}: {error}", initrd.display()))?;
    (bytes, options).hash(&mut hasher);
    Ok(hasher.finish())
}

fn make(program: &Path, kernel: &Path, initrd: &Path, options: &[&str], to: &Path) -> Result<(), String> {
    let mut run = Command::new(program);
    run.arg("run").arg(kernel).arg("--initrd").arg(initrd).args(options).current_dir(root());
    run.args(["--until", BEGIN, "--console", "none", "-q", "--save"]).arg(to);
    let done = run.output().map_err(|error| format!("{}: {error}", program.display()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{run:?}: {}", String::from_utf8_lossy(&done.stderr)))
}

/// Removes the oldest snapshots. A run of all tests makes fewer than are kept, so those that it uses stay.
fn keep_newest(folder: &Path) {
    let Ok(files) = fs::read_dir(folder) else { return };
    let mut snapshots: Vec<_> = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_none())
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    snapshots.sort();
    let old = snapshots.len().saturating_sub(KEPT);
    for (_, path) in &snapshots[..old] {
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(path.with_extension("lock"));
    }
}
