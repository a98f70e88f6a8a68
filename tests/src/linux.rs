//! The files of the Linux guests that `make guests` fetches and builds. This module neither loads nor runs them.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use crate::{fetched, guest, root};
use std::error::Error;
use std::path::{Path, PathBuf};

/// The text that the shell's initramfs prints before its first prompt, which is `/ # `.
pub const SHELL_BANNER: &str = "initramfs: a shell of busybox";

/// The first and the last line of the stress initramfs.
pub const STRESS_LINES: (&str, &str) = ("stress: begin", "stress: end");

/// For the command line of kernels whose boot itself is not tested: without the self-tests of cryptographic functions and
/// the search for ISA cards, Debian's kernels boot with a tenth to a half of the instructions.
pub const QUICK: &str = "cryptomgr.notests noisapnp";

/// A Debian kernel with its initramfs images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linux {
    /// Debian's name of the flavour, e.g. `cloud-amd64`; of another release than Debian 12 after the version, or `testing`: `5.10-686`.
    pub flavour: &'static str,
    /// Debian's name of the architecture: `i386` or `amd64`.
    pub arch: &'static str,
}

/// The kernels, smallest first.
pub static KERNELS: [Linux; 3] = [
    Linux { flavour: "686", arch: "i386" },
    Linux { flavour: "cloud-amd64", arch: "amd64" },
    Linux { flavour: "amd64", arch: "amd64" },
];

/// The kernels of Debian 11 and 13, and of Debian's testing release, whose version changes. From 13 on there is none for i386.
pub static OTHER_RELEASES: [Linux; 6] = [
    Linux { flavour: "5.10-686", arch: "i386" },
    Linux { flavour: "5.10-cloud-amd64", arch: "amd64" },
    Linux { flavour: "5.10-amd64", arch: "amd64" },
    Linux { flavour: "6.12-cloud-amd64", arch: "amd64" },
    Linux { flavour: "6.12-amd64", arch: "amd64" },
    Linux { flavour: "testing-cloud-amd64", arch: "amd64" },
];

impl Linux {
    /// The kernel of this flavour, of any release.
    pub fn of(flavour: &str) -> Option<&'static Self> {
        KERNELS.iter().chain(&OTHER_RELEASES).find(|linux| linux.flavour == flavour)
    }

    /// The bzImage.
    ///
    /// # Errors
    /// A sentence with the command that fetches it.
    pub fn kernel(&self) -> Result<Vec<u8>, String> {
        fetched(&format!("linux-{}", self.flavour))
    }

    /// The initramfs that ends in a shell on the console.
    ///
    /// # Errors
    /// A sentence with the command that makes it.
    pub fn shell(&self) -> Result<Vec<u8>, String> {
        fetched(&format!("initramfs-{}.cpio.gz", self.arch))
    }

    /// The initramfs that runs the stress script and powers off.
    ///
    /// # Errors
    /// A sentence with the command that makes it.
    pub fn stress(&self) -> Result<Vec<u8>, String> {
        fetched(&format!("stress-{}.cpio.gz", self.flavour))
    }

    /// A module by its file's name without `.ko`.
    ///
    /// # Errors
    /// A sentence with the command that fetches it, also when this kernel has no such module.
    pub fn module(&self, name: &str) -> Result<Vec<u8>, String> {
        fetched(&format!("modules-{}/{name}.ko", self.flavour))
    }

    /// Makes an initramfs in `folder`: busybox, these modules of the kernel and these files of the folder, all in the
    /// root, and a shell script as `/init`, which finds busybox's names in `/bin`.
    ///
    /// # Errors
    /// A file is missing.
    pub fn image(
        &self,
        folder: &Path,
        modules: &[&str],
        files: &[&str],
        script: &str,
    ) -> Result<PathBuf, Box<dyn Error>> {
        let init = format!("#!/bin/busybox sh\n/bin/busybox --install -s /bin\n{script}");
        std::fs::write(folder.join("init"), init)?;
        let mut list = String::from(
            "dir /bin 755\ndir /dev 755\ndir /proc 755\ndir /sys 755\nnod /dev/console 600 c 5 1\n\
             slink /bin/sh busybox 777\nfile /init init 755\n",
        );
        list += &format!("file /bin/busybox {} 755\n", guest(&format!("busybox-{}", self.arch)));
        for module in modules {
            let file = guest(&format!("modules-{}/{module}.ko", self.flavour));
            list += &format!("file /{module}.ko {file} 644\n");
        }
        for file in files {
            list += &format!("file /{file} {file} 755\n");
        }
        std::fs::write(folder.join("list"), list)?;
        let mut newc = Command::new(root().join("scripts/guests/newc"));
        let made = newc.args(["--root", ".", "list", "initrd.gz"]).current_dir(folder).output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        Ok(folder.join("initrd.gz"))
    }
}

