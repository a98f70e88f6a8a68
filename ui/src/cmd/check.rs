//! `trapline check`: compile and verify probe programs, without their modules; `-E` preprocesses only,
//! `--explain` explains a finding. D programs are in [`check_d`].

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use serde_json::json;
use trapline_rpn::{
    AnySymbol, Diagnostics, LinkedProbe, LinkedProgram, LocationForm, Program, Severity, Width,
};

use trapline_session::{
    CommandError, Guest, ProgramError, SourceOptions, counted, preprocessed, read_program,
};

use super::check_d::{self, Wrong};
use super::{explain, finding};
use crate::cli::{CheckArgs, Format};
use crate::d_text::{Cpp, is_d};
use crate::failure::{Exit, Failure};
use crate::talk::Talk;
use crate::{no_effect, options, wrong_file};

/// What was found so far, in all files.
#[derive(Default)]
struct Tally {
    errors: usize,
    warnings: usize,
    codes: BTreeSet<&'static str>,
}

/// Where findings and programs go.
struct Report<'a> {
    args: &'a CheckArgs,
    source: SourceOptions,
    /// The guest whose types and probes D programs name.
    guest: Option<Guest>,
    out: &'a mut dyn Write,
    talk: &'a Talk,
    tally: Tally,
}

/// Runs the command. All files are checked; the worst result is the exit code.
///
/// # Errors
/// Output that cannot be written, or an unknown code to explain. Errors in a file are reported, and the next file is
/// checked.
pub fn run(args: &CheckArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    no_effect::of_check(args)?;
    if let Some(code) = &args.explain {
        return explain::run(code, args.form.format, out);
    }
    let source = options::source(&args.source)?;
    let guest = guest(args, talk)?;
    let mut report = Report { args, source, guest, out, talk, tally: Tally::default() };
    report.json(|| json!({"type": "header", "version": 1}))?;
    let mut worst = Exit::Ok;
    for path in &args.files {
        let checked = match (args.preprocess, is_d(path)) {
            (true, false) => report.preprocess(path),
            (true, true) => report.preprocess_d(path),
            (false, false) => report.check(path),
            (false, true) => report.check_d(path),
        };
        let exit = match checked {
            Ok(exit) => exit,
            Err(Failure::Output(error)) => return Err(Failure::Output(error)),
            Err(failure) => {
                talk.failure(&failure);
                failure.exit()
            }
        };
        if exit.code() > worst.code() {
            worst = exit;
        }
    }
    let Tally { errors, warnings, codes } = &report.tally;
    if !codes.is_empty() {
        let codes: Vec<&str> = codes.iter().copied().collect();
        talk.note(&format!("`trapline check --explain CODE` explains {}", codes.join(", ")));
    }
    let (errors, warnings) = (*errors, *warnings);
    report.json(|| json!({"type": "end", "errors": errors, "warnings": warnings, "exit": worst.code()}))?;
    Ok(worst)
}

/// The guest of `--guest`.
fn guest(args: &CheckArgs, talk: &Talk) -> Result<Option<Guest>, Failure> {
    let Some(image) = &args.guest else { return Ok(None) };
    let builder = options::image(image, args.initrd.as_deref(), &args.sym);
    options::open(&builder, &talk.without_notes()).map(Some)
}

