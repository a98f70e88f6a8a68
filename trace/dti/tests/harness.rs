//! Runs dti.c as a program of the host (`harness.c`), and reads the file that is its physical memory.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;
use trapline_dti::{Found, Stores, find};
use trapline_emu::PhysMem;

/// Physical memory in a vector.
#[derive(Clone)]
pub struct Memory(pub Vec<u8>);

impl PhysMem for Memory {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        let Ok(start) = usize::try_from(paddr) else { return false };
        let end = start.checked_add(to.len());
        match end.and_then(|end| self.0.get(start..end)) {
            Some(from) => {
                to.copy_from_slice(from);
                true
            }
            None => false,
        }
    }
}

impl Memory {
    pub fn ranges(&self) -> Vec<Range<u64>> {
        std::iter::once(0..self.0.len() as u64).collect()
    }

    pub fn find(&self) -> Found {
        find(self, &self.ranges())
    }
}

/// The program. It is compiled once for its sources: tests that run as processes side by side find it there.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let include = here.join("../../guest-images/include");
        let headers = fs::read_dir(include.join("trapline")).unwrap().map(|entry| entry.unwrap().path());
        let mut sources: Vec<_> = headers.chain([here.join("tests/harness.c")]).collect();
        sources.sort();
        let mut hasher = DefaultHasher::new();
        sources.iter().for_each(|source| fs::read(source).unwrap().hash(&mut hasher));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let program = folder.join(format!("dti-harness-{:x}", hasher.finish()));
        if !program.exists() {
            compile(here, &include, folder, &program);
        }
        program
    })
}

/// Compiles it beside, and then gives it its name: no other test finds half of it.
fn compile(here: &Path, include: &Path, folder: &Path, program: &Path) {
    let beside = TempDir::new_in(folder).unwrap();
    let made = beside.path().join("harness");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(include).arg("-o").arg(&made);
    gcc.arg(here.join("tests/harness.c")).arg(include.join("trapline/dti.c"));
    let output = gcc.output().unwrap_or_else(|error| panic!("gcc: {error}; run scripts/bootstrap"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(made, program).unwrap();
}

/// A running harness.
pub struct Harness {
    child: Child,
    folder: TempDir,
    pending: Vec<u8>,
}

impl Harness {
    pub fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(program());
        command.arg(folder.path().join("memory")).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self { child: command.spawn().unwrap(), folder, pending: Vec::new() }
    }

    /// Adds an operation: see `harness.c`.
    pub fn op(&mut self, name: char, numbers: [u32; 4]) {
        self.pending.push(name as u8);
        numbers.iter().for_each(|number| self.pending.extend(number.to_le_bytes()));
    }

    /// Executes the operations, and reads results of so many bytes.
    pub fn results(&mut self, bytes: usize) -> Vec<u8> {
        self.op('s', [0; 4]);
        let ops = std::mem::take(&mut self.pending);
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(&ops).unwrap();
        input.flush().unwrap();
        let mut results = vec![0; bytes + 1];
        self.child.stdout.as_mut().unwrap().read_exact(&mut results).unwrap();
        assert_eq!(results.pop(), Some(b's'));
        results
    }

    /// Stores to its memory, between two operations.
    pub fn store(&self, stores: &Stores) {
        let file = fs::File::options().write(true).open(self.folder.path().join("memory")).unwrap();
        for (paddr, bytes) in stores {
            file.write_all_at(bytes, *paddr).unwrap();
        }
    }

    /// The memory after the operations whose results have been read.
    pub fn memory(&self) -> Memory {
        Memory(fs::read(self.folder.path().join("memory")).unwrap())
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
