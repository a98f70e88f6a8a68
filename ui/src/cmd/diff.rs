//! `trapline diff`: shows where and how two runs begin to differ.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use trapline_session::{
    Both, Cause, CompareError, ComparedRun, Comparison, FunctionHits, Guest, GuestBuilder, Input, Places,
    Point, Recording, Spot, StackFrame, compare, counted, hits_by_function,
};
use trapline_trace::{Paint, Role};

use super::travel;
use crate::cli::{DiffArgs, Format};
use crate::failure::{Exit, Failure};
use crate::progress::of_search;
use crate::talk::Talk;
use crate::{no_effect, options};

/// Most lines of one kind in the text output.
const SHOWN: usize = 16;

/// Runs the command.
///
/// # Errors
/// A recording or a guest cannot be used, or standard output cannot be written.
pub fn run(args: &DiffArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    has_two_runs(args)?;
    let files = [Some(args.a.as_path()), args.b.as_deref(), args.image.as_deref()];
    no_effect::reads_stdin_once(files.into_iter().flatten())?;
    let a = Recording::read(&args.a)?;
    let b = args.b.as_deref().map_or_else(|| Ok(a.clone()), Recording::read)?;
    let recordings = Both { a, b };
    let builders = Both {
        a: builder(&recordings.a, &args.a, args)?,
        b: changed(builder(&recordings.b, args.b.as_deref().unwrap_or(&args.a), args)?, args),
    };
    let first = options::open(&builders.a, talk)?;
    // Reading a guest's symbols takes longer than running it for a while.
    let second = if is_one_guest(&recordings, args) { None } else { Some(options::open(&builders.b, talk)?) };
    let guests: Both<&Guest> = Both { a: &first, b: second.as_ref().unwrap_or(&first) };
    let progress = talk.progress(of_search());
    let a = ComparedRun { guest: guests.a, recording: &recordings.a, changed: false };
    let b = ComparedRun { guest: guests.b, recording: &recordings.b, changed: args.b.is_none() };
    let found = compare(&a, &b).map_err(failure)?;
    let hits = match &args.hits {
        Some(spec) => Some(hits_by_function(&a, &b, spec).map_err(failure)?),
        None => None,
    };
    drop(progress);
    let differs = !found.is_equal() || hits.iter().flatten().any(|row| row.hits.a != row.hits.b);
    let names = Both { a: args.a.display().to_string(), b: name_of_other(args) };
    let written = match args.form.format {
        Format::Json => writeln!(out, "{}", object(&names, &found, hits.as_deref(), differs)),
        Format::Text => text(&names, &found, hits.as_deref(), Lines(out, talk.paint(true))),
    };
    written.map_err(Failure::Output)?;
    Ok(if differs { Exit::Different } else { Exit::Ok })
}

/// Refuses a comparison of a run with itself.
fn has_two_runs(args: &DiffArgs) -> Result<(), Failure> {
    let line = args.cmdline.cmdline.is_some() || !args.cmdline.append.is_empty();
    if args.b.is_some() || args.image.is_some() || args.mem.is_some() || line {
        return Ok(());
    }
    let a = args.a.display();
    Err(Failure::Usage(format!(
        "there is nothing to compare {a} with: give a second recording, or change its guest with --image, --mem, --cmdline \
         or --append"
    )))
}

fn builder(recording: &Recording, path: &Path, args: &DiffArgs) -> Result<GuestBuilder, Failure> {
    let places = Places { folders: args.image_dir.clone(), ..Places::of(path) };
    options::of_recording(recording, &places)
}

/// The guest with the requested changes.
fn changed(mut guest: GuestBuilder, args: &DiffArgs) -> GuestBuilder {
    if let Some(image) = &args.image {
        guest = guest.other_image(image.clone());
    }
    if let Some(bytes) = args.mem {
        guest = guest.memory(bytes);
    }
    if let Some(line) = &args.cmdline.cmdline {
        guest = guest.cmdline(line);
    }
    args.cmdline.append.iter().fold(guest, |guest, words| guest.append(words))
}

/// Whether both recordings have the same guest and the same options of probes.
fn is_one_guest(recordings: &Both<Recording>, args: &DiffArgs) -> bool {
    let of = |recording: &Recording| {
        let config = recording.config();
        let files: Vec<_> = config.all_files().map(|(what, file)| (what, file.hash)).collect();
        let strings: Vec<_> = config.modules.iter().map(|(_, string)| string.clone()).collect();
        let paths: Vec<_> = config.files.iter().map(|(path, _)| path.clone()).collect();
        let lines = (config.cmdline.clone(), config.append.clone(), config.embedded.clone());
        let machine = (config.memory, config.platform, config.virtio_console, config.image.name.clone());
        (files, strings, paths, lines, machine, format!("{:?}", config.options))
    };
    args.b.is_some() && of(&recordings.a) == of(&recordings.b)
}

