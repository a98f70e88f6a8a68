//! `dump --info`: what a dump contains.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use trapline_session::trapline_dump::notes::described;
use trapline_session::{DumpFile, DumpFormat, DumpInfo, counted};

use crate::cli::Format;
use crate::cmd::dump_file::warn_if_cut;
use crate::failure::Failure;
use crate::talk::Talk;

/// Prints what a dump contains, as lines of text or as one JSON object.
///
/// # Errors
/// The file is not a dump, or standard output cannot be written.
pub fn print(path: &Path, format: Format, out: &mut dyn Write, talk: &Talk) -> Result<(), Failure> {
    let opened = DumpFile::open(path);
    let file = opened.map_err(|error| Failure::Dump { path: path.to_owned(), error })?;
    warn_if_cut(path, &file, talk);
    let info = file.info();
    let written = match format {
        Format::Json => writeln!(out, "{}", object(&info, file.missing())),
        Format::Text => {
            lines(path, &info).iter().try_for_each(|(key, value)| writeln!(out, "{key:12} {value}"))
        }
    };
    written.map_err(Failure::Output)
}

fn format_of(info: &DumpInfo) -> &'static str {
    match (info.format, info.flattened) {
        (DumpFormat::Raw, _) => "raw",
        (DumpFormat::Elf, false) => "ELF core",
        (DumpFormat::Elf, true) => "ELF core, flattened",
        (DumpFormat::Compressed, false) => "makedumpfile",
        (DumpFormat::Compressed, true) => "makedumpfile, flattened",
    }
}

fn bits(info: &DumpInfo) -> u8 {
    if info.wide { 64 } else { 32 }
}

/// What the kernel says of itself.
fn of_kernel(info: &DumpInfo, name: &str) -> Option<String> {
    described(info.vmcoreinfo.as_deref()?, name)
}

fn lines(path: &Path, info: &DumpInfo) -> Vec<(&'static str, String)> {
    let mut lines = vec![("dump", path.display().to_string())];
    lines.push(("format", format!("{}, {} bits", format_of(info), bits(info))));
    let (pages, stored) = info.pages;
    let ways: Vec<String> = info.compressed.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let ways = if ways.is_empty() { String::new() } else { format!(" ({})", ways.join(", ")) };
    lines.push(("memory", format!("{}, {stored} of them stored{ways}", counted(pages, "page"))));
    for range in &info.memory {
        let end = range.end().saturating_sub(1);
        let at = range.vaddr.map_or_else(String::new, |vaddr| format!(" at {vaddr:#x}"));
        lines.push(("range", format!("{:#x} to {end:#x}{at}", range.paddr)));
    }
    lines.extend(of_kernel(info, "OSRELEASE").map(|release| ("kernel", release)));
    lines.extend(of_kernel(info, "BUILD-ID").map(|id| ("build id", id)));
    for (registers, pid) in &info.cpus {
        let sp = registers.gpr[4];
        lines.push((
            "cpu",
            format!("ip {:#x}, sp {sp:#x}, flags {:#x}, process {pid}", registers.ip, registers.flags),
        ));
    }
    lines
}

fn object(info: &DumpInfo, missing: u64) -> Value {
    let range = |range: &trapline_session::trapline_dump::Mapped| json!({ "paddr": range.paddr, "size": range.size, "vaddr": range.vaddr });
    let cpu = |(registers, pid): &(trapline_session::trapline_dump::notes::Registers, u32)| {
        json!({
            "ip": registers.ip,
            "flags": registers.flags,
            "gpr": registers.gpr,
            "selectors": registers.selectors,
            "pid": pid,
        })
    };
    let (pages, stored) = info.pages;
    json!({
        "format": format_of(info),
        "bits": bits(info),
        "pages": pages,
        "stored": stored,
        "missing": missing,
        "compressed": info.compressed.iter().map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
        "memory": info.memory.iter().map(range).collect::<Vec<_>>(),
        "kernel": of_kernel(info, "OSRELEASE"),
        "build_id": of_kernel(info, "BUILD-ID"),
        "cpus": info.cpus.iter().map(cpu).collect::<Vec<_>>(),
    })
}
