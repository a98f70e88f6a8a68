//! `trapline check`: compile and verify probe programs, without their modules.

use std::io::Write;
use std::path::Path;

use trapline_rpn::{AnySymbol, Diagnostics, LinkedProbe, LinkedProgram, LocationForm, Program, Width};

use crate::cli::CheckArgs;
use crate::failure::{Exit, Failure};
use crate::programs;
use crate::talk::Talk;

/// Runs the command. All files are checked; the worst result is the exit code.
///
/// # Errors
/// Output that cannot be written. What is wrong with a file is said, and the next one is checked.
pub fn run(args: &CheckArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let mut worst = Exit::Ok;
    for path in &args.files {
        match check(path, args, out, talk) {
            Ok(()) => {}
            Err(Failure::Output(error)) => return Err(Failure::Output(error)),
            Err(failure) => {
                talk.failure(&failure);
                if failure.exit().code() > worst.code() {
                    worst = failure.exit();
                }
            }
        }
    }
    Ok(worst)
}

fn check(path: &Path, args: &CheckArgs, out: &mut dyn Write, talk: &Talk) -> Result<(), Failure> {
    let program = programs::read(path, &args.source)?;
    talk.remarks(&program.warnings);
    let widths: &[Width] = match args.width {
        None => &[Width::W32, Width::W64],
        Some(32) => &[Width::W32],
        Some(64) => &[Width::W64],
        Some(other) => return Err(Failure::Usage(format!("--width is {other}; 32 or 64 would be right"))),
    };
    let linked = link(&program, widths, path, talk)?;
    summary(path, &linked, args.disassemble, out).map_err(Failure::Output)
}

/// The program at each width that it can be linked for; at least one.
fn link(
    program: &Program,
    widths: &[Width],
    path: &Path,
    talk: &Talk,
) -> Result<Vec<LinkedProgram>, Failure> {
    let mut good = Vec::new();
    let mut bad: Vec<(Width, Diagnostics)> = Vec::new();
    for width in widths {
        match program.link(*width, &AnySymbol) {
            Ok(linked) => good.push(linked),
            Err(found) => bad.push((*width, found)),
        }
    }
    if good.is_empty() {
        return Err(Failure::Compile(merge(bad)));
    }
    for (width, found) in bad {
        talk.note(&format!("{} cannot be used on {}-bit guests:", path.display(), width.bits()));
        talk.remarks(&found);
    }
    Ok(good)
}

/// The findings of all widths, each said once.
fn merge(bad: Vec<(Width, Diagnostics)>) -> Diagnostics {
    let mut merged = Diagnostics::default();
    for (_, found) in bad {
        merged.more = merged.more.max(found.more);
        for diagnostic in found.list {
            if !merged.list.contains(&diagnostic) {
                merged.list.push(diagnostic);
            }
        }
    }
    merged.list.sort_by(|a, b| (&a.file, a.line, a.col).cmp(&(&b.file, b.line, b.col)));
    merged
}

fn summary(
    path: &Path,
    linked: &[LinkedProgram],
    disassemble: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let Some(first) = linked.first() else { return Ok(()) };
    let widths: Vec<String> = linked.iter().map(|program| program.width.bits().to_string()).collect();
    let header = &first.header;
    let points = first.probes.len();
    let observe_only = first.probes.iter().all(|probe| probe.handler.observe_only());
    writeln!(out, "{}: ok for {} bits", path.display(), widths.join(" and "))?;
    writeln!(
        out,
        "  {} ({}), major {}, {points} probe point{}, {}",
        header.name,
        header.modtype.word(),
        header.major,
        if points == 1 { "" } else { "s" },
        if observe_only { "observe-only" } else { "may change the guest" },
    )?;
    for (n, probe) in first.probes.iter().enumerate() {
        point(probe, out)?;
        for program in linked.iter().filter(|_| disassemble) {
            if let Some(probe) = program.probes.get(n) {
                writeln!(out, "    {} bits:", program.width.bits())?;
                for line in probe.handler.disassemble().lines() {
                    writeln!(out, "    {line}")?;
                }
            }
        }
    }
    Ok(())
}

fn point(probe: &LinkedProbe, out: &mut dyn Write) -> std::io::Result<()> {
    let form = match probe.location.form {
        LocationForm::Offset => "offset",
        LocationForm::Address => "address",
    };
    let (file, line) = &probe.origin;
    if let Some(watch) = probe.watch {
        return writeln!(
            out,
            "  {file}:{line}: {form} = {}, watchpoint = {}, minor = {}, {} instructions, {}",
            probe.location.text,
            watch.word(),
            probe.minor,
            probe.handler.code().len(),
            if probe.handler.observe_only() { "observe-only" } else { "may change the guest" },
        );
    }
    writeln!(
        out,
        "  {file}:{line}: {form} = {}, opcode = {:#04x}, minor = {}, {} instructions, {}",
        probe.location.text,
        probe.opcode,
        probe.minor,
        probe.handler.code().len(),
        if probe.handler.observe_only() { "observe-only" } else { "may change the guest" },
    )
}