impl Report<'_> {
    /// Writes a line if lines are wanted.
    fn json(&mut self, value: impl FnOnce() -> serde_json::Value) -> Result<(), Failure> {
        if self.args.form.format == Format::Json {
            writeln!(self.out, "{}", value()).map_err(Failure::Output)?;
        }
        Ok(())
    }

    /// Reports findings; `remark` is silenced by `-q`. `width` is given if it matters.
    fn findings(&mut self, found: &Diagnostics, width: Option<Width>, remark: bool) -> Result<(), Failure> {
        // The tags of D are DTrace's, whose guide explains them.
        self.tally.codes.extend(found.list.iter().map(|d| d.code).filter(|code| !code.starts_with("D_")));
        self.tally.warnings += found.warnings();
        self.tally.errors += if remark { 0 } else { found.errors() };
        match self.args.form.format {
            Format::Text => {
                self.talk.found(found, remark);
                if let Some(help) = wrong_file::language(found).filter(|_| found.errors() > 0) {
                    self.talk.note(&help);
                }
            }
            Format::Json => {
                for one in &found.list {
                    self.json(|| finding::object(one, width))?;
                }
                if found.more > 0 {
                    self.json(|| json!({"type": "more", "findings": found.more}))?;
                }
            }
        }
        Ok(())
    }

    fn preprocess(&mut self, path: &Path) -> Result<Exit, Failure> {
        let done = preprocessed(path, &self.source)?;
        self.out.write_all(done.text.as_bytes()).map_err(Failure::Output)?;
        self.findings(&done.found, None, false)?;
        let failed = done.found.list.iter().any(|d| d.severity == Severity::Error);
        Ok(if failed { Exit::Compile } else { Exit::Ok })
    }

    fn preprocess_d(&mut self, path: &Path) -> Result<Exit, Failure> {
        self.source.refuse_text(&path.display().to_string())?;
        match (Cpp { always: true, ..Cpp::of(&self.source) }).file(path) {
            Ok(text) => self.out.write_all(&text.text).map_err(Failure::Output).map(|()| Exit::Ok),
            Err(error) => self.wrong(error.into()),
        }
    }

    /// Reports why a D program cannot be used.
    fn wrong(&mut self, wrong: Wrong) -> Result<Exit, Failure> {
        let error = match wrong {
            Wrong::File(failure) => return Err(failure),
            Wrong::Text(error) => error,
        };
        let Some(found) = error.findings() else { return Err(CommandError::from(error).into()) };
        self.findings(&found, None, false)?;
        Ok(Exit::Compile)
    }

    fn check_d(&mut self, path: &Path) -> Result<Exit, Failure> {
        self.source.refuse_text(&path.display().to_string())?;
        let cpp = Cpp::of(&self.source);
        let widths = self.args.width.map_or(vec![32, 64], |width| vec![width]);
        let checked = check_d::check(path, &cpp, &widths, self.guest.as_ref().map(Guest::target));
        let checked = match checked {
            Ok(checked) => checked,
            Err(wrong) => return self.wrong(wrong),
        };
        match self.args.form.format {
            Format::Text => checked.summary(self.args.disassemble, self.out).map_err(Failure::Output)?,
            Format::Json => writeln!(self.out, "{}", checked.object(false)).map_err(Failure::Output)?,
        }
        Ok(Exit::Ok)
    }

    fn check(&mut self, path: &Path) -> Result<Exit, Failure> {
        let args = self.args;
        let widths: &[Width] = match args.width {
            None => &[Width::W32, Width::W64],
            Some(32) => &[Width::W32],
            Some(64) => &[Width::W64],
            Some(other) => {
                return Err(Failure::Usage(format!("--width is {other}; use 32 or 64")));
            }
        };
        let program = match read_program(path, &self.source) {
            Err(ProgramError::Compile(found)) => {
                self.findings(&found, None, false)?;
                return Ok(Exit::Compile);
            }
            other => other?,
        };
        self.findings(&program.warnings, None, true)?;
        let linked = self.link(&program, widths, path)?;
        let Some(first) = linked.first() else { return Ok(Exit::Compile) };
        match args.form.format {
            Format::Text => summary(path, &linked, args.disassemble, self.out).map_err(Failure::Output)?,
            Format::Json => {
                let widths: Vec<u8> = linked.iter().map(|program| program.width.bits()).collect();
                self.json(|| finding::program(path, first, &widths))?;
            }
        }
        Ok(Exit::Ok)
    }

    /// The program at each width that it can be linked for. Empty if it cannot be linked for any, which is then
    /// reported.
    fn link(
        &mut self,
        program: &Program,
        widths: &[Width],
        path: &Path,
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
            self.findings(&merge(bad), None, false)?;
            return Ok(good);
        }
        for (width, found) in bad {
            if self.args.form.format == Format::Text {
                self.talk.note(&format!("{} cannot be used on {}-bit guests:", path.display(), width.bits()));
            }
            self.findings(&found, Some(width), true)?;
        }
        Ok(good)
    }
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
            "  {file}:{line}: {form} = {}, watchpoint = {}, minor = {}, {}, {}",
            probe.location.text,
            watch.word(),
            probe.minor,
            counted(probe.handler.instructions() as u64, "instruction"),
            if probe.handler.observe_only() { "observe-only" } else { "may change the guest" },
        );
    }
    writeln!(
        out,
        "  {file}:{line}: {form} = {}, opcode = {:#04x}, minor = {}, {}, {}",
        probe.location.text,
        probe.opcode,
        probe.minor,
        counted(probe.handler.instructions() as u64, "instruction"),
        if probe.handler.observe_only() { "observe-only" } else { "may change the guest" },
    )
}
