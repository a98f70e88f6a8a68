//! Guests that are run to their end in one go, and in two processes with a snapshot's file between them.

use crate::boot::LinuxBoot;
use crate::linux::{KERNELS, STRESS_LINES};
use std::error::Error;
use std::fmt;
use std::path::Path;
use trapline_emu::{Archive, Machine, Snapshot, Stop};

/// Instructions, far beyond what any of the guests takes.
const LIMIT: u64 = 100_000_000_000;

/// How a run has ended, as two processes can compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Why it ended.
    pub stop: String,
    /// Retired instructions.
    pub icount: u64,
    /// The digest.
    pub digest: String,
    /// The console's text.
    pub console: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} after {} instructions, digest {}", self.stop, self.icount, self.digest)?;
        f.write_str(&self.console)
    }
}

/// A guest by its name: `embedded:NAME`, `linux:FLAVOUR` to its first program, `stress:FLAVOUR` through the stress script.
///
/// # Errors
/// When there is none of that name, or it cannot be loaded.
pub fn guest(name: &str) -> Result<Machine, Box<dyn Error>> {
    let (kind, which) = name.split_once(':').ok_or_else(|| format!("{name}: KIND:NAME names a guest"))?;
    if kind == "embedded" {
        let guest = trapline_guests::ALL.iter().find(|guest| guest.name == which);
        return Ok(crate::embedded_guest(guest.ok_or_else(|| format!("no embedded guest {which}"))?)?.0);
    }
    let kernel = KERNELS.iter().find(|linux| linux.flavour == which);
    let kernel = kernel.ok_or_else(|| format!("no kernel {which}"))?;
    match kind {
        "linux" => LinuxBoot::shell(kernel)?.machine("Run /init"),
        "stress" => LinuxBoot::stress(kernel)?.machine(STRESS_LINES.1),
        _ => Err(format!("{name}: embedded, linux and stress are the kinds").into()),
    }
}

/// Runs a guest from where it is to its end.
pub fn finish(machine: &mut Machine) -> Outcome {
    let stop = machine.run(None, LIMIT);
    Outcome {
        stop: format!("{stop:?}"),
        icount: machine.icount(),
        digest: machine.digest().to_string(),
        console: String::from_utf8_lossy(machine.console()).into_owned(),
    }
}

/// Runs a guest to an instruction count, and writes its snapshot to a file. The guest is where it would be without.
///
/// # Errors
/// When it ends before, or the file cannot be written.
pub fn save(machine: &mut Machine, icount: u64, file: &Path) -> Result<(), Box<dyn Error>> {
    match machine.run(None, icount) {
        Stop::Limit if machine.icount() == icount => {}
        other => return Err(format!("{other:?} after {} instructions", machine.icount()).into()),
    }
    let mut archive = Archive::new();
    machine.snapshot().store(&mut archive)?;
    Ok(std::fs::write(file, archive.to_bytes())?)
}

/// Goes on from a snapshot's file to the guest's end.
///
/// # Errors
/// When the file cannot be read, or is of another guest.
pub fn resume(name: &str, file: &Path) -> Result<Outcome, Box<dyn Error>> {
    let mut machine = guest(name)?;
    let snapshot = Snapshot::load(&Archive::from_bytes(&std::fs::read(file)?)?)?;
    machine.restore(&snapshot)?;
    Ok(finish(&mut machine))
}
