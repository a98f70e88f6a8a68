//! `trapline dump`: the memory and registers of a machine, as a crash of its kernel would leave them; and what is in them.

mod info;
pub mod look;
mod programs;

use std::fs::{self, File};
use std::io::{self, Write};
use std::sync::Arc;

use trapline_session::{Compression, Vmcore, counted};

use super::dump_file::is_dump_file;
use super::reach;
use crate::cli::DumpArgs;
use crate::failure::{Exit, Failure};
use crate::reserved_file::ReservedFile;
use crate::talk::Talk;
use crate::{ctrl_c, no_effect, overwrite};

/// Runs the command.
///
/// # Errors
/// Bad files or options, a position that is not reached, a dump that cannot be written.
pub fn run(args: &DumpArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    no_effect::of_dump(args)?;
    let reads_dump = args.list.is_some() || args.has_programs() || args.output.is_none();
    if reads_dump && args.image.as_os_str() == "-" {
        return Err(Failure::Usage(
            "a dump is read at many places, so it cannot come from standard input; write it to a file first"
                .to_owned(),
        ));
    }
    if let Some(what) = args.list {
        return look::list(args, what, out, talk);
    }
    if args.has_programs() {
        return programs::run(args, out, talk);
    }
    let Some(to) = &args.output else {
        info::print(&args.image, args.form.format, out, talk)?;
        return Ok(Exit::Ok);
    };
    if args.image.as_os_str() != "-" && is_dump_file(&args.image) {
        let image = args.image.display();
        let text =
            format!("{image} is a crash dump, in which nothing runs; read it with --info, --list or -n");
        return Err(Failure::Usage(text));
    }
    overwrite::check(reach::inputs(&args.image, &args.machine), [("the dump", to.as_path())])?;
    let signals = ctrl_c::prepare();
    let file = ReservedFile::reserve(to)?;
    let cancelled = Arc::clone(&signals.run());
    let reached = reach::machine(&args.image, &args.machine, None, &cancelled, talk);
    let (session, exit) = match reached {
        Ok(Some(reached)) => reached,
        Ok(None) => {
            file.give_up();
            talk.warn("the run was interrupted, and no dump was written");
            return Ok(Exit::Interrupted);
        }
        Err(failure) => {
            file.give_up();
            return Err(failure);
        }
    };
    write(&file, &session.vmcore(), args.compress.map_or(Compression::None, Compression::from))?;
    talk.note(&format!(
        "the machine after {} is in {}",
        counted(session.icount(), "instruction"),
        to.display()
    ));
    if session.target().is_linux() && session.vmcoreinfo().is_none() {
        talk.note(
            "the kernel has not described itself yet (VMCOREINFO), so makedumpfile refuses this dump, and its log cannot be listed",
        );
    }
    Ok(exit)
}

/// Writes a dump, in place of what the file held.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &ReservedFile<'_>, vmcore: &Vmcore<'_>, compression: Compression) -> Result<(), Failure> {
    let written = File::create(file.path()).and_then(|file| {
        let mut file = io::BufWriter::with_capacity(1 << 20, file);
        vmcore.write(&mut file, compression)
    });
    written.map_err(|error| {
        // A part of a dump looks like one. A pipe or a device stays.
        if file.path().is_file() {
            let _ = fs::remove_file(file.path());
        }
        Failure::writing(Some(file.path()), error)
    })
}
