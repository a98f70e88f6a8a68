//! The options of `fuzz` that would have no effect.

use std::path::Path;

use super::{first, no_files, of_d, refused};
use crate::cli::{FuzzArgs, is_recording};
use crate::failure::Failure;

/// Checks the options of `fuzz`.
///
/// # Errors
/// The first option without effect.
pub fn of_fuzz(args: &FuzzArgs) -> Result<(), Failure> {
    let (guest, probes, devices) = (&args.guest, &args.probes, &args.devices);
    let of_guests = [
        (args.mem.is_some(), "--mem"),
        (args.cmdline.cmdline.is_some(), "--cmdline"),
        (!args.cmdline.append.is_empty(), "--append"),
        (guest.initrd.is_some(), "--initrd"),
        (!guest.module.is_empty(), "--module"),
        (!guest.file.is_empty(), "--file"),
        (!guest.sym.is_empty(), "--sym"),
        (guest.fbt.is_some(), "--fbt"),
        (guest.abi.is_some(), "--abi"),
        (guest.target.is_some(), "--target"),
        (args.limit_insns.is_some(), "--limit-insns"),
        (!probes.probe.is_empty(), "--probe"),
        (!probes.clauses.is_empty(), "--name"),
        (!probes.d_scripts.is_empty(), "-s"),
        (!probes.rpn.is_empty(), "--rpn"),
        (!probes.d_options.is_empty(), "-x"),
        (probes.destructive, "-w"),
        (!probes.group.is_empty(), "--group"),
        (!probes.kind.is_empty(), "--type"),
        (!probes.source.define.is_empty(), "-D"),
        (!probes.source.include.is_empty(), "-I"),
        (probes.source.require_signed.is_some(), "--require-signed"),
        (probes.channel.is_some(), "--channel"),
        (probes.max_steps.is_some(), "--max-steps"),
        (probes.watch_unlimited, "--watch-unlimited"),
    ];
    let of_records = [
        (probes.header.is_some(), "--header"),
        (probes.stack.is_some(), "--stack"),
        (probes.ustack.is_some(), "--ustack"),
        (probes.core_dir.is_some(), "--core-dir"),
        (probes.max_cores.is_some(), "--max-cores"),
    ];
    if let Some(option) = first(&of_records) {
        return Err(refused(option, "on a search, which prints no records"));
    }
    if args.function.is_none() && args.until.is_some() {
        return Err(refused("--until", "without --function"));
    }
    if args.function.is_some() && !args.fix.is_empty() {
        return Err(refused("--fix", "with --function: only its inputs are changed"));
    }
    if is_recording(Path::new(&guest.image)) || args.explain {
        return first(&of_guests).or_else(|| first(&devices.given())).map_or(Ok(()), |option| {
            Err(refused(option, "with a recording, which has its guest, its probes and its course"))
        });
    }
    if !args.image_dir.is_empty() {
        return Err(refused("--image-dir", "without a recording"));
    }
    no_files(guest)?;
    of_d(probes, false, false)
}
