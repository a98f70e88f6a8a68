//! Objects and programs that the host's assembler and linker make at test time.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder `name` of the running test. Tests run at the same time and may build files of the same names, so each
/// has folders of its own; the thread that runs a test bears its name.
pub fn folder(name: &str) -> PathBuf {
    let test = std::thread::current().name().unwrap_or("main").replace("::", ".");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a tool of the host in `folder`; returns its output.
pub fn tool(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).current_dir(folder).env("LC_ALL", "C").output();
    let out = out.unwrap_or_else(|error| panic!("{program} is needed: {error}"));
    assert!(
        out.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// `source`, assembled for `bits` as `file.o`, in the folder `name`.
pub fn assemble(name: &str, file: &str, bits: u32, source: &str) -> PathBuf {
    let folder = folder(name);
    std::fs::write(folder.join(format!("{file}.s")), source).unwrap();
    let (object, text) = (format!("{file}.o"), format!("{file}.s"));
    tool(&folder, "as", &[if bits == 64 { "--64" } else { "--32" }, "-o", &object, &text]);
    folder.join(object)
}

/// `source`, assembled for `bits` and linked as `file` with further arguments for the linker; its bytes.
pub fn program(name: &str, file: &str, bits: u32, source: &str, arguments: &[&str]) -> Vec<u8> {
    let object = assemble(name, file, bits, source);
    let emulation = if bits == 64 { "elf_x86_64" } else { "elf_i386" };
    let mut all = vec!["-m", emulation, "-o", file, object.to_str().unwrap()];
    all.extend(arguments);
    let folder = folder(name);
    tool(&folder, "ld", &all);
    std::fs::read(folder.join(file)).unwrap()
}
