//! `replay --info`: the content of a recording, without running it.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use trapline_providers::{Abi, Rules};
use trapline_session::{Command, CpuModel, Event, PlatformKind, Recording, RunConfig, VirtioBus, counted};

use crate::cli::{OutputArgs, RecordFormat};
use crate::failure::Failure;

/// Most commands that text shows.
const COMMANDS: usize = 20;

/// Prints the content of a recording, as lines of text or as one JSON object.
///
/// # Errors
/// A different format was requested, or standard output cannot be written.
pub fn print(
    path: &Path,
    recording: &Recording,
    args: &OutputArgs,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match args.format {
        RecordFormat::Json => writeln!(out, "{}", object(recording)).map_err(Failure::Output),
        RecordFormat::Text => {
            let mut lines = lines(recording);
            lines.insert(0, ("recording", path.display().to_string()));
            lines
                .iter()
                .try_for_each(|(key, value)| writeln!(out, "{key:17} {value}"))
                .map_err(Failure::Output)
        }
        _ => Err(Failure::Usage("--info is printed with -f text or json".to_owned())),
    }
}

/// The moment of a command, and the command.
fn commands(recording: &Recording) -> impl Iterator<Item = (u64, &Command)> {
    recording.log().iter().filter_map(|logged| match &logged.event {
        Event::Command(command) => Some((logged.at.icount, command)),
        _ => None,
    })
}

fn lines(recording: &Recording) -> Vec<(&'static str, String)> {
    let config = recording.config();
    let mut lines = vec![("made by", format!("Trapline {}", config.made_by))];
    for (what, file) in config.all_files() {
        lines.push((what, format!("{}, {}, {}", file.name, counted(file.bytes, "byte"), file.hash)));
    }
    let (files, bytes) = recording.brought();
    if files > 0 {
        lines.push(("embedded", format!("{}, {}", counted(files as u64, "file"), counted(bytes, "byte"))));
    }
    lines.push(("memory", counted(config.memory, "byte")));
    let end = counted(recording.end().icount, "instruction");
    let ending = recording.ending().map(ToString::to_string).unwrap_or_default();
    lines.push(match recording.is_whole() {
        true => ("end", format!("{ending} after {end}")),
        false => (
            "end",
            format!("the recording is incomplete, because its recorder was killed: it ends after {end}"),
        ),
    });
    let every = counted(config.checkpoint_insns, "instruction");
    lines.push(("checkpoints", format!("{}, one every {every}", recording.checkpoints().len())));
    if let Some(last) = recording.checkpoints().last() {
        lines.push(("last checkpoint", last.digest.to_string()));
        lines.push(("records", last.records.count.to_string()));
    }
    lines.push(("console", counted(recording.console().len() as u64, "byte")));
    lines.push(("commands", commands(recording).count().to_string()));
    for (icount, command) in commands(recording).take(COMMANDS) {
        lines.push(("", format!("{icount} {}", command.words())));
    }
    lines
}

/// The start of the run, in the words of the corresponding options.
fn configuration(config: &RunConfig) -> Value {
    let files = config.all_files().map(|(what, file)| {
        json!({"what": what, "name": file.name, "bytes": file.bytes, "hash": file.hash.to_string()})
    });
    let (options, probing) = (&config.options, &config.probing);
    json!({
        "made_by": config.made_by,
        "files": files.collect::<Vec<_>>(),
        "mem_bytes": config.memory,
        "cpu": config.cpu.map(|model| if model == CpuModel::Ia32 { "ia32" } else { "x86-64" }),
        "platform": config.platform.map(|kind| if kind == PlatformKind::Pc { "pc" } else { "minimal" }),
        "virtio_console": config.virtio_console,
        "virtio_rng": config.virtio_entropy,
        "virtio": if config.virtio_bus == VirtioBus::Pci { "pci" } else { "mmio" },
        "fw_cfg": config.fw_cfg.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "cmdline": config.cmdline,
        "append": config.append,
        "fbt": if options.fbt == Rules::Strict { "strict" } else { "full" },
        "abi": options.abi.map(Abi::word),
        "target": options.target.as_ref().map(ToString::to_string),
        "follow_fork": options.follow_fork,
        "header": probing.header.to_string(),
        "channel_bytes": probing.channel.sub_buffer_size,
        "channel_count": probing.channel.sub_buffers,
        "channel_most": probing.channel.most_sub_buffers,
        "max_steps": probing.max_steps,
        "max_cores": probing.max_cores,
        "watch_unlimited": probing.watch_unlimited,
        "stack_frames": probing.stack,
        "ustack_frames": probing.user_stack,
        "checkpoint_insns": config.checkpoint_insns,
    })
}

fn object(recording: &Recording) -> Value {
    let checkpoint = |point: &trapline_session::Checkpoint| {
        let digest = &point.digest;
        json!({
            "icount": point.at.icount,
            "hash": digest.to_string(),
            "registers": digest.registers.to_string(),
            "devices": digest.devices.to_string(),
            "memory": digest.memory.to_string(),
            "records": point.records.count,
        })
    };
    let commands =
        commands(recording).map(|(icount, command)| json!({"icount": icount, "command": command.words()}));
    json!({
        "type": "recording",
        "whole": recording.is_whole(),
        "insns": recording.end().icount,
        "ending": recording.ending().map(ToString::to_string),
        "config": configuration(recording.config()),
        "commands": commands.collect::<Vec<_>>(),
        "checkpoints": recording.checkpoints().iter().map(checkpoint).collect::<Vec<_>>(),
        "console": String::from_utf8_lossy(recording.console()),
    })
}