fn failure(error: CompareError) -> Failure {
    match error {
        CompareError::Guest(error) => error.into(),
        CompareError::Travel(error) => travel::failure(error),
        CompareError::Probes(error) => error.into(),
    }
}

fn name_of_other(args: &DiffArgs) -> String {
    let Some(path) = &args.b else {
        let image = args.image.iter().map(|path| format!(" --image {}", path.display()));
        let mem = args.mem.iter().map(|bytes| format!(" --mem {bytes}"));
        let line = args.cmdline.cmdline.iter().map(|line| format!(" --cmdline '{line}'"));
        let more = args.cmdline.append.iter().map(|words| format!(" --append '{words}'"));
        let changes: String = image.chain(mem).chain(line).chain(more).collect();
        return format!("{} with{changes}", args.a.display());
    };
    path.display().to_string()
}

fn object(names: &Both<String>, found: &Comparison, hits: Option<&[FunctionHits]>, differs: bool) -> Value {
    let mut object = json!({"type": "diff", "a": names.a, "b": names.b, "equal": !differs});
    // Both have texts as their keys, so this cannot fail.
    let rest = serde_json::to_value(found).unwrap_or_default();
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
        object.extend(hits.map(|hits| ("hits".to_owned(), json!(hits))));
    }
    object
}

/// Writes lines with a label and a value.
struct Lines<'a>(&'a mut dyn Write, Paint);

impl Lines<'_> {
    fn line(&mut self, word: &str, text: &str) -> io::Result<()> {
        let label = format!("{word:12}");
        let label = if text.is_empty() { label.trim_end() } else { &label };
        let space = if text.is_empty() { "" } else { " " };
        writeln!(self.0, "{}{space}{}", self.1.text(Role::Dim, label), text.trim_end())
    }

    /// The value of the first run.
    fn a(&self, text: impl Display) -> String {
        self.1.text(Role::First, &format!("a {text}"))
    }

    /// The value of the second run.
    fn b(&self, text: impl Display) -> String {
        self.1.text(Role::Second, &format!("b {text}"))
    }

    /// A name with both values.
    fn both(&self, name: &str, a: &dyn Display, b: &dyn Display) -> String {
        format!("{name:24} {}  {}", self.a(a), self.b(b))
    }

    /// The first of many lines, and the number of the remaining ones.
    fn many(&mut self, word: &str, all: u64, lines: Vec<String>) -> io::Result<()> {
        let mut shown = 0;
        for line in lines.into_iter().take(SHOWN) {
            self.line(word, &line)?;
            shown += 1;
        }
        if all > shown {
            self.line("", &format!("... {} more (-f json shows more)", all - shown))?;
        }
        Ok(())
    }

    /// Bytes of memory, `all` together.
    fn memory(&mut self, word: &str, all: u64, runs: &[trapline_session::Bytes]) -> io::Result<()> {
        for run in runs.iter().take(SHOWN) {
            let text = format!("{}  {}  {}", place(run), self.a(&run.values.a), self.b(&run.values.b));
            self.line(word, &text)?;
        }
        let shown = runs.iter().take(SHOWN).map(|run| run.values.a.split(' ').count() as u64).sum();
        if all > shown {
            self.line("", &format!("... {} more", counted(all - shown, "byte")))?;
        }
        Ok(())
    }

    fn inputs(&mut self, word: &str, inputs: &Both<Option<Input>>) -> io::Result<()> {
        let said = |input: &Option<Input>| match input {
            Some(input) => format!("at {}: {}", input.icount, input.what),
            None => "nothing".to_owned(),
        };
        self.line(word, &self.a(said(&inputs.a)))?;
        self.line(word, &self.b(said(&inputs.b)))
    }

    fn point(&mut self, what: &str, point: &Point) -> io::Result<()> {
        writeln!(self.0)?;
        let what = &self.1.text(Role::Name, what);
        let begins = format!("after {}", counted(point.icount, "instruction"));
        match point.cause {
            Cause::Start => writeln!(self.0, "{what} differ from the start")?,
            Cause::Input => writeln!(self.0, "{what} differ {begins}, by what comes in")?,
            Cause::Delivery => {
                writeln!(self.0, "{what} differ {begins}, by an interrupt, an exception or the time in HLT")?;
            }
            Cause::Instruction => writeln!(self.0, "{what} differ {begins}, by the next instruction")?,
        }
        let word = if point.cause == Cause::Instruction { "instruction" } else { "at" };
        if point.at.a == point.at.b {
            self.line(word, &spot(&point.at.a))?;
        } else {
            self.line(word, &self.a(spot(&point.at.a)))?;
            self.line(word, &self.b(spot(&point.at.b)))?;
        }
        let registers = point.registers.iter();
        let rows: Vec<String> =
            registers.map(|r| self.both(&r.name, &r.values.a, &r.values.b)).take(SHOWN).collect();
        self.many("register", point.registers.len() as u64, rows)?;
        self.memory("memory", point.bytes, &point.memory)?;
        let fields = point.devices.iter().take(SHOWN);
        let rows: Vec<String> =
            fields.map(|f| self.both(&f.name, &short(&f.values.a), &short(&f.values.b))).collect();
        self.many("device", point.fields, rows)?;
        self.inputs("last input", &point.inputs)?;
        let Both { a, b } = &point.stacks;
        if a == b {
            return self.stack("stack", a);
        }
        self.stack("stack of a", a)?;
        self.stack("stack of b", b)
    }

    fn stack(&mut self, word: &str, frames: &[StackFrame]) -> io::Result<()> {
        for (n, frame) in frames.iter().enumerate() {
            let symbol = frame.symbol.as_deref().unwrap_or_default();
            self.line(if n == 0 { word } else { "" }, &format!("{:#x} {symbol}", frame.ip))?;
        }
        Ok(())
    }

    fn hits(&mut self, rows: &[FunctionHits]) -> io::Result<()> {
        writeln!(self.0)?;
        let different = rows.iter().filter(|row| row.hits.a != row.hits.b);
        for row in different.clone() {
            let (a, b) = (format!("{:>10}", row.hits.a), format!("{:>10}", row.hits.b));
            self.line("hits", &format!("{:32} {}  {}", row.function, self.a(a), self.b(b)))?;
        }
        let same = (rows.len() - different.count()) as u64;
        self.line("hits", &format!("{} with the same number in both", counted(same, "function")))
    }
}

