//! Refuses options that would have no effect: a user who gives one expects something to happen.

mod fuzz;

use std::path::{Path, PathBuf};

use trapline_rpn::{Atom, Expr, LinkedProgram, Location, Program};
use trapline_session::Session;

use crate::cli::{
    CheckArgs, ConvertArgs, DisArgs, DtiRecordArgs, DtiSource, DumpArgs, Format, GdbArgs, GuestArgs,
    ListArgs, MachineArgs, ProbeArgs, RecordFormat, ReplayArgs, RunArgs, SourceArgs, TuiArgs, is_recording,
};
use crate::d_text::is_d;
use crate::failure::Failure;
use crate::overwrite;
pub use fuzz::of_fuzz;

/// Standard input, where a file is named.
const STDIN: &str = "-";

/// The name of the process of `--target` in descriptions of probes.
pub const TARGET: &str = "$target";

fn refused(option: &str, why: &str) -> Failure {
    Failure::Usage(format!("{option} has no effect {why}"))
}

/// The first of these options that was given.
fn first(options: &[(bool, &'static str)]) -> Option<&'static str> {
    options.iter().find_map(|(given, option)| given.then_some(*option))
}

fn preprocessor(args: &SourceArgs) -> [(bool, &'static str); 2] {
    [(!args.define.is_empty(), "-D"), (!args.include.is_empty(), "-I")]
}

fn source_options(args: &SourceArgs) -> Vec<(bool, &'static str)> {
    let mut options = preprocessor(args).to_vec();
    options.push((args.require_signed.is_some(), "--require-signed"));
    options
}

/// Checks the options of `run`.
///
/// # Errors
/// The first option without effect.
pub fn of_run(args: &RunArgs) -> Result<(), Failure> {
    no_files(&args.guest)?;
    let files = overwrite::of_guest(&args.guest).chain(overwrite::of_probes(&args.probes));
    reads_stdin_once(files.chain(args.script.as_deref()))?;
    let of_probes = [
        (args.guest.fbt.is_some(), "--fbt"),
        (args.guest.abi.is_some(), "--abi"),
        (args.output.query, "--query"),
        (args.output.getvars, "--getvars"),
        (args.stop_after.is_some(), "--stop-after"),
        (args.probes.stack.is_some(), "--stack"),
        (args.probes.ustack.is_some(), "--ustack"),
        (!args.probes.group.is_empty(), "--group"),
        (!args.probes.kind.is_empty(), "--type"),
        (args.probes.header.is_some(), "--header"),
        (args.flow, "--flow"),
        (args.output.symbols, "--symbols"),
        (args.output.templates.is_some(), "--templates"),
        (args.probes.channel.is_some(), "--channel"),
        (args.probes.core_dir.is_some(), "--core-dir"),
        (args.probes.max_cores.is_some(), "--max-cores"),
        (args.probes.max_steps.is_some(), "--max-steps"),
        (args.probes.watch_unlimited, "--watch-unlimited"),
        (args.fail_on_exception, "--fail-on-exception"),
        (args.fail_on_loss, "--fail-on-loss"),
        (args.output.log_to.is_some(), "--log-to"),
        (args.guest.target.is_some(), "--target"),
    ];
    if !args.is_probed() {
        let given = first(&of_probes).or_else(|| first(&source_options(&args.probes.source)));
        return given.map_or(Ok(()), |option| {
            Err(refused(option, "without probes; add -p FILE.rpn, -n CLAUSE or --script FILE"))
        });
    }
    dtrace_header(args.output.format, &args.probes)?;
    let bare = args.probes.has_rpn() || args.script.is_some() || args.restore.is_some();
    if args.flow && args.output.format != RecordFormat::Text && bare {
        return Err(refused("--flow", "on records that are not text; leave -f out"));
    }
    if args.flow && (args.output.symbols || args.output.templates.is_some()) {
        return Err(refused("--flow", "with --symbols and --templates, which have lines of their own"));
    }
    let empty =
        |names: &[String]| !names.is_empty() && names.iter().all(|name| name.is_empty() || name == "=");
    if let Some(option) =
        first(&[(empty(&args.probes.group), "--group"), (empty(&args.probes.kind), "--type")])
    {
        return Err(refused(option, "without a name"));
    }
    let sources = !args.probes.probe.is_empty() || args.script.is_some();
    let shows_items = has_objects(args.output.format) || args.recording.record.is_some();
    of_d(&args.probes, args.script.is_some(), shows_items)?;
    match first(&preprocessor(&args.probes.source)).filter(|_| !sources && !args.probes.has_d()) {
        Some(option) => Err(refused(option, "without a program; it does not apply to the handlers of --rpn")),
        None => Ok(()),
    }
}

/// Options of D without D, and those of records in RPN with D alone; commands may insert more programs. What D prints as text
/// has no header: only other formats, and recordings, have its items.
fn of_d(probes: &ProbeArgs, commands: bool, shows_items: bool) -> Result<(), Failure> {
    let of_d = [(!probes.d_options.is_empty(), "-x"), (probes.destructive, "-w")];
    if let Some(option) = first(&of_d).filter(|_| !probes.has_d()) {
        return Err(refused(option, "without a D program; add -s FILE.d or -n 'SPEC { actions }'"));
    }
    let of_rpn = [
        (probes.stack.is_some(), "--stack"),
        (probes.ustack.is_some(), "--ustack"),
        (probes.header.is_some() && !shows_items, "--header"),
        (!probes.group.is_empty(), "--group"),
        (!probes.kind.is_empty(), "--type"),
    ];
    match first(&of_rpn).filter(|_| probes.has_d() && !probes.has_rpn() && !commands) {
        Some(option) => Err(refused(option, "on D programs alone; add -p FILE.rpn or --rpn CLAUSE")),
        None => Ok(()),
    }
}

/// Refuses files for a system without files.
fn no_files(guest: &GuestArgs) -> Result<(), Failure> {
    if guest.image.starts_with("embedded:") && !guest.file.is_empty() {
        return Err(refused("--file", "on an embedded guest, which has no files"));
    }
    Ok(())
}

/// Checks the options of `trace convert`.
///
/// # Errors
/// The first option without effect.
pub fn of_convert(args: &ConvertArgs) -> Result<(), Failure> {
    let of_stacks = [(args.weight.is_some(), "--weight"), (args.diff.is_some(), "--diff")];
    let has_stacks =
        matches!(args.to.format(), RecordFormat::Folded | RecordFormat::Svg | RecordFormat::Pprof);
    match first(&of_stacks).filter(|_| !has_stacks) {
        Some(option) => Err(refused(option, "without stacks; use it with --to folded, svg or pprof")),
        None => Ok(()),
    }
}

/// Whether a format has the members of a firing, and not only what D prints.
const fn has_objects(format: RecordFormat) -> bool {
    !matches!(format, RecordFormat::Text | RecordFormat::Dtrace)
}

fn dtrace_header(format: RecordFormat, probes: &ProbeArgs) -> Result<(), Failure> {
    if format == RecordFormat::Dtrace && probes.header.is_some() {
        return Err(refused("--header", "with -f dtrace, whose columns are fixed"));
    }
    Ok(())
}

/// Checks the options of `replay`.
///
/// # Errors
/// The first option without effect.
pub fn of_replay(args: &ReplayArgs) -> Result<(), Failure> {
    let probes = &args.probes;
    let asked = &args.questions;
    let asks = asked.who_wrote.is_some() || asked.calls.is_some() || asked.when.is_some();
    if asked.before.is_some() && !asks {
        return Err(refused("--before", "without a question; add --who-wrote or --calls"));
    }
    if asked.last.is_some() && asked.who_wrote.is_none() && asked.when.is_none() {
        return Err(refused("--last", "without a list to shorten; add --who-wrote or --when"));
    }
    if let Some(option) = first(&[
        (!probes.clauses.is_empty(), "-n"),
        (!probes.d_scripts.is_empty(), "-s"),
        (!probes.rpn.is_empty(), "--rpn"),
        (!probes.probe.is_empty(), "-p"),
        (args.output.stats, "--stats"),
        (args.output.query, "--query"),
        (args.output.getvars, "--getvars"),
        (args.output.output.is_some(), "--output-file"),
        (args.output.console.is_some(), "--console"),
    ])
    .filter(|_| asks)
    {
        return Err(refused(option, "on a question, which is asked of the recording as it was"));
    }
    let of_probes = [
        (args.from.is_some() && asked.when.is_none(), "--from"),
        (probes.stack.is_some(), "--stack"),
        (probes.ustack.is_some(), "--ustack"),
        (!probes.group.is_empty(), "--group"),
        (!probes.kind.is_empty(), "--type"),
        (probes.header.is_some(), "--header"),
        (probes.channel.is_some(), "--channel"),
        (probes.max_cores.is_some(), "--max-cores"),
        (probes.max_steps.is_some(), "--max-steps"),
        (probes.watch_unlimited, "--watch-unlimited"),
    ];
    if let Some(option) = first(&of_probes).filter(|_| !probes.any()) {
        return Err(refused(
            option,
            "without probes of this command line, since those of the recording keep theirs; add -p FILE.rpn or -n CLAUSE",
        ));
    }
    let files = std::iter::once(args.file.as_path()).chain(overwrite::of_probes(probes));
    reads_stdin_once(files.chain(args.at.map(|_| Path::new(STDIN))))?;
    dtrace_header(args.output.format, probes)?;
    of_d(probes, args.at.is_some(), has_objects(args.output.format) || args.branch.is_some())?;
    if args.branch.is_some() && args.verify {
        return Err(refused("--verify", "with --branch, which makes another run"));
    }
    if args.branch.is_some() && !probes.any() && args.at.is_none() {
        return Err(refused("--branch", "without something that makes another run: -n, -p or --at"));
    }
    if let Some(option) = first(&preprocessor(&probes.source))
        .filter(|_| probes.probe.is_empty() && !probes.has_d() && args.at.is_none())
    {
        return Err(refused(option, "without a probe program; add -p FILE.rpn"));
    }
    Ok(())
}

/// The options that describe a guest, beside its command line and its devices, and whether they are given.
fn describes_guest(mem: Option<u64>, guest: &GuestArgs) -> [(bool, &'static str); 8] {
    [
        (mem.is_some(), "--mem"),
        (guest.initrd.is_some(), "--initrd"),
        (!guest.module.is_empty(), "--module"),
        (!guest.file.is_empty(), "--file"),
        (!guest.sym.is_empty(), "--sym"),
        (guest.fbt.is_some(), "--fbt"),
        (guest.abi.is_some(), "--abi"),
        (guest.target.is_some(), "--target"),
    ]
}

/// Checks the options of `tui`.
///
/// # Errors
/// The first option without effect.
pub fn of_tui(args: &TuiArgs) -> Result<(), Failure> {
    let (guest, probes) = (&args.guest, &args.probes);
    if args.is_recording() {
        let of_runs = [
            (args.stop_after.is_some(), "--stop-after"),
            (!args.until.is_empty(), "--until"),
            (!args.crash_on.is_empty(), "--crash-on"),
            (args.limit_insns.is_some(), "--limit-insns"),
            (args.recording.record.is_some(), "--record"),
        ];
        let of_guest =
            [args.cmdline.given().as_slice(), &args.devices.given(), &describes_guest(args.mem, guest)]
                .concat();
        if let Some(option) = first(&of_guest).or_else(|| first(&of_runs)) {
            return Err(refused(option, "with a recording, which has its guest and its course"));
        }
    } else if !args.image_dir.is_empty() {
        return Err(refused("--image-dir", "without a recording"));
    }
    no_files(guest)?;
    of_d(probes, false, false)?;
    let of_probes = [
        (probes.stack.is_some(), "--stack"),
        (probes.ustack.is_some(), "--ustack"),
        (!probes.group.is_empty(), "--group"),
        (!probes.kind.is_empty(), "--type"),
        (probes.channel.is_some(), "--channel"),
        (probes.max_steps.is_some(), "--max-steps"),
        (probes.watch_unlimited, "--watch-unlimited"),
        (guest.fbt.is_some(), "--fbt"),
        (guest.abi.is_some(), "--abi"),
        (guest.target.is_some(), "--target"),
        (args.stop_after.is_some(), "--stop-after"),
    ];
    if let Some(option) = first(&of_probes).filter(|_| !probes.any()) {
        return Err(refused(option, "without probes; add -p FILE.rpn or -n CLAUSE"));
    }
    let sources = !probes.probe.is_empty() || probes.has_d();
    if let Some(option) = first(&preprocessor(&probes.source)).filter(|_| !sources) {
        return Err(refused(option, "without a probe program; it does not apply to the handlers of --rpn"));
    }
    let of_output = [
        (probes.header.is_some(), "--header"),
        (probes.core_dir.is_some(), "--core-dir"),
        (probes.max_cores.is_some(), "--max-cores"),
    ];
    match first(&of_output) {
        Some(option) => Err(refused(option, "in tui, which prints no records and writes no core files")),
        None => Ok(()),
    }
}

/// Checks the options of `gdb`.
///
/// # Errors
/// The first option without effect.
pub fn of_gdb(args: &GdbArgs) -> Result<(), Failure> {
    let guest = &args.guest;
    if args.is_recording() {
        let of_guest =
            [args.cmdline.given().as_slice(), &args.devices.given(), &describes_guest(args.mem, guest)]
                .concat();
        if let Some(option) = first(&of_guest) {
            return Err(refused(option, "with a recording, which has its guest and its course"));
        }
    } else if !args.image_dir.is_empty() {
        return Err(refused("--image-dir", "without a recording"));
    }
    no_files(guest)?;
    if let Some(option) = first(&preprocessor(&args.source)).filter(|_| args.probe.is_empty()) {
        return Err(refused(option, "without a probe program; add -p FILE.rpn"));
    }
    let probes = args.probe.iter().map(PathBuf::as_path).chain(args.source.require_signed.as_deref());
    reads_stdin_once(overwrite::of_guest(guest).chain(probes).chain(args.stdio.then(|| Path::new(STDIN))))
}

/// Checks the options of `list`.
///
/// # Errors
/// The first option without effect.
pub fn of_list(args: &ListArgs, of_dump: bool) -> Result<(), Failure> {
    if of_dump && let Some(option) = of_guest(args) {
        return Err(refused(option, "on a dump, which has its own guest"));
    }
    no_files(&args.guest)?;
    reads_stdin_once(overwrite::of_guest(&args.guest))?;
    let named = args.glob.as_deref().unwrap_or_default();
    if args.guest.target.is_some() && !named.contains(TARGET) {
        return Err(unused_target());
    }
    let probes = named.contains(':');
    if args.verbose && !probes && !args.processes {
        return Err(refused("-v", "on functions and modules; give a SPEC with a colon, or --processes"));
    }
    let of_probes = [(args.guest.fbt.is_some(), "--fbt"), (args.guest.abi.is_some(), "--abi")];
    if let Some(option) = first(&of_probes).filter(|_| !probes) {
        return Err(refused(option, "without probes to list; give a SPEC with a colon"));
    }
    if args.bytes && probes {
        return Err(refused("--bytes", "on probes; use --opcode for the byte of a probe"));
    }
    let needs_run = [(args.modules, "--modules"), (args.processes, "--processes")];
    match first(&needs_run).or_else(|| args.first.given()).filter(|_| !of_dump && !args.first.runs()) {
        Some(option) => {
            Err(refused(option, "on a guest that does not run; add --at insns=N or --until TEXT"))
        }
        None => Ok(()),
    }
}

/// An option of `list` about a guest that is to run, if one was given.
fn of_guest(args: &ListArgs) -> Option<&'static str> {
    let (guest, run) = (&args.guest, &args.first);
    let all = [
        (run.at.is_some(), "--at"),
        (!run.until.is_empty(), "--until"),
        (!guest.module.is_empty(), "--module"),
        (guest.initrd.is_some(), "--initrd"),
        (!guest.file.is_empty(), "--file"),
        (guest.fbt.is_some(), "--fbt"),
        (guest.abi.is_some(), "--abi"),
        (guest.target.is_some(), "--target"),
        (guest.sym.len() > 1, "a second --sym"),
    ];
    first(&all).or_else(|| run.given())
}

/// Checks the options of `dis`.
///
/// # Errors
/// The first option without effect.
pub fn of_dis(args: &DisArgs) -> Result<(), Failure> {
    no_files(&args.guest)?;
    let probes = args.probe.iter().map(PathBuf::as_path).chain(args.source.require_signed.as_deref());
    reads_stdin_once(overwrite::of_guest(&args.guest).chain(probes))?;
    let given = first(&preprocessor(&args.source)).filter(|_| args.probe.is_empty());
    if let Some(option) = given {
        return Err(refused(option, "without a probe program; add -p FILE.rpn"));
    }
    if args.guest.target.is_some() && args.probe.is_empty() {
        return Err(unused_target());
    }
    if args.guest.fbt.is_some() && args.probe.is_empty() {
        return Err(refused("--fbt", "without a probe program; add -p FILE.rpn"));
    }
    if args.guest.abi.is_some() {
        return Err(refused("--abi", "on a disassembly, which runs no handler"));
    }
    Ok(())
}

/// Checks the options of `check`.
///
/// # Errors
/// The first option without effect.
pub fn of_check(args: &CheckArgs) -> Result<(), Failure> {
    let files = args.files.iter().map(PathBuf::as_path);
    reads_stdin_once(files.chain(args.source.require_signed.as_deref()))?;
    if args.disassemble && args.form.format == Format::Json {
        return Err(refused("--disassemble", "with -f json"));
    }
    let d = args.files.iter().any(|path| is_d(path)) && !args.preprocess;
    if args.guest.is_some() && !d {
        return Err(refused("--guest", "without a D program, whose name ends in .d"));
    }
    let of_files = [(args.width.is_some(), "--width"), (args.disassemble, "--disassemble")];
    let given = first(&of_files).or_else(|| first(&source_options(&args.source)));
    match given.filter(|_| args.explain.is_some()) {
        Some(option) => Err(refused(option, "with --explain")),
        None => Ok(()),
    }
}

/// Checks the options of `dump`.
///
/// # Errors
/// The first option without effect.
pub fn of_dump(args: &DumpArgs) -> Result<(), Failure> {
    let machine = &args.machine;
    let reads = args.list.is_some() || args.has_programs();
    if args.info || reads {
        let of_run = machine.of_run().or(first(&[(args.compress.is_some(), "--compress")]));
        let how =
            if args.info { "with --info, which runs nothing" } else { "on a dump, in which nothing runs" };
        let of_memory = args.of_dump().filter(|_| args.info);
        let no_d = !args.programs.d_options.is_empty() && !args.probes().has_d();
        return match (of_run.or(of_memory), no_d) {
            (Some(option), _) => Err(refused(option, how)),
            (None, true) => Err(refused("-x", "without a D program; add -n or -s")),
            (None, false) => Ok(()),
        };
    }
    if let Some(option) = args.of_dump() {
        return Err(refused(option, "without --list or a program, which read a dump"));
    }
    if args.form.format == Format::Json {
        return Err(refused("--format", "without --info or --list: the dump itself is not text"));
    }
    of_machine(&args.image, machine)
}

/// Checks the options about a machine.
///
/// # Errors
/// The first option without effect.
pub fn of_machine(image: &Path, machine: &MachineArgs) -> Result<(), Failure> {
    if is_recording(image) {
        let option = machine.of_guest();
        return option
            .map_or(Ok(()), |option| Err(refused(option, "on a recording, which has its own guest")));
    }
    match first(&[(!machine.image_dir.is_empty(), "--image-dir")]) {
        Some(option) => Err(refused(option, "without a recording")),
        None => Ok(()),
    }
}

/// Checks the options of `dti` about the machine: a dump and a snapshot are not run.
///
/// # Errors
/// The first option without effect.
pub fn of_dti(source: &DtiSource, is_dump: bool) -> Result<(), Failure> {
    // Here the machine's option has another name.
    let model = first(&[(source.machine.devices.cpu.is_some(), "--cpu-model")]);
    if let Some(option) = model.filter(|_| !is_dump && is_recording(&source.image)) {
        return Err(refused(option, "on a recording, which has its own guest"));
    }
    if is_dump {
        let restore = first(&[(source.restore.is_some(), "--restore")]);
        let option = model.or_else(|| source.machine.of_run()).or(restore);
        return option.map_or(Ok(()), |option| Err(refused(option, "on a dump, which does not run")));
    }
    if is_recording(&source.image) && source.restore.is_some() {
        return Err(refused("--restore", "on a recording, which has its own beginning"));
    }
    of_machine(&source.image, &source.machine)
}

/// Checks the options of `dti` about records.
///
/// # Errors
/// The first option without effect.
pub fn of_records(records: &DtiRecordArgs, format: Format) -> Result<(), Failure> {
    let given = [
        (records.view.is_some(), "--view"),
        (records.template.is_some(), "--template"),
        (records.templates.is_some(), "--templates"),
    ];
    match first(&given).filter(|_| format == Format::Json) {
        Some(option) => Err(refused(option, "with -f json, which has the bytes")),
        None => Ok(()),
    }
}

/// What the programs of a run may do, of which options speak.
#[derive(Debug, Clone, Copy, Default)]
pub struct Uses {
    /// They have watchpoints.
    pub watches: bool,
    /// They have an `exit 3`.
    pub cores: bool,
    /// They have an `exit 2`.
    pub dumps: bool,
}

impl Uses {
    /// Those of a session's programs.
    pub fn of(session: &Session) -> Self {
        session.interposer().map_or(Self::default(), |interposer| Self {
            watches: interposer.watches(),
            cores: interposer.may_write_cores(),
            dumps: interposer.may_write_dumps(),
        })
    }

    /// Adds those of a program that a script inserts.
    pub fn add(&mut self, program: &LinkedProgram) {
        self.watches |= program.probes.iter().any(|probe| probe.watch.is_some());
        self.cores |= program.probes.iter().any(|probe| probe.handler.may_write_core());
        self.dumps |= program.probes.iter().any(|probe| probe.handler.may_write_dump());
    }

    /// Checks the options that only some programs need.
    ///
    /// # Errors
    /// The first option without effect.
    pub fn check(self, args: &ProbeArgs) -> Result<(), Failure> {
        if args.watch_unlimited && !self.watches {
            return Err(refused("--watch-unlimited", "without a watchpoint; add one to a probe program"));
        }
        if args.max_cores.is_some() && !self.cores {
            return Err(refused("--max-cores", "unless a handler has `exit 3`, which writes a core file"));
        }
        if args.core_dir.is_some() && !self.cores && !self.dumps {
            let why = "unless a handler has `exit 2` or `exit 3`, which write a crash dump and a core file, or a script has `dump`";
            return Err(refused("--core-dir", why));
        }
        Ok(())
    }
}

/// The error for `--target` without `$target`.
pub fn unused_target() -> Failure {
    refused("--target", "unless a probe is named pid$target:module:function:name")
}

/// Whether a program has a probe point on `pid$target`.
pub fn names_target(program: &Program) -> bool {
    let in_terms = |expr: &Expr| {
        expr.terms.iter().any(|term| matches!(&term.atom, Atom::Symbol(name) if name.contains(TARGET)))
    };
    program.probes.iter().any(|probe| match &probe.location {
        Location::Offset(at) => in_terms(at),
        Location::Address(low, high) => in_terms(low) || high.as_ref().is_some_and(in_terms),
    })
}

/// Refuses a second `-` among the files that a command reads.
///
/// # Errors
/// Standard input would be read twice.
pub fn reads_stdin_once<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    if files.into_iter().filter(|path| *path == Path::new(STDIN)).count() > 1 {
        return Err(Failure::Usage("standard input (-) can be read only once".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