/// Makes an initramfs in `folder`: that of the tracing drivers for a kernel, with this script as `/test`.
///
/// # Errors
/// A file is missing.
pub fn drivers_image(folder: &Path, flavour: &str, test: &str) -> Result<PathBuf, Box<dyn Error>> {
    std::fs::write(folder.join("test"), test)?;
    std::fs::write(folder.join("list"), "file /test test 644\n")?;
    let mut newc = Command::new(root().join("scripts/guests/newc"));
    let made = newc.args(["--root", ".", "list", "added.cpio.gz"]).current_dir(folder).output()?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into());
    }
    let mut image = fetched(&format!("dti-{flavour}.cpio.gz"))?;
    image.extend(std::fs::read(folder.join("added.cpio.gz"))?);
    std::fs::write(folder.join("initrd"), image)?;
    Ok(folder.join("initrd"))
}

/// The ELF file inside a bzImage: the payload unpacked by `xz`, `zstd` or `lz4` (Documentation/x86/boot.rst, `payload_offset`),
/// whose last four bytes are the length unpacked.
///
/// # Errors
/// The file is not a bzImage, or the tool is not installed.
pub fn unpack(bzimage: &[u8]) -> io::Result<Vec<u8>> {
    let none = || io::Error::new(io::ErrorKind::InvalidData, "no bzImage");
    let word = |at: usize| {
        let bytes = bzimage.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u32::from_le_bytes(*bytes) as usize).ok_or_else(none)
    };
    let sectors = bzimage.get(0x1f1).copied().ok_or_else(none)?;
    let start = (usize::from(sectors) + 1) * 512 + word(0x248)?;
    let payload =
        bzimage.get(start..start + word(0x24c)?).and_then(|payload| payload.split_last_chunk::<4>());
    let (packed, len) = payload.ok_or_else(none)?;
    let tool = match packed {
        [0xfd, b'7', b'z', ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        _ => "lz4",
    };
    let mut child = Command::new(tool).arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (to, packed) = (child.stdin.take(), packed.to_vec());
    let writer = std::thread::spawn(move || to.map_or(Ok(()), |mut to| to.write_all(&packed)));
    let mut out = child.wait_with_output()?.stdout;
    writer.join().map_err(|_| none())??;
    out.truncate(u32::from_le_bytes(*len) as usize);
    Ok(out)
}

/// The output of the stress initramfs under qemu, equal for every kernel. `scripts/qemu-oracle stress` stores it.
///
/// # Errors
/// When the file cannot be read.
pub fn stress_oracle() -> std::io::Result<String> {
    std::fs::read_to_string(root().join("tests/oracle/stress.txt"))
}

/// The part of a console that is comparable with [`stress_oracle`]: from the first to the last line of the script, without
/// carriage returns. `None` if one of these lines is missing.
///
/// ```
/// let console = "[ 1.0] Run /init\r\nstress: begin\r\nforks: ok\r\nstress: end\r\nreboot: System halted\r\n";
/// let said = trapline_tests::linux::stress_part(console);
/// assert_eq!(said.as_deref(), Some("stress: begin\nforks: ok\nstress: end\n"));
/// assert_eq!(trapline_tests::linux::stress_part("stress: begin\r\n"), None);
/// ```
pub fn stress_part(console: &str) -> Option<String> {
    let (first, last) = STRESS_LINES;
    let said = console.get(console.find(first)?..)?;
    let said = said.get(..said.find(last)?)?;
    Some(format!("{}{last}\n", said.replace('\r', "")))
}