/// A value of a device; for a long one, its length.
fn short(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 16 => format!("[{} items]", items.len()),
        Value::Null => "none".to_owned(),
        value => value.to_string(),
    }
}

fn spot(spot: &Spot) -> String {
    let mut text = format!("{:#x}", spot.ip);
    text.extend(spot.symbol.iter().map(|symbol| format!(" {symbol}")));
    text.extend(spot.instruction.iter().map(|instruction| format!(": {instruction}")));
    let task = spot.pid.zip(spot.task.as_ref());
    text.extend(task.map(|(pid, name)| format!("  [{pid} {name}]")));
    text
}

/// Where bytes are.
fn place(bytes: &trapline_session::Bytes) -> String {
    let mut place = format!("phys:{:#x}", bytes.physical);
    place.extend(bytes.linear.iter().map(|at| format!(" {at:#x}")));
    place.extend(bytes.symbol.iter().map(|symbol| format!(" {symbol}")));
    place
}

fn text(
    names: &Both<String>,
    found: &Comparison,
    hits: Option<&[FunctionHits]>,
    mut lines: Lines<'_>,
) -> io::Result<()> {
    lines.line("a", &names.a)?;
    lines.line("b", &names.b)?;
    let compared = counted(found.checkpoints.compared as u64, "checkpoint");
    match &found.checkpoints.different {
        Some(at) => lines.line(
            "checkpoints",
            &format!(
                "number {}, at {}, is the first that differs: in the {}",
                at.number,
                counted(at.icount, "instruction"),
                at.stage
            ),
        )?,
        None if found.checkpoints.compared > 0 => {
            lines.line("checkpoints", &format!("{compared}, all the same"))?;
        }
        None => {}
    }
    if let Some(inputs) = &found.inputs {
        lines.inputs("input", inputs)?;
    }
    if let Some(start) = &found.start {
        let what = format!(
            "{} of memory, which count only where they make a difference",
            counted(start.bytes, "byte")
        );
        lines.line("start", &what)?;
        lines.memory("", start.bytes, &start.memory)?;
    }
    let same = counted(found.same, "instruction");
    if found.is_equal() {
        let how = if found.ran { "both were run" } else { "by what the recordings hold" };
        lines.line("same", &format!("all {same}: nothing differs ({how})"))?;
    } else {
        lines.line("same", &same)?;
    }
    found.unexplained.iter().try_for_each(|why| lines.line("unexplained", why))?;
    if let Some(ends) = &found.ends {
        let said = |end: &trapline_session::End| match &end.ending {
            Some(ending) => format!("{ending} after {}", counted(end.icount, "instruction")),
            None => format!("ends after {}", counted(end.icount, "instruction")),
        };
        lines.line("end", &lines.a(said(&ends.a)))?;
        lines.line("end", &lines.b(said(&ends.b)))?;
    }
    found.devices.iter().try_for_each(|point| lines.point("devices", point))?;
    found.point.iter().try_for_each(|point| lines.point("registers or memory", point))?;
    hits.map_or(Ok(()), |rows| lines.hits(rows))
}
